"""What every engine of ON-LSTM gets and gives.

The engines (`native`, `sequence`, `triton_steps`) import this file and never each other. An engine writes the
loop over time and its backward pass on plain tensors, `ordered_memory.backends.operators` makes them an
operator of PyTorch, and `run` calls it.

Axes as in `onlstm.functional`: P tokens packed, T steps, B sequences, H units, M entries of a master gate,
G = 4H + 2M.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from onlstm.functional import Recurrence, Weights
from ordered_memory.backends import operators
from ordered_memory.checks import autocast_dtype, check_device, check_dtype, is_transformed


class Inputs(NamedTuple):
    """What the loop over time reads; floating-point tensors are of one dtype and on one device.

    Args:
        tokens: x, (P, features).
        batch_sizes: sequences of each step, (T,) int64 on the CPU.
        weight_ih: W, (G, features).
        weight_hh: U, (G, H).
        bias: b, (G,), or None.
        hidden, cell: before the first token, (B, H).
        chunk_size: C.
        bfloat16: autocast asks for bfloat16 operands.
    """

    tokens: Tensor
    batch_sizes: Tensor
    weight_ih: Tensor
    weight_hh: Tensor
    bias: Tensor | None
    hidden: Tensor
    cell: Tensor
    chunk_size: int
    bfloat16: bool


class Implementation(operators.Implementation):
    """What the engines of ON-LSTM share."""

    inputs_type = Inputs
    results_type = Recurrence
    results_for_backward = ("output",)
    differentiable = ("tokens", "weight_ih", "weight_hh", "bias", "hidden", "cell")

    def new_results(self, inputs: Inputs) -> Recurrence:
        new, tokens, state = inputs.tokens.new_empty, inputs.tokens.shape[0], inputs.hidden.shape
        return Recurrence(new(tokens, state[1]), new(state), new(state), new(tokens), new(tokens))

    def check(self, inputs: Inputs) -> None:
        sizes: list[int] = inputs.batch_sizes.tolist()
        tokens, most = len(inputs.tokens), len(inputs.hidden)
        if not sizes or sorted(sizes, reverse=True) != sizes or sizes[-1] < 1:
            raise ValueError(f"batch_sizes must be positive and never rise, got {sizes[:20]}")
        if sizes[0] > most:
            raise ValueError(f"batch_sizes must begin with 1 to {most} (B), got {sizes[0]}")
        if sum(sizes) != tokens:
            raise ValueError(f"tokens must have shape {(sum(sizes), '…')}, got {tuple(inputs.tokens.shape)}")


def why_not(tokens: Tensor, weights: Weights, hidden: Tensor, cell: Tensor) -> str | None:
    """Why only the definition can run on these arguments of `run_recurrence`.

    Args:
        tokens: x of all steps, (P, features).
        weights: of the layer.
        hidden: h before the first token, (B, H).
        cell: c before the first token, (B, H).
    Returns:
        A clause for the error; None if every engine can.
    """
    if is_transformed(tokens, *weights, hidden, cell):
        return "it has no forward-mode derivative and no batching rule: use backend='reference'"
    return None


def run(
    operator: Any,
    tokens: Tensor,
    batch_sizes: Sequence[int] | Tensor,
    weights: Weights,
    hidden: Tensor,
    cell: Tensor,
    chunk_size: int,
) -> Recurrence:
    """Run the recurrence by an operator; see `onlstm.functional.run_recurrence` for the other arguments.

    Args:
        operator: of the implementation.
        tokens, batch_sizes, weights, hidden, cell, chunk_size: of `run_recurrence`.
    Raises:
        ValueError: a tensor has another shape, dtype or device than the others ask for.
    """
    sizes = torch.as_tensor(batch_sizes, dtype=torch.int64, device="cpu")
    _check(tokens, weights, hidden, cell, chunk_size)
    device, dtype = tokens.device.type, weights.recurrent.dtype
    bfloat16 = autocast_dtype(tokens.device) == torch.bfloat16  # asked before autocast is switched off
    with contextlib.nullcontext() if device == "meta" else torch.autocast(device, enabled=False):
        tensors = (tokens.to(dtype), sizes, *weights, hidden.to(dtype), cell.to(dtype))
        needs_grad = any(tensor is not None and tensor.requires_grad for tensor in tensors)
        keep = torch.is_grad_enabled() and needs_grad
        return Recurrence(*operator(*tensors, chunk_size, bfloat16, keep)[:5])


def _check(tokens: Tensor, weights: Weights, hidden: Tensor, cell: Tensor, chunk_size: int) -> None:
    rows, size = weights.recurrent.shape
    if size % chunk_size or rows != 4 * size + 2 * (size // chunk_size):
        raise ValueError(
            f"weights.recurrent must be (4H + 2M, H), got {(rows, size)} for chunk_size={chunk_size}"
        )
    features = tokens.shape[1]
    for name, tensor, shape in (
        ("tokens", tokens, (tokens.shape[0], features)),
        ("weights.input", weights.input, (rows, features)),
        ("weights.bias", weights.bias, (rows,)),
        ("hidden", hidden, (hidden.shape[0], size)),
        ("cell", cell, (hidden.shape[0], size)),
    ):
        if tensor is None:
            continue
        if tuple(tensor.shape) != shape:
            raise ValueError(f"{name} must have shape {shape}, got {tuple(tensor.shape)}")
        check_device(name, tensor, weights.recurrent)
        check_dtype(name, tensor, weights.recurrent)


def previous_steps(batch_sizes: Sequence[int]) -> list[tuple[slice, slice | None]]:
    """Where each step's tokens are, and where those of the step before are.

    Args:
        batch_sizes: sequences of each step.
    Returns:
        For each step its rows among the tokens, and the rows of the same sequences one step before; None at
        the first step.
    """
    steps: list[tuple[slice, slice | None]] = []
    start = before = 0
    for rows in batch_sizes:
        steps.append((slice(start, start + rows), slice(before, before + rows) if steps else None))
        before, start = start, start + rows
    return steps


def gradients(
    inputs: Inputs,
    output: Tensor,
    d_gates: Tensor,
    d_hidden: Tensor,
    d_cell: Tensor,
    wanted: list[bool],
    operand: torch.dtype | None = None,
    multiply: Callable[[Tensor, Tensor], Tensor] = torch.matmul,
) -> list[Tensor]:
    """The gradients of the inputs, from those that the reverse of the loop has found.

    Args:
        inputs: of the loop.
        output: h of every token, (P, H).
        d_gates: gradient of the pre-activations, (P, G).
        d_hidden, d_cell: gradients of the initial state, (B, H).
        wanted: for each of `Implementation.differentiable`, whether to compute its gradient.
        operand: dtype of the operands of products; by default that of `d_gates`.
        multiply: the product of two matrices of that dtype.
    Returns:
        The gradients that are wanted.
    """
    rounded = d_gates.to(operand or d_gates.dtype)

    def times(left: Tensor, right: Tensor) -> Tensor:
        return multiply(left, right.to(left.dtype)).to(d_gates.dtype)

    found: tuple[Callable[[], Tensor], ...] = (
        lambda: times(rounded, inputs.weight_ih),
        lambda: times(rounded.t(), inputs.tokens),
        lambda: times(rounded.t(), _previous_hidden(inputs, output)),
        lambda: d_gates.sum(0),
        lambda: d_hidden,
        lambda: d_cell,
    )
    return [gradient() for gradient, one in zip(found, wanted, strict=True) if one]


def _previous_hidden(inputs: Inputs, output: Tensor) -> Tensor:
    """h of the step before every token, (P, H)."""
    steps = previous_steps(inputs.batch_sizes.tolist())
    return torch.cat([inputs.hidden[steps[0][0]], *(output[before] for _, before in steps[1:])])
