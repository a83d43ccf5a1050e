"""Checks of arguments, for both models: an error names the argument, what was expected and what came."""

from __future__ import annotations

import numbers

import torch
from torch import Tensor

CAST_BY_AUTOCAST = {torch.float32, torch.bfloat16, torch.float16}


def check_positive(**arguments: int) -> None:
    """Raise a ValueError unless every argument is an integer of at least 1."""
    for name, value in arguments.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")


def check_fraction(**arguments: float) -> None:
    """Raise a ValueError unless every argument is a number in [0, 1]."""
    for name, value in arguments.items():
        if not isinstance(value, numbers.Real) or isinstance(value, bool) or not 0 <= value <= 1:
            raise ValueError(f"{name} must lie in [0, 1], got {value!r}")


def check_device(name: str, tensor: Tensor, like: Tensor, error: type[Exception] = ValueError) -> None:
    """Raise `error` unless `tensor` is on the device of `like`."""
    if tensor.device != like.device:
        raise error(f"{name} must be on {like.device}, got a tensor on {tensor.device}")


def check_dtype(name: str, tensor: Tensor, like: Tensor, error: type[Exception] = ValueError) -> None:
    """Raise `error` unless `tensor` has the dtype of `like`, or autocast casts between the two."""
    autocast = torch.is_autocast_enabled(like.device.type) and {tensor.dtype, like.dtype} <= CAST_BY_AUTOCAST
    if tensor.dtype != like.dtype and not autocast:
        raise error(f"{name} must have dtype {like.dtype}, got {tensor.dtype}")
