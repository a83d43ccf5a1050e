"""The syntactic distances of a sentence as a picture, as in ON-LSTM's appendix (Figure A.1), and as text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ordered_memory.trees import Tree, depth, fold

BAR_WIDTH = 40
INK, BAR = "#3a4149", "#4c78a8"


def distances_text(distances: Sequence[float], words: Sequence[str]) -> str:
    """Bars of text, a line for each word, the longest bar for the largest distance.

    Args:
        distances: of one layer, a non-negative number for each word.
        words: as many.
    Returns:
        Several lines.
    Example:
        >>> print(distances_text([2.0, 1.0], ["the", "cat"]).replace("█", "="))
          the     2.00  ========================================
          cat     1.00  ====================
    """
    widest = max(map(len, words))
    largest = max(max(distances), 1e-9)
    return "\n".join(
        f"  {word:<{widest}} {value:8.2f}  {'█' * round(BAR_WIDTH * value / largest)}".rstrip()
        for word, value in zip(words, distances, strict=True)
    )


def distances_figure(
    distances: NDArray[np.floating], words: Sequence[str], trees: Sequence[Tree], names: Sequence[str]
) -> Figure:
    """Bars of the distance of each word, a row for each layer, under the layer's tree.

    Args:
        distances: (L, words).
        words: the sentence.
        trees: one for each layer.
        names: one for each layer.
    Returns:
        A figure: words from left to right.
    Raises:
        ValueError: there is not one row for each name and tree, or not one column for each word.
    """
    values = np.asarray(distances, dtype=np.float64)
    if values.shape != (len(names), len(words)) or len(trees) != len(names):
        raise ValueError(
            f"expected distances to be (layers, words) = ({len(names)}, {len(words)}) with a tree for each "
            f"layer, got {values.shape} and {len(trees)} trees"
        )
    heights = [0.4 + 0.14 * depth(tree) for tree in trees]
    figure = Figure(
        figsize=(max(3.0, 1.3 + 0.52 * len(words)), sum(heights) + 1.7 * len(names)), layout="constrained"
    )
    ratios = [ratio for height in heights for ratio in (height, 1.0)]
    rows = figure.subplots(2 * len(names), 1, sharex=True, squeeze=False, height_ratios=ratios)[:, 0]
    labels = [word.replace("$", r"\$") for word in words]  # a pair of them would start a formula
    for number, (name, tree) in enumerate(zip(names, trees, strict=True)):
        above, below = rows[2 * number], rows[2 * number + 1]
        _draw_tree(above, tree)
        above.axis("off")
        above.set_title(name, fontsize=9, loc="left")
        below.bar(range(len(words)), values[number], width=0.7, color=BAR)
        below.set_ylabel("distance", fontsize=8)
        below.tick_params(labelsize=8, labelbottom=True)
        below.spines[["top", "right"]].set_visible(False)
        below.set_xticks(range(len(words)), labels, rotation=35, ha="right", rotation_mode="anchor")
    rows[0].set_xlim(-0.6, len(words) - 0.4)
    return figure


def _draw_tree(axes: Axes, tree: Tree) -> None:
    """Draw the branches; a word is at height 0."""

    def join(children: list[tuple[float, int]]) -> tuple[float, int]:
        x = (children[0][0] + children[-1][0]) / 2
        height = 1 + max(child_height for _, child_height in children)
        for child_x, child_height in children:
            axes.plot([x, child_x, child_x], [height, height, child_height], color=INK, linewidth=1.1)
        return x, height

    fold(tree, lambda word: (float(word), 0), join)
