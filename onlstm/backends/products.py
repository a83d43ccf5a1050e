"""Matrix products that avoid PyTorch's BLAS where it is slow."""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from ordered_memory.backends.runtime import processor

MIN_ONEDNN_SIZE = 1 << 24
"""Number of multiplications in a float32 product below which oneDNN costs more to set up than it saves."""


def multiply(left: Tensor, right: Tensor, token_dim: int) -> Tensor:
    """The product of two matrices on a CPU, computed by oneDNN if that is faster.

    PyTorch computes float32 products with MKL, which uses half the vector width of AMD processors with
    AVX-512. It computes half-precision products with oneDNN.

    oneDNN generates code for every new shape, about half a megabyte, and two caches keep that of a thousand
    shapes each. The number of tokens differs between batches, so these would fill with gigabytes. Therefore
    products by oneDNN have a number of tokens that is a multiple of a power of two, which is between a
    sixteenth and an eighth of it. The other tokens are multiplied apart: in float32 by MKL, in half precision
    by oneDNN, padded with zeros to a power of two.

    Args:
        left: (m, k).
        right: (k, n), of the same dtype.
        token_dim: dimension of `left` that is the number of tokens: 0 if it is m, 1 if it is k.
    Returns:
        (m, n). If the tokens are k, a half-precision product is returned in float32, the dtype of its sums.
    """
    large = left.shape[0] * right.numel() >= MIN_ONEDNN_SIZE
    is_half = left.dtype in (torch.bfloat16, torch.float16)
    if not left.numel() or not (is_half or (left.dtype == torch.float32 and large and _onednn_is_faster())):
        return left @ right
    num_tokens = left.shape[token_dim]
    num_others = num_tokens % (1 << max(0, num_tokens.bit_length() - 4))
    split = num_tokens - num_others
    one_product = torch.matmul if is_half else _by_onednn
    if token_dim == 0:
        product = one_product(left[:split], right)
        if not num_others:
            return product
        others = _pad(left[split:]) if is_half else left[split:]
        return torch.cat([product, (others @ right)[:num_others]])
    product = one_product(left[:, :split], right[:split])
    if is_half:
        product = product.float()
        if num_others:
            product += _pad(left[:, split:].t()).t() @ _pad(right[split:])
    elif num_others:
        product.addmm_(left[:, split:], right[split:])
    return product


def _pad(matrix: Tensor) -> Tensor:
    """Append rows of zeros up to a power of two."""
    num_rows = matrix.shape[0]
    return F.pad(matrix, (0, 0, 0, (1 << (num_rows - 1).bit_length()) - num_rows))


def _by_onednn(left: Tensor, right: Tensor) -> Tensor:
    """The product of two matrices by oneDNN, contiguous.

    oneDNN copies a left operand whose rows are not contiguous, so the smaller operand is on the left if
    neither is better. It is far slower with a right operand that has gaps between its rows.
    """
    if not left.is_contiguous() and right.is_contiguous() and right.numel() < left.numel():
        return _by_onednn(right.t(), left.t()).t().contiguous()
    dense = right if right.is_contiguous() or right.t().is_contiguous() else right.contiguous()
    product: Tensor = torch.ops.mkldnn._linear_pointwise(left, dense.t(), None, "none", [], "")
    return product


@cache
def _onednn_is_faster() -> bool:
    available = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return available and processor.is_amd() and "avx512f" in processor.features().split()
