"""The linear maps and LayerNorms of score and cell, with backward passes that accumulate weight gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from ordered_memory.backends.contract import Weights
from ordered_memory.backends.sequence.masks import RowMasks

ENOUGH_ROWS = 1024
"""Number of rows above which a product of gradients and inputs hardly gets faster per row."""


class Linear:
    """`inputs @ weight.T + bias`, with dropout of the inputs.

    Args:
        weights: weights of the recurrence.
        weight, bias: names of the weight, (out, in), and of the bias, (out,).
    """

    def __init__(self, weights: Weights, weight: str, bias: str) -> None:
        self.names = (weight, bias)
        self.weight, self.bias = getattr(weights, weight), getattr(weights, bias)
        self.weight_t = self.weight.t().contiguous()
        self.d_weight, self.d_bias = torch.zeros_like(self.weight), torch.zeros_like(self.bias)
        self.pending: list[tuple[Tensor, Tensor]] = []
        self.rows = 0

    def forward(self, inputs: Tensor, masks: RowMasks, out: Tensor) -> None:
        """Write the result to `out`, (rows, out).

        Args:
            inputs: (rows, in).
            masks: dropout masks of the inputs.
            out: tensor for the result.
        """
        torch.addmm(self.bias, masks.apply(inputs), self.weight_t, out=out)

    def backward(
        self, d_out: Tensor, inputs: Tensor, masks: RowMasks, masked: Tensor, d_inputs: Tensor
    ) -> None:
        """Add to the gradients of the inputs and of the bias.

        Args:
            d_out: gradient of the result, (rows, out).
            inputs, masks: arguments of `forward`.
            masked: tensor for the inputs after dropout, (rows, in); not written if nothing is dropped.
            d_inputs: gradient of the inputs, (rows, in).
        """
        self.d_bias += d_out.sum(0)
        mask = masks.mask(d_inputs)
        if mask is None:
            d_inputs.addmm_(d_out, self.weight)
        else:
            torch.mul(inputs, mask, out=masked)
            d_inputs.addcmul_(torch.mm(d_out, self.weight), mask)

    def add_weight_gradient(self, d_out: Tensor, masked: Tensor) -> None:
        """Add the rows of a step to the gradient of the weight, later, in a product of many rows.

        Args:
            d_out: gradient of the results, (rows, out); may not be changed afterwards.
            masked: inputs after dropout, (rows, in); may not be changed afterwards.
        """
        self.pending.append((d_out, masked))
        self.rows += len(d_out)
        if self.rows >= ENOUGH_ROWS:
            self._multiply()

    def gradients(self) -> dict[str, Tensor]:
        """The gradients of weight and bias, by name."""
        if self.pending:
            self._multiply()
        return dict(zip(self.names, (self.d_weight, self.d_bias), strict=True))

    def _multiply(self) -> None:
        d_out, masked = (
            steps[0] if len(steps) == 1 else torch.cat(steps) for steps in zip(*self.pending, strict=True)
        )
        self.d_weight.addmm_(d_out.t(), masked)
        self.pending, self.rows = [], 0


class LayerNorm:
    """A LayerNorm.

    Args:
        weights: weights of the recurrence.
        name: name of the weight, (D,); that of the bias is `{name}_bias`.
        epsilon: its epsilon.
    """

    def __init__(self, weights: Weights, name: str, epsilon: float) -> None:
        self.parameters = {field: getattr(weights, field) for field in (name, f"{name}_bias")}
        self.gradients = {field: torch.zeros_like(tensor) for field, tensor in self.parameters.items()}
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The result, (rows, D), the mean and 1 / standard deviation, (rows, 1) each.

        Args:
            x: (rows, D).
        """
        weight, bias = self.parameters.values()
        return torch.native_layer_norm(x, x.shape[1:], weight, bias, self.epsilon)

    def backward(self, d_out: Tensor, x: Tensor, mean: Tensor, rstd: Tensor) -> Tensor:
        """The gradient of `x`, (rows, D). Adds to those of weight and bias.

        Args:
            d_out: gradient of the result, (rows, D).
            x, mean, rstd: argument and results of `forward`.
        """
        d_x: Tensor
        d_x, *d_parameters = torch.ops.aten.native_layer_norm_backward(
            d_out, x, x.shape[1:], mean, rstd, *self.parameters.values(), [True, True, True]
        )
        for gradient, d_parameter in zip(self.gradients.values(), d_parameters, strict=True):
            gradient += d_parameter
        return d_x
