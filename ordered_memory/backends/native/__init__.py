"""The recurrence compiled for the CPU it runs on, as an operator of PyTorch.

Sequences are independent, so every thread takes a share of them from the first token to the last and back,
without waiting for the others: see `recurrence.c`. Only active slots (→π_i > 0) are computed, and no
interpreter stands between the operations on a slot. Matrices are packed once for a call (`runtime/packed.h`),
and batch-mates do not change a sequence's result by a single bit.
A wheel has the C compiled; from a checkout it is compiled when it is first needed, into the user's cache
directory. With neither a wheel's library nor a compiler this engine cannot run, and "auto" does without it.

`torch.ops.ordered_memory.native` is the loop over time, `…native_backward` its backward pass. What the second
needs besides the arguments is among the outputs of the first, and the number of shares is an argument of
both, so the backward pass does not depend on global state such as the number of threads.

Under bfloat16 autocast products take bfloat16 operands on processors that multiply such numbers, by MKL where
there is AMX; sums and all else stay in the dtype of the parameters.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ordered_memory.backends import contract, module_checks
from ordered_memory.backends.contract import MemoryRecurrence, OrderedMemoryState
from ordered_memory.backends.native import call
from ordered_memory.backends.operators import define, flatten
from ordered_memory.backends.runtime.processor import warn_float32_products
from ordered_memory.backends.tracing import constant
from ordered_memory.cells import GatedRecursiveCell


def run_recurrence(
    inputs: Tensor,
    state: OrderedMemoryState,
    modules: contract.Modules,
    lengths: Tensor | None = None,
    masks: contract.Masks = None,
) -> MemoryRecurrence:
    """`ordered_memory.memory.run_recurrence`, several times faster.

    From the same seed, dropout sampled here differs from the definition's.

    Args:
        inputs: x̃, (T, B, D).
        state: before the first token.
        modules: the learned ones.
        lengths: tokens in each sequence, (B,) int64, 0 or more, or None when none is padded.
        masks: dropout masks of each step, or the sampler of them.
    Returns:
        Outputs (T, B, D), final state, attention (T, B, N).
    """
    arguments = contract.prepare(inputs, state, modules, lengths, masks)
    if arguments.bfloat16 and not multiplies_bfloat16():
        if inputs.dtype == torch.float32:
            warn_float32_products()
        arguments = arguments._replace(bfloat16=False)
    shares = min(_num_threads(), inputs.shape[1])
    *results, _ = OPERATOR(*flatten(call.Pass(arguments, shares)), arguments.needs_grad())
    output, memory, candidate, occupancy, attention = results
    return MemoryRecurrence(output, OrderedMemoryState(memory, candidate, occupancy), attention)


def why_not(inputs: Tensor, modules: contract.Modules) -> str | None:
    """Why this engine cannot run; see `ordered_memory.backends.module_checks.why_not`."""
    if inputs.device.type not in ("cpu", "meta"):
        return f"it runs on a CPU, the inputs are on {inputs.device.type}"
    if (reason := module_checks.why_not(inputs, modules, [GatedRecursiveCell])) is not None:
        return reason
    dtype = modules.cell.from_memory.weight.dtype
    if dtype not in (torch.float32, torch.float64):
        return f"its parameters must all be float32 or all float64, not {dtype}"
    return _why_not_compiled(dtype)


@constant
def multiplies_bfloat16() -> bool:
    """Whether this engine runs here and takes bfloat16 operands under autocast."""
    return call.bfloat16_products() is not None


@constant
def _num_threads() -> int:
    """The number when a graph is captured; with fewer threads at run time, a thread takes several shares."""
    return torch.get_num_threads()


@constant
def _why_not_compiled(dtype: torch.dtype) -> str | None:
    library = call.compiled(dtype)
    return library if isinstance(library, str) else None


OPERATOR = define("ordered_memory::native", call.NativeImplementation(), "cpu")
