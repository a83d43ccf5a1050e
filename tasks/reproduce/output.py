"""Write a table with its numbers as text, Markdown, JSON and a plot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tasks.formatting.tables import markdown_table, mean_text, number, terminal_width, text_table
from tasks.reporting.curves import Curve, curve_svg
from tasks.reproduce.config import parse_options
from tasks.reproduce.results import ModelResults, Results, Summary
from tasks.reproduce.runs import short_name, words_in_name
from tasks.reproduce.table import TableSpec
from tasks.runs.files import write_atomically, write_json


def text(results: Results) -> str:
    """Format the title, the table and its notes for the terminal.

    Args:
        results: results of the table.
    """
    table = _table(results, partial(text_table, width=terminal_width()))
    return "\n".join([results.table.title, "", table, "", *results.notes()])


def write(results: Results, directory: Path) -> list[Path]:
    """Write the table as Markdown and JSON and, if its columns are numbers, as a plot.

    Args:
        results: results of the table.
        directory: directory for the files, which are named after the table and what is selected of it;
            created if it does not exist.
    Returns:
        The paths of the files.
    """
    directory.mkdir(parents=True, exist_ok=True)
    config = results.config
    words = map(words_in_name, (parse_options(config.train_options), (*config.only, *config.columns)))
    name = short_name("-".join(filter(None, [results.name, config.preset, *words])))
    paths = [directory / f"{name}.md", directory / f"{name}.json"]
    # Markdown would join the lines of notes, so they become items of a list.
    notes = "\n".join(f"- {note}" for note in results.notes())
    table = _table(results, markdown_table)
    page = f"## {results.table.title}\n\n{table}\n\n{notes}\n"
    write_atomically(paths[0], page.encode(errors="backslashreplace"))  # a path may be no valid Unicode
    write_json(paths[1], results.as_json())
    if results.table.axis is not None:
        paths.append(directory / f"{name}.svg")
        write_atomically(paths[-1], _plot(results, results.table.axis))
    return paths


def _table(results: Results, format_table: Callable[[Sequence[str], Sequence[Sequence[str]]], str]) -> str:
    header = ["", *results.columns]
    rows = [row for model in results.models for row in _rows(model, results)]
    if results.table.models_side_by_side:
        header, *rows = (list(column) for column in zip(header, *rows, strict=True))
    return format_table(header, rows)


def _rows(model: ModelResults, results: Results) -> list[list[str]]:
    """The rows of a model: the mean over seeds, the best of several seeds, and the published results."""
    cells = [model.summaries[column] for column in results.columns]
    published = ["–" if cell.published is None else str(cell.published) for cell in cells]
    if not model.ours:
        return [[model.name, *published]]
    rows = [[model.name, *(_mean(cell, results.table) for cell in cells)]]
    if any(len(cell.values) > 1 for cell in cells):
        rows.append([f"{model.name}, best", *(_number(cell.best, results.table) for cell in cells)])
    if any(cell.published for cell in cells):
        rows.append([f"{model.name}, published", *published])
    return rows


def _mean(cell: Summary, table: TableSpec) -> str:
    """Format mean and standard deviation: 98.1 ± 0.3 (n 5)."""
    if cell.mean is None:
        return "–"
    whole = 100 if table.percent else None
    if cell.deviation is None:
        mean = _number(cell.mean, table)
    else:
        mean = mean_text(cell.mean, cell.deviation, table.digits, whole)
    return f"{mean} (n {len(cell.values)})"


def _number(value: float | None, table: TableSpec) -> str:
    return number(value, table.digits, whole=100 if table.percent else None)


def _plot(results: Results, axis: str) -> str:
    """Plot measured and published results over the columns that are numbers."""
    x_by_column = {column: float(column) for column in results.columns if column.isdecimal()}
    series: dict[str, list[tuple[float, float]]] = {}
    for model in results.models:
        cells = [(x, model.summaries[column]) for column, x in x_by_column.items()]
        measured = [(x, cell.mean) for x, cell in cells if cell.mean is not None]
        published = [(x, cell.published.mean) for x, cell in cells if cell.published is not None]
        series |= {
            name: points
            for name, points in ((model.name, measured), (f"{model.name}, published", published))
            if points
        }
    return curve_svg(Curve("accuracy", "%", series, axis))
