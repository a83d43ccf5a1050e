"""Trees that depend only on the length of a sentence, as baselines for a parser."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ordered_memory.checks import integer_or_none, positive_int
from ordered_memory.trees import Tree, reduce_topmost


def left_branching(n: int) -> Tree:
    """The tree (((0, 1), 2), …): the left child of every constituent is the next smaller one.

    Args:
        n: number of leaves, at least 1.
    Returns:
        A binary tree.
    Raises:
        ValueError: n is not an integer of at least 1.
    Example:
        >>> left_branching(4)
        (((0, 1), 2), 3)
    """
    tree: Tree = 0
    for leaf in _leaf_range(n)[1:]:
        tree = (tree, leaf)
    return tree


def right_branching(n: int) -> Tree:
    """The tree (0, (1, (2, …))): the right child of every constituent is the next smaller one.

    Args:
        n: number of leaves, at least 1.
    Returns:
        A binary tree.
    Raises:
        ValueError: n is not an integer of at least 1.
    Example:
        >>> right_branching(4)
        (0, (1, (2, 3)))
    """
    *others, last = _leaf_range(n)
    tree: Tree = last
    for leaf in reversed(others):
        tree = (leaf, tree)
    return tree


def balanced(n: int) -> Tree:
    """The tree that splits every span in half. If the number of leaves is odd, the left half has one more.

    Args:
        n: number of leaves, at least 1.
    Returns:
        A binary tree.
    Raises:
        ValueError: n is not an integer of at least 1.
    Example:
        >>> balanced(5)
        (((0, 1), 2), (3, 4))
    """

    def subtree(first: int, size: int) -> Tree:
        half = (size + 1) // 2
        return (subtree(first, half), subtree(first + half, size - half)) if size > 1 else first

    return subtree(0, len(_leaf_range(n)))


def random_trees(lengths: Iterable[int], seed: int) -> list[Tree]:
    """Draw a binary tree of each length, uniformly at random.

    Rémy's algorithm: the tree grows leaf by leaf, each new leaf the sibling of a random node. It takes O(T)
    time and does not use the global generator. Sampling a zero-potential TreeCRF gives the same distribution
    in O(T³).

    Args:
        lengths: number of leaves of each tree, at least 1.
        seed: non-negative; the same seed gives the same trees.
    Returns:
        One binary tree for each length.
    Raises:
        ValueError: a length is not an integer of at least 1, or the seed not one of at least 0.
    Example:
        >>> random_trees([1, 2], seed=0)
        [0, (0, 1)]
    """
    number = integer_or_none(seed)
    if number is None or number < 0:
        raise ValueError(f"seed must be an integer of at least 0, got {seed!r}")
    rng = np.random.default_rng(number)
    return [_random_tree(positive_int(f"lengths[{i}]", n), rng) for i, n in enumerate(lengths)]


def _random_tree(n: int, rng: np.random.Generator) -> Tree:
    """Rémy's algorithm in Knuth's form (TAOCP 7.2.1.6, R): odd nodes are inner, even ones leaves."""
    draws = rng.integers(4 * np.arange(1, n) - 2).tolist()
    links = [0] * (2 * n - 1)
    for k, draw in enumerate(draws, start=1):
        replaced, side = divmod(draw, 2)
        links[2 * k - side] = 2 * k
        links[2 * k - 1 + side] = links[replaced]
        links[replaced] = 2 * k - 1
    subtrees: list[Tree] = []
    pending: list[int | None] = [links[0]]
    num_leaves = 0
    while pending:
        node = pending.pop()
        if node is None:
            reduce_topmost(subtrees)
        elif node % 2:
            pending += [None, links[node + 1], links[node]]
        else:
            subtrees.append(num_leaves)
            num_leaves += 1
    return subtrees[0]


def _leaf_range(n: int) -> range:
    return range(positive_int("n", n))


def baselines(lengths: Iterable[int], seed: int = 0) -> dict[str, list[Tree]]:
    """Baseline trees, which depend only on the length of a sentence.

    Args:
        lengths: number of tokens of each sentence, at least 1.
        seed: seed of the random trees.
    Returns:
        The trees by name: left-branching, right-branching, balanced, random (uniform). Sentences of one
        length have the same tree object, except for the random trees.
    Raises:
        ValueError: as `random_trees`.
    Example:
        >>> baselines([3])["balanced"]
        [((0, 1), 2)]
    """
    sizes = [positive_int(f"lengths[{i}]", size) for i, size in enumerate(lengths)]
    builders = {"left-branching": left_branching, "right-branching": right_branching, "balanced": balanced}
    by_length = {name: {n: build(n) for n in set(sizes)} for name, build in builders.items()}
    trees = {name: [built[n] for n in sizes] for name, built in by_length.items()}
    return trees | {"random": random_trees(sizes, seed)}
