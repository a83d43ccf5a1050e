"""Matrix products that avoid PyTorch's BLAS where it is slow."""

from __future__ import annotations

from collections.abc import Iterator
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
    products by oneDNN are divided along this dimension into pieces of few different sizes.

    Args:
        left: (m, k).
        right: (k, n), of the same dtype.
        token_dim: dimension of `left` that is the number of tokens: 0 if it is m, 1 if it is k.
    Returns:
        (m, n). If k is divided, a half-precision product is returned in float32, in which pieces are added.
    """
    large = left.shape[0] * right.numel() >= MIN_ONEDNN_SIZE
    is_half = left.dtype in (torch.bfloat16, torch.float16)
    if not left.numel() or not (is_half or (left.dtype == torch.float32 and large and _onednn_is_faster())):
        return left @ right
    one_product = torch.matmul if is_half else _by_onednn
    if token_dim == 0:
        parts = [one_product(piece, right)[:size] for piece, size in _pieces(left)]
        return torch.cat(parts) if len(parts) > 1 else parts[0]
    pairs = zip(_pieces(left.t()), _pieces(right), strict=True)
    products = (one_product(rows.t(), columns) for (rows, _), (columns, _) in pairs)
    total = next(products).to(torch.promote_types(left.dtype, torch.float32))
    for product in products:
        total += product
    return total


def _pieces(matrix: Tensor) -> Iterator[tuple[Tensor, int]]:
    """Divide rows into one or two pieces; each comes with its number of rows without padding.

    The first is a multiple of the power of two that is at least a sixteenth of all rows. The rest is padded
    with zeros to a power of two.
    """
    num_rows = matrix.shape[0]
    unit = 1 << max(0, num_rows.bit_length() - 4)
    rest = num_rows % unit
    yield matrix[: num_rows - rest], num_rows - rest
    if rest:
        padding = (1 << (rest - 1).bit_length()) - rest
        yield F.pad(matrix[num_rows - rest :], (0, 0, 0, padding)), rest


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
