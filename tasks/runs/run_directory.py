"""A run directory: everything one training run leaves behind, each file whole at every moment.

config.json        the resolved configuration
metrics.jsonl      one line for each epoch
tensorboard/       the same as curves
last.safetensors   the complete training state, to resume from
best.safetensors   the weights of the best epoch on validation data, with the configuration
results.json       the final evaluation
report.html        the same to look at
.lock              held by the process that trains
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout

from tasks.runs.errors import UserError
from tasks.runs.files import write_atomically

Config = TypeVar("Config")


class RunDirectory:
    """The files of one run by name.

    Args:
        path: the directory; `locked` makes it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.json"
        self.metrics = path / "metrics.jsonl"
        self.tensorboard = path / "tensorboard"
        self.last = path / "last.safetensors"
        self.best = path / "best.safetensors"
        self.results = path / "results.json"
        self.report = path / "report.html"

    def check_free(self) -> None:
        """Raise a UserError if there is a run in this directory already."""
        if self.config.exists() or self.last.exists():
            raise UserError(
                f"{self.path}: holds a run already; --resume continues it, --run-dir names another place"
            )
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"{self.path}: is not a directory")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from training in this directory; a process that dies lets go of it.

        Raises:
            UserError: another one does.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path / ".lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise UserError(f"{self.path}: another process is training here") from None
        try:
            yield
        finally:
            lock.release()

    def write_config(self, config: Any) -> None:
        """Write the resolved configuration (a dataclass)."""
        write_json(self.config, config_to_dict(config))

    def write_metrics(self, rows: list[dict[str, Any]]) -> None:
        """Replace metrics.jsonl by these rows: it never disagrees with the checkpoint."""
        write_atomically(self.metrics, "".join(json.dumps(row) + "\n" for row in rows))

    def read_metrics(self) -> list[dict[str, Any]]:
        """A row for each epoch."""
        return [json.loads(line) for line in self.metrics.read_text(encoding="utf-8").splitlines()]

    def read_results(self) -> dict[str, Any] | None:
        """The final evaluation, or None when the run has not got there."""
        return read_json(self.results) if self.results.exists() else None


def write_json(path: Path, value: Any) -> None:
    """Write readable JSON, whole or not at all."""
    write_atomically(path, json.dumps(value, indent=2) + "\n")


def read_json(path: Path) -> Any:
    """Read JSON; a UserError names the file and line of what is not."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except json.JSONDecodeError as error:
        raise UserError(f"{path}, line {error.lineno}: not JSON ({error.msg})") from None


def config_to_dict(config: Any) -> dict[str, Any]:
    """A flat configuration dataclass as JSON values."""
    values = dataclasses.asdict(config)
    return {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}


def config_from_dict(cls: type[Config], values: dict[str, Any], where: Path) -> Config:
    """The inverse of `config_to_dict`.

    Args:
        cls: the dataclass.
        values: what the file at `where` holds.
        where: the file, for errors.
    Returns:
        An instance; fields that the file lacks have their defaults.
    Raises:
        UserError: the file has an option that the dataclass lacks.
    """
    hints = typing.get_type_hints(cls)
    known = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            raise UserError(f"{where}: unknown option {name!r}")
    return cls(**{name: _from_json(value, hints[name]) for name, value in values.items()})


def _from_json(value: Any, hint: Any) -> Any:
    if typing.get_origin(hint) is typing.Annotated:
        return _from_json(value, typing.get_args(hint)[0])
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is not None and Path in options:
        return Path(value)
    if isinstance(value, list) and any(typing.get_origin(option) is tuple for option in options):
        return tuple(value)
    return value
