"""ONLSTM under `torch.func`, forward mode and batches of gradients: the definition, or an error."""

import pytest
import torch
from torch.autograd import forward_ad

from onlstm import ONLSTM
from tests.equality import FAST, NEEDS_NATIVE
from tests.tolerances import assert_close

pytestmark = NEEDS_NATIVE


@pytest.mark.filterwarnings(
    "ignore:`torch.jit.script` is deprecated:DeprecationWarning"
)  # of PyTorch's own derivatives
def test_transforms_take_the_definition_or_are_refused():
    layer, x, tangent = ONLSTM(3, 4, chunk_size=2), torch.randn(3, 2, 3), torch.randn(3, 2, 3)
    plain = ONLSTM(3, 4, chunk_size=2, backend="reference")
    by_name = ONLSTM(3, 4, chunk_size=2, backend="native")
    plain.load_state_dict(layer.state_dict())

    def tangent_of(layer, through_state):
        with forward_ad.dual_level():
            state = forward_ad.make_dual(torch.zeros(1, 2, 4), torch.ones(1, 2, 4))
            dual = x if through_state else forward_ad.make_dual(x, tangent)
            output, _ = layer(dual, (state, state) if through_state else None)
            return forward_ad.unpack_dual(output).tangent

    transforms = (
        lambda layer: torch.func.jvp(lambda x: layer(x)[0], (x,), (tangent,))[1],
        lambda layer: torch.func.vmap(lambda x: layer(x)[0])(torch.stack([x, tangent])),
        lambda layer: torch.func.grad(lambda x: layer(x)[0].sum())(x),
        lambda layer: tangent_of(layer, False),
        lambda layer: tangent_of(layer, True),
    )
    for transform in transforms:
        assert_close(transform(layer), transform(plain))
        with pytest.raises(RuntimeError, match=r"'native' cannot run here: .* use backend='reference'"):
            transform(by_name)


@pytest.mark.filterwarnings(r"ignore:The \.grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize("backend", ["auto", "sequence"])
@pytest.mark.parametrize("transform", ["jvp", "vmap", "grad"])
def test_a_compiled_transform_takes_the_definition_or_is_refused(backend, transform):
    layer, x = ONLSTM(3, 4, chunk_size=2, backend=backend), torch.randn(3, 2, 3)

    def run(x):
        if transform == "jvp":
            return torch.func.jvp(lambda x: layer(x)[0], (x,), (torch.ones_like(x),))[1]
        if transform == "vmap":
            return torch.func.vmap(lambda x: layer(x)[0], in_dims=1)(x)
        return torch.func.grad(lambda x: layer(x)[0].sum())(x)

    torch.compiler.reset()
    compiled = torch.compile(run, backend="eager")
    if backend == "auto":
        assert_close(compiled(x), run(x))
    else:
        with pytest.raises(Exception, match=r"'sequence' cannot run here: .* use backend='reference'"):
            compiled(x)


@pytest.mark.parametrize("name", FAST)
def test_a_jacobian_in_one_pass_names_the_definition(name):
    layer = ONLSTM(3, 4, chunk_size=2, backend=name, dtype=torch.float64)
    plain = ONLSTM(3, 4, chunk_size=2, backend="reference", dtype=torch.float64)
    plain.load_state_dict(layer.state_dict())
    x = torch.randn(3, 2, 3, dtype=torch.float64)

    def jacobian(layer, vectorize):
        return torch.autograd.functional.jacobian(lambda x: layer(x)[0], x, vectorize=vectorize)

    assert_close(jacobian(plain, True), jacobian(layer, False))
    with pytest.raises(RuntimeError, match="does not support batched gradients: use backend='reference'"):
        jacobian(layer, True)
