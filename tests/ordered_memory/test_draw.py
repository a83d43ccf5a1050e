"""Drawings: words in their order, slots and layers the right way round, and no more imports than needed."""

import io
import re
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from ordered_memory.baseline_trees import balanced, left_branching
from ordered_memory.draw import attention_figure, distances_figure, distances_text, tree_svg, tree_text
from ordered_memory.tree_recovery import from_distances

WORDS = ["[MAX", "2", "9", "]"]
SPANS = [*((i, i) for i in range(5)), (0, 1), (3, 4), (2, 4), (0, 4)]
"""The nodes of ((0, 1), (2, (3, 4)))."""


def test_terminal_tree_keeps_the_order_of_the_words():
    for tree in (balanced(7), left_branching(7), (((0, 1), (2, (3, 4))), (5, 6))):
        words = ["[MAX", "2", "9", "[MIN", "4", "7", "]"]
        line = next(line for line in tree_text(tree, words).splitlines() if "[MAX" in line)
        assert line.split() == words
    assert tree_text(0, ["7"]).split()[-1] == "7"


def test_svg_has_every_word_and_branch():
    svg = tree_svg(balanced(4), ["<a>", "&", "c", "d"], highlight=[(0, 1)])
    assert re.findall(r'<text class="leaf"[^>]*>([^<]*)<', svg) == ["&lt;a&gt;", "&amp;", "c", "d"]
    assert svg.count('class="branch wrong"') == 2
    assert svg.count('class="branch"') == 4


def test_terminal_tree_has_the_labels_of_its_nodes():
    labels = {(0, 0): "-", (1, 1): "+", (0, 1): "--", (0, 2): "0"}
    assert tree_text(((0, 1), 2), ["not", "good", "."], labels).splitlines() == [
        "         0",
        "     ┌───┴────┐",
        "     --       │",
        " ┌───┴───┐    │",
        " -       +    │",
        "not     good  .",
    ]
    assert tree_text(0, ["good"], {(0, 0): "+"}).split() == ["+", "│", "good"]
    assert tree_text((0, 1), ["a", "b"], {}).split() == ["·", "┌───┴───┐", "│", "│", "a", "b"]
    assert "incomprehensibility" in tree_text((0, 1), ["incomprehensibility", "."], labels)


def test_wide_characters_take_two_columns_of_a_terminal_tree():
    labels = {(0, 0): "名詞", (2, 2): "x"}
    wide = tree_text(((0, 1), 2), ["北京大学", "好", "x"], labels)
    narrow = tree_text(((0, 1), 2), ["abcdefgh", "ij", "x"], {(0, 0): "NOUN", (2, 2): "x"})
    columns = {"北京大学": "abcdefgh", "好": "ij", "名詞": "NOUN"}
    for characters, letters in columns.items():
        wide = wide.replace(characters, letters)
    assert wide == narrow
    long = tree_text((0, 1), ["人工智能研究所的图书馆", "."])  # broken at 16 columns
    assert long.splitlines()[-2:] == [f"人工智能研究所的{' ' * 6}.", "     图书馆"]


def test_a_label_controls_no_terminal():
    text = tree_text((0, 1), ["a", "b"], {(0, 1): "NP\n0.9\x1b[1m", (1, 1): "x\x9b\u202ey"})
    assert text.split() == tree_text((0, 1), ["a", "b"], {(0, 1): "NP\n0.9␣[1m", (1, 1): "x␣␣y"}).split()
    assert [line.split() for line in text.splitlines()[:2]] == [["NP"], ["0.9␣[1m"]]


def test_a_node_with_a_single_child_has_its_label_once():
    lines = tree_text((((0,),), 1), ["the", "cat"], {(0, 0): "NP", (0, 1): "S"}).splitlines()
    assert " ".join(lines).split().count("NP") == 1
    assert lines[-1].split() == ["the", "cat"]
    assert tree_text((0,), ["a"], {(0, 0): "N"}).split().count("N") == 1
    assert tree_text(0, ["a"], {(0, 0): "N"}).split() == ["N", "│", "a"]


@pytest.mark.parametrize(
    "character", ["\x85", "\x1c", "\u2028", "\t", "\n", "\x0b", "\u202e", "\u2067", "\ud800"]
)
def test_a_word_stays_on_its_line(character):
    text = tree_text((0, (1, 2)), [f"a{character}b", "c", "d"])
    assert text.split("\n")[-1].split() == ["a␣b", "c", "d"]
    assert text == tree_text((0, (1, 2)), ["a␣b", "c", "d"])
    assert len(distances_text([1.0, 2.0], [f"a{character}b", "c"]).splitlines()) == 2


def test_svg_leaves_fit_their_words():
    words = ["an", "incomprehensible", "and", "disappointing", "misfire", "."]
    places = [float(x) for x in re.findall(r'<text class="leaf" x="([\d.]*)"', tree_svg(balanced(6), words))]
    lefts = [x - 7.3 * len(word) / 2 for x, word in zip(places, words, strict=True)]
    rights = [x + 7.3 * len(word) / 2 for x, word in zip(places, words, strict=True)]
    assert lefts[0] >= 0
    assert all(left - right >= 4 for left, right in zip(lefts[1:], rights, strict=False))


def test_svg_leaves_fit_words_of_wide_characters():
    words = ["北京大学图书馆", "人工智能研究所"]  # 12 pixels a character, as high as the font
    left, right = re.findall(r'<text class="leaf" x="([\d.]*)"', tree_svg((0, 1), words))
    assert float(right) - float(left) >= 12 * 7 + 4


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


def test_a_constituent_stands_above_the_middle_of_its_words_and_a_level_above_its_highest_child():
    places = [31.0, 65.0, 99.0, 133.0, 167.0]  # middles of 34 pixels for each word, after a margin of 14
    svg = tree_svg(((0, 1), (2, (3, 4))), list("abcde"), sentiment=dict.fromkeys(SPANS, 0.5))
    assert [float(x) for x in re.findall(r'<text class="leaf" x="([\d.]*)"', svg)] == places
    assert set(re.findall(r'd="([^"]*)"', svg)) == {
        *("M48.0 50.0H31.0V68.0", "M48.0 50.0H65.0V68.0", "M150.0 50.0H133.0V68.0", "M150.0 50.0H167.0V68.0"),
        *("M133.0 32.0H99.0V68.0", "M133.0 32.0H150.0V50.0"),
        *("M99.0 14.0H48.0V50.0", "M99.0 14.0H133.0V32.0"),
    }
    circles = re.findall(r'<circle cx="([\d.]*)" cy="([\d.]*)" r="([\d.]*)"', svg)
    assert {(float(x), float(y)) for x, y, _ in circles} == {
        *((place, 68.0) for place in places),
        *((48.0, 50.0), (150.0, 50.0), (133.0, 32.0), (99.0, 14.0)),
    }
    assert {radius for *_, radius in circles} == {"4.5"}
    assert 'r="4.5" fill="#b85c00"' in tree_svg(0, ["a"], sentiment={(0, 0): -0.5})


@pytest.mark.parametrize("value", [None, 1.1, -1.1, float("nan")])
def test_a_node_without_sentiment_is_an_error(value):
    values = {(0, 0): 0.0, (1, 1): value, (0, 1): 0.0}
    with pytest.raises(ValueError, match=rf"sentiment of \(1, 1\) \('good'\) .* got {value}"):
        tree_svg((0, 1), ["not", "good"], sentiment=values)


@pytest.mark.parametrize("words", [["a"], ["a", "b", "c"]])
def test_a_tree_is_drawn_over_its_words_alone(words):
    with pytest.raises(ValueError, match=rf"leaves 0\.\.{len(words) - 1} of {len(words)}"):
        tree_svg((0, 1), words)
    with pytest.raises(ValueError, match=f"of {len(words)} words"):
        distances_figure([[1.0] * len(words)], words, [(0, 1)], ["layer 1"])


def test_the_depth_of_an_svg_has_no_limit():
    svg = tree_svg(left_branching(2000), ["w"] * 2000)
    assert svg.count("<path") == 2 * 1999
    heights = [float(y) for y in re.findall(r'd="M[\d.]+ ([\d.]+)', svg)]
    assert max(heights) - min(heights) == 18 * 1998  # a level for each constituent


def test_an_svg_of_a_tree_that_is_not_binary():
    words, spans_of_tree = list("abcd"), [(0, 2), (0, 3), *((i, i) for i in range(4))]
    tree, with_single_children = ((0, 1, 2), 3), (((0,), 1, 2), ((3,),))
    assert tree_svg(tree, words).count("<path") == 5
    assert tree_svg(with_single_children, words) == tree_svg(tree, words)
    sentiment = dict.fromkeys(spans_of_tree, 0.5)
    assert tree_svg(tree, words, sentiment=sentiment).count("<circle") == len(sentiment)


def test_heat_map_has_the_root_slot_at_the_bottom():
    attention = np.zeros((4, 3))
    attention[:, 2] = 1.0
    figure = attention_figure(attention, WORDS)
    (image,) = figure.axes[0].images
    np.testing.assert_array_equal(image.get_array(), attention.T)
    assert figure.axes[0].get_ylim() == (2.5, -0.5)  # row 0 (slot 1) is drawn at the top
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["1", "2", "3"]
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == WORDS


def test_heat_maps_share_a_figure():
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert attention_figure(np.eye(2), ["a", "b"], ax=left) is figure
    attention_figure(np.zeros((3, 2)), ["c", "d", "e"], title="second", ax=right)
    assert [image.get_array().shape for axes in (left, right) for image in axes.images] == [(2, 2), (2, 3)]
    assert right.get_title() == "second"
    assert len(figure.axes) == 4  # a color bar beside each


@pytest.mark.parametrize("shape", [(3, 3), (4,), (4, 3, 1)])
def test_heat_map_of_other_words_or_of_a_batch_is_an_error(shape):
    with pytest.raises(ValueError, match=rf"T = 4 tokens, got {re.escape(str(shape))}"):
        attention_figure(np.zeros(shape), WORDS)


def test_words_are_not_read_as_formulas():
    words = [r"$\alpha$", r"$\no-command$", "$"]
    for figure in (
        attention_figure(np.eye(3), words),
        distances_figure(np.ones((1, 3)), words, [((0, 1), 2)], ["layer 1"]),
    ):
        figure.savefig(io.BytesIO())
        labels = [label for axes in figure.axes for label in axes.get_xticklabels()]
        assert [label.get_text() for label in labels if "$" in label.get_text()] == words
        assert not any(label.get_parse_math() for label in labels if label.get_text() in words)


def test_bars_of_text_keep_words_values_and_order():
    lines = distances_text([0.0, 4.0, 1.0], ["a", "long-word", "b"]).splitlines()
    assert [line.split()[:2] for line in lines] == [["a", "0.00"], ["long-word", "4.00"], ["b", "1.00"]]
    assert [line.count("█") for line in lines] == [0, 40, 10]
    assert [line.count("█") for line in distances_text([0.2, 0.05], ["a", "b"]).splitlines()] == [40, 10]
    assert [line.count("█") for line in distances_text([2e307, 8e307, 1e308], list("abc")).splitlines()] == [
        8,
        32,
        40,
    ]
    assert "0.00" in distances_text([0.0], ["a"])
    assert distances_text(torch.tensor([1.0, 2.0], requires_grad=True), ["a", "b"]).count("█") == 60
    for bad, got in (
        ([1.0], r"shape \(1,\)"),
        ([1.0, float("nan")], r"\[1\.0, nan\]"),
        (torch.zeros(3, 2), r"shape \(3, 2\)"),  # of a batch, whose values would fill a screen
    ):
        with pytest.raises(ValueError, match=f"to be 2 finite numbers, one for each word, got {got}$"):
            distances_text(bad, ["a", "b"])


def test_bars_of_any_array():
    array = np.array([1.0, 2.0])
    expected, read_only = distances_text([1.0, 2.0], ["a", "b"]), array.copy()
    read_only.flags.writeable = False
    for values in (array[::-1].copy()[::-1], read_only, array.astype(">f8"), array.astype(np.uint16)):
        assert distances_text(values, ["a", "b"]) == expected


def test_bars_of_text_begin_in_one_column_after_words_of_wide_characters():
    lines = distances_text([1.0, 2.0], ["北京", "cats"]).split("\n")
    assert lines[0].startswith("  北京     1.00  ")  # each character is two columns wide
    assert lines[1].startswith("  cats     2.00  ")


def test_the_figure_has_a_bar_for_each_word_and_a_row_for_each_layer():
    distances = np.array([[3.0, 1.0, 2.0], [1.0, 2.0, 0.5]])
    trees = from_distances(torch.from_numpy(distances), decoding="unbiased", batch_first=True)
    figure = distances_figure(distances, ["a", "$", "c"], trees, ["layer 1", "layer 2"])
    bars = [axes for axes in figure.axes if axes.patches]
    heights = [[bar.get_height() for bar in axes.patches] for axes in bars]
    assert heights == distances.tolist()
    for axes in bars:
        shown = [label.get_text() for label in axes.get_xticklabels() if label.get_visible()]
        assert shown == ["a", "$", "c"]
    assert {axes.get_xlim() for axes in figure.axes} == {(-0.6, 2.6)}  # a word stands above its bar
    drawn = [axes for axes in figure.axes if axes.lines]
    assert [axes.get_title(loc="left") for axes in drawn] == ["layer 1", "layer 2"]
    assert [len(axes.lines) for axes in drawn] == [4, 4]
    lines = [{tuple(map(tuple, line.get_xydata().tolist())) for line in axes.lines} for axes in drawn]
    assert trees == [((0, 1), 2), (0, (1, 2))]
    assert lines == [
        {
            *(((0.5, 1), (0, 1), (0, 0)), ((0.5, 1), (1, 1), (1, 0))),
            *(((1.25, 2), (0.5, 2), (0.5, 1)), ((1.25, 2), (2, 2), (2, 0))),
        },
        {
            *(((1.5, 1), (1, 1), (1, 0)), ((1.5, 1), (2, 1), (2, 0))),
            *(((0.75, 2), (0, 2), (0, 0)), ((0.75, 2), (1.5, 2), (1.5, 1))),
        },
    ]
    with pytest.raises(ValueError, match="got \\(2, 3\\) and 2 trees"):
        distances_figure(distances, ["a", "b"], trees, ["layer 1", "layer 2"])


def test_a_figure_of_distances_has_layers_and_finite_numbers():
    with pytest.raises(ValueError, match="expected one layer or more, got none"):
        distances_figure(np.zeros((0, 2)), ["a", "b"], [], [])
    with pytest.raises(ValueError, match=r"expected distances to be finite numbers, got \[\[1\.0, nan\]\]"):
        distances_figure([[1.0, np.nan]], ["a", "b"], [(0, 1)], ["layer 1"])


@pytest.mark.parametrize("more", [{"highlight": [(0, 1)]}, {"sentiment": {(0, 0): -1, (1, 1): 1, (0, 1): 0}}])
def test_svg_is_a_file_of_its_own(more):
    root = ElementTree.fromstring(tree_svg((0, 1), ["a", '<b">'], **more))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    branches, words = root
    assert (branches.get("fill"), branches.get("stroke")) == ("none", "gray")
    assert words.get("fill") == "currentColor"
    assert [word.text for word in words.iter("{http://www.w3.org/2000/svg}text")] == ["a", '<b">']
    assert root.get("aria-label") == 'Tree over a <b">'
    width, height = float(root.get("width")), float(root.get("height"))
    assert root.get("viewBox") == f"0 0 {width:.0f} {height:.0f}"
    *_, last = words.iter("{http://www.w3.org/2000/svg}text")
    assert float(last.get("x")) + 34 / 2 < width
    assert 32 + 8 < float(last.get("y")) < height - 4  # below the branches, with room for letters such as g


def test_svg_is_valid_for_any_word():
    words = ["a\0b", "\x1b", "\ud800", "\ufffe", "é\t"]
    text = tree_svg((0, (1, (2, (3, 4)))), words)
    root = ElementTree.fromstring(text.encode())
    shown = [word.text for word in root.iter("{http://www.w3.org/2000/svg}text")]
    assert shown == ["a\ufffdb", "\ufffd", "\ufffd", "\ufffd", "é\t"]


@pytest.mark.parametrize(
    "draw",
    [
        lambda words: tree_text((0, 1), words),
        lambda words: tree_svg((0, 1), words),
        lambda words: attention_figure(np.eye(2), words),
        lambda words: distances_text([1.0, 2.0], words),
        lambda words: distances_figure([[1.0, 2.0]], words, [(0, 1)], ["layer"]),
    ],
)
def test_words_are_strings(draw):
    with pytest.raises(TypeError, match=r"^(words|tokens)\[1\] must be a string, got 3$"):
        draw(["a", 3])


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
@pytest.mark.parametrize("word", ["\ud800", "a\0b", "a\nb", "\x1b"])
def test_figures_with_any_word_and_title_can_be_saved(word, kind):
    for figure in (
        attention_figure(np.eye(2), ["a", word], title=word),
        distances_figure([[1.0, 2.0]], ["a", word], [(0, 1)], [word]),
    ):
        figure.savefig(io.BytesIO(), format=kind)
        (ticks,) = [
            [label.get_text() for label in axes.get_xticklabels()]
            for axes in figure.axes
            if len(axes.get_xticklabels()) == 2 and "a" in [one.get_text() for one in axes.get_xticklabels()]
        ]
        assert len(ticks[1].splitlines()) == 1


@pytest.mark.filterwarnings("error:constrained_layout")
def test_long_words_leave_room_for_the_axes():
    for figure in (
        attention_figure(np.zeros((2, 1)), ["W" * 200, "b" * 20]),
        distances_figure([[1.0, 2.0]], ["W" * 200, "b" * 20], [(0, 1)], ["layer"]),
    ):
        figure.savefig(io.BytesIO())
        labels = [label.get_text() for axes in figure.axes for label in axes.get_xticklabels()]
        assert {"W" * 19 + "…", "b" * 20} <= set(labels)
        assert all(axes.get_window_extent().height > 10 for axes in figure.axes)


@pytest.mark.parametrize(
    ("word", "count", "rotation"),
    [("abcde", 2, 0), ("abcdef", 2, 90), ("漢字漢", 2, 90), ("a", 30, 0), ("a", 31, 90)],
)
def test_words_do_not_overlap_below_a_heat_map(word, count, rotation):
    labels = attention_figure(np.zeros((count, 3)), [word] * count).axes[0].get_xticklabels()
    assert [label.get_rotation() for label in labels] == [rotation] * count


def test_a_heat_map_draws_hebrew():
    """A letter that no font has is a warning, and warnings are errors."""
    attention_figure(np.eye(2), ["שלום", "a"]).savefig(io.BytesIO())


def test_tensors_that_need_gradients_are_drawn():
    attention = torch.rand(4, 3, dtype=torch.float32, requires_grad=True)
    (image,) = attention_figure(attention, WORDS).axes[0].images
    np.testing.assert_array_equal(image.get_array(), attention.detach().double().T)
    assert image.get_clim() == (0, 1)  # a color means the same in every figure


@pytest.mark.parametrize(
    ("package", "draw"),
    [
        ("matplotlib", lambda: attention_figure(np.eye(4, 3), WORDS)),
        ("nltk", lambda: tree_text(balanced(4), WORDS)),
    ],
)
def test_a_missing_package_is_named(monkeypatch, package, draw):
    for name in [package, f"{package}.figure"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModuleNotFoundError, match=f"{package} is not installed: pip install {package}"):
        draw()
    assert tree_svg(balanced(4), WORDS).startswith("<svg")


@pytest.mark.parametrize("text", ["$_$", "$5 or $6", "\\foo"])
def test_a_title_is_drawn_as_it_is_written(text):
    figures = [
        attention_figure(np.eye(3), list("abc"), title=text),
        distances_figure(np.ones((1, 3)), list("abc"), [((0, 1), 2)], [text]),
    ]
    for figure in figures:
        figure.canvas.draw()  # where mathematics is set, and errors in it are raised
        texts = [title for axes in figure.axes for title in (axes.title, axes._left_title)]
        (title,) = [title for title in texts if title.get_text()]
        assert title.get_text() == text
        assert not title.get_parse_math()
