"""One step of the recurrence for the active slots only, and its backward pass.

Equations and notation (x̃, M, M̂, p, →π, ←π) are those of `ordered_memory.memory.step`. In inactive slots
(→π_i = 0), M̂_i = x̃, and the cell has no gradient.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ordered_memory.attention import masked_attention
from ordered_memory.backends.sequence.cells import Pairs
from ordered_memory.backends.sequence.layout import Layout, active_layout, dense_layout, vectors_of
from ordered_memory.backends.sequence.masks import RowMasks
from ordered_memory.backends.sequence.operations import Operations
from ordered_memory.cumulative import backward_mask, forward_mask


class StepState(NamedTuple):
    """The state between two steps.

    Args:
        layout: the active pairs.
        entries: [M_i; M̂_{i-1}] of each pair, then [unused; M̂_N] of each row, (E, 2D).
        occupancy: (R, N + 1).
    """

    layout: Layout
    entries: Tensor
    occupancy: Tensor


class Gradients(NamedTuple):
    """Gradients of a `StepState`, of the same shapes, accumulated in place."""

    entries: Tensor
    occupancy: Tensor

    @classmethod
    def zeros(cls, carried: StepState) -> Gradients:
        """Gradients that are all zero.

        Args:
            carried: the state whose gradients they are.
        """
        return cls(torch.zeros_like(carried.entries), torch.zeros_like(carried.occupancy))


class Step(NamedTuple):
    """What a step saves for the backward pass.

    Args:
        carried: the state after the step.
        composed: the cell's results for the pairs, before LayerNorm, (P, D).
        attention: p, (R, N).
        forward_pi: →π of the pairs, (P,).
        backward_pi: ←π of the pairs, (P,); 1 where the slot was not active in the previous step.
        old_candidate, old_memory: indices of M̂ and M of the pairs in `vectors_of` the previous entries, (P,).
        scored: tensor saved by the score.
        cell_saved: tensors saved by the cell.
        score_masks: dropout masks of the score's candidates and features.
        input_masks, hidden_masks: dropout masks of the cell's inputs and hidden units.
    """

    carried: StepState
    composed: Tensor
    attention: Tensor
    forward_pi: Tensor
    backward_pi: Tensor
    old_candidate: Tensor
    old_memory: Tensor
    scored: Tensor
    cell_saved: tuple[Tensor, ...]
    score_masks: tuple[RowMasks, RowMasks]
    input_masks: RowMasks
    hidden_masks: RowMasks

    @property
    def pairs(self) -> Pairs:
        """The inputs of the cell, (P, 2D), and their dropout masks."""
        layout, entries, _ = self.carried
        return Pairs(entries[: layout.num_pairs], layout.counts, self.input_masks, self.hidden_masks)


def forward_step(t: int, x: Tensor, query: Tensor, previous: StepState, operations: Operations) -> Step:
    """Read one token of each row.

    Args:
        t: index of the step, for its dropout masks.
        x: x̃, (R, D).
        query: queries of the score, (R, D).
        previous: the state before the step, of at least R rows.
        operations: score, cell and LayerNorm, and the settings of the pass.
    """
    plan = operations.plan
    scores, score_masks, scored = _score(t, query, previous, operations)
    attention = masked_attention(scores, previous.occupancy[: len(x)], plan.threshold)
    forward_pi, backward_pi = forward_mask(attention), backward_mask(attention)
    num_slots = attention.shape[1]
    if plan.active_only:
        layout = active_layout((forward_pi != 0).sum(1), num_slots)
    else:
        layout = dense_layout(len(x), num_slots, x.device)

    row, slot = layout.pair_row, layout.pair_slot
    flat_index = row * num_slots + slot
    old_candidate = previous.layout.candidate_index(row, slot)
    old_memory, was_active = previous.layout.memory_index(row, slot)
    # Where the slot was not active before, ←π = 1 and M[t-1] has no effect, so it may be any value.
    old_memory = torch.where(was_active, old_memory, old_candidate)
    forward_pi_of_pairs = forward_pi.flatten()[flat_index]
    backward_pi_of_pairs = backward_pi.flatten()[flat_index].masked_fill_(~was_active, 1.0)

    entries = x.new_empty(len(layout.entry_row), 2 * x.shape[1])
    vectors_of(entries).index_copy_(0, layout.x_index, x)
    torch.lerp(
        vectors_of(previous.entries).index_select(0, old_memory),
        vectors_of(previous.entries).index_select(0, old_candidate),
        backward_pi_of_pairs.unsqueeze(1),
        out=entries[: layout.num_pairs].chunk(2, 1)[0],
    )
    input_masks = plan.masks.at("cell_input_mask", t, row, slot, 2 * x.shape[1])
    hidden_masks = plan.masks.at("hidden_mask", t, row, slot, operations.cell.hidden_units)
    operations.cell.begin(Pairs(entries[: layout.num_pairs], layout.counts, input_masks, hidden_masks))
    composed = _compose(x, layout, entries, forward_pi_of_pairs, operations)
    return Step(
        StepState(layout, entries, torch.cat([forward_pi, torch.ones_like(forward_pi[:, :1])], 1)),
        composed,
        attention,
        forward_pi_of_pairs,
        backward_pi_of_pairs,
        old_candidate,
        old_memory,
        scored,
        operations.cell.saved,
        score_masks,
        input_masks,
        # Drawn masks of hidden units are 0 or 1: the backward pass sees them in the hidden units.
        hidden_masks if hidden_masks.drop_below is None else RowMasks(),
    )


def backward_step(
    x: Tensor,
    query: Tensor,
    step: Step,
    previous: StepState,
    operations: Operations,
    gradients: Gradients,
    d_attention: Tensor | None,
    previous_gradients: Gradients,
) -> tuple[Tensor, Tensor]:
    """The backward pass of `forward_step`.

    Args:
        x: x̃, (R, D).
        query: queries of the score, (R, D).
        step: result of `forward_step`.
        previous: the state before the step.
        operations: score, cell and LayerNorm, which accumulate the gradients of the weights.
        gradients: gradients of the state after the step; overwritten.
        d_attention: upstream gradient of p, (R, N); None is zero.
        previous_gradients: gradients of the state before the step; accumulated in place.
    Returns:
        The gradients of x̃ and of the queries, (R, D) each.
    """
    layout = step.carried.layout
    num_slots = step.attention.shape[1]
    flat_index = layout.pair_row * num_slots + layout.pair_slot

    d_forward_pi_of_pairs, d_x = _compose_backward(x, step, operations, gradients)
    d_memory = gradients.entries[: layout.num_pairs].chunk(2, 1)[0]
    vectors = vectors_of(previous.entries)
    difference = vectors.index_select(0, step.old_candidate) - vectors.index_select(0, step.old_memory)
    d_backward_pi_of_pairs = torch.linalg.vecdot(d_memory, difference)
    to_candidate = d_memory * step.backward_pi.unsqueeze(1)
    vectors_of(previous_gradients.entries).index_add_(0, step.old_candidate, to_candidate)
    vectors_of(previous_gradients.entries).index_add_(0, step.old_memory, d_memory - to_candidate)

    # p_j is a term of →π_i for all i ≥ j, and of ←π_i for all i ≤ j.
    d_forward_pi = gradients.occupancy[:, :-1].flatten().index_add_(0, flat_index, d_forward_pi_of_pairs)
    d_backward_pi = torch.zeros_like(d_forward_pi).index_add_(0, flat_index, d_backward_pi_of_pairs)
    d_p = backward_mask(d_forward_pi.view_as(step.attention))
    d_p += forward_mask(d_backward_pi.view_as(step.attention))
    if d_attention is not None:
        d_p += d_attention

    # p_i = m_i exp(a_i) / Σ_j m_j exp(a_j)
    d_scores = step.attention * (d_p - torch.linalg.vecdot(step.attention, d_p).unsqueeze(1))
    mask = previous.occupancy[: len(x), 1:]  # below the threshold p is 0, and so are its gradients
    previous_gradients.occupancy[: len(x), 1:] += d_scores / mask.masked_fill(mask == 0, 1.0)
    return d_x, _score_backward(d_scores, query, step, previous, operations, previous_gradients)


def _score(
    t: int, query: Tensor, previous: StepState, operations: Operations
) -> tuple[Tensor, tuple[RowMasks, RowMasks], Tensor]:
    """The scores of the slots that can be attended to, (R, N), -inf for the others."""
    candidate, row, slot = _attended(previous)
    rows, num_slots = len(query), previous.occupancy.shape[1] - 1
    plan_masks = operations.plan.masks
    keys = plan_masks.at("key_mask", t, row, slot, query.shape[1])
    masks = keys, plan_masks.at("feature_mask", t, row, slot, query.shape[1])
    # Entries of rows that have ended are scored with the query of some other row; these scores are discarded.
    values, saved = operations.score.forward(query, row.clamp(max=rows - 1), candidate, masks)
    scores = values.new_full((len(previous.occupancy) * num_slots,), -torch.inf)
    scores.index_copy_(0, row * num_slots + slot, values)
    return scores.view(-1, num_slots)[:rows], masks, saved


def _score_backward(
    d_scores: Tensor,
    query: Tensor,
    step: Step,
    previous: StepState,
    operations: Operations,
    previous_gradients: Gradients,
) -> Tensor:
    """The backward pass of `_score`. Returns the gradient of the queries, (R, D)."""
    candidate, row, slot = _attended(previous)
    rows, num_slots = d_scores.shape
    padded = d_scores.new_zeros(len(previous.occupancy), num_slots)
    padded[:rows] = d_scores
    return operations.score.backward(
        padded[row, slot],
        torch.nn.functional.pad(query, (0, 0, 0, len(padded) - rows)),
        row,
        candidate,
        step.score_masks,
        step.scored,
        d_candidate=previous_gradients.entries.chunk(2, 1)[1][previous.layout.num_above :],
    )[:rows]


def _attended(previous: StepState) -> tuple[Tensor, Tensor, Tensor]:
    """The candidates that can be attended to (all but M̂_0), (E', D), and their rows and slots."""
    layout, entries, _ = previous
    above = layout.num_above
    return entries.chunk(2, 1)[1][above:], layout.entry_row[above:], layout.entry_slot[above:]


def _compose(
    x: Tensor, layout: Layout, entries: Tensor, forward_pi: Tensor, operations: Operations
) -> Tensor:
    """Fill in M̂ of the entries, slot after slot. Returns the results of the cell, (P, D)."""
    composed = x.new_empty(layout.num_pairs, x.shape[1])
    ordered_x = x.index_select(0, layout.order)
    outputs = layout.outputs(entries.chunk(2, 1)[1])
    composed_of, forward_pi_of = composed.split(layout.counts), forward_pi.unsqueeze(1).split(layout.counts)
    for i, count in enumerate(layout.counts):
        if count:
            operations.cell.compose(i, out=composed_of[i])
            normalized, _, _ = operations.norm.forward(composed_of[i])
            torch.lerp(ordered_x[:count], normalized, forward_pi_of[i], out=outputs[i])
    return composed


def _compose_backward(
    x: Tensor, step: Step, operations: Operations, gradients: Gradients
) -> tuple[Tensor, Tensor]:
    """The backward pass of `_compose`. Returns the gradients of →π, (P,), and x̃, (R, D)."""
    layout, cell = step.carried.layout, operations.cell
    cell.begin_backward(step.pairs, step.cell_saved)
    ordered_x = x.index_select(0, layout.order)
    d_ordered_x = torch.zeros_like(x)
    d_forward_pi = torch.empty_like(step.forward_pi)
    forward_pi_of = step.forward_pi.unsqueeze(1).split(layout.counts)
    d_forward_pi_of = d_forward_pi.split(layout.counts)
    composed_of = step.composed.split(layout.counts)
    d_inputs_of = gradients.entries[: layout.num_pairs].split(layout.counts)
    d_outputs = layout.outputs(gradients.entries.chunk(2, 1)[1])
    for i in reversed(range(len(layout.counts))):
        count = layout.counts[i]
        if count:
            d_output = d_outputs[i]
            normalized, mean, rstd = operations.norm.forward(composed_of[i])
            d_normalized = d_output * forward_pi_of[i]
            d_ordered_x[:count] += d_output - d_normalized
            torch.linalg.vecdot(d_output, normalized - ordered_x[:count], out=d_forward_pi_of[i])
            d_composed = operations.norm.backward(d_normalized, composed_of[i], mean, rstd)
            cell.compose_backward(i, d_composed, d_inputs_of[i])
    cell.end_backward()
    d_copy = vectors_of(gradients.entries).index_select(0, layout.x_index)
    return d_forward_pi, d_ordered_x.index_select(0, layout.rank).add_(d_copy)
