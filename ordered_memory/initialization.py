"""Initialize parameters again."""

from __future__ import annotations

from torch import nn


def reset_children(module: nn.Module) -> None:
    """Call `reset_parameters` of the submodules, or of theirs where they have none.

    Args:
        module: its own parameters are left as they are.
    """
    for child in module.children():
        if hasattr(child, "reset_parameters"):
            child.reset_parameters()  # type: ignore[operator]
        else:
            reset_children(child)
