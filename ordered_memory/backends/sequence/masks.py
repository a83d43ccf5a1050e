"""Dropout masks of the active pairs only.

Masks that were given hold 0 or 1 / (1 - probability) for every slot. Masks drawn here are 0 or 1 and
the factor goes into the weights, once for the whole sequence (`cell_gain`, `score_gain`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from ordered_memory.attention import ScoreMasks
from ordered_memory.cells import CellMasks
from ordered_memory.memory import StepMasks

NO_CELL_MASKS = CellMasks(None, None, None)
NO_SCORE_MASKS = ScoreMasks(None, None, None)


class NoMasks:
    """Nothing is dropped."""

    cell_gain = 1.0
    score_gain = 1.0

    def cell(self, t: int, row: Tensor, slot: Tensor) -> CellMasks:
        """The cell's masks of these pairs at step t, each (P, ·) or None."""
        return NO_CELL_MASKS

    def score(self, t: int, row: Tensor, slot: Tensor) -> ScoreMasks:
        """The masks of the score of these entries at step t, each (E, ·) or None."""
        return NO_SCORE_MASKS

    def to_keep(self, masks: CellMasks) -> CellMasks:
        """Those of the cell's masks that the reverse pass needs."""
        return masks


class GivenMasks(NoMasks):
    """The masks handed to `recur`, (B, N, ·) for each step.

    Args:
        masks: of each step.
        order: which row of the batch each row here is, (B,).
    """

    def __init__(self, masks: Sequence[StepMasks | None], order: Tensor) -> None:
        self.masks, self.order = masks, order

    def cell(self, t: int, row: Tensor, slot: Tensor) -> CellMasks:
        masks = self.masks[t]
        if masks is None or masks.cell is None:
            return NO_CELL_MASKS
        return CellMasks(*(None if mask is None else mask[self.order[row], slot] for mask in masks.cell))

    def score(self, t: int, row: Tensor, slot: Tensor) -> ScoreMasks:
        masks = self.masks[t]
        if masks is None or masks.score is None:
            return NO_SCORE_MASKS
        _, key, hidden = masks.score
        row = self.order[row]
        return ScoreMasks(
            None,
            None if key is None else key[row, slot],
            None if hidden is None else hidden[row, slot],
        )


class DrawnMasks(NoMasks):
    """Masks from random numbers drawn here.

    Args:
        slot_size: D.
        hidden_units: of the cell, 0 where it has none.
        cell_dropout: probability, a multiple of 1/65536 for exactness: others are rounded to one.
        score_dropout: likewise.
        like: the tensor whose dtype and device the masks take.
    """

    def __init__(
        self, slot_size: int, hidden_units: int, cell_dropout: float, score_dropout: float, like: Tensor
    ) -> None:
        self.slot_size, self.hidden_units = slot_size, hidden_units
        self.bernoulli = _Bernoulli(like)
        self.cell_levels, self.score_levels = _levels(cell_dropout), _levels(score_dropout)
        self.cell_gain, self.score_gain = _gain(self.cell_levels), _gain(self.score_levels)

    def cell(self, t: int, row: Tensor, slot: Tensor) -> CellMasks:
        if not self.cell_levels:
            return NO_CELL_MASKS
        pairs, size = len(row), self.slot_size
        widths = (size, size, self.hidden_units)
        memory, candidate, hidden = self.bernoulli(self.cell_levels, [pairs * width for width in widths])
        return CellMasks(
            memory.view(pairs, size),
            candidate.view(pairs, size),
            hidden.view(pairs, self.hidden_units) if self.hidden_units else None,
        )

    def to_keep(self, masks: CellMasks) -> CellMasks:
        return masks._replace(hidden=None)  # 0 or 1: the hidden units that it left show it

    def score(self, t: int, row: Tensor, slot: Tensor) -> ScoreMasks:
        if not self.score_levels:
            return NO_SCORE_MASKS
        size = len(row) * self.slot_size
        key, hidden = self.bernoulli(self.score_levels, [size, size])
        return ScoreMasks(None, key.view(len(row), -1), hidden.view(len(row), -1))


Masks = NoMasks
"""What the recurrence asks for its masks."""

_LEVELS = 65536


def _levels(probability: float) -> int:
    """A probability in units of 1/65536; one that is not zero stays so."""
    return round(probability * _LEVELS) or (1 if probability > 0 else 0)


def _gain(levels: int) -> float:
    return _LEVELS / (_LEVELS - levels) if levels < _LEVELS else 0.0


class _Bernoulli:
    """Draws masks of 0 (dropped) and 1, from a stream that the global generator seeds.

    On a CPU sixteen bits of a NumPy stream decide an entry: ten times as fast as `Tensor.bernoulli_`,
    which would take longer than the matrix products that it is for.
    """

    def __init__(self, like: Tensor) -> None:
        self.like = like
        if like.device.type == "cpu":
            self.stream = np.random.SFC64(int(torch.randint(2**63 - 1, ())))

    def __call__(self, levels: int, sizes: list[int]) -> tuple[Tensor, ...]:
        """One mask of each of these sizes, dropping `levels` / 65536 of the entries."""
        size = sum(sizes)
        mask = torch.empty(size, dtype=self.like.dtype, device=self.like.device)
        if levels >= _LEVELS:
            mask.zero_()
        elif self.like.device.type == "cpu":
            words = self.stream.random_raw(-(-size // 4))
            assert isinstance(words, np.ndarray)
            noise = torch.from_numpy(words.view(np.int16))[:size]
            torch.ge(noise, levels - _LEVELS // 2, out=mask)
        else:
            mask.bernoulli_(1 - levels / _LEVELS)
        return mask.split(sizes)


def stack_query_masks(masks: Sequence[StepMasks | None]) -> Callable[[Tensor], Tensor | None]:
    """The query masks of all steps: (T * B, D) indices of packed tokens → their masks, or None."""
    found = [None if step is None or step.score is None else step.score.query for step in masks]
    if all(mask is None for mask in found):
        return lambda tokens: None
    like = next(mask for mask in found if mask is not None)
    stacked = torch.stack([torch.ones_like(like) if mask is None else mask for mask in found]).flatten(0, 1)
    return lambda tokens: stacked[tokens]
