"""Figures of a report: learning curves, and figures of `ordered_memory.draw` as files and in a page."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from ordered_memory.draw import attention_figure
from tasks.runs.files import atomic_path

LONGEST_DRAWN = 60
"""Sentences of more tokens are not drawn."""


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


def save_attention(path: Path, attention: Tensor, tokens: Sequence[str]) -> None:
    """Write the heat map of `attention_figure` to a PNG file, whole or not at all.

    Args:
        path: of the file; its directory is made if it is missing.
        attention: p of each token, (T, N).
        tokens: their T names.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary:
        temporary.write_bytes(figure_png(attention_figure(attention, tokens)))
