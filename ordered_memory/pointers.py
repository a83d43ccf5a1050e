"""Algorithm 2 of Ordered Memory: a tree from the slots that tokens attend to, and these slots from a tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ordered_memory.checks import integer_or_none, positive_int
from ordered_memory.trees import Tree, min_slots, reduce_topmost

NO_SLOT = -100
"""What `to_pointers` has for the first token. The losses of PyTorch leave out targets of this value."""


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


def to_pointers(tree: Tree, num_slots: int) -> Tensor:
    """The slot that each token must attend to so that Ordered Memory builds a given tree.

    The inverse of `shift_reduce`: a token before which k subtrees wait on the stack attends to slot N - k,
    counted from 0. k is the number of right branches on the way from the root to the token.

    Args:
        tree: binary or not. The children of a constituent with more than two are joined from the left.
        num_slots: N, at least `min_slots(tree)`.
    Returns:
        (T,) int64, counted from 0. The first is -100: the first token finds an empty memory and attends to no
        slot. `shift_reduce` ignores it, and so do `cross_entropy` and `nll_loss` of PyTorch.
    Raises:
        TypeError: not a tree.
        ValueError: not a tree, or it needs more slots.
    Example:
        >>> to_pointers(((0, (1, 2)), 3), num_slots=3).tolist()
        [-100, 2, 1, 2]
    """
    num_slots, needed = positive_int("num_slots", num_slots), min_slots(tree)
    if num_slots < needed:
        raise ValueError(f"expected num_slots to be at least {needed}, which the tree needs, got {num_slots}")
    waiting: list[int] = []  # for each token, the number of subtrees to its left
    pending: list[tuple[Tree, int]] = [(tree, 0)]
    while pending:
        node, count = pending.pop()
        if isinstance(node, tuple):
            pending += reversed([(child, count + (i > 0)) for i, child in enumerate(node)])
        else:
            waiting.append(count)
    return torch.tensor([NO_SLOT, *(num_slots - count for count in waiting[1:])])


def to_numbers(name: str, values: Sequence[Any] | Tensor) -> list[Any]:
    """Convert one value per token to Python numbers. (`float` warns if a tensor requires gradients.)

    Args:
        name: name of the argument, for the error message.
        values: (T,).
    Returns:
        T values.
    Raises:
        ValueError: a tensor with more or less than one axis.
    """
    if not isinstance(values, Tensor):
        return [value.detach() if isinstance(value, Tensor) else value for value in values]
    if values.dim() != 1:
        raise ValueError(
            f"expected {name} to be (T,), one number for each token, got shape {tuple(values.shape)}"
        )
    entries: list[Any] = values.tolist()
    return entries
