"""Implementations of the loop over time, chosen by name. The definition is always among them.

An engine is a function with the signature and results of `ordered_memory.memory.run_recurrence`, and a
reason why it cannot run here (None when it can): see `contract`. Nothing outside an engine may depend on
which one runs.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ordered_memory.backends import native, registry, sequence, triton
from ordered_memory.backends.contract import MemoryRecurrence, Modules
from ordered_memory.backends.registry import Backend, explain
from ordered_memory.memory import run_recurrence

__all__ = ["BACKENDS", "RunRecurrence", "explain", "select_backend"]

RunRecurrence = Callable[..., MemoryRecurrence]

BACKENDS: dict[str, Backend[RunRecurrence]] = {
    "native": Backend(native.run_recurrence, native.why_not),
    "sequence": Backend(sequence.run_recurrence, sequence.why_not),
    "reference": Backend(run_recurrence, lambda inputs, modules: None),
    "triton": Backend(triton.run_recurrence, triton.why_not),
}
"""By name, in the order that "auto" tries them: fastest first. The Triton kernels come last, to be asked for
by name, because they have not run on a GPU yet."""


def select_backend(name: str, inputs: Tensor, modules: Modules) -> RunRecurrence:
    """The backend called `name`, or with "auto" the fastest that can run; see `registry.select`.

    Args:
        name: "auto" or a key of `BACKENDS`.
        inputs: the projected inputs, (T, B, D); their device and dtype decide.
        modules: the learned ones.
    """
    return registry.select(name, BACKENDS, inputs, modules)
