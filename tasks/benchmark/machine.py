"""Where and when numbers were measured."""

from __future__ import annotations

import contextlib
import datetime
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

from tasks.benchmark.config import MeasurementConfig


def describe(config: MeasurementConfig) -> dict[str, Any]:
    """Device, versions, commit, date and how it was measured, as JSON values.

    Args:
        config: device and options of the measurement.
    """
    return {
        "device": config.device,
        "device_name": _device_name(config.device),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "commit": _commit(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seed": config.seed,
        "repeats": config.repeats,
        "flush_denormal": config.flush_denormal,
    }


def machine_line(machine: dict[str, Any], *notes: str) -> str:
    """What `describe` found, in one line.

    Args:
        machine: from `describe`.
        notes: other conditions of the measurement.
    """
    flushed = ["denormals flushed"] if machine["flush_denormal"] else []
    parts = (
        f"{machine['device_name']}, {machine['threads']} threads, torch {machine['torch']}, "
        f"commit {machine['commit'] or 'unknown'}",
        f"medians of {machine['repeats']}",
        *notes,
        *flushed,
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
