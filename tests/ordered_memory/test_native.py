"""What is peculiar to the native backend: dtypes, products of bfloat16, and batches to the bit."""

import ctypes
import shlex

import pytest
import torch

from onlstm import ONLSTM
from onlstm.backends import native as onlstm_native
from ordered_memory import OrderedMemory
from ordered_memory.backends import contract, native
from ordered_memory.backends.runtime import build, compiler, processor
from ordered_memory.memory import initial_state
from tests.tolerances import assert_close

NATIVE = build.load(native.call.SOURCE, torch.float64)
AVAILABLE = pytest.mark.skipif(isinstance(NATIVE, str), reason=str(NATIVE))


@pytest.fixture(params=["vnni", "blas"])
def bfloat16_products(request, monkeypatch):
    """Products of bfloat16 operands under autocast, emulated where the processor has none: by the C of the
    native backends, and by MKL."""
    emulate_vnni = [*compiler.command(), "-DEMULATE_BF16_VNNI"]
    monkeypatch.setenv("CC", shlex.join(emulate_vnni))
    build.load.cache_clear()
    library = build.load(native.call.SOURCE, torch.float32)
    if isinstance(library, str):
        pytest.skip(library)
    product = getattr(build.pytorch_library(), "gemm_bf16bf16f32_", None) if request.param == "blas" else None
    if request.param == "blas" and product is None:
        pytest.skip("PyTorch's BLAS has no product of bfloat16 matrices")
    monkeypatch.setattr(library, "bf16_gemm", product and ctypes.cast(product, ctypes.c_void_p))
    yield request.param
    build.load.cache_clear()


@AVAILABLE
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_dtypes_that_it_does_not_have_are_named(dtype):
    layer = OrderedMemory(3, 4, 2, backend="native", dtype=dtype)
    with pytest.raises(RuntimeError, match=str(dtype)):
        layer(torch.zeros(2, 1, 3, dtype=dtype))


class InBothPrecisions:
    """A layer read in float32 and under bfloat16 autocast, from the same projected tokens."""

    def __init__(self, score="normalized", dropout=0.0, batch=5):
        torch.manual_seed(3)
        dropouts = {"cell_dropout": dropout, "attention_dropout": dropout}
        self.layer = OrderedMemory(1, 64, 4, score=score, backend="native", **dropouts)
        self.x = torch.randn(9, batch, 64)
        self.lengths = torch.tensor([9, 7, 1, 4, 9])[:batch]
        self.upstream = torch.randn(9, batch, 64)

    def run(self, autocast, rows=slice(None)):
        direction = self.layer.directions[0]
        modules, x = direction.recurrent_modules(), self.x[:, rows].clone().requires_grad_()
        state = native.OrderedMemoryState(
            *(torch.zeros(x.shape[1], *shape) for shape in ((4, 64), (4, 64), (5,)))
        )
        torch.manual_seed(4)
        masks = direction.dropout_sampler(x[0], 4) if self.layer.training else None
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            result = native.run_recurrence(x, state, modules, self.lengths[rows], masks)
        weights = [*modules.score.parameters(), *modules.cell.parameters(), *modules.norm.parameters()]
        gradients = torch.autograd.grad(result.output, [x, *weights], self.upstream[:, rows])
        return result, gradients


@pytest.mark.usefixtures("bfloat16_products")
@pytest.mark.parametrize("score", ["normalized", "additive"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_products_of_bfloat16_stay_near_those_of_float32(score, dropout):
    case = InBothPrecisions(score, dropout)
    (exact, wanted), (near, found) = case.run(False), case.run(True)
    difference = (near.output - exact.output).abs().max()
    assert 0 < difference < 0.05
    assert near.output.dtype == torch.float32
    for one, other in zip(found, wanted, strict=True):
        if other.norm() > 1e-4:  # a bias before a softmax has a gradient of rounding errors
            assert (one - other).norm() < 0.1 * other.norm()


@pytest.fixture
def one_thread(threads_as_before):
    """With more, PyTorch's product for the queries may round the rows of other batches differently."""
    torch.set_num_threads(1)


@AVAILABLE
@pytest.mark.usefixtures("one_thread")
def test_batch_mates_move_no_bit():
    case = InBothPrecisions()
    case.layer.eval()
    together, alone = case.run(False)[0], [case.run(False, slice(row, row + 1))[0] for row in range(5)]
    for row, result in enumerate(alone):
        assert torch.equal(result.output[:, 0], together.output[:, row])
        assert torch.equal(result.attention[:, 0], together.attention[:, row])


def test_half_as_much_is_kept_where_products_are_of_bfloat16(bfloat16_products):
    case, sizes = InBothPrecisions(), []
    modules = case.layer.directions[0].recurrent_modules()
    for autocast in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            arguments = contract.prepare(case.x, initial_state(5, 4, case.x), modules, None, None)
        _, _, *tape = native.call.NativeImplementation().saved_shapes(native.call.Inputs(arguments, shares=1))
        sizes.append(sum(size for (size,), _ in tape))
    assert sizes[1] == sizes[0] / 2


@pytest.mark.usefixtures("one_thread")
def test_batch_mates_move_products_of_bfloat16_by_a_rounding_of_operands_at_most(bfloat16_products):
    case = InBothPrecisions()
    case.layer.eval()
    together, alone = case.run(True)[0], [case.run(True, slice(row, row + 1))[0] for row in range(5)]
    for row, result in enumerate(alone):
        assert_close(result.output[:, 0], together.output[:, row])
        if bfloat16_products == "vnni":
            assert torch.equal(result.output[:, 0], together.output[:, row])


@AVAILABLE
def test_an_operator_told_of_bfloat16_elsewhere_computes_in_float32_here(monkeypatch):
    """As an exported program that was made on another machine."""
    case = InBothPrecisions()
    monkeypatch.setattr(native, "multiplies_bfloat16", lambda: True)
    monkeypatch.setattr(native.call, "bf16_method_here", lambda: None)
    for one, other in zip(case.run(True)[1], case.run(False)[1], strict=True):
        assert torch.equal(one, other)


@pytest.mark.usefixtures("bfloat16_products")
def test_an_odd_slot_size_has_no_vnni_layout_but_works():
    layer = OrderedMemory(3, 7, 4, backend="native")
    x = torch.randn(5, 2, 3)
    exact = layer(x).output
    with torch.autocast("cpu", torch.bfloat16):
        near = layer(x).output
    assert (near - exact).abs().max() < 0.05


@pytest.mark.usefixtures("bfloat16_products")
def test_what_is_no_number_stays_none_as_bfloat16():
    case = InBothPrecisions()
    case.x[2, 1, 5] = torch.nan
    output = case.run(True)[0].output
    assert output[2:7, 1].isnan().all()
    assert not output[:, 0].isnan().any()


@AVAILABLE
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_processor_without_bfloat16_is_said_to_stay_at_float32_once(dtype, monkeypatch, caplog):
    monkeypatch.setattr(native, "multiplies_bfloat16", lambda: False)
    library = build.load(onlstm_native.SOURCE, dtype)
    monkeypatch.setattr(library, "has_bf16_vnni", False)
    processor._warn_once.cache_clear()
    for layer in (OrderedMemory(4, 6, 3, backend="native"), ONLSTM(4, 6, chunk_size=2, backend="native")):
        layer.to(dtype)
        x = torch.randn(3, 2, 4, dtype=dtype)
        for _ in range(2):
            with torch.autocast("cpu", torch.bfloat16):
                layer(x)
    assert len(caplog.messages) == (dtype == torch.float32)
    processor._warn_once.cache_clear()
