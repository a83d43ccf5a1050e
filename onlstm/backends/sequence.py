"""The recurrence in plain PyTorch with its reverse pass written out (`loop.py`), as an operator of PyTorch.

A step's units are viewed as (rows, M, C), C for each entry of a master gate, which is (rows, M, 1).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from onlstm.backends import contract
from onlstm.backends.loop import Loop, masters
from onlstm.functional import Recurrence, Weights

why_not = contract.why_not


def run_recurrence(
    tokens: Tensor,
    batch_sizes: Sequence[int] | Tensor,
    weights: Weights,
    hidden: Tensor,
    cell: Tensor,
    chunk_size: int,
) -> Recurrence:
    """Run the recurrence with a reverse pass written by hand; see `onlstm.functional.run_recurrence`."""
    return contract.run(OPERATOR, tokens, batch_sizes, weights, hidden, cell, chunk_size)


class _Eager:
    """`loop.Steps` in plain PyTorch."""

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

        master_forget, master_input = masters(softmax)
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


def _effective_gates(kept: Tensor, softmax: Tensor, chunk_size: int) -> tuple[Tensor, Tensor]:
    """f̂ and î, (rows, H)."""
    rows, master_size = softmax.shape[0], softmax.shape[-1]
    size = master_size * chunk_size
    master_forget, master_input = (master.unsqueeze(-1) for master in masters(softmax))
    overlap = master_forget * master_input
    i, f = kept[:, : 2 * size].view(rows, 2, master_size, chunk_size).unbind(1)
    forget = torch.addcmul(master_forget - overlap, f, overlap)
    write = torch.addcmul(master_input - overlap, i, overlap)
    return forget.flatten(1), write.flatten(1)


def _reverse_cumsum(values: Tensor) -> Tensor:
    return values.flip(-1).cumsum(-1).flip(-1)


OPERATOR = contract.define_operator("sequence", Loop(lambda hidden_size, chunk_size: _Eager(chunk_size)))
