"""The final report of a classifier: tables in the terminal, the page to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from ordered_memory.trees import Span, Tree
from tasks.classifiers.classification import LabelledData, Sentence
from tasks.classifiers.encoders import EncoderConfig
from tasks.classifiers.evaluation import CROSS, Evaluation, read, spread
from tasks.classifiers.traces import NodeValues
from tasks.reporting.induced_trees import scores_tables, scores_text
from tasks.reporting.report import Curve, Example, Report, Table, best_epoch, learning_curves, write_report
from tasks.reporting.tables import number, table
from tasks.runs.run_directory import RunDirectory, config_to_dict

NUM_EXAMPLES = 12
EXAMPLE_LENGTHS = (5, 40)
"""Tokens of a sentence that is drawn."""
CONFUSION = "true class (rows) and answer (columns)"
"""The title of a confusion matrix."""


def results_text(results: Mapping[str, Any]) -> str:
    """The results of an evaluation as plain text.

    Args:
        results: from `ClassifierTask.summary`.
    Returns:
        Several lines.
    """
    unit = results["unit"]
    lines = [f"{results['part']} accuracy {results['accuracy']:.4f} on {results['examples']:,} {unit}"]
    for title, rows in results["accuracy_by"].items():
        found = _accuracy_table(title, rows)
        cells = [[row[0], *(number(cell, 4) for cell in row[1:-1]), f"{row[-1]:,}"] for row in found.rows]
        lines += ["", table(found.columns, cells)]
    if results["confusion"] is not None:
        short = [name.split()[0] for name in results["classes"]]
        rows = [
            [name, *(f"{count:,}" for count in row)]
            for name, row in zip(short, results["confusion"], strict=True)
        ]
        lines += ["", CONFUSION, table(["", *short], rows)]
    lines += scores_text(results["span_f1"], results.get("valid_trees", {}), results["punctuation"])
    return "\n".join(lines)


def write_run_report(
    run: RunDirectory,
    title: str,
    config: EncoderConfig,
    results: Mapping[str, Any],
    evaluation: Evaluation,
    model: nn.Module,
    node_values: NodeValues | None = None,
) -> None:
    """Write report.html: learning curves, tables, and some test examples with their trees.

    Args:
        run: holds metrics.jsonl.
        title: of the page.
        config: of the run.
        results: of the evaluation.
        evaluation: of the best weights on the test data.
        model: with these weights, on the CPU, for the heat maps.
        node_values: see `ClassifierTask`.
    """
    rows = run.read_metrics()
    sentences = evaluation.data.sentence_lengths.shape[1]
    chosen = spread(evaluation.data, *EXAMPLE_LENGTHS, NUM_EXAMPLES // sentences)
    report = Report(
        title=title,
        subtitle=(
            f"{results['part'].capitalize()} accuracy {results['accuracy']:.4f} on "
            f"{results['examples']:,} {results['unit']} {best_epoch(rows)}."
        ),
        config=config_to_dict(config),
        curves=learning_curves(rows),
        plots=accuracy_plots({"test": results}),
        tables=_tables(results),
        examples=[
            example
            for index in chosen
            for example in examples_of(
                model,
                evaluation.data,
                index,
                results["classes"],
                config.test_num_slots,
                node_values=node_values,
            )
        ],
    )
    write_report(run.report, report)


def examples_of(
    model: nn.Module,
    data: LabelledData,
    index: int,
    classes: list[str],
    num_slots: int | None,
    name: str = "",
    node_values: NodeValues | None = None,
) -> list[Example]:
    """The sentences of an example with induced and true trees and the attention.

    Args:
        model: on the CPU.
        data: has the example.
        index: of the example.
        classes: names of the answers.
        num_slots: slots of the model for this call; None for its own.
        name: of the model, put before the captions.
        node_values: see `ClassifierTask`.
    Returns:
        One for each sentence.
    """
    reading = read(model, data, index, num_slots)
    answer, label = int(reading.probabilities.argmax()), int(data.labels[index])
    verdict = f"answer {classes[answer]}" + ("" if answer == label else f", true answer {classes[label]}")
    sentences = data.sentences(index)
    shown: Sequence[Tree | None] = reading.trees or [None] * len(sentences)
    if node_values is not None and reading.trees is None:
        shown = [sentence.tree for sentence in sentences]  # its values at the nodes of the true tree
    return [
        Example(
            tokens=sentence.words,
            predicted_tree=shown[i],
            gold_tree=sentence.tree,
            attention=reading.attention[i].numpy() if reading.attention is not None else None,
            caption=": ".join(part for part in (name, sentence.name, verdict) if part),
            correct=answer == label,
            attention_tokens=sentence.tokens,
            sentiment=_values(node_values, model, sentence, shown[i]),
            gold_sentiment=sentence.values,
        )
        for i, sentence in enumerate(sentences)
    ]


def _values(
    node_values: NodeValues | None, model: nn.Module, sentence: Sentence, tree: Tree | None
) -> Mapping[Span, float] | None:
    return None if node_values is None or tree is None else node_values(model, sentence, tree)


def accuracy_plots(results: Mapping[str, Mapping[str, Any]]) -> list[Curve]:
    """Accuracy over every group whose names are numbers, a line for each result.

    Args:
        results: of evaluations, by name.
    """
    groups = next(iter(results.values()))["accuracy_by"]
    return [
        Curve(
            "accuracy",
            "fraction",
            {
                name: [(float(place), value) for place, (value, _) in one["accuracy_by"][title].items()]
                for name, one in results.items()
            },
            title,
        )
        for title, rows in groups.items()
        if all(name.isdecimal() for name in rows)
    ]


def confusion_table(results: Mapping[str, Any], name: str = "") -> Table:
    """How often each class was taken for which.

    Args:
        results: of an evaluation, with `confusion`.
        name: of the model.
    """
    classes = results["classes"]
    return Table(
        title=CONFUSION.capitalize() + (f": {name}" if name else ""),
        columns=["", *(one.split()[0] for one in classes)],
        rows=[[one, *row] for one, row in zip(classes, results["confusion"], strict=True)],
    )


def _tables(results: Mapping[str, Any]) -> list[Table]:
    tables = [] if results["confusion"] is None else [confusion_table(results)]
    for title, rows in results["accuracy_by"].items():
        tables.append(_accuracy_table(title, rows))
    return tables + scores_tables(results["span_f1"], results["valid_trees"], results["punctuation"])


def _accuracy_table(title: str, rows: Mapping[str, Sequence[float]]) -> Table:
    """Accuracy and number of examples by group, two ways at once where the names say so; see `CROSS`."""
    if not all(CROSS in name for name in rows):
        columns, cells = ["accuracy"], {name: {"accuracy": found} for name, found in rows.items()}
    else:
        cells = {}
        for name, found in rows.items():
            line, column = name.split(CROSS)
            cells.setdefault(line, {})[column] = found
        columns = list(dict.fromkeys(column for line in cells.values() for column in line))
    return Table(
        title=f"Accuracy by {title}",
        columns=[title, *columns, "count"],
        rows=[
            [
                name,
                *(line[column][0] if column in line else None for column in columns),
                sum(count for _, count in line.values()),
            ]
            for name, line in cells.items()
        ],
    )
