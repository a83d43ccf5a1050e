"""ONLSTM and ONLSTMCell under autocast."""

import pytest
import torch
from torch import nn

from onlstm import ONLSTM, ONLSTMCell
from ordered_memory.modes import runs_lstm
from tests.equality import FAST, NAMES


@pytest.mark.parametrize("backend", NAMES)
def test_gradients_under_autocast_follow_those_of_float32(backend):
    layer = ONLSTM(16, 32, chunk_size=4, backend=backend)
    x, upstream = torch.randn(9, 8, 16, requires_grad=True), torch.randn(9, 8, 32)
    wanted, found = (), ()
    for autocast in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            output, _ = layer(x)
        wanted, found = (
            found,
            torch.autograd.grad(output, [x, *layer.parameters()], upstream.to(output.dtype)),
        )
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == torch.float32
        assert 0 < (one - other).norm() < 0.03 * other.norm() or torch.equal(one, other)


@pytest.mark.skipif("native" not in FAST, reason="no native backend here")
@pytest.mark.parametrize(("input_size", "hidden_size"), [(3, 8), (4, 7), (3, 7)])
def test_nothing_is_rounded_under_autocast_where_a_size_is_odd(input_size, hidden_size):
    layer = ONLSTM(input_size, hidden_size, chunk_size=1, backend="native")
    x = torch.randn(9, 8, input_size, requires_grad=True)
    upstream = torch.randint(-4, 5, (9, 8, hidden_size)).float()  # exact in bfloat16, too
    found = []
    for autocast in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            output, _ = layer(x)
        found.append(torch.autograd.grad(output, [x, *layer.parameters()], upstream.to(output.dtype)))
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("backend", FAST)
def test_gradients_are_the_same_if_backward_is_called_under_autocast(backend):
    layer = ONLSTM(16, 32, chunk_size=4, backend=backend)
    x, upstream = torch.randn(9, 8, 16, requires_grad=True), torch.randn(9, 8, 32)
    found = []
    for inside in (False, True):
        with torch.autocast("cpu", torch.bfloat16):
            output, _ = layer(x)
        with torch.autocast("cpu", torch.bfloat16, enabled=inside):
            found.append(torch.autograd.grad(output, [x, *layer.parameters()], upstream.to(output.dtype)))
    for outside, within in zip(*found, strict=True):
        assert torch.equal(outside, within)


@pytest.mark.parametrize("backend", NAMES)
@pytest.mark.parametrize("state", [None, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_gives_the_dtypes_of_nn_lstm(backend, state, dtype):
    x = torch.randn(4, 3, 5, dtype=dtype)
    hx = None if state is None else (torch.zeros(1, 3, 6, dtype=state), torch.zeros(1, 3, 6, dtype=state))
    dtypes = [torch.bfloat16] * 3
    with torch.autocast("cpu", torch.bfloat16):
        if runs_lstm(torch.bfloat16):
            theirs, state_of_theirs = nn.LSTM(5, 6)(x, hx)
            assert [t.dtype for t in (theirs, *state_of_theirs)] == dtypes
        output, (h, c), distances = ONLSTM(5, 6, chunk_size=2, backend=backend)(x, hx, distances=True)
    assert [t.dtype for t in (output, h, c)] == dtypes
    assert distances.forget.dtype == torch.float32


@pytest.mark.parametrize("backend", NAMES)
def test_autocast_rounds_products_alone(backend):
    layer, x = ONLSTM(16, 64, chunk_size=2, backend=backend), torch.randn(9, 4, 16)
    _, _, expected = layer(x, distances=True)
    with torch.autocast("cpu", torch.bfloat16):
        _, _, found = layer(x, distances=True)
    for one, other in zip(found, expected, strict=True):
        assert (one - other).abs().max() < 0.01
        assert not torch.equal(one, one.bfloat16().float())


def test_autocast_rounds_products_alone_in_a_cell():
    cell, x = ONLSTMCell(16, 64, chunk_size=2), torch.randn(4, 16)
    expected = cell(x, cell(x))
    with torch.autocast("cpu", torch.bfloat16):
        found = cell(x, cell(x))
        assert [one.dtype for one in cell(x.bfloat16())] == [torch.bfloat16] * 2  # as nn.LSTMCell
    for one, other in zip(found, expected, strict=True):
        assert (one - other).abs().max() < 0.002
        assert not torch.equal(one, one.bfloat16().float())


def test_autocast_leaves_float64_alone():
    layer, x = ONLSTM(5, 6, dtype=torch.float64), torch.randn(4, 3, 5, dtype=torch.float64)
    expected, _ = layer(x)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer(x)[0], expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
def test_autocast_casts_no_other_dtype(dtype):
    message = f"input must have dtype torch.float32, got {dtype}"
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ValueError, match=message):
        ONLSTM(5, 6)(torch.zeros(4, 3, 5, dtype=dtype))
