"""Where and when numbers were measured."""

from __future__ import annotations

import contextlib
import datetime
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch


def describe(device: str) -> dict[str, Any]:
    """Device, versions, commit and date, as JSON values.

    Args:
        device: whose name is wanted, such as `cpu`.
    """
    return {
        "device": device,
        "device_name": _device_name(device),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "commit": _commit(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def machine_line(machine: dict[str, Any], repeats: int, *notes: str) -> str:
    """What `describe` found and how it was measured, in one line.

    Args:
        machine: from `describe`.
        repeats: of each measurement.
        notes: whatever else the numbers depend on.
    """
    parts = (
        f"{machine['device_name']}, {machine['threads']} threads, torch {machine['torch']}, "
        f"commit {machine['commit'] or 'unknown'}",
        f"medians of {repeats}",
        *notes,
    )
    return "; ".join(parts)


def _device_name(device: str) -> str:
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _commit() -> str | None:
    """Of the checkout that this file is in, "-dirty" if it has been changed; None without git."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        found = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True, timeout=20
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None
