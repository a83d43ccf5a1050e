/* One step of one sequence, for the units of one part, given the pre-activations, equations (1)-(5) and (11)-(14):

       ω = f̃ ĩ;  f̂ = f ω + (f̃ - ω);  î = i ω + (ĩ - ω);  c = f̂ c[t-1] + î ĉ;  h = o tanh(c).

   As in nn.LSTM, g is ĉ. */

/* Overwrite the pre-activations with i, f, g and o, and compute c and h. `workspace` is that of a row. */
static void step_forward(const Pass *p, int64_t part, int64_t t, int64_t row, scalar_t *gates,
                         const scalar_t *old_cell, scalar_t *cell, scalar_t *workspace) {
    int64_t H = p->H, M = p->M, token = p->first_token[t] + row;
    int64_t first = first_chunk(p, part), chunks = num_chunks(p, part), unit = first_unit(p, part);
    int64_t units = num_units(p, part);
    scalar_t *restrict master_forget = workspace, *restrict master_input = workspace + H;
    scalar_t *master_softmax = workspace + 2 * H, sums[2];
    gather_logits(p, gates, master_softmax);
    softmax(M, master_softmax);
    softmax(M, master_softmax + M);
    expand_master_gates(p, master_softmax, first, first + chunks, master_forget, master_input, sums);
    for (int64_t k = 0; p->keep && k < 2; k++)
        memcpy(p->softmax + (token * 2 + k) * M + first, master_softmax + k * M + first, chunks * sizeof(scalar_t));
    if (part == 0) {
        p->forget_distance[token] = M - sums[0];
        p->input_distance[token] = M - sums[1];
    }
    scalar_t *restrict i = gates + first_column(p, part), *restrict f = i + units, *restrict g = f + units;
    scalar_t *restrict o = g + units;
    const scalar_t *old_c = old_cell + unit;
    scalar_t *c = cell + unit, *restrict h = p->output + token * H + unit;
    SIMD for (int64_t u = 0; u < units; u++) {
        scalar_t overlap = master_forget[u] * master_input[u]; /* ω */
        i[u] = sigmoid(i[u]);
        f[u] = sigmoid(f[u]);
        g[u] = tanh_from_exp(g[u]);
        o[u] = sigmoid(o[u]);
        scalar_t forget = f[u] * overlap + (master_forget[u] - overlap); /* f̂ */
        scalar_t write = i[u] * overlap + (master_input[u] - overlap);   /* î */
        scalar_t new_c = forget * old_c[u] + write * g[u];
        c[u] = new_c;
        h[u] = o[u] * tanh_from_exp(new_c);
    }
    if (p->bf16_hidden) to_bf16(units, h, p->bf16_hidden + row * H + unit);
}

/* Compute the gradients of the pre-activations of i, f, g and o, and of f̃ and ĩ; d_cell becomes the gradient of
   c[t-1]. */
static void step_backward(const Pass *p, int64_t part, int64_t t, int64_t row, scalar_t *restrict workspace) {
    int64_t H = p->H, M = p->M, token = p->first_token[t] + row;
    int64_t first = first_chunk(p, part), chunks = num_chunks(p, part), unit = first_unit(p, part);
    int64_t units = num_units(p, part);
    scalar_t *restrict master_forget = workspace, *restrict master_input = workspace + H, sums[2];
    const scalar_t *softmax = p->softmax + token * 2 * M;
    expand_master_gates(p, softmax, first, first + chunks, master_forget, master_input, sums);
    const scalar_t *restrict i = p->gates + token * p->G + first_column(p, part), *restrict f = i + units;
    const scalar_t *restrict g = f + units, *restrict o = g + units, *restrict c = p->cells + token * H + unit;
    const scalar_t *restrict old_c = state_before(p, p->cells, p->cell0, t) + row * H + unit;
    const scalar_t *restrict d_output = p->d_output ? p->d_output + token * H + unit : 0;
    scalar_t *restrict d_i = p->d_gates + token * p->G + unit, *restrict d_f = d_i + H, *restrict d_g = d_f + H;
    scalar_t *restrict d_o = d_g + H;
    scalar_t *restrict d_h = p->d_hidden + row * H + unit, *restrict d_cell = p->d_cell + row * H + unit;
    if (d_output)
        SIMD for (int64_t u = 0; u < units; u++) d_h[u] += d_output[u];
    SIMD for (int64_t u = 0; u < units; u++) {
        scalar_t overlap = master_forget[u] * master_input[u], tanh_c = tanh_from_exp(c[u]);
        scalar_t forget = f[u] * overlap + (master_forget[u] - overlap);
        scalar_t write = i[u] * overlap + (master_input[u] - overlap);
        scalar_t d_c = d_cell[u] + d_h[u] * o[u] * (1 - tanh_c * tanh_c);
        scalar_t d_forget = d_c * old_c[u], d_write = d_c * g[u];
        scalar_t d_overlap = d_forget * (f[u] - 1) + d_write * (i[u] - 1);
        d_o[u] = d_h[u] * tanh_c * o[u] * (1 - o[u]);
        d_g[u] = d_c * write * (1 - g[u] * g[u]);
        d_f[u] = d_forget * overlap * f[u] * (1 - f[u]);
        d_i[u] = d_write * overlap * i[u] * (1 - i[u]);
        d_cell[u] = d_c * forget;
        scalar_t master_forget_u = master_forget[u];
        /* The gradients of f̃ and ĩ take their place. */
        master_forget[u] = d_forget + d_overlap * master_input[u];
        master_input[u] = d_write + d_overlap * master_forget_u;
    }
    scalar_t *d_master_forget = p->d_master_gates + row * 2 * M + first, *d_master_input = d_master_forget + M;
    for (int64_t m = 0; m < chunks; m++) { /* sums over the units of a chunk */
        scalar_t d_forget = 0, d_input = 0;
        for (int64_t u = m * p->C; u < (m + 1) * p->C; u++) {
            d_forget += master_forget[u];
            d_input += master_input[u];
        }
        d_master_forget[m] = d_forget;
        d_master_input[m] = d_input;
    }
}
