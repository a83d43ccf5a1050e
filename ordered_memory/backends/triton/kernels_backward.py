"""The backward pass of `kernels_forward.forward_kernel`; `kernels_shared` has the notation.

The gradient with respect to y is called `dy` or `d_y`. Gradients of the inputs, the queries and the weights
that are vectors are accumulated in global memory; those of the state are overwritten at every step. Gradients
of the results of the three linear maps are stored for all pairs, so that the caller can compute the gradient
of each matrix as one product at the end.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from ordered_memory.backends.triton.kernels_shared import (
    _above_ptrs,
    _column,
    _compose,
    _entry,
    _find_team,
    _gate,
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
    _sum_to,
    _wait_for_team,
)
from ordered_memory.backends.triton_jit import jit, tanh, tl


@jit
def backward_kernel(inputs, queries, lengths, gradients, weights, tape, dropout, arrivals, sizes, plan):
    """Run the backward pass; see `ordered_memory.backends.triton.kernels_forward.forward_kernel`, and
    `arguments.Gradients` for `gradients`."""
    arrivals, member, first, team_first = _find_team(arrivals, sizes, plan)
    meeting = 0
    length = _load_lengths(lengths, first, sizes, plan.ROWS)
    team_length = _load_lengths(lengths, team_first, sizes, plan.TEAM * plan.ROWS)
    last = tl.max(team_length, 0)
    for steps in tl.range(last, disable_licm=True):
        t = last - 1 - steps
        running = t < length
        token = t * sizes.batch + first
        p = _load_slots(tape.attention, token, sizes.slots, sizes, plan, running, plan.ROWS)
        team = (arrivals, member, team_first - first, t < team_length)
        dp, meeting = _update_slots_backward(
            inputs, p, weights, tape, gradients, dropout, team, meeting, sizes, plan, token, first, running
        )
        mask = _load_attention_mask(tape, sizes, plan, token, running)
        dp -= tl.sum(p * dp, 1)[:, None]
        # ∂p_i / ∂m_i, if the denominator is constant, is exp(a_i - max a) / Σ … = p_i / m_i.
        d_mask = tl.where(mask == 0, 0.0, p * dp / tl.where(mask == 0, 1.0, mask))
        tl.debug_barrier()
        _store_slots(gradients.occupancy + 1, first, sizes.slots + 1, d_mask, sizes, plan, running)
        first_entry = _row_ptrs(gradients.occupancy, first, 1, sizes.slots + 1, plan.ROWS)
        tl.store(first_entry, 0.0, mask=running[:, None])
        # The upstream gradient has been read: its place takes that of the scores.
        _store_slots(gradients.attention, token, sizes.slots, p * dp, sizes, plan, running)
        tl.debug_barrier()
        _attend_backward(queries, weights, tape, gradients, dropout, sizes, plan, token, first, running)
        tl.debug_barrier()


@jit
def _update_slots_backward(
    inputs, p, weights, tape, gradients, dropout, team, meeting, sizes, plan, token, first, running
):
    """Backward of `_update_slots`, from the bottom slot up. Adds dx to `gradients.inputs`.

    Returns dp, and the number of meetings so far.
    """
    _, _, to_team, team_running = team
    i = tl.arange(0, plan.BLOCK_SLOTS)[None, :]
    d = tl.arange(0, plan.WIDTH)[None, :]
    valid = running[:, None] & (d < plan.PADDED)
    forward_pi = tl.cumsum(p, 1)
    skipped = _skipped_slots(tape, sizes, plan, token + to_team, team_running)
    d_forward_pi = _load_slots(gradients.occupancy, first, sizes.slots + 1, sizes, plan, running, plan.ROWS)
    bottom = _row_ptrs(
        gradients.candidate, (first + 1) * sizes.slots - 1, sizes.slots, plan.PADDED, plan.ROWS
    )
    d_output = tl.load(
        _row_ptrs(gradients.output, token, 1, plan.PADDED, plan.ROWS) + d, mask=valid, other=0.0
    )
    _add(bottom + d, d_output, valid)
    tl.debug_barrier()
    for step in tl.range(sizes.slots - skipped, disable_licm=True):
        slot = sizes.slots - 1 - step
        d_forward_pi_i, meeting = _compose_backward(
            _column(forward_pi, slot, plan)[:, None],
            inputs,
            weights,
            tape,
            gradients,
            dropout,
            team,
            meeting,
            sizes,
            plan,
            token,
            slot,
            first,
            valid,
        )
        d_forward_pi += tl.where(i == slot, d_forward_pi_i, 0.0)
    # →π_i is the sum of p_j over j ≤ i.
    dp = _load_slots(gradients.attention, token, sizes.slots, sizes, plan, running, plan.ROWS)
    dp += tl.cumsum(d_forward_pi, 1, reverse=True)
    tl.debug_barrier()
    for row in tl.range(plan.ROWS, disable_licm=True):
        if _entry(running.to(tl.int32), row, plan.ROWS) > 0:
            for slot in tl.range(0, sizes.slots, plan.SLOT_ROWS, disable_licm=True):
                _update_memory_backward(tape, gradients, sizes, plan, token + row, first + row, slot)
                tl.debug_barrier()
    d_backward_pi = _load_slots(gradients.attention, token, sizes.slots, sizes, plan, running, plan.ROWS)
    # ←π_i is the sum of p_j over j ≥ i.
    return dp + tl.cumsum(d_backward_pi, 1), meeting


@jit
def _update_memory_backward(tape, gradients, sizes, plan, token, sequence, first):
    """Backward of `_update_memory`. Stores d←π in `gradients.attention`, whose gradient has been read."""
    d = tl.arange(0, plan.WIDTH)[None, :]
    slot = _slots_from(first, plan)
    valid = (slot < sizes.slots) & (d < plan.PADDED)
    pair = token * sizes.slots + first
    state = sequence * sizes.slots + first
    d_memory_ptrs = _row_ptrs(gradients.memory, state, 1, plan.PADDED, plan.SLOT_ROWS) + d
    d_candidate_ptrs = _row_ptrs(gradients.candidate, state, 1, plan.PADDED, plan.SLOT_ROWS) + d
    d_memory = tl.load(d_memory_ptrs, mask=valid, other=0.0)
    d_candidate = tl.load(d_candidate_ptrs, mask=valid, other=0.0)
    old = tl.load(_row_ptrs(tape.candidate, pair, 1, plan.PADDED, plan.SLOT_ROWS) + d, mask=valid, other=0.0)
    old -= tl.load(_row_ptrs(tape.memory, pair, 1, plan.PADDED, plan.SLOT_ROWS) + d, mask=valid, other=0.0)
    d_backward_pi = tl.sum(d_memory * old, 1)[:, None]
    tl.store(
        gradients.attention + pair + tl.arange(0, plan.SLOT_ROWS)[:, None],
        d_backward_pi,
        mask=slot < sizes.slots,
    )
    d_candidate *= 1 - _sum_to(slot, tape, sizes, plan, token)
    _add(gradients.inputs + token * plan.PADDED + d, tl.sum(d_candidate, 0)[None, :], d < plan.PADDED)
    backward_pi = _sum_from(slot, tape, sizes, plan, token)
    tl.debug_barrier()  # the next two stores overwrite what was loaded before
    tl.store(d_memory_ptrs, d_memory * (1 - backward_pi), mask=valid)
    tl.store(d_candidate_ptrs, d_memory * backward_pi, mask=valid)


@jit
def _compose_backward(
    forward_pi_i,
    inputs,
    weights,
    tape,
    gradients,
    dropout,
    team,
    meeting,
    sizes,
    plan,
    token,
    slot,
    first,
    valid,
):
    """Backward of the cell and its LayerNorm. Accumulates dM_i and dM̂_{i-1}.

    Returns d→π_i, (ROWS, 1), and the number of meetings so far.
    """
    arrivals, member, to_team, team_running = team
    d = tl.arange(0, plan.WIDTH)[None, :]
    pair = token * sizes.slots + slot
    after = pair + sizes.batch * sizes.slots
    state = first * sizes.slots + slot
    x_ptrs = _row_ptrs(inputs, token, 1, plan.PADDED, plan.ROWS)
    dx_ptrs = _row_ptrs(gradients.inputs, token, 1, plan.PADDED, plan.ROWS)
    d_memory_ptrs = _row_ptrs(gradients.memory, state, sizes.slots, plan.PADDED, plan.ROWS)
    d_candidate_ptrs = _row_ptrs(gradients.candidate, state, sizes.slots, plan.PADDED, plan.ROWS)
    gates = _row_ptrs(tape.gates, pair, sizes.slots, 4 * plan.PADDED, plan.ROWS) + d
    memory_ptrs = _row_ptrs(tape.memory, after, sizes.slots, plan.PADDED, plan.ROWS) + d
    candidate_ptrs = _row_ptrs(tape.candidate, after, sizes.slots, plan.PADDED, plan.ROWS)
    above_ptrs = _above_ptrs(x_ptrs, candidate_ptrs, slot, plan) + d
    memory = tl.load(memory_ptrs, mask=valid, other=0.0)
    above = tl.load(above_ptrs, mask=valid, other=0.0)
    composed = _compose(gates, memory, above, plan, valid)
    normalized, rstd = _normalize(composed, sizes.size, sizes.norm_epsilon, plan)
    norm_weight = tl.load(weights.norm + d)
    o = normalized * norm_weight + tl.load(weights.norm_bias + d)
    d_o = tl.load(d_candidate_ptrs + d, mask=valid, other=0.0)
    d_forward_pi_i = tl.sum(d_o * (o - tl.load(x_ptrs + d, mask=valid, other=0.0)), 1)[:, None]
    d_o *= forward_pi_i
    vectors = _row_ptrs(gradients.vectors, first, 1, 5 * plan.PADDED, plan.ROWS) + d
    _add(vectors, d_o * normalized, valid)
    _add(vectors + plan.PADDED, d_o, valid)
    d_composed = _normalize_backward(d_o * norm_weight, normalized, rstd, sizes.size, plan)

    d_gates = _row_ptrs(gradients.gates, pair, sizes.slots, 4 * plan.PADDED, plan.ROWS)
    d_above_ptrs = _above_ptrs(dx_ptrs, d_candidate_ptrs, slot, plan)
    gate = _gate(gates, valid)
    tl.store(d_gates + d, d_composed * memory * gate * (1 - gate), mask=valid)
    _add(d_memory_ptrs + d, d_composed * gate, valid)
    gate = _gate(gates + plan.PADDED, valid)
    tl.store(d_gates + plan.PADDED + d, d_composed * above * gate * (1 - gate), mask=valid)
    _add(d_above_ptrs + d, d_composed * gate, valid)
    gate = _gate(gates + 2 * plan.PADDED, valid)
    update = tl.load(gates + 3 * plan.PADDED, mask=valid, other=0.0)
    tl.store(d_gates + 2 * plan.PADDED + d, d_composed * update * gate * (1 - gate), mask=valid)
    tl.store(d_gates + 3 * plan.PADDED + d, d_composed * gate, mask=valid)

    meeting = _wait_for_team(arrivals, meeting, plan)
    team_pair = pair + to_team * sizes.slots
    _hidden_backward(weights, tape, gradients, dropout, sizes, plan, member, team_pair, team_running)
    meeting = _wait_for_team(arrivals, meeting, plan)
    _cell_inputs_backward(weights, gradients, sizes, plan, member, first + to_team, team_pair, team_running)
    meeting = _wait_for_team(arrivals, meeting, plan)
    d_cell_inputs = _row_ptrs(gradients.cell_inputs, first, 1, 2 * plan.PADDED, plan.ROWS) + d
    d_memory = tl.load(d_cell_inputs, mask=valid, other=0.0)
    d_above = tl.load(d_cell_inputs + plan.PADDED, mask=valid, other=0.0)
    if plan.CELL_MASKS:
        masks = _row_ptrs(dropout.memory, pair, sizes.slots, plan.PADDED, plan.ROWS)
        d_memory *= _load_dropout(masks + d, valid)
        masks = _row_ptrs(dropout.candidate, pair, sizes.slots, plan.PADDED, plan.ROWS)
        d_above *= _load_dropout(masks + d, valid)
    _add(d_memory_ptrs + d, d_memory, valid)
    _add(d_above_ptrs + d, d_above, valid)
    tl.debug_barrier()
    return d_forward_pi_i, meeting


@jit
def _hidden_backward(weights, tape, gradients, dropout, sizes, plan, member, pair, running):
    """Store the gradients of the hidden units in `gradients.hidden`: some columns, for the whole team."""
    d_gates = _row_ptrs(gradients.gates, pair, sizes.slots, 4 * plan.PADDED, plan.TEAM * plan.ROWS)
    d_hidden = _row_ptrs(gradients.hidden, pair, sizes.slots, 4 * plan.PADDED, plan.TEAM * plan.ROWS)
    hidden = _row_ptrs(tape.hidden, pair, sizes.slots, 4 * plan.PADDED, plan.TEAM * plan.ROWS)
    valid = running[:, None]
    for start in tl.range(
        member * plan.FIRST.columns, 4 * plan.PADDED, plan.TEAM * plan.FIRST.columns, disable_licm=True
    ):
        column = start + tl.arange(0, plan.FIRST.columns)[None, :]
        inside = valid & (column < 4 * plan.PADDED)
        value = _matmul(
            d_gates, valid, weights.w_out, start, 4 * sizes.padded, 4 * plan.PADDED, plan.FIRST, plan
        )
        # Units that relu or dropout set to 0 have no gradient.
        dropped = tl.load(hidden + column, mask=inside, other=0.0) <= 0
        if plan.CELL_MASKS:
            masks = _row_ptrs(dropout.hidden, pair, sizes.slots, 4 * plan.PADDED, plan.TEAM * plan.ROWS)
            value *= _load_dropout(masks + column, inside)
        tl.store(d_hidden + column, tl.where(dropped, 0.0, value), mask=inside)


@jit
def _cell_inputs_backward(weights, gradients, sizes, plan, member, row, pair, running):
    """Store the gradients of [M_i; M̂_{i-1}] after dropout: some columns, for the whole team."""
    d_hidden = _row_ptrs(gradients.hidden, pair, sizes.slots, 4 * plan.PADDED, plan.TEAM * plan.ROWS)
    d_cell_inputs = _row_ptrs(gradients.cell_inputs, row, 1, 2 * plan.PADDED, plan.TEAM * plan.ROWS)
    valid = running[:, None]
    for start in tl.range(
        member * plan.SECOND.columns, 2 * plan.PADDED, plan.TEAM * plan.SECOND.columns, disable_licm=True
    ):
        column = start + tl.arange(0, plan.SECOND.columns)[None, :]
        value = _matmul(
            d_hidden, valid, weights.w_in, start, 4 * sizes.padded, 2 * plan.PADDED, plan.SECOND, plan
        )
        tl.store(d_cell_inputs + column, value, mask=valid & (column < 2 * plan.PADDED))


@jit
def _attend_backward(queries, weights, tape, gradients, dropout, sizes, plan, token, first, running):
    """Backward of the scores: accumulates the gradient of M̂[t-1], and dq in `gradients.queries`."""
    d = tl.arange(0, plan.WIDTH)[None, :]
    for row in tl.range(plan.ROWS, disable_licm=True):
        if _entry(running.to(tl.int32), row, plan.ROWS) > 0:
            for slot in tl.range(0, sizes.slots, plan.SLOT_ROWS, disable_licm=True):
                pair = (token + row) * sizes.slots + slot
                state = (first + row) * sizes.slots + slot
                valid = _slots_from(slot, plan) < sizes.slots
                query_ptr = queries + (token + row) * plan.PADDED + d
                vectors = gradients.vectors + (first + row) * (5 * plan.PADDED) + d
                d_score = tl.load(
                    gradients.attention + pair + tl.arange(0, plan.SLOT_ROWS)[:, None], mask=valid, other=0.0
                )
                d_query = _keys_backward(
                    query_ptr, d_score, vectors, weights, tape, gradients, dropout, sizes, plan, pair, valid
                )
                _add(gradients.queries + (token + row) * plan.PADDED + d, d_query, d < plan.PADDED)
                tl.debug_barrier()
                _key_inputs_backward(weights, gradients, dropout, sizes, plan, pair, state, valid)
                tl.debug_barrier()


@jit
def _keys_backward(query_ptr, d_score, vectors, weights, tape, gradients, dropout, sizes, plan, pair, valid):
    """Backward of the operations between the results of the key map and the scores of some slots.

    Stores the gradients of these results in `gradients.keys`, and adds those of the vectors. Returns dq.
    """
    d = tl.arange(0, plan.WIDTH)[None, :]
    inside = valid & (d < plan.PADDED)
    query = tl.load(query_ptr, mask=d < plan.PADDED, other=0.0)
    keys = _row_ptrs(tape.keys, pair, 1, plan.PADDED, plan.SLOT_ROWS)
    key = tl.load(keys + d, mask=inside, other=0.0)
    if plan.NORMALIZED:
        normalized, rstd = _normalize(key, sizes.size, sizes.key_epsilon, plan)
        norm_weight = tl.load(weights.key_norm + d)
        feature = _relu(query + normalized * norm_weight + tl.load(weights.key_norm_bias + d))
        slope = tl.where(feature <= 0, 0.0, 1.0)
    else:
        feature = tanh(query + key)
        slope = 1 - feature * feature
    d_feature = d_score * tl.load(weights.score_out + d)
    if plan.SCORE_MASKS:
        masks = _row_ptrs(dropout.feature, pair, 1, plan.PADDED, plan.SLOT_ROWS)
        factor = _load_dropout(masks + d, inside)
        d_feature *= factor
        feature *= factor
    _add(vectors + 2 * plan.PADDED, tl.sum(d_score * feature, 0)[None, :], d < plan.PADDED)
    d_feature *= slope
    if plan.NORMALIZED:
        _add(vectors + 3 * plan.PADDED, tl.sum(d_feature * normalized, 0)[None, :], d < plan.PADDED)
        _add(vectors + 4 * plan.PADDED, tl.sum(d_feature, 0)[None, :], d < plan.PADDED)
        d_key = _normalize_backward(d_feature * norm_weight, normalized, rstd, sizes.size, plan)
    else:
        d_key = d_feature
    tl.store(_row_ptrs(gradients.keys, pair, 1, plan.PADDED, plan.SLOT_ROWS) + d, d_key, mask=inside)
    return tl.sum(d_feature, 0)[None, :]


@jit
def _key_inputs_backward(weights, gradients, dropout, sizes, plan, pair, state, valid):
    """Add the gradient of M̂[t-1] through the key map of some slots, to rows `state` of the candidates'."""
    d_keys = _row_ptrs(gradients.keys, pair, 1, plan.PADDED, plan.SLOT_ROWS)
    d_candidate = _row_ptrs(gradients.candidate, state, 1, plan.PADDED, plan.SLOT_ROWS)
    for start in tl.range(0, plan.PADDED, plan.KEY.columns, disable_licm=True):
        column = start + tl.arange(0, plan.KEY.columns)[None, :]
        inside = valid & (column < plan.PADDED)
        value = _matmul(d_keys, valid, weights.key, start, sizes.padded, plan.PADDED, plan.KEY, plan)
        if plan.SCORE_MASKS:
            masks = _row_ptrs(dropout.key, pair, 1, plan.PADDED, plan.SLOT_ROWS)
            value *= _load_dropout(masks + column, inside)
        _add(d_candidate + column, value, inside)


@jit
def _normalize_backward(gradient, normalized, rstd, size, plan):
    """Backward of `_normalize`."""
    inside = tl.arange(0, plan.WIDTH)[None, :] < size
    gradient -= (
        tl.sum(gradient, 1)[:, None] / size + normalized * tl.sum(gradient * normalized, 1)[:, None] / size
    )
    return tl.where(inside, gradient * rstd, 0.0)


@jit
def _add(ptrs, value, valid):
    tl.store(ptrs, tl.load(ptrs, mask=valid, other=0.0) + value, mask=valid)
