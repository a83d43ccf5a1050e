"""The threads of the native backend."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from onlstm import ONLSTM
from onlstm.backends import native
from onlstm.functional import Weights, run_recurrence
from tests.equality import NEEDS_NATIVE
from tests.tolerances import assert_close


@pytest.fixture
def three_threads(monkeypatch):
    """However small the work is."""
    monkeypatch.setattr(native, "MIN_WORK_PER_THREAD", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@NEEDS_NATIVE
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


@NEEDS_NATIVE
def test_calls_from_many_threads_give_what_one_alone_gives(three_threads):
    layer = ONLSTM(3, 6, chunk_size=2, backend="native")
    x = torch.randn(9, 2, 3)
    expected = layer(x)[0].detach()
    with ThreadPoolExecutor(8) as callers:
        for output in callers.map(lambda _: layer(x)[0], range(40)):
            assert_close(output.detach(), expected)
