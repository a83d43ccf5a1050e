"""The sizes of a launch: teams of programs, tiles of sequences, and blocks of matrix products.

Axes as in `kernels`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from ordered_memory.backends.triton_support import multiprocessors

LARGEST_TEAM = 16
NUM_WARPS = 4
NUM_STAGES = 4
"""Number of chunks of weights of which all but one are loaded ahead (pipeline stages)."""
STAGE_BYTES = 24 * 1024
"""Operands of a matrix product that are loaded at a time."""


class Teams(NamedTuple):
    """How programs share the sequences of a batch.

    Args:
        size: number of programs of a team.
        count: number of teams.
        rows: number of sequences of a program at a time.
        tiles: number of times that a team reads its sequences, over all teams.
    """

    size: int
    count: int
    rows: int
    tiles: int


class Block(NamedTuple):
    """A part of a matrix product: the number of terms that are added at a time, and of columns."""

    terms: int
    columns: int


def choose_teams(batch_size: int, width: int, device: torch.device) -> Teams:
    """Share the sequences of a batch among teams.

    A team reads all weights once for each slot that one of its sequences writes. All programs must run at the
    same time, since those of a team wait for each other: at most one on each multiprocessor. So a program has
    one sequence, as long as there are enough of them, and more in larger batches: up to 8, and up to 2,048
    features, 8 for each thread, which fit in registers.

    Args:
        batch_size: B.
        width: entries of a block of features.
        device: device of the programs.
    """
    available = multiprocessors(device)
    size = min(LARGEST_TEAM, _power_of_two_below(available))
    rows = -(-batch_size // (available // size * size))
    rows = min(8, 2048 // width, _power_of_two_above(rows))
    tiles = -(-batch_size // (size * rows))
    return Teams(size, min(tiles, available // size), rows, tiles)


def choose_block(rows: int, depth: int, columns: int, programs: int, itemsize: int) -> Block:
    """Divide a matrix product among programs.

    Args:
        rows: number of rows of the product.
        depth: number of terms of an entry.
        columns: number of columns of the product.
        programs: number of programs that share the columns.
        itemsize: bytes of an entry of the operands.
    """

    def cost(block: int) -> int:
        """Columns that a program computes one after another, and 12 more for the start of each block."""
        return -(-columns // (programs * block)) * (block + 12)

    block = min((128, 64, 32, 16), key=cost)
    terms = _power_of_two_below(STAGE_BYTES // itemsize // (rows + block))
    return Block(min(terms, max(16, _power_of_two_above(depth))), block)


def _power_of_two_above(number: int) -> int:
    return 1 << (number - 1).bit_length()


def _power_of_two_below(number: int) -> int:
    return 1 << (number.bit_length() - 1)
