"""The Triton kernels against the definition: results, every gradient, dropout, NaN."""

import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint

from ordered_memory.attention import ScoreMasks
from ordered_memory.backends import contract, triton
from ordered_memory.backends.triton import call, plan
from ordered_memory.cells import CellMasks
from ordered_memory.dropout import draw_mask
from ordered_memory.memory import initial_state, run_recurrence
from ordered_memory.recurrence import DropoutSampler, StepMasks
from tests.infinite_scores import make_scores_minus_infinity
from tests.kernels import ALL_KERNELS, DEVICE, INTERPRETED, RUNS, tl
from tests.small_memory import BOTH_SCORES
from tests.tolerances import assert_close
from tests.triton_recurrences import NAMES, Case, assert_equals_the_definition
from tests.triton_turns import let_programs_take_turns

pytestmark = ALL_KERNELS


@RUNS
@BOTH_SCORES
def test_it_equals_the_definition_on_ragged_sequences(score):
    case = Case(score, slots=2, batch=9, steps=3)
    assert_equals_the_definition(case, lengths=[3, 0, 1, 2, 3, 1, 0, 2, 2])


@RUNS
@pytest.mark.parametrize(
    ("score", "size", "slots", "batch", "steps"),
    [
        ("normalized", 20, 4, 2, 3),
        ("additive", 5, 2, 1, 4),
        ("normalized", 16, 1, 2, 2),
        ("additive", 16, 1, 1, 1),
        ("normalized", 3, 3, 1, 1),
    ],
)
def test_it_equals_the_definition_at_odd_sizes(score, size, slots, batch, steps):
    assert_equals_the_definition(Case(score, size, slots, batch, steps))


@RUNS
@BOTH_SCORES
def test_it_equals_the_definition_under_fixed_dropout_masks(score):
    case = Case(score, size=12, slots=2, batch=2, dropout=0.4)
    assert_equals_the_definition(case, lengths=[3, 2], masks=case.draw_masks())


@RUNS
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # of the interpreter
def test_scores_that_are_all_minus_infinity_have_no_attention():
    case = Case("additive", slots=2, batch=1)
    make_scores_minus_infinity(case.modules.score)
    with torch.no_grad():
        state = initial_state(1, 2, case.inputs[0])
        attention = triton.run_recurrence(case.inputs, state, case.modules).attention
    assert (attention[0] == 0).all()
    assert attention[1:].isnan().all()


@RUNS
def test_masks_may_be_missing():
    case = Case(slots=2, batch=2, steps=2, dropout=0.4)
    first = case.draw_masks()[0]
    steps = [StepMasks(first.score, None), StepMasks(None, first.cell)]
    assert_equals_the_definition(case, masks=steps)
    assert_equals_the_definition(case, masks=[None, steps[0]])


@RUNS
@pytest.mark.parametrize(
    ("of_score", "of_cell"), [("query", None), ("key", "candidate"), ("features", "hidden")]
)
def test_masks_of_a_step_may_be_given_in_part(of_score, of_cell):
    case = Case(size=12, slots=2, batch=1, steps=2, dropout=0.4)
    step = case.draw_masks()[0]
    score, cell = (
        masks._replace(**{name: None for name in masks._fields if name != given})
        for masks, given in ((step.score, of_score), (step.cell, of_cell))
    )
    masks = [StepMasks(score, cell)] * 2
    expected = assert_equals_the_definition(case, masks=masks)
    with torch.no_grad():
        found = triton.run_recurrence(case.inputs, case.state, case.modules, None, masks)
    assert torch.equal(found.output, expected["output"])


@pytest.fixture(params=[(2, 4), (4, 4)], ids=["2 teams of 2", "1 team of 4"])
def _teams(request, monkeypatch):
    """Programs that share the products of the cell; without a GPU they run in turns."""
    size, multiprocessors = request.param
    monkeypatch.setattr(plan, "LARGEST_TEAM", size)
    monkeypatch.setattr(plan, "multiprocessors", lambda device: multiprocessors)
    if INTERPRETED:
        let_programs_take_turns(monkeypatch, size)


@RUNS
@pytest.mark.usefixtures("_teams")
@pytest.mark.parametrize(
    ("score", "size", "batch", "dropout"),
    [("normalized", 20, 3, 0.4), ("additive", 5, 7, 0.0)],
)
def test_teams_of_programs_give_the_same(score, size, batch, dropout):
    case = Case(score, size, slots=3, batch=batch, steps=2, dropout=dropout)
    lengths = [2, 0, 1, 2, 2, 1, 1][:batch]
    assert_equals_the_definition(case, lengths, case.draw_masks() if dropout else None)


@RUNS
@pytest.mark.usefixtures("_teams")
def test_a_team_leaves_out_slots_that_none_of_its_sequences_writes():
    case = Case(slots=3, batch=4, steps=2)
    case.state = initial_state(4, 3, case.inputs[0])
    for row in range(4):  # the last one to be read writes all slots, the first one none
        case.state.occupancy[row, 4 - row :] = 1
    results = assert_equals_the_definition(case)
    assert (results["attention"][0] > 0).sum(1).tolist() == [0, 1, 2, 3]


@RUNS
@pytest.mark.parametrize("_teams", [(2, 2)], indirect=True)
@pytest.mark.usefixtures("_teams")
def test_large_batches_take_several_launches():
    case = Case(slots=2, batch=18, steps=2)
    case.state = initial_state(18, 2, case.inputs[0])
    assert_equals_the_definition(case, torch.randint(0, 3, (18,)).tolist())


@RUNS
@pytest.mark.parametrize("_teams", [(4, 4)], indirect=True)
@pytest.mark.usefixtures("_teams")
def test_teams_give_the_same_without_gradients():
    test_without_gradients_the_results_are_the_same()


@RUNS
def test_slots_that_no_row_writes_are_left_out_and_still_pass_gradients_to_the_token():
    case = Case(slots=4, batch=2, steps=2)
    case.state = initial_state(2, 4, case.inputs[0])
    case.state.occupancy[:, 3:] = 1
    results = assert_equals_the_definition(case)
    assert (results["attention"][0, :, :2] == 0).all()


@pytest.fixture
def maximum_as_on_a_gpu(monkeypatch):
    """There the maximum of NaN and a number is the number. In the interpreter it is NaN."""
    if INTERPRETED:
        from triton.runtime.interpreter import InterpreterBuilder

        monkeypatch.setattr(
            InterpreterBuilder, "create_maxnumf", lambda self, *both: self.binary_op(*both, np.fmax)
        )


@RUNS
@BOTH_SCORES
@pytest.mark.usefixtures("maximum_as_on_a_gpu")
@pytest.mark.filterwarnings("ignore:All-NaN slice")
def test_not_a_number_in_a_weight_shows(score):
    case = Case(score, slots=2, batch=2, steps=1)
    for name in ("score.key.bias", "score.output.weight", "cell.from_memory.weight", "norm.weight"):
        weight = case.parameters[name]
        kept = weight.detach().clone()
        weight.data.view(-1)[0] = float("nan")
        for function in (run_recurrence, triton.run_recurrence):
            found = case.run(function)
            assert found["output"][-1].isnan().any(), name
            assert found["attention"].isnan().all() == name.startswith("score"), name
            assert found[f"gradient of {name}"].isnan().any(), name
        weight.data.copy_(kept)


@RUNS
@BOTH_SCORES
@pytest.mark.usefixtures("maximum_as_on_a_gpu")
@pytest.mark.filterwarnings("ignore:All-NaN slice")
def test_not_a_number_stays_in_its_sequence_and_shows(score):
    case = Case(score, slots=3, batch=3)
    expected = case.run(run_recurrence)
    case.state.candidate[1, 1, 0] = float("nan")  # so that one score of the sequence is NaN
    for function in (run_recurrence, triton.run_recurrence):
        found = case.run(function)
        assert found["output"][:, 1].isnan().any(-1).all()
        assert found["attention"][:, 1].isnan().all()
        assert_close(found["output"][:, ::2], expected["output"][:, ::2])
        assert_close(found["gradient of inputs"][:, ::2], expected["gradient of inputs"][:, ::2])


@RUNS
def test_without_gradients_the_results_are_the_same():
    case = Case(batch=3, steps=3)
    lengths = torch.tensor([2, 3, 0], device=DEVICE)
    arguments = (case.inputs, case.state, case.modules, lengths)
    case.inputs.requires_grad_()
    expected = triton.run_recurrence(*arguments)
    before = [tensor.clone() for tensor in case.state]
    with torch.no_grad():
        actual = triton.run_recurrence(*arguments)
    assert torch.equal(actual.output, expected.output)
    assert torch.equal(actual.attention, expected.attention)
    for name, left, right in zip(NAMES[1:4], actual.state, expected.state, strict=True):
        assert torch.equal(left, right), name
    assert all(map(torch.equal, case.state, before))


@RUNS
def test_saved_tensors_may_come_back_from_a_hook_with_gaps():
    case = Case("additive", slots=2, batch=2, steps=2, dropout=0.3)  # nn.LayerNorm itself does not allow it
    masks = case.draw_masks()
    expected = case.run(triton.run_recurrence, masks=masks)
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: torch.stack([tensor] * 2, -1), lambda pair: pair[..., 0]
    ):
        actual = case.run(triton.run_recurrence, masks=masks)
    for name in expected:
        assert_close(actual[name], expected[name], name)


@RUNS
def test_the_reverse_pass_can_be_run_twice():
    case = Case(slots=2, batch=1, steps=2)
    inputs = case.inputs.requires_grad_()
    loss = triton.run_recurrence(inputs, case.state, case.modules).output.square().sum()
    (first,) = torch.autograd.grad(loss, inputs, retain_graph=True)
    (second,) = torch.autograd.grad(loss, inputs)
    assert torch.equal(first, second)


def drawn_masks(case, sampler, seed):
    """What is dropped for a sampler after a seed, as fixed masks."""
    steps, batch, slots = case.shape
    size = case.inputs.shape[-1]
    torch.manual_seed(seed)
    arguments = contract.prepare(case.inputs, case.state, case.modules, None, sampler)
    torch.manual_seed(seed)
    torch.randint(2**63 - 1, (), device="cpu")
    score = case.modules.score
    is_dropped = score.training and score.dropout > 0
    query = draw_mask(tuple(case.inputs.shape), score.dropout, case.inputs) if is_dropped else None
    cell, score = (
        0.0 if part.dropout == 1 else 1 / (1 - round(part.dropout * 2**16) / 2**16)
        for part in (case.modules.cell, case.modules.score)
    )
    masks = call._masks(arguments.dropout, (steps, batch, slots, size), 16, case.inputs.device)
    key, feature, memory, candidate, hidden = (None if mask is None else mask.float() for mask in masks)

    def step(t):
        scored = None
        if query is not None:
            scored = ScoreMasks(query[t], key[t, ..., :size] * score, feature[t, ..., :size] * score)
        if hidden is None:
            return StepMasks(scored, None)
        inner = (
            memory[t, ..., :size] * cell,
            candidate[t, ..., :size] * cell,
            hidden[t, ..., : 4 * size] * cell,
        )
        return StepMasks(scored, CellMasks(*inner))

    return [step(t) for t in range(steps)]


@RUNS
@pytest.mark.parametrize(("cell", "score"), [(0.4, 0.4), (0.4, 0.0), (0.0, 1.0), (1.0, 0.3)])
def test_drawn_dropout_equals_the_definition_under_the_same_masks(cell, score):
    case = Case(size=12, slots=2, batch=2, steps=2)
    case.modules.cell.dropout, case.modules.score.dropout = cell, score
    drawer = DropoutSampler(case.modules, case.inputs[0], 2)
    masks = drawn_masks(case, drawer, seed=5)
    expected = case.run(run_recurrence, masks=masks)
    torch.manual_seed(5)
    actual = case.run(triton.run_recurrence, masks=drawer)
    for name in expected:
        assert_close(actual[name], expected[name], name)


def test_drawn_dropout_drops_the_fraction_asked_for_and_not_in_evaluation():
    case = Case(slots=4, batch=5, steps=6)
    case.modules.cell.dropout, case.modules.score.dropout = 0.3, 0.6
    sampler = DropoutSampler(case.modules, case.inputs[0], 4)

    def masks():
        arguments = contract.prepare(case.inputs, case.state, case.modules, None, sampler)
        return call._masks(arguments.dropout, (6, 5, 4, 16), 16, case.inputs.device)

    for mask, dropped in zip(masks(), (0.6, 0.6, 0.3, 0.3, 0.3), strict=True):
        assert mask.dtype == torch.uint8
        assert (mask == 0).float().mean().item() == pytest.approx(dropped, abs=0.05)
    case.direction.eval()
    assert masks() == [None] * 5


@RUNS
def test_checkpointing_draws_the_same_dropout_again():
    case = Case(slots=2, batch=1, steps=2, dropout=0.4)
    drawer = DropoutSampler(case.modules, case.inputs[0], 2)

    def through_a_checkpoint(*arguments):
        return checkpoint(triton.run_recurrence, *arguments, use_reentrant=False)

    torch.manual_seed(6)
    expected = case.run(triton.run_recurrence, masks=drawer)
    torch.manual_seed(6)
    actual = case.run(through_a_checkpoint, masks=drawer)
    for name in expected:
        assert torch.equal(actual[name], expected[name]), name


@pytest.fixture
def _bfloat16_products(monkeypatch):
    """Triton 3.7's interpreter multiplies the bits of bfloat16 operands, as if they were integers."""
    if not INTERPRETED:
        return
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    dot = InterpreterBuilder.create_dot

    def widen(handle):
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        return TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    monkeypatch.setattr(
        InterpreterBuilder,
        "create_dot",
        lambda builder, a, b, *rest: dot(builder, widen(a), widen(b), *rest),
    )


@RUNS
@pytest.mark.usefixtures("_bfloat16_products")
def test_under_bfloat16_autocast_products_take_bfloat16_operands():
    case = Case(slots=2, batch=2, steps=3)
    expected = case.run(run_recurrence)

    def narrow(*arguments):
        with torch.autocast(DEVICE, torch.bfloat16):
            return triton.run_recurrence(*arguments)

    actual = case.run(narrow)
    for name in NAMES:
        assert actual[name].dtype == torch.float32
        assert relative_error(actual[name], expected[name]) < 0.02, name
    # At this size rounding may turn a unit of relu on or off, and one gradient by as much.
    gradients = [
        torch.cat([found[name].flatten() for name in found if name not in NAMES])
        for found in (actual, expected)
    ]
    assert relative_error(*gradients) < 0.15
    assert not torch.equal(actual["output"], expected["output"])


def relative_error(actual, expected):
    return ((actual - expected).norm() / expected.norm()).item()


@pytest.mark.gpu
@BOTH_SCORES
@pytest.mark.parametrize(
    ("bfloat16", "batch", "tolerance"), [(False, 128, 1e-3), (False, 600, 1e-3), (True, 128, 0.2)]
)
def test_it_equals_the_definition_at_full_size(score, bfloat16, batch, tolerance):
    case = Case(score, size=128, slots=21, batch=batch, steps=40)
    for name, parameter in case.parameters.items():
        torch.nn.init.normal_(parameter, std=0.05)
        if "norm.weight" in name:
            torch.nn.init.ones_(parameter)
    case.state = initial_state(batch, 21, case.inputs[0])
    lengths = torch.randint(1, 41, (batch,)).tolist()
    expected = case.run(run_recurrence, lengths)

    def narrow(*arguments):
        with torch.autocast("cuda", torch.bfloat16, enabled=bfloat16):
            return triton.run_recurrence(*arguments)

    actual = case.run(narrow, lengths)
    for name in expected:
        if name != "gradient of score.output.bias":
            assert (actual[name] - expected[name]).norm() <= tolerance * expected[name].norm(), name
