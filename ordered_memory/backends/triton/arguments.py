"""The arguments of the kernels besides the inputs: named tuples of tensors (inside a kernel, of pointers).

Axes as in `kernels_shared`: P is D padded to a multiple of 16. This file does not import Triton.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Block(NamedTuple):
    """How a matrix product is divided, in compile-time constants.

    Args:
        terms: number of terms that are added at a time.
        columns: number of columns that are computed at a time.
    """

    terms: Any
    columns: Any


class KernelPlan(NamedTuple):
    """The compile-time constants of a kernel.

    Args:
        PADDED: P.
        WIDTH: entries of a block of features, P rounded up to a power of two.
        BLOCK_SLOTS: N, rounded up to a power of two.
        ROWS: number of sequences of a program.
        TEAM: number of programs of a team.
        SLOT_ROWS: number of slots of a sequence that are read at a time, outside the cell.
        ARRIVALS_STRIDE: distance of the counters of two teams, in entries.
        KEY: blocks of the product with the key map.
        FIRST, SECOND: blocks of the two products of the cell, in the order in which the kernel computes them.
        NUM_STAGES: pipeline stages of a product.
        NORMALIZED: whether the score is the normalized one.
        HISTORY: 1 if the states of all steps are stored, else 0.
        SCORE_MASKS, CELL_MASKS: whether there is dropout in the score and in the cell.
    """

    PADDED: Any
    WIDTH: Any
    BLOCK_SLOTS: Any
    ROWS: Any
    TEAM: Any
    SLOT_ROWS: Any
    ARRIVALS_STRIDE: Any
    KEY: Block
    FIRST: Block
    SECOND: Block
    NUM_STAGES: Any
    NORMALIZED: Any
    HISTORY: Any
    SCORE_MASKS: Any
    CELL_MASKS: Any


class Sizes(NamedTuple):
    """The first team of a launch, B, N, D, P (`padded`), and constants of the modules.

    P is also passed here, at run time: with a compile-time P, the compiler would unroll the loops of the
    matrix products and run out of registers for the addresses.
    """

    first_team: Any
    batch: Any
    slots: Any
    size: Any
    padded: Any
    threshold: Any
    norm_epsilon: Any
    key_epsilon: Any


class Tape(NamedTuple):
    """What the forward kernel stores for the backward kernel. The last five are (T, B, N, ·).

    Args:
        memory, candidate: (T + 1, B, N, P), the initial state first.
        occupancy: (T + 1, B, N + 1), the initial state first.
        attention: p, (T, B, N).
        key_inputs: M̂[t-1] after dropout (P); None without dropout.
        keys: the score's map of `key_inputs` (P).
        cell_inputs: [M_i; M̂_{i-1}] after dropout (2P).
        hidden: hidden units of the cell, after dropout (4P).
        gates: gates, before the sigmoid, and update (4P).
    """

    memory: Any
    candidate: Any
    occupancy: Any
    attention: Any
    key_inputs: Any
    keys: Any
    cell_inputs: Any
    hidden: Any
    gates: Any


class DropoutMasks(NamedTuple):
    """Dropout masks, (T, B, N, ·) of any dtype.

    The two of the score are None if it drops nothing, and so are the three of the cell.
    """

    key: Any
    feature: Any
    memory: Any
    candidate: Any
    hidden: Any


class Gradients(NamedTuple):
    """The gradients that the backward kernel reads and writes.

    Args:
        output, attention: upstream gradients, (T, B, P) and (T, B, N). The latter is overwritten.
        memory, candidate, occupancy: gradients of the state, (B, N, P) twice and (B, N + 1): of the final
            state before the kernel runs, of the initial state afterwards.
        inputs, queries: accumulated, (T, B, P).
        keys, hidden, gates: written, (T, B, N, ·): gradients of the results of the key map (P), of the cell's
            first map (4P) and of its second map (4P).
        cell_inputs: (B, 2P): those of [M_i; M̂_{i-1}] after dropout, of one step and slot at a time.
        vectors: accumulated, (B, 5, P): gradients of norm weight and bias, score_out, key norm weight and
            bias.
    """

    output: Any
    attention: Any
    memory: Any
    candidate: Any
    occupancy: Any
    inputs: Any
    queries: Any
    keys: Any
    hidden: Any
    gates: Any
    cell_inputs: Any
    vectors: Any
