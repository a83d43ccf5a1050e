"""The two cells with their reverse passes written out, slot by slot.

A cell is made once for a pass over the sequences (weights laid out for the products, sums of their
gradients); `begin` and `begin_reverse` set up a step, `compose` and `decompose` do one slot of it. Its
input is the row [M_i; M̂_{i-1}], 2D wide, as the entries of a step hold it: what a slot needs stays in the
cache from one operation to the next.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ordered_memory.backends.sequence.gradients import WeightGradient
from ordered_memory.backends.sequence.masks import RowMasks
from ordered_memory.cells import GatedRecursiveCell, TreeRNNCell


class Cell:
    """What both cells share: the first map, `pre = [M_i; M̂_{i-1}] W1' + b1`.

    Args:
        weights: `from_memory.weight`, `from_candidate.weight`, `from_candidate.bias`, then the cell's own.
        gain: factor on the weights of maps whose inputs are dropped.
    """

    def __init__(self, weights: Sequence[Tensor], gain: float) -> None:
        from_memory, from_candidate, self.bias = weights[:3]
        self.first = torch.cat([from_memory, from_candidate], 1)
        self.first_gradient = WeightGradient(self.first, gain)
        self.first *= gain
        self.first_t = self.first.t().contiguous()
        self.bias_gradient = torch.zeros_like(self.bias)

    def begin(self, inputs: Tensor, counts: list[int], masks: tuple[RowMasks, RowMasks]) -> None:
        """Set up a step.

        Args:
            inputs: of the pairs, (P, 2D), filled in slot by slot.
            counts: active rows of each slot.
            masks: of the inputs and of the hidden units.
        """
        self.inputs_of = inputs.split(counts)
        self.input_masks_of, self.hidden_masks_of = (part.split(counts) for part in masks)
        self.pre = inputs.new_empty(len(inputs), len(self.bias))
        self.pre_of = self.pre.split(counts)

    def compose(self, i: int, out: Tensor) -> None:
        """What slot i holds, not yet normalised, into `out`, (rows of the slot, D)."""
        raise NotImplementedError

    @property
    def saved(self) -> tuple[Tensor, ...]:
        """What the reverse of a step needs."""
        raise NotImplementedError

    def begin_reverse(
        self,
        inputs: Tensor,
        counts: list[int],
        masks: tuple[RowMasks, RowMasks],
        saved: tuple[Tensor, ...],
    ) -> None:
        """Set up the reverse of a step; arguments as for `begin`."""
        self.inputs_of = inputs.split(counts)
        self.input_masks_of, self.hidden_masks_of = (part.split(counts) for part in masks)
        self.pre_gradient = inputs.new_empty(len(inputs), len(self.bias))
        self.pre_gradient_of = self.pre_gradient.split(counts)
        self.masked = inputs if masks[0].values is None else torch.empty_like(inputs)
        self.masked_of = self.masked.split(counts)

    def decompose(self, i: int, gradient: Tensor, into: Tensor) -> None:
        """The reverse of `compose`.

        Args:
            i: the slot.
            gradient: of what it composed, (rows, D).
            into: gradient of the inputs, (rows, 2D), to be added to.
        """
        raise NotImplementedError

    def end_reverse(self) -> None:
        """Sum the step's weight gradients."""
        self.first_gradient.add(self.pre_gradient, self.masked)

    def gradients(self) -> list[Tensor]:
        """Of the weights, in the order that they were given in."""
        return [*self.first_gradient.result().chunk(2, 1), self.bias_gradient]

    def _reverse_first_map(self, i: int, into: Tensor) -> None:
        gradient = self.pre_gradient_of[i]
        self.bias_gradient += gradient.sum(0)
        mask = self.input_masks_of[i].mask(into)
        if mask is None:
            into.addmm_(gradient, self.first)
        else:
            torch.mul(self.inputs_of[i], mask, out=self.masked_of[i])
            into.addcmul_(torch.mm(gradient, self.first), mask)


class Gated(Cell):
    """`GatedRecursiveCell`: `hidden = relu(pre)`, `[g_m; g_c; g_u; u] = W2 hidden + b2`."""

    def __init__(self, weights: Sequence[Tensor], gain: float) -> None:
        super().__init__(weights, gain)
        second, self.second_bias = weights[3:]
        self.second_gradient = WeightGradient(second, gain)
        self.second = second * gain
        self.second_t = self.second.t().contiguous()
        self.second_bias_gradient = torch.zeros_like(self.second_bias)

    def begin(self, inputs: Tensor, counts: list[int], masks: tuple[RowMasks, RowMasks]) -> None:
        super().begin(inputs, counts, masks)
        self.units = torch.empty_like(self.pre)
        self.units_of = self.units.split(counts)

    def compose(self, i: int, out: Tensor) -> None:
        inputs, hidden, units, size = self.inputs_of[i], self.pre_of[i], self.units_of[i], out.shape[1]
        torch.addmm(self.bias, self.input_masks_of[i].apply(inputs), self.first_t, out=hidden)
        hidden.relu_()
        mask = self.hidden_masks_of[i].mask(hidden)
        if mask is not None:
            hidden *= mask
        torch.addmm(self.second_bias, hidden, self.second_t, out=units)
        units[:, : 3 * size].sigmoid_()
        children = units[:, : 2 * size] * inputs
        torch.add(children[:, :size], children[:, size:], out=out)
        out.addcmul_(units[:, 2 * size : 3 * size], units[:, 3 * size :])

    @property
    def saved(self) -> tuple[Tensor, ...]:
        return self.pre, self.units  # `pre` has become the hidden units, in place

    def begin_reverse(
        self,
        inputs: Tensor,
        counts: list[int],
        masks: tuple[RowMasks, RowMasks],
        saved: tuple[Tensor, ...],
    ) -> None:
        super().begin_reverse(inputs, counts, masks, saved)
        self.hidden, units = saved
        self.hidden_of, self.units_of = self.hidden.split(counts), units.split(counts)
        self.units_gradient = torch.empty_like(units)
        self.units_gradient_of = self.units_gradient.split(counts)

    def decompose(self, i: int, gradient: Tensor, into: Tensor) -> None:
        units, units_gradient, size = self.units_of[i], self.units_gradient_of[i], gradient.shape[1]
        gates = units[:, : 3 * size]
        # σ' = σ - σ², times what each gate lets through; for u, the gate itself.
        slopes = units_gradient[:, : 3 * size]
        torch.addcmul(gates, gates, gates, value=-1, out=slopes)
        slopes[:, : 2 * size] *= self.inputs_of[i]
        slopes[:, 2 * size :] *= units[:, 3 * size :]
        units_gradient[:, 3 * size :] = gates[:, 2 * size :]
        rows = len(gradient)
        units_gradient.view(rows, 4, size).mul_(gradient.unsqueeze(1))
        self.second_bias_gradient += units_gradient.sum(0)

        hidden_gradient = self.pre_gradient_of[i]
        torch.mm(units_gradient, self.second, out=hidden_gradient)
        # Masks drawn here are 0 or 1: where hidden > 0 they were 1, and have not been kept.
        torch.ops.aten.threshold_backward(hidden_gradient, self.hidden_of[i], 0, grad_input=hidden_gradient)
        mask = self.hidden_masks_of[i].mask(hidden_gradient)
        if mask is not None:
            hidden_gradient *= mask
        self._reverse_first_map(i, into)
        into.view(rows, 2, size).addcmul_(units[:, : 2 * size].view(rows, 2, size), gradient.unsqueeze(1))

    def end_reverse(self) -> None:
        super().end_reverse()
        self.second_gradient.add(self.units_gradient, self.hidden)

    def gradients(self) -> list[Tensor]:
        return [*super().gradients(), self.second_gradient.result(), self.second_bias_gradient]


class TreeRNN(Cell):
    """`TreeRNNCell`: `tanh(pre)`."""

    def compose(self, i: int, out: Tensor) -> None:
        pre = self.pre_of[i]
        torch.addmm(self.bias, self.input_masks_of[i].apply(self.inputs_of[i]), self.first_t, out=pre)
        out.copy_(pre.tanh_())

    @property
    def saved(self) -> tuple[Tensor, ...]:
        return (self.pre,)  # it has become the tanh, in place

    def begin_reverse(
        self,
        inputs: Tensor,
        counts: list[int],
        masks: tuple[RowMasks, RowMasks],
        saved: tuple[Tensor, ...],
    ) -> None:
        super().begin_reverse(inputs, counts, masks, saved)
        self.composed_of = saved[0].split(counts)

    def decompose(self, i: int, gradient: Tensor, into: Tensor) -> None:
        torch.ops.aten.tanh_backward(gradient, self.composed_of[i], grad_input=self.pre_gradient_of[i])
        self._reverse_first_map(i, into)


CELL_KERNELS: dict[type, type[Cell]] = {GatedRecursiveCell: Gated, TreeRNNCell: TreeRNN}


def cell_weights(cell: GatedRecursiveCell | TreeRNNCell) -> list[Tensor]:
    """The parameters in the order that the kernels take them."""
    weights = [cell.from_memory.weight, cell.from_candidate.weight, cell.from_candidate.bias]
    if isinstance(cell, GatedRecursiveCell):
        weights += [cell.output.weight, cell.output.bias]
    return weights
