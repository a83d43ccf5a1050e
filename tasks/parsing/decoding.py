"""Trees from distances: top-down greedy in both variants, and the most probable tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ordered_memory.tree_recovery import cky, greedy
from ordered_memory.trees import Tree, leaves
from tasks.classifiers.batching import evaluation_batches

Decoding = Literal["prpn", "unbiased", "cky"]
DECODINGS: tuple[Decoding, ...] = get_args(Decoding)

SENTENCES_PER_CKY, CELLS_PER_CKY = 512, 4_000_000
"""The most sentences of a batch, and of those times the cube of their length: some 200 MB."""


def decode(distances: Sequence[Tensor], decoding: Decoding, temperature: float = 1.0) -> list[Tree]:
    """The trees of sentences.

    Args:
        distances: d of each sentence, (words,).
        decoding: "prpn" and "unbiased" as in `tree_recovery.greedy`; "cky" for the most probable tree.
        temperature: τ of "cky", in master-gate entries.
    Returns:
        A binary tree for each sentence.
    Example:
        >>> d = torch.tensor([3.0, 1.0, 2.0])
        >>> [decode([d], decoding)[0] for decoding in DECODINGS]
        [(0, (1, 2)), ((0, 1), 2), ((0, 1), 2)]
    """
    if decoding == "cky":
        return most_probable(distances, temperature)
    return [greedy(d, decoding) for d in distances]


def most_probable(distances: Sequence[Tensor], temperature: float = 1.0) -> list[Tree]:
    """The most probable tree of each sentence when trees are drawn from top to bottom by `span_scores`.

    Args:
        distances: d of each sentence, (words,).
        temperature: τ > 0, in master-gate entries.
    Returns:
        A binary tree for each sentence.
    """
    sizes = np.array([len(d) for d in distances], dtype=np.int64)
    found: dict[int, Tree] = {}
    for batch in evaluation_batches(sizes**3, SENTENCES_PER_CKY, CELLS_PER_CKY):
        padded = pad_sequence([distances[i] for i in batch.tolist()], batch_first=True)
        trees = cky(span_scores(padded, temperature), sizes[batch].tolist())
        found.update(zip(batch.tolist(), trees, strict=True))
    return [found[i] for i in range(len(distances))]


def true_distances(tree: Tree) -> Tensor:
    """Distances that say what the tree is, as far as distances can: the most that a decoding can be given.

    d_t is larger the higher up words t - 1 and t part: one more than the depth of the deepest split, minus
    the depth of the smallest constituent with both. The first word, before which nothing parts, has 0.

    Args:
        tree: binary or not.
    Returns:
        (words,), whole numbers.
    Example:
        >>> true_distances(((0, 1), (2, (3, 4)))).tolist()
        [0.0, 2.0, 3.0, 2.0, 1.0]
    """
    depths: dict[int, int] = {}
    open_nodes: list[tuple[Tree, int]] = [(tree, 0)]
    while open_nodes:
        node, depth = open_nodes.pop()
        if not isinstance(node, int):
            depths.update({leaves(part)[0]: depth for part in node[1:]})
            open_nodes += [(part, depth + 1) for part in node]
    deepest = max(depths.values(), default=0)
    return torch.tensor([0.0, *(deepest + 1.0 - depths[word] for word in range(1, len(depths) + 1))])


def span_scores(distances: Tensor, temperature: float = 1.0) -> Tensor:
    """Scores of spans such that the tree of the highest total is the most probable one.

    Let a tree be drawn from top to bottom, a span i..j (inclusive) being split before its word k, i < k ≤ j,
    with probability softmax_k(d_k / τ) over d_{i+1..j}. Then

        log P(tree) = Σ_{spans i..j split before k} d_k / τ - logsumexp_{i<k≤j} d_k / τ.

    A binary tree uses each of the n - 1 places to split at exactly once, so the first terms have the same sum
    in all trees, and what is left is a sum over the tree's spans: score(i, j) = -logsumexp_{i<k≤j} d_k / τ.
    For τ → 0 all probability goes to the tree that greedy "unbiased" finds.

    Args:
        distances: d, (B, T); what stands after the end of a sentence has no influence on its spans.
        temperature: τ > 0, in master-gate entries.
    Returns:
        (B, T, T) float64: entry (i, j) for i < j, else 0.
    Raises:
        ValueError: the temperature is not positive.
    """
    if not temperature > 0:
        raise ValueError(f"temperature must be positive, got {temperature}")
    size = distances.shape[1]
    above = torch.ones(size, size, dtype=torch.bool).triu(1)
    d = (distances.double() / temperature)[:, None, :].expand(-1, size, -1)
    sums = d.masked_fill(~above, -torch.inf).logcumsumexp(-1)
    return torch.where(above, -sums, 0.0)
