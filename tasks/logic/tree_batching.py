"""Gold trees of many formulas as levels: everything of one height is composed at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ordered_memory.trees import Tree, fold
from tasks.logic.formulas import PARENTHESES


class TreeBatch(NamedTuple):
    """The trees of some formulas. Nodes are numbered: the words of all formulas one formula after another,
    then all nodes of height 1, of height 2, and so on.

    Args:
        words: (W,) int64 token ids.
        left, right: for each height from 1, the numbers of the children, (n_h,) int64 each.
        roots: (B,) int64, the node that is the whole formula.
    """

    words: Tensor
    left: list[Tensor]
    right: list[Tensor]
    roots: Tensor


class _Nodes(NamedTuple):
    """One tree: its inner nodes by height, children before parents.

    Args:
        words: (w,) token ids; node k < w is word k, node w + k inner node k.
        heights, left, right: (w - 1,) each.
    """

    words: NDArray[np.int64]
    heights: NDArray[np.int64]
    left: NDArray[np.int64]
    right: NDArray[np.int64]


class TreeStore:
    """The trees of a data set.

    Args:
        clauses: token ids of each formula, parentheses and all.
        trees: of every formula.
    """

    def __init__(self, clauses: Sequence[bytes], trees: Mapping[bytes, Tree]) -> None:
        known = {clause: _nodes(clause, tree) for clause, tree in trees.items()}
        self.nodes = [known[clause] for clause in clauses]

    def batch(self, indices: NDArray[np.int64]) -> TreeBatch:
        """The trees of some formulas, in the order given.

        Args:
            indices: of the formulas, (B,).
        """
        chosen = [self.nodes[index] for index in indices]
        sizes = np.array([len(nodes.words) for nodes in chosen])
        inner = sizes - 1
        owner = np.repeat(np.arange(len(chosen)), inner)
        heights = np.concatenate([nodes.heights for nodes in chosen])
        # Inner nodes by height, those of a formula in their own order.
        order = np.argsort(heights, kind="stable")
        number_of_inner = np.empty(len(order), dtype=np.int64)
        number_of_inner[order] = sizes.sum() + np.arange(len(order))
        word_starts, inner_starts = np.cumsum(sizes) - sizes, np.cumsum(inner) - inner

        def number(local: NDArray[np.int64], formula: NDArray[np.int64]) -> NDArray[np.int64]:
            """Of nodes, from their place in their own formula."""
            is_word = local < sizes[formula]
            numbers: NDArray[np.int64] = word_starts[formula] + local
            place = inner_starts[formula] + local - sizes[formula]
            numbers[~is_word] = number_of_inner[place[~is_word]]
            return numbers

        left = number(np.concatenate([nodes.left for nodes in chosen]), owner)[order]
        right = number(np.concatenate([nodes.right for nodes in chosen]), owner)[order]
        ends = np.flatnonzero(np.diff(heights[order], append=0)) + 1 if len(order) else np.empty(0, np.int64)
        roots = number(2 * sizes - 2, np.arange(len(chosen)))
        return TreeBatch(
            torch.from_numpy(np.concatenate([nodes.words for nodes in chosen])),
            [torch.from_numpy(part) for part in np.split(left, ends[:-1])] if len(order) else [],
            [torch.from_numpy(part) for part in np.split(right, ends[:-1])] if len(order) else [],
            torch.from_numpy(roots),
        )


def _nodes(clause: bytes, tree: Tree) -> _Nodes:
    words = np.array([token for token in clause if token not in PARENTHESES], dtype=np.int64)
    found: list[tuple[int, int, int]] = []  # height, left, right

    def join(children: list[tuple[int, int]]) -> tuple[int, int]:
        (left_height, left), (right_height, right) = children
        found.append((1 + max(left_height, right_height), left, right))
        return found[-1][0], len(words) + len(found) - 1

    fold(tree, lambda word: (0, word), join)
    columns = np.array(found, dtype=np.int64).reshape(-1, 3)
    return _Nodes(words, columns[:, 0].copy(), columns[:, 1].copy(), columns[:, 2].copy())
