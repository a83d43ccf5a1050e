"""Derivatives of the recurrences written as an autograd.Function: first ones only."""

from __future__ import annotations

import torch


def check_first() -> None:
    """Refuse to build a graph of the gradient, in the backward of an autograd.Function.

    `torch.autograd.function.once_differentiable` refuses only when such a graph is used, and gives zero for
    what does not depend on the upstream gradient.

    Raises:
        RuntimeError: the gradient was asked for with `create_graph=True`.
    """
    if torch.is_grad_enabled():
        raise RuntimeError(
            "this backend cannot be differentiated twice (create_graph=True): use backend='reference'"
        )
