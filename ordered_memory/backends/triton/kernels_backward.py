"""The backward pass of `kernels.forward_kernel`, with the same notation.

The gradient with respect to y is called `dy` or `d_y`. Gradients of the inputs, the queries and the weights
that are vectors are accumulated in global memory; those of the state are overwritten at every step. Gradients
of the results of the three linear maps are stored for all pairs, so that the caller can compute the gradient
of each matrix as one product at the end.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from ordered_memory.backends.triton.kernels import (
    _above,
    _column,
    _gate,
    _load_lengths,
    _load_mask,
    _load_slots,
    _mask,
    _mix,
    _normalize,
    _product,
    _rows,
    _store_slots,
    _tanh,
    jit,
    tl,
)


@jit
def backward_kernel(inputs, query, lengths, gradients, weights, tape, dropout, sizes, plan):
    """Run the backward pass of a tile of sequences; see
    `ordered_memory.backends.triton.kernels.forward_kernel`, and `arguments.Gradients` for `gradients`."""
    first = tl.program_id(0).to(tl.int64) * plan.ROWS
    length = _load_lengths(lengths, first, sizes, plan)
    last = tl.max(length, 0)
    for steps in tl.range(last, disable_licm=True):
        t = last - 1 - steps
        running = t < length
        token = t * sizes.batch + first
        p = _load_slots(tape.attention, token, sizes.slots, sizes, plan, running)
        dp = _update_slots_backward(
            inputs, p, weights, tape, gradients, dropout, sizes, plan, token, first, running
        )
        mask = _load_mask(tape, sizes, plan, token, running)
        dp -= tl.sum(p * dp, 1)[:, None]
        # ∂p_i / ∂m_i, if the denominator is constant, is exp(a_i - max a) / Σ … = p_i / m_i.
        d_mask = tl.where(mask > 0, p * dp / tl.where(mask > 0, mask, 1.0), 0.0)
        tl.debug_barrier()
        _store_slots(gradients.occupancy + 1, first, sizes.slots + 1, d_mask, sizes, plan, running)
        top = _rows(gradients.occupancy, first, 1, sizes.slots + 1, plan)
        tl.store(top, 0.0, mask=running[:, None])
        d_scores = p * dp
        _attend_backward(
            query, d_scores, mask, weights, tape, gradients, dropout, sizes, plan, token, first, running
        )
        tl.debug_barrier()


@jit
def _update_slots_backward(inputs, p, weights, tape, gradients, dropout, sizes, plan, token, first, running):
    """Backward of `_update_slots`, from the bottom slot up. Returns dp; adds dx to `gradients.inputs`."""
    i = tl.arange(0, plan.SLOTS)[None, :]
    d = tl.arange(0, plan.WIDTH)[None, :]
    valid = running[:, None]
    forward = tl.cumsum(p, 1)
    backward = tl.cumsum(p, 1, reverse=True)
    d_forward = _load_slots(gradients.occupancy, first, sizes.slots + 1, sizes, plan, running)
    d_backward = tl.zeros((plan.ROWS, plan.SLOTS), tl.float32)
    dx_at = _rows(gradients.inputs, token, 1, plan.WIDTH, plan)
    bottom = _rows(gradients.candidate, (first + 1) * sizes.slots - 1, sizes.slots, plan.WIDTH, plan)
    d_output = tl.load(_rows(gradients.output, token, 1, plan.WIDTH, plan) + d, mask=valid, other=0.0)
    _add(bottom + d, d_output, valid)
    tl.debug_barrier()
    for step in tl.range(sizes.slots, disable_licm=True):
        slot = sizes.slots - 1 - step
        pair = token * sizes.slots + slot
        state = first * sizes.slots + slot
        d_memory_at = _rows(gradients.memory, state, sizes.slots, plan.WIDTH, plan)
        d_candidate_at = _rows(gradients.candidate, state, sizes.slots, plan.WIDTH, plan)
        share = _column(forward, slot, plan)
        if tl.max(share, 0) > 0:
            change = _compose_backward(
                share[:, None],
                inputs,
                weights,
                tape,
                gradients,
                dropout,
                sizes,
                plan,
                token,
                slot,
                first,
                valid,
            )
            d_forward += tl.where(i == slot, change, 0.0)
        d_memory = tl.load(d_memory_at + d, mask=valid, other=0.0)
        old_memory = tl.load(
            _rows(tape.memory, pair, sizes.slots, plan.WIDTH, plan) + d, mask=valid, other=0.0
        )
        old_candidate = tl.load(
            _rows(tape.candidate, pair, sizes.slots, plan.WIDTH, plan) + d, mask=valid, other=0.0
        )
        change = tl.sum(d_memory * (old_candidate - old_memory), 1)[:, None]
        d_backward += tl.where(i == slot, change, 0.0)
        d_written = tl.load(d_candidate_at + d, mask=valid, other=0.0)
        _add(dx_at + d, d_written * (1 - share[:, None]), valid)
        taken = _column(backward, slot, plan)[:, None]
        tl.debug_barrier()  # the next two stores overwrite what was loaded before
        tl.store(d_memory_at + d, d_memory * (1 - taken), mask=valid)
        tl.store(d_candidate_at + d, d_memory * taken, mask=valid)
    dp = _load_slots(gradients.attention, token, sizes.slots, sizes, plan, running)
    # →π_i is the sum of p_j over j ≤ i, and ←π_i over j ≥ i.
    return dp + tl.cumsum(d_forward, 1, reverse=True) + tl.cumsum(d_backward, 1)


@jit
def _compose_backward(
    share, inputs, weights, tape, gradients, dropout, sizes, plan, token, slot, first, valid
):
    """Backward of the cell and its LayerNorm. Returns d→π_i, (ROWS, 1); accumulates dM_i and dM̂_{i-1}."""
    d = tl.arange(0, plan.WIDTH)[None, :]
    pair = token * sizes.slots + slot
    written = pair + sizes.batch * sizes.slots
    state = first * sizes.slots + slot
    x_at = _rows(inputs, token, 1, plan.WIDTH, plan)
    dx_at = _rows(gradients.inputs, token, 1, plan.WIDTH, plan)
    d_memory_at = _rows(gradients.memory, state, sizes.slots, plan.WIDTH, plan)
    d_candidate_at = _rows(gradients.candidate, state, sizes.slots, plan.WIDTH, plan)
    gates = _rows(tape.gates, pair, sizes.slots, 4 * plan.WIDTH, plan) + d
    memory_at = _rows(tape.memory, written, sizes.slots, plan.WIDTH, plan) + d
    candidate_at = _rows(tape.candidate, written, sizes.slots, plan.WIDTH, plan)
    above_at = _above(x_at, candidate_at, slot, plan) + d
    mixed = _mix(gates, memory_at, above_at, plan, valid)
    normal, scale = _normalize(mixed, sizes.size, sizes.norm_epsilon, plan)
    norm_weight = tl.load(weights.norm + d)
    composed = normal * norm_weight + tl.load(weights.norm_bias + d)
    d_composed = tl.load(d_candidate_at + d, mask=valid, other=0.0)
    change = tl.sum(d_composed * (composed - tl.load(x_at + d, mask=valid, other=0.0)), 1)[:, None]
    d_composed *= share
    vectors = _rows(gradients.vectors, first, 1, 5 * plan.WIDTH, plan) + d
    _add(vectors, d_composed * normal, valid)
    _add(vectors + plan.WIDTH, d_composed, valid)
    d_sum = _normalize_backward(d_composed * norm_weight, normal, scale, sizes.size, plan)

    d_gates = _rows(gradients.gates, pair, sizes.slots, 4 * plan.WIDTH, plan)
    d_above_at = _above(dx_at, d_candidate_at, slot, plan)
    # Loaded again, because there are not enough registers to keep them.
    gate = _gate(gates, valid)
    memory = tl.load(memory_at, mask=valid, other=0.0)
    tl.store(d_gates + d, d_sum * memory * gate * (1 - gate), mask=valid)
    _add(d_memory_at + d, d_sum * gate, valid)
    gate = _gate(gates + plan.WIDTH, valid)
    above = tl.load(above_at, mask=valid, other=0.0)
    tl.store(d_gates + plan.WIDTH + d, d_sum * above * gate * (1 - gate), mask=valid)
    _add(d_above_at + d, d_sum * gate, valid)
    gate = _gate(gates + 2 * plan.WIDTH, valid)
    update = tl.load(gates + 3 * plan.WIDTH, mask=valid, other=0.0)
    tl.store(d_gates + 2 * plan.WIDTH + d, d_sum * update * gate * (1 - gate), mask=valid)
    tl.store(d_gates + 3 * plan.WIDTH + d, d_sum * gate, mask=valid)
    tl.debug_barrier()
    d_hidden = _rows(gradients.hidden, pair, sizes.slots, 4 * plan.WIDTH, plan)
    hidden = _rows(tape.hidden, pair, sizes.slots, 4 * plan.WIDTH, plan)
    for start in range(0, 4 * plan.WIDTH, plan.COLUMNS):
        column = start + tl.arange(0, plan.COLUMNS)[None, :]
        value = _product(
            d_gates, valid, weights.w_out + start, 4 * plan.WIDTH, 4 * sizes.width, plan, plan.COLUMNS
        )
        # Units that relu or dropout set to 0 have no gradient.
        kept = tl.load(hidden + column, mask=valid, other=0.0) > 0
        if plan.CELL_MASKS:
            value *= _mask(_rows(dropout.hidden, pair, sizes.slots, 4 * plan.WIDTH, plan) + column, valid)
        tl.store(d_hidden + column, tl.where(kept, value, 0.0), mask=valid)
    tl.debug_barrier()
    _add_product(
        d_memory_at, d_hidden, valid, weights.w_in, 2, 4 * sizes.width, dropout.memory, pair, sizes, plan
    )
    w_above = weights.w_in + plan.WIDTH
    _add_product(
        d_above_at, d_hidden, valid, w_above, 2, 4 * sizes.width, dropout.candidate, pair, sizes, plan
    )
    tl.debug_barrier()
    return change


@jit
def _attend_backward(
    query, d_scores, mask, weights, tape, gradients, dropout, sizes, plan, token, first, running
):
    """Backward of the scores: accumulates the gradient of M̂[t-1], and dq in `gradients.query`."""
    d = tl.arange(0, plan.WIDTH)[None, :]
    valid = running[:, None]
    for slot in tl.range(sizes.slots, disable_licm=True):
        if tl.max(_column(mask, slot, plan), 0) > 0:
            pair = token * sizes.slots + slot
            q = tl.load(_rows(query, token, 1, plan.WIDTH, plan) + d, mask=valid, other=0.0)
            d_score = _column(d_scores, slot, plan)[:, None]
            d_feature, d_key = _feature_backward(
                q, d_score, weights, tape, gradients, dropout, sizes, plan, pair, first, valid
            )
            _add(_rows(gradients.query, token, 1, plan.WIDTH, plan) + d, d_feature, valid)
            keys = _rows(gradients.keys, pair, sizes.slots, plan.WIDTH, plan)
            tl.store(keys + d, d_key, mask=valid)
            tl.debug_barrier()
            to = _rows(gradients.candidate, first * sizes.slots + slot, sizes.slots, plan.WIDTH, plan)
            _add_product(to, keys, valid, weights.key, 1, sizes.width, dropout.key, pair, sizes, plan)


@jit
def _feature_backward(q, d_score, weights, tape, gradients, dropout, sizes, plan, pair, first, valid):
    """Backward of the operations between the result of the key map and the score of one slot."""
    d = tl.arange(0, plan.WIDTH)[None, :]
    key = tl.load(_rows(tape.keys, pair, sizes.slots, plan.WIDTH, plan) + d, mask=valid, other=0.0)
    if plan.NORMALIZED:
        normal, scale = _normalize(key, sizes.size, sizes.key_epsilon, plan)
        norm_weight = tl.load(weights.key_norm + d)
        feature = tl.maximum(q + normal * norm_weight + tl.load(weights.key_norm_bias + d), 0.0)
        slope = tl.where(feature > 0, 1.0, 0.0)
    else:
        feature = _tanh(q + key)
        slope = 1 - feature * feature
    d_feature = d_score * tl.load(weights.score + d)
    if plan.SCORE_MASKS:
        factor = _mask(_rows(dropout.feature, pair, sizes.slots, plan.WIDTH, plan) + d, valid)
        d_feature *= factor
        feature *= factor
    vectors = _rows(gradients.vectors, first, 1, 5 * plan.WIDTH, plan) + d
    _add(vectors + 2 * plan.WIDTH, d_score * feature, valid)
    d_feature *= slope
    if plan.NORMALIZED:
        _add(vectors + 3 * plan.WIDTH, d_feature * normal, valid)
        _add(vectors + 4 * plan.WIDTH, d_feature, valid)
        d_key = _normalize_backward(d_feature * norm_weight, normal, scale, sizes.size, plan)
    else:
        d_key = d_feature
    return d_feature, d_key


@jit
def _normalize_backward(gradient, normal, scale, size, plan):
    """Backward of `_normalize`."""
    inside = tl.arange(0, plan.WIDTH)[None, :] < size
    gradient -= tl.sum(gradient, 1)[:, None] / size + normal * tl.sum(gradient * normal, 1)[:, None] / size
    return tl.where(inside, gradient * scale, 0.0)


@jit
def _add(to, value, valid):
    tl.store(to, tl.load(to, mask=valid, other=0.0) + value, mask=valid)


@jit
def _add_product(to, left, valid, right, parts, depth, masks, pair, sizes, plan):
    """Add a `_product`, times a dropout mask, to `to`. `right` is one of `parts` blocks of columns."""
    COLUMNS: tl.constexpr = plan.COLUMNS if plan.COLUMNS < plan.WIDTH else plan.WIDTH
    for start in range(0, plan.WIDTH, COLUMNS):
        column = start + tl.arange(0, COLUMNS)[None, :]
        value = _product(left, valid, right + start, parts * plan.WIDTH, depth, plan, COLUMNS)
        if masks is not None:
            value *= _mask(_rows(masks, pair, sizes.slots, plan.WIDTH, plan) + column, valid)
        _add(to + column, value, valid)
