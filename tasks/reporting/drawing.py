"""Figures as PNG files."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

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
