"""Write files atomically, and read and write JSON: a file is written completely or not at all."""

from __future__ import annotations

import fcntl
import json
import os
import re
import reprlib
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tasks.runs.errors import UserError
from tasks.runs.options import flag
from tasks.runs.text_files import read_text

OUTPUTS = frozenset(["json", "predictions", "html", "output", "plot", "heat_map"])
"""Names of options that name a file to write."""
DATA = frozenset(["data_dir", "pairs", "treebank"])
"""Names of options that may name a directory whose files are read."""
_OPEN_FILES = ("/dev/fd/", "/dev/std", "/proc/")
"""Paths that refer to open files. These are written in place: other processes may be writing to them, too."""
_LEFTOVER = re.compile(r"\..*\.[0-9a-f]{16}\.part", re.DOTALL)


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` when the block succeeds.

    If the block fails, because of a crash, a full disk or a signal, `path` is left as it was. A symbolic link
    stays a link, and its target is replaced. A file keeps its permissions. Devices, pipes and files that are
    already open (/dev/stdout) are written in place.

    Args:
        path: the file to write, in a directory that exists.
    Yields:
        The path to write to: an empty file, which must be opened and not replaced.
    Raises:
        OSError: the file cannot be written; the error's `filename` is `path`.
    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     target = Path(directory) / "a.txt"
        ...     with atomic_path(target) as temporary:
        ...         _ = temporary.write_text("whole")
        ...     target.read_text()
        'whole'
    """
    target = Path(os.path.realpath(path))
    temporary = None
    try:
        if _written_in_place(path):
            yield path
            return
        temporary, descriptor = _create_beside(target)
        try:
            if target.exists():
                shutil.copymode(target, temporary)
            yield temporary
            os.fsync(descriptor)
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
            os.close(descriptor)
        _sync_directory(target.parent)
    except OSError as error:
        # "No space left on device" names no file, and other errors name the temporary one.
        names = (None, str(temporary), str(target), str(target.parent))
        if error.errno is not None and error.filename in names:
            error.filename, error.filename2 = str(path), None
        raise


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file atomically, with `atomic_path`.

    Args:
        path: the file, in a directory that exists.
        content: bytes, or text, which is written as UTF-8.
    Raises:
        OSError: the file cannot be written.
    """
    with atomic_path(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def write_or_print(path: Path | None, content: str) -> None:
    """Write a text atomically or, without a path, print it.

    Args:
        path: the file, in a directory that exists; None to print.
        content: whole lines.
    Raises:
        OSError: the file cannot be written.
    """
    if path is None:
        print(content, end="")
    else:
        write_atomically(path, content)


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


def read_json_lines(
    path: Path, *, max_bytes: int | None = None, max_line: int | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Read a file with a JSON object in each line; empty lines are skipped.

    Args:
        path: the file; it may be compressed, see `read_text`.
        max_bytes: maximum size of the text in bytes; None for the default of `read_text`.
        max_line: maximum size of a line in bytes; None for no maximum.
    Yields:
        Where an object stands, for error messages, and the object.
    Raises:
        UserError: as `read_text`, or a line is not a JSON object or too long; the message names it.
    """
    for number, line in enumerate(read_text(path, max_bytes).split("\n"), start=1):
        where = f"{path}, line {number}"
        if max_line is not None and len(line.encode()) > max_line:
            raise UserError(f"{where}: expected at most {max_line:,} bytes, got more")
        if line.strip():
            yield where, parse_json_object(line, where)


def parse_json_object(text: str, where: str) -> dict[str, Any]:
    """Parse a JSON object.

    Args:
        text: the object as JSON.
        where: where it stands, for error messages.
    Raises:
        UserError: not JSON, not an object, or nested too deeply.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UserError(f"{where}: not JSON ({error})") from None
    except RecursionError:
        raise UserError(f"{where}: not JSON (brackets are nested too deep)") from None
    if not isinstance(value, dict):
        raise UserError(f"{where}: expected a JSON object, got {reprlib.repr(value)}")
    return value


def is_finite_number(value: Any) -> bool:
    """Whether a JSON value is a number that a float can hold: not NaN, infinity or true.

    Args:
        value: anything that `read_json` returns.
    """
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def check_writable_file(option: str, path: Path | None) -> None:
    """Check, before a long computation, that an output file can be written.

    Args:
        option: the option that names the file, such as "--json", for error messages.
        path: its value; None is accepted.
    Raises:
        UserError: `path` is - or a directory, its parent does not exist, or one of them is read-only.
    """
    if path is None:
        return
    if path == Path("-"):
        raise UserError(f"{option} -: must name a file; it does not write to standard output")
    if path.is_dir():
        raise UserError(f"{option} {path}: is a directory")
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    if not target.parent.is_dir():
        raise UserError(f"{option} {path}: there is no directory {target.parent}")
    opened = [target] if target.exists() else []
    if not _written_in_place(path):
        opened.append(target.parent)  # for the temporary file
    if not all(os.access(place, os.W_OK) for place in opened):
        raise UserError(f"{option} {path}: no permission to write")


def prepare_output_file(option: str, path: Path | None) -> None:
    """Create the directory of an output file, and check that the file can be written.

    Args:
        option, path: as for `check_writable_file`.
    Raises:
        UserError: as for `check_writable_file`.
        OSError: the directory cannot be created.
    """
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
    check_writable_file(option, path)


def check_writable_directory(option: str, path: Path) -> None:
    """Check, before a long computation, that files can be written to a directory, which need not exist.

    Args:
        option: the option that names the directory, such as "--directory", for error messages.
        path: its value.
    Raises:
        UserError: `path` or, if it does not exist, the first of its parents that does is a file or read-only.
    """
    existing = next(place for place in (path, *path.parents) if place.exists())
    if not existing.is_dir():
        raise UserError(f"{option} {existing}: is not a directory")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise UserError(f"{option} {existing}: no permission to write")


def check_output_files(options: Any) -> None:
    """Check that no output file is a model, lies in a directory of data, or is the file of another option.

    `tasks.runs.command_line.run` checks the options of every command.

    Args:
        options: a dataclass; its fields with paths are compared.
    Raises:
        UserError: two options name the same file, or an output is in a directory of data or a .safetensors
            file.
    """
    option_by_path: dict[str, str] = {}
    data_directories = {
        os.path.realpath(path): name
        for name, path in vars(options).items()
        if name in DATA and isinstance(path, Path)
    }
    for name, value in vars(options).items():
        for path in value if isinstance(value, tuple | list) else [value]:
            if not isinstance(path, Path) or _written_in_place(path):
                continue
            if name in OUTPUTS and path.suffix == ".safetensors":
                raise UserError(f"{flag(name)} {path}: a .safetensors file would replace a model")
            directory = data_directories.get(os.path.realpath(path.parent))
            if name in OUTPUTS and directory is not None:
                raise UserError(
                    f"{flag(name)} {path}: would be read as data by {flag(directory)}; name a file elsewhere"
                )
            other_name = option_by_path.setdefault(os.path.realpath(path), name)
            if other_name != name and not OUTPUTS.isdisjoint((other_name, name)):
                raise UserError(
                    f"{flag(other_name)} and {flag(name)} must be different files, got {path} for both"
                )


def remove_leftovers(directory: Path) -> None:
    """Remove temporary files that killed processes have left, but not those of running ones.

    Args:
        directory: searched without its subdirectories.
    """
    for path in directory.iterdir():
        if not _LEFTOVER.fullmatch(path.name):
            continue
        with suppress(OSError):  # already removed, in use, or owned by another user
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(descriptor)


def _written_in_place(path: Path) -> bool:
    if str(path).startswith(_OPEN_FILES):
        return True
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _create_beside(target: Path) -> tuple[Path, int]:
    """Create an empty file in the directory of `target`; it is locked while its descriptor is open.

    An OSError names `target`, since the caller does not know the name of the file.
    """
    with suppress(PermissionError):  # the directory may be writable but not readable
        remove_leftovers(target.parent)
    while True:
        path = target.with_name(f".{target.name[:40]}.{secrets.token_hex(8)}.part")
        # O_EXCL: never open an existing file or link.
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except OSError as error:
            error.filename = str(target)
            raise
        is_taken = False  # by another process, which removes it as a leftover
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            is_taken = True
        except OSError:  # some file systems have no locks
            pass
        if path.exists() and not is_taken:  # it may have been removed before it was locked
            return path, descriptor
        os.close(descriptor)


def _sync_directory(directory: Path) -> None:
    """Make a rename survive a power failure, where the file system supports this."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
