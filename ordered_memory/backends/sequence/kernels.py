"""What is fixed during a pass over the sequences: its plan, and the learned maps."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ordered_memory.backends.contract import Weights
from ordered_memory.backends.sequence.cells import cell_kernel
from ordered_memory.backends.sequence.masks import SlotMasks
from ordered_memory.backends.sequence.scores import score_kernel


class RecurrencePlan(NamedTuple):
    """What is known of a recurrence before its first step.

    Args:
        running: rows of each step, non-increasing, positive integers.
        threshold: occupancies below this count as 0.
        norm_epsilon, key_epsilon: of the shared LayerNorm and of the normalized score's.
        masks: of dropout.
        exact: compute active slots only, which the host must read from the attention; otherwise all slots.
    """

    running: list[int]
    threshold: float
    norm_epsilon: float
    key_epsilon: float
    masks: SlotMasks
    exact: bool


class Kernels:
    """The learned maps, ready for one pass over the sequences, and the sums of their gradients.

    Args:
        plan: of the pass.
        weights: of the recurrence.
    """

    def __init__(self, plan: RecurrencePlan, weights: Weights) -> None:
        self.score = score_kernel(weights, plan.key_epsilon)
        self.cell = cell_kernel(weights)
        self.norm, self.epsilon = [weights.norm, weights.norm_bias], plan.norm_epsilon
        self.norm_gradients = [torch.zeros_like(weight) for weight in self.norm]

    def normalize(self, composed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The shared LayerNorm.

        Args:
            composed: (rows, D).
        Returns:
            Result (rows, D), mean and 1 / standard deviation (rows, 1).
        """
        weight, bias = self.norm
        return torch.native_layer_norm(composed, composed.shape[1:], weight, bias, self.epsilon)

    def normalize_backward(self, gradient: Tensor, composed: Tensor, mean: Tensor, inverse: Tensor) -> Tensor:
        """The reverse of `normalize`; adds to the sums of the LayerNorm's gradients.

        Args:
            gradient: of the result, (rows, D).
            composed, mean, inverse: as `normalize` took and returned them.
        Returns:
            The gradient of `composed`, (rows, D).
        """
        of_composed, weight, bias = torch.ops.aten.native_layer_norm_backward(
            gradient, composed, composed.shape[1:], mean, inverse, *self.norm, [True, True, True]
        )
        self.norm_gradients[0] += weight
        self.norm_gradients[1] += bias
        return of_composed  # type: ignore[no-any-return]

    def gradients(self) -> list[Tensor | None]:
        """Of `Weights`, in their order."""
        norm, norm_bias = self.norm_gradients
        found = self.score.gradients() | self.cell.gradients() | {"norm": norm, "norm_bias": norm_bias}
        return [found.get(name) for name in Weights._fields]
