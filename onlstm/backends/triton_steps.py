"""The recurrence for a GPU, with all elementwise operations of a step in one Triton kernel.

A step, forward or backward, is a cuBLAS matrix product and one kernel launch. A program of the kernel
computes one sequence. Its units are an M × C tile, over which a master gate, a column of M entries, is
broadcast.

Triton is imported when the kernels are first run, not with this module.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from onlstm.backends import contract
from onlstm.backends.loop import Loop, Saved, StepGradients
from onlstm.functional import Weights
from ordered_memory.backends.operators import define
from ordered_memory.backends.triton_support import check_triton, on_device, why_no_triton

LARGEST = 16_384
"""Maximum number of units, with M and C rounded up to powers of two."""


def why_not(tokens: Tensor, weights: Weights, hidden: Tensor, cell: Tensor) -> str | None:
    """Why the kernels cannot run; see `onlstm.backends.contract.why_not`."""
    reason = why_no_triton(tokens.device) or why_no_triton(weights.weight_hh.device)
    if reason is not None:
        return reason
    if weights.weight_hh.dtype not in (torch.float32, torch.float64):
        return f"its parameters must be float32 or float64, not {weights.weight_hh.dtype}"
    rows, hidden_size = weights.weight_hh.shape
    master_size = (rows - 4 * hidden_size) // 2
    if master_size > 0 and math.prod(_blocks(hidden_size, master_size)) > LARGEST:
        return f"it takes at most {LARGEST} units, with M and C rounded up to powers of two"
    return contract.why_not(tokens, weights, hidden, cell)


def _forward_step(preactivations: Tensor, previous_cell: Tensor, saved: Saved, output: Tensor) -> None:
    """`loop.ForwardStep` as one kernel."""
    from onlstm.backends.triton_kernels import forward_kernel

    sizes, options = _plan(saved)
    with on_device(preactivations):
        forward_kernel[(len(preactivations),)](
            preactivations, previous_cell, *saved, output, *sizes, **options
        )


def _backward_step(saved: Saved, previous_cell: Tensor, gradients: StepGradients) -> None:
    """`loop.BackwardStep` as one kernel."""
    from onlstm.backends.triton_kernels import backward_kernel

    sizes, options = _plan(saved)
    with on_device(previous_cell):
        backward_kernel[(len(previous_cell),)](*saved, previous_cell, *gradients, *sizes, **options)


def _plan(saved: Saved) -> tuple[tuple[int, ...], dict[str, int]]:
    """The arguments H, M, C, BLOCK_MASTER and BLOCK_CHUNK of the kernels, and their launch options."""
    hidden_size, master_size = saved.cells.shape[1], saved.softmax.shape[2]
    blocks = _blocks(hidden_size, master_size)
    # Without `enable_fp_fusion`, Triton 3.9 warns that 3.10 will not fuse products and sums.
    options = {"num_warps": min(16, max(1, math.prod(blocks) // 256)), "enable_fp_fusion": True}
    return (hidden_size, master_size, hidden_size // master_size, *blocks), options


def _blocks(hidden_size: int, master_size: int) -> list[int]:
    """M and C, rounded up to powers of two."""
    return [1 << (size - 1).bit_length() for size in (master_size, hidden_size // master_size)]


class _Triton(Loop):
    def check(self, inputs: contract.Inputs) -> None:
        super().check(inputs)
        check_triton(inputs.tokens.device)


OPERATOR = define("onlstm::triton", _Triton(_forward_step, _backward_step))
run_recurrence = partial(contract.run, OPERATOR)
