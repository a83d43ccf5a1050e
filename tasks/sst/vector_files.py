"""Read word vectors in GloVe's text format: one word and its numbers per line, separated by single spaces.

The text formats of word2vec and fastText, whose first line has the numbers of words and dimensions, are also
read. A byte order mark at the start of a file is skipped.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasks.runs.errors import UserError
from tasks.runs.text_files import BLOCK, ZIP_ERRORS, decompressed

SUFFIXES = (".txt", ".vec")
"""Suffixes of files of vectors inside a zip file."""
SHOWN_CHARACTERS = 60
"""Maximum number of characters of a malformed number that an error message shows."""
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
LARGEST = float(np.finfo(np.float32).max)

Block = tuple[list[str], NDArray[np.float32]]
"""W words, and their numbers (W, E)."""


class VectorFile(NamedTuple):
    """A file of vectors.

    Args:
        path: path of a text file, which may be compressed (.gz, .bz2, .xz), or of a zip file (.zip).
        member: the file inside the zip file; None if there is only one.
    """

    path: Path
    member: str | None

    def __str__(self) -> str:
        return f"{self.path}:{self.member}" if self.member else str(self.path)


def find_vector_file(name: str) -> VectorFile:
    """Parse the name of a file of vectors and check that the file exists.

    Args:
        name: a path, or FILE.zip:MEMBER for a file inside a zip file.
    Returns:
        The file.
    Raises:
        UserError: the file does not exist or is not a regular file.
    """
    inside = re.compile(r"(.+\.zip):(.+)", re.IGNORECASE | re.DOTALL)
    parts = None if Path(name).exists() else inside.fullmatch(name)
    source = VectorFile(Path(parts[1]), parts[2]) if parts else VectorFile(Path(name), None)
    if source.path.is_dir():
        raise UserError(f"{source.path}: expected a file of vectors, got a directory")
    if not source.path.exists():
        raise UserError(f"{source.path}: no such file")
    if not source.path.is_file():  # a pipe: it could be read once and not be found again in the cache
        raise UserError(f"{source.path}: expected a regular file of vectors")
    return source


def read_blocks(source: VectorFile) -> Iterator[Block]:
    """Read all vectors of a file, in blocks.

    Args:
        source: the file.
    Yields:
        Words in the order of the file, and their vectors; all vectors have the length of the first.
    Raises:
        UserError: the file is empty or damaged, a zip file does not contain the member, or a line has too few
            or too many numbers or not finite ones; the message names the line.
    """
    number, dimension, empty = 1, 0, True
    for lines in _lines(source):
        if not dimension:
            lines[0] = lines[0].removeprefix("\ufeff")  # a byte order mark
            header = re.fullmatch(r"\d{1,12} (\d{1,6})", lines[0].rstrip(" \r"), re.ASCII)
            dimension = int(header[1]) if header else lines[0].rstrip(" \r").count(" ")
            if not dimension:
                raise UserError(f"{source}, line 1: expected a word and numbers, got {_short_repr(lines[0])}")
            if header:
                number, lines = 2, lines[1:]
        if lines:
            yield _parse(lines, number, dimension, source)
            empty = False
        number += len(lines)
    if empty:
        raise UserError(f"{source}: the file is empty")


def _lines(source: VectorFile) -> Iterator[list[str]]:
    """Read the lines of a file, about `BLOCK` bytes at a time; lines end only at line feeds."""
    remainder = b""
    number = 1
    for chunk in _chunks(source):
        whole_lines, end, remainder = (remainder + chunk).rpartition(b"\n")
        if end:
            # Some files have a few words with broken UTF-8; these words are never looked up.
            lines = whole_lines.decode(errors="replace").split("\n")
            number += len(lines)
            yield lines
        elif len(remainder) > BLOCK:
            raise UserError(
                f"{source}, line {number}: expected a word and numbers, got {BLOCK:,} bytes or more"
            )
    if remainder:
        yield [remainder.decode(errors="replace")]


def _chunks(source: VectorFile) -> Iterator[bytes]:
    try:
        with _open(source) as file:
            while chunk := file.read(BLOCK):
                yield chunk
    except UserError:
        raise
    except ZIP_ERRORS as error:
        raise UserError(f"{source}: cannot be read ({error or type(error).__name__})") from None


@contextmanager
def _open(source: VectorFile) -> Iterator[IO[bytes]]:
    """Open the (uncompressed) text of a file."""
    if source.path.suffix.lower() == ".zip":
        with zipfile.ZipFile(source.path) as archive, archive.open(_member(archive, source)) as file:
            yield file
    else:
        with source.path.open("rb") as file, decompressed(file, str(source.path)) as text_file:
            yield text_file


def _member(archive: zipfile.ZipFile, source: VectorFile) -> str:
    names = [entry.filename for entry in archive.infolist() if not entry.is_dir()]
    if source.member in names:
        return source.member
    # macOS adds an entry in __MACOSX/ for every file.
    texts = [name for name in names if name.endswith(SUFFIXES) and not name.startswith("__MACOSX/")]
    if source.member is None and len(texts) == 1:
        return texts[0]
    expected = source.member or f"one {' or '.join(SUFFIXES)} file"
    available = ", ".join(texts or names) or "nothing"
    hint = f"; name one as {source.path}:{texts[0]}" if texts else ""
    raise UserError(f"{source.path}: expected {expected} in it, found {available}{hint}")


def _parse(lines: list[str], first_line: int, dimension: int, source: VectorFile) -> Block:
    """Parse lines to words and numbers; the first line has the number `first_line` in the file."""
    words, texts = [], []
    for line_number, line in enumerate(lines, start=first_line):
        word, _, text = line.rstrip(" \r").partition(" ")  # fastText ends its lines with a space
        if not text or text.count(" ") != dimension - 1:
            word, text = _split_from_the_right(line.rstrip(" \r"), dimension, f"{source}, line {line_number}")
        words.append(word)
        texts.append(text)
    try:
        values = np.loadtxt(texts, dtype=np.float32, delimiter=" ", comments=None, ndmin=2)
    except ValueError:
        raise _bad_number(texts, first_line, source) from None
    if not np.isfinite(values).all():
        raise _bad_number(texts, first_line, source)
    return words, values


def _split_from_the_right(line: str, dimension: int, where: str) -> tuple[str, str]:
    """Split a line whose word contains spaces, such as ". . .", into the word and the numbers."""
    word, *values = line.rsplit(" ", dimension)
    if len(values) < dimension:
        raise UserError(f"{where}: expected a word and {dimension} numbers, got {len(values)} numbers")
    if _is_number(word.rpartition(" ")[2]):
        raise UserError(f"{where}: expected a word and {dimension} numbers, got more numbers")
    return word, " ".join(values)


def _bad_number(texts: list[str], first_line: int, source: VectorFile) -> UserError:
    """An error that names the first malformed number and its line."""
    values = (
        (line_number, value)
        for line_number, text in enumerate(texts, start=first_line)
        for value in text.split(" ")
    )
    line_number, value = next((line_number, value) for line_number, value in values if not _is_number(value))
    return UserError(f"{source}, line {line_number}: expected finite numbers, got {_short_repr(value)}")


def _is_number(text: str) -> bool:
    """Whether a text is a number that is finite in 32 bits."""
    return NUMBER.fullmatch(text) is not None and abs(float(text)) <= LARGEST


def _short_repr(text: str) -> str:
    return repr(text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…")
