"""How it is timed: every contender in turn on the same batch, again and again; medians.

What disturbs the machine for a while so disturbs all contenders alike, and their ratios hold.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch

from tasks.benchmark.contender import Contender


class Times(NamedTuple):
    """Of one contender, in milliseconds: the median of each batch.

    Args:
        train: of a training step.
        infer: of a forward pass.
    """

    train: list[float]
    infer: list[float]


def interleave(
    contenders: Mapping[str, Contender], batches: int, *, repeats: int, device: str
) -> dict[str, Times]:
    """Time all contenders on all batches.

    Args:
        contenders: by name.
        batches: how many each has.
        repeats: how often each runs each batch, after once untimed.
        device: to wait for before reading the clock.
    Returns:
        Medians by name.
    """
    names = list(contenders)
    train: dict[str, list[list[float]]] = {name: [[] for _ in range(batches)] for name in names}
    infer: dict[str, list[list[float]]] = {name: [[] for _ in range(batches)] for name in names}
    for repeat in range(-1, repeats):
        # Another first contender each time: what runs before it must not favour one.
        start = repeat % len(names)
        for index in range(batches):
            for name in names[start:] + names[:start]:
                train_ms = _clock(contenders[name].training_step(index), device)
                infer_ms = _clock(contenders[name].evaluation(index), device)
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
    """Milliseconds."""
    _wait(device)
    started = time.perf_counter()
    run()
    _wait(device)
    return (time.perf_counter() - started) * 1000


def _wait(device: str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
