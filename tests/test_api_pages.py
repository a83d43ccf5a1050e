"""The pages of the API, as the site shows them."""

import html
import inspect
import re
import shutil
from pathlib import Path
from pkgutil import resolve_name

import pytest

ROOT = Path(__file__).parents[1]
mkdocs_build = pytest.importorskip("mkdocs.commands.build", reason="needs pip install '.[docs]'").build
load_config = pytest.importorskip("mkdocs.config").load_config
pytest.importorskip("mkdocstrings_handlers.python", reason="needs pip install '.[docs]'")

ENTRY = re.compile(r'<div class="doc doc-object doc-(?:class|function)">\s*<h\d id="([\w.]+)"')
SECTION = re.compile(r"(?:Parameters|Attributes):.*?<tbody>(.*?)</tbody>", re.DOTALL)
CELL = re.compile(r"<td>(.*?)</td>", re.DOTALL)
RETURNS = re.compile(r"Returns:.*?<tbody>(.*?)</tbody>", re.DOTALL)
UNTYPED = {"*args, **kwargs"}
IDENTIFIER = re.compile(r'id="([\w.]+)"')
TYPE = re.compile(r'title="((?:ordered_memory|onlstm)\.[\w.]*\b[A-Z_]\w*)"')
WITHOUT_ENTRY = {  # type variables, aliases that the text explains, a default, a class of another package
    "ordered_memory.trees.Value",
    "ordered_memory.backends.registry.Run",
    "ordered_memory.backends.RunRecurrence",
    "onlstm.backends.RunRecurrence",
    "onlstm.language_model.Recurrent",
    "ordered_memory.cells.NO_CELL_MASKS",
    "ordered_memory.hub.PyTorchModelHubMixin",
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The HTML of each page."""
    docs, site = tmp_path_factory.mktemp("docs"), tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs/api", docs / "api")
    config = load_config(str(ROOT / "mkdocs.yml"), docs_dir=str(docs), site_dir=str(site), nav=None, hooks=[])
    mkdocs_build(config)
    return [path.read_text() for path in sorted((site / "api").glob("*.html"))]


@pytest.fixture(scope="module")
def entries(pages):
    """The HTML of each class, function and method by its full name. A class ends at its first method."""
    found = {}
    for page in pages:
        _, *parts = ENTRY.split(page)
        found.update(zip(parts[::2], parts[1::2], strict=True))
    assert len(found) > 90
    return found


def words(markup):
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", markup)).split())


def test_every_entry_begins_with_what_it_is(entries):
    for name, entry in entries.items():
        summary = inspect.getdoc(resolve_name(name)).partition("\n\n")[0]
        assert " ".join(summary.replace("`", "").split()) in words(entry), name


def test_what_a_function_returns_is_one_text(entries):
    tables = [(name, table) for name, entry in entries.items() for table in RETURNS.findall(entry)]
    assert len(tables) > 40
    assert [name for name, table in tables if table.count("<tr") != 1] == []


def test_arguments_and_fields_have_types(entries):
    rows = [
        (name, *map(words, CELL.findall(row)[:2]))
        for name, entry in entries.items()
        for section in SECTION.findall(entry)
        for row in section.split("</tr>")[:-1]
    ]
    assert ("onlstm.Distances", "forget", "Tensor") in rows
    assert [row for row in rows if not row[2] and row[1] not in UNTYPED] == []


def test_every_type_in_a_signature_has_an_entry(pages):
    documented = {name for page in pages for name in IDENTIFIER.findall(page)}
    named = {name for page in pages for name in TYPE.findall(page)}
    assert named - documented == WITHOUT_ENTRY
