"""The loop over time and its backward pass in plain PyTorch, around the elementwise operations of a backend.

A step is one matrix product and elementwise operations on its result. The backward pass also needs one matrix
product per step; the gradient of the recurrent weight is one product over all tokens at the end.

Axes as in `onlstm.functional`: P packed tokens, B sequences, H units, M entries of a master gate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from onlstm.backends import contract
from onlstm.backends.contract import Implementation, Inputs, previous_steps
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

    def rows(self, chosen: slice) -> Saved:
        """The rows of some tokens.

        Args:
            chosen: range of rows.
        """
        return Saved(*(tensor[chosen] for tensor in self))


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
        for step in previous_steps(sizes):
            current = step[0]
            old_hidden = _previous_state(hidden, output, step)
            old_cell = _previous_state(cell, saved.cells, step)
            preactivations = torch.addmm(from_tokens[current], old_hidden, weight_hh_t)
            self.forward_step(preactivations, old_cell, saved.rows(current), output[current])
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
    ) -> list[Tensor]:
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
        for step in reversed(previous_steps(inputs.batch_sizes.tolist())):
            current, rows = step[0], step[0].stop - step[0].start
            from_output, from_forget, from_input = (
                None if d is None else d[current] for d in (d_output, d_forget_distance, d_input_distance)
            )
            step_gradients = StepGradients(
                d_hidden[:rows],
                from_output,
                d_cell[:rows],
                from_forget,
                from_input,
                d_preactivations[current],
            )
            old_cell = _previous_state(cell, saved_of_all.cells, step)
            self.backward_step(saved_of_all.rows(current), old_cell, step_gradients)
            torch.mm(d_preactivations[current], inputs.weight_hh, out=d_hidden[:rows])
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


def _previous_state(initial: Tensor, packed: Tensor, step: tuple[slice, slice | None]) -> Tensor:
    """The state, h or c, before a step, for the sequences of the step."""
    current, previous = step
    return initial[: current.stop - current.start] if previous is None else packed[previous]


def _final_state(initial: Tensor, packed: Tensor, batch_sizes: Sequence[int]) -> Tensor:
    """The state, h or c, of every sequence after its last token, (B, H)."""
    parts = [initial[batch_sizes[0] :]]
    for (current, _), num_continuing in zip(previous_steps(batch_sizes), [*batch_sizes[1:], 0], strict=True):
        parts.append(packed[current][num_continuing:])
    return torch.cat(parts[::-1])
