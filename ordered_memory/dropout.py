"""Dropout with explicit masks, so that every backend can be given the same ones."""

from __future__ import annotations

import torch
from torch import Tensor


def draw_mask(shape: tuple[int, ...], probability: float, like: Tensor) -> Tensor:
    """A mask of inverted dropout: 0 with `probability`, else 1 / (1 - probability).

    Args:
        shape: of the mask.
        probability: fraction of entries to drop, in [0, 1].
        like: the tensor whose dtype and device the mask takes.
    Returns:
        Tensor of `shape`, from the global generator of its device.
    Example:
        >>> draw_mask((2, 3), 1.0, torch.zeros(1)).sum()
        tensor(0.)
    """
    mask = torch.empty(shape, dtype=like.dtype, device=like.device)
    if probability >= 1:
        return mask.zero_()
    return mask.bernoulli_(1 - probability).div_(1 - probability)


def apply_mask(values: Tensor, mask: Tensor | None) -> Tensor:
    """`values * mask`, or `values` where nothing is dropped.

    Args:
        values: of any shape.
        mask: broadcasts to `values`; None where nothing is dropped.
    """
    return values if mask is None else values * mask
