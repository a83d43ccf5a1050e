"""Cumulative attention: `cumax` and the →π and ←π masks that both models are built on."""

from __future__ import annotations

import torch
from torch import Tensor


def cumax(logits: Tensor, dim: int = -1) -> Tensor:
    """Cumulative softmax: a soft step from 0 to 1 along `dim`.

    ON-LSTM, equations (6)–(8): `cumax(z) = cumsum(softmax(z))`, the expectation of the
    binary vector (0 … 0, 1 … 1) whose step falls at k with probability softmax(z)_k.

    Args:
        logits: real scores, any shape.
        dim: the axis to accumulate along.
    Returns:
        Tensor of the shape and dtype of `logits`, non-decreasing along `dim`. Up to rounding, entries lie
        in [0, 1], and the last one along `dim` is 1.
    Example:
        >>> cumax(torch.zeros(4))
        tensor([0.2500, 0.5000, 0.7500, 1.0000])
    """
    return forward_mask(torch.softmax(logits, dim), dim)


def forward_mask(attention: Tensor, dim: int = -1) -> Tensor:
    """The mask →π: how much of the attention lies at or above each slot.

    Ordered Memory, equation (3): `→π_i = Σ_{j ≤ i} p_j`.

    Args:
        attention: p, non-negative, any shape; sums to 1 (or 0) along `dim`.
        dim: the slot axis.
    Returns:
        Tensor of the same shape, non-decreasing along `dim`.
    Example:
        >>> forward_mask(torch.tensor([0.0, 0.25, 0.75]))
        tensor([0.0000, 0.2500, 1.0000])
    """
    return attention.cumsum(dim)


def backward_mask(attention: Tensor, dim: int = -1) -> Tensor:
    """The mask ←π: how much of the attention lies at or below each slot.

    Ordered Memory, equation (4): `←π_i = Σ_{j ≥ i} p_j`.

    Args:
        attention: p, non-negative, any shape; sums to 1 (or 0) along `dim`.
        dim: the slot axis.
    Returns:
        Tensor of the same shape, non-increasing along `dim`.
    Example:
        >>> backward_mask(torch.tensor([0.0, 0.25, 0.75]))
        tensor([1.0000, 1.0000, 0.7500])
    """
    return attention.flip(dim).cumsum(dim).flip(dim)
