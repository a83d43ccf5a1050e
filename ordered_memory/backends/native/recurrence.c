/* Forward and backward pass of Ordered Memory; see __init__.py for an overview and arguments.h for the arguments.

   Sequences are independent, so a thread runs a pass over its share of them without waiting for the other threads.
   Equations and notation are those of ordered_memory/memory.py. The headers are compiled together with this file.
   Matrix products may have bfloat16 operands: then each row is rounded once, when it is computed, and the rows saved
   for the backward pass are bfloat16; all other numbers are scalar_t, float or double. */

#include "common.h"
#include "bf16.h"
#include "gemm.h"
#include "team.h"

#include "arguments.h"
#include "share.h"
#include "products.h"
#include "pairs.h"
#include "vector_ops.h"
#include "dropout.h"
#include "attention.h"
#include "cell.h"
#include "state.h"

/* The forward pass of one share. */
static void forward_share(const Pass *p, int64_t number) {
    Share share = share_of(p, number, 0), *s = &share;
    int64_t N = p->N, rows = rows_at(s, 0);
    for (int64_t r = 0; r < rows; r++)
        memcpy(s->occupancy + r * (N + 1), p->occupancy0 + s->sequence[r] * (N + 1), (N + 1) * sizeof(scalar_t));
    s->step_start[0] = 0;
    for (int64_t t = 0; rows; t++) {
        attend(s, t, rows);
        number_pairs(s, t, rows, s->pair, s->pair_row, s->slot_start);
        s->step_start[t + 1] = s->step_start[t] + s->slot_start[N];
        update_memory(s, t);
        for (int64_t r = 0; r < rows; r++)
            if (*first_active_of(s, t, r) == N) /* M̂_N = x̃ */
                memcpy(token_of(s, p->output, t, r), token_of(s, p->inputs, t, r), p->D * sizeof(scalar_t));
        for (int64_t i = 0; i < N; i++)
            if (s->slot_start[i + 1] > s->slot_start[i]) compose(s, t, i);
        int64_t next_rows = rows_at(s, t + 1);
        for (int64_t r = next_rows; r < rows; r++) write_state(s, t, r);
        for (int64_t r = 0; r < next_rows; r++) {
            memcpy(s->occupancy + r * (N + 1), s->forward_pi + r * N, N * sizeof(scalar_t));
            s->occupancy[r * (N + 1) + N] = 1;
        }
        int32_t *swap = s->pair;
        s->pair = s->previous_pair;
        s->previous_pair = swap;
        rows = next_rows;
    }
}

/* Count the pairs of all steps: `step_start`, for the backward pass. */
static void restore_step_start(Share *s, int64_t steps) {
    s->step_start[0] = 0;
    for (int64_t t = 0; t < steps; t++) {
        s->step_start[t + 1] = s->step_start[t];
        for (int64_t r = 0, rows = rows_at(s, t); r < rows; r++)
            s->step_start[t + 1] += s->p->N - *first_active_of(s, t, r);
    }
}

/* The backward pass of one share. The operands of the cell's weight gradients are collected in buffers for `capacity`
   pairs, which are filled from the end, and multiplied when the buffers are full. */
static void backward_share(const Pass *p, int64_t number) {
    Share share = share_of(p, number, 1), *s = &share;
    int64_t N = p->N, D = p->D, capacity = MAX_PENDING + s->R * N, num_pending = 0, steps = s->R ? s->length[0] : 0;
    restore_step_start(s, steps);
    if (steps) restore_cell_inputs(s, steps - 1);
    for (int64_t t = steps; t-- > 0;) {
        int64_t rows = rows_at(s, t), next_rows = rows_at(s, t + 1), pairs = s->step_start[t + 1] - s->step_start[t];
        number_pairs(s, t, rows, s->pair, s->pair_row, s->slot_start);
        if (t) {
            number_pairs(s, t - 1, rows_at(s, t - 1), s->previous_pair, 0, 0);
            restore_cell_inputs(s, t - 1);
        }
        restore_masks(s, t, rows);
        for (int64_t r = next_rows; r < rows; r++) begin_row_backward(s, r);
        for (int64_t r = 0; p->d_output && r < rows; r++)
            add_into(D, token_of(s, p->d_output, t, r), s->d_candidate + (r * N + N - 1) * D);
        if (num_pending + pairs > capacity) {
            add_cell_weight_gradients(s, capacity - num_pending, num_pending, s->step_start[t + 1]);
            num_pending = 0;
        }
        num_pending += pairs;
        for (int64_t i = N; i-- > 0;)
            if (s->slot_start[i + 1] > s->slot_start[i]) compose_backward(s, t, i, capacity - num_pending);
        for (int64_t r = 0; r < rows; r++) {
            memory_backward(s, t, r);
            attention_backward(s, t, r);
        }
        for (int64_t r = next_rows; r < rows; r++) inactive_memory_backward(s, t, r);
        scores_backward(s, t, rows);
    }
    add_cell_weight_gradients(s, capacity - num_pending, num_pending, s->step_start[0]);
    for (int64_t r = 0, rows = rows_at(s, 0); r < rows; r++) write_state_gradient(s, r);
}

/* Pack a weight (k, n); with `transposed`, the transpose of a weight (n, k). `bf16_transpose` is the transpose of the
   matrix (k, n) in bfloat16: its rows, of even size, are rows of VNNI elements. */
static void pack_weight(const Pass *p, int transposed, int64_t k, int64_t n, const scalar_t *weight,
                        const bf16_t *bf16_transpose, scalar_t *packed) {
    if (p->bf16_vnni) pack_transposed(k / 2, n, (const scalar_t *)bf16_transpose, packed);
    else if (transposed) pack_transposed(k, n, weight, packed);
    else pack(k, n, weight, n, packed);
}

/* Pack the weights before a pass: the transposes for the forward pass, as a linear map computes x W'. Each thread packs
   one or more of the three. */
static void pack_weights(const Pass *p, int64_t thread, int64_t threads, int is_backward_pass) {
    PackedWeights packed;
    int64_t D = p->D, in = is_backward_pass ? 4 * D : 2 * D, out = is_backward_pass ? 2 * D : 4 * D;
    const bf16_t *bf16_w_out = is_backward_pass ? p->bf16_w_out_t : p->bf16_w_out;
    const bf16_t *bf16_w_in = is_backward_pass ? p->bf16_w_in_t : p->bf16_w_in;
    assign_packed(p, &packed, (char *)p->workspace, is_backward_pass);
    for (int64_t weight = thread; weight < 3; weight += threads)
        switch (weight) {
        case 0:
            pack_weight(p, !is_backward_pass, 4 * D, 4 * D, p->w_out, bf16_w_out, packed.w_out);
            break;
        case 1:
            pack_weight(p, !is_backward_pass, in, out, p->w_in, bf16_w_in, packed.w_in);
            break;
        case 2:
            if (!few_tokens(p)) pack_weight(p, 1, D, D, p->key, p->bf16_key, packed.key_t);
            if (is_backward_pass) pack_weight(p, 0, D, D, p->key, p->bf16_key_t, packed.key);
        }
}

void pack_for_forward(const void *arguments, int64_t thread, int64_t threads) {
    if (!few_tokens(arguments)) pack_weights(arguments, thread, threads, 0);
}

void pack_for_backward(const void *arguments, int64_t thread, int64_t threads) {
    pack_weights(arguments, thread, threads, 1);
}

/* Run by each thread of the team. With fewer threads than shares, a thread runs several shares. */
void forward(const void *arguments, int64_t thread, int64_t threads) {
    const Pass *p = arguments;
    for (int64_t share = thread; share < p->shares; share += threads) forward_share(p, share);
}

void backward(const void *arguments, int64_t thread, int64_t threads) {
    const Pass *p = arguments;
    for (int64_t share = thread; share < p->shares; share += threads) backward_share(p, share);
}
