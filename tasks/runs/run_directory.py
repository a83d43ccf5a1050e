"""A run directory: the files of one training run, each replaced atomically.

config.json        the configuration: preset and options
record.json        commands, git commit, date, machine, and why training stopped
metrics.jsonl      training and validation metrics, one line per epoch
tensorboard/       the same as TensorBoard event files
last.safetensors   the complete training state, to resume from
best.safetensors   the weights of the epoch with the best validation score, and the configuration
results.json       results on the test data
report.html        results, learning curves and examples
diverged.json      epoch and step at which the loss stopped being finite, if it did
.lock              locked by the process that trains
"""

from __future__ import annotations

import dataclasses
import json
import os
import reprlib
import types
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout

from tasks.runs.config import COMPUTE_OPTIONS, TrainingConfig
from tasks.runs.errors import UserError
from tasks.runs.files import read_text, remove_leftovers, write_atomically
from tasks.runs.options import flag

Config = TypeVar("Config")
AnyConfig = TypeVar("AnyConfig", bound=TrainingConfig)


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

    def check_free(self) -> None:
        """Raise a UserError if this directory already holds a run.

        A directory with only a config.json is free: that run ended before it saved a checkpoint.
        """
        if any(path.exists() for path in (self.last, self.best, self.results)):
            raise UserError(
                f"{self.path}: already holds a run; use --resume to continue it, or another --run-dir"
            )
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"{self.path}: is not a directory")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Create the directory and lock it, so that no other process trains in it.

        Raises:
            UserError: another process is training here.
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

    def write_metrics(self, rows: list[dict[str, Any]]) -> None:
        """Write the whole of metrics.jsonl, so that it always agrees with the checkpoint.

        Args:
            rows: metrics by name, one dictionary per epoch.
        """
        write_atomically(self.metrics, "".join(json.dumps(row) + "\n" for row in rows))

    def read_metrics(self) -> list[dict[str, Any]]:
        """Read metrics.jsonl: metrics by name, one dictionary per epoch."""
        return [json.loads(line) for line in self.metrics.read_text(encoding="utf-8").splitlines()]

    def read_results(self) -> dict[str, Any] | None:
        """Read results.json; None if the run is not finished."""
        return read_json(self.results) if self.results.exists() else None

    def results_text(self, format_results: Callable[[dict[str, Any]], str]) -> str | None:
        """Format results.json; None if the run is not finished or its results are damaged.

        Args:
            format_results: formats results.
        """
        results = self.read_results()
        try:
            return None if results is None else format_results(results)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            return None


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON atomically.

    Args:
        path: the file, in a directory that exists.
        value: anything that `json.dumps` takes.
    Raises:
        OSError: the file cannot be written.
    """
    write_atomically(path, json.dumps(value, indent=2) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Args:
        path: the file.
    Raises:
        UserError: the file does not exist or is not JSON; the message names the file and, if known, the line.
    """
    text = read_text(path)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}, line {error.lineno}: not JSON ({error.msg})") from None
    except (RecursionError, ValueError) as error:  # nested too deeply, or a number with too many digits
        raise UserError(f"{path}: not JSON that can be read ({error})") from None


def config_to_dict(config: Any) -> dict[str, Any]:
    """Convert a configuration to JSON values.

    Args:
        config: a flat dataclass.
    Returns:
        The value of each field by name; paths become strings.
    """
    values = dataclasses.asdict(config)
    return {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}


def config_from_dict(cls: type[Config], values: Any, where: Path) -> Config:
    """The inverse of `config_to_dict`.

    Args:
        cls: the dataclass.
        values: the content of a JSON file.
        where: the file, for error messages.
    Returns:
        An instance of `cls`; fields that are missing in the file have their default values.
    Raises:
        UserError: not a JSON object, an unknown option, or a value that is not of the declared type.
    """
    if not isinstance(values, dict):
        raise UserError(f"{where}: expected a JSON object, got {reprlib.repr(values)}")
    hints = typing.get_type_hints(cls)
    fields = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    converted = {}
    for name, value in values.items():
        if name not in fields:
            raise UserError(f"{where}: unknown option {name!r}: from another task or a newer version")
        try:
            converted[name] = _from_json(value, hints[name])
        except TypeError:
            expected = _describe(hints[name])
            raise UserError(f"{where}: {name}: expected {expected}, got {reprlib.repr(value)}") from None
    return cls(**converted)


def read_config(config_class: type[AnyConfig], values: Any, path: Path) -> AnyConfig:
    """Convert and check the configuration of a run.

    Args:
        config_class: the task's configuration class.
        values: the content of a config.json, or the metadata of a best.safetensors.
        path: the file, for error messages.
    Raises:
        UserError: not a configuration of this task; the message names the file and the option.
    """
    config = config_from_dict(config_class, values, path)
    try:
        config.check()
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return config


def check_architecture(saved: TrainingConfig, config: TrainingConfig, path: Path) -> None:
    """Check that trained weights can be used with other options.

    Args:
        saved: the configuration that the weights were trained with.
        config: the configuration to use them with.
        path: their file, for error messages.
    Raises:
        UserError: an option of the model's architecture differs; the message names it.
    """
    for name in saved.architecture | config.architecture:
        before, now = getattr(saved, name), getattr(config, name)
        if before != now:
            raise UserError(f"{flag(name)} {_shown(now)}: {path} was trained with {_shown(before)}")


def _shown(value: Any) -> str:
    """The value of an option as on the command line."""
    return " ".join(value) if isinstance(value, tuple) else str(value)


def initial_checkpoint(config: TrainingConfig) -> Path | None:
    """The checkpoint that the model of a run is built from; None for random weights.

    Args:
        config: of the run. A resumed run needs the file of `initial_weights` no longer: its own checkpoint of
            the best epoch describes the same model. (`Trainer.restore` then loads the weights of the last
            step.)
    """
    best = RunDirectory(config.directory).best
    return best if config.resume and config.initial_weights and best.exists() else config.initial_weights


def changed_options(run: RunDirectory, config: TrainingConfig) -> list[tuple[str, Any, Any]]:
    """List the options that differ from those of the run in the directory.

    `COMPUTE_OPTIONS` are ignored, and so is one path in place of another, as files may have moved.

    Args:
        run: the run directory.
        config: the current configuration.
    Returns:
        For each option its name, the saved value and the current value.
    Raises:
        UserError: the saved configuration cannot be read.
    """
    if not run.config.exists():
        return []
    saved = vars(config_from_dict(type(config), read_json(run.config), run.config))
    return [
        (name, saved[name], now)
        for name, now in vars(config).items()
        if name not in COMPUTE_OPTIONS
        and now != saved[name]
        and not (isinstance(now, Path) and isinstance(saved[name], Path))
    ]


def _from_json(value: Any, hint: Any) -> Any:
    """Convert a JSON value to the annotated type; raises TypeError if it is not of that type."""
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
    """Whether a text can be a path."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:  # a lone surrogate
        return False


def _describe(hint: Any) -> str:
    """A type as in its annotation: "int", "float | None", "'cpu' or 'cuda'"."""
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(map(repr, typing.get_args(hint)))
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
