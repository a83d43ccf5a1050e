"""What is in a page."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

EMPTY = {"meta", "link", "img", "br", "path", "rect", "circle"}


class Page(HTMLParser):
    """A page as its tags.

    Args:
        text: HTML.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.tags: list[str] = []
        self.open: list[str] = []
        self.external: list[str] = []
        self.plots: list[str] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in EMPTY:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href") and not (value or "").startswith("data:"):
                self.external.append(value or "")
        if tag == "svg":
            self.plots.append(dict(attrs).get("aria-label") or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.words += data

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def embedded(text: str) -> list[dict[str, Any]]:
    """The traces in a page."""
    data = re.findall(r'<script type="application/json">(.*?)</script>', text, re.DOTALL)
    return [trace for one in data for trace in json.loads(one)["traces"]]
