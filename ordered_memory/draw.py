"""Drawings of trees, attention and distances: text for a terminal, SVG, and matplotlib figures.

Figures need matplotlib, and trees as text need nltk; both are imported when first used. To draw trees with
nltk itself, convert them with `trees.to_nltk`.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch import Tensor

from ordered_memory.checks import check_words
from ordered_memory.trees import Span, Tree, check_tokens, depth, fold, to_nltk

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike, NDArray

LEAF_WIDTH, LEVEL_HEIGHT, MARGIN = 34, 18, 14
CHARACTER_WIDTH = 7.3
"""Width of a character in pixels; Chinese ones and emoji take two. LEAF_WIDTH is enough for four."""
MAX_HORIZONTAL_LABEL = 5
"""Longest token, in columns of text, that fits horizontally under a column of a heat map."""
LONGEST_LABEL = 20
"""Maximum number of characters of a word in a figure, whose axes need the room."""
FAMILIES = ["monospace", "sans-serif"]
"""Fonts of the tokens of a heat map: the second one has Hebrew, which matplotlib's own first one lacks."""
BAR_WIDTH = 40
INK, BAR, MARKED, NEGATIVE, POSITIVE = "#3a4149", "#4c78a8", "#b3261e", "#b85c00", "#1a66b0"

_FILLER = "\x00"
"""The second column of a wide character while nltk arranges words; `_one_line` removes it from words."""
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _label(word: str) -> str:
    """A word for a figure, on one line; of a long one, its beginning."""
    word = _one_line(word)
    return word if len(word) <= LONGEST_LABEL else f"{word[: LONGEST_LABEL - 1]}…"


def _one_line(word: str) -> str:
    """A word without the characters that would break its line, turn its direction or fail to be printed."""
    return re.sub("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]", "␣", word)


def _lines(label: str) -> str:
    """A label, each line of it as in `_one_line`."""
    return "\n".join(map(_one_line, label.split("\n")))


def tree_text(tree: Tree, tokens: Sequence[str], labels: Mapping[Span, str] | None = None) -> str:
    """Draw a tree as text, for a terminal.

    Args:
        tree: leaves index `tokens`.
        tokens: the words, one for each leaf.
        labels: labels of nodes by first and last word, (i, i) for the label above a single word. A node
            without a label is drawn as a dot or, above a word, as a line.
    Returns:
        Several lines of text.
    Raises:
        ModuleNotFoundError: nltk is not installed.
        TypeError: not a tree, or a token is not a string.
        ValueError: not a tree over the tokens.
        RecursionError: the tree is too deep for nltk, which draws about 900 levels; `tree_svg` draws more.
    Example:
        >>> print(tree_text(((0, 1), 2), ["a", "b", "c"]).replace(" ", "_"))
        _________·
        _____┌───┴───┐
        _____·_______│
        _┌───┴───┐___│
        _a_______b___c
    """
    check_words("tokens", tokens)
    # The leaves are positions, because nltk would not keep words as leaves in order.
    positions = to_nltk(tree, range(len(tokens)), "·")
    from nltk.tree.prettyprinter import TreePrettyPrinter

    words = [_filled(_one_line(word)) for word in tokens]
    if labels is not None:
        labels = {span: _filled(_lines(str(label))) for span, label in labels.items()}
        drawn: set[Span] = set()
        for node in positions.subtrees():  # parents before children
            node_leaves = node.leaves()
            span = (node_leaves[0], node_leaves[-1])
            # Nodes with a single child have its span; the topmost one has the label.
            node.set_label("│" if span in drawn else labels.get(span, "·"))
            drawn.add(span)
        if isinstance(tree, tuple):  # in a one-word tree the nltk node above the word already has the label
            words = [
                f"{'│' if (i, i) in drawn else labels.get((i, i), '│')}\n{word}"
                for i, word in enumerate(words)
            ]
    # nltk breaks lines wider than 16 characters, and would join a word and its label.
    width = 16 if labels is None else 10_000
    text: str = TreePrettyPrinter(positions, words).text(unicodelines=True, maxwidth=width)
    lines = [line.rstrip() for line in text.replace(_FILLER, "").split("\n") if line.strip()]
    return "\n".join(lines)


def tree_svg(
    tree: Tree,
    tokens: Sequence[str],
    highlight: Sequence[Span] = (),
    sentiment: Mapping[Span, float] | None = None,
) -> str:
    """Draw a tree as SVG, for a page or a file.

    Args:
        tree: leaves index `tokens`.
        tokens: the words.
        highlight: spans whose constituents are drawn in red.
        sentiment: sentiment of every node by first and last word, (i, i) for single words, from -1 (negative)
            to 1 (positive). Nodes are then drawn as circles whose color and size show it.
    Returns:
        One `<svg>` element, see `valid_xml`. A page may style its classes: `branch`, `branch wrong`, `leaf`,
        and `node positive` or `node negative` with its `--strength` (percent).
    Raises:
        TypeError: not a tree, or a token is not a string.
        ValueError: not a tree over the tokens, or the sentiment of a node is missing or outside [-1, 1].
    Example:
        >>> svg = tree_svg(((0, 1), 2), ["the", "cat", "sat"])
        >>> svg[:4], svg.count('class="leaf"')
        ('<svg', 3)
    """
    check_tokens(tree, tokens)
    check_words("tokens", tokens)
    children = _children(tree)
    height_of: dict[Span, int] = {}
    for span, child_spans in children.items():  # children before parents
        height_of[span] = 1 + max(height_of.get(child, 0) for child in child_spans)
    levels = max(height_of.values(), default=0)
    widths = [LEAF_WIDTH + CHARACTER_WIDTH * max(0, _columns(token) - 4) for token in tokens]
    edges = list(accumulate(widths, initial=MARGIN))
    bottom = MARGIN + LEVEL_HEIGHT * levels
    baseline = bottom + (16 if sentiment is None else 20)
    width, height = edges[-1] + MARGIN, baseline + 8

    def coordinates(span: Span) -> tuple[float, float]:
        first, last = ((edges[position] + edges[position + 1]) / 2 for position in span)
        return (first + last) / 2, bottom - LEVEL_HEIGHT * height_of.get(span, 0)

    highlighted = set(highlight)
    branches: list[str] = []
    elements: list[str] = []
    for span, child_spans in children.items():
        x, y = coordinates(span)
        css_class = f'branch wrong" stroke="{MARKED}' if span in highlighted else "branch"
        for child in child_spans:
            child_x, child_y = coordinates(child)
            branches.append(f'<path class="{css_class}" d="M{x:.1f} {y:.1f}H{child_x:.1f}V{child_y:.1f}"/>')
    words = {}
    for i, token in enumerate(tokens):
        x, _ = coordinates((i, i))
        words[i, i] = f'<text class="leaf" x="{x:.1f}" y="{baseline:.1f}">{html.escape(token)}</text>'
    if sentiment is None:
        elements += words.values()
    else:
        for span in [*words, *children]:
            title = " ".join(tokens[span[0] : span[1] + 1])
            elements.append(_node(span, sentiment, coordinates(span), title, words.get(span, "")))
    label = html.escape(f"Tree over {' '.join(tokens)}", quote=True)
    return valid_xml(
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{label}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}">'
        f'<g fill="none" stroke="gray" stroke-width="1.4">{"".join(branches)}</g>'
        f'<g fill="currentColor" font-family="monospace" font-size="12" text-anchor="middle">'
        f"{''.join(elements)}</g></svg>"
    )


def _filled(word: str) -> str:
    """A word with a filler after each wide character, so that it has a character for each column."""
    return "".join(
        character + _FILLER * (unicodedata.east_asian_width(character) in "WF") for character in word
    )


def _columns(word: str) -> int:
    """How many characters of usual width a word is as wide as."""
    return len(_filled(word))


def valid_xml(text: str) -> str:
    """Replace the characters that an XML document cannot contain, such as control characters, by U+FFFD.

    Args:
        text: markup or plain text.
    Example:
        >>> valid_xml("a\\x00b")
        'a�b'
    """
    return _NOT_XML.sub("\ufffd", text)


def attention_figure(
    attention: ArrayLike | Tensor, tokens: Sequence[str], title: str = "", ax: Axes | None = None
) -> Figure:
    """Draw the attention of a sequence as a heat map.

    Args:
        attention: p of one sequence, (T, N).
        tokens: the T tokens.
        title: title of the heat map.
        ax: axes to draw it in, such as those of a panel of a larger figure; None for a new figure.
    Returns:
        A figure: tokens from left to right, slot 1 (the top of the stack) at the top, N at the bottom. Of a
        token of more than 20 characters, the beginning is shown. With `ax` it is `ax.figure`.
    Raises:
        TypeError: a token is not a string.
        ValueError: the attention is not (T, N) for T tokens.
        ModuleNotFoundError: matplotlib is not installed.
    Example:
        >>> figure = attention_figure([[0, 0], [0.1, 0.9], [0.8, 0.2]], ["the", "cat", "sat"])
        >>> figure.savefig("attention.png")  # doctest: +SKIP
    """
    values = _array(attention)
    if values.ndim != 2 or len(values) != len(tokens):
        raise ValueError(f"attention must be (T, N) with T = {len(tokens)} tokens, got {values.shape}")
    check_words("tokens", tokens)
    steps, slots = values.shape
    labels = [_label(token) for token in tokens]
    widest = max(map(_columns, labels), default=0)
    vertical = steps > 30 or widest > MAX_HORIZONTAL_LABEL
    if ax is None:
        ax = _figure(1.6 + 0.34 * steps, 1.0 + 0.2 * slots + 0.07 * widest * vertical).add_subplot()
    image = ax.imshow(values.T, cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    ax.set_xticks(range(steps), labels, family=FAMILIES, fontsize=8, rotation=90 * vertical, parse_math=False)
    ax.set_yticks(range(slots), [str(slot + 1) for slot in range(slots)], fontsize=7)
    ax.set_ylabel("slot")
    ax.set_title(valid_xml(title), fontsize=9, parse_math=False)
    figure = cast("Figure", ax.figure)  # or a subfigure
    figure.colorbar(image, ax=ax, label="$p_t$", ticks=[0, 0.5, 1])
    return figure


def distances_text(distances: ArrayLike | Tensor, words: Sequence[str]) -> str:
    """Draw the distances of a sentence as bars of text, one line for each word.

    Args:
        distances: distances of one layer, a non-negative number for each word.
        words: the words.
    Returns:
        Several lines of text. The longest bar is that of the largest distance.
    Raises:
        TypeError: a word is not a string.
        ValueError: there is not one finite number for each word.
    Example:
        >>> print(distances_text([2.0, 1.0], ["the", "cat"]).replace("█", "="))
          the     2.00  ========================================
          cat     1.00  ====================
    """
    values = _array(distances)
    if values.shape != (len(words),) or not np.isfinite(values).all():
        got = values.tolist() if values.shape == (len(words),) else f"shape {values.shape}"
        raise ValueError(
            f"expected distances to be {len(words)} finite numbers, one for each word, got {got}"
        )
    check_words("words", words)
    words = [_one_line(word) for word in words]
    widest = max(map(_columns, words), default=0)
    largest = values.max(initial=1e-9)
    lines = []
    for word, value in zip(words, values, strict=True):
        padding, bar = " " * (widest - _columns(word)), "█" * round(BAR_WIDTH * (value / largest))
        lines.append(f"  {word}{padding} {value:8.2f}  {bar}".rstrip())
    return "\n".join(lines)


def distances_figure(
    distances: ArrayLike | Tensor, words: Sequence[str], trees: Sequence[Tree], names: Sequence[str]
) -> Figure:
    """Draw the distances of a sentence as bars, one row for each layer, below the layer's tree.

    Args:
        distances: (L, words).
        words: the words of the sentence.
        trees: a tree for each layer.
        names: a name for each layer.
    Returns:
        A figure with the words from left to right. Of a word of more than 20 characters, the beginning is
        shown.
    Raises:
        TypeError: an entry of `trees` is not a tree, or a word is not a string.
        ValueError: there is no layer, the distances do not have a row for each name and tree and a column for
            each word, one of them is not finite, or a tree is not over the words.
        ModuleNotFoundError: matplotlib is not installed.
    """
    values = _array(distances)
    if values.shape != (len(names), len(words)) or len(trees) != len(names):
        raise ValueError(
            f"expected distances to be (layers, words) = ({len(names)}, {len(words)}) with a tree for each "
            f"layer, got {values.shape} and {len(trees)} trees"
        )
    if not names:
        raise ValueError("expected one layer or more, got none")
    if not np.isfinite(values).all():
        raise ValueError(f"expected distances to be finite numbers, got {values.tolist()}")
    check_words("words", words)
    check_words("names", names)
    for tree in trees:
        check_tokens(tree, words, "words")
    heights = [0.4 + 0.14 * depth(tree) for tree in trees]
    figure = _figure(max(3.0, 1.3 + 0.52 * len(words)), sum(heights) + 1.7 * len(names))
    ratios = [ratio for height in heights for ratio in (height, 1.0)]
    rows = figure.subplots(2 * len(names), 1, sharex=True, squeeze=False, height_ratios=ratios)[:, 0]
    for number, (name, tree) in enumerate(zip(names, trees, strict=True)):
        tree_axes, bar_axes = rows[2 * number], rows[2 * number + 1]
        _draw_tree(tree_axes, tree)
        tree_axes.axis("off")
        tree_axes.set_title(valid_xml(name), fontsize=9, loc="left", parse_math=False)
        bar_axes.bar(range(len(words)), values[number], width=0.7, color=BAR)
        bar_axes.set_ylabel("distance", fontsize=8)
        bar_axes.tick_params(labelsize=8, labelbottom=True)
        bar_axes.spines[["top", "right"]].set_visible(False)
        bar_axes.set_xticks(
            range(len(words)),
            [_label(word) for word in words],
            rotation=35,
            ha="right",
            rotation_mode="anchor",
            parse_math=False,
        )
    rows[0].set_xlim(-0.6, len(words) - 0.4)
    return figure


def _array(values: ArrayLike | Tensor) -> NDArray[np.float64]:
    if isinstance(values, Tensor):
        values = values.detach().to("cpu", torch.float64).numpy()
    return np.asarray(values, dtype=np.float64)


def _figure(width: float, height: float) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        reason = "matplotlib is not installed: pip install matplotlib"
        raise ModuleNotFoundError(reason, name="matplotlib") from None
    return Figure(figsize=(width, height), layout="constrained")


def _children(tree: Tree) -> dict[Span, list[Span]]:
    """The spans of the children of every constituent, children before parents."""
    children: dict[Span, list[Span]] = {}

    def join(child_spans: list[Span]) -> Span:
        span = (child_spans[0][0], child_spans[-1][1])
        if len(child_spans) > 1:
            children[span] = child_spans
        return span

    fold(tree, lambda leaf: (leaf, leaf), join)
    return children


def _node(
    span: Span, sentiment: Mapping[Span, float], center: tuple[float, float], title: str, word: str
) -> str:
    """The circle of a node, larger for a stronger sentiment, with the word below it if the node is a leaf."""
    value = sentiment.get(span)
    if value is None or not -1 <= value <= 1:
        raise ValueError(f"expected sentiment of {span} ({title!r}) to be from -1 to 1, got {value}")
    polarity, color = ("negative", NEGATIVE) if value < 0 else ("positive", POSITIVE)
    return (
        f'<g class="node {polarity}" style="--strength:{100 * abs(value):.0f}%">'
        f"<title>{value:+z.2f}: {html.escape(title)}</title>"
        f'<circle cx="{center[0]:.1f}" cy="{center[1]:.1f}" r="{3 + 3 * abs(value):.1f}" fill="{color}"/>'
        f"{word}</g>"
    )


def _draw_tree(axes: Axes, tree: Tree) -> None:
    """Draw the branches of a tree, with the words at height 0."""

    def join(children: list[tuple[float, int]]) -> tuple[float, int]:
        x = (children[0][0] + children[-1][0]) / 2
        height = 1 + max(child_height for _, child_height in children)
        for child_x, child_height in children:
            axes.plot([x, child_x, child_x], [height, height, child_height], color=INK, linewidth=1.1)
        return x, height

    fold(tree, lambda word: (float(word), 0), join)
