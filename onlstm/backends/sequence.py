"""The recurrence in plain PyTorch with an explicit backward pass (`loop.py`), as a PyTorch operator.

The units of a step are viewed as (rows, M, C), and a master gate as (rows, M, 1), so that it broadcasts.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from onlstm.backends import contract
from onlstm.backends.loop import Loop, Saved, StepGradients, master_gates_of
from ordered_memory.backends.operators import define
from ordered_memory.cumulative import backward_mask

why_not = contract.why_not


def _forward_step(gates: Tensor, previous_cell: Tensor, saved: Saved, output: Tensor) -> None:
    """`loop.ForwardStep` in plain PyTorch."""
    (units, softmax, cells), size = saved, output.shape[1]
    i_and_f, update, o = units[:, : 2 * size], units[:, 2 * size : 3 * size], units[:, 3 * size :]
    torch.sigmoid(gates[:, : 2 * size], out=i_and_f)
    torch.tanh(gates[:, 2 * size : 3 * size], out=update)
    torch.sigmoid(gates[:, 3 * size : 4 * size], out=o)
    torch.softmax(gates[:, 4 * size :].view_as(softmax), dim=-1, out=softmax)
    forget, write = _effective_gates(saved)
    torch.addcmul(write * update, forget, previous_cell, out=cells)
    torch.mul(o, torch.tanh(cells), out=output)


def _backward_step(saved: Saved, previous_cell: Tensor, gradients: StepGradients) -> None:
    """`loop.BackwardStep` in plain PyTorch."""
    (units, softmax, cells), d_gates = saved, gradients.gates
    size, chunks = cells.shape[1], (*softmax.shape[::2], -1)
    i, f, update, o = units.chunk(4, dim=1)
    forget, write = _effective_gates(saved)
    tanh = torch.tanh(cells)
    d_h = gradients.hidden if gradients.output is None else gradients.hidden + gradients.output
    d_c = gradients.cell + d_h * o * (1 - tanh * tanh)
    d_gates[:, 3 * size : 4 * size] = d_h * tanh * o * (1 - o)
    d_gates[:, 2 * size : 3 * size] = d_c * write * (1 - update * update)
    torch.mul(d_c, forget, out=gradients.cell)
    d_forget, d_write = d_c * previous_cell, d_c * update

    master_forget, master_input = master_gates_of(softmax)
    overlap = (master_forget * master_input).unsqueeze(-1)
    i, f, d_forget, d_write = (tensor.reshape(chunks) for tensor in (i, f, d_forget, d_write))
    d_gates[:, size : 2 * size] = (d_forget * overlap * f * (1 - f)).flatten(1)
    d_gates[:, :size] = (d_write * overlap * i * (1 - i)).flatten(1)
    # Gradients of the overlap ω, then of f̃ and ĩ, summed over the units of a chunk.
    d_overlap = (d_forget * (f - 1) + d_write * (i - 1)).sum(-1)
    d_master_forget = d_forget.sum(-1) + d_overlap * master_input
    d_master_input = d_write.sum(-1) + d_overlap * master_forget
    # A distance is M minus the sum of the gate.
    if gradients.forget_distance is not None:
        d_master_forget = d_master_forget - gradients.forget_distance.unsqueeze(-1)
    if gradients.input_distance is not None:
        d_master_input = d_master_input - gradients.input_distance.unsqueeze(-1)
    # The gradient of a cumulative sum is summed in reverse, as a `backward_mask` is.
    d_softmax = torch.stack([backward_mask(d_master_forget), -backward_mask(d_master_input)], dim=1)
    d_logits = softmax * (d_softmax - (softmax * d_softmax).sum(-1, keepdim=True))
    d_gates[:, 4 * size :] = d_logits.flatten(1)


def _effective_gates(saved: Saved) -> tuple[Tensor, Tensor]:
    """f̂ and î, (rows, H)."""
    rows, size = saved.cells.shape
    master_forget, master_input = (master.unsqueeze(-1) for master in master_gates_of(saved.softmax))
    overlap = master_forget * master_input
    i, f = saved.units[:, : 2 * size].view(rows, 2, saved.softmax.shape[2], -1).unbind(1)
    forget = torch.addcmul(master_forget - overlap, f, overlap)
    write = torch.addcmul(master_input - overlap, i, overlap)
    return forget.flatten(1), write.flatten(1)


OPERATOR = define("onlstm::sequence", Loop(_forward_step, _backward_step))
run_recurrence = partial(contract.run, OPERATOR)
