"""The recurrence as one autograd.Function in plain PyTorch, with its reverse pass written out.

A step is one product and a few operations on what it gives; the reverse pass needs one product a step
as well, and the gradient of the recurrent weight is one product over all tokens at the end.

Axes as in `onlstm.functional`: P tokens packed, B sequences, H units, M entries of a master gate, C units
for each of them. A step's units are viewed as (rows, M, C), where a master gate is (rows, M, 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

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
    with torch.autocast(tokens.device.type, enabled=False):
        dtype = weights.recurrent.dtype
        gates = F.linear(tokens.to(dtype), weights.input, weights.bias)
        tensors = (gates, weights.recurrent, hidden.to(dtype), cell.to(dtype))
        return Recurrence(*_Recur.apply(list(batch_sizes), chunk_size, *tensors))  # type: ignore[no-untyped-call]


class _Recur(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        batch_sizes: list[int],
        chunk_size: int,
        gates: Tensor,
        weight: Tensor,
        hidden: Tensor,
        cell: Tensor,
    ) -> tuple[Tensor, ...]:
        tokens, size = len(gates), hidden.shape[1]
        master_size = size // chunk_size
        kept = gates.new_empty(tokens, 4 * size)  # i, f, ĉ, o
        softmax = gates.new_empty(tokens, 2, master_size)
        cells, output = gates.new_empty(tokens, size), gates.new_empty(tokens, size)
        last_hidden, last_cell = hidden.clone(), cell.clone()
        transposed = weight.t()
        for start, rows in zip(_starts(batch_sizes), batch_sizes, strict=True):
            here = slice(start, start + rows)
            units = torch.addmm(gates[here], last_hidden[:rows], transposed)
            i_and_f, update, o = (
                kept[here, : 2 * size],
                kept[here, 2 * size : 3 * size],
                kept[here, 3 * size :],
            )
            torch.sigmoid(units[:, : 2 * size], out=i_and_f)
            torch.tanh(units[:, 2 * size : 3 * size], out=update)
            torch.sigmoid(units[:, 3 * size : 4 * size], out=o)
            logits = units[:, 4 * size :].view(rows, 2, master_size)
            softmax[here] = torch.softmax(logits, dim=-1)
            forget, write = _effective_gates(kept[here], softmax[here], chunk_size)
            cells[here] = torch.addcmul(write * update, forget, last_cell[:rows])
            torch.mul(o, torch.tanh(cells[here]), out=output[here])
            last_hidden[:rows], last_cell[:rows] = output[here], cells[here]
        ctx.save_for_backward(weight, hidden, cell, kept, softmax, cells, output)
        ctx.batch_sizes, ctx.chunk_size = batch_sizes, chunk_size
        ctx.set_materialize_grads(False)
        forget_distance, input_distance = _distances(softmax)
        return output, last_hidden, last_cell, forget_distance, input_distance

    @staticmethod
    @first_only
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        weight, hidden, cell, kept, softmax, cells, output = ctx.saved_tensors
        batch_sizes, chunk_size = ctx.batch_sizes, ctx.chunk_size
        d_output, d_last_hidden, d_last_cell, *d_distances = upstream
        size, master_size = hidden.shape[1], softmax.shape[-1]
        # What flows back into the state of each sequence, at first from the state after its last token.
        d_hidden = torch.zeros_like(hidden) if d_last_hidden is None else d_last_hidden.clone()
        d_cell = torch.zeros_like(cell) if d_last_cell is None else d_last_cell.clone()
        d_gates = kept.new_empty(len(kept), 4 * size + 2 * master_size)
        starts = _starts(batch_sizes)
        for t in reversed(range(len(batch_sizes))):
            rows = batch_sizes[t]
            here = slice(starts[t], starts[t] + rows)
            before = cell[:rows] if t == 0 else cells[starts[t - 1] : starts[t - 1] + rows]
            d_h, d_c = d_hidden[:rows], d_cell[:rows]
            if d_output is not None:
                d_h = d_h + d_output[here]
            d_masters = [None if d is None else -d[here].unsqueeze(-1) for d in d_distances]
            d_c_before = _step_back(
                kept[here], softmax[here], cells[here], before, d_h, d_c, d_masters, d_gates[here], chunk_size
            )
            d_cell[:rows] = d_c_before
            torch.mm(d_gates[here], weight, out=d_hidden[:rows])
        previous = previous_hidden(hidden, output, batch_sizes)
        return None, None, d_gates, d_gates.t() @ previous, d_hidden, d_cell


def _step_back(
    kept: Tensor,
    softmax: Tensor,
    cells: Tensor,
    before: Tensor,
    d_h: Tensor,
    d_c: Tensor,
    d_masters: Sequence[Tensor | None],
    d_gates: Tensor,
    chunk_size: int,
) -> Tensor:
    """The reverse of one step.

    Args:
        kept: i, f, ĉ, o after their non-linearities, (rows, 4H).
        softmax: of both master gates' logits, (rows, 2, M).
        cells: c, (rows, H).
        before: c[t-1], (rows, H).
        d_h, d_c: gradients of h and c, (rows, H).
        d_masters: gradients of f̃ and ĩ from the distances, (rows, 1), or None.
        d_gates: filled with the gradients of the pre-activations, (rows, 4H + 2M).
        chunk_size: C.
    Returns:
        The gradient of c[t-1].
    """
    rows, size = cells.shape
    master_size = softmax.shape[-1]
    i, f, update, o = kept.chunk(4, dim=1)
    forget, write = _effective_gates(kept, softmax, chunk_size)
    tanh = torch.tanh(cells)
    d_c = d_c + d_h * o * (1 - tanh * tanh)
    d_gates[:, 3 * size : 4 * size] = d_h * tanh * o * (1 - o)
    d_gates[:, 2 * size : 3 * size] = d_c * write * (1 - update * update)
    d_forget, d_write = d_c * before, d_c * update

    chunks = (rows, master_size, chunk_size)
    master_forget, master_input = _masters(softmax)
    overlap = (master_forget * master_input).unsqueeze(-1)
    i, f, d_forget, d_write = (tensor.reshape(chunks) for tensor in (i, f, d_forget, d_write))
    d_gates[:, size : 2 * size] = (d_forget * overlap * f * (1 - f)).flatten(1)
    d_gates[:, :size] = (d_write * overlap * i * (1 - i)).flatten(1)
    # Of the overlap ω, then of f̃ and ĩ, summed over the units of a chunk.
    d_overlap = (d_forget * (f - 1) + d_write * (i - 1)).sum(-1)
    d_master_forget = d_forget.sum(-1) + d_overlap * master_input
    d_master_input = d_write.sum(-1) + d_overlap * master_forget
    if d_masters[0] is not None:
        d_master_forget = d_master_forget + d_masters[0]
    if d_masters[1] is not None:
        d_master_input = d_master_input + d_masters[1]
    d_softmax = torch.stack([_reverse_cumsum(d_master_forget), -_reverse_cumsum(d_master_input)], dim=1)
    d_logits = softmax * (d_softmax - (softmax * d_softmax).sum(-1, keepdim=True))
    d_gates[:, 4 * size :] = d_logits.flatten(1)
    return d_c * forget


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


def _starts(batch_sizes: Sequence[int]) -> list[int]:
    """Where each step begins among the packed tokens."""
    return [0, *accumulate(batch_sizes)][:-1]


def previous_hidden(hidden: Tensor, output: Tensor, batch_sizes: Sequence[int]) -> Tensor:
    """h of the step before every token, (P, H).

    Args:
        hidden: before the first token, (B, H).
        output: h of every token, (P, H).
        batch_sizes: of the steps.
    """
    going_on = zip(_starts(batch_sizes)[:-1], batch_sizes[1:], strict=True)
    return torch.cat([hidden[: batch_sizes[0]], *(output[start : start + rows] for start, rows in going_on)])
