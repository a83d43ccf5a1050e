"""Matrix products that avoid PyTorch's BLAS where it is slow."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from ordered_memory.backends.runtime import processor

MIN_ONEDNN_SIZE = 1 << 24
"""Number of multiplications in a matrix product below which oneDNN costs more to set up than it saves."""


def multiply(left: Tensor, right: Tensor) -> Tensor:
    """The product of two matrices, computed by oneDNN if that is faster.

    PyTorch computes float32 products with MKL, which uses half the vector width of AMD processors with
    AVX-512.

    Args:
        left: (m, k).
        right: (k, n), of the same dtype.
    Returns:
        (m, n).
    """
    large = left.shape[0] * right.numel() >= MIN_ONEDNN_SIZE
    if left.dtype == torch.float32 and large and left.numel() and _onednn_is_faster():
        if not left.is_contiguous() and right.is_contiguous() and right.numel() < left.numel():
            return _by_onednn(right.t(), left.t()).t().contiguous()
        return _by_onednn(left, right)
    return left @ right


def _by_onednn(left: Tensor, right: Tensor) -> Tensor:
    """The product of two matrices by oneDNN.

    oneDNN copies a left operand whose rows are not contiguous, and is far slower with a right operand that
    has gaps between its rows.
    """
    dense = right if right.is_contiguous() or right.t().is_contiguous() else right.contiguous()
    product: Tensor = torch.ops.mkldnn._linear_pointwise(left, dense.t(), None, "none", [], "")
    return product


@cache
def _onednn_is_faster() -> bool:
    available = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return available and processor.is_amd() and "avx512f" in processor.features().split()
