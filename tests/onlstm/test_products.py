"""Products through oneDNN are those of PyTorch."""

import pytest
import torch

from onlstm.backends import products
from tests.equality import assert_close


@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 5, 2), (64, 33, 17), (0, 3, 2), (2, 0, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_onednn_products_equal_those_of_pytorch(monkeypatch, sizes, dtype):
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this PyTorch has no oneDNN")
    monkeypatch.setattr(products, "_onednn_is_faster", lambda: True)
    monkeypatch.setattr(products, "MIN_ONEDNN_SIZE", 1)
    m, k, n = sizes
    left, right = torch.randn(k, m, dtype=dtype).t(), torch.randn(n, k, dtype=dtype).t()
    assert_close(products.multiply(left, right), left @ right)
    assert_close(products.multiply(left.contiguous(), right.contiguous()), left @ right)


@pytest.mark.parametrize("sizes", [(64, 33, 17), (17, 33, 64)])
def test_operands_with_gaps_between_their_rows(monkeypatch, sizes):
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this PyTorch has no oneDNN")
    monkeypatch.setattr(products, "_onednn_is_faster", lambda: True)
    monkeypatch.setattr(products, "MIN_ONEDNN_SIZE", 1)
    m, k, n = sizes
    for left in (torch.randn(m, k + 5)[:, :k], torch.randn(k, m + 5)[:, :m].t()):
        for right in (torch.randn(k, n + 5)[:, :n], torch.randn(n, k + 5)[:, :k].t()):
            assert_close(products.multiply(left, right), left @ right)


@pytest.mark.parametrize("sizes", [(64, 33, 17), (17, 33, 64)])
def test_a_product_is_contiguous_as_the_gradient_of_a_weight_must_be(monkeypatch, sizes):
    monkeypatch.setattr(products, "_onednn_is_faster", torch.backends.mkldnn.is_available)
    monkeypatch.setattr(products, "MIN_ONEDNN_SIZE", 1)
    m, k, n = sizes
    assert products.multiply(torch.randn(k, m).t(), torch.randn(k, n)).is_contiguous()
