"""Dropout masks of active pairs only.

Given masks hold factors for every slot. Masks drawn here are 0 or 1: the factor that compensates for dropping
is in the weights.

`Tensor.bernoulli_` on a CPU would take as long as the matrix products. So sixteen bits of noise decide each
entry, on a CPU from a NumPy stream. The noise is kept for the backward pass, and the mask is computed where
it is used, a few rows at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ordered_memory.backends.contract import DROP_NOTHING, NOISE_LEVELS, Dropout


class RowMasks(NamedTuple):
    """The masks of some rows at one place.

    Args:
        values: the mask, (rows, size), or the noise that decides it, or None where nothing is dropped.
        level: noise below it drops; None where `values` is the mask.
    """

    values: Tensor | None = None
    level: int | None = None

    def split(self, rows: Sequence[int]) -> list[RowMasks]:
        """The masks of consecutive groups of rows.

        Args:
            rows: number of rows in each group.
        """
        if self.values is None:
            return [self] * len(rows)
        return [RowMasks(values, self.level) for values in self.values.split(list(rows))]

    def rows(self, chosen: slice) -> RowMasks:
        """The masks of some of the rows.

        Args:
            chosen: range of rows.
        """
        return self if self.values is None else RowMasks(self.values[chosen], self.level)

    def mask(self, like: Tensor) -> Tensor | None:
        """The mask itself.

        Args:
            like: of the dtype of the mask.
        Returns:
            (rows, size); None where nothing is dropped.
        """
        if self.values is None or self.level is None:
            return self.values
        return torch.ge(self.values, self.level, out=like.new_empty(self.values.shape))

    def apply(self, inputs: Tensor) -> Tensor:
        """Multiply by the mask.

        Args:
            inputs: (rows, size).
        Returns:
            A new tensor; `inputs` itself where nothing is dropped.
        """
        mask = self.mask(inputs)
        return inputs if mask is None else mask.mul_(inputs) if self.level is not None else mask * inputs


class SlotMasks:
    """The dropout masks of a pass, given or drawn.

    Args:
        dropout: given masks, or a seed and levels to draw them.
        order: which row of the batch each row here is, (B,) int64.
    """

    def __init__(self, dropout: Dropout, order: Tensor) -> None:
        self.dropout, self.order = dropout, order
        self.stream = self.generator = None
        if dropout.seed is not None and order.is_cpu:
            self.stream = np.random.SFC64(int(dropout.seed))
        elif dropout.seed is not None:
            self.generator = torch.Generator(order.device).manual_seed(int(dropout.seed))

    def at(self, site: str, t: int, row: Tensor, slot: Tensor, size: int) -> RowMasks:
        """The masks of one step at one site.

        Args:
            site: the field of `Dropout` that holds the mask where it is given.
            t: the step, from 0.
            row, slot: of each pair of a row and a slot, (pairs,) int64.
            size: features of a pair.
        Returns:
            (pairs, size).
        """
        given = getattr(self.dropout, site)
        if given is not None:
            return RowMasks(given[t, self.order[row], slot])
        of_cell = site in ("cell_input_mask", "hidden_mask")
        level = self.dropout.cell_level if of_cell else self.dropout.score_level
        if level == DROP_NOTHING or size == 0:
            return RowMasks()
        return RowMasks(self._noise(len(row), size), level)

    def _noise(self, rows: int, size: int) -> Tensor:
        if self.stream is None:
            noise = torch.empty(rows, size, dtype=torch.int16, device=self.order.device)
            return noise.random_(-NOISE_LEVELS // 2, NOISE_LEVELS // 2, generator=self.generator)
        words = self.stream.random_raw(-(-rows * size // 4))
        assert isinstance(words, np.ndarray)
        return torch.from_numpy(words.view(np.int16))[: rows * size].view(rows, size)
