/* The Gated Recursive Cell (Ordered Memory, §3.2), its LayerNorm, and equation (7), for the rows of one slot at a time:

       hidden = relu(W1 [M_i; M̂_{i-1}] + b1);  [g_m; g_c; g_u; u] = W2 hidden + b2;
       o = LN(σ(g_m) M_i + σ(g_c) M̂_{i-1} + σ(g_u) u);  M̂_i = x̃ (1 - →π_i) + o →π_i.

   `gates` are σ(g_m), σ(g_c), σ(g_u) and u. */

/* The index on the tape of a slot's first pair; without a tape the matrices have this slot only. */
static int64_t tape_index(const Share *s, int64_t t, int64_t i) {
    return s->p->save ? s->step_start[t] + s->slot_start[i] : 0;
}

/* Complete the cell's inputs: M̂_{i-1} is x̃ for the rows whose first active slot is i. Apply dropout. Returns the
   inputs as an operand. */
static const void *cell_operand(Share *s, int64_t t, int64_t i) {
    const Pass *p = s->p;
    int64_t D = p->D, begin = s->slot_start[i], count = s->slot_start[i + 1] - begin, saved = tape_index(s, t, i);
    scalar_t *inputs = cell_inputs_of(s, t) + begin * 2 * D;
    const void *operand = has_bf16_operands(p) ? operand_row(s, s->bf16_cell_inputs, saved, 2 * D) : inputs;
    for (int64_t k = 0; k < count; k++) {
        int64_t r = s->pair_row[begin + k];
        scalar_t *input = inputs + k * 2 * D;
        if (*first_active_of(s, t, r) == i) memcpy(input + D, token_of(s, p->inputs, t, r), D * sizeof(scalar_t));
        store_row(s, s->bf16_cell_inputs, saved + k, 2 * D, input);
        if (!dropout_mask(s, CELL_INPUT, t, r, i, 2 * D, s->mask)) continue;
        scalar_t *restrict masked = row_to_compute(s, s->masked_cell_inputs, k, 2 * D, s->unrounded_row);
        SIMD for (int64_t d = 0; d < 2 * D; d++) masked[d] = input[d] * s->mask[d];
        store_row(s, s->masked_cell_inputs, k, 2 * D, masked);
        operand = s->masked_cell_inputs;
    }
    return operand;
}

/* Compute the hidden units of the active rows of slot i. */
static void compute_hidden(Share *s, int64_t t, int64_t i) {
    const Pass *p = s->p;
    int64_t D = p->D, begin = s->slot_start[i], count = s->slot_start[i + 1] - begin, saved = tape_index(s, t, i);
    scalar_t *rows = row_to_compute(s, s->hidden, saved, 4 * D, s->unrounded_rows);
    multiply_forward(s, count, 4 * D, 2 * D, cell_operand(s, t, i), p->w_in, s->packed.w_in, p->bf16_w_in_t, rows);
    for (int64_t k = 0; k < count; k++) {
        scalar_t *restrict hidden = rows + k * 4 * D;
        const scalar_t *restrict bias = p->b_in;
        SIMD for (int64_t d = 0; d < 4 * D; d++) {
            scalar_t sum = hidden[d] + bias[d];
            hidden[d] = sum < 0 ? 0 : sum; /* NaN remains, as in torch.relu */
        }
        apply_dropout(s, HIDDEN, t, s->pair_row[begin + k], i, 4 * D, hidden);
        store_row(s, s->hidden, saved + k, 4 * D, hidden);
    }
}

/* Compute M̂_i of the active rows of slot i. */
static void compose(Share *s, int64_t t, int64_t i) {
    const Pass *p = s->p;
    int64_t D = p->D, N = p->N, begin = s->slot_start[i], count = s->slot_start[i + 1] - begin;
    int64_t saved = tape_index(s, t, i);
    compute_hidden(s, t, i);
    const void *hidden = operand_row(s, s->hidden, saved, 4 * D);
    scalar_t *rows = row_to_compute(s, s->gates, saved, 4 * D, s->unrounded_rows), *restrict composed = s->composed;
    multiply_forward(s, count, 4 * D, 4 * D, hidden, p->w_out, s->packed.w_out, p->bf16_w_out_t, rows);
    for (int64_t k = 0; k < count; k++) {
        int64_t r = s->pair_row[begin + k];
        scalar_t *restrict gates = rows + k * 4 * D;
        const scalar_t *restrict memory = cell_inputs_of(s, t) + (begin + k) * 2 * D, *restrict above = memory + D;
        const scalar_t *restrict bias = p->b_out, *restrict x = token_of(s, p->inputs, t, r);
        SIMD for (int64_t d = 0; d < 3 * D; d++) gates[d] = sigmoid(gates[d] + bias[d]);
        SIMD for (int64_t d = 0; d < D; d++) {
            gates[3 * D + d] += bias[3 * D + d];
            composed[d] = gates[d] * memory[d] + gates[D + d] * above[d] + gates[2 * D + d] * gates[3 * D + d];
        }
        scalar_t mean, rstd, forward_pi = s->forward_pi[r * N + i];
        layer_norm_statistics(D, composed, p->norm_epsilon, &mean, &rstd);
        scalar_t *restrict candidate = (scalar_t *)candidate_of(s, t, s->pair, r, i);
        SIMD for (int64_t d = 0; d < D; d++) {
            scalar_t normalized = (composed[d] - mean) * rstd * p->norm[d] + p->norm_bias[d];
            candidate[d] = x[d] + forward_pi * (normalized - x[d]);
        }
        store_row(s, s->gates, saved + k, 4 * D, gates);
    }
}

/* Backward of equation (7), the LayerNorm and the gates, for pair j of the step: writes the gradient of the cell's
   result before the LayerNorm, and that of W2 hidden + b2. */
static void gates_backward(Share *s, int64_t t, int64_t i, int64_t j, scalar_t *restrict d_composed,
                           scalar_t *restrict d_gates) {
    const Pass *p = s->p;
    int64_t D = p->D, N = p->N, r = s->pair_row[j];
    /* The buffer of a dropout mask holds the gates if they have to be unrounded: no mask is in use here. */
    const scalar_t *restrict gates = load_row(s, s->gates, s->step_start[t] + j, 4 * D, s->mask);
    const scalar_t *restrict memory = cell_inputs_of(s, t) + j * 2 * D, *restrict above = memory + D;
    const scalar_t *restrict x = token_of(s, p->inputs, t, r);
    const scalar_t *restrict d_candidate = s->d_candidate + (r * N + i) * D;
    scalar_t *restrict composed = s->composed, *restrict d_x = token_of(s, p->d_inputs, t, r);
    scalar_t mean, rstd, forward_pi = s->forward_pi[r * N + i], d_forward_pi = 0;
    SIMD for (int64_t d = 0; d < D; d++)
        composed[d] = gates[d] * memory[d] + gates[D + d] * above[d] + gates[2 * D + d] * gates[3 * D + d];
    layer_norm_statistics(D, composed, p->norm_epsilon, &mean, &rstd);
    SIMD_SUM(d_forward_pi) for (int64_t d = 0; d < D; d++) {
        scalar_t normalized = (composed[d] - mean) * rstd * p->norm[d] + p->norm_bias[d];
        d_forward_pi += d_candidate[d] * (normalized - x[d]);
        d_composed[d] = d_candidate[d] * forward_pi;
        d_x[d] += d_candidate[d] - d_composed[d];
    }
    s->d_forward_pi[j] = d_forward_pi;
    layer_norm_backward(D, composed, mean, rstd, p->norm, d_composed, s->d_norm, s->d_norm_bias);
    SIMD for (int64_t d = 0; d < D; d++) {
        scalar_t gradient = d_composed[d], memory_gate = gates[d], above_gate = gates[D + d];
        scalar_t update_gate = gates[2 * D + d];
        d_gates[d] = gradient * memory[d] * memory_gate * (1 - memory_gate);
        d_gates[D + d] = gradient * above[d] * above_gate * (1 - above_gate);
        d_gates[2 * D + d] = gradient * gates[3 * D + d] * update_gate * (1 - update_gate);
        d_gates[3 * D + d] = gradient * update_gate;
    }
    add_into(4 * D, d_gates, s->d_b_out);
}

/* Backward of W2 and relu, given `d_gates`: writes the gradient of W1 [M_i; M̂_{i-1}] + b1, `d_hidden` from row `at`. */
static void hidden_backward(Share *s, int64_t t, int64_t i, int64_t at) {
    const Pass *p = s->p;
    int64_t D = p->D, begin = s->slot_start[i], count = s->slot_start[i + 1] - begin, saved = tape_index(s, t, i);
    const void *d_gates = operand_row(s, s->d_gates, at, 4 * D);
    scalar_t *rows = row_to_compute(s, s->d_hidden, at, 4 * D, s->unrounded_rows);
    multiply_by_weight(s, count, 4 * D, 4 * D, d_gates, s->packed.w_out, p->bf16_w_out, rows);
    for (int64_t k = 0; k < count; k++) {
        scalar_t *restrict d_hidden = rows + k * 4 * D;
        const scalar_t *restrict hidden = load_row(s, s->hidden, saved + k, 4 * D, s->unrounded_row);
        SIMD for (int64_t d = 0; d < 4 * D; d++) d_hidden[d] = hidden[d] <= 0 ? 0 : d_hidden[d];
        /* A drawn mask is 0 or 1, and where it was 0, hidden units are 0. */
        if (p->hidden_mask) apply_dropout(s, HIDDEN, t, s->pair_row[begin + k], i, 4 * D, d_hidden);
        add_into(4 * D, d_hidden, s->d_b_in);
        store_row(s, s->d_hidden, at + k, 4 * D, d_hidden);
    }
}

/* Backward of `compose`: adds to the gradients of M_i, M̂_{i-1} and x̃. The operands of this step's weight gradients are
   written from row `first_row` on, to `d_gates`, `d_hidden` and `masked_cell_inputs`. */
static void compose_backward(Share *s, int64_t t, int64_t i, int64_t first_row) {
    const Pass *p = s->p;
    int64_t D = p->D, N = p->N, begin = s->slot_start[i], count = s->slot_start[i + 1] - begin;
    int64_t saved = tape_index(s, t, i), at = first_row + begin;
    for (int64_t k = 0; k < count; k++) {
        scalar_t *d_gates = row_to_compute(s, s->d_gates, at + k, 4 * D, s->unrounded_row);
        gates_backward(s, t, i, begin + k, s->d_composed + k * D, d_gates);
        store_row(s, s->d_gates, at + k, 4 * D, d_gates);
    }
    hidden_backward(s, t, i, at);
    const void *d_hidden = operand_row(s, s->d_hidden, at, 4 * D);
    multiply_by_weight(s, count, 2 * D, 4 * D, d_hidden, s->packed.w_in, p->bf16_w_in, s->d_cell_inputs);
    for (int64_t k = 0; k < count; k++) {
        int64_t r = s->pair_row[begin + k];
        const scalar_t *restrict input = cell_inputs_of(s, t) + (begin + k) * 2 * D;
        scalar_t *restrict d_input = s->d_cell_inputs + k * 2 * D;
        scalar_t *restrict masked = row_to_compute(s, s->masked_cell_inputs, at + k, 2 * D, s->unrounded_row);
        if (dropout_mask(s, CELL_INPUT, t, r, i, 2 * D, s->mask)) {
            multiply_into(2 * D, s->mask, d_input);
            SIMD for (int64_t d = 0; d < 2 * D; d++) masked[d] = input[d] * s->mask[d];
        } else
            memcpy(masked, input, 2 * D * sizeof(scalar_t));
        store_row(s, s->masked_cell_inputs, at + k, 2 * D, masked);
        const scalar_t *restrict d_composed = s->d_composed + k * D;
        /* As in `gates_backward`, in the buffer of a mask: `masked` may be in that of a row. */
        const scalar_t *restrict gates = load_row(s, s->gates, saved + k, 4 * D, s->mask);
        scalar_t *restrict d_memory = s->d_memory + (r * N + i) * D;
        scalar_t *restrict d_above = i ? s->d_candidate + (r * N + i - 1) * D : token_of(s, p->d_inputs, t, r);
        SIMD for (int64_t d = 0; d < D; d++) {
            d_memory[d] += d_input[d] + d_composed[d] * gates[d];
            d_above[d] += d_input[D + d] + d_composed[d] * gates[D + d];
        }
    }
}

/* Add to the gradients of W1 and W2 what `num_pending` pairs contribute. `first_row` is their first row in `d_gates`,
   `d_hidden` and `masked_cell_inputs`, and `first_saved` is their first row in the hidden units on the tape. */
static void add_cell_weight_gradients(const Share *s, int64_t first_row, int64_t num_pending, int64_t first_saved) {
    int64_t D = s->p->D;
    const void *d_gates = operand_row(s, s->d_gates, first_row, 4 * D);
    const void *hidden = operand_row(s, s->hidden, first_saved, 4 * D);
    add_weight_gradient(s, 4 * D, 4 * D, num_pending, d_gates, hidden, s->d_w_out);
    const void *d_hidden = operand_row(s, s->d_hidden, first_row, 4 * D);
    const void *inputs = operand_row(s, s->masked_cell_inputs, first_row, 2 * D);
    add_weight_gradient(s, 4 * D, 2 * D, num_pending, d_hidden, inputs, s->d_w_in);
}
