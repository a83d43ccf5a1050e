"""Mean and standard deviation over seeds, measured and published."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Published(NamedTuple):
    """A published result.

    Args:
        mean: mean as printed, for example 98 for 98 %.
        deviation: standard deviation over runs; None if it was not published.
    """

    mean: float
    deviation: float | None = None

    def __str__(self) -> str:
        return f"{self.mean:g}" if self.deviation is None else f"{self.mean:g} ± {self.deviation:g}"


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """Compute the mean and the sample standard deviation, with n - 1 in the denominator.

    Args:
        values: n ≥ 1 numbers.
    Returns:
        Mean and standard deviation, which is None if n = 1.
    Example:
        >>> mean_and_deviation([1.0, 2.0, 3.0]), mean_and_deviation([5.0])
        ((2.0, 1.0), (5.0, None))
    """
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None
