/* The master gates, f̃ = cumax(·) and ĩ = 1 - cumax(·), and their gradients. */

static void softmax(int64_t size, REAL *values) {
    REAL largest = -INFINITY, total = 0;
    for (int64_t m = 0; m < size; m++) largest = values[m] > largest ? values[m] : largest;
    SIMD for (int64_t m = 0; m < size; m++) values[m] = EXP(values[m] - largest);
    SUM(total) for (int64_t m = 0; m < size; m++) total += values[m];
    REAL scale = 1 / total;
    SIMD for (int64_t m = 0; m < size; m++) values[m] *= scale;
}

/* Collect the logits of both master gates from all parts of a row of gates. */
static void gather_logits(const Pass *p, const REAL *gates, REAL *logits) {
    for (int64_t part = 0; part < p->parts; part++) {
        int64_t first = first_chunk(p, part), count = first_chunk(p, part + 1) - first;
        const REAL *from = gates + first_column(p, part) + 4 * count * p->C;
        memcpy(logits + first, from, count * sizeof(REAL));
        memcpy(logits + p->M + first, from + count, count * sizeof(REAL));
    }
}

/* f̃ and ĩ of the units of the chunks from `first` to `last`, and the sums of f̃ and ĩ over all chunks. */
static void expand_master_gates(const Pass *p, const REAL *restrict softmax, int64_t first, int64_t last,
                                REAL *restrict forget, REAL *restrict input, REAL *sums) {
    REAL f = 0, i = 0;
    sums[0] = sums[1] = 0;
    for (int64_t m = 0; m < p->M; m++) {
        f += softmax[m];
        i += softmax[p->M + m];
        sums[0] += f;
        sums[1] += 1 - i;
        if (m < first || m >= last) continue;
        for (int64_t c = 0; c < p->C; c++) {
            *forget++ = f;
            *input++ = 1 - i;
        }
    }
}

/* The gradients of the logits, given that the gradient of their cumax is sign * (d_master + more). */
static void cumax_backward(int64_t M, const REAL *restrict softmax, const REAL *restrict d_master, REAL sign,
                           REAL more, REAL *restrict d_logits) {
    REAL sum = 0, mean = 0;
    for (int64_t m = M; m-- > 0;) d_logits[m] = sign * (sum += d_master[m] + more);
    SUM(mean) for (int64_t m = 0; m < M; m++) mean += softmax[m] * d_logits[m];
    SIMD for (int64_t m = 0; m < M; m++) d_logits[m] = softmax[m] * (d_logits[m] - mean);
}

/* The gradients of the logits of both master gates, for a row of step t. */
static void master_gates_backward(const Pass *p, int64_t t, int64_t row) {
    int64_t M = p->M, token = p->start[t] + row;
    const REAL *softmax = p->softmax + token * 2 * M, *d_masters = p->d_masters + row * 2 * M;
    REAL *d_logits = p->d_gates + token * p->G + 4 * p->H;
    /* A distance is M minus the sum of the gate. */
    REAL of_forget = p->d_forget_distance ? -p->d_forget_distance[token] : 0;
    REAL of_input = p->d_input_distance ? -p->d_input_distance[token] : 0;
    cumax_backward(M, softmax, d_masters, 1, of_forget, d_logits);
    cumax_backward(M, softmax + M, d_masters + M, -1, of_input, d_logits + M);
}
