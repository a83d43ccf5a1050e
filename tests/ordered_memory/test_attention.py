"""Masked attention, scores and cells, each alone."""

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ordered_memory import AdditiveScore, GatedRecursiveCell, NormalizedScore, TreeRNNCell, masked_attention
from ordered_memory.attention import NO_SCORE_MASKS

HALVES = {
    AdditiveScore: ("query", "key"),
    GatedRecursiveCell: ("from_memory", "from_candidate"),
    TreeRNNCell: ("from_memory", "from_candidate"),
}
"""The attributes with the two halves of a linear map of 2D inputs."""

occupancies = st.lists(st.floats(0, 1), min_size=2, max_size=8).map(sorted)


@pytest.mark.parametrize("kind", HALVES)
def test_two_halves_of_a_linear_map_begin_as_the_whole_map_would(kind):
    """Uniformly within 1 / √(2D), as nn.Linear with 2D inputs."""
    module, bound = kind(200), 400**-0.5
    for half in HALVES[kind]:
        for parameter in getattr(module, half).parameters():
            assert 0.95 * bound < parameter.abs().max() <= bound
            assert parameter.std().item() == pytest.approx(bound / 3**0.5, rel=0.1)


@given(occupancies, st.randoms(use_true_random=False))
def test_attention_is_a_softmax_weighted_by_the_occupancy_below(occupancy, random):
    scores = [random.uniform(-5, 5) for _ in occupancy[1:]]
    weights = [
        (m if m >= 1e-5 else 0) * torch.exp(torch.tensor(a, dtype=torch.float64)).item()
        for a, m in zip(scores, occupancy[1:], strict=True)
    ]
    expected = [w / sum(weights) if sum(weights) else 0.0 for w in weights]
    p = masked_attention(
        torch.tensor(scores, dtype=torch.float64), torch.tensor(occupancy, dtype=torch.float64)
    )
    torch.testing.assert_close(p, torch.tensor(expected, dtype=torch.float64))


def test_a_huge_score_on_a_masked_slot_does_not_drown_the_others():
    p = masked_attention(torch.tensor([1e4, 0.0, 0.0]), torch.tensor([0.0, 0.0, 1.0, 1.0]))
    assert p.tolist() == [0.0, 0.5, 0.5]


def test_an_empty_memory_attends_nowhere_and_has_finite_gradients():
    scores = torch.randn(2, 3, requires_grad=True)
    occupancy = torch.zeros(2, 4, requires_grad=True)
    p = masked_attention(scores, occupancy)
    assert (p == 0).all()
    p.sum().backward()
    assert scores.grad.isfinite().all()
    assert occupancy.grad.isfinite().all()


@pytest.mark.parametrize("width", [1, 2, 4, 6])
def test_occupancy_has_one_entry_more_than_scores(width):
    with pytest.raises(ValueError, match=f"occupancy must have 5 entries, one more than scores, got {width}"):
        masked_attention(torch.zeros(3, 4), torch.ones(3, width))


def test_scores_of_minus_infinity_attend_nowhere_unless_all_are_as_in_softmax():
    occupancy = torch.tensor([0.0, 0.0, 0.5, 1.0])
    one, every = torch.tensor([[9.0, -torch.inf, 1.0], [9.0, -torch.inf, -torch.inf]])
    assert masked_attention(one, occupancy).tolist() == [0, 0, 1]
    assert masked_attention(every, occupancy).isnan().all()


@pytest.mark.parametrize("threshold", [-0.1, 2, float("nan"), "a", None, torch.zeros(2)], ids=str)
def test_the_threshold_is_a_fraction(threshold):
    with pytest.raises(ValueError, match=re.escape(f"threshold must lie in [0, 1], got {threshold!r}")):
        masked_attention(torch.zeros(3), torch.ones(4), threshold)


def test_the_threshold_decides_what_counts_as_empty():
    occupancy = torch.tensor([0.0, 0.01, 0.5, 1.0])
    assert masked_attention(torch.zeros(3), occupancy, threshold=0.02)[0] == 0
    assert masked_attention(torch.zeros(3), occupancy, threshold=0.005)[0] > 0


def test_an_occupancy_at_the_threshold_counts():
    p = masked_attention(torch.zeros(2), torch.tensor([0.0, 0.25, 0.5]), threshold=0.25)
    assert torch.equal(p, torch.tensor([1 / 3, 2 / 3]))


def test_gradient_reaches_scores_and_occupancy():
    scores = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    occupancy = torch.rand(4, 4, dtype=torch.float64).clamp(min=0.1).requires_grad_()
    assert torch.autograd.gradcheck(masked_attention, (scores, occupancy))


@pytest.mark.parametrize("score", [AdditiveScore, NormalizedScore])
def test_scores_do_not_depend_on_the_other_slots(score):
    module = score(6).double()
    x, candidate = torch.randn(2, 6).double(), torch.randn(2, 5, 6).double()
    alone = torch.stack([module(x, candidate[:, [i]])[:, 0] for i in range(5)], dim=1)
    torch.testing.assert_close(module(x, candidate), alone)


@pytest.mark.parametrize("score", [AdditiveScore, NormalizedScore])
def test_dropout_masks_act_on_query_key_and_features(score):
    module = score(6, dropout=0.5).double()
    x, candidate = torch.randn(2, 6).double(), torch.randn(2, 5, 6).double()
    masks = module.draw_masks(2, 5, x)
    plain = module(x, candidate)
    for site in masks._fields:
        only = type(masks)(*(mask if name == site else None for name, mask in masks._asdict().items()))
        assert not torch.allclose(module(x, candidate, only), plain), site
    assert module.eval().draw_masks(2, 5, x) is None


@pytest.mark.parametrize("score", [AdditiveScore, NormalizedScore])
def test_a_score_on_its_own_drops_in_training_and_in_training_only(score):
    module = score(6, dropout=0.5)
    x, candidate = torch.randn(2, 6), torch.randn(2, 5, 6)
    torch.manual_seed(1)
    masks = module.draw_masks(2, 5, x)
    torch.manual_seed(1)
    dropped = module(x, candidate)
    assert torch.equal(dropped, module(x, candidate, masks))
    assert not torch.equal(dropped, module(x, candidate))
    assert torch.equal(module(x, candidate, NO_SCORE_MASKS), module.eval()(x, candidate))


@pytest.mark.parametrize("cell", [GatedRecursiveCell, TreeRNNCell])
@pytest.mark.parametrize("leading", [(), (3,), (2, 5)])
def test_a_cell_on_its_own_drops_in_training_and_in_training_only(cell, leading):
    module = cell(6, dropout=0.5)
    memory, candidate = torch.randn(*leading, 6), torch.randn(*leading, 6)
    assert not torch.equal(module(memory, candidate), module(memory, candidate))
    expected = module.compose(module.prepare(memory), memory, candidate)
    assert torch.equal(module.eval()(memory, candidate), expected)


@pytest.mark.parametrize("module", [AdditiveScore, NormalizedScore, GatedRecursiveCell, TreeRNNCell])
def test_arguments_of_scores_and_cells_are_checked_by_name(module):
    with pytest.raises(ValueError, match=re.escape("dropout must lie in [0, 1], got 1.5")):
        module(6, dropout=1.5)
    with pytest.raises(ValueError, match="slot_size must be an integer of at least 1, got 0"):
        module(0)
    assert {p.dtype for p in module(6, dtype=torch.float64).parameters()} == {torch.float64}
    assert all(p.is_meta for p in module(6, device="meta").parameters())
