"""Options that several commands share, training excepted: threads and output files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.runs.files import atomic_path, check_writable_file, write_json
from tasks.runs.threads import use_threads


@dataclass
class CommandConfig:
    """Base class of the options of a command."""

    def check(self) -> None:
        """Raise a UserError if an option is out of range or an output file cannot be written."""


@dataclass
class ThreadsConfig(CommandConfig):
    """Threads."""

    threads: int | None = None
    """CPU threads; by default PyTorch chooses. Use 1 if other programs keep the cores busy."""

    def set_up(self) -> None:
        """Check the options, and set the number of threads.

        Raises:
            UserError: see `check`, or there are fewer cores than threads.
        """
        self.check()
        use_threads(self.threads)


@dataclass
class ResultsConfig(ThreadsConfig):
    """Threads and output file."""

    json: Path | None = None
    """Also write the results to this JSON file."""

    def check(self) -> None:
        super().check()
        check_writable_file("--json", self.json)

    def write(self, results: Any) -> None:
        """Write the results to the file of `--json`, if it is given.

        Args:
            results: JSON values.
        """
        if self.json is not None:
            write_json(self.json, results)


@dataclass
class PredictionsConfig(ResultsConfig):
    """Predictions of each example."""

    predictions: Path | None = None
    """Also write what the model predicts for each example to this file, one JSON object per line."""

    def check(self) -> None:
        super().check()
        check_writable_file("--predictions", self.predictions)

    def write_predictions(self, rows: Iterable[dict[str, Any]]) -> None:
        """Write the file of `--predictions`, if it is given.

        Args:
            rows: JSON values of each example; not computed without the option.
        """
        if self.predictions is not None:
            with atomic_path(self.predictions) as path, path.open("w", encoding="utf-8") as file:
                file.writelines(json_line(row) for row in rows)


@contextmanager
def print_after(text: str) -> Iterator[None]:
    """Print results after their files have been written, or could not be.

    Files come first, as standard output may be closed, and the text comes even so, as a disk may be full.

    Args:
        text: printed at the end of the `with` statement.
    """
    try:
        yield
    finally:
        print(text, flush=True)


def json_line(row: dict[str, Any]) -> str:
    """A JSON object on a line of its own.

    Args:
        row: JSON values.
    """
    text = json.dumps(row, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # the name of a file that is not UTF-8
        text = json.dumps(row)
    return text + "\n"
