/* The Gated Recursive Cell, its LayerNorm and equation (7), slot by slot; and their gradients. */

/* Compute M̂_i of the active rows of slot i. */
static void compose(Share *s, int64_t t, int64_t i) {
    const Pass *p = s->p;
    int64_t D = p->D, N = p->N, begin = s->slot_start[i], count = s->slot_start[i + 1] - begin;
    int64_t kept = p->keep ? s->start[t] + begin : 0;
    REAL *inputs = inputs_of(s, t) + begin * 2 * D, *restrict c = s->composed;
    REAL *hidden = begin_row(s, s->hidden, kept, 4 * D, s->wide), *gates = begin_row(s, s->gates, kept, 4 * D, s->wide);
    const void *masked = is_narrow(p) ? operand(s, s->rounded, kept, 2 * D) : inputs;
    for (int64_t k = 0; k < count; k++) {
        int64_t r = s->pair_row[begin + k];
        REAL *input = inputs + k * 2 * D;
        if (*top_of(s, t, r) == i) memcpy(input + D, token(s, p->inputs, t, r), D * sizeof(REAL));
        end_row(s, s->rounded, kept + k, 2 * D, input);
        if (!draw(s, CELL_INPUT, t, r, i, 2 * D, s->mask)) continue;
        REAL *restrict to = begin_row(s, s->masked, k, 2 * D, s->row_values);
        SIMD for (int64_t d = 0; d < 2 * D; d++) to[d] = input[d] * s->mask[d];
        end_row(s, s->masked, k, 2 * D, to);
        masked = s->masked;
    }
    product(s, count, 4 * D, 2 * D, masked, s->packed.w_in, p->bf16_w_in_t, hidden);
    for (int64_t k = 0; k < count; k++) {
        REAL *restrict h = hidden + k * 4 * D;
        const REAL *restrict bias = p->b_in;
        SIMD for (int64_t d = 0; d < 4 * D; d++) {
            REAL pre = h[d] + bias[d];
            h[d] = pre < 0 ? 0 : pre;
        }
        if (draw(s, HIDDEN, t, s->pair_row[begin + k], i, 4 * D, s->mask)) multiply(4 * D, s->mask, h);
        end_row(s, s->hidden, kept + k, 4 * D, h);
    }
    product(s, count, 4 * D, 4 * D, operand(s, s->hidden, kept, 4 * D), s->packed.w_out, p->bf16_w_out_t, gates);
    for (int64_t k = 0; k < count; k++) {
        int64_t r = s->pair_row[begin + k];
        REAL *restrict g = gates + k * 4 * D;
        const REAL *restrict memory = inputs + k * 2 * D, *restrict below = memory + D;
        const REAL *restrict bias = p->b_out, *restrict x = token(s, p->inputs, t, r);
        SIMD for (int64_t d = 0; d < 3 * D; d++) g[d] = 1 / (1 + EXP(-(g[d] + bias[d])));
        SIMD for (int64_t d = 0; d < D; d++) {
            g[3 * D + d] += bias[3 * D + d];
            c[d] = g[d] * memory[d] + g[D + d] * below[d] + g[2 * D + d] * g[3 * D + d];
        }
        REAL mean, inverse, weight = s->forward[r * N + i];
        moments(D, c, p->norm_epsilon, &mean, &inverse);
        REAL *restrict out = (REAL *)candidate_of(s, t, s->pair, r, i);
        SIMD for (int64_t d = 0; d < D; d++) {
            REAL normalized = (c[d] - mean) * inverse * p->norm[d] + p->norm_bias[d];
            out[d] = x[d] + weight * (normalized - x[d]);
        }
        end_row(s, s->gates, kept + k, 4 * D, g);
    }
}

/* Backward of equation (7), LayerNorm and gates of one pair: writes d_gates, and the gradient of the cell's result to
   `gradient`. */
static void gates_backward(Share *s, int64_t t, int64_t i, int64_t j, REAL *restrict gradient,
                           REAL *restrict d_gates) {
    const Pass *p = s->p;
    int64_t D = p->D, N = p->N, r = s->pair_row[j], kept = s->start[t] + j;
    const REAL *restrict u = read_row(s, s->gates, kept, 4 * D, s->mask);
    REAL *restrict c = s->composed;
    const REAL *restrict memory = inputs_of(s, t) + j * 2 * D, *restrict below = memory + D;
    const REAL *restrict x = token(s, p->inputs, t, r), *restrict d_out = s->d_candidate + (r * N + i) * D;
    REAL *restrict d_x = token(s, p->d_inputs, t, r);
    REAL mean, inverse, weight = s->forward[r * N + i], d_forward = 0;
    SIMD for (int64_t d = 0; d < D; d++) c[d] = u[d] * memory[d] + u[D + d] * below[d] + u[2 * D + d] * u[3 * D + d];
    moments(D, c, p->norm_epsilon, &mean, &inverse);
    SUM(d_forward) for (int64_t d = 0; d < D; d++) {
        REAL normalized = (c[d] - mean) * inverse * p->norm[d] + p->norm_bias[d];
        d_forward += d_out[d] * (normalized - x[d]);
        gradient[d] = d_out[d] * weight;
        d_x[d] += d_out[d] - gradient[d];
    }
    s->d_forward[j] = d_forward;
    norm_backward(D, c, mean, inverse, p->norm, gradient, s->d_norm, s->d_norm_bias);
    SIMD for (int64_t d = 0; d < D; d++) {
        REAL g = gradient[d], to_memory = u[d], to_below = u[D + d], to_update = u[2 * D + d];
        d_gates[d] = g * memory[d] * to_memory * (1 - to_memory);
        d_gates[D + d] = g * below[d] * to_below * (1 - to_below);
        d_gates[2 * D + d] = g * u[3 * D + d] * to_update * (1 - to_update);
        d_gates[3 * D + d] = g * to_update;
    }
    add(4 * D, d_gates, s->d_b_out);
}

/* Backward of `compose`. `pending` is the index of the step's first pair among those that wait for a product. */
static void compose_backward(Share *s, int64_t t, int64_t i, int64_t pending) {
    const Pass *p = s->p;
    int64_t D = p->D, N = p->N, begin = s->slot_start[i], count = s->slot_start[i + 1] - begin;
    int64_t kept = s->start[t] + begin, at = pending + begin;
    REAL *d_hidden = begin_row(s, s->d_hidden, at, 4 * D, s->wide);
    for (int64_t k = 0; k < count; k++) {
        REAL *d_gates = begin_row(s, s->d_gates, at + k, 4 * D, s->row_values);
        gates_backward(s, t, i, begin + k, s->d_composed + k * D, d_gates);
        end_row(s, s->d_gates, at + k, 4 * D, d_gates);
    }
    product(s, count, 4 * D, 4 * D, operand(s, s->d_gates, at, 4 * D), s->packed.w_out, p->bf16_w_out, d_hidden);
    for (int64_t k = 0; k < count; k++) {
        REAL *restrict d = d_hidden + k * 4 * D;
        const REAL *restrict h = read_row(s, s->hidden, kept + k, 4 * D, s->row_values);
        SIMD for (int64_t j = 0; j < 4 * D; j++) d[j] = h[j] > 0 ? d[j] : 0;
        /* Drawn masks are 0 or 1: where they were 0, the hidden units are 0. */
        if (p->hidden_mask && draw(s, HIDDEN, t, s->pair_row[begin + k], i, 4 * D, s->mask)) multiply(4 * D, s->mask, d);
        add(4 * D, d, s->d_b_in);
        end_row(s, s->d_hidden, at + k, 4 * D, d);
    }
    product(s, count, 2 * D, 4 * D, operand(s, s->d_hidden, at, 4 * D), s->packed.w_in, p->bf16_w_in, s->d_input);
    for (int64_t k = 0; k < count; k++) {
        int64_t r = s->pair_row[begin + k];
        const REAL *restrict input = inputs_of(s, t) + (begin + k) * 2 * D;
        REAL *restrict d_input = s->d_input + k * 2 * D;
        REAL *restrict masked = begin_row(s, s->masked_inputs, at + k, 2 * D, s->row_values);
        if (draw(s, CELL_INPUT, t, r, i, 2 * D, s->mask)) {
            multiply(2 * D, s->mask, d_input);
            SIMD for (int64_t d = 0; d < 2 * D; d++) masked[d] = input[d] * s->mask[d];
        } else
            memcpy(masked, input, 2 * D * sizeof(REAL));
        end_row(s, s->masked_inputs, at + k, 2 * D, masked);
        const REAL *restrict g = s->d_composed + k * D;
        const REAL *restrict u = read_row(s, s->gates, kept + k, 4 * D, s->row_values);
        REAL *restrict d_memory = s->d_memory + (r * N + i) * D;
        REAL *restrict d_below = i ? s->d_candidate + (r * N + i - 1) * D : token(s, p->d_inputs, t, r);
        SIMD for (int64_t d = 0; d < D; d++) {
            d_memory[d] += d_input[d] + g[d] * u[d];
            d_below[d] += d_input[D + d] + g[d] * u[D + d];
        }
    }
}

/* Add the weight gradients of `count` pending pairs. The first is at index `at` of the pending, and is pair `first`. */
static void add_weight_gradients(const Share *s, int64_t at, int64_t count, int64_t first) {
    int64_t D = s->p->D;
    const void *hidden = operand(s, s->hidden, first, 4 * D), *inputs = operand(s, s->masked_inputs, at, 2 * D);
    add_product(s, 4 * D, 4 * D, count, operand(s, s->d_gates, at, 4 * D), hidden, s->d_w_out);
    add_product(s, 4 * D, 2 * D, count, operand(s, s->d_hidden, at, 4 * D), inputs, s->d_w_in);
}
