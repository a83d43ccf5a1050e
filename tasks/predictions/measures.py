"""What predictions are scored by: accuracy, perplexity, and F1 of trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ordered_memory.span_f1 import CONVENTIONS, read_spans, score_spans
from ordered_memory.trees import Tree
from tasks.predictions.significance import Floats

FEWEST_WORDS = 2
"""Trees over fewer words are not scored."""


class Measure(NamedTuple):
    """What predictions are scored by: the ratio of two sums over the examples, or the exponential of it.

    Args:
        name: for tables.
        is_exponential: whether it is the exponential.
    """

    name: str
    is_exponential: bool = False

    def of_sums(self, sums: Floats) -> Any:
        """Its value.

        Args:
            sums: numerator and denominator, (..., 2).
        """
        ratio = sums[..., 0] / sums[..., 1]
        return np.exp(ratio) if self.is_exponential else ratio


ACCURACY = Measure("accuracy")
"""For each example 1 if it is right, and 1 if it is scored."""
PERPLEXITY = Measure("perplexity", is_exponential=True)
"""For each line of the text -log p, and its number of words."""
F1 = {convention: Measure(f"F1, {convention}") for convention in CONVENTIONS}
"""For each sentence that is scored twice its number of matched spans, and the number of predicted and true
ones; at sentence level its F1, and 1."""


def f1_statistics(trees: Sequence[Tree], true_trees: Sequence[Tree]) -> dict[Measure, Floats]:
    """What the F1 of trees is computed from.

    Args:
        trees: the trees of n sentences.
        true_trees: their true trees.
    Returns:
        Numerators and denominators of each F1, (n, 2). Trees over too few words have zeros.
    """
    statistics = {measure: np.zeros((len(trees), 2)) for measure in F1.values()}
    for i, (tree, true) in enumerate(zip(read_spans(trees), read_spans(true_trees), strict=True)):
        if true.size < FEWEST_WORDS:
            continue
        for convention, measure in F1.items():
            score = score_spans([tree], [true], convention)
            pooled = 2 * score.matched, score.predicted + score.gold
            statistics[measure][i] = pooled if convention.level == "corpus" else (score.f1, 1)
    return statistics
