"""The final report of a run: a self-contained HTML file."""

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
from tasks.reporting.rendering import TEMPLATES, cell
from tasks.reporting.traces import explanation
from tasks.runs.files import write_atomically
from tasks.runs.progress import epochs_trained
from tasks.runs.run_directory import best_row

MAX_TRACE_BYTES = 2_500_000
"""Maximum total size of the traces of a page, so that it opens quickly."""


@dataclass
class Table:
    """A table of results; `rendering.cell` formats its numbers.

    Args:
        title: shown above the table.
        columns: names of the columns.
        rows: cells of each row; the first is the name of the row, None is a cell without a value.
        note: shown below the table, such as conventions.
        best: row and column, from 0, of the cells that are marked as best; see `best_cells`.
    """

    title: str
    columns: list[str]
    rows: list[list[Any]]
    note: str = ""
    best: Collection[tuple[int, int]] = ()


@dataclass
class Report:
    """The content of a page, in order.

    Args:
        title: title of the page.
        about: explains the task in one or two sentences.
        subtitle: summarizes the result in one line.
        curves: learning curves.
        plots: plots of results.
        tables: tables of results.
        traces: examples to step through; the largest are left out if the page would get too large.
        samples: texts sampled from the model.
        facts: provenance of the run by name: command, commit, date, machine.
        config: the options of the run.
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
    """Write the page atomically and deterministically.

    Args:
        path: the HTML file, in a directory that exists.
        report: content of the page.
    """
    # The report may contain file names that are not UTF-8.
    write_atomically(path, render(report).encode(errors="backslashreplace"))


UNITS = {"accuracy": "fraction", "loss": "nats", "perplexity": "words"}


def learning_curves(rows: Sequence[dict[str, Any]]) -> list[Curve]:
    """Make the learning curves of all metrics of the training and validation data.

    Args:
        rows: rows of metrics.jsonl.
    """
    splits = ("train", "validation")
    names = [name.removeprefix("train_") for name in rows[0] if name.startswith("train_")]
    return [
        Curve(
            name,
            UNITS.get(name, ""),
            {split: [(epochs_trained([row]), row[f"{split}_{name}"]) for row in rows] for split in splits},
            best=epochs_trained([best_row(rows)]),
        )
        for name in sorted(names)
    ]


def best_epoch(rows: Sequence[dict[str, Any]]) -> str:
    """Describe the epoch whose weights were tested, with its validation accuracy or perplexity.

    Args:
        rows: rows of metrics.jsonl.
    """
    best, epochs = best_row(rows), rows[-1]["epoch"]
    score = cell(best.get("validation_accuracy", best.get("validation_perplexity")))
    return f"with the weights of epoch {best['epoch']}, the best of {epochs} on validation data ({score})"


def best_cells(rows: Sequence[Sequence[Any]], leave_out: Collection[str] = ()) -> set[tuple[int, int]]:
    """Find the highest number of each column that has at least two numbers.

    Args:
        rows: rows of a table; the first cell of each row is its name.
        leave_out: names of rows to ignore, such as upper bounds.
    Returns:
        Row and column of each, from 0.
    Example:
        >>> sorted(best_cells([["model", 0.5, 0.5], ["random", 0.25, 0.5], ["oracle", 1.0, 1.0]], ["oracle"]))
        [(0, 1), (0, 2), (1, 2)]
    """
    cells = set()
    for column in range(1, len(rows[0]) if rows else 0):
        values = {
            i: row[column]
            for i, row in enumerate(rows)
            if row[0] not in leave_out and isinstance(row[column], int | float)
        }
        if len(values) > 1:
            cells |= {(i, column) for i, value in values.items() if value == max(values.values())}
    return cells


def render(report: Report) -> str:
    """Render the page as HTML.

    Args:
        report: content of the page.
    """
    traces = _limit_size(report.traces, MAX_TRACE_BYTES)
    return TEMPLATES.get_template("report.html").render(
        report=report,
        explanation=explanation(traces),
        viewer_style=Markup(style()),
        viewer_script=Markup(script()),
        examples=Markup(embed(traces)) if traces else None,
    )


def _limit_size(traces: Sequence[Trace], max_bytes: int) -> list[Trace]:
    """Leave out the traces of the largest examples until the others fit into `max_bytes`."""
    keys = [trace.get("example", -1 - i) for i, trace in enumerate(traces)]
    sizes: Counter[int] = Counter()
    for key, trace in zip(keys, traces, strict=True):
        sizes[key] += len(to_json([trace]).encode())
    for key, size in sizes.most_common():
        if sizes.total() <= max_bytes:
            break
        sizes[key] -= size
    return [trace for key, trace in zip(keys, traces, strict=True) if sizes[key]]


def numbers_table(curve: Curve) -> Table:
    """Make a table of the numbers of a plot, with a row for each x; the best row is marked.

    An x that is not whole, such as that of an epoch that a time limit cut off, has two decimals.

    Args:
        curve: plot with one or more series.
    """
    columns: dict[str, Mapping[float, float]] = {name: dict(points) for name, points in curve.series.items()}
    if curve.counts:
        columns["count"] = curve.counts
    return Table(
        title=f"{curve.name} by {curve.axis}",
        columns=[curve.axis, *columns],
        rows=[
            [f"{x:.2f}" if x % 1 else int(x), *(column.get(x) for column in columns.values())]
            for x in curve.xs
        ],
        best=() if curve.best is None else [(curve.xs.index(curve.best), 0)],
    )


TEMPLATES.filters.update(svg=curve_svg, numbers=numbers_table)
