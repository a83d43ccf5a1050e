"""Every backend against the definition: results and every gradient.

Triton's kernels have a file of their own. Uninitialised memory is NaN in all of these tests.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ordered_memory import OrderedMemory, OrderedMemoryState
from ordered_memory.backends import BACKENDS
from ordered_memory.memory import initial_state, run_recurrence
from ordered_memory.recurrence import StepMasks
from tests.infinite_scores import make_scores_minus_infinity
from tests.recurrences import (
    ANY_BACKEND,
    EVERY_BACKEND,
    Case,
    assert_equals_the_definition,
    assert_same,
    gradients,
)
from tests.small_memory import BOTH_CELLS, BOTH_SCORES, F64

pytestmark = pytest.mark.usefixtures("backends")


@EVERY_BACKEND
@BOTH_SCORES
@BOTH_CELLS
@pytest.mark.parametrize(
    "shape",
    [
        {"steps": 10, "batch": 6, "slots": 5, "lengths": [10, 3, 7, 1, 9, 10]},
        {"steps": 10, "batch": 3, "slots": 5, "lengths": [4, 10, 2], "start": "empty"},
        {"steps": 4, "batch": 4, "slots": 4, "lengths": [0, 4, 2, 0]},
        {"steps": 4, "batch": 3, "lengths": [0, 0, 0]},
        {"steps": 4, "batch": 3, "lengths": [4, 4, 4], "start": "empty"},
        {"steps": 5, "batch": 3, "lengths": [2, 3, 1], "start": "carried"},
        {"steps": 5, "start": "carried"},
        {"steps": 1, "start": "empty"},
        {"steps": 1},
        {"batch": 1, "start": "empty"},
        {"batch": 1},
        {"slots": 1, "lengths": [5, 1, 0], "start": "empty"},
        {"slots": 1},
        {"steps": 1, "batch": 1, "slots": 1, "size": 1},
        {"steps": 3, "batch": 2, "slots": 3, "size": 19, "start": "empty"},
        # with at most four tokens, weights are not packed
        {"steps": 1, "batch": 1, "slots": 3, "size": 37},
        {"steps": 1, "batch": 3, "slots": 3, "size": 13},
        {"steps": 2, "batch": 2, "slots": 3, "size": 21, "lengths": [1, 2]},
        {"steps": 5, "batch": 1, "slots": 3, "size": 13},
    ],
    ids=lambda shape: ",".join(f"{name}={value}" for name, value in shape.items()),
)
def test_it_equals_the_definition(backend, score, cell, shape):
    assert_equals_the_definition(backend, Case(score=score, cell=cell, **shape))


@EVERY_BACKEND
@BOTH_SCORES
@BOTH_CELLS
@pytest.mark.parametrize("start", ["empty", "arbitrary"])
def test_it_equals_the_definition_in_float32(backend, score, cell, start):
    lengths = [6, 2, 0, 5, 6]
    arguments = {"start": start, "dtype": torch.float32, "cell_dropout": 0.2, "attention_dropout": 0.2}
    case = Case(6, 5, 4, 7, lengths, score=score, cell=cell, std=0.4, **arguments)
    assert_equals_the_definition(backend, case)


@EVERY_BACKEND
@BOTH_SCORES
@BOTH_CELLS
def test_in_bfloat16_it_is_about_as_exact_as_the_definition(backend, score, cell):
    arguments = {"score": score, "cell": cell, "dtype": torch.bfloat16, "start": "empty", "std": 0.4}
    case = Case(6, 4, 4, 8, [6, 2, 5, 3], **arguments)
    narrow = [case.run(run_recurrence), case.run(case.backend(backend))]
    case.inputs, case.state = case.inputs.double(), initial_state(4, 4, case.inputs[0].double())
    case.upstream = {name: gradient.double() for name, gradient in case.upstream.items()}
    for weight in case.weights.values():
        weight.data = weight.data.double()
    exact = flat(case.run(run_recurrence))
    of_definition, own = ((flat(found) - exact).norm() for found in narrow)
    assert own < 2 * of_definition


def flat(found):
    return torch.cat([tensor.detach().double().flatten() for tensor in found.values()])


@EVERY_BACKEND
@BOTH_SCORES
def test_it_equals_the_definition_on_more_rows_than_are_taken_at_once(backend, score):
    lengths = torch.randint(3, 8, (70,)).tolist()
    case = Case(7, 70, 9, 9, lengths, score=score, cell_dropout=0.2, attention_dropout=0.2)
    assert_equals_the_definition(backend, case)


@EVERY_BACKEND
@BOTH_SCORES
@BOTH_CELLS
@pytest.mark.parametrize("threshold", [0.0, 0.25, 0.6])
def test_it_equals_the_definition_at_other_thresholds(backend, score, cell, threshold):
    case = Case(7, 4, 5, lengths=[7, 4, 7, 2], score=score, cell=cell, occupancy_threshold=threshold)
    assert_equals_the_definition(backend, case)


@ANY_BACKEND
def test_scores_that_are_all_minus_infinity_have_no_attention(backend):
    layer = OrderedMemory(4, 6, 3, score="additive", backend=backend)
    make_scores_minus_infinity(layer.directions[0].score)
    out = layer(torch.randn(3, 2, 4))
    assert (out.attention[0] == 0).all()
    assert out.attention[1:].isnan().all()
    assert all(tensor[:, :3].isnan().all() for tensor in out.state)


@EVERY_BACKEND
@settings(max_examples=25)
@given(data=st.data())
def test_it_equals_the_definition_whatever_the_shape(backend, data):
    def one_of(*values):
        return data.draw(st.sampled_from(values))

    for_cell = {cell: Case(1, 1, 1, 1, cell=cell) for cell in ("gated", "tree-rnn")}
    reasons = {cell: BACKENDS[backend].why_not(case.inputs, case.modules) for cell, case in for_cell.items()}
    cells = [cell for cell, reason in reasons.items() if reason is None]
    if not cells:
        pytest.skip(reasons["gated"])
    steps, batch, slots, size = (data.draw(st.integers(1, most)) for most in (6, 5, 5, 6))
    lengths = data.draw(st.none() | st.lists(st.integers(0, steps), min_size=batch, max_size=batch))
    torch.manual_seed(data.draw(st.integers(0, 2**32)))
    case = Case(
        *(steps, batch, slots, size, lengths),
        start=one_of("empty", "carried", "arbitrary"),
        score=one_of("additive", "normalized"),
        cell=one_of(*cells),
        cell_dropout=one_of(0.0, 0.3, 1.0),
        attention_dropout=one_of(0.0, 0.3, 1.0),
        occupancy_threshold=one_of(1e-5, 0.0, 0.3),
    )
    assert_equals_the_definition(backend, case)


@EVERY_BACKEND
@BOTH_SCORES
@BOTH_CELLS
def test_fixed_masks_of_some_steps_and_places(backend, score, cell):
    dropout = {"cell_dropout": 0.4, "attention_dropout": 0.4}
    case = Case(8, 4, lengths=[8, 3, 0, 6], score=score, cell=cell, **dropout)
    full, nothing = case.masks, [None] * 8
    score, of_cell = (part for part in full[2])
    case.masks = [
        *(full[0], None, StepMasks(score, None), StepMasks(None, of_cell), StepMasks()),
        StepMasks(score._replace(query=None), of_cell._replace(memory=None)),
        StepMasks(score._replace(key=None), of_cell._replace(candidate=None)),
        StepMasks(score._replace(features=None), of_cell._replace(hidden=None)),
    ]
    assert_equals_the_definition(backend, case)
    case.masks = nothing
    without = case.run(case.backend(backend))
    case.masks = None
    assert_same(without, case.run(run_recurrence))


@EVERY_BACKEND
@pytest.mark.parametrize("strides", ["time last", "expanded"])
def test_it_equals_the_definition_on_tensors_that_are_not_contiguous(backend, strides):
    case = Case()
    steps, batch, size = case.inputs.shape
    if strides == "time last":
        case.inputs = torch.randn(batch, size, steps, dtype=F64).permute(2, 0, 1)
        case.state = OrderedMemoryState(*(torch.stack([t, t], -1)[..., 0] for t in case.state))
    else:
        case.inputs = torch.randn(steps, 1, size, dtype=F64).expand(-1, batch, -1)
        case.state = OrderedMemoryState(*(tensor[:1].expand_as(tensor) for tensor in case.state))
    function = case.backend(backend)
    leaves = {"inputs": case.inputs.requires_grad_()} | case.weights
    expected, actual = (case.results(f) for f in (run_recurrence, function))
    assert_same(actual, expected)
    assert_same(gradients(actual, case.upstream, leaves), gradients(expected, case.upstream, leaves))


@EVERY_BACKEND
@BOTH_SCORES
@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
def test_masks_may_be_of_another_dtype(backend, score, dtype):
    case = Case(lengths=[5, 0, 3], score=score, cell_dropout=0.4, attention_dropout=0.4)
    case.masks = [
        StepMasks(*(type(part)(*(mask.to(dtype) for mask in part)) for part in step)) for step in case.masks
    ]
    assert_equals_the_definition(backend, case)


@EVERY_BACKEND
def test_lengths_beyond_the_last_step_end_there(backend):
    case = Case(lengths=[5, 3, 2])
    expected = case.run(case.backend(backend))
    case.lengths[0] = 8
    assert_same(case.run(case.backend(backend)), expected)
