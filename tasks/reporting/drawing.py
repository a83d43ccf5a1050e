"""Trees and attention as pictures: text for the terminal, SVG and PNG for everything else."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from nltk.tree.prettyprinter import TreePrettyPrinter
from numpy.typing import NDArray

from ordered_memory.trees import Span, Tree, leaves, spans, to_nltk
from tasks.runs.files import atomic_path

LEAF_WIDTH, LEVEL_HEIGHT, MARGIN = 34, 18, 14
CHARACTER_WIDTH = 7.3
"""Of the page's font, in pixels: LEAF_WIDTH is enough for four characters."""
LONGEST_LEVEL = 5
"""Characters of a token that fit beside its neighbours under a heat map."""
LONGEST_DRAWN = 60
"""Sentences of more tokens are not drawn."""


def draw_tree(tree: Tree, tokens: Sequence[str], labels: Mapping[Span, str] | None = None) -> str:
    """The tree in lines of text, for a terminal.

    Args:
        tree: leaves index `tokens`.
        tokens: the words.
        labels: of nodes, by first and last word; those of single words (i, i) stand above them. A node
            without one is a dot or, above a word, a line.
    Returns:
        Several lines.
    Example:
        >>> print(draw_tree(((0, 1), 2), ["a", "b", "c"]).replace(" ", "_"))
        _________·
        _____┌───┴───┐
        _____·_______│
        _┌───┴───┐___│
        _a_______b___c
    """
    # Given words as leaves, nltk would put them in the order of its own traversal.
    positions = to_nltk(tree, range(len(tokens)), "·")
    words = list(tokens)
    if labels is not None:
        for node in positions.subtrees():
            of_node = node.leaves()
            node.set_label(labels.get((of_node[0], of_node[-1]), "·"))
        if isinstance(tree, tuple):  # nltk has a node above the leaf of a one-word tree: that has the label
            words = [f"{labels.get((i, i), '│')}\n{word}" for i, word in enumerate(tokens)]
    # nltk breaks what is wider than 16 characters, and would take a word and its label for one.
    width = 16 if labels is None else None
    text: str = TreePrettyPrinter(positions, words).text(unicodelines=True, maxwidth=width)
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return "\n".join(lines)


def tree_svg(
    tree: Tree,
    tokens: Sequence[str],
    highlight: Sequence[Span] = (),
    sentiment: Mapping[Span, float] | None = None,
) -> str:
    """The tree as an SVG element that takes its colours from the page around it.

    Args:
        tree: leaves index `tokens`.
        tokens: the words.
        highlight: spans whose constituents are drawn in the accent colour.
        sentiment: of every node, by first and last word, single words (i, i) included: from -1, negative,
            to 1, positive. Nodes become circles that say it.
    Returns:
        One <svg> element; classes `branch`, `branch wrong`, `leaf` and `node positive` or `node negative`
        with its `--strength` (percent) are for the page to style.
    Raises:
        ValueError: a node has no sentiment, or one outside of -1..1.
    """
    children = _children(tree)
    height_of = {span: _levels(span, children) for span in children}
    levels = max(height_of.values(), default=0)
    widths = [LEAF_WIDTH + CHARACTER_WIDTH * max(0, len(token) - 4) for token in tokens]
    edges = list(accumulate(widths, initial=MARGIN))
    bottom = MARGIN + LEVEL_HEIGHT * levels
    baseline = bottom + (16 if sentiment is None else 20)
    width, height = edges[-1] + MARGIN, baseline + 8

    def place(span: Span) -> tuple[float, float]:
        first, last = ((edges[position] + edges[position + 1]) / 2 for position in span)
        return (first + last) / 2, bottom - LEVEL_HEIGHT * height_of.get(span, 0)

    marked = set(highlight)
    parts = []
    for span, parts_of_span in children.items():
        x, y = place(span)
        kind = "branch wrong" if span in marked else "branch"
        for child in parts_of_span:
            child_x, child_y = place(child)
            parts.append(f'<path class="{kind}" d="M{x:.1f} {y:.1f}H{child_x:.1f}V{child_y:.1f}"/>')
    words = {}
    for i, token in enumerate(tokens):
        x, _ = place((i, i))
        words[i, i] = f'<text class="leaf" x="{x:.1f}" y="{baseline:.1f}">{html.escape(token)}</text>'
    if sentiment is None:
        parts += words.values()
    else:
        for span in [*words, *children]:
            title = " ".join(tokens[span[0] : span[1] + 1])
            parts.append(_node(span, sentiment, place(span), title, words.get(span, "")))
    label = html.escape(f"Tree over {' '.join(tokens)}", quote=True)
    return (
        f'<svg role="img" aria-label="{label}" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}">{"".join(parts)}</svg>'
    )


def attention_figure(attention: NDArray[np.floating], tokens: Sequence[str], title: str = "") -> Figure:
    """The pointer heat map of a sentence.

    Args:
        attention: p, (T, N), fractions.
        tokens: T words.
        title: above the map.
    Returns:
        A figure: tokens from left to right, slot 1 (the top of the stack) at the top, N at the bottom.
    Raises:
        ValueError: not one row for each token.
    """
    values = np.asarray(attention, dtype=np.float64)
    if values.ndim != 2 or len(values) != len(tokens):
        raise ValueError(f"attention must be (T, N) with T = {len(tokens)} tokens, got {values.shape}")
    steps, slots = values.shape
    figure = Figure(figsize=(1.6 + 0.34 * steps, 1.0 + 0.2 * slots), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(values.T, cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    upright = steps > 30 or any(len(token) > LONGEST_LEVEL for token in tokens)
    axes.set_xticks(range(steps), list(tokens), family="monospace", fontsize=8, rotation=90 * upright)
    axes.set_yticks(range(slots), [str(slot + 1) for slot in range(slots)], fontsize=7)
    axes.set_ylabel("slot")
    axes.set_title(title, fontsize=9)
    figure.colorbar(image, ax=axes, label="$p_t$", ticks=[0, 0.5, 1])
    return figure


def curves_figure(
    series: dict[str, list[tuple[float, float]]], title: str, unit: str, axis: str = "epoch"
) -> Figure:
    """Lines over whole numbers: learning curves, accuracy by length.

    Args:
        series: by name, (place on the axis, value) pairs.
        title: what is drawn.
        unit: of the values.
        axis: what the values are drawn over.
    Returns:
        A figure with one line for each series.
    """
    figure = Figure(figsize=(4.6, 2.9), layout="constrained")
    axes = figure.add_subplot()
    for name, points in series.items():
        xs, ys = zip(*points, strict=True) if points else ((), ())
        axes.plot(xs, ys, marker="o" if len(points) < 30 else "", markersize=3, linewidth=1.5, label=name)
    axes.set_xlabel(axis)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel(f"{title} ({unit})")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if series:
        axes.legend(frameon=False, fontsize=8)
    return figure


def figure_png(figure: Figure, dpi: int = 144) -> bytes:
    """A figure as PNG; the same figure gives the same bytes.

    Args:
        figure: is drawn on white.
        dpi: dots per inch.
    """
    buffer = io.BytesIO()
    with matplotlib.rc_context({"savefig.facecolor": "white"}):
        FigureCanvasAgg(figure)
        figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return buffer.getvalue()


def figure_img(figure: Figure, description: str) -> str:
    """The figure as an <img> element that carries its own data.

    Args:
        figure: what to show.
        description: for who cannot see it.
    Returns:
        One <img> element.
    """
    width = int(figure.get_figwidth() * 96)
    data = base64.b64encode(figure_png(figure)).decode()
    alt = html.escape(description, quote=True)
    return f'<img width="{width}" alt="{alt}" src="data:image/png;base64,{data}">'


def save_attention(path: Path, attention: NDArray[np.floating], tokens: Sequence[str]) -> None:
    """Write the heat map of `attention_figure` to a PNG file, whole or not at all.

    Args:
        path: of the file; its directory is made if it is missing.
        attention: p of each token, (T, N).
        tokens: their T names.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary:
        temporary.write_bytes(figure_png(attention_figure(attention, tokens)))


def _children(tree: Tree) -> dict[Span, list[Span]]:
    """The parts of every constituent, children before parents."""
    inner = spans(tree)
    children: dict[Span, list[Span]] = {}
    waiting: dict[int, Span] = {leaf: (leaf, leaf) for leaf in leaves(tree)}
    for first, last in inner:
        parts = []
        position = first
        while position <= last:
            part = waiting.pop(position)
            parts.append(part)
            position = part[1] + 1
        children[first, last] = parts
        waiting[first] = (first, last)
    return children


def _node(
    span: Span, sentiment: Mapping[Span, float], place: tuple[float, float], title: str, word: str
) -> str:
    """The circle of a node, the larger the stronger its sentiment, with the word under it if it is a leaf."""
    value = sentiment.get(span)
    if value is None or not -1 <= value <= 1:
        raise ValueError(f"expected sentiment of {span} ({title!r}) to be from -1 to 1, got {value}")
    kind = "negative" if value < 0 else "positive"
    return (
        f'<g class="node {kind}" style="--strength:{100 * abs(value):.0f}%">'
        f"<title>{value:+z.2f}: {html.escape(title)}</title>"
        f'<circle cx="{place[0]:.1f}" cy="{place[1]:.1f}" r="{3 + 3 * abs(value):.1f}"/>{word}</g>'
    )


def _levels(span: Span, children: dict[Span, list[Span]]) -> int:
    """The height of a constituent above the leaves; only short sentences are drawn, so this may recurse."""
    return 1 + max((_levels(child, children) for child in children[span] if child in children), default=0)
