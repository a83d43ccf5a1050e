"""HTML pages that show traces: what a model did with a sequence, step by step.

A page is a single file that opens from the disk and loads nothing from elsewhere. `viewer_page` makes a whole
page and needs Jinja2. `style`, `script` and `embed` put the viewer into a page of your own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

from ordered_memory.trace import Trace, to_json

FILES = (
    *("elements", "columns", "timeline", "tree", "stack", "distances"),
    *("player", "pointer", "keys", "board", "print", "viewer", "list", "start"),
)
"""The JavaScript files, in the order in which they run. (`format.js` contains only types.)"""
ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def viewer_page(traces: Sequence[Trace], title: str = "What the model did", text: str = "") -> str:
    """Make a page that shows traces.

    Args:
        traces: traces to show. Those with the same `example` are shown together; if there are several
            examples, the page has a list to choose from.
        title: title of the page.
        text: a paragraph below the title.
    Returns:
        The text of an HTML file.
    Raises:
        ModuleNotFoundError: Jinja2 is not installed.
        TypeError: not a list of traces.
        ValueError: there are no traces, or a trace contains NaN or infinity.
    Example:
        >>> import torch
        >>> from ordered_memory.trace import read_distances
        >>> trace = read_distances(torch.tensor([[1.0, 2.0, 3.0]]), ["the", "cat", "sat"])
        >>> page = viewer_page([trace], title="A sentence")
        >>> "<h1>A sentence</h1>" in page, '"cat"' in page
        (True, True)
    """
    try:
        from jinja2 import Environment, StrictUndefined
        from markupsafe import Markup
    except ModuleNotFoundError:
        reason = "Jinja2 is not installed: pip install jinja2, or the extra hub or tasks"
        raise ModuleNotFoundError(reason, name="jinja2") from None
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(_read("page.html"))
    return template.render(
        title=title,
        text=text,
        style=Markup(style()),
        script=Markup(script()),
        traces=Markup(embed(traces)),
    )


def write_page(
    path: str | Path, traces: Sequence[Trace], title: str = "What the model did", text: str = ""
) -> None:
    """Write `viewer_page` to a file.

    Args:
        path: path of the file; an existing file is replaced.
        traces, title, text: see `viewer_page`.
    Raises:
        ModuleNotFoundError, TypeError, ValueError: as in `viewer_page`.
    Example:
        >>> from ordered_memory.trace import read_tree
        >>> trace = read_tree(((0, 1), 2), ["the", "cat", "sat"])
        >>> write_page("page.html", [trace], title="A sentence")  # doctest: +SKIP
    """
    page = viewer_page(traces, title, text).encode()
    Path(path).write_bytes(page)


def embed(traces: Sequence[Trace]) -> str:
    """Make an HTML element that shows traces, for a page with `style` and `script`.

    Args:
        traces: see `viewer_page`.
    Returns:
        HTML in which the text of the traces is escaped.
    Raises:
        TypeError: not a list of traces.
        ValueError: there are no traces, or a trace contains NaN or infinity.
    """
    if not traces:
        raise ValueError("expected traces to show, got none")
    data = to_json(traces).translate(ESCAPES)
    return f'<div class="om-traces"><script type="application/json">{data}</script></div>'


@cache
def style() -> str:
    """The CSS of the viewer, for a `<style>` element. All class names start with `om-`."""
    return _read("viewer.css")


@cache
def script() -> str:
    """The JavaScript of the viewer, for a `<script>` element.

    It fills each element that `embed` made, and defines `OrderedMemoryViewer`.
    """
    parts = "\n".join(_read(f"{name}.js") for name in FILES)
    return f'(() => {{\n"use strict";\n{parts}}})();\n'


def _read(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")
