"""The distances that trees are read off.

Axes: L layers, D directions, T steps, B batch, M master-gate entries, P packed tokens.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Distances(NamedTuple):
    """The forget and input distances of every token, layer and direction; of `ONLSTMCell`, of one token.

    ON-LSTM, equation (15): `d̂ = M - Σ_k f̃_k`, in master-gate entries, and likewise for ĩ. A large forget
    distance means that a constituent ends before the token, a large input distance that little is written.
    (In the authors' code distances are divided by M, and the input distance is `Σ_k ĩ_k / M`.) If the input
    is a PackedSequence, the distances are packed in the same way, (L · D, P).

    In a bidirectional layer, row 2 · layer + direction is for one layer and direction, as in h_n. Read trees
    off the rows of the backward direction with `from_distances(…, direction="backward")`.

    Args:
        forget: (L · D, T, B), or (L · D, B, T) with `batch_first`, or (L · D, T) without a batch axis; of
            `ONLSTMCell` (B,), or () without a batch axis; values in [0, M].
        input: the same shape and range.
    """

    forget: Tensor
    input: Tensor
