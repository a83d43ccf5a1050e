/* ON-LSTM over whole sequences, for one of several threads; see __init__.py for what it is for.

   Equations and notation are those of onlstm/functional.py, tokens are packed as there. Sizes: T steps, B
   sequences of which rows[t] reach step t, I features of a token, H units in M chunks of C, G = 4H + 2M
   pre-activations. A thread
   has the units of some chunks, of all sequences; before a product every thread must be done with what
   the product reads, so they meet twice a step. REAL is float or double. */

#include <sched.h>
#include <stdatomic.h>

#include "common.h"
#include "product.h"
#include "team.h"

typedef struct {
    _Atomic int64_t waiting, round;
} Meeting;

typedef struct {
    int64_t T, B, I, H, M, C, G, threads, keep;
    const int64_t *rows, *start;               /* (T) */
    const REAL *tokens, *weight_i;             /* (P, I), (G, I) */
    const REAL *weight, *bias;                 /* (G, H), (G) or null */
    const REAL *hidden0, *cell0;               /* (B, H) */
    REAL *units;                               /* (P, G): of each thread in turn i, f, ĉ, o and both logits; of a
                                                  block of steps if not kept */
    REAL *softmax, *cells;                     /* (P, 2M), (P, H); cells of one step if not kept */
    REAL *output;                              /* (P, H) */
    REAL *last_hidden, *last_cell;             /* (B, H): the initial state at first */
    REAL *forget_distance, *input_distance;    /* (P) */
    const REAL *d_output, *d_forget_distance, *d_input_distance; /* upstream or null */
    REAL *d_gates;                             /* (P, G) */
    REAL *d_hidden, *d_cell;                   /* (B, H): of the last state at first, of the initial one at last */
    REAL *d_masters;                           /* (B, 2M): scratch */
    Meeting *meeting;
} Pass;

enum { BLOCK = 256 };

/* Wait for the other threads. What they wrote before is seen after. */
static void meet(const Pass *p) {
    if (p->threads == 1) return;
    Meeting *m = p->meeting;
    int64_t round = atomic_load(&m->round);
    if (atomic_fetch_add(&m->waiting, 1) == p->threads - 1) {
        atomic_store(&m->waiting, 0);
        atomic_fetch_add(&m->round, 1);
        return;
    }
    for (int64_t spins = 0; atomic_load(&m->round) == round; spins++)
        if (spins > 4000) sched_yield();
}

/* The part of `size` that is this thread's. */
static int64_t part(const Pass *p, int64_t size, int64_t thread) { return size * thread / p->threads; }

/* Where the columns of a thread begin in `units`, and how many there are. */
static int64_t columns(const Pass *p, int64_t thread) { return part(p, p->M, thread) * (4 * p->C + 2); }

static void softmax(int64_t size, REAL *values) {
    REAL largest = -INFINITY, total = 0;
    for (int64_t m = 0; m < size; m++) largest = values[m] > largest ? values[m] : largest;
    SIMD for (int64_t m = 0; m < size; m++) values[m] = EXP(values[m] - largest);
    SUM(total) for (int64_t m = 0; m < size; m++) total += values[m];
    REAL scale = 1 / total;
    SIMD for (int64_t m = 0; m < size; m++) values[m] *= scale;
}

/* f̃ and ĩ of the units from `first` chunk to `last`; the sums over all of both master gates. */
static void spread(const Pass *p, const REAL *restrict s, int64_t first, int64_t last, REAL *restrict forget,
                   REAL *restrict input, REAL *sums) {
    REAL f = 0, i = 0;
    sums[0] = sums[1] = 0;
    for (int64_t m = 0; m < p->M; m++) {
        f += s[m];
        i += s[p->M + m];
        sums[0] += f;
        sums[1] += 1 - i;
        if (m < first || m >= last) continue;
        for (int64_t c = 0; c < p->C; c++) {
            *forget++ = f;
            *input++ = 1 - i;
        }
    }
}

static void copy_columns(int64_t rows, int64_t width, const REAL *from, REAL *to, int64_t ld) {
    for (int64_t r = 0; r < rows; r++) memcpy(to + r * ld, from + r * ld, width * sizeof(REAL));
}

/* The logits of both master gates of a row of units, which are with the threads that made them. */
static void gather_logits(const Pass *p, const REAL *units, REAL *logits) {
    for (int64_t k = 0; k < p->threads; k++) {
        int64_t first = part(p, p->M, k), count = part(p, p->M, k + 1) - first;
        const REAL *from = units + columns(p, k) + 4 * count * p->C;
        memcpy(logits + first, from, count * sizeof(REAL));
        memcpy(logits + p->M + first, from + count, count * sizeof(REAL));
    }
}

static const REAL *previous(const Pass *p, const REAL *kept, const REAL *initial, int64_t t) {
    return t ? kept + p->start[t - 1] * p->H : initial;
}

/* Numbers that a thread needs room for, in `run` or in `run_back`: scratch and its part of the packed weights. */
int64_t scratch_size(const Pass *p, int64_t thread, int64_t back) {
    int64_t masters = part(p, p->M, thread + 1) - part(p, p->M, thread);
    return 2 * (p->H + p->M) + (back ? packed_size(p->G, masters * p->C)
                                     : packed_size(p->H + p->I, columns(p, thread + 1) - columns(p, thread)));
}

/* The end of the block of steps that begins with step t: enough rows for one product with W. */
static int64_t block_end(const Pass *p, int64_t t) {
    int64_t rows = p->rows[t++];
    while (t < p->T && rows + p->rows[t] <= BLOCK) rows += p->rows[t++];
    return t;
}

void run(const Pass *p, int64_t thread, REAL *scratch) {
    unsigned before = flush_denormals();
    int64_t H = p->H, M = p->M, G = p->G;
    int64_t first = part(p, M, thread), last = part(p, M, thread + 1);
    int64_t u0 = first * p->C, width = (last - first) * p->C, column = columns(p, thread);
    REAL *forget = scratch, *input = scratch + H, *own = scratch + 2 * H, *packed = own + 2 * M, sums[2];
    int64_t from[6], n[6], count = columns(p, thread + 1) - column; /* where its columns are in gates and weight */
    for (int64_t k = 0; k < 6; k++) {
        from[k] = k < 4 ? k * H + u0 : 4 * H + (k - 4) * M + first;
        n[k] = k < 4 ? width : last - first;
    }
    REAL *packed_i = packed + packed_size(H, count);
    const REAL *own_rows[WIDTH], *own_rows_i[WIDTH];
    for (int64_t k = 0, to = 0; k < 6; k++)
        for (int64_t j = from[k]; j < from[k] + n[k]; j++) {
            own_rows[to % WIDTH] = p->weight + j * H;
            own_rows_i[to++ % WIDTH] = p->weight_i + j * p->I;
            if (to % WIDTH && to < count) continue;
            int64_t panel = (to - 1) / WIDTH * WIDTH;
            pack_transposed(H, to - panel, own_rows, packed + panel * H);
            pack_transposed(p->I, to - panel, own_rows_i, packed_i + panel * p->I);
        }
    int64_t begin = 0, end = 0; /* of the block: the step after it, and where its tokens begin */
    for (int64_t t = 0; t < p->T; t++) {
        int64_t rows = p->rows[t], start = p->start[t];
        if (t == end) {
            end = block_end(p, t);
            begin = start;
            int64_t tokens = p->start[end - 1] + p->rows[end - 1] - begin;
            REAL *block = p->units + (p->keep ? begin * G : 0) + column;
            for (int64_t r = 0; p->bias && r < tokens; r++)
                for (int64_t k = 0, to = 0; k < 6; to += n[k++])
                    memcpy(block + r * G + to, p->bias + from[k], n[k] * sizeof(REAL));
            packed_product(tokens, count, p->I, p->tokens + begin * p->I, p->I, packed_i, block, G, p->bias != 0);
        }
        const REAL *hidden = previous(p, p->output, p->hidden0, t);
        const REAL *old = p->keep ? previous(p, p->cells, p->cell0, t) : t ? p->cells : p->cell0;
        REAL *units = p->units + (p->keep ? start : start - begin) * G, *cells = p->cells + (p->keep ? start * H : 0);
        REAL *output = p->output + start * H;
        packed_product(rows, count, H, hidden, H, packed, units + column, G, 1);
        meet(p);
        for (int64_t r = 0; r < rows; r++) {
            gather_logits(p, units + r * G, own);
            softmax(M, own);
            softmax(M, own + M);
            spread(p, own, first, last, forget, input, sums);
            if (p->keep)
                for (int64_t k = 0; k < 2; k++)
                    memcpy(p->softmax + (start + r) * 2 * M + k * M + first, own + k * M + first,
                           (last - first) * sizeof(REAL));
            if (thread == 0) {
                p->forget_distance[start + r] = M - sums[0];
                p->input_distance[start + r] = M - sums[1];
            }
            REAL *restrict i = units + r * G + column, *restrict f = i + width, *restrict g = f + width;
            REAL *restrict o = g + width;
            const REAL *c = old + r * H + u0;
            REAL *new = cells + r * H + u0, *restrict h = output + r * H + u0;
            SIMD for (int64_t u = 0; u < width; u++) {
                REAL overlap = forget[u] * input[u];
                i[u] = 1 / (1 + EXP(-i[u]));
                f[u] = 1 / (1 + EXP(-f[u]));
                g[u] = 1 - 2 / (1 + EXP(2 * g[u]));
                o[u] = 1 / (1 + EXP(-o[u]));
                REAL cell = (f[u] * overlap + (forget[u] - overlap)) * c[u] +
                            (i[u] * overlap + (input[u] - overlap)) * g[u];
                new[u] = cell;
                h[u] = o[u] * (1 - 2 / (1 + EXP(2 * cell)));
            }
        }
        int64_t next = t + 1 < p->T ? p->rows[t + 1] : 0;
        copy_columns(rows - next, width, output + next * H + u0, p->last_hidden + next * H + u0, H);
        copy_columns(rows - next, width, cells + next * H + u0, p->last_cell + next * H + u0, H);
        meet(p);
    }
    restore_denormals(before);
}

/* The reverse of a step for the units of this thread: d_gates of i, f, ĉ, o; d_cell becomes that of c[t-1];
   d_masters those of f̃ and ĩ. */
static void step_back(const Pass *p, int64_t t, int64_t r, int64_t first, int64_t last, REAL *restrict forget,
                      REAL *restrict input) {
    int64_t H = p->H, M = p->M, u0 = first * p->C, width = (last - first) * p->C, at = p->start[t] + r;
    REAL sums[2];
    spread(p, p->softmax + at * 2 * M, first, last, forget, input, sums);
    const REAL *restrict i = p->units + at * p->G + first * (4 * p->C + 2), *restrict f = i + width;
    const REAL *restrict g = f + width, *restrict o = g + width;
    const REAL *restrict c = p->cells + at * H + u0, *restrict old = previous(p, p->cells, p->cell0, t) + r * H + u0;
    const REAL *restrict d_output = p->d_output ? p->d_output + at * H + u0 : 0;
    REAL *restrict d_i = p->d_gates + at * p->G + u0, *restrict d_f = d_i + H, *restrict d_g = d_f + H;
    REAL *restrict d_o = d_g + H;
    REAL *restrict d_h = p->d_hidden + r * H + u0, *restrict d_c = p->d_cell + r * H + u0;
    if (d_output)
        SIMD for (int64_t u = 0; u < width; u++) d_h[u] += d_output[u];
    SIMD for (int64_t u = 0; u < width; u++) {
        REAL overlap = forget[u] * input[u], tanh_c = 1 - 2 / (1 + EXP(2 * c[u]));
        REAL kept = f[u] * overlap + (forget[u] - overlap), written = i[u] * overlap + (input[u] - overlap);
        REAL d = d_c[u] + d_h[u] * o[u] * (1 - tanh_c * tanh_c);
        REAL d_kept = d * old[u], d_written = d * g[u];
        REAL d_overlap = d_kept * (f[u] - 1) + d_written * (i[u] - 1);
        d_o[u] = d_h[u] * tanh_c * o[u] * (1 - o[u]);
        d_g[u] = d * written * (1 - g[u] * g[u]);
        d_f[u] = d_kept * overlap * f[u] * (1 - f[u]);
        d_i[u] = d_written * overlap * i[u] * (1 - i[u]);
        d_c[u] = d * kept;
        REAL forget_u = forget[u];
        forget[u] = d_kept + d_overlap * input[u];
        input[u] = d_written + d_overlap * forget_u;
    }
    REAL *d_masters = p->d_masters + r * 2 * M;
    for (int64_t m = first; m < last; m++) {
        REAL d_forget = 0, d_input = 0;
        for (int64_t c_ = 0; c_ < p->C; c_++) {
            d_forget += *forget++;
            d_input += *input++;
        }
        d_masters[m] = d_forget;
        d_masters[M + m] = d_input;
    }
}

/* The reverse of cumax and softmax: from the gradients of a master gate to those of its logits. */
static void master_back(int64_t M, const REAL *restrict s, const REAL *restrict d_master, REAL sign, REAL more,
                        REAL *restrict d_logits) {
    REAL sum = 0, mean = 0;
    for (int64_t m = M; m-- > 0;) d_logits[m] = sign * (sum += d_master[m] + more);
    SUM(mean) for (int64_t m = 0; m < M; m++) mean += s[m] * d_logits[m];
    SIMD for (int64_t m = 0; m < M; m++) d_logits[m] = s[m] * (d_logits[m] - mean);
}

void run_back(const Pass *p, int64_t thread, REAL *scratch) {
    unsigned before = flush_denormals();
    int64_t H = p->H, M = p->M, G = p->G;
    int64_t first = part(p, M, thread), last = part(p, M, thread + 1);
    int64_t u0 = first * p->C, width = (last - first) * p->C;
    REAL *packed = scratch + 2 * (H + M);
    pack(G, width, p->weight + u0, H, packed);
    for (int64_t t = p->T; t-- > 0;) {
        int64_t rows = p->rows[t], start = p->start[t];
        for (int64_t r = 0; r < rows; r++) step_back(p, t, r, first, last, scratch, scratch + H);
        meet(p);
        for (int64_t r = part(p, rows, thread); r < part(p, rows, thread + 1); r++) {
            const REAL *s = p->softmax + (start + r) * 2 * M, *d = p->d_masters + r * 2 * M;
            REAL more_f = p->d_forget_distance ? -p->d_forget_distance[start + r] : 0;
            REAL more_i = p->d_input_distance ? -p->d_input_distance[start + r] : 0;
            REAL *d_logits = p->d_gates + (start + r) * G + 4 * H;
            master_back(M, s, d, 1, more_f, d_logits);
            master_back(M, s + M, d + M, -1, more_i, d_logits + M);
        }
        meet(p);
        packed_product(rows, width, G, p->d_gates + start * G, G, packed, p->d_hidden + u0, H, 0);
    }
    restore_denormals(before);
}
