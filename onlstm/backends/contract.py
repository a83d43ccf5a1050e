"""What every engine of ON-LSTM gets and gives, and how one becomes an operator of PyTorch.

The engines (`native`, `sequence`, `triton_steps`) import this file and never each other. An engine writes the
loop over time and its reverse pass on plain tensors; `define_operator` makes them `torch.ops.onlstm.NAME` and
`…NAME_backward`, with what tracing and autograd need to know of them, and `run` calls the first.

Axes as in `onlstm.functional`: P tokens packed, T steps, B sequences, H units, M entries of a master gate,
G = 4H + 2M.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd import forward_ad

from onlstm.functional import Recurrence, Weights
from ordered_memory.checks import autocast_dtype, check_device, check_dtype

Shapes = list[tuple[tuple[Any, ...], torch.dtype]]


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


class Engine(Protocol):
    """The loop over time and its reverse pass; all results are new tensors."""

    def kept(self, inputs: Inputs) -> Shapes:
        """Shapes and dtypes of what the reverse pass needs besides inputs and output.

        Args:
            inputs: of the loop.
        """

    def forward(self, inputs: Inputs, keep: bool) -> tuple[Recurrence, list[Tensor]]:
        """Run the loop.

        Args:
            inputs: of the loop.
            keep: whether a reverse pass may follow.
        Returns:
            The result, and what `kept` describes; an empty list without `keep`.
        """

    def backward(
        self,
        inputs: Inputs,
        output: Tensor,
        kept: list[Tensor],
        upstream: Sequence[Tensor | None],
        wanted: list[bool],
    ) -> list[Tensor]:
        """Run the reverse pass.

        Args:
            inputs: of the loop.
            output: h of every token, (P, H).
            kept: what `forward` kept.
            upstream: gradients of the fields of `Recurrence`; None is zero.
            wanted: which of the gradients of tokens, weight_ih, weight_hh, bias, hidden and cell to compute.
        Returns:
            The gradients that are wanted, in this order.
        """


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
    if torch.compiler.is_compiling():
        return None
    tensors = (tokens, *weights, hidden, cell)
    transformed = torch._C._are_functorch_transforms_active()
    if transformed or (forward_ad._current_level >= 0 and any(map(_has_tangent, tensors))):
        return "it has no forward-mode derivative and no batching rule: use backend='reference'"
    return None


def _has_tangent(tensor: Tensor | None) -> bool:
    return tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None


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
        operator: what `define_operator` returned.
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


def check_batch_sizes(inputs: Inputs) -> list[int]:
    """Check the sizes of the steps, whose values tracing cannot see.

    Args:
        inputs: of the loop.
    Returns:
        Sequences of each step, T integers.
    Raises:
        ValueError: they rise, end in 0, or do not fit tokens and state.
    """
    sizes: list[int] = inputs.batch_sizes.tolist()
    tokens, most = len(inputs.tokens), len(inputs.hidden)
    if not sizes or sorted(sizes, reverse=True) != sizes or sizes[-1] < 1:
        raise ValueError(f"batch_sizes must be positive and never rise, got {sizes[:20]}")
    if sizes[0] > most:
        raise ValueError(f"batch_sizes must begin with 1 to {most} (B), got {sizes[0]}")
    if sum(sizes) != tokens:
        raise ValueError(f"tokens must have shape {(sum(sizes), '…')}, got {tuple(inputs.tokens.shape)}")
    return sizes


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


def previous_hidden(inputs: Inputs, output: Tensor) -> Tensor:
    """h of the step before every token.

    Args:
        inputs: of the loop.
        output: h of every token, (P, H).
    Returns:
        (P, H).
    """
    steps = previous_steps(inputs.batch_sizes.tolist())
    return torch.cat([inputs.hidden[steps[0][0]], *(output[before] for _, before in steps[1:])])


def define_operator(name: str, engine: Engine, device_types: str | None = None) -> Any:
    """Make an engine an operator, `torch.ops.onlstm.NAME`.

    Args:
        name: of the operator and, in errors, of the backend.
        engine: what it does.
        device_types: where it runs; None for every device.
    Returns:
        The operator: the fields of `Inputs` and whether a reverse pass may follow, to the fields of
        `Recurrence` and a list of what is kept for that.
    """

    @torch.library.custom_op(f"onlstm::{name}", mutates_args=(), device_types=device_types)
    def operator(
        tokens: Tensor,
        batch_sizes: Tensor,
        weight_ih: Tensor,
        weight_hh: Tensor,
        bias: Tensor | None,
        hidden: Tensor,
        cell: Tensor,
        chunk_size: int,
        bfloat16: bool,
        keep: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, list[Tensor]]:
        inputs = Inputs(tokens, batch_sizes, weight_ih, weight_hh, bias, hidden, cell, chunk_size, bfloat16)
        check_batch_sizes(inputs)
        result, kept = engine.forward(inputs, keep)
        return *result, kept

    @operator.register_fake
    def _(*arguments: Any) -> tuple[Any, ...]:
        inputs, keep = Inputs(*arguments[:-1]), arguments[-1]
        tokens, state, dtype = inputs.tokens.shape[0], inputs.hidden.shape, inputs.tokens.dtype
        shapes: Shapes = [((tokens, state[1]), dtype), (tuple(state), dtype), (tuple(state), dtype)]
        made = [
            inputs.tokens.new_empty(shape, dtype=kind) for shape, kind in [*shapes, *[((tokens,), dtype)] * 2]
        ]
        return *made, [_kept_like(inputs, *one) for one in (engine.kept(inputs) if keep else [])]

    @torch.library.custom_op(f"onlstm::{name}_backward", mutates_args=(), device_types=device_types)
    def backward(
        d_output: Tensor | None,
        d_hidden: Tensor | None,
        d_cell: Tensor | None,
        d_forget_distance: Tensor | None,
        d_input_distance: Tensor | None,
        output: Tensor,
        kept: list[Tensor],
        tokens: Tensor,
        batch_sizes: Tensor,
        weight_ih: Tensor,
        weight_hh: Tensor,
        bias: Tensor | None,
        hidden: Tensor,
        cell: Tensor,
        chunk_size: int,
        bfloat16: bool,
        wanted: list[bool],
    ) -> list[Tensor]:
        inputs = Inputs(tokens, batch_sizes, weight_ih, weight_hh, bias, hidden, cell, chunk_size, bfloat16)
        upstream = (d_output, d_hidden, d_cell, d_forget_distance, d_input_distance)
        return engine.backward(inputs, output, kept, upstream, wanted)

    @backward.register_fake
    def _(*arguments: Any) -> list[Tensor]:
        inputs, wanted = Inputs(*arguments[7:-1]), arguments[-1]
        return [like.new_empty(like.shape) for like in _differentiable(inputs, wanted)]

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        ctx.set_materialize_grads(False)
        ctx.numbers = inputs[7:9]
        ctx.save_for_backward(output[0], *inputs[:7], *output[5])

    def differentiate(ctx: Any, *upstream: Any) -> tuple[Tensor | None, ...]:
        output, *rest = ctx.saved_tensors
        tensors, kept = rest[:7], rest[7:]
        needed = ctx.needs_input_grad
        wanted = [needed[k] for k in (0, 2, 3, 4, 5, 6)]
        found = iter(backward(*upstream[:5], output, kept, *tensors, *ctx.numbers, wanted))
        tokens, *others = (next(found) if one else None for one in wanted)
        return tokens, None, *others, None, None, None

    def refuse(ctx: Any, *upstream: Any) -> None:
        raise RuntimeError(f"backend {name!r} cannot be differentiated twice: use backend='reference'")

    operator.register_autograd(differentiate, setup_context=setup_context)
    backward.register_autograd(refuse)
    return operator


def _differentiable(inputs: Inputs, wanted: list[bool]) -> list[Tensor]:
    tensors = (inputs.tokens, inputs.weight_ih, inputs.weight_hh, inputs.bias, inputs.hidden, inputs.cell)
    return [tensor for tensor, one in zip(tensors, wanted, strict=True) if one and tensor is not None]


def _kept_like(inputs: Inputs, shape: tuple[Any, ...], dtype: torch.dtype) -> Tensor:
    """On the device of the tokens; what is no floating-point number is on the CPU."""
    device = inputs.tokens.device if dtype.is_floating_point else torch.device("cpu")
    return torch.empty(shape, dtype=dtype, device=device)
