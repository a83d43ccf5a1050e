"""Recurrences written as an autograd.Function have first derivatives only."""

from __future__ import annotations

import torch


def forbid_double_backward() -> None:
    """Raise an error in the backward of an autograd.Function that is called with `create_graph=True`.

    `torch.autograd.function.once_differentiable` raises an error only when the second derivative is computed,
    and returns zero for the part of it that does not depend on the upstream gradient.

    Raises:
        RuntimeError: the gradient is computed with `create_graph=True`.
    """
    if torch.is_grad_enabled():
        raise RuntimeError(
            "this backend cannot be differentiated twice (create_graph=True): use backend='reference'"
        )
