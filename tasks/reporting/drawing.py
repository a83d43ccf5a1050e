"""Figures of `ordered_memory.draw` as PNG files."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from ordered_memory.draw import attention_figure
from tasks.runs.files import atomic_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LONGEST_DRAWN = 60
"""Sentences of more tokens are not drawn."""


def figure_png(figure: Figure, dpi: int = 144) -> bytes:
    """A figure as PNG; the same figure gives the same bytes.

    Args:
        figure: is drawn on white.
        dpi: dots per inch.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    buffer = io.BytesIO()
    with matplotlib.rc_context({"savefig.facecolor": "white"}):
        FigureCanvasAgg(figure)
        figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return buffer.getvalue()


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
