"""What backends do not see, such as hooks and replaced maps: it is left to the definition."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

from ordered_memory.backends import module_checks, select_backend
from ordered_memory.backends.registry import BackendError
from ordered_memory.memory import run_recurrence
from tests.random_layers import assert_all_close, make, results_and_gradients, tokens
from tests.small_memory import F64, NEEDS_NATIVE
from tests.wrapped_weights import wrap_weight

pytestmark = NEEDS_NATIVE


class LowRank(nn.Module):
    """A map with a low-rank correction beside it."""

    def __init__(self, base):
        super().__init__()
        self.base, self.down = base, nn.Linear(base.in_features, 2, dtype=F64)
        self.up = nn.Linear(2, base.out_features, dtype=F64)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def buffers(module):
    weight = module.weight.detach()
    del module.weight
    module.register_buffer("weight", weight)


def unbiased(direction):
    direction.cell.output = nn.Linear(32, 32, bias=False, dtype=F64)


CHANGES = {
    "replaced": lambda d: setattr(d.cell, "output", LowRank(d.cell.output)),
    "another size": lambda d: setattr(d.score, "output", nn.Linear(8, 3, dtype=F64)),
    "without bias": unbiased,
    "hook": lambda d: d.cell.output.register_forward_hook(lambda m, x, y: 2 * y),
    "pre-hook": lambda d: d.score.key.register_forward_pre_hook(lambda m, x: (2 * x[0],)),
    "backward hook": lambda d: d.norm.register_full_backward_hook(lambda m, x, y: (3 * x[0],)),
    "hook of the cell": lambda d: d.cell.register_forward_hook(lambda m, x, y: y),
    "hook of the score": lambda d: d.score.register_forward_hook(lambda m, x, y: 2 * y),
    "forward of a part": lambda d: setattr(d.cell.output, "forward", lambda x: 0 * x),
    "masks of the cell": lambda d: setattr(d.cell, "draw_masks", lambda *sizes: None),
    "masks of the score": lambda d: setattr(d.score, "draw_masks", lambda *sizes: None),
    "compose of the cell": lambda d: setattr(d.cell, "compose", lambda *inputs: inputs[1]),
    "weight norm": lambda d: parametrizations.weight_norm(d.cell.from_memory),
    "pruned": lambda d: prune.l1_unstructured(d.score.output, "weight", 0.5),
    "buffer": lambda d: buffers(d.cell.from_candidate),
    "another dtype": lambda d: d.score.key.float(),
    "norm": lambda d: setattr(d.score, "key_norm", nn.Identity()),
    "without affine": lambda d: setattr(d, "norm", nn.LayerNorm(8, elementwise_affine=False, dtype=F64)),
    "wrapped weight": lambda d: wrap_weight(d.cell.output),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_backend_does_not_see_is_left_to_the_definition(name):
    layer = make()
    CHANGES[name](layer.directions[0])
    inputs, modules = torch.zeros(2, 1, 8, dtype=F64), layer.directions[0].recurrent_modules()
    assert select_backend("auto", inputs, modules) is run_recurrence
    for backend in ("native", "sequence"):
        with pytest.raises(BackendError, match=f"backend '{backend}' cannot run here: (it|its|the) "):
            select_backend(backend, inputs, modules)
    assert module_checks.why_not(inputs, modules) is not None


@pytest.mark.parametrize("part", ["cell.from_memory", "score.key", "score.query", "projection"])
def test_a_weight_may_wrap_another_tensor(part):
    layer = make()
    x = tokens().detach()
    with torch.no_grad():
        expected = layer(x)
        wrap_weight(layer.directions[0].get_submodule(part))
        actual = layer(x)
    assert_all_close([actual.output, actual.attention], [expected.output, expected.attention])


def test_with_hooks_of_all_modules_the_definition_runs():
    layer, definition = make(), make("reference")
    definition.load_state_dict(layer.state_dict())
    x = tokens()
    plain = layer(x).output
    hook = nn.modules.module.register_module_forward_hook(
        lambda m, x, y: 2 * y if isinstance(m, nn.LayerNorm) else None
    )
    try:
        actual, expected = layer(x).output, definition(x).output
    finally:
        hook.remove()
    assert torch.equal(actual, expected)
    assert not torch.allclose(actual, plain)


@pytest.mark.parametrize("backend", ["native", "sequence"])
def test_hooks_of_the_query_map_are_called(backend):
    layer, definition = make(backend), make("reference")
    definition.load_state_dict(layer.state_dict())
    for module in (layer, definition):
        module.directions[0].score.query.register_forward_hook(lambda m, x, y: 2 * y)
    x = tokens()
    expected = results_and_gradients(definition, definition, x)
    assert_all_close(results_and_gradients(layer, layer, x), expected)


@pytest.mark.parametrize("backend", ["native", "sequence"])
def test_every_norm_has_its_own_epsilon(backend):
    layer, definition = make(backend), make("reference")
    definition.load_state_dict(layer.state_dict())
    for module in (layer, definition):
        direction = module.directions[0]
        direction.score.key_norm.eps, direction.score.query_norm.eps, direction.norm.eps = 0.3, 0.2, 0.1
    x = tokens()
    expected = results_and_gradients(definition, definition, x)
    assert_all_close(results_and_gradients(layer, layer, x), expected)
