"""Selects a backend and explains the selection, for both models."""

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
_warned: set[str] = set()
"""The reasons that were logged as warnings, each of them once."""
_explanations: ContextVar[list[str] | None] = ContextVar("_explanations", default=None)


class BackendError(RuntimeError):
    """A backend was asked for by name and cannot run here."""


class Backend(NamedTuple, Generic[Run]):
    """One way to run a recurrence.

    Args:
        run_recurrence: function with the signature, layout and results of the definition.
        why_not: function that takes what is passed to `select` and returns why the backend cannot run on it,
            or None if it can. These are inputs, modules and state for Ordered Memory, and tokens, weights,
            hidden and cell for ON-LSTM.
        device_type: type of the devices on which "auto" may select the backend; None for all.
    """

    run_recurrence: Run
    why_not: Callable[..., str | None]
    device_type: str | None = None


def explain(layer: nn.Module, *args: Any, **kwargs: Any) -> str:
    """Explain which backend runs a layer on an input, which others can run, and why the rest cannot.

    This calls the layer once, without gradients, and restores the state of the random generators. In training
    mode the call has its usual side effects, such as on the statistics of BatchNorm. The logger
    `ordered_memory.backends.registry` logs the same text for every call at level DEBUG.

    Args:
        layer: an `OrderedMemory`, an `ONLSTM`, or a model that contains such layers. A module from
            `torch.compile` is called without being compiled.
        *args, **kwargs: arguments of the call, such as the input, `lengths` or a state.
    Returns:
        One line for each backend; several such texts if directions or layers differ.
    Raises:
        TypeError: no such layer was called.
    Example:
        >>> from ordered_memory import OrderedMemory
        >>> layer = OrderedMemory(16, 32, 8, backend="reference")
        >>> native, triton, sequence, reference = explain(layer, torch.randn(10, 4, 16)).splitlines()
        >>> print(reference)
        reference: runs, selected by backend='reference'
    """
    layer = getattr(layer, "_orig_mod", layer)  # of a module from torch.compile
    explanations: list[str] = []
    token = _explanations.set(explanations)
    devices = {p.device for p in layer.parameters() if p.device.type in ("cuda", "mps")}
    try:
        with (
            torch.random.fork_rng(devices, device_type=next((device.type for device in devices), "cuda")),
            torch.no_grad(),
            contextlib.suppress(BackendError),
            _eager(layer),
        ):
            layer(*args, **kwargs)
    finally:
        _explanations.reset(token)
    if not explanations:
        raise TypeError(f"layer: expected an OrderedMemory or ONLSTM, got {type(layer).__name__}")
    return "\n\n".join(dict.fromkeys(explanations))


def _eager(model: nn.Module) -> contextlib.AbstractContextManager[Any]:
    """A context in which a model is called without being compiled, if it or a part of it is compiled."""
    # Compiled by `Module.compile` or by `torch.compile`. `set_stance` imports PyTorch's compiler.
    compiled = (module._compiled_call_impl or hasattr(module, "_orig_mod") for module in model.modules())
    return torch.compiler.set_stance("force_eager") if any(compiled) else contextlib.nullcontext()


def select(name: str, backends: Mapping[str, Backend[Run]], *inputs: Any) -> Run:
    """Select a backend by name, or with "auto" the first that can run and is meant for the device.

    Args:
        name: "auto" or a key of `backends`.
        backends: the backends by name, fastest first.
        inputs: arguments of `why_not`, the first of them a tensor on their device.
    Returns:
        The function that runs the recurrence.
    Raises:
        ValueError: the name is unknown.
        BackendError: the named backend cannot run on these inputs; the message says why.
    """
    check_name("backend", name, ["auto", *backends])
    if not torch.compiler.is_compiling():
        _record_explanation(name, backends, inputs)
    if name != "auto":
        reason = backends[name].why_not(*inputs)
        if reason is not None:
            raise BackendError(f"backend {name!r} cannot run here: {reason}")
        return backends[name].run_recurrence
    return backends[_automatic(backends, inputs)].run_recurrence


def warn_of_reference(reason: str | None) -> None:
    """Log a warning, once for each reason, that "auto" has selected "reference".

    Args:
        reason: what in the layer the faster backends do not support; None for no warning.
    """
    if reason is not None and reason not in _warned:
        _warned.add(reason)
        logger.warning(
            "backend='auto' selects 'reference', which is slow. Why a faster one cannot run: %s", reason
        )


def _automatic(backends: Mapping[str, Backend[Any]], inputs: tuple[Any, ...]) -> str:
    """The name of the backend that "auto" selects. The first of the inputs is a tensor on their device."""
    device_types = (None, inputs[0].device.type)
    return next(
        name
        for name, backend in backends.items()
        if backend.device_type in device_types and backend.why_not(*inputs) is None
    )


def _record_explanation(name: str, backends: Mapping[str, Backend[Any]], inputs: tuple[Any, ...]) -> None:
    """Log the reasons for a selection, and pass them to `explain` if it is running."""
    explanations = _explanations.get()
    if explanations is None and not logger.isEnabledFor(logging.DEBUG):
        return
    reasons = {backend_name: backend.why_not(*inputs) for backend_name, backend in backends.items()}
    selected = _automatic(backends, inputs) if name == "auto" else name
    lines = []
    for backend_name, reason in reasons.items():
        line = f"{backend_name}: runs" if reason is None else f"{backend_name}: does not run: {reason}"
        lines.append(f"{line}, selected by backend={name!r}" if backend_name == selected else line)
    logger.debug("%s", "; ".join(lines))
    if explanations is not None:
        explanations.append("\n".join(lines))
