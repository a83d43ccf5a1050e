"""Every backend with dropout that is drawn, against the definition."""

import pytest
import torch

from ordered_memory import OrderedMemoryState
from ordered_memory.memory import run_recurrence
from tests.recurrences import ANY_BACKEND, EVERY_BACKEND, Case, assert_equals_the_definition, make
from tests.small_memory import BOTH_CELLS, BOTH_SCORES, F64
from tests.tolerances import assert_close

pytestmark = pytest.mark.usefixtures("backends")


@EVERY_BACKEND
@BOTH_SCORES
@BOTH_CELLS
@pytest.mark.parametrize(("of_cell", "of_score"), [(1.0, 0.0), (0.0, 1.0), (1.0, 1.0)])
def test_dropping_everything_equals_the_definition(backend, score, cell, of_cell, of_score):
    dropout = {"cell_dropout": of_cell, "attention_dropout": of_score}
    case = Case(lengths=[5, 0, 3], score=score, cell=cell, **dropout)
    case.masks = case.drawer
    assert_equals_the_definition(backend, case)


@ANY_BACKEND
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
