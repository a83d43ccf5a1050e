"""The backward pass of `kernels.forward_kernel`, with the same notation.

The gradient with respect to y is called `dy` or `d_y`. Gradients of the inputs, the queries and the weights
that are vectors are accumulated in global memory; those of the state are overwritten at every step. Gradients
of the results of the three linear maps are stored for all pairs, so that the caller can compute the gradient
of each matrix as one product at the end.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from ordered_memory.backends.triton.kernels import (
    _above_ptrs,
    _column,
    _compose,
    _gate,
    _load_attention_mask,
    _load_dropout,
    _load_lengths,
    _load_slots,
    _matmul,
    _normalize,
    _row_ptrs,
    _store_slots,
)
from ordered_memory.backends.triton_jit import jit, tanh, tl


@jit
def backward_kernel(inputs, queries, lengths, gradients, weights, tape, dropout, sizes, plan):
    """Run the backward pass of a tile of sequences; see
    `ordered_memory.backends.triton.kernels.forward_kernel`, and `arguments.Gradients` for `gradients`."""
    first = tl.program_id(0).to(tl.int64) * plan.BLOCK_M
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
        mask = _load_attention_mask(tape, sizes, plan, token, running)
        dp -= tl.sum(p * dp, 1)[:, None]
        # ∂p_i / ∂m_i, if the denominator is constant, is exp(a_i - max a) / Σ … = p_i / m_i.
        d_mask = tl.where(mask > 0, p * dp / tl.where(mask > 0, mask, 1.0), 0.0)
        tl.debug_barrier()
        _store_slots(gradients.occupancy + 1, first, sizes.slots + 1, d_mask, sizes, plan, running)
        first_entry = _row_ptrs(gradients.occupancy, first, 1, sizes.slots + 1, plan)
        tl.store(first_entry, 0.0, mask=running[:, None])
        d_scores = p * dp
        _attend_backward(
            queries, d_scores, mask, weights, tape, gradients, dropout, sizes, plan, token, first, running
        )
        tl.debug_barrier()


@jit
def _update_slots_backward(inputs, p, weights, tape, gradients, dropout, sizes, plan, token, first, running):
    """Backward of `_update_slots`, from the bottom slot up. Returns dp; adds dx to `gradients.inputs`."""
    i = tl.arange(0, plan.BLOCK_SLOTS)[None, :]
    d = tl.arange(0, plan.WIDTH)[None, :]
    valid = running[:, None]
    forward_pi = tl.cumsum(p, 1)
    backward_pi = tl.cumsum(p, 1, reverse=True)
    d_forward_pi = _load_slots(gradients.occupancy, first, sizes.slots + 1, sizes, plan, running)
    d_backward_pi = tl.zeros((plan.BLOCK_M, plan.BLOCK_SLOTS), tl.float32)
    dx_ptrs = _row_ptrs(gradients.inputs, token, 1, plan.WIDTH, plan)
    bottom = _row_ptrs(gradients.candidate, (first + 1) * sizes.slots - 1, sizes.slots, plan.WIDTH, plan)
    d_output = tl.load(_row_ptrs(gradients.output, token, 1, plan.WIDTH, plan) + d, mask=valid, other=0.0)
    _add(bottom + d, d_output, valid)
    tl.debug_barrier()
    for step in tl.range(sizes.slots, disable_licm=True):
        slot = sizes.slots - 1 - step
        pair = token * sizes.slots + slot
        state = first * sizes.slots + slot
        d_memory_ptrs = _row_ptrs(gradients.memory, state, sizes.slots, plan.WIDTH, plan)
        d_candidate_ptrs = _row_ptrs(gradients.candidate, state, sizes.slots, plan.WIDTH, plan)
        forward_pi_i = _column(forward_pi, slot, plan)
        if tl.max(forward_pi_i, 0) > 0:
            d_forward_pi_i = _compose_backward(
                forward_pi_i[:, None],
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
            d_forward_pi += tl.where(i == slot, d_forward_pi_i, 0.0)
        d_memory = tl.load(d_memory_ptrs + d, mask=valid, other=0.0)
        old_memory = tl.load(
            _row_ptrs(tape.memory, pair, sizes.slots, plan.WIDTH, plan) + d, mask=valid, other=0.0
        )
        old_candidate = tl.load(
            _row_ptrs(tape.candidate, pair, sizes.slots, plan.WIDTH, plan) + d, mask=valid, other=0.0
        )
        d_backward_pi_i = tl.sum(d_memory * (old_candidate - old_memory), 1)[:, None]
        d_backward_pi += tl.where(i == slot, d_backward_pi_i, 0.0)
        d_candidate = tl.load(d_candidate_ptrs + d, mask=valid, other=0.0)
        _add(dx_ptrs + d, d_candidate * (1 - forward_pi_i[:, None]), valid)
        backward_pi_i = _column(backward_pi, slot, plan)[:, None]
        tl.debug_barrier()  # the next two stores overwrite what was loaded before
        tl.store(d_memory_ptrs + d, d_memory * (1 - backward_pi_i), mask=valid)
        tl.store(d_candidate_ptrs + d, d_memory * backward_pi_i, mask=valid)
    dp = _load_slots(gradients.attention, token, sizes.slots, sizes, plan, running)
    # →π_i is the sum of p_j over j ≤ i, and ←π_i over j ≥ i.
    return dp + tl.cumsum(d_forward_pi, 1, reverse=True) + tl.cumsum(d_backward_pi, 1)


@jit
def _compose_backward(
    forward_pi_i, inputs, weights, tape, gradients, dropout, sizes, plan, token, slot, first, valid
):
    """Backward of the cell and its LayerNorm. Returns d→π_i, (BLOCK_M, 1); accumulates dM_i and dM̂_{i-1}."""
    d = tl.arange(0, plan.WIDTH)[None, :]
    pair = token * sizes.slots + slot
    after = pair + sizes.batch * sizes.slots
    state = first * sizes.slots + slot
    x_ptrs = _row_ptrs(inputs, token, 1, plan.WIDTH, plan)
    dx_ptrs = _row_ptrs(gradients.inputs, token, 1, plan.WIDTH, plan)
    d_memory_ptrs = _row_ptrs(gradients.memory, state, sizes.slots, plan.WIDTH, plan)
    d_candidate_ptrs = _row_ptrs(gradients.candidate, state, sizes.slots, plan.WIDTH, plan)
    gates = _row_ptrs(tape.gates, pair, sizes.slots, 4 * plan.WIDTH, plan) + d
    memory_ptrs = _row_ptrs(tape.memory, after, sizes.slots, plan.WIDTH, plan) + d
    candidate_ptrs = _row_ptrs(tape.candidate, after, sizes.slots, plan.WIDTH, plan)
    above_ptrs = _above_ptrs(x_ptrs, candidate_ptrs, slot, plan) + d
    composed = _compose(gates, memory_ptrs, above_ptrs, plan, valid)
    normalized, rstd = _normalize(composed, sizes.size, sizes.norm_epsilon, plan)
    norm_weight = tl.load(weights.norm + d)
    o = normalized * norm_weight + tl.load(weights.norm_bias + d)
    d_o = tl.load(d_candidate_ptrs + d, mask=valid, other=0.0)
    d_forward_pi_i = tl.sum(d_o * (o - tl.load(x_ptrs + d, mask=valid, other=0.0)), 1)[:, None]
    d_o *= forward_pi_i
    vectors = _row_ptrs(gradients.vectors, first, 1, 5 * plan.WIDTH, plan) + d
    _add(vectors, d_o * normalized, valid)
    _add(vectors + plan.WIDTH, d_o, valid)
    d_composed = _normalize_backward(d_o * norm_weight, normalized, rstd, sizes.size, plan)

    d_gates = _row_ptrs(gradients.gates, pair, sizes.slots, 4 * plan.WIDTH, plan)
    d_above_ptrs = _above_ptrs(dx_ptrs, d_candidate_ptrs, slot, plan)
    # Loaded again, because there are not enough registers to keep them.
    gate = _gate(gates, valid)
    memory = tl.load(memory_ptrs, mask=valid, other=0.0)
    tl.store(d_gates + d, d_composed * memory * gate * (1 - gate), mask=valid)
    _add(d_memory_ptrs + d, d_composed * gate, valid)
    gate = _gate(gates + plan.WIDTH, valid)
    above = tl.load(above_ptrs, mask=valid, other=0.0)
    tl.store(d_gates + plan.WIDTH + d, d_composed * above * gate * (1 - gate), mask=valid)
    _add(d_above_ptrs + d, d_composed * gate, valid)
    gate = _gate(gates + 2 * plan.WIDTH, valid)
    update = tl.load(gates + 3 * plan.WIDTH, mask=valid, other=0.0)
    tl.store(d_gates + 2 * plan.WIDTH + d, d_composed * update * gate * (1 - gate), mask=valid)
    tl.store(d_gates + 3 * plan.WIDTH + d, d_composed * gate, mask=valid)
    tl.debug_barrier()
    d_hidden = _row_ptrs(gradients.hidden, pair, sizes.slots, 4 * plan.WIDTH, plan)
    hidden = _row_ptrs(tape.hidden, pair, sizes.slots, 4 * plan.WIDTH, plan)
    for start in range(0, 4 * plan.WIDTH, plan.BLOCK_N):
        column = start + tl.arange(0, plan.BLOCK_N)[None, :]
        value = _matmul(
            d_gates, valid, weights.w_out + start, 4 * plan.WIDTH, 4 * sizes.width, plan, plan.BLOCK_N
        )
        # Units that relu or dropout set to 0 have no gradient.
        kept = tl.load(hidden + column, mask=valid, other=0.0) > 0
        if plan.CELL_MASKS:
            value *= _load_dropout(
                _row_ptrs(dropout.hidden, pair, sizes.slots, 4 * plan.WIDTH, plan) + column, valid
            )
        tl.store(d_hidden + column, tl.where(kept, value, 0.0), mask=valid)
    tl.debug_barrier()
    _add_matmul(
        d_memory_ptrs, d_hidden, valid, weights.w_in, 2, 4 * sizes.width, dropout.memory, pair, sizes, plan
    )
    w_above = weights.w_in + plan.WIDTH
    _add_matmul(
        d_above_ptrs, d_hidden, valid, w_above, 2, 4 * sizes.width, dropout.candidate, pair, sizes, plan
    )
    tl.debug_barrier()
    return d_forward_pi_i


@jit
def _attend_backward(
    queries, d_scores, mask, weights, tape, gradients, dropout, sizes, plan, token, first, running
):
    """Backward of the scores: accumulates the gradient of M̂[t-1], and dq in `gradients.queries`."""
    d = tl.arange(0, plan.WIDTH)[None, :]
    valid = running[:, None]
    for slot in tl.range(sizes.slots, disable_licm=True):
        if tl.max(_column(mask, slot, plan), 0) > 0:
            pair = token * sizes.slots + slot
            query = tl.load(_row_ptrs(queries, token, 1, plan.WIDTH, plan) + d, mask=valid, other=0.0)
            d_score = _column(d_scores, slot, plan)[:, None]
            d_feature, d_key = _feature_backward(
                query, d_score, weights, tape, gradients, dropout, sizes, plan, pair, first, valid
            )
            _add(_row_ptrs(gradients.queries, token, 1, plan.WIDTH, plan) + d, d_feature, valid)
            keys = _row_ptrs(gradients.keys, pair, sizes.slots, plan.WIDTH, plan)
            tl.store(keys + d, d_key, mask=valid)
            tl.debug_barrier()
            d_candidate_ptrs = _row_ptrs(
                gradients.candidate, first * sizes.slots + slot, sizes.slots, plan.WIDTH, plan
            )
            _add_matmul(
                d_candidate_ptrs, keys, valid, weights.key, 1, sizes.width, dropout.key, pair, sizes, plan
            )


@jit
def _feature_backward(query, d_score, weights, tape, gradients, dropout, sizes, plan, pair, first, valid):
    """Backward of the operations between the result of the key map and the score of one slot."""
    d = tl.arange(0, plan.WIDTH)[None, :]
    key = tl.load(_row_ptrs(tape.keys, pair, sizes.slots, plan.WIDTH, plan) + d, mask=valid, other=0.0)
    if plan.NORMALIZED:
        normalized, rstd = _normalize(key, sizes.size, sizes.key_epsilon, plan)
        norm_weight = tl.load(weights.key_norm + d)
        feature = tl.maximum(query + normalized * norm_weight + tl.load(weights.key_norm_bias + d), 0.0)
        slope = tl.where(feature > 0, 1.0, 0.0)
    else:
        feature = tanh(query + key)
        slope = 1 - feature * feature
    d_feature = d_score * tl.load(weights.score_out + d)
    if plan.SCORE_MASKS:
        factor = _load_dropout(_row_ptrs(dropout.feature, pair, sizes.slots, plan.WIDTH, plan) + d, valid)
        d_feature *= factor
        feature *= factor
    vectors = _row_ptrs(gradients.vectors, first, 1, 5 * plan.WIDTH, plan) + d
    _add(vectors + 2 * plan.WIDTH, d_score * feature, valid)
    d_feature *= slope
    if plan.NORMALIZED:
        _add(vectors + 3 * plan.WIDTH, d_feature * normalized, valid)
        _add(vectors + 4 * plan.WIDTH, d_feature, valid)
        d_key = _normalize_backward(d_feature * norm_weight, normalized, rstd, sizes.size, plan)
    else:
        d_key = d_feature
    return d_feature, d_key


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


@jit
def _add_matmul(out_ptrs, left, valid, right, parts, depth, masks, pair, sizes, plan):
    """Add a `_matmul`, times a dropout mask, to a block. `right` is one of `parts` blocks of columns."""
    BLOCK_N: tl.constexpr = plan.BLOCK_N if plan.BLOCK_N < plan.WIDTH else plan.WIDTH
    for start in range(0, plan.WIDTH, BLOCK_N):
        column = start + tl.arange(0, BLOCK_N)[None, :]
        value = _matmul(left, valid, right + start, parts * plan.WIDTH, depth, plan, BLOCK_N)
        if masks is not None:
            value *= _load_dropout(_row_ptrs(masks, pair, sizes.slots, plan.WIDTH, plan) + column, valid)
        _add(out_ptrs + column, value, valid)
