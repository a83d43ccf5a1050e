/* Forward and backward pass of ON-LSTM, for one thread of a team; see __init__.py for an overview.

   A thread computes some of the parts (arguments.h) of the units, for all sequences. A matrix product reads the results
   of all threads, so they synchronize twice per step. A team may have fewer threads than parts. REAL is float or
   double. */

#include "common.h"
#include "team.h"

#include "barrier.h"
#include "packed.h"

#include "arguments.h"
#include "master_gates.h"
#include "step.h"

#define PARTS_OF_THREAD int64_t part = thread; part < p->parts; part += threads

/* The rows of a part in the weights: six ranges, for i, f, ĉ, o and both logits, in the order of its columns. */
typedef struct {
    int64_t from[6], size[6], columns;
} Ranges;

static Ranges ranges_of(const Pass *p, int64_t part) {
    int64_t first = first_chunk(p, part), chunks = first_chunk(p, part + 1) - first;
    Ranges ranges = {.columns = chunks * (4 * p->C + 2)};
    for (int64_t k = 0; k < 6; k++) {
        ranges.from[k] = k < 4 ? k * p->H + first * p->C : 4 * p->H + (k - 4) * p->M + first;
        ranges.size[k] = k < 4 ? chunks * p->C : chunks;
    }
    return ranges;
}

/* Pack the rows of a weight (G, k) that belong to a part, as columns of the packed matrix. */
static void pack_part(const Ranges *ranges, const REAL *weight, int64_t k, REAL *packed) {
    const REAL *rows[WIDTH];
    for (int64_t range = 0, column = 0; range < 6; range++)
        for (int64_t row = ranges->from[range]; row < ranges->from[range] + ranges->size[range]; row++) {
            rows[column++ % WIDTH] = weight + row * k;
            if (column % WIDTH && column < ranges->columns) continue;
            int64_t panel = (column - 1) / WIDTH * WIDTH;
            pack_transposed(k, column - panel, rows, packed + panel * k);
        }
}

/* The step after the block that begins with step t: a block has the tokens of one product with W. */
static int64_t block_end(const Pass *p, int64_t t) {
    int64_t tokens = p->rows[t++];
    while (t < p->T && tokens + p->rows[t] <= BLOCK) tokens += p->rows[t++];
    return t;
}

/* C = A B or C += A B, for operands of REALs or of pairs, B packed; the rows of A have k numbers. */
static void step_product(const Pass *p, int64_t rows, int64_t columns, int64_t k, const REAL *a, const REAL *packed,
                         REAL *c, int64_t ldc, int add) {
    int64_t size = operand_size(p, k);
    if (p->pairs) packed_pair_product(rows, columns, size, a, size, packed, c, ldc, add);
    else packed_product(rows, columns, size, a, size, packed, c, ldc, add);
}

/* gates = W x + b for the tokens of steps t to end - 1. */
static void input_product(const Pass *p, const Ranges *ranges, int64_t t, int64_t end, const REAL *packed,
                          REAL *gates) {
    int64_t begin = p->start[t], tokens = p->start[end - 1] + p->rows[end - 1] - begin;
    for (int64_t r = 0; p->bias && r < tokens; r++)
        for (int64_t k = 0, column = 0; k < 6; column += ranges->size[k++])
            memcpy(gates + r * p->G + column, p->bias + ranges->from[k], ranges->size[k] * sizeof(REAL));
    const REAL *inputs = p->tokens + begin * operand_size(p, p->I);
    step_product(p, tokens, ranges->columns, p->I, inputs, packed, gates, p->G, p->bias != 0);
}

static void copy_columns(int64_t rows, int64_t width, const REAL *from, REAL *to, int64_t ld) {
    for (int64_t r = 0; r < rows; r++) memcpy(to + r * ld, from + r * ld, width * sizeof(REAL));
}

void forward(const void *arguments, int64_t thread, int64_t threads) {
    const Pass *p = arguments;
    int64_t H = p->H, G = p->G, stride = part_scratch(p, 0), row_scratch = 2 * (H + p->M), k = operand_size(p, H);
    for (PARTS_OF_THREAD) {
        Ranges ranges = ranges_of(p, part);
        REAL *packed = p->scratch + part * stride + row_scratch;
        pack_part(&ranges, p->weight_hh, k, packed);
        pack_part(&ranges, p->weight_ih, operand_size(p, p->I), packed + packed_size(k, ranges.columns));
    }
    int64_t begin = 0, end = 0; /* first token of the block, and the step after the block */
    for (int64_t t = 0; t < p->T; t++) {
        int64_t rows = p->rows[t], start = p->start[t], next_rows = t + 1 < p->T ? p->rows[t + 1] : 0;
        int64_t new_block = t == end;
        if (new_block) begin = start, end = block_end(p, t);
        REAL *gates = p->gates + (p->keep ? start : start - begin) * G;
        const REAL *hidden = p->pairs ? (const REAL *)p->narrow : previous(p, p->output, p->hidden0, t);
        const REAL *old_cells = p->keep ? previous(p, p->cells, p->cell0, t) : t ? p->cells : p->cell0;
        REAL *cells = p->cells + (p->keep ? start * H : 0);
        for (PARTS_OF_THREAD) {
            Ranges ranges = ranges_of(p, part);
            REAL *packed = p->scratch + part * stride + row_scratch, *own = gates + first_column(p, part);
            if (new_block) input_product(p, &ranges, t, end, packed + packed_size(k, ranges.columns), own);
            step_product(p, rows, ranges.columns, H, hidden, packed, own, G, 1);
        }
        wait_for_all(p->barrier, threads);
        for (PARTS_OF_THREAD) {
            for (int64_t r = 0; r < rows; r++)
                step_forward(p, part, t, r, gates + r * G, old_cells + r * H, cells + r * H,
                             p->scratch + part * stride);
            /* The final state of the sequences that end with this step. */
            int64_t u0 = first_chunk(p, part) * p->C, width = first_chunk(p, part + 1) * p->C - u0;
            int64_t at = next_rows * H + u0, ended = rows - next_rows;
            copy_columns(ended, width, p->output + start * H + at, p->last_hidden + at, H);
            copy_columns(ended, width, cells + at, p->last_cell + at, H);
        }
        wait_for_all(p->barrier, threads);
    }
}

void backward(const void *arguments, int64_t thread, int64_t threads) {
    const Pass *p = arguments;
    int64_t H = p->H, G = p->G, stride = part_scratch(p, 1), row_scratch = 2 * (H + p->M);
    for (PARTS_OF_THREAD) {
        int64_t u0 = first_chunk(p, part) * p->C, width = first_chunk(p, part + 1) * p->C - u0;
        REAL *packed = p->scratch + part * stride + row_scratch;
        if (p->pairs) pack_transpose(G / 2, width, p->weight_hh + u0 * (G / 2), packed);
        else pack(G, width, p->weight_hh + u0, H, packed);
    }
    for (int64_t t = p->T; t-- > 0;) {
        int64_t rows = p->rows[t];
        for (PARTS_OF_THREAD)
            for (int64_t r = 0; r < rows; r++) step_backward(p, part, t, r, p->scratch + part * stride);
        wait_for_all(p->barrier, threads);
        for (int64_t r = share_of(rows, thread, threads); r < share_of(rows, thread + 1, threads); r++)
            master_gates_backward(p, t, r);
        wait_for_all(p->barrier, threads);
        for (PARTS_OF_THREAD) {
            int64_t u0 = first_chunk(p, part) * p->C, width = first_chunk(p, part + 1) * p->C - u0;
            REAL *packed = p->scratch + part * stride + row_scratch;
            const REAL *d_gates = p->d_gates + p->start[t] * G;
            if (p->pairs) {
                REAL *narrow = packed + packed_size(G / 2, width);
                round_to_bf16(rows * G, d_gates, (bf16_t *)narrow);
                d_gates = narrow;
            }
            step_product(p, rows, width, G, d_gates, packed, p->d_hidden + u0, H, 0);
        }
    }
}
