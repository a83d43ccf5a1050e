"""The loop over time as Triton kernels: the forward kernel. `kernels_backward` has the backward kernel.

Axes as in `ordered_memory.memory`, with D padded with zeros to W = `plan.WIDTH`, a power of two. Sequences
are independent, so a program reads a tile of `plan.BLOCK_M` sequences from the first token to the last, and
programs do not wait for each other. Operands and results of matrix products are in global memory (for one
tile they stay in the cache); only the accumulator of a product is in registers. So barriers must separate the
stores of one thread from the loads of another. Registers are scarce: between products, (BLOCK_M, WIDTH)
blocks are loaded where they are used, again if necessary, and addresses are not computed ahead of the loops
(`disable_licm`).

Names of row indices in the buffers, for the first sequence b of the tile: `token = t B + b` for tensors with
a time axis; `before` and `after = before + B` for the state before and after step t (without history
`before = after = b`); `pair = before N + i` and `mask_row = token N + i` for slot i. The rows of the other
sequences follow at distances of 1 or N (`_row_ptrs`). Names in `_ptrs` are blocks of pointers.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from ordered_memory.backends.triton_jit import jit, tanh, tl


@jit
def forward_kernel(inputs, queries, lengths, output, weights, tape, dropout, sizes, plan):
    """Read a tile of sequences. Steps past the end of a sequence do not change its state.

    Args:
        inputs: x̃, (T, B, W).
        queries: queries of the score, (T, B, W).
        lengths: lengths of the sequences, (B,).
        output: written, (T, B, W).
        weights: `contract.Weights`, with matrices as (in, out) here and as (out, in) in `backward_kernel`.
        tape, dropout, sizes, plan: the named tuples of `arguments.py`.
    """
    first = tl.program_id(0).to(tl.int64) * plan.BLOCK_M
    length = _load_lengths(lengths, first, sizes, plan)
    for t in tl.range(tl.max(length, 0), disable_licm=True):
        running = t < length
        token = t * sizes.batch + first
        before = t * sizes.batch * plan.HISTORY + first
        p = _attend(queries, weights, tape, dropout, sizes, plan, token, before, running)
        _store_slots(tape.attention, token, sizes.slots, p, sizes, plan, running)
        tl.debug_barrier()
        _update_slots(inputs, output, p, weights, tape, dropout, sizes, plan, token, before, running)
        tl.debug_barrier()


@jit
def _attend(queries, weights, tape, dropout, sizes, plan, token, before, running):
    """Compute p, (BLOCK_M, BLOCK_SLOTS). Slots that are masked for all rows of the tile are not scored."""
    i = tl.arange(0, plan.BLOCK_SLOTS)[None, :]
    mask = _load_attention_mask(tape, sizes, plan, before, running)
    query_ptrs = _row_ptrs(queries, token, 1, plan.WIDTH, plan)
    scores = tl.full((plan.BLOCK_M, plan.BLOCK_SLOTS), float("-inf"), tl.float32)
    for slot in tl.range(sizes.slots, disable_licm=True):
        if tl.max(_column(mask, slot, plan), 0) > 0:
            pair = before * sizes.slots + slot
            mask_row = token * sizes.slots + slot
            score = _score(query_ptrs, weights, tape, dropout, sizes, plan, pair, mask_row, running)
            scores = tl.where(i == slot, score[:, None], scores)
    scores = tl.where(mask > 0, scores, float("-inf"))
    # For an empty memory the maximum is -inf, and -inf - (-inf) would be NaN.
    largest = tl.maximum(tl.max(scores, 1), -3.0e38)
    weight = mask * tl.exp(scores - largest[:, None])
    total = tl.sum(weight, 1)
    return weight / tl.where(total > 0, total, 1.0)[:, None]


@jit
def _score(query_ptrs, weights, tape, dropout, sizes, plan, pair, mask_row, running):
    """Compute a of one slot, (BLOCK_M,), without the output bias, which does not change p."""
    d = tl.arange(0, plan.WIDTH)[None, :]
    valid = running[:, None]
    key_inputs = _row_ptrs(tape.candidate, pair, sizes.slots, plan.WIDTH, plan)
    if plan.SCORE_MASKS:
        candidate = tl.load(key_inputs + d, mask=valid, other=0.0)
        candidate *= _load_dropout(_row_ptrs(dropout.key, mask_row, sizes.slots, plan.WIDTH, plan) + d, valid)
        key_inputs = _row_ptrs(tape.key_inputs, pair, sizes.slots, plan.WIDTH, plan)
        tl.store(key_inputs + d, candidate, mask=valid)
        tl.debug_barrier()
    keys = _row_ptrs(tape.keys, pair, sizes.slots, plan.WIDTH, plan)
    _linear(keys, key_inputs, valid, weights.key, weights.key_bias, sizes.width, plan, plan.WIDTH)
    key = tl.load(keys + d, mask=valid, other=0.0)
    query = tl.load(query_ptrs + d, mask=valid, other=0.0)
    if plan.NORMALIZED:
        normalized, _ = _normalize(key, sizes.size, sizes.key_epsilon, plan)
        key = normalized * tl.load(weights.key_norm + d) + tl.load(weights.key_norm_bias + d)
        feature = tl.maximum(query + key, 0.0)
    else:
        feature = tanh(query + key)
    if plan.SCORE_MASKS:
        feature *= _load_dropout(
            _row_ptrs(dropout.feature, mask_row, sizes.slots, plan.WIDTH, plan) + d, valid
        )
    return tl.sum(feature * tl.load(weights.score_out + d), 1)


@jit
def _update_slots(inputs, output, p, weights, tape, dropout, sizes, plan, token, before, running):
    """Compute M and M̂, slot by slot from the top. Skips the cell if →π_i = 0 in all rows of the tile."""
    d = tl.arange(0, plan.WIDTH)[None, :]
    valid = running[:, None]
    after = before + sizes.batch * plan.HISTORY
    forward_pi = tl.cumsum(p, 1)
    backward_pi = tl.cumsum(p, 1, reverse=True)
    _store_slots(tape.occupancy, after, sizes.slots + 1, forward_pi, sizes, plan, running)
    last_entry = _row_ptrs(tape.occupancy + sizes.slots, after, 1, sizes.slots + 1, plan)
    tl.store(last_entry, 1.0, mask=valid)
    x_ptrs = _row_ptrs(inputs, token, 1, plan.WIDTH, plan)
    for slot in tl.range(sizes.slots, disable_licm=True):
        pair = before * sizes.slots + slot
        memory_ptrs = _row_ptrs(tape.memory, after * sizes.slots + slot, sizes.slots, plan.WIDTH, plan)
        candidate_ptrs = _row_ptrs(tape.candidate, after * sizes.slots + slot, sizes.slots, plan.WIDTH, plan)
        memory = tl.load(
            _row_ptrs(tape.memory, pair, sizes.slots, plan.WIDTH, plan) + d, mask=valid, other=0.0
        )
        candidate = tl.load(
            _row_ptrs(tape.candidate, pair, sizes.slots, plan.WIDTH, plan) + d, mask=valid, other=0.0
        )
        memory = _lerp(memory, candidate, _column(backward_pi, slot, plan)[:, None])
        tl.debug_barrier()  # without history the stores overwrite what these loads read
        tl.store(memory_ptrs + d, memory, mask=valid)
        forward_pi_i = _column(forward_pi, slot, plan)
        if tl.max(forward_pi_i, 0) > 0:
            above_ptrs = _above_ptrs(x_ptrs, candidate_ptrs, slot, plan)
            above = tl.load(above_ptrs + d, mask=valid, other=0.0)
            mask_row = token * sizes.slots + slot
            gates = _cell(memory, above, weights, tape, dropout, sizes, plan, pair, mask_row, valid)
            composed = _compose(gates + d, memory_ptrs + d, above_ptrs + d, plan, valid)
            normalized, _ = _normalize(composed, sizes.size, sizes.norm_epsilon, plan)
            o = normalized * tl.load(weights.norm + d) + tl.load(weights.norm_bias + d)
            x = tl.load(x_ptrs + d, mask=valid, other=0.0)
            tl.store(candidate_ptrs + d, _lerp(x, o, forward_pi_i[:, None]), mask=valid)
        else:
            tl.store(candidate_ptrs + d, tl.load(x_ptrs + d, mask=valid, other=0.0), mask=valid)
    tl.debug_barrier()
    last = _row_ptrs(tape.candidate, (after + 1) * sizes.slots - 1, sizes.slots, plan.WIDTH, plan)
    output_ptrs = _row_ptrs(output, token, 1, plan.WIDTH, plan)
    tl.store(output_ptrs + d, tl.load(last + d, mask=valid, other=0.0), mask=valid)


@jit
def _above_ptrs(x, candidate, slot, plan):
    """Pointers to M̂_{i-1}, from pointers to x̃ = M̂_0 and to M̂_i."""
    return tl.where(slot > 0, candidate - plan.WIDTH, x)


@jit
def _cell(memory, above, weights, tape, dropout, sizes, plan, pair, mask_row, valid):
    """Compute W2 relu(W1 [M_i; M̂_{i-1}] + b1) + b2; returns pointers to it, in `tape.gates`.

    The inputs of both products are stored in `tape.cell_inputs` and `tape.hidden`.
    """
    d = tl.arange(0, plan.WIDTH)[None, :]
    cell_inputs = _row_ptrs(tape.cell_inputs, pair, sizes.slots, 2 * plan.WIDTH, plan)
    hidden = _row_ptrs(tape.hidden, pair, sizes.slots, 4 * plan.WIDTH, plan)
    gates = _row_ptrs(tape.gates, pair, sizes.slots, 4 * plan.WIDTH, plan)
    if plan.CELL_MASKS:
        memory *= _load_dropout(_row_ptrs(dropout.memory, mask_row, sizes.slots, plan.WIDTH, plan) + d, valid)
        above *= _load_dropout(
            _row_ptrs(dropout.candidate, mask_row, sizes.slots, plan.WIDTH, plan) + d, valid
        )
    tl.store(cell_inputs + d, memory, mask=valid)
    tl.store(cell_inputs + plan.WIDTH + d, above, mask=valid)
    tl.debug_barrier()
    for start in range(0, 4 * plan.WIDTH, plan.BLOCK_N):
        column = start + tl.arange(0, plan.BLOCK_N)[None, :]
        value = _matmul(
            cell_inputs, valid, weights.w_in + start, 4 * plan.WIDTH, 2 * sizes.width, plan, plan.BLOCK_N
        )
        value = tl.maximum(value + tl.load(weights.b_in + column), 0.0)
        if plan.CELL_MASKS:
            value *= _load_dropout(
                _row_ptrs(dropout.hidden, mask_row, sizes.slots, 4 * plan.WIDTH, plan) + column, valid
            )
        tl.store(hidden + column, value, mask=valid)
    tl.debug_barrier()
    _linear(gates, hidden, valid, weights.w_out, weights.b_out, 4 * sizes.width, plan, 4 * plan.WIDTH)
    return gates


@jit
def _linear(out_ptrs, left, valid, matrix, bias, depth, plan, WIDTH: tl.constexpr):
    """Store left @ matrix + bias: `left` points to rows of `depth` entries, `matrix` has WIDTH columns."""
    BLOCK_N: tl.constexpr = plan.BLOCK_N if plan.BLOCK_N < WIDTH else WIDTH
    for start in range(0, WIDTH, BLOCK_N):
        column = start + tl.arange(0, BLOCK_N)[None, :]
        value = _matmul(left, valid, matrix + start, WIDTH, depth, plan, BLOCK_N)
        tl.store(out_ptrs + column, value + tl.load(bias + column), mask=valid)
    tl.debug_barrier()


@jit
def _matmul(left, valid, right, stride, depth, plan, BLOCK_N: tl.constexpr):
    """left @ right: `left`, (BLOCK_M, 1), points to rows of `depth` entries; `right` to (depth, BLOCK_N).

    The rows of `right` are `stride` apart.
    """
    k = tl.arange(0, plan.BLOCK_K)
    left += k[None, :]
    right += k[:, None] * stride + tl.arange(0, BLOCK_N)[None, :]
    accumulator = tl.zeros((plan.BLOCK_M, BLOCK_N), tl.float32)
    for start in tl.range(0, depth, plan.BLOCK_K, num_stages=plan.NUM_STAGES):
        a = tl.load(left + start, mask=valid, other=0.0)
        b = tl.load(right + start * stride)
        accumulator = tl.dot(a.to(b.dtype), b, accumulator, input_precision="ieee")
    return accumulator


@jit
def _compose(gates, memory, above, plan, valid):
    """The result of the cell before the LayerNorm: `σ(g_m) M_i + σ(g_c) M̂_{i-1} + σ(g_u) u`."""
    composed = _gate(gates, valid) * tl.load(memory, mask=valid, other=0.0)
    composed += _gate(gates + plan.WIDTH, valid) * tl.load(above, mask=valid, other=0.0)
    update = tl.load(gates + 3 * plan.WIDTH, mask=valid, other=0.0)
    return composed + _gate(gates + 2 * plan.WIDTH, valid) * update


@jit
def _gate(gate, valid):
    """Load a gate and apply the sigmoid."""
    return tl.sigmoid(tl.load(gate, mask=valid, other=0.0))


@jit
def _normalize(x, size, epsilon, plan):
    """(x - mean) rstd, and rstd = 1 / standard deviation. Padding must be zero and remains zero."""
    inside = tl.arange(0, plan.WIDTH)[None, :] < size
    x = tl.where(inside, x - tl.sum(x, 1)[:, None] / size, 0.0)
    rstd = tl.rsqrt(tl.sum(x * x, 1) / size + epsilon)[:, None]
    return x * rstd, rstd


@jit
def _lerp(start, end, weight):
    """As `torch.lerp`: exactly `start` for weight 0 and exactly `end` for weight 1."""
    difference = end - start
    return tl.where(weight < 0.5, start + weight * difference, end - difference * (1 - weight))


@jit
def _column(values, slot, plan):
    """Column `slot` of (BLOCK_M, BLOCK_SLOTS)."""
    return tl.sum(tl.where(tl.arange(0, plan.BLOCK_SLOTS)[None, :] == slot, values, 0.0), 1)


@jit
def _load_attention_mask(tape, sizes, plan, before, running):
    """m, (BLOCK_M, BLOCK_SLOTS): the occupancy of the slot below, taken as 0 below the threshold."""
    mask = _load_slots(tape.occupancy + 1, before, sizes.slots + 1, sizes, plan, running)
    return tl.where(mask < sizes.threshold, 0.0, mask)


@jit
def _load_slots(pointer, first, stride, sizes, plan, running):
    """Load (BLOCK_M, BLOCK_SLOTS) from rows of N entries that are `stride` apart; 0 beyond N."""
    i = tl.arange(0, plan.BLOCK_SLOTS)[None, :]
    ptrs = _row_ptrs(pointer, first, 1, stride, plan) + i
    return tl.load(ptrs, mask=running[:, None] & (i < sizes.slots), other=0.0)


@jit
def _store_slots(pointer, first, stride, values, sizes, plan, running):
    i = tl.arange(0, plan.BLOCK_SLOTS)[None, :]
    ptrs = _row_ptrs(pointer, first, 1, stride, plan) + i
    tl.store(ptrs, values, mask=running[:, None] & (i < sizes.slots))


@jit
def _load_lengths(lengths, first, sizes, plan):
    row = first + tl.arange(0, plan.BLOCK_M)
    return tl.load(lengths + row, mask=row < sizes.batch, other=0)


@jit
def _row_ptrs(pointer, first, step, width, plan):
    """Pointers, (BLOCK_M, 1), to rows of `width` entries: row `first` and every `step`-th row after it."""
    return pointer + first * width + (tl.arange(0, plan.BLOCK_M) * (step * width))[:, None]


@jit
def _load_dropout(ptrs, valid):
    """Load the factors of a dropout mask."""
    return tl.load(ptrs, mask=valid, other=0).to(tl.float32)
