"""Pages with traces: all that they need is in them, and nothing that a trace says is markup."""

from __future__ import annotations

import html.parser
import json
import re
import sys
from pathlib import Path

import pytest
import torch

from ordered_memory.trace import Trace, read_distances
from ordered_memory.viewer import FILES, embed, script, style, viewer_page, write_page

VIEWER = Path(sys.modules[embed.__module__].__file__ or "").parent
HOSTILE = ["</script><script>alert(1)</script>", "<!--", "&lt;", "\u2028\u2029", "]]>", '"', "\\", "☃"]


def trace_of(tokens: list[str], caption: str = "") -> Trace:
    return read_distances(torch.arange(float(len(tokens)))[None], tokens) | {"caption": caption}  # type: ignore[return-value]


class Elements(html.parser.HTMLParser):
    """The elements of a page: tag, attributes, text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes), ""))

    def handle_data(self, data: str) -> None:
        if self.found:
            tag, attributes, text = self.found[-1]
            self.found[-1] = (tag, attributes, text + data)


def test_what_a_trace_says_is_data_and_comes_back_as_it_was() -> None:
    traces = [trace_of(HOSTILE, caption="<b>bold</b>")]
    page = viewer_page(traces, title="<i>T</i>", text="a < b & c")
    elements = Elements(page).found
    assert [tag for tag, *_ in elements if tag in ("script", "i", "b")] == ["script", "script"]
    [data] = [text for _, attributes, text in elements if attributes.get("type") == "application/json"]
    assert not set("<>&\u2028\u2029") & set(data)
    assert json.loads(data)["traces"] == traces
    assert "<h1>&lt;i&gt;T&lt;/i&gt;</h1>" in page
    assert "<p>a &lt; b &amp; c</p>" in page


def test_everything_is_in_the_page() -> None:
    page = viewer_page([trace_of(["a", "b"])])
    assert style() in page
    assert script() in page
    for tag, attributes, _ in Elements(page).found:
        for name in ("src", "href"):
            assert attributes.get(name, "data:").startswith("data:"), tag  # type: ignore[union-attr]
    addresses = re.findall(r"https?://[^\s\"']+|url\(|@import", style() + script())
    assert set(addresses) <= {"http://www.w3.org/2000/svg"}


def test_the_script_has_every_file_that_does_something() -> None:
    assert {*FILES, "format"} == {path.stem for path in VIEWER.glob("*.js")}
    for name in FILES:
        assert (VIEWER / f"{name}.js").read_text() in script()
    assert "</script" not in script()
    assert "innerHTML" not in script()


def test_classes_have_the_viewers_prefix() -> None:
    assert set(re.findall(r"\.(?!om-)[a-z][\w-]*(?=[ ,:.{\[])", re.sub(r"\d?\.\d+", "", style()))) == set()


def test_the_same_traces_give_the_same_page(tmp_path: Path) -> None:
    traces = [trace_of(["a", "b"])]
    write_page(tmp_path / "a.html", traces, title="T")
    assert (tmp_path / "a.html").read_text(encoding="utf-8") == viewer_page(traces, title="T")
    assert viewer_page(traces) == viewer_page([trace_of(["a", "b"])])
    assert embed(traces) in viewer_page(traces)


def test_any_token_can_be_written_and_what_cannot_leaves_the_old_page(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_page(path, [trace_of(["\ud800", "", "\n", "\0", "שלום", "🙂"])])
    [data] = re.findall(r'<script type="application/json">(.*?)</script>', path.read_text(encoding="utf-8"))
    assert json.loads(data)["traces"][0]["tokens"] == ["\ud800", "", "\n", "\0", "שלום", "🙂"]
    before = path.read_bytes()
    with pytest.raises(ValueError, match="surrogates not allowed"):
        write_page(path, [trace_of(["a", "b"])], title="\ud800")
    assert path.read_bytes() == before


def test_bad_input_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="expected traces to show, got none"):
        viewer_page([])
    bad = trace_of(["a", "b"])
    bad["layers"][0]["distances"][0] = float("nan")
    with pytest.raises(ValueError, match="not JSON compliant"):
        embed([bad])
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ModuleNotFoundError, match=r"Jinja2 is not installed: pip install jinja2"):
        viewer_page([trace_of(["a"])])
