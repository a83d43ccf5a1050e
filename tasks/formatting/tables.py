"""Tables as text, for the terminal and for Markdown."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence

from ordered_memory.span_f1 import fraction_text


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None) -> str:
    """Format a table as plain text; the first column is left-aligned, the others are right-aligned.

    Args:
        header: names of the columns.
        rows: the cells of each row as text.
        width: maximum length of a line, if a name and a cell fit into it. Columns that do not fit follow
            below, in tables with the same first column. None for a single table.
    Example:
        >>> print(text_table(["who", "ms"], [["floor", "5"], ["LSTM", "12"]]))
        who    ms
        floor   5
        LSTM   12
        >>> print(text_table(["who", "short", "long"], [["LSTM", "12", "120"]], width=12))
        who   short
        LSTM     12
        <BLANKLINE>
        who   long
        LSTM   120
    """
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    tables = [[0]]
    for column in range(1, len(header)):
        length = sum(widths[i] + 2 for i in tables[-1]) + widths[column]
        if width is not None and length > width and len(tables[-1]) > 1:
            tables.append([0])
        tables[-1].append(column)
    return "\n\n".join(
        "\n".join(
            "  ".join(
                line[column].ljust(widths[column]) if column == 0 else line[column].rjust(widths[column])
                for column in columns
            ).rstrip()
            for line in lines
        )
        for columns in tables
    )


def terminal_width() -> int | None:
    """The number of characters of a line of the terminal; None if standard output is not one."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a table in Markdown.

    Args:
        header: names of the columns.
        rows: the cells of each row as text.
    Example:
        >>> print(markdown_table(["who", "ms"], [["floor", "5"]]))
        | who | ms |
        |---|---|
        | floor | 5 |
    """
    first, *rest = (f"| {' | '.join(line)} |" for line in [header, *rows])
    return "\n".join([first, f"|{'---|' * len(header)}", *rest])


def merge_names(rows: Iterable[Iterable[str]]) -> list[str]:
    """The names of all rows, once each, in an order that suits all of them.

    A name that earlier rows lack comes after the one before it in its row, and after those that differ from
    it in a lower number alone.

    Args:
        rows: names of columns, in the same order in all rows.
    Example:
        >>> merge_names([["1–20", "51–100", "F1"], ["1–20", "21–50", "101–200", "F1"]])
        ['1–20', '21–50', '51–100', '101–200', 'F1']
    """
    names: list[str] = []
    for row in map(list, rows):
        place = 0
        for name in row:
            if name not in names:
                while place < len(names) and names[place] not in row and _is_lower(names[place], name):
                    place += 1
                names.insert(place, name)
            place = names.index(name) + 1
    return names


def _is_lower(first: str, second: str) -> bool:
    """Whether the numbers in the first name are lower, and the words before them the same."""
    (first_words, first_numbers), (second_words, second_numbers) = (
        (re.split(r"[\d≥]", name)[0], [int(digits) for digits in re.findall(r"\d+", name)])
        for name in (first, second)
    )
    return first_words == second_words and first_numbers < second_numbers


def wrap(text: str, width: int | None = None) -> list[str]:
    """Break a text into lines of at most 110 characters, at spaces: names of options stay whole.

    Args:
        text: one paragraph.
        width: maximum length of a line, if it is below 110.
    """
    return textwrap.wrap(text, min(width or 110, 110), break_on_hyphens=False, break_long_words=False)


def number(value: float | None, digits: int = 1, whole: float | None = None) -> str:
    """Format a number with a fixed number of decimals, a huge one in scientific notation, and None as a dash.

    Args:
        value: the number, or None.
        digits: number of decimals.
        whole: what the fraction is of: 1, or 100 for a percentage; see `fraction_text`.
    Example:
        >>> number(1234.56), number(0.5, 2), number(1e300, 2), number(99.996, 2, whole=100), number(None)
        ('1,234.6', '0.50', '1e+300', '99.996', '–')
        >>> number(-0.06), number(-0.04)
        ('-0.1', '0.0')
    """
    if value is None:
        return "–"
    if whole is not None:
        return fraction_text(value, digits, whole=whole)
    return f"{value:z,.{digits}f}" if abs(value) < 1e9 else f"{value:.4g}"


def mean_text(
    mean: float | None, deviation: float | None, digits: int = 1, whole: float | None = None
) -> str:
    """Format a mean and its standard deviation, with as many decimals in both.

    Args:
        mean: the mean, or None.
        deviation: the standard deviation, or None.
        digits: number of decimals.
        whole: as for `number`, for the mean.
    Example:
        >>> mean_text(99.996, 0.003, 2, whole=100), mean_text(0.5, None, 2), mean_text(2.5e9, 1e3)
        ('99.996 ± 0.003', '0.50 ± –', '2.5e+09 ± 1,000.0')
    """
    text = number(mean, digits, whole)
    decimals = "" if "e" in text else text.partition(".")[2]
    return f"{text} ± {number(deviation, max(digits, len(decimals)))}"


def count_text(count: int, unit: str) -> str:
    """Format a number of things.

    Args:
        count: the number.
        unit: what is counted, in the singular.
    Example:
        >>> count_text(1, "word"), count_text(2_000, "word")
        ('1 word', '2,000 words')
    """
    return f"{count:,} {plural(count, unit)}"


def plural(count: float, unit: str) -> str:
    """A unit, in the plural unless there is exactly one.

    Args:
        count: the number.
        unit: what is counted, in the singular.
    """
    return unit if count == 1 else f"{unit}s"


def duration_text(seconds: float) -> str:
    """Format a time in seconds, minutes, or, from 100 minutes on, hours.

    Args:
        seconds: the time.
    Example:
        >>> [duration_text(seconds) for seconds in (59, 59.9, 5900, 5999)]
        ['59 s', '1 min', '98 min', '1.7 h']
    """
    minutes = seconds / 60
    if round(seconds) < 60:
        return f"{seconds:.0f} s"
    return f"{minutes:.0f} min" if round(minutes) < 100 else f"{minutes / 60:.1f} h"
