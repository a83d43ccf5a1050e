"""Matrix products of PyTorch where its BLAS is slow."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from ordered_memory.backends.runtime import processor

WORTH_A_PRIMITIVE = 1 << 24
"""Multiplications below which setting up oneDNN costs more than it saves."""


def multiply(left: Tensor, right: Tensor) -> Tensor:
    """The product of two matrices, by oneDNN where that is faster.

    PyTorch multiplies float32 by MKL, which uses half the vector width of AMD processors with AVX-512.

    Args:
        left: (m, k).
        right: (k, n), of the same dtype.
    Returns:
        (m, n).
    """
    large = left.shape[0] * right.numel() >= WORTH_A_PRIMITIVE
    if left.dtype == torch.float32 and large and left.numel() and _onednn_is_faster():
        product: Tensor = torch.ops.mkldnn._linear_pointwise(left, right.t(), None, "none", [], "")
        return product
    return left @ right


@cache
def _onednn_is_faster() -> bool:
    there = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return there and processor.is_amd() and "avx512f" in processor.features().split()
