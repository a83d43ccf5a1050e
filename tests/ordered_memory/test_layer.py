"""The layer as a user of nn.LSTM would use it."""

import copy
import warnings

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence

from ordered_memory import OrderedMemory, OrderedMemoryState
from ordered_memory.backends.registry import BackendError
from tests.small_memory import BOTH_CELLS, EACH_BACKEND, F64, X, assert_same, make
from tests.tolerances import assert_close


def test_layouts_agree():
    layer = make()
    time_first = copy.deepcopy(layer)
    time_first.batch_first = False
    x = torch.randn(3, 5, 4, dtype=F64)
    expected = layer(x, lengths=[5, 3, 1])
    actual = time_first(x.transpose(0, 1), lengths=[5, 3, 1])
    assert torch.equal(actual.output.transpose(0, 1), expected.output)
    assert torch.equal(actual.attention.transpose(0, 1), expected.attention)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_one_sequence_without_a_batch_axis(bidirectional, batch_first):
    layer = make(bidirectional=bidirectional, batch_first=batch_first)
    x = torch.randn(5, 4, dtype=F64)
    expected = layer(x.unsqueeze(0 if batch_first else 1))
    actual = layer(x)
    assert torch.equal(actual.output, expected.output.squeeze(0 if batch_first else 1))
    assert actual.attention.shape == ((2, 5, 5) if bidirectional else (5, 5))
    resumed = layer(x, actual.state)
    again = layer(x.unsqueeze(0 if batch_first else 1), expected.state)
    assert torch.equal(resumed.output, again.output.squeeze(0 if batch_first else 1))


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("lengths", [[2, 5, 3, 5], [5, 5, 3, 2]], ids=["any order", "sorted"])
def test_packed_sequences_equal_padded_ones(lengths, bidirectional, batch_first):
    layer = make(bidirectional=bidirectional, batch_first=batch_first)
    sequences = [torch.randn(length, 4, dtype=F64) for length in lengths]
    padded = torch.nn.utils.rnn.pad_sequence(sequences, batch_first=batch_first)
    packed = pack_sequence(sequences, enforce_sorted=lengths == [5, 5, 3, 2])
    state = layer(torch.randn_like(padded)).state
    for given in (None, state):
        actual, expected = layer(packed, given), layer(padded, given, lengths)
        unpacked, found = pad_packed_sequence(actual.output, batch_first=batch_first)
        assert found.tolist() == lengths
        assert torch.equal(unpacked, expected.output)
        assert torch.equal(actual.attention, expected.attention)
        assert all(map(torch.equal, actual.state, expected.state))


def test_bidirectional_reads_each_sequence_from_its_own_end():
    layer = make(bidirectional=True)
    x = torch.randn(2, 6, 4, dtype=F64)
    both = layer(x, lengths=[6, 3])
    short = layer(x[[1], :3])
    assert_close(both.output[[1], :3], short.output)
    assert_close(both.attention[:, [1], :3], short.attention)
    assert_close(both.state.candidate[:, [1]], short.state.candidate)


def test_more_slots_at_call_time_are_the_same_as_a_layer_built_with_them():
    layer = make()
    wide = OrderedMemory(4, 6, 9, batch_first=True, dtype=F64)
    wide.load_state_dict(layer.state_dict())
    x = torch.randn(2, 7, 4, dtype=F64)
    assert torch.equal(layer(x, num_slots=9).output, wide(x).output)
    assert layer.num_slots == 5


def test_inputs_and_states_are_not_modified():
    layer = make()
    x = torch.randn(2, 5, 4, dtype=F64)
    state = layer(x).state.detach()
    before = x.clone(), [tensor.clone() for tensor in state]
    layer(x, state, lengths=[5, 2])
    assert torch.equal(x, before[0])
    assert all(torch.equal(a, b) for a, b in zip(state, before[1], strict=True))


def test_inference_mode_copy_and_state_dict():
    layer = make(bidirectional=True)
    x = torch.randn(2, 5, 4, dtype=F64)
    expected = layer(x)
    with torch.inference_mode():
        assert torch.equal(layer(x).output, expected.output)
    assert torch.equal(copy.deepcopy(layer)(x).output, expected.output)
    other = make(bidirectional=True)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x).output, expected.output)


@pytest.mark.parametrize(
    "options",
    [{}, {"cell_dropout": 0.1, "score": "additive", "recompute_every": 3, "occupancy_threshold": 0.1}],
)
def test_repr_begins_with_the_arguments_that_made_it(options):
    layer = make(**options)
    again = eval(f"OrderedMemory({layer.extra_repr()})")
    for name in ("num_slots", "batch_first", "backend", "cell", *options):
        assert getattr(again, name) == getattr(layer, name)


def test_scripting_is_refused_in_one_line():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with pytest.raises(
            NotImplementedError, match=r"OrderedMemory cannot be compiled by torch\.jit\.script"
        ):
            torch.jit.script(make())


@pytest.mark.parametrize("lengths", [None, [2, 1], torch.tensor([2, 1])])
def test_the_layer_itself_breaks_no_graph(lengths):
    layer = make(bidirectional=True, backend="reference")
    x = torch.randn(2, 2, 4, dtype=F64)  # short: the trace has every step of either direction
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    for actual, expected in zip(
        compiled(x, lengths=lengths)[::2], layer(x, lengths=lengths)[::2], strict=True
    ):
        assert_close(actual, expected)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_summary_is_the_output_at_the_last_token_of_each_direction(bidirectional):
    layer = make(bidirectional=bidirectional)
    x = torch.randn(3, 5, 4, dtype=F64)
    out = layer(x, lengths=[5, 2, 3])
    last = out.output[torch.arange(3), torch.tensor([4, 1, 2]), :6]
    expected = torch.stack([last, out.output[:, 0, 6:]]) if bidirectional else last
    assert torch.equal(out.summary, expected)
    assert_close(layer(x[0]).summary, expected[..., 0, :])


@pytest.mark.parametrize("recompute_every", [None, 2])
@EACH_BACKEND
@BOTH_CELLS
def test_a_padded_batch_in_chunks_equals_the_whole_in_gradients(cell, backend, recompute_every):
    """The first sequence ends in the first chunk, so that it has length 0 in the second and the third."""
    if backend == "native" and cell == "tree-rnn":
        pytest.skip("native has no TreeRNN cell")
    layer = make(cell=cell, backend=backend, recompute_every=recompute_every)
    x = torch.randn(3, 9, 4, dtype=F64, requires_grad=True)
    lengths, given = torch.tensor([2, 9, 5]), make()(torch.randn(3, 2, 4, dtype=F64)).state.detach()
    state = OrderedMemoryState(*(tensor.requires_grad_() for tensor in given))
    whole, chunks = layer(x, state, lengths), []
    for start in range(0, 9, 3):
        before = chunks[-1].state if chunks else state
        chunks.append(layer(x[:, start : start + 3], before, (lengths - start).clamp(0, 3)))
    joined = whole._replace(
        output=torch.cat([chunk.output for chunk in chunks], 1),
        state=chunks[-1].state,
        attention=torch.cat([chunk.attention for chunk in chunks], 1),
    )
    assert_same(joined, whole)
    for one, other in zip(chunks[2].state, chunks[0].state, strict=True):
        assert torch.equal(one[0], other[0])
    assert (chunks[2].output[0] == 0).all()
    assert (chunks[2].attention[0] == 0).all()
    wanted = [x, *state, *layer.parameters()]
    upstream = [torch.randn_like(one) for one in (whole.output, whole.attention, *whole.state)]
    gradients = [
        torch.autograd.grad([out.output, out.attention, *out.state], wanted, upstream)
        for out in (joined, whole)
    ]
    for one, other in zip(*gradients, strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("bidirectional", [False, True])
@EACH_BACKEND
def test_a_batch_of_which_every_sequence_has_ended_keeps_its_state(backend, bidirectional):
    layer = make(backend=backend, bidirectional=bidirectional)
    given = layer(torch.randn_like(X)).state.detach()
    state = OrderedMemoryState(*(tensor.requires_grad_() for tensor in given))
    garbage = torch.full_like(X, float("nan"), requires_grad=True)
    out = layer(garbage, state, lengths=[0, 0])
    for one, other in zip(out.state, state, strict=True):
        assert torch.equal(one, other)
        assert one.data_ptr() != other.data_ptr()
    assert (out.output == 0).all()
    assert (out.attention == 0).all()
    wanted = [*state, garbage, *layer.parameters()]
    upstream = [torch.randn_like(one) for one in out.state]
    gradients = torch.autograd.grad(out.state, wanted, upstream)
    for one, other in zip(gradients[:3], upstream, strict=True):
        assert torch.equal(one, other)
    assert all((gradient == 0).all() for gradient in gradients[3:])


def test_lengths_of_zero_are_compiled():
    torch._dynamo.reset()
    layer = make()
    state = layer(torch.randn(2, 3, 4, dtype=F64)).state.detach()
    compiled = torch.compile(layer, backend="aot_eager")
    for lengths in (torch.tensor([5, 0]), torch.tensor([0, 2])):
        assert_same(compiled(X, state, lengths), layer(X, state, lengths))
    with pytest.raises(RuntimeError, match=r"lengths must lie in 0\.\.T"):
        compiled(X, state, torch.tensor([5, -1]))
    with pytest.raises(RuntimeError, match=r"lengths must lie in 1\.\.T"):
        compiled(X, None, torch.tensor([5, 0]))


def test_an_empty_batch_is_computed_by_the_definition_whatever_the_backend():
    layer = make(backend="triton")
    with pytest.raises(BackendError):  # the kernels are for float32
        layer(X)
    assert layer(X[:0]).output.shape == (0, 5, 6)


@EACH_BACKEND
@pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"recompute_every": 2}])
def test_an_empty_batch_gives_empty_results_and_zero_gradients(backend, options):
    layer = make(cell_dropout=0.5, attention_dropout=0.5, backend=backend, **options)
    x = torch.randn(0, 5, 4, dtype=F64, requires_grad=True)
    for lengths in (None, []):
        out = layer(x, lengths=lengths)
    leading = (2,) if layer.bidirectional else ()
    assert out.output.shape == (0, 5, 12 if leading else 6)
    assert out.attention.shape == (*leading, 0, 5, 5)
    assert [t.shape for t in out.state] == [(*leading, 0, *rest) for rest in ((5, 6), (5, 6), (6,))]
    out.output.sum().backward()
    assert x.grad.shape == x.shape
    assert all((p.grad == 0).all() for p in layer.parameters())
    assert layer(x, out.state).output.shape == out.output.shape


@pytest.mark.parametrize("lengths", [None, [6, 4, 2], [6, 6, 6]])
@pytest.mark.parametrize("bidirectional", [False, True])
@EACH_BACKEND
def test_every_result_may_be_changed_in_place_before_the_backward_pass(backend, bidirectional, lengths):
    layer, x = make(backend=backend, bidirectional=bidirectional), torch.randn(3, 6, 4, dtype=F64)
    wanted = list(layer.parameters())

    def results():
        out = layer(x, lengths=lengths)
        return [out.output, out.attention, *out.state]

    expected = torch.autograd.grad(sum((2 * one).sum() for one in results()), wanted)
    for one in (changed := results()):
        one.mul_(2)
    actual = torch.autograd.grad(sum(one.sum() for one in changed), wanted)
    assert all(map(torch.equal, actual, expected))


@pytest.mark.parametrize("lengths", [None, [5, 2], "packed"])
@pytest.mark.parametrize("backend", ["auto", "sequence", "reference"])
def test_the_default_device_changes_nothing(backend, lengths):
    layer = make(bidirectional=True, backend=backend, cell_dropout=0.2, attention_dropout=0.2)
    x, found = torch.randn(2, 5, 4, dtype=F64), []
    packed = pack_padded_sequence(x, [5, 2], batch_first=True)
    for device in ("cpu", "meta"):
        torch.manual_seed(3)
        with torch.device(device):
            out = layer(packed) if lengths == "packed" else layer(x, lengths=lengths)
            output = out.output[0] if lengths == "packed" else out.output
            gradients = torch.autograd.grad(output.sum(), list(layer.parameters()))
        found.append([output, out.attention, *out.state, *gradients])
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_a_layer_on_meta_computes_shapes(backend):
    layer = make(bidirectional=True, backend=backend, device="meta")
    out = layer(X.to("meta"), lengths=[5, 2])
    assert all(tensor.is_meta for tensor in (out.output, out.attention, *out.state))
    assert out.output.shape == (2, 5, 12)
    assert out.attention.shape == (2, 2, 5, 5)
    assert out.state.memory.shape == (2, 2, 5, 6)
