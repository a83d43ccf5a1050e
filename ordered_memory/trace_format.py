"""The format of traces: what a model did with a sequence, as JSON values. The viewer shows traces.

A trace is a dictionary of plain lists, numbers and strings. Positions of tokens count from 0. Slots count
from 1, the top of the stack, to N, as in the paper.
"""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Mapping, Sequence, Sized
from typing import Any, NotRequired, TypedDict

from ordered_memory.pointers import ReadingDirection

FORMAT, VERSION = "ordered-memory-trace", 1
REQUIRED = ("tokens", "caption", "direction", "words")
"""Keys that every trace has."""


class Node(TypedDict):
    """A constituent of two tokens or more.

    A list of nodes is a tree over T tokens: children come before their parents, the token at position t has
    the id t, and the k-th node of the list, counted from 0, has the id T + k.

    Args:
        first, last: positions of the first and the last token.
        children: ids of the children, from left to right.
        step: index of the entry of `Memory.steps` that made the node; only in trees built by Algorithm 2.
        slot: the slot in which the node was made, 1..N; present if `step` is.
        in_true_tree: whether the true tree has a constituent with the same words; None for fewer than two
            words. Missing if there is no true tree.
        value: a value from -1 to 1, such as a sentiment; missing if there is none.
        model_value: the model's prediction for a node of the true tree; only for a model that induces no
            tree.
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
    """A step of Algorithm 2: join subtrees, then read a token. The last step joins all remaining subtrees.

    Args:
        token: position of the token that is read; None in the last step.
        slot: y_t, the slot with the most attention, 1..N; None for the first token that is read, which finds
            an empty memory, and in the last step.
        joined: ids of the nodes that are made, in order.
        stack: content of the memory after the step, from the top: pairs of an id and its slot. The token
            itself is at the top, in slot y_t - 1, which is 0 if there is no slot above y_t; the first token
            that is read is in slot N. If the attention is one-hot, this is M of equation (5), and for the
            token M̂ of equation (7).
    """

    token: int | None
    slot: int | None
    joined: list[int]
    stack: list[tuple[int, int]]


class Memory(TypedDict):
    """The attention of Ordered Memory. Lists of lists are (T, N), in the order of the tokens.

    Args:
        num_slots: N.
        attention: p of each token; zeros for the first token that is read.
        forward_mask: →π, equation (3).
        backward_mask: ←π, equation (4).
        occupancy: the mask of the attention, equation (10): at each slot, →π of the previous token at the
            slot below. It is 1 at slot N, but 0 at all slots for the first token that is read.
        steps: the steps of Algorithm 2: one for each token in reading order, and a last one.
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
        name: name of the layer, such as "layer 1".
        distances: one distance for each token.
        trees: nodes of the tree by decoding: "prpn", "unbiased" and, up to 800 tokens, "cky", or only some
            of these.
    """

    name: str
    distances: list[float]
    trees: dict[str, list[Node]]


class LayerTree(TypedDict):
    """One of the trees of `Trace.layers`.

    Args:
        layer: name of the layer.
        decoding: a key of `Layer.trees`.
    """

    layer: str
    decoding: str


class Answer(TypedDict):
    """The answer of a classifier.

    Args:
        classes: names of the C classes.
        probabilities: the probability of each class.
        true: index of the true class; None if it is not known.
    """

    classes: list[str]
    probabilities: list[float]
    true: int | None


class Trace(TypedDict):
    """What a model did with one sequence of T tokens. Keys that do not apply to the model are missing.

    Args:
        tokens: the tokens.
        caption: a line about the example; may be empty.
        example: number of the example; traces with the same number, such as the two formulas of a pair, are
            shown together.
        direction: "backward" if the sequence was read from its end.
        words: positions of the tokens that are leaves of the true tree: all, or all but those that the model
            reads but that are not part of the tree, such as parentheses.
        nodes: the induced tree over all tokens, in the order in which it is built.
        true_nodes: the true tree over the words.
        memory: attention and stack of Ordered Memory.
        layers: the layers of a model with distances.
        default_tree: which of their trees counts as the induced one and is shown first; missing if none does.
        answer: the answer of a classifier.
        token_values: the model's value for each token, from -1 to 1, such as its sentiment.
        true_token_values: the true value for each token.
    """

    tokens: list[str]
    caption: str
    direction: ReadingDirection
    words: list[int]
    example: NotRequired[int]
    nodes: NotRequired[list[Node]]
    true_nodes: NotRequired[list[Node]]
    memory: NotRequired[Memory]
    layers: NotRequired[list[Layer]]
    default_tree: NotRequired[LayerTree]
    answer: NotRequired[Answer]
    token_values: NotRequired[list[float]]
    true_token_values: NotRequired[list[float]]


def to_json(traces: Sequence[Trace]) -> str:
    """Write traces as JSON: `{"format": "ordered-memory-trace", "version": 1, "traces": […]}`.

    Args:
        traces: any number of traces; they may contain tensors and NumPy's arrays and numbers.
    Returns:
        The text of the JSON document.
    Raises:
        TypeError: one trace instead of a list, an entry that is not a trace, an answer that is not an
            `Answer`, or a value that JSON does not have.
        ValueError: a number is NaN or infinity.
    Example:
        >>> to_json([{"tokens": ["a"], "caption": "", "direction": "forward", "words": [0]}])[:52]
        '{"format":"ordered-memory-trace","version":1,"traces'
    """
    if isinstance(traces, Mapping):
        raise TypeError("traces must be a list of traces, got one trace: pass [trace]")
    traces = list(traces)
    for i, trace in enumerate(traces):
        if not isinstance(trace, Mapping) or not all(key in trace for key in REQUIRED):
            raise TypeError(
                f"traces[{i}] must be a dictionary with {', '.join(REQUIRED)}, got {reprlib.repr(trace)}"
            )
    document = {"format": FORMAT, "version": VERSION, "traces": traces}
    text = json.dumps(
        document, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_as_numbers
    )
    for i, trace in enumerate(traces):
        if "answer" in trace and not _is_answer(trace["answer"]):
            raise TypeError(
                f"the answer of traces[{i}] must be a dictionary with classes, probabilities (a list, one "
                "for each class) and true (an index or None), for one class or more, got "
                f"{reprlib.repr(trace['answer'])}"
            )
    # A lone surrogate cannot be encoded in UTF-8, but it can be escaped in JSON.
    return re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", text)


def _is_answer(value: Any) -> bool:
    if not isinstance(value, Mapping) or not value.keys() >= Answer.__annotations__.keys():
        return False
    classes, probabilities, true = value["classes"], value["probabilities"], value["true"]
    for part in (classes, probabilities):
        if isinstance(part, str | Mapping) or not isinstance(part, Sized):
            return False
    known = not isinstance(true, bool) and true in range(len(classes))
    return 0 < len(classes) == len(probabilities) and (true is None or known)


def _as_numbers(value: Any) -> Any:
    """A tensor, an array or a NumPy number as numbers of Python."""
    if not hasattr(value, "tolist"):
        raise TypeError(f"a trace must contain JSON values, got {reprlib.repr(value)}")
    return value.tolist()
