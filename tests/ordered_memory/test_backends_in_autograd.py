"""Every backend in autograd: what may be frozen, modified, reversed twice, or run side by side."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from ordered_memory import OrderedMemoryState
from ordered_memory.backends.native import call
from ordered_memory.backends.runtime import buffers
from ordered_memory.memory import run_recurrence
from tests.recurrences import (
    EVERY_BACKEND,
    RESULTS,
    Case,
    assert_equals_the_definition,
    assert_same,
    gradients,
)
from tests.small_memory import BOTH_CELLS, BOTH_SCORES

pytestmark = pytest.mark.usefixtures("backends")


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
def test_passes_may_be_reversed_in_any_order(backend, monkeypatch):
    # What one pass gives back another uses, as where it is large.
    monkeypatch.setattr(buffers, "MIN_SIZE", 0)
    monkeypatch.setattr(call, "SMALL", 0)
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
