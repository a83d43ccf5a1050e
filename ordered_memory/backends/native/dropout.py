"""What is dropped inside the native recurrence: masks that were given, or levels of noise that C draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ordered_memory.backends.sequence.masks import gain_and_level
from ordered_memory.memory import Maps, MaskDrawer, StepMasks

NOTHING_DROPPED = -(1 << 20)
"""A level that no noise is below; as in recurrence.c."""


class Dropout(NamedTuple):
    """What is dropped.

    Args:
        given: masks (T, B, N, ·) for the cell's input and hidden units, the score's keys and features; or
            None.
        levels: of noise, below which an entry is dropped.
        cell_gain, score_gain: factors on the weights that act on what is dropped.
        seed: of the noise.
    """

    given: tuple[Tensor | None, ...] = (None, None, None, None)
    levels: tuple[int, ...] = (NOTHING_DROPPED,) * 4
    cell_gain: float = 1.0
    score_gain: float = 1.0
    seed: int = 0


def dropout_of(
    masks: Sequence[StepMasks | None] | Callable[[int], StepMasks | None] | None,
    maps: Maps,
    inputs: Tensor,
    num_slots: int,
) -> tuple[Dropout, Tensor | None]:
    """What is dropped inside the recurrence, and the mask of the queries, (T * B, D) or None."""
    if masks is None:
        return Dropout(), None
    if isinstance(masks, MaskDrawer):
        (cell_gain, cell), (score_gain, score) = (
            gain_and_level(part.dropout if part.training else 0.0) for part in (maps.cell, maps.score)
        )
        levels = tuple(NOTHING_DROPPED if level is None else level for level in (cell, cell, score, score))
        seed = int(torch.randint(2**63 - 1, ()))
        query_mask = maps.score.draw_query_mask(inputs.flatten(0, 1))
        return Dropout(levels=levels, cell_gain=cell_gain, score_gain=score_gain, seed=seed), query_mask
    given = [masks(t) for t in range(len(inputs))] if callable(masks) else list(masks)
    cell_masks = [None if step is None else step.cell for step in given]
    score_masks = [None if step is None else step.score for step in given]

    def stack(steps: Sequence[NamedTuple | None], name: str, *shape: int) -> Tensor | None:
        """(T, *shape), 1 where nothing is dropped; None where nothing is dropped at all."""
        found = [None if step is None else getattr(step, name) for step in steps]
        if all(mask is None for mask in found):
            return None
        ones = inputs.new_ones(shape)
        return torch.stack([ones if mask is None else mask.to(inputs).expand(shape) for mask in found])

    batch_size, size = inputs.shape[1:]
    slots, units = (batch_size, num_slots, size), (batch_size, num_slots, 4 * size)
    halves = [stack(cell_masks, "memory", *slots), stack(cell_masks, "candidate", *slots)]
    one = next((half for half in halves if half is not None), None)
    inside = None
    if one is not None:
        inside = torch.cat([torch.ones_like(one) if half is None else half for half in halves], -1)
    sites = (
        inside,
        stack(cell_masks, "hidden", *units),
        stack(score_masks, "key", *slots),
        stack(score_masks, "hidden", *slots),
    )
    query_mask = stack(score_masks, "query", batch_size, size)
    return Dropout(sites), None if query_mask is None else query_mask.flatten(0, 1)
