"""ONLSTMCell beside the layer and nn.LSTMCell."""

import pytest
import torch
from torch import nn

from onlstm import ONLSTM, ONLSTMCell
from tests.tolerances import assert_close


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


@pytest.mark.parametrize("options", [{}, {"bias": False, "chunk_size": 2}])
def test_repr_of_a_cell_is_the_call_that_made_it(options):
    cell = ONLSTMCell(5, 6, **options)
    again = eval(repr(cell))
    for name in ("input_size", "hidden_size", "bias", "chunk_size"):
        assert getattr(again, name) == getattr(cell, name)


def test_a_whole_cell_comes_back_from_a_file(tmp_path):
    cell = ONLSTMCell(3, 4, chunk_size=2)
    torch.save(cell, tmp_path / "cell.pt")
    x = torch.randn(2, 3)
    torch.testing.assert_close(torch.load(tmp_path / "cell.pt", weights_only=True)(x), cell(x))
