"""Padding with zeros from D to P, the multiple of 16 that the kernels take, and its inverse.

Axes as in `kernels_shared`. Zeros stay zeros in the whole recurrence, so the padding changes no result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ordered_memory.backends.contract import Weights
from ordered_memory.backends.triton.arguments import Block, KernelPlan

LARGEST = 512
"""Largest D that the kernels take."""
VECTORS = ("key_bias", "score_out", "norm", "norm_bias", "key_norm", "key_norm_bias")
"""The fields of `Weights` of shape (D,), or None."""


def padded_size(size: int) -> int:
    """P for D.

    Args:
        size: D.
    """
    return -(-size // 16) * 16


def power_of_two_above(number: int) -> int:
    """The smallest power of two that is at least `number`.

    Args:
        number: positive integer.
    """
    return 1 << (number - 1).bit_length()


def pad(tensor: Tensor, width: int) -> Tensor:
    """Pad the last axis with zeros. The result is contiguous.

    Args:
        tensor: tensor to pad.
        width: size of the last axis of the result.
    """
    return F.pad(tensor, (0, width - tensor.shape[-1])).contiguous()


def unpad(tensor: Tensor, size: int) -> Tensor:
    """The first entries of the last axis, as a new contiguous tensor or `tensor` itself.

    Args:
        tensor: padded tensor.
        size: number of entries.
    """
    return tensor[..., :size].contiguous()


def pad_weights(weights: Weights, size: int) -> Weights:
    """Pad the weights. The gates and the two inputs of the gated cell are padded one by one.

    Args:
        weights: the weights for D, with those of the gated cell.
        size: D.
    Returns:
        The weights for P.
    """
    assert weights.w_out is not None
    assert weights.b_out is not None
    width = padded_size(size)
    padding = width - size
    w_in = F.pad(weights.w_in.view(4 * size, 2, size), (0, padding, 0, 0, 0, 4 * padding))
    w_out = F.pad(weights.w_out.view(4, size, -1), (0, 4 * padding, 0, padding))
    return Weights(
        key=F.pad(weights.key, (0, padding, 0, padding)),
        w_in=w_in.view(4 * width, 2 * width),
        b_in=pad(weights.b_in, 4 * width),
        w_out=w_out.view(4 * width, 4 * width),
        b_out=pad(weights.b_out.view(4, size), width).view(-1),
        **_map_vectors(weights, lambda vector: pad(vector, width)),
    )


def pad_to_blocks(weights: Weights, plan: KernelPlan, operand: torch.dtype, is_backward: bool) -> Weights:
    """Pad the weights further, so that a kernel needs no masks for them.

    Args:
        weights: the weights for P, matrices as (out, in).
        plan: constants of the kernel.
        operand: dtype of the matrices.
        is_backward: whether it is the backward kernel, which multiplies with the matrices as they are. The
            forward kernel multiplies with their transposes.
    Returns:
        The weights with matrices and their biases padded to whole blocks, and other vectors to `WIDTH`.
    """
    w_in, w_out = (plan.SECOND, plan.FIRST) if is_backward else (plan.FIRST, plan.SECOND)

    def matrix(values: Tensor, block: Block) -> Tensor:
        values = (values if is_backward else values.t()).to(operand)
        padding = (0, -values.shape[1] % block.columns, 0, -values.shape[0] % block.terms)
        return F.pad(values, padding).contiguous()

    def bias(values: Tensor, block: Block) -> Tensor:
        return F.pad(values, (0, -len(values) % block.columns))

    assert weights.w_out is not None
    assert weights.b_out is not None
    vectors = _map_vectors(weights, lambda vector: pad(vector, plan.WIDTH))
    return Weights(
        **vectors
        | {
            "key": matrix(weights.key, plan.KEY),
            "key_bias": bias(weights.key_bias, plan.KEY),
            "w_in": matrix(weights.w_in, w_in),
            "b_in": bias(weights.b_in, w_in),
            "w_out": matrix(weights.w_out, w_out),
            "b_out": bias(weights.b_out, w_out),
        }
    )


def unpad_weights(weights: Weights, size: int) -> Weights:
    """The inverse of `pad_weights`.

    Args:
        weights: the weights for P.
        size: D.
    Returns:
        The weights for D.
    """
    assert weights.w_out is not None
    assert weights.b_out is not None
    width = padded_size(size)
    return Weights(
        key=unpad(weights.key[:size], size),
        w_in=unpad(weights.w_in[: 4 * size].view(4 * size, 2, width), size).view(4 * size, 2 * size),
        b_in=unpad(weights.b_in, 4 * size),
        w_out=unpad(weights.w_out.view(4, width, -1)[:, :size], 4 * size).view(4 * size, 4 * size),
        b_out=unpad(weights.b_out.view(4, width), size).view(4 * size),
        **_map_vectors(weights, lambda vector: unpad(vector, size)),
    )


def _map_vectors(weights: Weights, function: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    """The results of a function for the vectors of `weights`, by name."""
    vectors = {name: getattr(weights, name) for name in VECTORS}
    return {name: None if vector is None else function(vector) for name, vector in vectors.items()}
