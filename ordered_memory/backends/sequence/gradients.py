"""Weight gradients, summed over the steps in products large enough to run at full speed."""

from __future__ import annotations

import torch
from torch import Tensor

ENOUGH_ROWS = 1024
"""Rows from which a product of gradients and inputs is about as fast as it gets."""


class WeightGradient:
    """The sum of `gradient.T @ inputs` over the steps.

    Args:
        weight: of the linear map, (out, in).
    """

    def __init__(self, weight: Tensor) -> None:
        self.sum = torch.zeros_like(weight)
        self.rows = 0
        self.waiting: list[tuple[Tensor, Tensor]] = []

    def add(self, gradient: Tensor, inputs: Tensor) -> None:
        """Take in the rows of a step; neither tensor may change afterwards.

        Args:
            gradient: of the outputs, (rows, out).
            inputs: (rows, in).
        """
        self.waiting.append((gradient, inputs))
        self.rows += len(gradient)
        if self.rows >= ENOUGH_ROWS:
            self._multiply()

    def result(self) -> Tensor:
        """The gradient of the weight."""
        self._multiply()
        return self.sum

    def _multiply(self) -> None:
        if not self.waiting:
            return
        gradients, inputs = zip(*self.waiting, strict=True)
        if len(self.waiting) > 1:
            gradients, inputs = (torch.cat(gradients),), (torch.cat(inputs),)
        self.sum.addmm_(gradients[0].t(), inputs[0])
        self.waiting.clear()
        self.rows = 0
