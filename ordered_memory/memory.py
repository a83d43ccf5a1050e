"""Ordered Memory as equations: one time step, and the loop over time. This is the definition.

Axes: B batch, T time, N slots, D slot size. Slot index 0 is the paper's slot 1, the top of the stack
(shortest-lived); index N - 1 is slot N, the bottom (the root). Everything here is a pure function
of tensors and of the three learned modules; backends are faster ways to the same numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ordered_memory.attention import NO_SCORE_MASKS, masked_attention
from ordered_memory.backends.contract import (
    Masks,
    MemoryRecurrence,
    Modules,
    OrderedMemoryState,
    StepMasks,
    check_state,
)
from ordered_memory.cells import NO_MASKS
from ordered_memory.cumulative import backward_mask, forward_mask


def initial_state(batch_size: int, num_slots: int, like: Tensor) -> OrderedMemoryState:
    """The empty memory: all zeros.

    Args:
        batch_size: B.
        num_slots: N.
        like: of the dtype and device of the state; its last size is D.
    Returns:
        Memory and candidate (B, N, D), occupancy (B, N + 1).
    """
    slots = like.new_zeros(batch_size, num_slots, like.shape[-1])
    return OrderedMemoryState(slots, slots, like.new_zeros(batch_size, num_slots + 1))


def step(
    x: Tensor, state: OrderedMemoryState, modules: Modules, masks: StepMasks | None = None
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
        modules: the learned ones.
        masks: dropout masks, or None.
    Returns:
        The new state (the output of the step is `state.candidate[:, -1]`) and p, (B, N).
    """
    masks = masks or StepMasks()
    score_masks, cell_masks = masks.score or NO_SCORE_MASKS, masks.cell or NO_MASKS

    # `.to`: autocast gives linear maps, and LayerNorms on a CPU, its own dtype; the recurrence stays in x's.
    scores = modules.score(x, state.candidate, score_masks).to(x.dtype)
    p = masked_attention(scores, state.occupancy, modules.threshold)
    forward = forward_mask(p)  # →π: from which slot on the token's subtree is written
    backward = backward_mask(p).unsqueeze(-1)  # ←π: up to which slot the memory takes the last candidate

    # lerp(a, b, w) = a (1 - w) + b w, and exactly a where w = 0.
    memory = torch.lerp(state.memory, state.candidate, backward)
    prepared = modules.cell.prepare(memory, cell_masks)
    below = x
    candidates = []
    # unbind, because the gradient of indexing slot by slot would fill a whole memory of zeros for each.
    slots = zip(prepared.unbind(1), memory.unbind(1), forward.unsqueeze(-1).unbind(1), strict=True)
    for i, (prepared_i, memory_i, forward_i) in enumerate(slots):
        composed = modules.norm(modules.cell.compose(prepared_i, memory_i, below, cell_masks.slot(i)))
        below = torch.lerp(x, composed.to(x.dtype), forward_i)
        candidates.append(below)

    occupancy = torch.cat([forward, torch.ones_like(forward[:, :1])], dim=-1)
    return OrderedMemoryState(memory, torch.stack(candidates, dim=1), occupancy), p


def run_recurrence(
    inputs: Tensor,
    state: OrderedMemoryState,
    modules: Modules,
    lengths: Tensor | None = None,
    masks: Masks = None,
) -> MemoryRecurrence:
    """Read whole sequences, one step at a time: the definition that every backend must equal.

    A step past the end of a sequence leaves its state unchanged and its output is zero.

    Args:
        inputs: x̃, (T, B, D).
        state: before the first token.
        modules: the learned ones.
        lengths: tokens in each sequence, (B,) int64, 0 or more, or None when none is padded.
        masks: dropout masks of each step, or the sampler of them.
    Returns:
        Outputs (T, B, D), final state, attention (T, B, N).
    """
    check_state(state, inputs.shape[1:2], state.memory.shape[1], inputs.shape[2], inputs)
    outputs, attention = [], []
    for t, x in enumerate(inputs):
        step_masks = masks(t) if callable(masks) else masks[t] if masks is not None else None
        new_state, p = step(x, state, modules, step_masks)
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
    return MemoryRecurrence(torch.stack(outputs), state, torch.stack(attention))


def _where(running: Tensor, new: Tensor, old: Tensor | None = None) -> Tensor:
    """`new` for the rows that still run, `old` (or zero) for the others."""
    running = running.view(-1, *[1] * (new.dim() - 1))
    return torch.where(running, new, torch.zeros_like(new) if old is None else old.to(new.dtype))
