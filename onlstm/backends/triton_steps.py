"""The recurrence with all that lies between two products in one kernel, for a GPU.

A step is a product of cuBLAS and one launch, forwards and backwards. A program has one sequence; its units
are a tile of M × C, over whose other axis a master gate, a column, is spread.

Triton is imported when the kernels are first run, not with this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from onlstm.backends import contract
from onlstm.backends.loop import Loop
from onlstm.functional import Recurrence, Weights
from ordered_memory.backends.devices import why_no_triton

LARGEST = 16_384
"""Units of a program, M and C rounded up to powers of two."""


def why_not(tokens: Tensor, weights: Weights, hidden: Tensor, cell: Tensor) -> str | None:
    """Why the kernels cannot run; see `onlstm.backends.contract.why_not`."""
    if (reason := why_no_triton(tokens) or why_no_triton(weights.recurrent)) is not None:
        return reason
    if weights.recurrent.dtype not in (torch.float32, torch.float64):
        return f"its parameters must be float32 or float64, not {weights.recurrent.dtype}"
    return contract.why_not(tokens, weights, hidden, cell)


def run_recurrence(
    tokens: Tensor,
    batch_sizes: Sequence[int] | Tensor,
    weights: Weights,
    hidden: Tensor,
    cell: Tensor,
    chunk_size: int,
) -> Recurrence:
    """Run the recurrence with Triton kernels; see `onlstm.functional.run_recurrence`.

    Raises:
        ValueError: more units than a program can have.
    """
    return contract.run(OPERATOR, tokens, batch_sizes, weights, hidden, cell, chunk_size)


class _Fused:
    """`loop.Steps` as two kernels."""

    def __init__(self, hidden_size: int, chunk_size: int) -> None:
        self.sizes = hidden_size, hidden_size // chunk_size, chunk_size
        self.blocks = _power_of_two(self.sizes[1]), _power_of_two(chunk_size)
        if self.blocks[0] * self.blocks[1] > LARGEST:
            raise ValueError(
                f"backend 'triton' takes at most {LARGEST} units, got hidden_size={hidden_size} with "
                f"chunk_size={chunk_size}, which it rounds up to {self.blocks[0]} × {self.blocks[1]}"
            )
        self.warps = min(16, max(1, self.blocks[0] * self.blocks[1] // 256))

    def forward(
        self, units: Tensor, before: Tensor, kept: Tensor, softmax: Tensor, cells: Tensor, output: Tensor
    ) -> None:
        tensors = (units, before, kept, softmax, cells, output)
        _kernels().forward_kernel[(len(units),)](*tensors, *self.sizes, *self.blocks, num_warps=self.warps)

    def backward(
        self,
        kept: Tensor,
        softmax: Tensor,
        cells: Tensor,
        before: Tensor,
        d_hidden: Tensor,
        d_output: Tensor | None,
        d_cell: Tensor,
        d_distances: Sequence[Tensor | None],
        d_gates: Tensor,
    ) -> None:
        tensors = (kept, softmax, cells, before, d_hidden, d_output, d_cell, *d_distances, d_gates)
        _kernels().backward_kernel[(len(kept),)](*tensors, *self.sizes, *self.blocks, num_warps=self.warps)


@cache
def _kernels() -> Any:
    from onlstm.backends import triton_kernels

    return triton_kernels


def _power_of_two(size: int) -> int:
    """The next one."""
    return 1 << (size - 1).bit_length()


OPERATOR = contract.define_operator("triton", Loop(_Fused))
