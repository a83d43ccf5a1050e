"""The two cells with explicit backward passes, slot by slot.

A cell is created once for a pass over the sequences; it holds the weights and accumulates their gradients.
`begin` and `begin_backward` set up a step, `compose` and `compose_backward` process one slot of it. The input
of a slot is [M_i; M̂_{i-1}], (rows, 2D), a slice of the entries of the step (`layout`), small enough to stay
in the cache from one operation to the next.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ordered_memory.backends.contract import Weights
from ordered_memory.backends.sequence.gradients import WeightGradient
from ordered_memory.backends.sequence.masks import RowMasks


class Pairs(NamedTuple):
    """The active pairs of one step.

    Args:
        inputs: [M_i; M̂_{i-1}], (P, 2D); the forward pass fills in M̂ slot by slot.
        counts: number of active rows of each slot.
        input_masks, hidden_masks: dropout masks of the inputs and of the hidden units.
    """

    inputs: Tensor
    counts: list[int]
    input_masks: RowMasks
    hidden_masks: RowMasks


class Cell:
    """Base class of the cells: the first map, `pre = [M_i; M̂_{i-1}] W1' + b1`.

    Args:
        weights: weights of the recurrence.
    """

    def __init__(self, weights: Weights) -> None:
        self.w_in, self.b_in = weights.w_in, weights.b_in
        self.w_in_t = self.w_in.t().contiguous()
        self.w_in_gradient, self.b_in_gradient = WeightGradient(self.w_in), torch.zeros_like(self.b_in)

    hidden_units = 0

    def begin(self, pairs: Pairs) -> None:
        """Set up a step.

        Args:
            pairs: active pairs of the step.
        """
        self._split(pairs)
        self.pre = pairs.inputs.new_empty(len(pairs.inputs), len(self.b_in))
        self.pre_of = self.pre.split(pairs.counts)

    def compose(self, i: int, out: Tensor) -> None:
        """Compose the active rows of a slot, before the LayerNorm.

        Args:
            i: index of the slot, in [0, N).
            out: tensor for the result, (rows, D).
        """
        raise NotImplementedError

    @property
    def saved(self) -> tuple[Tensor, ...]:
        """The tensors that the backward pass of the step needs."""
        raise NotImplementedError

    def begin_backward(self, pairs: Pairs, saved: tuple[Tensor, ...]) -> None:
        """Set up the backward pass of a step.

        Args:
            pairs: active pairs of the step.
            saved: `saved` after the step.
        """
        self._split(pairs)
        inputs = pairs.inputs
        self.pre_gradient = inputs.new_empty(len(inputs), len(self.b_in))
        self.pre_gradient_of = self.pre_gradient.split(pairs.counts)
        self.masked = inputs if pairs.input_masks.values is None else torch.empty_like(inputs)
        self.masked_of = self.masked.split(pairs.counts)

    def compose_backward(self, i: int, gradient: Tensor, into: Tensor) -> None:
        """The backward pass of `compose`.

        Args:
            i: index of the slot.
            gradient: gradient of the result of `compose`, (rows, D).
            into: gradient of the inputs, (rows, 2D); accumulated in place.
        """
        raise NotImplementedError

    def end_backward(self) -> None:
        """Accumulate the weight gradients of the step."""
        self.w_in_gradient.add(self.pre_gradient, self.masked)

    def gradients(self) -> dict[str, Tensor]:
        """The gradients of the weights, by name."""
        return {"w_in": self.w_in_gradient.result(), "b_in": self.b_in_gradient}

    def _split(self, pairs: Pairs) -> None:
        self.inputs_of = pairs.inputs.split(pairs.counts)
        self.input_masks_of = pairs.input_masks.split(pairs.counts)
        self.hidden_masks_of = pairs.hidden_masks.split(pairs.counts)

    def _first_map_backward(self, i: int, into: Tensor) -> None:
        """The backward pass of the first map, from `pre_gradient`."""
        gradient = self.pre_gradient_of[i]
        self.b_in_gradient += gradient.sum(0)
        mask = self.input_masks_of[i].mask(into)
        if mask is None:
            into.addmm_(gradient, self.w_in)
        else:
            torch.mul(self.inputs_of[i], mask, out=self.masked_of[i])
            into.addcmul_(torch.mm(gradient, self.w_in), mask)


class Gated(Cell):
    """`GatedRecursiveCell`: `hidden = relu(pre)`, `[g_m; g_c; g_u; u] = W2 hidden + b2`."""

    def __init__(self, weights: Weights) -> None:
        super().__init__(weights)
        assert weights.w_out is not None
        assert weights.b_out is not None
        self.w_out, self.b_out = weights.w_out, weights.b_out
        self.w_out_t = self.w_out.t().contiguous()
        self.w_out_gradient, self.b_out_gradient = WeightGradient(self.w_out), torch.zeros_like(self.b_out)
        self.hidden_units = len(self.b_in)

    def begin(self, pairs: Pairs) -> None:
        super().begin(pairs)
        self.gates = torch.empty_like(self.pre)
        self.gates_of = self.gates.split(pairs.counts)

    def compose(self, i: int, out: Tensor) -> None:
        inputs, hidden, gates, size = self.inputs_of[i], self.pre_of[i], self.gates_of[i], out.shape[1]
        torch.addmm(self.b_in, self.input_masks_of[i].apply(inputs), self.w_in_t, out=hidden)
        hidden.relu_()
        mask = self.hidden_masks_of[i].mask(hidden)
        if mask is not None:
            hidden *= mask
        torch.addmm(self.b_out, hidden, self.w_out_t, out=gates)
        gates[:, : 3 * size].sigmoid_()
        children = gates[:, : 2 * size] * inputs
        torch.add(children[:, :size], children[:, size:], out=out)
        out.addcmul_(gates[:, 2 * size : 3 * size], gates[:, 3 * size :])

    @property
    def saved(self) -> tuple[Tensor, ...]:
        return self.pre, self.gates  # `compose` has overwritten `pre` with the hidden units

    def begin_backward(self, pairs: Pairs, saved: tuple[Tensor, ...]) -> None:
        super().begin_backward(pairs, saved)
        self.hidden, gates = saved
        self.hidden_of, self.gates_of = self.hidden.split(pairs.counts), gates.split(pairs.counts)
        self.gates_gradient = torch.empty_like(gates)
        self.gates_gradient_of = self.gates_gradient.split(pairs.counts)

    def compose_backward(self, i: int, gradient: Tensor, into: Tensor) -> None:
        gates, gates_gradient, size = self.gates_of[i], self.gates_gradient_of[i], gradient.shape[1]
        sigmoids, update = gates[:, : 3 * size], gates[:, 3 * size :]
        # σ' = σ - σ², times the value that is gated. The gradient of u is its gate.
        slopes = gates_gradient[:, : 3 * size]
        torch.addcmul(sigmoids, sigmoids, sigmoids, value=-1, out=slopes)
        slopes[:, : 2 * size] *= self.inputs_of[i]
        slopes[:, 2 * size :] *= update
        gates_gradient[:, 3 * size :] = sigmoids[:, 2 * size :]
        rows = len(gradient)
        gates_gradient.view(rows, 4, size).mul_(gradient.unsqueeze(1))
        self.b_out_gradient += gates_gradient.sum(0)

        hidden_gradient = self.pre_gradient_of[i]
        torch.mm(gates_gradient, self.w_out, out=hidden_gradient)
        # Drawn masks are 0 or 1 and are not saved: where hidden > 0, the mask was 1.
        torch.ops.aten.threshold_backward(hidden_gradient, self.hidden_of[i], 0, grad_input=hidden_gradient)
        mask = self.hidden_masks_of[i].mask(hidden_gradient)
        if mask is not None:
            hidden_gradient *= mask
        self._first_map_backward(i, into)
        into.view(rows, 2, size).addcmul_(gates[:, : 2 * size].view(rows, 2, size), gradient.unsqueeze(1))

    def end_backward(self) -> None:
        super().end_backward()
        self.w_out_gradient.add(self.gates_gradient, self.hidden)

    def gradients(self) -> dict[str, Tensor]:
        output_map_gradients = {"w_out": self.w_out_gradient.result(), "b_out": self.b_out_gradient}
        return super().gradients() | output_map_gradients


class TreeRNN(Cell):
    """`TreeRNNCell`: `tanh(pre)`."""

    def compose(self, i: int, out: Tensor) -> None:
        pre = self.pre_of[i]
        torch.addmm(self.b_in, self.input_masks_of[i].apply(self.inputs_of[i]), self.w_in_t, out=pre)
        out.copy_(pre.tanh_())

    @property
    def saved(self) -> tuple[Tensor, ...]:
        return (self.pre,)  # `compose` has overwritten it with the tanh

    def begin_backward(self, pairs: Pairs, saved: tuple[Tensor, ...]) -> None:
        super().begin_backward(pairs, saved)
        self.composed_of = saved[0].split(pairs.counts)

    def compose_backward(self, i: int, gradient: Tensor, into: Tensor) -> None:
        torch.ops.aten.tanh_backward(gradient, self.composed_of[i], grad_input=self.pre_gradient_of[i])
        self._first_map_backward(i, into)


def cell_kernel(weights: Weights) -> Cell:
    """Create the cell that weights belong to.

    Args:
        weights: weights of the gated cell, or of the TreeRNN, which has no `w_out`.
    """
    return TreeRNN(weights) if weights.w_out is None else Gated(weights)
