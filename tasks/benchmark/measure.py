"""Interleaved timing: contenders take turns on the same batch, repeatedly, and medians are reported.

So a temporary load of the machine affects all contenders alike, and their ratios remain valid. `describe`
names the conditions of a measurement.
"""

from __future__ import annotations

import datetime
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

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
    train: dict[str, list[list[float]]] = {name: [[] for _ in range(batches)] for name in names}
    infer: dict[str, list[list[float]]] = {name: [[] for _ in range(batches)] for name in names}
    with progress_bar(total=(repeats + 1) * batches * len(names), desc="timing") as bar:
        for repeat in range(-1, repeats):
            # Rotate the order, so that no contender always runs after the same other one.
            start = repeat % len(names)
            for index in range(batches):
                for name in names[start:] + names[:start]:
                    bar.set_postfix_str(name)
                    train_ms = _clock(contenders[name].training_step(index), device)
                    infer_ms = _clock(contenders[name].evaluation(index), device)
                    bar.update()
                    if repeat >= 0:
                        train[name][index].append(train_ms)
                        infer[name][index].append(infer_ms)
    return {
        name: Times(
            [statistics.median(times) for times in train[name]],
            [statistics.median(times) for times in infer[name]],
        )
        for name in names
    }


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
