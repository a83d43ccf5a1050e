"""The definition against the equations: an independent NumPy oracle, hand-made cases, gradients."""

import numpy as np
import pytest
import torch
from torch.func import functional_call

from ordered_memory import OrderedMemory, OrderedMemoryState
from ordered_memory.memory import initial_state, run_recurrence, step
from ordered_memory.recurrence import StepMasks
from tests.oracle import run_sequence
from tests.small_memory import BOTH_CELLS, BOTH_SCORES


def random_layer(**arguments):
    """A float64 layer with random weights everywhere, LayerNorms included."""
    layer = OrderedMemory(3, 5, 4, batch_first=True, dtype=torch.float64, **arguments)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return layer


def weights_of(direction):
    return {name: tensor.detach().numpy() for name, tensor in direction.state_dict().items()}


@BOTH_SCORES
@BOTH_CELLS
def test_the_definition_agrees_with_explicit_loops(score, cell):
    layer = random_layer(score=score, cell=cell)
    lengths = [7, 1, 4, 2]
    x = torch.randn(4, 7, 3, dtype=torch.float64)
    with torch.no_grad():
        out = layer(x, lengths=lengths)
    weights = weights_of(layer.directions[0])
    for b, length in enumerate(lengths):
        outputs, attention_, state = run_sequence(weights, x[b, :length].numpy(), 4, score, cell)
        np.testing.assert_allclose(out.output[b, :length], outputs, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(out.attention[b, :length], attention_, rtol=1e-10, atol=1e-10)
        for actual, expected in zip(out.state, state, strict=True):
            np.testing.assert_allclose(actual[b], expected, rtol=1e-10, atol=1e-10)
        assert (out.output[b, length:] == 0).all()
        assert (out.attention[b, length:] == 0).all()


@BOTH_SCORES
def test_backward_direction_agrees_with_loops_over_the_reversed_sequence(score):
    layer = random_layer(score=score, bidirectional=True)
    x = torch.randn(3, 5, 3, dtype=torch.float64)
    lengths = [5, 2, 4]
    with torch.no_grad():
        out = layer(x, lengths=lengths)
    weights = weights_of(layer.directions[1])
    for b, length in enumerate(lengths):
        tokens = x[b, :length].flip(0).numpy()
        outputs, pointers, state = run_sequence(weights, tokens, 4, score, "gated")
        np.testing.assert_allclose(out.output[b, :length, 5:], outputs[::-1], atol=1e-10)
        np.testing.assert_allclose(out.attention[1, b, :length], pointers[::-1], atol=1e-10)
        np.testing.assert_allclose(out.state.candidate[1, b], state[1], atol=1e-10)


def test_threshold_reaches_the_recurrence():
    layer = random_layer(occupancy_threshold=0.3)
    x = torch.randn(1, 6, 3, dtype=torch.float64)
    with torch.no_grad():
        out = layer(x)
    expected = run_sequence(weights_of(layer.directions[0]), x[0].numpy(), 4, "normalized", "gated", 0.3)
    np.testing.assert_allclose(out.output[0], expected[0], atol=1e-10)


def test_the_first_token_fills_every_slot_of_the_candidate():
    maps = random_layer().directions[0].recurrent_modules()
    x = torch.randn(2, 5, dtype=torch.float64)
    state, p = step(x, initial_state(2, 4, x), maps)
    assert (p == 0).all()
    assert (state.memory == 0).all()
    assert torch.equal(state.candidate, x.unsqueeze(1).expand(2, 4, 5))
    assert state.occupancy.tolist() == [[0, 0, 0, 0, 1]] * 2


def test_the_second_token_can_only_attach_to_the_root():
    layer = random_layer()
    maps = layer.directions[0].recurrent_modules()
    first, second = torch.randn(2, 1, 5, dtype=torch.float64)
    state, _ = step(first, initial_state(1, 4, first), maps)
    state, p = step(second, state, maps)
    assert p.tolist() == [[0, 0, 0, 1]]
    composed = maps.norm(maps.cell(first, second))
    torch.testing.assert_close(state.candidate[:, -1], composed)
    assert torch.equal(state.candidate[:, 0], second)


def test_a_step_refuses_a_state_of_another_batch_size():
    maps = random_layer().directions[0].recurrent_modules()
    x = torch.randn(3, 5, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"state\.memory must have shape \(3, 4, 5\).*got \(1, 4, 5\)"):
        step(x, initial_state(1, 4, x), maps)
    state = initial_state(3, 4, x)
    with pytest.raises(ValueError, match=r"state\.occupancy must have shape \(3, 5\).*got \(1, 5\)"):
        step(x, state._replace(occupancy=state.occupancy[:1]), maps)


def test_the_loop_needs_a_step_as_the_layer_does():
    modules = random_layer().directions[0].recurrent_modules()
    x = torch.zeros(0, 2, 5, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"^inputs must have at least one step, got T = 0$"):
        run_recurrence(x, initial_state(2, 4, x), modules)


class FiveSteps(torch.nn.Module):
    """The loop over five ragged steps with fixed dropout masks, as one function of tensors."""

    def __init__(self, direction, masks):
        super().__init__()
        self.direction, self.masks = direction, masks

    def forward(self, x, *state):
        direction = self.direction
        inputs = direction.norm(direction.projection(x))
        lengths = torch.tensor([5, 3])
        result = run_recurrence(
            inputs, OrderedMemoryState(*state), direction.recurrent_modules(), lengths, self.masks
        )
        return result.output, result.attention, *result.state


@BOTH_SCORES
@BOTH_CELLS
def test_gradients_of_five_steps_in_float64(score, cell):
    layer = OrderedMemory(
        2, 3, 3, score=score, cell=cell, cell_dropout=0.3, attention_dropout=0.3, dtype=torch.float64
    )
    direction = layer.directions[0]
    like = torch.zeros(2, 3, dtype=torch.float64)
    masks = [
        StepMasks(direction.score.draw_masks(2, 3, like), direction.cell.draw_masks(2, 3, like))
        for _ in range(5)
    ]
    module = FiveSteps(direction, masks)
    names = [name for name, _ in module.named_parameters()]
    parameters = [torch.randn_like(parameter) for parameter in module.parameters()]
    inputs = [
        torch.randn(5, 2, 2, dtype=torch.float64),
        torch.randn(2, 3, 3, dtype=torch.float64),
        torch.randn(2, 3, 3, dtype=torch.float64),
        torch.rand(2, 4, dtype=torch.float64).clamp(min=0.05).cumsum(-1) / 4,
    ]

    def function(*tensors):
        named = dict(zip(names, tensors[len(inputs) :], strict=True))
        return functional_call(module, named, tensors[: len(inputs)])

    arguments = [tensor.requires_grad_() for tensor in (*inputs, *parameters)]
    assert torch.autograd.gradcheck(function, arguments, eps=1e-6, atol=1e-5, fast_mode=True)


@BOTH_SCORES
@BOTH_CELLS
def test_without_masks_the_definition_drops_nothing_even_in_training(score, cell):
    arguments = {"score": score, "cell": cell}
    layer = random_layer(cell_dropout=0.5, attention_dropout=0.5, **arguments)
    x = torch.randn(4, 2, 5, dtype=torch.float64)
    maps = layer.train().directions[0].recurrent_modules()
    training = run_recurrence(x, initial_state(2, 4, x[0]), maps).output
    layer.eval()
    assert torch.equal(run_recurrence(x, initial_state(2, 4, x[0]), maps).output, training)
