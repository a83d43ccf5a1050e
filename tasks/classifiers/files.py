"""Data files with an example to a line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tasks.runs.errors import UserError

Example = TypeVar("Example")


class DataError(UserError):
    """Says in one line what is wrong with a data file, and where."""


def read_lines(path: Path, parse: Callable[[str], Example], *, empty: bool = False) -> list[Example]:
    """Read a text file, an example from each line; blank lines at the end are no examples.

    Args:
        path: of the file.
        parse: makes an example of a line, or raises a ValueError.
        empty: whether there may be no line.
    Returns:
        The examples in order.
    Raises:
        DataError: no such file, not text, empty, or a line that `parse` refuses; names the line.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").rstrip("\n").splitlines()
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text, at byte {error.start}") from None
    if not lines and not empty:
        raise DataError(f"{path}: the file is empty")
    examples = []
    for number, line in enumerate(lines, start=1):
        try:
            examples.append(parse(line))
        except ValueError as error:
            raise DataError(f"{path}, line {number}: {error}") from None
    return examples
