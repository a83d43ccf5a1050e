"""Line plots as SVG, for files and for pages, where `curves.js` shows the values at the pointer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from ordered_memory.draw import valid_xml
from tasks.reporting.rendering import TEMPLATES, cell

WIDTH, PLOT_HEIGHT, TOP, BOTTOM, RIGHT = 360, 190, 34, 38, 14
"""Total width, height of the plot area, and margins, in pixels."""
CHARACTER, LINE = 7, 18
"""Width of a character and height of a line of text, in pixels."""
LONGEST_NAME = (WIDTH - 50) // CHARACTER
"""Maximum number of characters of a name in the legend; longer names are truncated at the start."""
COLORS = ("#1a66b0", "#b85c00", "#16703f", "#8a3ca8", "#5a6570", "#b01e5a")
"""The same colors as in `style.css`, which has others for dark mode."""
DASHES = ("none", "6 3", "2 3", "9 3 2 3", "4 2", "12 4")
MARKS = (
    "m-3,0a3,3 0 1,0 6,0a3,3 0 1,0 -6,0z",
    "m-3,-3h6v6h-6z",
    "m0,-4l4,7h-8z",
    "m0,-4l4,4l-4,4l-4,-4z",
)
"""Markers as relative SVG paths: circle, square, triangle, diamond."""
BOUNDS = {"fraction": (0.0, 1.0), "%": (0.0, 100.0)}
"""The smallest and the largest value in some units."""
RELATIVE_TOLERANCE = 1e-6
"""Values whose relative difference is smaller are drawn as equal."""
MAX_MARKS = 30
"""Lines with more points have markers only at points between two gaps."""

Points = list[tuple[float, float]]


@dataclass
class Curve:
    """A line plot with one or more series.

    Args:
        name: label of the y axis.
        unit: unit of the y axis.
        series: (x, y) pairs with increasing x, by name. Values y that are not finite are not drawn.
        axis: label of the x axis.
        best: the x that is marked as best, if any.
        counts: number of examples at each x; may be empty.
    """

    name: str
    unit: str
    series: dict[str, Points]
    axis: str = "epoch"
    best: float | None = None
    counts: Mapping[float, int] = field(default_factory=dict)

    @property
    def xs(self) -> list[float]:
        """All x, in increasing order."""
        return sorted({x for points in self.series.values() for x, _ in points})


def curve_svg(curve: Curve) -> Markup:
    """Render a plot.

    Args:
        curve: plot with one or more series.
    Returns:
        An <svg> element, which can also be saved as a file.
    """
    finite = {name: [(x, y) for x, y in points if math.isfinite(y)] for name, points in curve.series.items()}
    ticks = _ticks(
        [y for points in finite.values() for _, y in points], BOUNDS.get(curve.unit, (-math.inf, math.inf))
    )
    labels = _labels(ticks)
    left = 12 + CHARACTER * max(map(len, labels))
    xs = curve.xs or [0.0]
    low, high = (xs[0], xs[-1]) if len(xs) > 1 else (xs[0] - 1, xs[0] + 1)
    bottom = TOP + PLOT_HEIGHT

    def pixel_x(x: float) -> float:
        return round(left + (WIDTH - left - RIGHT) * (x - low) / (high - low), 1)

    def pixel_y(y: float) -> float:
        return round(bottom - PLOT_HEIGHT * (y - ticks[0]) / (ticks[-1] - ticks[0]), 1)

    x_ticks = _round_numbers(xs[0], xs[-1], 6, steps=[1, 2, 5, 10], integer=True)
    x_labels = [(pixel_x(x), f"{x:,.0f}") for x in x_ticks if xs[0] <= x <= xs[-1]]
    drawn = [(i, name) for i, (name, points) in enumerate(finite.items()) if points]
    names = [name if len(name) <= LONGEST_NAME else f"…{name[1 - LONGEST_NAME :]}" for _, name in drawn]
    corners = _legend(names, bottom + BOTTOM + LINE)
    lines = [
        _line(number, shown, {x: (pixel_x(x), pixel_y(y)) for x, y in finite[name]}, xs, corner)
        for (number, name), shown, corner in zip(drawn, names, corners, strict=True)
    ]
    text = TEMPLATES.get_template("curve.svg").render(
        curve=curve,
        description=_description(curve),
        size=(WIDTH, corners[-1][1] + 8 if corners else bottom + BOTTOM),
        left=left,
        right=WIDTH - RIGHT,
        top=TOP,
        bottom=bottom,
        lines=lines,
        x_ticks=x_labels
        or [(pixel_x(x), f"{x:.2g}") for x in xs],  # a part of the first epoch is no whole one
        y_ticks=[(pixel_y(tick), label) for tick, label in zip(ticks, labels, strict=True)],
        best=None if curve.best is None else pixel_x(curve.best),
        xs=" ".join(f"{pixel_x(x):g}" for x in xs),
    )
    return Markup(valid_xml(text))


def _line(
    number: int,
    name: str,
    points: Mapping[float, tuple[float, float]],
    xs: Sequence[float],
    legend: tuple[float, float],
) -> dict[str, Any]:
    """What curve.svg shows of a series, given where its points are drawn.

    An x without a value has the y "-", and is a gap in the line. `number` chooses color, dashes and markers.
    """
    mark = MARKS[number % len(MARKS)]
    corners = {x: f"{pixel_x:g},{pixel_y:g}" for x, (pixel_x, pixel_y) in points.items()}
    has_value = itertools.groupby(xs, key=corners.__contains__)
    parts = [[corners[x] for x in group] for drawn, group in has_value if drawn]
    marked = (
        list(corners.values()) if len(points) <= MAX_MARKS else [part[0] for part in parts if len(part) == 1]
    )
    return {
        "number": number % len(COLORS),
        "name": name,
        "path": "".join(f"M{'L'.join(part)}" for part in parts),
        "marks": "".join(f"M{corner}{mark}" for corner in marked),
        "color": COLORS[number % len(COLORS)],
        "dash": DASHES[(number + number // len(COLORS)) % len(DASHES)],  # not always with the same color
        "mark": mark,
        "legend": legend,
        "ys": " ".join(f"{points[x][1]:g}" if x in points else "-" for x in xs),
    }


def _ticks(values: Sequence[float], bounds: tuple[float, float]) -> list[float]:
    """Choose ticks at round numbers that enclose the values; around equal ones, within the bounds."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if high - low <= RELATIVE_TOLERANCE * max(abs(low), abs(high)):
        low, high = max(low - 0.5 * (abs(low) or 1), bounds[0]), min(high + 0.5 * (abs(high) or 1), bounds[1])
    return _round_numbers(low, high, 5, steps=[1, 2, 2.5, 5, 10])


def _round_numbers(low: float, high: float, max_intervals: int, **options: Any) -> list[float]:
    """Evenly spaced round numbers that enclose `low` and `high`, with at most `max_intervals` intervals."""
    from matplotlib.ticker import MaxNLocator

    return [float(tick) for tick in MaxNLocator(max_intervals, **options).tick_values(low, high)]


def _labels(ticks: Sequence[float]) -> list[str]:
    """Format ticks with as many decimals as needed to distinguish them, or in scientific notation."""
    step = min(after - before for before, after in itertools.pairwise(ticks))
    decimals = next((count for count in range(6) if abs(step - round(step, count)) < step / 1000), None)
    if decimals is None or max(map(abs, ticks)) > 1e7:
        return [f"{tick:.8g}" for tick in ticks]
    return [f"{tick:,.{decimals}f}" for tick in ticks]


def _legend(names: Sequence[str], top: float) -> list[tuple[float, float]]:
    """The positions of the entries of the legend, on as many lines as needed."""
    positions: list[tuple[float, float]] = []
    x, y = 0.0, top
    for name in names:
        width = 36 + CHARACTER * len(name) + 12
        if x and x + width > WIDTH:
            x, y = 0.0, y + LINE
        positions.append((round(x, 1), y))
        x += width
    return positions


def _description(curve: Curve) -> str:
    last = ", ".join(f"{name} {cell(points[-1][1])}" for name, points in curve.series.items() if points)
    return f"{curve.name} by {curve.axis}; at the end {last}"
