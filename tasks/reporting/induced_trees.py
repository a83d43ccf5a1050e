"""Span F1 of induced trees under both conventions, as text and as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ordered_memory.span_f1 import ONE_TOKEN, baselines, compare
from ordered_memory.trees import Span, Tree, spans
from tasks.reporting.report import Table, best_cells

Scores = dict[str, dict[str, float]]
"""F1 by convention (the text of a `span_f1.Convention`) and by name: "model", then the baselines."""

VALID = "Valid trees compute what the true trees do."


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


def valid_fractions(predicted: Sequence[Tree], valid_spans: Sequence[set[Span]]) -> dict[str, float]:
    """How many trees have valid constituents alone, and how many of the baselines.

    Args:
        predicted: by a model.
        valid_spans: the valid constituents of two leaves or more of each, the whole tree among them.
    Returns:
        Fractions by name: "model", then the baselines; empty if there are no trees.
    """
    if not predicted:
        return {}
    lengths = [1 + max((last for _, last in valid), default=0) for valid in valid_spans]
    return {
        name: sum(valid.issuperset(spans(tree)) for tree, valid in zip(trees, valid_spans, strict=True))
        / len(trees)
        for name, trees in {"model": predicted, **baselines(lengths)}.items()
    }


def scores_text(scores: Scores, valid: Mapping[str, float], punctuation: str) -> list[str]:
    """The scores in lines of text, with their conventions.

    Args:
        scores: from `score_trees`.
        valid: from `valid_fractions`; empty where valid trees are not told.
        punctuation: what was done with it, for the reader.
    Returns:
        Lines; none for a model without trees.
    """
    lines = []
    for convention, rows in scores.items():
        lines.append(f"\nspan F1, {convention}; {punctuation}. {ONE_TOKEN}")
        lines += [f"{name:>16}  {f1:.4f}" for name, f1 in rows.items()]
    if valid:
        lines.append(f"\nvalid trees; {punctuation}. {VALID}")
        lines += [f"{name:>16}  {fraction:.4f}" for name, fraction in valid.items()]
    return lines


def scores_tables(scores: Scores, valid: Mapping[str, float], note: str) -> list[Table]:
    """The scores as a table for a report, none for a model without trees.

    Args:
        scores: from `score_trees`.
        valid: from `valid_fractions`; empty where valid trees are not told.
        note: put under the table.
    Returns:
        One table or none.
    """
    if not scores:
        return []
    names = next(iter(scores.values()))
    columns = {**scores, **({"valid trees": valid} if valid else {})}
    rows = [[name, *(of[name] for of in columns.values())] for name in names]
    return [
        Table(
            title="Unlabelled span F1 of the induced trees" + (", and valid trees" if valid else ""),
            columns=["trees", *columns],
            rows=rows,
            best=best_cells(rows),
            note=f"{note[0].upper()}{note[1:]}. {ONE_TOKEN}" + (f" {VALID}" if valid else ""),
        )
    ]
