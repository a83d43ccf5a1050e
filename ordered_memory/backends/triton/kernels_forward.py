"""The loop over time as a Triton kernel: the forward pass. `kernels_shared` has the notation."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from ordered_memory.backends.triton.kernels_shared import (
    _column,
    _compose,
    _entry,
    _find_team,
    _load_attention_mask,
    _load_dropout,
    _load_lengths,
    _load_slots,
    _matmul,
    _normalize,
    _relu,
    _row_ptrs,
    _skipped_slots,
    _slots_from,
    _store_slots,
    _sum_from,
    _wait_for_team,
)
from ordered_memory.backends.triton_jit import jit, tanh, tl


@jit
def forward_kernel(inputs, queries, lengths, output, weights, tape, dropout, arrivals, sizes, plan):
    """Read sequences. Steps past the end of a sequence do not change its state.

    Args:
        inputs: x̃, (T, B, P).
        queries: queries of the score, (T, B, P).
        lengths: lengths of the sequences, (B,).
        output: written, (T, B, P).
        weights: `contract.Weights`, with matrices as (in, out) here and as (out, in) in `backward_kernel`.
        tape, dropout, sizes, plan: the named tuples of `arguments.py`.
        arrivals: zeros, (teams, ARRIVALS_STRIDE): see `_wait_for_team`.
    """
    arrivals, member, first, team_first = _find_team(arrivals, sizes, plan)
    meeting = 0
    length = _load_lengths(lengths, first, sizes, plan.ROWS)
    team_length = _load_lengths(lengths, team_first, sizes, plan.TEAM * plan.ROWS)
    for t in tl.range(tl.max(team_length, 0), disable_licm=True):
        running = t < length
        token = t * sizes.batch + first
        before = t * sizes.batch * plan.HISTORY + first
        p = _attend(queries, weights, tape, dropout, sizes, plan, token, before, running)
        _store_slots(tape.attention, token, sizes.slots, p, sizes, plan, running)
        meeting = _wait_for_team(arrivals, meeting, plan)
        team = (arrivals, member, team_first - first, t < team_length)
        meeting = _update_slots(
            inputs, output, p, weights, tape, dropout, team, meeting, sizes, plan, token, before, running
        )
        tl.debug_barrier()


@jit
def _attend(queries, weights, tape, dropout, sizes, plan, token, before, running):
    """Compute p, (ROWS, BLOCK_SLOTS). The scores are exchanged in `tape.attention`."""
    mask = _load_attention_mask(tape, sizes, plan, before, running)
    for row in tl.range(plan.ROWS, disable_licm=True):
        if _entry(running.to(tl.int32), row, plan.ROWS) > 0:
            for slot in tl.range(0, sizes.slots, plan.SLOT_ROWS, disable_licm=True):
                pair = (before + row) * sizes.slots + slot
                mask_row = (token + row) * sizes.slots + slot
                valid = _slots_from(slot, plan) < sizes.slots
                query_ptr = queries + (token + row) * plan.PADDED
                score = _score(query_ptr, weights, tape, dropout, sizes, plan, pair, mask_row, valid)
                tl.store(tape.attention + mask_row + tl.arange(0, plan.SLOT_ROWS)[:, None], score, mask=valid)
    tl.debug_barrier()
    scores = _load_slots(tape.attention, token, sizes.slots, sizes, plan, running, plan.ROWS)
    tl.debug_barrier()
    scores = tl.where(mask > 0, scores, float("-inf"))
    # For an empty memory the maximum is -inf, and -inf - (-inf) would be NaN.
    largest = tl.maximum(tl.max(scores, 1), -3.0e38)
    weight = mask * tl.exp(scores - largest[:, None])
    return weight / tl.where(tl.sum(mask, 1) == 0, 1.0, tl.sum(weight, 1))[:, None]


@jit
def _score(query_ptr, weights, tape, dropout, sizes, plan, pair, mask_row, valid):
    """Compute a of SLOT_ROWS slots of a sequence, (SLOT_ROWS, 1), without the output bias, which does not
    change p."""
    d = tl.arange(0, plan.WIDTH)[None, :]
    inside = valid & (d < plan.PADDED)
    key_inputs = _row_ptrs(tape.candidate, pair, 1, plan.PADDED, plan.SLOT_ROWS)
    if plan.SCORE_MASKS:
        candidate = tl.load(key_inputs + d, mask=inside, other=0.0)
        masks = _row_ptrs(dropout.key, mask_row, 1, plan.PADDED, plan.SLOT_ROWS)
        candidate *= _load_dropout(masks + d, inside)
        key_inputs = _row_ptrs(tape.key_inputs, pair, 1, plan.PADDED, plan.SLOT_ROWS)
        tl.store(key_inputs + d, candidate, mask=inside)
        tl.debug_barrier()
    keys = _row_ptrs(tape.keys, pair, 1, plan.PADDED, plan.SLOT_ROWS)
    for start in tl.range(0, plan.PADDED, plan.KEY.columns, disable_licm=True):
        column = start + tl.arange(0, plan.KEY.columns)[None, :]
        value = _matmul(key_inputs, valid, weights.key, start, sizes.padded, plan.PADDED, plan.KEY, plan)
        value += tl.load(weights.key_bias + column)
        tl.store(keys + column, value, mask=valid & (column < plan.PADDED))
    tl.debug_barrier()
    key = tl.load(keys + d, mask=inside, other=0.0)
    query = tl.load(query_ptr + d, mask=d < plan.PADDED, other=0.0)
    if plan.NORMALIZED:
        normalized, _ = _normalize(key, sizes.size, sizes.key_epsilon, plan)
        key = normalized * tl.load(weights.key_norm + d) + tl.load(weights.key_norm_bias + d)
        feature = _relu(query + key)
    else:
        feature = tanh(query + key)
    if plan.SCORE_MASKS:
        masks = _row_ptrs(dropout.feature, mask_row, 1, plan.PADDED, plan.SLOT_ROWS)
        feature *= _load_dropout(masks + d, inside)
    return tl.sum(feature * tl.load(weights.score_out + d), 1)[:, None]


@jit
def _update_slots(
    inputs, output, p, weights, tape, dropout, team, meeting, sizes, plan, token, before, running
):
    """Compute M and M̂. Returns the number of meetings so far.

    M̂ is computed slot by slot from the top, and the cell is skipped if →π_i = 0 in all rows of the team.
    """
    arrivals, member, to_team, team_running = team
    d = tl.arange(0, plan.WIDTH)[None, :]
    valid = running[:, None] & (d < plan.PADDED)
    after = before + sizes.batch * plan.HISTORY
    forward_pi = tl.cumsum(p, 1)
    skipped = _skipped_slots(tape, sizes, plan, token + to_team, team_running)
    _store_slots(tape.occupancy, after, sizes.slots + 1, forward_pi, sizes, plan, running)
    last_entry = _row_ptrs(tape.occupancy + sizes.slots, after, 1, sizes.slots + 1, plan.ROWS)
    tl.store(last_entry, 1.0, mask=running[:, None])
    for row in tl.range(plan.ROWS, disable_licm=True):
        if _entry(running.to(tl.int32), row, plan.ROWS) > 0:
            for slot in tl.range(0, sizes.slots, plan.SLOT_ROWS, disable_licm=True):
                _update_memory(
                    inputs, tape, dropout, sizes, plan, token + row, before + row, after + row, slot
                )
    tl.debug_barrier()
    x_ptrs = _row_ptrs(inputs, token, 1, plan.PADDED, plan.ROWS)
    x = tl.load(x_ptrs + d, mask=valid, other=0.0)
    above = x
    for slot in tl.range(skipped, sizes.slots, disable_licm=True):
        pair = before * sizes.slots + slot
        mask_row = token * sizes.slots + slot
        memory_ptrs = _row_ptrs(tape.memory, after * sizes.slots + slot, sizes.slots, plan.PADDED, plan.ROWS)
        candidate_ptrs = _row_ptrs(
            tape.candidate, after * sizes.slots + slot, sizes.slots, plan.PADDED, plan.ROWS
        )
        kept = above
        if plan.CELL_MASKS:
            masks = _row_ptrs(dropout.candidate, mask_row, sizes.slots, plan.PADDED, plan.ROWS)
            kept *= _load_dropout(masks + d, valid)
        cell_inputs = _row_ptrs(tape.cell_inputs, pair, sizes.slots, 2 * plan.PADDED, plan.ROWS)
        tl.store(cell_inputs + plan.PADDED + d, kept, mask=valid)
        meeting = _wait_for_team(arrivals, meeting, plan)
        team_pair, team_mask_row = pair + to_team * sizes.slots, mask_row + to_team * sizes.slots
        _hidden(weights, tape, dropout, sizes, plan, member, team_pair, team_mask_row, team_running)
        meeting = _wait_for_team(arrivals, meeting, plan)
        _gates(weights, tape, sizes, plan, member, team_pair, team_running)
        meeting = _wait_for_team(arrivals, meeting, plan)
        gates = _row_ptrs(tape.gates, pair, sizes.slots, 4 * plan.PADDED, plan.ROWS)
        memory = tl.load(memory_ptrs + d, mask=valid, other=0.0)
        composed = _compose(gates + d, memory, above, plan, valid)
        normalized, _ = _normalize(composed, sizes.size, sizes.norm_epsilon, plan)
        o = normalized * tl.load(weights.norm + d) + tl.load(weights.norm_bias + d)
        above = _lerp(x, o, _column(forward_pi, slot, plan)[:, None])
        tl.store(candidate_ptrs + d, above, mask=valid)
    tl.store(_row_ptrs(output, token, 1, plan.PADDED, plan.ROWS) + d, above, mask=valid)
    return meeting


@jit
def _update_memory(inputs, tape, dropout, sizes, plan, token, before, after, first):
    """Store M of some slots of a sequence, also as inputs of the cell, and x̃ as their M̂ until it is known."""
    d = tl.arange(0, plan.WIDTH)[None, :]
    slot = _slots_from(first, plan)
    valid = (slot < sizes.slots) & (d < plan.PADDED)
    old = _row_ptrs(tape.memory, before * sizes.slots + first, 1, plan.PADDED, plan.SLOT_ROWS) + d
    memory = tl.load(old, mask=valid, other=0.0)
    old = _row_ptrs(tape.candidate, before * sizes.slots + first, 1, plan.PADDED, plan.SLOT_ROWS) + d
    candidate = tl.load(old, mask=valid, other=0.0)
    memory = _lerp(memory, candidate, _sum_from(slot, tape, sizes, plan, token))
    x = tl.load(inputs + token * plan.PADDED + d, mask=d < plan.PADDED, other=0.0)
    tl.debug_barrier()  # without history the stores overwrite what these loads read
    new = after * sizes.slots + first
    tl.store(_row_ptrs(tape.memory, new, 1, plan.PADDED, plan.SLOT_ROWS) + d, memory, mask=valid)
    candidates = _row_ptrs(tape.candidate, new, 1, plan.PADDED, plan.SLOT_ROWS) + d
    tl.store(candidates, tl.zeros_like(memory) + x, mask=valid)
    if plan.CELL_MASKS:
        masks = _row_ptrs(dropout.memory, token * sizes.slots + first, 1, plan.PADDED, plan.SLOT_ROWS)
        memory *= _load_dropout(masks + d, valid)
    pair = before * sizes.slots + first
    cell_inputs = _row_ptrs(tape.cell_inputs, pair, 1, 2 * plan.PADDED, plan.SLOT_ROWS)
    tl.store(cell_inputs + d, memory, mask=valid)


@jit
def _hidden(weights, tape, dropout, sizes, plan, member, pair, mask_row, running):
    """Store relu(W1 [M_i; M̂_{i-1}] + b1) after dropout in `tape.hidden`: some columns, for the whole team."""
    cell_inputs = _row_ptrs(tape.cell_inputs, pair, sizes.slots, 2 * plan.PADDED, plan.TEAM * plan.ROWS)
    hidden = _row_ptrs(tape.hidden, pair, sizes.slots, 4 * plan.PADDED, plan.TEAM * plan.ROWS)
    valid = running[:, None]
    for start in tl.range(
        member * plan.FIRST.columns, 4 * plan.PADDED, plan.TEAM * plan.FIRST.columns, disable_licm=True
    ):
        column = start + tl.arange(0, plan.FIRST.columns)[None, :]
        inside = valid & (column < 4 * plan.PADDED)
        value = _matmul(
            cell_inputs, valid, weights.w_in, start, 2 * sizes.padded, 4 * plan.PADDED, plan.FIRST, plan
        )
        value = _relu(value + tl.load(weights.b_in + column))
        if plan.CELL_MASKS:
            masks = _row_ptrs(dropout.hidden, mask_row, sizes.slots, 4 * plan.PADDED, plan.TEAM * plan.ROWS)
            value *= _load_dropout(masks + column, inside)
        tl.store(hidden + column, value, mask=inside)


@jit
def _gates(weights, tape, sizes, plan, member, pair, running):
    """Store W2 `hidden` + b2 in `tape.gates`: some columns, for the whole team."""
    hidden = _row_ptrs(tape.hidden, pair, sizes.slots, 4 * plan.PADDED, plan.TEAM * plan.ROWS)
    gates = _row_ptrs(tape.gates, pair, sizes.slots, 4 * plan.PADDED, plan.TEAM * plan.ROWS)
    valid = running[:, None]
    for start in tl.range(
        member * plan.SECOND.columns, 4 * plan.PADDED, plan.TEAM * plan.SECOND.columns, disable_licm=True
    ):
        column = start + tl.arange(0, plan.SECOND.columns)[None, :]
        value = _matmul(
            hidden, valid, weights.w_out, start, 4 * sizes.padded, 4 * plan.PADDED, plan.SECOND, plan
        )
        value += tl.load(weights.b_out + column)
        tl.store(gates + column, value, mask=valid & (column < 4 * plan.PADDED))


@jit
def _lerp(start, end, weight):
    """As `torch.lerp`: exactly `start` for weight 0 and exactly `end` for weight 1."""
    difference = end - start
    return tl.where(weight < 0.5, start + weight * difference, end - difference * (1 - weight))
