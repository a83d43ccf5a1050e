"""Estimate the training time of a run, from its previous epochs or from a few training steps."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tasks.language_model.task import prepare
from tasks.listops.task import LISTOPS
from tasks.logic.task import LOGIC
from tasks.reproduce.runs import Run
from tasks.runs.config import TrainingConfig
from tasks.runs.errors import UserError
from tasks.runs.run_directory import RunDirectory
from tasks.runs.saved_config import config_to_dict
from tasks.runs.task import Experiment
from tasks.runs.threads import use_threads
from tasks.sst.task import SST

STEPS, ENOUGH_SECONDS = 5, 8
"""Number of timed steps, after an untimed one; timing stops earlier after `ENOUGH_SECONDS`."""
SMALL_DATA: dict[str, dict[str, Any]] = {
    "listops": {"data_dir": None, "expressions": 3_000, "validation_size": 100, "train_size": None},
    "logic": {"data_dir": None, "generated": 3_000, "split": "full"},
}
"""Options that generate little data from the same distribution, which is enough for timing."""
TRAINING_EXAMPLES: dict[tuple[str, str | None], int] = {
    ("listops", None): 76_000,
    ("logic", "full"): 121_977,
    ("logic", "A"): 116_073,
    ("logic", "B"): 79_154,
    ("logic", "C"): 46_707,
}
"""Number of training examples of the standard data, for tasks that are timed on SMALL_DATA."""
PREPARE: dict[str, Callable[[Any], Experiment]] = {
    "listops": LISTOPS.prepare,
    "logic": LOGIC.prepare,
    "sst": SST.prepare,
    "language_model": prepare,
}
"""Load the data and build the model of a run, by task."""


class Estimator:
    """Estimates training times; each configuration is timed only once.

    Args:
        threads: CPU threads per run; None for PyTorch's default.
    """

    def __init__(self, threads: int | None) -> None:
        self.threads = threads
        self._measured: dict[str, float | None] = {}

    @functools.cached_property
    def _can_time(self) -> bool:
        """Whether the number of threads could be set. The first access prints what takes some time."""
        print("timing a few training steps of each configuration", file=sys.stderr, flush=True)
        try:
            use_threads(self.threads)
        except UserError:
            return False
        return True

    def seconds_left(self, run: Run) -> float | None:
        """Estimate the remaining training time of a run, without its evaluations.

        Args:
            run: run in any state.
        Returns:
            Seconds, 0 if training is finished; None if the data cannot be loaded.
        """
        state, config = run.state(), run.config
        if state.kind not in ("missing", "unfinished"):
            return 0.0
        spent = 0.0
        if state.epochs:
            spent = float(run.files.read_metrics("seconds")[-1]["seconds"])
            epoch: float | None = spent / state.epochs
            config = run.saved
        elif config.max_minutes is not None:
            return 60.0 * float(config.max_minutes)  # an upper bound, as the epochs may end first
        else:
            epoch = self._epoch_seconds(run)
        if epoch is None:
            return None
        remaining: float = epoch * max(0, config.epochs - state.epochs)
        minutes = run.config.max_minutes or config.max_minutes
        return remaining if minutes is None else min(remaining, max(0.0, 60.0 * minutes - spent))

    def _epoch_seconds(self, run: Run) -> float | None:
        """Seconds per epoch; a training step is timed once for all sizes and splits of the data."""
        task, config = run.training.task, run.config
        small = SMALL_DATA.get(task)
        measured = dataclasses.replace(
            config, **(small or {}), seed=1, run_dir=None, threads=self.threads, resume=False
        )
        key = json.dumps([task, config_to_dict(measured)])
        if key not in self._measured:
            self._measured[key] = _measure(measured, task) if self._can_time else None
        seconds = self._measured[key]
        if seconds is None or small is None:
            return seconds
        size: int | None = getattr(config, "train_size", None)
        examples = size or TRAINING_EXAMPLES[task, getattr(config, "split", None)]
        steps: int = math.ceil(examples / config.batch_size)
        return seconds * steps


def _measure(config: TrainingConfig, task: str) -> float | None:
    """Seconds per training step or, if the task has no SMALL_DATA, per epoch."""
    try:
        experiment = PREPARE[task](config)
    except UserError:
        return None
    batches = experiment.task.training_batches(1, config.batch_size)
    step = _step_seconds(config, experiment, batches)
    return step if task in SMALL_DATA else step * len(batches)


def _step_seconds(config: TrainingConfig, experiment: Experiment, batches: Sequence[Any]) -> float:
    from tasks.runs.fabric import build_fabric  # importing Lightning Fabric takes long
    from tasks.runs.trainer import Trainer

    with tempfile.TemporaryDirectory() as directory:
        fabric = build_fabric(config)
        fabric.launch()
        run = RunDirectory(Path(directory))
        trainer = Trainer(config, experiment, fabric, run)
        trainer.train_batch(batches[0])
        times: list[float] = []
        for batch in batches[1 : 1 + STEPS] or batches:
            start = time.perf_counter()
            trainer.train_batch(batch)
            times.append(time.perf_counter() - start)
            if sum(times) > ENOUGH_SECONDS:
                break
        return statistics.fmean(times)
