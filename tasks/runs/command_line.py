"""The command line of the tasks: subcommands, presets, groups of options and one-line error messages."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import io
import itertools
import os
import shlex
import signal
import sys
import textwrap
import threading
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
import tyro

from ordered_memory.backends.registry import BackendError
from tasks.runs.errors import (
    EXIT_BAD_INPUT,
    EXIT_BROKEN_PIPE,
    EXIT_INTERRUPTED,
    Interrupted,
    UserError,
    memory_error_text,
)
from tasks.runs.files import check_output_files, read_json
from tasks.runs.options import warn_of_unused
from tasks.runs.processes import given_command, is_lost_process, is_main_process
from tasks.runs.run_directory import RunDirectory
from tasks.runs.saved_config import read_config
from tasks.runs.stop_signals import interrupt, stop_signals

Config = TypeVar("Config")


class Subcommand(NamedTuple):
    """A subcommand of a task.

    Args:
        config: dataclass of its options. Its docstring is the subcommand's description in `--help`, where the
            inherited options stand in one box per base class.
        run: the function that runs the subcommand.
        presets: only for subcommands that train: returns the presets by name, given the value of `--model`.
            The first preset is the default. With `--resume` the saved configuration takes its place.
    """

    config: type[Any]
    run: Callable[[Any], None]
    presets: Callable[[str | None], Mapping[str, Any]] | None = None


def run(task: str, subcommands: Mapping[str, Subcommand], arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand of a task; the first subcommand is the default.

    Args:
        task: its package or module, "tasks.listops". Its docstring is for `--help`: one sentence about the
            task and, after an empty line, examples of commands.
        subcommands: subcommands by name.
        arguments: without the program; by default `sys.argv[1:]`.
    Returns:
        The exit status: 0 for success, 2 for bad input (reported in one line), 130 if interrupted, 141 if the
        reader of the output, such as `head`, has closed the pipe.
    Raises:
        SystemExit: `--help`, with status 0, or an option that does not exist or has a value of another kind,
            with status 2.
    """
    if arguments is None:
        _prepare_process()
    words = list(sys.argv[1:] if arguments is None else arguments)
    program = f"python -m {task}"
    threads = torch.get_num_threads()
    token = given_command.set(None if arguments is None else f"{program} {shlex.join(words)}".rstrip())
    try:
        subcommand, config = _parse_subcommand(task, subcommands, list(words), program)
        check_output_files(config)
        subcommand.run(config)
        print(end="", flush=True)  # unlike sys.stdout.flush(), this also works if standard output is closed
    except (UserError, BackendError) as error:
        # All processes of a run raise the same error: report it once.
        return _fail(program, str(error)) if is_main_process() else EXIT_BAD_INPUT
    except BrokenPipeError:
        # Discard the output that Python would flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except OSError as error:
        return _fail(program, f"{error.filename or 'file system'}: {error.strerror or error}")
    except (MemoryError, RuntimeError, ValueError) as error:  # a ValueError of NumPy's, for a huge size
        if text := memory_error_text(error):
            return _fail(program, f"not enough memory for these options ({text})")
        if is_lost_process(error):
            return _fail(program, "another process of this run has failed; see its error message")
        raise
    except Interrupted as interruption:
        print(interruption, file=sys.stderr)
        if interruption.resumable:
            print(f"to resume: {_resume_command(program, words)}", file=sys.stderr)
        return EXIT_INTERRUPTED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    finally:  # for Python code that calls this several times
        given_command.reset(token)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
    return 0


def _prepare_process() -> None:
    """Set signal handlers and standard output of a process that is this command and nothing else."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    if in_main_thread and signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # see tasks/__init__.py
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if in_main_thread:
        for number in set(stop_signals()) - {signal.SIGINT}:  # these act like Ctrl-C
            signal.signal(number, interrupt)
    if isinstance(sys.stdout, io.TextIOWrapper):  # in a terminal without UTF-8, printing must not fail
        sys.stdout.reconfigure(errors="backslashreplace")


def _parse_subcommand(
    task: str, subcommands: Mapping[str, Subcommand], words: list[str], program: str
) -> tuple[Subcommand, Any]:
    """Select the subcommand that the words name, or else the first one, and parse its options."""
    is_named = bool(words) and not words[0].startswith("-")
    name = words.pop(0) if is_named else next(iter(subcommands))
    if name not in subcommands:
        raise UserError(f"unknown subcommand {name!r}: expected one of {', '.join(subcommands)}")
    subcommand = subcommands[name]
    command = f"{program} {name}" if is_named else program
    description = _sentence(subcommand.config) if is_named else _overview(task, subcommands)
    if subcommand.presets is None:
        return subcommand, parse(subcommand.config, words, command, description=description)
    return subcommand, parse_run(subcommand.config, subcommand.presets, words, command, description)


def parse(
    cls: type[Config],
    words: list[str],
    program: str,
    default: Config | None = None,
    description: str | None = None,
) -> Config:
    """Parse a command line into a configuration with tyro.

    Args:
        cls: a dataclass; inherited options are grouped by the class that declares them.
        words: the arguments.
        program: the command, for `--help`.
        default: the values of options that are not given; by default those of `cls`.
        description: the text above the options in `--help`; by default the docstring of `cls`.
    Returns:
        The configuration.
    """
    parsed = tyro.cli(
        _grouped(cls, default),
        args=words,
        prog=program,
        description=description or _sentence(cls),
        config=(tyro.conf.OmitArgPrefixes,),
    )
    values: dict[str, Any] = {}
    for name, value in vars(parsed).items():
        values.update(vars(value) if name.startswith(_GROUP) else {name: value})
    return cls(**values)


def parse_run(
    cls: type[Config],
    presets_of: Callable[[str | None], Mapping[str, Config]],
    words: list[str],
    program: str,
    description: str | None = None,
) -> Config:
    """Parse the command line of a training run.

    Options override those of the preset or, with `--resume`, those of the saved configuration.

    Args:
        cls: the task's configuration class.
        presets_of: see `Subcommand.presets`.
        words: the arguments.
        program: the command, for `--help`.
        description: the same as for `parse`.
    Returns:
        The configuration.
    Raises:
        UserError: there is no such preset, or the saved configuration cannot be read.
    """
    presets = presets_of(option(words, "--model"))
    has_preset = any(field.name == "preset" for field in dataclasses.fields(cls))  # type: ignore[arg-type]
    name = (option(words, "--preset") if has_preset else None) or next(iter(presets))
    if name not in presets:
        raise UserError(f"--preset must be one of {', '.join(presets)}, got {name!r}")
    default: Any = presets[name]
    config: Any = parse(cls, words, program, default, description)
    saved = RunDirectory(config.directory).config
    if config.resume and saved.exists():
        default = read_config(type(config), read_json(saved), saved)
        if has_preset and option(words, "--preset") not in (None, default.preset):
            raise UserError(
                f"--preset {config.preset}: {saved.parent} holds a run with --preset {default.preset}"
            )
        config = parse(cls, words, program, default, description)
    if is_main_process():
        warn_of_unused(config, default, config.unused)
    return typing.cast(Config, config)


def option(words: Sequence[str], name: str) -> str | None:
    """Find the value of an option given as `--name value` or `--name=value`; the last one counts.

    Args:
        words: the arguments.
        name: the option, with its dashes.
    Returns:
        The value as text; None if the option is not given.
    """
    value = None
    for i, word in enumerate(words):
        if word == name and i + 1 < len(words):
            value = words[i + 1]
        elif word.startswith(f"{name}="):
            value = word.split("=", 1)[1]
    return value


def _overview(task: str, subcommands: Mapping[str, Subcommand]) -> str:
    """The text above the options of the default subcommand: task, examples, and a sentence for each."""
    docstring = getattr(sys.modules.get(task, sys.modules["__main__"]), "__doc__", None) or ""
    sentence, _, examples = inspect.cleandoc(docstring).partition("\n\n")
    width = max(map(len, subcommands))
    lines = []
    for i, (name, subcommand) in enumerate(subcommands.items()):
        text = _sentence(subcommand.config) + (" The default; its options follow." if i == 0 else "")
        indent = " " * (width + 4)
        lines.append(textwrap.fill(text, 80, initial_indent=f"  {name:<{width}}  ", subsequent_indent=indent))
    example_lines = ["", "examples:", textwrap.indent(examples, "  ")] if examples else []
    heading = f"subcommands (`python -m {task} SUBCOMMAND --help` shows the options of a subcommand):"
    about = [textwrap.fill(sentence, 80), *example_lines, ""] if docstring else []
    return "\n".join([*about, heading, *lines])


def _sentence(cls: type[Any]) -> str:
    """The docstring of a configuration class in one line."""
    return " ".join((cls.__doc__ or "").split())


_GROUP = "group_"


def _grouped(cls: type[Any], default: Any) -> Any:
    """Group the inherited fields of `cls` for tyro, which shows each nested dataclass in a box of its own.

    The result has the fields that `cls` itself declares, all fields without a default, and one nested
    dataclass for the other fields of each base class. The box of `RunConfig` is called "run options".
    """
    types = typing.get_type_hints(cls, include_extras=True)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    groups: list[Any] = []
    members: list[Any] = []
    for base in cls.__mro__:
        own_names = [name for name in inspect.get_annotations(base) if name in fields]
        docstrings = _field_docstrings(base) if own_names else {}
        entries = [
            (
                name,
                typing.Annotated[types[name], tyro.conf.arg(help=docstrings.get(name, ""))],
                _default(fields.pop(name), default),
            )
            for name in own_names
        ]
        members += [entry for entry in entries if base is cls or _is_required(entry[2])]
        boxed_fields = [entry for entry in entries if base is not cls and not _is_required(entry[2])]
        if boxed_fields:
            title = base.__name__.removesuffix("Config").lower()
            group: Any = dataclasses.make_dataclass(
                base.__name__, boxed_fields, namespace={"__doc__": base.__doc__}
            )
            boxed: Any = typing.Annotated[group, tyro.conf.arg(name=title, help=_sentence(base))]
            groups.append((f"{_GROUP}{title}", boxed, dataclasses.field(default_factory=group)))
    members.sort(key=lambda member: not _is_required(member[2]))  # in a dataclass, defaults come last
    return dataclasses.make_dataclass(cls.__name__, [*members, *groups], namespace={"__doc__": cls.__doc__})


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _default(field: dataclasses.Field[Any], default: Any) -> Any:
    """The field with its value in `default`, if that is given."""
    if default is not None:
        value = getattr(default, field.name)
        if isinstance(value, list | dict):  # a dataclass refuses them as defaults
            return dataclasses.field(default_factory=value.copy)
        return dataclasses.field(default=value)
    return dataclasses.field(default=field.default, default_factory=field.default_factory)


@functools.cache
def _field_docstrings(cls: type[Any]) -> dict[str, str]:
    """The docstring of each field that a dataclass itself declares, in one line."""
    try:
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    except (OSError, TypeError):  # defined in a notebook or on standard input
        return {}
    body = typing.cast(ast.ClassDef, definition).body
    docstrings = {}
    for field, text in itertools.pairwise(body):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(string))):
                docstrings[name] = " ".join(string.split())
    return docstrings


def _resume_command(program: str, words: list[str]) -> str:
    """The command that resumes an interrupted run."""
    return f"{program} {shlex.join(words if '--resume' in words else [*words, '--resume'])}"


def _fail(program: str, message: str) -> int:
    print(f"{program}: error: {' '.join(message.split())}", file=sys.stderr)
    return EXIT_BAD_INPUT
