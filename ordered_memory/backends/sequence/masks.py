"""Dropout masks of the active pairs.

Masks that the caller gives contain factors for every slot. Masks drawn here are 0 or 1, and the factor
1 / (1 - probability) is part of the weights.

`Tensor.bernoulli_` on a CPU would take as long as the matrix products. Instead, 16 bits of noise decide each
entry, on a CPU from a NumPy bit generator. The noise is saved for the backward pass, and masks are computed
from it where they are used, a few rows at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ordered_memory.backends.contract import DROP_NOTHING, NOISE_LEVELS, Dropout


class RowMasks(NamedTuple):
    """The dropout mask of some rows.

    Args:
        values: the mask, (rows, size), or the noise that it is computed from, or None if nothing is dropped.
        drop_below: entries with noise below this are dropped; None if `values` is the mask.
    """

    values: Tensor | None = None
    drop_below: int | None = None

    def split(self, rows: Sequence[int]) -> list[RowMasks]:
        """The masks of consecutive groups of rows.

        Args:
            rows: number of rows in each group.
        """
        if self.values is None:
            return [self] * len(rows)
        return [RowMasks(values, self.drop_below) for values in self.values.split(list(rows))]

    def rows(self, chosen: slice) -> RowMasks:
        """The masks of some of the rows.

        Args:
            chosen: range of rows.
        """
        return self if self.values is None else RowMasks(self.values[chosen], self.drop_below)

    def mask(self, like: Tensor) -> Tensor | None:
        """Compute the mask.

        Args:
            like: tensor whose dtype and device the mask takes.
        Returns:
            (rows, size); None if nothing is dropped.
        """
        if self.values is None or self.drop_below is None:
            return self.values
        return torch.ge(self.values, self.drop_below, out=like.new_empty(self.values.shape))

    def apply(self, inputs: Tensor) -> Tensor:
        """Multiply by the mask.

        Args:
            inputs: (rows, size).
        Returns:
            A new tensor; `inputs` itself if nothing is dropped.
        """
        mask = self.mask(inputs)
        return inputs if mask is None else mask.mul_(inputs) if self.drop_below is not None else mask * inputs


class SlotMasks:
    """The dropout masks of a pass over the sequences, given or drawn.

    Args:
        dropout: given masks, or a seed and thresholds to draw masks.
        order: index in the batch of each row, (B,) int64.
    """

    def __init__(self, dropout: Dropout, order: Tensor) -> None:
        self.dropout, self.order = dropout, order
        self.stream = self.generator = None
        if dropout.seed is not None and order.is_cpu:
            self.stream = np.random.SFC64(int(dropout.seed))
        elif dropout.seed is not None:
            self.generator = torch.Generator(order.device).manual_seed(int(dropout.seed))

    def at(self, site: str, t: int, row: Tensor, slot: Tensor, size: int) -> RowMasks:
        """The masks of one step at one of the places where dropout acts.

        Args:
            site: the field of `Dropout` for given masks at this place.
            t: index of the step.
            row, slot: row and slot of each pair, (pairs,) int64.
            size: number of features of a pair.
        Returns:
            (pairs, size).
        """
        given_mask = getattr(self.dropout, site)
        if given_mask is not None:
            return RowMasks(given_mask[t, self.order[row], slot])
        is_cell_mask = site in ("cell_input_mask", "hidden_mask")
        drop_below = self.dropout.cell_drop_below if is_cell_mask else self.dropout.score_drop_below
        if drop_below == DROP_NOTHING or size == 0:
            return RowMasks()
        return RowMasks(self._noise(len(row), size), drop_below)

    def _noise(self, rows: int, size: int) -> Tensor:
        if self.stream is None:
            noise = torch.empty(rows, size, dtype=torch.int16, device=self.order.device)
            return noise.random_(-NOISE_LEVELS // 2, NOISE_LEVELS // 2, generator=self.generator)
        words = self.stream.random_raw(-(-rows * size // 4))
        assert isinstance(words, np.ndarray)
        return torch.from_numpy(words.view(np.int16))[: rows * size].view(rows, size)
