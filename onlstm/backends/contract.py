"""The interface that all backends of ON-LSTM implement.

The backends (`native`, `sequence`, `triton_steps`) import this file and never each other. A backend
implements the loop over time and its backward pass on plain tensors, `ordered_memory.backends.operators`
registers them as PyTorch operators, and `run` calls the operator.

Axes as in `onlstm.functional`: P packed tokens, T steps, B sequences, H units, M entries of a master gate,
G = 4H + 2M.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from onlstm.checks import check_batch_sizes, check_recurrence
from onlstm.functional import RecurrenceOutput, Weights
from ordered_memory.backends import operators
from ordered_memory.checks import check_device, check_dtype
from ordered_memory.modes import autocast_dtype, without_autocast


class Inputs(NamedTuple):
    """The inputs of the loop over time. All floating-point tensors have one dtype and are on one device.

    Args:
        tokens: x, (P, features).
        batch_sizes: number of sequences at each step, (T,) int64 on the CPU.
        weight_ih: W, (G, features).
        weight_hh: U, (G, H).
        bias: b, (G,), or None.
        hidden, cell: initial state, (B, H) each.
        chunk_size: C.
        bfloat16: whether autocast asks for matrix products with bfloat16 operands.
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
    """Base class of the implementations of ON-LSTM."""

    inputs_type = Inputs
    results_type = RecurrenceOutput
    results_for_backward = ("output",)
    differentiable = ("tokens", "weight_ih", "weight_hh", "bias", "hidden", "cell")

    def new_results(self, inputs: Inputs) -> RecurrenceOutput:
        new, tokens, state = inputs.tokens.new_empty, inputs.tokens.shape[0], inputs.hidden.shape
        return RecurrenceOutput(new(tokens, state[1]), new(state), new(state), new(tokens), new(tokens))

    def check(self, inputs: Inputs) -> None:
        weights = Weights(inputs.weight_ih, inputs.weight_hh, inputs.bias)
        tokens, batch_sizes, hidden = inputs.tokens, inputs.batch_sizes, inputs.hidden
        check_recurrence(tokens, batch_sizes, weights, hidden, inputs.cell, inputs.chunk_size)
        check_batch_sizes(batch_sizes.tolist(), len(tokens), len(hidden))


def why_not(tokens: Tensor, weights: Weights, hidden: Tensor, cell: Tensor) -> str | None:
    """Why a backend other than the definition cannot run on these arguments of `run_recurrence`.

    Args:
        tokens: x, (P, features).
        weights: weights of the layer.
        hidden: initial h, (B, H).
        cell: initial c, (B, H).
    Returns:
        The reason, as a clause for the error message; None if it can.
    """
    wrapped = operators.why_not_wrapped(*weights)
    return wrapped or operators.why_not_transformed(tokens, *weights, hidden, cell)


def run(
    operator: Any,
    tokens: Tensor,
    batch_sizes: Sequence[int] | Tensor,
    weights: Weights,
    hidden: Tensor,
    cell: Tensor,
    chunk_size: int,
) -> RecurrenceOutput:
    """Run the recurrence as an operator; see `onlstm.functional.run_recurrence` for the other arguments.

    Args:
        operator: operator of the backend.
        tokens, batch_sizes, weights, hidden, cell, chunk_size: arguments of `run_recurrence`.
    Raises:
        ValueError: the shapes, dtypes or devices of the tensors do not match.
    """
    sizes = torch.as_tensor(batch_sizes, dtype=torch.int64, device="cpu")
    for name, tensor in (
        ("tokens", tokens),
        ("weights.weight_ih", weights.weight_ih),
        ("weights.bias", weights.bias),
        ("hidden", hidden),
        ("cell", cell),
    ):
        if tensor is not None:
            check_device(name, tensor, weights.weight_hh)
            check_dtype(name, tensor, weights.weight_hh)
    dtype = weights.weight_hh.dtype
    bfloat16 = autocast_dtype(tokens.device) == torch.bfloat16  # before autocast is disabled
    with without_autocast(tokens.device):
        tensors = (tokens.to(dtype), sizes, *weights, hidden.to(dtype), cell.to(dtype))
        save = operators.needs_backward(tensors)
        return RecurrenceOutput(*operator(*tensors, chunk_size, bfloat16, save)[:5])


def states_before(initial: Tensor, packed: Tensor, batch_sizes: Sequence[int]) -> list[Tensor]:
    """The state, h or c, before each step, for the sequences of the step.

    Args:
        initial: initial state, (B, H).
        packed: state of every token, (P, H).
        batch_sizes: number of sequences at each step.
    Returns:
        For each step a view, (rows, H).
    """
    states = (initial, *packed.split(batch_sizes)[:-1])
    return [state[:rows] for state, rows in zip(states, batch_sizes, strict=True)]


def gradients(
    inputs: Inputs,
    output: Tensor,
    d_preactivations: Tensor,
    d_hidden: Tensor,
    d_cell: Tensor,
    needs_input_grad: list[bool],
    rounded: Tensor | None = None,
    multiply: Callable[[Tensor, Tensor, int], Tensor] | None = None,
) -> list[Tensor | None]:
    """The gradients of the inputs, from those that the backward loop has computed.

    Args:
        inputs: inputs of the loop.
        output: h of every token, (P, H).
        d_preactivations: gradient of the pre-activations, (P, G).
        d_hidden, d_cell: gradients of the initial state, (B, H).
        needs_input_grad: for each of `Implementation.differentiable`, whether its gradient is needed.
        rounded: `d_preactivations` in the dtype of the operands of matrix products; None for
            `d_preactivations` itself.
        multiply: computes the product of two matrices of that dtype, given which dimension of the first one
            is the number of tokens; None for PyTorch's product.
    Returns:
        The gradients, None for those that are not needed.
    """
    operand = d_preactivations if rounded is None else rounded
    batch_sizes: list[int] = inputs.batch_sizes.tolist()

    def product(left: Tensor, right: Tensor, token_dim: int) -> Tensor:
        right = right.to(left.dtype)
        result = left @ right if multiply is None else multiply(left, right, token_dim)
        return result.to(d_preactivations.dtype)

    gradient_functions: tuple[Callable[[], Tensor], ...] = (
        lambda: product(operand, inputs.weight_ih, 0),
        lambda: product(operand.t(), inputs.tokens, 1),
        lambda: product(operand.t(), torch.cat(states_before(inputs.hidden, output, batch_sizes)), 1),
        lambda: d_preactivations.sum(0),
        lambda: d_hidden,
        lambda: d_cell,
    )
    pairs = zip(gradient_functions, needs_input_grad, strict=True)
    return [gradient() if needed else None for gradient, needed in pairs]
