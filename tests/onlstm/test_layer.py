"""ONLSTM beside nn.LSTM, whose conventions it has."""

import copy
import itertools
import pickle
import warnings
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence

from onlstm import ONLSTM, ONLSTMCell
from ordered_memory.backends.registry import BackendError
from tests.equality import NAMES
from tests.tolerances import assert_close

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


def test_an_empty_batch_is_computed_by_the_definition_whatever_the_backend():
    layer = ONLSTM(5, 6, backend="native", dtype=torch.bfloat16)
    x = torch.zeros(4, 3, 5, dtype=torch.bfloat16)
    with pytest.raises(BackendError):  # the C is for float32 and float64
        layer(x)
    assert layer(x[:, :0])[0].shape == (4, 0, 6)


@pytest.mark.parametrize("backend", NAMES)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_batch_mates_and_order_change_nothing(backend, bidirectional):
    layer = ONLSTM(5, 6, 2, chunk_size=2, bidirectional=bidirectional, backend=backend).double()
    sequences = [torch.randn(length, 5, dtype=torch.float64) for length in (2, 6, 1, 4)]
    h_0, c_0 = torch.randn(2, 4 if bidirectional else 2, 4, 6, dtype=torch.float64)
    output, (h_n, c_n) = layer(pack_sequence(sequences, enforce_sorted=False), (h_0, c_0))
    output, _ = pad_packed_sequence(output)
    for b, sequence in enumerate(sequences):
        alone, (h, c) = layer(sequence, (h_0[:, b], c_0[:, b]))
        assert_close(output[: len(sequence), b], alone)
        assert_close(h_n[:, b], h)
        assert_close(c_n[:, b], c)


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


@pytest.mark.parametrize(
    "options", [{}, {"num_layers": 3, "bias": False, "chunk_size": 2, "backend": "sequence"}]
)
def test_repr_is_the_call_that_made_it(options):
    layer = ONLSTM(5, 6, batch_first=True, **options)
    again = eval(repr(layer))
    for name in ("batch_first", "num_layers", "bias", "chunk_size", "backend"):
        assert getattr(again, name) == getattr(layer, name)


@pytest.mark.parametrize("kind", [ONLSTM, ONLSTMCell])
def test_scripting_is_refused_in_one_line(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with pytest.raises(NotImplementedError, match=rf"{kind.__name__} cannot be compiled by torch\.jit"):
            torch.jit.script(nn.Sequential(kind(5, 6)))


def test_the_layer_itself_breaks_no_graph():
    layer, x = ONLSTM(5, 6, 2, bidirectional=True, backend="reference"), torch.randn(2, 3, 5)
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x)[0], layer(x)[0])


def test_distances_follow_the_layout_and_stay_within_their_bounds():
    """The last entry of f̃ is 1 and that of ĩ is 0, so that d^f ≤ M - 1 and d^i ≥ 1."""
    layer = ONLSTM(5, 12, 3, chunk_size=3, batch_first=True)
    time_first = ONLSTM(5, 12, 3, chunk_size=3)
    time_first.load_state_dict(layer.state_dict())
    x = 9 * torch.randn(2, 7, 5)
    found, transposed = layer(x, distances=True)[2], time_first(x.transpose(0, 1), distances=True)[2]
    assert found.forget.shape == (3, 2, 7)
    for one, other in zip(found, transposed, strict=True):
        assert torch.equal(one, other.transpose(1, 2))
    for one, row in zip(layer(x[0], distances=True)[2], found, strict=True):
        assert_close(one, row[:, 0])
    for one, least, most in ((found.forget, 0, 3), (found.input, 1, 4)):
        assert one.min() > least - 1e-5
        assert one.max() < most + 1e-5


def test_inference_mode_and_copies_change_nothing():
    layer, x = ONLSTM(5, 6, 2, chunk_size=2), torch.randn(4, 3, 5)
    expected = layer(x)[0]
    with torch.inference_mode():
        assert torch.equal(layer(x)[0], expected)
    for copied in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(copied(x)[0], expected)
    layer.flatten_parameters()
    assert torch.equal(layer(x)[0], expected)


@pytest.mark.parametrize("backend", ["auto", "sequence", "reference"])
def test_the_default_device_changes_nothing(backend):
    layer, x = ONLSTM(5, 6, 2, bidirectional=True, backend=backend), torch.randn(4, 3, 5)
    packed, found = pack_padded_sequence(x, [3, 4, 1], enforce_sorted=False), []
    # set_default_device(None) of PyTorch 2.8 leaves get_default_device() broken
    for device in ("cpu", "meta"):
        with torch.device(device):
            outputs = layer(x)[0], layer(packed)[0].data, layer(x, lengths=[3, 4, 1])[0]
            gradients = torch.autograd.grad(sum(map(torch.sum, outputs)), list(layer.parameters()))
        found.append([*outputs, *gradients])
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_a_layer_on_meta_computes_shapes_and_gradients(backend):
    layer = ONLSTM(5, 6, bidirectional=True, backend=backend, device="meta")
    output, (h, c) = layer(torch.randn(4, 3, 5, device="meta"))
    assert all(one.is_meta for one in (output, h, c))
    assert output.shape == (4, 3, 12)
    assert h.shape == c.shape == (2, 3, 6)
    output.sum().backward()
    assert all(parameter.grad.is_meta for parameter in layer.parameters())
