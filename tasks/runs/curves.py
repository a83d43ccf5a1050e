"""TensorBoard's curves of a run: after every epoch, and within epochs at regular steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.utils.tensorboard.writer import SummaryWriter

from tasks.runs.task import Scores, Task


class Curves:
    """A context manager that writes curves in the main process, and nothing in the others.

    Args:
        directory: for the event files; None in every process but the main one.
        task: defines the metrics.
        every: steps between two points within an epoch.
        step: the step of the checkpoint; points after it are dropped, as their steps are taken again.
    """

    def __init__(self, directory: Path | None, task: Task, every: int, step: int) -> None:
        self.directory, self.task, self.every = directory, task, every
        self._writer = None
        if directory is not None:
            with self._naming_directory():
                self._writer = SummaryWriter(str(directory), purge_step=step + 1)
        self._sums: Tensor | None = None
        self._examples = 0

    def __enter__(self) -> Curves:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._writer is not None:
            with self._naming_directory():
                self._writer.close()

    def begin_epoch(self, sums: Tensor, examples: int) -> None:
        """Note where an epoch, or the rest of one, begins.

        Args:
            sums: total loss in nats and number of correct answers so far, (2,), on the device.
            examples: number of examples so far.
        """
        self._sums, self._examples = sums.clone(), examples

    def add_step(self, step: int, sums: Tensor, examples: int, learning_rate: float) -> None:
        """Write the means since the last point if one is due; only then does the host wait for the device.

        Args:
            step: steps taken since the beginning.
            sums, examples: as for `begin_epoch`.
            learning_rate: of the step.
        """
        if self._writer is None or self._sums is None or step % self.every:
            return
        means = ((sums - self._sums) / max(1, examples - self._examples)).tolist()
        values = self.task.metrics(Scores(*means)) | {"learning_rate": learning_rate}
        self._add("step", values, step)
        self.begin_epoch(sums, examples)

    def add_epoch(self, row: dict[str, Any]) -> None:
        """Write the metrics, learning rate and time of an epoch.

        Args:
            row: a row of metrics.jsonl.
        """
        if self._writer is not None:
            for part in ("train", "validation"):
                values = {name: row[name] for name in row if name.startswith(f"{part}_")}
                self._add(part, {name.removeprefix(f"{part}_"): x for name, x in values.items()}, row["step"])
            self._add("epoch", {name: row[name] for name in ("learning_rate", "seconds")}, row["step"])
            with self._naming_directory():
                self._writer.flush()

    def _add(self, group: str, values: dict[str, float], step: int) -> None:
        assert self._writer is not None
        with self._naming_directory():
            for name, value in values.items():
                self._writer.add_scalar(f"{group}/{name}", value, step)

    @contextmanager
    def _naming_directory(self) -> Iterator[None]:
        """Add the directory to errors that name no file, such as that of a full disk."""
        try:
            yield
        except OSError as error:
            if error.errno is not None and error.filename is None:
                error.filename = str(self.directory)
            raise
