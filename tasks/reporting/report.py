"""The final report of a run: one HTML file that needs nothing else."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ordered_memory.trees import Span, Tree, spans
from tasks.reporting.drawing import LONGEST_DRAWN, attention_figure, curves_figure, figure_img, tree_svg
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
        rows: cells of each row; the first names the row.
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
    """The page as HTML."""
    sections = []
    if report.curves:
        sections.append(_section("Learning curves", "".join(map(_curve, report.curves)), "row"))
    if report.plots or report.tables:
        body = "".join(map(_curve, report.plots)) + "".join(map(_table, report.tables))
        sections.append(_section("Results", body, "row"))
    if report.examples:
        sections.append(
            _section("Examples", _legend(report.examples) + "".join(map(_example, report.examples)))
        )
    if report.config:
        rows = "".join(
            f"<tr><th scope='row'>{_escape(name)}</th><td>{_escape(_cell(value))}</td></tr>"
            for name, value in report.config.items()
        )
        details = f"<details><summary>All options</summary><table>{rows}</table></details>"
        sections.append(_section("Configuration", details))
    title = _escape(report.title)
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{title}</h1>\n<p class='subtitle'>{_escape(report.subtitle)}</p>\n"
        f"{''.join(sections)}</main>\n</body>\n</html>\n"
    )


def _section(title: str, body: str, kind: str = "") -> str:
    return f"<section>\n<h2>{_escape(title)}</h2>\n<div class='{kind}'>{body}</div>\n</section>\n"


def _legend(examples: Sequence[Example]) -> str:
    """What the pictures of the examples mean."""
    parts = []
    if any(example.predicted_tree is not None for example in examples):
        parts.append(
            "Left the induced tree, right the true one; constituents of the induced tree that are not in "
            'the true tree are <span class="wrong-word">marked</span>.'
        )
    if any(example.attention is not None for example in examples):
        parts.append(
            "Below, the attention p<sub>t</sub> of each token over the slots, slot 1 being the top of the "
            "stack."
        )
    return f"<p>{' '.join(parts)}</p>" if parts else ""


def _curve(curve: Curve) -> str:
    last = ", ".join(f"{name} {points[-1][1]:.4f}" for name, points in curve.series.items() if points)
    figure = curves_figure(curve.series, curve.name, curve.unit, curve.axis)
    return f"<figure>{figure_img(figure, f'{curve.name} by {curve.axis}; at the end {last}')}</figure>\n"


def _table(table: Table) -> str:
    head = "".join(f"<th scope='col'>{_escape(column)}</th>" for column in table.columns)
    rows = "".join(
        "<tr>"
        + f"<th scope='row'>{_escape(_cell(row[0]))}</th>"
        + "".join(f"<td>{_escape(_cell(cell))}</td>" for cell in row[1:])
        + "</tr>"
        for row in table.rows
    )
    note = f"<p class='note'>{_escape(table.note)}</p>" if table.note else ""
    return (
        f"<div class='scroll'><table><caption>{_escape(table.title)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{note}</div>\n"
    )


def _example(example: Example) -> str:
    mark = {True: "<span class='right'>✓</span> ", False: "<span class='wrong-word'>✗</span> ", None: ""}
    caption = f"{mark[example.correct]}{_escape(example.caption)}"
    text = f"<p class='tokens'>{_escape(' '.join(example.tokens))}</p>"
    if len(example.tokens) > LONGEST_DRAWN:
        drawn = f"<p class='note'>Not drawn: more than {LONGEST_DRAWN} tokens.</p>"
    else:
        drawn = _trees(example) + _heat_map(example)
        if example.figure is not None:
            picture = figure_img(example.figure, f"figure of {len(example.tokens)} tokens")
            drawn += f"<figure class='scroll'>{picture}</figure>"
    return f"<article><h3>{caption}</h3>{text}{drawn}</article>\n"


def _trees(example: Example) -> str:
    if example.predicted_tree is None:
        return ""
    gold = example.gold_tree
    wrong: list[Span] = []
    if gold is not None:
        true_spans = set(spans(gold))
        wrong = [span for span in spans(example.predicted_tree) if span not in true_spans]
    panes = [("induced" + ("" if wrong or gold is None else ", as the true one"), example.predicted_tree)]
    panes += [("true", gold)] if gold is not None else []
    return (
        "<div class='row'>"
        + "".join(
            f"<figure class='scroll'>{tree_svg(tree, example.tokens, wrong if i == 0 else ())}"
            f"<figcaption>{name}</figcaption></figure>"
            for i, (name, tree) in enumerate(panes)
        )
        + "</div>"
    )


def _heat_map(example: Example) -> str:
    if example.attention is None:
        return ""
    tokens = example.attention_tokens or example.tokens
    image = figure_img(
        attention_figure(example.attention, tokens),
        f"attention over {example.attention.shape[1]} slots for each of {len(tokens)} tokens",
    )
    return f"<figure class='scroll'>{image}</figure>"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}" if 1e-3 <= abs(value) < 1e3 or value == 0 else f"{value:g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


def _escape(text: str) -> str:
    return html.escape(text, quote=True)


STYLE = """
:root { color-scheme: light dark; --ink: #1c2126; --faint: #66707a; --line: #d9dee3; --paper: #fff;
  --panel: #f7f8fa; --accent: #b3261e; --good: #1b7f4b; }
@media (prefers-color-scheme: dark) { :root { --ink: #e5e8eb; --faint: #9aa4ad; --line: #363d44;
  --paper: #15181b; --panel: #1d2125; --accent: #ff8a80; --good: #6fd39b; } }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
main { max-width: 72rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.7rem; margin: 0 0 .25rem; } h2 { font-size: 1.15rem; margin: 2.25rem 0 .75rem; }
h3 { font-size: 1rem; margin: 0; font-weight: 600; }
.subtitle, .note, figcaption { color: var(--faint); } .note, figcaption { font-size: .85rem; }
.row { display: flex; flex-wrap: wrap; gap: 1.5rem; align-items: flex-end; }
.row > .scroll { align-self: flex-start; }
.scroll { overflow-x: auto; max-width: 100%; } figure { margin: 0; } img { height: auto; max-width: none; }
@media (prefers-color-scheme: dark) { img { border-radius: 6px; } }
figure:not(.scroll) img { max-width: 100%; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
caption { text-align: left; font-weight: 600; padding-bottom: .4rem; }
th, td { padding: .25rem .9rem .25rem 0; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child { text-align: left; font-weight: 400; } thead th { color: var(--faint); font-weight: 500; }
details td { text-align: left; } .tokens { font: .85rem/1.6 ui-monospace, monospace; color: var(--faint);
  overflow-wrap: anywhere; margin: .25rem 0 .75rem; }
article { background: var(--panel); border-radius: 10px; padding: 1rem 1.25rem; margin-bottom: 1rem;
  break-inside: avoid; }
.branch { fill: none; stroke: var(--faint); stroke-width: 1.4; } .branch.wrong { stroke: var(--accent);
  stroke-width: 2; } .leaf { font: 12px ui-monospace, monospace; text-anchor: middle; fill: var(--ink); }
.right { color: var(--good); } .wrong-word { color: var(--accent); }
@media print { main { max-width: none; padding: 0; } }
"""
