"""Products through oneDNN are those of PyTorch."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from onlstm.backends import products
from ordered_memory.backends.runtime import processor
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


class RecordShapes(TorchDispatchMode):
    """The shapes (k, m, n) of products by oneDNN, with m ≤ n, since it may transpose both operands."""

    def __init__(self):
        super().__init__()
        self.shapes = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        is_linear = function is torch.ops.mkldnn._linear_pointwise.default
        if is_linear or (function is torch.ops.aten.mm.default and result.dtype == torch.bfloat16):
            self.shapes.add((args[0].shape[1], *sorted(result.shape)))
        return result


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("token_dim", [0, 1])
def test_onednn_caches_few_shapes_for_any_number_of_tokens(by_onednn, dtype, token_dim):
    # It keeps the code for a thousand shapes: gigabytes, where batches have different numbers of tokens.
    with RecordShapes() as record:
        for tokens in range(1, 1500):
            left = torch.zeros((tokens, 3) if token_dim == 0 else (3, tokens), dtype=dtype)
            products.multiply(left, torch.zeros(left.shape[1], 2, dtype=dtype), token_dim)
    assert 50 < len(record.shapes) <= 70


@pytest.mark.parametrize(
    ("maker", "flags", "is_slow"),
    [("AuthenticAMD", "avx2 avx512f", True), ("AuthenticAMD", "avx2", False), ("Other", "avx512f", False)],
)
def test_onednn_is_used_where_mkl_is_slow(monkeypatch, maker, flags, is_slow):
    monkeypatch.setattr(processor, "_lines", lambda: [f"vendor_id : {maker}", f"flags : fpu {flags}"])
    for function in ("features", "is_amd"):
        monkeypatch.setattr(processor, function, getattr(processor, function).__wrapped__)
    for has_onednn in (True, False):
        monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda has=has_onednn: has)
        assert products._onednn_is_faster.__wrapped__() == (is_slow and has_onednn)
