"""Setting an attribute of a layer works like the argument of its constructor, or is refused."""

import copy
from functools import partial

import numpy as np
import pytest
import torch

from onlstm import ONLSTM, ONLSTMCell
from ordered_memory import OrderedMemory

MEMORY = partial(OrderedMemory, input_size=3, slot_size=4, num_slots=3)
LSTM = partial(ONLSTM, input_size=3, hidden_size=4, chunk_size=2)
CELL = partial(ONLSTMCell, input_size=3, hidden_size=4, chunk_size=2)
CHANGEABLE = [
    (MEMORY, "num_slots", 5),
    (MEMORY, "batch_first", True),
    (partial(MEMORY, bidirectional=True), "cell_dropout", 0.5),
    (partial(MEMORY, bidirectional=True), "attention_dropout", 0.5),
    (partial(MEMORY, bidirectional=True), "occupancy_threshold", 0.9),
    (MEMORY, "recompute_every", 2),
    (MEMORY, "backend", "reference"),
    (partial(LSTM, num_layers=2), "dropout", 0.5),
    (LSTM, "batch_first", True),
    (LSTM, "weight_dropout", 0.5),
    (LSTM, "backend", "reference"),
]
FIXED = [
    (
        MEMORY,
        {"input_size": 5, "slot_size": 8, "score": "additive", "cell": "tree-rnn", "bidirectional": True},
    ),
    (
        LSTM,
        {
            "input_size": 5,
            "hidden_size": 8,
            "num_layers": 2,
            "bias": False,
            "bidirectional": True,
            "proj_size": 2,
            "chunk_size": 1,
        },
    ),
    (CELL, {"input_size": 5, "hidden_size": 8, "bias": False, "chunk_size": 1}),
]


def outputs(layer):
    torch.manual_seed(0)
    return layer(torch.randn(6, 5, 3))[0]


@pytest.mark.parametrize(("make", "name", "value"), CHANGEABLE)
def test_what_may_be_changed_works_as_if_it_were_constructed_so(make, name, value):
    layer, expected = make(), make(**{name: value})
    expected.load_state_dict(layer.state_dict())
    before = outputs(layer)
    setattr(layer, name, value)
    assert getattr(layer, name) == value
    assert repr(layer) == repr(expected)
    assert torch.equal(outputs(layer), outputs(expected))
    if name not in ("backend", "recompute_every"):  # it acts, and in both directions
        halves = (tensor.chunk(2 if layer.bidirectional else 1, -1) for tensor in (outputs(layer), before))
        assert not any(map(torch.equal, *halves))


@pytest.mark.parametrize(
    ("make", "name", "value"), [(make, *item) for make, values in FIXED for item in values.items()]
)
def test_what_may_not_be_changed_is_refused_and_stays(make, name, value):
    layer = make()
    before = getattr(layer, name)
    setattr(layer, name, before)
    with pytest.raises(TypeError, match=rf"^{name} .* got {value!r}"):
        setattr(layer, name, value)
    assert getattr(layer, name) == before
    assert getattr(copy.deepcopy(layer), name) == before


FRACTION = r"must lie in \[0, 1\], got"
COUNT = "must be an integer of at least 1, got"


@pytest.mark.parametrize(
    ("make", "name", "value", "message"),
    [
        (MEMORY, "batch_first", "yes", "must be True or False, got"),
        (LSTM, "batch_first", "yes", "must be True or False, got"),
        *(
            (MEMORY, name, 2, FRACTION)
            for name in ("cell_dropout", "attention_dropout", "occupancy_threshold")
        ),
        *((MEMORY, name, 0, COUNT) for name in ("num_slots", "recompute_every")),
        (LSTM, "dropout", 2, FRACTION),
        (LSTM, "dropout", "a", FRACTION),
        (LSTM, "weight_dropout", 1.5, FRACTION),
    ],
)
def test_a_bad_value_is_refused_when_it_is_set_later_too(make, name, value, message):
    layer = make()
    before = getattr(layer, name)
    with pytest.raises((TypeError, ValueError), match=f"^{name} {message} {value!r}"):
        setattr(layer, name, value)
    assert getattr(layer, name) == before


@pytest.mark.parametrize("name", ["num_slots", "recompute_every"])
def test_a_number_that_is_set_later_may_be_of_numpy_and_becomes_an_int(name):
    layer = MEMORY()
    setattr(layer, name, np.int64(7))
    assert type(getattr(layer, name)) is int


def test_recomputation_can_be_switched_off_again():
    layer, plain = MEMORY(recompute_every=2), MEMORY()
    plain.load_state_dict(layer.state_dict())
    layer.recompute_every = None
    assert repr(layer) == repr(plain)
    assert torch.equal(outputs(layer), outputs(plain))
