"""What the hand-written reverse passes can be asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

Backward = Callable[..., tuple[Tensor | None, ...]]


def first_only(backward: Backward) -> Backward:
    """For the backward of an autograd.Function: refuse to build a graph of the gradient.

    `torch.autograd.function.once_differentiable` refuses when such a graph is used, and lets pass for zero
    what does not depend on the upstream gradient.

    Args:
        backward: of an `autograd.Function`.
    Raises:
        RuntimeError: of the function returned, when called for with `create_graph=True`.
    """

    @wraps(backward)
    def checked(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "this backend cannot be differentiated twice (create_graph=True): use backend='reference'"
            )
        return backward(ctx, *upstream)

    return checked
