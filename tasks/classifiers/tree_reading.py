"""The induced trees in what an encoder returns."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from torch import Tensor

from ordered_memory.tree_recovery import (
    GREEDY_DECODINGS,
    GreedyDecoding,
    ReadingDirection,
    from_attention,
    from_distances,
)
from ordered_memory.trees import Tree
from tasks.classifiers.encoded import Encoded

DECODING: GreedyDecoding = "prpn"
"""How trees are read from distances: by the top-down algorithm of the ON-LSTM paper."""


def read_trees(encoded: Encoded, lengths: Tensor) -> list[Tree] | None:
    """Recover the induced trees of a batch.

    They come from the merges of neighbors, from the attention by Algorithm 2 of Ordered Memory, or from the
    forget distances of the last layer by `DECODING`, in the forward direction.

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
        return _from_distances(encoded.distances_of_trees["forward"][-1], lengths)
    return None


def read_other_trees(encoded: Encoded, lengths: Tensor) -> dict[str, list[Tree]]:
    """Recover the trees that could have been read instead of those of `read_trees`.

    Args:
        encoded, lengths: as for `read_trees`.
    Returns:
        S trees over all tokens for each way to read them, whose name has up to three parts: "backward" if
        they are of the backward direction, "layer 1", for instance, if they are not of the last layer, and
        "unbiased" if distances are not read by `DECODING`.
    """
    others = {}
    if encoded.merges is None and encoded.backward_attention is not None:
        others["backward"] = _from_attention(encoded.backward_attention, lengths, "backward")
    for direction, layers in encoded.distances_of_trees.items():
        for number, decoding in itertools.product(range(len(layers), 0, -1), GREEDY_DECODINGS):
            parts = {
                "backward": direction == "backward",
                f"layer {number}": number < len(layers),
                "unbiased": decoding != DECODING,
            }
            if any(parts.values()):
                name = ", ".join(part for part, is_in_name in parts.items() if is_in_name)
                others[name] = _from_distances(layers[number - 1], lengths, decoding, direction)
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
