"""Implementations of the loop over time, chosen by name. The definition is always among them.

A backend is a function with the signature and results of `ordered_memory.memory.recur`, and a reason
why it cannot run here (None when it can). Nothing outside a backend may depend on which one runs.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ordered_memory.backends import native, registry, sequence, triton_recurrence
from ordered_memory.backends.registry import Backend
from ordered_memory.memory import Maps, Recurrence, recur

Recur = Callable[..., Recurrence]

BACKENDS: dict[str, Backend[Recur]] = {
    "native": Backend(native.recur, native.why_not),
    "sequence": Backend(sequence.recur, sequence.why_not),
    "reference": Backend(recur, lambda inputs, maps: None),
    "triton": Backend(triton_recurrence.recur, triton_recurrence.why_not),
}
"""By name, in the order that "auto" tries them: fastest first. The Triton kernels come last, to be asked for
by name, because they have not run on a GPU yet."""


def check_backend(name: str) -> None:
    """Raise a ValueError unless `name` is "auto" or a known backend."""
    registry.check(name, BACKENDS)


def select_backend(name: str, inputs: Tensor, maps: Maps) -> Recur:
    """The backend called `name`, or with "auto" the fastest that can run; see `registry.select`.

    Args:
        name: "auto" or a key of `BACKENDS`.
        inputs: the projected inputs, (T, B, D); their device and dtype decide.
        maps: the learned maps.
    """
    return registry.select(name, BACKENDS, inputs, maps)
