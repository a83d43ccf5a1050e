"""Batches of trees for tree encoders: all nodes of the same height are composed at once."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ordered_memory.trees import Tree, fold


class TreeBatch(NamedTuple):
    """The trees of a batch of B sentences, in which words are the nodes of height 0.

    The nodes of one height are sorted by the height of their parents: those with parents of the same height
    are a group, and the roots of sentences are the last one. The children of the nodes of one height are
    joined groups, those of lower nodes first, and so are all roots.

    Args:
        words: the index of each word in the flattened padded batch of B × T tokens, (W,) int64.
        parents: for each height from 0, the height of the parents of each group, in increasing order; for the
            roots, one more than the largest height.
        sizes: for each height from 0, the number of nodes of each group.
        children: for each height from 1, where its n_h left children are among its joined children, and then
            its right ones, (2 n_h,) int64 each.
        roots: where the root of each sentence is among the joined roots, (B,) int64.
    """

    words: Tensor
    parents: list[list[int]]
    sizes: list[list[int]]
    children: list[Tensor]
    roots: Tensor


class TreeNodes(NamedTuple):
    """One tree as arrays; children come before their parents.

    Node k < w is word k, and node w + k is inner node k.

    Args:
        words: the positions of the words among the tokens, (w,).
        heights, left, right: height and children of each inner node, (w - 1,) each.
    """

    words: NDArray[np.int64]
    heights: NDArray[np.int64]
    left: NDArray[np.int64]
    right: NDArray[np.int64]


def tree_nodes(tree: Tree, words: Sequence[int]) -> TreeNodes:
    """Convert a tree to arrays.

    Args:
        tree: binary, over w words.
        words: the positions of the words among the tokens of the sentence, (w,).
    Raises:
        ValueError: the tree is not binary, or has another number of words.
    """
    inner_nodes: list[tuple[int, int, int]] = []  # height, left, right

    def join(children: list[tuple[int, int]]) -> tuple[int, int]:
        if len(children) != 2:
            raise ValueError(
                f"expected a binary tree, got a node with {len(children)} children: {reprlib.repr(tree)}"
            )
        (left_height, left), (right_height, right) = children
        inner_nodes.append((1 + max(left_height, right_height), left, right))
        return inner_nodes[-1][0], len(words) + len(inner_nodes) - 1

    fold(tree, lambda word: (0, word), join)
    if len(inner_nodes) != len(words) - 1:
        raise ValueError(
            f"expected a tree over {len(words)} words, got one over {len(inner_nodes) + 1}: "
            f"{reprlib.repr(tree)}"
        )
    columns = np.array(inner_nodes, dtype=np.int64).reshape(-1, 3)
    positions = np.asarray(words, dtype=np.int64)
    return TreeNodes(positions, columns[:, 0].copy(), columns[:, 1].copy(), columns[:, 2].copy())


def subtree_nodes(nodes: TreeNodes, first: int, count: int, end: int) -> TreeNodes:
    """Cut out a subtree, whose inner nodes are contiguous in those of the whole tree.

    Args:
        nodes: the whole tree.
        first: the first word of the subtree.
        count: its number of words, c.
        end: one more than the index of its root among the inner nodes of the whole tree; ignored if c = 1.
    Returns:
        The subtree, with words numbered from 0.
    """
    inner = slice(end - count + 1, end)  # empty if c = 1
    shift = len(nodes.words) + end - 2 * count + 1  # inner node `end - count + 1` becomes node c

    def renumber(children: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.where(children < len(nodes.words), children - first, children - shift)

    return TreeNodes(
        nodes.words[first : first + count] - nodes.words[first],
        nodes.heights[inner],
        renumber(nodes.left[inner]),
        renumber(nodes.right[inner]),
    )


def batch_trees(trees: Sequence[TreeNodes], longest: int) -> TreeBatch:
    """Collate the trees of a batch.

    Args:
        trees: the trees of B sentences.
        longest: T, the length of the padded batch.
    """
    sizes = np.array([len(nodes.words) for nodes in trees])
    inner = sizes - 1
    owner = np.repeat(np.arange(len(trees)), inner)
    heights = np.concatenate([nodes.heights for nodes in trees])
    word_starts = np.cumsum(sizes) - sizes
    inner_starts = sizes.sum() + np.cumsum(inner) - inner

    def number(local: NDArray[np.int64], sentence: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of nodes in the batch, given their numbers in their own sentence."""
        size = sizes[sentence]
        words, nodes = word_starts[sentence] + local, inner_starts[sentence] + local - size
        numbers: NDArray[np.int64] = np.where(local < size, words, nodes)
        return numbers

    left = number(np.concatenate([nodes.left for nodes in trees]), owner)
    right = number(np.concatenate([nodes.right for nodes in trees]), owner)
    roots = number(2 * sizes - 2, np.arange(len(trees)))
    words = np.concatenate([row * longest + nodes.words for row, nodes in enumerate(trees)])

    # Group the nodes of each height by the height of their parents. Words have the numbers 0 to W - 1.
    above = int(heights.max(initial=0)) + 1  # counts as the height of the parents of roots
    own = np.concatenate([np.zeros_like(words), heights])
    parents = np.full(len(own), above)
    parents[left] = parents[right] = heights
    # The nodes in the order in which they are computed, and in which their parents read them. Both sorts are
    # stable: nodes of a group keep their order.
    computed = np.lexsort((parents, own))
    joined = computed[np.argsort(parents[computed], kind="stable")]
    starts = np.searchsorted(parents[joined], np.arange(above + 1))
    positions = np.empty_like(joined)  # of each node among those that are read at the same height
    positions[joined] = np.arange(len(joined)) - starts[parents[joined]]

    groups, group_sizes = np.unique(own * (above + 1) + parents, return_counts=True)
    group_ends = np.searchsorted(groups, np.arange(1, above) * (above + 1))
    composed = computed[len(words) :] - len(words)
    ends = np.searchsorted(heights[composed], np.arange(2, above))
    children = zip(*(np.split(positions[side][composed], ends) for side in (left, right)), strict=True)
    return TreeBatch(
        torch.from_numpy(words[computed[: len(words)]]),
        [part.tolist() for part in np.split(groups % (above + 1), group_ends)],
        [part.tolist() for part in np.split(group_sizes, group_ends)],
        [torch.from_numpy(np.concatenate(pair)) for pair in children] if len(heights) else [],
        torch.from_numpy(positions[roots]),
    )
