"""The recurrence as one autograd.Function in plain PyTorch, with its reverse pass written out.

A step is one product and a few operations on what it gives; the reverse pass needs one product a step
as well, and the gradient of the recurrent weight is one product over all tokens at the end.

Axes as in `onlstm.functional`: P tokens packed, B sequences, H units, M entries of a master gate, C units
for each of them. A step's units are viewed as (rows, M, C), where a master gate is (rows, M, 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from onlstm.functional import Recurrence, Weights
from ordered_memory.backends.derivatives import first_only


def recur(
    tokens: Tensor,
    batch_sizes: Sequence[int],
    weights: Weights,
    hidden: Tensor,
    cell: Tensor,
    chunk_size: int,
) -> Recurrence:
    """`onlstm.functional.recur`, faster; see there."""
    return recur_by_steps(_Eager(chunk_size), tokens, batch_sizes, weights, hidden, cell)


class Steps(Protocol):
    """What there is between two products. Every tensor is a contiguous stretch of a step's rows.

    units: pre-activations, (rows, 4H + 2M). kept: i, f, ĉ, o after their non-linearities, (rows, 4H).
    softmax: of both master gates' logits, (rows, 2, M). before, cells: c[t-1] and c, (rows, H).
    output: h, (rows, H).
    """

    def forward(
        self, units: Tensor, before: Tensor, kept: Tensor, softmax: Tensor, cells: Tensor, output: Tensor
    ) -> None:
        """Fill the last four."""

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
        """Fill d_gates, (rows, 4H + 2M), and change d_cell from the gradient of c to that of c[t-1].

        The gradient of h is d_hidden + d_output, (rows, H); d_distances are those of both distances, (rows,).
        """


def recur_by_steps(
    between: Steps,
    tokens: Tensor,
    batch_sizes: Sequence[int],
    weights: Weights,
    hidden: Tensor,
    cell: Tensor,
) -> Recurrence:
    """The recurrence with what lies between the products given.

    Args:
        between: with the chunk size.
        tokens, batch_sizes, weights, hidden, cell: see `onlstm.functional.recur`.
    """
    with torch.autocast(tokens.device.type, enabled=False):
        dtype = weights.recurrent.dtype
        gates = F.linear(tokens.to(dtype), weights.input, weights.bias)
        tensors = (gates, weights.recurrent, hidden.to(dtype), cell.to(dtype))
        return Recurrence(*_Recur.apply(between, list(batch_sizes), *tensors))  # type: ignore[no-untyped-call]


class _Recur(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        between: Steps,
        batch_sizes: list[int],
        gates: Tensor,
        weight: Tensor,
        hidden: Tensor,
        cell: Tensor,
    ) -> tuple[Tensor, ...]:
        tokens, size = len(gates), hidden.shape[1]
        hidden, cell = hidden.contiguous(), cell.contiguous()
        kept = gates.new_empty(tokens, 4 * size)
        softmax = gates.new_empty(tokens, 2, (gates.shape[1] - 4 * size) // 2)
        cells, output = gates.new_empty(tokens, size), gates.new_empty(tokens, size)
        transposed = weight.t()
        for step in _steps(batch_sizes):
            here = step[0]
            units = torch.addmm(gates[here], _before(hidden, output, step), transposed)
            before = _before(cell, cells, step)
            between.forward(units, before, kept[here], softmax[here], cells[here], output[here])
        ctx.save_for_backward(weight, hidden, cell, kept, softmax, cells, output)
        ctx.between, ctx.batch_sizes = between, batch_sizes
        ctx.set_materialize_grads(False)
        last = (_last(first, all_, batch_sizes) for first, all_ in ((hidden, output), (cell, cells)))
        return output, *last, *_distances(softmax)

    @staticmethod
    @first_only
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        weight, hidden, cell, kept, softmax, cells, output = ctx.saved_tensors
        d_output, d_last_hidden, d_last_cell, *d_distances = (
            None if d is None else d.contiguous() for d in upstream
        )
        # What flows back into the state of each sequence, at first from the state after its last token.
        d_hidden = torch.zeros_like(hidden) if d_last_hidden is None else d_last_hidden.clone()
        d_cell = torch.zeros_like(cell) if d_last_cell is None else d_last_cell.clone()
        d_gates = kept.new_empty(len(kept), len(weight))
        for step in reversed(_steps(ctx.batch_sizes)):
            here, rows = step[0], step[0].stop - step[0].start
            ctx.between.backward(
                kept[here],
                softmax[here],
                cells[here],
                _before(cell, cells, step),
                d_hidden[:rows],
                None if d_output is None else d_output[here],
                d_cell[:rows],
                [None if d is None else d[here] for d in d_distances],
                d_gates[here],
            )
            torch.mm(d_gates[here], weight, out=d_hidden[:rows])
        previous = previous_hidden(hidden, output, ctx.batch_sizes)
        return None, None, d_gates, d_gates.t() @ previous, d_hidden, d_cell


class _Eager:
    """`Steps` in plain PyTorch."""

    def __init__(self, chunk_size: int) -> None:
        self.chunk_size = chunk_size

    def forward(
        self, units: Tensor, before: Tensor, kept: Tensor, softmax: Tensor, cells: Tensor, output: Tensor
    ) -> None:
        size = cells.shape[1]
        i_and_f, update, o = kept[:, : 2 * size], kept[:, 2 * size : 3 * size], kept[:, 3 * size :]
        torch.sigmoid(units[:, : 2 * size], out=i_and_f)
        torch.tanh(units[:, 2 * size : 3 * size], out=update)
        torch.sigmoid(units[:, 3 * size : 4 * size], out=o)
        torch.softmax(units[:, 4 * size :].view_as(softmax), dim=-1, out=softmax)
        forget, write = _effective_gates(kept, softmax, self.chunk_size)
        torch.addcmul(write * update, forget, before, out=cells)
        torch.mul(o, torch.tanh(cells), out=output)

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
        size, chunks = cells.shape[1], (*softmax.shape[::2], self.chunk_size)
        i, f, update, o = kept.chunk(4, dim=1)
        forget, write = _effective_gates(kept, softmax, self.chunk_size)
        tanh = torch.tanh(cells)
        d_h = d_hidden if d_output is None else d_hidden + d_output
        d_c = d_cell + d_h * o * (1 - tanh * tanh)
        d_gates[:, 3 * size : 4 * size] = d_h * tanh * o * (1 - o)
        d_gates[:, 2 * size : 3 * size] = d_c * write * (1 - update * update)
        torch.mul(d_c, forget, out=d_cell)
        d_forget, d_write = d_c * before, d_c * update

        master_forget, master_input = _masters(softmax)
        overlap = (master_forget * master_input).unsqueeze(-1)
        i, f, d_forget, d_write = (tensor.reshape(chunks) for tensor in (i, f, d_forget, d_write))
        d_gates[:, size : 2 * size] = (d_forget * overlap * f * (1 - f)).flatten(1)
        d_gates[:, :size] = (d_write * overlap * i * (1 - i)).flatten(1)
        # Of the overlap ω, then of f̃ and ĩ, summed over the units of a chunk.
        d_overlap = (d_forget * (f - 1) + d_write * (i - 1)).sum(-1)
        d_masters = [
            d_forget.sum(-1) + d_overlap * master_input,
            d_write.sum(-1) + d_overlap * master_forget,
        ]
        # A distance is M minus the sum of the gate.
        d_masters = [
            one if d is None else one - d.unsqueeze(-1) for one, d in zip(d_masters, d_distances, strict=True)
        ]
        d_softmax = torch.stack([_reverse_cumsum(d_masters[0]), -_reverse_cumsum(d_masters[1])], dim=1)
        d_logits = softmax * (d_softmax - (softmax * d_softmax).sum(-1, keepdim=True))
        d_gates[:, 4 * size :] = d_logits.flatten(1)


def _masters(softmax: Tensor) -> tuple[Tensor, Tensor]:
    """f̃ and ĩ, (rows, M), from the softmax of their logits, (rows, 2, M)."""
    sums = softmax.cumsum(-1)
    return sums[:, 0], 1 - sums[:, 1]


def _effective_gates(kept: Tensor, softmax: Tensor, chunk_size: int) -> tuple[Tensor, Tensor]:
    """f̂ and î, (rows, H)."""
    rows, master_size = softmax.shape[0], softmax.shape[-1]
    size = master_size * chunk_size
    master_forget, master_input = (master.unsqueeze(-1) for master in _masters(softmax))
    overlap = master_forget * master_input
    i, f = kept[:, : 2 * size].view(rows, 2, master_size, chunk_size).unbind(1)
    forget = torch.addcmul(master_forget - overlap, f, overlap)
    write = torch.addcmul(master_input - overlap, i, overlap)
    return forget.flatten(1), write.flatten(1)


def _distances(softmax: Tensor) -> tuple[Tensor, Tensor]:
    """M - Σ f̃ and M - Σ ĩ of every token, (P,)."""
    master_forget, master_input = _masters(softmax)
    size = softmax.shape[-1]
    return size - master_forget.sum(-1), size - master_input.sum(-1)


def _reverse_cumsum(values: Tensor) -> Tensor:
    return values.flip(-1).cumsum(-1).flip(-1)


def _steps(batch_sizes: Sequence[int]) -> list[tuple[slice, slice | None]]:
    """For each step its tokens, and the tokens before those, of the same sequences; None before the first."""
    starts = [0, *accumulate(batch_sizes)]
    here = [slice(start, start + rows) for start, rows in zip(starts, batch_sizes, strict=False)]
    earlier = [slice(start, start + rows) for start, rows in zip(starts, batch_sizes[1:], strict=False)]
    return list(zip(here, [None, *earlier], strict=True))


def _before(initial: Tensor, packed: Tensor, step: tuple[slice, slice | None]) -> Tensor:
    """A state of the sequences that reach a step, before it."""
    here, earlier = step
    return initial[: here.stop - here.start] if earlier is None else packed[earlier]


def _last(initial: Tensor, packed: Tensor, batch_sizes: Sequence[int]) -> Tensor:
    """A state of every sequence after its last token, (B, H)."""
    parts = [initial[batch_sizes[0] :]]
    for (here, _), going_on in zip(_steps(batch_sizes), [*batch_sizes[1:], 0], strict=True):
        parts.append(packed[here][going_on:])
    return torch.cat(parts[::-1])


def previous_hidden(hidden: Tensor, output: Tensor, batch_sizes: Sequence[int]) -> Tensor:
    """h of the step before every token, (P, H).

    Args:
        hidden: before the first token, (B, H).
        output: h of every token, (P, H).
        batch_sizes: of the steps.
    """
    earlier = [before for _, before in _steps(batch_sizes)[1:]]
    return torch.cat([hidden[: batch_sizes[0]], *(output[before] for before in earlier)])
