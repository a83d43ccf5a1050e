"""Pictures of the viewer: `python docs/make_pictures.py`.

Writes screenshots of the site's viewer pages at 1280 and 400 pixels beside this file, and reading.gif, the
picture of the README. Needs Chromium, whose path CHROMIUM may name.
"""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright
from viewer_pages import EXPRESSIONS, pages, traces

from ordered_memory.viewer import viewer_page

DOCS = Path(__file__).parent
FRAME_MILLISECONDS, LAST_MILLISECONDS = 900, 4000


def take_screenshots(browser: Browser) -> None:
    """The pages, one step before the end."""
    for name, text in pages().items():
        for width in (1280, 400):
            page = browser.new_page(viewport={"width": width, "height": 900})
            page.set_content(text)
            page.get_by_label("Back").click()
            page.screenshot(
                path=DOCS / f"{Path(name).stem}-{width}.png", full_page=True, animations="disabled"
            )
            page.close()


def take_film(browser: Browser) -> None:
    """The first expression, step by step."""
    [trace] = traces("listops", EXPRESSIONS[:1])
    page = browser.new_page(viewport={"width": 740, "height": 700})
    page.set_content(viewer_page([trace], ""))
    page.add_style_tag(content="h1 { display: none } main { padding: 12px !important }")
    frames = []
    page.get_by_label("To the start").click()
    for _ in trace["memory"]["steps"]:
        shot = page.locator("main").screenshot(animations="disabled")
        frames.append(Image.open(io.BytesIO(shot)).convert("RGB").quantize(48, dither=Image.Dither.NONE))
        page.get_by_label("Forward").click()
    durations = [FRAME_MILLISECONDS] * (len(frames) - 1) + [LAST_MILLISECONDS]
    frames[0].save(
        DOCS / "reading.gif",
        save_all=True,
        append_images=frames[1:],
        duration=durations,
        loop=2,  # an animation without end distracts, and its last picture shows most
        optimize=True,
    )


def main() -> None:
    """Take the pictures."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        take_screenshots(browser)
        take_film(browser)
        browser.close()


if __name__ == "__main__":
    main()
