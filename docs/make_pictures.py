"""What the shipped models do, as pages and as pictures of them: `python docs/make_pictures.py`.

Writes viewer-listops.html and viewer-sentiment.html beside this file, screenshots of them at 1280 and 400
pixels, and reading.gif, the picture of the README. Needs Chromium, whose path CHROMIUM may name.
"""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

from ordered_memory.trace import Trace
from ordered_memory.viewer import write_page
from tasks.classifiers.pretrained import Classifier
from tasks.classifiers.task import ClassifierTask
from tasks.classifiers.traces import example_traces
from tasks.listops.model import ListOpsModel
from tasks.listops.task import LISTOPS
from tasks.sst.model import CLASSES, SentimentModel
from tasks.sst.task import PRETRAINED, SST

DOCS = Path(__file__).parent
EXPRESSIONS = (
    "[MAX 2 [MIN 8 [SM 3 4 ] 9 ] [MED 1 5 6 ] 0 ]",
    "[MAX 2 [MIN 8 3 ] ]",
    "[SM 9 [MED 4 [MAX 1 7 ] 2 ] [MIN 5 [SM 6 6 8 ] [MAX 0 3 ] ] 5 ]",
    "[MIN [MAX [SM [MED 7 1 4 ] 2 ] 3 ] 9 ]",
    "[MED 3 9 1 7 0 4 8 2 6 5 ]",
)
SENTENCES = (
    "it is not a bad movie at all .",
    "neither bad nor dull",
    "the actors are wonderful , but the story is a mess .",
    "i have never seen anything so beautiful .",
    "too long , too loud and not funny enough .",
)
LISTOPS_TEXT = (
    "Ordered Memory was trained on the values of ListOps expressions, and on nothing else. It reads an "
    "expression token by token, and keeps what is not finished on a stack of slots. p is how much a token "
    "attends to each slot. Algorithm 2 of the paper reads the tree off the slot of the largest p."
)
SENTIMENT_TEXT = (
    "Ordered Memory was trained on the sentiment of phrases over word vectors, without their trees. It tells "
    "the sentiment of every node of the tree that it induces, by reading the words of the node as a phrase."
)
FRAME_MILLISECONDS, LAST_MILLISECONDS = 900, 4000


def traces(
    task: ClassifierTask[Any],
    kind: type[Classifier],
    path: Path,
    texts: tuple[str, ...],
    classes: tuple[str, ...],
) -> list[Trace]:
    """What a shipped model does with some examples.

    Args:
        task: of the model.
        kind: of the model.
        path: of its weights.
        texts: an example each.
        classes: names of the answers.
    """
    model, config = task.load_model(path)
    found = []
    for number, text in enumerate(texts):
        data = kind.read_text(text)
        [trace] = example_traces(model, data, 0, classes, config.test_num_slots, task.node_values)
        found.append({**trace, "example": number})
    return found


def main() -> None:
    """Write the pages, and take the pictures."""
    listops, sentiment = DOCS / "viewer-listops.html", DOCS / "viewer-sentiment.html"
    found = traces(LISTOPS, ListOpsModel, LISTOPS.pretrained, EXPRESSIONS, ListOpsModel.classes)
    write_page(listops, found, "Ordered Memory reads ListOps", LISTOPS_TEXT)
    found_sentiment = traces(SST, SentimentModel, PRETRAINED[5], SENTENCES, CLASSES[5])
    write_page(sentiment, found_sentiment, "Ordered Memory reads sentences", SENTIMENT_TEXT)
    alone = DOCS / "reading.html"
    write_page(alone, found[:1], "")
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for page_path in (listops, sentiment):
            for width in (1280, 400):
                page = browser.new_page(viewport={"width": width, "height": 900})
                page.goto(page_path.as_uri())
                page.get_by_label("Back").click()
                page.screenshot(path=page_path.with_name(f"{page_path.stem}-{width}.png"), full_page=True)
                page.close()
        page = browser.new_page(viewport={"width": 740, "height": 700})
        page.goto(alone.as_uri())
        page.add_style_tag(content="h1 { display: none } main { padding: 12px !important }")
        frames = []
        page.get_by_label("To the start").click()
        for _ in range(len(found[0]["memory"]["steps"])):
            shot = page.locator("main").screenshot()
            frames.append(Image.open(io.BytesIO(shot)).convert("RGB").quantize(48, dither=Image.Dither.NONE))
            page.get_by_label("Forward").click()
        browser.close()
    alone.unlink()
    durations = [FRAME_MILLISECONDS] * (len(frames) - 1) + [LAST_MILLISECONDS]
    frames[0].save(
        DOCS / "reading.gif",
        save_all=True,
        append_images=frames[1:],
        duration=durations,
        loop=0,
        optimize=True,
    )


if __name__ == "__main__":
    main()
