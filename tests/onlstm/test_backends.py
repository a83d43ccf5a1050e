"""Every backend of ONLSTM against loops in NumPy and against the definition, with all gradients.

Uninitialised memory is NaN in all of these tests.
"""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from onlstm import ONLSTM
from onlstm.backends import BACKENDS, native
from onlstm.functional import Weights, run_recurrence
from tests.equality import FAST, NAMES, NEEDS_NATIVE, assert_equals_the_definition
from tests.onlstm_oracle import run_sequence
from tests.tolerances import assert_close

pytestmark = pytest.mark.usefixtures("uninitialised_memory_is_nan")


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
            hidden, cell, f_distance, i_distance = run_sequence(tokens, (w_ih, w_hh, b_ih + b_hh), h, c, 2)
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


@NEEDS_NATIVE
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
        ({"batch_sizes": [2, 2]}, "tokens must have 4 rows, the sum of batch_sizes, got 3"),
        ({"batch_sizes": [3]}, r"batch_sizes\[0\] must be at most 2 \(B\), got 3"),
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


@NEEDS_NATIVE
def test_the_dtype_of_the_bias_is_checked():
    weights = Weights(torch.zeros(20, 5), torch.zeros(20, 4), torch.zeros(20).double())
    with pytest.raises(ValueError, match=r"^weights\.bias must have dtype torch\.float32"):
        native.run_recurrence(torch.zeros(3, 5), [2, 1], weights, *[torch.zeros(2, 4)] * 2, 2)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_agree_with_finite_differences(name):
    shapes = ((3, 3), (20, 3), (20, 4), (20,), (2, 4), (2, 4))
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    run = BACKENDS[name].run_recurrence
    assert torch.autograd.gradcheck(
        lambda x, w, u, b, h, c: run(x, [2, 1], Weights(w, u, b), h, c, 2), inputs
    )


@pytest.mark.parametrize("name", FAST)
def test_a_second_derivative_names_the_definition(name):
    x = torch.randn(3, 5, requires_grad=True)
    weights, state = Weights(torch.randn(20, 5), torch.randn(20, 4), None), torch.zeros(3, 4)
    output = BACKENDS[name].run_recurrence(x, [3], weights, state, state, 2).output
    (gradient,) = torch.autograd.grad(output.sum(), x, create_graph=True)
    with pytest.raises(
        RuntimeError, match=f"'{name}' cannot be differentiated twice: use backend='reference'"
    ):
        gradient.sum().backward()


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
