"""Dropout with explicit masks, so that all backends can use the same masks."""

from __future__ import annotations

from torch import Tensor


def draw_mask(shape: tuple[int, ...], probability: float, like: Tensor) -> Tensor:
    """Draw a mask for inverted dropout: 0 with `probability`, else 1 / (1 - probability).

    Args:
        shape: shape of the mask.
        probability: probability of dropping an entry, in [0, 1].
        like: tensor whose dtype and device the mask takes.
    Returns:
        Tensor of `shape`, drawn from the global generator of its device.
    Example:
        >>> import torch
        >>> draw_mask((2, 3), 1.0, torch.zeros(1)).sum()
        tensor(0.)
    """
    mask = like.new_empty(shape)  # under vmap, one mask for each element of the mapped axis
    if probability >= 1:
        return mask.zero_()
    return mask.bernoulli_(1 - probability).div_(1 - probability)


def apply_mask(values: Tensor, mask: Tensor | None) -> Tensor:
    """Return `values * mask`, or `values` if nothing is dropped.

    Args:
        values: tensor of any shape.
        mask: mask that broadcasts to `values`; None if nothing is dropped.
    """
    return values if mask is None else values * mask
