"""Layers on every backend: halves and whole, padding, batch mates, checkpoints, autocast, NaN."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from ordered_memory import OrderedMemoryState
from tests.recurrences import (
    ANY_BACKEND,
    EVERY_BACKEND,
    RESULTS,
    assert_same,
    gradients,
    make,
    run_layer,
    skip_unless_it_runs,
)
from tests.small_memory import BOTH_CELLS, BOTH_SCORES, F64
from tests.tolerances import assert_close

pytestmark = pytest.mark.usefixtures("backends")


@EVERY_BACKEND
@BOTH_SCORES
@BOTH_CELLS
@pytest.mark.parametrize("bidirectional", [False, True])
def test_layers_of_all_backends_are_the_same(backend, score, cell, bidirectional):
    layers = make(backend, score=score, cell=cell, bidirectional=bidirectional)
    x = torch.randn(3, 6, 3, dtype=F64)
    for slots in (8, 1, 5):
        actual, expected = (run_layer(m, x, lengths=[6, 2, 3], num_slots=slots) for m in layers)
        assert_same(actual, expected)
    state = OrderedMemoryState(*(expected[name].detach() for name in OrderedMemoryState._fields))
    actual, expected = (run_layer(m, x, state, [5, 6, 1]) for m in layers)
    assert_same(actual, expected)


@ANY_BACKEND
@pytest.mark.parametrize("cut", [1, 2, 3, 5])
def test_two_parts_equal_the_whole(backend, cut):
    layer, _ = make(backend)
    x = torch.randn(3, 6, 3, dtype=F64, requires_grad=True)
    leaves = {"x": x} | dict(layer.named_parameters())
    whole = layer(x)
    first = layer(x[:, :cut])
    second = layer(x[:, cut:], first.state)
    parts = [torch.cat(pair, 1) for pair in zip(first[::2], second[::2], strict=True)]
    found = []
    for output, attention, state in ((*parts, second.state), (whole.output, whole.attention, whole.state)):
        results = dict(zip(RESULTS, (output, attention, *state), strict=True))
        squares = {name: tensor.detach() for name, tensor in results.items()}
        found.append(results | gradients(results, squares, leaves))
    assert_same(*found)


@ANY_BACKEND
@pytest.mark.parametrize("bidirectional", [False, True])
def test_padding_changes_nothing_whatever_stands_in_it(backend, bidirectional):
    layer, _ = make(backend, bidirectional=bidirectional)
    x = torch.randn(3, 6, 3, dtype=F64)
    lengths = [4, 6, 1]
    expected = layer(x, lengths=lengths)
    garbage = torch.cat([x, torch.full((3, 3, 3), float("nan"), dtype=F64)], 1)
    for b, length in enumerate(lengths):
        garbage[b, length:] = float("inf") if b == 0 else float("nan")
    garbage.requires_grad_()
    padded = layer(garbage, lengths=lengths)
    assert torch.equal(padded.output[:, :6], expected.output)
    assert (padded.output[:, 6:] == 0).all()
    assert all(map(torch.equal, padded.state, expected.state))
    padded.output.square().sum().backward()
    assert all(tensor.grad.isfinite().all() for tensor in (garbage, *layer.parameters()))
    for b, length in enumerate(lengths):
        assert (garbage.grad[b, length:] == 0).all()


@ANY_BACKEND
def test_batch_mates_change_nothing(backend):
    layer, _ = make(backend)
    x = torch.randn(5, 6, 3, dtype=F64, requires_grad=True)
    lengths = [6, 1, 3, 6, 5]
    together = layer(x, lengths=lengths)
    (gradient,) = torch.autograd.grad(together.output.square().sum(), x)
    for b, length in enumerate(lengths):
        alone = layer(x[[b], :length])
        assert_close(alone.output, together.output[[b], :length])
        assert_close(alone.attention, together.attention[[b], :length])
        for actual, expected in zip(alone.state, together.state, strict=True):
            assert_close(actual, expected[[b]])
        assert_close(torch.autograd.grad(alone.output.square().sum(), x)[0][b], gradient[b])


@EVERY_BACKEND
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_checkpointing_gives_the_same_gradients(backend, dropout):
    layer, _ = make(backend, cell_dropout=dropout, attention_dropout=dropout)
    x = torch.randn(3, 6, 3, dtype=F64)

    def again(*arguments, **named):
        return checkpoint(layer, *arguments, use_reentrant=False, **named)

    found = []
    for function in (layer, again):
        torch.manual_seed(6)
        leaf = x.clone().requires_grad_()
        out = function(leaf, lengths=[6, 1, 4])
        loss = out.output.square().sum() + out.state.memory.sum() + out.attention[..., 0].sum()
        found.append(torch.autograd.grad(loss, [leaf, *layer.parameters()]))
    assert all(map(torch.equal, *found))


@EVERY_BACKEND
@pytest.mark.parametrize("steps", [1, 3, 4])
def test_checkpointed_stretches_equal_the_definition(backend, steps):
    layer, definition = make(backend, bidirectional=True, recompute_every=steps)
    definition.recompute_every = None
    x = torch.randn(4, 7, 3, dtype=F64)
    for lengths in ([2, 3, 1, 3], [7, 4, 5, 1]):
        actual, expected = (run_layer(m, x, lengths=lengths) for m in (layer, definition))
        assert_same(actual, expected)


@ANY_BACKEND
@BOTH_CELLS
def test_under_autocast_it_follows_float32(backend, cell):
    layer, definition = make(backend, dtype=torch.float32, std=0.4, cell=cell)
    x = torch.randn(3, 6, 3)
    with torch.autocast("cpu", torch.bfloat16):
        direction = layer.directions[0]
        skip_unless_it_runs(backend, direction.norm(direction.projection(x)), direction.recurrent_modules())
        first = layer(x, lengths=[6, 1, 4])
        second = layer(x, first.state)
        of_bfloat16 = layer(x, OrderedMemoryState(*(tensor.bfloat16() for tensor in first.state)))
    expected = definition(x, lengths=[6, 1, 4])
    resumed = definition(x, expected.state)
    torch.testing.assert_close(first.output, expected.output, rtol=0.05, atol=0.05)
    for actual in (second, of_bfloat16):
        torch.testing.assert_close(actual.output, resumed.output, rtol=0.05, atol=0.05)
        results = (actual.output, actual.attention, *actual.state)
        assert {tensor.dtype for tensor in results} == {torch.float32}
    upstream = {"output": expected.output.detach()}
    found, wanted = (
        gradients(out._asdict(), upstream, dict(module.named_parameters()))
        for module, out in ((layer, first), (definition, expected))
    )
    for name, gradient in wanted.items():
        error = (found[name] - gradient).norm() / gradient.norm().clamp(min=1)
        assert error < 0.1, name


@EVERY_BACKEND
@BOTH_SCORES
def test_not_a_number_stays_in_its_sequence_and_shows(backend, score):
    layer, definition = make(backend, score=score)
    x = torch.randn(3, 6, 3, dtype=F64)
    expected = definition(x, lengths=[6, 4, 6])
    x[1, 1] = float("nan")
    x.requires_grad_()
    actual = layer(x, lengths=[6, 4, 6])
    assert_close(actual.output[[0, 2]], expected.output[[0, 2]])
    assert_close(actual.output[1, :1], expected.output[1, :1])
    assert actual.output[1, 1:4].isnan().all()
    assert (actual.output[1, 4:] == 0).all()
    (gradient,) = torch.autograd.grad(actual.output.square().sum(), x)
    assert gradient[[0, 2]].isfinite().all()


@EVERY_BACKEND
@BOTH_SCORES
@BOTH_CELLS
def test_not_a_number_in_a_weight_shows(backend, score, cell):
    layer, definition = make(backend, score=score, cell=cell)
    x = torch.randn(2, 4, 3, dtype=F64)
    for name, weight in layer.state_dict().items():
        kept = weight.clone()
        weight.view(-1)[0] = float("nan")
        definition.load_state_dict(layer.state_dict())
        for module in (definition, layer):
            assert module(x).output[:, -1].isnan().any(), name
        weight.copy_(kept)
