"""The threads of the native backend."""

import copy
import math
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from onlstm import ONLSTM
from onlstm.backends import native
from onlstm.functional import Weights, run_recurrence
from tests.equality import NEEDS_NATIVE
from tests.tolerances import assert_close

pytestmark = NEEDS_NATIVE


@pytest.mark.parametrize(("masters", "chunk"), [(1, 4), (2, 3), (3, 2), (7, 5)])
def test_threads_share_the_units_and_change_nothing(three_threads, masters, chunk):
    size, batch_sizes = masters * chunk, [6, 5, 5, 2]
    rows = 4 * size + 2 * masters
    shapes = ((sum(batch_sizes), 3), (rows, 3), (rows, size), (rows,), (7, size), (7, size))
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    arguments = (inputs[0], batch_sizes, Weights(*inputs[1:4]), *inputs[4:], chunk)
    expected = run_recurrence(*arguments)
    upstream = [torch.randn_like(one) for one in expected]
    wanted = torch.autograd.grad(expected, inputs, upstream)
    for _ in range(20):
        actual = native.run_recurrence(*arguments)
        found = torch.autograd.grad(actual, inputs, upstream)
        for one, other in zip((*actual, *found), (*expected, *wanted), strict=True):
            assert_close(one, other)
        with torch.no_grad():
            for one, other in zip(native.run_recurrence(*arguments), expected, strict=True):
                assert_close(one, other)


def test_calls_from_many_threads_give_what_one_alone_gives(three_threads):
    layer = ONLSTM(3, 6, chunk_size=2, backend="native")
    x = torch.randn(9, 2, 3)
    expected = layer(x)[0].detach()
    with ThreadPoolExecutor(8) as callers:
        for output in callers.map(lambda _: layer(x)[0], range(40)):
            assert_close(output.detach(), expected)


@pytest.mark.parametrize(("forward", "backward"), [(2, 1), (1, 2), (3, 2), (2, 5)])
def test_the_reverse_pass_may_have_another_number_of_threads(small_work_is_shared, forward, backward):
    shapes = ((3, 3), (20, 3), (20, 4), (20,), (3, 4), (3, 4))
    leaves = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    tokens, *weights, hidden, cell = leaves
    call = (tokens, [2, 1], Weights(*weights), hidden, cell, 2)
    wanted = torch.autograd.grad(run_recurrence(*call).output.sin().sum(), leaves)
    torch.set_num_threads(forward)
    output = native.run_recurrence(*call).output
    torch.set_num_threads(backward)
    found = []
    thread = threading.Thread(  # another one, too
        target=lambda: found.extend(torch.autograd.grad(output.sin().sum(), leaves))
    )
    thread.start()
    thread.join()
    for one, other in zip(found, wanted, strict=True):
        assert_close(one, other)


def test_the_first_reverse_pass_is_as_the_second(small_work_is_shared):
    layer, x = ONLSTM(3, 6, chunk_size=2, backend="native"), torch.randn(9, 4, 3)
    torch.set_num_threads(3)
    outcomes = [torch.autograd.grad(layer(x)[0].sum(), list(layer.parameters())) for _ in range(3)]
    for other in outcomes[1:]:
        for one, two in zip(outcomes[0], other, strict=True):
            assert torch.equal(one, two)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_while_another_thread_is_inside(small_work_is_shared):
    layer, x, stop = ONLSTM(3, 6, chunk_size=2, backend="native"), torch.randn(9, 2, 3), threading.Event()
    torch.set_num_threads(3)
    expected = layer(x)[0].detach()
    # PyTorch locks a parameter while it is read. In the child nobody would unlock those of the other thread.
    own_layer = copy.deepcopy(layer)

    def work():
        while not stop.is_set():
            layer(x)

    caller = threading.Thread(target=work)
    caller.start()
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:  # nothing but the layer: much else in a process does not survive a fork
                signal.alarm(30)
                difference = math.inf
                try:
                    with torch.no_grad():
                        difference = float((own_layer(x)[0] - expected).abs().max())
                finally:  # an error must not go on into a copy of pytest
                    os._exit(0 if difference < 1e-6 else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        caller.join()
