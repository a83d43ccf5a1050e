"""The sizes of a launch: teams of programs, and blocks of matrix products.

Axes as in `kernels_shared`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from ordered_memory.backends.triton.arguments import Block, KernelPlan
from ordered_memory.backends.triton.padding import padded_size, power_of_two_above
from ordered_memory.backends.triton_support import multiprocessors

LARGEST_TEAM = 16
ARRIVALS_STRIDE = 32
"""Distance of the counters of two teams, in entries of 4 bytes: each has a line of the cache of its own."""


class Resources(NamedTuple):
    """What a program uses.

    Args:
        warps: number of warps.
        stages: pipeline stages of a matrix product: while a part of it is computed, the operands of the next
            `stages - 2` parts are loaded.
        terms: most terms of a part.
        entries: most entries of the operands of a part, which has at least 16 terms. Shared memory must have
            room for `stages - 1` parts.
    """

    warps: int
    stages: int
    terms: int
    entries: int


class Teams(NamedTuple):
    """How programs share the sequences of a batch.

    Args:
        size: number of programs of a team.
        rows: number of sequences of a program.
        number: number of teams.
        at_a_time: number of teams of a launch: all programs of a launch must run at the same time.
    """

    size: int
    rows: int
    number: int
    at_a_time: int


def choose_teams(batch_size: int, width: int, device: torch.device) -> Teams:
    """Share the sequences of a batch among teams.

    A team reads all weights once for each slot that one of its sequences writes. Its programs wait for each
    other, so that at most one program is on each multiprocessor. A program has one sequence, as long as there
    are enough multiprocessors, and more in larger batches: up to 8, and up to 2,048 features, which fit into
    registers. Still larger batches take several launches.

    Args:
        batch_size: B.
        width: entries of a block of features.
        device: device of the programs.
    """
    available = multiprocessors(device)
    size = min(LARGEST_TEAM, _power_of_two_below(available))
    rows = -(-batch_size // (available // size * size))
    rows = min(8, 2048 // width, power_of_two_above(rows))
    return Teams(size, rows, -(-batch_size // (size * rows)), available // size)


def choose_resources(teams: Teams, operand: torch.dtype) -> Resources:
    """The resources with which no register is spilled at D = 128 and N = 21, the sizes of ListOps.

    Args:
        teams: the teams of programs.
        operand: dtype of the operands of matrix products.
    """
    if operand == torch.bfloat16:
        return Resources(warps=4, stages=4, terms=256, entries=12 * 1024)
    if teams.rows <= 2:
        return Resources(warps=4, stages=5, terms=32, entries=3 * 1024)
    return Resources(warps=8, stages=5, terms=32, entries=6 * 1024)


def choose_block(rows: int, depth: int, columns: int, programs: int, resources: Resources) -> Block:
    """Divide a matrix product among programs.

    Args:
        rows: number of rows of the product.
        depth: number of terms of an entry.
        columns: number of columns of the product.
        programs: number of programs that share the columns.
        resources: what a program uses.
    """

    def cost(block: int) -> int:
        """Columns that a program computes one after another, and 12 more for the start of each block."""
        return -(-columns // (programs * block)) * (block + 12)

    block = min((128, 64, 32, 16), key=cost)
    terms = min(resources.terms, resources.entries // (rows + block), power_of_two_above(depth))
    return Block(_power_of_two_below(max(16, terms)), block)


def make_plan(
    teams: Teams, size: int, num_slots: int, resources: Resources, is_backward: bool, **constants: bool | int
) -> KernelPlan:
    """The compile-time constants of a kernel.

    Args:
        teams: the teams of programs.
        size: D.
        num_slots: N.
        resources: what a program uses.
        is_backward: whether it is the backward kernel.
        **constants: `NORMALIZED`, `HISTORY`, `SCORE_MASKS` and `CELL_MASKS`.
    """
    padded = padded_size(size)
    width, slots = power_of_two_above(padded), power_of_two_above(num_slots)
    # More slots at a time need fewer passes over the weights of the key map, and more registers.
    slot_rows = max(16, min(slots, 2048 // width))
    key = choose_block(slot_rows, padded, padded, 1, resources)
    first_depth, second_columns = (4 * padded, 2 * padded) if is_backward else (2 * padded, 4 * padded)
    rows = teams.size * teams.rows
    first = choose_block(rows, first_depth, 4 * padded, teams.size, resources)
    second = choose_block(rows, 4 * padded, second_columns, teams.size, resources)
    return KernelPlan(
        PADDED=padded,
        WIDTH=width,
        BLOCK_SLOTS=max(2, slots),
        ROWS=teams.rows,
        TEAM=teams.size,
        SLOT_ROWS=slot_rows,
        ARRIVALS_STRIDE=ARRIVALS_STRIDE,
        KEY=key,
        FIRST=first,
        SECOND=second,
        NUM_STAGES=resources.stages,
        **constants,
    )


def longest_sequence(num_slots: int) -> int:
    """The largest T with which no counter of a team exceeds an int32.

    The programs of a team meet at most once at each step and three times at each slot of it.

    Args:
        num_slots: N.
    """
    return (2**31 - 1) // (LARGEST_TEAM * (1 + 3 * num_slots))


def _power_of_two_below(number: int) -> int:
    return 1 << (number.bit_length() - 1)
