"""True trees of many sentences as levels: everything of one height is composed at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ordered_memory.trees import Tree, fold


class TreeBatch(NamedTuple):
    """The trees of a batch of B sentences. Nodes are numbered: the words of all sentences one sentence after
    another, then all nodes of height 1, of height 2, and so on.

    Args:
        words: (W,) int64, the place of each word among the B × T tokens of the padded batch.
        left, right: for each height from 1, the numbers of the children, (n_h,) int64 each.
        roots: (B,) int64, the node that is the whole sentence.
    """

    words: Tensor
    left: list[Tensor]
    right: list[Tensor]
    roots: Tensor


class TreeNodes(NamedTuple):
    """One tree: its inner nodes, children before parents.

    Args:
        words: (w,) the tokens that are words; node k < w is word k, node w + k inner node k.
        heights, left, right: (w - 1,) each.
    """

    words: NDArray[np.int64]
    heights: NDArray[np.int64]
    left: NDArray[np.int64]
    right: NDArray[np.int64]


def tree_nodes(tree: Tree, words: Sequence[int]) -> TreeNodes:
    """A tree as arrays.

    Args:
        tree: binary, over w words.
        words: the positions of the words in their sentence, (w,); other tokens are no leaves.
    """
    found: list[tuple[int, int, int]] = []  # height, left, right

    def join(children: list[tuple[int, int]]) -> tuple[int, int]:
        (left_height, left), (right_height, right) = children
        found.append((1 + max(left_height, right_height), left, right))
        return found[-1][0], len(words) + len(found) - 1

    fold(tree, lambda word: (0, word), join)
    columns = np.array(found, dtype=np.int64).reshape(-1, 3)
    positions = np.asarray(words, dtype=np.int64)
    return TreeNodes(positions, columns[:, 0].copy(), columns[:, 1].copy(), columns[:, 2].copy())


def subtree_nodes(nodes: TreeNodes, first: int, count: int, end: int) -> TreeNodes:
    """A subtree as arrays: its inner nodes stand side by side in those of the whole tree.

    Args:
        nodes: the whole tree.
        first: the first word of the subtree.
        count: how many words it has, c.
        end: the place after its root among the inner nodes of the whole tree; of no meaning for one word.
    Returns:
        The subtree, its words counted from 0.
    """
    inner = slice(end - count + 1, end) if count > 1 else slice(0)
    shift = len(nodes.words) + end - 2 * count + 1  # inner node `end - count + 1` becomes node c

    def renumber(children: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.where(children < len(nodes.words), children - first, children - shift)

    return TreeNodes(
        nodes.words[first : first + count] - nodes.words[first],
        nodes.heights[inner],
        renumber(nodes.left[inner]),
        renumber(nodes.right[inner]),
    )


def batch_trees(chosen: Sequence[TreeNodes], longest: int) -> TreeBatch:
    """Put the trees of a batch together.

    Args:
        chosen: of the B sentences.
        longest: T, tokens of a row of the padded batch.
    """
    sizes = np.array([len(nodes.words) for nodes in chosen])
    inner = sizes - 1
    owner = np.repeat(np.arange(len(chosen)), inner)
    heights = np.concatenate([nodes.heights for nodes in chosen])
    # Inner nodes by height, those of a sentence in their own order.
    order = np.argsort(heights, kind="stable")
    number_of_inner = np.empty(len(order), dtype=np.int64)
    number_of_inner[order] = sizes.sum() + np.arange(len(order))
    word_starts, inner_starts = np.cumsum(sizes) - sizes, np.cumsum(inner) - inner

    def number(local: NDArray[np.int64], sentence: NDArray[np.int64]) -> NDArray[np.int64]:
        """Of nodes, from their place in their own sentence."""
        is_word = local < sizes[sentence]
        numbers: NDArray[np.int64] = word_starts[sentence] + local
        place = inner_starts[sentence] + local - sizes[sentence]
        numbers[~is_word] = number_of_inner[place[~is_word]]
        return numbers

    left = number(np.concatenate([nodes.left for nodes in chosen]), owner)[order]
    right = number(np.concatenate([nodes.right for nodes in chosen]), owner)[order]
    ends = np.flatnonzero(np.diff(heights[order], append=0)) + 1 if len(order) else np.empty(0, np.int64)
    return TreeBatch(
        torch.from_numpy(np.concatenate([row * longest + nodes.words for row, nodes in enumerate(chosen)])),
        [torch.from_numpy(part) for part in np.split(left, ends[:-1])] if len(order) else [],
        [torch.from_numpy(part) for part in np.split(right, ends[:-1])] if len(order) else [],
        torch.from_numpy(number(2 * sizes - 2, np.arange(len(chosen)))),
    )
