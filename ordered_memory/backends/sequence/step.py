"""One step of the recurrence over active slots only, and its reverse.

The equations are those of `ordered_memory.memory.step`; x̃, M, M̂, p, →π and ←π are as there. Inactive
slots (→π_i = 0) hold M̂_i = x̃ and pass no gradient on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ordered_memory.attention import ScoreMasks, masked_attention
from ordered_memory.backends.sequence.cells import Cell
from ordered_memory.backends.sequence.layout import Layout, active_layout, dense_layout
from ordered_memory.backends.sequence.masks import Masks
from ordered_memory.backends.sequence.scores import Score
from ordered_memory.cells import CellMasks
from ordered_memory.cumulative import backward_mask, forward_mask


class Plan(NamedTuple):
    """What the recurrence knows beforehand.

    Args:
        running: rows of each step, non-increasing, positive integers.
        threshold: occupancies below this count as 0.
        epsilon: of the LayerNorm.
        masks: of dropout.
        score: makes the score's kernel from its weights.
        cell: makes the cell's kernel from its weights.
        num_score_weights: how many of the weights are the score's; then the cell's, then the norm's two.
        exact: compute active slots only, which a host has to read off the attention; or else all.
    """

    running: list[int]
    threshold: float
    epsilon: float
    masks: Masks
    score: Callable[[Sequence[Tensor], float], Score]
    cell: Callable[[Sequence[Tensor], float], Cell]
    num_score_weights: int
    exact: bool


class Kernels:
    """The learned maps, ready for one pass over the sequences, and the sums of their gradients.

    Args:
        plan: of the pass.
        weights: the score's, the cell's, the norm's.
    """

    def __init__(self, plan: Plan, weights: Sequence[Tensor]) -> None:
        split = plan.num_score_weights
        self.score = plan.score(weights[:split], plan.masks.score_gain)
        self.cell = plan.cell(weights[split:-2], plan.masks.cell_gain)
        self.norm_weight, self.norm_bias = weights[-2:]
        self.epsilon = plan.epsilon
        self.norm_gradients = [torch.zeros_like(self.norm_weight), torch.zeros_like(self.norm_bias)]

    def normalize(self, composed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The shared LayerNorm: result, mean, 1 / standard deviation."""
        return torch.native_layer_norm(
            composed, composed.shape[1:], self.norm_weight, self.norm_bias, self.epsilon
        )

    def gradients(self) -> list[Tensor | None]:
        """Of the weights, in the order that they were given in."""
        return [*self.score.gradients(), *self.cell.gradients(), *self.norm_gradients]


class Carried(NamedTuple):
    """What a step hands to the next.

    Args:
        layout: the active pairs.
        candidate: M̂ of the entries, (E, D).
        memory: M of the pairs, (P, D).
        occupancy: (R, N + 1).
    """

    layout: Layout
    candidate: Tensor
    memory: Tensor
    occupancy: Tensor


class Gradients(NamedTuple):
    """Gradients of what a step hands on, summed in place; shapes as in `Carried`."""

    candidate: Tensor
    memory: Tensor
    occupancy: Tensor

    @classmethod
    def zeros(cls, carried: Carried) -> Gradients:
        """Of something that nothing depends on yet."""
        return cls(*(torch.zeros_like(tensor) for tensor in carried[1:]))


class Step(NamedTuple):
    """What is kept of a step.

    Args:
        carried: what it hands on.
        composed: what the cell made of the pairs, before LayerNorm, (P, D).
        attention: p, (R, N).
        mask: m, (R, N).
        forward: →π of the pairs, (P,).
        backward: ←π of the pairs, (P,); 1 where the slot was not active a step ago.
        cell_masks: dropout masks of the pairs.
        score_masks: dropout masks of the previous step's entries.
        cell_saved: what the cell's kernel needs in the reverse pass.
        score_saved: what the score's kernel needs.
    """

    carried: Carried
    composed: Tensor
    attention: Tensor
    mask: Tensor
    forward: Tensor
    backward: Tensor
    cell_masks: CellMasks
    score_masks: ScoreMasks
    cell_saved: tuple[Tensor, ...]
    score_saved: tuple[Tensor, ...]

    def tensors(self) -> list[Tensor | None]:
        """All of it but the layout's counts, as many for every step of a pass."""
        layout, *carried = self.carried
        single = (*layout.tensors, *carried, *self[1:6])
        return [*single, *self.cell_masks, *self.score_masks, *self.cell_saved, *self.score_saved]

    @classmethod
    def from_tensors(cls, counts: list[int], tensors: Sequence[Tensor], num_cell_saved: int) -> Step:
        """The step that had these counts and `tensors()`."""
        remaining = iter(tensors)

        def take(number: int) -> tuple[Tensor, ...]:
            return tuple(islice(remaining, number))

        layout = Layout.from_tensors(counts, take(6))
        return cls(
            Carried(layout, *take(3)),
            *take(5),
            CellMasks(*take(3)),
            ScoreMasks(*take(3)),
            take(num_cell_saved),
            tuple(remaining),
        )


def forward_step(
    t: int, x: Tensor, query: Tensor, previous: Carried, kernels: Kernels, plan: Plan
) -> Step:
    """Read one token of each running row.

    Args:
        t: the step, to find its dropout masks by.
        x: x̃, (R, D).
        query: of the score, (R, D).
        previous: what the step before handed on, for at least R rows.
        kernels: the learned maps.
        plan: the pass.
    """
    scores, score_masks, score_saved = _score(t, query, previous, kernels, plan)
    occupancy = previous.occupancy[: len(x)]
    attention = masked_attention(scores, occupancy, plan.threshold)
    mask = occupancy[:, 1:]
    forward, backward = forward_mask(attention), backward_mask(attention)
    num_slots = attention.shape[1]
    if plan.exact:
        layout = active_layout((forward > 0).sum(1), num_slots)
    else:
        layout = dense_layout(len(x), num_slots, x.device)

    row, slot = layout.pair_row, layout.pair_slot
    old_candidate, old_memory, known = _gather(previous, row, slot)
    flat = row * num_slots + slot
    forward_of_pairs = forward.flatten()[flat]
    backward_of_pairs = backward.flatten()[flat].masked_fill_(~known, 1.0)
    memory = torch.lerp(old_memory, old_candidate, backward_of_pairs.unsqueeze(1))
    cell_masks = plan.masks.cell(t, row, slot)
    candidate, composed = _compose(x, layout, memory, forward_of_pairs, cell_masks, kernels)
    return Step(
        Carried(layout, candidate, memory, torch.cat([forward, torch.ones_like(forward[:, :1])], 1)),
        composed,
        attention,
        mask.masked_fill(mask < plan.threshold, 0.0),
        forward_of_pairs,
        backward_of_pairs,
        plan.masks.to_keep(cell_masks),
        score_masks,
        kernels.cell.saved,
        score_saved,
    )


def backward_step(
    x: Tensor,
    step: Step,
    previous: Carried,
    kernels: Kernels,
    gradients: Gradients,
    attention_gradient: Tensor | None,
    before: Gradients,
) -> tuple[Tensor, Tensor]:
    """The reverse of `forward_step`.

    Args:
        x: x̃, (R, D).
        step: what was kept of it.
        previous: what the step before handed on.
        kernels: the learned maps; they sum the gradients of the weights.
        gradients: of what this step handed on; used up.
        attention_gradient: of p, (R, N).
        before: gradients of what the step before handed on, to be added to.
    Returns:
        The gradients of x̃ and of the query, (R, D) each.
    """
    layout = step.carried.layout
    row, slot = layout.pair_row, layout.pair_slot
    num_slots = step.attention.shape[1]
    flat = row * num_slots + slot

    composed_gradient, forward_gradient, x_gradient = _decompose(x, step, kernels, gradients)
    memory_gradient = gradients.memory.add_(kernels.cell.finish_backward(composed_gradient))
    old_candidate, old_memory, _ = _gather(previous, row, slot)
    backward_gradient = torch.linalg.vecdot(memory_gradient, old_candidate - old_memory)
    _scatter(previous, row, slot, memory_gradient, step.backward.unsqueeze(1), before)

    # →π_i and ←π_i of p_j: every i ≥ j, every i ≤ j.
    of_forward = gradients.occupancy[:, :-1].flatten().index_add_(0, flat, forward_gradient)
    of_backward = torch.zeros_like(of_forward).index_add_(0, flat, backward_gradient)
    of_attention = backward_mask(of_forward.view_as(step.attention))
    of_attention += forward_mask(of_backward.view_as(step.attention))
    if attention_gradient is not None:
        of_attention += attention_gradient

    # p_i = m_i e_i / Σ m e
    centred = of_attention - torch.linalg.vecdot(step.attention, of_attention).unsqueeze(1)
    score_gradient = step.attention * centred
    mask_gradient = score_gradient / step.mask.masked_fill(step.mask == 0, 1.0)
    before.occupancy[: len(x), 1:] += mask_gradient
    return x_gradient, _score_backward(score_gradient, step, previous, kernels, before)


def _score(
    t: int, query: Tensor, previous: Carried, kernels: Kernels, plan: Plan
) -> tuple[Tensor, ScoreMasks, tuple[Tensor, ...]]:
    """Scores of all slots that hold something, (R, N), -inf for the others."""
    candidate, row, slot = _attended(previous)
    rows, num_slots = len(query), previous.occupancy.shape[1] - 1
    masks = plan.masks.score(t, row, slot)
    # Entries of rows that have ended are scored too, for somebody else's token, and dropped here.
    values, saved = kernels.score.forward(query[row.clamp(max=rows - 1)], candidate, masks)
    scores = values.new_full((len(previous.occupancy) * num_slots,), -torch.inf)
    scores[row * num_slots + slot] = values
    return scores.view(-1, num_slots)[:rows], masks, saved


def _score_backward(
    gradient: Tensor, step: Step, previous: Carried, kernels: Kernels, before: Gradients
) -> Tensor:
    """Gradient of the queries, (R, D), given that of the scores, (R, N); adds that of the candidates."""
    candidate, row, slot = _attended(previous)
    rows, num_slots = gradient.shape
    padded = gradient.new_zeros(len(previous.occupancy), num_slots)
    padded[:rows] = gradient
    values = padded.flatten()[row * num_slots + slot]
    of_query, of_candidate = kernels.score.backward(values, candidate, step.score_masks, step.score_saved)
    before.candidate[previous.layout.num_above :] += of_candidate
    query_gradient = gradient.new_zeros(rows, candidate.shape[1])
    return query_gradient.index_add_(0, row.clamp(max=rows - 1), of_query)


def _attended(previous: Carried) -> tuple[Tensor, Tensor, Tensor]:
    """The candidates that can be attended to, (E', D), with their rows and slots: all but M̂_0."""
    above = previous.layout.num_above
    return previous.candidate[above:], previous.layout.entry_row[above:], previous.layout.entry_slot[above:]


def _gather(previous: Carried, row: Tensor, slot: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """M̂[t-1] and M[t-1] of pairs, (P, D) each, and whether M[t-1] is known: it is not, and counts for
    nothing, where the slot was not active."""
    candidate = previous.candidate.index_select(0, previous.layout.entry(row, slot))
    if previous.layout.num_pairs == 0:
        return candidate, candidate, torch.zeros_like(row, dtype=torch.bool)
    pair, known = previous.layout.pair(row, slot)
    return candidate, previous.memory.index_select(0, pair), known


def _scatter(
    previous: Carried, row: Tensor, slot: Tensor, gradient: Tensor, backward: Tensor, before: Gradients
) -> None:
    """The reverse of mixing what `_gather` returned by ←π, `backward`, (P, 1)."""
    before.candidate.index_add_(0, previous.layout.entry(row, slot), gradient * backward)
    if previous.layout.num_pairs:
        before.memory.index_add_(0, previous.layout.pair(row, slot)[0], gradient * (1 - backward))


def _compose(
    x: Tensor, layout: Layout, memory: Tensor, forward: Tensor, masks: CellMasks, kernels: Kernels
) -> tuple[Tensor, Tensor]:
    """M̂ of the entries and, of the pairs, what the cell composed: slot after slot."""
    candidate = x.new_empty(len(layout.entry_row), x.shape[1])
    candidate[layout.entry_of_x] = x
    composed = torch.empty_like(memory)
    ordered_x = x[layout.order]
    below_of, above_of = layout.below_and_above(candidate)
    composed_of, forward_of = composed.split(layout.counts), forward.unsqueeze(1).split(layout.counts)
    cell = kernels.cell
    cell.forward(layout, memory, masks)
    for i, count in enumerate(layout.counts):
        if count:
            cell.compose(i, above_of[i], out=composed_of[i])
            normalized, _, _ = kernels.normalize(composed_of[i])
            torch.lerp(ordered_x[:count], normalized, forward_of[i], out=below_of[i])
    return candidate, composed


def _decompose(
    x: Tensor, step: Step, kernels: Kernels, gradients: Gradients
) -> tuple[Tensor, Tensor, Tensor]:
    """The reverse of `_compose`: gradients of what was composed (P, D), of →π (P,) and of x̃ (R, D)."""
    layout, memory = step.carried.layout, step.carried.memory
    candidate = step.carried.candidate
    cell = kernels.cell
    cell.backward(layout, memory, candidate[: layout.num_pairs], step.cell_masks, step.cell_saved)
    normalized, mean, inverse = kernels.normalize(step.composed)
    forward = step.forward.unsqueeze(1)
    normalized_gradient, composed_gradient = torch.empty_like(memory), torch.empty_like(memory)
    of_slot = [
        tensor.split(layout.counts)
        for tensor in (forward, step.composed, mean, inverse, normalized_gradient, composed_gradient)
    ]
    below_of, above_of = layout.below_and_above(gradients.candidate)
    norm = (kernels.norm_weight, kernels.norm_bias)
    for i in reversed(range(len(layout.counts))):
        if layout.counts[i]:
            forward_i, composed_i, mean_i, inverse_i, d_normalized, d_composed = (of[i] for of in of_slot)
            torch.mul(below_of[i], forward_i, out=d_normalized)
            d_composed.copy_(
                torch.ops.aten.native_layer_norm_backward(
                    d_normalized, composed_i, x.shape[1:], mean_i, inverse_i, *norm, [True, False, False]
                )[0]
            )
            cell.decompose(i, d_composed, into=above_of[i])

    if layout.num_pairs:
        _, norm_weight, norm_bias = torch.ops.aten.native_layer_norm_backward(
            normalized_gradient, step.composed, x.shape[1:], mean, inverse, *norm, [False, True, True]
        )
        kernels.norm_gradients[0].add_(norm_weight)
        kernels.norm_gradients[1].add_(norm_bias)
    x_gradient = gradients.candidate[layout.entry_of_x]
    below = gradients.candidate[layout.entry_below]
    x_gradient.index_add_(0, layout.pair_row, below - normalized_gradient)
    forward_gradient = torch.linalg.vecdot(below, normalized - x[layout.pair_row])
    return composed_gradient, forward_gradient, x_gradient
