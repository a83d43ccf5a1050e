"""Arguments of ONLSTM and ONLSTMCell: which are taken, and which are refused and how."""

import re
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence

from onlstm import ONLSTM, ONLSTMCell


@pytest.mark.parametrize("make", [ONLSTM, ONLSTMCell])
def test_one_chunk_for_all_units_is_warned_of(make):
    with pytest.warns(UserWarning, match=r"hidden_size=chunk_size=4 .* the output is zero unless") as caught:
        make(3, 4, chunk_size=4)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("sizes", [[1, 2], [2, 0, 1], [2, 2], [4]])
def test_a_packed_batch_of_impossible_sizes_is_refused(backend, sizes):
    lstm, packed = ONLSTM(3, 4, chunk_size=2, backend=backend), pack_sequence([torch.randn(3, 3)])
    with pytest.raises(ValueError, match="the batch_sizes of input must be positive and non-increasing"):
        lstm(packed._replace(batch_sizes=torch.tensor(sizes)))


@pytest.mark.parametrize("field", ["sorted_indices", "unsorted_indices"])
@pytest.mark.parametrize("count", [2, 4])
def test_a_packed_batch_with_indices_of_another_is_refused(field, count):
    packed = pack_sequence([torch.randn(size, 3) for size in (1, 2, 1)], enforce_sorted=False)
    packed = packed._replace(**{field: torch.arange(count)})
    message = rf"the {field} of input must have shape \(3,\), one for each .*, got \({count},\)"
    with pytest.raises(ValueError, match=message):
        ONLSTM(3, 4, chunk_size=2)(packed)


def error_of(call):
    try:
        call()
    except Exception as error:
        return type(error)
    return None


@pytest.mark.parametrize(
    "arguments",
    [
        {"input_size": 0, "hidden_size": 6},
        {"input_size": 5, "hidden_size": 0},
        {"input_size": 5, "hidden_size": -2},
        {"input_size": 5, "hidden_size": 6.0},
        {"input_size": "5", "hidden_size": 6},
        {"input_size": 5, "hidden_size": 6, "num_layers": 0},
        {"input_size": 5, "hidden_size": 6, "dropout": 1.5, "num_layers": 2},
        {"input_size": 5, "hidden_size": 6, "dropout": "a", "num_layers": 2},
        {"input_size": 5, "hidden_size": 6, "bias": 1},
        {"input_size": 5, "hidden_size": 6, "batch_first": "yes"},
        {"input_size": 5, "hidden_size": 6, "dropout": 0.5},
        {"input_size": 5, "hidden_size": 6, "proj_size": -1},
    ],
)
def test_bad_arguments_raise_what_nn_lstm_raises(arguments):
    error, expected = error_of(lambda: ONLSTM(**arguments)), error_of(lambda: nn.LSTM(**arguments))
    assert error is not None
    assert expected in (error, None)  # older versions of PyTorch do not check all of these


@pytest.mark.parametrize(
    "make",
    [
        lambda: (torch.randn(4, 3, 6),),
        lambda: (torch.randn(4),),
        lambda: (torch.randn(4, 3, 5, 1),),
        lambda: (torch.randn(4, 3, 5), (torch.zeros(1, 2, 6), torch.zeros(1, 3, 6))),
        lambda: (torch.randn(4, 3, 5), (torch.zeros(1, 3, 6), torch.zeros(1, 3, 5))),
        lambda: (torch.randn(4, 3, 5), (torch.zeros(3, 6), torch.zeros(3, 6))),
        lambda: (torch.randn(4, 5), (torch.zeros(1, 1, 6), torch.zeros(1, 1, 6))),
        lambda: (torch.randn(0, 3, 5),),
        lambda: (torch.randn(0, 0, 5),),
        lambda: (torch.randn(0, 5),),
        lambda: (torch.randn(4, 3, 5, device="meta"),),
        lambda: (torch.zeros(4, 3, 5, dtype=torch.int64),),
        lambda: (torch.zeros(4, 3, 5, dtype=torch.complex64),),
        lambda: (torch.randn(4, 3, 5, dtype=torch.float64),),
        lambda: (pack_padded_sequence(torch.randn(4, 3, 6), [4, 2, 1]),),
        lambda: (
            pack_padded_sequence(torch.randn(4, 3, 5), [4, 2, 1]),
            (torch.zeros(1, 2, 6), torch.zeros(1, 2, 6)),
        ),
    ],
)
def test_bad_input_raises_what_nn_lstm_raises(make):
    expected = error_of(lambda: nn.LSTM(5, 6)(*make()))
    assert expected is not None
    assert error_of(lambda: ONLSTM(5, 6)(*make())) == expected


@pytest.mark.parametrize(("input_axes", "state_axes"), [((4, 3, 5), (3, 6)), ((4, 5), (1, 1, 6))])
def test_a_state_with_other_axes_is_described_as_by_nn_lstm(input_axes, state_axes):
    messages = []
    for module in (nn.LSTM(5, 6), ONLSTM(5, 6)):
        with pytest.raises(RuntimeError) as error:
            module(torch.randn(input_axes), (torch.zeros(state_axes), torch.zeros(state_axes)))
        messages.append(str(error.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.int64, torch.bool],
)
@pytest.mark.parametrize("which", [0, 1])
def test_a_state_of_another_dtype_is_refused_as_nn_lstm_refuses_it(dtype, which):
    state = [torch.zeros(1, 3, 6), torch.zeros(1, 3, 6)]
    state[which] = state[which].to(dtype)
    x = torch.randn(4, 3, 5)
    assert error_of(lambda: nn.LSTM(5, 6)(x, tuple(state))) is RuntimeError
    message = re.escape(f"hx[{which}] must have dtype torch.float32, got {dtype}")
    with pytest.raises(RuntimeError, match=message):
        ONLSTM(5, 6)(x, tuple(state))
    with pytest.raises(RuntimeError, match=message):
        ONLSTMCell(5, 6)(x[0], tuple(one[0] for one in state))


@pytest.mark.parametrize("which", [0, 1])
def test_a_state_on_another_device_is_refused(which):
    state = [torch.zeros(1, 3, 6), torch.zeros(1, 3, 6)]
    state[which] = state[which].to("meta")
    message = re.escape(f"hx[{which}] must be on cpu, got a tensor on meta")
    with pytest.raises(RuntimeError, match=message):
        ONLSTM(5, 6)(torch.randn(4, 3, 5), tuple(state))
    with pytest.raises(RuntimeError, match=message):
        ONLSTMCell(5, 6)(torch.randn(3, 5), tuple(one[0] for one in state))


@pytest.mark.parametrize(
    ("input_axes", "state_axes", "message"),
    [
        ((5,), (1, 6), r"For unbatched 1-D input, hx and cx should also be 1-D but got \(2-D, 2-D\) tensors"),
        ((3, 5), (6,), r"For batched 2-D input, hx and cx should also be 2-D but got \(1-D, 1-D\) tensors"),
    ],
)
def test_a_state_with_other_axes_is_named_by_the_cell(input_axes, state_axes, message):
    with pytest.raises(RuntimeError, match=message):
        ONLSTMCell(5, 6)(torch.randn(input_axes), (torch.zeros(state_axes), torch.zeros(state_axes)))


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 5)])
def test_an_input_of_other_sizes_raises_what_nn_lstm_cell_raises(shape):
    expected = error_of(lambda: nn.LSTMCell(5, 6)(torch.randn(shape)))
    assert expected is not None
    assert error_of(lambda: ONLSTMCell(5, 6)(torch.randn(shape))) == expected


def test_an_input_of_another_dtype_or_device_is_named_by_the_cell():
    for bad, message in (
        (torch.randn(3, 5).double(), "input must have dtype torch.float32, got torch.float64"),
        (torch.randn(3, 5, device="meta"), "input must be on cpu, got a tensor on meta"),
    ):
        assert error_of(lambda bad=bad: nn.LSTMCell(5, 6)(bad)) is RuntimeError
        with pytest.raises(RuntimeError, match=message):
            ONLSTMCell(5, 6)(bad)


def test_sizes_may_be_integers_of_any_type():
    for kind in (np.int64, np.uint8, torch.tensor):
        layer = ONLSTM(kind(5), kind(6), kind(2), chunk_size=kind(3))
        cell = ONLSTMCell(kind(5), kind(6), chunk_size=kind(3))
        assert repr(layer) == repr(ONLSTM(5, 6, 2, chunk_size=3))
        assert repr(cell) == repr(ONLSTMCell(5, 6, chunk_size=3))
        assert type(layer.hidden_size) is type(cell.hidden_size) is int
    for bad in (np.bool_(True), torch.tensor(True), 5.0):
        with pytest.raises(TypeError, match="hidden_size should be of type int"):
            ONLSTM(5, bad)


@pytest.mark.parametrize("half", [np.float32(0.5), Fraction(1, 2)], ids=repr)
def test_a_dropout_may_be_any_real_number(half, tmp_path):
    layer, later = ONLSTM(5, 6, 2, dropout=half, weight_dropout=half), ONLSTM(5, 6, 2)
    later.dropout = later.weight_dropout = half
    assert repr(later) == repr(layer) == "ONLSTM(5, 6, num_layers=2, dropout=0.5, weight_dropout=0.5)"
    torch.save(later, tmp_path / "f")
    for one in (layer, later, torch.load(tmp_path / "f", weights_only=True)):
        assert one(torch.randn(3, 2, 5))[0].isfinite().all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"chunk_size": 4}, "hidden_size=6 must be divisible by chunk_size=4"),
        ({"chunk_size": 0}, "chunk_size must be greater than zero, got 0"),
        ({"weight_dropout": 2}, "weight_dropout must lie in [0, 1], got 2"),
        ({"proj_size": 2}, "proj_size must be 0"),
        ({"backend": "fast"}, "backend must be one of"),
    ],
)
def test_its_own_arguments_are_checked(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        ONLSTM(5, 6, **arguments)
    with pytest.raises(ValueError, match="must be divisible"):
        ONLSTMCell(5, 6, chunk_size=5)


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        (torch.tensor([4, 2, 1]), r"got Tensor \(did you mean lengths=\?\)"),
        ([4, 2, 1], r"got a list of 3: int, int, int \(did you mean lengths=\?\)$"),
        ([4, 2], r"got a list of 2: int, int \(did you mean lengths=\?\)$"),
        ([4, 2, 1, 3], r"got a list of 4: int, int, int \(did you mean lengths=\?\)$"),
        (torch.tensor(3), r"got Tensor \(did you mean"),
        ([], r"got a list of 0$"),
        (torch.zeros(1, 3, 6), r"got Tensor$"),
    ],
)
def test_lengths_in_place_of_the_state_are_named(lengths, message):
    with pytest.raises(TypeError, match=message):
        ONLSTM(5, 6)(torch.randn(4, 3, 5), lengths)
    with pytest.raises(TypeError, match=r"None, got (Tensor|a list of \d(: int[int, ]*)?)$"):
        ONLSTMCell(5, 6)(torch.randn(3, 5), lengths)  # which takes no lengths


@pytest.mark.parametrize("hx", [torch.zeros(1, 3, 6), (torch.zeros(1, 3, 6),), torch.zeros(2, 1, 3, 6)])
def test_a_state_that_is_no_pair_is_named(hx):
    x = torch.randn(4, 3, 5)
    for call in (
        lambda: ONLSTM(5, 6)(x, hx),
        lambda: ONLSTM(5, 6)(pack_padded_sequence(x, [4, 2, 1]), hx),
        lambda: ONLSTMCell(5, 6)(x[0], hx),
    ):
        message = r"hx must be a pair of tensors \(h, c\), or None, got (Tensor|a tuple of 1: Tensor)$"
        with pytest.raises(TypeError, match=message):
            call()


def test_a_whole_result_in_place_of_the_state_is_named():
    layer, cell, x = ONLSTM(5, 6), ONLSTMCell(5, 6), torch.randn(4, 3, 5)
    with pytest.raises(TypeError, match=r"got a tuple of 3: Tensor, Tensor, Distances$"):
        cell(x[1], cell(x[0], distances=True))
    with pytest.raises(TypeError, match=r"got a tuple of 3: Tensor, tuple, Distances$"):
        layer(x, layer(x, distances=True))


@pytest.mark.parametrize("make", [ONLSTM, ONLSTMCell])
def test_a_half_of_a_state_that_is_no_tensor_is_named(make):
    message = r"hx must be a pair of tensors \(h, c\), or None, got a tuple of 2: Tensor, NoneType$"
    with pytest.raises(TypeError, match=message):
        make(5, 6)(torch.randn(3, 5), (torch.zeros(1, 6), None))


def test_a_token_that_is_no_tensor_is_named():
    with pytest.raises(TypeError, match="input must be a Tensor, got ndarray"):
        ONLSTMCell(5, 6)(np.zeros((3, 5)))


def test_the_kind_of_input_is_named():
    with pytest.raises(TypeError, match="input must be a Tensor or a PackedSequence, got list"):
        ONLSTM(5, 6)([1, 2])
    nested = torch.nested.nested_tensor([torch.randn(2, 5), torch.randn(3, 5)], layout=torch.jagged)
    with pytest.raises(TypeError, match="input must be padded or packed, got a nested tensor"):
        ONLSTM(5, 6)(nested)
    with pytest.raises(TypeError, match=r"input must be a dense tensor, got torch.sparse_coo"):
        ONLSTM(5, 6)(torch.randn(2, 3, 5).to_sparse())


def test_a_state_of_another_batch_size_is_refused_for_packed_input_in_any_order():
    layer = ONLSTM(3, 4, chunk_size=2)
    state = (torch.zeros(1, 5, 4), torch.zeros(1, 5, 4))
    for in_order in (True, False):
        packed = pack_sequence([torch.zeros(3, 3), torch.zeros(2, 3)], enforce_sorted=in_order)
        with pytest.raises(RuntimeError, match=r"Expected hidden\[0\] size \(1, 2, 4\), got \[1, 5, 4\]"):
            layer(packed, state)
        for one, axes in (state[0][0, 0], r"\[4\]"), (state[0].sum(), r"\[\]"):
            with pytest.raises(RuntimeError, match=rf"Expected hidden\[0\] size \(1, 2, 4\), got {axes}"):
                layer(packed, (one, one))
