"""Estimate the remaining training time of a run, from the epochs it has had or from a few timed steps."""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tasks.classifiers.classification import ClassificationObjective
from tasks.language_model.task import prepare
from tasks.listops.task import LISTOPS
from tasks.logic.task import LOGIC
from tasks.reproduce.runs import Kind, Run
from tasks.runs.config import TrainingConfig
from tasks.runs.errors import UserError
from tasks.runs.interfaces import Experiment
from tasks.runs.machine import synchronize
from tasks.runs.progress import epoch_seconds
from tasks.runs.run_directory import RunDirectory
from tasks.runs.saved_config import config_to_dict
from tasks.runs.threads import use_threads
from tasks.sst.task import SST

NUM_TIMED_STEPS = 5
"""Number of timed training steps; one that is not timed comes before them."""
ENOUGH_SECONDS = 8
"""No further step is timed once the timed ones have taken this long."""
SMALL_DATA: dict[str, dict[str, Any]] = {
    "listops": {"data_dir": None, "expressions": 3_000, "validation_size": 100, "train_size": None},
    "logic": {"data_dir": None, "generated": 3_000, "split": "full"},
}
"""Options of tasks that are timed on little generated data instead of the standard data."""
TRAINING_TOKENS: dict[tuple[str, str | None], int] = {
    ("listops", None): 1_679_016,
    ("logic", "full"): 3_281_475,
    ("logic", "A"): 3_104_094,
    ("logic", "B"): 1_993_663,
    ("logic", "C"): 1_075_569,
}
"""Number of training tokens of the standard data by task and `--split`, for the tasks in SMALL_DATA."""
TRAINING_EXPRESSIONS = 76_001
"""Number of training expressions of ListOps without `--train-size`."""
PREPARE: dict[str, Callable[[Any], Experiment]] = {
    "listops": LISTOPS.prepare,
    "logic": LOGIC.prepare,
    "sst": SST.prepare,
    "language_model": prepare,
}
"""Functions that load the data and build the model of a run, by task."""


class Estimator:
    """Estimates training times; each configuration is timed only once.

    Args:
        threads: CPU threads per run; None for PyTorch's default.
    """

    def __init__(self, threads: int | None) -> None:
        self.threads = threads
        self._measured: dict[str, float | None] = {}
        self._can_time: bool | None = None  # not tried yet

    def seconds_left(self, run: Run) -> float | None:
        """Estimate the remaining training time of a run, without its evaluations.

        Epochs of short examples count as if they had all of them: runs with a curriculum take a little less.

        Args:
            run: run in any state.
        Returns:
            Seconds, 0 if training is finished; None if the data cannot be loaded, or this machine has fewer
            cores than threads.
        """
        state, config = run.state(), run.config
        if not state.needs_training:
            return 0.0
        spent = 0.0
        epoch: float | None = None
        if state.kind == Kind.TRAINING_LEFT:
            config = run.saved
        if state.epochs:
            history = run.files.read_metrics("seconds")
            spent = float(history[-1]["seconds"])
            if state.epochs > config.short_epochs:
                epoch = epoch_seconds(history)
        minutes: float | None = run.config.max_minutes or config.max_minutes
        limit = None if minutes is None else max(0.0, 60.0 * minutes - spent)
        if epoch is None and limit is not None:
            return limit  # an upper bound, as the epochs may end first
        epoch = self._epoch_seconds(run) if epoch is None else epoch
        if epoch is None:
            return None
        remaining: float = epoch * (config.epochs - state.epochs)
        return remaining if limit is None else min(remaining, limit)

    def _epoch_seconds(self, run: Run) -> float | None:
        """Seconds per epoch from timed steps; None if these cannot be timed.

        Runs that differ only in the seed, or in the size or split of data that SMALL_DATA replaces, share
        one measurement.
        """
        task, config = run.training.task, run.config
        small = SMALL_DATA.get(task) if _has_standard_data(config) else None
        measured = dataclasses.replace(
            config, **(small or {}), seed=1, run_dir=None, threads=self.threads, resume=False
        )
        key = json.dumps([task, config_to_dict(measured)])
        if key not in self._measured:
            self._measured[key] = None
            if self._can_time is None:
                self._can_time = _start_timing(self.threads)
            if self._can_time:
                print(f"  {run.name}", file=sys.stderr, flush=True)
                self._measured[key] = _measure(measured, task, of_token=small is not None)
        seconds = self._measured[key]
        if seconds is None or small is None:
            return seconds
        size: int | None = getattr(config, "train_size", None)
        part = 1.0 if size is None else size / TRAINING_EXPRESSIONS
        return seconds * part * TRAINING_TOKENS[task, getattr(config, "split", None)]


def _start_timing(threads: int | None) -> bool:
    """Say that timing begins, and set the number of threads; False if they are too many for this machine."""
    print("timing a few training steps of each configuration:", file=sys.stderr, flush=True)
    try:
        use_threads(threads)
    except UserError as error:
        print(f"    {error}", file=sys.stderr)
        return False
    return True


def _has_standard_data(config: TrainingConfig) -> bool:
    """Whether the options of the data are the default ones, but for those that `_epoch_seconds` counts."""
    standard = vars(type(config)())
    names = {*config.data_options, "max_train_length"} - {"split"}
    return all(vars(config)[name] == standard[name] for name in names & standard.keys())


def _measure(config: TrainingConfig, task: str, *, of_token: bool) -> float | None:
    """Seconds per token or per epoch, from a few training steps; None if the data cannot be loaded."""
    from tasks.runs.fabric import build_fabric  # importing Lightning Fabric takes long
    from tasks.runs.trainer import Trainer

    try:
        experiment = PREPARE[task](config)
    except UserError as error:
        print(f"    {error}", file=sys.stderr)
        return None
    batches = experiment.objective.training_batches(config.short_epochs + 1, config.batch_size)
    if isinstance(experiment.objective, ClassificationObjective):
        lengths = experiment.objective.train.sentence_lengths
        sizes = [int(lengths[batch].sum()) for batch in batches]
    else:  # all batches of a language model take about the same time
        sizes = [1] * len(batches)
    seconds, tokens = 0.0, 0
    with tempfile.TemporaryDirectory() as directory:
        fabric = build_fabric(config)
        fabric.launch()
        trainer = Trainer(config, experiment, fabric, RunDirectory(Path(directory)))
        trainer.model.train()
        # Not timed. It must be the first batch, from whose state the others of a language model continue.
        trainer.train_batch(batches[0])
        for index in _spread(sizes):
            synchronize(trainer.device)
            start = time.perf_counter()
            trainer.train_batch(batches[index])
            synchronize(trainer.device)
            seconds += time.perf_counter() - start
            tokens += sizes[index]
            if seconds > ENOUGH_SECONDS:
                break
    return seconds / tokens * (1 if of_token else sum(sizes))


def _spread(sizes: Sequence[int]) -> list[int]:
    """The indices of `NUM_TIMED_STEPS` batches whose sizes are spread evenly; the middle one comes first."""
    order = sorted(range(len(sizes)), key=sizes.__getitem__)
    places = [int((2 * i + 1) / (2 * NUM_TIMED_STEPS) * len(order)) for i in (2, 0, 4, 1, 3)]
    return [order[place] for place in places]
