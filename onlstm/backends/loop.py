"""The loop over time and its reverse pass in plain PyTorch, for engines that differ between the products.

A step is one product and what follows from it; the reverse pass needs one product a step as well, and the
gradient of the recurrent weight is one product over all tokens at the end.

Axes as in `onlstm.functional`: P tokens packed, B sequences, H units, M entries of a master gate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from onlstm.backends import contract
from onlstm.backends.contract import Inputs, Shapes, previous_steps
from onlstm.functional import Recurrence


class Steps(Protocol):
    """What lies between two products. Every tensor is a contiguous stretch of a step's rows."""

    def forward(
        self, units: Tensor, before: Tensor, kept: Tensor, softmax: Tensor, cells: Tensor, output: Tensor
    ) -> None:
        """Compute a step from its pre-activations; fills `kept`, `softmax`, `cells` and `output`.

        Args:
            units: pre-activations, (rows, 4H + 2M).
            before: c[t-1], (rows, H).
            kept: i, f, ĉ and o after their non-linearities, (rows, 4H).
            softmax: of the logits of both master gates, (rows, 2, M).
            cells: c, (rows, H).
            output: h, (rows, H).
        """

    def backward(
        self,
        kept: Tensor,
        softmax: Tensor,
        cells: Tensor,
        before: Tensor,
        d_hidden: Tensor,
        d_output: Tensor | None,
        d_cell: Tensor,
        d_distances: Sequence[Tensor | None],
        d_gates: Tensor,
    ) -> None:
        """Compute the gradients of a step; fills `d_gates` and replaces `d_cell`.

        Args:
            kept, softmax, cells, before: as for `forward`.
            d_hidden: gradient of h from the next step, (rows, H).
            d_output: gradient of h from the output, (rows, H); None is zero.
            d_cell: gradient of c, replaced by that of c[t-1], (rows, H).
            d_distances: gradients of both distances, (rows,); None is zero.
            d_gates: gradient of the pre-activations, (rows, 4H + 2M).
        """


class Loop:
    """`contract.Engine` with what lies between the products given.

    Kept are i, f, ĉ and o (P, 4H), the softmax of both master gates' logits (P, 2, M), and the cells (P, H).
    """

    def __init__(self, steps: Callable[[int, int], Steps]) -> None:
        self.steps = steps

    def kept(self, inputs: Inputs) -> Shapes:
        tokens, (rows, size), dtype = inputs.tokens.shape[0], inputs.weight_hh.shape, inputs.weight_hh.dtype
        shapes = ((tokens, 4 * size), (tokens, 2, rows // 2 - 2 * size), (tokens, size))
        return [(shape, dtype) for shape in shapes]

    def forward(self, inputs: Inputs, keep: bool) -> tuple[Recurrence, list[Tensor]]:
        sizes: list[int] = inputs.batch_sizes.tolist()
        hidden, cell = inputs.hidden.contiguous(), inputs.cell.contiguous()
        between = self.steps(hidden.shape[1], inputs.chunk_size)
        gates = F.linear(inputs.tokens, inputs.weight_ih, inputs.bias)
        kept, softmax, cells = (gates.new_empty(shape) for shape, _ in self.kept(inputs))
        output, transposed = torch.empty_like(cells), inputs.weight_hh.t()
        for step in previous_steps(sizes):
            here = step[0]
            units = torch.addmm(gates[here], _before(hidden, output, step), transposed)
            before = _before(cell, cells, step)
            between.forward(units, before, kept[here], softmax[here], cells[here], output[here])
        last_hidden, last_cell = _last(hidden, output, sizes), _last(cell, cells, sizes)
        return Recurrence(output, last_hidden, last_cell, *_distances(softmax)), [
            kept,
            softmax,
            cells,
        ] if keep else []

    def backward(
        self,
        inputs: Inputs,
        output: Tensor,
        kept: list[Tensor],
        upstream: Sequence[Tensor | None],
        wanted: list[bool],
    ) -> list[Tensor]:
        units, softmax, cells = kept
        hidden, cell = inputs.hidden.contiguous(), inputs.cell.contiguous()
        between = self.steps(hidden.shape[1], inputs.chunk_size)
        d_output, d_last_hidden, d_last_cell, *d_distances = (
            None if d is None else d.contiguous() for d in upstream
        )
        # What flows back into the state of each sequence, at first from the state after its last token.
        d_hidden = torch.zeros_like(hidden) if d_last_hidden is None else d_last_hidden.clone()
        d_cell = torch.zeros_like(cell) if d_last_cell is None else d_last_cell.clone()
        d_gates = units.new_empty(len(units), len(inputs.weight_hh))
        for step in reversed(previous_steps(inputs.batch_sizes.tolist())):
            here, rows = step[0], step[0].stop - step[0].start
            between.backward(
                units[here],
                softmax[here],
                cells[here],
                _before(cell, cells, step),
                d_hidden[:rows],
                None if d_output is None else d_output[here],
                d_cell[:rows],
                [None if d is None else d[here] for d in d_distances],
                d_gates[here],
            )
            torch.mm(d_gates[here], inputs.weight_hh, out=d_hidden[:rows])
        gradients: tuple[Callable[[], Tensor], ...] = (
            lambda: d_gates @ inputs.weight_ih,
            lambda: d_gates.t() @ inputs.tokens,
            lambda: d_gates.t() @ contract.previous_hidden(inputs, output),
            lambda: d_gates.sum(0),
            lambda: d_hidden,
            lambda: d_cell,
        )
        return [gradient() for gradient, one in zip(gradients, wanted, strict=True) if one]


def masters(softmax: Tensor) -> tuple[Tensor, Tensor]:
    """The master gates f̃ and ĩ.

    Args:
        softmax: of their logits, (rows, 2, M).
    Returns:
        f̃ and ĩ, (rows, M) each.
    """
    sums = softmax.cumsum(-1)
    return sums[:, 0], 1 - sums[:, 1]


def _distances(softmax: Tensor) -> tuple[Tensor, Tensor]:
    """M - Σ f̃ and M - Σ ĩ of every token, (P,)."""
    master_forget, master_input = masters(softmax)
    size = softmax.shape[-1]
    return size - master_forget.sum(-1), size - master_input.sum(-1)


def _before(initial: Tensor, packed: Tensor, step: tuple[slice, slice | None]) -> Tensor:
    """A state of the sequences that reach a step, before it."""
    here, earlier = step
    return initial[: here.stop - here.start] if earlier is None else packed[earlier]


def _last(initial: Tensor, packed: Tensor, batch_sizes: Sequence[int]) -> Tensor:
    """A state of every sequence after its last token, (B, H)."""
    parts = [initial[batch_sizes[0] :]]
    for (here, _), going_on in zip(previous_steps(batch_sizes), [*batch_sizes[1:], 0], strict=True):
        parts.append(packed[here][going_on:])
    return torch.cat(parts[::-1])
