"""How well induced trees agree with the true ones: both conventions, as text and as a table."""

from __future__ import annotations

from collections.abc import Sequence

from ordered_memory.span_f1 import compare
from ordered_memory.trees import Tree
from tasks.reporting.report import Table

Scores = dict[str, dict[str, float]]
"""F1 by convention and by name: "model", then the baselines."""


def score_trees(predicted: Sequence[Tree], gold: Sequence[Tree]) -> Scores:
    """F1 of trees and of the baselines by EVALB's convention and by ON-LSTM's.

    Args:
        predicted: by a model.
        gold: the true ones, in the same order.
    Returns:
        The scores.
    """
    found = {
        "corpus level, with the whole-sentence span": compare(
            predicted, gold, level="corpus", whole_sentence=True
        ),
        "sentence level, without the whole-sentence span": compare(
            predicted, gold, level="sentence", whole_sentence=False
        ),
    }
    return {convention: {name: one.f1 for name, one in rows.items()} for convention, rows in found.items()}


def scores_text(scores: Scores, punctuation: str) -> list[str]:
    """The scores in lines of text, with their conventions."""
    lines = []
    for convention, rows in scores.items():
        lines.append(f"\nspan F1, {convention}; spans of one token never count; {punctuation}")
        lines += [f"{name:>16}  {f1:.4f}" for name, f1 in rows.items()]
    return lines


def scores_tables(scores: Scores, note: str) -> list[Table]:
    """The scores as a table for a report, none for a model without trees."""
    if not scores:
        return []
    names = next(iter(scores.values()))
    return [
        Table(
            title="Unlabelled span F1 of the induced trees",
            columns=["trees", *scores],
            rows=[[name, *(rows[name] for rows in scores.values())] for name in names],
            note=f"Spans of one token never count; {note}.",
        )
    ]
