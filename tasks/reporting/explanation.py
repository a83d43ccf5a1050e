"""Explain traces to the readers of a page."""

from __future__ import annotations

from collections.abc import Sequence

from ordered_memory.trace import Trace

ATTENTION = (
    "pₜ is the attention of token t over the memory slots; slot 1 is the top of the stack. The subtrees down"
    " to the slot with the most attention are joined into one, and the token is put on top. In this way a "
    "tree grows while the model reads."
)
DISTANCES = (
    "The distance of a word is large if a constituent ends before it. Trees are decoded from the distances "
    "of each layer by three algorithms."
)


def explanation(traces: Sequence[Trace]) -> str:
    """Explain what traces show, in a few sentences.

    Args:
        traces: of any number of examples.
    """
    kinds = {key for trace in traces for key in trace}
    return " ".join(text for key, text in (("memory", ATTENTION), ("layers", DISTANCES)) if key in kinds)
