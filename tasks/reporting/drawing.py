"""Figures of `ordered_memory.draw` as PNG files."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from ordered_memory.draw import attention_figure
from tasks.runs.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LONGEST_DRAWN = 60
"""Maximum number of tokens of a sentence that is drawn."""


def figure_png(figure: Figure) -> bytes:
    """Render a figure as PNG, deterministically.

    Args:
        figure: rendered on a white background.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    buffer = io.BytesIO()
    with matplotlib.rc_context({"savefig.facecolor": "white"}):
        FigureCanvasAgg(figure)
        figure.savefig(buffer, format="png", dpi=144, metadata={"Software": None})
    return buffer.getvalue()


def save_attention(path: Path, attention: Tensor, tokens: Sequence[str]) -> None:
    """Write the heat map of `attention_figure` to a PNG file, atomically.

    Args:
        path: the file, in a directory that exists.
        attention: attention over the slots at each token, (T, N).
        tokens: T tokens.
    """
    write_atomically(path, figure_png(attention_figure(attention, tokens)))
