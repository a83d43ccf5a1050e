"""The trees that several runs or models agree on most."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ordered_memory.cky import cky_in_batches
from ordered_memory.span_f1 import TreeSpans, read_spans
from ordered_memory.trees import Tree


def consensus_trees(runs: Sequence[Sequence[Tree]]) -> list[Tree]:
    """For each sentence the binary tree that agrees most with the trees of several runs.

    With T_1 … T_R the trees of a sentence, it is

        argmax over binary trees T of Σ_r |spans(T) ∩ spans(T_r)|.

    If T_1 … T_R are binary, too, no binary tree has a higher mean F1 with them, whether the whole-sentence
    span counts or not. Where several trees have the same sum, the earlier runs decide: the tree is one with
    the largest Σ_r (R - r) |spans(T) ∩ spans(T_r)|. So two runs with binary trees have the trees of the first
    as their consensus: give three or more.

    Args:
        runs: R ≥ 1 lists of trees, each with a tree for every sentence, in the same order. They need not be
            binary, and may be of different models, layers or decodings.
    Returns:
        A binary tree for each sentence.
    Raises:
        TypeError: an entry is not a list of trees; the message says which.
        ValueError: there are no runs, they have different numbers of trees, or trees over different leaves.
    Example:
        >>> consensus_trees([[((0, 1), (2, 3))], [(0, (1, (2, 3)))], [(((0, 1), 2), 3)]])
        [((0, 1), (2, 3))]
    """
    if len(runs) == 0:
        raise ValueError("expected the trees of one run or more, got none")
    spans = [read_spans(trees, f"runs[{r}]") for r, trees in enumerate(runs)]
    for r, trees in enumerate(spans):
        _check_same_sentences(spans[0], trees, f"runs[{r}]")

    def scores(batch: Sequence[int]) -> Tensor:
        longest = spans[0][batch[0]].size
        # One span more outweighs the preference for earlier runs in all spans of a sentence.
        span_weight = len(runs) ** 2 * longest
        total = torch.zeros(len(batch), longest, longest, dtype=torch.float64)
        for r, trees in enumerate(spans, start=1):
            entries = [(place, *span) for place, i in enumerate(batch) for span in trees[i].spans]
            total[torch.tensor(entries, dtype=torch.long).view(-1, 3).unbind(1)] += (
                span_weight + len(runs) - r
            )
        return total

    return cky_in_batches([tree.size for tree in spans[0]], scores)


def _check_same_sentences(first: Sequence[TreeSpans], others: Sequence[TreeSpans], name: str) -> None:
    if len(first) != len(others):
        raise ValueError(
            f"expected as many trees in each run, got {len(first)} in runs[0] and {len(others)} in {name}"
        )
    for i, (tree, other) in enumerate(zip(first, others, strict=True)):
        if tree.size != other.size:
            raise ValueError(
                f"expected trees over the same leaves, got {tree.size} leaves in runs[0][{i}] and "
                f"{other.size} in {name}[{i}]"
            )
