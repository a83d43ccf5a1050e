"""Files that appear whole or not at all."""

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

_OPEN_FILES = ("/dev/fd/", "/dev/std", "/proc/")
"""Names of what is open already: replacing the file behind one would leave its other writers with the old."""
_LEFTOVER = re.compile(r"\..*\.[0-9a-f]{16}\.part", re.DOTALL)


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends well.

    A crash, a full disk or a signal inside the block leaves what stood at `path` before. A symbolic link
    stays a link: the file that it leads to is replaced. A file keeps its permissions. What is no regular
    file, such as a device or a pipe, is written in place, and so is what is open already (/dev/stdout).

    Args:
        path: the file to write, in a directory that exists.
    Yields:
        Where to write it; the file must be opened, not replaced.
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
    if _written_in_place(path):
        yield path
        return
    target = Path(os.path.realpath(path))
    temporary = None
    try:
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
        # A full disk names no file, others name the temporary one.
        if error.errno is not None and error.filename in (None, str(temporary), str(target.parent)):
            error.filename, error.filename2 = str(path), None
        raise


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a whole file through `atomic_path`.

    Args:
        path: the file, in a directory that exists.
        content: bytes, or text to be written as UTF-8 with Unix line ends.
    Raises:
        OSError: the file cannot be written.
    """
    with atomic_path(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def remove_leftovers(directory: Path) -> None:
    """Remove the temporary files of killed processes; those of living ones stay.

    Args:
        directory: only its own files, not those of directories below.
    """
    for path in directory.iterdir():
        if not _LEFTOVER.fullmatch(path.name):
            continue
        with suppress(OSError):  # gone already, in use, or somebody else's
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
    """A new empty file in the directory of `target`, locked as long as its descriptor is open."""
    with suppress(PermissionError):  # a directory that may be written to and not listed
        remove_leftovers(target.parent)
    while True:
        path = target.with_name(f".{target.name[:40]}.{secrets.token_hex(8)}.part")
        # O_EXCL: neither a file nor a link that somebody has put there is followed.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.exists():  # not taken for a leftover before it was locked
            return path, descriptor
        os.close(descriptor)


def _sync_directory(directory: Path) -> None:
    """Make a rename last through a power cut, where the file system can."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
