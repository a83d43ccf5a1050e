"""Tables as text, for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as plain text; the first column is aligned to the left, the others to the right.

    Args:
        header: of the columns.
        rows: cells as text, as many as the header has.
    Example:
        >>> print(table(["who", "ms"], [["floor", "5"], ["LSTM", "12"]]))
        who    ms
        floor   5
        LSTM   12
    """
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The same in Markdown.

    Args:
        header: of the columns.
        rows: cells as text, as many as the header has.
    Example:
        >>> print(markdown(["who", "ms"], [["floor", "5"]]))
        | who | ms |
        |---|---|
        | floor | 5 |
    """
    first, *rest = (f"| {' | '.join(line)} |" for line in [header, *rows])
    return "\n".join([first, f"|{'---|' * len(header)}", *rest])


def number(value: float | None, digits: int = 1, suffix: str = "") -> str:
    """A number with a fixed number of decimals, or a dash where there is none.

    Args:
        value: the number, or None.
        digits: decimals.
        suffix: follows the number, such as a unit.
    Example:
        >>> number(1234.56), number(0.5, 2, " ×"), number(None)
        ('1,234.6', '0.50 ×', '–')
    """
    return "–" if value is None else f"{value:,.{digits}f}{suffix}"
