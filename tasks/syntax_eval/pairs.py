"""Read minimal pairs: a grammatical sentence and a similar ungrammatical one.

Two JSON Lines formats are supported: one with the fields `good`, `bad`, `case`, `key` and, for a third
sentence, `intrusive`, named as in Marvin and Linzen's code; and that of BLiMP, with `sentence_good`,
`sentence_bad`, `UID` and `linguistics_term`. In both the construction and its group may also be called
`construction` and `group`. All but the two sentences may be absent or null.

Marvin and Linzen published a pickle for each case: a dictionary from keys to lists of tuples of sentences,
(good, bad) or (good, intrusive, bad).
"""

from __future__ import annotations

import io
import pickle
import pickletools
import re
import reprlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from tasks.runs.errors import UserError
from tasks.runs.files import read_json_lines
from tasks.runs.options import check_text
from tasks.runs.text_files import read_content, uncompressed_name, without_copies

FORMATS = (("good", "bad"), ("sentence_good", "sentence_bad"))
JSON_LINES, PICKLE = ".jsonl", ".pickle"
MAX_LINE, MAX_BYTES = 1 << 20, 1 << 30
"""Maximum size of a line and of a file in bytes, decompressed."""


class MinimalPair(NamedTuple):
    """A minimal pair, possibly with a third sentence.

    Args:
        construction: what the pair tests.
        good: the grammatical sentence.
        bad: the ungrammatical sentence.
        intrusive: a third sentence, also ungrammatical: it has a licensor, such as "no", in the wrong place.
            If there is one, all three sentences are compared with one another.
        group: group of constructions; empty if the file has none.
        key: how a pair of Marvin and Linzen was made, such as "sing_MS_MV"; empty if the file has none.
    """

    construction: str
    good: str
    bad: str
    intrusive: str | None = None
    group: str = ""
    key: str = ""


def read_pairs(path: Path) -> list[MinimalPair]:
    """Read the pairs in a file, or in all files `*.jsonl` and `*.pickle` of a directory.

    They may be compressed (.gz, .bz2, .xz). The construction is the field `construction`, `case`
    or `UID`, or else the name of the file. Hidden files in the directory are left out.

    Args:
        path: a JSON Lines file, a pickle of Marvin and Linzen, or a directory of such files.
    Returns:
        At least one pair.
    Raises:
        UserError: a file does not exist, is not text or not a pickle of sentences, a line is not a pair or
            too long, or there are no pairs.
    """
    files = [path]
    if path.is_dir():
        visible = [file.name for file in path.iterdir() if not file.name.startswith(".")]
        names = sorted(without_copies(visible))
        files = [path / name for name in names if uncompressed_name(name).endswith((JSON_LINES, PICKLE))]
    pairs = [pair for file in files for pair in _read_file(file)]
    if not pairs:
        raise UserError(f"{path}: no pairs" + ("" if files else f" (no files *{JSON_LINES} or *{PICKLE})"))
    return pairs


def spread(pairs: Sequence[MinimalPair], limit: int) -> list[MinimalPair]:
    """Choose at most `limit` pairs of each construction, evenly spaced.

    Args:
        pairs: pairs of any constructions.
        limit: 0 for all.
    Returns:
        The chosen pairs, in the same order.
    Example:
        >>> pairs = [MinimalPair("a", str(number), "x") for number in range(9)]
        >>> [pair.good for pair in spread(pairs, 3)]
        ['0', '4', '8']
    """
    if limit == 0:
        return list(pairs)
    indices: dict[str, list[int]] = {}
    for index, pair in enumerate(pairs):
        indices.setdefault(pair.construction, []).append(index)
    chosen = [
        group[i]
        for group in indices.values()
        for i in np.linspace(0, len(group) - 1, min(limit, len(group))).astype(int)
    ]
    return [pairs[index] for index in sorted(chosen)]


def _read_file(path: Path) -> Iterator[MinimalPair]:
    name = uncompressed_name(path.name)
    if name.endswith(PICKLE):
        yield from _read_pickle(path, name.removesuffix(PICKLE))
        return
    stem = name.removesuffix(JSON_LINES)
    for where, record in read_json_lines(path, max_bytes=MAX_BYTES, max_line=MAX_LINE):
        yield _pair(record, stem, where)


class _Unpickler(pickle.Unpickler):
    """Reads collections, strings and numbers. Names are refused, so that no code of a pickle runs."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"{module}.{name}")


def _read_pickle(path: Path, stem: str) -> Iterator[MinimalPair]:
    content = bytes(read_content(path, MAX_BYTES))
    try:
        for _, argument, _ in pickletools.genops(content):
            if isinstance(argument, int) and argument > len(content):  # might become the size of a table
                raise pickle.UnpicklingError(f"{argument} is too large")
        lists = _Unpickler(io.BytesIO(content)).load()
    except Exception as error:  # a damaged pickle may raise almost any
        raise UserError(f"{path}: not a pickle of sentences ({reprlib.repr(str(error))})") from None
    if not isinstance(lists, dict) or not all(isinstance(items, list) for items in lists.values()):
        raise UserError(f"{path}: expected a dictionary of lists, got {reprlib.repr(lists)}")
    for key, items in lists.items():
        for number, sentences in enumerate(items, start=1):
            where = f"{path}, key {reprlib.repr(key)}, item {number}"
            if not isinstance(sentences, tuple) or len(sentences) not in (2, 3):
                raise UserError(f"{where}: expected two or three sentences, got {reprlib.repr(sentences)}")
            names = ("good", "bad") if len(sentences) == 2 else ("good", "intrusive", "bad")
            yield _pair(dict(zip(names, sentences, strict=True)) | {"key": key}, stem, where)


def _pair(record: dict[str, Any], stem: str, where: str) -> MinimalPair:
    names = next((names for names in FORMATS if set(names) <= record.keys()), None)
    if names is None:
        expected = " or ".join(" and ".join(names) for names in FORMATS)
        raise UserError(f"{where}: expected the fields {expected}, got {reprlib.repr(list(record))}")
    good, bad = (_sentence(record, name, where) for name in names)
    # BLiMP has seven pairs of identical sentences; they are counted as not comparable.
    if record[names[0]] == record[names[1]] and names == FORMATS[0]:
        raise UserError(
            f"{where}: expected two different sentences, got {reprlib.repr(record[names[0]])} twice"
        )
    return MinimalPair(
        _optional(record, where, "construction", "case", "UID") or stem,
        good,
        bad,
        None if record.get("intrusive") is None else _sentence(record, "intrusive", where),
        _optional(record, where, "group", "linguistics_term"),
        _optional(record, where, "key"),
    )


def _sentence(record: dict[str, Any], name: str, where: str) -> str:
    sentence = _string(record, name, where)
    if not re.search(r"\w", sentence):
        raise UserError(f"{where}: expected words in {name}, got {reprlib.repr(sentence)}")
    return sentence


def _optional(record: dict[str, Any], where: str, *names: str) -> str:
    """The value of the first of these fields that is not absent, null or empty; else an empty string."""
    values = (_string(record, name, where) for name in names if record.get(name) is not None)
    return next(filter(None, values), "")


def _string(record: dict[str, Any], name: str, where: str) -> str:
    value = record[name]
    if not isinstance(value, str):
        raise UserError(f"{where}: expected {name} to be a string, got {reprlib.repr(value)}")
    check_text(value, f"{where}: {name}")
    return value
