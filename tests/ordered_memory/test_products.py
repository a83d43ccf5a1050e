"""Products through oneDNN are those of PyTorch."""

import pytest
import torch

from ordered_memory.backends.runtime import products
from tests.equality import assert_close


@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 5, 2), (64, 33, 17), (0, 3, 2), (2, 0, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_they_are_the_same(monkeypatch, sizes, dtype):
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this PyTorch has no oneDNN")
    monkeypatch.setattr(products, "_onednn_is_faster", lambda: True)
    monkeypatch.setattr(products, "MIN_ONEDNN_SIZE", 1)
    m, k, n = sizes
    left, right = torch.randn(k, m, dtype=dtype).t(), torch.randn(n, k, dtype=dtype).t()
    assert_close(products.multiply(left, right), left @ right)
    assert_close(products.multiply(left.contiguous(), right.contiguous()), left @ right)
