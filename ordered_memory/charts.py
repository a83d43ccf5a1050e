"""Convert trees to and from charts: T × T matrices of constituents, as torch-struct has them."""

from __future__ import annotations

import torch
from torch import Tensor

from ordered_memory.checks import check_tensor, integer_or_none, positive_int
from ordered_memory.trees import Span, Tree, check_tokens, leaves, spans


def to_chart(tree: Tree, length: int | None = None) -> Tensor:
    """Convert a tree to a chart as `torch_struct.TreeCRF` uses it.

    Args:
        tree: tree over the leaves 0..n - 1.
        length: T ≥ n, the side of the chart; None for n.
    Returns:
        (T, T) bool: entry (i, j) says whether leaves i to j, both inclusive, are a constituent. Single leaves
        count as constituents, as in TreeCRF's argmax: the diagonal is true for the n leaves and false beyond.
    Raises:
        TypeError: not a tree.
        ValueError: not a tree, leaves other than 0..n - 1, or T < n.
    Example:
        >>> to_chart((0, (1, 2))).int().tolist()
        [[1, 0, 1], [0, 1, 1], [0, 0, 1]]
    """
    size = len(leaves(tree))
    check_tokens(tree, range(size))
    length = size if length is None else positive_int("length", length)
    if length < size:
        raise ValueError(f"expected length to be at least {size}, the leaves of the tree, got {length}")
    chart = torch.zeros(length, length, dtype=torch.bool)
    chart.diagonal()[:size] = True
    constituents = spans(tree)
    if constituents:
        chart[tuple(torch.tensor(constituents).T)] = True
    return chart


def from_chart(chart: Tensor, length: int | None = None) -> Tree:
    """Convert a chart of constituents to a tree.

    Args:
        chart: (T, T) bool or numbers; entry (i, j) is non-zero for the constituents i..j.
            Entries below the diagonal or beyond the length are ignored.
        length: n in 1..T, the number of leaves; None for T.
    Returns:
        The tree; binary if every constituent in the chart has two children.
    Raises:
        TypeError: the chart is not a tensor.
        ValueError: the whole sentence is not a constituent, two constituents cross, the chart is not square,
            or the length does not fit it.
    Example:
        >>> from_chart(torch.tensor([[1, 0, 1], [0, 1, 1], [0, 0, 1]]))
        (0, (1, 2))
    """
    check_tensor("chart", chart)
    if chart.dim() != 2 or chart.shape[0] != chart.shape[1]:
        raise ValueError(f"expected chart to be (T, T), got shape {tuple(chart.shape)}")
    length = len(chart) if length is None else length
    size = integer_or_none(length)
    if size is None or not 1 <= size <= len(chart):
        raise ValueError(f"expected length in 1..{len(chart)}, the side of the chart, got {length}")
    constituents = chart[:size, :size].bool().triu(1).nonzero().tolist()  # there is no triu of uint16
    if size > 1 and [0, size - 1] not in constituents:
        raise ValueError(f"expected a constituent over all {size} leaves, got none in the chart")
    upcoming = iter(sorted(((i, j) for i, j in constituents), key=lambda span: (span[0], -span[1])))
    next_span = next(upcoming, None)
    open_constituents: list[tuple[Span, list[Tree]]] = []
    tree: Tree = 0
    for leaf in range(size):
        while next_span is not None and next_span[0] == leaf:
            if open_constituents and next_span[1] > open_constituents[-1][0][1]:
                raise ValueError(
                    f"expected a tree, got constituents {open_constituents[-1][0]} and {next_span} that cross"
                )
            open_constituents.append((next_span, []))
            next_span = next(upcoming, None)
        tree = leaf
        while open_constituents:
            span, children = open_constituents[-1]
            children.append(tree)
            if span[1] != leaf:
                break
            open_constituents.pop()
            tree = tuple(children)
    return tree
