"""The dropout of ONLSTM: between its layers, and of its recurrent weights."""

import torch
from torch import nn

from onlstm import ONLSTM
from tests.tolerances import assert_close


def test_dropout_acts_between_layers_only():
    layer = ONLSTM(5, 6, 2, dropout=1.0)
    x = torch.randn(4, 3, 5)
    output, (h_n, _) = layer(x)
    without = ONLSTM(6, 6)
    without.load_state_dict(
        {name.replace("_l1", "_l0"): value for name, value in layer.state_dict().items() if "_l1" in name}
    )
    assert_close(output, without(torch.zeros(4, 3, 6))[0])
    assert h_n[0].abs().sum() > 0


def test_weight_dropout_drops_recurrent_weights_for_the_whole_call():
    layer = ONLSTM(5, 6, chunk_size=2, weight_dropout=0.5)
    x = torch.randn(4, 3, 5)
    layer.eval()
    assert torch.equal(layer(x)[0], layer(x)[0])
    layer.train()
    assert not torch.equal(layer(x)[0], layer(x)[0])
    torch.manual_seed(1)
    dropped, _ = layer(x)
    torch.manual_seed(1)
    mask = nn.functional.dropout(torch.ones_like(layer.weight_hh_l0), 0.5)
    with torch.no_grad():
        layer.weight_hh_l0 *= mask
    assert_close(layer.eval()(x)[0], dropped)
    all_gone = ONLSTM(5, 6, weight_dropout=1.0)
    x = torch.randn(2, 1, 5)
    other = torch.stack([torch.zeros(1, 5), x[1]])
    assert not torch.equal(all_gone(x)[0][1], all_gone(other)[0][1])  # through c alone


def test_a_mask_of_recurrent_weights_is_drawn_for_each_layer_direction_and_call():
    """With the same weights and state in all of them, one step differs by the masks alone."""
    layer = ONLSTM(6, 6, 2, bidirectional=True, chunk_size=2, weight_dropout=0.5)
    recurrent = layer.weight_hh_l0.detach().clone()
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            parameter.copy_(recurrent) if "weight_hh" in name else parameter.zero_()
    state = tuple(torch.randn(2, 1, 1, 6).expand(-1, 4, -1, -1))
    x = torch.randn(1, 1, 6)
    assert len(layer.eval()(x, state)[1][1].unique(dim=0)) == 1
    layer.train()
    assert len(torch.cat([layer(x, state)[1][1] for _ in range(2)]).unique(dim=0)) == 8
