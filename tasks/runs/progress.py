"""The progress of training, and the lines that report it in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tqdm import tqdm

from tasks.runs.config import TrainingConfig
from tasks.runs.processes import is_main_process


@dataclass
class Progress:
    """The progress of training; part of every checkpoint."""

    epoch: int = 1
    """The current epoch, from 1; one past the last when finished."""
    step_in_epoch: int = 0
    """Steps taken in this epoch."""
    step: int = 0
    """Steps taken since the beginning."""
    seconds: float = 0.0
    """Time spent on training steps."""
    loss_sum: float = 0.0
    """Sum of the losses of this epoch's examples, nats."""
    correct: float = 0.0
    """Correct answers in this epoch."""
    examples: int = 0
    """Examples seen in this epoch."""
    best: float | None = None
    """Best selection score."""
    best_epoch: int = 0
    """The epoch with the best selection score."""
    finished: bool = False
    """Whether the epochs or minutes are over."""
    history: list[dict[str, Any]] = field(default_factory=list)
    """The rows of metrics.jsonl."""

    def out_of_time(self, config: TrainingConfig) -> bool:
        """Whether training has taken `max_minutes`.

        Args:
            config: of the run.
        """
        return config.max_minutes is not None and self.seconds >= 60 * config.max_minutes

    def over(self, config: TrainingConfig) -> bool:
        """Whether the run has finished, and its options give no more epochs or minutes than it had.

        Args:
            config: of the run.
        """
        return self.finished and (self.epoch > config.epochs or self.out_of_time(config))


def progress_bar(iterable: Iterable[Any] | None = None, **options: Any) -> Any:
    """A tqdm bar, shown only in the main process and only if standard error is a terminal.

    Args:
        iterable: what to iterate over; None for a bar that is updated manually.
        **options: of `tqdm.tqdm`.
    """
    shown = is_main_process() and sys.stderr.isatty()
    return tqdm(iterable, disable=not shown, leave=False, **options)


def epoch_text(progress: Progress, config: TrainingConfig) -> str:
    """The line printed after an epoch: its time, its metrics and what remains.

    Args:
        progress: after the epoch; the last row of its history is printed.
        config: of the run.
    """
    row = progress.history[-1]
    before = progress.history[-2]["seconds"] if len(progress.history) > 1 else 0.0
    parts = [f"epoch {row['epoch']}", f"{row['seconds'] - before:.1f} s"]
    for part in ("train", "validation"):
        metrics = [name for name in row if name.startswith(f"{part}_")]
        values = (f"{name.removeprefix(f'{part}_')} {row[name]:.4f}" for name in metrics)
        parts.append(f"{part} {' '.join(values)}")
    if progress.best_epoch == row["epoch"]:
        parts.append("best")
    if not progress.finished:
        parts.append(f"({left_text(progress, config)})")
    return "  ".join(parts)


def left_text(progress: Progress, config: TrainingConfig) -> str:
    """How many epochs or minutes remain, whichever runs out first.

    Args:
        progress: before the end of training.
        config: of the run.
    """
    done = progress.epoch - 1
    epochs = config.epochs - done
    by_epochs = epochs * progress.seconds / max(1, done)
    if config.max_minutes is not None:
        by_minutes = 60 * config.max_minutes - progress.seconds
        if not done or by_minutes < by_epochs:
            return f"{max(0.0, by_minutes) / 60:.1f} of {config.max_minutes:g} min left"
    counted = f"{epochs} of {config.epochs} {_plural(config.epochs, 'epoch')} left"
    return f"{counted}, about {_duration(by_epochs)}" if done else counted


def finished_text(progress: Progress, config: TrainingConfig) -> str:
    """After what training ended, and which epoch was best.

    Args:
        progress: at the end of training.
        config: of the run.
    """
    return f"finished: {end_text(progress, config)}; best epoch {progress.best_epoch}"


def end_text(progress: Progress, config: TrainingConfig) -> str:
    """After what training ended.

    Args:
        progress: at the end of training.
        config: of the run.
    """
    if config.max_minutes is not None and progress.out_of_time(config):
        minutes = _plural(config.max_minutes, "minute")
        return f"{config.max_minutes:g} {minutes} of training (--max-minutes)"
    return f"{progress.epoch - 1} {_plural(progress.epoch - 1, 'epoch')} (--epochs)"


def _plural(number: float, unit: str) -> str:
    return unit if number == 1 else f"{unit}s"


def _duration(seconds: float) -> str:
    minutes = seconds / 60
    if minutes < 1:
        return f"{seconds:.0f} s"
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"
