"""Find and read text files, which may be compressed."""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tasks.runs.errors import UserError

FORMATS: dict[str, Callable[[IO[bytes]], Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
"""What decompresses a file, by the last suffix of its name."""
MAX_BYTES = 1 << 32
"""Maximum size of a decompressed text in bytes: a small compressed file may hold a huge text."""
BLOCK = 1 << 24
"""Number of bytes to read at once."""
ZIP_ERRORS = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OSError, ValueError),
    *(NotImplementedError, RuntimeError, MemoryError),
)
"""What `zipfile` raises for archives that are truncated, corrupt, encrypted or of an unknown kind."""


def read_text(path: Path, max_bytes: int | None = None) -> str:
    """Read a text file in UTF-8, with or without a byte order mark; all line ends become line feeds.

    Args:
        path: the file, which is decompressed if its name ends in .gz, .bz2 or .xz.
        max_bytes: maximum size of the text in bytes; None for `MAX_BYTES`.
    Raises:
        UserError: as `read_content`, or the file is not UTF-8 text.
    """
    content = read_content(path, MAX_BYTES if max_bytes is None else max_bytes)
    return decode(content, str(path)).replace("\r\n", "\n").replace("\r", "\n")


def read_content(path: Path, max_bytes: int) -> bytearray:
    """Read a file.

    Args:
        path: the file, which is decompressed if its name ends in .gz, .bz2 or .xz.
        max_bytes: maximum size of the decompressed content.
    Raises:
        UserError: the file does not exist, is a directory, is too large, or is compressed and damaged.
    """
    try:
        with path.open("rb") as file:
            content = read_bytes(file, str(path), max_bytes)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise UserError(f"{path}: expected a file, got a directory") from None
    if len(content) > max_bytes:
        raise UserError(f"{path}: expected at most {max_bytes:,} bytes of text, got more")
    return content


def find_files(directory: Path, names: Sequence[str]) -> list[Path]:
    """Find the files of a data set, each as it is or compressed.

    Args:
        directory: holds all of them.
        names: their names without the suffix of a compressed file.
    Returns:
        Their paths, in the same order.
    Raises:
        UserError: there is no such directory, or a file is not in it.
    """
    if not directory.is_dir():
        raise UserError(f"{directory}: no such directory; it should hold {', '.join(names)}")
    paths = [find_file(directory / name) for name in names]
    missing = [path.name for path in paths if not path.exists()]
    if missing:
        raise UserError(f"{directory}: no {', '.join(missing)} in this directory")
    return paths


def find_file(path: Path) -> Path:
    """Find a file as it is or compressed: `train.txt`, or else `train.txt.gz`, .bz2 or .xz.

    Args:
        path: its path without the suffix of a compressed file.
    Returns:
        The path of the file; `path` if there is none.
    """
    candidates = (path.with_name(path.name + suffix) for suffix in ("", *FORMATS))
    return next((candidate for candidate in candidates if candidate.exists()), path)


def without_copies(names: Collection[str]) -> list[str]:
    """Leave out compressed files that are also present uncompressed.

    Args:
        names: names or paths of files.
    Example:
        >>> without_copies(["a.mrg", "a.mrg.gz", "b.mrg.gz"])
        ['a.mrg', 'b.mrg.gz']
    """
    as_they_are = {name for name in names if uncompressed_name(name) == name}
    return [name for name in names if name in as_they_are or uncompressed_name(name) not in as_they_are]


def uncompressed_name(name: str) -> str:
    """Remove the suffix of a compressed file from its name.

    Args:
        name: a name or path.
    Example:
        >>> [uncompressed_name(name) for name in ("trees.mrg.gz", "trees.mrg")]
        ['trees.mrg', 'trees.mrg']
    """
    suffix = Path(name).suffix
    return name.removesuffix(suffix) if suffix.lower() in FORMATS else name


def read_bytes(file: IO[bytes], name: str, limit: int) -> bytearray:
    """Read and decompress a file, up to a little more than a limit.

    Args:
        file, name: see `decompressed`.
        limit: number of decompressed bytes after which no more is read.
    Returns:
        All that the file contains, or more than `limit` bytes of it.
    Raises:
        UserError: see `decompressed`.
    """
    content = bytearray()
    with decompressed(file, name) as text_file:
        while len(content) <= limit and (block := text_file.read(BLOCK)):
            content += block
    return content


@contextmanager
def decompressed(file: IO[bytes], name: str) -> Iterator[IO[bytes]]:
    """Decompress a file while it is read.

    Args:
        file: opened to read bytes.
        name: its name; the suffix .gz, .bz2 or .xz gives the format of a compressed file.
    Yields:
        A file with the decompressed bytes; `file` itself if it is not compressed.
    Raises:
        UserError: a compressed file is truncated or damaged; raised while it is read.
    """
    suffix = Path(name).suffix.lower()
    if suffix not in FORMATS:
        yield file
        return
    try:
        with FORMATS[suffix](file) as text_file:
            yield text_file
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the disk, not of the format
            raise
        raise UserError(f"{name}: truncated or damaged {suffix} file ({error})") from None


def decode(content: bytes | bytearray, name: str) -> str:
    """Decode UTF-8 text, with or without a byte order mark.

    Args:
        content: the text.
        name: name of the file, for error messages.
    Raises:
        UserError: the content is not UTF-8 text; the message names the line.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UserError(f"{name}, line {line}: not UTF-8 text") from None
