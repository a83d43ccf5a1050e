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
from ordered_memory.backends.sequence.maps import Linear
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
        self.first = Linear(weights, "w_in", "b_in")

    hidden_units = 0

    def begin(self, pairs: Pairs) -> None:
        """Set up a step.

        Args:
            pairs: active pairs of the step.
        """
        self._split(pairs)
        self.pre = pairs.inputs.new_empty(len(pairs.inputs), len(self.first.bias))
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
        self.d_pre = inputs.new_empty(len(inputs), len(self.first.bias))
        self.d_pre_of = self.d_pre.split(pairs.counts)
        self.masked = inputs if pairs.input_masks.values is None else torch.empty_like(inputs)
        self.masked_of = self.masked.split(pairs.counts)

    def compose_backward(self, i: int, d_composed: Tensor, d_inputs: Tensor) -> None:
        """The backward pass of `compose`.

        Args:
            i: index of the slot.
            d_composed: gradient of the result of `compose`, (rows, D).
            d_inputs: gradient of the inputs, (rows, 2D); accumulated in place.
        """
        raise NotImplementedError

    def end_backward(self) -> None:
        """Accumulate the weight gradients of the step."""
        self.first.add_weight_gradient(self.d_pre, self.masked)

    def gradients(self) -> dict[str, Tensor]:
        """The gradients of the weights, by name."""
        return self.first.gradients()

    def _split(self, pairs: Pairs) -> None:
        self.inputs_of = pairs.inputs.split(pairs.counts)
        self.input_masks_of = pairs.input_masks.split(pairs.counts)
        self.hidden_masks_of = pairs.hidden_masks.split(pairs.counts)

    def _first_map_backward(self, i: int, d_inputs: Tensor) -> None:
        """The backward pass of the first map, from `d_pre`."""
        self.first.backward(
            self.d_pre_of[i], self.inputs_of[i], self.input_masks_of[i], self.masked_of[i], d_inputs
        )


class Gated(Cell):
    """`GatedRecursiveCell`: `hidden = relu(pre)`, `[g_m; g_c; g_u; u] = W2 hidden + b2`."""

    def __init__(self, weights: Weights) -> None:
        super().__init__(weights)
        self.second = Linear(weights, "w_out", "b_out")
        self.hidden_units = len(weights.b_in)

    def begin(self, pairs: Pairs) -> None:
        super().begin(pairs)
        self.gates = torch.empty_like(self.pre)
        self.gates_of = self.gates.split(pairs.counts)

    def compose(self, i: int, out: Tensor) -> None:
        inputs, hidden, gates, size = self.inputs_of[i], self.pre_of[i], self.gates_of[i], out.shape[1]
        self.first.forward(inputs, self.input_masks_of[i], hidden)
        hidden.relu_()
        mask = self.hidden_masks_of[i].mask(hidden)
        if mask is not None:
            hidden *= mask
        self.second.forward(hidden, RowMasks(), gates)  # masked already
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
        self.d_gates = torch.empty_like(gates)
        self.d_gates_of = self.d_gates.split(pairs.counts)

    def compose_backward(self, i: int, d_composed: Tensor, d_inputs: Tensor) -> None:
        gates, d_gates, size = self.gates_of[i], self.d_gates_of[i], d_composed.shape[1]
        sigmoids, update = gates[:, : 3 * size], gates[:, 3 * size :]
        # σ' = σ - σ², times the value that is gated. The gradient of u is its gate.
        slopes = d_gates[:, : 3 * size]
        torch.addcmul(sigmoids, sigmoids, sigmoids, value=-1, out=slopes)
        slopes[:, : 2 * size] *= self.inputs_of[i]
        slopes[:, 2 * size :] *= update
        d_gates[:, 3 * size :] = sigmoids[:, 2 * size :]
        rows = len(d_composed)
        d_gates.view(rows, 4, size).mul_(d_composed.unsqueeze(1))
        self.second.d_bias += d_gates.sum(0)

        d_hidden = self.d_pre_of[i]
        torch.mm(d_gates, self.second.weight, out=d_hidden)
        # Drawn masks are 0 or 1 and are not saved: where hidden > 0, the mask was 1.
        torch.ops.aten.threshold_backward(d_hidden, self.hidden_of[i], 0, grad_input=d_hidden)
        mask = self.hidden_masks_of[i].mask(d_hidden)
        if mask is not None:
            d_hidden *= mask
        self._first_map_backward(i, d_inputs)
        d_inputs.view(rows, 2, size).addcmul_(
            gates[:, : 2 * size].view(rows, 2, size), d_composed.unsqueeze(1)
        )

    def end_backward(self) -> None:
        super().end_backward()
        self.second.add_weight_gradient(self.d_gates, self.hidden)

    def gradients(self) -> dict[str, Tensor]:
        return self.first.gradients() | self.second.gradients()


class TreeRNN(Cell):
    """`TreeRNNCell`: `tanh(pre)`."""

    def compose(self, i: int, out: Tensor) -> None:
        pre = self.pre_of[i]
        self.first.forward(self.inputs_of[i], self.input_masks_of[i], pre)
        out.copy_(pre.tanh_())

    @property
    def saved(self) -> tuple[Tensor, ...]:
        return (self.pre,)  # `compose` has overwritten it with the tanh

    def begin_backward(self, pairs: Pairs, saved: tuple[Tensor, ...]) -> None:
        super().begin_backward(pairs, saved)
        self.composed_of = saved[0].split(pairs.counts)

    def compose_backward(self, i: int, d_composed: Tensor, d_inputs: Tensor) -> None:
        torch.ops.aten.tanh_backward(d_composed, self.composed_of[i], grad_input=self.d_pre_of[i])
        self._first_map_backward(i, d_inputs)
