"""Layers with random weights, and all that they compute: for compilers, tracers, transforms and hooks."""

import pytest
import torch
from torch import nn
from torch.nn.utils import rnn

from ordered_memory import OrderedMemory
from tests.small_memory import F64
from tests.tolerances import assert_close

LENGTHS = torch.tensor([6, 2, 3, 1, 5])
# What PyTorch's own tracing says about itself.
QUIET = pytest.mark.filterwarnings(
    r"ignore:`torch\.jit\.\w+` is deprecated:DeprecationWarning",
    "ignore::torch.jit.TracerWarning",
    r"ignore:The \.grad attribute of a Tensor that is not a leaf Tensor is being accessed:UserWarning",
)


def make(backend="auto", num_slots=4, **arguments):
    """A layer; the third token is the first one that has more than one slot to attend to."""
    layer = OrderedMemory(3, 8, num_slots, backend=backend, dtype=F64, **arguments)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    return layer


def tokens(*shape, dtype=F64):
    return torch.randn(*(shape or (6, 5, 3)), dtype=dtype, requires_grad=True)


def results_and_gradients(function, layer, x, **arguments):
    out = function(x, **arguments)
    output = out.output.data if isinstance(out.output, rnn.PackedSequence) else out.output
    results = [output, out.attention, *out.state]
    loss = sum(((i + 1) * tensor).sin().sum() for i, tensor in enumerate(results))
    leaf = x.data if isinstance(x, rnn.PackedSequence) else x
    wanted = [leaf, *layer.parameters()]
    return [*results, *torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)]


def assert_all_close(actual, expected):
    for one, other in zip(actual, expected, strict=True):
        assert_close(one, other)


def carried_state(layer):
    return layer(torch.randn(3, 5, 3, dtype=F64)).state.detach()
