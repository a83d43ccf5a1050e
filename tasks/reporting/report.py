"""The final report of a run: one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ordered_memory.draw import attention_figure, tree_svg
from ordered_memory.trees import Span, Tree, spans
from tasks.reporting.drawing import LONGEST_DRAWN, curves_figure, figure_img
from tasks.runs.files import write_atomically


@dataclass
class Curve:
    """Lines in one plot.

    Args:
        name: what is drawn.
        unit: of its values.
        series: by name, (place on the axis, value) pairs.
        axis: what the values are drawn over.
    """

    name: str
    unit: str
    series: dict[str, list[tuple[float, float]]]
    axis: str = "epoch"


@dataclass
class Table:
    """A table of results; numbers are shown with three or four digits.

    Args:
        title: above it.
        columns: their heads.
        rows: cells of each row; the first names the row, None is a cell without a value.
        note: under it, conventions for instance.
    """

    title: str
    columns: list[str]
    rows: list[list[Any]]
    note: str = ""


@dataclass
class Example:
    """A sentence as the model reads it.

    Args:
        tokens: its T words.
        predicted_tree: None for a model that induces none.
        gold_tree: None where none is known.
        attention: p, (·, N); None for a model without slots.
        attention_tokens: what the model read, where that is more than the leaves of the trees.
        figure: something else to draw under the trees, if anything.
        sentiment: of every node of the predicted tree, as `draw.tree_svg` takes it.
        gold_sentiment: of every node of the true tree.
        caption: the model's answer.
        correct: whether it is right; None where that makes no sense.
    """

    tokens: list[str]
    predicted_tree: Tree | None
    gold_tree: Tree | None
    attention: NDArray[np.floating] | None
    caption: str
    correct: bool | None
    attention_tokens: list[str] | None = None
    figure: Figure | None = None
    sentiment: Mapping[Span, float] | None = None
    gold_sentiment: Mapping[Span, float] | None = None


@dataclass
class Report:
    """Everything on the page, in order.

    Args:
        title: of the page.
        subtitle: one line on what was run and what came out.
        config: the resolved options.
        curves: of learning.
        plots: of results.
        tables, examples: see their classes.
    """

    title: str
    subtitle: str
    config: dict[str, Any] = field(default_factory=dict)
    curves: list[Curve] = field(default_factory=list)
    plots: list[Curve] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    examples: list[Example] = field(default_factory=list)


def write_report(path: Path, report: Report) -> None:
    """Write the page, whole or not at all. The same report gives the same bytes.

    Args:
        path: the HTML file, in a directory that exists.
        report: what stands in it.
    """
    write_atomically(path, render(report))


UNITS = {"accuracy": "fraction", "loss": "nats", "perplexity": "words"}


def learning_curves(rows: Sequence[dict[str, Any]]) -> list[Curve]:
    """Everything measured on both training and validation data.

    Args:
        rows: of metrics.jsonl.
    """
    parts = ("train", "validation")
    names = [name.removeprefix("train_") for name in rows[0] if name.startswith("train_")]
    return [
        Curve(
            name,
            UNITS[name],
            {part: [(row["epoch"], row[f"{part}_{name}"]) for row in rows] for part in parts},
        )
        for name in sorted(names)
    ]


def best_epoch(rows: Sequence[dict[str, Any]], measure: str = "accuracy", lowest: bool = False) -> str:
    """Whose weights were tested, in words.

    Args:
        rows: of metrics.jsonl.
        measure: what the epoch was chosen by, on validation data.
        lowest: whether less of it is better.
    """
    choose = min if lowest else max
    best = choose(rows, key=lambda row: row[f"validation_{measure}"])
    return (
        f"with the weights of epoch {best['epoch']}, the best of {len(rows)} on validation data "
        f"({best[f'validation_{measure}']:.4f})"
    )


def render(report: Report) -> str:
    """The page as HTML.

    Args:
        report: what to show.
    """
    return _TEMPLATES.get_template("report.html").render(report=report, longest_drawn=LONGEST_DRAWN)


def _img(curve: Curve) -> Markup:
    """A plot of curves."""
    last = ", ".join(f"{name} {points[-1][1]:.4f}" for name, points in curve.series.items() if points)
    figure = curves_figure(curve.series, curve.name, curve.unit, curve.axis)
    return Markup(figure_img(figure, f"{curve.name} by {curve.axis}; at the end {last}"))


def _trees(example: Example) -> list[tuple[str, Markup]]:
    """Names and drawings of the induced tree, wrong constituents marked, and of the true one."""
    if example.predicted_tree is None:
        return []
    true = set() if example.gold_tree is None else set(spans(example.gold_tree))
    wrong = (
        [] if example.gold_tree is None else [one for one in spans(example.predicted_tree) if one not in true]
    )
    name = "induced, as the true one" if example.gold_tree is not None and not wrong else "induced"
    induced = tree_svg(example.predicted_tree, example.tokens, wrong, example.sentiment)
    panes = [(name, Markup(induced))]
    if example.gold_tree is not None:
        true_one = tree_svg(example.gold_tree, example.tokens, sentiment=example.gold_sentiment)
        panes.append(("true", Markup(true_one)))
    return panes


def _pictures(example: Example) -> list[Markup]:
    """The heat map and whatever else is drawn under the trees."""
    pictures = []
    if example.attention is not None:
        tokens = example.attention_tokens or example.tokens
        description = f"attention over {example.attention.shape[1]} slots for each of {len(tokens)} tokens"
        pictures.append(figure_img(attention_figure(example.attention, tokens), description))
    if example.figure is not None:
        pictures.append(figure_img(example.figure, f"figure of {len(example.tokens)} tokens"))
    return [Markup(picture) for picture in pictures]


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}" if 1e-3 <= abs(value) < 1e3 or value == 0 else f"{value:g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "–" if value is None else str(value)


_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters.update(img=_img, trees=_trees, pictures=_pictures, cell=_cell)
