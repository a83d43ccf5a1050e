"""The backends as operators of PyTorch: what they check, devices, what they return."""

import io

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.nn.utils.rnn import PackedSequence

from onlstm import ONLSTM
from onlstm.backends import contract, native, sequence
from onlstm.functional import Weights
from tests.equality import NEEDS_NATIVE

OPERATOR_BACKENDS = {"native": native, "sequence": sequence}
pytestmark = NEEDS_NATIVE


def arguments(bias=True, requires_grad=True, keep=True, dtype=torch.float64, bfloat16=False):
    shapes = ((3, 3), (20, 3), (20, 4), (20,), (3, 4), (3, 4))
    tokens, *weights, hidden, cell = (
        torch.randn(shape, dtype=dtype, requires_grad=requires_grad) for shape in shapes
    )
    weights[2] = weights[2] if bias else None
    return tokens, torch.tensor([2, 1]), *weights, hidden, cell, 2, bfloat16, keep


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # opcheck of 2.15
@pytest.mark.parametrize("name", OPERATOR_BACKENDS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bias": False},
        {"requires_grad": False, "keep": False},
        {"dtype": torch.float32, "bfloat16": True},
    ],
    ids=str,
)
def test_the_operators_do_what_they_declare(name, options):
    torch.library.opcheck(OPERATOR_BACKENDS[name].OPERATOR, arguments(**options))


@pytest.mark.parametrize("autocast", [False, True])
def test_an_operator_is_told_of_bfloat16_autocast(autocast):
    told = []

    def operator(*given):
        told.append(given[-2])
        return native.OPERATOR(*given)

    tokens, sizes, *weights, hidden, cell, chunk_size, _, _ = arguments(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        contract.run(operator, tokens, sizes, Weights(*weights), hidden, cell, chunk_size)
    assert told == [autocast]


def test_fake_tensors_have_shapes_and_gradients():
    with FakeTensorMode():
        layer = ONLSTM(3, 6, num_layers=2, bidirectional=True, chunk_size=2)
        layer(torch.randn(4, 2, 3))[0].sum().backward()
        assert layer.weight_hh_l0.grad.shape == (30, 6)
        order = torch.arange(2)
        packed = PackedSequence(torch.randn(3, 3), torch.tensor([2, 1]), order, order)
        assert layer(packed)[0].data.shape == (3, 12)


@pytest.mark.parametrize("name", OPERATOR_BACKENDS)
def test_a_backend_refuses_a_state_of_another_dtype_or_device(name):
    run = OPERATOR_BACKENDS[name].run_recurrence
    tokens, weights = torch.zeros(3, 5), Weights(torch.zeros(20, 5), torch.zeros(20, 4), None)
    good, sizes = torch.zeros(2, 4), [2, 1]
    run(tokens, sizes, weights, good, good, 2)
    for bad, message in (
        (good.double(), "hidden must have dtype torch.float32, got torch.float64"),
        (good.long(), "hidden must have dtype"),
        (good.to("meta"), "hidden must be on cpu"),
    ):
        with pytest.raises(ValueError, match=message):
            run(tokens, sizes, weights, bad, good, 2)


@pytest.mark.parametrize("name", OPERATOR_BACKENDS)
@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("tokens", torch.zeros(3)),
        ("tokens", torch.zeros(3, 2)),
        ("tokens", torch.zeros(2, 3)),
        ("batch_sizes", torch.tensor([[2, 1]])),
        ("batch_sizes", torch.tensor(3)),
        ("batch_sizes", torch.tensor([3, 1])),
        ("weight_ih", torch.zeros(20, 2)),
        ("weight_ih", torch.zeros(18, 3)),
        ("weight_hh", torch.zeros(20)),
        ("weight_hh", torch.zeros(20, 3)),
        ("bias", torch.zeros(19)),
        ("hidden", torch.zeros(4)),
        ("hidden", torch.zeros(3, 3)),
        ("hidden", torch.zeros(1, 4)),
        ("cell", torch.zeros(1, 4)),
        ("cell", torch.zeros(3, 4, 1)),
        ("chunk_size", 4),
        ("chunk_size", 0),
        ("chunk_size", -1),
    ],
    ids=lambda value: value if isinstance(value, str) else str(list(getattr(value, "shape", [value]))),
)
def test_a_direct_call_of_an_operator_is_checked_before_memory_is_read(name, argument, wrong):
    forward, backward = (getattr(torch.ops.onlstm, f"{name}{end}") for end in ("", "_backward"))
    right = arguments(requires_grad=False)
    *results, saved = forward(*right)
    place = [field.name for field in forward.default._schema.arguments].index(argument)
    if isinstance(wrong, torch.Tensor):
        wrong = wrong.to(right[place].dtype)
    bad = [*right[:place], wrong, *right[place + 1 :]]
    with pytest.raises(ValueError, match=" must "):
        forward(*bad)
    with pytest.raises(ValueError, match=" must "):
        backward(*results, results[0], saved, *bad[:-1], [True] * 6)


def test_negative_and_conjugate_views_are_read_as_what_they_are():
    layer, x = ONLSTM(3, 6, chunk_size=2, backend="native"), torch.randn(4, 2, 3)
    assert torch.equal(layer(torch._neg_view(x))[0], layer(-x)[0])
    imaginary = torch.randn(4, 2, 3, dtype=torch.complex64).conj().imag
    assert imaginary.is_neg()
    assert torch.equal(layer(imaginary)[0], layer(imaginary.clone())[0])


def test_what_is_returned_has_memory_of_its_own():
    layer, file = ONLSTM(3, 6, chunk_size=2), io.BytesIO()
    output, state, distances = layer(torch.randn(9, 2, 3), distances=True)
    for tensor in (output, *state, *distances):
        assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.itemsize
    torch.save(output.detach(), file)
    assert file.tell() < 3000


def test_nothing_is_kept_where_there_is_no_reverse_pass():
    *tensors, _ = arguments(requires_grad=False)
    assert native.OPERATOR(*tensors, False)[5] == []


@pytest.mark.parametrize("name", OPERATOR_BACKENDS)
def test_a_call_that_saved_nothing_says_that_it_has_no_gradients(name):
    output, *_ = getattr(torch.ops.onlstm, name)(*arguments(keep=False))
    with pytest.raises(RuntimeError, match=f"'{name}' .* captured without gradients"):
        output.sum().backward()
