"""Parameter gradients, summed over the steps in products large enough to run at full speed."""

from __future__ import annotations

import torch
from torch import Tensor

ENOUGH_ROWS = 1024
"""Rows from which a product of gradients and inputs is about as fast as it gets."""


class LinearGradient:
    """Sums `gradient.T @ input` (and the column sums of `gradient`) over the steps.

    Args:
        weight: of the linear map, (out, in).
        bias: whether the map has one.
        gain: factor of the weights in use over `weight`.
    """

    def __init__(self, weight: Tensor, bias: bool = True, gain: float = 1.0) -> None:
        self.weight = torch.zeros_like(weight)
        self.bias = torch.zeros_like(weight[:, 0]) if bias else None
        self.gain = gain
        self.rows = 0
        self.waiting: list[tuple[Tensor, Tensor]] = []

    def add(self, gradient: Tensor, inputs: Tensor) -> None:
        """Take in one step; neither tensor may change afterwards.

        Args:
            gradient: of the outputs, (rows, out).
            inputs: (rows, in).
        """
        self.waiting.append((gradient, inputs))
        self.rows += len(gradient)
        if self.rows >= ENOUGH_ROWS:
            self._flush()

    def result(self) -> tuple[Tensor, Tensor | None]:
        """The gradients of weight and bias."""
        self._flush()
        return self.weight.mul_(self.gain), self.bias

    def _flush(self) -> None:
        if not self.waiting:
            return
        gradients, inputs = zip(*self.waiting, strict=True)
        gradient = gradients[0] if len(gradients) == 1 else torch.cat(gradients)
        self.weight.addmm_(gradient.t(), inputs[0] if len(inputs) == 1 else torch.cat(inputs))
        if self.bias is not None:
            self.bias.add_(gradient.sum(0))
        self.waiting.clear()
        self.rows = 0
