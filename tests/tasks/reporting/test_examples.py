"""The examples of a report differ from each other."""

import numpy as np
import pytest

from tasks.reporting.examples import LENGTHS, choose_examples


@pytest.fixture
def data():
    """Lengths, depths and correctness of 1,000 examples, most of them short and rightly answered."""
    rng = np.random.default_rng(0)
    lengths = rng.geometric(0.05, 1_000)
    return lengths, rng.integers(1, 2 + lengths // 4), rng.random(1_000) < 0.9


def test_they_are_different_ones_of_all_lengths_and_depths_half_of_them_wrong(data):
    lengths, depths, correct = data
    chosen = choose_examples(lengths, depths, correct, 40)
    assert len(set(chosen)) == len(chosen) == 40
    assert correct[chosen].sum() == 20
    assert lengths[chosen].min() <= LENGTHS[0] + 2
    assert lengths[chosen].max() >= 60
    for third in np.array_split(np.sort(lengths[(lengths >= LENGTHS[0]) & (lengths <= LENGTHS[1])]), 3):
        assert ((lengths[chosen] >= third[0]) & (lengths[chosen] <= third[-1])).sum() >= 8
    assert len(set(depths[chosen].tolist())) >= 8


def test_they_begin_in_the_middle_and_rise(data):
    lengths, depths, correct = data
    found = lengths[choose_examples(lengths, depths, correct, 9)].tolist()
    assert found[5:] + found[:5] == sorted(found)


@pytest.mark.parametrize("wrong", [0, 1, 30])
def test_too_few_wrong_or_correct_examples_are_made_up_with_the_other_kind(wrong):
    correct = np.arange(30) >= wrong
    chosen = choose_examples(np.full(30, 10), np.ones(30), correct, 12)
    assert len(set(chosen)) == 12
    assert (~correct[chosen]).sum() == min(wrong, 12)


@pytest.mark.parametrize("count", [0, 1, 2, 3])
@pytest.mark.parametrize("wrong", [0, 1, 4])
def test_there_are_never_more_than_asked_for(count, wrong):
    assert len(choose_examples([10] * 4, [1] * 4, np.arange(4) >= wrong, count)) == count


def test_each_part_of_the_lengths_shows_another_depth():
    depths = [3, 1, 2] * 4  # of 12 examples, in parts of 3 of nearly the same length
    chosen = choose_examples(range(10, 22), depths, None, 4)
    assert sorted(chosen) == [1, 5, 6, 10]  # the shallowest, a medium one, the deepest, the shallowest


def test_all_of_them_where_there_are_few_and_none_where_there_are_none():
    assert sorted(choose_examples([10, 20, 30], [1, 2, 3], None, 40)) == [0, 1, 2]
    assert choose_examples([], []) == []
    assert sorted(choose_examples([1, 2, 3], [0, 0, 0])) == [2]  # nothing is longer
    assert choose_examples([500], [3]) == []


def test_the_shortest_and_the_longest_that_may_be_shown_are():
    shortest, longest = LENGTHS
    assert sorted(choose_examples([shortest - 1, shortest, longest, longest + 1], [1] * 4)) == [1, 2]
