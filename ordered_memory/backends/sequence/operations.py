"""What does not change during a pass over the sequences: its settings, and operations with weights."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ordered_memory.backends.contract import Weights
from ordered_memory.backends.sequence.cells import Cell, Gated, TreeRNN
from ordered_memory.backends.sequence.maps import LayerNorm
from ordered_memory.backends.sequence.masks import SlotMasks
from ordered_memory.backends.sequence.scores import Additive, Normalized, Score


class RecurrencePlan(NamedTuple):
    """The settings of a pass over the sequences.

    Args:
        batch_sizes: number of rows at each step, non-increasing positive integers, as in PackedSequence.
        threshold: an occupancy below this counts as 0.
        norm_epsilon, key_epsilon: epsilons of the shared LayerNorm and of the normalized score's.
        masks: dropout masks.
        active_only: whether to compute only the active slots, whose number the host reads from the attention.
    """

    batch_sizes: list[int]
    threshold: float
    norm_epsilon: float
    key_epsilon: float
    masks: SlotMasks
    active_only: bool


class Operations:
    """Score, cell and LayerNorm for one pass over the sequences, with the sums of their weight gradients.

    Args:
        plan: settings of the pass.
        weights: weights of the recurrence.
    """

    def __init__(self, plan: RecurrencePlan, weights: Weights) -> None:
        self.plan = plan
        normalized = weights.key_norm is not None
        self.score: Score = Normalized(weights, plan.key_epsilon) if normalized else Additive(weights)
        self.cell: Cell = TreeRNN(weights) if weights.w_out is None else Gated(weights)
        self.norm = LayerNorm(weights, "norm", plan.norm_epsilon)

    def gradients(self) -> list[Tensor | None]:
        """The gradients of `Weights`, in the order of its fields."""
        gradients = self.score.gradients() | self.cell.gradients() | self.norm.gradients
        return [gradients.get(name) for name in Weights._fields]
