"""TensorBoard logging: after every epoch, and at regular steps within epochs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.utils.tensorboard.writer import SummaryWriter

from tasks.runs.interfaces import Objective, Scores


@contextmanager
def tensorboard_writer(directory: Path | None, step: int) -> Iterator[SummaryWriter | None]:
    """Open a writer of event files for training, and close it afterwards.

    Args:
        directory: directory for the event files; None in all processes except the main one, since only that
            one logs.
        step: the step of the checkpoint that training resumes from; later points are dropped.
    Yields:
        The writer; None without a directory.
    """
    if directory is None:
        yield None
        return
    try:
        with _one_report_of_errors(), SummaryWriter(str(directory), purge_step=step + 1) as writer:
            yield writer
    except OSError as error:
        if error.errno is not None and error.filename is None:  # such as "No space left on device"
            error.filename = str(directory)
        raise


@contextmanager
def _one_report_of_errors() -> Iterator[None]:
    """Keep TensorBoard's writer thread from printing an error, such as a full disk, with a traceback.

    TensorBoard raises the error again in the thread that trains.
    """

    def is_writer(thread: threading.Thread | None) -> bool:
        return type(thread).__name__ == "_AsyncWriterThread"

    def report(arguments: threading.ExceptHookArgs) -> None:
        if not is_writer(arguments.thread):
            previous(arguments)

    previous, threading.excepthook = threading.excepthook, report
    try:
        yield
    finally:
        for thread in filter(is_writer, threading.enumerate()):
            if getattr(thread, "exception", None) is not None:
                thread.join()  # it may be about to report the error
        threading.excepthook = previous


class TensorBoardLogger:
    """Logs to TensorBoard.

    Args:
        writer: writer of the event files; None to log nothing.
        objective: defines the metrics.
        every: log every this many steps within an epoch.
    """

    def __init__(self, writer: SummaryWriter | None, objective: Objective, every: int) -> None:
        self._writer, self.objective, self.every = writer, objective, every
        self._sums: Tensor | None = None
        self._examples = 0

    def begin_epoch(self, sums: Tensor, examples: int) -> None:
        """Called at the start of an epoch, or of the rest of an epoch that is resumed.

        Args:
            sums: total loss in nats and number of correct predictions so far in this epoch, (2,), on the
                device.
            examples: number of examples so far in this epoch.
        """
        self._sums, self._examples = sums.clone(), examples

    def add_step(self, step: int, sums: Tensor, examples: int, learning_rate: float) -> None:
        """Log the mean metrics since the last logged step; other steps do not wait for the GPU.

        Every `every`-th step is logged. The first one after `begin_epoch` has the mean since then.

        Args:
            step: training steps since the beginning of the run.
            sums, examples: as for `begin_epoch`.
            learning_rate: that of the schedule; a language model's SGD scales it by the length of the batch.
        """
        if self._writer is None or self._sums is None or step % self.every:
            return
        means = ((sums - self._sums) / max(1, examples - self._examples)).tolist()
        values = self.objective.metrics(Scores(*means)) | {"learning_rate": learning_rate}
        self._add("step", values, step)
        self.begin_epoch(sums, examples)

    def add_epoch(self, row: dict[str, Any]) -> None:
        """Log the metrics, learning rate and time of an epoch.

        Args:
            row: a row of metrics.jsonl.
        """
        if self._writer is not None:
            for split in ("train", "validation"):
                values = {name: row[name] for name in row if name.startswith(f"{split}_")}
                self._add(
                    split, {name.removeprefix(f"{split}_"): x for name, x in values.items()}, row["step"]
                )
            self._add("epoch", {name: row[name] for name in ("learning_rate", "seconds")}, row["step"])
            self._writer.flush()

    def _add(self, group: str, values: dict[str, float], step: int) -> None:
        assert self._writer is not None
        for name, value in values.items():
            self._writer.add_scalar(f"{group}/{name}", value, step)
