"""The consensus of several runs beside every tree that it could have been."""

import pytest

from ordered_memory import cky
from ordered_memory.baseline_trees import random_trees
from ordered_memory.consensus import consensus_trees
from ordered_memory.span_f1 import CONVENTIONS, span_f1
from ordered_memory.trees import fold, leaves
from tests.small_trees import all_trees, naive_spans


def runs_of(num_runs, lengths):
    return [random_trees(lengths, seed) for seed in range(num_runs)]


def agreement(tree, others):
    """How many spans a tree shares with the others, and with the earlier ones of them."""
    shared = [len(naive_spans(tree)[1] & naive_spans(other)[1]) for other in others]
    return sum(shared), sum((len(others) - r) * count for r, count in enumerate(shared, start=1))


@pytest.mark.parametrize("num_runs", [1, 2, 3, 4, 5])
def test_no_tree_agrees_with_the_runs_more_and_earlier_runs_decide(num_runs):
    lengths = [1, 2, 3, *[4, 5, 6, 7] * 8]
    runs = runs_of(num_runs, lengths)
    for found, *trees in zip(consensus_trees(runs), *runs, strict=True):
        every = all_trees(0, len(leaves(found)) - 1)
        assert found in every
        assert agreement(found, trees) == max(agreement(tree, trees) for tree in every)


def test_no_tree_has_a_higher_mean_f1_with_the_runs():
    runs = runs_of(4, [7] * 6)
    every = all_trees(0, 6)
    for found, *trees in zip(consensus_trees(runs), *runs, strict=True):
        for convention in CONVENTIONS:

            def mean(tree, trees=trees, convention=convention):
                return span_f1([tree] * 4, trees, **convention._asdict()).f1

            assert mean(found) == pytest.approx(max(map(mean, every)))


def test_runs_need_not_have_binary_trees():
    flat = (0, 1, 2, 3, 4)
    partial = [((0, 1), 2, 3, 4), (0, (1, 2), (3, 4)), (0, 1, 2, (3, 4))]
    (found,) = consensus_trees([[tree] for tree in (flat, *partial)])
    assert found in all_trees(0, 4)
    assert naive_spans(found)[1] >= {(0, 1), (3, 4)}
    (found,) = consensus_trees([[tree] for tree in (flat, *partial[::-1])])
    assert naive_spans(found)[1] >= {(1, 2), (3, 4)}
    assert consensus_trees([[flat]])[0] in all_trees(0, 4)


def test_two_runs_have_the_trees_of_the_first():
    first, second = runs_of(2, range(1, 30))
    assert consensus_trees([first, second]) == first
    assert consensus_trees([second, first]) == second


def test_a_majority_decides_and_batches_change_nothing(monkeypatch):
    lengths = [3, 40, 1, 9, 17, 9, 2, 40]
    one, two = runs_of(2, lengths)
    assert consensus_trees([one, two, two]) == two
    runs = runs_of(5, lengths)
    expected = consensus_trees(runs)
    monkeypatch.setattr(cky, "SENTENCES_PER_CKY", 3)
    monkeypatch.setattr(cky, "CELLS_PER_CKY", 2 * 9**3)
    assert consensus_trees(runs) == expected
    assert consensus_trees([trees[::-1] for trees in runs]) == expected[::-1]


def test_spans_that_all_runs_have_are_in_the_consensus():
    left, right = runs_of(5, [5] * 20), [random_trees([6] * 20, seed) for seed in range(5, 10)]
    runs = [
        [(one, fold(other, lambda leaf: leaf + 5, tuple)) for one, other in zip(*pair, strict=True)]
        for pair in zip(left, right, strict=True)
    ]
    for found, *trees in zip(consensus_trees(runs), *runs, strict=True):
        shared = set.intersection(*(naive_spans(tree)[1] for tree in trees))
        assert {(0, 4), (5, 10), (0, 10)} <= shared <= naive_spans(found)[1]


def test_what_a_consensus_refuses():
    with pytest.raises(ValueError, match="expected the trees of one run or more, got none"):
        consensus_trees([])
    with pytest.raises(TypeError, match=r"expected runs\[0\] to be a list of trees, got one tree"):
        consensus_trees([((0, 1), 2), ((0, 1), 2)])
    with pytest.raises(ValueError, match=r"as many trees in each run, got 1 in runs\[0\] and 2 in runs\[2\]"):
        consensus_trees([[0], [0], [0, 0]])
    message = r"over the same leaves, got 3 leaves in runs\[0\]\[1\] and 2 in runs\[1\]\[1\]"
    with pytest.raises(ValueError, match=message):
        consensus_trees([[0, (0, (1, 2))], [0, (0, 1)]])
    assert consensus_trees([[], []]) == []
