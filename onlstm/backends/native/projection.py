"""W x + b for all tokens, into memory that is used again: fresh memory takes as long as the product."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ordered_memory.backends.derivatives import first_only
from ordered_memory.compiled import pool


def project(tokens: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`torch.nn.functional.linear`.

    Args:
        tokens: (P, features).
        weight: (4H + 2M, features).
        bias: (4H + 2M,) or None.
    Returns:
        (P, 4H + 2M), in the dtype of the weight.
    """
    with torch.autocast("cpu", enabled=False):
        arguments = tokens.to(weight.dtype), weight, bias
        if torch.is_grad_enabled():
            result: Tensor = _Project.apply(*arguments)  # type: ignore[no-untyped-call]
            return result
        return _product(*arguments)


class _Project(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tokens: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(tokens, weight)
        return _product(tokens, weight, bias)

    @staticmethod
    @first_only
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        tokens, weight = ctx.saved_tensors
        (gradient,) = upstream
        assert gradient is not None
        wanted = ctx.needs_input_grad
        return (
            gradient @ weight if wanted[0] else None,
            gradient.t() @ tokens if wanted[1] else None,
            gradient.sum(0) if wanted[2] else None,
        )


def _product(tokens: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    rows = len(weight)
    result = pool.empty(len(tokens) * rows, weight.dtype).view(-1, rows)
    if bias is None:
        return torch.mm(tokens, weight.t(), out=result)
    return torch.addmm(bias, tokens, weight.t(), out=result)
