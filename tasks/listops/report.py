"""The final report of a ListOps run: the table in the terminal, the page to look at."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tasks.listops.config import ListOpsConfig
from tasks.listops.data import Dataset
from tasks.listops.evaluation import Evaluation
from tasks.listops.expressions import tree
from tasks.listops.model import ListOpsModel
from tasks.reporting.induced_trees import scores_tables, scores_text
from tasks.reporting.report import Example, Report, Table, best_epoch, learning_curves, write_report
from tasks.runs.run_directory import RunDirectory, config_to_dict

NUM_EXAMPLES = 12
EXAMPLE_LENGTHS = (5, 40)


def results_text(results: dict[str, Any]) -> str:
    """The results of an evaluation as plain text.

    Args:
        results: from `Evaluation.summary`.
    Returns:
        Several lines.
    """
    lines = [f"accuracy {results['accuracy']:.4f} on {results['expressions']:,} expressions"]
    for title, key in (("tokens", "accuracy_by_length"), ("depth", "accuracy_by_depth")):
        lines.append(f"\n{title:>10}  accuracy  expressions")
        lines += [f"{name:>10}  {value:8.4f}  {count:11,}" for name, (value, count) in results[key].items()]
    lines += scores_text(results["span_f1"], results["punctuation"])
    return "\n".join(lines)


def write_run_report(
    run: RunDirectory, config: ListOpsConfig, evaluation: Evaluation, model: ListOpsModel
) -> None:
    """Write report.html: learning curves, tables, and a dozen test expressions with their trees.

    Args:
        run: holds metrics.jsonl.
        config: of the run.
        evaluation: of the best weights on the test data.
        model: with these weights, on the CPU, for the heat maps.
    """
    rows = run.read_metrics()
    summary = evaluation.summary()
    report = Report(
        title=f"ListOps: {config.model}",
        subtitle=(
            f"Test accuracy {summary['accuracy']:.4f} on {summary['expressions']:,} expressions "
            f"{best_epoch(rows)}."
        ),
        config=config_to_dict(config),
        curves=learning_curves(rows),
        tables=_tables(summary),
        examples=_examples(evaluation, model, config.test_num_slots),
    )
    write_report(run.report, report)


def _tables(summary: dict[str, Any]) -> list[Table]:
    tables = [
        Table(
            title=f"Accuracy by {title}",
            columns=[title, "accuracy", "expressions"],
            rows=[[name, value, count] for name, (value, count) in summary[key].items()],
            note="",
        )
        for title, key in (("length in tokens", "accuracy_by_length"), ("depth", "accuracy_by_depth"))
    ]
    note = f"{summary['expressions']:,} expressions; {summary['punctuation']}"
    return tables + scores_tables(summary["span_f1"], note)


def _examples(evaluation: Evaluation, model: ListOpsModel, num_slots: int | None) -> list[Example]:
    """A dozen expressions spread over the lengths that can be drawn."""
    dataset = evaluation.dataset
    chosen = _choose(dataset)
    return [_example(evaluation, model, int(index), num_slots) for index in chosen]


def _choose(dataset: Dataset) -> np.ndarray:
    shortest, longest = EXAMPLE_LENGTHS
    fitting = np.flatnonzero((dataset.lengths >= shortest) & (dataset.lengths <= longest))
    ordered = fitting[np.argsort(dataset.lengths[fitting], kind="stable")]
    places = np.linspace(0, len(ordered) - 1, min(NUM_EXAMPLES, len(ordered)))
    return ordered[places.astype(np.int64)]


@torch.inference_mode()
def _example(evaluation: Evaluation, model: ListOpsModel, index: int, num_slots: int | None) -> Example:
    dataset = evaluation.dataset
    tokens = dataset.tokens_of(index)
    batch = dataset.batch([index])
    attention = model.eval()(batch, num_slots).attention
    predicted, label = int(evaluation.predicted[index]), int(dataset.labels[index])
    right = predicted == label
    return Example(
        tokens=tokens,
        predicted_tree=evaluation.trees[index] if evaluation.trees is not None else None,
        gold_tree=tree(tokens),
        attention=attention[0].numpy() if attention is not None else None,
        caption=f"answer {predicted}" if right else f"answer {predicted}, true value {label}",
        correct=right,
    )
