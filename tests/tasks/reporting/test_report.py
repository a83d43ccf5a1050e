"""Drawings and the report: right way round, self-contained, the same every time."""

import re

import numpy as np
import pytest

from ordered_memory.baseline_trees import balanced, left_branching
from tasks.reporting.drawing import attention_figure, draw_tree, save_attention, tree_svg
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


def test_terminal_tree_keeps_the_order_of_the_words():
    for tree in (balanced(7), left_branching(7), (((0, 1), (2, (3, 4))), (5, 6))):
        words = ["[MAX", "2", "9", "[MIN", "4", "7", "]"]
        line = next(line for line in draw_tree(tree, words).splitlines() if "[MAX" in line)
        assert line.split() == words
    assert draw_tree(0, ["7"]).split()[-1] == "7"


def test_svg_has_every_word_and_branch():
    svg = tree_svg(balanced(4), ["<a>", "&", "c", "d"], highlight=[(0, 1)])
    assert re.findall(r'<text class="leaf"[^>]*>([^<]*)<', svg) == ["&lt;a&gt;", "&amp;", "c", "d"]
    assert svg.count('class="branch wrong"') == 2
    assert svg.count('class="branch"') == 4


def test_terminal_tree_has_the_labels_of_its_nodes():
    labels = {(0, 0): "-", (1, 1): "+", (0, 1): "--", (0, 2): "0"}
    assert draw_tree(((0, 1), 2), ["not", "good", "."], labels).splitlines() == [
        "         0",
        "     ┌───┴────┐",
        "     --       │",
        " ┌───┴───┐    │",
        " -       +    │",
        "not     good  .",
    ]
    assert draw_tree(0, ["good"], {(0, 0): "+"}).split() == ["+", "│", "good"]
    assert draw_tree((0, 1), ["a", "b"], {}).split() == ["·", "┌───┴───┐", "│", "│", "a", "b"]
    assert "incomprehensibility" in draw_tree((0, 1), ["incomprehensibility", "."], labels)


def test_svg_leaves_fit_their_words():
    words = ["an", "incomprehensible", "and", "disappointing", "misfire", "."]
    places = [float(x) for x in re.findall(r'<text class="leaf" x="([\d.]*)"', tree_svg(balanced(6), words))]
    lefts = [x - 7.3 * len(word) / 2 for x, word in zip(places, words, strict=True)]
    rights = [x + 7.3 * len(word) / 2 for x, word in zip(places, words, strict=True)]
    assert lefts[0] >= 0
    assert all(left - right >= 4 for left, right in zip(lefts[1:], rights, strict=False))


def test_svg_says_the_sentiment_of_every_node():
    values = {(0, 0): -0.5, (1, 1): 0.9, (2, 2): -0.001, (0, 1): -0.42, (0, 2): -1}
    svg = tree_svg(((0, 1), 2), ["not", "<good>", "."], sentiment=values)
    found = re.findall(r'class="node (\w+)" style="--strength:(\d+)%"><title>([^<]*)</title><circle', svg)
    assert found == [
        ("negative", "50", "-0.50: not"),
        ("positive", "90", "+0.90: &lt;good&gt;"),
        ("negative", "0", "+0.00: ."),
        ("negative", "42", "-0.42: not &lt;good&gt;"),
        ("negative", "100", "-1.00: not &lt;good&gt; ."),
    ]
    assert svg.count("<circle") == 5
    assert svg.count("<text") == 3


@pytest.mark.parametrize("value", [None, 1.1, float("nan")])
def test_a_node_without_sentiment_is_an_error(value):
    values = {(0, 0): 0.0, (1, 1): value, (0, 1): 0.0}
    with pytest.raises(ValueError, match=rf"sentiment of \(1, 1\) \('good'\) .* got {value}"):
        tree_svg((0, 1), ["not", "good"], sentiment=values)


def test_heat_map_has_the_root_slot_at_the_bottom():
    attention = np.zeros((4, 3))
    attention[:, 2] = 1.0
    figure = attention_figure(attention, WORDS)
    (image,) = figure.axes[0].images
    np.testing.assert_array_equal(image.get_array(), attention.T)
    assert figure.axes[0].get_ylim() == (2.5, -0.5)  # row 0 (slot 1) is drawn at the top
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["1", "2", "3"]
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == WORDS


def test_heat_map_of_other_words_is_an_error():
    with pytest.raises(ValueError, match="T = 4 tokens"):
        attention_figure(np.zeros((3, 3)), WORDS)


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
    assert not re.findall(r"https?://", page)


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
