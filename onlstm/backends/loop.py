"""The loop over time and its backward pass in plain PyTorch, around the elementwise operations of a backend.

A step is one matrix product and elementwise operations on its result. The backward pass also needs one matrix
product per step; the gradient of the recurrent weight is one product over all tokens at the end.

Axes as in `onlstm.functional`: P packed tokens, B sequences, H units, M entries of a master gate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from onlstm.backends import contract
from onlstm.backends.contract import Implementation, Inputs, states_before
from onlstm.functional import MasterGates, RecurrenceOutput
from ordered_memory.backends.operators import Shapes


class Saved(NamedTuple):
    """The tensors that are saved for the backward pass, all contiguous. Rows are packed tokens.

    Args:
        gates: i, f, ĉ and o, (rows, 4H).
        softmax: softmax of the logits of both master gates, (rows, 2, M).
        cells: c, (rows, H).
    """

    gates: Tensor
    softmax: Tensor
    cells: Tensor

    def split(self, batch_sizes: list[int]) -> list[Saved]:
        """The rows of each step.

        Args:
            batch_sizes: number of rows of each step.
        """
        return [Saved(*step) for step in zip(*(tensor.split(batch_sizes) for tensor in self), strict=True)]


class StepGradients(NamedTuple):
    """The gradients that the backward pass of a step reads and writes, all contiguous; None is zero.

    Args:
        hidden: gradient of h from the next step, (rows, H).
        output: gradient of h from the output, (rows, H).
        cell: gradient of c, overwritten with that of c[t-1], (rows, H).
        forget_distance, input_distance: gradients of the distances, (rows,).
        preactivations: gradient of the pre-activations, (rows, 4H + 2M); written.
    """

    hidden: Tensor
    output: Tensor | None
    cell: Tensor
    forget_distance: Tensor | None
    input_distance: Tensor | None
    preactivations: Tensor


ForwardStep = Callable[[Tensor, Tensor, Saved, Tensor], None]
"""Reads pre-activations (rows, 4H + 2M) and c[t-1] (rows, H); writes the saved tensors and h (rows, H)."""
BackwardStep = Callable[[Saved, Tensor, StepGradients], None]
"""Reads the saved tensors, c[t-1] (rows, H) and gradients; writes those of pre-activations and c[t-1]."""


class Loop(Implementation):
    """The loop over time, given the elementwise operations of a step. It saves the fields of `Saved`."""

    def __init__(self, forward_step: ForwardStep, backward_step: BackwardStep) -> None:
        self.forward_step, self.backward_step = forward_step, backward_step

    def saved_shapes(self, inputs: Inputs) -> Shapes:
        tokens, (rows, size), dtype = inputs.tokens.shape[0], inputs.weight_hh.shape, inputs.weight_hh.dtype
        shapes = ((tokens, 4 * size), (tokens, 2, rows // 2 - 2 * size), (tokens, size))
        return [(shape, dtype) for shape in shapes]

    def forward(self, inputs: Inputs, save: bool) -> tuple[RecurrenceOutput, list[Tensor]]:
        sizes: list[int] = inputs.batch_sizes.tolist()
        hidden, cell = inputs.hidden.contiguous(), inputs.cell.contiguous()
        from_tokens = F.linear(inputs.tokens, inputs.weight_ih, inputs.bias)
        saved = Saved(*(from_tokens.new_empty(shape) for shape, _ in self.saved_shapes(inputs)))
        output, weight_hh_t = torch.empty_like(saved.cells), inputs.weight_hh.t()
        old_hidden, old_cells = states_before(hidden, output, sizes), states_before(cell, saved.cells, sizes)
        steps = (from_tokens.split(sizes), old_hidden, old_cells, saved.split(sizes), output.split(sizes))
        for from_token, old_h, old_c, saved_of_step, h in zip(*steps, strict=True):
            self.forward_step(torch.addmm(from_token, old_h, weight_hh_t), old_c, saved_of_step, h)
        last_hidden, last_cell = _final_state(hidden, output, sizes), _final_state(cell, saved.cells, sizes)
        result = RecurrenceOutput(output, last_hidden, last_cell, *master_gates_of(saved.softmax).distances())
        return result, list(saved) if save else []

    def backward(
        self,
        inputs: Inputs,
        results: Sequence[Tensor],
        saved: list[Tensor],
        upstream: Sequence[Tensor | None],
        needs_input_grad: list[bool],
    ) -> Iterable[Tensor | None]:
        saved_of_all, cell = Saved(*saved), inputs.cell.contiguous()
        d_output, d_last_hidden, d_last_cell, d_forget_distance, d_input_distance = (
            None if d is None else d.contiguous() for d in upstream
        )
        # Gradients of the state of each sequence: of its final state first, of its initial state in the end.
        d_hidden, d_cell = (
            torch.zeros_like(state, memory_format=torch.contiguous_format) if d is None else d.clone()
            for state, d in ((inputs.hidden, d_last_hidden), (inputs.cell, d_last_cell))
        )
        d_preactivations = saved_of_all.gates.new_empty(len(saved_of_all.gates), len(inputs.weight_hh))
        sizes: list[int] = inputs.batch_sizes.tolist()
        from_results = (
            [None] * len(sizes) if d is None else d.split(sizes)
            for d in (d_output, d_forget_distance, d_input_distance)
        )
        steps = zip(
            saved_of_all.split(sizes),
            states_before(cell, saved_of_all.cells, sizes),
            d_preactivations.split(sizes),
            *from_results,
            strict=True,
        )
        for saved_of_step, old_c, d_step, d_h, d_forget, d_input in reversed(list(steps)):
            rows = len(d_step)
            gradients = StepGradients(d_hidden[:rows], d_h, d_cell[:rows], d_forget, d_input, d_step)
            self.backward_step(saved_of_step, old_c, gradients)
            torch.mm(d_step, inputs.weight_hh, out=d_hidden[:rows])
        return contract.gradients(inputs, results[0], d_preactivations, d_hidden, d_cell, needs_input_grad)


def master_gates_of(softmax: Tensor) -> MasterGates:
    """The master gates f̃ and ĩ.

    Args:
        softmax: softmax of their logits, (rows, 2, M).
    Returns:
        f̃ and ĩ, (rows, M) each.
    """
    sums = softmax.cumsum(-1)
    return MasterGates(sums[:, 0], 1 - sums[:, 1])


def _final_state(initial: Tensor, packed: Tensor, batch_sizes: Sequence[int]) -> Tensor:
    """The state, h or c, of every sequence after its last token, (B, H)."""
    states = zip((initial, *packed.split(batch_sizes)), (*batch_sizes, 0), strict=True)
    return torch.cat([state[num_continuing:] for state, num_continuing in states][::-1])
