/* One step of one sequence, for the units of one part, given the pre-activations, equations (1)-(5) and (11)-(14):

       ω = f̃ ĩ;  f̂ = f ω + (f̃ - ω);  î = i ω + (ĩ - ω);  c = f̂ c[t-1] + î ĉ;  h = o tanh(c). */

/* Overwrite the pre-activations with i, f, ĉ and o, and compute c and h. `workspace` is that of a row. */
static void step_forward(const Pass *p, int64_t part, int64_t t, int64_t row, scalar_t *preactivations,
                         const scalar_t *old_cell, scalar_t *cell, scalar_t *workspace) {
    int64_t H = p->H, M = p->M, token = p->first_token[t] + row;
    int64_t first = first_chunk(p, part), chunks = num_chunks(p, part), unit = first_unit(p, part);
    int64_t units = num_units(p, part);
    scalar_t *restrict f_tilde = workspace, *restrict i_tilde = workspace + H;
    scalar_t *master_softmax = workspace + 2 * H, sums[2];
    gather_logits(p, preactivations, master_softmax);
    softmax(M, master_softmax);
    softmax(M, master_softmax + M);
    expand_master_gates(p, master_softmax, first, first + chunks, f_tilde, i_tilde, sums);
    for (int64_t k = 0; p->save && k < 2; k++)
        memcpy(p->softmax + (token * 2 + k) * M + first, master_softmax + k * M + first, chunks * sizeof(scalar_t));
    if (part == 0) {
        p->forget_distance[token] = M - sums[0];
        p->input_distance[token] = M - sums[1];
    }
    scalar_t *restrict i = preactivations + first_column(p, part), *restrict f = i + units;
    scalar_t *restrict c_hat = f + units, *restrict o = c_hat + units;
    const scalar_t *old_c = old_cell + unit;
    scalar_t *c = cell + unit, *restrict h = p->output + token * H + unit;
    SIMD for (int64_t u = 0; u < units; u++) {
        scalar_t omega = f_tilde[u] * i_tilde[u];
        i[u] = sigmoid(i[u]);
        f[u] = sigmoid(f[u]);
        c_hat[u] = tanh_from_exp(c_hat[u]);
        o[u] = sigmoid(o[u]);
        scalar_t f_hat = f[u] * omega + (f_tilde[u] - omega);
        scalar_t i_hat = i[u] * omega + (i_tilde[u] - omega);
        scalar_t new_c = f_hat * old_c[u] + i_hat * c_hat[u];
        c[u] = new_c;
        h[u] = o[u] * tanh_from_exp(new_c);
    }
    if (p->bf16_hidden) to_bf16(units, h, p->bf16_hidden + row * H + unit);
}

/* Compute the gradients of the pre-activations of i, f, ĉ and o, and of f̃ and ĩ; d_cell becomes the gradient of
   c[t-1]. */
static void step_backward(const Pass *p, int64_t part, int64_t t, int64_t row, scalar_t *restrict workspace) {
    int64_t H = p->H, M = p->M, token = p->first_token[t] + row;
    int64_t first = first_chunk(p, part), chunks = num_chunks(p, part), unit = first_unit(p, part);
    int64_t units = num_units(p, part);
    scalar_t *restrict f_tilde = workspace, *restrict i_tilde = workspace + H, sums[2];
    const scalar_t *softmax = p->softmax + token * 2 * M;
    expand_master_gates(p, softmax, first, first + chunks, f_tilde, i_tilde, sums);
    const scalar_t *restrict i = p->gates + token * p->G + first_column(p, part), *restrict f = i + units;
    const scalar_t *restrict c_hat = f + units, *restrict o = c_hat + units, *restrict c = p->cells + token * H + unit;
    const scalar_t *restrict old_c = state_before(p, p->cells, p->cell0, t) + row * H + unit;
    const scalar_t *restrict d_output = p->d_output ? p->d_output + token * H + unit : 0;
    scalar_t *restrict d_i = p->d_preactivations + token * p->G + unit, *restrict d_f = d_i + H;
    scalar_t *restrict d_c_hat = d_f + H, *restrict d_o = d_c_hat + H;
    scalar_t *restrict d_h = p->d_hidden + row * H + unit, *restrict d_cell = p->d_cell + row * H + unit;
    if (d_output)
        SIMD for (int64_t u = 0; u < units; u++) d_h[u] += d_output[u];
    SIMD for (int64_t u = 0; u < units; u++) {
        scalar_t omega = f_tilde[u] * i_tilde[u], tanh_c = tanh_from_exp(c[u]);
        scalar_t f_hat = f[u] * omega + (f_tilde[u] - omega);
        scalar_t i_hat = i[u] * omega + (i_tilde[u] - omega);
        scalar_t d_c = d_cell[u] + d_h[u] * o[u] * (1 - tanh_c * tanh_c);
        scalar_t d_f_hat = d_c * old_c[u], d_i_hat = d_c * c_hat[u];
        scalar_t d_omega = d_f_hat * (f[u] - 1) + d_i_hat * (i[u] - 1);
        d_o[u] = d_h[u] * tanh_c * o[u] * (1 - o[u]);
        d_c_hat[u] = d_c * i_hat * (1 - c_hat[u] * c_hat[u]);
        d_f[u] = d_f_hat * omega * f[u] * (1 - f[u]);
        d_i[u] = d_i_hat * omega * i[u] * (1 - i[u]);
        d_cell[u] = d_c * f_hat;
        scalar_t f_tilde_u = f_tilde[u];
        /* The gradients of f̃ and ĩ take their place. */
        f_tilde[u] = d_f_hat + d_omega * i_tilde[u];
        i_tilde[u] = d_i_hat + d_omega * f_tilde_u;
    }
    scalar_t *d_f_tilde = p->d_master_gates + row * 2 * M + first, *d_i_tilde = d_f_tilde + M;
    for (int64_t m = 0; m < chunks; m++) { /* sums over the units of a chunk */
        scalar_t sum_forget = 0, sum_input = 0;
        for (int64_t u = m * p->C; u < (m + 1) * p->C; u++) {
            sum_forget += f_tilde[u];
            sum_input += i_tilde[u];
        }
        d_f_tilde[m] = sum_forget;
        d_i_tilde[m] = sum_input;
    }
}
