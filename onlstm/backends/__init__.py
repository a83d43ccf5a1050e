"""Implementations of ON-LSTM's loop over time, chosen by name. The definition is always among them.

A backend is a function with the signature and results of `onlstm.functional.recur`, and a reason why it
cannot run here (None when it can). Nothing outside a backend may depend on which one runs.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from onlstm.backends import native, sequence, triton_steps
from onlstm.functional import Recurrence, recur
from ordered_memory.backends import registry
from ordered_memory.backends.registry import Backend

Recur = Callable[..., Recurrence]

BACKENDS: dict[str, Backend[Recur]] = {
    "native": Backend(native.recur, native.why_not),
    "sequence": Backend(sequence.recur, lambda tokens, weight: None),
    "reference": Backend(recur, lambda tokens, weight: None),
    "triton": Backend(triton_steps.recur, triton_steps.why_not),
}
"""By name, in the order that "auto" tries them: fastest first. The Triton kernels come last, to be asked for
by name, because they have not run on a GPU yet."""


def check_backend(name: str) -> None:
    """Raise a ValueError unless `name` is "auto" or a known backend."""
    registry.check(name, BACKENDS)


def select_backend(name: str, tokens: Tensor, weight: Tensor) -> Recur:
    """The backend called `name`, or with "auto" the fastest that can run; see `registry.select`.

    Args:
        name: "auto" or a key of `BACKENDS`.
        tokens: (P, features); device and dtype decide.
        weight: (4H + 2M, H).
    """
    return registry.select(name, BACKENDS, tokens, weight)
