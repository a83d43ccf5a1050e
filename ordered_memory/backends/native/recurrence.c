/* Forward and backward pass of Ordered Memory; see __init__.py for an overview and arguments.h for the arguments.

   Sequences are independent, so a thread runs a pass over its share of them without waiting for the other threads.
   Equations and notation are those of ordered_memory/memory.py. The headers are compiled together with this file.
   Matrix products may have bfloat16 operands: then each row is rounded once, when it is computed, and the rows saved
   for the backward pass are bfloat16; all other numbers are REAL. */

#include "arguments.h"
#include "packed.h"
#include "share.h"
#include "operands.h"
#include "product.h"
#include "rows.h"
#include "attention.h"
#include "cell.h"
#include "step.h"

/* The forward pass of one share. */
static void forward_share(const Pass *p, int64_t number) {
    Share share = share_of(p, number, 0), *s = &share;
    int64_t N = p->N, rows = running(s, 0);
    for (int64_t r = 0; r < rows; r++)
        memcpy(s->occupancy + r * (N + 1), p->occupancy0 + s->row[r] * (N + 1), (N + 1) * sizeof(REAL));
    s->start[0] = 0;
    for (int64_t t = 0; rows; t++) {
        attend(s, t, rows);
        number_pairs(s, t, rows, s->pair, s->pair_row, s->slot_start);
        s->start[t + 1] = s->start[t] + s->slot_start[N];
        update_memory(s, t);
        for (int64_t r = 0; r < rows; r++)
            if (*top_of(s, t, r) == N)
                memcpy(token(s, p->output, t, r), token(s, p->inputs, t, r), p->D * sizeof(REAL));
        for (int64_t i = 0; i < N; i++)
            if (s->slot_start[i + 1] > s->slot_start[i]) compose(s, t, i);
        int64_t still = running(s, t + 1);
        for (int64_t r = still; r < rows; r++) write_state(s, t, r);
        for (int64_t r = 0; r < still; r++) {
            memcpy(s->occupancy + r * (N + 1), s->forward + r * N, N * sizeof(REAL));
            s->occupancy[r * (N + 1) + N] = 1;
        }
        int32_t *swap = s->pair;
        s->pair = s->old_pair;
        s->old_pair = swap;
        rows = still;
    }
}

/* The backward pass of one share. Weight gradients are accumulated. */
static void backward_share(const Pass *p, int64_t number) {
    Share share = share_of(p, number, 1), *s = &share;
    int64_t N = p->N, D = p->D, most = PENDING + s->R * N, pending = 0, steps = s->R ? s->length[0] : 0;
    s->start[0] = 0;
    for (int64_t t = 0; t < steps; t++) {
        s->start[t + 1] = s->start[t];
        for (int64_t r = 0, rows = running(s, t); r < rows; r++) s->start[t + 1] += N - *top_of(s, t, r);
    }
    if (steps) recall_inputs(s, steps - 1);
    for (int64_t t = steps; t-- > 0;) {
        int64_t rows = running(s, t), ending = running(s, t + 1), pairs = s->start[t + 1] - s->start[t];
        number_pairs(s, t, rows, s->pair, s->pair_row, s->slot_start);
        if (t) {
            number_pairs(s, t - 1, running(s, t - 1), s->old_pair, 0, 0);
            recall_inputs(s, t - 1);
        }
        recall_masks(s, t, rows);
        for (int64_t r = ending; r < rows; r++) begin_row_backward(s, r);
        for (int64_t r = 0; p->d_output && r < rows; r++)
            add(D, token(s, p->d_output, t, r), s->d_candidate + (r * N + N - 1) * D);
        if (pending + pairs > most) {
            add_weight_gradients(s, most - pending, pending, s->start[t + 1]);
            pending = 0;
        }
        pending += pairs;
        for (int64_t i = N; i-- > 0;)
            if (s->slot_start[i + 1] > s->slot_start[i]) compose_backward(s, t, i, most - pending);
        for (int64_t r = 0; r < rows; r++) {
            memory_backward(s, t, r);
            attention_backward(s, t, r);
        }
        for (int64_t r = ending; r < rows; r++) end_row_backward(s, t, r);
        scores_backward(s, t, rows);
    }
    add_weight_gradients(s, most - pending, pending, s->start[0]);
    for (int64_t r = 0, rows = running(s, 0); r < rows; r++) write_state_gradient(s, r);
}

/* Pack a matrix (k, n) for products: in the forward pass, the transpose of a weight. `rounded` is the transpose of the
   matrix in bfloat16. */
static void pack_matrix(const Pass *p, int reverse, int64_t k, int64_t n, const REAL *weight, const bf16_t *rounded,
                        REAL *to) {
    if (p->pairs) pack_transpose(k / 2, n, (const REAL *)rounded, to);
    else if (reverse) pack(k, n, weight, n, to);
    else pack_transpose(k, n, weight, to);
}

/* Run by the team before a pass: each thread packs one or more of the three matrices. */
static void pack_matrices(const Pass *p, int64_t thread, int64_t threads, int reverse) {
    Packed to;
    int64_t D = p->D, up = reverse ? 4 * D : 2 * D, across = reverse ? 2 * D : 4 * D;
    lay_out_packed(p, &to, (char *)p->scratch, reverse);
    for (int64_t matrix = thread; matrix < 3; matrix += threads)
        switch (matrix) {
        case 0: pack_matrix(p, reverse, 4 * D, 4 * D, p->w_out, reverse ? p->bf16_w_out_t : p->bf16_w_out, to.w_out); break;
        case 1: pack_matrix(p, reverse, up, across, p->w_in, reverse ? p->bf16_w_in_t : p->bf16_w_in, to.w_in); break;
        case 2:
            pack_matrix(p, 0, D, D, p->key, p->bf16_key, to.key_t);
            if (reverse) pack_matrix(p, 1, D, D, p->key, p->bf16_key_t, to.key);
        }
}

void pack_for_forward(const void *arguments, int64_t thread, int64_t threads) {
    pack_matrices(arguments, thread, threads, 0);
}

void pack_for_backward(const void *arguments, int64_t thread, int64_t threads) {
    pack_matrices(arguments, thread, threads, 1);
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
