"""Statistics of a treebank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from tasks.formatting.tables import terminal_width, text_table
from tasks.sst.treebank import LABELS, LabeledTree, Treebank, phrases, sentences

CLASS_COUNTS: tuple[Literal[2, 5], ...] = (5, 2)


def stats_text(treebank: Treebank) -> str:
    """Format the numbers of sentences, words, nodes, phrases and labels of each split as a table.

    Args:
        treebank: official or generated.
    """
    splits = {name: trees for name, trees in treebank._asdict().items() if trees is not None}
    columns = [_statistics(trees) for trees in splits.values()]
    rows = [[name, *(column[name] for column in columns)] for name in columns[0]]
    return text_table(["", *splits], rows, terminal_width())


def _statistics(trees: Sequence[LabeledTree]) -> dict[str, str]:
    lengths = [len(tree.words) for tree in trees]
    labels = Counter(label for tree in trees for label in tree.labels.values())
    roots = Counter(tree.label for tree in trees)
    figures = {
        "sentences": f"{len(trees):,}",
        "words, shortest": f"{min(lengths)}",
        "words, mean": f"{sum(lengths) / len(lengths):.1f}",
        "words, longest": f"{max(lengths)}",
        "vocabulary in lower case": f"{len({word.lower() for tree in trees for word in tree.words}):,}",
        "nodes": f"{sum(labels.values()):,}",
    }
    for name in LABELS:
        figures[f"sentences labeled {name}"] = f"{roots[int(name)]:,}"
    for name in LABELS:
        figures[f"nodes labeled {name}"] = f"{labels[int(name)]:,}"
    for classes in CLASS_COUNTS:
        figures[f"sentences, {classes} classes"] = f"{len(sentences(trees, classes)):,}"
        figures[f"phrases, {classes} classes"] = f"{len(phrases(trees, classes)):,}"
        figures[f"phrases, {classes} classes, merged"] = f"{len(phrases(trees, classes, merge=True)):,}"
    return figures
