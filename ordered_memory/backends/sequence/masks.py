"""Dropout masks of active pairs only.

Masks that were given hold factors for every slot. Masks drawn here are 0 or 1: the factor that makes up for
them is in the weights.

`Tensor.bernoulli_` on a CPU would take as long as the matrix products. So sixteen bits of noise decide an
entry, on a CPU from a NumPy stream; the noise is what is kept for the reverse pass, and the mask is made
where it is used, a few rows at a time.
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
    """Nothing is dropped: what all sources of masks share.

    Args:
        cell_level, score_level: as in `RowMasks`.
    """

    cell_level: int | None = None
    score_level: int | None = None

    def cell(self, t: int, row: Tensor, slot: Tensor, sizes: tuple[int, int]) -> tuple[RowMasks, RowMasks]:
        """The masks of the cell, for pairs of one step.

        Args:
            t: the step, from 0.
            row: of each pair, (P,) int64.
            slot: of each pair, (P,) int64.
            sizes: of inputs and hidden units.
        Returns:
            For [M; M̂ of the slot above] and for the hidden units, (P, size) each.
        """
        return RowMasks(), RowMasks()

    def score(self, t: int, row: Tensor, slot: Tensor, size: int) -> tuple[RowMasks, RowMasks]:
        """The masks of the score, for candidates of one step.

        Args:
            t: the step, from 0.
            row: of each candidate, (E,) int64.
            slot: of each candidate, (E,) int64.
            size: D.
        Returns:
            For the candidate and for the features, (E, D) each.
        """
        return RowMasks(), RowMasks()


class GivenMasks(SlotMasks):
    """Masks that were given, (T, B, N, ·).

    Args:
        dropout: with such masks.
        order: which row of the batch each row here is, (B,).
    """

    def __init__(self, dropout: Dropout, order: Tensor) -> None:
        self.dropout, self.order = dropout, order

    def cell(self, t: int, row: Tensor, slot: Tensor, sizes: tuple[int, int]) -> tuple[RowMasks, RowMasks]:
        return self._at(self.dropout.cell_input_mask, t, row, slot), self._at(
            self.dropout.hidden_mask, t, row, slot
        )

    def score(self, t: int, row: Tensor, slot: Tensor, size: int) -> tuple[RowMasks, RowMasks]:
        return self._at(self.dropout.key_mask, t, row, slot), self._at(
            self.dropout.feature_mask, t, row, slot
        )

    def _at(self, mask: Tensor | None, t: int, row: Tensor, slot: Tensor) -> RowMasks:
        return RowMasks(None if mask is None else mask[t, self.order[row], slot])


class DrawnMasks(SlotMasks):
    """Masks from noise that is drawn here.

    Args:
        dropout: with a seed and levels.
        device: of the noise.
    """

    def __init__(self, dropout: Dropout, device: torch.device) -> None:
        assert dropout.seed is not None
        self.cell_level, self.score_level = (
            None if level == DROP_NOTHING else level for level in (dropout.cell_level, dropout.score_level)
        )
        seed = int(dropout.seed)
        self.stream = np.random.SFC64(seed) if device.type == "cpu" else None
        self.generator = None if device.type == "cpu" else torch.Generator(device).manual_seed(seed)

    def cell(self, t: int, row: Tensor, slot: Tensor, sizes: tuple[int, int]) -> tuple[RowMasks, RowMasks]:
        inputs, hidden = (self._draw(self.cell_level, row, size) for size in sizes)
        return inputs, hidden

    def score(self, t: int, row: Tensor, slot: Tensor, size: int) -> tuple[RowMasks, RowMasks]:
        return self._draw(self.score_level, row, size), self._draw(self.score_level, row, size)

    def _draw(self, level: int | None, row: Tensor, size: int) -> RowMasks:
        if level is None or size == 0:
            return RowMasks()
        rows = len(row)
        if self.stream is None:
            noise = torch.empty(rows, size, dtype=torch.int16, device=row.device)
            return RowMasks(
                noise.random_(-NOISE_LEVELS // 2, NOISE_LEVELS // 2, generator=self.generator), level
            )
        words = self.stream.random_raw(-(-rows * size // 4))
        assert isinstance(words, np.ndarray)
        return RowMasks(torch.from_numpy(words.view(np.int16))[: rows * size].view(rows, size), level)


def slot_masks(dropout: Dropout, order: Tensor) -> SlotMasks:
    """The masks that the contract's dropout asks for.

    Args:
        dropout: given masks, or a seed to draw them.
        order: which row of the batch each row is, (B,) int64.
    """
    return GivenMasks(dropout, order) if dropout.seed is None else DrawnMasks(dropout, order.device)
