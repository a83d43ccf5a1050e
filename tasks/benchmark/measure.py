"""Interleaved timing: contenders take turns on the same batch, repeatedly, and medians are reported.

So a temporary load of the machine affects all contenders alike, and their ratios remain valid. `describe`
names the conditions of a measurement.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from tasks.benchmark.config import MeasurementConfig
from tasks.benchmark.contender import Contender
from tasks.formatting.tables import count_text
from tasks.runs.machine import commit, device_name, synchronize
from tasks.runs.progress import progress_bar


class Times(NamedTuple):
    """Median times of one contender on each batch, in milliseconds.

    Args:
        train: training step.
        infer: forward pass.
    """

    train: list[float]
    infer: list[float]


def interleave(
    contenders: Mapping[str, Contender], batches: int, *, repeats: int, device: str
) -> dict[str, Times]:
    """Time all contenders on all batches.

    Args:
        contenders: contenders by name.
        batches: number of batches.
        repeats: timed runs on each batch, after an untimed one.
        device: synchronized before the clock is read.
    Returns:
        Medians by name.
    """
    names = list(contenders)
    milliseconds = np.zeros((1 + repeats, batches, len(names), 2))
    with progress_bar(total=(1 + repeats) * batches * len(names), desc="timing") as bar:
        for repeat, index, turn in np.ndindex(1 + repeats, batches, len(names)):
            # Rotate the order, so that no contender always runs after the same other one.
            position = (repeat - 1 + turn) % len(names)
            contender = contenders[names[position]]
            bar.set_postfix_str(names[position])
            milliseconds[repeat, index, position] = (
                _clock(contender.training_step(index), device),
                _clock(contender.evaluation(index), device),
            )
            bar.update()
    medians = np.median(milliseconds[1:], axis=0)
    return {name: Times(*medians[:, position].T.tolist()) for position, name in enumerate(names)}


def _clock(run: Callable[[], None], device: str) -> float:
    """Time a call in milliseconds."""
    synchronize(device)
    start = time.perf_counter()
    run()
    synchronize(device)
    return (time.perf_counter() - start) * 1000


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
        "tf32": config.tf32,
        "quick": config.quick,
    }


def machine_line(machine: dict[str, Any], *notes: str) -> str:
    """Format what `describe` returned in one line.

    Args:
        machine: description from `describe`.
        notes: other conditions of the measurement.
    """
    flushed = ["denormals flushed"] if machine["flush_denormal"] else []
    tf32 = ["float32 products in TensorFloat-32"] if machine["tf32"] else []
    threads = count_text(machine["threads"], "thread")
    parts = (
        f"{machine['device_name']}, {threads}, torch {machine['torch']}, "
        f"commit {machine['commit'] or 'unknown'}",
        f"medians of {machine['repeats']}",
        *notes,
        *tf32,
        *flushed,
    )
    return "; ".join(parts)
