"""What does not change during a pass over the sequences: its settings, and operations with weights."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ordered_memory.backends.contract import Weights
from ordered_memory.backends.sequence.cells import Cell, Gated, TreeRNN
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
        score_type = Additive if weights.key_norm is None else Normalized
        self.score: Score = score_type(weights, plan.key_epsilon)
        self.cell: Cell = TreeRNN(weights) if weights.w_out is None else Gated(weights)
        self.norm, self.epsilon = [weights.norm, weights.norm_bias], plan.norm_epsilon
        self.d_norm = [torch.zeros_like(weight) for weight in self.norm]

    def normalize(self, composed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Apply the shared LayerNorm.

        Args:
            composed: results of the cell, (rows, D).
        Returns:
            The result, (rows, D), the mean and 1 / standard deviation, (rows, 1) each.
        """
        weight, bias = self.norm
        return torch.native_layer_norm(composed, composed.shape[1:], weight, bias, self.epsilon)

    def normalize_backward(self, d_output: Tensor, composed: Tensor, mean: Tensor, rstd: Tensor) -> Tensor:
        """The backward pass of `normalize`, which also accumulates the gradients of the LayerNorm.

        Args:
            d_output: gradient of the result, (rows, D).
            composed, mean, rstd: argument and results of `normalize`.
        Returns:
            The gradient of `composed`, (rows, D).
        """
        d_composed, weight, bias = torch.ops.aten.native_layer_norm_backward(
            d_output, composed, composed.shape[1:], mean, rstd, *self.norm, [True, True, True]
        )
        self.d_norm[0] += weight
        self.d_norm[1] += bias
        return d_composed  # type: ignore[no-any-return]

    def gradients(self) -> list[Tensor | None]:
        """The gradients of `Weights`, in the order of its fields."""
        norm, norm_bias = self.d_norm
        gradients = self.score.gradients() | self.cell.gradients() | {"norm": norm, "norm_bias": norm_bias}
        return [gradients.get(name) for name in Weights._fields]
