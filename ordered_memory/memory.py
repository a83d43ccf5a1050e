"""Ordered Memory as equations: one time step, and the loop over time. This is the definition.

Axes: B batch, T time, N slots, D slot size. Slot index 0 is the paper's slot 1, the top of the stack
(shortest-lived); index N - 1 is slot N, the bottom (the root). Everything here is a pure function
of tensors and of the three learned maps; backends are faster ways to the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ordered_memory.attention import (
    NO_SCORE_MASKS,
    OCCUPANCY_THRESHOLD,
    AdditiveScore,
    NormalizedScore,
    ScoreMasks,
    masked_attention,
)
from ordered_memory.cells import NO_MASKS, CellMasks, GatedRecursiveCell, TreeRNNCell
from ordered_memory.cumulative import backward_mask, forward_mask


class OrderedMemoryState(NamedTuple):
    """What one step hands to the next; all zero before the first token.

    Args:
        memory: M, (B, N, D).
        candidate: M̂, (B, N, D); its last slot is the output of the step.
        occupancy: (B, N + 1), fractions in [0, 1]: (→π_1 … →π_N, 1) after any token, 0 before.
    """

    memory: Tensor
    candidate: Tensor
    occupancy: Tensor

    def detach(self) -> OrderedMemoryState:
        """The same state cut off from its history, for truncated back-propagation."""
        return OrderedMemoryState(*(tensor.detach() for tensor in self))


class Maps(NamedTuple):
    """The learned maps of one direction, as the recurrence uses them.

    Args:
        score: (x̃ (B, D), M̂ (B, N, D), masks) → a (B, N).
        cell: composes a slot and the candidate that rises into it.
        norm: the LayerNorm that the input projection and the cell share.
        threshold: occupancies below this count as 0.
    """

    score: AdditiveScore | NormalizedScore
    cell: GatedRecursiveCell | TreeRNNCell
    norm: Callable[[Tensor], Tensor]
    threshold: float = OCCUPANCY_THRESHOLD


class StepMasks(NamedTuple):
    """The dropout masks of one time step; None where nothing is dropped."""

    score: ScoreMasks | None = None
    cell: CellMasks | None = None


class MaskDrawer(NamedTuple):
    """Called with t, draws the dropout masks of step t from the global generator.

    A backend may draw other ones of the same distribution, of the slots that it computes.

    Args:
        maps: whose dropout it is.
        like: x̃ of one step, (B, D).
        num_slots: N.
    """

    maps: Maps
    like: Tensor
    num_slots: int

    def __call__(self, t: int) -> StepMasks:
        arguments = (len(self.like), self.num_slots, self.like)
        return StepMasks(self.maps.score.draw_masks(*arguments), self.maps.cell.draw_masks(*arguments))


class Recurrence(NamedTuple):
    """The result of the loop over time.

    Args:
        output: M̂_N of every step, (T, B, D), zero at padded steps.
        state: after each sequence's last token.
        attention: p of every step, (T, B, N), zero at padded steps.
    """

    output: Tensor
    state: OrderedMemoryState
    attention: Tensor


def initial_state(batch_size: int, num_slots: int, like: Tensor) -> OrderedMemoryState:
    """The empty memory: all zeros, with the dtype, device and last size (D) of `like`."""
    slots = like.new_zeros(batch_size, num_slots, like.shape[-1])
    return OrderedMemoryState(slots, slots, like.new_zeros(batch_size, num_slots + 1))


def step(
    x: Tensor, state: OrderedMemoryState, maps: Maps, masks: StepMasks | None = None
) -> tuple[OrderedMemoryState, Tensor]:
    """Read one token.

    OM, equations (3)–(11) and Algorithm 1, with M̂_0 = x̃:
    `p = masked_attention(score(x̃, M̂[t-1]), occupancy[t-1])`;
    `M_i = M_i[t-1] (1 - ←π_i) + M̂_i[t-1] ←π_i`;
    `o_i = LN(cell(M_i, M̂_{i-1}))`; `M̂_i = x̃ (1 - →π_i) + o_i →π_i`.
    Equation (7) prints (1 - →π)^{i+1}; Algorithm 1's index i is the one that is right.

    Args:
        x: x̃ = LN(W x + b), equation (1), (B, D).
        state: of the previous step.
        maps: the learned maps.
        masks: dropout masks, or None.
    Returns:
        The new state (the output of the step is `state.candidate[:, -1]`) and p, (B, N).
    """
    masks = masks or StepMasks()
    score_masks, cell_masks = masks.score or NO_SCORE_MASKS, masks.cell or NO_MASKS

    p = masked_attention(maps.score(x, state.candidate, score_masks), state.occupancy, maps.threshold)
    forward = forward_mask(p)  # →π: from which slot on the token's subtree is written
    backward = backward_mask(p).unsqueeze(-1)  # ←π: up to which slot the memory takes the last candidate

    # lerp(a, b, w) = a (1 - w) + b w, and exactly a where w = 0.
    memory = torch.lerp(state.memory, state.candidate, backward)
    prepared = maps.cell.prepare(memory, cell_masks)
    below = x
    candidates = []
    # unbind, because the gradient of indexing slot by slot would fill a whole memory of zeros for each.
    slots = zip(prepared.unbind(1), memory.unbind(1), forward.unsqueeze(-1).unbind(1), strict=True)
    for i, (prepared_i, memory_i, forward_i) in enumerate(slots):
        composed = maps.norm(maps.cell.compose(prepared_i, memory_i, below, cell_masks.slot(i)))
        below = torch.lerp(x, composed, forward_i)
        candidates.append(below)

    occupancy = torch.cat([forward, torch.ones_like(forward[:, :1])], dim=-1)
    return OrderedMemoryState(memory, torch.stack(candidates, dim=1), occupancy), p


def recur(
    inputs: Tensor,
    state: OrderedMemoryState,
    maps: Maps,
    lengths: Tensor | None = None,
    masks: Sequence[StepMasks | None] | Callable[[int], StepMasks | None] | None = None,
) -> Recurrence:
    """Read whole sequences, one step at a time: the definition that every backend must equal.

    A step past the end of a sequence leaves its state unchanged and puts out zeros.

    Args:
        inputs: x̃, (T, B, D).
        state: before the first token.
        maps: the learned maps.
        lengths: tokens in each sequence, (B,) int64, 0 or more, or None when none is padded.
        masks: dropout masks of each step: a sequence of T, or a function of t that draws them.
    Returns:
        Outputs (T, B, D), final state, attention (T, B, N).
    """
    outputs, attention = [], []
    for t, x in enumerate(inputs):
        step_masks = masks(t) if callable(masks) else masks[t] if masks is not None else None
        new_state, p = step(x, state, maps, step_masks)
        output = new_state.candidate[:, -1]
        if lengths is not None:
            running = t < lengths
            new_state = OrderedMemoryState(
                *(_where(running, new, old) for new, old in zip(new_state, state, strict=True))
            )
            output, p = _where(running, output), _where(running, p)
        state = new_state
        outputs.append(output)
        attention.append(p)
    return Recurrence(torch.stack(outputs), state, torch.stack(attention))


def _where(running: Tensor, new: Tensor, old: Tensor | None = None) -> Tensor:
    """`new` for the rows that still run, `old` (or zero) for the others."""
    running = running.view(-1, *[1] * (new.dim() - 1))
    return torch.where(running, new, torch.zeros_like(new) if old is None else old.to(new.dtype))
