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
import os
import types
import typing
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout

from tasks.runs.errors import UserError
from tasks.runs.files import remove_leftovers, write_atomically

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
        """Raise a UserError if there is a run in this directory already.

        A configuration alone is none: the process ended before it had saved anything.
        """
        if any(path.exists() for path in (self.last, self.best, self.results)):
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
            remove_leftovers(self.path)
            yield
        finally:
            lock.release()

    def write_config(self, config: Any) -> None:
        """Write config.json.

        Args:
            config: a flat dataclass, presets and options resolved.
        """
        write_json(self.config, config_to_dict(config))

    def write_metrics(self, rows: list[dict[str, Any]]) -> None:
        """Replace metrics.jsonl, so that it never disagrees with the checkpoint.

        Args:
            rows: metrics by name, one dictionary for each epoch.
        """
        write_atomically(self.metrics, "".join(json.dumps(row) + "\n" for row in rows))

    def read_metrics(self) -> list[dict[str, Any]]:
        """A row for each epoch."""
        return [json.loads(line) for line in self.metrics.read_text(encoding="utf-8").splitlines()]

    def read_results(self) -> dict[str, Any] | None:
        """The final evaluation, or None when the run has not got there."""
        return read_json(self.results) if self.results.exists() else None


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON, whole or not at all.

    Args:
        path: of the file, in a directory that exists.
        value: anything that `json.dumps` takes.
    Raises:
        OSError: the file cannot be written.
    """
    write_atomically(path, json.dumps(value, indent=2) + "\n")


def read_json(path: Path) -> Any:
    """Read JSON.

    Args:
        path: of the file.
    Raises:
        UserError: no such file, or not JSON; names the file, and the line where there is one.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text, at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise UserError(f"{path}, line {error.lineno}: not JSON ({error.msg})") from None
    except (RecursionError, ValueError) as error:  # nested too deeply; a number of too many digits
        raise UserError(f"{path}: not JSON that can be read ({error})") from None


def config_to_dict(config: Any) -> dict[str, Any]:
    """A flat configuration dataclass as JSON values.

    Args:
        config: the dataclass.
    Returns:
        The value of each field by name; paths become text.
    """
    values = dataclasses.asdict(config)
    return {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}


def config_from_dict(cls: type[Config], values: Any, where: Path) -> Config:
    """The inverse of `config_to_dict`.

    Args:
        cls: the dataclass.
        values: what the file at `where` holds.
        where: the file, for errors.
    Returns:
        An instance; fields that the file lacks have their defaults.
    Raises:
        UserError: not a JSON object, an option that the dataclass lacks, or a value that is not of the type
            that the dataclass declares.
    """
    if not isinstance(values, dict):
        raise UserError(f"{where}: expected a JSON object, got {_shortened(values)}")
    hints = typing.get_type_hints(cls)
    fields = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    converted = {}
    for name, value in values.items():
        if name not in fields:
            raise UserError(f"{where}: unknown option {name!r}")
        try:
            converted[name] = _from_json(value, hints[name])
        except TypeError:
            expected = _describe(hints[name])
            raise UserError(f"{where}: {name}: expected {expected}, got {_shortened(value)}") from None
    return cls(**converted)


def _from_json(value: Any, hint: Any) -> Any:
    """A JSON value as the annotated type; TypeError where it is none."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin is typing.Annotated:
        return _from_json(value, arguments[0])
    if origin is types.UnionType or origin is typing.Union:
        for option in arguments:
            with suppress(TypeError):
                return _from_json(value, option)
    elif origin is typing.Literal:
        if any(type(value) is type(option) and value == option for option in arguments):
            return value
    elif origin is tuple and isinstance(value, list):
        if arguments[-1] is ...:
            arguments = arguments[:1] * len(value)
        if len(arguments) == len(value):
            return tuple(_from_json(*pair) for pair in zip(value, arguments, strict=True))
    elif origin is list and isinstance(value, list):
        return [_from_json(item, arguments[0]) for item in value]
    elif origin is dict and isinstance(value, dict):
        return {key: _from_json(item, arguments[1]) for key, item in value.items()}
    elif hint is Path and isinstance(value, str) and _is_file_name(value):
        return Path(value)
    elif (hint is float and type(value) is int and abs(value) < 2**1000) or type(value) is hint:
        return value
    raise TypeError


def _is_file_name(text: str) -> bool:
    """Whether a file may have this name, with its directories."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


def _describe(hint: Any) -> str:
    """A type as its annotation is written: "int", "float | None", "'cpu' or 'cuda'"."""
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(map(repr, typing.get_args(hint)))
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
