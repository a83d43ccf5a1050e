"""The final report of a classifier: tables in the terminal, and an HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ordered_memory.span_f1 import fraction_text
from ordered_memory.trees import depth
from tasks.classifiers.classification import LabeledData
from tasks.classifiers.classifier import Classifier
from tasks.classifiers.evaluation import CROSS, Evaluation
from tasks.classifiers.traces import example_traces
from tasks.formatting.tables import merge_names, number, text_table
from tasks.reporting.curves import Curve
from tasks.reporting.examples import choose_examples
from tasks.reporting.induced_trees import readings, scores_tables, scores_text, with_reading
from tasks.reporting.report import Report, Table, best_epoch, learning_curves, write_report
from tasks.runs.record import run_facts
from tasks.runs.run_directory import RunDirectory
from tasks.runs.saved_config import config_to_dict

CONFUSION = "true class (rows) and predicted class (columns)"
"""The title of a confusion matrix."""


def results_text(results: Mapping[str, Any]) -> str:
    """Format the results of an evaluation as plain text.

    Args:
        results: results from `ClassifierTask.summary`.
    Returns:
        Several lines.
    """
    unit = results["unit"]
    lines = [
        f"{results['part']} accuracy {fraction_text(results['accuracy'])} on {results['examples']:,} {unit}"
    ]
    for title, rows in results["accuracy_by"].items():
        accuracy_table = _accuracy_table(title, rows)
        cells = [
            [row[0], *(number(cell, 4, whole=1) for cell in row[1:-1]), f"{row[-1]:,}"]
            for row in accuracy_table.rows
        ]
        lines += ["", text_table(accuracy_table.columns, cells)]
    if results["confusion"] is not None:
        short_names = _short_names(results["classes"])
        rows = [
            [name, *(f"{count:,}" for count in row)]
            for name, row in zip(short_names, results["confusion"], strict=True)
        ]
        lines += ["", CONFUSION, text_table(["", *short_names], rows)]
    lines += scores_text(results)
    return "\n".join(lines)


def values_to_summarize(results: Mapping[str, Any]) -> dict[str, float]:
    """The numbers that are summarized over several seeds, by name.

    Args:
        results: the content of results.json.
    """
    values = {"accuracy": results["accuracy"]}
    for title, groups in results["accuracy_by"].items():
        values |= {f"{title} {name}": entry[0] for name, entry in groups.items()}
    values |= f1_scores(results)
    valid = results["valid_trees"]
    return values | {
        with_reading("valid trees", reading): valid[name] for name, reading in readings(valid).items()
    }


def f1_scores(results: Mapping[str, Any], baseline: str | None = None) -> dict[str, float]:
    """F1 by the names of columns; empty for a model that induces no trees.

    Args:
        results: the content of results.json.
        baseline: name of the baseline; None for the trees of the model, with a column for each reading.
    """
    levels = {convention.split(",")[0]: scores for convention, scores in results["span_f1"].items()}
    columns = readings(next(iter(levels.values()), {})) if baseline is None else {baseline: ""}
    return {
        with_reading(f"F1, {level}", reading): scores[name]
        for name, reading in columns.items()
        for level, scores in levels.items()
    }


def write_run_report(
    run: RunDirectory,
    title: str,
    about: str,
    results: Mapping[str, Any],
    evaluation: Evaluation,
    model: Classifier,
) -> None:
    """Write report.html: learning curves, tables, and some test examples to step through.

    Args:
        run: the run directory.
        title: title of the page.
        about: explains the task.
        results: results from `ClassifierTask.summary`.
        evaluation: evaluation of the best weights on the test data.
        model: model with these weights, on the CPU.
    """
    rows = run.read_history()
    data, config = evaluation.data, model.config
    chosen = choose_examples(data.sentence_lengths.max(1), depths_of(data), evaluation.correct)
    report = Report(
        title=title,
        about=f"{about} It is {'given the true trees' if config.needs_trees else 'never shown a tree'}.",
        subtitle=(
            f"{results['part'].capitalize()} accuracy {fraction_text(results['accuracy'])} on "
            f"{results['examples']:,} {results['unit']} {best_epoch(rows)}."
        ),
        curves=learning_curves(rows),
        plots=accuracy_plots({results["part"]: results}),
        tables=_tables(results),
        traces=[
            trace
            for number, index in enumerate(chosen)
            for trace in example_traces(model, data, index, example=number)
        ],
        facts=run_facts(run),
        config=config_to_dict(config),
    )
    write_report(run.report, report)


def depths_of(data: LabeledData) -> list[int]:
    """Compute the depth of the true tree of each example: the maximum over its sentences.

    Args:
        data: n examples.
    Returns:
        n depths; 0 where no tree is known.
    """
    return [
        max(0 if sentence.tree is None else depth(sentence.tree) for sentence in data.sentences(index))
        for index in range(len(data.labels))
    ]


def accuracy_plots(results: Mapping[str, Mapping[str, Any]]) -> list[Curve]:
    """Plot the accuracy by group if the names of the groups are numbers, with one line for each model.

    A model that was tested without these groups has no line. The numbers of examples are shown if they are
    the same for all lines.

    Args:
        results: results from `ClassifierTask.summary`, by name of the model.
    """
    lines: dict[str, dict[str, list[tuple[float, float]]]] = {}
    counts: dict[str, list[dict[float, int]]] = {}
    for name, result in results.items():
        for title, groups in result["accuracy_by"].items():
            if are_numbers(groups):
                points = [(float(group), accuracy) for group, (accuracy, _) in groups.items()]
                lines.setdefault(title, {})[name] = points
                sizes = {float(group): int(count) for group, (_, count) in groups.items()}
                counts.setdefault(title, []).append(sizes)
    return [
        Curve(
            "accuracy",
            "fraction",
            lines[title],
            title,
            counts=first if all(other == first for other in others) else {},
        )
        for title, (first, *others) in counts.items()
    ]


def are_numbers(groups: Mapping[str, Any]) -> bool:
    """Whether the names of the groups are numbers, and so can be plotted on an axis.

    Args:
        groups: what is known of each group, by name.
    """
    return all(name.isdecimal() for name in groups)


def confusion_table(results: Mapping[str, Any], name: str = "") -> Table:
    """Make a table of the confusion matrix.

    Args:
        results: results from `ClassifierTask.summary`, with `confusion`.
        name: name of the model, for the title.
    """
    classes = results["classes"]
    return Table(
        title=CONFUSION.capitalize() + (f": {name}" if name else ""),
        columns=["true class", *_short_names(classes)],
        rows=[[true_class, *row] for true_class, row in zip(classes, results["confusion"], strict=True)],
    )


def _tables(results: Mapping[str, Any]) -> list[Table]:
    tables = [] if results["confusion"] is None else [confusion_table(results)]
    for title, rows in results["accuracy_by"].items():
        if not are_numbers(rows):  # those are plots
            tables.append(_accuracy_table(title, rows))
    return tables + scores_tables(results)


def _accuracy_table(title: str, rows: Mapping[str, Sequence[float]]) -> Table:
    """Accuracy and number of examples by group; two-dimensional if the names contain `CROSS`."""
    if not all(CROSS in group for group in rows):
        columns, cells = ["accuracy"], {group: {"accuracy": scores} for group, scores in rows.items()}
    else:
        cells = {}
        for group, scores in rows.items():
            row, column = group.split(CROSS)
            cells.setdefault(row, {})[column] = scores
        columns = merge_names(cells.values())
    return Table(
        title=f"Accuracy: {title}",
        columns=[title, *columns, "count"],
        rows=[
            [
                group,
                *(row[column][0] if column in row else None for column in columns),
                sum(count for _, count in row.values()),
            ]
            for group, row in cells.items()
        ],
    )


def _short_names(classes: Sequence[str]) -> list[str]:
    """The first word of each name, if they differ."""
    first_words = [name.split()[0] for name in classes]
    return first_words if len(set(first_words)) == len(first_words) else list(classes)
