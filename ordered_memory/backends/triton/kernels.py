"""The loop over time as Triton kernels: the forward kernel. `kernels_backward` has the backward kernel.

Axes as in `ordered_memory.memory`, with D padded with zeros to W = `plan.WIDTH`, a power of two. Sequences
are independent, so a program reads a tile of `plan.ROWS` sequences from the first token to the last, and
programs do not wait for each other. Operands and results of matrix products are in global memory (for one
tile they stay in the cache); only the sum of a product is in registers. So barriers must separate the stores
of one thread from the loads of another. Registers are scarce: between products, (ROWS, WIDTH) blocks are
loaded where they are used, again if necessary, and addresses are not computed ahead of the loops
(`disable_licm`).

Names of row indices in the buffers, for the first sequence b of the tile: `token = t B + b` for tensors with
a time axis, `now` and `after = now + B` for the state before and after step t (`now = after = b` without
history), `pair = now N + i` for slot i. The rows of the other sequences follow at distances of 1 or N
(`_rows`).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: implicit-reexport

from __future__ import annotations

try:
    import triton
    import triton.language as tl
except ImportError:  # the caller (`triton.why_not`) says so; nothing below is called
    triton = tl = None

jit = triton.jit if triton is not None else lambda function: function


@jit
def forward_kernel(inputs, query, lengths, output, weights, tape, dropout, sizes, plan):
    """Read a tile of sequences. Steps past the end of a sequence do not change its state.

    Args:
        inputs: x̃, (T, B, W).
        query: queries of the score, (T, B, W).
        lengths: lengths of the sequences, (B,).
        output: written, (T, B, W).
        weights: `contract.Weights`, with matrices as (in, out) here and as (out, in) in `backward_kernel`.
        tape, dropout, sizes, plan: the named tuples of `arguments.py`.
    """
    first = tl.program_id(0).to(tl.int64) * plan.ROWS
    length = _load_lengths(lengths, first, sizes, plan)
    for t in tl.range(tl.max(length, 0), disable_licm=True):
        running = t < length
        token = t * sizes.batch + first
        now = t * sizes.batch * plan.HISTORY + first
        p = _attend(query, weights, tape, dropout, sizes, plan, token, now, running)
        _store_slots(tape.attention, token, sizes.slots, p, sizes, plan, running)
        tl.debug_barrier()
        _update_slots(inputs, output, p, weights, tape, dropout, sizes, plan, token, now, running)
        tl.debug_barrier()


@jit
def _attend(query, weights, tape, dropout, sizes, plan, token, now, running):
    """Compute p, (ROWS, SLOTS). Slots that are masked for all rows of the tile are not scored."""
    i = tl.arange(0, plan.SLOTS)[None, :]
    mask = _load_mask(tape, sizes, plan, now, running)
    q_at = _rows(query, token, 1, plan.WIDTH, plan)
    scores = tl.full((plan.ROWS, plan.SLOTS), float("-inf"), tl.float32)
    for slot in tl.range(sizes.slots, disable_licm=True):
        if tl.max(_column(mask, slot, plan), 0) > 0:
            pair = now * sizes.slots + slot
            drawn = token * sizes.slots + slot
            score = _score(q_at, weights, tape, dropout, sizes, plan, pair, drawn, running)
            scores = tl.where(i == slot, score[:, None], scores)
    scores = tl.where(mask > 0, scores, float("-inf"))
    # For an empty memory the maximum is -inf, and -inf - (-inf) would be NaN.
    largest = tl.maximum(tl.max(scores, 1), -3.0e38)
    weight = mask * tl.exp(scores - largest[:, None])
    total = tl.sum(weight, 1)
    return weight / tl.where(total > 0, total, 1.0)[:, None]


@jit
def _score(q_at, weights, tape, dropout, sizes, plan, pair, drawn, running):
    """Compute a of one slot, (ROWS,), without the output bias, which does not change p."""
    d = tl.arange(0, plan.WIDTH)[None, :]
    valid = running[:, None]
    key_inputs = _rows(tape.candidate, pair, sizes.slots, plan.WIDTH, plan)
    if plan.SCORE_MASKS:
        candidate = tl.load(key_inputs + d, mask=valid, other=0.0)
        candidate *= _mask(_rows(dropout.key, drawn, sizes.slots, plan.WIDTH, plan) + d, valid)
        key_inputs = _rows(tape.key_inputs, pair, sizes.slots, plan.WIDTH, plan)
        tl.store(key_inputs + d, candidate, mask=valid)
        tl.debug_barrier()
    keys = _rows(tape.keys, pair, sizes.slots, plan.WIDTH, plan)
    _affine(keys, key_inputs, valid, weights.key, weights.key_bias, sizes.width, plan, plan.WIDTH)
    key = tl.load(keys + d, mask=valid, other=0.0)
    q = tl.load(q_at + d, mask=valid, other=0.0)
    if plan.NORMALIZED:
        normal, _ = _normalize(key, sizes.size, sizes.key_epsilon, plan)
        key = normal * tl.load(weights.key_norm + d) + tl.load(weights.key_norm_bias + d)
        feature = tl.maximum(q + key, 0.0)
    else:
        feature = _tanh(q + key)
    if plan.SCORE_MASKS:
        feature *= _mask(_rows(dropout.feature, drawn, sizes.slots, plan.WIDTH, plan) + d, valid)
    return tl.sum(feature * tl.load(weights.score + d), 1)


@jit
def _update_slots(inputs, output, p, weights, tape, dropout, sizes, plan, token, now, running):
    """Compute M and M̂, slot by slot from the top. Skips the cell if →π_i = 0 in all rows of the tile."""
    d = tl.arange(0, plan.WIDTH)[None, :]
    valid = running[:, None]
    after = now + sizes.batch * plan.HISTORY
    forward = tl.cumsum(p, 1)
    backward = tl.cumsum(p, 1, reverse=True)
    _store_slots(tape.occupancy, after, sizes.slots + 1, forward, sizes, plan, running)
    top = _rows(tape.occupancy + sizes.slots, after, 1, sizes.slots + 1, plan)
    tl.store(top, 1.0, mask=valid)
    x_at = _rows(inputs, token, 1, plan.WIDTH, plan)
    for slot in tl.range(sizes.slots, disable_licm=True):
        pair = now * sizes.slots + slot
        memory_at = _rows(tape.memory, after * sizes.slots + slot, sizes.slots, plan.WIDTH, plan)
        candidate_at = _rows(tape.candidate, after * sizes.slots + slot, sizes.slots, plan.WIDTH, plan)
        memory = tl.load(_rows(tape.memory, pair, sizes.slots, plan.WIDTH, plan) + d, mask=valid, other=0.0)
        candidate = tl.load(
            _rows(tape.candidate, pair, sizes.slots, plan.WIDTH, plan) + d, mask=valid, other=0.0
        )
        memory = _lerp(memory, candidate, _column(backward, slot, plan)[:, None])
        tl.debug_barrier()  # without history the stores overwrite what these loads read
        tl.store(memory_at + d, memory, mask=valid)
        written = _column(forward, slot, plan)
        if tl.max(written, 0) > 0:
            above_at = _above(x_at, candidate_at, slot, plan)
            above = tl.load(above_at + d, mask=valid, other=0.0)
            drawn = token * sizes.slots + slot
            gates = _cell(memory, above, weights, tape, dropout, sizes, plan, pair, drawn, valid)
            mixed = _mix(gates + d, memory_at + d, above_at + d, plan, valid)
            normal, _ = _normalize(mixed, sizes.size, sizes.norm_epsilon, plan)
            composed = normal * tl.load(weights.norm + d) + tl.load(weights.norm_bias + d)
            x = tl.load(x_at + d, mask=valid, other=0.0)
            tl.store(candidate_at + d, _lerp(x, composed, written[:, None]), mask=valid)
        else:
            tl.store(candidate_at + d, tl.load(x_at + d, mask=valid, other=0.0), mask=valid)
    tl.debug_barrier()
    last = _rows(tape.candidate, (after + 1) * sizes.slots - 1, sizes.slots, plan.WIDTH, plan)
    to = _rows(output, token, 1, plan.WIDTH, plan)
    tl.store(to + d, tl.load(last + d, mask=valid, other=0.0), mask=valid)


@jit
def _above(x, candidate, slot, plan):
    """Pointers to M̂_{i-1}, from pointers to x̃ = M̂_0 and to M̂_i."""
    return tl.where(slot > 0, candidate - plan.WIDTH, x)


@jit
def _cell(memory, above, weights, tape, dropout, sizes, plan, pair, drawn, valid):
    """`W2 relu(W1 [M; C] + b1) + b2` by way of `tape.joined`, `tape.hidden`: pointers to it, `tape.gates`."""
    d = tl.arange(0, plan.WIDTH)[None, :]
    joined = _rows(tape.joined, pair, sizes.slots, 2 * plan.WIDTH, plan)
    hidden = _rows(tape.hidden, pair, sizes.slots, 4 * plan.WIDTH, plan)
    gates = _rows(tape.gates, pair, sizes.slots, 4 * plan.WIDTH, plan)
    if plan.CELL_MASKS:
        memory *= _mask(_rows(dropout.memory, drawn, sizes.slots, plan.WIDTH, plan) + d, valid)
        above *= _mask(_rows(dropout.candidate, drawn, sizes.slots, plan.WIDTH, plan) + d, valid)
    tl.store(joined + d, memory, mask=valid)
    tl.store(joined + plan.WIDTH + d, above, mask=valid)
    tl.debug_barrier()
    for start in range(0, 4 * plan.WIDTH, plan.COLUMNS):
        column = start + tl.arange(0, plan.COLUMNS)[None, :]
        value = _product(
            joined, valid, weights.w_in + start, 4 * plan.WIDTH, 2 * sizes.width, plan, plan.COLUMNS
        )
        value = tl.maximum(value + tl.load(weights.b_in + column), 0.0)
        if plan.CELL_MASKS:
            value *= _mask(_rows(dropout.hidden, drawn, sizes.slots, 4 * plan.WIDTH, plan) + column, valid)
        tl.store(hidden + column, value, mask=valid)
    tl.debug_barrier()
    _affine(gates, hidden, valid, weights.w_out, weights.b_out, 4 * sizes.width, plan, 4 * plan.WIDTH)
    return gates


@jit
def _affine(to, left, valid, matrix, bias, depth, plan, WIDTH: tl.constexpr):
    """Store left @ matrix + bias: `left` points to rows of `depth` entries, `matrix` has WIDTH columns."""
    COLUMNS: tl.constexpr = plan.COLUMNS if plan.COLUMNS < WIDTH else WIDTH
    for start in range(0, WIDTH, COLUMNS):
        column = start + tl.arange(0, COLUMNS)[None, :]
        value = _product(left, valid, matrix + start, WIDTH, depth, plan, COLUMNS)
        tl.store(to + column, value + tl.load(bias + column), mask=valid)
    tl.debug_barrier()


@jit
def _product(left, valid, right, stride, depth, plan, COLUMNS: tl.constexpr):
    """left @ right: `left`, (ROWS, 1), points to rows of `depth` entries; `right` to (depth, COLUMNS)."""
    k = tl.arange(0, plan.CHUNK)
    left += k[None, :]
    right += k[:, None] * stride + tl.arange(0, COLUMNS)[None, :]
    total = tl.zeros((plan.ROWS, COLUMNS), tl.float32)
    for start in tl.range(0, depth, plan.CHUNK, num_stages=plan.STAGES):
        a = tl.load(left + start, mask=valid, other=0.0)
        b = tl.load(right + start * stride)
        total = tl.dot(a.to(b.dtype), b, total, input_precision=plan.PRECISION)
    return total


@jit
def _mix(gates, memory, above, plan, valid):
    """The result of the cell before the LayerNorm: M_i, M̂_{i-1} and the update, each times its gate."""
    mixed = _gate(gates, valid) * tl.load(memory, mask=valid, other=0.0)
    mixed += _gate(gates + plan.WIDTH, valid) * tl.load(above, mask=valid, other=0.0)
    update = tl.load(gates + 3 * plan.WIDTH, mask=valid, other=0.0)
    return mixed + _gate(gates + 2 * plan.WIDTH, valid) * update


@jit
def _gate(gate, valid):
    return tl.sigmoid(tl.load(gate, mask=valid, other=0.0))


@jit
def _normalize(x, size, epsilon, plan):
    """(x - mean) / standard deviation, and 1 / standard deviation. Padding must be zero and remains zero."""
    inside = tl.arange(0, plan.WIDTH)[None, :] < size
    x = tl.where(inside, x - tl.sum(x, 1)[:, None] / size, 0.0)
    scale = tl.rsqrt(tl.sum(x * x, 1) / size + epsilon)[:, None]
    return x * scale, scale


@jit
def _lerp(start, end, weight):
    """As `torch.lerp`: exactly `start` for weight 0 and exactly `end` for weight 1."""
    difference = end - start
    return tl.where(weight < 0.5, start + weight * difference, end - difference * (1 - weight))


@jit
def _tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


@jit
def _column(values, slot, plan):
    """Column `slot` of (ROWS, SLOTS)."""
    return tl.sum(tl.where(tl.arange(0, plan.SLOTS)[None, :] == slot, values, 0.0), 1)


@jit
def _load_mask(tape, sizes, plan, now, running):
    """m, (ROWS, SLOTS): the occupancy of the slot below, taken as 0 below the threshold."""
    mask = _load_slots(tape.occupancy + 1, now, sizes.slots + 1, sizes, plan, running)
    return tl.where(mask < sizes.threshold, 0.0, mask)


@jit
def _load_slots(pointer, first, stride, sizes, plan, running):
    """Load (ROWS, SLOTS) from rows of N entries that are `stride` apart; 0 beyond N."""
    i = tl.arange(0, plan.SLOTS)[None, :]
    at = _rows(pointer, first, 1, stride, plan) + i
    return tl.load(at, mask=running[:, None] & (i < sizes.slots), other=0.0)


@jit
def _store_slots(pointer, first, stride, values, sizes, plan, running):
    i = tl.arange(0, plan.SLOTS)[None, :]
    at = _rows(pointer, first, 1, stride, plan) + i
    tl.store(at, values, mask=running[:, None] & (i < sizes.slots))


@jit
def _load_lengths(lengths, first, sizes, plan):
    row = first + tl.arange(0, plan.ROWS)
    return tl.load(lengths + row, mask=row < sizes.batch, other=0)


@jit
def _rows(pointer, first, step, width, plan):
    """Pointers, (ROWS, 1), to rows of `width` entries: row `first` and every `step`-th row after it."""
    return pointer + first * width + (tl.arange(0, plan.ROWS) * (step * width))[:, None]


@jit
def _mask(at, valid):
    """Load the factors of a dropout mask."""
    return tl.load(at, mask=valid, other=0).to(tl.float32)
