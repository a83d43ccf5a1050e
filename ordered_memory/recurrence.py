"""What the recurrence of Ordered Memory takes and returns: modules, dropout masks, and its result.

`ordered_memory.memory.run_recurrence` is the definition of the recurrence, and the backends are faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn

from ordered_memory.attention import OCCUPANCY_THRESHOLD, AdditiveScore, NormalizedScore, ScoreMasks
from ordered_memory.cells import CellMasks, GatedRecursiveCell, TreeRNNCell
from ordered_memory.state import OrderedMemoryState


class Modules(NamedTuple):
    """The modules of one direction that act inside the loop over time.

    Args:
        score: maps x̃ (B, D), M̂ (B, N, D) and masks to a (B, N).
        cell: composes a slot and the candidate of the slot above it.
        norm: the LayerNorm that the input projection and the cell share.
        threshold: an occupancy below this counts as 0.
    """

    score: AdditiveScore | NormalizedScore
    cell: GatedRecursiveCell | TreeRNNCell
    norm: nn.Module
    threshold: float = OCCUPANCY_THRESHOLD


class StepMasks(NamedTuple):
    """The dropout masks of one time step; None where nothing is dropped."""

    score: ScoreMasks | None = None
    cell: CellMasks | None = None


@dataclass(frozen=True, eq=False)  # PyTorch 2.8 hashes what it traces
class DropoutSampler:
    """Draws dropout masks: a call with t draws the masks of step t from the global generator.

    The definition calls it. The other backends draw masks of the same distribution in their own way, from a
    seed that `backends.contract.prepare` draws from the global generator.

    Args:
        modules: the modules, which have the dropout probabilities.
        like: x̃ of one step, (B, D).
        num_slots: N.
    """

    modules: Modules
    like: Tensor
    num_slots: int

    def __call__(self, t: int) -> StepMasks:
        arguments = (self.like.shape[0], self.num_slots, self.like)
        return StepMasks(self.modules.score.draw_masks(*arguments), self.modules.cell.draw_masks(*arguments))


Masks = Sequence[StepMasks | None] | DropoutSampler | None
"""Dropout of a recurrence: the masks of each step, or a sampler that draws them, or None for no dropout."""


class RecurrenceOutput(NamedTuple):
    """The result of the loop over time.

    Args:
        output: M̂_N of every step, (T, B, D), zero at padded steps.
        state: state after each sequence's last token.
        attention: p of every step, (T, B, N), zero at padded steps.
    """

    output: Tensor
    state: OrderedMemoryState
    attention: Tensor
