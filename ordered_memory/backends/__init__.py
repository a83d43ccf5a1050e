"""Implementations of the loop over time, chosen by name. The definition is always among them.

A backend is a function with the signature and results of `ordered_memory.memory.recur`, and a reason
why it cannot run here (None when it can). Nothing outside a backend may depend on which one runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from ordered_memory.backends import native, sequence, triton_recurrence
from ordered_memory.memory import Maps, Recurrence, recur

Recur = Callable[..., Recurrence]


class Backend(NamedTuple):
    """One way to run the recurrence.

    Args:
        recur: same signature, layout and results as `ordered_memory.memory.recur`.
        why_not: for (T, B, D) inputs and the learned maps, why this backend cannot run on them, or None
            when it can.
    """

    recur: Recur
    why_not: Callable[[Tensor, Maps], str | None]


BACKENDS: dict[str, Backend] = {
    "native": Backend(native.recur, native.why_not),
    "sequence": Backend(sequence.recur, sequence.why_not),
    "reference": Backend(recur, lambda inputs, maps: None),
    "triton": Backend(triton_recurrence.recur, triton_recurrence.why_not),
}
"""By name, in the order that "auto" tries them: fastest first. The Triton kernels come last, to be asked for
by name, because they have not run on a GPU yet."""


def check_backend(name: str) -> None:
    """Raise a ValueError unless `name` is "auto" or a known backend."""
    if name != "auto" and name not in BACKENDS:
        raise ValueError(f"backend must be one of {['auto', *BACKENDS]}, got {name!r}")


def select_backend(name: str, inputs: Tensor, maps: Maps) -> Recur:
    """The backend called `name`, or with "auto" the fastest that can run on `inputs`.

    Args:
        name: "auto" or a key of `BACKENDS`.
        inputs: the projected inputs, (T, B, D); their device and dtype decide.
        maps: the learned maps.
    Returns:
        The function that runs the recurrence.
    Raises:
        ValueError: the name is unknown.
        RuntimeError: the backend asked for by name cannot run on these inputs; says why.
    """
    check_backend(name)
    if name != "auto":
        reason = BACKENDS[name].why_not(inputs, maps)
        if reason is not None:
            raise RuntimeError(f"backend {name!r} cannot run here: {reason}")
        return BACKENDS[name].recur
    return next(backend.recur for backend in BACKENDS.values() if backend.why_not(inputs, maps) is None)
