"""What the kernels are called with besides the inputs: named tuples of tensors, inside a kernel of pointers.

Axes as in `kernels`: W is D padded to a power of two. This file imports no Triton.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class KernelPlan(NamedTuple):
    """What a kernel is compiled for, each a `constexpr`.

    Args:
        ROWS: sequences of a tile.
        WIDTH: W.
        SLOTS: N, rounded up to a power of two.
        CHUNK: inner size of one step of a product.
        COLUMNS: largest outer size of a product.
        STAGES: chunks of weights on their way at a time.
        NORMALIZED: the score is the normalized one.
        PRECISION: of products of float32 operands.
        HISTORY: 1 if the states of all steps are kept, else 0.
        SCORE_MASKS, CELL_MASKS: whether there is dropout.
    """

    ROWS: Any
    WIDTH: Any
    SLOTS: Any
    CHUNK: Any
    COLUMNS: Any
    STAGES: Any
    NORMALIZED: Any
    PRECISION: Any
    HISTORY: Any
    SCORE_MASKS: Any
    CELL_MASKS: Any


class Sizes(NamedTuple):
    """Numbers: B, N, D before padding and after (W), and constants of the modules.

    W is here, too, because the compiler does not know this one: it would unroll the loops of products and run
    out of registers for their addresses.
    """

    batch: Any
    slots: Any
    size: Any
    width: Any
    threshold: Any
    norm_epsilon: Any
    key_epsilon: Any


class Tape(NamedTuple):
    """What the forward kernel leaves for the reverse one.

    Args:
        memory, candidate: (T + 1, B, N, W), the initial state first.
        occupancy: (T + 1, B, N + 1), likewise.
        attention: p, (T, B, N).
        key_inputs: M̂[t-1] after dropout, for each pair (W); None without dropout.
        keys: what the score's key map makes of it (W).
        joined: [M_i; M̂_{i-1}] after dropout (2W).
        hidden: of the cell, after dropout (4W).
        gates: and update, before the sigmoid (4W).
    """

    memory: Any
    candidate: Any
    occupancy: Any
    attention: Any
    key_inputs: Any
    keys: Any
    joined: Any
    hidden: Any
    gates: Any


class DropoutMasks(NamedTuple):
    """Masks (T, B, N, ·) of any dtype, or None where nothing is dropped."""

    key: Any
    feature: Any
    memory: Any
    candidate: Any
    hidden: Any


class Gradients(NamedTuple):
    """What the backward kernel reads and writes.

    Args:
        output, attention: read, (T, B, W) and (T, B, N).
        memory, candidate, occupancy: of a sequence's last state; step by step they become those of its
            initial state. (B, N, W) twice and (B, N + 1).
        inputs, query: added to, (T, B, W).
        keys, hidden, gates: written for each pair: of the results of the key map (W), of the cell's first
            map (4W) and of its second (4W).
        vectors: added to, (B, 5, W): of norm weight and bias, score, key norm weight and bias.
    """

    output: Any
    attention: Any
    memory: Any
    candidate: Any
    occupancy: Any
    inputs: Any
    query: Any
    keys: Any
    hidden: Any
    gates: Any
    vectors: Any
