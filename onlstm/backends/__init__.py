"""Backends: implementations of ON-LSTM's loop over time, selected by name. "reference" is the definition.

A backend is a function with the signature and results of `onlstm.functional.run_recurrence`, and a function
that says why the backend cannot run (None if it can). No code outside a backend may depend on which one runs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from onlstm.backends import native, sequence, triton_steps
from onlstm.functional import RecurrenceOutput, Weights, run_recurrence
from ordered_memory.backends import registry
from ordered_memory.backends.operators import why_not_wrapped
from ordered_memory.backends.registry import Backend

RunRecurrence = Callable[..., RecurrenceOutput]

BACKENDS: dict[str, Backend[RunRecurrence]] = {
    "native": Backend(native.run_recurrence, native.why_not),
    "triton": Backend(triton_steps.run_recurrence, triton_steps.why_not, device_type="cuda"),
    "sequence": Backend(sequence.run_recurrence, sequence.why_not),
    "reference": Backend(run_recurrence, lambda *arguments: None),
}
"""All backends by name, in the order in which "auto" tries them: fastest first.

On a CPU Triton's kernels would only be interpreted, so "auto" selects them only on a GPU.
"""


def select_backend(
    name: str, tokens: Tensor, weights: Weights, hidden: Tensor, cell: Tensor
) -> RunRecurrence:
    """Select a backend by name, or with "auto" the fastest that can run; see `registry.select`.

    A warning is logged, once for each type of weight, if "auto" selects "reference" because a weight wraps
    other tensors.

    Args:
        name: "auto" or a key of `BACKENDS`.
        tokens, weights, hidden, cell: arguments of `run_recurrence`; their devices and dtypes, and active
            `torch.func` transforms, determine which backends can run.
    """
    run = registry.select(name, BACKENDS, tokens, weights, hidden, cell)
    if name == "auto" and run is run_recurrence and not torch.compiler.is_compiling():
        registry.warn_of_reference(why_not_wrapped(*weights))
    return run
