"""What does not change during a pass over the sequences: its settings and the weights."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ordered_memory.backends.contract import Weights
from ordered_memory.backends.sequence.cells import cell_kernel
from ordered_memory.backends.sequence.masks import SlotMasks
from ordered_memory.backends.sequence.scores import score_kernel


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


class Kernels:
    """Score, cell and LayerNorm for one pass over the sequences, with the sums of their weight gradients.

    Args:
        plan: settings of the pass.
        weights: weights of the recurrence.
    """

    def __init__(self, plan: RecurrencePlan, weights: Weights) -> None:
        self.score = score_kernel(weights, plan.key_epsilon)
        self.cell = cell_kernel(weights)
        self.norm, self.epsilon = [weights.norm, weights.norm_bias], plan.norm_epsilon
        self.norm_gradients = [torch.zeros_like(weight) for weight in self.norm]

    def normalize(self, composed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Apply the shared LayerNorm.

        Args:
            composed: results of the cell, (rows, D).
        Returns:
            The result, (rows, D), the mean and 1 / standard deviation, (rows, 1) each.
        """
        weight, bias = self.norm
        return torch.native_layer_norm(composed, composed.shape[1:], weight, bias, self.epsilon)

    def normalize_backward(self, gradient: Tensor, composed: Tensor, mean: Tensor, inverse: Tensor) -> Tensor:
        """The backward pass of `normalize`, which also accumulates the gradients of the LayerNorm.

        Args:
            gradient: gradient of the result, (rows, D).
            composed, mean, inverse: argument and results of `normalize`.
        Returns:
            The gradient of `composed`, (rows, D).
        """
        composed_gradient, weight, bias = torch.ops.aten.native_layer_norm_backward(
            gradient, composed, composed.shape[1:], mean, inverse, *self.norm, [True, True, True]
        )
        self.norm_gradients[0] += weight
        self.norm_gradients[1] += bias
        return composed_gradient  # type: ignore[no-any-return]

    def gradients(self) -> list[Tensor | None]:
        """The gradients of `Weights`, in the order of its fields."""
        norm, norm_bias = self.norm_gradients
        gradients = self.score.gradients() | self.cell.gradients() | {"norm": norm, "norm_bias": norm_bias}
        return [gradients.get(name) for name in Weights._fields]
