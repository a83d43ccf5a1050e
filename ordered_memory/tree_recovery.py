"""Tree recovery: trees from the attention, distances or span scores of a model."""

from __future__ import annotations

import numbers
import reprlib
import warnings
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from ordered_memory.checks import check_name, check_tensor, sequence_lengths, to_numbers
from ordered_memory.cky import as_float64, check_temperature, most_probable
from ordered_memory.cky import cky as cky
from ordered_memory.cky import span_scores as span_scores
from ordered_memory.pointers import DIRECTIONS as DIRECTIONS
from ordered_memory.pointers import ReadingDirection as ReadingDirection
from ordered_memory.pointers import reductions as reductions
from ordered_memory.pointers import shift_reduce as shift_reduce
from ordered_memory.pointers import to_pointers as to_pointers
from ordered_memory.trees import Tree, fold, leaves, reduce_topmost

GreedyDecoding = Literal["prpn", "unbiased"]
"""A greedy decoding of syntactic distances; see `greedy`."""
Decoding = Literal["prpn", "unbiased", "cky"]
"""A decoding of syntactic distances; see `from_distances`."""
GREEDY_DECODINGS: tuple[GreedyDecoding, ...] = get_args(GreedyDecoding)
DECODINGS: tuple[Decoding, ...] = get_args(Decoding)
"""All decodings of syntactic distances."""
Part = tuple[int, int]
"""The first token of a part of a sentence, and one after the last."""


def attention_of_direction(attention: Tensor, batch_first: bool, direction: ReadingDirection) -> Tensor:
    """The attention of one direction of a layer, (B, T, N).

    Args:
        attention, batch_first, direction: see `from_attention`.
    Raises:
        TypeError: the attention is not a tensor.
        ValueError: the attention has other axes, no slots, or a complex or boolean dtype; or the direction is
            unknown.
    """
    check_name("direction", direction, DIRECTIONS)
    check_tensor("attention", attention, "a layer's `out.attention`")
    if attention.dim() == 4 and len(attention) == len(DIRECTIONS):
        attention = attention[DIRECTIONS.index(direction)]
    if attention.dim() != 3:
        layout = "(B, T, N)" if batch_first else "(T, B, N)"
        raise ValueError(
            f"expected attention to be {layout} or (2, {layout[1:]}, got shape {tuple(attention.shape)}; "
            "a sequence without a batch axis needs one"
        )
    if attention.is_complex() or attention.dtype == torch.bool:
        raise ValueError(f"expected attention to be real numbers, got {attention.dtype}")
    if attention.shape[-1] < 1:
        raise ValueError(f"expected attention over at least one slot, got shape {tuple(attention.shape)}")
    return attention if batch_first else attention.transpose(0, 1)


def from_attention(
    attention: Tensor,
    lengths: Sequence[int] | Tensor | None = None,
    *,
    batch_first: bool = False,
    direction: ReadingDirection = "forward",
) -> list[Tree]:
    """The tree of each sequence of a batch: `shift_reduce` on the slots with the most attention.

    The backward direction reads each sequence from its end: its tree is the mirror image of the tree of the
    reversed sequence.

    Args:
        attention: p as `OrderedMemory` returns it: (T, B, N), or (B, T, N) with `batch_first`; of a
            bidirectional layer (2, T, B, N) or (2, B, T, N), or one direction of it.
        lengths: number of tokens of each sequence, (B,), in 1..T; None if every sequence has T tokens.
        batch_first: as in the layer.
        direction: "forward" or "backward": the direction in which the sequences were read. If the
            attention has both directions, this one is selected.
    Returns:
        B binary trees over the tokens from left to right.
    Raises:
        TypeError: the attention is not a tensor.
        ValueError: the attention has other axes, no slots, or a complex or boolean dtype; the lengths do not
            fit it; the direction is unknown; or the attention within a sequence is NaN, or zero as in the
            padding, because `lengths`, `batch_first` or `direction` differs from the layer's.
    Example:
        >>> attention = torch.eye(3)[[2, 2, 2]].unsqueeze(0)  # one sequence of three tokens
        >>> from_attention(attention, batch_first=True)
        [((0, 1), 2)]
        >>> from_attention(attention, batch_first=True, direction="backward")
        [(0, (1, 2))]
    """
    batch = attention_of_direction(attention, batch_first, direction)
    batch_size, steps, num_slots = batch.shape
    sizes = sequence_lengths(lengths, batch_size, steps)
    pointers, attended = batch.argmax(-1).tolist(), batch.any(-1).tolist()
    undefined = batch.isnan().any(-1).tolist()
    # The first token that is read finds an empty memory, so its attention is zero.
    first, stride = (1, 1) if direction == "forward" else (0, -1)
    trees = []
    for i, size in enumerate(sizes):
        attended_inside = attended[i][first : first + size - 1]
        if not all(attended_inside):
            raise ValueError(
                "expected attention inside every sequence, got zeros at token "
                f"{first + attended_inside.index(False)} of sequence {i}, whose length is {size}: check "
                f"lengths, batch_first (here {batch_first}) and direction (here {direction})"
            )
        if any(undefined[i][:size]):
            token = undefined[i].index(True)
            raise ValueError(f"expected attention to be numbers, got NaN at token {token} of sequence {i}")
        trees.append(shift_reduce(pointers[i][:size][::stride], num_slots))
    return trees if direction == "forward" else [_mirror(tree) for tree in trees]


def from_distances(
    distances: Tensor,
    lengths: Sequence[int] | Tensor | None = None,
    *,
    decoding: Decoding,
    temperature: float = 1.0,
    batch_first: bool = False,
    direction: ReadingDirection = "forward",
) -> list[Tree]:
    """The tree of each sequence of a batch, from ON-LSTM's distances of one layer.

    Args:
        distances: d, (T, B), or (B, T) with `batch_first`: `distances.forget[i]` of what `onlstm.ONLSTM`
            returns. Values after the end of a sequence are ignored. There is a warning if distances in
            float16 or bfloat16 are equal, since this is usually due to rounding. The distance of the first
            token that is read is compared only for "prpn"; the other trees do not depend on it.
        lengths: number of tokens of each sequence, (B,), in 1..T; None if every sequence has T tokens. There
            is a warning if it is None and the distances look padded: some sequences, but not all, end in
            zeros, and no other distance is 0.
        decoding: "prpn" and "unbiased" as in `greedy`; "cky" for the most probable tree, see `span_scores`.
        temperature: τ > 0 of "cky", in master-gate entries. The other decodings do not depend on it.
        batch_first: as in the layer.
        direction: "backward" if the layer read each sequence from its end.
    Returns:
        B binary trees over the tokens from left to right.
    Raises:
        TypeError: the distances are not a tensor.
        ValueError: the distances have the wrong number of axes, are complex, or are NaN within a sequence;
            the lengths do not fit them; the temperature is not positive; or a name is unknown. With "cky": a
            distance divided by the temperature is infinite. (The first token that is read is exempt: no
            "cky" tree depends on its distance.)
    Example:
        >>> d = torch.tensor([[3.0, 1.0, 2.0]])  # one sequence of three tokens
        >>> [from_distances(d, decoding=decoding, batch_first=True)[0] for decoding in DECODINGS]
        [(0, (1, 2)), ((0, 1), 2), ((0, 1), 2)]
    """
    check_name("decoding", decoding, DECODINGS)
    check_name("direction", direction, DIRECTIONS)
    check_tensor("distances", distances, "of one layer: its `distances.forget[i]`")
    if distances.dim() != 2:
        layout = "(B, T)" if batch_first else "(T, B)"
        raise ValueError(
            f"expected distances to be {layout}, got shape {tuple(distances.shape)}; a sequence without a "
            "batch axis needs one, and distances of a packed batch must be padded with `pad_packed_sequence`"
        )
    batch = as_float64("distances", (distances if batch_first else distances.T).detach())
    sizes = sequence_lengths(lengths, *batch.shape)
    check_temperature(temperature)
    _check_distances(batch, sizes, temperature if decoding == "cky" else None, direction)
    if lengths is None:
        _warn_of_padding(batch)
    forward = direction == "forward"
    rows = [batch[i, :size] if forward else batch[i, :size].flip(0) for i, size in enumerate(sizes)]
    low_precision = distances.dtype in (torch.bfloat16, torch.float16)
    compared = rows if decoding == "prpn" else [row[1:] for row in rows]  # no other tree depends on row[0]
    if low_precision and any(len(row.unique()) < len(row) for row in compared):
        warnings.warn(
            f"some distances are equal after rounding to {distances.dtype}, which may change the trees: "
            "compute the distances with a model in float32",
            stacklevel=2,
        )
    trees = most_probable(rows, temperature) if decoding == "cky" else [greedy(row, decoding) for row in rows]
    return trees if forward else [_mirror(tree) for tree in trees]


def to_distances(tree: Tree) -> Tensor:
    """Distances from which "unbiased" (and "cky" at a low temperature) recovers a given binary tree.

    d_t is larger the higher in the tree the split between tokens t - 1 and t is: one more than the depth of
    the deepest split, minus the depth of the smallest constituent that contains both. d is 0 for the first
    token. A tree that is not binary cannot be recovered in full.

    Args:
        tree: binary or not.
    Returns:
        (T,) float32, whole numbers.
    Raises:
        TypeError, ValueError: not a tree.
    Example:
        >>> to_distances(((0, 1), (2, (3, 4)))).tolist()
        [0.0, 2.0, 3.0, 2.0, 1.0]
    """
    leaves(tree)
    depths: list[int] = []  # of each token: depth of the smallest constituent with it and the token before
    pending: list[tuple[Tree, int, int]] = [(tree, 0, 0)]  # node, its depth, the value for its first leaf
    while pending:
        node, depth, split_depth = pending.pop()
        if isinstance(node, tuple):
            children = [(child, depth + 1, depth if i else split_depth) for i, child in enumerate(node)]
            pending += reversed(children)
        else:
            depths.append(split_depth)
    deepest = max(depths[1:], default=0)
    return torch.tensor([0.0, *(deepest + 1.0 - depth for depth in depths[1:])], dtype=torch.float32)


def greedy(distances: Sequence[float] | Tensor, decoding: GreedyDecoding) -> Tree:
    """Split the sentence top-down at its largest distance, then each part in the same way.

    ON-LSTM, §5.2: `prpn` is the paper's ((x_<i), (x_i, (x_>i))) with i = argmax d. It is biased towards
    right-branching trees (Dyer et al. 2019), so report both. `unbiased` is ((x_<i), (x_≥i)), where the argmax
    leaves out the first token of each part. Of equal distances the first is taken.

    Args:
        distances: d_t of each token, (T,).
        decoding: "prpn" or "unbiased".
    Returns:
        A binary tree over the tokens.
    Raises:
        ValueError: no tokens, a tensor with more or less than one axis, a distance that is NaN, or an unknown
            decoding.
        TypeError: a distance is not a number.
    Example:
        >>> greedy([3.0, 1.0, 2.0], "prpn"), greedy([3.0, 1.0, 2.0], "unbiased")
        ((0, (1, 2)), ((0, 1), 2))
    """
    values = to_numbers("distances", distances)
    for token, value in enumerate(values):
        if not isinstance(value, (numbers.Real, Tensor)):
            raise TypeError(f"expected distances to be numbers, got distances[{token}] = {value!r}")
    d = np.array([float(value) for value in values])
    check_name("decoding", decoding, GREEDY_DECODINGS)
    if not d.size or np.isnan(d).any():
        raise ValueError(
            f"expected distances to be one number for each token, got {reprlib.repr(d.tolist())}"
        )
    split = _split_prpn if decoding == "prpn" else _split_unbiased
    subtrees: list[Tree] = []
    pending: list[Part | None] = [(0, d.size)]  # the last entry is processed first
    while pending:
        part = pending.pop()
        if part is None:
            reduce_topmost(subtrees)
        elif part[1] - part[0] == 1:
            subtrees.append(part[0])
        else:
            parts = split(d, *part)
            pending += [None] * (len(parts) - 1)  # joins their trees, from the right
            pending += reversed(parts)
    return subtrees[0]


def _check_distances(
    batch: Tensor, sizes: Sequence[int], temperature: float | None, direction: ReadingDirection
) -> None:
    """Check the distances within the sequences of a batch, (B, T). The temperature is that of "cky"."""
    positions = torch.arange(batch.shape[1], device=batch.device)
    ends = torch.tensor(sizes, dtype=torch.int64, device=batch.device)[:, None]
    undefined = batch.isnan() & (positions < ends)
    if bool(undefined.any()):
        sequence, token = undefined.nonzero()[0].tolist()
        raise ValueError(f"expected distances to be numbers, got NaN at token {token} of sequence {sequence}")
    if temperature is None:
        return
    compared = (positions < ends) & (positions != (0 if direction == "forward" else ends - 1))
    infinite = ~(batch / temperature).isfinite() & compared
    if bool(infinite.any()):
        sequence, token = infinite.nonzero()[0].tolist()
        raise ValueError(
            'expected distances / temperature to be finite for "cky", got '
            f"{batch[sequence, token].item()} / {temperature} at token {token} of sequence {sequence}"
        )


def _warn_of_padding(batch: Tensor) -> None:
    """Warn if distances, (B, T), that were given without lengths are zero where padding would be."""
    zero = batch == 0
    at_end = zero.flip(1).cumprod(1).flip(1).bool()
    ended = at_end.any(1)
    if bool(ended.any()) and not bool(ended.all()) and torch.equal(zero, at_end):
        sequences = reprlib.repr(ended.nonzero().flatten().tolist())
        warnings.warn(
            f"the distances of sequences {sequences} end in zeros, as where the layer has read padding, and "
            "the trees contain it: pass the lengths that the layer was called with",
            stacklevel=3,
        )


def _mirror(tree: Tree) -> Tree:
    """The mirror image of a tree."""
    last = len(leaves(tree)) - 1

    def leaf(position: int) -> Tree:
        return last - position

    def join(children: list[Tree]) -> Tree:
        return tuple(reversed(children))

    return fold(tree, leaf, join)


def _split_prpn(d: np.ndarray, start: int, end: int) -> list[Part]:
    """What is before the token with the largest distance, this token, and what is after it."""
    i = start + int(d[start:end].argmax())
    return [part for part in ((start, i), (i, i + 1), (i + 1, end)) if part[0] < part[1]]


def _split_unbiased(d: np.ndarray, start: int, end: int) -> list[Part]:
    """What is before the token with the largest distance, the first token aside, and what begins with it."""
    i = start + 1 + int(d[start + 1 : end].argmax())
    return [(start, i), (i, end)]
