"""The p-values are those of all outcomes, enumerated."""

import itertools

import numpy as np
import pytest

from tasks.predictions.measures import ACCURACY, PERPLEXITY
from tasks.predictions.significance import mcnemar_test, randomization_test


def test_the_p_value_of_mcnemars_test_sums_all_outcomes_that_are_as_unlikely():
    for first, second in itertools.product(range(6), repeat=2):
        counts = [sum(sides) for sides in itertools.product((0, 1), repeat=first + second)]
        unlikely = sum(abs(2 * count - first - second) >= abs(first - second) for count in counts)
        assert mcnemar_test(first, second) == pytest.approx(unlikely / len(counts))
    assert mcnemar_test(20_000, 20_000) == 1
    assert mcnemar_test(3_500, 3_000) == pytest.approx(5.9e-10, rel=0.01)


def exact_p_value(first, second, measure):
    """Of all ways to exchange examples, the fraction that differs at least as much."""
    observed = abs(measure(first.sum(0)) - measure(second.sum(0)))
    found = []
    for exchanged in itertools.product((False, True), repeat=len(first)):
        mask = np.array(exchanged)[:, None]
        one, other = np.where(mask, second, first), np.where(mask, first, second)
        found.append(abs(measure(one.sum(0)) - measure(other.sum(0))) >= observed - 1e-12)
    return np.mean(found)


@pytest.mark.parametrize("measure", [ACCURACY, PERPLEXITY], ids=lambda measure: measure.name)
@pytest.mark.parametrize("seed", range(6))
def test_the_randomization_test_draws_from_all_exchanges(measure, seed):
    generator = np.random.default_rng(seed)
    first, second = generator.integers(0, 4, size=(2, 9, 2)) + np.array([0.0, 1.0])
    second[:3] = first[:3]  # examples that do not differ
    draws = 20_000
    p = randomization_test(first, second, measure.of_sums, draws=draws, seed=seed)
    exact = exact_p_value(first, second, measure.of_sums)
    assert p == pytest.approx(exact, abs=5 * np.sqrt(exact * (1 - exact) / draws) + 1 / draws)


def test_as_many_draws_are_made_as_asked_for_however_many_examples_differ(monkeypatch):
    monkeypatch.setattr("tasks.predictions.significance.MAX_NUMBERS", 100)
    first = np.stack([np.arange(30.0) * 1.1, np.ones(30)], axis=-1)
    second = np.stack([np.zeros(30), np.ones(30)], axis=-1)
    assert randomization_test(first, second, ACCURACY.of_sums, draws=999) == 1 / 1000
    assert randomization_test(first, first, ACCURACY.of_sums, draws=999) == 1


def test_the_tests_agree_where_both_apply():
    right = np.zeros((2, 60, 2))
    right[:, :, 1] = 1
    right[0, :24, 0] = right[1, 10:25, 0] = 1  # 10 examples of the first alone, one of the second
    expected = mcnemar_test(10, 1)
    p = randomization_test(*right, ACCURACY.of_sums, draws=100_000)
    assert p == pytest.approx(expected, abs=5 * np.sqrt(expected / 100_000))
