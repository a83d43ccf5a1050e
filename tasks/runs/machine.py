"""The device that a program runs on, and the git commit of its code."""

from __future__ import annotations

import contextlib
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import torch

Batch = TypeVar("Batch")


def device_name(device: str | torch.device) -> str:
    """The model name of a GPU, or of the processor.

    Args:
        device: a PyTorch device.
    """
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def to_device(batch: Batch, device: str | torch.device) -> Batch:
    """Move the tensors of a batch to a device, as Lightning Fabric does, but without its long import.

    Args:
        batch: tensors in tuples, lists or dictionaries; other values stay as they are.
        device: a PyTorch device.
    """
    moved: Any = batch
    if isinstance(batch, torch.Tensor):
        moved = batch.to(device)
    elif isinstance(batch, tuple) and hasattr(batch, "_fields"):
        moved = type(batch)(*(to_device(item, device) for item in batch))
    elif isinstance(batch, list | tuple):
        moved = type(batch)(to_device(item, device) for item in batch)
    elif isinstance(batch, dict):
        moved = {name: to_device(item, device) for name, item in batch.items()}
    return cast(Batch, moved)


@cache
def commit() -> str | None:
    """The commit of the checkout that this file belongs to, with "-dirty" if there are uncommitted changes.

    Returns:
        None without git, or if this package is installed and not a checkout.
    """
    try:
        _git("ls-files", "--error-unmatch", Path(__file__).name)
        return _git("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*") or None
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*words: str) -> str:
    """Run git in the directory of this file and return its output."""
    completed = subprocess.run(
        ["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True, check=True, timeout=20
    )
    return completed.stdout.strip()
