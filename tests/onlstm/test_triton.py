"""ON-LSTM's Triton kernels against the definition, on a GPU or in Triton's interpreter."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from onlstm import ONLSTM
from onlstm.backends import triton_steps
from onlstm.functional import Weights
from ordered_memory.backends.registry import BackendError
from tests.equality import assert_equals_the_definition
from tests.kernels import ALL_KERNELS, DEVICE, RUNS
from tests.tolerances import assert_close

ROOT = Path(__file__).parents[2]

pytestmark = [RUNS, *ALL_KERNELS]


@pytest.mark.parametrize(
    ("dtype", "batch_sizes", "masters", "chunk", "left", "seed"),
    [
        (torch.float64, [3, 3, 2, 1], 3, 5, 1, 1),
        (torch.float64, [3, 3, 2, 1], 3, 5, 1, 2),
        (torch.float32, [3, 3, 2, 1], 3, 5, 1, 1),
        (torch.float64, [1], 1, 1, 0, 1),
        (torch.float32, [1, 1, 1], 4, 1, 0, 2),
        (torch.float64, [2, 1], 1, 6, 2, 2),
        (torch.float64, [4, 4], 5, 3, 0, 1),
        (torch.float32, [2], 20, 10, 0, 2),
    ],
)
def test_the_kernels_equal_the_definition_with_all_gradients(dtype, batch_sizes, masters, chunk, left, seed):
    arguments = (dtype, batch_sizes, masters, chunk, left, seed, DEVICE)
    assert_equals_the_definition(triton_steps.run_recurrence, *arguments)


def test_saved_tensors_may_come_back_from_a_hook_with_gaps():
    layer = ONLSTM(4, 6, chunk_size=3, backend="triton", device=DEVICE)
    x = torch.randn(3, 2, 4, device=DEVICE, requires_grad=True)

    def gradients():
        return torch.autograd.grad(layer(x)[0].sin().sum(), [x, *layer.parameters()])

    expected = gradients()
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: torch.stack([tensor] * 2, -1), lambda pair: pair[..., 0]
    ):
        actual = gradients()
    for one, other in zip(actual, expected, strict=True):
        assert_close(one, other)


def test_a_layer_by_name_in_both_directions():
    sizes = {"num_layers": 2, "bidirectional": True, "chunk_size": 3}
    layer = ONLSTM(4, 6, backend="triton", **sizes).to(DEVICE)
    plain = ONLSTM(4, 6, backend="reference", **sizes).to(DEVICE)
    plain.load_state_dict(layer.state_dict())
    packed = pack_sequence([torch.randn(n, 4, device=DEVICE) for n in (3, 1, 2)], enforce_sorted=False)
    (one, state, distances), (other, wanted, expected) = (
        each(packed, distances=True) for each in (layer, plain)
    )
    for left, right in zip((one.data, *state, *distances), (other.data, *wanted, *expected), strict=True):
        assert_close(left, right)


def test_a_compiled_layer_is_one_graph():
    torch.compiler.reset()
    layer = ONLSTM(4, 6, chunk_size=3, backend="triton", device=DEVICE)
    x = torch.randn(5, 2, 4, device=DEVICE, requires_grad=True)
    found = []
    for call in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        output = call(x)[0]
        found.append([output, *torch.autograd.grad(output.square().sum(), [x, *layer.parameters()])])
    for expected, actual in zip(*found, strict=True):
        assert_close(actual, expected)


def test_an_operator_without_triton_says_so(monkeypatch):
    weights = Weights(torch.zeros(18, 2), torch.zeros(18, 4), None)  # H = 4, M = 1
    arguments = (torch.zeros(1, 2), [1], weights, torch.zeros(1, 4), torch.zeros(1, 4), 4)
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(RuntimeError, match="backend 'triton' cannot run here: Triton is not installed"):
        triton_steps.run_recurrence(*arguments)


def test_more_units_than_a_program_can_have(monkeypatch):
    monkeypatch.setattr(triton_steps, "LARGEST", 16)
    layer = ONLSTM(2, 30, chunk_size=10, backend="triton", device=DEVICE)
    with pytest.raises(BackendError, match="it takes at most 16 units"):
        layer(torch.zeros(1, 1, 2, device=DEVICE))


@pytest.mark.gpu
@pytest.mark.parametrize("size", [(70, 20, 400, 1150), (35, 256, 128, 400), (35, 32, 200, 650)])
def test_at_the_sizes_of_use_on_a_gpu(size):
    steps, batch, features, units = size
    layer = ONLSTM(features, units, chunk_size=10, backend="triton").cuda()
    plain = ONLSTM(features, units, chunk_size=10, backend="reference").cuda()
    plain.load_state_dict(layer.state_dict())
    x = torch.randn(steps, batch, features, device="cuda")
    assert_close(layer(x)[0], plain(x)[0])


@pytest.mark.slow
@pytest.mark.parametrize(("hidden_size", "chunk_size"), [(1150, 10), (400, 10), (200, 1), (64, 64)])
def test_the_kernels_compile_for_sm_90_without_spilling(hidden_size, chunk_size):
    sizes = {"model": "onlstm", "hidden_size": hidden_size, "chunk_size": chunk_size}
    command = [sys.executable, "-m", "tests.compile_triton", json.dumps(sizes)]
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    assert [kernel["spill_bytes"] for kernel in json.loads(done.stdout)] == [0, 0]
