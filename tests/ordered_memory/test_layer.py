"""The layer as a user of nn.LSTM would use it."""

import copy
import re
import warnings
from fractions import Fraction

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.utils import parametrize
from torch.nn.utils.rnn import PackedSequence, pack_sequence, pad_packed_sequence
from torch.utils.checkpoint import checkpoint

from ordered_memory import (
    AdditiveScore,
    GatedRecursiveCell,
    NormalizedScore,
    OrderedMemory,
    OrderedMemoryState,
    TreeRNNCell,
)
from ordered_memory.backends import BACKENDS
from ordered_memory.memory import initial_state
from tests.tolerances import assert_close
from tests.versions import SHARDED_PARTS_AGAIN

F64 = torch.float64


def make(**arguments):
    return OrderedMemory(4, 6, 5, **{"batch_first": True, "dtype": F64, **arguments})


def assert_same(actual, expected, rows=slice(None), steps=slice(None)):
    assert_close(actual.output, expected.output[rows, steps], "output")
    assert_close(actual.attention, expected.attention[rows, steps], "attention")
    for name, tensor in actual.state._asdict().items():
        assert_close(tensor, getattr(expected.state, name)[rows], name)


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
def test_packed_sequences_equal_padded_ones(bidirectional, batch_first):
    layer = make(bidirectional=bidirectional, batch_first=batch_first)
    sequences = [torch.randn(length, 4, dtype=F64) for length in (2, 5, 3, 5)]
    packed = layer(pack_sequence(sequences, enforce_sorted=False))
    padded = torch.nn.utils.rnn.pad_sequence(sequences, batch_first=batch_first)
    expected = layer(padded, lengths=[2, 5, 3, 5])
    unpacked, lengths = pad_packed_sequence(packed.output, batch_first=batch_first)
    assert lengths.tolist() == [2, 5, 3, 5]
    assert torch.equal(unpacked, expected.output)
    assert torch.equal(packed.attention, expected.attention)
    for actual, tensor in zip(packed.state, expected.state, strict=True):
        assert torch.equal(actual, tensor)


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


def test_dropout_is_reproducible_under_a_seed_and_off_in_evaluation():
    layer = make(cell_dropout=0.3, attention_dropout=0.3)
    x = torch.randn(2, 6, 4, dtype=F64)
    outputs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outputs.append(layer(x).output)
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])
    layer.eval()
    plain = make()
    plain.load_state_dict(layer.state_dict())
    assert torch.equal(layer(x).output, plain(x).output)


@pytest.mark.parametrize("site", ["cell_dropout", "attention_dropout"])
def test_each_dropout_site_acts_alone(site):
    layer = make(**{site: 0.5})
    x = torch.randn(2, 6, 4, dtype=F64)
    assert not torch.equal(layer(x).output, layer(x).output)


@pytest.mark.parametrize(
    "options", [{"cell_dropout": 0.5}, {"attention_dropout": 0.5}, {"occupancy_threshold": 0.9}]
)
def test_dropout_and_threshold_that_are_set_later_act_on_the_next_call(options):
    (name, value), given = *options.items(), make(bidirectional=True, **options)
    set_later = make(bidirectional=True)
    set_later.load_state_dict(given.state_dict())
    setattr(set_later, name, value)
    assert getattr(set_later, name) == value
    assert repr(set_later) == repr(given)
    x = torch.randn(2, 6, 4, dtype=F64)
    outputs = []
    for layer in (given, set_later):
        torch.manual_seed(0)
        outputs.append(layer(x).output)
    assert torch.equal(*outputs)
    with pytest.raises(ValueError, match=re.escape(f"{name} must lie in [0, 1], got 2")):
        setattr(set_later, name, 2)


def test_modules_may_have_their_weights_as_plain_tensors():
    # So they are in FSDP without use_orig_params, and in the replicas of DataParallel.
    layer = make(bidirectional=True)
    x = torch.randn(2, 6, 4, dtype=F64)
    expected = layer(x).output
    for module in layer.modules():
        weights = dict(module._parameters)
        module._parameters.clear()
        for name, weight in weights.items():
            object.__setattr__(module, name, weight)
    assert not list(layer.parameters())
    assert_close(layer(x).output, expected)


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


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_autocast_follows_float32(backend):
    layer = make(dtype=torch.float32, backend=backend)
    x = torch.randn(2, 6, 4)
    expected = layer(x, lengths=[6, 4])
    with torch.autocast("cpu", torch.bfloat16):
        actual = layer(x, lengths=[6, 4])
        again = layer(x, actual.state)
    assert {actual.output.dtype, actual.attention.dtype, *(one.dtype for one in actual.state)} == {
        torch.float32
    }
    torch.testing.assert_close(actual.output, expected.output, rtol=0.1, atol=0.1)
    again.output.float().sum().backward()
    assert all(p.grad.isfinite().all() for p in layer.parameters())


def test_every_parameter_gets_a_gradient():
    layer = make(bidirectional=True)
    layer(torch.randn(2, 1, 4, dtype=F64)).output.sum().backward()
    assert all(p.grad is not None for p in layer.parameters())


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_slots": 0}, "num_slots must be an integer of at least 1, got 0"),
        ({"slot_size": -1}, "slot_size must be an integer of at least 1, got -1"),
        ({"input_size": 0}, "input_size must be"),
        ({"num_slots": True}, "num_slots must be an integer of at least 1, got True"),
        ({"cell_dropout": 1.5}, "cell_dropout must lie in [0, 1], got 1.5"),
        ({"cell_dropout": True}, "cell_dropout must lie in [0, 1], got True"),
        ({"attention_dropout": -0.1}, "attention_dropout must lie in [0, 1]"),
        ({"score": "dot"}, "score must be one of additive, normalized, got 'dot'"),
        ({"score": ["a"]}, "score must be one of additive, normalized, got ['a']"),
        ({"cell": "lstm"}, "cell must be one of gated, tree-rnn, got 'lstm'"),
        ({"backend": "magic"}, "backend must be one of"),
    ],
)
def test_bad_constructor_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        OrderedMemory(**{"input_size": 4, "slot_size": 6, "num_slots": 5, **arguments})


@pytest.mark.parametrize("half", [np.float32(0.5), Fraction(1, 2)], ids=repr)
def test_a_fraction_may_be_any_real_number(half, tmp_path):
    names = ("cell_dropout", "attention_dropout", "occupancy_threshold")
    layer = OrderedMemory(4, 6, 5, **dict.fromkeys(names, half))
    assert "cell_dropout=0.5, attention_dropout=0.5, occupancy_threshold=0.5" in repr(layer)
    torch.save(layer, tmp_path / "f")
    for one in (layer, torch.load(tmp_path / "f", weights_only=True)):
        assert [getattr(one, name) for name in names] == [0.5] * 3
        assert one(torch.randn(3, 2, 4)).output.isfinite().all()


X = torch.zeros(2, 5, 4, dtype=F64)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m(torch.zeros(2, 5, 3, dtype=F64)), "x must have 4 features (input_size), got 3"),
        (lambda m: m(torch.zeros(2, 0, 4, dtype=F64)), "x must have at least one step, got T=0"),
        (lambda m: m(torch.zeros(0, 0, 4, dtype=F64)), "x must have at least one step, got T=0"),
        (lambda m: m(X.float()), "x must have dtype torch.float64, got torch.float32"),
        (lambda m: m(X.to(torch.int64)), "x must have dtype torch.float64, got torch.int64"),
        (lambda m: m(X.to("meta")), "x must be on cpu, got a tensor on meta"),
        (lambda m: m(X, lengths=torch.tensor([5, 1], device="meta")), "on the CPU, got shape (2,), dtype"),
        (lambda m: m(X, lengths=torch.tensor([True, True])), "one integer for each sequence"),
        (lambda m: m(X, lengths=torch.tensor([[5, 1]])), "got shape (1, 2)"),
        (lambda m: m(torch.zeros(4, dtype=F64)), "x must have 2 or 3 axes, got 1"),
        (
            lambda m: m(X, lengths=[5, 0]),
            "lengths must lie in 1..5 (T), got lengths[1] = 0 (0 is allowed with an initial state)",
        ),
        (lambda m: m(X, m(X).state, [5, -1]), "lengths must lie in 0..5 (T), got lengths[1] = -1"),
        (lambda m: m(X, lengths=[6, 5]), "lengths must lie in 1..5 (T), got lengths[0] = 6"),
        (lambda m: m(X, lengths=[5]), "one entry for each of 2 sequences, got 1"),
        (lambda m: m(X, lengths=[5.0, 1.0]), "one integer for each sequence"),
        (lambda m: m(X, lengths=[5, None]), "lengths must be one integer for each sequence, got [5, None]"),
        (lambda m: m(X, lengths="51"), "lengths must be one integer for each sequence, got '51'"),
        (lambda m: m(X[0], lengths=[5]), "lengths must be None for an input without a batch axis"),
        (lambda m: m(PackedSequence(X[0, 0], torch.ones(4, dtype=torch.int64))), "must have 2 axes"),
        (lambda m: m(PackedSequence(X[0], torch.tensor([3, 1]))), "and their sum 5, the number of rows"),
        (lambda m: m(PackedSequence(X[0], torch.tensor([2, 3]))), "must be positive and non-increasing"),
        (lambda m: m(PackedSequence(X[0, :0], torch.tensor([], dtype=torch.int64))), "got []"),
        (lambda m: m(X, num_slots=0), "num_slots must be an integer of at least 1, got 0"),
        (lambda m: m(X, m(X).state, num_slots=6), "state.memory must have shape (2, 6, 6)"),
        (lambda m: m(X, m(X[:1]).state), "state.memory must have shape (2, 5, 6) for these inputs"),
    ],
)
def test_bad_calls_are_named(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call(make())


def test_flags_must_be_flags_and_what_is_set_later_is_checked():
    for name in ("bidirectional", "batch_first"):
        with pytest.raises(TypeError, match=f"{name} must be True or False, got 'no'"):
            make(**{name: "no"})
    layer = make()
    for name in ("recompute_every", "num_slots"):
        with pytest.raises(ValueError, match=f"{name} must be an integer of at least 1, got 0"):
            setattr(layer, name, 0)
        setattr(layer, name, np.int64(7))
        assert type(getattr(layer, name)) is int
    layer.recompute_every = None
    layer(X)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("name", OrderedMemoryState._fields)
def test_a_state_of_another_dtype_or_device_is_refused(name, bidirectional):
    layer = make(bidirectional=bidirectional)
    state = layer(X).state.detach()
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex128):
        bad = state._replace(**{name: getattr(state, name).to(dtype)})
        message = re.escape(f"state.{name} must have dtype torch.float64, got {dtype}")
        with pytest.raises(ValueError, match=message):
            layer(X, bad)
    bad = state._replace(**{name: getattr(state, name).to("meta")})
    with pytest.raises(ValueError, match=f"state.{name} must be on cpu, got a tensor on meta"):
        layer(X, bad)


def test_wrong_type_of_input_is_named():
    with pytest.raises(TypeError, match="x must be a Tensor or a PackedSequence, got list"):
        make()([1, 2, 3])
    nested = torch.nested.nested_tensor([X[:2, 0], X[:3, 0]], layout=torch.jagged)
    with pytest.raises(TypeError, match="x must be padded or packed, got a nested tensor"):
        make()(nested)
    with pytest.raises(TypeError, match=r"x must be a dense tensor, got torch.sparse_coo"):
        make()(X.to_sparse())
    for state, got in (
        ((X, X), "a tuple of 2: Tensor, Tensor"),
        ([], "a list of 0"),
        ((X, X, None), "a tuple of 3: Tensor, Tensor, NoneType"),
        (torch.ones(3), "Tensor"),
        ("abc", "str"),
        (torch.tensor([5, 3]), "Tensor (did you mean lengths=?)"),
        ([5, 3], "a list of 2: int, int (did you mean lengths=?)"),
        ([5, 3, 1], "a list of 3: int, int, int (did you mean lengths=?)"),
    ):
        message = f"state must be three tensors, such as an OrderedMemoryState, or None, got {got}"
        with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
            make()(X, state)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_summary_is_the_output_at_the_last_token_of_each_direction(bidirectional):
    layer = make(bidirectional=bidirectional)
    x = torch.randn(3, 5, 4, dtype=F64)
    out = layer(x, lengths=[5, 2, 3])
    last = out.output[torch.arange(3), torch.tensor([4, 1, 2]), :6]
    expected = torch.stack([last, out.output[:, 0, 6:]]) if bidirectional else last
    assert torch.equal(out.summary, expected)
    assert_close(layer(x[0]).summary, expected[..., 0, :])


@pytest.mark.parametrize("kind", [np.int64, np.uint8, torch.tensor])
def test_sizes_may_be_integers_of_any_type(kind):
    layer = OrderedMemory(kind(4), kind(6), kind(5), recompute_every=kind(2), batch_first=True, dtype=F64)
    assert repr(layer) == repr(make(recompute_every=2))
    assert type(layer.num_slots) is int
    assert layer(X, num_slots=kind(3)).attention.shape == (2, 5, 3)
    layer.num_slots, layer.recompute_every = kind(7), kind(3)
    assert layer(X).attention.shape == (2, 5, 7)
    for bad in (True, np.bool_(True), torch.tensor(True), 5.0):
        with pytest.raises(ValueError, match="num_slots must be an integer of at least 1, got"):
            layer(X, num_slots=bad)
        with pytest.raises(ValueError, match="slot_size must be an integer of at least 1, got"):
            OrderedMemory(4, bad, 5)


@pytest.mark.parametrize("kind", [np.int64, np.uint8, torch.tensor])
@pytest.mark.parametrize("part", [GatedRecursiveCell, TreeRNNCell, NormalizedScore, AdditiveScore])
def test_the_size_of_a_cell_or_score_may_be_an_integer_of_any_type(part, kind):
    module, expected = part(kind(200)), part(200)  # 4 * 200 does not fit into uint8
    assert type(module.slot_size) is int
    for actual, parameter in zip(module.parameters(), expected.parameters(), strict=True):
        assert actual.shape == parameter.shape


@pytest.mark.parametrize("recompute_every", [None, 2])
@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "triton"])
@pytest.mark.parametrize("cell", ["gated", "tree-rnn"])
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
@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "triton"])
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


def test_a_state_that_changes_before_the_backward_pass_gives_no_other_gradients():
    layer = make(recompute_every=2)
    x = torch.randn(2, 5, 4, dtype=F64)
    state = layer(x).state.detach()
    output = layer(x, state).output.square().sum()
    expected = torch.autograd.grad(layer(x, state).output.square().sum(), list(layer.parameters()))
    state.memory.zero_()
    for actual, wanted in zip(torch.autograd.grad(output, list(layer.parameters())), expected, strict=True):
        assert_close(actual, wanted)


@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "triton"])
def test_a_checkpoint_around_a_layer_that_recomputes_gives_its_gradients(backend):
    layer = make(cell_dropout=0.3, attention_dropout=0.2, recompute_every=2, backend=backend)
    x, gradients, outputs = torch.randn(2, 5, 4, dtype=F64, requires_grad=True), [], []
    for run in (
        layer,
        lambda x: checkpoint(lambda x: layer(x).output, x, use_reentrant=True),
        lambda x: checkpoint(lambda x: layer(x).output, x, use_reentrant=False),
    ):
        torch.manual_seed(0)
        found = run(x)
        outputs.append(found if isinstance(found, torch.Tensor) else found.output)
        layer.zero_grad()
        x.grad = None
        outputs[-1].sin().sum().backward()  # what reentrant checkpoints support
        gradients.append([leaf.grad for leaf in (x, *layer.parameters())])
    torch.manual_seed(0)
    with torch.no_grad():
        outputs.append(layer(x).output)
    for other in outputs[1:]:
        assert_close(other, outputs[0])
    for others in gradients[1:]:
        for actual, expected in zip(others, gradients[0], strict=True):
            assert_close(actual, expected)


def test_what_a_subclass_does_in_forward_is_done_once():
    class Doubled(OrderedMemory):
        def forward(self, x):
            return (
                super().forward(2 * x if isinstance(x, torch.Tensor) else x._replace(data=2 * x.data)).output
            )

    plain = OrderedMemory(4, 6, 5, dtype=F64, batch_first=True)
    layer = Doubled(4, 6, 5, dtype=F64, batch_first=True)
    layer.load_state_dict(plain.state_dict())
    x = torch.randn(2, 5, 4, dtype=F64)
    expected = plain(2 * x).output
    assert_close(layer(x), expected)
    assert_close(layer(x[0]), expected[0])
    packed = layer(pack_sequence([x[0], x[1, :3]], enforce_sorted=False))
    assert_close(pad_packed_sequence(packed, batch_first=True)[0][0], expected[0])


def test_a_score_or_cell_that_would_not_be_called_is_refused():
    class Forward(TreeRNNCell):
        def forward(self, memory, candidate):
            return memory + candidate

    class Compose(Forward):
        def compose(self, prepared, memory, candidate, masks):
            return self(memory, candidate)

    layer = make()
    with pytest.raises(TypeError, match=r"cell is the name of the cell .*, got Compose; .*directions\[i\]"):
        layer.cell = Compose(6)
    with pytest.raises(TypeError, match="override compose in Forward"):
        layer.directions[0].cell = Forward(6)
    layer.directions[0].cell = Compose(6, dtype=F64)
    assert layer(X).output.shape == (2, 5, 6)


class Plain(torch.nn.Module):
    """A cell and a score that derives from neither, but has what the layer uses."""

    dropout = 0.0

    def prepare(self, memory, masks):
        return memory

    def compose(self, prepared, memory, candidate, masks):
        return prepared + candidate

    def draw_masks(self, batch_size, num_slots, like):
        return None

    def forward(self, x, candidate, masks=None):
        return (x.unsqueeze(1) * candidate).sum(-1)


def without(name):
    """`Plain` without an attribute, or with a forward that takes no masks."""
    if name == "masks":
        return type("S", (Plain,), {"forward": lambda self, x, candidate: candidate[..., 0]})()
    kept = {key: value for key, value in vars(Plain).items() if key not in (name, "__dict__", "__weakref__")}
    return type("S", (torch.nn.Module,), kept)()


@pytest.mark.parametrize("name", ["prepare", "compose", "draw_masks", "dropout"])
def test_a_cell_that_lacks_something_is_refused_when_it_is_set(name):
    message = (
        "cell must derive from GatedRecursiveCell or TreeRNNCell and override `compose`, got S, which has no "
        f"`{name}`"
    )
    with pytest.raises(TypeError, match=f"^{message}$"):
        make().directions[0].cell = without(name)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("draw_masks", "has no `draw_masks`"),
        ("dropout", "has no `dropout`"),
        ("masks", r"has a `forward` that does not take \(x, candidate, masks\)"),
    ],
)
def test_a_score_that_lacks_something_is_refused_when_it_is_set(name, problem):
    message = "score must derive from NormalizedScore or AdditiveScore and override `features`, got S, which "
    with pytest.raises(TypeError, match=f"^{message}{problem}$"):
        make().directions[0].score = without(name)


def test_a_cell_or_score_of_another_size_is_refused_when_it_is_set():
    direction = make().directions[0]
    with pytest.raises(ValueError, match=r"^cell must have slot_size=6, got slot_size=8$"):
        direction.cell = TreeRNNCell(8)
    with pytest.raises(ValueError, match=r"^score must have slot_size=6, got slot_size=8$"):
        direction.score = NormalizedScore(8)


def test_a_score_and_a_cell_that_have_what_the_layer_uses_run():
    layer = make(cell_dropout=0.5, attention_dropout=0.5)
    layer.directions[0].score, layer.directions[0].cell = Plain(), Plain()
    layer(X).output.sum().backward()
    wrapped = make().requires_grad_(False)
    direction, expected = wrapped.directions[0], wrapped(X).output
    direction.score = torch.compile(direction.score, backend="eager")
    direction.cell = torch.compile(direction.cell, backend="eager")
    assert_close(wrapped(X).output, expected)


def test_a_cached_parametrization_is_computed_once():
    calls = []

    class Counted(torch.nn.Module):
        def forward(self, weight):
            calls.append(weight)
            return weight

    layer = make(recompute_every=2)
    parametrize.register_parametrization(layer.directions[0].cell.output, "weight", Counted())
    calls.clear()
    layer(X)
    assert len(calls) == 5 * 5  # steps and slots
    calls.clear()
    with parametrize.cached():
        layer(X).output.sum().backward()
    assert len(calls) == 1


@pytest.mark.parametrize("part", ["cell", "score"])
@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "triton"])
def test_dropout_follows_the_mode_of_the_module_that_has_it(backend, part):
    """For samples at test time: `layer.eval()`, then `train()` of the cell or the score."""
    layer = make(cell_dropout=0.5, attention_dropout=0.5, backend=backend).eval()
    x = torch.randn(2, 5, 4, dtype=F64)
    plain = layer(x)
    getattr(layer.directions[0], part).train()
    assert not torch.allclose(layer(x).output, layer(x).output)
    other = "attention_dropout" if part == "cell" else "cell_dropout"
    setattr(layer, other, 0.0)
    torch.manual_seed(1)
    expected = layer(x)
    setattr(layer, other, 0.5)
    torch.manual_seed(1)
    assert_same(layer(x), expected)
    layer.train()
    for module in (layer.directions[0].cell, layer.directions[0].score):
        module.eval()
    assert_same(layer(x), plain)


def test_reset_parameters_passes_over_modules_without_parameters():
    layer = make(backend="reference")
    layer.directions[0].norm = torch.nn.Sequential(torch.nn.GELU(), torch.nn.LayerNorm(6, dtype=F64))
    layer.directions[0].score.key = torch.nn.Sequential(torch.nn.Linear(6, 6, dtype=F64), torch.nn.Tanh())
    before = layer.directions[0].score.key[0].weight.clone()
    layer.reset_parameters()
    assert not torch.equal(layer.directions[0].score.key[0].weight, before)


@pytest.mark.parametrize("lengths", [(5, 1), np.array([5, 1], dtype=np.uint8), torch.tensor([5, 1]).int()])
def test_lengths_may_be_any_integers_on_the_host(lengths):
    layer = make()
    assert torch.equal(layer(X, lengths=lengths).output, layer(X, lengths=[5, 1]).output)


@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "triton"])
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


@pytest.mark.parametrize("score", ["additive", "normalized"])
@pytest.mark.parametrize("cell", ["gated", "tree-rnn"])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_reset_parameters_draws_what_construction_draws(score, cell, dtype):
    torch.manual_seed(3)
    layer = make(score=score, cell=cell, bidirectional=True, dtype=dtype)
    expected = copy.deepcopy(layer.state_dict())
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    torch.manual_seed(3)
    layer.reset_parameters()
    for name, value in layer.state_dict().items():
        assert torch.equal(value, expected[name]), name


def test_a_layer_made_on_meta_is_filled_in_place():
    layer = make(device="meta").to_empty(device="cpu")
    layer.reset_parameters()
    assert layer(X).output.isfinite().all()


@pytest.mark.parametrize("score", ["additive", "normalized"])
@pytest.mark.parametrize("cell", ["gated", "tree-rnn"])
def test_a_whole_layer_its_output_and_its_state_come_back_from_a_file(tmp_path, score, cell):
    layer = make(score=score, cell=cell, bidirectional=True)
    with torch.no_grad():
        out = layer(X)
    torch.save((layer, out), tmp_path / "f")
    again, read = torch.load(tmp_path / "f", weights_only=True)
    assert torch.equal(again(X, read.state).output, layer(X, out.state).output)
    assert torch.equal(read.output, out.output)


def test_the_parts_of_an_empty_memory_are_separate():
    state = initial_state(2, 3, torch.zeros(4))
    state.memory[0] = 1
    assert not state.candidate.any()


def test_state_is_a_plain_named_tuple():
    state = make()(X).state
    assert isinstance(state, OrderedMemoryState)
    assert state._fields == ("memory", "candidate", "occupancy")


def test_nothing_that_it_makes_follows_the_default_device():
    layer = make(bidirectional=True, backend="reference")
    x = torch.randn(2, 5, 4, dtype=F64)
    for lengths in (None, [5, 2]):
        expected = layer(x, lengths=lengths)
        with torch.device("meta"):
            actual = layer(x, lengths=lengths)
        assert torch.equal(actual.output, expected.output)


def test_a_layer_on_meta_computes_shapes():
    layer = make(bidirectional=True, backend="reference", device="meta")
    out = layer(X.to("meta"), lengths=[5, 2])
    assert out.output.is_meta
    assert out.output.shape == (2, 5, 12)
    assert out.state.memory.shape == (2, 2, 5, 6)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_state_with_a_batch_axis_is_refused_where_the_input_has_none(bidirectional):
    layer = OrderedMemory(3, 4, 3, bidirectional=bidirectional)
    x = torch.zeros(5, 3)
    state = layer(x.unsqueeze(1)).state
    shape = r"\(2, 3, 4\)" if bidirectional else r"\(3, 4\)"
    with pytest.raises(ValueError, match=rf"state\.memory must have shape {shape} for these inputs"):
        layer(x, state)
    assert layer(x, layer(x).state).output.shape == (5, 8 if bidirectional else 4)


def test_the_name_of_the_score_is_fixed():
    layer = OrderedMemory(3, 4, 3)
    layer.score = "normalized"
    with pytest.raises(
        TypeError, match="score is the name of the score that the layer was built with, got 'add"
    ):
        layer.score = "additive"


@pytest.mark.parametrize("lengths", [None, [6, 4, 2], [6, 6, 6]])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "triton"])
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


def test_a_packed_sequence_without_tokens_at_a_step_is_refused():
    packed = PackedSequence(torch.randn(3, 4, dtype=F64), torch.tensor([2, 1, 0]))
    with pytest.raises(ValueError, match=r"batch_sizes of x must be positive and non-increasing"):
        make()(packed)


def test_a_packed_sequence_with_indices_of_another_batch_is_refused():
    packed = PackedSequence(torch.randn(4, 4, dtype=F64), torch.tensor([3, 1]), *[torch.tensor([1, 0])] * 2)
    with pytest.raises(ValueError, match=r"the sorted_indices of x must have shape \(3,\), .*, got \(2,\)"):
        make()(packed)


def test_the_given_state_may_be_changed_in_place_before_steps_are_recomputed():
    layer, x = make(recompute_every=2), torch.randn(3, 6, 4, dtype=F64)
    given = make()(x).state
    wanted = list(layer.parameters())
    expected = torch.autograd.grad(layer(x, state=given).output.sum(), wanted)
    state = OrderedMemoryState(*(tensor.detach().clone() for tensor in given))
    output = layer(x, state=state).output
    for tensor in state:
        tensor.zero_()
    for actual, wanted_gradient in zip(torch.autograd.grad(output.sum(), wanted), expected, strict=True):
        assert_close(actual, wanted_gradient)


@pytest.mark.parametrize("backend", ["auto", "sequence", "reference"])
def test_steps_are_computed_again_with_the_weights_of_a_functional_call(backend):
    layer, x = make(backend=backend, bidirectional=True), torch.randn(3, 6, 4, dtype=F64)
    others = {name: (1.5 * weight).detach().requires_grad_() for name, weight in layer.named_parameters()}
    found = []
    for layer.recompute_every in (None, 2):
        output = torch.func.functional_call(layer, others, (x,)).output
        found.append(torch.autograd.grad(output.sin().sum(), list(others.values())))
    for actual, expected in zip(*found, strict=True):
        assert_close(actual, expected)


@pytest.mark.parametrize("backend", ["auto", "sequence", "reference"])
@pytest.mark.parametrize(
    "change", [torch.nn.Module.eval, lambda layer: setattr(layer, "cell_dropout", 0.1), lambda layer: None]
)
def test_steps_are_computed_again_with_the_dropout_of_the_forward_pass(backend, change):
    gradients = []
    for between in (lambda layer: None, change):
        torch.manual_seed(0)
        layer = make(backend=backend, cell_dropout=0.5, attention_dropout=0.3, recompute_every=2)
        output = layer(torch.randn(3, 6, 4, dtype=F64)).output
        between(layer)
        gradients.append(torch.autograd.grad(output.sin().sum(), list(layer.parameters())))
    for actual, expected in zip(*gradients, strict=True):
        assert_close(actual, expected)


@pytest.mark.parametrize("every", [None, 2])
@pytest.mark.parametrize("backend", ["auto", "sequence", "reference"])
def test_a_weight_that_changes_in_place_before_the_backward_pass_is_an_error(backend, every):
    layer = make(backend=backend, recompute_every=every)
    output = layer(torch.randn(3, 6, 4, dtype=F64)).output
    with torch.no_grad():
        layer.directions[0].cell.output.weight.mul_(1.5)
    with pytest.raises(RuntimeError, match=r"inplace|the weight cell\.output\.weight was changed in place"):
        output.sum().backward()


def test_what_a_custom_cell_counts_in_its_forward_pass_is_kept():
    class Counting(GatedRecursiveCell):
        calls = 0

        def compose(self, *arguments):
            self.calls += 1
            return super().compose(*arguments)

    layer = make(recompute_every=2)
    layer.directions[0].cell = Counting(6, dtype=F64)
    output = layer(torch.randn(3, 6, 4, dtype=F64)).output
    calls = layer.directions[0].cell.calls
    output.sum().backward()
    assert calls == layer.directions[0].cell.calls > 0


@pytest.mark.parametrize("counts_in_a_buffer", [False, True])
@pytest.mark.parametrize("backward_passes", [1, 2])
def test_a_cell_that_changes_when_it_is_called_is_computed_again_as_it_was(
    backward_passes, counts_in_a_buffer
):
    class Locked(GatedRecursiveCell):
        """Draws a mask at the first step; counts the steps."""

        def __init__(self):
            super().__init__(6, dtype=F64)
            self.mask = None
            if counts_in_a_buffer:
                self.register_buffer("steps", torch.zeros((), dtype=F64))
            else:
                self.steps = 0

        def compose(self, prepared, memory, candidate, masks):
            if self.mask is None:
                self.mask = (torch.rand(candidate.shape[-1]) > 0.4).to(candidate)
            self.steps = self.steps + 1
            return super().compose(prepared, memory, candidate * self.mask / self.steps, masks)

    found = []
    for every in (None, 2):
        torch.manual_seed(0)
        layer = make(recompute_every=every)
        layer.directions[0].cell = Locked()
        output = layer(torch.randn(3, 6, 4, dtype=F64)).output.sin().sum()
        for _ in range(backward_passes):
            gradients = torch.autograd.grad(output, list(layer.parameters()), retain_graph=True)
        found.append(gradients)
    for actual, expected in zip(*found, strict=True):
        assert_close(actual, expected)


def test_steps_with_dropout_need_no_gradients():
    with torch.inference_mode():
        layer = make(recompute_every=2, cell_dropout=0.2)
        assert layer(torch.randn(3, 6, 4, dtype=F64)).output.isfinite().all()
    with torch.no_grad():
        assert layer(torch.randn(3, 6, 4, dtype=F64)).output.isfinite().all()


def test_a_hook_is_called_with_the_module_itself_when_steps_are_computed_again():
    layer = make(recompute_every=2)
    names = {module: name for name, module in layer.named_modules()}
    called = []
    linear = layer.directions[0].cell.output
    linear.register_forward_hook(lambda module, inputs, output: called.append(names[module]))
    layer(torch.randn(3, 6, 4, dtype=F64)).output.sum().backward()
    assert set(called) == {"directions.0.cell.output"}


def test_a_frozen_weight_that_changes_in_place_before_steps_are_computed_again_is_an_error():
    layer = make(recompute_every=2)
    linear = layer.directions[0].cell.output.requires_grad_(False)
    output = layer(torch.randn(3, 6, 4, dtype=F64)).output
    linear.weight.mul_(2)
    with pytest.raises(RuntimeError, match=r"the weight cell\.output\.weight was changed in place"):
        output.sum().backward()


@pytest.fixture
def mesh():
    """A process group of one process."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.device_mesh.init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


@pytest.mark.parametrize(
    "pick",
    [
        lambda layer: [],
        pytest.param(lambda layer: [layer.directions[0].cell.output], marks=SHARDED_PARTS_AGAIN),
    ],
)
def test_fsdp_of_a_layer_that_computes_steps_again(mesh, pick):
    # FSDP warns of outputs that are views, as they are with batch_first.
    layer, plain = make(recompute_every=2, batch_first=False), make(batch_first=False)
    plain.load_state_dict(layer.state_dict())
    for module in (*pick(layer), layer):
        fully_shard(module, mesh=mesh, reshard_after_forward=True)
    x = torch.randn(6, 3, 4, dtype=F64)
    for one in (layer, plain):
        one(x).output.sin().sum().backward()
    for sharded, whole in zip(layer.parameters(), plain.parameters(), strict=True):
        assert_close(sharded.grad.full_tensor(), whole.grad)


def offload(module, by_hook):
    """Keep the weights of a module elsewhere, and bring them back for each call only."""
    weights, run = dict(module._parameters), module.forward

    def bring(*_):
        module._parameters.update(weights)

    def remove(*_):
        for name, weight in weights.items():
            module._parameters[name] = None if weight is None else nn.Parameter(weight.to("meta"))

    def forward(*arguments):
        bring()
        output = run(*arguments)
        remove()
        return output

    remove()
    if by_hook:
        module.register_forward_pre_hook(bring)
        module.register_forward_hook(remove)
    else:  # as accelerate does
        module.forward = forward


@pytest.mark.parametrize("by_hook", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_weights_may_be_elsewhere_between_calls(by_hook, bidirectional):
    layer = OrderedMemory(5, 8, 4, bidirectional=bidirectional)
    x, lengths = torch.randn(6, 3, 5), [6, 2, 4]
    with torch.no_grad():
        expected = layer(x, lengths=lengths)
        for module in layer.modules():
            if module._parameters:
                offload(module, by_hook)
        assert {parameter.device.type for parameter in layer.parameters()} == {"meta"}
        actual = layer(x, lengths=lengths)
    assert_close(actual.output, expected.output)
    assert_close(actual.state.memory, expected.state.memory)
