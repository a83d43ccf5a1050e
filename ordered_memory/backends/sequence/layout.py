"""Which slots of which rows a step has to compute, and their layout in memory.

Rows are the sequences of a step. →π is non-decreasing over the slots, so the active slots of a row (→π_i > 0)
are the last ones, i ≥ first. If the rows are sorted by their number of active slots, the active rows of each
slot are a prefix. The active (row, slot) pairs of a step are stored slot after slot, with no gaps:

    pairs    slot 0: counts[0] rows | slot 1: counts[1] rows | … | slot N-1: counts[N-1] rows

Candidates need one entry more for each row: M̂ of the slot above its first active one, which is x̃ exactly
(M̂_0 = x̃ if every slot is active). Region k holds the candidates of slot k - 1:

    entries  region 0: counts[0] rows | region 1: counts[1] rows | … | region N: all rows

So entry j holds M̂_{i-1}, the candidate that the cell reads for pair j; M̂_i, its result, is written
`counts[i]` entries further on; and the entries from `counts[0]` on hold all candidates that the next token
can attend to. Each entry also holds the memory M_i that M̂_{i-1} is composed with, so that it is the whole
input of the cell. For example, with N = 2 and two rows, a (slots 0 and 1 active) and b (slot 1 active), where
M_a1 is M_1 of row a, and so on:

    region   0            1            1            2            2
    entry    [M_a0; x̃_a]  [M_a1; M̂_a0] [M_b1; x̃_b]  [·; M̂_a1]    [·; M̂_b1]
    pair     (a, 0)       (a, 1)       (b, 1)

`vectors_of(entries)` has these vectors as its rows:

    M_a0, x̃_a, M_a1, M̂_a0, M_b1, x̃_b, ·, M̂_a1, ·, M̂_b1
"""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor


class Layout(NamedTuple):
    """The active pairs of one step.

    Args:
        counts: number of active rows of each slot, non-decreasing, N integers.
        starts: index of the first pair of each slot, then the number of pairs; N + 1 integers.
        start_of: `starts` as a tensor, (N + 1,).
        order: the rows by number of active slots, in descending order, (R,).
        rank: the index of each row in `order`, (R,).
        first: the first active slot of each row, N if there is none, (R,).
        entry_row: the row of each entry, (E,), E = pairs + R.
        entry_slot: the slot of each entry, -1 for M̂_0, (E,).
    """

    counts: list[int]
    starts: list[int]
    start_of: Tensor
    order: Tensor
    rank: Tensor
    first: Tensor
    entry_row: Tensor
    entry_slot: Tensor

    @property
    def num_pairs(self) -> int:
        """The number of active (row, slot) pairs."""
        return self.starts[-1]

    @property
    def pair_row(self) -> Tensor:
        """The row of each pair, (P,)."""
        return self.entry_row[: self.num_pairs]

    @property
    def pair_slot(self) -> Tensor:
        """The slot of each pair, (P,)."""
        return self.entry_slot[: self.num_pairs] + 1

    def candidate_index(self, row: Tensor, slot: Tensor) -> Tensor:
        """The rows of `vectors_of(entries)` with M̂ of given rows and slots: x̃ above the first active slot.

        Args:
            row: (n,) int64.
            slot: in [-1, N), (n,) int64.
        Returns:
            (n,) int64.
        """
        region = torch.maximum(slot + 1, self.first[row])
        return 2 * (self.start_of[region] + self.rank[row]) + 1

    def memory_index(self, row: Tensor, slot: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of `vectors_of(entries)` with M of given rows and slots.

        Args:
            row: (n,) int64.
            slot: in [0, N), (n,) int64.
        Returns:
            (n,) int64, 0 where the slot is not active; and whether the slot is active, (n,) bool.
        """
        active = slot >= self.first[row]
        return torch.where(active, 2 * (self.start_of[slot] + self.rank[row]), 0), active

    @property
    def num_above(self) -> int:
        """The number of entries of M̂_0, which come first."""
        return self.counts[0]

    @property
    def x_index(self) -> Tensor:
        """The row of `vectors_of(entries)` with x̃ itself, of each row, (R,)."""
        return 2 * (self.start_of[self.first] + self.rank) + 1

    @property
    def root_index(self) -> Tensor:
        """The row of `vectors_of(entries)` with M̂_N, of each row, (R,)."""
        return 2 * (self.starts[-1] + self.rank) + 1

    def outputs(self, entries: Tensor) -> list[Tensor]:
        """The parts of the entries that hold M̂ of each slot's active rows.

        Args:
            entries: (E, ·).
        Returns:
            N views, (count, ·).
        """
        return [
            entries[start : start + count] for start, count in zip(self.starts[1:], self.counts, strict=True)
        ]


def vectors_of(entries: Tensor) -> Tensor:
    """View each entry as two vectors, the rows of a matrix: M of entry j at 2j, M̂ at 2j + 1.

    Args:
        entries: (E, 2D).
    Returns:
        A view, (2E, D).
    """
    return entries.view(2 * len(entries), entries.shape[1] // 2)


def active_layout(num_active: Tensor, num_slots: int) -> Layout:
    """The layout of the active slots only. Its sizes depend on the data, so the host synchronizes.

    Args:
        num_active: number of active slots of each row, (R,) int64.
        num_slots: N.
    """
    order = num_active.argsort(descending=True, stable=True)
    rows_with = torch.bincount(num_active, minlength=num_slots + 1)  # [i]: rows with exactly i active slots
    at_least = rows_with.flip(0).cumsum(0)  # [i]: rows with at least N - i active slots
    counts = at_least.tolist()  # N + 1; the last is R
    # [i, r]: whether region i has an entry of the row with rank r
    occupied = at_least.unsqueeze(1) > torch.arange(len(num_active), device=num_active.device)
    region, rank = occupied.nonzero(as_tuple=True)
    return _layout(counts[:-1], at_least, order, num_slots - num_active, order[rank], region - 1)


def dense_layout(num_rows: int, num_slots: int, device: torch.device) -> Layout:
    """The layout in which every slot of every row counts as active. Its sizes do not depend on the data.

    Args:
        num_rows: R.
        num_slots: N.
        device: device of its tensors.
    """
    rows = torch.arange(num_rows, device=device)
    sizes = torch.full((num_slots + 1,), num_rows, device=device)
    entry = torch.arange((num_slots + 1) * num_rows, device=device)
    slot = torch.div(entry, num_rows, rounding_mode="floor") - 1
    first = torch.zeros_like(rows)
    return _layout([num_rows] * num_slots, sizes, rows, first, entry % num_rows, slot)


def _layout(
    counts: list[int], sizes: Tensor, order: Tensor, first: Tensor, entry_row: Tensor, entry_slot: Tensor
) -> Layout:
    rank = order.argsort()  # the inverse of the permutation
    start_of = sizes.cumsum(0) - sizes
    starts = [0, *accumulate(counts)]
    return Layout(counts, starts, start_of, order, rank, first, entry_row, entry_slot)
