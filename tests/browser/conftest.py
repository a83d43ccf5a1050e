"""Pages in Chromium: one browser for all tests, a fresh window for each, no network, no errors.

Every test in this directory is marked `browser`; `make browser` runs them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from ordered_memory.trace import Trace
from ordered_memory.viewer import write_page

AXE = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
OpenPage = Callable[..., Any]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("browser")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed; CHROMIUM=PATH names one")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Any) -> Iterator[OpenPage]:
    """Open an address in a window of its own: `open_page(url, width=1280, color_scheme="dark", …)`.

    The test fails if the page reports an error, or asks for anything that is not at the address's host.
    """
    contexts: list[Any] = []
    problems: list[str] = []

    def open_page(url: str, *, width: int = 1280, height: int = 800, **options: Any) -> Any:
        host = urlsplit(url)[:2]
        context = chromium.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()

        def on_console(message: Any) -> None:
            if message.type in ("error", "warning"):
                problems.append(message.text)

        def on_request(request: Any) -> None:
            same = request.url == url if host[0] == "file" else urlsplit(request.url)[:2] == host
            if not same and not request.url.startswith("data:"):
                problems.append(f"asked for {request.url[:100]}")

        page.on("console", on_console)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(f"dialog: {dialog.message}") or dialog.dismiss())
        page.on("request", on_request)
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not problems


@pytest.fixture(scope="session")
def accessibility() -> Callable[[Any], list[Any]]:
    """What axe-core finds wrong with a page that is at rest: rules, each with the elements."""
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: npm ci")

    def accessibility(page: Any) -> list[Any]:
        page.evaluate("Promise.allSettled(document.getAnimations().map(one => one.finished))")
        page.evaluate(AXE.read_text())
        found = page.evaluate("axe.run()")["violations"]
        return [(one["id"], [node["html"] for node in one["nodes"]]) for one in found]

    return accessibility


@pytest.fixture
def show(open_page: OpenPage, tmp_path: Path) -> OpenPage:
    """Write a page with traces, and open it from the disk: `show(traces, width=400, …)`."""

    def show(traces: Sequence[Trace], **options: Any) -> Any:
        path = tmp_path / "page.html"
        write_page(path, traces, title="Traces", text="What is shown here.")
        return open_page(path.as_uri(), offline=True, **options)

    return show
