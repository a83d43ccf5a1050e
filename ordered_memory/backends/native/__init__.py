"""The recurrence compiled for the CPU it runs on, from one file of C.

Sequences are independent, so every thread takes a share of the rows from the first token to the last,
and back, without waiting for the others: `recurrence.c` says how. It computes active slots only, as the
sequence backend does, with nothing between the operations of a slot but the operations; the matrix
products are those of PyTorch's own BLAS. The file is compiled when it is first needed, into the user's
cache directory; without a compiler this backend cannot run, and "auto" does without it.

Under bfloat16 autocast products take bfloat16 operands on processors that multiply such numbers; sums
and all else stay in the dtype of the parameters.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ordered_memory.attention import NormalizedScore
from ordered_memory.backends.derivatives import first_only
from ordered_memory.backends.native.arguments import (
    DOWNSTREAM,
    UPSTREAM,
    WEIGHTS,
    Call,
    Plan,
    Share,
    compiled,
)
from ordered_memory.backends.native.dropout import dropout_of
from ordered_memory.backends.runtime import pool
from ordered_memory.backends.runtime.build import Library, asked_for_bfloat16
from ordered_memory.backends.runtime.threads import run_in_threads
from ordered_memory.backends.sequence import why_not as sequence_cannot
from ordered_memory.backends.sequence.cells import cell_weights
from ordered_memory.backends.sequence.scores import queries, score_weights
from ordered_memory.cells import GatedRecursiveCell
from ordered_memory.memory import Maps, OrderedMemoryState, Recurrence, StepMasks


def why_not(inputs: Tensor, maps: Maps) -> str | None:
    """Why this backend cannot run on (T, B, D) inputs with these maps, or None when it can."""
    if inputs.device.type != "cpu":
        return f"it runs on a CPU, the inputs are on {inputs.device.type}"
    reason = sequence_cannot(inputs, maps)
    if reason is not None:
        return reason
    if type(maps.cell) is not GatedRecursiveCell:
        return f"it does not know the cell {type(maps.cell).__name__}"
    assert isinstance(maps.norm, nn.LayerNorm)
    dtype = maps.norm.weight.dtype
    for weight in (maps.norm.bias, *maps.score.parameters(), *maps.cell.parameters(), maps.norm.weight):
        if weight.dtype not in (torch.float32, torch.float64) or weight.dtype != dtype:
            return f"its parameters must all be float32 or all float64, not {weight.dtype}"
    library = compiled(dtype)
    return library if isinstance(library, str) else None


def multiplies_bfloat16() -> bool:
    """Whether this backend runs here and takes bfloat16 operands under autocast."""
    library = compiled(torch.float32)
    return isinstance(library, Library) and library.half_gemm is not None


def recur(
    inputs: Tensor,
    state: OrderedMemoryState,
    maps: Maps,
    lengths: Tensor | None = None,
    masks: Sequence[StepMasks | None] | Callable[[int], StepMasks | None] | None = None,
) -> Recurrence:
    """`ordered_memory.memory.recur`, several times faster.

    Dropout masks that the layer would draw are drawn here, for active slots only: other ones from the
    same seed than the definition's.

    Args:
        inputs: x̃, (T, B, D).
        state: before the first token.
        maps: the learned maps.
        lengths: tokens in each sequence, (B,) int64, 0 or more, or None when none is padded.
        masks: dropout masks of each step, or a function of t that draws them.
    Returns:
        Outputs (T, B, D), final state, attention (T, B, N).
    """
    assert isinstance(maps.norm, nn.LayerNorm)
    dtype = maps.norm.weight.dtype
    half = asked_for_bfloat16(compiled(dtype))
    with torch.autocast("cpu", enabled=False):
        inputs = inputs.to(dtype)
        state = OrderedMemoryState(*(tensor.to(dtype) for tensor in state))
        steps, batch_size, size = inputs.shape
        num_slots = state.memory.shape[1]
        _check_shapes(state, batch_size, num_slots, size)
        dropout, query_mask = dropout_of(masks, maps, inputs, num_slots)
        queried = queries(maps.score, inputs.flatten(0, 1), query_mask).view_as(inputs)
        of_score, of_cell = score_weights(maps.score), cell_weights(maps.cell)
        plan = Plan(
            [steps] * batch_size if lengths is None else lengths.clamp(0, steps).tolist(),
            isinstance(maps.score, NormalizedScore),
            len(of_score),
            maps.threshold,
            maps.norm.eps,
            dropout,
            half,
        )
        weights = [*of_score, *of_cell, maps.norm.weight, maps.norm.bias]
        if torch.is_grad_enabled():
            output, attention, *final = _Recur.apply(plan, inputs, queried, *state, *weights)  # type: ignore[no-untyped-call]
        else:
            output, attention, *final = _run(plan, inputs, queried, state, weights, keep=False)[0]
        return Recurrence(output, OrderedMemoryState(*final), attention)


def _check_shapes(state: OrderedMemoryState, batch_size: int, num_slots: int, size: int) -> None:
    """C takes sizes on trust."""
    slots = (batch_size, num_slots, size)
    for name, tensor, shape in zip(
        state._fields, state, (slots, slots, (batch_size, num_slots + 1)), strict=True
    ):
        if tuple(tensor.shape) != shape:
            raise ValueError(f"state.{name} must have shape {shape}, got {tuple(tensor.shape)}")


class _Recur(torch.autograd.Function):
    """`_run` and its reverse."""

    @staticmethod
    def forward(
        ctx: Any, plan: Plan, inputs: Tensor, queried: Tensor, *state_and_weights: Tensor
    ) -> tuple[Tensor, ...]:
        state, weights = OrderedMemoryState(*state_and_weights[:3]), state_and_weights[3:]
        result, shares = _run(plan, inputs, queried, state, weights, keep=True)
        ctx.plan, ctx.num_shares = plan, len(shares)
        ctx.set_materialize_grads(False)
        kept = [tensor for share in shares for tensor in share]
        ctx.save_for_backward(inputs, queried, *state, *result[:2], *weights, *kept)
        return result

    @staticmethod
    @first_only
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        split = len(saved) - ctx.num_shares * len(Share._fields)
        inputs, queried, *rest = saved[:split]
        state, (output, attention), weights = OrderedMemoryState(*rest[:3]), rest[3:5], rest[5:]
        size = len(Share._fields)
        shares = [Share(*saved[i : i + size]) for i in range(split, len(saved), size)]
        with torch.autocast("cpu", enabled=False):
            call = Call(ctx.plan, inputs, queried, state, weights, output, attention)
            return None, *_run_back(call, upstream, shares)


def _run(
    plan: Plan,
    inputs: Tensor,
    queried: Tensor,
    state: OrderedMemoryState,
    weights: Sequence[Tensor],
    keep: bool,
) -> tuple[tuple[Tensor, ...], list[Share]]:
    """Output, attention and the three tensors of the final state; what the threads kept."""
    steps, batch_size, size = inputs.shape
    num_slots = state.memory.shape[1]
    output = inputs.new_zeros(steps, batch_size, size)
    attention = inputs.new_zeros(steps, batch_size, num_slots)
    final = [tensor.clone(memory_format=torch.contiguous_format) for tensor in state]
    call = Call(plan, inputs, queried, state, weights, output, attention)
    shares = [_share(rows, plan.lengths, num_slots, inputs, keep) for rows in _divide(plan.lengths)]

    def work(share: Share) -> Share:
        struct = call.struct(share, keep)
        struct.memory, struct.candidate, struct.occupancy = (tensor.data_ptr() for tensor in final)
        pairs = call.library.code.run(ctypes.byref(struct), call.scratch(struct, reverse=False))
        buffers = zip(share[2:6], (2 * size, 4 * size, 4 * size, size), strict=True)
        return share._replace(
            **{
                name: buffer[: pairs * width]
                for name, (buffer, width) in zip(Share._fields[2:6], buffers, strict=True)
            }
        )

    shares = run_in_threads(call.library, work, shares)
    return (output, attention, *final), shares


def _run_back(
    call: Call, upstream: Sequence[Tensor | None], shares: list[Share]
) -> tuple[Tensor | None, ...]:
    """Gradients of inputs, queries, the initial state's three tensors and the weights."""
    gradients = [torch.zeros_like(tensor, memory_format=torch.contiguous_format) for tensor in call.tensors]
    for gradient, final in zip(gradients[2:], upstream[2:], strict=True):
        if final is not None:  # sequences without a token hand it on; the others overwrite it
            gradient.copy_(final)
    given = [None if tensor is None else tensor.contiguous() for tensor in upstream]

    def work(share: Share) -> dict[str, Tensor]:
        struct = call.struct(share, keep=True)
        for name, tensor in zip(UPSTREAM, given, strict=True):
            setattr(struct, name, None if tensor is None else tensor.data_ptr())
        for name, tensor in zip(DOWNSTREAM, gradients, strict=True):
            setattr(struct, name, tensor.data_ptr())
        sums = {name: torch.zeros_like(call.weights[name]) for name in WEIGHTS}
        for name, tensor in sums.items():
            setattr(struct, f"d_{name}", tensor.data_ptr())
        call.library.code.run_back(ctypes.byref(struct), call.scratch(struct, reverse=True))
        return sums

    parts = run_in_threads(call.library, work, shares)
    none = {name: torch.zeros_like(call.weights[name]) for name in WEIGHTS}
    sums = {name: sum((part[name] for part in parts), none[name]) for name in WEIGHTS}
    return *gradients, *call.weight_gradients(sums)


def _divide(lengths: list[int]) -> list[list[int]]:
    """The rows of each thread: all that have a token, dealt out longest first."""
    rows = sorted((row for row, length in enumerate(lengths) if length), key=lambda row: -lengths[row])
    threads = min(torch.get_num_threads(), len(rows))
    return [rows[i::threads] for i in range(threads)]


def _share(rows: list[int], lengths: list[int], num_slots: int, like: Tensor, keep: bool) -> Share:
    """Room for what a thread computes: all that could be active, of which only what is takes memory."""
    steps, size = len(like), like.shape[2]
    own = [lengths[row] for row in rows]
    most = num_slots * (sum(own) if keep else 2 * len(rows))
    at_once = most if keep else num_slots * len(rows)
    return Share(
        row=torch.tensor(rows),
        length=torch.tensor(own),
        input=pool.empty(most * 2 * size, like.dtype),
        hidden=pool.empty(at_once * 4 * size, like.dtype),
        units=pool.empty(at_once * 4 * size, like.dtype),
        composed=pool.empty(at_once * size, like.dtype),
        top=torch.empty(steps, len(rows), dtype=torch.int32),
        start=torch.zeros(steps + 2, dtype=torch.int64),
    )
