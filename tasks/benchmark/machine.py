"""Describe the machine, versions and settings of a measurement."""

from __future__ import annotations

import datetime
from typing import Any

import torch

from tasks.benchmark.config import MeasurementConfig
from tasks.runs.machine import commit, device_name


def describe(config: MeasurementConfig) -> dict[str, Any]:
    """Describe device, versions, commit, date and settings as JSON values.

    Args:
        config: device and options of the measurement.
    """
    return {
        "device": config.device,
        "device_name": device_name(config.device),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seed": config.seed,
        "repeats": config.repeats,
        "flush_denormal": config.flush_denormal,
    }


def machine_line(machine: dict[str, Any], *notes: str) -> str:
    """Format what `describe` returned in one line.

    Args:
        machine: description from `describe`.
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
