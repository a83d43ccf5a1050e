"""Collect the numbers of a table: mean and deviation over seeds, and published results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tasks.formatting.summary import Published, mean_and_deviation
from tasks.reproduce.config import ReproduceConfig, parse_options
from tasks.reproduce.runs import Run
from tasks.reproduce.table import Cell, CommandSpec, Key, TableSpec, find
from tasks.runs.errors import UserError
from tasks.runs.files import is_finite_number, read_json
from tasks.runs.options import flag
from tasks.runs.run_directory import tested_on_other_data
from tasks.runs.saved_config import changed_options


@dataclass(frozen=True)
class Summary:
    """One measure of one model over seeds.

    Args:
        values: values of the runs that have this measure, by seed.
        mean: mean of the values; None if there are none.
        deviation: sample standard deviation; None for fewer than two values.
        best: the value of the seed with the best validation score.
        published: the published result; None if there is none.
    """

    values: dict[int, float]
    mean: float | None = None
    deviation: float | None = None
    best: float | None = None
    published: Published | None = None


@dataclass(frozen=True)
class ModelResults:
    """The results of a model.

    Args:
        name: name shown in the table.
        ours: whether the model is part of this project; if not, it has only published results.
        summaries: summaries by column.
    """

    name: str
    ours: bool
    summaries: dict[str, Summary]


@dataclass(frozen=True)
class Results:
    """A table with its numbers.

    Args:
        name: name on the command line.
        table: its definition.
        config: the options, which select columns and rows.
        columns: the selected columns.
        models: the results of the selected models.
        runs: the runs that the selected columns and rows need, finished or not.
    """

    name: str
    table: TableSpec
    config: ReproduceConfig
    columns: tuple[str, ...]
    models: list[ModelResults]
    runs: Sequence[Run]

    def as_json(self) -> dict[str, Any]:
        """The table and the states of its runs as JSON values."""
        return {
            "table": self.name,
            "title": self.table.title,
            "preset": self.config.preset,
            "unit": "%" if self.table.percent else "",
            "columns": list(self.columns),
            "rows": [
                {
                    "name": model.name,
                    "ours": model.ours,
                    "cells": {name: _as_json(cell) for name, cell in model.summaries.items()},
                }
                for model in self.models
            ],
            "runs": [
                {"directory": str(run.files.path), "seed": run.seed, **run.state()._asdict()}
                for run in self.runs
            ],
            "notes": self.notes(),
        }

    def notes(self) -> list[str]:
        """The notes below the table: conventions, how runs were trained and tested, which ended early."""
        preset, unit = self.config.preset, ", in %" if self.table.percent else ""
        notes = [
            f"Preset {preset}{unit}. Mean ± sample standard deviation over the n seeds that finished. "
            "Best: the seed with the best validation score. The epoch was selected on validation data.",
            *self.table.notes,
        ]
        if self.config.train_options:
            notes.append(f"All runs were trained with {' '.join(parse_options(self.config.train_options))}.")
        notes.extend(_option_notes(self.runs))
        notes.extend(_test_data_notes(self.runs))
        for run in self.runs:
            state = run.state()
            if not state.is_tested:
                notes.append(f"Not included: {run.name}, {state.text}.")
            elif state.epochs < run.config.epochs and preset != "demo":
                notes.append(f"Ended early: {run.name}, {state.text}.")
        return notes


def collect(name: str, table: TableSpec, config: ReproduceConfig, runs: Sequence[Run]) -> Results:
    """Collect the results of all runs that have some.

    Args:
        name: name of the table on the command line.
        table: its definition.
        config: the options, which select columns and rows.
        runs: the runs that these need.
    Raises:
        UserError: a file of a run is damaged.
    """
    columns, rows = table.select(config.preset, models=config.only, columns=config.columns)
    scale = 100.0 if table.percent else 1.0
    models = []
    for row in rows:
        summaries = {}
        for column in columns:
            cell = row.cells.get(column)
            values = {} if cell is None else _values(cell, runs, scale)
            summaries[column] = _summary(values, row.published.get(column))
        models.append(ModelResults(row.name, bool(row.cells), summaries))
    return Results(name, table, config, columns, models, runs)


def _option_notes(runs: Sequence[Run]) -> list[str]:
    """Notes about how the runs were trained: each names a condition and the runs that it applies to.

    The conditions are generated data, a time limit, a precision other than float32, and a path of data that
    is not the one of this call.
    """
    tested = [run for run in runs if run.state().is_tested]
    runs_by_condition: dict[str, list[str]] = {}
    for run in tested:
        saved = run.saved
        if saved.generates_data:
            seed = ", which differ by seed" if saved.data_seed is None else f" of seed {saved.data_seed}"
            runs_by_condition.setdefault(f"on generated data{seed}", []).append(run.name)
        if saved.max_minutes is not None:
            runs_by_condition.setdefault(f"for at most {saved.max_minutes:g} minutes", []).append(run.name)
        if saved.precision != "32-true":
            runs_by_condition.setdefault(f"with --precision {saved.precision}", []).append(run.name)
        for name, path, _ in changed_options(run.files, run.config, paths=True):
            runs_by_condition.setdefault(f"with {flag(name)} {path}", []).append(run.name)
    return [
        f"Trained {condition}: {'all' if len(run_names) == len(tested) else ', '.join(run_names)}."
        for condition, run_names in sorted(runs_by_condition.items())
    ]


def _test_data_notes(runs: Sequence[Run]) -> list[str]:
    """Notes about seeds of a configuration that were not tested on the same data, but have a common mean."""
    seeds: dict[CommandSpec, list[Run]] = {}
    for run in runs:
        if run.state().is_tested and not (run.saved.generates_data and run.saved.data_seed is None):
            seeds.setdefault(run.training, []).append(run)
    return [
        f"Tested on other data than earlier seeds: {', '.join(group[i].name for i in other)}."
        for group in seeds.values()
        if (other := tested_on_other_data([run.files for run in group]))
    ]


def _values(cell: Cell, runs: Sequence[Run], scale: float) -> dict[Run, float]:
    """The values of a cell, by run; runs that do not have it yet are left out."""
    values = {}
    for run in runs:
        if run.training != cell.training or not run.state().is_tested:
            continue
        if cell.evaluation is None or run.is_evaluated(cell.evaluation):
            value = _read_number(run.results_of(cell.evaluation), cell.keys)
            if value is not None:
                values[run] = scale * value
    return values


def _read_number(path: Path, keys: tuple[Key, ...]) -> float | None:
    """Read a number from a JSON file of results; None if it is not there."""
    results = read_json(path)
    try:
        value = find(results, keys)
    except (AttributeError, TypeError):
        value = math.nan
    if value is not None and not is_finite_number(value):
        raise UserError(f"{path}: expected the results of a run, with a number at {list(keys)}")
    return None if value is None else float(value)


def _summary(values: dict[Run, float], published: Published | None) -> Summary:
    """Summarize the values of one cell over its runs, which differ in the seed."""
    if not values:
        return Summary({}, published=published)
    mean, deviation = mean_and_deviation(list(values.values()))
    best = values[max(values, key=Run.best_validation_score)]
    return Summary({run.seed: value for run, value in values.items()}, mean, deviation, best, published)


def _as_json(summary: Summary) -> dict[str, Any]:
    published = None if summary.published is None else summary.published._asdict()
    return asdict(summary) | {"n": len(summary.values), "published": published}
