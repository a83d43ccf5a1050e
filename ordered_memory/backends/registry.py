"""Choosing among backends, and saying why, for both models."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import nn

from ordered_memory.checks import check_name

Run = TypeVar("Run")

logger = logging.getLogger(__name__)
_explanations: ContextVar[list[str] | None] = ContextVar("_explanations", default=None)


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


def explain(layer: nn.Module, x: Any) -> str:
    """Which backends can run a layer on an input, which one does, and why the others do not.

    The layer is called once, without gradients; random numbers drawn meanwhile are not missed later. In
    training mode this changes what calls change, such as the statistics of BatchNorm. The same is logged for
    every call at level DEBUG, by the logger `ordered_memory.backends.registry`.

    Args:
        layer: an `OrderedMemory`, an `ONLSTM`, or a model that has some.
        x: input of the layer.
    Returns:
        A line for each backend. Where directions or layers differ, the lines of each of them.
    Raises:
        TypeError: no such layer was called.
    Example:
        >>> from ordered_memory import OrderedMemory
        >>> layer = OrderedMemory(16, 32, 8, backend="reference")
        >>> native, sequence, reference, triton = explain(layer, torch.randn(10, 4, 16)).splitlines()
        >>> print(reference)
        reference: runs, selected by backend='reference'
    """
    found: list[str] = []
    token = _explanations.set(found)
    devices = {parameter.device for parameter in layer.parameters() if parameter.is_cuda}
    try:
        with torch.random.fork_rng(devices), torch.no_grad(), contextlib.suppress(BackendError):
            layer(x)
    finally:
        _explanations.reset(token)
    if not found:
        raise TypeError(f"layer: expected an OrderedMemory or ONLSTM, got {type(layer).__name__}")
    return "\n\n".join(dict.fromkeys(found))


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
    if not torch.compiler.is_compiling():
        _note(name, backends, inputs)
    if name != "auto":
        reason = backends[name].why_not(*inputs)
        if reason is not None:
            raise BackendError(f"backend {name!r} cannot run here: {reason}")
        return backends[name].run_recurrence
    return next(backend.run_recurrence for backend in backends.values() if backend.why_not(*inputs) is None)


def _note(name: str, backends: Mapping[str, Backend[Any]], inputs: tuple[Any, ...]) -> None:
    """Say what a choice is made from, to who asks for it."""
    found = _explanations.get()
    if found is None and not logger.isEnabledFor(logging.DEBUG):
        return
    reasons = {one: backend.why_not(*inputs) for one, backend in backends.items()}
    able = next(one for one, reason in reasons.items() if reason is None)
    selected = able if name == "auto" else name
    lines = []
    for one, reason in reasons.items():
        line = f"{one}: runs" if reason is None else f"{one}: does not run: {reason}"
        lines.append(f"{line}, selected by backend={name!r}" if one == selected else line)
    logger.debug("%s", "; ".join(lines))
    if found is not None:
        found.append("\n".join(lines))
