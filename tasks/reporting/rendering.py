"""The templates of reports, and how they format numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ordered_memory.span_f1 import fraction_text


def cell(value: Any) -> str:
    """Format a value for a table or plot.

    Args:
        value: a number, text, or None if there is no value.
    Example:
        >>> cell(0.98765), cell(0.99996), cell(1234), cell(None)
        ('0.9877', '0.99996', '1,234', '–')
    """
    if isinstance(value, float):
        value += 0.0  # no negative zero
        return fraction_text(value) if 1e-3 <= abs(value) < 1e3 or value == 0 else f"{value:g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "–" if value is None else str(value)


def option_text(value: Any) -> str:
    """Format the value of an option, with all its digits.

    Args:
        value: a JSON value.
    Example:
        >>> option_text(0.00125), option_text(12345), option_text([0.0, 0.999]), option_text(None)
        ('0.00125', '12345', '0.0 0.999', '–')
    """
    if isinstance(value, list):
        return " ".join(map(option_text, value))
    return "–" if value is None else str(value)


TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters.update(cell=cell, option=option_text)
