"""The final report of a run: one HTML file that needs nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ordered_memory.trace import Trace, to_json
from ordered_memory.viewer import embed, script, style
from tasks.reporting.curves import Curve, curve_svg
from tasks.reporting.explanation import explanation
from tasks.reporting.rendering import TEMPLATES
from tasks.runs.files import write_atomically

MOST_BYTES = 2_500_000
"""Of the examples of a page, which should open at once."""


@dataclass
class Table:
    """A table of results; numbers are shown with three or four digits.

    Args:
        title: above it.
        columns: their heads.
        rows: cells of each row; the first names the row, None is a cell without a value.
        note: under it, conventions for instance.
        best: row and column, from 0, of the cells that are marked as the best; see `best_cells`.
    """

    title: str
    columns: list[str]
    rows: list[list[Any]]
    note: str = ""
    best: Collection[tuple[int, int]] = ()


@dataclass
class Report:
    """Everything on the page, in order.

    Args:
        title: of the page.
        about: what the task is, in a sentence or two.
        subtitle: one line on what was run and what came out.
        curves: of learning.
        plots: of results.
        tables: see `Table`.
        traces: of examples, to step through; the largest are left out where a page would get too large.
        samples: texts that the model wrote.
        facts: about the run by name: its command, date and so on.
        config: the resolved options.
    """

    title: str
    about: str
    subtitle: str
    curves: list[Curve] = field(default_factory=list)
    plots: list[Curve] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    traces: list[Trace] = field(default_factory=list)
    samples: list[str] = field(default_factory=list)
    facts: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)


def write_report(path: Path, report: Report) -> None:
    """Write the page, whole or not at all. The same report gives the same bytes.

    Args:
        path: the HTML file, in a directory that exists.
        report: what stands in it.
    """
    # Names of files in it need not be UTF-8.
    write_atomically(path, render(report).encode(errors="backslashreplace"))


UNITS = {"accuracy": "fraction", "loss": "nats", "perplexity": "words"}


def learning_curves(
    rows: Sequence[dict[str, Any]], measure: str = "accuracy", lowest: bool = False
) -> list[Curve]:
    """Everything measured on both training and validation data.

    Args:
        rows: of metrics.jsonl.
        measure, lowest: what the best epoch was chosen by; see `best_row`.
    """
    parts = ("train", "validation")
    names = [name.removeprefix("train_") for name in rows[0] if name.startswith("train_")]
    best = best_row(rows, measure, lowest)["epoch"]
    return [
        Curve(
            name,
            UNITS[name],
            {part: [(row["epoch"], row[f"{part}_{name}"]) for row in rows] for part in parts},
            best=best,
        )
        for name in sorted(names)
    ]


def best_epoch(rows: Sequence[dict[str, Any]], measure: str = "accuracy", lowest: bool = False) -> str:
    """Whose weights were tested, in words.

    Args:
        rows: of metrics.jsonl.
        measure, lowest: what the epoch was chosen by; see `best_row`.
    """
    best = best_row(rows, measure, lowest)
    return (
        f"with the weights of epoch {best['epoch']}, the best of {len(rows)} on validation data "
        f"({best[f'validation_{measure}']:.4f})"
    )


def best_row(rows: Sequence[dict[str, Any]], measure: str, lowest: bool) -> dict[str, Any]:
    """The metrics of the epoch whose weights were tested.

    Args:
        rows: of metrics.jsonl.
        measure: what the epoch was chosen by, on validation data.
        lowest: whether less of it is better.
    """
    choose = min if lowest else max
    return choose(rows, key=lambda row: row[f"validation_{measure}"])


def best_cells(rows: Sequence[Sequence[Any]], leave_out: Collection[str] = ()) -> set[tuple[int, int]]:
    """Where the highest number of each column is, if two or more are compared.

    Args:
        rows: of a table; the first cell of each names it.
        leave_out: names of rows that take no part, such as an upper bound.
    Returns:
        Row and column, from 0, of each of them.
    Example:
        >>> sorted(best_cells([["model", 0.5, 0.5], ["random", 0.25, 0.5], ["oracle", 1.0, 1.0]], ["oracle"]))
        [(0, 1), (0, 2), (1, 2)]
    """
    found = set()
    for column in range(1, len(rows[0]) if rows else 0):
        values = {
            place: row[column]
            for place, row in enumerate(rows)
            if row[0] not in leave_out and isinstance(row[column], int | float)
        }
        if len(values) > 1:
            found |= {(place, column) for place, value in values.items() if value == max(values.values())}
    return found


def render(report: Report) -> str:
    """The page as HTML.

    Args:
        report: what to show.
    """
    traces = _within(report.traces, MOST_BYTES)
    return TEMPLATES.get_template("report.html").render(
        report=report,
        explanation=explanation(traces),
        viewer_style=Markup(style()),
        viewer_script=Markup(script()),
        examples=Markup(embed(traces)) if traces else None,
    )


def _within(traces: Sequence[Trace], most: int) -> list[Trace]:
    """The traces without those of the largest examples, so that all fit into so many bytes."""
    keys = [trace.get("example", -1 - place) for place, trace in enumerate(traces)]
    sizes: Counter[int] = Counter()
    for key, trace in zip(keys, traces, strict=True):
        sizes[key] += len(to_json([trace]).encode())
    for key, size in sizes.most_common():
        if sizes.total() <= most:
            break
        sizes[key] -= size
    return [trace for key, trace in zip(keys, traces, strict=True) if sizes[key]]


def _numbers(curve: Curve) -> Table:
    """The numbers of a plot; the row of the best place is marked."""
    best = () if curve.best_row is None else [(curve.best_row, 0)]
    return Table(f"{curve.name} by {curve.axis}", curve.columns, curve.rows, best=best)


TEMPLATES.filters.update(svg=curve_svg, numbers=_numbers)
