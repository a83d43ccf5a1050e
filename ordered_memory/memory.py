"""The definition of Ordered Memory, to be read beside the paper: one time step, and the loop over time.

Axes: B batch, T time, N slots, D slot size. Slot index 0 is the paper's slot 1, the top of the stack
(shortest-lived); index N - 1 is slot N, the bottom (the root). Everything here is a pure function
of tensors and of three modules: score, cell and LayerNorm. Backends compute the same results faster.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ordered_memory.attention import NO_SCORE_MASKS, masked_attention
from ordered_memory.cells import NO_CELL_MASKS
from ordered_memory.cumulative import backward_mask, forward_mask
from ordered_memory.devices import copy_to
from ordered_memory.recurrence import DropoutSampler, Masks, Modules, RecurrenceOutput, StepMasks
from ordered_memory.state import OrderedMemoryState, check_loop, check_state


def initial_state(batch_size: int, num_slots: int, like: Tensor) -> OrderedMemoryState:
    """The empty memory: all zeros.

    Args:
        batch_size: B.
        num_slots: N.
        like: tensor (..., D) whose dtype and device the state takes.
    Returns:
        Memory and candidate (B, N, D), occupancy (B, N + 1).
    """
    slots, occupancy_shape = (batch_size, num_slots, like.shape[-1]), (batch_size, num_slots + 1)
    return OrderedMemoryState(like.new_zeros(slots), like.new_zeros(slots), like.new_zeros(occupancy_shape))


def step(
    x: Tensor, state: OrderedMemoryState, modules: Modules, masks: StepMasks | None = None
) -> tuple[OrderedMemoryState, Tensor]:
    """One time step: read one token of each sequence.

    Ordered Memory, equations (3)–(11) and Algorithm 1, with M̂_0 = x̃:
    `p = masked_attention(score(x̃, M̂[t-1]), occupancy[t-1])`;
    `M_i = M_i[t-1] (1 - ←π_i) + M̂_i[t-1] ←π_i`;
    `o_i = LN(cell(M_i, M̂_{i-1}))`; `M̂_i = x̃ (1 - →π_i) + o_i →π_i`.
    Equation (7) has the index i + 1 on (1 - →π), a misprint; Algorithm 1 has i.

    Args:
        x: x̃ = LN(W x + b), equation (1), (B, D).
        state: state after the previous step.
        modules: score, cell and LayerNorm.
        masks: dropout masks; None for no dropout.
    Returns:
        The new state (the output of the step is `state.candidate[:, -1]`) and p, (B, N).
    Raises:
        ValueError: `state` does not fit `x` in size, dtype or device.
    Example:
        >>> from ordered_memory import GatedRecursiveCell, NormalizedScore
        >>> modules = Modules(NormalizedScore(8), GatedRecursiveCell(8), torch.nn.LayerNorm(8))
        >>> x = torch.randn(2, 8)
        >>> state = initial_state(batch_size=2, num_slots=3, like=x)
        >>> state, p = step(x, state, modules)
        >>> state.candidate.shape, p.shape
        (torch.Size([2, 3, 8]), torch.Size([2, 3]))
    """
    check_state(state, x.shape[:1], state.memory.shape[1], x.shape[1], x)
    masks = masks or StepMasks()
    score_masks, cell_masks = masks.score or NO_SCORE_MASKS, masks.cell or NO_CELL_MASKS

    # Under autocast, linear maps (and LayerNorm on a CPU) return the autocast dtype: back to the dtype of x.
    scores = modules.score(x, state.candidate, score_masks).to(x.dtype)
    p = masked_attention(scores, state.occupancy, modules.threshold)
    forward = forward_mask(p)  # →π: 1 from the attended slot down, where the token's subtree is written
    backward = backward_mask(p).unsqueeze(-1)  # ←π: 1 from it up, where the previous candidate is stored

    # lerp(a, b, w) = a (1 - w) + b w, and exactly a where w = 0.
    memory = torch.lerp(state.memory, state.candidate, backward)
    prepared = modules.cell.prepare(memory, cell_masks)
    above = x  # M̂_{i-1}, the candidate of the slot above
    candidates = []
    # unbind rather than index: the gradient of each index would be a tensor of zeros for all slots.
    slots = zip(prepared.unbind(1), memory.unbind(1), forward.unsqueeze(-1).unbind(1), strict=True)
    for i, (prepared_i, memory_i, forward_i) in enumerate(slots):
        composed = modules.norm(modules.cell.compose(prepared_i, memory_i, above, cell_masks.slot(i)))
        above = torch.lerp(x, composed.to(x.dtype), forward_i)
        candidates.append(above)

    occupancy = torch.cat([forward, torch.ones_like(forward[:, :1])], dim=-1)
    return OrderedMemoryState(memory, torch.stack(candidates, dim=1), occupancy), p


def run_recurrence(
    inputs: Tensor,
    state: OrderedMemoryState,
    modules: Modules,
    lengths: Tensor | None = None,
    masks: Masks = None,
) -> RecurrenceOutput:
    """Read whole sequences, one time step after the other. Every backend must give the same results.

    A step past the end of a sequence leaves its state unchanged, and its output is zero.

    Args:
        inputs: x̃, (T, B, D).
        state: initial state.
        modules: score, cell and LayerNorm.
        lengths: number of tokens of each sequence, (B,) int64 on any device, 0 or more; None if nothing is
            padded.
        masks: dropout masks of each step, or a sampler that draws them; None for no dropout.
    Returns:
        Outputs (T, B, D), final state, attention (T, B, N).
    Raises:
        ValueError: T is 0, `state` does not fit `inputs` in size, dtype or device, or `lengths` is not (B,).
    """
    check_loop(state, inputs, lengths)
    if lengths is not None:
        lengths = copy_to(lengths, inputs.device)
    outputs, attention = [], []
    for t, x in enumerate(inputs):
        step_masks = None
        if masks is not None:
            step_masks = masks(t) if isinstance(masks, DropoutSampler) else masks[t]
        new_state, p = step(x, state, modules, step_masks)
        output = new_state.candidate[:, -1]
        if lengths is not None:
            running = t < lengths
            new_state = OrderedMemoryState(
                *(_where_running(running, new, old) for new, old in zip(new_state, state, strict=True))
            )
            output, p = _where_running(running, output), _where_running(running, p)
        state = new_state
        outputs.append(output)
        attention.append(p)
    return RecurrenceOutput(torch.stack(outputs), state, torch.stack(attention))


def _where_running(running: Tensor, new: Tensor, old: Tensor | None = None) -> Tensor:
    """`new` for the sequences that have not ended, `old` (or zero) for the others."""
    running = running.view(-1, *[1] * (new.dim() - 1))
    return torch.where(running, new, torch.zeros_like(new) if old is None else old.to(new.dtype))
