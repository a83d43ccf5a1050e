"""Keeps the options of commands in one piece on the pages of the site."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Keep browsers from breaking `--num-slots` in running text at its hyphens.

    Args:
        html: of the page.
        page, config, files: of the site.
    """
    blocks = re.split(r"(<pre.*?</pre>)", html, flags=re.DOTALL)
    for i in range(0, len(blocks), 2):
        blocks[i] = re.sub(r"<code>(.*?)</code>", _keep_options, blocks[i], flags=re.DOTALL)
    return "".join(blocks)


def _keep_options(code: re.Match[str]) -> str:
    return re.sub(r"(?<=[\s>])-[^\s<]+", r'<span class="option">\g<0></span>', code[0])
