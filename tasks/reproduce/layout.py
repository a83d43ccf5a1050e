"""What a table is: the training runs that it needs, where in their results its numbers are, its layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tasks.reporting.summary import Published


class Training(NamedTuple):
    """A training run, but for its seed, preset and data.

    Args:
        task: `listops` stands for `python -m tasks.listops train`.
        options: of the command line.
    """

    task: str
    options: tuple[str, ...] = ()


class Evaluation(NamedTuple):
    """An evaluation of a trained model beside the final test of its run.

    Args:
        task: `parsing` stands for `python -m tasks.parsing evaluate`.
        options: of the command line.
    """

    task: str
    options: tuple[str, ...] = ()


Key = str | int | Mapping[str, Any]
"""A step into JSON: a name; a place in a list, or among the values of an object; or what an entry of a list
must agree with."""


class Cell(NamedTuple):
    """Where a number of ours comes from.

    Args:
        training: the run.
        keys: the way to the number in the JSON results.
        evaluation: whose results; None for results.json, the final test of the run.
    """

    training: Training
    keys: tuple[Key, ...]
    evaluation: Evaluation | None = None


@dataclass(frozen=True)
class Row:
    """A model.

    Args:
        name: shown.
        model: for `--only`.
        cells: by column; none for a model that is not part of this project.
        published: by column.
    """

    name: str
    model: str
    cells: Mapping[str, Cell] = field(default_factory=dict)
    published: Mapping[str, Published] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """A table of a paper.

    Args:
        title: what it shows, in a sentence.
        columns: names of the measures.
        rows: models.
        notes: what to know about the numbers.
        demo_columns: those of `--preset demo`; None for all.
        presets: that its tasks have.
        percent: whether the results are fractions, to be shown in %.
        digits: decimals.
        axis: what the columns are values of, where they are places on the axis of a plot.
        models_side_by_side: whether models are columns and measures lines.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    demo_columns: tuple[str, ...] | None = None
    presets: tuple[str, ...] = ("paper", "demo")
    percent: bool = True
    digits: int = 1
    axis: str | None = None
    models_side_by_side: bool = False

    def select(self, *, demo: bool, only: tuple[str, ...] = ()) -> tuple[tuple[str, ...], tuple[Row, ...]]:
        """Columns and rows of one call.

        Args:
            demo: whether the preset is the demonstration.
            only: models; empty for all.
        """
        columns = self.demo_columns if demo and self.demo_columns is not None else self.columns
        return columns, tuple(row for row in self.rows if not only or row.model in only)


def trainings_of(columns: tuple[str, ...], rows: tuple[Row, ...]) -> dict[Training, tuple[Evaluation, ...]]:
    """The trainings that some cells need, and the evaluations of each.

    Args:
        columns, rows: from `Table.select`.
    Returns:
        Both in the order of the table.
    """
    found: dict[Training, dict[Evaluation, None]] = {}
    for row in rows:
        for column in columns:
            cell = row.cells.get(column)
            if cell is not None:
                evaluations = found.setdefault(cell.training, {})
                if cell.evaluation is not None:
                    evaluations[cell.evaluation] = None
    return {training: tuple(evaluations) for training, evaluations in found.items()}


def find(results: Any, keys: tuple[Key, ...]) -> float | None:
    """The number at the end of a way into JSON.

    Args:
        results: JSON values.
        keys: the way.
    Returns:
        The number; None where the way ends early or at null, such as for operations that no pair has.
    Example:
        >>> find({"rows": [{"name": "a", "f1": {"x": 0.5}}]}, ("rows", {"name": "a"}, "f1", 0))
        0.5
    """
    for key in keys:
        try:
            results = _step(results, key)
        except (LookupError, StopIteration):
            return None
        if results is None:
            return None
    return float(results)


def _step(value: Any, key: Key) -> Any:
    if isinstance(key, Mapping):
        return next(entry for entry in value if key.items() <= entry.items())
    if isinstance(key, int) and isinstance(value, dict):
        return list(value.values())[key]
    return value[key]
