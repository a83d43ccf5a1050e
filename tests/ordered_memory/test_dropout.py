"""The dropout of the layer."""

import re

import pytest
import torch

from ordered_memory.backends import BACKENDS
from tests.small_memory import F64, assert_same, make


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
