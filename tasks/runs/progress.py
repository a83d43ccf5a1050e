"""Training progress, and how it is printed in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tqdm import tqdm

from tasks.formatting.tables import duration_text, number, plural
from tasks.runs.config import TrainingConfig
from tasks.runs.processes import is_main_process


@dataclass
class Progress:
    """Training progress; part of every checkpoint."""

    epoch: int = 1
    """The current epoch, starting at 1; one more than the last epoch when all epochs are finished."""
    step_in_epoch: int = 0
    """Training steps in this epoch."""
    step: int = 0
    """Training steps since the beginning of the run."""
    seconds: float = 0.0
    """Time spent on training steps, and on checkpoints between them; not on validation."""
    loss_sum: float = 0.0
    """Sum of the losses of this epoch's examples, in nats."""
    correct: float = 0.0
    """Correct predictions in this epoch."""
    examples: int = 0
    """Examples seen in this epoch."""
    best: float | None = None
    """Best selection score."""
    best_loss: float | None = None
    """Validation loss of the best epoch."""
    best_epoch: int = 0
    """The epoch with the best selection score; of several, the one with the lowest validation loss."""
    best_step: int = 0
    """`step` at the best selection score."""
    finished: bool = False
    """Whether training has reached `epochs` or `max_minutes`."""
    history: list[dict[str, Any]] = field(default_factory=list)
    """The rows of metrics.jsonl."""

    def out_of_time(self, config: TrainingConfig) -> bool:
        """Whether training has taken `max_minutes`.

        Args:
            config: configuration of the run.
        """
        return config.max_minutes is not None and self.seconds >= 60 * config.max_minutes

    def is_best(self, selection_score: float, validation_loss: float) -> bool:
        """Whether an epoch is better than all before it: it has a higher score, or the same at a lower loss.

        Args:
            selection_score: see `Objective.selection_score`.
            validation_loss: mean over the validation data.
        """
        if self.best is None:
            return True
        if selection_score == self.best:
            return self.best_loss is not None and validation_loss < self.best_loss
        return selection_score > self.best

    def nothing_left(self, config: TrainingConfig) -> bool:
        """Whether training has ended or is between two epochs, and the options allow no further step.

        Args:
            config: the current configuration.
        """
        between_epochs = self.finished or not self.step_in_epoch
        return between_epochs and (self.epoch > config.epochs or self.out_of_time(config))


def progress_bar(iterable: Iterable[Any] | None = None, **options: Any) -> Any:
    """Make a tqdm progress bar, shown only in the main process and only if standard error is a terminal.

    Args:
        iterable: the iterable to wrap; None for a bar that is updated manually.
        **options: passed to `tqdm.tqdm`.
    """
    visible = is_main_process() and sys.stderr.isatty()
    return tqdm(iterable, disable=not visible, leave=False, **options)


def epoch_text(progress: Progress, config: TrainingConfig) -> str:
    """Format the line that is printed after an epoch: its time, its metrics and the remaining time.

    Args:
        progress: after the epoch; the last row of `history` is printed.
        config: configuration of the run.
    """
    row = progress.history[-1]
    parts = [f"epoch {row['epoch']}", f"{_seconds_in_last_epoch(progress.history):.1f} s"]
    for split in ("train", "validation"):
        metrics = {name.removeprefix(f"{split}_"): row[name] for name in row if name.startswith(f"{split}_")}
        values = (
            f"{name} {number(value, 4, whole=1 if name == 'accuracy' else None)}"
            for name, value in metrics.items()
        )
        parts.append(f"{split} {' '.join(values)}")
    if row["best"]:
        parts.append("best")
    if not progress.finished:
        parts.append(f"({remaining_text(progress, config)})")
    return "  ".join(parts)


def remaining_text(progress: Progress, config: TrainingConfig) -> str:
    """Format the remaining epochs or minutes, whichever ends first.

    The remaining epochs are assumed to take as long as the last one. Their time is shown
    only after the first epoch on all of the training data.

    Args:
        progress: before the end of training.
        config: configuration of the run.
    """
    epochs_done = progress.epoch - 1
    epochs = config.epochs - epochs_done
    in_this_epoch = progress.seconds - _seconds_before(progress.epoch, progress.history)
    by_epochs = max(0.0, epochs * epoch_seconds(progress.history) - in_this_epoch)
    time_is_known = epochs_done > config.short_epochs
    if config.max_minutes is not None:
        by_minutes = 60 * config.max_minutes - progress.seconds
        if not time_is_known or by_minutes < by_epochs:
            return f"{max(0.0, by_minutes) / 60:.1f} of {config.max_minutes:g} min left"
    epochs_text = f"{epochs} of {config.epochs} {plural(config.epochs, 'epoch')} left"
    return f"{epochs_text}, about {duration_text(by_epochs)}" if time_is_known else epochs_text


def stop_reason_text(progress: Progress, config: TrainingConfig) -> str:
    """Format why training stopped: the number of epochs or minutes that it was given.

    Args:
        progress: progress at the end of training.
        config: configuration of the run.
    """
    if config.max_minutes is not None and progress.out_of_time(config):
        minutes = plural(config.max_minutes, "minute")
        return f"{config.max_minutes:g} {minutes} of training (--max-minutes)"
    return f"{progress.epoch - 1} {plural(progress.epoch - 1, 'epoch')} (--epochs)"


def epoch_seconds(history: Sequence[Mapping[str, Any]]) -> float:
    """Estimate the time of a whole epoch from the last one, which a time limit may have cut short.

    Args:
        history: rows of metrics.jsonl.
    Returns:
        Seconds; 0 if no epoch has ended.
    """
    return _seconds_in_last_epoch(history) / float(history[-1]["fraction"]) if history else 0.0


def epochs_trained(history: Sequence[Mapping[str, Any]]) -> float:
    """Count the epochs of a run; a time limit may have cut the last one short.

    Args:
        history: rows of metrics.jsonl.
    """
    return history[-1]["epoch"] - 1 + float(history[-1]["fraction"]) if history else 0.0


def _seconds_in_last_epoch(history: Sequence[Mapping[str, Any]]) -> float:
    last = history[-1]
    return float(last["seconds"]) - _seconds_before(last["epoch"], history)


def _seconds_before(epoch: int, history: Sequence[Mapping[str, Any]]) -> float:
    """The time at the end of the epochs before one."""
    return max((float(row["seconds"]) for row in history if row["epoch"] < epoch), default=0.0)
