"""The trees over tokens that a model's prediction stands for."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ordered_memory.tree_recovery import from_attention
from ordered_memory.trees import Tree
from tasks.classifiers.classification import Prediction


def read_trees(prediction: Prediction, lengths: Tensor) -> list[Tree] | None:
    """The induced trees of a batch: by Algorithm 2 off the attention, or by joining what the model joined.

    Args:
        prediction: of a batch with S sequences.
        lengths: in tokens, (S,) int64.
    Returns:
        S trees over all tokens; None for a model that induces none.
    """
    if prediction.merges is not None:
        rows = zip(prediction.merges.tolist(), lengths.tolist(), strict=True)
        return [joined(merges[: length - 1]) for merges, length in rows]
    if prediction.attention is not None:
        return from_attention(prediction.attention.float().cpu(), lengths, batch_first=True)
    return None


def joined(merges: Sequence[int]) -> Tree:
    """The tree that comes of joining neighbours until one node is left.

    Args:
        merges: T - 1 numbers: i joins nodes i and i + 1 of those that are left, counted from 0.
    Returns:
        A binary tree over T leaves.
    Example:
        >>> joined([1, 1, 0])
        (0, ((1, 2), 3))
    """
    nodes: list[Tree] = list(range(len(merges) + 1))
    for place in merges:
        nodes[place : place + 2] = [(nodes[place], nodes[place + 1])]
    return nodes[0]
