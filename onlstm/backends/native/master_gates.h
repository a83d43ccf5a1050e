/* The master gates, f̃ = cumax(·) and ĩ = 1 - cumax(·), equations (9) and (10), with cumax = cumsum(softmax); the
   distances, equation (15); and the backward pass. */

static void softmax(int64_t size, scalar_t *values) {
    scalar_t largest = -INFINITY, total = 0;
    for (int64_t m = 0; m < size; m++) largest = values[m] > largest ? values[m] : largest;
    SIMD for (int64_t m = 0; m < size; m++) values[m] = EXP(values[m] - largest);
    SIMD_SUM(total) for (int64_t m = 0; m < size; m++) total += values[m];
    scalar_t scale = 1 / total;
    SIMD for (int64_t m = 0; m < size; m++) values[m] *= scale;
}

/* Collect the logits of both master gates, (2, M), from all parts of a row of pre-activations. */
static void gather_logits(const Pass *p, const scalar_t *preactivations, scalar_t *logits) {
    for (int64_t part = 0; part < p->parts; part++) {
        int64_t first = first_chunk(p, part), count = num_chunks(p, part);
        const scalar_t *from = preactivations + first_column(p, part) + 4 * count * p->C;
        memcpy(logits + first, from, count * sizeof(scalar_t));
        memcpy(logits + p->M + first, from + count, count * sizeof(scalar_t));
    }
}

/* f̃ and ĩ, repeated for the units of the chunks from `first` to `last` - 1; and the sums of f̃ and of ĩ over all
   chunks, for the distances. */
static void expand_master_gates(const Pass *p, const scalar_t *restrict softmax, int64_t first, int64_t last,
                                scalar_t *restrict f_tilde, scalar_t *restrict i_tilde, scalar_t *sums) {
    scalar_t forget = 0, input = 0; /* cumax */
    sums[0] = sums[1] = 0;
    for (int64_t m = 0; m < p->M; m++) {
        forget += softmax[m];
        input += softmax[p->M + m];
        sums[0] += forget;
        sums[1] += 1 - input;
        if (m < first || m >= last) continue;
        for (int64_t c = 0; c < p->C; c++) {
            *f_tilde++ = forget;
            *i_tilde++ = 1 - input;
        }
    }
}

/* Backward of cumax: the gradients of the logits, if the gradient of entry m of cumax is sign * (d_master[m] + all). */
static void cumax_backward(int64_t M, const scalar_t *restrict softmax, const scalar_t *restrict d_master,
                           scalar_t sign, scalar_t all, scalar_t *restrict d_logits) {
    scalar_t sum = 0, mean = 0;
    for (int64_t m = M; m-- > 0;) d_logits[m] = sign * (sum += d_master[m] + all);
    SIMD_SUM(mean) for (int64_t m = 0; m < M; m++) mean += softmax[m] * d_logits[m];
    SIMD for (int64_t m = 0; m < M; m++) d_logits[m] = softmax[m] * (d_logits[m] - mean);
}

/* The gradients of the logits of both master gates, for a row of step t. A distance is M minus the sum of the gate, so
   its gradient is subtracted from those of all entries. */
static void master_gates_backward(const Pass *p, int64_t t, int64_t row) {
    int64_t M = p->M, token = p->first_token[t] + row;
    const scalar_t *softmax = p->softmax + token * 2 * M, *d_master_gates = p->d_master_gates + row * 2 * M;
    scalar_t *d_logits = p->d_preactivations + token * p->G + 4 * p->H;
    scalar_t by_forget_distance = p->d_forget_distance ? -p->d_forget_distance[token] : 0;
    scalar_t by_input_distance = p->d_input_distance ? -p->d_input_distance[token] : 0;
    cumax_backward(M, softmax, d_master_gates, 1, by_forget_distance, d_logits);
    cumax_backward(M, softmax + M, d_master_gates + M, -1, by_input_distance, d_logits + M);
}
