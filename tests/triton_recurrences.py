"""Random recurrences on the device of the Triton kernels, to compare them with the definition."""

import torch

from ordered_memory import OrderedMemory, OrderedMemoryState
from ordered_memory.backends import triton
from ordered_memory.memory import run_recurrence
from ordered_memory.recurrence import StepMasks
from tests.kernels import DEVICE
from tests.tolerances import assert_close

NAMES = ("output", "memory", "candidate", "occupancy", "attention")


class Case:
    """Random weights, inputs, carried state and upstream gradients of one recurrence."""

    def __init__(self, score="normalized", size=16, slots=3, batch=3, steps=3, dropout=0.0, device=DEVICE):
        self.shape = (steps, batch, slots)
        layer = OrderedMemory(
            4,
            size,
            slots,
            score=score,
            cell_dropout=dropout,
            attention_dropout=dropout,
            device=device,
        )
        for parameter in layer.parameters():
            torch.nn.init.normal_(parameter, std=0.4)
        self.direction = layer.directions[0]
        self.modules = self.direction.recurrent_modules()
        self.parameters = {
            name: parameter
            for name, parameter in self.direction.named_parameters()
            if not name.startswith("projection")
        }
        self.inputs = torch.randn(steps, batch, size, device=device)
        self.state = OrderedMemoryState(
            torch.randn(batch, slots, size, device=device),
            torch.randn(batch, slots, size, device=device),
            torch.rand(batch, slots + 1, device=device).cumsum(1) / (slots + 1),
        )
        shapes = ((steps, batch, size), *(tensor.shape for tensor in self.state), (steps, batch, slots))
        self.upstream = [torch.randn(shape, device=device) for shape in shapes]

    def draw_masks(self):
        """Fixed dropout masks of every step; the last step has none."""
        steps, batch, slots = self.shape
        arguments = (batch, slots, self.inputs[0])
        masks = [
            StepMasks(self.modules.score.draw_masks(*arguments), self.modules.cell.draw_masks(*arguments))
            for _ in range(steps - 1)
        ]
        return [*masks, None]

    def run(self, function, lengths=None, masks=None):
        """Results and gradients, by name."""
        leaves = [tensor.clone().requires_grad_() for tensor in (self.inputs, *self.state)]
        if lengths is not None:
            lengths = torch.tensor(lengths, device=self.inputs.device)
        result = function(leaves[0], OrderedMemoryState(*leaves[1:]), self.modules, lengths, masks)
        results = dict(zip(NAMES, (result.output, *result.state, result.attention), strict=True))
        wanted = (
            dict(zip(("inputs", "memory", "candidate", "occupancy"), leaves, strict=True)) | self.parameters
        )
        gradients = torch.autograd.grad(list(results.values()), list(wanted.values()), self.upstream)
        found = {f"gradient of {name}": gradient for name, gradient in zip(wanted, gradients, strict=True)}
        return {name: tensor.detach() for name, tensor in results.items()} | found


def assert_equals_the_definition(case, lengths=None, masks=None):
    expected = case.run(run_recurrence, lengths, masks)
    actual = case.run(triton.run_recurrence, lengths, masks)
    assert actual.keys() == expected.keys()
    for name in expected:
        assert_close(actual[name], expected[name], name)
    return actual
