"""Algorithm 2 of Ordered Memory: a tree from the slots that tokens attend to, and these slots from a tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from ordered_memory.checks import check_name, integer_or_none, positive_int, to_numbers
from ordered_memory.trees import Tree, leaves, reduce_topmost

ReadingDirection = Literal["forward", "backward"]
"""The direction in which a layer has read the tokens."""
DIRECTIONS: tuple[ReadingDirection, ...] = get_args(ReadingDirection)
NO_SLOT = -100
"""What `to_pointers` has for the token that is read first. The losses of PyTorch leave out such targets."""


def shift_reduce(pointers: Sequence[int] | Tensor, num_slots: int) -> Tree:
    """The tree that Ordered Memory builds when each token attends to one slot.

    Ordered Memory, Algorithm 2, with slots numbered 1..N as in the paper: push the first token, head ← N. For
    each later token, reduce y_t - head times (not at all if this is not positive) while at least two subtrees
    remain, push the token, and set head ← y_t - 1. At the end, reduce everything to one tree.

    Args:
        pointers: argmax_i p_{t,i} of each token, (T,) integers, counted from 0 (y_t - 1). The entry of the
            first token is ignored.
        num_slots: N.
    Returns:
        A binary tree over the tokens.
    Raises:
        ValueError: no tokens, a tensor with more or less than one axis, a pointer outside 0..N-1, or N < 1.
        TypeError: a pointer is not an integer.
    Example:
        >>> shift_reduce([0, 2, 1, 2], num_slots=3)
        ((0, (1, 2)), 3)
    """
    subtrees: list[Tree] = []
    for token, count in enumerate(reductions(pointers, num_slots)):
        for _ in range(count):
            reduce_topmost(subtrees)
        subtrees.append(token)
    while len(subtrees) > 1:
        reduce_topmost(subtrees)
    return subtrees[0]


def reductions(pointers: Sequence[int] | Tensor, num_slots: int) -> list[int]:
    """The number of reductions of Algorithm 2 before it pushes each token; see `shift_reduce`.

    Args:
        pointers: argmax_i p_{t,i} of each token, (T,) integers, counted from 0.
        num_slots: N.
    Returns:
        T numbers, the first of which is 0. The reductions at the end are not counted.
    Raises:
        ValueError, TypeError: as `shift_reduce`.
    Example:
        >>> reductions([0, 2, 1, 2], num_slots=3)
        [0, 0, 0, 2]
    """
    num_slots = positive_int("num_slots", num_slots)
    values = to_numbers("pointers", pointers)
    if not values:
        raise ValueError("expected pointers to have an entry for each token, got none")
    counts = [0]
    subtrees, head = 1, num_slots
    for token, pointer in enumerate(values[1:], start=1):
        slot = integer_or_none(pointer)
        if slot is None:
            raise TypeError(f"expected pointers to be integers, got pointers[{token}] = {pointer!r}")
        if not 0 <= slot < num_slots:
            raise ValueError(f"expected pointers in 0..{num_slots - 1}, got pointers[{token}] = {slot}")
        counts.append(max(0, min(slot + 1 - head, subtrees - 1)))  # y_t is slot + 1
        subtrees += 1 - counts[-1]
        head = slot
    return counts


def to_pointers(tree: Tree, num_slots: int, direction: ReadingDirection = "forward") -> Tensor:
    """The slot that each token must attend to so that Ordered Memory builds a given tree.

    The inverse of `shift_reduce`: a token before which k subtrees wait on the stack attends to slot N - k,
    counted from 0. k is the number of right branches on the way from the root to the token; for a layer that
    reads each sequence from its end, that of left branches.

    Args:
        tree: binary or not. The children of a constituent with more than two are joined one by one, in the
            order in which they are read.
        num_slots: N, for "forward" at least `min_slots(tree)`.
        direction: "forward" or "backward": the direction in which the layer reads.
    Returns:
        (T,) int64, counted from 0, for the tokens from left to right. The token that is read first finds an
        empty memory and attends to no slot: its entry is -100, which `shift_reduce` ignores, and so do
        `cross_entropy` and `nll_loss` of PyTorch.
    Raises:
        TypeError: not a tree.
        ValueError: not a tree, it needs more slots, or the direction is unknown.
    Example:
        >>> to_pointers(((0, (1, 2)), 3), num_slots=3).tolist()
        [-100, 2, 1, 2]
    """
    num_slots = positive_int("num_slots", num_slots)
    check_name("direction", direction, DIRECTIONS)
    leaves(tree)
    waiting: list[int] = []  # for each token, the number of subtrees on the stack when it is read
    pending: list[tuple[Tree, int]] = [(tree, 0)]
    while pending:
        node, count = pending.pop()
        if isinstance(node, tuple):
            first = 0 if direction == "forward" else len(node) - 1  # the child that is read first
            pending += reversed([(child, count + (i != first)) for i, child in enumerate(node)])
        else:
            waiting.append(count)
    if num_slots < max(waiting):
        raise ValueError(
            f"expected num_slots to be at least {max(waiting)}, which the tree needs, got {num_slots}"
        )
    return torch.tensor([num_slots - count if count else NO_SLOT for count in waiting])
