"""Span F1 of induced trees under both conventions, as text and as a table."""

from __future__ import annotations

from collections.abc import Sequence

from ordered_memory.span_f1 import ONE_TOKEN, compare
from ordered_memory.trees import Tree
from tasks.reporting.report import Table

Scores = dict[str, dict[str, float]]
"""F1 by convention (the text of a `span_f1.Convention`) and by name: "model", then the baselines."""


def score_trees(predicted: Sequence[Tree], gold: Sequence[Tree]) -> Scores:
    """F1 of trees and of the baselines under both conventions.

    Args:
        predicted: by a model.
        gold: the true ones, in the same order.
    Returns:
        The scores.
    """
    return {
        str(convention): {name: score.f1 for name, score in rows.items()}
        for convention, rows in compare(predicted, gold).items()
    }


def scores_text(scores: Scores, punctuation: str) -> list[str]:
    """The scores in lines of text, with their conventions.

    Args:
        scores: from `score_trees`.
        punctuation: what was done with it, for the reader.
    Returns:
        Lines; none for a model without trees.
    """
    lines = []
    for convention, rows in scores.items():
        lines.append(f"\nspan F1, {convention}; {punctuation}. {ONE_TOKEN}")
        lines += [f"{name:>16}  {f1:.4f}" for name, f1 in rows.items()]
    return lines


def scores_tables(scores: Scores, note: str) -> list[Table]:
    """The scores as a table for a report, none for a model without trees.

    Args:
        scores: from `score_trees`.
        note: put under the table.
    Returns:
        One table or none.
    """
    if not scores:
        return []
    names = next(iter(scores.values()))
    return [
        Table(
            title="Unlabelled span F1 of the induced trees",
            columns=["trees", *scores],
            rows=[[name, *(rows[name] for rows in scores.values())] for name in names],
            note=f"{note[0].upper()}{note[1:]}. {ONE_TOKEN}",
        )
    ]
