"""The recurrence in C, compiled for the CPU, as a PyTorch operator.

The sequences of a batch are independent. They are divided into shares, one for each thread, and a thread runs
the forward or the backward pass of its share without waiting for the others: see `recurrence.c`. Only active
slots (→π_i > 0) are computed.

Each pass packs the weight matrices once (`runtime/gemm.h`). There are two exceptions: MKL's bfloat16 products
read the matrices as they are, and so does the forward pass of a call with at most four tokens (T · B) and
without bfloat16 operands, which sums in a different order. Apart from these two, the rest of the batch cannot
change the result of a sequence for given x̃ and queries. (PyTorch computes these for the whole batch.)

A wheel contains the compiled code. From a checkout it is compiled when first needed, into the user's cache
directory. With neither a wheel nor a compiler this backend cannot run, and "auto" selects another one.

`torch.ops.ordered_memory.native` is the forward pass, `torch.ops.ordered_memory.native_backward` the backward
pass. The forward operator returns all that the backward operator needs besides its arguments, among it the
number of shares, so that the backward pass does not depend on global state such as the number of threads.

Under bfloat16 autocast, matrix products have bfloat16 operands if the processor supports it and D is even,
with MKL if it has AMX. Sums and all other operations keep the dtype of the parameters.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ordered_memory.backends import contract, module_checks
from ordered_memory.backends.native import call
from ordered_memory.backends.operators import define, flatten
from ordered_memory.backends.runtime.build import why_not_loaded
from ordered_memory.backends.runtime.processor import warn_float32_products
from ordered_memory.cells import GatedRecursiveCell
from ordered_memory.modes import assume_constant_result, autocast_dtype
from ordered_memory.recurrence import Masks, Modules, RecurrenceOutput
from ordered_memory.state import OrderedMemoryState


def run_recurrence(
    inputs: Tensor,
    state: OrderedMemoryState,
    modules: Modules,
    lengths: Tensor | None = None,
    masks: Masks = None,
) -> RecurrenceOutput:
    """The recurrence in C; see `ordered_memory.memory.run_recurrence`.

    Dropout masks differ from those of the definition with the same seed.
    """
    bfloat16 = autocast_dtype(inputs.device) == torch.bfloat16
    if bfloat16 and not multiplies_bfloat16():
        if inputs.dtype == torch.float32:
            warn_float32_products()
        bfloat16 = False
    arguments = contract.prepare(inputs, state, modules, lengths, masks, bfloat16)
    shares = min(_num_threads(), inputs.shape[1])
    flat_inputs = flatten(call.Inputs(arguments, shares))
    output, *final, attention, _ = OPERATOR(*flat_inputs, arguments.needs_backward())
    return RecurrenceOutput(output, OrderedMemoryState(*final), attention)


def why_not(inputs: Tensor, modules: Modules, state: OrderedMemoryState | None = None) -> str | None:
    """Why this backend cannot run; see `ordered_memory.backends.module_checks.why_not`."""
    if inputs.device.type not in ("cpu", "meta"):
        return f"it runs on a CPU, the inputs are on {inputs.device.type}"
    if (reason := module_checks.why_not(inputs, modules, state, [GatedRecursiveCell])) is not None:
        return reason
    dtype = modules.cell.from_memory.weight.dtype
    if dtype not in (torch.float32, torch.float64):
        return f"its parameters must all be float32 or all float64, not {dtype}"
    return _why_not_loaded(dtype)


@assume_constant_result
def multiplies_bfloat16() -> bool:
    """Whether this backend runs here and uses bfloat16 products under autocast."""
    return call.bf16_method_here() is not None


@assume_constant_result
def _num_threads() -> int:
    """The number of threads, a constant in captured graphs. If there are fewer, some run several shares."""
    return torch.get_num_threads()


@assume_constant_result  # here, because PyTorch 2.8 cannot pass a path to such a function
def _why_not_loaded(dtype: torch.dtype) -> str | None:
    return why_not_loaded(call.SOURCE, dtype)


OPERATOR = define("ordered_memory::native", call.NativeImplementation(), "cpu")
