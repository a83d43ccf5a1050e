"""The loop over time and its backward pass, as one autograd.Function over packed sequences.

Rows are the sequences, longest first, so that the rows of a step are a prefix. Tokens are packed as in
PackedSequence, step after step without padding. `layout` describes how the slots of a step are stored, `step`
computes one step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from ordered_memory.backends.contract import Weights
from ordered_memory.backends.sequence.layout import dense_layout, vectors_of
from ordered_memory.backends.sequence.operations import Operations, RecurrencePlan
from ordered_memory.backends.sequence.step import (
    Gradients,
    Step,
    StepState,
    backward_step,
    forward_step,
)
from ordered_memory.modes import without_autocast
from ordered_memory.state import OrderedMemoryState

Value = TypeVar("Value", Tensor, Tensor | None)


class Packed(NamedTuple, Generic[Value]):
    """The results of the loop, or their gradients (None is zero).

    Args:
        output: M̂_N of every token, (tokens, D).
        attention: p of every token, (tokens, N).
        memory, candidate, occupancy: the state after each row's last token.
    """

    output: Value
    attention: Value
    memory: Value
    candidate: Value
    occupancy: Value


def run(
    plan: RecurrencePlan,
    tokens: Tensor,
    queries: Tensor,
    state: OrderedMemoryState,
    weights: Weights,
    saved_steps: list[Step] | None = None,
) -> Packed[Tensor]:
    """Read all sequences, without autograd.

    Args:
        plan: settings of the pass.
        tokens: x̃, packed, (tokens, D).
        queries: queries of the score, packed, (tokens, D).
        state: initial state of all rows.
        weights: weights of the recurrence.
        saved_steps: list to which every step is appended, for the backward pass; None to save nothing.
    Returns:
        Outputs, attention and final state.
    """
    operations = Operations(plan, weights)
    result = Packed(
        torch.empty_like(tokens),
        tokens.new_empty(len(tokens), state.memory.shape[1]),
        *(tensor.clone(memory_format=torch.contiguous_format) for tensor in state),
    )
    carried = _initial_step_state(state)
    for t, (x, query, output, attention) in enumerate(
        zip(*(packed.split(plan.batch_sizes) for packed in (tokens, queries, *result[:2])), strict=True)
    ):
        step = forward_step(t, x, query, carried, operations)
        attention.copy_(step.attention)
        torch.index_select(vectors_of(step.carried.entries), 0, step.carried.layout.root_index, out=output)
        _write_final(t, plan, step, carried, result)
        carried = step.carried
        if saved_steps is not None:
            saved_steps.append(step)
    return result


class Recurrence(torch.autograd.Function):
    """`run` with an explicit backward pass."""

    @staticmethod
    def forward(
        ctx: Any, plan: RecurrencePlan, tokens: Tensor, queries: Tensor, *others: Any
    ) -> tuple[Tensor, ...]:
        """The forward pass; see `ordered_memory.backends.sequence.recurrence.run`.

        Args:
            plan, tokens, queries: arguments of `run`.
            *others: the three tensors of the state and the weights.
        """
        state, weights = OrderedMemoryState(*others[:3]), Weights(*others[3:])
        steps: list[Step] = []
        result = run(plan, tokens, queries, state, weights, steps)
        # All tensors go through save_for_backward, so that hooks (checkpointing, offloading) see them.
        # The class Tensor takes their place.
        leaves, ctx.structure = tree_flatten((tokens, queries, state, weights, steps))
        ctx.save_for_backward(*(leaf for leaf in leaves if isinstance(leaf, Tensor)))
        ctx.plan, ctx.leaves = plan, [Tensor if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        ctx.set_materialize_grads(False)
        return result

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        """The backward pass.

        Args:
            *upstream: gradients with respect to the results; None is zero.
        """
        _check_first_derivative(upstream)
        saved = iter(ctx.saved_tensors)
        # A hook of saved tensors may have returned them with other strides.
        leaves = [next(saved).contiguous() if leaf is Tensor else leaf for leaf in ctx.leaves]
        with without_autocast(leaves[0].device):
            return None, *_run_backward(ctx.plan, Packed(*upstream), *tree_unflatten(leaves, ctx.structure))


def _check_first_derivative(upstream: Sequence[Tensor | None]) -> None:
    """Raise an error in the backward of an autograd.Function if more is asked for than one first derivative.

    `torch.autograd.function.once_differentiable` raises an error only when the second derivative is computed,
    and returns zero for the part of it that does not depend on the upstream gradient.
    """
    functorch = torch._C._functorch
    is_batched = (functorch.is_batchedtensor, functorch.is_legacy_batchedtensor)  # by vmap, is_grads_batched
    if any(batched(gradient) for gradient in upstream if gradient is not None for batched in is_batched):
        raise RuntimeError("this backend does not support batched gradients: use backend='reference'")
    if torch.is_grad_enabled():
        raise RuntimeError(
            "this backend cannot be differentiated twice (create_graph=True): use backend='reference'"
        )


def _run_backward(
    plan: RecurrencePlan,
    upstream: Packed[Tensor | None],
    tokens: Tensor,
    queries: Tensor,
    state: OrderedMemoryState,
    weights: Weights,
    steps: list[Step],
) -> tuple[Tensor | None, ...]:
    """The gradients of tokens, queries, initial state (three tensors) and weights."""
    if not steps:  # no row has a token
        zeros = (None if weight is None else torch.zeros_like(weight) for weight in weights)
        return torch.zeros_like(tokens), torch.zeros_like(queries), *upstream[2:], *zeros
    operations = Operations(plan, weights)
    d_tokens, d_queries = [], []
    x_of, query_of = tokens.split(plan.batch_sizes), queries.split(plan.batch_sizes)
    d_output_of, d_attention_of = (
        [None] * len(steps) if packed is None else packed.split(plan.batch_sizes) for packed in upstream[:2]
    )
    initial = _initial_step_state(state)
    gradients = Gradients.zeros(steps[-1].carried)
    for t in reversed(range(len(steps))):
        previous = steps[t - 1].carried if t > 0 else initial
        previous_gradients = Gradients.zeros(previous)
        _read_final_gradient(t, plan, steps[t], previous, upstream, gradients, previous_gradients)
        d_output = d_output_of[t]
        if d_output is not None:
            vectors_of(gradients.entries).index_add_(0, steps[t].carried.layout.root_index, d_output)
        d_x, d_query = backward_step(
            x_of[t],
            query_of[t],
            steps[t],
            previous,
            operations,
            gradients,
            d_attention_of[t],
            previous_gradients,
        )
        d_tokens.append(d_x)
        d_queries.append(d_query)
        gradients = previous_gradients
    num_rows, num_slots, size = state.memory.shape
    by_slot = gradients.entries.view(num_slots + 1, num_rows, 2, size).transpose(0, 1)
    d_state = [by_slot[:, :-1, 0], by_slot[:, 1:, 1], gradients.occupancy]
    for d_initial, final in zip(d_state, upstream[2:], strict=True):
        if final is not None:  # rows without a token return their initial state
            d_initial[plan.batch_sizes[0] :] += final[plan.batch_sizes[0] :]
    return (
        torch.cat(d_tokens[::-1]),
        torch.cat(d_queries[::-1]),
        *d_state,
        *operations.gradients(),
    )


def _initial_step_state(state: OrderedMemoryState) -> StepState:
    """The initial state, with every slot in the layout."""
    num_rows, num_slots, size = state.memory.shape
    entries = state.memory.new_zeros(num_slots + 1, num_rows, 2, size)
    entries[:-1, :, 0] = state.memory.transpose(0, 1)
    entries[1:, :, 1] = state.candidate.transpose(0, 1)
    layout = dense_layout(num_rows, num_slots, state.memory.device)
    return StepState(layout, entries.view(-1, 2 * size), state.occupancy)


def _ended(t: int, plan: RecurrencePlan, step: Step) -> tuple[slice, Tensor, Tensor] | None:
    """The rows whose last token is read at step t; and the row and the slot of all their slots, (rows, N)."""
    rows, num_slots = step.attention.shape
    num_running = plan.batch_sizes[t + 1] if t + 1 < len(plan.batch_sizes) else 0
    if num_running == rows:
        return None
    device = step.attention.device
    row = torch.arange(num_running, rows, device=device).unsqueeze(1).expand(-1, num_slots)
    return slice(num_running, rows), row, torch.arange(num_slots, device=device).expand_as(row)


def _write_final(
    t: int, plan: RecurrencePlan, step: Step, previous: StepState, result: Packed[Tensor]
) -> None:
    """Write the final state of the rows whose last step is t.

    Slots above the first active one have ←π_i = 1, so M_i = M̂_i[t-1]. The exception is a memory that was
    empty: there ←π_i = 0, and M_i is that of the initial state.
    """
    ended = _ended(t, plan, step)
    if ended is None:
        return
    rows, row, slot = ended
    current_vectors, old_vectors = vectors_of(step.carried.entries), vectors_of(previous.entries)
    memory = old_vectors[previous.layout.candidate_index(row, slot)]
    if t == 0:
        empty = (step.attention[rows].sum(1) == 0).view(-1, 1, 1)
        memory = torch.where(empty, old_vectors[previous.layout.memory_index(row, slot)[0]], memory)
    index, active = step.carried.layout.memory_index(row, slot)
    memory = torch.where(active.unsqueeze(-1), current_vectors[index], memory)
    result.memory[rows] = memory
    result.candidate[rows] = current_vectors[step.carried.layout.candidate_index(row, slot)]
    result.occupancy[rows] = step.carried.occupancy[rows]


def _read_final_gradient(
    t: int,
    plan: RecurrencePlan,
    step: Step,
    previous: StepState,
    upstream: Packed[Tensor | None],
    gradients: Gradients,
    previous_gradients: Gradients,
) -> None:
    """The backward pass of `_write_final`: accumulates the gradients of this step and of the previous one."""
    ended = _ended(t, plan, step)
    if ended is None:
        return
    rows, row, slot = ended
    if upstream.occupancy is not None:
        gradients.occupancy[rows] += upstream.occupancy[rows]
    if upstream.candidate is not None:
        _add_to_vectors(gradients, step.carried.layout.candidate_index(row, slot), upstream.candidate[rows])
    if upstream.memory is None:
        return
    memory = upstream.memory[rows]
    index, active = step.carried.layout.memory_index(row, slot)
    _add_to_vectors(gradients, index, memory.masked_fill(~active.unsqueeze(-1), 0))
    memory = memory.masked_fill(active.unsqueeze(-1), 0)
    if t == 0:
        empty = (step.attention[rows].sum(1) == 0).view(-1, 1, 1)
        _add_to_vectors(
            previous_gradients, previous.layout.memory_index(row, slot)[0], memory.masked_fill(~empty, 0)
        )
        memory = memory.masked_fill(empty, 0)
    _add_to_vectors(previous_gradients, previous.layout.candidate_index(row, slot), memory)


def _add_to_vectors(gradients: Gradients, index: Tensor, values: Tensor) -> None:
    vectors_of(gradients.entries).index_add_(0, index.flatten(), values.flatten(0, 1))
