"""Setting an attribute of a layer works like the argument of its constructor, or is refused."""

import copy
from functools import partial

import pytest
import torch

from onlstm import ONLSTM, ONLSTMCell
from ordered_memory import OrderedMemory

MEMORY = partial(OrderedMemory, input_size=3, slot_size=4, num_slots=2)
LSTM = partial(ONLSTM, input_size=3, hidden_size=4, chunk_size=2)
CELL = partial(ONLSTMCell, input_size=3, hidden_size=4, chunk_size=2)
CHANGEABLE = [
    (MEMORY, "num_slots", 5),
    (MEMORY, "batch_first", True),
    (MEMORY, "cell_dropout", 0.5),
    (MEMORY, "attention_dropout", 0.5),
    (MEMORY, "occupancy_threshold", 0.5),
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
    setattr(layer, name, value)
    assert getattr(layer, name) == value
    assert repr(layer) == repr(expected)
    assert torch.equal(outputs(layer), outputs(expected))


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


@pytest.mark.parametrize("make", [MEMORY, LSTM])
def test_the_layout_is_a_bool_when_it_is_set_later_too(make):
    layer = make()
    with pytest.raises(TypeError, match="batch_first must be True or False, got 'yes'"):
        layer.batch_first = "yes"
    assert layer.batch_first is False
