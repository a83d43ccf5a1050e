"""The table that compares logic runs."""

from __future__ import annotations

from collections.abc import Mapping

from tasks.classifiers.comparison import FinishedRun, values_table
from tasks.classifiers.report import f1_scores
from tasks.formatting.tables import merge_names
from tasks.logic.data import TRAIN_OPERATIONS
from tasks.logic.published import LEFT_OUT_OPERATIONS, PUBLISHED
from tasks.logic.task import LEFT_OUT
from tasks.reporting.report import Table
from tasks.runs.errors import UserError


def comparison_table(runs: Mapping[str, FinishedRun]) -> Table:
    """Make a table of accuracies by number of operations beside the published ones.

    Args:
        runs: runs by name.
    Returns:
        A row for each run, one for the published accuracies of Ordered Memory, and one for the mean of each
        set of runs that differ in nothing but the seed. The last columns have the F1 of the induced trees.
    Raises:
        UserError: the runs have different splits.
    """
    splits = {run.config.split for run in runs.values()}
    if len(splits) > 1:
        raise UserError(f"runs with different splits cannot be compared: {', '.join(sorted(splits))}")
    (split,) = splits
    operations = {name: _accuracies(run, "operations") for name, run in runs.items()}
    left_out = {name: _accuracies(run, LEFT_OUT.format(split), "left out, ") for name, run in runs.items()}
    counts = {int(count) for accuracies in operations.values() for count in accuracies}
    longer = [str(count) for count in sorted(counts) if count > TRAIN_OPERATIONS]
    regions = merge_names(left_out.values())
    f1 = {name: f1_scores(run.results) for name, run in runs.items()}
    published = PUBLISHED["ordered-memory"]
    if split != "full":
        published = {f"left out, {LEFT_OUT_OPERATIONS}": published[split]}
    return values_table(
        runs,
        {name: operations[name] | left_out[name] | f1[name] for name in runs},
        [*longer, *regions, *merge_names(f1.values())],
        "Test accuracy by number of operations" + (f" and on what split {split} left out" if regions else ""),
        published={"Ordered Memory, published": {name: x.mean / 100 for name, x in published.items()}},
        note="Training has at most 6 operations; 12 stands for 12 and more.",
    )


def _accuracies(run: FinishedRun, title: str, prefix: str = "") -> dict[str, float]:
    """The accuracies of a run by group; empty if it has no groups of this title."""
    groups = run.results["accuracy_by"].get(title, {})
    return {f"{prefix}{name}": accuracy for name, (accuracy, _) in groups.items()}
