"""Weights of the layer: initial values, files, and weights that are kept elsewhere."""

import copy

import pytest
import torch
from torch import nn

from ordered_memory import OrderedMemory
from tests.small_memory import BOTH_CELLS, BOTH_SCORES, F64, X, make
from tests.tolerances import assert_close


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


@BOTH_SCORES
@BOTH_CELLS
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


@BOTH_SCORES
@BOTH_CELLS
def test_a_whole_layer_its_output_and_its_state_come_back_from_a_file(tmp_path, score, cell):
    layer = make(score=score, cell=cell, bidirectional=True)
    with torch.no_grad():
        out = layer(X)
    torch.save((layer, out), tmp_path / "f")
    again, read = torch.load(tmp_path / "f", weights_only=True)
    assert torch.equal(again(X, read.state).output, layer(X, out.state).output)
    assert torch.equal(read.output, out.output)


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
