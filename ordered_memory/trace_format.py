"""The format of traces: what a model did with a sequence, as JSON values, which the viewer shows.

A trace is a dictionary of plain lists, numbers and strings. Positions of tokens count from 0. Slots count
from 1, the top of the stack, to N, as in the papers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import NotRequired, TypedDict

from ordered_memory.tree_recovery import Direction

FORMAT, VERSION = "ordered-memory-trace", 1


class Node(TypedDict):
    """A constituent of two tokens or more.

    A list of nodes is a tree over T tokens: children stand before their parents, the token at position t has
    the id t, and the k-th node of the list, counted from 0, has the id T + k.

    Args:
        first, last: positions of its first and its last token.
        children: ids of its parts, from left to right.
        step: which entry of `Memory.steps` made it; only in a tree that Algorithm 2 built.
        slot: the slot that it was made in, 1..N; where `step` is.
        in_true_tree: whether the true tree has a constituent of the same words; None for fewer than two
            words. Missing where there is no true tree.
        value: from -1 to 1, such as a sentiment; missing where there is none.
        model_value: what the model makes of a node of the true tree; only of a model that induces no tree.
    """

    first: int
    last: int
    children: list[int]
    step: NotRequired[int]
    slot: NotRequired[int]
    in_true_tree: NotRequired[bool | None]
    value: NotRequired[float]
    model_value: NotRequired[float]


class Step(TypedDict):
    """A step of Algorithm 2: it joins subtrees, then reads a token. The last one joins all that are left.

    Args:
        token: position of the token that is read; None in the last step.
        slot: y_t, the slot that the token attends to most, 1..N; None for the token that is read first, which
            meets an empty memory, and in the last step.
        joined: ids of the nodes that are made, in order.
        stack: what the memory holds after the step, from the top: pairs of an id and its slot. The token
            itself is at the top, in slot y_t - 1. That is 0 for a token that no slot is left for above y_t.
            Where attention is one-hot, this is M of equation (5), and for the token M̂ of equation (7).
    """

    token: int | None
    slot: int | None
    joined: list[int]
    stack: list[tuple[int, int]]


class Memory(TypedDict):
    """The attention of Ordered Memory. Lists of lists are (T, N); a token's row is at its position.

    Args:
        num_slots: N.
        attention: p of each token; zeros for the one that is read first.
        forward_mask: →π, equation (3).
        backward_mask: ←π, equation (4).
        occupancy: how far each slot may be attended to, →π of the token before at the slot below, equation
            (10). It is 1 at slot N, but 0 everywhere for the token that is read first.
        steps: of Algorithm 2, one for each token in the order of reading, and a last one.
    """

    num_slots: int
    attention: list[list[float]]
    forward_mask: list[list[float]]
    backward_mask: list[list[float]]
    occupancy: list[list[float]]
    steps: list[Step]


class Layer(TypedDict):
    """The distances of a layer of ON-LSTM or PRPN.

    Args:
        name: "layer 1", …
        distances: one for each token.
        trees: nodes by decoding: "prpn", "unbiased", "cky".
    """

    name: str
    distances: list[float]
    trees: dict[str, list[Node]]


class Answer(TypedDict):
    """What a classifier says of the sequence.

    Args:
        classes: names of the C answers.
        probabilities: of each.
        true: number of the right one; None where it is not known.
    """

    classes: list[str]
    probabilities: list[float]
    true: int | None


class Trace(TypedDict):
    """What a model did with one sequence of T tokens. Keys for what the model does not have are missing.

    Args:
        tokens: all that is read.
        caption: a line on the example; empty for none.
        example: number of the example; traces with the same number, such as the two formulas of a pair, are
            shown together.
        direction: "backward" where the sequence was read from its end.
        words: positions of the tokens that the true tree is over; all of them unless something, such as
            parentheses, is read but belongs to no tree.
        nodes: the induced tree over all tokens, in the order in which it is built.
        true_nodes: the true tree over the words.
        memory: of Ordered Memory.
        layers: of a model with distances.
        answer: of a classifier.
        token_values: from -1 to 1 for each token, such as its sentiment.
        true_token_values: the same in the data.
    """

    tokens: list[str]
    caption: str
    direction: Direction
    words: list[int]
    example: NotRequired[int]
    nodes: NotRequired[list[Node]]
    true_nodes: NotRequired[list[Node]]
    memory: NotRequired[Memory]
    layers: NotRequired[list[Layer]]
    answer: NotRequired[Answer]
    token_values: NotRequired[list[float]]
    true_token_values: NotRequired[list[float]]


def to_json(traces: Sequence[Trace]) -> str:
    """Traces as the text of a JSON file: `{"format": "ordered-memory-trace", "version": 1, "traces": […]}`.

    Args:
        traces: any number.
    Returns:
        The text.
    Raises:
        ValueError: a number is NaN or infinity.
    """
    document = {"format": FORMAT, "version": VERSION, "traces": list(traces)}
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # Half a surrogate pair has no place in UTF-8, but JSON has an escape for it.
    return re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", text)
