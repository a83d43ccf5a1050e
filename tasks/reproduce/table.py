"""How a table is defined: its rows and columns, the runs that it needs, and where its numbers are found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tasks.formatting.summary import Published


class CommandSpec(NamedTuple):
    """A training run without its seed, preset and data, or an evaluation in addition to its final test.

    Args:
        task: name of the task; `listops` stands for `python -m tasks.listops train`, or else `evaluate`.
        options: command-line options.
    """

    task: str
    options: tuple[str, ...] = ()


Key = str | int | Mapping[str, Any]
"""A step of a path into JSON values: a key of an object; an index into a list or into the values of an
object; or a mapping that selects the first matching entry of a list of objects."""


class Cell(NamedTuple):
    """Where the measured number of a row and column is found.

    Args:
        training: the training run; each of its seeds gives one number.
        keys: the path to the number in the JSON results.
        evaluation: the evaluation that has the results; None for the final test of the run, in results.json.
    """

    training: CommandSpec
    keys: tuple[Key, ...]
    evaluation: CommandSpec | None = None


@dataclass(frozen=True)
class RowSpec:
    """A row of a table: a model.

    Args:
        name: shown in the table.
        model: its name for `--only`.
        cells: cells by column; empty for a model that is not part of this project.
        published: published results, by column.
    """

    name: str
    model: str
    cells: Mapping[str, Cell] = field(default_factory=dict)
    published: Mapping[str, Published] = field(default_factory=dict)


@dataclass(frozen=True)
class TableSpec:
    """A table of a paper.

    Args:
        title: shown above the table.
        columns: names of the measures.
        rows: the models.
        notes: sentences to show below the table.
        demo_columns: the columns for `--preset demo`; None for all.
        presets: values of `--preset` that its tasks have.
        percent: whether the results are fractions, to be shown in %.
        digits: number of decimals.
        axis: label of the x axis, if the columns are numbers and the table is also plotted.
        models_side_by_side: whether to show models as columns and measures as rows.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[RowSpec, ...]
    notes: tuple[str, ...] = ()
    demo_columns: tuple[str, ...] | None = None
    presets: tuple[str, ...] = ("paper", "curriculum", "demo")
    percent: bool = True
    digits: int = 1
    axis: str | None = None
    models_side_by_side: bool = False

    def columns_of(self, preset: str) -> tuple[str, ...]:
        """The columns that a preset can fill.

        Args:
            preset: a value of `--preset`.
        """
        return self.demo_columns if preset == "demo" and self.demo_columns is not None else self.columns

    def select(
        self, preset: str, *, models: tuple[str, ...] = (), columns: tuple[str, ...] = ()
    ) -> tuple[tuple[str, ...], tuple[RowSpec, ...]]:
        """Select columns and rows; both keep the order of the table.

        Args:
            preset: a value of `--preset`.
            models: names of models; empty for all, those from the literature included.
            columns: names of columns; empty for all that the preset can fill.
        """
        return (
            tuple(column for column in self.columns_of(preset) if not columns or column in columns),
            tuple(row for row in self.rows if not models or row.model in models),
        )


def trainings_of(
    columns: tuple[str, ...], rows: tuple[RowSpec, ...]
) -> dict[CommandSpec, tuple[CommandSpec, ...]]:
    """List the training runs that columns and rows of a table need, and the evaluations of each.

    Args:
        columns: the selected columns.
        rows: the selected rows.
    Returns:
        Evaluations by training run, both in the order of the table.
    """
    evaluations_by_training: dict[CommandSpec, dict[CommandSpec, None]] = {}
    for row in rows:
        for column in columns:
            cell = row.cells.get(column)
            if cell is not None:
                evaluations = evaluations_by_training.setdefault(cell.training, {})
                if cell.evaluation is not None:
                    evaluations[cell.evaluation] = None
    return {training: tuple(evaluations) for training, evaluations in evaluations_by_training.items()}


def find(results: Any, keys: tuple[Key, ...]) -> Any:
    """Follow a path into JSON values.

    Args:
        results: JSON values.
        keys: the path.
    Returns:
        What is there, such as a number; None if the path does not exist or leads to null.
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
    return results


def _step(value: Any, key: Key) -> Any:
    """Follow one step of a path; raise a LookupError or StopIteration if it does not exist."""
    if isinstance(key, Mapping):
        return next(entry for entry in value if key.items() <= entry.items())
    if isinstance(key, int) and isinstance(value, dict):
        return list(value.values())[key]
    return value[key]
