"""Every backend against the definition: results, every gradient, dropout, and what a caller may do with them.

Triton's kernels have a file of their own. Uninitialised memory is NaN in all of these tests.
"""

import functools
import inspect
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.checkpoint import checkpoint

from ordered_memory import OrderedMemory, OrderedMemoryState
from ordered_memory.backends import BACKENDS, Backend, select_backend, sequence
from ordered_memory.memory import initial_state, run_recurrence
from ordered_memory.recurrence import DropoutSampler, StepMasks
from tests.infinite_scores import make_scores_minus_infinity
from tests.tolerances import assert_close

F64 = torch.float64
EVERY_SLOT = "sequence, every slot"  # the layout for devices other than a CPU
TESTED = {name: backend for name, backend in BACKENDS.items() if name not in ("reference", "triton")}
TESTED[EVERY_SLOT] = Backend(functools.partial(sequence.run_recurrence, active_only=False), sequence.why_not)

EVERY_BACKEND = pytest.mark.parametrize("backend", TESTED)
ANY_BACKEND = pytest.mark.parametrize("backend", [*TESTED, "reference"])
BOTH_SCORES = pytest.mark.parametrize("score", ["additive", "normalized"])
BOTH_CELLS = pytest.mark.parametrize("cell", ["gated", "tree-rnn"])
RESULTS = ("output", "attention", "memory", "candidate", "occupancy")


@pytest.fixture(autouse=True)
def _every_variant_has_a_name(monkeypatch):
    monkeypatch.setitem(BACKENDS, EVERY_SLOT, TESTED[EVERY_SLOT])


@pytest.fixture(autouse=True)
def _uninitialised_memory_is_nan(monkeypatch):
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(before)


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # for sizes as small as these
    yield
    torch.set_num_threads(before)


def randomize(layer, std=0.6):
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=std)
    return layer


def arbitrary_state(batch, slots, size, dtype=F64):
    """Anything at all; among the occupancies zeros, some too small to count and an empty memory."""
    occupancy = torch.rand(batch, slots + 1, dtype=dtype)
    kinds = torch.randint(6, occupancy.shape)
    occupancy[kinds == 0] = 0
    occupancy[kinds == 1] = 1e-7
    occupancy[0] = occupancy[0].sort().values
    if batch > 2:
        occupancy[1] = 0
    memory, candidate = torch.randn(2, batch, slots, size, dtype=dtype)
    return OrderedMemoryState(memory, candidate, occupancy)


class Case:
    """Random weights, tokens, state, dropout masks and upstream gradients of one recurrence."""

    def __init__(
        self,
        steps=5,
        batch=3,
        slots=4,
        size=4,
        lengths=None,
        start="arbitrary",
        dtype=F64,
        std=0.6,
        **arguments,
    ):
        layer = randomize(OrderedMemory(size, size, slots, dtype=dtype, **arguments), std)
        direction = layer.directions[0]
        self.modules = direction.recurrent_modules()
        named = direction.named_parameters()
        self.weights = {name: weight for name, weight in named if not name.startswith("projection")}
        self.inputs = torch.randn(steps, batch, size, dtype=dtype)
        self.lengths = None if lengths is None else torch.tensor(lengths)
        if start == "arbitrary":
            self.state = arbitrary_state(batch, slots, size, dtype)
        else:
            self.state = initial_state(batch, slots, self.inputs[0])
        if start == "carried":
            with torch.no_grad():
                self.state = run_recurrence(torch.randn_like(self.inputs), self.state, self.modules).state
        draw = direction.dropout_sampler(self.inputs[0], slots)
        self.masks = [draw(t) for t in range(steps)] if draw else None
        shapes = (self.inputs.shape, (steps, batch, slots), *(tensor.shape for tensor in self.state))
        self.upstream = {
            name: torch.randn(shape, dtype=dtype) for name, shape in zip(RESULTS, shapes, strict=True)
        }

    @property
    def drawer(self):
        return DropoutSampler(self.modules, self.inputs[0], self.state.memory.shape[1])

    def results(self, function, inputs=None, state=None):
        """What `function` computes, by name."""
        inputs, state = self.inputs if inputs is None else inputs, state or self.state
        result = function(inputs, state, self.modules, self.lengths, self.masks)
        return dict(zip(RESULTS, (result.output, result.attention, *result.state), strict=True))

    def leaves(self):
        """The tensors that gradients are wanted of, by name; the state's and the inputs' are copies."""
        own = {"inputs": self.inputs} | self.state._asdict()
        return {name: tensor.clone().requires_grad_() for name, tensor in own.items()} | self.weights

    def run(self, function):
        """Results and gradients, by name."""
        leaves = self.leaves()
        state = OrderedMemoryState(*(leaves[name] for name in OrderedMemoryState._fields))
        results = self.results(function, leaves["inputs"], state)
        return results | gradients(results, self.upstream, leaves)

    def backend(self, name):
        """The backend's function; skips the test where it cannot run."""
        skip_unless_it_runs(name, self.inputs, self.modules)
        return BACKENDS[name].run_recurrence


def gradients(results, upstream, leaves):
    """Gradients of Σ result · upstream over the results that have an upstream."""
    loss = sum((results[name] * gradient).sum() for name, gradient in upstream.items())
    found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)
    return {f"gradient of {name}": gradient for name, gradient in zip(leaves, found, strict=True)}


def skip_unless_it_runs(backend, inputs, modules):
    reason = BACKENDS[backend].why_not(inputs, modules)
    if reason is not None:
        pytest.skip(reason)


def assert_same(actual, expected):
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        assert_close(actual[name], tensor, name)


def assert_equals_the_definition(backend, case):
    actual, expected = case.run(case.backend(backend)), case.run(run_recurrence)
    # Rounding errors of a score are divided by the occupancy that it was weighted with, down to 1e-7.
    tiny = (case.state.occupancy > 0) & (case.state.occupancy < 1e-5)
    for found in (actual, expected):
        found["gradient of occupancy"] *= torch.where(tiny, case.state.occupancy / 1e-5, 1.0)
    assert_same(actual, expected)
    for b, length in enumerate([] if case.lengths is None else case.lengths.tolist()):
        assert (actual["output"][length:, b] == 0).all()
        assert (actual["attention"][length:, b] == 0).all()
        assert (actual["gradient of inputs"][length:, b] == 0).all()
        if length == 0:
            assert all(torch.equal(actual[name][b], old[b]) for name, old in case.state._asdict().items())


# Results and gradients


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


# Autograd


@EVERY_BACKEND
@pytest.mark.parametrize(("score", "cell"), [("normalized", "gated"), ("additive", "tree-rnn")])
def test_gradients_agree_with_finite_differences(backend, score, cell):
    case = Case(3, 2, 3, 3, [3, 2], score=score, cell=cell, cell_dropout=0.3, attention_dropout=0.3)
    function = case.backend(backend)

    def results(inputs, *rest):
        return tuple(case.results(function, inputs, OrderedMemoryState(*rest[:3])).values())

    # The weights are read from the modules, so that perturbing them in place is enough.
    assert torch.autograd.gradcheck(results, tuple(case.leaves().values()), fast_mode=True)


@EVERY_BACKEND
@pytest.mark.parametrize("name", RESULTS)
def test_a_gradient_may_come_from_one_result_alone(backend, name):
    case = Case(lengths=[5, 0, 3])
    case.upstream = {name: case.upstream[name]}
    assert_equals_the_definition(backend, case)


@EVERY_BACKEND
@pytest.mark.parametrize("trained", ["inputs", "memory", "candidate", "occupancy", "score", "cell", "norm"])
def test_everything_but_one_part_may_be_frozen(backend, trained):
    case = Case(lengths=[5, 0, 3])
    function = case.backend(backend)
    leaves = case.leaves()
    wanted = {name: leaf for name, leaf in leaves.items() if name.split(".")[0] == trained}
    for name in leaves.keys() - wanted.keys():
        leaves[name].requires_grad_(False)
    state = OrderedMemoryState(*(leaves[name] for name in OrderedMemoryState._fields))
    expected, actual = (case.results(f, leaves["inputs"], state) for f in (run_recurrence, function))
    assert_same(gradients(actual, case.upstream, wanted), gradients(expected, case.upstream, wanted))


@EVERY_BACKEND
def test_the_reverse_pass_can_be_run_twice(backend):
    case = Case(lengths=[5, 0, 3], cell_dropout=0.4, attention_dropout=0.4)
    leaves = case.leaves()
    results = case.results(case.backend(backend), leaves["inputs"])
    leaves = {"inputs": leaves["inputs"]} | case.weights
    loss = sum((results[name] * gradient).sum() for name, gradient in case.upstream.items())
    first = torch.autograd.grad(loss, list(leaves.values()), retain_graph=True)
    second = torch.autograd.grad(loss, list(leaves.values()))
    assert all(map(torch.equal, first, second))


@EVERY_BACKEND
@BOTH_SCORES
def test_a_second_derivative_is_right_or_refused(backend, score):
    case = Case(score=score)
    leaves = {"inputs": case.inputs.requires_grad_()} | case.weights

    def twice(function):
        output = case.results(function)["output"]
        (first,) = torch.autograd.grad(output.square().sum(), case.inputs, create_graph=True)
        return gradients({"slope": first}, {"slope": first.detach()}, leaves)

    expected = twice(run_recurrence)
    try:
        found = twice(case.backend(backend))
    except RuntimeError:
        return
    assert_same(found, expected)


@EVERY_BACKEND
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_the_numbers_are_the_same(backend, mode):
    case = Case(lengths=[5, 0, 3], cell_dropout=0.4, attention_dropout=0.4)
    function = case.backend(backend)
    expected = case.results(function)
    with mode():
        actual = case.results(function)
    for name, tensor in expected.items():
        assert torch.equal(actual[name], tensor), name
        assert not actual[name].requires_grad


@EVERY_BACKEND
def test_arguments_are_not_modified(backend):
    case = Case(lengths=[5, 0, 3], cell_dropout=0.4, attention_dropout=0.4)
    before = [tensor.detach().clone() for tensor in (case.inputs, *case.state, *case.leaves().values())]
    upstream = {name: tensor.clone() for name, tensor in case.upstream.items()}
    case.run(case.backend(backend))
    assert all(map(torch.equal, (case.inputs, *case.state, *case.leaves().values()), before))
    assert all(torch.equal(case.upstream[name], tensor) for name, tensor in upstream.items())


@EVERY_BACKEND
@pytest.mark.parametrize("name", RESULTS)
def test_a_result_that_is_modified_never_makes_a_gradient_wrong(backend, name):
    case = Case(lengths=[5, 0, 3])
    leaves = {"inputs": case.inputs.requires_grad_()} | case.weights
    results = case.results(case.backend(backend))
    expected = gradients(results, case.upstream, leaves)
    results = case.results(case.backend(backend))
    results[name].mul_(2)
    upstream = case.upstream | {name: case.upstream[name] / 2}
    try:
        found = gradients(results, upstream, leaves)
    except RuntimeError as refusal:
        if "modified by an inplace operation" not in str(refusal):
            raise
    else:
        assert_same(found, expected)


@EVERY_BACKEND
@pytest.mark.parametrize("threads", [2, 3, 5, 16])
def test_the_number_of_threads_changes_nothing(backend, threads):
    case = Case(6, 7, lengths=[6, 0, 3, 6, 1, 5, 2], cell_dropout=0.3, attention_dropout=0.3)
    torch.set_num_threads(threads)
    assert_equals_the_definition(backend, case)
    assert torch.get_num_threads() == threads


@EVERY_BACKEND
def test_passes_may_run_side_by_side(backend):
    cases = [Case(4, 5 + i, slots=3 + i, lengths=[*range(5), *[4] * i]) for i in range(4)]
    function = cases[0].backend(backend)
    expected = [case.run(run_recurrence) for case in cases]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            found = pool.map(lambda case: case.run(function), cases)
            for actual, wanted in zip(found, expected, strict=True):
                assert_same(actual, wanted)


@EVERY_BACKEND
@BOTH_CELLS
def test_saved_tensors_may_come_back_from_a_hook_with_other_strides(backend, cell):
    # not for the normalized score: the nn.LayerNorm of its queries does not allow it
    case = Case(lengths=[5, 2, 0], score="additive", cell=cell, attention_dropout=0.3, cell_dropout=0.3)
    function = case.backend(backend)
    expected = case.run(function)

    def transpose(tensor):
        return tensor.permute(list(reversed(range(tensor.dim()))))

    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: transpose(tensor).contiguous(), transpose):
        actual = case.run(function)
    assert_same(actual, expected)


@EVERY_BACKEND
def test_passes_may_be_reversed_in_any_order(backend):
    case = Case()
    function = case.backend(backend)
    leaves = [torch.randn_like(case.inputs).requires_grad_() for _ in range(4)]
    expected = [gradients(case.results(run_recurrence, leaf), case.upstream, {"x": leaf}) for leaf in leaves]
    results = [case.results(function, leaf) for leaf in leaves]
    del results[1]
    results.insert(1, case.results(function, leaves[1]))
    for i in (2, 0, 3, 1):
        assert_same(gradients(results[i], case.upstream, {"x": leaves[i]}), expected[i])
        results[i] = None
        case.results(function, leaves[i])


# Through the layer


def make(backend, dtype=F64, std=0.6, **arguments):
    """A layer that runs on the backend, and one with the same weights that runs on the definition."""
    arguments = {"batch_first": True, "dtype": dtype, **arguments}
    layer = randomize(OrderedMemory(3, 6, 5, backend=backend, **arguments), std)
    skip_unless_it_runs(backend, torch.zeros(1, 1, 6, dtype=dtype), layer.directions[0].recurrent_modules())
    definition = OrderedMemory(3, 6, 5, backend="reference", **arguments)
    definition.load_state_dict(layer.state_dict())
    return layer, definition


def run_layer(layer, x, *arguments, upstream=None, **named):
    """Results and gradients, by name; upstream gradients are the same for every layer."""
    x = x.clone().requires_grad_()
    out = layer(x, *arguments, **named)
    results = dict(zip(RESULTS, (out.output, out.attention, *out.state), strict=True))
    generator = torch.Generator().manual_seed(3)
    upstream = {n: torch.randn(r.shape, generator=generator, dtype=r.dtype) for n, r in results.items()}
    return results | gradients(results, upstream, {"x": x} | dict(layer.named_parameters()))


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


@EVERY_BACKEND
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
        assert {tensor.dtype for tensor in actual.state} == {torch.float32}
    upstream = {"output": expected.output.detach()}
    found, wanted = (
        gradients(out._asdict(), upstream, dict(module.named_parameters()))
        for module, out in ((layer, first), (definition, expected))
    )
    for name, gradient in wanted.items():
        error = (found[name] - gradient).norm() / gradient.norm().clamp(min=1)
        assert error < 0.1, name


# Dropout that is drawn


@EVERY_BACKEND
@BOTH_SCORES
@BOTH_CELLS
@pytest.mark.parametrize(("of_cell", "of_score"), [(1.0, 0.0), (0.0, 1.0), (1.0, 1.0)])
def test_dropping_everything_equals_the_definition(backend, score, cell, of_cell, of_score):
    dropout = {"cell_dropout": of_cell, "attention_dropout": of_score}
    case = Case(lengths=[5, 0, 3], score=score, cell=cell, **dropout)
    case.masks = case.drawer
    assert_equals_the_definition(backend, case)


@EVERY_BACKEND
def test_drawn_dropout_is_reproducible_under_a_seed_and_off_in_evaluation(backend):
    layer, definition = make(backend, cell_dropout=0.3, attention_dropout=0.3, bidirectional=True)
    x = torch.randn(2, 6, 3, dtype=F64)
    outputs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outputs += [layer(x).output, layer(x).output]
    assert torch.equal(outputs[0], outputs[2])
    assert torch.equal(outputs[1], outputs[3])
    assert not torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[4])
    assert_close(layer.eval()(x).output, definition.eval()(x).output)


@EVERY_BACKEND
@pytest.mark.parametrize("site", ["score", "cell"])
def test_one_module_alone_may_be_in_evaluation(backend, site):
    layer, definition = make(backend, cell_dropout=0.3, attention_dropout=0.3)
    other = "cell" if site == "score" else "score"
    for module in (layer.directions[0], definition.directions[0]):
        getattr(module, site).eval()
        getattr(module, other).dropout = 0.0
    x = torch.randn(2, 6, 3, dtype=F64)
    assert_close(layer(x).output, definition(x).output)


@EVERY_BACKEND
@pytest.mark.parametrize(("of_cell", "of_score"), [(0.3, 0.0), (0.0, 0.3), (0.6, 0.2)])
@BOTH_SCORES
def test_drawn_dropout_has_the_distribution_of_the_definition(backend, score, of_cell, of_score):
    """Means and products of all outputs and attentions of three steps of many equal sequences."""
    dropout = {"cell_dropout": of_cell, "attention_dropout": of_score}
    case = Case(3, 6000, 2, 5, start="empty", score=score, std=1.0, **dropout)
    case.inputs = case.inputs[:, :1].expand(-1, 6000, -1)
    case.masks = case.drawer
    means, errors = [], []
    with torch.no_grad():
        for function in (run_recurrence, case.backend(backend)):
            results = case.results(function)
            drawn = torch.cat([*results["output"][1:], *results["attention"][2:]], 1)
            moments = torch.cat([drawn, torch.einsum("bi,bj->bij", drawn, drawn).flatten(1)], 1)
            means.append(moments.mean(0))
            errors.append(moments.var(0) / len(moments))
    assert len(drawn.mul(1e6).round().unique(dim=0)) > (5900 if of_cell else 1000), "rows share their masks"
    error = sum(errors).sqrt()
    assert (error > 1e-4).any(), "nothing was dropped"
    assert ((means[0] - means[1]).abs() <= 5 * error + 1e-12).all()


@EVERY_BACKEND
@BOTH_SCORES
@BOTH_CELLS
def test_the_reverse_pass_drops_what_the_forward_pass_dropped(backend, score, cell):
    dropout = {"cell_dropout": 0.4, "attention_dropout": 0.3}
    case = Case(3, 30, 4, 5, [3] * 10 + [1, 3, 2, 0] * 5, score=score, cell=cell, **dropout)
    case.masks = case.drawer
    function = case.backend(backend)
    leaves = case.leaves()
    state = OrderedMemoryState(*(leaves[name] for name in OrderedMemoryState._fields))

    def loss():
        torch.manual_seed(4)
        results = case.results(function, leaves["inputs"], state)
        return sum((results[name] * gradient).sum() for name, gradient in case.upstream.items())

    slopes = torch.autograd.grad(loss(), list(leaves.values()))
    for name, leaf, slope in zip(leaves, leaves.values(), slopes, strict=True):
        direction = torch.randn_like(leaf)
        if name == "occupancy":
            direction *= leaf > 1e-3  # stay where it was of the threshold
        with torch.no_grad():
            leaf += 1e-6 * direction
            above = loss()
            leaf -= 2e-6 * direction
            difference = (above - loss()) / 2e-6
            leaf += 1e-6 * direction
        torch.testing.assert_close((slope * direction).sum(), difference, rtol=1e-5, atol=1e-5, msg=name)


# The registry


def test_the_definition_is_always_there_and_every_backend_takes_its_arguments():
    assert BACKENDS["reference"].run_recurrence is run_recurrence
    wanted = list(inspect.signature(run_recurrence).parameters)
    for name, backend in BACKENDS.items():
        assert list(inspect.signature(backend.run_recurrence).parameters)[: len(wanted)] == wanted, name


def test_auto_takes_the_first_that_can_run(monkeypatch):
    case = Case()
    broken = Backend(None, lambda inputs, modules, state: "it is broken")
    known = {"broken": broken, "reference": BACKENDS["reference"], "also broken": broken}
    monkeypatch.setattr("ordered_memory.backends.BACKENDS", known)
    assert select_backend("auto", case.inputs, case.modules) is run_recurrence
    with pytest.raises(RuntimeError, match="backend 'broken' cannot run here: it is broken"):
        select_backend("broken", case.inputs, case.modules)


@EVERY_BACKEND
def test_why_not_names_unsupported_scores_cells_and_norms(backend):
    case = Case()
    case.backend(backend)

    class Other(torch.nn.Module):
        pass

    why_not = BACKENDS[backend].why_not
    assert "score Other" in why_not(case.inputs, case.modules._replace(score=Other()))
    assert "cell Other" in why_not(case.inputs, case.modules._replace(cell=Other()))
    assert "LayerNorm" in why_not(case.inputs, case.modules._replace(norm=Other()))
    affine = torch.nn.LayerNorm(4, elementwise_affine=False)
    assert "LayerNorm" in why_not(case.inputs, case.modules._replace(norm=affine))


# Out of the ordinary


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
