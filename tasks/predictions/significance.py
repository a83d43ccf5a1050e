"""Is one run better than another, or only luckier with these test examples?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DRAWS = 10_000
"""Number of random exchanges in `randomization_test`."""
ROUNDING = 1e-9
"""Relative difference that is due to the order of additions."""
MAX_NUMBERS = 1 << 22
"""Maximum number of random numbers to draw at once in `randomization_test`."""


def mcnemar_test(only_first: int, only_second: int) -> float:
    """The two-sided p-value of McNemar's exact test.

    If both runs are equally good, each example that only one of them gets right is as likely to be one of the
    first run as one of the second: their number has a binomial distribution.

    Args:
        only_first: number of examples that only the first run gets right.
        only_second: number of examples that only the second one does.
    Example:
        >>> mcnemar_test(3, 1)
        0.625
    """
    total = only_first + only_second
    outcomes = at_most = 1  # with k examples of one run, and with at most k
    for k in range(min(only_first, only_second)):
        outcomes = outcomes * (total - k) // (k + 1)
        at_most += outcomes
    return min(1.0, 2 * at_most / (1 << total))


def randomization_test(
    first: Floats, second: Floats, measure: Callable[[Floats], Any], *, draws: int = DRAWS, seed: int = 0
) -> float:
    """The two-sided p-value of the paired randomization test (Noreen 1989, Yeh 2000).

    If both runs are equally good, exchanging their predictions for an example changes nothing. So each
    example is exchanged with a probability of 1/2, and the p-value is the fraction of such draws in which the
    runs differ at least as much as they do, the predictions as they are counted as one draw.

    Args:
        first, second: what is summed over examples, (n, K).
        measure: computes what is compared from the sums, (..., K) → (...).
        draws: number of draws.
        seed: seed of the draws.
    Example:
        >>> right = np.ones((20, 1))
        >>> randomization_test(right, 0 * right, lambda sums: sums[..., 0] / 20, draws=999) < 0.01
        True
    """
    sums = first.sum(0), second.sum(0)
    observed = abs(measure(sums[0]) - measure(sums[1])) * (1 - ROUNDING)
    # How many of m examples that differ alike are exchanged has a binomial distribution.
    differences, counts = np.unique(second - first, axis=0, return_counts=True)
    generator = np.random.default_rng(seed)
    extreme, left = 1, draws
    while left:
        size = min(left, max(1, MAX_NUMBERS // len(counts)))
        moved = generator.binomial(counts, 0.5, size=(size, len(counts))) @ differences
        extreme += int(np.sum(abs(measure(sums[0] + moved) - measure(sums[1] - moved)) >= observed))
        left -= size
    return extreme / (draws + 1)
