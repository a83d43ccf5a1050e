"""Dropout masks of active pairs only.

Masks that were given hold 0 or 1 / (1 - probability) for every slot. Masks drawn here are 0 or 1, and the
factor goes into the weights, once for a whole sequence (`cell_gain`, `score_gain`).

`Tensor.bernoulli_` on a CPU would take as long as the matrix products. So sixteen bits of noise decide an
entry, on a CPU from a NumPy stream; the noise is what is kept for the reverse pass, and the mask is made
where it is used, a few rows at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ordered_memory.memory import StepMasks

LEVELS = 65536
"""Values that a noise entry takes: -LEVELS / 2 and up."""


class RowMasks(NamedTuple):
    """The masks of some rows at one place.

    Args:
        values: the mask, (rows, size), or the noise that decides it, or None where nothing is dropped.
        level: noise below it drops; None where `values` is the mask.
    """

    values: Tensor | None = None
    level: int | None = None

    def split(self, rows: Sequence[int]) -> list[RowMasks]:
        """The masks of consecutive parts of so many rows."""
        if self.values is None:
            return [self] * len(rows)
        return [RowMasks(values, self.level) for values in self.values.split(list(rows))]

    def rows(self, chosen: slice) -> RowMasks:
        """The masks of these rows."""
        return self if self.values is None else RowMasks(self.values[chosen], self.level)

    def mask(self, like: Tensor) -> Tensor | None:
        """The mask, (rows, size), in the dtype of `like`, or None."""
        if self.values is None or self.level is None:
            return self.values
        return torch.ge(self.values, self.level, out=like.new_empty(self.values.shape))

    def apply(self, inputs: Tensor) -> Tensor:
        """`inputs` times the mask; `inputs` itself where nothing is dropped."""
        mask = self.mask(inputs)
        return inputs if mask is None else mask.mul_(inputs) if self.level is not None else mask * inputs


class Masks:
    """Nothing is dropped: what all sources of masks share.

    Args:
        cell_gain, score_gain: factors on the weights that act on what is dropped.
        cell_level, score_level: as in `RowMasks`.
    """

    cell_gain = 1.0
    score_gain = 1.0
    cell_level: int | None = None
    score_level: int | None = None

    def cell(self, t: int, row: Tensor, slot: Tensor) -> tuple[RowMasks, RowMasks]:
        """Of pairs at step t: for [M; M̂ of the slot above], (P, 2D), and for the hidden units."""
        return RowMasks(), RowMasks()

    def score(self, t: int, row: Tensor, slot: Tensor) -> tuple[RowMasks, RowMasks]:
        """Of candidates scored at step t: for the candidate, (E, D), and for the features, (E, D)."""
        return RowMasks(), RowMasks()


class GivenMasks(Masks):
    """The masks handed to `recur`, (B, N, ·) for each step.

    Args:
        masks: of each step.
        order: which row of the batch each row here is, (B,).
    """

    def __init__(self, masks: Sequence[StepMasks | None], order: Tensor) -> None:
        self.masks, self.order = masks, order

    def cell(self, t: int, row: Tensor, slot: Tensor) -> tuple[RowMasks, RowMasks]:
        masks = self.masks[t]
        if masks is None or masks.cell is None:
            return RowMasks(), RowMasks()
        row = self.order[row]
        halves = [masks.cell.memory, masks.cell.candidate]
        given = next((half for half in halves if half is not None), None)
        inputs = None
        if given is not None:
            whole = [torch.ones_like(given) if half is None else half for half in halves]
            inputs = torch.cat([half[row, slot] for half in whole], 1)
        hidden = masks.cell.hidden
        return RowMasks(inputs), RowMasks(None if hidden is None else hidden[row, slot])

    def score(self, t: int, row: Tensor, slot: Tensor) -> tuple[RowMasks, RowMasks]:
        masks = self.masks[t]
        if masks is None or masks.score is None:
            return RowMasks(), RowMasks()
        row = self.order[row]
        _, key, hidden = masks.score
        return (
            RowMasks(None if key is None else key[row, slot]),
            RowMasks(None if hidden is None else hidden[row, slot]),
        )


class DrawnMasks(Masks):
    """Masks from noise that is drawn here, from a stream that the global generator seeds.

    Args:
        slot_size: D.
        hidden_units: of the cell, 0 where it has none.
        cell_dropout: probability, rounded to a multiple of 1/65536.
        score_dropout: likewise.
        device: of the noise.
    """

    def __init__(
        self,
        slot_size: int,
        hidden_units: int,
        cell_dropout: float,
        score_dropout: float,
        device: torch.device,
    ) -> None:
        self.slot_size, self.hidden_units, self.device = slot_size, hidden_units, device
        self.cell_gain, self.cell_level = gain_and_level(cell_dropout)
        self.score_gain, self.score_level = gain_and_level(score_dropout)
        self.stream = np.random.SFC64(int(torch.randint(2**63 - 1, ()))) if device.type == "cpu" else None

    def cell(self, t: int, row: Tensor, slot: Tensor) -> tuple[RowMasks, RowMasks]:
        hidden = self._draw(self.cell_level if self.hidden_units else None, len(row), self.hidden_units)
        return self._draw(self.cell_level, len(row), 2 * self.slot_size), hidden

    def score(self, t: int, row: Tensor, slot: Tensor) -> tuple[RowMasks, RowMasks]:
        shape = (len(row), self.slot_size)
        return self._draw(self.score_level, *shape), self._draw(self.score_level, *shape)

    def _draw(self, level: int | None, rows: int, size: int) -> RowMasks:
        if level is None:
            return RowMasks()
        if self.stream is None:
            noise = torch.empty(rows, size, dtype=torch.int16, device=self.device)
            return RowMasks(noise.random_(-LEVELS // 2, LEVELS // 2), level)
        words = self.stream.random_raw(-(-rows * size // 4))
        assert isinstance(words, np.ndarray)
        return RowMasks(torch.from_numpy(words.view(np.int16))[: rows * size].view(rows, size), level)


def stack_query_masks(masks: Sequence[StepMasks | None]) -> Callable[[Tensor], Tensor | None]:
    """The query masks of all steps: indices of tokens in T * B → their masks, (tokens, D), or None."""
    found = [None if step is None or step.score is None else step.score.query for step in masks]
    if all(mask is None for mask in found):
        return lambda tokens: None
    like = next(mask for mask in found if mask is not None)
    stacked = torch.stack([torch.ones_like(like) if mask is None else mask for mask in found]).flatten(0, 1)
    return lambda tokens: stacked[tokens]


def gain_and_level(probability: float) -> tuple[float, int | None]:
    """What makes up for dropping with this probability, and the level below which noise drops."""
    if probability == 0:
        return 1.0, None
    dropped = max(round(probability * LEVELS), 1)
    return (LEVELS / (LEVELS - dropped) if dropped < LEVELS else 0.0), dropped - LEVELS // 2
