"""Span F1 of induced trees under both conventions, and the fraction of valid trees, as text and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ordered_memory.span_f1 import ONE_TOKEN, baselines, compare, fraction_text, read_spans
from ordered_memory.trees import Span, Tree
from tasks.formatting.tables import wrap
from tasks.reporting.report import Table, best_cells

TreeScores = dict[str, dict[str, float]]
"""F1 by convention (the text of a `span_f1.Convention`) and by name: `with_reading(MODEL, …)` for each way
to read the trees of the model, then the baselines."""

MODEL = "model"
"""The name of the trees of a model."""
TWO_DECODINGS = 'Trees from distances are read by "prpn", which favors right-branching trees, and "unbiased".'
TWO_DIRECTIONS = "Backward: the trees of the direction that reads from the end."
TWO_BIASES = 'There "prpn" favors left-branching trees.'
LAYERS = "Where no layer is named, the trees are those of the last one."
VALID = "Valid trees apply every operator to its own operands, as the true trees do."
RANDOM = "Random: one binary tree for each sentence, drawn uniformly."


def with_reading(title: str, reading: str) -> str:
    """Name the trees that are read in one way, or what is measured of them.

    Args:
        title: the name for the usual way.
        reading: how they were read, such as "unbiased"; empty for the usual way.
    Example:
        >>> with_reading("F1", "unbiased"), with_reading("F1", "")
        ('F1, unbiased', 'F1')
    """
    return f"{title}, {reading}" if reading else title


def readings(names: Iterable[str]) -> dict[str, str]:
    """How the trees of a model were read.

    Args:
        names: names of trees, those of baselines included.
    Returns:
        The readings, as for `with_reading`, by name.
    Example:
        >>> readings(["model", "model, unbiased", "random"])
        {'model': '', 'model, unbiased': 'unbiased'}
    """
    parts = {name: name.partition(", ") for name in names}
    return {name: reading for name, (first, _, reading) in parts.items() if first == MODEL}


def score_trees(induced: Mapping[str, Sequence[Tree]], gold: Sequence[Tree]) -> TreeScores:
    """Compute the F1 of trees and of the baselines under both conventions.

    Args:
        induced: the trees of a model by name.
        gold: the true trees, in the same order.
    """
    return {
        str(convention): {name: score.f1 for name, score in rows.items()}
        for convention, rows in compare(induced, gold).items()
    }


def valid_fractions(
    induced: Mapping[str, Sequence[Tree]], valid_spans: Sequence[set[Span]]
) -> dict[str, float]:
    """Compute the fraction of trees, and of baselines, that have only valid constituents.

    Args:
        induced: the trees of a model, as for `score_trees`.
        valid_spans: the valid constituents of two or more leaves of each tree, the whole tree included.
    Returns:
        Fractions by name: those of `induced`, then the baselines; empty if there are no trees.
    """
    if not valid_spans:
        return {}
    lengths = [1 + max((last for _, last in valid), default=0) for valid in valid_spans]
    fractions = {}
    for name, trees in {**induced, **baselines(lengths)}.items():
        pairs = zip(read_spans(trees), valid_spans, strict=True)
        fractions[name] = sum(valid.issuperset(tree.spans) for tree, valid in pairs) / len(trees)
    return fractions


def scores_text(results: Mapping[str, Any]) -> list[str]:
    """Format the scores as lines of text, with their conventions.

    Args:
        results: the results of an evaluation: `span_f1` from `score_trees`, `valid_trees` from
            `valid_fractions`, `scored_trees`, the number of trees of the model, and `punctuation`, which says
            how it was handled.
    Returns:
        Lines; none for a model without trees.
    """
    scores, valid = results["span_f1"], results["valid_trees"]
    if not scores:
        return []
    parts: dict[str, Mapping[str, float]] = {
        **{f"span F1, {convention}": rows for convention, rows in scores.items()},
        **({"valid trees": valid} if valid else {}),
    }
    width = max(len(name) for rows in parts.values() for name in rows)
    lines = []
    for title, rows in parts.items():
        lines.append(f"\n{title}")
        lines += [f"{name:>{width + 1}}  {fraction_text(fraction)}" for name, fraction in rows.items()]
    return [*lines, "", *wrap(_note_of(results))]


def scores_tables(results: Mapping[str, Any]) -> list[Table]:
    """Make a table of the scores for a report.

    Args:
        results: as for `scores_text`.
    Returns:
        One table; none for a model without trees.
    """
    scores, valid = results["span_f1"], results["valid_trees"]
    if not scores:
        return []
    names = next(iter(scores.values()))
    columns = {**scores, **({"valid trees": valid} if valid else {})}
    rows = [[name, *(column[name] for column in columns.values())] for name in names]
    return [
        Table(
            title="Unlabeled span F1 of the induced trees" + (", and valid trees" if valid else ""),
            columns=["trees", *columns],
            rows=rows,
            best=best_cells(rows),
            note=_note_of(results),
        )
    ]


def _note_of(results: Mapping[str, Any]) -> str:
    note = scores_note(results["punctuation"], results["scored_trees"], [results["span_f1"]])
    return f"{note} {VALID}" if results["valid_trees"] else note


def scores_note(punctuation: str, count: int | None, scores: Iterable[TreeScores]) -> str:
    """Say what F1 counts, and how the trees were read.

    Args:
        punctuation: how punctuation was handled.
        count: number of trees of a model that were scored; None if it is not known.
        scores: the scores of each model.
    """
    number = "" if count is None else f"Trees scored: {count:,}. "
    note = f"{number}{punctuation[0].upper()}{punctuation[1:]}. {ONE_TOKEN} {RANDOM}"
    found = {reading for model in scores for rows in model.values() for reading in readings(rows).values()}
    notes = {
        "unbiased": TWO_DECODINGS,
        "backward": TWO_DIRECTIONS,
        "backward, unbiased": TWO_BIASES,
        "layer 1": LAYERS,
    }
    return " ".join([note, *(text for reading, text in notes.items() if reading in found)])
