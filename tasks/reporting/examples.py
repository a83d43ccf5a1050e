"""Choose the examples that a report shows."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

NUM_EXAMPLES = 60
LENGTHS = (5, 100)
"""Minimum and maximum number of tokens; if all examples are shorter, the longest of them are shown."""


def choose_examples(
    lengths: ArrayLike, depths: ArrayLike, correct: ArrayLike | None = None, count: int | None = None
) -> list[int]:
    """Choose examples of different lengths and depths, up to half of them with a wrong prediction.

    More than half are wrong only where too few are right.

    Args:
        lengths: number of tokens of each of n examples, (n,).
        depths: depth of their trees, (n,).
        correct: whether each prediction is correct, (n,); None if there are no predictions.
        count: maximum number of examples; None for `NUM_EXAMPLES`.
    Returns:
        Indices. An example of medium length comes first, since a reader sees it first; longer examples
        follow, then the shorter ones.
    Example:
        >>> choose_examples([5, 6, 7, 8, 9, 10], [1, 1, 2, 1, 3, 2], [True, True, True, True, False, True], 4)
        [4, 5, 0, 2]
    """
    count = NUM_EXAMPLES if count is None else count
    length, depth = np.asarray(lengths), np.asarray(depths)
    shortest, longest = LENGTHS
    fitting = (length >= min(shortest, length.max(initial=0))) & (length <= longest)
    is_correct = np.ones(len(length), dtype=bool) if correct is None else np.asarray(correct, dtype=bool)
    order = np.lexsort([depth, length])
    correct_ones, wrong_ones = (order[(fitting & mask)[order]] for mask in (is_correct, ~is_correct))
    wrong_count = min(len(wrong_ones), max(count // 2, count - len(correct_ones)))
    chosen = _spread(correct_ones, depth, count - wrong_count) + _spread(wrong_ones, depth, wrong_count)
    chosen.sort(key=lambda index: (length[index], depth[index], index))
    return chosen[len(chosen) // 2 :] + chosen[: len(chosen) // 2]


def _spread(ordered: NDArray[np.int64], depths: NDArray[np.int64], count: int) -> list[int]:
    """Choose one of each of `count` parts: in turn the shallowest, a medium and the deepest one."""
    chosen: list[int] = []
    num_parts = min(count, len(ordered))
    for number, part in enumerate(np.array_split(ordered, num_parts) if num_parts else ()):
        by_depth = part[np.argsort(depths[part], kind="stable")]
        chosen.append(int(by_depth[(0, len(part) // 2, -1)[number % 3]]))
    return chosen
