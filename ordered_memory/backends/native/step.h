/* Equation (5), and the initial and the final state of a row: what connects two steps; and their gradients. */

/* Compute M of all pairs, as part of the cell's inputs. */
static void update_memory(Share *s, int64_t t) {
    int64_t D = s->p->D, N = s->p->N;
    REAL *inputs = inputs_of(s, t);
    for (int64_t i = 0; i < N; i++)
        for (int64_t j = s->slot_start[i]; j < s->slot_start[i + 1]; j++) {
            int64_t r = s->pair_row[j];
            REAL weight = s->backward[r * N + i];
            REAL *restrict memory = inputs + j * 2 * D;
            const REAL *restrict new = candidate_of(s, t - 1, s->old_pair, r, i);
            const REAL *restrict old = memory_of(s, t - 1, s->old_pair, r, i);
            if (!old)
                memcpy(memory, new, D * sizeof(REAL));
            else
                SIMD for (int64_t d = 0; d < D; d++) memory[d] = old[d] + weight * (new[d] - old[d]);
        }
}

/* Convert the inputs of a step's pairs back from bfloat16 to REAL, for the backward pass. */
static void recall_inputs(Share *s, int64_t t) {
    int64_t D = s->p->D, first = s->start[t];
    if (is_narrow(s->p))
        widen_bf16((s->start[t + 1] - first) * 2 * D, operand(s, s->rounded, first, 2 * D), inputs_of(s, t));
}

/* Backward of `update_memory`: the gradients of M and M̂ of this step become those of the previous step. */
static void memory_backward(Share *s, int64_t t, int64_t r) {
    const Pass *p = s->p;
    int64_t D = p->D, N = p->N, top = *top_of(s, t, r);
    for (int64_t i = 0; i < top; i++) { /* M̂_i was x̃ */
        REAL *d_candidate = s->d_candidate + (r * N + i) * D;
        add(D, d_candidate, token(s, p->d_inputs, t, r));
        memset(d_candidate, 0, D * sizeof(REAL));
        memset(s->d_memory + (r * N + i) * D, 0, D * sizeof(REAL));
        s->d_backward[i] = 0;
    }
    for (int64_t i = top; i < N; i++) {
        REAL *restrict d_memory = s->d_memory + (r * N + i) * D;
        REAL *restrict d_candidate = s->d_candidate + (r * N + i) * D;
        const REAL *restrict new = candidate_of(s, t - 1, s->old_pair, r, i);
        const REAL *restrict old = memory_of(s, t - 1, s->old_pair, r, i);
        REAL weight = s->backward[r * N + i], sum = 0;
        if (!old) {
            memcpy(d_candidate, d_memory, D * sizeof(REAL));
            memset(d_memory, 0, D * sizeof(REAL));
        } else
            SUM(sum) for (int64_t d = 0; d < D; d++) {
                sum += d_memory[d] * (new[d] - old[d]);
                d_candidate[d] = d_memory[d] * weight;
                d_memory[d] -= d_candidate[d];
            }
        s->d_backward[i] = sum;
    }
}

/* Write the state of a row after its last token. In a slot that is not active, M is the candidate of the previous step,
   or the initial M if the memory was empty. */
static void write_state(Share *s, int64_t t, int64_t r) {
    const Pass *p = s->p;
    int64_t N = p->N, size = p->D * sizeof(REAL);
    int empty = s->forward[r * N + N - 1] == 0;
    for (int64_t i = 0; i < N; i++) {
        const REAL *memory = memory_of(s, t, s->pair, r, i);
        if (!memory)
            memory = empty ? memory_of(s, t - 1, s->old_pair, r, i) : candidate_of(s, t - 1, s->old_pair, r, i);
        memcpy(slot_of(s, p->memory, r, i), memory, size);
        memcpy(slot_of(s, p->candidate, r, i), candidate_of(s, t, s->pair, r, i), size);
    }
    REAL *occupancy = p->occupancy + s->row[r] * (N + 1);
    memcpy(occupancy, s->forward + r * N, N * sizeof(REAL));
    occupancy[N] = 1;
}

/* Begin the backward pass of a row at its last token, with the gradients of its final state. */
static void begin_row_backward(Share *s, int64_t r) {
    const Pass *p = s->p;
    int64_t N = p->N, D = p->D, size = N * D * sizeof(REAL), from = s->row[r] * N * D;
    memset(s->d_memory + r * N * D, 0, size);
    memset(s->d_candidate + r * N * D, 0, size);
    memset(s->d_occupancy + r * (N + 1), 0, (N + 1) * sizeof(REAL));
    if (p->d_candidate) memcpy(s->d_candidate + r * N * D, p->d_candidate + from, size);
    if (p->d_memory) memcpy(s->d_memory + r * N * D, p->d_memory + from, size);
    if (p->d_occupancy)
        memcpy(s->d_occupancy + r * (N + 1), p->d_occupancy + s->row[r] * (N + 1), (N + 1) * sizeof(REAL));
}

/* After the backward pass of a row's last step: M_i of the slots that were not active came from the previous step. */
static void end_row_backward(Share *s, int64_t t, int64_t r) {
    const Pass *p = s->p;
    int64_t N = p->N, D = p->D;
    if (!p->d_memory) return;
    int empty = s->forward[r * N + N - 1] == 0;
    for (int64_t i = 0; i < *top_of(s, t, r); i++)
        add(D, slot_of(s, p->d_memory, r, i), (empty ? s->d_memory : s->d_candidate) + (r * N + i) * D);
}

/* The gradients of a row's initial state. */
static void write_state_gradient(Share *s, int64_t r) {
    const Pass *p = s->p;
    int64_t N = p->N, D = p->D;
    memcpy(slot_of(s, p->d_memory0, r, 0), s->d_memory + r * N * D, N * D * sizeof(REAL));
    memcpy(slot_of(s, p->d_candidate0, r, 0), s->d_candidate + r * N * D, N * D * sizeof(REAL));
    memcpy(p->d_occupancy0 + s->row[r] * (N + 1), s->d_occupancy + r * (N + 1), (N + 1) * sizeof(REAL));
}
