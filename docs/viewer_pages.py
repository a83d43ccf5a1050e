"""The viewer pages of the site: what the shipped models do with some examples. `make docs` makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ordered_memory.trace import Trace
from ordered_memory.viewer import viewer_page
from tasks.classifiers.traces import example_traces
from tasks.pretrained import pretrained

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

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
    "Ordered Memory was trained on the sentiment of phrases over word vectors, without their trees. It "
    "predicts the sentiment of every node of the tree that it induces, by reading the words of the node as a "
    "phrase."
)


def traces(name: str, texts: tuple[str, ...]) -> list[Trace]:
    """What a shipped model does with some examples.

    Args:
        name: of the model, see `tasks.pretrained`.
        texts: an example each.
    """
    model = pretrained(name)
    found = []
    for number, text in enumerate(texts):
        data = model.read_text(text)
        found += example_traces(model, data, 0, example=number)
    return found


def pages() -> dict[str, str]:
    """The HTML pages by file name."""
    listops, sentiment = traces("listops", EXPRESSIONS), traces("sst5", SENTENCES)
    return {
        "viewer-listops.html": viewer_page(listops, "Ordered Memory reads ListOps", LISTOPS_TEXT),
        "viewer-sentiment.html": viewer_page(sentiment, "Ordered Memory reads sentences", SENTIMENT_TEXT),
    }


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages to the site. MkDocs calls this in every build.

    Args:
        files: of the site.
        config: of the site.
    """
    from mkdocs.structure.files import File  # only the site needs it, and not a test of the pages

    for name, text in pages().items():
        files.append(File.generated(config, name, content=text))
    return files
