"""Compare several logic runs in one report."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ordered_memory.trace import Trace
from tasks.classifiers.report import accuracy_plots, confusion_table, depths_of, results_text
from tasks.classifiers.traces import example_traces
from tasks.logic.config import LogicConfig
from tasks.logic.data import TRAIN_OPERATIONS, Dataset
from tasks.logic.model import LogicModel
from tasks.logic.published import LEFT_OUT_OPERATIONS, PUBLISHED
from tasks.logic.task import LEFT_OUT, LOGIC, load_pairs
from tasks.reporting import examples
from tasks.reporting.report import Report, Table, best_cells, write_report
from tasks.reporting.summary import Published
from tasks.reporting.tables import number, text_table
from tasks.runs.errors import UserError
from tasks.runs.files import read_json
from tasks.runs.record import run_facts
from tasks.runs.run_directory import RunDirectory
from tasks.runs.saved_config import config_from_dict

DIFFERENT_TESTS = "The models were tested on different pairs."


def write_comparison(path: Path, directories: Sequence[Path]) -> str:
    """Write an HTML page that compares finished runs.

    Args:
        path: the HTML file.
        directories: run directories.
    Returns:
        The table of accuracies as text.
    Raises:
        UserError: a directory holds no finished run, or the runs have different splits.
    """
    summaries: dict[str, dict[str, Any]] = {}
    configs: dict[str, LogicConfig] = {}
    directories = list(dict.fromkeys(directories))
    for directory in directories:
        run = RunDirectory(directory)
        results = run.read_results()
        if results is None:
            raise UserError(f"{directory}: holds no finished run (no results.json)")
        if run.results_text(results_text) is None:
            raise UserError(f"{run.results}: not the results of a run in logic")
        config = config_from_dict(LogicConfig, read_json(run.config), run.config)
        name = config.model_name
        names = (name, f"{name}, {directory.name}", f"{name}, {directory}")
        name = next(candidate for candidate in names if candidate not in summaries)
        summaries[name], configs[name] = results, config
    splits = {config.split for config in configs.values()}
    if len(splits) > 1:
        raise UserError(f"runs with different splits cannot be compared: {', '.join(sorted(splits))}")
    (split,) = splits
    table = _comparison_table(summaries, split)
    tested_on = [_test_data(summaries[name], config) for name, config in configs.items()]
    if any(test_data != tested_on[0] for test_data in tested_on):
        table = replace(table, note=f"{DIFFERENT_TESTS} {table.note}")
    inducing = {
        name: directory
        for name, directory in zip(summaries, directories, strict=True)
        if summaries[name]["span_f1"]
    }
    report = Report(
        title=f"Logic: {len(summaries)} models, split {split}",
        about=LOGIC.about,
        subtitle="Accuracy on the test data by the operations of the longer formula.",
        plots=accuracy_plots(summaries),
        tables=[table, *(confusion_table(summary, name) for name, summary in summaries.items())],
        traces=_side_by_side(inducing, configs),
        facts={
            name: "\n".join(f"{fact}: {value}" for fact, value in facts.items())
            for name, directory in zip(summaries, directories, strict=True)
            if (facts := run_facts(RunDirectory(directory)))
        },
    )
    write_report(path, report)
    rows = [
        [cell if isinstance(cell, str) else number(cell, 4, whole=1) for cell in row] for row in table.rows
    ]
    return f"{text_table(table.columns, rows)}\n{table.note}"


def _side_by_side(runs: dict[str, Path], configs: dict[str, LogicConfig]) -> list[Trace]:
    """Traces of the same pairs for each model that induces trees."""
    if not runs:
        return []
    first = next(iter(runs))
    data = Dataset([pair for group in load_pairs(configs[first]).tests for pair in group])
    models = {
        name: LogicModel.from_pretrained(RunDirectory(directory).best) for name, directory in runs.items()
    }
    count = max(1, examples.NUM_EXAMPLES // len(models))
    chosen = examples.choose_examples(data.sentence_lengths.max(1), depths_of(data), count=count)
    examples_and_models = itertools.product(chosen, models.items())
    return [
        trace
        for number, (index, (name, model)) in enumerate(examples_and_models)
        for trace in example_traces(
            model,
            data,
            index,
            configs[name].test_num_slots,
            model_name=name,
            example=number,
        )
    ]


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


def _test_data(summary: dict[str, Any], config: LogicConfig) -> tuple[Any, ...]:
    """What identifies the test data of a run: numbers of pairs by operations and, if generated, the seed."""
    sizes = {count: size for count, (_, size) in summary["accuracy_by"]["operations"].items()}
    return sizes, config.seed if config.data_dir is None and config.generated else None


def _fraction(published: Published | None) -> float | str:
    """A published percentage as a fraction; empty if there is none."""
    return "" if published is None else published.mean / 100
