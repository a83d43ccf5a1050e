"""Which devices Triton kernels can run on, and the choice of one for a launch; for both models."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from typing import Any

import torch
from torch import Tensor


def why_no_triton(tensor: Tensor) -> str | None:
    """Why Triton kernels cannot run on the device of a tensor: they need a GPU, or Triton's interpreter.

    Args:
        tensor: tensor on the device.
    Returns:
        The reason, as a clause for the error message; None if they can run.
    """
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    if tensor.device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1":
        return None
    if tensor.device.type != "cuda" or torch.version.hip is not None:
        return f"it needs an NVIDIA GPU, the inputs are on {tensor.device}"
    if torch.cuda.get_device_capability(tensor.device) < (8, 0):
        return "it needs a GPU of compute capability 8.0 or above"
    return None


def on_device(tensor: Tensor) -> contextlib.AbstractContextManager[Any]:
    """A context for launching Triton kernels: they run on the current GPU, whatever their arguments are on.

    Args:
        tensor: tensor on the device.
    """
    return torch.cuda.device(tensor.device) if tensor.is_cuda else contextlib.nullcontext()
