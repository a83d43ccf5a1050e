"""Attention that traces are read from, and the trees in traces."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ordered_memory.trace import Node
from ordered_memory.trees import Tree


def tree_of(nodes: Sequence[Node], size: int) -> Tree:
    """The tree over `size` tokens that a list of nodes stands for."""
    found: list[Tree] = list(range(size))
    for node in nodes:
        found.append(tuple(found[child] for child in node["children"]))
    return found[-1]


def hard(pointers: tuple[int, ...], num_slots: int) -> torch.Tensor:
    """Attention that is 1 at one slot of each token."""
    attention = torch.eye(num_slots)[list(pointers)]
    attention[0] = 0
    return attention
