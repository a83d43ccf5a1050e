"""The definition of ON-LSTM, to be read beside the paper: master gates, one time step, loop over time.

Axes: B batch, H hidden units, C chunk size, M = H / C entries of a master gate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from einops import repeat
from torch import Tensor

from onlstm.checks import check_batch_sizes, check_recurrence
from ordered_memory.cumulative import cumax


class MasterGates(NamedTuple):
    """The master gates at one step: which levels of the hierarchy are erased and written.

    Args:
        forget: f̃, (..., M), non-decreasing; its last entry is 1 up to rounding.
        input: ĩ, (..., M), non-increasing; its last entry is 0 up to rounding, so that the last chunk is
            never written. This follows from the paper's definition.
    """

    forget: Tensor
    input: Tensor

    def distances(self) -> tuple[Tensor, Tensor]:
        """The forget and the input distance of each token, in master-gate entries.

        ON-LSTM, equation (15): `d̂ = M - Σ_k f̃_k`, and likewise for ĩ; see `onlstm.Distances`.

        Returns:
            Two tensors (...), values in [0, M].
        """
        size = self.forget.shape[-1]
        return size - self.forget.sum(-1), size - self.input.sum(-1)


def master_gates(forget_logits: Tensor, input_logits: Tensor) -> MasterGates:
    """Compute the master gates.

    ON-LSTM, equations (9) and (10): `f̃ = cumax(·)`, `ĩ = 1 - cumax(·)`.

    Args:
        forget_logits: (..., M).
        input_logits: (..., M).
    Returns:
        Both gates, (..., M), entries in [0, 1] up to rounding.
    Example:
        >>> master_gates(torch.zeros(1, 4), torch.zeros(1, 4)).forget
        tensor([[0.2500, 0.5000, 0.7500, 1.0000]])
    """
    return MasterGates(cumax(forget_logits), 1 - cumax(input_logits))


def step(preactivations: Tensor, cell: Tensor, chunk_size: int) -> tuple[Tensor, Tensor, MasterGates]:
    """One time step, given the pre-activations.

    ON-LSTM, equations (1)–(5) and (9)–(14), with ∘ the elementwise product and every entry of a master gate
    repeated C times: `ω = f̃ ∘ ĩ`; `f̂ = f ∘ ω + (f̃ - ω)`; `î = i ∘ ω + (ĩ - ω)`;
    `c = f̂ ∘ c[t-1] + î ∘ ĉ`; `h = o ∘ tanh(c)`.

    Args:
        preactivations: W x_t + U h_{t-1} + b, (..., 4H + 2M): of i, f, ĉ and o in this order, as in
            nn.LSTM, then those of f̃ and ĩ.
        cell: c[t-1], (..., H).
        chunk_size: C, number of units for each entry of a master gate; divides H.
    Returns:
        h_t and c_t, (..., H), and the master gates.
    Raises:
        ValueError: H is not divisible by C, or `preactivations` or `cell` has the wrong size.
    Example:
        >>> hidden, cell, _ = step(torch.zeros(2, 4 * 6 + 2 * 3), torch.zeros(2, 6), chunk_size=2)
        >>> hidden.shape, cell.shape
        (torch.Size([2, 6]), torch.Size([2, 6]))
    """
    hidden_size = cell.shape[-1]
    if chunk_size < 1 or hidden_size % chunk_size:
        raise ValueError(f"hidden_size={hidden_size} must be divisible by chunk_size={chunk_size}")
    master_size = hidden_size // chunk_size
    if preactivations.shape[-1] != 4 * hidden_size + 2 * master_size:
        raise ValueError(
            f"preactivations must have 4H + 2M = {4 * hidden_size + 2 * master_size} entries for "
            f"hidden_size={hidden_size} and chunk_size={chunk_size}, got {preactivations.shape[-1]}"
        )
    if cell.shape[:-1] != preactivations.shape[:-1]:
        raise ValueError(
            f"cell must have shape {(*preactivations.shape[:-1], hidden_size)} for these preactivations, got "
            f"{tuple(cell.shape)}"
        )
    sizes = [hidden_size] * 4 + [master_size] * 2
    pre_i, pre_f, pre_c_hat, pre_o, forget_logits, input_logits = torch.split(preactivations, sizes, dim=-1)
    f, i, o = torch.sigmoid(pre_f), torch.sigmoid(pre_i), torch.sigmoid(pre_o)  # (1)–(3)
    c_hat = torch.tanh(pre_c_hat)  # (4)
    master = master_gates(forget_logits, input_logits)  # (9), (10)
    f_tilde = repeat(master.forget, "... m -> ... (m c)", c=chunk_size)
    i_tilde = repeat(master.input, "... m -> ... (m c)", c=chunk_size)

    omega = f_tilde * i_tilde  # (11)
    f_hat = f * omega + (f_tilde - omega)  # (12)
    i_hat = i * omega + (i_tilde - omega)  # (13)
    cell = f_hat * cell + i_hat * c_hat  # (14)
    hidden = o * torch.tanh(cell)  # (5)
    return hidden, cell, master


class RecurrenceOutput(NamedTuple):
    """The results of the loop over time, for P packed tokens.

    Args:
        output: h of every token, (P, H).
        hidden: h after each sequence's last token, (B, H).
        cell: c after each sequence's last token, (B, H).
        forget_distance: forget distance of every token, (P,), in master-gate entries.
        input_distance: input distance of every token, (P,), in master-gate entries.
    """

    output: Tensor
    hidden: Tensor
    cell: Tensor
    forget_distance: Tensor
    input_distance: Tensor


class Weights(NamedTuple):
    """The weights of one layer and direction, each with 4H + 2M rows: i, f, ĉ, o, logits of f̃ and ĩ.

    Args:
        weight_ih: W, (4H + 2M, features).
        weight_hh: U, (4H + 2M, H).
        bias: b, (4H + 2M,), or None.
    """

    weight_ih: Tensor
    weight_hh: Tensor
    bias: Tensor | None


def run_recurrence(
    tokens: Tensor,
    batch_sizes: Sequence[int] | Tensor,
    weights: Weights,
    hidden: Tensor,
    cell: Tensor,
    chunk_size: int,
) -> RecurrenceOutput:
    """The loop over time: `step` on W x_t + U h_{t-1} + b for every token.

    Tokens are packed as in PackedSequence: all tokens of the first step, then those of the second, …. Within
    a step the sequences are sorted by length, longest first, so that a sequence has the same row at every
    step.

    Args:
        tokens: x, (P, features).
        batch_sizes: number of sequences at each step: T ≥ 1 positive, non-increasing numbers with sum P;
            zeros if there are no tokens.
        weights: W, U and b.
        hidden: initial h, (B, H).
        cell: initial c, (B, H).
        chunk_size: C.
    Returns:
        Outputs, the state after each sequence's last token, and distances.
    Raises:
        ValueError: the shapes of the arguments do not match, or `batch_sizes` do not fit them.
    Example:
        >>> weights = Weights(torch.zeros(10, 3), torch.zeros(10, 2), None)
        >>> state = torch.zeros(2, 2), torch.zeros(2, 2)
        >>> result = run_recurrence(torch.zeros(5, 3), [2, 2, 1], weights, *state, chunk_size=2)
        >>> result.output.shape, result.cell.shape
        (torch.Size([5, 2]), torch.Size([2, 2]))
    """
    check_recurrence(tokens, batch_sizes, weights, hidden, cell, chunk_size)
    # Under autocast, matrix products have the autocast dtype, and everything else that of the state.
    from_tokens = F.linear(tokens, weights.weight_ih, weights.bias).to(cell.dtype)  # W x_t + b
    outputs: list[Tensor] = []
    distances: list[tuple[Tensor, Tensor]] = []
    ended: list[tuple[Tensor, Tensor]] = []
    sizes = _sizes(batch_sizes, tokens.shape[0], hidden.shape[0])
    for from_token, rows in zip(from_tokens.split(sizes), sizes, strict=True):
        if rows < hidden.shape[0]:
            ended.append((hidden[rows:], cell[rows:]))
            hidden, cell = hidden[:rows], cell[:rows]
        preactivations = from_token + hidden @ weights.weight_hh.T
        hidden, cell, master = step(preactivations, cell, chunk_size)
        outputs.append(hidden)
        distances.append(master.distances())
    ended.append((hidden, cell))
    last_hidden, last_cell = (torch.cat(parts) for parts in zip(*reversed(ended), strict=True))
    forget_distance, input_distance = (torch.cat(parts) for parts in zip(*distances, strict=True))
    return RecurrenceOutput(torch.cat(outputs), last_hidden, last_cell, forget_distance, input_distance)


def _sizes(batch_sizes: Sequence[int] | Tensor, num_tokens: int, num_sequences: int) -> list[int]:
    """`batch_sizes` as ints. If all lengths are equal, no tensor values are read, so that tracing works."""
    steps = len(batch_sizes)
    if steps and isinstance(batch_sizes, Tensor) and num_tokens == steps * num_sequences:
        return [num_sequences] * steps
    sizes = batch_sizes.tolist() if isinstance(batch_sizes, Tensor) else list(batch_sizes)
    if (num_tokens or not steps) and not torch.compiler.is_compiling():  # a graph does not know the values
        check_batch_sizes(sizes, num_tokens, num_sequences)
    return sizes
