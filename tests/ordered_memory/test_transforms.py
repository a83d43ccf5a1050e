"""Layers under `torch.func`, forward mode and batches of gradients: the definition, or an error."""

import pytest
import torch
from torch.autograd import forward_ad

from ordered_memory import OrderedMemoryState
from ordered_memory.backends.registry import BackendError
from tests.random_layers import QUIET, make, tokens
from tests.small_memory import F64, NEEDS_NATIVE
from tests.tolerances import assert_close

pytestmark = [NEEDS_NATIVE, pytest.mark.usefixtures("nothing_compiled")]


@QUIET
@pytest.mark.parametrize("backend", ["auto", "native"])
@pytest.mark.parametrize("transform", ["vmap", "grad", "forward mode", "forward mode of the state"])
def test_transforms_take_the_definition_or_are_refused(backend, transform):
    layer, definition = make(backend), make("reference")
    definition.load_state_dict(layer.state_dict())
    x = torch.randn(2, 6, 5, 3, dtype=F64)
    start = OrderedMemoryState(*(tensor.detach() for tensor in definition(x[0]).state))

    def run(layer):
        if transform == "vmap":
            return torch.func.vmap(lambda x: layer(x).output)(x)
        if transform == "grad":
            return torch.func.grad(lambda x: layer(x).output.sin().sum())(x[0])
        with forward_ad.dual_level():
            if transform == "forward mode":
                output = layer(forward_ad.make_dual(x[0], x[1])).output
            else:
                memory = forward_ad.make_dual(start.memory, torch.ones_like(start.memory))
                output = layer(x[0], start._replace(memory=memory)).output
            return forward_ad.unpack_dual(output).tangent

    if backend == "auto":
        assert_close(run(layer), run(definition))
    else:
        with pytest.raises(BackendError, match="backend='reference'"):
            run(layer)


@QUIET
@pytest.mark.parametrize("transform", ["vmap", "grad"])
def test_a_compiled_transform_takes_the_definition(transform):
    layer, x = make(num_slots=2), torch.randn(2, 3, 2, 3, dtype=F64)

    def run(x):
        if transform == "vmap":
            return torch.func.vmap(lambda x: layer(x).output)(x)
        return torch.func.grad(lambda x: layer(x).output.sin().sum())(x[0])

    assert_close(torch.compile(run, backend="eager")(x), run(x))


def test_lengths_that_vmap_batches_are_refused():
    layer, x = make(), torch.randn(2, 5, 1, 3, dtype=F64)
    with pytest.raises(ValueError, match=r"lengths must be known numbers, .* that torch\.func\.vmap has"):
        torch.func.vmap(lambda x, n: layer(x, lengths=n[None]).output)(x, torch.tensor([5, 3]))
    gradient = torch.func.grad(lambda x, n: layer(x, lengths=n[None]).output.sum())
    with pytest.raises(ValueError, match="lengths must be known numbers"):
        torch.func.vmap(gradient)(x, torch.tensor([5, 3]))


def test_under_vmap_dropout_is_drawn_for_each_entry_or_once_for_all():
    layer, x = make(cell_dropout=0.5, attention_dropout=0.5), torch.randn(4, 2, 3, dtype=F64)

    def first_and_second(randomness):
        twice = torch.stack([x, x])
        return torch.func.vmap(lambda x: layer(x).output, randomness=randomness)(twice)

    first, second = first_and_second("different")
    assert not torch.allclose(first, second)
    first, second = first_and_second("same")
    assert_close(first, second)


def test_recomputation_is_left_out_under_transforms():
    layer, x = make(recompute_every=2), torch.randn(5, 2, 3, dtype=F64)

    def loss(x):
        return layer(x).output.sin().sum()

    x.requires_grad_()
    assert_close(torch.func.grad(loss)(x.detach()), torch.autograd.grad(loss(x), x)[0])


def test_a_second_derivative_names_the_definition():
    layer, x = make("native"), tokens()
    (slope,) = torch.autograd.grad(layer(x).output.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="use backend='reference'"):
        slope.sum().backward()


@pytest.mark.parametrize("backend", ["native", "sequence"])
@pytest.mark.parametrize("batched", ["is_grads_batched", "vmap"])
def test_a_batch_of_upstream_gradients_names_the_definition(batched, backend):
    layer, definition, x = make(backend), make("reference"), tokens()
    definition.load_state_dict(layer.state_dict())
    upstream = torch.randn(3, 6, 5, 8, dtype=F64)

    def gradients(layer, upstream, **arguments):
        return torch.autograd.grad(layer(x).output, x, upstream, **arguments)[0]

    def at_once(layer):
        if batched == "is_grads_batched":
            return gradients(layer, upstream, is_grads_batched=True)
        output = layer(x).output
        return torch.func.vmap(lambda one: torch.autograd.grad(output, x, one, retain_graph=True)[0])(
            upstream
        )

    assert_close(at_once(definition), torch.stack([gradients(layer, one) for one in upstream]))
    with pytest.raises(RuntimeError, match="does not support batched gradients: use backend='reference'"):
        at_once(layer)
