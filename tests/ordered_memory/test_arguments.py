"""Arguments of the layer: which are taken, and which are refused and how."""

import re
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import PackedSequence

from ordered_memory import (
    AdditiveScore,
    GatedRecursiveCell,
    NormalizedScore,
    OrderedMemory,
    OrderedMemoryState,
    TreeRNNCell,
)
from tests.small_memory import F64, X, make


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
        (lambda m: m(torch.zeros(4, dtype=F64)), "x must have 2 or 3 axes, got 1"),
        (
            lambda m: m(X, lengths=[5, 0]),
            "lengths must lie in 1..5 (T), got lengths[1] = 0 (0 is allowed with an initial state)",
        ),
        (lambda m: m(X, m(X).state, [5, -1]), "lengths must lie in 0..5 (T), got lengths[1] = -1"),
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


@pytest.mark.parametrize("name", ["bidirectional", "batch_first"])
def test_flags_must_be_flags(name):
    with pytest.raises(TypeError, match=f"{name} must be True or False, got 'no'"):
        make(**{name: "no"})


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


@pytest.mark.parametrize("kind", [np.int64, np.uint8, torch.tensor])
def test_sizes_may_be_integers_of_any_type(kind):
    layer = OrderedMemory(kind(4), kind(6), kind(5), recompute_every=kind(2), batch_first=True, dtype=F64)
    assert repr(layer) == repr(make(recompute_every=2))
    assert type(layer.num_slots) is int
    assert layer(X, num_slots=kind(3)).attention.shape == (2, 5, 3)
    layer.num_slots, layer.recompute_every = kind(7), kind(3)
    assert layer(X).attention.shape == (2, 5, 7)
    for bad in (True, np.bool_(True), torch.tensor(True), 5.0):
        expected = f"must be an integer of at least 1, got {re.escape(repr(bad))}$"
        with pytest.raises(ValueError, match=f"num_slots {expected}"):
            layer(X, num_slots=bad)
        with pytest.raises(ValueError, match=f"slot_size {expected}"):
            OrderedMemory(4, bad, 5)


@pytest.mark.parametrize("kind", [np.int64, np.uint8, torch.tensor])
@pytest.mark.parametrize("part", [GatedRecursiveCell, TreeRNNCell, NormalizedScore, AdditiveScore])
def test_the_size_of_a_cell_or_score_may_be_an_integer_of_any_type(part, kind):
    module, expected = part(kind(200)), part(200)  # 4 * 200 does not fit into uint8
    assert type(module.slot_size) is int
    for actual, parameter in zip(module.parameters(), expected.parameters(), strict=True):
        assert actual.shape == parameter.shape


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


def test_a_packed_sequence_without_tokens_at_a_step_is_refused():
    packed = PackedSequence(torch.randn(3, 4, dtype=F64), torch.tensor([2, 1, 0]))
    with pytest.raises(ValueError, match=r"batch_sizes of x must be positive and non-increasing"):
        make()(packed)


def test_a_packed_sequence_with_indices_of_another_batch_is_refused():
    packed = PackedSequence(torch.randn(4, 4, dtype=F64), torch.tensor([3, 1]), *[torch.tensor([1, 0])] * 2)
    with pytest.raises(ValueError, match=r"the sorted_indices of x must have shape \(3,\), .*, got \(2,\)"):
        make()(packed)
