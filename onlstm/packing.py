"""The order of sequences and tokens in a packed batch; see also `ordered_memory.packing`.

Axes: B batch, T time, P tokens of a packed batch, H hidden units, L layers, D directions.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onlstm.parameters import State
from ordered_memory.devices import copy_to


def reorder(state: State | None, order: Tensor | None) -> Any:
    """Reorder the sequences of a state.

    Args:
        state: (h, c), (L · D, B, H) each, or None.
        order: the index of each sequence of the result, (B,); None to keep the order.
    """
    if state is None or order is None:
        return state
    return state[0].index_select(1, order), state[1].index_select(1, order)


def reversal_of(batch_sizes: Tensor, tokens: Tensor) -> Tensor:
    """The permutation of packed tokens that reverses every sequence within its own length, (P,).

    Args:
        batch_sizes: number of tokens of each step, on the CPU.
        tokens: packed tokens, (P, ·), for their number and device.
    """
    count, steps = tokens.shape[0], batch_sizes.shape[0]
    starts = batch_sizes.cumsum(0) - batch_sizes
    t = torch.arange(steps, device="cpu").repeat_interleave(batch_sizes, output_size=count)
    row = torch.arange(count, device="cpu") - starts[t]
    # The sequence in row r has a token at every step with a batch size above r.
    lengths = steps - torch.searchsorted(batch_sizes.flip(0), row, right=True)
    return copy_to(starts[lengths - 1 - t] + row, tokens.device)
