"""Backends: implementations of the loop over time, selected by name. "reference" is the definition.

A backend is a function with the signature and results of `ordered_memory.memory.run_recurrence`, and a
function that says why the backend cannot run (None if it can); see `contract`. No code outside a backend may
depend on which backend runs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ordered_memory.backends import native, registry, sequence, triton
from ordered_memory.backends.module_checks import unsupported_module_reason
from ordered_memory.backends.registry import Backend, explain
from ordered_memory.memory import run_recurrence
from ordered_memory.recurrence import Modules, RecurrenceOutput
from ordered_memory.state import OrderedMemoryState

__all__ = ["BACKENDS", "RunRecurrence", "explain", "select_backend"]

RunRecurrence = Callable[..., RecurrenceOutput]

BACKENDS: dict[str, Backend[RunRecurrence]] = {
    "native": Backend(native.run_recurrence, native.why_not),
    "triton": Backend(triton.run_recurrence, triton.why_not, device_type="cuda"),
    "sequence": Backend(sequence.run_recurrence, sequence.why_not),
    "reference": Backend(run_recurrence, lambda inputs, modules, state=None: None),
}
"""All backends by name, in the order in which "auto" tries them: fastest first.

On a CPU Triton's kernels would only be interpreted, so "auto" selects them only on a GPU.
"""


def select_backend(
    name: str, inputs: Tensor, modules: Modules, state: OrderedMemoryState | None = None
) -> RunRecurrence:
    """Select a backend by name, or with "auto" the fastest that can run; see `registry.select`.

    A warning is logged, once for each reason, if "auto" selects "reference" because of a hook, a patch, a
    replaced module or a parametrization.

    Args:
        name: "auto" or a key of `BACKENDS`.
        inputs: x̃, (T, B, D), on whose device and dtype the selection depends.
        modules: score, cell and LayerNorm.
        state: initial state; None if it is empty.
    """
    run = registry.select(name, BACKENDS, inputs, modules, state)
    if name == "auto" and run is run_recurrence and not torch.compiler.is_compiling():
        registry.warn_of_reference(unsupported_module_reason(inputs, modules))
    return run
