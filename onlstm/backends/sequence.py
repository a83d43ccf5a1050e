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


def _forward_step(preactivations: Tensor, previous_cell: Tensor, saved: Saved, output: Tensor) -> None:
    """`loop.ForwardStep` in plain PyTorch."""
    (gates, softmax, cells), size = saved, output.shape[1]
    i_and_f, c_hat, o = gates[:, : 2 * size], gates[:, 2 * size : 3 * size], gates[:, 3 * size :]
    torch.sigmoid(preactivations[:, : 2 * size], out=i_and_f)
    torch.tanh(preactivations[:, 2 * size : 3 * size], out=c_hat)
    torch.sigmoid(preactivations[:, 3 * size : 4 * size], out=o)
    torch.softmax(preactivations[:, 4 * size :].view_as(softmax), dim=-1, out=softmax)
    f_hat, i_hat = _effective_gates(saved)
    torch.addcmul(i_hat * c_hat, f_hat, previous_cell, out=cells)
    torch.mul(o, torch.tanh(cells), out=output)


def _backward_step(saved: Saved, previous_cell: Tensor, gradients: StepGradients) -> None:
    """`loop.BackwardStep` in plain PyTorch."""
    (gates, softmax, cells), d_preactivations = saved, gradients.preactivations
    size, chunks = cells.shape[1], (*softmax.shape[::2], -1)
    i, f, c_hat, o = gates.chunk(4, dim=1)
    f_hat, i_hat = _effective_gates(saved)
    tanh = torch.tanh(cells)
    d_h = gradients.hidden if gradients.output is None else gradients.hidden + gradients.output
    d_c = gradients.cell + d_h * o * (1 - tanh * tanh)
    d_preactivations[:, 3 * size : 4 * size] = d_h * tanh * o * (1 - o)
    d_preactivations[:, 2 * size : 3 * size] = d_c * i_hat * (1 - c_hat * c_hat)
    torch.mul(d_c, f_hat, out=gradients.cell)
    d_f_hat, d_i_hat = d_c * previous_cell, d_c * c_hat

    f_tilde, i_tilde = master_gates_of(softmax)
    omega = (f_tilde * i_tilde).unsqueeze(-1)
    i, f, d_f_hat, d_i_hat = (tensor.reshape(chunks) for tensor in (i, f, d_f_hat, d_i_hat))
    d_preactivations[:, size : 2 * size] = (d_f_hat * omega * f * (1 - f)).flatten(1)
    d_preactivations[:, :size] = (d_i_hat * omega * i * (1 - i)).flatten(1)
    # Gradients of ω, then of f̃ and ĩ, summed over the units of a chunk.
    d_omega = (d_f_hat * (f - 1) + d_i_hat * (i - 1)).sum(-1)
    d_f_tilde = d_f_hat.sum(-1) + d_omega * i_tilde
    d_i_tilde = d_i_hat.sum(-1) + d_omega * f_tilde
    # A distance is M minus the sum of the gate.
    if gradients.forget_distance is not None:
        d_f_tilde = d_f_tilde - gradients.forget_distance.unsqueeze(-1)
    if gradients.input_distance is not None:
        d_i_tilde = d_i_tilde - gradients.input_distance.unsqueeze(-1)
    # The gradient of a cumulative sum is summed in reverse, as a `backward_mask` is.
    d_softmax = torch.stack([backward_mask(d_f_tilde), -backward_mask(d_i_tilde)], dim=1)
    d_logits = softmax * (d_softmax - (softmax * d_softmax).sum(-1, keepdim=True))
    d_preactivations[:, 4 * size :] = d_logits.flatten(1)


def _effective_gates(saved: Saved) -> tuple[Tensor, Tensor]:
    """f̂ and î, (rows, H)."""
    rows, size = saved.cells.shape
    f_tilde, i_tilde = (master.unsqueeze(-1) for master in master_gates_of(saved.softmax))
    omega = f_tilde * i_tilde
    i, f = saved.gates[:, : 2 * size].view(rows, 2, saved.softmax.shape[2], -1).unbind(1)
    f_hat = torch.addcmul(f_tilde - omega, f, omega)
    i_hat = torch.addcmul(i_tilde - omega, i, omega)
    return f_hat.flatten(1), i_hat.flatten(1)


OPERATOR = define("onlstm::sequence", Loop(_forward_step, _backward_step))
run_recurrence = partial(contract.run, OPERATOR)
