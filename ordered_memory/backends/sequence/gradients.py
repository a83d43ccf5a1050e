"""Weight gradients, summed over the time steps in matrix products that are large enough to be fast."""

from __future__ import annotations

import torch
from torch import Tensor

ENOUGH_ROWS = 1024
"""Number of rows above which a product of gradients and inputs hardly gets faster per row."""


class WeightGradient:
    """The sum of `gradient.T @ inputs` over the time steps.

    Args:
        weight: weight of the linear map, (out, in).
    """

    def __init__(self, weight: Tensor) -> None:
        self.sum = torch.zeros_like(weight)
        self.rows = 0
        self.pending: list[tuple[Tensor, Tensor]] = []

    def add(self, gradient: Tensor, inputs: Tensor) -> None:
        """Add the rows of a step. Neither tensor may be changed afterwards.

        Args:
            gradient: gradient of the outputs of the linear map, (rows, out).
            inputs: inputs of the linear map, (rows, in).
        """
        self.pending.append((gradient, inputs))
        self.rows += len(gradient)
        if self.rows >= ENOUGH_ROWS:
            self._multiply()

    def result(self) -> Tensor:
        """The gradient of the weight."""
        self._multiply()
        return self.sum

    def _multiply(self) -> None:
        if not self.pending:
            return
        gradients, inputs = zip(*self.pending, strict=True)
        if len(self.pending) > 1:
            gradients, inputs = (torch.cat(gradients),), (torch.cat(inputs),)
        self.sum.addmm_(gradients[0].t(), inputs[0])
        self.pending.clear()
        self.rows = 0
