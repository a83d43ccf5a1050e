"""Implementations of ON-LSTM's loop over time, chosen by name. The definition is always among them.

A backend is a function with the signature and results of `onlstm.functional.run_recurrence`, and a reason why
it cannot run here (None when it can). Nothing outside a backend may depend on which one runs.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from onlstm.backends import native, sequence, triton_steps
from onlstm.functional import Recurrence, Weights, run_recurrence
from ordered_memory.backends import registry
from ordered_memory.backends.registry import Backend

RunRecurrence = Callable[..., Recurrence]

BACKENDS: dict[str, Backend[RunRecurrence]] = {
    "native": Backend(native.run_recurrence, native.why_not),
    "sequence": Backend(sequence.run_recurrence, sequence.why_not),
    "reference": Backend(run_recurrence, lambda *arguments: None),
    "triton": Backend(triton_steps.run_recurrence, triton_steps.why_not),
}
"""By name, in the order that "auto" tries them: fastest first. The Triton kernels come last, to be asked for
by name, because they have not run on a GPU yet."""


def select_backend(
    name: str, tokens: Tensor, weights: Weights, hidden: Tensor, cell: Tensor
) -> RunRecurrence:
    """The backend called `name`, or with "auto" the fastest that can run; see `registry.select`.

    Args:
        name: "auto" or a key of `BACKENDS`.
        tokens, weights, hidden, cell: of `run_recurrence`; their devices, dtypes and transforms decide.
    """
    return registry.select(name, BACKENDS, tokens, weights, hidden, cell)
