"""Modes of PyTorch: autocast, transforms of `torch.func`, tracing, and compiling.

The decorators for `torch.compile` do not import the compiler, which takes as long as importing torch.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

logger = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

CAST_BY_AUTOCAST = {torch.float32, torch.bfloat16, torch.float16}
"""The dtypes that autocast casts from and to."""


def assume_constant_result(function: Callable[P, R]) -> Callable[P, R]:
    """As `torch.compiler.assume_constant_result`: a captured graph contains the result as a constant.

    Args:
        function: function that is called during capture and not traced.
    Returns:
        The same function.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def untraced(reason: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """As `torch.compiler.disable`: the graph breaks at the function, which is not traced.

    Args:
        reason: reason for the graph break, for the compiler's log.
    Returns:
        A decorator.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        wrapped: list[Callable[P, R]] = []

        @assume_constant_result
        def wrap() -> None:
            if not wrapped:
                wrapped.append(torch.compiler.disable(function, reason=reason))

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if torch.compiler.is_compiling():
                wrap()
                return wrapped[0](*args, **kwargs)
            return function(*args, **kwargs)

        return call

    return decorate


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """The dtype that autocast casts to.

    Args:
        device: device of the computation.
    Returns:
        The dtype; None if autocast is not enabled.
    """
    device_type = device.type
    if device_type != "meta" and torch.is_autocast_enabled(device_type):
        return torch.get_autocast_dtype(device_type)
    return None


def without_autocast(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """A context in which autocast is disabled.

    Args:
        device: device of the computation.
    """
    if device.type == "meta":  # which `torch.autocast` does not know
        return contextlib.nullcontext()
    return torch.autocast(device.type, enabled=False)


def autocast_of_lstm(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """A context for a call of `nn.LSTM`: autocast is disabled where `nn.LSTM` cannot run under it.

    On a CPU without AVX-512, `nn.LSTM` raises an error under autocast to bfloat16. Without autocast its input
    must have the dtype of its parameters. A warning is logged once.

    Args:
        device: device of the computation.
    """
    dtype = autocast_dtype(device)
    if dtype is None or device.type != "cpu" or runs_lstm(dtype):
        return contextlib.nullcontext()
    return without_autocast(device)


@assume_constant_result
def runs_lstm(dtype: torch.dtype) -> bool:
    """Whether `nn.LSTM` runs under autocast to a dtype on this CPU.

    Args:
        dtype: torch.bfloat16 or torch.float16.
    """
    return _runs_lstm(dtype)


@functools.cache  # not above: torch.compile traces into a cached function, despite the decorator
def _runs_lstm(dtype: torch.dtype) -> bool:
    zeros = functools.partial(torch.zeros, dtype=torch.float32, device="cpu")
    one, weights = zeros(1, 1, 1), [zeros(4, 1)] * 2 + [zeros(4)] * 2
    try:
        with torch.no_grad(), torch.autocast("cpu", dtype):
            torch.lstm(one, (one, one), weights, True, 1, 0.0, False, False, False)
    except RuntimeError as error:
        logger.warning("nn.LSTM does not support %s on this processor: autocast is disabled for it", dtype)
        logger.debug("%s", error)
        return False
    return True


def is_transformed(*tensors: Tensor | None) -> bool:
    """Whether a `torch.func` transform is active or a tensor carries a forward-mode derivative.

    Args:
        *tensors: the inputs of a computation. While `torch.compile` traces it, they are not checked: if
            forward-mode derivatives are active, every tensor counts as carrying one.
    """
    transforms, forward_mode = _active_transforms()
    if transforms or not forward_mode or torch.compiler.is_compiling():
        return transforms or forward_mode
    return any(t is not None and forward_ad.unpack_dual(t).tangent is not None for t in tensors)


@assume_constant_result
def _active_transforms() -> tuple[bool, bool]:
    """Whether transforms of `torch.func` are active, and whether forward-mode derivatives are.

    In a captured graph the result is a constant. This is correct, because the compiler traces with the
    transforms active, and compiles again if other transforms are active.
    """
    return bool(torch._C._are_functorch_transforms_active()), forward_ad._current_level >= 0


def is_jit_tracing() -> bool:
    """Whether `torch.jit.trace` records the computation."""
    return bool(torch.jit.is_tracing())  # type: ignore[attr-defined, no-untyped-call]


@assume_constant_result
def is_exporting() -> bool:
    """Whether `torch.export` records the computation.

    `torch.compiler.is_exporting` of PyTorch 2.8 is True in everything that `torch.compile` traces.
    """
    return torch.compiler.is_exporting()


def clone_if_saved(result: Tensor) -> Tensor:
    """A result that the caller may change in place: a copy, if the backward pass may need the result itself.

    Args:
        result: what a backend has returned.
    """
    return result.clone() if result.requires_grad or is_jit_tracing() else result
