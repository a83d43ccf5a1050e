"""What a program runs on and from: the device, and the commit of the checkout."""

from __future__ import annotations

import contextlib
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import TypeVar

import torch

Batch = TypeVar("Batch")


def device_name(device: str | torch.device) -> str:
    """The model of a GPU or of the processor.

    Args:
        device: as PyTorch names it.
    """
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def to_device(batch: Batch, device: str | torch.device) -> Batch:
    """A batch with its tensors on a device.

    Args:
        batch: tensors in tuples, lists or dictionaries.
        device: as PyTorch names it.
    """
    from lightning_fabric.utilities.apply_func import move_data_to_device  # importing it takes long

    moved: Batch = move_data_to_device(batch, torch.device(device))
    return moved


@cache
def commit() -> str | None:
    """The commit of the checkout that this file belongs to, "-dirty" if it has been changed.

    Returns:
        None without git or for an installed package, also where that is inside another project's checkout.
    """
    try:
        _git("ls-files", "--error-unmatch", Path(__file__).name)
        return _git("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*") or None
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*words: str) -> str:
    """What git prints in the directory of this file."""
    found = subprocess.run(
        ["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True, check=True, timeout=20
    )
    return found.stdout.strip()
