"""The reverse pass of `kernels.forward_kernel`, written out by hand. The same notation holds.

A gradient with respect to y is called `dy` or `d_y`. Those of the state lie in global memory and are replaced
step by step; gradients at the results of the three linear maps are kept for all pairs, so that the
caller gets each weight's gradient as one product at the end.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from ordered_memory.backends.triton.kernels import (
    _column,
    _gates,
    _load_mask,
    _load_slots,
    _mask,
    _normalize,
    _product,
    _store_slots,
    _tanh,
    jit,
    tl,
)


@jit
def backward_kernel(inputs, query, lengths, gradients, weights, tape, dropout, sizes, plan):
    """Go back through a tile of sequences; see `ordered_memory.backends.triton.kernels.forward_kernel`, and
    `kernels.Gradients` for `gradients`."""
    row = tl.program_id(0) * plan.ROWS + tl.arange(0, plan.ROWS)
    length = tl.load(lengths + row, mask=row < sizes.batch, other=0)
    d = tl.arange(0, plan.WIDTH)[None, :]
    zero = tl.zeros((plan.ROWS, plan.WIDTH), tl.float32)
    norm, sums = (zero, zero), (zero, zero, zero)
    last = tl.max(length, 0)
    for steps in range(last):
        t = last - 1 - steps
        running = t < length
        token = t * sizes.batch + row
        at = token.to(tl.int64)[:, None] * plan.WIDTH + d
        x = tl.load(inputs + at, mask=running[:, None], other=0.0)
        p = _load_slots(tape.attention, token, sizes.slots, sizes, plan, running)
        dx, dp, norm = _write_backward(
            x, p, weights, tape, gradients, dropout, sizes, plan, token, row, running, norm
        )
        tl.store(gradients.inputs + at, dx, mask=running[:, None])
        mask = _load_mask(tape, sizes, plan, token, running)
        dp -= tl.sum(p * dp, 1)[:, None]
        # ∂p_i / ∂m_i with the sum held fixed is exp(a_i - max a) / Σ …, which is p_i / m_i.
        d_mask = tl.where(mask > 0, p * dp / tl.where(mask > 0, mask, 1.0), 0.0)
        tl.debug_barrier()
        _store_slots(gradients.occupancy + 1, row, sizes.slots + 1, d_mask, sizes, plan, running)
        tl.store(gradients.occupancy + row * (sizes.slots + 1), 0.0, mask=running)
        q = tl.load(query + at, mask=running[:, None], other=0.0)
        d_scores = p * dp
        dq, sums = _attend_backward(
            q, d_scores, mask, weights, tape, gradients, dropout, sizes, plan, token, row, running, sums
        )
        tl.store(gradients.query + at, dq, mask=running[:, None])
        tl.debug_barrier()
    place = (tl.program_id(0) * 5 * plan.ROWS + tl.arange(0, plan.ROWS))[:, None] * plan.WIDTH + d
    apart = plan.ROWS * plan.WIDTH
    tl.store(gradients.vectors + place, norm[0])
    tl.store(gradients.vectors + place + apart, norm[1])
    tl.store(gradients.vectors + place + 2 * apart, sums[0])
    tl.store(gradients.vectors + place + 3 * apart, sums[1])
    tl.store(gradients.vectors + place + 4 * apart, sums[2])


@jit
def _write_backward(x, p, weights, tape, gradients, dropout, sizes, plan, token, row, running, norm):
    """Back through `_write`, from the bottom slot to the top: dx, dp and the sums for the LayerNorm."""
    i = tl.arange(0, plan.SLOTS)[None, :]
    d = tl.arange(0, plan.WIDTH)[None, :]
    valid = running[:, None]
    after = token + sizes.batch
    forward = tl.cumsum(p, 1)
    backward = tl.cumsum(p, 1, reverse=True)
    d_forward = _load_slots(gradients.occupancy, row, sizes.slots + 1, sizes, plan, running)
    d_backward = tl.zeros((plan.ROWS, plan.SLOTS), tl.float32)
    dx = tl.zeros((plan.ROWS, plan.WIDTH), tl.float32)
    d_below = tl.load(gradients.output + token.to(tl.int64)[:, None] * plan.WIDTH + d, mask=valid, other=0.0)
    for step in range(sizes.slots):
        slot = sizes.slots - 1 - step
        pair = token.to(tl.int64) * sizes.slots + slot
        written_pair = (after.to(tl.int64) * sizes.slots + slot)[:, None] * plan.WIDTH
        state_at = (row.to(tl.int64) * sizes.slots + slot)[:, None] * plan.WIDTH + d
        d_memory = tl.load(gradients.memory + state_at, mask=valid, other=0.0)
        d_written = tl.load(gradients.candidate + state_at, mask=valid, other=0.0) + d_below
        old_memory = tl.load(tape.memory + pair[:, None] * plan.WIDTH + d, mask=valid, other=0.0)
        old_candidate = tl.load(tape.candidate + pair[:, None] * plan.WIDTH + d, mask=valid, other=0.0)
        share = _column(forward, slot, plan)
        if tl.max(share, 0) > 0:
            memory = tl.load(tape.memory + written_pair + d, mask=valid, other=0.0)
            # For slot 0 this reads the preceding entries, which x̃ replaces below.
            above = tl.load(tape.candidate + written_pair - plan.WIDTH + d, mask=valid, other=0.0)
            below = tl.where(slot == 0, x, above)
            d_composed = d_written * share[:, None]
            dx += d_written - d_composed
            composed, from_cell, d_below, norm = _compose_backward(
                d_composed, memory, below, weights, tape, gradients, dropout, sizes, plan, pair, valid, norm
            )
            d_memory += from_cell
            d_forward += tl.where(i == slot, tl.sum(d_written * (composed - x), 1)[:, None], 0.0)
        else:
            dx += d_written
            d_below = tl.zeros((plan.ROWS, plan.WIDTH), tl.float32)
        change = tl.sum(d_memory * (old_candidate - old_memory), 1)[:, None]
        d_backward += tl.where(i == slot, change, 0.0)
        taken = _column(backward, slot, plan)[:, None]
        tl.debug_barrier()  # the next two stores replace what was loaded above
        tl.store(gradients.memory + state_at, d_memory * (1 - taken), mask=valid)
        tl.store(gradients.candidate + state_at, d_memory * taken, mask=valid)
    dp = _load_slots(gradients.attention, token, sizes.slots, sizes, plan, running)
    # →π_i sums p_j over j ≤ i, and ←π_i over j ≥ i.
    dp += tl.cumsum(d_forward, 1, reverse=True) + tl.cumsum(d_backward, 1)
    return dx + d_below, dp, norm


@jit
def _compose_backward(
    d_composed, memory, below, weights, tape, gradients, dropout, sizes, plan, pair, valid, norm
):
    """Back through the cell and its LayerNorm: o_i again, dM_i, dM̂_{i-1} and the LayerNorm's sums."""
    d = tl.arange(0, plan.WIDTH)[None, :]
    wide = pair[:, None] * (4 * plan.WIDTH)
    gm, gc, gu, u = _gates(tape.gates + wide + d, plan, valid)
    normal, scale = _normalize(gm * memory + gc * below + gu * u, sizes.size, sizes.norm_epsilon, plan)
    norm_weight = tl.load(weights.norm + d)
    composed = normal * norm_weight + tl.load(weights.norm_bias + d)
    norm = (norm[0] + d_composed * normal, norm[1] + d_composed)
    d_sum = _normalize_backward(d_composed * norm_weight, normal, scale, sizes.size, plan)

    d_gates = gradients.gates + wide
    tl.store(d_gates + d, d_sum * memory * gm * (1 - gm), mask=valid)
    tl.store(d_gates + plan.WIDTH + d, d_sum * below * gc * (1 - gc), mask=valid)
    tl.store(d_gates + 2 * plan.WIDTH + d, d_sum * u * gu * (1 - gu), mask=valid)
    tl.store(d_gates + 3 * plan.WIDTH + d, d_sum * gu, mask=valid)
    tl.debug_barrier()
    d_hidden_at = gradients.hidden + wide
    for start in range(0, 4 * plan.WIDTH, plan.COLUMNS):
        column = start + tl.arange(0, plan.COLUMNS)[None, :]
        d_hidden = _product(
            d_gates, valid, weights.w_out + start, 4 * plan.WIDTH, 4 * plan.WIDTH, plan, plan.COLUMNS
        )
        # Units that relu or dropout set to 0 have no gradient.
        kept = tl.load(tape.hidden + wide + column, mask=valid, other=0.0) > 0
        if plan.CELL_MASKS:
            d_hidden *= _mask(dropout.hidden, wide + column, valid)
        tl.store(d_hidden_at + column, tl.where(kept, d_hidden, 0.0), mask=valid)
    tl.debug_barrier()
    d_memory = _product(d_hidden_at, valid, weights.w_in, 2 * plan.WIDTH, 4 * plan.WIDTH, plan, plan.WIDTH)
    d_below = _product(
        d_hidden_at, valid, weights.w_in + plan.WIDTH, 2 * plan.WIDTH, 4 * plan.WIDTH, plan, plan.WIDTH
    )
    if plan.CELL_MASKS:
        masks_at = pair[:, None] * plan.WIDTH + d
        d_memory *= _mask(dropout.memory, masks_at, valid)
        d_below *= _mask(dropout.candidate, masks_at, valid)
    return composed, d_memory + d_sum * gm, d_below + d_sum * gc, norm


@jit
def _attend_backward(
    q, d_scores, mask, weights, tape, gradients, dropout, sizes, plan, token, row, running, sums
):
    """Back through the scores into M̂[t-1]: dq and the sums for the score's vectors."""
    d = tl.arange(0, plan.WIDTH)[None, :]
    valid = running[:, None]
    dq = tl.zeros((plan.ROWS, plan.WIDTH), tl.float32)
    for slot in range(sizes.slots):
        if tl.max(_column(mask, slot, plan), 0) > 0:
            pair = token.to(tl.int64) * sizes.slots + slot
            at = pair[:, None] * plan.WIDTH
            d_score = _column(d_scores, slot, plan)[:, None]
            d_feature, d_key, sums = _feature_backward(
                q, d_score, weights, tape, dropout, sizes, plan, at, valid, sums
            )
            dq += d_feature
            tl.store(gradients.keys + at + d, d_key, mask=valid)
            tl.debug_barrier()
            d_candidate = _product(
                gradients.keys + at, valid, weights.key, plan.WIDTH, plan.WIDTH, plan, plan.WIDTH
            )
            if plan.SCORE_MASKS:
                d_candidate *= _mask(dropout.key, at + d, valid)
            state = gradients.candidate + (row.to(tl.int64) * sizes.slots + slot)[:, None] * plan.WIDTH + d
            d_candidate += tl.load(state, mask=valid, other=0.0)
            tl.debug_barrier()
            tl.store(state, d_candidate, mask=valid)
    return dq, sums


@jit
def _feature_backward(q, d_score, weights, tape, dropout, sizes, plan, at, valid, sums):
    """Back through what stands between the key map's result and the score of one slot."""
    d = tl.arange(0, plan.WIDTH)[None, :]
    key = tl.load(tape.keys + at + d, mask=valid, other=0.0)
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
        factor = _mask(dropout.feature, at + d, valid)
        d_feature *= factor
        feature *= factor
    d_score_weight = d_score * feature
    d_feature *= slope
    if plan.NORMALIZED:
        sums = (sums[0] + d_score_weight, sums[1] + d_feature * normal, sums[2] + d_feature)
        d_key = _normalize_backward(d_feature * norm_weight, normal, scale, sizes.size, plan)
    else:
        sums = (sums[0] + d_score_weight, sums[1], sums[2])
        d_key = d_feature
    return d_feature, d_key, sums


@jit
def _normalize_backward(gradient, normal, scale, size, plan):
    """Back through `_normalize`."""
    inside = tl.arange(0, plan.WIDTH)[None, :] < size
    gradient -= tl.sum(gradient, 1)[:, None] / size + normal * tl.sum(gradient * normal, 1)[:, None] / size
    return tl.where(inside, gradient * scale, 0.0)
