"""Drawings and the report: right way round, self-contained, the same every time."""

import re

import numpy as np
import pytest

from ordered_memory.baseline_trees import balanced, left_branching
from tasks.reporting.drawing import save_attention
from tasks.reporting.report import Curve, Example, Report, Table, render, write_report
from tests.hostile_files import MAIN, TINY

pytestmark = pytest.mark.usefixtures("pictures")

WORDS = ["[MAX", "2", "9", "]"]


def example(**changes):
    fields = {
        "tokens": WORDS,
        "predicted_tree": balanced(4),
        "gold_tree": left_branching(4),
        "attention": np.eye(4, 3),
        "caption": "answer 9",
        "correct": True,
    }
    return Example(**{**fields, **changes})


def report(**changes):
    fields = {
        "title": "A <run> & more",
        "subtitle": "one line",
        "config": {"slot_size": 8},
        "curves": [Curve("loss", "nats", {"train": [(1, 0.5), (2, 0.25)]})],
        "tables": [Table("Accuracy", ["length", "accuracy"], [["1–20", 0.98765]], "a note")],
        "examples": [example()],
    }
    return Report(**{**fields, **changes})


def test_saving_twice_gives_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        save_attention(tmp_path / "new" / f"{name}.png", np.eye(4, 3), WORDS)
        write_report(tmp_path / f"{name}.html", report())
    assert (tmp_path / "new" / "a.png").read_bytes() == (tmp_path / "new" / "b.png").read_bytes()
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old")

    def fail(source, target):
        raise OSError("full")

    monkeypatch.setattr("tasks.runs.files.os.replace", fail)
    with pytest.raises(OSError, match="full"):
        write_report(path, report())
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_text_is_escaped_and_nothing_is_loaded_from_elsewhere():
    page = render(report(examples=[example(tokens=["<script>", "&", '"', "x"])]))
    assert "<script>" not in page
    assert "A &lt;run&gt; &amp; more" in page
    assert set(re.findall(r"https?://[^\"]*", page)) == {"http://www.w3.org/2000/svg"}  # a name, not a place


def test_wrong_constituents_are_marked_and_right_trees_said_to_be_right():
    assert 'class="branch wrong"' in render(report())
    page = render(report(examples=[example(predicted_tree=left_branching(4))]))
    assert 'class="branch wrong"' not in page
    assert "as the true one" in page


def test_sentiment_is_drawn_on_either_tree_with_a_legend():
    values = {(i, j): 0.5 for i in range(4) for j in range(i, 4)}
    for changes in ({"sentiment": values}, {"gold_sentiment": values}):
        page = render(report(examples=[example(), example(**changes)]))
        assert page.count("<circle") == 7
        assert page.count('<span class="scale">') == 1
    page = render(report())
    assert "<circle" not in page
    assert '<span class="scale">' not in page


def test_a_model_without_trees_and_long_sentences_are_shown_as_text():
    page = render(report(examples=[example(predicted_tree=None, attention=None)]))
    assert "<svg" not in page
    assert "induced" not in page
    page = render(report(examples=[example(tokens=["1"] * 61)]))
    assert "more than 60 tokens" in page
    assert "<svg" not in page


def test_an_empty_report_is_a_page():
    page = render(Report("t", "s"))
    assert "<h2>" not in page
    assert render(report(curves=[Curve("loss", "nats", {"train": []})]))


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (
            "listops",
            ["accuracy by epoch", "loss by epoch", "accuracy by depth", *["attention over 3 slots"] * 2],
        ),
        (
            "logic",
            ["accuracy by epoch", "loss by epoch", "accuracy by operations", *["attention over 5 slots"] * 2],
        ),
        ("sst", ["accuracy by epoch", "loss by epoch", *["attention over 5 slots"] * 2]),
        ("language_model", ["loss by epoch", "perplexity by epoch"]),
    ],
)
def test_the_report_of_a_run_has_its_pictures(tmp_path, monkeypatch, task, expected):
    monkeypatch.setattr("tasks.classifiers.report.NUM_EXAMPLES", 2)
    assert MAIN[task](["train", *TINY[task].split(), "--run-dir", str(tmp_path)]) == 0
    page = (tmp_path / "report.html").read_text()
    pictures = re.findall(r'<img width="\d+" alt="([^"]*)" src="data:image/png;base64,', page)
    assert [re.split("; | for ", alt)[0] for alt in pictures] == expected
