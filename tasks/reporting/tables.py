"""Plain tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as need be; the first to the left, the others to the right.

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


def number(value: float | None, digits: int = 1, suffix: str = "") -> str:
    """A number to so many decimals, or a dash where there is none.

    Example:
        >>> number(1234.56), number(0.5, 2, " ×"), number(None)
        ('1,234.6', '0.50 ×', '–')
    """
    return "–" if value is None else f"{value:,.{digits}f}{suffix}"
