"""Which examples a report shows: some that differ from each other."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

NUM_EXAMPLES = 60
LENGTHS = (5, 100)
"""Tokens of the examples that are shown; shorter ones are where all are short."""


def choose(
    lengths: ArrayLike, depths: ArrayLike, correct: ArrayLike | None = None, count: int | None = None
) -> list[int]:
    """Choose examples of all lengths, shallow and deep ones, up to half of them wrongly answered.

    Args:
        lengths: tokens of each of n examples, (n,).
        depths: of their trees, (n,).
        correct: whether the answer to each is right, (n,); None where there are no answers.
        count: the most examples; None for `NUM_EXAMPLES`.
    Returns:
        Indices: from those of middle length to the longest, then from the shortest on, since the first one is
        what a reader sees first.
    Example:
        >>> choose([5, 6, 7, 8, 9, 10], [1, 1, 2, 1, 3, 2], [True, True, True, True, False, True], 4)
        [4, 5, 0, 2]
    """
    count = NUM_EXAMPLES if count is None else count
    length, depth = np.asarray(lengths), np.asarray(depths)
    shortest, longest = LENGTHS
    fitting = (length >= min(shortest, length.max(initial=0))) & (length <= longest)
    right = np.ones(len(length), dtype=bool) if correct is None else np.asarray(correct, dtype=bool)
    order = np.lexsort([depth, length])
    right_ones, wrong_ones = (order[(fitting & kind)[order]] for kind in (right, ~right))
    wrong_count = min(len(wrong_ones), max(count // 2, count - len(right_ones)))
    chosen = _spread(right_ones, depth, count - wrong_count) + _spread(wrong_ones, depth, wrong_count)
    chosen.sort(key=lambda index: (length[index], depth[index], index))
    return chosen[len(chosen) // 2 :] + chosen[: len(chosen) // 2]


def _spread(ordered: NDArray[np.int64], depths: NDArray[np.int64], count: int) -> list[int]:
    """One of each of so many stretches: in turn the shallowest, one in the middle and the deepest."""
    chosen = []
    for number, stretch in enumerate(np.array_split(ordered, min(count, len(ordered)) or 1)):
        if len(stretch):
            by_depth = stretch[np.argsort(depths[stretch], kind="stable")]
            chosen.append(int(by_depth[(0, len(stretch) // 2, -1)[number % 3]]))
    return chosen
