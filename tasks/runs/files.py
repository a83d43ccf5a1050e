"""Files that are written whole or not at all."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tasks.runs.errors import UserError

_OPEN_FILES = ("/dev/fd/", "/dev/std", "/proc/")
"""Names of open files: replacing the file behind one would leave its other writers with the old file."""
_LEFTOVER = re.compile(r"\..*\.[0-9a-f]{16}\.part", re.DOTALL)


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that replaces it when the block succeeds.

    A crash, a full disk or a signal inside the block leaves `path` as it was. A symbolic link stays a link:
    its target is replaced. A file keeps its permissions. Anything but a regular file, such as a device or a
    pipe, is written in place, and so is a file that is open already (/dev/stdout).

    Args:
        path: the file to write, in a directory that exists.
    Yields:
        The path to write to; the file must be opened, not replaced.
    Raises:
        OSError: the file cannot be written; `filename` is `path`.
    Example:
        >>> import tempfile
        >>> target = Path(tempfile.mkdtemp()) / "a.txt"
        >>> with atomic_path(target) as temporary:
        ...     _ = temporary.write_text("whole")
        >>> target.read_text()
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
        # The error of a full disk names no file, others name the temporary one.
        if error.errno is not None and error.filename in (None, str(temporary), str(target.parent)):
            error.filename, error.filename2 = str(path), None
        raise


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a whole file through `atomic_path`.

    Args:
        path: the file, in a directory that exists.
        content: bytes, or text, which is written as UTF-8.
    Raises:
        OSError: the file cannot be written.
    """
    with atomic_path(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def check_writable_file(option: str, path: Path | None) -> None:
    """Check, before anything takes its time, that the file named by an option can be written.

    Args:
        option: the option, for the error: "--json".
        path: its value; None passes.
    Raises:
        UserError: `path` is a directory, its directory does not exist, or one of the two is read-only.
    """
    if path is None:
        return
    if path.is_dir():
        raise UserError(f"{option} {path}: is a directory")
    if not path.parent.is_dir():
        raise UserError(f"{option} {path}: there is no directory {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UserError(f"{option} {path}: no permission to write")


def remove_leftovers(directory: Path) -> None:
    """Remove temporary files of killed processes, but not those of running ones.

    Args:
        directory: subdirectories are left alone.
    """
    for path in directory.iterdir():
        if not _LEFTOVER.fullmatch(path.name):
            continue
        with suppress(OSError):  # removed already, in use, or owned by someone else
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
    except FileNotFoundError:
        return False


def _create_beside(target: Path) -> tuple[Path, int]:
    """A new empty file in the directory of `target`, locked while its descriptor is open."""
    with suppress(PermissionError):  # a directory that is writable but not readable
        remove_leftovers(target.parent)
    while True:
        path = target.with_name(f".{target.name[:40]}.{secrets.token_hex(8)}.part")
        # O_EXCL: an existing file or link of this name is not opened.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.exists():  # not removed as a leftover before it was locked
            return path, descriptor
        os.close(descriptor)


def _sync_directory(directory: Path) -> None:
    """Make a rename survive a power failure, if the file system supports it."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
