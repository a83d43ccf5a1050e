"""Recover the induced trees from a model's output."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ordered_memory.tree_recovery import from_attention, from_distances
from ordered_memory.trees import Tree
from tasks.classifiers.encoded import Encoded


def read_trees(encoded: Encoded, lengths: Tensor) -> list[Tree] | None:
    """Recover the induced trees of a batch.

    They come from the merges of neighbors, from the attention by Algorithm 2 of Ordered Memory, or from the
    forget distances by the top-down algorithm of the ON-LSTM paper ("prpn").

    Args:
        encoded: what an encoder returned for S sequences.
        lengths: their numbers of tokens, (S,) int64.
    Returns:
        S trees over all tokens; None for an encoder that induces none.
    """
    if encoded.merges is not None:
        rows = zip(encoded.merges.tolist(), lengths.tolist(), strict=True)
        return [tree_from_merges(merges[: length - 1]) for merges, length in rows]
    if encoded.attention is not None:
        return from_attention(encoded.attention.float().cpu(), lengths, batch_first=True)
    if encoded.distances is not None:
        return from_distances(encoded.distances.float().cpu(), lengths, decoding="prpn", batch_first=True)
    return None


def tree_from_merges(merges: Sequence[int]) -> Tree:
    """Build a tree by merging neighbors until one node is left.

    Args:
        merges: T - 1 numbers: i merges nodes i and i + 1 of the remaining ones, counted from 0.
    Returns:
        A binary tree over T leaves.
    Example:
        >>> tree_from_merges([1, 1, 0])
        (0, ((1, 2), 3))
    """
    nodes: list[Tree] = list(range(len(merges) + 1))
    for i in merges:
        nodes[i : i + 2] = [(nodes[i], nodes[i + 1])]
    return nodes[0]
