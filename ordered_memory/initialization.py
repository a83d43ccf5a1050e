"""Initialize parameters again."""

from __future__ import annotations

from torch import nn


def reset_children(module: nn.Module) -> None:
    """Call `reset_parameters` of every submodule or, if a submodule has no such method, of its submodules.

    Args:
        module: module whose submodules are reset; its own parameters do not change.
    """
    for child in module.children():
        if hasattr(child, "reset_parameters"):
            child.reset_parameters()  # type: ignore[operator]
        else:
            reset_children(child)
