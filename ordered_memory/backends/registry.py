"""Choosing among backends, for both models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from ordered_memory.checks import check_name

Run = TypeVar("Run")


class BackendError(RuntimeError):
    """The backend that was asked for by name cannot run here."""


class Backend(NamedTuple, Generic[Run]):
    """One way to run a recurrence.

    Args:
        run_recurrence: same signature, layout and results as the definition.
        why_not: for inputs and weights, why this backend cannot run on them, or None when it can.
    """

    run_recurrence: Run
    why_not: Callable[..., str | None]


def select(name: str, backends: Mapping[str, Backend[Run]], *inputs: Any) -> Run:
    """The backend called `name`, or with "auto" the first that can run.

    Args:
        name: "auto" or a key of `backends`.
        backends: by name, the fastest first.
        inputs: for `why_not`.
    Returns:
        The function that runs the recurrence.
    Raises:
        ValueError: the name is unknown.
        BackendError: the backend asked for by name cannot run on these inputs; says why.
    """
    check_name("backend", name, ["auto", *backends])
    if name != "auto":
        reason = backends[name].why_not(*inputs)
        if reason is not None:
            raise BackendError(f"backend {name!r} cannot run here: {reason}")
        return backends[name].run_recurrence
    return next(backend.run_recurrence for backend in backends.values() if backend.why_not(*inputs) is None)
