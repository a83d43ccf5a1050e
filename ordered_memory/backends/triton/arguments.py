"""The arguments of the kernels besides the inputs: named tuples of tensors (inside a kernel, of pointers).

Axes as in `kernels`: W is D padded to a power of two. This file does not import Triton.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class KernelPlan(NamedTuple):
    """The compile-time constants of a kernel, each a `constexpr`.

    Args:
        BLOCK_M: number of sequences of a tile.
        WIDTH: W.
        BLOCK_SLOTS: N, rounded up to a power of two.
        BLOCK_K: number of terms that a matrix product adds at a time.
        BLOCK_N: maximum number of columns of a matrix product.
        NUM_STAGES: number of chunks of weights that are prefetched (pipeline stages).
        NORMALIZED: whether the score is the normalized one.
        HISTORY: 1 if the states of all steps are stored, else 0.
        SCORE_MASKS, CELL_MASKS: whether there is dropout in the score and in the cell.
    """

    BLOCK_M: Any
    WIDTH: Any
    BLOCK_SLOTS: Any
    BLOCK_K: Any
    BLOCK_N: Any
    NUM_STAGES: Any
    NORMALIZED: Any
    HISTORY: Any
    SCORE_MASKS: Any
    CELL_MASKS: Any


class Sizes(NamedTuple):
    """B, N, D before and after padding (W), and constants of the modules.

    W is also passed here, at run time: with a compile-time W, the compiler would unroll the loops of the
    matrix products and run out of registers for the addresses.
    """

    batch: Any
    slots: Any
    size: Any
    width: Any
    threshold: Any
    norm_epsilon: Any
    key_epsilon: Any


class Tape(NamedTuple):
    """What the forward kernel stores for the backward kernel. The last five are (T, B, N, ·).

    Args:
        memory, candidate: (T + 1, B, N, W), the initial state first.
        occupancy: (T + 1, B, N + 1), the initial state first.
        attention: p, (T, B, N).
        key_inputs: M̂[t-1] after dropout (W); None without dropout.
        keys: the score's map of `key_inputs` (W).
        cell_inputs: [M_i; M̂_{i-1}] after dropout (2W).
        hidden: hidden units of the cell, after dropout (4W).
        gates: gates, before the sigmoid, and update (4W).
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
    """Dropout masks, (T, B, N, ·) of any dtype, or None if nothing is dropped."""

    key: Any
    feature: Any
    memory: Any
    candidate: Any
    hidden: Any


class Gradients(NamedTuple):
    """The gradients that the backward kernel reads and writes.

    Args:
        output, attention: upstream gradients, (T, B, W) and (T, B, N).
        memory, candidate, occupancy: gradients of the state, (B, N, W) twice and (B, N + 1): of the final
            state before the kernel runs, of the initial state afterwards.
        inputs, queries: accumulated, (T, B, W).
        keys, hidden, gates: written, (T, B, N, ·): gradients of the results of the key map (W), of the cell's
            first map (4W) and of its second map (4W).
        vectors: accumulated, (B, 5, W): gradients of norm weight and bias, score_out, key norm weight and
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
    vectors: Any
