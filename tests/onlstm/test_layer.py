"""ONLSTM beside nn.LSTM, whose conventions it has, and beside loops in NumPy, whose numbers it has."""

import copy
import itertools
import pickle
import re
import warnings
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import parametrize, prune
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence

from onlstm import ONLSTM, ONLSTMCell
from onlstm.backends import BACKENDS, native
from onlstm.functional import Weights, run_recurrence
from ordered_memory.backends.runtime.build import load
from ordered_memory.modes import runs_lstm
from tests.equality import assert_equals_the_definition
from tests.tolerances import assert_close

NATIVE = load(native.SOURCE, torch.float64)
NAMES = [name for name in BACKENDS if name != "triton"]  # that one is in test_triton.py
FAST = [name for name in NAMES if name != "reference"]


def oracle(x, weights, h, c, chunk):
    """One direction over one sequence, (T, I), unit by unit; h of every step, the last c, both distances."""
    w_ih, w_hh, bias = weights
    size = len(h)
    masters = size // chunk
    outputs, forget_distances, input_distances = [], [], []
    for token in x:
        z = w_ih @ token + w_hh @ h + bias
        sig = 1 / (1 + np.exp(-z))
        exp_f, exp_i = np.exp(z[4 * size : 4 * size + masters]), np.exp(z[4 * size + masters :])
        new_h, new_c = np.zeros(size), np.zeros(size)
        f_master = [sum(exp_f[: k + 1]) / sum(exp_f) for k in range(masters)]
        i_master = [1 - sum(exp_i[: k + 1]) / sum(exp_i) for k in range(masters)]
        for u in range(size):
            f_m, i_m = f_master[u // chunk], i_master[u // chunk]
            w = f_m * i_m
            f_hat, i_hat = sig[size + u] * w + (f_m - w), sig[u] * w + (i_m - w)
            new_c[u] = f_hat * c[u] + i_hat * np.tanh(z[2 * size + u])
            new_h[u] = sig[3 * size + u] * np.tanh(new_c[u])
        h, c = new_h, new_c
        outputs.append(h)
        forget_distances.append(masters - sum(f_master))
        input_distances.append(masters - sum(i_master))
    return np.array(outputs), c, forget_distances, input_distances


@pytest.mark.parametrize("backend", NAMES)
def test_two_layers_both_ways_equal_loops_over_units(backend):
    layer = ONLSTM(3, 6, 2, bidirectional=True, chunk_size=2, backend=backend).double()
    lengths = [5, 2, 4]
    x = torch.randn(5, 3, 3, dtype=torch.float64)
    state = torch.randn(2, 4, 3, 6, dtype=torch.float64)
    packed = pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=False)
    output, (h_n, c_n), distances = layer(packed, (state[0], state[1]), distances=True)
    output, _ = pad_packed_sequence(output)
    forget, write = (
        pad_packed_sequence(PackedSequence(one.T, *packed[1:]))[0].detach().numpy() for one in distances
    )
    for b, length in enumerate(lengths):
        read, halves = x[:length, b].numpy(), []
        for index, (level, suffix) in enumerate(itertools.product(range(2), ("", "_reverse"))):
            names = [f"{name}_l{level}{suffix}" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
            w_ih, w_hh, b_ih, b_hh = (getattr(layer, name).detach().numpy() for name in names)
            h, c = (state[k][index, b].numpy() for k in range(2))
            tokens = read[::-1] if suffix else read
            hidden, cell, f_distance, i_distance = oracle(tokens, (w_ih, w_hh, b_ih + b_hh), h, c, 2)
            turn = slice(None, None, -1 if suffix else 1)
            np.testing.assert_allclose(h_n[index, b].detach().numpy(), hidden[-1], rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(c_n[index, b].detach().numpy(), cell, rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(forget[:length, b, index], f_distance[turn], rtol=1e-10)
            np.testing.assert_allclose(write[:length, b, index], i_distance[turn], rtol=1e-10)
            halves.append(hidden[turn])
            if suffix:
                read, halves = np.concatenate(halves, axis=1), []
        np.testing.assert_allclose(output[:length, b].detach().numpy(), read, rtol=1e-10, atol=1e-12)
        assert output[length:, b].abs().sum() == 0


SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=6).map(lambda sizes: sorted(sizes, reverse=True))


@pytest.mark.parametrize("backend", NAMES)
def test_the_last_chunk_is_never_written(backend):
    layer, x = ONLSTM(3, 6, chunk_size=2, backend=backend).double(), torch.randn(5, 3, 3, dtype=torch.float64)
    state = torch.randn(2, 1, 3, 6, dtype=torch.float64)
    assert_close(layer(x)[0][..., 4:], torch.zeros(5, 3, 2, dtype=torch.float64))
    assert_close(layer(x, (state[0], state[1]))[1][1][..., 4:], state[1][..., 4:])


@pytest.mark.parametrize("make", [ONLSTM, ONLSTMCell])
def test_one_chunk_for_all_units_is_warned_of(make):
    with pytest.warns(UserWarning, match=r"hidden_size=chunk_size=4 .* the output is zero unless") as caught:
        make(3, 4, chunk_size=4)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", FAST)
@given(
    batch_sizes=SIZES,
    masters=st.integers(1, 4),
    chunk=st.integers(1, 4),
    left=st.integers(0, 2),
    seed=st.integers(0, 99),
)
def test_a_backend_equals_the_definition_with_all_gradients(
    name, dtype, batch_sizes, masters, chunk, left, seed
):
    run = BACKENDS[name].run_recurrence
    assert_equals_the_definition(run, dtype, batch_sizes, masters, chunk, left, seed)


@pytest.fixture
def three_threads(monkeypatch):
    """However small the work is."""
    monkeypatch.setattr(native, "MIN_WORK_PER_THREAD", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.skipif(isinstance(NATIVE, str), reason=str(NATIVE))
@pytest.mark.parametrize(("masters", "chunk"), [(1, 4), (2, 3), (3, 2), (7, 5)])
def test_threads_share_the_units_and_change_nothing(three_threads, masters, chunk):
    size, batch_sizes = masters * chunk, [6, 5, 5, 2]
    rows = 4 * size + 2 * masters
    shapes = ((sum(batch_sizes), 3), (rows, 3), (rows, size), (rows,), (7, size), (7, size))
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    arguments = (inputs[0], batch_sizes, Weights(*inputs[1:4]), *inputs[4:], chunk)
    expected = run_recurrence(*arguments)
    upstream = [torch.randn_like(one) for one in expected]
    wanted = torch.autograd.grad(expected, inputs, upstream)
    for _ in range(20):
        actual = native.run_recurrence(*arguments)
        found = torch.autograd.grad(actual, inputs, upstream)
        for one, other in zip((*actual, *found), (*expected, *wanted), strict=True):
            assert_close(one, other)
        with torch.no_grad():
            for one, other in zip(native.run_recurrence(*arguments), expected, strict=True):
                assert_close(one, other)


@pytest.mark.skipif(isinstance(NATIVE, str), reason=str(NATIVE))
@pytest.mark.parametrize("batch_sizes", [[1], [2], [3], [8], [1] * 8, [3, 2, 1], [9], [1] * 9])
@pytest.mark.parametrize("sizes", [(7, 5, 19), (1, 13, 40), (5, 2, 1)])
@pytest.mark.parametrize("threads", ["one", "three"])
def test_a_few_tokens_are_multiplied_by_weights_as_they_are(request, threads, sizes, batch_sizes):
    """With up to eight tokens, weights are not packed."""
    if threads == "three":
        request.getfixturevalue("three_threads")
    masters, chunk, features = sizes
    size, batch = masters * chunk, batch_sizes[0]
    rows = 4 * size + 2 * masters
    shapes = ((sum(batch_sizes), features), (rows, features), (rows, size), (batch, size), (batch, size))
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    for bias in (None, torch.randn(rows, dtype=torch.float64)):
        arguments = (inputs[0], batch_sizes, Weights(*inputs[1:3], bias), *inputs[3:], chunk)
        expected, actual = run_recurrence(*arguments), native.run_recurrence(*arguments)
        upstream = [torch.randn_like(one) for one in expected]
        wanted, found = (torch.autograd.grad(one, inputs, upstream) for one in (expected, actual))
        for one, other in zip((*actual, *found), (*expected, *wanted), strict=True):
            assert_close(one, other)
        with torch.no_grad():
            for one, other in zip(native.run_recurrence(*arguments), expected, strict=True):
                assert_close(one, other)


@pytest.mark.skipif(isinstance(NATIVE, str), reason=str(NATIVE))
def test_calls_from_many_threads_give_what_one_alone_gives(three_threads):
    layer = ONLSTM(3, 6, chunk_size=2, backend="native")
    x = torch.randn(9, 2, 3)
    expected = layer(x)[0].detach()
    with ThreadPoolExecutor(8) as callers:
        for output in callers.map(lambda _: layer(x)[0], range(40)):
            assert_close(output.detach(), expected)


@pytest.mark.parametrize("name", NAMES)
def test_the_shapes_of_the_loop_are_checked(name):
    run = BACKENDS[name].run_recurrence
    good = {
        "tokens": torch.zeros(3, 5),
        "batch_sizes": [2, 1],
        "weights": Weights(torch.zeros(20, 5), torch.zeros(20, 4), torch.zeros(20)),
        "hidden": torch.zeros(2, 4),
        "cell": torch.zeros(2, 4),
        "chunk_size": 2,
    }
    run(**good)
    for bad, message in (
        ({"weights": good["weights"]._replace(weight_hh=torch.zeros(18, 4))}, "weights.weight_hh must be"),
        (
            {"weights": good["weights"]._replace(weight_ih=torch.zeros(20, 4))},
            "weights.weight_ih must have shape",
        ),
        ({"weights": good["weights"]._replace(bias=torch.zeros(19))}, "weights.bias must have shape"),
        ({"chunk_size": 3}, "weights.weight_hh must be"),
        ({"tokens": torch.zeros(4, 5)}, "tokens must have 3 rows, the sum of batch_sizes, got 4"),
        ({"hidden": torch.zeros(2, 5)}, "hidden must have shape"),
        ({"cell": torch.zeros(1, 4)}, "cell must have shape"),
        ({"hidden": torch.zeros(1, 4), "cell": torch.zeros(1, 4)}, r"batch_sizes\[0\] must be at most 1"),
        *(
            ({"batch_sizes": sizes}, "batch_sizes must be positive and non-increasing")
            for sizes in ([1, 2], torch.tensor([1, 2]), [2, 1, 0], [], [4, -1])
        ),
    ):
        with pytest.raises(ValueError, match=message):
            run(**{**good, **bad})


@pytest.mark.skipif(isinstance(NATIVE, str), reason=str(NATIVE))
def test_the_dtype_of_the_bias_is_checked():
    weights = Weights(torch.zeros(20, 5), torch.zeros(20, 4), torch.zeros(20).double())
    with pytest.raises(ValueError, match=r"^weights\.bias must have dtype torch\.float32"):
        native.run_recurrence(torch.zeros(3, 5), [2, 1], weights, *[torch.zeros(2, 4)] * 2, 2)


@pytest.mark.parametrize("name", NAMES)
def test_gradcheck(name):
    shapes = ((3, 3), (20, 3), (20, 4), (20,), (2, 4), (2, 4))
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    run = BACKENDS[name].run_recurrence
    assert torch.autograd.gradcheck(
        lambda x, w, u, b, h, c: run(x, [2, 1], Weights(w, u, b), h, c, 2), inputs
    )


@pytest.mark.parametrize("name", FAST)
def test_no_second_derivatives_by_halves(name):
    x = torch.randn(3, 5, requires_grad=True)
    weights, state = Weights(torch.randn(20, 5), torch.randn(20, 4), None), torch.zeros(3, 4)
    output = BACKENDS[name].run_recurrence(x, [3], weights, state, state, 2).output
    (gradient,) = torch.autograd.grad(output.sum(), x, create_graph=True)
    with pytest.raises(
        RuntimeError, match=f"'{name}' cannot be differentiated twice: use backend='reference'"
    ):
        gradient.sum().backward()


GRID = list(
    itertools.product([1, 2], [True, False], [True, False], [True, False])
)  # layers, bias, batch_first, bidirectional


@pytest.mark.parametrize(("layers", "bias", "batch_first", "bidirectional"), GRID)
def test_shapes_names_and_packing_are_those_of_nn_lstm(layers, bias, batch_first, bidirectional):
    options = {"num_layers": layers, "bias": bias, "batch_first": batch_first, "bidirectional": bidirectional}
    ours, theirs = ONLSTM(5, 6, **options), nn.LSTM(5, 6, **options)
    assert [name for name, _ in ours.named_parameters()] == [name for name, _ in theirs.named_parameters()]
    batch = torch.randn(4, 3, 5)
    leading = layers * (2 if bidirectional else 1)
    batch_size = 4 if batch_first else 3
    hx = torch.randn(leading, batch_size, 6), torch.randn(leading, batch_size, 6)
    unbatched = torch.randn(7, 5)
    hu = torch.randn(leading, 6), torch.randn(leading, 6)
    steps = 3 if batch_first else 4
    lengths = torch.tensor([1, steps, 2, 3][:batch_size]).clamp(max=steps)
    packed = pack_padded_sequence(batch, lengths, batch_first, enforce_sorted=False)
    for arguments in ((batch,), (batch, hx), (unbatched,), (unbatched, hu), (packed,), (packed, hx)):
        (y, (h, c)), (y2, (h2, c2)) = ours(*arguments), theirs(*arguments)
        assert type(y) is type(y2)
        if isinstance(y, PackedSequence):
            assert torch.equal(y.batch_sizes, y2.batch_sizes)
            assert torch.equal(y.sorted_indices, y2.sorted_indices)
            assert torch.equal(y.unsorted_indices, y2.unsorted_indices)
            y, y2 = y.data, y2.data
        assert y.shape == y2.shape
        assert h.shape == h2.shape
        assert c.shape == c2.shape


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


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.complex64, torch.int64, torch.bool])
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


def test_an_input_of_another_dtype_or_device_is_named_by_the_cell():
    for bad, message in (
        (torch.randn(3, 5).double(), "input must have dtype torch.float32, got torch.float64"),
        (torch.randn(3, 5, device="meta"), "input must be on cpu, got a tensor on meta"),
    ):
        assert error_of(lambda bad=bad: nn.LSTMCell(5, 6)(bad)) is RuntimeError
        with pytest.raises(RuntimeError, match=message):
            ONLSTMCell(5, 6)(bad)


@pytest.mark.parametrize("kind", [partial(ONLSTM, num_layers=2, bidirectional=True), ONLSTMCell])
def test_initial_parameters_are_uniform_within_one_over_the_root_of_h(kind):
    """As those of nn.LSTM and nn.LSTMCell."""
    module, bound = kind(30, 100, chunk_size=10), 0.1
    for _ in range(2):
        for name, parameter in module.named_parameters():
            assert 0.95 * bound < parameter.abs().max() <= bound, name
            assert parameter.std().item() == pytest.approx(bound / 3**0.5, rel=0.1), name
            nn.init.zeros_(parameter)
        module.reset_parameters()


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


@pytest.mark.parametrize(("name", "value"), [("dropout", 2), ("weight_dropout", 1.5), ("dropout", "a")])
def test_a_dropout_that_is_set_later_is_checked_at_once(name, value):
    layer = ONLSTM(5, 6, 2)
    with pytest.raises(ValueError, match=f"{name} must lie in \\[0, 1\\], got {value!r}"):
        setattr(layer, name, value)
    assert getattr(layer, name) == 0


@pytest.mark.parametrize("half", [np.float32(0.5), Fraction(1, 2)], ids=repr)
def test_a_dropout_may_be_any_real_number(half, tmp_path):
    layer, later = ONLSTM(5, 6, 2, dropout=half, weight_dropout=half), ONLSTM(5, 6, 2)
    later.dropout = later.weight_dropout = half
    assert repr(later) == repr(layer) == "ONLSTM(5, 6, num_layers=2, dropout=0.5, weight_dropout=0.5)"
    torch.save(later, tmp_path / "f")
    for one in (layer, later, torch.load(tmp_path / "f", weights_only=True)):
        assert one(torch.randn(3, 2, 5))[0].isfinite().all()


def test_a_parametrized_weight_is_computed_once_a_call():
    calls = []

    class Counted(nn.Module):
        def forward(self, weight):
            calls.append(weight)
            return weight

    for module, name, input in (
        (ONLSTM(5, 6), "weight_ih_l0", torch.randn(4, 3, 5)),
        (ONLSTMCell(5, 6), "weight_ih", torch.randn(3, 5)),
    ):
        parametrize.register_parametrization(module, name, Counted())
        calls.clear()
        module(input)
        assert len(calls) == 1


@pytest.mark.parametrize("backend", NAMES)
@pytest.mark.parametrize("options", [{}, {"batch_first": True}, {"bidirectional": True, "num_layers": 2}])
def test_an_empty_batch_gives_what_nn_lstm_gives(backend, options):
    results = []
    for make in (nn.LSTM, partial(ONLSTM, chunk_size=2, backend=backend)):
        layer = make(5, 6, **options)
        x = torch.randn((0, 4, 5) if layer.batch_first else (4, 0, 5), requires_grad=True)
        output, (h, c) = layer(x)
        output.sum().backward()
        assert all((parameter.grad == 0).all() for parameter in layer.parameters())
        results.append([tensor.shape for tensor in (output, h, c, x.grad)])
        layer(x, (h, c))
    assert results[0] == results[1]


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


@pytest.mark.parametrize("backend", NAMES)
def test_two_halves_equal_the_whole(backend):
    layer = ONLSTM(5, 6, 2, chunk_size=3, backend=backend).double()
    x = torch.randn(7, 3, 5, dtype=torch.float64)
    whole, state = layer(x)
    first, between = layer(x[:3])
    second, end = layer(x[3:], between)
    assert_close(torch.cat([first, second]), whole)
    for one, other in zip(end, state, strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("backend", NAMES)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_batch_mates_and_order_change_nothing(backend, bidirectional):
    layer = ONLSTM(5, 6, 2, chunk_size=2, bidirectional=bidirectional, backend=backend).double()
    sequences = [torch.randn(length, 5, dtype=torch.float64) for length in (2, 6, 1, 4)]
    packed = nn.utils.rnn.pack_sequence(sequences, enforce_sorted=False)
    output, (h_n, c_n) = layer(packed)
    output, _ = pad_packed_sequence(output)
    for b, sequence in enumerate(sequences):
        alone, (h, c) = layer(sequence)
        assert_close(output[: len(sequence), b], alone)
        assert_close(h_n[:, b], h)
        assert_close(c_n[:, b], c)


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        (torch.tensor([4, 2, 1]), r"got Tensor \(did you mean lengths=\?\)"),
        ([4, 2, 1], r"got a list of 3: int, int, int \(did you mean lengths=\?\)$"),
        ([4, 2], r"got a list of 2: int, int \(did you mean lengths=\?\)$"),
        (torch.tensor(3), r"got Tensor \(did you mean"),
        ([], r"got a list of 0$"),
        (torch.zeros(1, 3, 6), r"got Tensor$"),
    ],
)
def test_lengths_in_place_of_the_state_are_named(lengths, message):
    with pytest.raises(TypeError, match=message):
        ONLSTM(5, 6)(torch.randn(4, 3, 5), lengths)


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


def test_the_cell_is_one_step_of_the_layer():
    layer = ONLSTM(5, 6, chunk_size=2).double()
    cell = ONLSTMCell(5, 6, chunk_size=2).double()
    cell.load_state_dict({name.removesuffix("_l0"): value for name, value in layer.state_dict().items()})
    x, state = torch.randn(3, 5, dtype=torch.float64), torch.randn(2, 3, 6, dtype=torch.float64)
    _, (h, c) = layer(x.unsqueeze(0), (state[:1], state[1:]))
    for one, other in zip(cell(x, (state[0], state[1])), (h[0], c[0]), strict=True):
        assert_close(one, other)
    for one, other in zip(cell(x[0]), cell(x[:1]), strict=True):
        assert_close(one, other[0])
    for one, other in zip(cell(x[0], (state[0, 0], state[1, 0])), (h[0, 0], c[0, 0]), strict=True):
        assert_close(one, other)
    expected = layer(x.unsqueeze(0), (state[:1], state[1:]), distances=True)[2]
    for one, other in zip(cell(x, (state[0], state[1]), distances=True)[2], expected, strict=True):
        assert_close(one, other[0, 0])
    for one, other in zip(cell(x[0], (state[0, 0], state[1, 0]), distances=True)[2], expected, strict=True):
        assert_close(one, other[0, 0, 0])
    zeros = torch.zeros_like(state[0])
    for one, other in zip(cell(x), cell(x, (zeros, zeros)), strict=True):
        assert torch.equal(one, other)
    assert [name for name, _ in cell.named_parameters()] == [
        name for name, _ in nn.LSTMCell(5, 6).named_parameters()
    ]
    for bad in (torch.randn(3, 4), torch.randn(2, 3, 5)):
        assert error_of(lambda bad=bad: cell(bad)) == error_of(lambda bad=bad: nn.LSTMCell(5, 6)(bad))


def test_weight_dropout_drops_recurrent_weights_for_the_whole_call():
    layer = ONLSTM(5, 6, chunk_size=2, weight_dropout=0.5)
    x = torch.randn(4, 3, 5)
    layer.eval()
    assert torch.equal(layer(x)[0], layer(x)[0])
    layer.train()
    assert not torch.equal(layer(x)[0], layer(x)[0])
    torch.manual_seed(1)
    dropped, _ = layer(x)
    torch.manual_seed(1)
    mask = nn.functional.dropout(torch.ones_like(layer.weight_hh_l0), 0.5)
    with torch.no_grad():
        layer.weight_hh_l0 *= mask
    assert_close(layer.eval()(x)[0], dropped)
    all_gone = ONLSTM(5, 6, weight_dropout=1.0)
    x = torch.randn(2, 1, 5)
    other = torch.stack([torch.zeros(1, 5), x[1]])
    assert not torch.equal(all_gone(x)[0][1], all_gone(other)[0][1])  # through c alone


def test_dropout_acts_between_layers_only():
    layer = ONLSTM(5, 6, 2, dropout=1.0)
    x = torch.randn(4, 3, 5)
    output, (h_n, _) = layer(x)
    without = ONLSTM(6, 6)
    without.load_state_dict(
        {name.replace("_l1", "_l0"): value for name, value in layer.state_dict().items() if "_l1" in name}
    )
    assert_close(output, without(torch.zeros(4, 3, 6))[0])
    assert h_n[0].abs().sum() > 0


def test_distances_lie_between_the_layers_of_the_hierarchy():
    layer = ONLSTM(5, 12, 3, chunk_size=3, batch_first=True)
    output, _, distances = layer(torch.randn(2, 7, 5), distances=True)
    assert output.shape == (2, 7, 12)
    for one in distances:
        assert one.shape == (3, 2, 7)
        assert one.min() >= 0
        assert one.max() <= 4
    assert layer(torch.randn(7, 5), distances=True)[2].forget.shape == (3, 7)


@pytest.mark.parametrize("backend", NAMES)
def test_gradients_under_autocast_follow_those_of_float32(backend):
    layer = ONLSTM(16, 32, chunk_size=4, backend=backend)
    x, upstream = torch.randn(9, 8, 16, requires_grad=True), torch.randn(9, 8, 32)
    wanted, found = (), ()
    for autocast in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            output, _ = layer(x)
        wanted, found = (
            found,
            torch.autograd.grad(output, [x, *layer.parameters()], upstream.to(output.dtype)),
        )
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == torch.float32
        assert 0 < (one - other).norm() < 0.03 * other.norm() or torch.equal(one, other)


@pytest.mark.skipif("native" not in FAST, reason="no native backend here")
@pytest.mark.parametrize(("input_size", "hidden_size"), [(3, 8), (4, 7), (3, 7)])
def test_nothing_is_rounded_under_autocast_where_a_size_is_odd(input_size, hidden_size):
    layer = ONLSTM(input_size, hidden_size, chunk_size=1, backend="native")
    x = torch.randn(9, 8, input_size, requires_grad=True)
    upstream = torch.randint(-4, 5, (9, 8, hidden_size)).float()  # exact in bfloat16, too
    found = []
    for autocast in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            output, _ = layer(x)
        found.append(torch.autograd.grad(output, [x, *layer.parameters()], upstream.to(output.dtype)))
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("backend", FAST)
def test_gradients_are_the_same_if_backward_is_called_under_autocast(backend):
    layer = ONLSTM(16, 32, chunk_size=4, backend=backend)
    x, upstream = torch.randn(9, 8, 16, requires_grad=True), torch.randn(9, 8, 32)
    found = []
    for inside in (False, True):
        with torch.autocast("cpu", torch.bfloat16):
            output, _ = layer(x)
        with torch.autocast("cpu", torch.bfloat16, enabled=inside):
            found.append(torch.autograd.grad(output, [x, *layer.parameters()], upstream.to(output.dtype)))
    for outside, within in zip(*found, strict=True):
        assert torch.equal(outside, within)


@pytest.mark.parametrize("backend", NAMES)
@pytest.mark.parametrize("state", [None, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_gives_the_dtypes_of_nn_lstm(backend, state, dtype):
    x = torch.randn(4, 3, 5, dtype=dtype)
    hx = None if state is None else (torch.zeros(1, 3, 6, dtype=state), torch.zeros(1, 3, 6, dtype=state))
    dtypes = [torch.bfloat16] * 3
    with torch.autocast("cpu", torch.bfloat16):
        if runs_lstm(torch.bfloat16):
            theirs, state_of_theirs = nn.LSTM(5, 6)(x, hx)
            assert [t.dtype for t in (theirs, *state_of_theirs)] == dtypes
        output, (h, c), distances = ONLSTM(5, 6, chunk_size=2, backend=backend)(x, hx, distances=True)
    assert [t.dtype for t in (output, h, c)] == dtypes
    assert distances.forget.dtype == torch.float32


@pytest.mark.parametrize("backend", NAMES)
def test_autocast_rounds_products_alone(backend):
    layer, x = ONLSTM(16, 64, chunk_size=2, backend=backend), torch.randn(9, 4, 16)
    _, _, expected = layer(x, distances=True)
    with torch.autocast("cpu", torch.bfloat16):
        _, _, found = layer(x, distances=True)
    for one, other in zip(found, expected, strict=True):
        assert (one - other).abs().max() < 0.01
        assert not torch.equal(one, one.bfloat16().float())


def test_autocast_rounds_products_alone_in_a_cell():
    cell, x = ONLSTMCell(16, 64, chunk_size=2), torch.randn(4, 16)
    expected = cell(x, cell(x))
    with torch.autocast("cpu", torch.bfloat16):
        found = cell(x, cell(x))
        assert [one.dtype for one in cell(x.bfloat16())] == [torch.bfloat16] * 2  # as nn.LSTMCell
    for one, other in zip(found, expected, strict=True):
        assert (one - other).abs().max() < 0.002
        assert not torch.equal(one, one.bfloat16().float())


def test_autocast_leaves_float64_alone():
    layer, x = ONLSTM(5, 6, dtype=torch.float64), torch.randn(4, 3, 5, dtype=torch.float64)
    expected, _ = layer(x)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer(x)[0], expected)


def test_works_under_autocast_and_inference_mode_and_on_copies():
    layer = ONLSTM(5, 6, 2, chunk_size=2)
    x = torch.randn(4, 3, 5)
    expected = layer(x)[0]
    with torch.inference_mode():
        assert_close(layer(x)[0], expected)
    assert_close(copy.deepcopy(layer)(x)[0], expected)
    assert_close(pickle.loads(pickle.dumps(layer))(x)[0], expected)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (layer(x)[0].float() - expected).abs().max() < 0.05
    layer.flatten_parameters()
    assert repr(layer) == "ONLSTM(5, 6, num_layers=2, chunk_size=2)"


@pytest.mark.parametrize(("bias", "bidirectional"), [(True, True), (False, False)])
def test_what_code_for_nn_lstm_reads_off_it_is_there(bias, bidirectional):
    options = {"num_layers": 2, "bias": bias, "bidirectional": bidirectional}
    ours, theirs = ONLSTM(5, 6, **options), nn.LSTM(5, 6, **options)
    for name in (
        "mode",
        "input_size",
        "hidden_size",
        "num_layers",
        "bias",
        "batch_first",
        "dropout",
        "bidirectional",
        "proj_size",
    ):
        assert getattr(ours, name) == getattr(theirs, name), name
    names = {parameter: name for name, parameter in ours.named_parameters()}
    their_names = {parameter: name for name, parameter in theirs.named_parameters()}
    assert [[names[w] for w in one] for one in ours.all_weights] == [
        [their_names[w] for w in one] for one in theirs.all_weights
    ]


@pytest.mark.parametrize("make", [partial(ONLSTM, num_layers=2, bidirectional=True), ONLSTMCell])
def test_the_forget_bias_reaches_the_forget_gate_of_every_layer_and_nothing_else(make):
    module = make(5, 6, chunk_size=2)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    module.set_forget_bias(1.5)
    after = module.state_dict()
    for name, value in after.items():
        if name.startswith("bias_ih"):
            total = value + after[name.replace("_ih", "_hh")]
            assert (total[6:12] == 1.5).all()
        rows = [row for row in range(len(value)) if not (name.startswith("bias") and 6 <= row < 12)]
        assert torch.equal(value[rows], before[name][rows]), name
    for value in ("a", None, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"^value must be a finite number, got {value!r}"):
            module.set_forget_bias(value)
    with pytest.raises(ValueError, match="bias=False"):
        make(5, 6, bias=False).set_forget_bias(1.0)
    module = make(5, 6)
    name = next(name for name, _ in module.named_parameters() if name.startswith("bias_hh"))
    parametrize.register_parametrization(module, name, nn.Identity())
    with pytest.raises(ValueError, match=f"{name} is parametrized"):
        module.set_forget_bias(1.0)
    module = make(5, 6)
    prune.random_unstructured(module, name, 0.5)
    with pytest.raises(ValueError, match=f"{name}_orig is what a bias is computed from"):
        module.set_forget_bias(1.0)


@pytest.mark.parametrize("make", [partial(ONLSTM, num_layers=2), ONLSTMCell])
def test_reset_parameters_draws_what_construction_draws(make):
    torch.manual_seed(3)
    module = make(5, 6)
    expected = copy.deepcopy(module.state_dict())
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    torch.manual_seed(3)
    module.reset_parameters()
    assert all(torch.equal(value, expected[name]) for name, value in module.state_dict().items())


@pytest.mark.parametrize(
    "options", [{}, {"num_layers": 3, "bias": False, "chunk_size": 2, "backend": "sequence"}]
)
def test_repr_is_the_call_that_made_it(options):
    layer = ONLSTM(5, 6, batch_first=True, **options)
    again = eval(repr(layer))
    for name in ("batch_first", "num_layers", "bias", "chunk_size", "backend"):
        assert getattr(again, name) == getattr(layer, name)


@pytest.mark.parametrize("options", [{}, {"bias": False, "chunk_size": 2}])
def test_repr_of_a_cell_is_the_call_that_made_it(options):
    cell = ONLSTMCell(5, 6, **options)
    again = eval(repr(cell))
    for name in ("input_size", "hidden_size", "bias", "chunk_size"):
        assert getattr(again, name) == getattr(cell, name)


@pytest.mark.parametrize("kind", [ONLSTM, ONLSTMCell])
def test_scripting_is_refused_in_one_line(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with pytest.raises(NotImplementedError, match=rf"{kind.__name__} cannot be compiled by torch\.jit"):
            torch.jit.script(nn.Sequential(kind(5, 6)))


def test_a_replica_without_registered_parameters_runs():
    layer, x = ONLSTM(5, 6, 2, bidirectional=True), torch.randn(4, 3, 5)
    replica = layer._replicate_for_data_parallel()
    for name, parameter in layer.named_parameters():
        setattr(replica, name, parameter.clone())  # what nn.parallel.replicate does
    assert torch.equal(replica(x)[0], layer(x)[0])


def test_a_weight_that_was_removed_is_named():
    layer, x = ONLSTM(5, 6), torch.randn(2, 3, 5)
    del layer.weight_hh_l0
    for sequences in (x, pack_padded_sequence(x, [2, 2, 1])):
        with pytest.raises(AttributeError, match="no attribute 'weight_hh_l0'"):
            layer(sequences)


def test_the_layer_itself_breaks_no_graph():
    layer, x = ONLSTM(5, 6, 2, bidirectional=True, backend="reference"), torch.randn(2, 3, 5)
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x)[0], layer(x)[0])


def test_the_kind_of_input_is_named():
    with pytest.raises(TypeError, match="input must be a Tensor or a PackedSequence, got list"):
        ONLSTM(5, 6)([1, 2])
    nested = torch.nested.nested_tensor([torch.randn(2, 5), torch.randn(3, 5)], layout=torch.jagged)
    with pytest.raises(TypeError, match="input must be padded or packed, got a nested tensor"):
        ONLSTM(5, 6)(nested)
    with pytest.raises(TypeError, match=r"input must be a dense tensor, got torch.sparse_coo"):
        ONLSTM(5, 6)(torch.randn(2, 3, 5).to_sparse())


def test_nothing_that_it_makes_follows_the_default_device():
    layer, x = ONLSTM(5, 6, bidirectional=True, backend="reference"), torch.randn(4, 3, 5)
    packed = pack_padded_sequence(x, torch.tensor([4, 2, 1]))
    expected = layer(packed)[0].data, layer(x)[0]
    with torch.device("meta"):
        actual = layer(packed)[0].data, layer(x)[0]
    for one, other in zip(actual, expected, strict=True):
        assert torch.equal(one, other)


def test_a_layer_on_meta_computes_shapes():
    layer = ONLSTM(5, 6, bidirectional=True, backend="reference", device="meta")
    output, (h, _) = layer(torch.randn(4, 3, 5, device="meta"))
    assert output.is_meta
    assert output.shape == (4, 3, 12)
    assert h.shape == (2, 3, 6)


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("backend", NAMES)
def test_small_numbers_keep_their_digits(backend, dtype):
    layer = ONLSTM(4, 6, chunk_size=2, bias=False, backend=backend, dtype=dtype)
    definition = ONLSTM(4, 6, chunk_size=2, bias=False, backend="reference", dtype=torch.float64)
    definition.load_state_dict({name: weight.double() for name, weight in layer.state_dict().items()})
    tolerance = 1e-6 if dtype == torch.float32 else 1e-13
    for scale in (1.0, 0.1, 1e-3, 1e-6, 1e-9):
        x = scale * torch.randn(7, 3, 4, dtype=dtype)
        expected = definition(x.double())[0] / scale
        actual = layer(x)[0].double() / scale
        torch.testing.assert_close(actual, expected, rtol=10 * tolerance, atol=tolerance)
