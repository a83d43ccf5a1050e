/* One step of one sequence, for the units of one part, and its backward pass. */

/* Overwrite the pre-activations with i, f, ĉ and o, and compute c and h. `scratch` of the part has room for the units
   of both master gates and their logits. */
static void step_forward(const Pass *p, int64_t part, int64_t t, int64_t row, REAL *gates, const REAL *old_cell,
                         REAL *cell, REAL *scratch) {
    int64_t token = p->start[t] + row;
    int64_t H = p->H, M = p->M, first = first_chunk(p, part), last = first_chunk(p, part + 1);
    int64_t u0 = first * p->C, width = (last - first) * p->C;
    REAL *restrict forget = scratch, *restrict input = scratch + H, *own = scratch + 2 * H, sums[2];
    gather_logits(p, gates, own);
    softmax(M, own);
    softmax(M, own + M);
    expand_master_gates(p, own, first, last, forget, input, sums);
    for (int64_t k = 0; p->keep && k < 2; k++)
        memcpy(p->softmax + (token * 2 + k) * M + first, own + k * M + first, (last - first) * sizeof(REAL));
    if (part == 0) {
        p->forget_distance[token] = M - sums[0];
        p->input_distance[token] = M - sums[1];
    }
    REAL *restrict i = gates + first_column(p, part), *restrict f = i + width, *restrict g = f + width;
    REAL *restrict o = g + width;
    const REAL *c = old_cell + u0;
    REAL *new = cell + u0, *restrict h = p->output + token * H + u0;
    SIMD for (int64_t u = 0; u < width; u++) {
        REAL overlap = forget[u] * input[u];
        i[u] = 1 / (1 + EXP(-i[u]));
        f[u] = 1 / (1 + EXP(-f[u]));
        g[u] = 1 - 2 / (1 + EXP(2 * g[u]));
        o[u] = 1 / (1 + EXP(-o[u]));
        REAL next = (f[u] * overlap + (forget[u] - overlap)) * c[u] + (i[u] * overlap + (input[u] - overlap)) * g[u];
        new[u] = next;
        h[u] = o[u] * (1 - 2 / (1 + EXP(2 * next)));
    }
    if (p->narrow) round_to_bf16(width, h, p->narrow + row * H + u0);
}

/* Compute d_gates of i, f, ĉ and o, and d_masters, the gradients of f̃ and ĩ; d_cell becomes the gradient of c[t-1]. */
static void step_backward(const Pass *p, int64_t part, int64_t t, int64_t row, REAL *restrict scratch) {
    int64_t H = p->H, M = p->M, first = first_chunk(p, part), last = first_chunk(p, part + 1);
    int64_t u0 = first * p->C, width = (last - first) * p->C, token = p->start[t] + row;
    REAL *restrict forget = scratch, *restrict input = scratch + H, sums[2];
    expand_master_gates(p, p->softmax + token * 2 * M, first, last, forget, input, sums);
    const REAL *restrict i = p->gates + token * p->G + first_column(p, part), *restrict f = i + width;
    const REAL *restrict g = f + width, *restrict o = g + width, *restrict c = p->cells + token * H + u0;
    const REAL *restrict old = previous(p, p->cells, p->cell0, t) + row * H + u0;
    const REAL *restrict d_output = p->d_output ? p->d_output + token * H + u0 : 0;
    REAL *restrict d_i = p->d_gates + token * p->G + u0, *restrict d_f = d_i + H, *restrict d_g = d_f + H;
    REAL *restrict d_o = d_g + H;
    REAL *restrict d_h = p->d_hidden + row * H + u0, *restrict d_c = p->d_cell + row * H + u0;
    if (d_output)
        SIMD for (int64_t u = 0; u < width; u++) d_h[u] += d_output[u];
    SIMD for (int64_t u = 0; u < width; u++) {
        REAL overlap = forget[u] * input[u], tanh_c = 1 - 2 / (1 + EXP(2 * c[u]));
        REAL kept = f[u] * overlap + (forget[u] - overlap), written = i[u] * overlap + (input[u] - overlap);
        REAL d = d_c[u] + d_h[u] * o[u] * (1 - tanh_c * tanh_c);
        REAL d_kept = d * old[u], d_written = d * g[u];
        REAL d_overlap = d_kept * (f[u] - 1) + d_written * (i[u] - 1);
        d_o[u] = d_h[u] * tanh_c * o[u] * (1 - o[u]);
        d_g[u] = d * written * (1 - g[u] * g[u]);
        d_f[u] = d_kept * overlap * f[u] * (1 - f[u]);
        d_i[u] = d_written * overlap * i[u] * (1 - i[u]);
        d_c[u] = d * kept;
        REAL forget_u = forget[u];
        forget[u] = d_kept + d_overlap * input[u];
        input[u] = d_written + d_overlap * forget_u;
    }
    REAL *d_masters = p->d_masters + row * 2 * M;
    for (int64_t m = first; m < last; m++) {
        REAL d_forget = 0, d_input = 0;
        for (int64_t c_ = 0; c_ < p->C; c_++) {
            d_forget += *forget++;
            d_input += *input++;
        }
        d_masters[m] = d_forget;
        d_masters[M + m] = d_input;
    }
}
