"""What it is that traces show, for readers of a page with some."""

from __future__ import annotations

from collections.abc import Sequence

from ordered_memory.trace import Trace

ATTENTION = (
    "pₜ is the attention of a token over the slots of the memory; slot 1 is the top of the stack. The "
    "subtrees down to the slot that it attends to most are joined into one, and the token goes on top: so a "
    "tree grows while the model reads."
)
DISTANCES = (
    "The distance of a word is large where a constituent ends before it. Trees are read off the distances of "
    "each layer, in three ways."
)


def explanation(traces: Sequence[Trace]) -> str:
    """What it is that traces show, in a few sentences.

    Args:
        traces: of any number of examples.
    """
    kinds = {key for trace in traces for key in trace}
    return " ".join(text for key, text in (("memory", ATTENTION), ("layers", DISTANCES)) if key in kinds)
