"""Results over seeds in short: mean and standard deviation, ours and published."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Published(NamedTuple):
    """A number in a paper.

    Args:
        mean: as printed, for instance 98 for 98 %.
        deviation: standard deviation over runs; None where the paper has none.
    """

    mean: float
    deviation: float | None = None

    def __str__(self) -> str:
        return f"{self.mean:g}" if self.deviation is None else f"{self.mean:g} ± {self.deviation:g}"


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean and the sample standard deviation, with n - 1 in the denominator.

    Args:
        values: n ≥ 1 numbers.
    Returns:
        Both; None for the deviation of one value.
    Example:
        >>> mean_and_deviation([1.0, 2.0, 3.0]), mean_and_deviation([5.0])
        ((2.0, 1.0), (5.0, None))
    """
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None
