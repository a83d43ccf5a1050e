"""What the encoders of the classification tasks return, and the induced trees in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from ordered_memory.tree_recovery import GreedyDecoding, ReadingDirection, from_attention, from_distances
from ordered_memory.trees import Tree

DECODING: GreedyDecoding = "prpn"
"""How trees are read from distances: by the top-down algorithm of the ON-LSTM paper."""


class Rollout(NamedTuple):
    """The actions taken on a batch, for the policy gradient. Entries of padding are meaningless.

    Args:
        log_probabilities: log π of the action at each token, (B, T).
        values: v, the predicted reward, at each token, (B, T).
        entropies: entropy of π at each token in nats, (B, T).
        lengths: number of tokens of each sequence, (B,) int64.
    """

    log_probabilities: Tensor
    values: Tensor
    entropies: Tensor
    lengths: Tensor


class Encoded(NamedTuple):
    """The output of an encoder for a batch of B sequences; what it does not have is None.

    Args:
        summary: one vector for each sequence, (B, H).
        attention: attention over the N slots at each token, (B, T, N), in the forward direction.
        merges: which neighbors the encoder merged in each step, (B, T - 1) int64: i merges nodes i and i + 1
            of the remaining ones. A sequence of n tokens has n - 1 steps; later entries are meaningless.
        penalty: a penalty for each sequence, (B,), whose mean is added to the training loss.
        rollout: the actions that the encoder took, which become a penalty by policy gradient.
        distances: forget distance of each token, (B, T), of the last layer in the forward direction.
        backward_attention: the attention in the backward direction, (B, T, N).
        backward_distances: the distances in the backward direction, (B, T).
    """

    summary: Tensor
    attention: Tensor | None = None
    merges: Tensor | None = None
    penalty: Tensor | None = None
    rollout: Rollout | None = None
    distances: Tensor | None = None
    backward_attention: Tensor | None = None
    backward_distances: Tensor | None = None

    @property
    def distances_of_trees(self) -> Tensor | None:
        """The distances, unless trees are read from merges or attention."""
        return self.distances if self.merges is None and self.attention is None else None


def read_trees(encoded: Encoded, lengths: Tensor) -> list[Tree] | None:
    """Recover the induced trees of a batch.

    They come from the merges of neighbors, from the attention by Algorithm 2 of Ordered Memory, or from the
    forget distances by `DECODING`, in the forward direction.

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
        return _from_attention(encoded.attention, lengths)
    if encoded.distances is not None:
        return _from_distances(encoded.distances, lengths)
    return None


def read_other_trees(encoded: Encoded, lengths: Tensor) -> dict[str, list[Tree]]:
    """Recover the trees that could have been read instead of those of `read_trees`.

    Args:
        encoded, lengths: as for `read_trees`.
    Returns:
        S trees over all tokens for each way to read them: "unbiased" if they are read from distances,
        "backward" if there is a backward direction, and "backward, unbiased" if both.
    """
    others = {}
    if encoded.merges is None and encoded.attention is not None:
        if encoded.backward_attention is not None:
            others["backward"] = _from_attention(encoded.backward_attention, lengths, "backward")
    elif encoded.distances_of_trees is not None:
        others["unbiased"] = _from_distances(encoded.distances_of_trees, lengths, "unbiased")
        if encoded.backward_distances is not None:
            distances = encoded.backward_distances
            others["backward"] = _from_distances(distances, lengths, direction="backward")
            others["backward, unbiased"] = _from_distances(distances, lengths, "unbiased", "backward")
    return others


def _from_attention(
    attention: Tensor, lengths: Tensor, direction: ReadingDirection = "forward"
) -> list[Tree]:
    return from_attention(attention.float().cpu(), lengths, batch_first=True, direction=direction)


def _from_distances(
    distances: Tensor,
    lengths: Tensor,
    decoding: GreedyDecoding = DECODING,
    direction: ReadingDirection = "forward",
) -> list[Tree]:
    return from_distances(
        distances.float().cpu(), lengths, decoding=decoding, batch_first=True, direction=direction
    )


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
