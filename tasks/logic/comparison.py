"""The table that compares logic runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasks.classifiers.comparison import FinishedRun
from tasks.logic.data import TRAIN_OPERATIONS
from tasks.logic.published import LEFT_OUT_OPERATIONS, PUBLISHED
from tasks.logic.task import LEFT_OUT
from tasks.reporting.report import Table, best_cells
from tasks.reporting.summary import Published
from tasks.runs.errors import UserError


def comparison_table(runs: Mapping[str, FinishedRun]) -> Table:
    """Make a table of accuracies by number of operations beside the published ones.

    Args:
        runs: runs by name.
    Raises:
        UserError: the runs have different splits.
    """
    splits = {run.config.split for run in runs.values()}
    if len(splits) > 1:
        raise UserError(f"runs with different splits cannot be compared: {', '.join(sorted(splits))}")
    return _comparison_table({name: run.results for name, run in runs.items()}, *splits)


def _comparison_table(summaries: dict[str, dict[str, Any]], split: str) -> Table:
    left_out = LEFT_OUT.format(split)
    accuracies = {name: summary["accuracy_by"] for name, summary in summaries.items()}
    counts = {int(count) for tables in accuracies.values() for count in tables["operations"]}
    operations = [str(count) for count in sorted(counts) if count > TRAIN_OPERATIONS]
    regions = list(
        dict.fromkeys(region for tables in accuracies.values() for region in tables.get(left_out, ()))
    )
    rows: list[list[Any]] = [
        [
            name,
            *(tables["operations"].get(count, [""])[0] for count in operations),
            *(tables.get(left_out, {}).get(region, [""])[0] for region in regions),
        ]
        for name, tables in accuracies.items()
    ]
    published = dict(PUBLISHED["ordered-memory"])
    if split != "full":
        published = {LEFT_OUT_OPERATIONS: published[split]}
    columns = (*operations, *regions)
    rows.append(["Ordered Memory, published", *(_fraction(published.get(column)) for column in columns)])
    return Table(
        title="Test accuracy by number of operations"
        + (f" and on what split {split} left out" if regions else ""),
        columns=["model", *operations, *(f"left out, {region}" for region in regions)],
        rows=rows,
        best=best_cells(rows),
        note="Training has at most 6 operations; 12 stands for 12 and more.",
    )


def _fraction(published: Published | None) -> float | str:
    """A published percentage as a fraction; empty if there is none."""
    return "" if published is None else published.mean / 100
