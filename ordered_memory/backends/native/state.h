/* What connects two steps: equation (5), the initial and the final state of a row; and the backward pass. */

/* M_i = M_i[t-1] (1 - ←π_i) + M̂_i[t-1] ←π_i for all active pairs, equation (5): half of the cell's inputs. */
static void update_memory(Share *s, int64_t t) {
    int64_t D = s->p->D, N = s->p->N;
    scalar_t *inputs = cell_inputs_of(s, t);
    for (int64_t i = 0; i < N; i++)
        for (int64_t j = s->slot_start[i]; j < s->slot_start[i + 1]; j++) {
            int64_t r = s->pair_row[j];
            scalar_t backward_pi = s->backward_pi[r * N + i];
            scalar_t *restrict memory = inputs + j * 2 * D;
            const scalar_t *restrict old_candidate = candidate_of(s, t - 1, s->previous_pair, r, i);
            const scalar_t *restrict old_memory = memory_of(s, t - 1, s->previous_pair, r, i);
            if (!old_memory)
                memcpy(memory, old_candidate, D * sizeof(scalar_t));
            else
                SIMD for (int64_t d = 0; d < D; d++)
                    memory[d] = old_memory[d] + backward_pi * (old_candidate[d] - old_memory[d]);
        }
}

/* Backward of `update_memory` for a row: turns the gradients of M and M̂ of this step into those of the previous step,
   and writes the gradients of ←π. */
static void memory_backward(Share *s, int64_t t, int64_t r) {
    const Pass *p = s->p;
    int64_t D = p->D, N = p->N, first_active = *first_active_of(s, t, r);
    for (int64_t i = 0; i < first_active; i++) { /* M̂_i was x̃ */
        scalar_t *d_candidate = s->d_candidate + (r * N + i) * D;
        add_into(D, d_candidate, token_of(s, p->d_inputs, t, r));
        memset(d_candidate, 0, D * sizeof(scalar_t));
        memset(s->d_memory + (r * N + i) * D, 0, D * sizeof(scalar_t));
        s->d_backward_pi[i] = 0;
    }
    for (int64_t i = first_active; i < N; i++) {
        scalar_t *restrict d_memory = s->d_memory + (r * N + i) * D;
        scalar_t *restrict d_candidate = s->d_candidate + (r * N + i) * D;
        const scalar_t *restrict old_candidate = candidate_of(s, t - 1, s->previous_pair, r, i);
        const scalar_t *restrict old_memory = memory_of(s, t - 1, s->previous_pair, r, i);
        scalar_t backward_pi = s->backward_pi[r * N + i], d_backward_pi = 0;
        if (!old_memory) {
            memcpy(d_candidate, d_memory, D * sizeof(scalar_t));
            memset(d_memory, 0, D * sizeof(scalar_t));
        } else
            SIMD_SUM(d_backward_pi) for (int64_t d = 0; d < D; d++) {
                d_backward_pi += d_memory[d] * (old_candidate[d] - old_memory[d]);
                d_candidate[d] = d_memory[d] * backward_pi;
                d_memory[d] -= d_candidate[d];
            }
        s->d_backward_pi[i] = d_backward_pi;
    }
}

/* Whether the memory was empty at the step, so that there was nothing to attend to. Then p = 0, and M does
   not change. */
static int nothing_attended(const Share *s, int64_t r) { return s->forward_pi[r * s->p->N + s->p->N - 1] == 0; }

/* Write the state of a row after its last token. In a slot that is not active, M is the candidate of the previous step,
   or the initial M if the memory was empty. */
static void write_state(Share *s, int64_t t, int64_t r) {
    const Pass *p = s->p;
    int64_t N = p->N, size = p->D * sizeof(scalar_t);
    for (int64_t i = 0; i < N; i++) {
        const scalar_t *memory = memory_of(s, t, s->pair, r, i);
        if (!memory)
            memory = nothing_attended(s, r) ? memory_of(s, t - 1, s->previous_pair, r, i)
                                            : candidate_of(s, t - 1, s->previous_pair, r, i);
        memcpy(slot_of(s, p->memory, r, i), memory, size);
        memcpy(slot_of(s, p->candidate, r, i), candidate_of(s, t, s->pair, r, i), size);
    }
    scalar_t *occupancy = p->occupancy + s->sequence[r] * (N + 1);
    memcpy(occupancy, s->forward_pi + r * N, N * sizeof(scalar_t));
    occupancy[N] = 1;
}

/* Begin the backward pass of a row at its last token, with the gradients of its final state. */
static void begin_row_backward(Share *s, int64_t r) {
    const Pass *p = s->p;
    int64_t N = p->N, D = p->D, size = N * D * sizeof(scalar_t), from = s->sequence[r] * N * D;
    memset(s->d_memory + r * N * D, 0, size);
    memset(s->d_candidate + r * N * D, 0, size);
    memset(s->d_occupancy + r * (N + 1), 0, (N + 1) * sizeof(scalar_t));
    if (p->d_candidate) memcpy(s->d_candidate + r * N * D, p->d_candidate + from, size);
    if (p->d_memory) memcpy(s->d_memory + r * N * D, p->d_memory + from, size);
    if (p->d_occupancy)
        memcpy(s->d_occupancy + r * (N + 1), p->d_occupancy + s->sequence[r] * (N + 1), (N + 1) * sizeof(scalar_t));
}

/* After the backward pass of a row's last token: in slots that were not active, the final M came from the previous step
   (`write_state`), and so its gradient goes there. */
static void inactive_memory_backward(Share *s, int64_t t, int64_t r) {
    const Pass *p = s->p;
    int64_t N = p->N, D = p->D;
    if (!p->d_memory) return;
    scalar_t *to = nothing_attended(s, r) ? s->d_memory : s->d_candidate;
    for (int64_t i = 0; i < *first_active_of(s, t, r); i++)
        add_into(D, slot_of(s, p->d_memory, r, i), to + (r * N + i) * D);
}

/* Write the gradients of a row's initial state. */
static void write_state_gradient(Share *s, int64_t r) {
    const Pass *p = s->p;
    int64_t N = p->N, D = p->D;
    memcpy(slot_of(s, p->d_memory0, r, 0), s->d_memory + r * N * D, N * D * sizeof(scalar_t));
    memcpy(slot_of(s, p->d_candidate0, r, 0), s->d_candidate + r * N * D, N * D * sizeof(scalar_t));
    memcpy(p->d_occupancy0 + s->sequence[r] * (N + 1), s->d_occupancy + r * (N + 1), (N + 1) * sizeof(scalar_t));
}
