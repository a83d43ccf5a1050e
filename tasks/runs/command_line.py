"""What every task's command line does the same way: verbs, presets, one-line errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import tyro

from ordered_memory.backends.registry import BackendError
from tasks.runs.errors import UserError
from tasks.runs.run_directory import RunDirectory, config_from_dict, read_json
from tasks.runs.config import TrainingConfig

Config = TypeVar("Config")
RunConfig = TypeVar("RunConfig", bound=TrainingConfig)

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

Verb = Callable[[list[str]], None]


def run(program: str, verbs: Mapping[str, Verb], arguments: Sequence[str] | None = None) -> int:
    """Run one verb of a task; the first verb is the default.

    Args:
        program: as it is called, for messages: "python -m tasks.listops".
        verbs: what each verb does with the arguments after it.
        arguments: without the program; None for those of this process.
    Returns:
        The exit status: 0; 2 for bad input, which is told in one line; 130 when interrupted; 141 when nobody
        reads the output any more.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        verb = words.pop(0) if words and not words[0].startswith("-") else next(iter(verbs))
        if verb not in verbs:
            raise UserError(f"unknown verb {verb!r}: expected one of {', '.join(verbs)}")
        verbs[verb](words)
        sys.stdout.flush()
    except (UserError, BackendError) as error:
        return _fail(program, str(error))
    except BrokenPipeError:
        # `head`, for instance, has seen enough: what is still to be flushed at exit goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except OSError as error:
        return _fail(program, f"{error.filename or 'file system'}: {error.strerror or error}")
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return 0


def parse_with_presets(
    cls: type[Config], presets: Mapping[str, Config], words: list[str], program: str
) -> Config:
    """Options on top of a preset: `--preset NAME` chooses the defaults that the others override.

    Args:
        cls: a dataclass with a field `preset`.
        presets: by name; the first is the default.
        words: the command line.
        program: for `--help`.
    Returns:
        The resolved configuration.
    """
    name = option(words, "--preset") or next(iter(presets))
    if name not in presets:
        raise UserError(f"--preset must be one of {', '.join(presets)}, got {name!r}")
    return parse(cls, words, program, presets[name])


def parse_run(
    cls: type[RunConfig], presets: Mapping[str, RunConfig], words: list[str], program: str
) -> RunConfig:
    """The configuration of a training run: on top of a preset, or with `--resume` of what was saved.

    Args:
        cls, presets, words, program: see `parse_with_presets`.
    Returns:
        The resolved configuration.
    """
    config = parse_with_presets(cls, presets, words, program)
    saved = RunDirectory(config.directory).config
    if config.resume and saved.exists():
        config = parse(cls, words, program, config_from_dict(cls, read_json(saved), saved))
    return config


def parse(cls: type[Config], words: list[str], program: str, default: Config | None = None) -> Config:
    """A configuration from the command line through tyro, whose `--help` is its documentation."""
    if default is None:
        return tyro.cli(cls, args=words, prog=program)
    return tyro.cli(cls, args=words, prog=program, default=default)


def option(words: Sequence[str], name: str) -> str | None:
    """The value of an option given as `--name value` or `--name=value`, the last one winning."""
    value = None
    for i, word in enumerate(words):
        if word == name and i + 1 < len(words):
            value = words[i + 1]
        elif word.startswith(f"{name}="):
            value = word.split("=", 1)[1]
    return value


def _fail(program: str, message: str) -> int:
    print(f"{program}: error: {' '.join(message.split())}", file=sys.stderr)
    return EXIT_BAD_INPUT
