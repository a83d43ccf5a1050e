"""Whether Triton kernels can run on a device, and a context that makes it the current device for a launch.

Both models use this file.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import logging
import os
import shutil
import sysconfig
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ordered_memory.modes import assume_constant_result

MINIMUM_VERSION = (3, 6)
"""The oldest Triton with which the kernels ran on a GPU. 3.4 cannot compile those of Ordered Memory."""

logger = logging.getLogger(__name__)


@assume_constant_result
def why_no_triton(device: torch.device) -> str | None:
    """Why Triton kernels cannot run on a device: they need a GPU, or Triton's interpreter.

    Args:
        device: the device.
    Returns:
        The reason, as a clause for the error message; None if they can run.
    """
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    if device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1":
        return None
    if device.type != "cuda":
        return f"it needs an NVIDIA GPU, the inputs are on {device}"
    if torch.version.hip is not None:
        return "it needs an NVIDIA GPU, and this PyTorch is for AMD's"
    if not torch.cuda.is_available():
        return "it needs an NVIDIA GPU, and PyTorch finds none"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "it needs a GPU of compute capability 8.0 or above"
    return _why_not_compiled()


def check_triton(device: torch.device) -> None:
    """Check in a call of an operator, such as that of an exported program from another machine.

    Args:
        device: the device.
    Raises:
        RuntimeError: the kernels cannot run there; the message says why.
    """
    if (reason := why_no_triton(device)) is not None:
        raise RuntimeError(f"backend 'triton' cannot run here: {reason}")


@functools.cache
def _why_not_compiled() -> str | None:
    """Why Triton cannot compile kernels here, for `why_no_triton`; logged as a warning, once."""
    if (reason := _missing()) is not None:
        logger.warning("the fastest backend on a GPU, 'triton', cannot run: %s", reason)
    return reason


def _missing() -> str | None:
    """What Triton lacks to compile kernels, in words; None if nothing."""
    try:
        version: str = importlib.import_module("triton").__version__  # the distribution may have another name
    except (ImportError, AttributeError) as error:
        return f"Triton cannot be imported: {error}"
    if tuple(map(int, version.split(".")[:2])) < MINIMUM_VERSION:
        return f"it needs Triton {'.'.join(map(str, MINIMUM_VERSION))} or newer, got {version}"
    # With these Triton builds the function that launches a kernel.
    compilers = (os.environ["CC"],) if "CC" in os.environ else ("gcc", "clang")
    if not any(map(shutil.which, compilers)):
        return f"Triton needs a C compiler, and finds no {' or '.join(compilers)}"
    headers = (sysconfig.get_path("include", scheme) for scheme in sysconfig.get_scheme_names())
    if not any(Path(directory, "Python.h").exists() for directory in headers):
        return "Triton needs the header files of Python"
    return None


def multiprocessors(device: torch.device) -> int:
    """The number of multiprocessors of a GPU; 1 for the CPU, on which the interpreter runs.

    Args:
        device: the device.
    """
    if device.type != "cuda":
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def on_device(tensor: Tensor) -> contextlib.AbstractContextManager[Any]:
    """A context for launching Triton kernels: they run on the current GPU, whatever their arguments are on.

    Args:
        tensor: tensor on the device.
    """
    return torch.cuda.device(tensor.device) if tensor.is_cuda else contextlib.nullcontext()
