"""The two cells with their reverse passes written out, for slots that are computed one after the other.

A cell is prepared once for a sequence (`Gated`, `TreeRNN`: weights laid out for the products, sums of
their gradients) and once for each step (`forward`, `backward`: everything that can be done for all
pairs at once). In between, `compose` and `decompose` do one slot.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ordered_memory.backends.sequence.gradients import LinearGradient
from ordered_memory.backends.sequence.layout import Layout
from ordered_memory.cells import CellMasks, GatedRecursiveCell, TreeRNNCell
from ordered_memory.dropout import apply_mask

Saved = tuple[Tensor, ...]


class Cell:
    """What both cells share: the first linear map, in halves, and its gradients.

    `pre = M W_m' + M̂_{i-1} W_c' + b`, the first half for all pairs in one product.

    Args:
        weights: `from_memory.weight`, `from_candidate.weight`, `from_candidate.bias`, then the cell's own.
        gain: factor on the weights of maps whose inputs are dropped.
    """

    def __init__(self, weights: Sequence[Tensor], gain: float) -> None:
        from_memory, from_candidate, self.bias = weights[:3]
        self.from_memory, self.from_candidate = from_memory * gain, from_candidate * gain
        self.from_memory_t = self.from_memory.t().contiguous()
        self.from_candidate_t = self.from_candidate.t().contiguous()
        self.memory_gradient = LinearGradient(from_memory, bias=False, gain=gain)
        self.candidate_gradient = LinearGradient(from_candidate, gain=gain)

    def forward(self, layout: Layout, memory: Tensor, masks: CellMasks) -> None:
        """Get ready to compose the slots of a step.

        Args:
            layout: the active pairs.
            memory: M, (P, D).
            masks: of the pairs.
        """
        self.masks = masks
        self.pre = torch.addmm(self.bias, apply_mask(memory, masks.memory), self.from_memory_t)
        self.pre_of = self.pre.split(layout.counts)
        self.memory_of = memory.split(layout.counts)
        self.candidate_mask_of = _split(masks.candidate, layout)

    def compose(self, i: int, candidate: Tensor, out: Tensor) -> None:
        """What slot i holds, not yet normalised.

        Args:
            i: the slot.
            candidate: M̂_{i-1} of its active rows, (R_i, D).
            out: takes the result, (R_i, D).
        """
        raise NotImplementedError

    @property
    def saved(self) -> Saved:
        """What `backward` needs of a step."""
        raise NotImplementedError

    def backward(
        self, layout: Layout, memory: Tensor, candidate: Tensor, masks: CellMasks, saved: Saved
    ) -> None:
        """Get ready to go back through the slots of a step.

        Args:
            layout: the active pairs.
            memory: M, (P, D).
            candidate: M̂_{i-1} of every pair, (P, D).
            masks: of the pairs.
            saved: of the step.
        """
        self.masks, self.memory, self.candidate = masks, memory, candidate
        self.candidate_mask_of = _split(masks.candidate, layout)
        self.pre_gradient = memory.new_empty(len(memory), len(self.bias))
        self.pre_gradient_of = self.pre_gradient.split(layout.counts)

    def decompose(self, i: int, gradient: Tensor, into: Tensor) -> None:
        """The reverse of `compose`.

        Args:
            i: the slot.
            gradient: of what `compose` computed, (R_i, D).
            into: the gradient of M̂_{i-1}, (R_i, D), to be added to.
        """
        raise NotImplementedError

    def _decompose_first_map(self, i: int, into: Tensor) -> None:
        """Add the gradient through slot i's `pre` to that of M̂_{i-1}."""
        mask = self.candidate_mask_of[i]
        if mask is None:
            into.addmm_(self.pre_gradient_of[i], self.from_candidate)
        else:
            into.addcmul_(torch.mm(self.pre_gradient_of[i], self.from_candidate), mask)

    def finish_backward(self, gradient: Tensor) -> Tensor:
        """After the last slot: sum the parameters' gradients.

        Args:
            gradient: of what was composed, (P, D).
        Returns:
            The gradient of M, (P, D).
        """
        self.memory_gradient.add(self.pre_gradient, apply_mask(self.memory, self.masks.memory))
        self.candidate_gradient.add(self.pre_gradient, apply_mask(self.candidate, self.masks.candidate))
        return apply_mask(torch.mm(self.pre_gradient, self.from_memory), self.masks.memory)

    def gradients(self) -> tuple[Tensor | None, ...]:
        """Of the weights, in the order that they were given in."""
        return self.memory_gradient.result()[0], *self.candidate_gradient.result()


class Gated(Cell):
    """`GatedRecursiveCell`: `hidden = relu(pre)`, `[g_m; g_c; g_u; u] = W2 hidden + b2`."""

    def __init__(self, weights: Sequence[Tensor], gain: float) -> None:
        super().__init__(weights, gain)
        output, self.output_bias = weights[3:]
        self.output = output * gain
        self.output_t = self.output.t().contiguous()
        self.output_gradient = LinearGradient(output, gain=gain)

    def forward(self, layout: Layout, memory: Tensor, masks: CellMasks) -> None:
        super().forward(layout, memory, masks)
        self.units = torch.empty_like(self.pre)
        self.units_of = self.units.split(layout.counts)
        self.hidden_mask_of = _split(masks.hidden, layout)

    def compose(self, i: int, candidate: Tensor, out: Tensor) -> None:
        hidden, units, size = self.pre_of[i], self.units_of[i], out.shape[1]
        hidden.addmm_(apply_mask(candidate, self.candidate_mask_of[i]), self.from_candidate_t).relu_()
        hidden_mask = self.hidden_mask_of[i]
        if hidden_mask is not None:
            hidden.mul_(hidden_mask)
        torch.addmm(self.output_bias, hidden, self.output_t, out=units)
        units[:, : 3 * size].sigmoid_()
        memory_gate, candidate_gate, update_gate, update = units.split(size, dim=1)
        torch.mul(memory_gate, self.memory_of[i], out=out)
        out.addcmul_(candidate_gate, candidate).addcmul_(update_gate, update)

    @property
    def saved(self) -> Saved:
        return self.pre, self.units  # `pre` has become the hidden units, in place

    def backward(
        self, layout: Layout, memory: Tensor, candidate: Tensor, masks: CellMasks, saved: Saved
    ) -> None:
        super().backward(layout, memory, candidate, masks, saved)
        self.hidden, units = saved
        self.hidden_of = self.hidden.split(layout.counts)
        self.hidden_mask_of = _split(masks.hidden, layout)
        pairs, size = memory.shape
        gates = units.view(pairs, 4, size)
        memory_gate, candidate_gate, update_gate, update = gates.unbind(1)
        # What the gradient of the composed slot is multiplied by to give that of the units.
        slopes = torch.empty_like(gates)
        torch.ops.aten.sigmoid_backward(memory, memory_gate, grad_input=slopes[:, 0])
        torch.ops.aten.sigmoid_backward(candidate, candidate_gate, grad_input=slopes[:, 1])
        torch.ops.aten.sigmoid_backward(update, update_gate, grad_input=slopes[:, 2])
        slopes[:, 3] = update_gate
        self.slopes = slopes
        self.slopes_of = slopes.split(layout.counts)
        self.memory_gate, self.candidate_gate_of = memory_gate, candidate_gate.split(layout.counts)

    def decompose(self, i: int, gradient: Tensor, into: Tensor) -> None:
        units_gradient = self.slopes_of[i].mul_(gradient.unsqueeze(1)).flatten(1)
        pre_gradient = self.pre_gradient_of[i]
        torch.mm(units_gradient, self.output, out=pre_gradient)
        mask = self.hidden_mask_of[i]
        # Masks drawn here are 0 or 1: where hidden > 0 the mask was 1, and it needs no keeping.
        torch.ops.aten.threshold_backward(pre_gradient, self.hidden_of[i], 0, grad_input=pre_gradient)
        if mask is not None:
            pre_gradient.mul_(mask)
        into.addcmul_(gradient, self.candidate_gate_of[i])
        self._decompose_first_map(i, into)

    def finish_backward(self, gradient: Tensor) -> Tensor:
        self.output_gradient.add(self.slopes.flatten(1), self.hidden)
        return super().finish_backward(gradient).addcmul_(gradient, self.memory_gate)

    def gradients(self) -> tuple[Tensor | None, ...]:
        return *super().gradients(), *self.output_gradient.result()


class TreeRNN(Cell):
    """`TreeRNNCell`: `tanh(pre)`."""

    def forward(self, layout: Layout, memory: Tensor, masks: CellMasks) -> None:
        super().forward(layout, memory, masks)

    def compose(self, i: int, candidate: Tensor, out: Tensor) -> None:
        masked = apply_mask(candidate, self.candidate_mask_of[i])
        out.copy_(self.pre_of[i].addmm_(masked, self.from_candidate_t).tanh_())

    @property
    def saved(self) -> Saved:
        return (self.pre,)  # it has become the tanh, in place

    def backward(
        self, layout: Layout, memory: Tensor, candidate: Tensor, masks: CellMasks, saved: Saved
    ) -> None:
        super().backward(layout, memory, candidate, masks, saved)
        self.composed_of = saved[0].split(layout.counts)

    def decompose(self, i: int, gradient: Tensor, into: Tensor) -> None:
        torch.ops.aten.tanh_backward(gradient, self.composed_of[i], grad_input=self.pre_gradient_of[i])
        self._decompose_first_map(i, into)


CELL_KERNELS: dict[type, type[Cell]] = {GatedRecursiveCell: Gated, TreeRNNCell: TreeRNN}


def cell_weights(cell: GatedRecursiveCell | TreeRNNCell) -> list[Tensor]:
    """The parameters in the order that the kernels take them."""
    weights = [cell.from_memory.weight, cell.from_candidate.weight, cell.from_candidate.bias]
    if isinstance(cell, GatedRecursiveCell):
        weights += [cell.output.weight, cell.output.bias]
    return weights


def _split(mask: Tensor | None, layout: Layout) -> Sequence[Tensor | None]:
    return [None] * len(layout.counts) if mask is None else mask.split(layout.counts)
