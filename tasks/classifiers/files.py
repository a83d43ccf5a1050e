"""Read data files with one example per line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tasks.runs.errors import UserError
from tasks.runs.text_files import read_text

Example = TypeVar("Example")


def read_lines(
    path: Path,
    parse: Callable[[str], Example],
    *,
    allow_empty: bool = False,
    header: str | None = None,
    check_count: Callable[[int], None] = lambda count: None,
) -> list[Example]:
    """Read a text file with one example per line; blank lines at the end are ignored.

    Args:
        path: path of the file, which may be compressed.
        parse: parses a line, or raises a ValueError. Another exception gets a note that names the line.
        allow_empty: whether the file may have no lines.
        header: a first line that is skipped, if the file has it.
        check_count: called with the number of lines before they are parsed.
    Returns:
        The examples in order.
    Raises:
        UserError: the file does not exist, is not UTF-8 text or is empty, or `parse` raises a ValueError; the
            message names the line.
    """
    # Not `str.splitlines`: a line may contain other characters that it splits at.
    text = read_text(path).rstrip("\n")
    lines = text.split("\n") if text else []
    check_count(len(lines))
    examples = []
    for number, line in enumerate(lines, start=1):
        if number == 1 and line == header:
            continue
        try:
            examples.append(parse(line))
        except ValueError as error:
            raise UserError(f"{path}, line {number}: {error}") from None
        except Exception as error:
            error.add_note(f"in {path}, line {number}: {line[:200]!r}")
            raise
    if not examples and not allow_empty:
        raise UserError(f"{path}: the file is empty")
    return examples
