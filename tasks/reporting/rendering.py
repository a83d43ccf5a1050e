"""The templates of reports, and how they format numbers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

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


def keep_options(text: str) -> Markup:
    """Keep browsers from breaking the options of commands at their hyphens.

    Args:
        text: plain text.
    Example:
        >>> print(keep_options("--num-slots 8 < 12"))
        <span class="option">--num-slots</span> 8 &lt; 12
    """
    plain = str(escape(text))  # in a `Markup`, `re.sub` would escape the tags
    return Markup(re.sub(r"(?<![\w-])--\w[\w-]*", r'<span class="option">\g<0></span>', plain))


TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters.update(cell=cell, option=option_text, keep_options=keep_options)
