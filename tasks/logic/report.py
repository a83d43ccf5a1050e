"""The final report of a logic run: the table in the terminal, the page to look at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ordered_memory.trees import Tree
from tasks.logic.config import LogicConfig
from tasks.logic.data import Dataset, Pair
from tasks.logic.evaluation import Evaluation, induced_trees
from tasks.logic.formulas import RELATION_NAMES, RELATIONS, decode, parse, words_of
from tasks.logic.model import LogicModel
from tasks.reporting.induced_trees import scores_tables, scores_text
from tasks.reporting.report import Curve, Example, Report, Table, best_epoch, learning_curves, write_report
from tasks.runs.run_directory import RunDirectory, config_to_dict

NUM_EXAMPLES = 6
LONGEST_EXAMPLE = 30


def results_text(results: dict[str, Any]) -> str:
    """The results of an evaluation as plain text.

    Args:
        results: from `Evaluation.summary`.
    Returns:
        Several lines.
    """
    lines = [f"accuracy {results['accuracy']:.4f} on {results['pairs']:,} pairs"]
    groups = [("operations", results["accuracy_by_operations"])]
    if results["accuracy_on_excluded"]:
        groups.append((f"left out by {results['split']}", results["accuracy_on_excluded"]))
    for title, rows in groups:
        lines.append(f"\n{title:>13}  accuracy       pairs")
        lines += [f"{name:>13}  {value:8.4f}  {count:10,}" for name, (value, count) in rows.items()]
    lines.append("\ntrue relation (rows) and answer (columns)")
    lines.append(" " * 4 + "".join(f"{sign:>8}" for sign in results["relations"]))
    for sign, row in zip(results["relations"], results["confusion"], strict=True):
        lines.append(f"{sign:>4}" + "".join(f"{count:8,}" for count in row))
    lines += scores_text(results["span_f1"], results["punctuation"])
    return "\n".join(lines)


def write_run_report(
    run: RunDirectory, config: LogicConfig, evaluation: Evaluation, model: LogicModel
) -> None:
    """Write report.html: learning curves, tables, and pairs with their trees.

    Args:
        run: holds metrics.jsonl.
        config: of the run.
        evaluation: of the best weights on the test data.
        model: with these weights, on the CPU, for the heat maps.
    """
    rows = run.read_metrics()
    summary = evaluation.summary()
    report = Report(
        title=f"Logic: {config.model}, split {config.split}",
        subtitle=(
            f"Test accuracy {summary['accuracy']:.4f} on {summary['pairs']:,} pairs {best_epoch(rows)}."
        ),
        config=config_to_dict(config),
        curves=learning_curves(rows),
        plots=[accuracy_plot({config.model: summary})],
        tables=_tables(summary),
        examples=[
            example
            for pair in choose_examples(evaluation.pairs)
            for example in pair_examples(pair, model, config, "")
        ],
    )
    write_report(run.report, report)


def choose_examples(pairs: Sequence[Pair]) -> list[Pair]:
    """Some pairs spread over the sizes that can be drawn, both formulas nested."""
    fitting = [
        pair
        for pair in pairs
        if 5 < len(pair.left) <= LONGEST_EXAMPLE and 5 < len(pair.right) <= LONGEST_EXAMPLE
    ]
    fitting.sort(key=lambda pair: len(pair.left) + len(pair.right))
    places = np.linspace(0, len(fitting) - 1, min(NUM_EXAMPLES, len(fitting))).astype(int)
    return [fitting[place] for place in places]


@torch.inference_mode()
def pair_examples(pair: Pair, model: LogicModel, config: LogicConfig, name: str) -> list[Example]:
    """Both formulas of a pair with induced and true trees and the attention.

    Args:
        pair: what to read.
        model: on the CPU.
        config: the model's.
        name: put before the captions.
    Returns:
        Two examples.
    """
    batch = Dataset([pair], trees=True).batch([0])
    prediction = model.eval()(batch, config.test_num_slots)
    answer = RELATIONS[int(prediction.logits.argmax())]
    attention = prediction.attention
    trees: list[Tree | None] = [None, None] if attention is None else [*induced_trees(attention, batch)]
    examples = []
    for side, clause in enumerate((pair.left, pair.right)):
        tokens = decode(clause)
        caption = f"{name}{('left', 'right')[side]} formula; left {answer} right ({RELATION_NAMES[answer]})"
        if answer != RELATIONS[pair.label]:
            caption += f", true relation {RELATIONS[pair.label]} ({RELATION_NAMES[RELATIONS[pair.label]]})"
        examples.append(
            Example(
                tokens=words_of(tokens),
                predicted_tree=trees[side],
                gold_tree=parse(tokens).tree,
                attention=None if attention is None else attention[side, : len(tokens)].numpy(),
                caption=caption,
                correct=answer == RELATIONS[pair.label],
                attention_tokens=tokens,
            )
        )
    return examples


def accuracy_plot(summaries: dict[str, dict[str, Any]]) -> Curve:
    """Accuracy by operations, a line for each name."""
    lines = {
        name: [(float(number), value) for number, (value, _) in summary["accuracy_by_operations"].items()]
        for name, summary in summaries.items()
    }
    return Curve("accuracy", "fraction", lines, "operations")


def _tables(summary: dict[str, Any]) -> list[Table]:
    tables = [confusion_table("", summary)]
    groups = {"Accuracy by operations": summary["accuracy_by_operations"]}
    if summary["accuracy_on_excluded"]:
        groups[f"Accuracy on pairs that split {summary['split']} leaves out"] = summary[
            "accuracy_on_excluded"
        ]
    for title, rows in groups.items():
        tables.append(
            Table(
                title=title,
                columns=["operations", "accuracy", "pairs"],
                rows=[[name, value, count] for name, (value, count) in rows.items()],
            )
        )
    return tables + scores_tables(summary["span_f1"], summary["punctuation"])


def confusion_table(name: str, summary: dict[str, Any]) -> Table:
    """How often each relation was taken for which."""
    signs = summary["relations"]
    return Table(
        title="True relation (rows) and answer (columns)" + (f": {name}" if name else ""),
        columns=["", *signs],
        rows=[
            [f"{sign} {RELATION_NAMES[sign]}", *row]
            for sign, row in zip(signs, summary["confusion"], strict=True)
        ],
    )
