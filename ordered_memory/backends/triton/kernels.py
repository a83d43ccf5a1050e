"""The loop over time as two Triton kernels, one forward and one in reverse.

Axes as in `ordered_memory.memory`, D padded with zeros to W = `plan.WIDTH`, a power of two. Rows are
independent, so a program reads a tile of `plan.ROWS` sequences from the first token to the last and no
program waits for another. What a product reads lies in global memory (for a tile it stays in the cache),
where the weights stream past it; only the running sum is held in registers. Hence the barriers: they
order what one thread stores before what another one loads.

Rows of the buffers: `token = t B + b` for what has a time axis, `now` and `after = now + B` for the state
before and after step t (`now = after = b` when no history is kept), `pair = now N + i` for slot i.
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
    """Read a tile of sequences; rows past their own length are left as they are.

    Args:
        inputs: x̃, (T, B, W).
        query: of the score, (T, B, W).
        lengths: of the sequences, (B,).
        output: is written, (T, B, W).
        weights: `contract.Weights`, matrices as (in, out) here and as (out, in) in `backward_kernel`.
        tape, dropout, sizes, plan: the named tuples of `arguments.py`.
    """
    row = tl.program_id(0) * plan.ROWS + tl.arange(0, plan.ROWS)
    length = tl.load(lengths + row, mask=row < sizes.batch, other=0)
    d = tl.arange(0, plan.WIDTH)[None, :]
    for t in range(tl.max(length, 0)):
        running = t < length
        token = t * sizes.batch + row
        now = t * sizes.batch * plan.HISTORY + row
        p = _attend(query, weights, tape, dropout, sizes, plan, token, now, running)
        _store_slots(tape.attention, token, sizes.slots, p, sizes, plan, running)
        at = token.to(tl.int64)[:, None] * plan.WIDTH + d
        x = tl.load(inputs + at, mask=running[:, None], other=0.0)
        tl.debug_barrier()
        last = _write(x, p, weights, tape, dropout, sizes, plan, token, now, running)
        tl.store(output + at, last, mask=running[:, None])
        tl.debug_barrier()


@jit
def _attend(query, weights, tape, dropout, sizes, plan, token, now, running):
    """p, (ROWS, SLOTS). Slots that no row of the tile may attend to are not scored."""
    i = tl.arange(0, plan.SLOTS)[None, :]
    mask = _load_mask(tape, sizes, plan, now, running)
    q_at = token.to(tl.int64)[:, None] * plan.WIDTH + tl.arange(0, plan.WIDTH)[None, :]
    q = tl.load(query + q_at, mask=running[:, None], other=0.0)
    scores = tl.full((plan.ROWS, plan.SLOTS), float("-inf"), tl.float32)
    for slot in range(sizes.slots):
        if tl.max(_column(mask, slot, plan), 0) > 0:
            pair = now.to(tl.int64) * sizes.slots + slot
            drawn = token.to(tl.int64) * sizes.slots + slot
            score = _score(q, weights, tape, dropout, sizes, plan, pair, drawn, running)
            scores = tl.where(i == slot, score[:, None], scores)
    scores = tl.where(mask > 0, scores, float("-inf"))
    # A row that attends to nothing has -inf here, and -inf less -inf would be NaN.
    largest = tl.maximum(tl.max(scores, 1), -3.0e38)
    weight = mask * tl.exp(scores - largest[:, None])
    total = tl.sum(weight, 1)
    return weight / tl.where(total > 0, total, 1.0)[:, None]


@jit
def _score(q, weights, tape, dropout, sizes, plan, pair, drawn, running):
    """a of one slot, (ROWS,), less the output bias, which changes no p."""
    d = tl.arange(0, plan.WIDTH)[None, :]
    valid = running[:, None]
    at = pair[:, None] * plan.WIDTH
    if plan.SCORE_MASKS:
        masks_at = drawn[:, None] * plan.WIDTH + d
        candidate = tl.load(tape.candidate + at + d, mask=valid, other=0.0)
        candidate *= _mask(dropout.key, masks_at, valid)
        tl.store(tape.key_inputs + at + d, candidate, mask=valid)
        tl.debug_barrier()
        key = _product(tape.key_inputs + at, valid, weights.key, plan.WIDTH, plan.WIDTH, plan, plan.WIDTH)
    else:
        key = _product(tape.candidate + at, valid, weights.key, plan.WIDTH, plan.WIDTH, plan, plan.WIDTH)
    key += tl.load(weights.key_bias + d)
    tl.store(tape.keys + at + d, key, mask=valid)
    if plan.NORMALIZED:
        normal, _ = _normalize(key, sizes.size, sizes.key_epsilon, plan)
        key = normal * tl.load(weights.key_norm + d) + tl.load(weights.key_norm_bias + d)
        feature = tl.maximum(q + key, 0.0)
    else:
        feature = _tanh(q + key)
    if plan.SCORE_MASKS:
        feature *= _mask(dropout.feature, masks_at, valid)
    return tl.sum(feature * tl.load(weights.score + d), 1)


@jit
def _write(x, p, weights, tape, dropout, sizes, plan, token, now, running):
    """Slots from top to bottom; returns M̂_N. Where no row of the tile writes, the cell does not run."""
    d = tl.arange(0, plan.WIDTH)[None, :]
    valid = running[:, None]
    after = now + sizes.batch * plan.HISTORY
    forward = tl.cumsum(p, 1)
    backward = tl.cumsum(p, 1, reverse=True)
    _store_slots(tape.occupancy, after, sizes.slots + 1, forward, sizes, plan, running)
    tl.store(tape.occupancy + sizes.slots + after * (sizes.slots + 1), 1.0, mask=running)
    below = x
    for slot in range(sizes.slots):
        pair = now.to(tl.int64) * sizes.slots + slot
        at = pair[:, None] * plan.WIDTH + d
        to = (after.to(tl.int64) * sizes.slots + slot)[:, None] * plan.WIDTH + d
        memory = tl.load(tape.memory + at, mask=valid, other=0.0)
        candidate = tl.load(tape.candidate + at, mask=valid, other=0.0)
        memory = _lerp(memory, candidate, _column(backward, slot, plan)[:, None])
        tl.debug_barrier()  # without history the next two stores replace what these loads read
        tl.store(tape.memory + to, memory, mask=valid)
        written = _column(forward, slot, plan)
        if tl.max(written, 0) > 0:
            drawn = token.to(tl.int64) * sizes.slots + slot
            _cell(memory, below, weights, tape, dropout, plan, pair, drawn, valid)
            gm, gc, gu, u = _gates(tape.gates + pair[:, None] * (4 * plan.WIDTH) + d, plan, valid)
            normal, _ = _normalize(gm * memory + gc * below + gu * u, sizes.size, sizes.norm_epsilon, plan)
            composed = normal * tl.load(weights.norm + d) + tl.load(weights.norm_bias + d)
            below = _lerp(x, composed, written[:, None])
        else:
            below = x
        tl.store(tape.candidate + to, below, mask=valid)
    return below


@jit
def _cell(memory, below, weights, tape, dropout, plan, pair, drawn, valid):
    """`W2 relu(W1 [M; C] + b1) + b2` into `tape.gates`, by way of `tape.joined` and `tape.hidden`."""
    d = tl.arange(0, plan.WIDTH)[None, :]
    joined = tape.joined + pair[:, None] * (2 * plan.WIDTH)
    hidden = tape.hidden + pair[:, None] * (4 * plan.WIDTH)
    gates = tape.gates + pair[:, None] * (4 * plan.WIDTH)
    if plan.CELL_MASKS:
        masks_at = drawn[:, None] * plan.WIDTH + d
        memory *= _mask(dropout.memory, masks_at, valid)
        below *= _mask(dropout.candidate, masks_at, valid)
    tl.store(joined + d, memory, mask=valid)
    tl.store(joined + plan.WIDTH + d, below, mask=valid)
    tl.debug_barrier()
    for start in range(0, 4 * plan.WIDTH, plan.COLUMNS):
        column = start + tl.arange(0, plan.COLUMNS)[None, :]
        value = _product(
            joined, valid, weights.w_in + start, 4 * plan.WIDTH, 2 * plan.WIDTH, plan, plan.COLUMNS
        )
        value = tl.maximum(value + tl.load(weights.b_in + column), 0.0)
        if plan.CELL_MASKS:
            hidden_at = drawn[:, None] * (4 * plan.WIDTH) + column
            value *= _mask(dropout.hidden, hidden_at, valid)
        tl.store(hidden + column, value, mask=valid)
    tl.debug_barrier()
    for start in range(0, 4 * plan.WIDTH, plan.COLUMNS):
        column = start + tl.arange(0, plan.COLUMNS)[None, :]
        value = _product(
            hidden, valid, weights.w_out + start, 4 * plan.WIDTH, 4 * plan.WIDTH, plan, plan.COLUMNS
        )
        tl.store(gates + column, value + tl.load(weights.b_out + column), mask=valid)
    tl.debug_barrier()


@jit
def _product(left, valid, right, stride, depth, plan, COLUMNS: tl.constexpr):
    """The rows of `depth` that `left`, (ROWS, 1), points to, times `right`, (depth, COLUMNS) of a matrix."""
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
def _gates(gates, plan, valid):
    """The three gates and the update, (ROWS, WIDTH) each, from the pointers to the first of them."""
    gm = tl.sigmoid(tl.load(gates, mask=valid, other=0.0))
    gc = tl.sigmoid(tl.load(gates + plan.WIDTH, mask=valid, other=0.0))
    gu = tl.sigmoid(tl.load(gates + 2 * plan.WIDTH, mask=valid, other=0.0))
    return gm, gc, gu, tl.load(gates + 3 * plan.WIDTH, mask=valid, other=0.0)


@jit
def _normalize(x, size, epsilon, plan):
    """x less its mean over its standard deviation, and 1 over the latter; padding is zero and stays it."""
    inside = tl.arange(0, plan.WIDTH)[None, :] < size
    x = tl.where(inside, x - tl.sum(x, 1)[:, None] / size, 0.0)
    scale = tl.rsqrt(tl.sum(x * x, 1) / size + epsilon)[:, None]
    return x * scale, scale


@jit
def _lerp(start, end, weight):
    """`torch.lerp`: exactly `start` at 0 and exactly `end` at 1."""
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
    """m, (ROWS, SLOTS): the occupancy of the slot below, 0 under the threshold."""
    mask = _load_slots(tape.occupancy + 1, now, sizes.slots + 1, sizes, plan, running)
    return tl.where(mask < sizes.threshold, 0.0, mask)


@jit
def _load_slots(pointer, row, stride, sizes, plan, running):
    """(ROWS, SLOTS) from N entries at `row * stride`, 0 beyond."""
    i = tl.arange(0, plan.SLOTS)[None, :]
    return tl.load(pointer + row[:, None] * stride + i, mask=running[:, None] & (i < sizes.slots), other=0.0)


@jit
def _store_slots(pointer, row, stride, values, sizes, plan, running):
    i = tl.arange(0, plan.SLOTS)[None, :]
    tl.store(pointer + row[:, None] * stride + i, values, mask=running[:, None] & (i < sizes.slots))


@jit
def _mask(mask, at, valid):
    """Factors of dropout."""
    return tl.load(mask + at, mask=valid, other=0).to(tl.float32)
