"""The recurrence compiled for the CPU it runs on, as an operator of PyTorch.

Sequences are independent, so every thread takes a share of them from the first token to the last, and back,
without
waiting for the others: `recurrence.c` says how. It computes active slots only (→π_i > 0), with nothing
between the operations of a slot but the operations; the matrix products are those of PyTorch's own BLAS.
The C is compiled when it is first needed, into the user's cache directory; without a compiler this engine
cannot run, and "auto" does without it.

`torch.ops.ordered_memory.native` is the loop over time, `…native_backward` its reverse. What the second
needs beyond the arguments is among the outputs of the first (`top`, `tape`), and how many shares there are
is an argument of
both: a reverse pass asks nothing of its surroundings.

Under bfloat16 autocast products take bfloat16 operands on processors that multiply such numbers; sums and
all else stay in the dtype of the parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from ordered_memory.backends import contract, module_checks
from ordered_memory.backends.contract import Arguments, Dropout, MemoryRecurrence, OrderedMemoryState, Weights
from ordered_memory.backends.native import call
from ordered_memory.backends.runtime.build import Library
from ordered_memory.cells import GatedRecursiveCell
from ordered_memory.checks import check_device

Function = TypeVar("Function", bound=Callable[..., Any])


_constant: Callable[[Function], Function] = torch.compiler.assume_constant_result


def run_recurrence(
    inputs: Tensor,
    state: OrderedMemoryState,
    modules: contract.Modules,
    lengths: Tensor | None = None,
    masks: contract.Masks = None,
) -> MemoryRecurrence:
    """`ordered_memory.memory.run_recurrence`, several times faster.

    Dropout that is sampled here is another one from the same seed than the definition's.

    Args:
        inputs: x̃, (T, B, D).
        state: before the first token.
        modules: the learned ones.
        lengths: tokens in each sequence, (B,) int64, 0 or more, or None when none is padded.
        masks: dropout masks of each step, or the sampler of them.
    Returns:
        Outputs (T, B, D), final state, attention (T, B, N).
    """
    arguments = contract.prepare(inputs, state, modules, lengths, masks)
    weights, dropout = arguments.weights, arguments.dropout
    output, attention, memory, candidate, occupancy, _, _ = native(
        arguments.inputs,
        arguments.queries,
        arguments.lengths,
        *arguments.state,
        [weight for weight in weights if weight is not None],
        *dropout[:5],
        dropout.cell_level,
        dropout.score_level,
        arguments.threshold,
        arguments.norm_epsilon,
        arguments.key_epsilon,
        arguments.bfloat16 and multiplies_bfloat16(),
        arguments.needs_grad,
        min(_num_threads(), arguments.inputs.shape[1]),
    )
    return MemoryRecurrence(output, OrderedMemoryState(memory, candidate, occupancy), attention)


def why_not(inputs: Tensor, modules: contract.Modules) -> str | None:
    """Why this engine cannot run; see `ordered_memory.backends.module_checks.why_not`."""
    if inputs.device.type not in ("cpu", "meta"):
        return f"it runs on a CPU, the inputs are on {inputs.device.type}"
    if (reason := module_checks.why_not(inputs, modules)) is not None:
        return reason
    if type(modules.cell) is not GatedRecursiveCell:
        return f"it does not know the cell {type(modules.cell).__name__}"
    dtype = modules.cell.from_memory.weight.dtype
    if dtype not in (torch.float32, torch.float64):
        return f"its parameters must all be float32 or all float64, not {dtype}"
    return _why_not_compiled(dtype)


@_constant
def multiplies_bfloat16() -> bool:
    """Whether this engine runs here and takes bfloat16 operands under autocast."""
    library = call.compiled(torch.float32)
    return isinstance(library, Library) and library.bf16_gemm is not None


@_constant
def _num_threads() -> int:
    """As many as when a graph was captured: shares that find no thread of their own wait for one."""
    return torch.get_num_threads()


@_constant
def _why_not_compiled(dtype: torch.dtype) -> str | None:
    library = call.compiled(dtype)
    return library if isinstance(library, str) else None


@torch.library.custom_op("ordered_memory::native", mutates_args=(), device_types="cpu")
def native(
    inputs: Tensor,
    queries: Tensor,
    lengths: Tensor | None,
    memory: Tensor,
    candidate: Tensor,
    occupancy: Tensor,
    weights: list[Tensor],
    cell_input_mask: Tensor | None,
    hidden_mask: Tensor | None,
    key_mask: Tensor | None,
    feature_mask: Tensor | None,
    seed: Tensor | None,
    cell_level: int,
    score_level: int,
    threshold: float,
    norm_epsilon: float,
    key_epsilon: float,
    bfloat16: bool,
    keep: bool,
    shares: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, list[Tensor]]:
    """The loop over time.

    Args:
        inputs, queries, lengths, memory, candidate, occupancy, threshold, norm_epsilon, key_epsilon:
            `Arguments`.
        weights: `Weights` of the gated cell, those that are not None.
        cell_input_mask, hidden_mask, key_mask, feature_mask, seed, cell_level, score_level: `Dropout`.
        bfloat16: products take operands of that dtype.
        keep: a reverse pass may follow.
        shares: into which the sequences are divided, one for each thread.
    Returns:
        `call.Outputs`.
    """
    arguments = _arguments(
        *(inputs, queries, lengths, memory, candidate, occupancy, weights),
        *(cell_input_mask, hidden_mask, key_mask, feature_mask, seed, cell_level, score_level),
        *(threshold, norm_epsilon, key_epsilon, bfloat16),
    )
    return call.forward(arguments, shares, keep)


@native.register_fake
def _native_fake(*arguments: Any) -> call.Outputs:
    inputs, (memory, candidate, occupancy), (keep, shares) = arguments[0], arguments[3:6], arguments[-2:]
    for name, tensor in zip(
        ("queries", *OrderedMemoryState._fields), (arguments[1], *arguments[3:6]), strict=True
    ):
        check_device(name, tensor, inputs)
    for name, tensor in zip(Weights._fields, arguments[6], strict=False):
        check_device(name, tensor, inputs)
    steps, batch_size, size = inputs.shape
    num_slots = memory.shape[1]
    sizes = call.tape_sizes(steps, batch_size, num_slots, size, inputs.dtype, shares) if keep else []
    return call.Outputs(
        inputs.new_empty(inputs.shape),
        inputs.new_empty(steps, batch_size, num_slots),
        memory.new_empty(memory.shape),
        candidate.new_empty(candidate.shape),
        occupancy.new_empty(occupancy.shape),
        inputs.new_empty((steps, batch_size), dtype=torch.int32),
        [inputs.new_empty(length, dtype=torch.uint8) for length in sizes],
    )


@torch.library.custom_op("ordered_memory::native_backward", mutates_args=(), device_types="cpu")
def native_backward(
    d_output: Tensor | None,
    d_attention: Tensor | None,
    d_memory: Tensor | None,
    d_candidate: Tensor | None,
    d_occupancy: Tensor | None,
    output: Tensor,
    attention: Tensor,
    top: Tensor,
    tape: list[Tensor],
    inputs: Tensor,
    queries: Tensor,
    lengths: Tensor | None,
    memory: Tensor,
    candidate: Tensor,
    occupancy: Tensor,
    weights: list[Tensor],
    cell_input_mask: Tensor | None,
    hidden_mask: Tensor | None,
    key_mask: Tensor | None,
    feature_mask: Tensor | None,
    seed: Tensor | None,
    cell_level: int,
    score_level: int,
    threshold: float,
    norm_epsilon: float,
    key_epsilon: float,
    bfloat16: bool,
    shares: int,
) -> list[Tensor]:
    """The reverse of `native`; see `native` for the arguments that both take.

    Args:
        d_output, d_attention, d_memory, d_candidate, d_occupancy: gradients of its results; None is zero.
        output, attention, top, tape: its results; the final state is not needed.
        inputs, …, bfloat16, shares: its arguments.
    Returns:
        Gradients of inputs, queries, memory, candidate, occupancy and the weights.
    """
    arguments = _arguments(
        *(inputs, queries, lengths, memory, candidate, occupancy, weights),
        *(cell_input_mask, hidden_mask, key_mask, feature_mask, seed, cell_level, score_level),
        *(threshold, norm_epsilon, key_epsilon, bfloat16),
    )
    upstream = (d_output, d_attention, d_memory, d_candidate, d_occupancy)
    return call.backward(arguments, (output, attention, top), tape, shares, upstream)


@native_backward.register_fake
def _native_backward_fake(*arguments: Any) -> list[Tensor]:
    inputs, queries, _, memory, candidate, occupancy, weights = arguments[9:16]
    wanted = (inputs, queries, memory, candidate, occupancy, *weights)
    return [tensor.new_empty(tensor.shape) for tensor in wanted]


def _arguments(
    inputs: Tensor,
    queries: Tensor,
    lengths: Tensor | None,
    memory: Tensor,
    candidate: Tensor,
    occupancy: Tensor,
    weights: list[Tensor],
    *rest: Any,
) -> Arguments:
    """The operator's arguments as the contract has them."""
    state = OrderedMemoryState(memory, candidate, occupancy)
    arguments = Arguments(inputs, queries, lengths, state, Weights(*weights), Dropout(*rest[:7]), *rest[7:])
    call.check(arguments)
    return arguments


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    ctx.set_materialize_grads(False)
    *tensors, weights = inputs[:7]
    masks, ctx.numbers, ctx.shares = inputs[7:12], inputs[12:18], inputs[-1]
    ctx.num_weights = len(weights)
    ctx.save_for_backward(output[0], output[1], output[5], *tensors, *masks, *weights, *output[6])


def _backward(ctx: Any, *upstream: Tensor | None) -> tuple[Any, ...]:
    output, attention, top, *saved = ctx.saved_tensors
    tensors, masks, rest = saved[:6], saved[6:11], saved[11:]
    weights, tape = rest[: ctx.num_weights], rest[ctx.num_weights :]
    gradients = native_backward(
        *upstream[:5], output, attention, top, tape, *tensors, weights, *masks, *ctx.numbers, ctx.shares
    )
    inputs, queries, memory, candidate, occupancy, *of_weights = gradients
    return inputs, queries, None, memory, candidate, occupancy, of_weights, *[None] * 13


def _no_second_derivative(ctx: Any, *upstream: Any) -> None:
    raise RuntimeError("backend 'native' cannot be differentiated twice: use backend='reference'")


native.register_autograd(_backward, setup_context=_setup_context)
native_backward.register_autograd(_no_second_derivative)
