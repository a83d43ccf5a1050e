"""The floor, a lower bound of the time: only the large matrix products on necessary triples.

A triple is a sequence, a step and a slot. If →π_i = 0, the candidate of a slot is exactly x̃; its composition
affects neither results nor gradients. If the occupancy is below the threshold, a slot is not attended and its
key is not needed. Every implementation of these equations has to do the remaining work. The triples are
counted from the attention of the layer itself, with dropout in training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ordered_memory import OrderedMemory
from ordered_memory.attention import OCCUPANCY_THRESHOLD
from ordered_memory.cells import GatedRecursiveCell
from ordered_memory.cumulative import forward_mask
from tasks.benchmark.workloads import Batch

CHUNK = 8192
"""Maximum number of rows of one product; bounds memory."""


class Counts(NamedTuple):
    """Counts of one batch.

    Args:
        tokens: number of tokens, padding excluded.
        attended: (token, slot) pairs whose occupancy reaches the threshold.
        active: (token, slot) pairs with →π_i > 0.
        pairs: tokens × slots.
    """

    tokens: int
    attended: int
    active: int
    pairs: int


class Product(NamedTuple):
    """`rows` vectors times a weight (out, in)."""

    weight: Tensor
    rows: int


def count(attention: Tensor, lengths: Tensor, threshold: float = OCCUPANCY_THRESHOLD) -> Counts:
    """Count the pairs that matter in a batch that starts with an empty memory.

    Args:
        attention: p, (T, B, N), zero at padded steps.
        lengths: (B,) int64.
        threshold: threshold of the occupancy, fraction in [0, 1].
    Returns:
        The counts.
    Example:
        >>> p = torch.tensor([[[0.0, 0.0]], [[0.0, 1.0]], [[1.0, 0.0]]])  # T = 3, B = 1, N = 2
        >>> count(p, torch.tensor([3]))
        Counts(tokens=3, attended=3, active=3, pairs=6)
    """
    steps, _, slots = attention.shape
    running = torch.arange(steps, device=attention.device).unsqueeze(1) < lengths.to(attention.device)
    forward = forward_mask(attention)
    occupancy = torch.cat([forward[:-1, :, 1:], torch.ones_like(forward[:-1, :, :1])], dim=-1)
    tokens = int(running.sum())
    return Counts(
        tokens=tokens,
        attended=int(((occupancy >= threshold) & running[1:].unsqueeze(-1)).sum()),
        active=int(((forward > 0) & running.unsqueeze(-1)).sum()),
        pairs=tokens * slots,
    )


def products(layer: OrderedMemory, counts: Counts) -> list[Product]:
    """List the matrix products of a forward pass.

    These are projection, query, key, both halves of the first linear layer of the cell, and its second one.

    Args:
        layer: its first direction is counted.
        counts: number of rows of each product.
    """
    direction: Any = layer.directions[0]
    score, cell = direction.score, direction.cell
    result = [
        Product(direction.projection.weight, counts.tokens),
        Product(score.query.weight, counts.tokens),
        Product(score.key.weight, counts.attended),
        Product(cell.from_memory.weight, counts.active),
        Product(cell.from_candidate.weight, counts.active),
    ]
    if isinstance(cell, GatedRecursiveCell):
        result.append(Product(cell.output.weight, counts.active))
    return result


class Floor:
    """A contender that computes the products of the forward pass and, in training, two more for each.

    Args:
        layer: the layer whose attention and weights are used.
        batches: its input.
        dtype: dtype of the operands; None for that of the layer.
    """

    def __init__(
        self, layer: OrderedMemory, batches: Sequence[Batch], dtype: torch.dtype | None = None
    ) -> None:
        self.dtype = dtype
        self.train_counts = _count_all(layer.train(), batches)
        self.infer_counts = _count_all(layer.eval(), batches)
        self.layer = layer
        self._buffers: dict[tuple[str, int], Tensor] = {}

    def training_step(self, index: int) -> Callable[[], None]:
        """Prepare the products of a training step; see `Contender.training_step`."""
        plan = self._plan(self.train_counts[index])
        return lambda: self._run(plan, backward=True)

    def evaluation(self, index: int) -> Callable[[], None]:
        """Prepare the products of a forward pass; see `Contender.evaluation`."""
        plan = self._plan(self.infer_counts[index])
        return lambda: self._run(plan)

    @torch.no_grad()
    def _run(self, plan: list[Product], backward: bool = False) -> None:
        for product in plan:
            self._multiply(product)
        for product in reversed(plan if backward else []):
            self._multiply_backward(product)

    def _plan(self, counts: Counts) -> list[Product]:
        plan = [
            Product(weight.detach().to(self.dtype or weight.dtype), rows)
            for weight, rows in products(self.layer, counts)
        ]
        for weight, _ in plan:
            for width in weight.shape:
                for name in ("value", "gradient"):
                    # Random numbers, since the time of products with zeros or denormals may differ.
                    self._buffers.setdefault((name, width), weight.new_empty(CHUNK, width).normal_())
        return plan

    def _multiply(self, product: Product) -> None:
        weight, rows = product
        result = torch.empty(min(rows, CHUNK), len(weight), dtype=weight.dtype, device=weight.device)
        source = self._buffers["value", weight.shape[1]]
        for size in _chunks(rows):
            torch.mm(source[:size], weight.t(), out=result[:size])

    def _multiply_backward(self, product: Product) -> None:
        weight, rows = product
        source, gradient = self._buffers["value", weight.shape[1]], self._buffers["gradient", len(weight)]
        result = torch.empty(min(rows, CHUNK), weight.shape[1], dtype=weight.dtype, device=weight.device)
        weight_gradient = torch.zeros_like(weight)
        for size in _chunks(rows):
            torch.mm(gradient[:size], weight, out=result[:size])
            torch.addmm(weight_gradient, gradient[:size].t(), source[:size], out=weight_gradient)


@torch.no_grad()
def _count_all(layer: OrderedMemory, batches: Sequence[Batch]) -> list[Counts]:
    attentions = [layer(batch.inputs, lengths=batch.lengths.cpu()).attention for batch in batches]
    return [
        count(attention, batch.lengths, layer.occupancy_threshold)
        for attention, batch in zip(attentions, batches, strict=True)
    ]


def _chunks(rows: int) -> list[int]:
    return [min(CHUNK, rows - start) for start in range(0, rows, CHUNK)]
