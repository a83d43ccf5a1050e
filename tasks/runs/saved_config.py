"""The configuration of a run as JSON: convert, check, and compare with the current options."""

from __future__ import annotations

import dataclasses
import reprlib
import types
import typing
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from tasks.runs.config import COMPUTE_OPTIONS, TrainingConfig
from tasks.runs.errors import UserError
from tasks.runs.files import read_json
from tasks.runs.options import flag, option_text
from tasks.runs.run_directory import RunDirectory

Config = TypeVar("Config")
AnyConfig = TypeVar("AnyConfig", bound=TrainingConfig)


def config_to_dict(config: Any) -> dict[str, Any]:
    """Convert a configuration to JSON values.

    Args:
        config: a flat dataclass.
    Returns:
        The value of each field by name; paths become strings.
    """
    return {name: _to_json(value) for name, value in dataclasses.asdict(config).items()}


def check_types(config: Any) -> None:
    """Check that every option has a value of its declared type: Python code may set others.

    Args:
        config: a flat dataclass.
    Raises:
        UserError: a value is of another type, or not one of those that the option may have.
    """
    hints = typing.get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        try:
            converted = _from_json(_to_json(value), hints[field.name])
            fits = converted == value or converted != converted  # NaN, of an option that may be a float
        except TypeError:
            fits = False
        if not fits:
            expected = _describe(hints[field.name])
            raise UserError(f"{flag(field.name)} must be {expected}, got {reprlib.repr(value)}")


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
        if name in config.unused:
            continue
        saved_value, value = getattr(saved, name), getattr(config, name)
        if saved_value != value:
            raise UserError(
                f"{flag(name)} {option_text(value)}: {path} was trained with {option_text(saved_value)}"
            )


def changed_options(
    run: RunDirectory, config: TrainingConfig, *, paths: bool = False
) -> list[tuple[str, Any, Any]]:
    """List the options that differ from those of the run in the directory.

    Differences in `COMPUTE_OPTIONS` and in paths of data are ignored: files may have moved.

    Args:
        run: the run directory.
        config: the current configuration.
        paths: list the paths of data that differ, instead of the other options.
    Returns:
        For each option its name, the saved value and the current value.
    Raises:
        UserError: the saved configuration cannot be read.
    """
    if not run.config.exists():
        return []
    saved = vars(config_from_dict(type(config), read_json(run.config), run.config))
    return [
        (name, saved[name], value)
        for name, value in vars(config).items()
        if name not in COMPUTE_OPTIONS
        and value != saved[name]
        and (is_data_path(name, saved[name]) and is_data_path(name, value)) == paths
    ]


def is_data_path(name: str, value: Any) -> bool:
    """Whether an option names files of data, which may be the same in another place.

    Args:
        name: name of the option.
        value: its value.
    """
    return isinstance(value, Path) and name != "initial_weights"


def _to_json(value: Any) -> Any:
    """Convert paths to strings, also within tuples, lists and dictionaries."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    if isinstance(value, dict):
        return {name: _to_json(item) for name, item in value.items()}
    return value


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
    """Whether a text can be a path, be it in another locale than today's."""
    try:
        return b"\0" not in text.encode(errors="surrogateescape")
    except UnicodeEncodeError:  # a lone surrogate
        return False


def _describe(hint: Any) -> str:
    """A type as in its annotation: "int", "float | None", "'cpu' or 'cuda'"."""
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(map(repr, typing.get_args(hint)))
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
