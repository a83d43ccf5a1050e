"""Initialize parameters."""

from __future__ import annotations

import math

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


def reset_as_concatenated(*maps: nn.Linear) -> None:
    """Initialize linear maps, whose results are added, in the same way as one map of all their inputs.

    The bound is 1 / sqrt(fan-in), as in `nn.Linear`, with the fan-in of all maps together.

    Args:
        maps: parts of one linear map.
    """
    bound = 1 / math.sqrt(sum(part.in_features for part in maps))
    for part in maps:
        for parameter in part.parameters():
            nn.init.uniform_(parameter, -bound, bound)
