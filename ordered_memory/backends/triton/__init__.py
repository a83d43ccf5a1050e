"""The recurrence as two Triton kernels that run the whole loop on a GPU, as a PyTorch operator.

The queries, which depend only on the inputs, are computed before the loop, and every weight gradient after
it, each as one matrix product over all steps. For these products the forward pass saves 13 numbers (14 with
dropout in the score) and the backward pass 9 for each step, sequence, slot and feature; no product is
computed twice. If no gradient is needed, the same buffers hold a single step. Dropout masks are drawn for all
steps in advance, as one byte per entry, because the few programs that run the loop would be slowed down by
drawing them. The backward pass draws them again.

`torch.ops.ordered_memory.triton` is the forward pass, `torch.ops.ordered_memory.triton_backward` the backward
pass. Triton is imported when the kernels are first run, not with this module.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ordered_memory.backends import contract, module_checks
from ordered_memory.backends.operators import define, flatten
from ordered_memory.backends.triton.call import TritonImplementation
from ordered_memory.backends.triton.padding import LARGEST
from ordered_memory.backends.triton_support import why_no_triton
from ordered_memory.cells import GatedRecursiveCell
from ordered_memory.recurrence import Masks, Modules, RecurrenceOutput
from ordered_memory.state import OrderedMemoryState


def run_recurrence(
    inputs: Tensor,
    state: OrderedMemoryState,
    modules: Modules,
    lengths: Tensor | None = None,
    masks: Masks = None,
) -> RecurrenceOutput:
    """The recurrence with the loop over time inside one kernel; see `ordered_memory.memory.run_recurrence`.

    Products in the loop have bfloat16 operands under bfloat16 autocast, else float32 operands, also where
    PyTorch uses TensorFloat-32; sums in it are float32. The queries and the gradients of the matrices are
    products of PyTorch, which may use TensorFloat-32, and under autocast these gradients are rounded to
    bfloat16. Dropout masks differ from those of the definition with the same seed.
    """
    arguments = contract.prepare(inputs, state, modules, lengths, masks)
    output, *final, attention, _ = OPERATOR(*flatten(arguments), arguments.needs_backward())
    return RecurrenceOutput(output, OrderedMemoryState(*final), attention)


def why_not(inputs: Tensor, modules: Modules, state: OrderedMemoryState | None = None) -> str | None:
    """Why the kernels cannot run; see `ordered_memory.backends.module_checks.why_not`."""
    if (reason := why_no_triton(inputs.device)) is not None:
        return reason
    if inputs.shape[-1] > LARGEST:
        return f"slot_size must be at most {LARGEST}, got {inputs.shape[-1]}"
    if (reason := module_checks.why_not(inputs, modules, state, [GatedRecursiveCell])) is not None:
        return reason
    dtype = modules.cell.from_memory.weight.dtype
    if inputs.dtype != torch.float32 or dtype != torch.float32:
        return f"it takes float32 inputs and parameters, got {inputs.dtype} and {dtype}"
    return None


OPERATOR = define("ordered_memory::triton", TritonImplementation())
