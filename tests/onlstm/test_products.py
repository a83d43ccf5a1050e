"""Products through oneDNN are those of PyTorch."""

import pytest
import torch

from onlstm.backends import products
from tests.equality import assert_close


@pytest.fixture
def by_onednn(monkeypatch):
    """Compute every product by oneDNN."""
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this PyTorch has no oneDNN")
    monkeypatch.setattr(products, "_onednn_is_faster", lambda: True)
    monkeypatch.setattr(products, "MIN_ONEDNN_SIZE", 1)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 5, 2), (64, 33, 17), (0, 3, 2), (2, 0, 3), (700, 517, 9)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("token_dim", [0, 1])
def test_onednn_products_equal_those_of_pytorch(by_onednn, sizes, dtype, token_dim):
    m, k, n = sizes
    left, right = torch.randn(k, m, dtype=dtype).t(), torch.randn(n, k, dtype=dtype).t()
    expected = left @ right
    assert_close(products.multiply(left, right, token_dim), expected)
    assert_close(products.multiply(left.contiguous(), right.contiguous(), token_dim), expected)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (0, 3, 2), (2, 0, 3), (37, 517, 9), (517, 37, 9)])
@pytest.mark.parametrize("token_dim", [0, 1])
def test_products_of_bfloat16_are_rounded_no_more_than_those_of_pytorch(sizes, token_dim):
    m, k, n = sizes
    left, right = torch.randn(k, m).bfloat16().t(), torch.randn(k, n).bfloat16()
    expected = left.double() @ right.double()
    error = (products.multiply(left, right, token_dim).double() - expected).abs().sum()
    assert error <= 1.1 * ((left @ right).double() - expected).abs().sum()


@pytest.mark.parametrize("sizes", [(64, 33, 17), (17, 33, 64)])
@pytest.mark.parametrize("token_dim", [0, 1])
def test_operands_with_gaps_between_their_rows(by_onednn, sizes, token_dim):
    m, k, n = sizes
    for left in (torch.randn(m, k + 5)[:, :k], torch.randn(k, m + 5)[:, :m].t()):
        for right in (torch.randn(k, n + 5)[:, :n], torch.randn(n, k + 5)[:, :k].t()):
            assert_close(products.multiply(left, right, token_dim), left @ right)


@pytest.mark.parametrize("sizes", [(64, 33, 17), (17, 33, 64)])
@pytest.mark.parametrize("token_dim", [0, 1])
def test_a_product_is_contiguous_as_the_gradient_of_a_weight_must_be(by_onednn, sizes, token_dim):
    m, k, n = sizes
    assert products.multiply(torch.randn(k, m).t(), torch.randn(k, n), token_dim).is_contiguous()


@pytest.mark.parametrize("token_dim", [0, 1])
def test_onednn_caches_few_shapes_for_any_number_of_tokens(by_onednn, monkeypatch, token_dim):
    # It keeps the code for a thousand shapes: gigabytes, where batches have different numbers of tokens.
    shapes = set()
    by_onednn = products._by_onednn

    def recorded(left, right):
        shapes.add((left.shape[1], *sorted((left.shape[0], right.shape[1]))))  # it may transpose both
        return by_onednn(left, right)

    monkeypatch.setattr(products, "_by_onednn", recorded)
    for tokens in range(1, 1500):
        left = torch.zeros((tokens, 3) if token_dim == 0 else (3, tokens))
        products.multiply(left, torch.zeros(left.shape[1], 2), token_dim)
    assert len(shapes) <= 70
