"""The Triton kernels against the definition: results, every gradient, dropout, and what they compile to."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from onlstm.backends import triton_kernels as onlstm_kernels
from ordered_memory import OrderedMemory, OrderedMemoryState
from ordered_memory.attention import ScoreMasks
from ordered_memory.backends import contract, operators, triton, triton_jit
from ordered_memory.backends.triton import call, kernels_backward, kernels_forward, kernels_shared, plan
from ordered_memory.cells import CellMasks
from ordered_memory.dropout import draw_mask
from ordered_memory.memory import initial_state, run_recurrence
from ordered_memory.recurrence import DropoutSampler, StepMasks
from tests.infinite_scores import make_scores_minus_infinity
from tests.kernels import ALL_KERNELS, DEVICE, INTERPRETED, RUNS, tl
from tests.tolerances import assert_close
from tests.triton_turns import let_programs_take_turns

pytestmark = ALL_KERNELS
BOTH_SCORES = pytest.mark.parametrize("score", ["additive", "normalized"])
NAMES = ("output", "memory", "candidate", "occupancy", "attention")
SHARED_MEMORY = 99 * 1024
"""What a program can use on any GPU with compute capability 8.0 or more."""


class Case:
    """Random weights, inputs, carried state and upstream gradients of one recurrence."""

    def __init__(self, score="normalized", size=16, slots=3, batch=3, steps=3, dropout=0.0, device=DEVICE):
        self.shape = (steps, batch, slots)
        layer = OrderedMemory(
            4,
            size,
            slots,
            score=score,
            cell_dropout=dropout,
            attention_dropout=dropout,
            device=device,
        )
        for parameter in layer.parameters():
            torch.nn.init.normal_(parameter, std=0.4)
        self.direction = layer.directions[0]
        self.modules = self.direction.recurrent_modules()
        self.parameters = {
            name: parameter
            for name, parameter in self.direction.named_parameters()
            if not name.startswith("projection")
        }
        self.inputs = torch.randn(steps, batch, size, device=device)
        self.state = OrderedMemoryState(
            torch.randn(batch, slots, size, device=device),
            torch.randn(batch, slots, size, device=device),
            torch.rand(batch, slots + 1, device=device).cumsum(1) / (slots + 1),
        )
        shapes = ((steps, batch, size), *(tensor.shape for tensor in self.state), (steps, batch, slots))
        self.upstream = [torch.randn(shape, device=device) for shape in shapes]

    def draw_masks(self):
        """Fixed dropout masks of every step; the last step has none."""
        steps, batch, slots = self.shape
        arguments = (batch, slots, self.inputs[0])
        masks = [
            StepMasks(self.modules.score.draw_masks(*arguments), self.modules.cell.draw_masks(*arguments))
            for _ in range(steps - 1)
        ]
        return [*masks, None]

    def run(self, function, lengths=None, masks=None):
        """Results and gradients, by name."""
        leaves = [tensor.clone().requires_grad_() for tensor in (self.inputs, *self.state)]
        if lengths is not None:
            lengths = torch.tensor(lengths, device=self.inputs.device)
        result = function(leaves[0], OrderedMemoryState(*leaves[1:]), self.modules, lengths, masks)
        results = dict(zip(NAMES, (result.output, *result.state, result.attention), strict=True))
        wanted = (
            dict(zip(("inputs", "memory", "candidate", "occupancy"), leaves, strict=True)) | self.parameters
        )
        gradients = torch.autograd.grad(list(results.values()), list(wanted.values()), self.upstream)
        found = {f"gradient of {name}": gradient for name, gradient in zip(wanted, gradients, strict=True)}
        return {name: tensor.detach() for name, tensor in results.items()} | found


def assert_equals_the_definition(case, lengths=None, masks=None):
    expected = case.run(run_recurrence, lengths, masks)
    actual = case.run(triton.run_recurrence, lengths, masks)
    assert actual.keys() == expected.keys()
    for name in expected:
        assert_close(actual[name], expected[name], name)
    return actual


class Launches(TorchDispatchMode):
    """Counts PyTorch's operations that compute something; on a GPU each launches a kernel or more."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        self.count += not function.is_view
        return function(*arguments, **(options or {}))


@RUNS
@BOTH_SCORES
def test_the_number_of_launches_depends_on_neither_length_nor_slots(score, monkeypatch):
    kernels_run = []
    for module, name in ((kernels_forward, "forward_kernel"), (kernels_backward, "backward_kernel")):
        kernel = getattr(module, name)

        def get(grid, kernel=kernel, name=name):
            kernels_run.append(name)
            return kernel[grid]

        counted = type("Counted", (), {"__getitem__": lambda self, grid, get=get: get(grid)})
        monkeypatch.setattr(module, name, counted())
    counts = []
    for steps, slots in ((1, 2), (2, 3)):
        case = Case(score, slots=slots, batch=1, steps=steps, dropout=0.2)
        with Launches() as launches:
            case.run(triton.run_recurrence, masks=case.direction.dropout_sampler(case.inputs[0], slots))
        counts.append(launches.count)
    assert kernels_run == ["forward_kernel", "backward_kernel"] * 2
    assert counts[0] == counts[1]


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
def test_the_operator_takes_masks_with_any_strides():
    case = Case(slots=3, batch=3, steps=2, dropout=0.3)
    arguments = contract.prepare(case.inputs, case.state, case.modules, None, case.draw_masks())
    masks = {
        name: mask.contiguous(memory_format=torch.channels_last)
        for name, mask in arguments.dropout._asdict().items()
        if name.endswith("mask")
    }
    other = arguments._replace(dropout=arguments.dropout._replace(**masks))
    with torch.no_grad():
        expected, actual = (
            triton.OPERATOR(*operators.flatten(each), False)[0] for each in (arguments, other)
        )
    assert_close(actual, expected)


def of_operator(arguments):
    """Results of the operator, and the gradient of its first result with respect to the key map."""
    key = arguments.weights.key.detach().requires_grad_()
    arguments = arguments._replace(weights=arguments.weights._replace(key=key))
    *results, _ = triton.OPERATOR(*operators.flatten(arguments), True)
    return *results, *torch.autograd.grad(results[0].square().sum(), key)


@RUNS
def test_the_operator_draws_only_the_masks_that_are_not_given():
    case = Case(size=12, slots=2, batch=2, steps=2, dropout=0.4)
    arguments = contract.prepare(case.inputs, case.state, case.modules, None, case.draw_masks())
    draws = {"seed": torch.tensor(5), "cell_drop_below": 0, "score_drop_below": 0}  # half of all entries
    other = arguments._replace(dropout=arguments.dropout._replace(**draws))
    for actual, expected in zip(of_operator(other), of_operator(arguments), strict=True):
        assert torch.equal(actual, expected)
    feature_mask = arguments.dropout.feature_mask
    key, feature, *of_cell = call._masks(
        contract.Dropout(feature_mask=feature_mask, **draws), (*case.shape, 12), 16, case.inputs.device
    )
    assert torch.equal(feature[..., :12], feature_mask)
    assert all(0.3 < mask.float().mean() < 0.7 for mask in (key, *of_cell))


@RUNS
def test_a_threshold_that_is_below_all_noise_drops_nothing():
    case = Case(slots=2, batch=1, steps=2)
    arguments = contract.prepare(case.inputs, case.state, case.modules, None, None)
    dropout = contract.Dropout(cell_drop_below=-(1 << 15), score_drop_below=-(1 << 15))
    actual, expected = (of_operator(arguments._replace(dropout=d)) for d in (dropout, arguments.dropout))
    for one, other in zip(actual, expected, strict=True):
        assert torch.equal(one, other)


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


@RUNS
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_a_compiled_layer_is_one_graph(dropout):
    torch.compiler.reset()
    layer = OrderedMemory(4, 16, 2, backend="triton", cell_dropout=dropout, attention_dropout=dropout)
    layer.to(DEVICE)
    x = torch.randn(3, 2, 4, device=DEVICE, requires_grad=True)
    found = []
    for function in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        torch.manual_seed(3)
        output = function(x, lengths=torch.tensor([3, 2])).output
        found.append([output, *torch.autograd.grad(output.square().sum(), [x, *layer.parameters()])])
    for expected, actual in zip(*found, strict=True):
        assert_close(actual, expected)


@RUNS
@BOTH_SCORES
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # opcheck of 2.15
@pytest.mark.parametrize(("size", "dropout"), [(16, 0.0), (12, 0.4)])
def test_the_operators_do_what_they_declare(score, size, dropout, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "new_empty", torch.Tensor.new_zeros)  # two calls leave the same there
    case = Case(score, size, slots=2, batch=2, steps=1, dropout=dropout)
    masks = case.direction.dropout_sampler(case.inputs[0], 2)
    arguments = contract.prepare(case.inputs, case.state, case.modules, None, masks)
    given = [one.detach() if isinstance(one, torch.Tensor) else one for one in operators.flatten(arguments)]
    differentiable = [
        one.clone().requires_grad_() if isinstance(one, torch.Tensor) and one.is_floating_point() else one
        for one in given
    ]
    forward, backward = torch.ops.ordered_memory.triton, torch.ops.ordered_memory.triton_backward
    torch.library.opcheck(forward.default, (*differentiable, True))
    with torch.no_grad():
        *results, saved = forward(*given, True)
    inputs = dict(zip(operators._fields(contract.Arguments), given, strict=True))
    wanted = [inputs[name] is not None for name in contract.Implementation.differentiable]
    upstream = [torch.randn_like(result) for result in results]
    torch.library.opcheck(backward.default, (*upstream, results[-1], saved, *given, wanted))


@pytest.mark.parametrize(
    ("batch", "width", "multiprocessors", "expected"),
    [
        (1, 128, 132, (16, 1, 1, 8)),
        (128, 128, 132, (16, 1, 8, 8)),
        (129, 128, 132, (16, 2, 5, 8)),
        (300, 128, 132, (16, 4, 5, 8)),
        (5000, 128, 132, (16, 8, 40, 8)),
        (5000, 512, 132, (16, 4, 79, 8)),
        (128, 128, 46, (16, 4, 2, 2)),
        (20, 128, 14, (8, 4, 1, 1)),
        (3, 128, 1, (1, 4, 1, 1)),
    ],
)
def test_all_programs_run_at_the_same_time_and_have_few_sequences(
    batch, width, multiprocessors, expected, monkeypatch
):
    monkeypatch.setattr(plan, "multiprocessors", lambda device: multiprocessors)
    teams = plan.choose_teams(batch, width, torch.device("cpu"))
    assert teams == expected
    assert teams.size * teams.at_a_time <= multiprocessors
    assert teams.size * teams.rows * teams.number >= batch


@pytest.mark.parametrize("operand", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [16, 128, 208, 304, 512])
@pytest.mark.parametrize("rows", [16, 32, 128])
def test_blocks_fit_and_few_columns_are_computed_in_vain(size, rows, operand):
    teams = plan.Teams(size=16, rows=rows // 16, number=1, at_a_time=1)
    resources = plan.choose_resources(teams, operand)
    block = plan.choose_block(rows, 2 * size, 4 * size, 16, resources)
    used = (rows + block.columns) * block.terms
    assert used <= max(resources.entries, 16 * (rows + block.columns))
    assert (resources.stages - 1) * used * operand.itemsize <= SHARED_MEMORY
    assert block.terms >= 16
    each = -(-4 * size // (16 * block.columns)) * block.columns
    assert each <= max(16, 1.34 * 4 * size / 16)


@RUNS
def test_the_operator_refuses_what_the_kernels_cannot_read():
    case = Case(slots=2, batch=2, steps=2)
    arguments = contract.prepare(case.inputs, case.state, case.modules, None, None)
    operator = torch.ops.ordered_memory.triton
    double = arguments._replace(inputs=arguments.inputs.double())
    plain = arguments._replace(weights=arguments.weights._replace(w_out=None, b_out=None))
    for wrong in (double, plain):
        with pytest.raises(ValueError, match="takes float32 inputs and the weights of the gated cell"):
            operator(*operators.flatten(wrong), False)
    with torch.no_grad():
        expected = operator(*operators.flatten(arguments), False)[0]
        longer = arguments._replace(lengths=torch.tensor([7, 2]))  # than the sequences are
        assert torch.equal(operator(*operators.flatten(longer), False)[0], expected)


def test_a_sequence_has_no_more_tokens_than_the_programs_can_count():
    case = Case(slots=21, batch=1, device="cpu")
    arguments = contract.prepare(case.inputs, case.state, case.modules, None, None)
    tokens = torch.zeros(1, 1, 16).expand(plan.longest_sequence(21) + 1, 1, 16)
    longer = arguments._replace(inputs=tokens, queries=tokens)
    with pytest.raises(ValueError, match="at most 2097151 tokens of a sequence in a call, got 2097152: read"):
        triton.TritonImplementation().check(longer)


def relative_error(actual, expected):
    return ((actual - expected).norm() / expected.norm()).item()


def test_it_says_why_it_cannot_run(monkeypatch):
    case = Case(device="cpu")
    inputs, modules = case.inputs, case.modules
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert triton.why_not(inputs, modules) is None
    reasons = {
        "torch.float64": (inputs.double(), modules),
        "slot_size": (torch.zeros(1, 1, 513), modules),
        "TreeRNNCell": (inputs, OrderedMemory(4, 16, 3, cell="tree-rnn").directions[0].recurrent_modules()),
        "norm must be a torch.nn.LayerNorm": (inputs, modules._replace(norm=torch.nn.Identity())),
        "score Linear": (inputs, modules._replace(score=torch.nn.Linear(16, 16))),
    }
    for word, arguments in reasons.items():
        assert word in triton.why_not(*arguments)
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    assert "GPU" in triton.why_not(inputs, modules)


def test_without_triton_the_modules_can_be_imported_and_say_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    case = Case(device="cpu")
    assert triton.why_not(case.inputs, case.modules) == "Triton is not installed"
    with pytest.raises(RuntimeError, match="backend 'triton' cannot run here: Triton is not installed"):
        triton.run_recurrence(case.inputs, case.state, case.modules)
    for module in (triton_jit, kernels_shared, kernels_forward, kernels_backward, onlstm_kernels):
        spec = importlib.util.spec_from_file_location(module.__name__, module.__file__)
        again = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, module.__name__, again)
        spec.loader.exec_module(again)
        assert again.tl is None


def compiled(**arguments):
    """What the kernels become for an H100 or H200, compiled where no GPU is needed."""
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    command = [sys.executable, "-m", "tests.compile_triton", json.dumps(arguments)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("size", [64, 128, 200, 300, 512])
@pytest.mark.parametrize("batch", [32, 1000])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_kernels_compile_for_sm_90(size, precision, batch):
    for kernel in compiled(size=size, precision=precision, batch=batch):
        assert kernel["shared"] <= SHARED_MEMORY, kernel
        assert kernel["spill_share"] < 0.15, kernel
        assert (kernel["matrix_instructions"] > 0) == (precision == "bfloat16"), kernel


@pytest.mark.slow
@pytest.mark.parametrize("capability", [90, 100])
@pytest.mark.parametrize("batch", [32, 1000])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_at_the_size_of_listops_no_register_is_spilled(precision, batch, capability):
    for kernel in compiled(size=128, slots=21, batch=batch, precision=precision, capability=capability):
        assert kernel["spill_bytes"] == 0, kernel


@pytest.mark.slow
@BOTH_SCORES
def test_every_variant_compiles_at_the_smallest_sizes(score):
    for dropout in (0.0, 0.5):
        for gradients in (False, True):
            arguments = {"size": 16, "slots": 1, "batch": 1, "dropout": dropout, "gradients": gradients}
            assert len(compiled(score=score, **arguments)) == (2 if gradients else 1)


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
