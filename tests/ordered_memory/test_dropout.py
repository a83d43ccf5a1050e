"""The dropout of the layer."""

import pytest
import torch

from tests.small_memory import EACH_BACKEND, F64, assert_same, make


@pytest.mark.parametrize("part", ["cell", "score"])
@EACH_BACKEND
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
