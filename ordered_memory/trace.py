"""Traces: what a model did with a sequence, step by step. `trace_format` documents their content.

`read_output` makes one trace for each sequence of a layer's output, `to_json` serializes traces.
"""

from __future__ import annotations

import reprlib
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from ordered_memory.checks import check_name, check_tensor, check_words, integer_or_none, sequence_lengths
from ordered_memory.cky import LONGEST_CKY
from ordered_memory.cumulative import backward_mask, forward_mask
from ordered_memory.pointers import DIRECTIONS, ReadingDirection
from ordered_memory.trace_format import Answer, Layer, LayerTree, Memory, Node, Step, Trace, to_json
from ordered_memory.trace_nodes import DIGITS, add_values, algorithm_2_steps, nodes_of
from ordered_memory.tree_recovery import (
    DECODINGS,
    Decoding,
    attention_of_direction,
    from_distances,
)
from ordered_memory.trees import Tree, check_tokens, spans

__all__ = [
    "Answer",
    "Layer",
    "LayerTree",
    "Memory",
    "Node",
    "Step",
    "Trace",
    "add_true_tree",
    "add_values",
    "empty_trace",
    "induced_trees",
    "nodes_of",
    "read_attention",
    "read_distances",
    "read_output",
    "read_tree",
    "to_json",
]


def read_output(
    output: tuple[Any, ...],
    tokens: Sequence[Sequence[str]],
    lengths: Sequence[int] | Tensor | None = None,
    *,
    batch_first: bool = False,
    direction: ReadingDirection = "forward",
) -> list[Trace]:
    """The traces of a batch, from the output of a layer.

    Args:
        output: the output of `OrderedMemory`, or of `onlstm.ONLSTM` called with `distances=True`.
        tokens: the tokens of each of B sequences.
        lengths: number of tokens of each sequence, (B,), as passed to the layer; None if every sequence has T
            tokens, or if the batch was packed.
        batch_first: as in the layer.
        direction: the direction to use of a bidirectional layer.
    Returns:
        B traces. Those of Ordered Memory have `memory` and `nodes`, those of ON-LSTM `layers`.
    Raises:
        TypeError: the output is not that of such a layer, or has no distances; or a token is not a string.
        ValueError: the numbers of tokens differ from the lengths, or these from those of a packed batch; the
            output is not of a batch; the direction is unknown or not one that the layer reads in; or as in
            `read_attention` and `read_distances`.
    Example:
        >>> from ordered_memory import OrderedMemory
        >>> layer = OrderedMemory(4, 8, num_slots=5, batch_first=True)
        >>> out = layer(torch.randn(2, 3, 4), lengths=[3, 2])
        >>> a, b = read_output(out, [["the", "cat", "sat"], ["it", "ran"]], [3, 2], batch_first=True)
        >>> a["tokens"], len(a["memory"]["steps"]), b["nodes"]
        (['the', 'cat', 'sat'], 4, [{'first': 0, 'last': 1, 'children': [0, 1], 'step': 2, 'slot': 5}])
    """
    check_name("direction", direction, DIRECTIONS)
    features = output[0] if isinstance(output, tuple) and output else None
    if isinstance(features, PackedSequence):
        packed = pad_packed_sequence(features)[1].tolist()
        if lengths is not None and sequence_lengths(lengths, len(packed), max(packed)) != packed:
            raise ValueError(f"expected the lengths of the packed batch, {packed}, or None, got {lengths}")
        lengths = packed
    attention = getattr(output, "attention", None)
    if isinstance(attention, Tensor):
        batch = attention_of_direction(attention, batch_first, direction)
        sizes = _checked_lengths(tokens, lengths, *batch.shape[:2])
        return [
            read_attention(sequence_attention[:size], sequence_tokens, direction=direction)
            for sequence_attention, sequence_tokens, size in zip(batch, tokens, sizes, strict=True)
        ]
    distances = getattr(output[2], "forget", None) if isinstance(output, tuple) and len(output) > 2 else None
    if not isinstance(distances, Tensor):
        raise TypeError(
            "expected the output of an OrderedMemory, or of an ONLSTM that was called with distances=True, "
            f"got {type(output).__name__}"
        )
    if isinstance(features, PackedSequence):
        padded, _ = pad_packed_sequence(features._replace(data=distances.T), batch_first)
        distances = padded.movedim(-1, 0)
    if distances.dim() != 3:
        raise ValueError(f"expected distances of a batch of sequences, got shape {tuple(distances.shape)}")
    features, (hidden, _), _ = output
    if features.data.shape[-1] == 2 * hidden.shape[-1]:  # bidirectional: the directions alternate
        distances = distances[DIRECTIONS.index(direction) :: 2]
    elif direction == "backward":
        raise ValueError("direction must be 'forward' if the layer is not bidirectional, got 'backward'")
    layers = distances if batch_first else distances.transpose(1, 2)
    sizes = _checked_lengths(tokens, lengths, *layers.shape[1:])
    return [
        read_distances(layers[:, i, :size], sequence_tokens, direction=direction)
        for i, (sequence_tokens, size) in enumerate(zip(tokens, sizes, strict=True))
    ]


def read_attention(
    attention: Tensor, tokens: Sequence[str], *, direction: ReadingDirection = "forward"
) -> Trace:
    """The trace of one sequence, from the attention of Ordered Memory.

    Args:
        attention: p, (T, N), of a sequence that was read with an empty memory as initial state.
        tokens: the T tokens.
        direction: "backward" if the layer read the sequence from its end.
    Returns:
        A trace with `memory` and `nodes`.
    Raises:
        TypeError: the attention is not a tensor, or a token is not a string.
        ValueError: the attention is not (T, N) for T tokens, or an entry is NaN, infinite or negative; or the
            first token that is read attends to a slot, or a later one attends to none; or the direction is
            unknown.
    Example:
        >>> trace = read_attention(torch.tensor([[0.0, 0.0], [0.1, 0.9], [0.2, 0.8]]), ["the", "cat", "sat"])
        >>> [node["children"] for node in trace["nodes"]]
        [[0, 1], [3, 2]]
    """
    check_name("direction", direction, DIRECTIONS)
    check_tensor("attention", attention)
    if attention.dim() != 2 or len(attention) != len(tokens) or 0 in attention.shape:
        raise ValueError(
            f"expected attention to be (T, N) with T = {len(tokens)} tokens, got {tuple(attention.shape)}"
        )
    p = attention.detach().to("cpu", torch.float64)
    if not bool((p.isfinite() & (p >= 0)).all()):
        raise ValueError("expected attention of 0 or more, got NaN, infinity or a negative number")
    if direction == "backward":
        p = p.flip(0)
    attending = p.any(-1).tolist()
    if attending[0]:
        raise ValueError(
            "expected zeros for the token that is read first, into an empty memory, got attention: check "
            f"direction (here {direction}) and batch_first, and that the layer was given no state"
        )
    if not all(attending[1:]):
        raise ValueError(
            f"expected attention inside the sequence, got zeros at step {attending.index(False, 1)}: check "
            "lengths and batch_first"
        )
    num_slots = p.shape[1]
    forward = forward_mask(p)
    below = torch.cat([forward[:-1, 1:], p.new_ones(len(p) - 1, 1)], dim=-1)
    steps, nodes = algorithm_2_steps(p.argmax(-1).tolist(), num_slots, direction)

    def rows(values: Tensor) -> list[list[float]]:
        """Rounded fractions, (T, N), in the order of the tokens."""
        in_order = values if direction == "forward" else values.flip(0)
        return [[_whole_as_int(round(value, DIGITS)) for value in row] for row in in_order.tolist()]

    memory: Memory = {
        "num_slots": num_slots,
        "attention": rows(p),
        "forward_mask": rows(forward),
        "backward_mask": rows(backward_mask(p)),
        "occupancy": rows(torch.cat([p.new_zeros(1, num_slots), below])),
        "steps": steps,
    }
    return {**empty_trace(tokens, direction), "nodes": nodes, "memory": memory}


def read_distances(
    distances: Tensor,
    tokens: Sequence[str],
    *,
    names: Sequence[str] = (),
    decodings: Sequence[Decoding] = DECODINGS,
    temperature: float = 1.0,
    direction: ReadingDirection = "forward",
) -> Trace:
    """The trace of one sequence, from the distances of ON-LSTM or PRPN.

    It contains a tree for each layer and decoding. "cky", whose time and memory are O(T³), is left out if
    there are more than 800 tokens.

    Args:
        distances: d, (L, T), for L layers.
        tokens: the T tokens.
        names: names of the layers; by default "layer 1", …
        decodings: how `from_distances` reads trees; by default in all ways.
        temperature: temperature of "cky", in the unit of the distances.
        direction: "backward" if the layers read the sequence from its end.
    Returns:
        A trace with `layers`.
    Raises:
        TypeError: the distances are not a tensor, or a token or a name is not a string.
        ValueError: the distances are not (L, T) or not finite, there is not one name for each layer, the
            temperature is not positive, the direction or a decoding is unknown, or no decoding gives a tree.
    Example:
        >>> trace = read_distances(torch.tensor([[9.0, 1.0, 5.0]]), ["the", "cat", "sat"])
        >>> [node["children"] for node in trace["layers"][0]["trees"]["unbiased"]]
        [[0, 1], [3, 2]]
    """
    check_name("direction", direction, DIRECTIONS)
    check_tensor("distances", distances)
    if distances.dim() != 2 or distances.shape[1] != len(tokens) or len(tokens) == 0:
        raise ValueError(
            f"expected distances to be (L, T) with T = {len(tokens)} tokens, got {tuple(distances.shape)}"
        )
    d = distances.detach().to("cpu", torch.float64)
    if not bool(d.isfinite().all()):
        raise ValueError("expected distances to be finite, got NaN or infinity")
    names = list(names) or [f"layer {number}" for number in range(1, len(d) + 1)]
    check_words("names", names)
    if len(names) != len(d):
        raise ValueError(f"expected names of {len(d)} layers, got {names}")
    trees = {
        decoding: from_distances(
            distances,
            [len(tokens)] * len(d),  # without lengths, a layer whose last distance is 0 would seem padded
            decoding=decoding,
            temperature=temperature,
            batch_first=True,
            direction=direction,
        )
        for decoding in decodings
        if decoding != "cky" or len(tokens) <= LONGEST_CKY
    }
    if not trees:
        raise ValueError(f"expected decodings that give trees of {len(tokens)} tokens, got {list(decodings)}")
    is_float32_or_less = distances.is_floating_point() and distances.dtype != torch.float64
    numbers = (d.float() if is_float32_or_less else d).resolve_neg().numpy()
    # As few digits as tell numbers of float32, or of float64, apart: what differs must stay distinct.
    rows = [[_whole_as_int(float(str(number))) for number in row] for row in numbers]
    layers: list[Layer] = [
        {
            "name": name,
            "distances": values,
            "trees": {decoding: nodes_of(trees_of_layers[i]) for decoding, trees_of_layers in trees.items()},
        }
        for i, (name, values) in enumerate(zip(names, rows, strict=True))
    ]
    return {**empty_trace(tokens, direction), "layers": layers}


def read_tree(tree: Tree, tokens: Sequence[str]) -> Trace:
    """The trace of a sequence of which only the induced tree is known.

    Args:
        tree: tree over the tokens.
        tokens: the tokens.
    Returns:
        A trace with `nodes`.
    Raises:
        TypeError: not a tree, or a token is not a string.
        ValueError: not a tree over these tokens.
    Example:
        >>> trace = read_tree(((0, 1), 2), ["the", "cat", "sat"])
        >>> trace["nodes"][0]
        {'first': 0, 'last': 1, 'children': [0, 1]}
    """
    check_tokens(tree, tokens)
    return {**empty_trace(tokens), "nodes": nodes_of(tree)}


def empty_trace(tokens: Sequence[str], direction: ReadingDirection = "forward") -> Trace:
    """The trace of a sequence of which only the tokens are known.

    Args:
        tokens: the tokens.
        direction: "backward" if the sequence was read from its end.
    Returns:
        A trace to which an answer or a true tree may be added.
    Raises:
        TypeError: a token is not a string.
        ValueError: the direction is unknown.
    """
    check_name("direction", direction, DIRECTIONS)
    check_words("tokens", tokens)
    return {
        "tokens": list(tokens),
        "caption": "",
        "direction": direction,
        "words": list(range(len(tokens))),
    }


def add_true_tree(trace: Trace, tree: Tree, words: Sequence[int] | None = None) -> None:
    """Set a trace's true tree, and mark which induced constituents are in it.

    Args:
        trace: the trace; changed in place.
        tree: tree over the words.
        words: positions of the words among the tokens; None for all tokens.
    Raises:
        TypeError, ValueError: not a tree over the words, or the words are not among the tokens.
    Example:
        >>> trace = read_tree((0, (1, 2)), ["the", "cat", "sat"])
        >>> add_true_tree(trace, ((0, 1), 2))
        >>> [node["in_true_tree"] for node in trace["nodes"]]
        [False, True]
    """
    size = len(trace["tokens"])
    positions = [_position(i, word) for i, word in enumerate(range(size) if words is None else words)]
    if positions != sorted(set(positions) & set(range(size))):
        raise ValueError(
            f"expected words to be increasing positions in 0..{size - 1}, got {reprlib.repr(positions)}"
        )
    check_tokens(tree, positions, "words")
    trace["words"] = positions
    trace["true_nodes"] = nodes_of(tree, size, positions)
    true_spans = set(spans(tree))
    for nodes in induced_trees(trace):
        for node in nodes:
            first, after = bisect_left(positions, node["first"]), bisect_right(positions, node["last"])
            node["in_true_tree"] = (first, after - 1) in true_spans if after - first > 1 else None


def induced_trees(trace: Trace) -> list[list[Node]]:
    """The nodes of each tree that the model induces: one, one for each layer and decoding, or none.

    Args:
        trace: the trace.
    """
    of_layers = [nodes for layer in trace.get("layers", []) for nodes in layer["trees"].values()]
    return [trace["nodes"], *of_layers] if "nodes" in trace else of_layers


def _position(i: int, word: Any) -> int:
    """The i-th of the words, as an int."""
    position = integer_or_none(word)
    if position is None:
        raise TypeError(f"expected words to be integers, got words[{i}] = {word!r}")
    return position


def _whole_as_int(number: float) -> float:
    """A whole number as an integer, which is shorter in JSON."""
    return int(number) if number.is_integer() else number


def _checked_lengths(
    tokens: Sequence[Sequence[str]], lengths: Sequence[int] | Tensor | None, batch_size: int, longest: int
) -> list[int]:
    sizes = sequence_lengths(lengths, batch_size, longest)
    token_counts = [len(sequence_tokens) for sequence_tokens in tokens]
    if token_counts != sizes:
        raise ValueError(f"expected tokens of {batch_size} sequences of lengths {sizes}, got {token_counts}")
    return sizes
