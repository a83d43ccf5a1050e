"""The nodes of traces: the constituents of a tree, or what Algorithm 2 joins step by step; their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from ordered_memory.pointers import ReadingDirection, reductions
from ordered_memory.trace_format import Node, Step
from ordered_memory.trees import Span, Tree, fold, leaves

DIGITS = 3
"""Decimal places of fractions."""


def nodes_of(tree: Tree, num_tokens: int | None = None, words: Sequence[int] | None = None) -> list[Node]:
    """Convert a tree to a list of nodes.

    Args:
        tree: binary or not.
        num_tokens: T; None for the number of leaves.
        words: the position of each leaf among the tokens; None if every token is a leaf.
    Returns:
        The constituents, children before parents.
    Raises:
        TypeError, ValueError: not a tree, as `trees.fold`.
    Example:
        >>> [node["children"] for node in nodes_of(((0, 1), 2))]
        [[0, 1], [3, 2]]
    """
    size = len(leaves(tree)) if num_tokens is None else num_tokens
    nodes: list[Node] = []

    def leaf(position: int) -> tuple[int, int, int]:
        token = position if words is None else words[position]
        return token, token, token

    def join(children: list[tuple[int, int, int]]) -> tuple[int, int, int]:
        if len(children) == 1:
            return children[0]
        first, last = children[0][1], children[-1][2]
        nodes.append({"first": first, "last": last, "children": [child_id for child_id, _, _ in children]})
        return size + len(nodes) - 1, first, last

    fold(tree, leaf, join)
    return nodes


def add_values(
    nodes: Sequence[Node],
    values: Mapping[Span, float],
    words: Sequence[int],
    key: Literal["value", "model_value"] = "value",
) -> None:
    """Set the value of every node that has one.

    Args:
        nodes: nodes of a tree over the tokens; changed in place.
        values: values by first and last word.
        words: positions of the words among the tokens.
        key: "model_value" for the predictions of a model that induces no tree, at the nodes of the true tree.
    """
    by_position = {(words[first], words[last]): value for (first, last), value in values.items()}
    for node in nodes:
        value = by_position.get((node["first"], node["last"]))
        if value is not None:
            node[key] = round(value, DIGITS)


def algorithm_2_steps(
    pointers: Sequence[int], num_slots: int, direction: ReadingDirection
) -> tuple[list[Step], list[Node]]:
    """Run Algorithm 2. Pointers are in reading order; tokens and nodes are in the order of the text.

    Joining two subtrees moves the upper one down by one slot, and the last join before a token ends in the
    slot that the token attends to. At the end of the sequence the result is in the slot of the lower subtree.

    Args:
        pointers: the slot that each of T tokens attends to most, from 0; that of the first is not used.
        num_slots: N.
        direction: "backward" if the sequence was read from its end.
    Returns:
        T + 1 steps, the last of which joins what is left, and the nodes, children before parents.
    """
    size = len(pointers)
    order = range(size) if direction == "forward" else range(size - 1, -1, -1)
    counts: list[int | None] = [*reductions(pointers, num_slots), None]
    steps: list[Step] = []
    nodes: list[Node] = []
    stack: list[tuple[int, int]] = []  # from the top: id and slot of each subtree
    span_of = {token: (token, token) for token in order}
    for step, count in enumerate(counts):
        joined: list[int] = []
        while len(stack) > 1 and (count is None or len(joined) < count):
            (upper, slot), (lower, lower_slot) = stack[:2]
            children = [lower, upper] if direction == "forward" else [upper, lower]
            first, last = span_of[children[0]][0], span_of[children[1]][1]
            node_id, slot = size + len(nodes), lower_slot if count is None else min(slot + 1, num_slots)
            nodes.append({"first": first, "last": last, "children": children, "step": step, "slot": slot})
            span_of[node_id] = (first, last)
            joined.append(node_id)
            stack[:2] = [(node_id, slot)]
        token, attended = None, None
        if count is not None:
            token = order[step]
            if step:
                attended = pointers[step] + 1
                stack[0] = (stack[0][0], attended)
                if joined:
                    nodes[-1]["slot"] = attended
            stack.insert(0, (token, num_slots if attended is None else attended - 1))
        steps.append({"token": token, "slot": attended, "joined": joined, "stack": list(stack)})
    return steps, nodes
