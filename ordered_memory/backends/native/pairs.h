/* The active pairs of a step, and where M and M̂ of a step are stored (share.h). */

/* Number the pairs of a step, given the first active slot of each row; `pair_row` and `slot_start` may be null. */
static void number_pairs(const Share *s, int64_t t, int64_t rows, int32_t *pair, int32_t *pair_row,
                         int64_t *slot_start) {
    int64_t N = s->p->N, next = 0;
    for (int64_t i = 0; i < N; i++) {
        if (slot_start) slot_start[i] = next;
        for (int64_t r = 0; r < rows; r++) {
            int active = *first_active_of(s, t, r) <= i;
            if (active && pair_row) pair_row[next] = r;
            pair[r * N + i] = active ? (int32_t)next++ : -1;
        }
    }
    if (slot_start) slot_start[N] = next;
}

/* The cell's inputs for the pairs of a step. If only two steps are stored, step t is at index t mod 2. */
static scalar_t *cell_inputs_of(const Share *s, int64_t t) {
    int all_steps = s->p->save && !has_bf16_operands(s->p);
    return s->cell_inputs + (all_steps ? s->step_start[t] : t % 2 * s->R * s->p->N) * 2 * s->p->D;
}

/* Convert the cell's inputs of a step back from bfloat16, for the backward pass. */
static void restore_cell_inputs(Share *s, int64_t t) {
    int64_t D = s->p->D, first = s->step_start[t], size = (s->step_start[t + 1] - first) * 2 * D;
    if (has_bf16_operands(s->p))
        from_bf16(size, operand_row(s, s->bf16_cell_inputs, first, 2 * D), cell_inputs_of(s, t));
}

/* M̂_i after step t, whose pairs are numbered by `pair`; t = -1 is the initial state. */
static const scalar_t *candidate_of(const Share *s, int64_t t, const int32_t *pair, int64_t r, int64_t i) {
    const Pass *p = s->p;
    if (t < 0) return slot_of(s, p->candidate0, r, i);
    if (i == p->N - 1) return token_of(s, p->output, t, r);
    int32_t next = pair[r * p->N + i + 1];
    return next < 0 ? token_of(s, p->inputs, t, r) : cell_inputs_of(s, t) + next * 2 * p->D + p->D;
}

/* M_i after step t, or null if the slot was not active: then ←π_i of step t + 1 is 1, and M_i has no effect. */
static const scalar_t *memory_of(const Share *s, int64_t t, const int32_t *pair, int64_t r, int64_t i) {
    if (t < 0) return slot_of(s, s->p->memory0, r, i);
    int32_t j = pair[r * s->p->N + i];
    return j < 0 ? 0 : cell_inputs_of(s, t) + j * 2 * s->p->D;
}
