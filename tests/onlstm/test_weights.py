"""Weights of ONLSTM and ONLSTMCell: initial values, the forget bias, and weights put in their place."""

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune
from torch.nn.utils.rnn import pack_padded_sequence

from onlstm import ONLSTM, ONLSTMCell
from ordered_memory.backends.registry import BackendError
from tests.equality import NEEDS_NATIVE
from tests.tolerances import assert_close
from tests.wrapped_weights import wrap_weight


@pytest.mark.parametrize("kind", [partial(ONLSTM, num_layers=2, bidirectional=True), ONLSTMCell])
def test_initial_parameters_are_uniform_within_one_over_the_root_of_h(kind):
    """As those of nn.LSTM and nn.LSTMCell."""
    module, bound = kind(30, 100, chunk_size=10), 0.1
    for _ in range(2):
        for name, parameter in module.named_parameters():
            assert 0.95 * bound < parameter.abs().max() <= bound, name
            assert parameter.std().item() == pytest.approx(bound / 3**0.5, rel=0.1), name
            nn.init.zeros_(parameter)
        module.reset_parameters()


def test_a_parametrized_weight_is_computed_once_a_call():
    calls = []

    class Counted(nn.Module):
        def forward(self, weight):
            calls.append(weight)
            return weight

    for module, name, input in (
        (ONLSTM(5, 6), "weight_ih_l0", torch.randn(4, 3, 5)),
        (ONLSTMCell(5, 6), "weight_ih", torch.randn(3, 5)),
    ):
        parametrize.register_parametrization(module, name, Counted())
        calls.clear()
        module(input)
        assert len(calls) == 1


@pytest.mark.parametrize("make", [partial(ONLSTM, num_layers=2, bidirectional=True), ONLSTMCell])
def test_the_forget_bias_reaches_the_forget_gate_of_every_layer_and_nothing_else(make):
    module = make(5, 6, chunk_size=2)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    module.set_forget_bias(1.5)
    after = module.state_dict()
    for name, value in after.items():
        if name.startswith("bias_ih"):
            total = value + after[name.replace("_ih", "_hh")]
            assert (total[6:12] == 1.5).all()
        rows = [row for row in range(len(value)) if not (name.startswith("bias") and 6 <= row < 12)]
        assert torch.equal(value[rows], before[name][rows]), name
    for value in ("a", None, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"^value must be a finite number, got {value!r}"):
            module.set_forget_bias(value)
    with pytest.raises(ValueError, match="bias=False"):
        make(5, 6, bias=False).set_forget_bias(1.0)
    module = make(5, 6)
    name = next(name for name, _ in module.named_parameters() if name.startswith("bias_hh"))
    parametrize.register_parametrization(module, name, nn.Identity())
    with pytest.raises(ValueError, match=f"{name} is parametrized"):
        module.set_forget_bias(1.0)
    module = make(5, 6)
    prune.random_unstructured(module, name, 0.5)
    with pytest.raises(ValueError, match=f"{name}_orig is what a bias is computed from"):
        module.set_forget_bias(1.0)


@pytest.mark.parametrize("make", [partial(ONLSTM, num_layers=2), ONLSTMCell])
def test_reset_parameters_draws_what_construction_draws(make):
    torch.manual_seed(3)
    module = make(5, 6)
    expected = copy.deepcopy(module.state_dict())
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    torch.manual_seed(3)
    module.reset_parameters()
    assert all(torch.equal(value, expected[name]) for name, value in module.state_dict().items())


def test_a_replica_without_registered_parameters_runs():
    layer, x = ONLSTM(5, 6, 2, bidirectional=True), torch.randn(4, 3, 5)
    replica = layer._replicate_for_data_parallel()
    for name, parameter in layer.named_parameters():
        setattr(replica, name, parameter.clone())  # what nn.parallel.replicate does
    assert torch.equal(replica(x)[0], layer(x)[0])


def test_a_weight_that_was_removed_is_named():
    layer, x = ONLSTM(5, 6), torch.randn(2, 3, 5)
    del layer.weight_hh_l0
    for sequences in (x, pack_padded_sequence(x, [2, 2, 1])):
        with pytest.raises(AttributeError, match="no attribute 'weight_hh_l0'"):
            layer(sequences)


class Halved(nn.Module):
    def forward(self, weight):
        return weight / 2


def halved(layer):
    parametrize.register_parametrization(layer, "weight_hh_l0", Halved())
    return layer


def weight_normed(layer):
    parametrizations.weight_norm(layer, "weight_hh_l0")
    with torch.no_grad():
        layer.parametrizations.weight_hh_l0.original0.mul_(2)
    return layer


def hooked(layer):
    layer.register_forward_pre_hook(lambda module, inputs: (2 * inputs[0],))
    return layer


def doubled_output(layer):
    layer.register_forward_hook(lambda module, inputs, result: (2 * result[0], result[1]))
    return layer


@NEEDS_NATIVE
@pytest.mark.parametrize("change", [halved, weight_normed, hooked, doubled_output], ids=lambda c: c.__name__)
def test_hooks_and_parametrizations_act(change):
    layer, plain, unchanged = (
        ONLSTM(3, 6, chunk_size=2, backend=name) for name in ("native", "reference", "native")
    )
    for other in (plain, unchanged):
        other.load_state_dict(layer.state_dict())
    x = torch.randn(5, 2, 3)
    outcomes = []
    for one in (change(layer), change(plain)):
        output = one(x)[0]
        outcomes.append([output, *torch.autograd.grad(output.sin().sum(), list(one.parameters()))])
    for one, other in zip(*outcomes, strict=True):
        assert_close(one, other)
    assert not torch.equal(outcomes[0][0], unchanged(x)[0])


@NEEDS_NATIVE
@pytest.mark.parametrize("name", ["weight_ih_l0", "weight_hh_l0", "bias_hh_l0"])
def test_a_weight_may_wrap_another_tensor(name):
    layer, x = ONLSTM(3, 6, chunk_size=2), torch.randn(5, 2, 3)
    with torch.no_grad():
        expected = layer(x)[0]
        wrap_weight(layer, name)
        assert_close(layer(x)[0], expected)
        layer.backend = "native"
        if name.startswith("weight"):  # the sum of both biases is a plain tensor
            with pytest.raises(BackendError, match="it needs weights that are plain tensors, got Halved"):
                layer(x)
