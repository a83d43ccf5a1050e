"""What a program runs on and from: the processor, and the commit of the checkout."""

from __future__ import annotations

import contextlib
import platform
import subprocess
from functools import cache
from pathlib import Path

import torch


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


@cache
def commit() -> str | None:
    """The commit of the checkout that this file is in, "-dirty" if it has been changed; None without git."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        found = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True, timeout=20
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None
