"""A run directory: the files of one training run, each replaced atomically.

config.json        the configuration: preset and options
record.json        commands, git commit, date, machine, and why training stopped
metrics.jsonl      training and validation metrics, one line per epoch, or per part that a time limit cut off
tensorboard/       the same as TensorBoard event files
last.safetensors   the complete training state, to resume from
best.safetensors   the weights of the epoch with the best validation score, and the configuration
.best-900.safetensors  new best weights, after 900 steps, until last.safetensors has these steps, too
results.json       results on the test data
report.html        results, learning curves and examples
diverged.json      epoch and step at which the loss or a weight stopped being finite, if it did
.lock              locked by the process that trains
"""

from __future__ import annotations

import errno
import json
import os
import re
import reprlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from tasks.runs.config import SEED_DIRECTORY
from tasks.runs.errors import UserError
from tasks.runs.files import (
    is_finite_number,
    parse_json_object,
    read_json,
    remove_leftovers,
    write_atomically,
)
from tasks.runs.text_files import read_text

LOCKS_UNSUPPORTED = (errno.ENOLCK, errno.EOPNOTSUPP)
"""The errors of a file system that has no locks."""


class RunDirectory:
    """The paths of the files of a run.

    Args:
        path: the directory; `locked` creates it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.json"
        self.record = path / "record.json"
        self.metrics = path / "metrics.jsonl"
        self.tensorboard = path / "tensorboard"
        self.last = path / "last.safetensors"
        self.best = path / "best.safetensors"
        self.results = path / "results.json"
        self.report = path / "report.html"
        self.diverged = path / "diverged.json"

    @property
    def absolute_path(self) -> Path:
        """The path from the root, which has a name and a parent whatever the user typed, such as `.`."""
        return Path(os.path.abspath(self.path))

    def new_best(self, step: int) -> Path:
        """The file for new best weights, until `commit_best` renames it to best.safetensors.

        Args:
            step: the number of training steps that they have had.
        """
        return self.path / f".best-{step}.safetensors"

    def commit_best(self, step: int) -> None:
        """Rename new best weights to best.safetensors, if the checkpoint includes their steps.

        A run may have been killed after it wrote new best weights. If the checkpoint has their steps, they
        replace best.safetensors; otherwise they are deleted, as the steps will be repeated.

        Args:
            step: the number of steps of the best weights, according to the checkpoint; 0 if there are none.
        """
        with suppress(FileNotFoundError):
            os.replace(self.new_best(step), self.best)
        for path in self.path.glob(".best-*.safetensors"):
            path.unlink(missing_ok=True)

    def check_best(self, epoch: int) -> None:
        """Raise a UserError if the weights of the best epoch are missing.

        Args:
            epoch: the best epoch, according to the checkpoint; 0 if there is none.
        """
        if epoch and not self.best.exists():
            raise UserError(
                f"{self.path}: has no {self.best.name}, the weights of its best epoch, {epoch}; use another "
                "--run-dir to start a new run"
            )

    def check_free(self) -> None:
        """Raise a UserError if this directory already holds a run.

        A directory with only a config.json is free: that run ended before it saved a checkpoint.
        """
        if self.has_run():
            raise UserError(
                f"{self.path}: already holds a run; use --resume to continue it, or another --run-dir"
            )
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"{self.path}: is not a directory")

    def has_run(self) -> bool:
        """Whether the directory holds a run that has saved something."""
        return any(path.exists() for path in (self.last, self.best, self.results))

    def check_single(self) -> None:
        """Raise a UserError if the directory holds no run itself, but subdirectories of several seeds."""
        seeds = sorted(
            path.parent
            for path in self.path.glob(f"{SEED_DIRECTORY}*/{self.config.name}")
            if path.parent.name.removeprefix(SEED_DIRECTORY).isdecimal()
        )
        if seeds and not self.has_run():
            raise UserError(
                f"{self.path}: holds runs of several seeds; use --seeds, or name one: --run-dir {seeds[0]}"
            )

    def remove_results(self) -> None:
        """Remove results.json and the summaries over several seeds that include it, as it will change."""
        self.results.unlink(missing_ok=True)
        directory = self.absolute_path
        name = re.fullmatch(r"(.*?)(\d+)", directory.name)
        if name is None:
            return
        prefix, seed = name[1], int(name[2])
        for path in directory.parent.glob("*-to-*.json"):
            seeds = re.fullmatch(rf"{re.escape(prefix)}(\d+)-to-(\d+)\.json", path.name)
            if seeds and int(seeds[1]) <= seed <= int(seeds[2]) and _is_summary(path):
                path.unlink(missing_ok=True)

    def check_resumable(self) -> None:
        """Raise a UserError if this directory holds a trained model, but no state to resume training from.

        A run that was killed before the end of its first epoch may start again.
        """
        epochs = len(self.read_metrics()) if self.metrics.exists() else 0
        if not self.last.exists() and self.best.exists() and (self.results.exists() or epochs > 1):
            raise UserError(
                f"{self.path}: has no {self.last.name} to resume from; use another --run-dir, with "
                f"--initial-weights {self.best} to train these weights further"
            )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Create the directory and lock it, so that no other process trains in it.

        Some network file systems have no locks. There a warning is printed, and the directory is not locked.

        Raises:
            UserError: another process is training here, or the lock may not be opened.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path / ".lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise UserError(f"{self.path}: another process is training here") from None
        except OSError as error:
            if error.errno not in LOCKS_UNSUPPORTED:
                raise UserError(f"{self.path}: cannot be locked ({error})") from None
            print(
                f"warning: {self.path}: cannot be locked ({error}); start no other training here",
                file=sys.stderr,
            )
        try:
            remove_leftovers(self.path)
            yield
        finally:
            lock.release()

    def write_metrics(self, rows: list[dict[str, Any]]) -> None:
        """Write the whole of metrics.jsonl, so that it always agrees with the checkpoint.

        Args:
            rows: metrics by name, in the order in which the weights were validated.
        """
        write_atomically(self.metrics, "".join(json.dumps(row) + "\n" for row in rows))

    def read_metrics(self, *names: str) -> list[dict[str, Any]]:
        """Read metrics.jsonl: metrics by name, in the order in which the weights were validated.

        Args:
            *names: metrics that every row must have, beside "epoch" and "fraction".
        Raises:
            UserError: the file does not exist or is damaged, or one of these metrics is not a finite number.
        """
        rows = []
        for number, line in enumerate(read_text(self.metrics).splitlines(), start=1):
            where = f"{self.metrics}, line {number}"
            row = parse_json_object(line, where)
            for name in ("epoch", "fraction", *names):
                if not is_finite_number(value := row.get(name)):
                    raise UserError(f"{where}: expected {name} to be a number, got {reprlib.repr(value)}")
            rows.append(row)
        return rows

    def read_history(self, *names: str) -> list[dict[str, Any]]:
        """Read metrics.jsonl of a finished run, for its report.

        Args:
            *names: as for `read_metrics`.
        Raises:
            UserError: as for `read_metrics`, or no epoch is marked as the best one.
        """
        rows = self.read_metrics(*names)
        try:
            best_row(rows)
        except UserError as error:
            raise UserError(f"{self.metrics}: {error}") from None
        return rows

    def read_results(self) -> dict[str, Any] | None:
        """Read results.json; None if the run is not finished."""
        return read_json(self.results) if self.results.exists() else None

    def results_text(self, format_results: Callable[[dict[str, Any]], str]) -> str | None:
        """Format results.json; None if the run is not finished or its results are damaged.

        Args:
            format_results: formats results.
        """
        try:
            results = self.read_results()
            return None if results is None else format_results(results)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            return None


def _is_summary(path: Path) -> bool:
    """Whether a file is a summary of several seeds, and not just named like one."""
    with suppress(UserError):
        values = read_json(path)
        return isinstance(values, dict) and {"runs", "diverged", "results"} <= values.keys()
    return False


def digest_of_test_data(results: Any) -> str | None:
    """The digest of the data that a run was tested on; None if there are no results, or damaged ones.

    Args:
        results: the content of results.json.
    """
    data = results.get("data") if isinstance(results, dict) else None
    digest = data.get("test") if isinstance(data, dict) else None
    return digest if isinstance(digest, str) else None


def tested_on_other_data(runs: Sequence[RunDirectory]) -> list[int]:
    """List the runs whose test data are not those of the first one; they have no common mean.

    Args:
        runs: those without results are left out.
    Returns:
        Indices of `runs`.
    Raises:
        UserError: a results.json is damaged.
    """
    digests = {i: digest_of_test_data(run.read_results()) for i, run in enumerate(runs)}
    known = {i: value for i, value in digests.items() if value is not None}
    return [i for i, value in known.items() if value != next(iter(known.values()))]


def best_row(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Find the metrics of the epoch whose weights were tested.

    Args:
        rows: rows of metrics.jsonl.
    Raises:
        UserError: no row is marked as the best one.
    """
    if marked := [row for row in rows if row.get("best")]:
        return marked[-1]
    raise UserError("marks no epoch as the best one")
