/* Forward and backward pass of ON-LSTM, for one thread of a team; see __init__.py for an overview.

   A thread computes some of the parts (parts.h) of the units, for all sequences. A matrix product reads the results of
   all threads, so they synchronize twice per step. A team may have fewer threads than parts; then a thread computes
   parts `thread`, `thread + threads`, … */

#include "common.h"
#include "bf16.h"
#include "gemm.h"
#include "team.h"

#include "arguments.h"
#include "barrier.h"
#include "parts.h"
#include "master_gates.h"
#include "step.h"

enum { BLOCK = 256 }; /* number of tokens in one product with W if nothing is saved */
const int64_t block_tokens = BLOCK;

/* The rows of the weights that belong to a part, in the order of its columns: six ranges, of i, f, ĉ, o, f̃ and ĩ. */
enum { GATES = 6 };
typedef struct {
    int64_t first[GATES], size[GATES];
} WeightRows;

static WeightRows weight_rows(const Pass *p, int64_t part) {
    WeightRows rows;
    for (int64_t gate = 0; gate < GATES; gate++) {
        int is_master = gate >= 4;
        rows.first[gate] =
            is_master ? 4 * p->H + (gate - 4) * p->M + first_chunk(p, part) : gate * p->H + first_unit(p, part);
        rows.size[gate] = is_master ? num_chunks(p, part) : num_units(p, part);
    }
    return rows;
}

/* Pack the rows of a weight (G, k) that belong to a part, as columns of the packed matrix. */
static void pack_weight(const Pass *p, int64_t part, const scalar_t *weight, int64_t k, scalar_t *packed) {
    WeightRows part_rows = weight_rows(p, part);
    const scalar_t *rows[PANEL_COLUMNS];
    for (int64_t gate = 0, column = 0; gate < GATES; gate++)
        for (int64_t row = part_rows.first[gate]; row < part_rows.first[gate] + part_rows.size[gate]; row++) {
            rows[column++ % PANEL_COLUMNS] = weight + row * k;
            if (column % PANEL_COLUMNS && column < num_columns(p, part)) continue;
            int64_t panel = (column - 1) / PANEL_COLUMNS * PANEL_COLUMNS;
            pack_transposed_panel(k, column - panel, rows, packed + panel * k);
        }
}

/* preactivations = A W', or preactivations += A W', for the rows of A, of k elements, and the columns of a part. */
static void multiply_by_weight(const Pass *p, int64_t part, int64_t rows, int64_t k, const scalar_t *a,
                               const scalar_t *weight, const scalar_t *packed, scalar_t *preactivations,
                               int accumulate) {
    if (!few_tokens(p)) {
        gemm_packed(rows, num_columns(p, part), k, a, packed, preactivations, p->G, accumulate, p->bf16_vnni);
        return;
    }
    WeightRows part_rows = weight_rows(p, part);
    for (int64_t gate = 0, column = 0; gate < GATES; column += part_rows.size[gate++])
        gemm_transposed(rows, part_rows.size[gate], k, a, weight + part_rows.first[gate] * k, preactivations + column,
                        p->G, accumulate);
}

/* The step after the block of steps that begins with step t. A block has the tokens of one product with W. */
static int64_t block_end(const Pass *p, int64_t t) {
    int64_t tokens = p->batch_sizes[t++];
    while (t < p->T && tokens + p->batch_sizes[t] <= BLOCK) tokens += p->batch_sizes[t++];
    return t;
}

/* preactivations = W x + b, for the tokens of steps t to end - 1 and the columns of a part. The pointer
   `preactivations` points to the first of these entries. */
static void input_product(const Pass *p, int64_t part, int64_t t, int64_t end, const scalar_t *packed,
                          scalar_t *preactivations) {
    int64_t begin = p->first_token[t], tokens = p->first_token[end - 1] + p->batch_sizes[end - 1] - begin;
    int64_t k = operand_size(p, p->I);
    WeightRows rows = weight_rows(p, part);
    for (int64_t r = 0; p->bias && r < tokens; r++)
        for (int64_t gate = 0, column = 0; gate < GATES; column += rows.size[gate++])
            memcpy(preactivations + r * p->G + column, p->bias + rows.first[gate], rows.size[gate] * sizeof(scalar_t));
    int add_to_bias = p->bias != 0;
    multiply_by_weight(p, part, tokens, k, p->tokens + begin * k, p->weight_ih, packed, preactivations, add_to_bias);
}

static void copy_columns(int64_t rows, int64_t columns, const scalar_t *from, scalar_t *to, int64_t ld) {
    for (int64_t r = 0; r < rows; r++) memcpy(to + r * ld, from + r * ld, columns * sizeof(scalar_t));
}

void forward(const void *arguments, int64_t thread, int64_t threads) {
    const Pass *p = arguments;
    int64_t H = p->H, G = p->G, k = operand_size(p, H), stride = part_workspace(p, 0);
    for (int64_t part = thread; part < p->parts && !few_tokens(p); part += threads) {
        scalar_t *packed = p->workspace + part * stride + row_workspace(p);
        pack_weight(p, part, p->weight_hh, k, packed);
        pack_weight(p, part, p->weight_ih, operand_size(p, p->I), packed + packed_size(k, num_columns(p, part)));
    }
    int64_t begin = 0, end = 0; /* first token of the block of steps, and the step after the block */
    for (int64_t t = 0; t < p->T; t++) {
        int64_t rows = p->batch_sizes[t], next_rows = t + 1 < p->T ? p->batch_sizes[t + 1] : 0;
        int64_t token = p->first_token[t], new_block = t == end;
        if (new_block) begin = token, end = block_end(p, t);
        scalar_t *preactivations = p->gates + (p->save ? token : token - begin) * G;
        const scalar_t *hidden =
            p->bf16_vnni ? (const scalar_t *)p->bf16_hidden : state_before(p, p->output, p->hidden0, t);
        const scalar_t *old_cells = p->save ? state_before(p, p->cells, p->cell0, t) : t ? p->cells : p->cell0;
        scalar_t *cells = p->cells + (p->save ? token * H : 0);
        for (int64_t part = thread; part < p->parts; part += threads) {
            scalar_t *packed = p->workspace + part * stride + row_workspace(p);
            scalar_t *part_preactivations = preactivations + first_column(p, part);
            int64_t columns = num_columns(p, part);
            if (new_block) input_product(p, part, t, end, packed + packed_size(k, columns), part_preactivations);
            multiply_by_weight(p, part, rows, k, hidden, p->weight_hh, packed, part_preactivations, 1);
        }
        wait_for_all(p->barrier, threads);
        for (int64_t part = thread; part < p->parts; part += threads) {
            for (int64_t r = 0; r < rows; r++)
                step_forward(p, part, t, r, preactivations + r * G, old_cells + r * H, cells + r * H,
                             p->workspace + part * stride);
            /* The final state of the sequences that end with this step. */
            int64_t at = next_rows * H + first_unit(p, part), ended = rows - next_rows;
            copy_columns(ended, num_units(p, part), p->output + token * H + at, p->last_hidden + at, H);
            copy_columns(ended, num_units(p, part), cells + at, p->last_cell + at, H);
        }
        wait_for_all(p->barrier, threads);
    }
}

void backward(const void *arguments, int64_t thread, int64_t threads) {
    const Pass *p = arguments;
    int64_t H = p->H, G = p->G, k = operand_size(p, G), stride = part_workspace(p, 1);
    for (int64_t part = thread; part < p->parts; part += threads) {
        scalar_t *packed = p->workspace + part * stride + row_workspace(p);
        if (p->bf16_vnni) pack_transposed(k, num_units(p, part), p->weight_hh + first_unit(p, part) * k, packed);
        else pack(G, num_units(p, part), p->weight_hh + first_unit(p, part), H, packed);
    }
    for (int64_t t = p->T; t-- > 0;) {
        int64_t rows = p->batch_sizes[t];
        for (int64_t part = thread; part < p->parts; part += threads)
            for (int64_t r = 0; r < rows; r++) step_backward(p, part, t, r, p->workspace + part * stride);
        wait_for_all(p->barrier, threads);
        for (int64_t r = part_start(rows, thread, threads); r < part_start(rows, thread + 1, threads); r++) {
            int64_t at = (p->first_token[t] + r) * G;
            master_gates_backward(p, t, r);
            if (p->bf16_vnni) to_bf16(G, p->d_preactivations + at, p->bf16_d_preactivations + at);
        }
        wait_for_all(p->barrier, threads);
        for (int64_t part = thread; part < p->parts; part += threads) {
            scalar_t *packed = p->workspace + part * stride + row_workspace(p);
            int64_t at = p->first_token[t] * G;
            const scalar_t *d_preactivations = p->d_preactivations + at;
            if (p->bf16_vnni) d_preactivations = (const scalar_t *)(p->bf16_d_preactivations + at);
            gemm_packed(rows, num_units(p, part), k, d_preactivations, packed, p->d_hidden + first_unit(p, part), H, 0,
                        p->bf16_vnni);
        }
    }
}
