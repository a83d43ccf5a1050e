"""Compare finished runs of a task: one table, and one page with plots and the trees of the same examples."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro

from ordered_memory.trace import Trace
from tasks.classifiers.classification import LabeledData
from tasks.classifiers.evaluation import CROSS
from tasks.classifiers.report import (
    accuracy_plots,
    are_numbers,
    confusion_table,
    depths_of,
    f1_scores,
    results_text,
)
from tasks.classifiers.task import ClassifierTask
from tasks.classifiers.traces import example_traces
from tasks.formatting.summary import mean_and_deviation
from tasks.formatting.tables import (
    count_text,
    mean_text,
    merge_names,
    number,
    terminal_width,
    text_table,
    wrap,
)
from tasks.reporting import examples
from tasks.reporting.induced_trees import readings, scores_note
from tasks.reporting.report import Report, Table, best_cells, write_report
from tasks.runs.config import COMPUTE_OPTIONS
from tasks.runs.errors import UserError
from tasks.runs.files import prepare_output_file, read_json
from tasks.runs.options import option_words
from tasks.runs.record import run_facts
from tasks.runs.run_directory import RunDirectory, best_row, digest_of_test_data
from tasks.runs.saved_config import config_from_dict, is_data_path

MOST_OPTIONS = 3
"""Runs that differ in more options than this are not named after them."""
DIFFERENT_TESTS = "The models were tested on different {}."
VALIDATION = "validation"
"""The column of the accuracy by which models and options should be chosen."""


@dataclass
class ReportConfig:
    """Compare finished runs: a table of accuracies, with that on validation data, by which to choose one; a
    page with plots, confusion matrices and trees."""

    runs: Annotated[list[Path], tyro.conf.Positional] = field(default_factory=list)
    """Directories of finished runs. Runs that differ only in the seed get an additional row with their
    mean. JSON files, which `--seeds` writes beside its runs, are skipped: a pattern may match them, too."""
    output: Path | None = None
    """The HTML page to write; by default report.html beside the first run."""


class FinishedRun(NamedTuple):
    """A run to compare.

    Args:
        files: its directory.
        config: the configuration that it was trained with.
        results: results of its test, from `ClassifierTask.summary`.
        validation_accuracy: that of the epoch whose weights were tested; None if it is not known.
    """

    files: RunDirectory
    config: Any
    results: dict[str, Any]
    validation_accuracy: float | None = None


def accuracy_table(runs: Mapping[str, FinishedRun]) -> Table:
    """Make a table of the accuracy on all test data and on groups of them, and of F1.

    Groups whose names are numbers are left out: the page plots them.

    Args:
        runs: runs by name.
    Returns:
        See `values_table`.
    """
    values = {name: _values(run.results) for name, run in runs.items()}
    groups = dict.fromkeys(title for run in runs.values() for title in _groups(run.results))
    title = ", by ".join([f"{_parts(runs).capitalize()} accuracy", *groups])
    return values_table(runs, values, merge_names(values.values()), title)


def values_table(
    runs: Mapping[str, FinishedRun],
    values: Mapping[str, Mapping[str, float]],
    columns: Sequence[str],
    title: str,
    *,
    published: Mapping[str, Mapping[str, float]] | None = None,
    note: str = "",
) -> Table:
    """Make a table of numbers of runs.

    Args:
        runs: runs by name.
        values: the numbers of each run, by column.
        columns: the columns of the table.
        title: its title.
        published: published numbers of models, by name and column.
        note: shown below the table, before the conventions of F1.
    Returns:
        A row for each run and each model of `published`, for the mean of each set of runs that differ in
        nothing but the seed, and for each baseline of F1. The first column has the validation accuracy.
    """
    validation = {
        name: {VALIDATION: run.validation_accuracy}
        for name, run in runs.items()
        if run.validation_accuracy is not None
    }
    if validation:
        values = {name: validation.get(name, {}) | dict(row) for name, row in values.items()}
        columns = [VALIDATION, *columns]
    shown = {**values, **(published or {})}
    rows: list[list[Any]] = [[name, *map(row.get, columns)] for name, row in shown.items()]
    best = best_cells(rows)
    with_trees = [run.results for run in runs.values() if run.results["span_f1"]]
    rows += _mean_rows(runs, values, columns) + _baseline_rows(with_trees, columns)
    return Table(title, ["model", *columns], rows, f"{note} {_f1_note(with_trees)}".strip(), best)


def _mean_rows(
    runs: Mapping[str, FinishedRun], values: Mapping[str, Mapping[str, float]], columns: Sequence[str]
) -> list[list[Any]]:
    """For each set of runs that differ in the seed alone, the mean where all of them have a number."""
    groups = _seeds_of_one_configuration(runs)
    shared = [_name(runs[names[0]], runs.values(), leave_out=("seed",)) for names in groups]
    return [
        [
            f"{name if shared.count(name) == 1 else names[0]}, mean of {len(names)} seeds",
            *(_mean_text([values[run].get(column) for run in names]) for column in columns),
        ]
        for names, name in zip(groups, shared, strict=True)
    ]


def _baseline_rows(results: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> list[list[Any]]:
    """The F1 of each baseline, such as right-branching trees, that is the same in all of these results."""
    rows: list[list[Any]] = []
    names = next(iter(results[0]["span_f1"].values())) if results else {}
    of_model = readings(names)
    for name in names:
        if name in of_model:
            continue
        first, *others = (f1_scores(result, name) for result in results)
        if all(scores == first for scores in others):
            rows.append([name, *map(first.get, columns)])
    return rows


def _f1_note(results: Sequence[Mapping[str, Any]]) -> str:
    """The conventions of F1 and, if it is the same in all of these results, the number of trees."""
    if not results:
        return ""
    counts = {result["scored_trees"] for result in results}
    scores = [result["span_f1"] for result in results]
    note = scores_note(results[0]["punctuation"], counts.pop() if len(counts) == 1 else None, scores)
    return f"F1: {'; '.join(scores[0])}. {note}"


def _mean_text(values: Sequence[float | None]) -> str | None:
    found = [value for value in values if value is not None]
    if len(found) < len(values):
        return None
    return mean_text(*mean_and_deviation(found), 4, whole=1)


def run_report(
    task: ClassifierTask[Any],
    config: ReportConfig,
    make_table: Callable[[Mapping[str, FinishedRun]], Table] = accuracy_table,
) -> None:
    """Compare finished runs: print a table, and write a page.

    Args:
        task: the task of the runs.
        config: the options.
        make_table: makes the table.
    Raises:
        UserError: no runs are given, a directory holds no finished run of this task, or they have different
            classes.
    """
    paths = dict.fromkeys(config.runs)
    directories = [path for path in paths if not (path.suffix == ".json" and path.is_file())]
    if not directories:
        raise UserError("name the directories of one or more finished runs")
    runs = _read_runs(task, directories)
    path = config.output or directories[0].resolve().parent / "report.html"
    for run in runs.values():
        if path.resolve() == run.files.report.resolve():
            raise UserError(f"--output {path}: is the report of a run; name another file")
    prepare_output_file("--output", path)
    table = make_table(runs)
    if len({(run.results["part"], digest_of_test_data(run.results)) for run in runs.values()}) > 1:
        table = replace(table, note=f"{DIFFERENT_TESTS.format(task.unit)} {table.note}".rstrip())
    results = {name: run.results for name, run in runs.items()}
    confusions = [
        confusion_table(summary, name)
        for name, summary in results.items()
        if summary["confusion"] is not None
    ]
    report = Report(
        title=f"Comparison of {count_text(len(runs), 'run')}",
        about=task.about,
        subtitle=f"Accuracy on the {_parts(runs)} data.",
        plots=accuracy_plots(results),
        tables=[table, *confusions],
        traces=_side_by_side(task, {name: run for name, run in runs.items() if run.results["span_f1"]}),
        facts={
            name: "\n".join(f"{fact}: {value}" for fact, value in facts.items())
            for name, run in runs.items()
            if (facts := run_facts(run.files))
        },
    )
    write_report(path, report)
    rows = [["" if cell is None else _text(cell) for cell in row] for row in table.rows]
    width = terminal_width()
    print("\n".join([text_table(table.columns, rows, width), *wrap(table.note, width)]))
    print(f"report: {path}")


def _read_runs(task: ClassifierTask[Any], directories: Sequence[Path]) -> dict[str, FinishedRun]:
    """Read finished runs by name: the model and the options in which runs of this model differ.

    Runs of the same options, or of many different ones, are named after their directories, too.
    """
    found: list[FinishedRun] = []
    for directory in directories:
        files = RunDirectory(directory)
        results = files.read_results()
        if results is None:
            if files.diverged.exists():
                raise UserError(
                    f"{directory}: holds a run that has diverged (diverged.json): it has no results"
                )
            missing = "holds no finished run (no results.json)" if directory.exists() else "no such directory"
            raise UserError(f"{directory}: {missing}")
        if files.results_text(results_text) is None or results["unit"] != task.unit:
            raise UserError(f"{files.results}: not the results of a run of this task")
        if digest_of_test_data(results) is None:
            raise UserError(
                f"{files.results}: does not say which data the run was tested on; --resume tests it again"
            )
        config = config_from_dict(task.model_class.config_class, read_json(files.config), files.config)
        history = files.read_history("validation_accuracy") if files.metrics.exists() else None
        validation = None if history is None else best_row(history)["validation_accuracy"]
        found.append(FinishedRun(files, config, results, validation))
    classes = {tuple(run.results["classes"]): run.files.path for run in found}
    if len(classes) > 1:
        different = "; ".join(f"{path} has {', '.join(names)}" for names, path in classes.items())
        raise UserError(f"runs with different classes cannot be compared: {different}")
    runs: dict[str, FinishedRun] = {}
    for run in found:
        model, directory = _name(run, found), run.files.path
        names = (
            model,
            f"{model}, {run.files.absolute_path.name}",
            f"{model}, {directory}",
            f"{model}, {directory.resolve()}",
        )
        numbered = (f"{model}, {directory} ({number})" for number in itertools.count(2))
        name = next(candidate for candidate in itertools.chain(names, numbered) if candidate not in runs)
        runs[name] = run
    return runs


def _name(run: FinishedRun, runs: Iterable[FinishedRun], *, leave_out: Collection[str] = ()) -> str:
    """The model of a run, with the options in which the runs of this model differ, unless they are many.

    An option that is None was not given, and is left out.
    """
    name: str = run.config.model_name
    options = _options(run)
    others = [_options(other) for other in runs if other.config.model_name == name]
    differing = [
        option
        for option in sorted(options, key=lambda option: option == "seed")  # the seed last
        if option not in leave_out and any(other[option] != options[option] for other in others)
    ]
    if len(differing) > MOST_OPTIONS:
        return name
    values = ((option, getattr(run.config, option)) for option in differing)
    words = [option_words(option, value) for option, value in values if value is not None]
    return " ".join([name, *itertools.chain(*words)])


def _options(run: FinishedRun) -> dict[str, Any]:
    """The options that results depend on: --devices multiplies the batch size.

    Files of data may have moved, so digests of the data replace their names.
    """
    return {
        option: run.results["data"] if is_data_path(option, value) else value
        for option, value in vars(run.config).items()
        if option not in COMPUTE_OPTIONS - {"devices", "precision"}
    }


def _values(results: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of the table by column: accuracy, by groups with one dimension, and F1."""
    values = {"all": results["accuracy"]}
    for title, groups in _groups(results).items():
        for name, (accuracy, _) in groups.items():
            values[f"{title} {name}" if name in values else name] = accuracy
    return values | f1_scores(results)


def _groups(results: Mapping[str, Any]) -> dict[str, Mapping[str, Sequence[float]]]:
    """The accuracies by group, by title, without those that are plotted and those of two dimensions."""
    return {
        title: groups
        for title, groups in results["accuracy_by"].items()
        if not are_numbers(groups) and not any(CROSS in name for name in groups)
    }


def _seeds_of_one_configuration(runs: Mapping[str, FinishedRun]) -> list[list[str]]:
    """The names of the runs of each configuration that has several seeds; of a run given twice, the first."""
    groups: dict[str, list[str]] = {}
    first_names: dict[Path, str] = {}
    for name, run in runs.items():
        if first_names.setdefault(run.files.path.resolve(), name) == name:
            groups.setdefault(repr(_options(run) | {"seed": None}), []).append(name)
    return [
        names
        for names in groups.values()
        if 1 < len(names) == len({runs[name].config.seed for name in names})
    ]


def _parts(runs: Mapping[str, FinishedRun]) -> str:
    """The parts of the data that the runs were tested on: test, or validation where there is no test part."""
    return " and ".join(dict.fromkeys(run.results["part"] for run in runs.values()))


def _side_by_side(task: ClassifierTask[Any], runs: Mapping[str, FinishedRun]) -> list[Trace]:
    """Traces of the same test examples for each model that induces trees."""
    data = _test_examples(task, [run.config for run in runs.values()])
    if data is None:
        return []
    models = {name: task.model_class.from_pretrained(run.files.best) for name, run in runs.items()}
    for model in models.values():
        model.adapt(data)
    count = max(1, examples.NUM_EXAMPLES // len(models))
    chosen = examples.choose_examples(data.sentence_lengths.max(1), depths_of(data), count=count)
    return [
        trace
        for number, (index, (name, model)) in enumerate(itertools.product(chosen, models.items()))
        for trace in example_traces(model, data, index, model_name=name, example=number)
    ]


def _test_examples(task: ClassifierTask[Any], configs: Sequence[Any]) -> LabeledData | None:
    """The test data of the first run whose files are still where they were; None, with a warning, if none."""
    for config in configs:
        try:
            return task.load_splits(config).test if task.load_test is None else task.load_test(config)
        except UserError as error:
            print(f"warning: no trees of these test data: {error}", file=sys.stderr)
    return None


def _text(cell: Any) -> str:
    return cell if isinstance(cell, str) else number(cell, 4, whole=1)
