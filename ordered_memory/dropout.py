"""Dropout with explicit masks, so that all backends can use the same masks."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import dropout


def draw_mask(shape: tuple[int, ...], probability: float, like: Tensor) -> Tensor:
    """Draw a mask for inverted dropout: 0 with `probability`, else 1 / (1 - probability).

    Args:
        shape: shape of the mask.
        probability: probability of dropping an entry, in [0, 1].
        like: tensor whose dtype and device the mask takes.
    Returns:
        Tensor of `shape`, drawn from the global generator of its device. Where gradients are needed, a trace
        of `torch.jit.trace` may draw its masks in another order than the module: it reorders dropout.
    Example:
        >>> import torch
        >>> draw_mask((2, 3), 1.0, torch.zeros(1)).sum()
        tensor(0.)
    """
    # Not `bernoulli_`: Inductor may read a tensor before it is drawn in place. `new_ones`: under vmap, each
    # element of the mapped axis has its own mask.
    return like.new_zeros(shape) if probability >= 1 else dropout(like.new_ones(shape), probability)


def apply_mask(values: Tensor, mask: Tensor | None) -> Tensor:
    """Return `values * mask`, or `values` if nothing is dropped.

    Args:
        values: tensor of any shape.
        mask: mask that broadcasts to `values`; None if nothing is dropped.
    """
    return values if mask is None else values * mask
