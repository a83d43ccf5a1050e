"""Notation of the kernels, and what both of them use.

Axes as in `ordered_memory.memory`, with D padded with zeros to P = `plan.PADDED`, a multiple of 16. Blocks of
features have `plan.WIDTH` entries, the next power of two.

A program keeps `plan.ROWS` sequences of its own. `plan.TEAM` programs, a team, share the matrix products of
the cell: each computes some of the columns for all sequences of the team, so that it reads only its part of
the weights. Everything else it computes for its own sequences. The programs of a team wait for each other
before and after these products (`_wait_for_team`); teams are independent.

Operands and results of matrix products are in global memory (they stay in the cache); only the accumulator of
a product is in registers. So barriers must separate the stores of one thread from the loads of another.
Registers are scarce: between products, blocks of features are loaded where they are used, again if necessary,
and addresses are not computed ahead of the loops (`disable_licm`).

Names of row indices in the buffers, for the first sequence b of a program or a team: `token = t B + b` for
tensors with a time axis; `before` and `after = before + B` for the state before and after step t (without
history `before = after = b`); `pair = before N + i` and `mask_row = token N + i` for slot i. The rows of the
other sequences follow at distances of 1 or N (`_row_ptrs`). Names in `_ptrs` are blocks of pointers.

`team` is a tuple: the counter `arrivals`, the number `member` of the program in the team, the distance
`to_team` from its first sequence to that of the team, and `team_running`, which sequences of the team have a
step t.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from ordered_memory.backends.triton_jit import jit, tl


@jit
def _find_team(arrivals, sizes, plan):
    """The counter of the team, the program's number in it, and the first sequences of program and team."""
    member = tl.program_id(0) % plan.TEAM
    team = sizes.first_team + tl.program_id(0) // plan.TEAM
    team_first = team.to(tl.int64) * (plan.TEAM * plan.ROWS)
    return arrivals + team * plan.ARRIVALS_STRIDE, member, team_first + member * plan.ROWS, team_first


@jit
def _wait_for_team(arrivals, meeting, plan):
    """Wait until all programs of the team are here, and see what they have stored.

    Each adds 1 to the counter of the team, and waits until all have done so, in this meeting and in those
    before. Returns the number of meetings so far.
    """
    tl.debug_barrier()
    meeting += 1
    if plan.TEAM > 1:
        tl.atomic_add(arrivals, 1, sem="release", scope="gpu")
        arrived = 0
        while arrived < meeting * plan.TEAM:
            arrived = tl.atomic_add(arrivals, 0, sem="acquire", scope="gpu")
    return meeting


@jit
def _matmul(left, valid, right, start, depth, COLUMNS: tl.constexpr, block, plan):
    """Some columns of left @ right, (rows, block.columns): those from `start` on.

    `left`, (rows, 1), points to rows of `depth` entries. `right` points to a matrix with `COLUMNS` columns,
    padded with zeros to whole blocks.
    """
    STRIDE: tl.constexpr = (COLUMNS + block.columns - 1) // block.columns * block.columns
    k = tl.arange(0, block.terms)
    right += start + k[:, None] * STRIDE + tl.arange(0, block.columns)[None, :]
    accumulator = tl.zeros((left.shape[0], block.columns), tl.float32)
    for first in tl.range(0, depth, block.terms, num_stages=plan.NUM_STAGES):
        term = first + k[None, :]
        a = tl.load(left + term, mask=valid & (term < depth), other=0.0)
        b = tl.load(right + first * STRIDE)
        accumulator = tl.dot(a.to(b.dtype), b, accumulator, input_precision="ieee")
    return accumulator


@jit
def _skipped_slots(tape, sizes, plan, team_token, team_running):
    """The number of slots, from the top, with →π_i = 0 in all rows of the team."""
    i = tl.arange(0, plan.BLOCK_SLOTS)
    p = _load_slots(tape.attention, team_token, sizes.slots, sizes, plan, team_running, plan.TEAM * plan.ROWS)
    active = tl.max(tl.where(p == 0, 0, 1), 0)  # also where p is NaN
    return tl.min(tl.where(active > 0, i, sizes.slots), 0)


@jit
def _load_attention_mask(tape, sizes, plan, before, running):
    """m, (ROWS, BLOCK_SLOTS): the occupancy of the slot below, taken as 0 below the threshold."""
    mask = _load_slots(tape.occupancy + 1, before, sizes.slots + 1, sizes, plan, running, plan.ROWS)
    return tl.where(mask < sizes.threshold, 0.0, mask)


@jit
def _load_lengths(lengths, first, sizes, ROWS: tl.constexpr):
    """Load (ROWS,) lengths, 0 beyond the batch."""
    row = first + tl.arange(0, ROWS)
    return tl.load(lengths + row, mask=row < sizes.batch, other=0)


@jit
def _load_slots(pointer, first, stride, sizes, plan, running, ROWS: tl.constexpr):
    """Load (ROWS, BLOCK_SLOTS) from rows of N entries that are `stride` apart; 0 beyond N."""
    i = tl.arange(0, plan.BLOCK_SLOTS)[None, :]
    ptrs = _row_ptrs(pointer, first, 1, stride, ROWS) + i
    return tl.load(ptrs, mask=running[:, None] & (i < sizes.slots), other=0.0)


@jit
def _store_slots(pointer, first, stride, values, sizes, plan, running):
    i = tl.arange(0, plan.BLOCK_SLOTS)[None, :]
    ptrs = _row_ptrs(pointer, first, 1, stride, plan.ROWS) + i
    tl.store(ptrs, values, mask=running[:, None] & (i < sizes.slots))


@jit
def _load_dropout(ptrs, valid):
    """Load the factors of a dropout mask."""
    return tl.load(ptrs, mask=valid, other=0).to(tl.float32)


@jit
def _row_ptrs(pointer, first, step, width, ROWS: tl.constexpr):
    """Pointers, (ROWS, 1), to rows of `width` entries: row `first` and every `step`-th row after it."""
    return pointer + first * width + (tl.arange(0, ROWS) * (step * width))[:, None]


@jit
def _above_ptrs(x, candidate, slot, plan):
    """Pointers to M̂_{i-1}, from pointers to x̃ = M̂_0 and to M̂_i."""
    return tl.where(slot > 0, candidate - plan.PADDED, x)


@jit
def _slots_from(slot, plan):
    """The indices of SLOT_ROWS slots, (SLOT_ROWS, 1)."""
    return slot + tl.arange(0, plan.SLOT_ROWS)[:, None]


@jit
def _sum_from(slot, tape, sizes, plan, token):
    """←π of some slots of a sequence, (SLOT_ROWS, 1): the sum of p from each slot on."""
    i = tl.arange(0, plan.BLOCK_SLOTS)[None, :]
    p = tl.load(tape.attention + token * sizes.slots + i, mask=i < sizes.slots, other=0.0)
    return tl.sum(tl.where(i >= slot, p, 0.0), 1)[:, None]


@jit
def _sum_to(slot, tape, sizes, plan, token):
    """→π of some slots of a sequence, (SLOT_ROWS, 1): the sum of p up to each slot."""
    i = tl.arange(0, plan.BLOCK_SLOTS)[None, :]
    p = tl.load(tape.attention + token * sizes.slots + i, mask=i < sizes.slots, other=0.0)
    return tl.sum(tl.where(i <= slot, p, 0.0), 1)[:, None]


@jit
def _column(values, slot, plan):
    """Column `slot` of (ROWS, BLOCK_SLOTS)."""
    return tl.sum(tl.where(tl.arange(0, plan.BLOCK_SLOTS)[None, :] == slot, values, 0.0), 1)


@jit
def _entry(values, index, LENGTH: tl.constexpr):
    """Entry `index` of the integers (LENGTH,)."""
    return tl.sum(tl.where(tl.arange(0, LENGTH) == index, values, 0), 0)


@jit
def _compose(gates, memory, above, plan, valid):
    """The result of the cell before the LayerNorm: `σ(g_m) M_i + σ(g_c) M̂_{i-1} + σ(g_u) u`."""
    composed = _gate(gates, valid) * memory + _gate(gates + plan.PADDED, valid) * above
    update = tl.load(gates + 3 * plan.PADDED, mask=valid, other=0.0)
    return composed + _gate(gates + 2 * plan.PADDED, valid) * update


@jit
def _gate(gate, valid):
    """Load a gate and apply the sigmoid."""
    return tl.sigmoid(tl.load(gate, mask=valid, other=0.0))


@jit
def _relu(x):
    """As `torch.relu`: NaN remains, of which `tl.maximum` makes 0 on a GPU."""
    return tl.where(x < 0, 0.0, x)


@jit
def _normalize(x, size, epsilon, plan):
    """(x - mean) rstd, and rstd = 1 / standard deviation. Padding must be zero and remains zero."""
    inside = tl.arange(0, plan.WIDTH)[None, :] < size
    x = tl.where(inside, x - tl.sum(x, 1)[:, None] / size, 0.0)
    rstd = tl.rsqrt(tl.sum(x * x, 1) / size + epsilon)[:, None]
    return x * rstd, rstd
