"""`recompute_every`: steps that are computed again in the backward pass."""

import re

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from ordered_memory import GatedRecursiveCell, OrderedMemory, OrderedMemoryState
from tests.small_memory import EACH_BACKEND, F64, make
from tests.tolerances import assert_close


@EACH_BACKEND
def test_a_checkpoint_around_a_layer_that_recomputes_gives_its_gradients(backend):
    layer = make(cell_dropout=0.3, attention_dropout=0.2, recompute_every=2, backend=backend)
    x, gradients, outputs = torch.randn(2, 5, 4, dtype=F64, requires_grad=True), [], []
    for run in (
        layer,
        lambda x: checkpoint(lambda x: layer(x).output, x, use_reentrant=True),
        lambda x: checkpoint(lambda x: layer(x).output, x, use_reentrant=False),
    ):
        torch.manual_seed(0)
        found = run(x)
        outputs.append(found if isinstance(found, torch.Tensor) else found.output)
        layer.zero_grad()
        x.grad = None
        outputs[-1].sin().sum().backward()  # what reentrant checkpoints support
        gradients.append([leaf.grad for leaf in (x, *layer.parameters())])
    torch.manual_seed(0)
    with torch.no_grad():
        outputs.append(layer(x).output)
    for other in outputs[1:]:
        assert_close(other, outputs[0])
    for others in gradients[1:]:
        for actual, expected in zip(others, gradients[0], strict=True):
            assert_close(actual, expected)


def test_the_given_state_may_be_changed_in_place_before_steps_are_recomputed():
    layer, x = make(recompute_every=2), torch.randn(3, 6, 4, dtype=F64)
    given = make()(x).state
    wanted = list(layer.parameters())
    expected = torch.autograd.grad(layer(x, state=given).output.sum(), wanted)
    state = OrderedMemoryState(*(tensor.detach().clone() for tensor in given))
    output = layer(x, state=state).output
    for tensor in state:
        tensor.zero_()
    for actual, wanted_gradient in zip(torch.autograd.grad(output.sum(), wanted), expected, strict=True):
        assert_close(actual, wanted_gradient)


@pytest.mark.parametrize("backend", ["auto", "sequence", "reference"])
def test_steps_are_computed_again_with_the_weights_of_a_functional_call(backend):
    layer, x = make(backend=backend, bidirectional=True), torch.randn(3, 6, 4, dtype=F64)
    others = {name: (1.5 * weight).detach().requires_grad_() for name, weight in layer.named_parameters()}
    found = []
    for layer.recompute_every in (None, 2):
        output = torch.func.functional_call(layer, others, (x,)).output
        found.append(torch.autograd.grad(output.sin().sum(), list(others.values())))
    for actual, expected in zip(*found, strict=True):
        assert_close(actual, expected)


@pytest.mark.parametrize("backend", ["auto", "sequence", "reference"])
@pytest.mark.parametrize(
    "change", [torch.nn.Module.eval, lambda layer: setattr(layer, "cell_dropout", 0.1), lambda layer: None]
)
def test_steps_are_computed_again_with_the_dropout_of_the_forward_pass(backend, change):
    gradients = []
    for between in (lambda layer: None, change):
        torch.manual_seed(0)
        layer = make(backend=backend, cell_dropout=0.5, attention_dropout=0.3, recompute_every=2)
        output = layer(torch.randn(3, 6, 4, dtype=F64)).output
        between(layer)
        gradients.append(torch.autograd.grad(output.sin().sum(), list(layer.parameters())))
    for actual, expected in zip(*gradients, strict=True):
        assert_close(actual, expected)


@pytest.mark.parametrize("every", [None, 2])
@pytest.mark.parametrize("backend", ["auto", "sequence", "reference"])
def test_a_weight_that_changes_in_place_before_the_backward_pass_is_an_error(backend, every):
    layer = make(backend=backend, recompute_every=every)
    output = layer(torch.randn(3, 6, 4, dtype=F64)).output
    with torch.no_grad():
        layer.directions[0].cell.output.weight.mul_(1.5)
    with pytest.raises(RuntimeError, match=r"inplace|the weight cell\.output\.weight was changed in place"):
        output.sum().backward()


def test_what_a_custom_cell_counts_in_its_forward_pass_is_kept():
    class Counting(GatedRecursiveCell):
        calls = 0

        def compose(self, *arguments):
            self.calls += 1
            return super().compose(*arguments)

    layer = make(recompute_every=2)
    layer.directions[0].cell = Counting(6, dtype=F64)
    output = layer(torch.randn(3, 6, 4, dtype=F64)).output
    calls = layer.directions[0].cell.calls
    output.sum().backward()
    assert calls == layer.directions[0].cell.calls > 0


@pytest.mark.parametrize("counts_in_a_buffer", [False, True])
@pytest.mark.parametrize("backward_passes", [1, 2])
def test_a_cell_that_changes_when_it_is_called_is_computed_again_as_it_was(
    backward_passes, counts_in_a_buffer
):
    class Locked(GatedRecursiveCell):
        """Draws a mask at the first step; counts the steps."""

        def __init__(self):
            super().__init__(6, dtype=F64)
            self.mask = None
            if counts_in_a_buffer:
                self.register_buffer("steps", torch.zeros((), dtype=F64))
            else:
                self.steps = 0

        def compose(self, prepared, memory, candidate, masks):
            if self.mask is None:
                self.mask = (torch.rand(candidate.shape[-1]) > 0.4).to(candidate)
            self.steps = self.steps + 1
            return super().compose(prepared, memory, candidate * self.mask / self.steps, masks)

    found = []
    for every in (None, 2):
        torch.manual_seed(0)
        layer = make(recompute_every=every)
        layer.directions[0].cell = Locked()
        output = layer(torch.randn(3, 6, 4, dtype=F64)).output.sin().sum()
        for _ in range(backward_passes):
            gradients = torch.autograd.grad(output, list(layer.parameters()), retain_graph=True)
        found.append(gradients)
    for actual, expected in zip(*found, strict=True):
        assert_close(actual, expected)


def test_steps_with_dropout_need_no_gradients():
    with torch.inference_mode():
        layer = make(recompute_every=2, cell_dropout=0.2)
        assert layer(torch.randn(3, 6, 4, dtype=F64)).output.isfinite().all()
    with torch.no_grad():
        assert layer(torch.randn(3, 6, 4, dtype=F64)).output.isfinite().all()


def test_a_hook_is_called_with_the_module_itself_when_steps_are_computed_again():
    layer = make(recompute_every=2)
    names = {module: name for name, module in layer.named_modules()}
    called = []
    linear = layer.directions[0].cell.output
    linear.register_forward_hook(lambda module, inputs, output: called.append(names[module]))
    layer(torch.randn(3, 6, 4, dtype=F64)).output.sum().backward()
    assert set(called) == {"directions.0.cell.output"}


@pytest.mark.parametrize("others_learn", [True, False])
@pytest.mark.parametrize(
    "name",
    ["cell.output.weight", "cell.from_memory.weight", "score.output.weight", "norm.weight", "norm.bias"],
)
def test_a_frozen_weight_that_changes_before_steps_are_computed_again_is_an_error(name, others_learn):
    layer = make(recompute_every=2).requires_grad_(others_learn)
    weight = layer.directions[0].get_parameter(name).requires_grad_(False)
    output = layer(torch.randn(3, 6, 4, dtype=F64, requires_grad=True)).output
    weight.mul_(2)
    with pytest.raises(RuntimeError, match=rf"^the weight {re.escape(name)} was changed in place"):
        output.sum().backward()


@pytest.mark.parametrize("backend", ["auto", "sequence", "reference"])
def test_less_is_kept_for_the_backward_pass(backend):
    """With a state every 8 of 64 steps, less than half of what all steps keep."""
    x, sizes = torch.randn(2, 64, 4, dtype=F64), []
    for every in (None, 8):
        layer, kept = make(backend=backend, recompute_every=every), {}

        def keep(tensor, kept=kept):
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            output = layer(x).output  # while it lives, no storage takes the place of another
        sizes.append(sum(kept.values()))
        del output
    assert 0 < sizes[1] < sizes[0] / 2


def test_weights_that_were_made_in_inference_mode_have_no_versions():
    with torch.inference_mode():
        layer = OrderedMemory(4, 6, 3, recompute_every=2).requires_grad_(False)
    x = torch.randn(5, 2, 4)
    output = layer(x).output  # with gradients enabled
    layer.recompute_every = None
    torch.testing.assert_close(output, layer(x).output)
