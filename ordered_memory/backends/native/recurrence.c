/* Ordered Memory over whole sequences, for the rows of one thread; see __init__.py for what it is for.

   Sequences are independent, so a thread takes its rows from the first token to the last, and back, with
   nothing to wait for. Equations and notation are those of ordered_memory/memory.py. Sizes: T steps,
   B rows of the batch of which R are this thread's (longest first), N slots, D slot size.

   A (step, row, slot) with →π_i > 0 is a pair. Pairs are numbered step after step, within a step slot
   after slot, within a slot row after row, so that the rows of a slot are one matrix. The cell's input
   [M_i; M̂_{i-1}] of pair j is row j of `input`, and M̂_i is written right where it is input next: into
   the row of slot i + 1, or the output. Slots that are no pairs hold x̃ and are not computed.

   REAL is float or double. Products may take bfloat16 operands: those are rounded right before, and sums and
   all else stay float. */

#include "common.h"

enum { NONE = -(1 << 20) }; /* a dropout level: nothing is dropped */
enum { INPUT, HIDDEN, KEY, FEATURE, SITES };
enum { WASTE = 2048 }; /* pairs whose gradients wait for one product */
enum { HALF_ROWS = 1024 }; /* rows that are rounded to bfloat16 at once */

typedef struct {
    int64_t T, B, N, D, R, normalized, keep;
    const int64_t *row, *length; /* (R) */
    REAL threshold, epsilon, key_epsilon, output_bias;
    const REAL *x, *query;                        /* (T, B, D) */
    const REAL *memory0, *candidate0, *occupancy0; /* (B, N, D) twice, (B, N + 1) */
    const REAL *first, *first_t, *first_bias;      /* (4D, 2D), (2D, 4D), (4D) */
    const REAL *second, *second_t, *second_bias;   /* (4D, 4D) twice, (4D) */
    const REAL *key, *key_t, *key_bias, *output;   /* (D, D) twice, (D), (D) */
    const REAL *key_norm, *key_norm_bias;          /* (D) */
    const REAL *norm, *norm_bias;                  /* (D) */
    const REAL *given[SITES];                      /* masks (T, B, N, ·) or null */
    int64_t level[SITES];                          /* noise below it drops */
    uint64_t seed;
    REAL *out, *attention;                         /* (T, B, D), (T, B, N) */
    REAL *memory, *candidate, *occupancy;          /* final */
    REAL *input, *hidden, *units, *composed;       /* of pairs: 2D, 4D, 4D, D */
    int32_t *top;                                  /* (T, R): first active slot */
    int64_t *start;                                /* (T + 1): first pair of a step */
    const REAL *d_out, *d_attention, *d_memory, *d_candidate, *d_occupancy; /* upstream or null */
    REAL *d_x, *d_query, *d_memory0, *d_candidate0, *d_occupancy0;
    REAL *d_first, *d_first_bias, *d_second, *d_second_bias;
    REAL *d_key, *d_key_bias, *d_output, *d_output_bias, *d_key_norm, *d_key_norm_bias, *d_norm, *d_norm_bias;
    gemm_t gemm;
    half_gemm_t half_gemm;                         /* or null: products of REAL */
    const uint16_t *half_first, *half_first_t, *half_second, *half_second_t, *half_key, *half_key_t;
} Pass;

/* Scratch of one thread. */
typedef struct {
    int32_t *pair, *old_pair;   /* (R, N): the pair's number within its step, or -1 */
    int32_t *pair_row;          /* (R * N): row of each pair of the step */
    int64_t *slot_start;        /* (N + 1) */
    REAL *occupancy;            /* (R, N + 1) of the step before */
    REAL *forward, *backward;   /* (R, N) */
    int32_t *entry_row, *entry_slot; /* (R * N): what is scored */
    REAL *keys, *entries, *features, *scores; /* (R * N, D) three times, (R * N) */
    REAL *masked;               /* (R, 2D) */
    REAL *mask;                 /* (4D) */
    uint16_t *half_a, *half_b;  /* (HALF_ROWS, 4D): operands as bfloat16 */
    /* only in reverse */
    REAL *d_memory, *d_candidate, *d_occupancy; /* (R, N, D) twice, (R, N + 1) */
    REAL *d_forward, *d_composed;               /* (R * N), (R, D) */
    REAL *d_units, *d_hidden, *d_masked, *d_input; /* waiting pairs: 4D, 4D, 2D; (R, 2D) */
} Scratch;

/* Numbers as bfloat16, the nearest ones, ties to even; NaN stays NaN. */
static void round_off(int64_t size, const REAL *restrict from, uint16_t *restrict to) {
#if !DOUBLE
    SIMD for (int64_t j = 0; j < size; j++) {
        union { float number; uint32_t bits; } u = {from[j]};
        uint32_t rounded = u.bits + 0x7fff + ((u.bits >> 16) & 1);
        to[j] = ((u.bits & 0x7fffffff) > 0x7f800000 ? u.bits | 0x400000 : rounded) >> 16;
    }
#endif
}

/* C = A B, row-major, A (m, k), B (k, n), which is there as bfloat16 too: to BLAS it is C' = B' A'. */
static void product(const Pass *p, const Scratch *s, int m, int n, int k, const REAL *a, const REAL *b,
                    const uint16_t *half_b, REAL *c) {
    const REAL one = 1, zero = 0;
    if (!p->half_gemm) {
        if (m) p->gemm("N", "N", &n, &m, &k, &one, b, &n, a, &k, &zero, c, &n);
        return;
    }
    for (int64_t from = 0; from < m; from += HALF_ROWS) {
        int rows = m - from < HALF_ROWS ? m - from : HALF_ROWS;
        round_off((int64_t)rows * k, a + from * k, s->half_a);
        p->half_gemm("N", "N", &n, &rows, &k, &one, half_b, &n, s->half_a, &k, &zero, c + from * n, &n);
    }
}

/* C += A' B, row-major, A (k, m), B (k, n). */
static void add_product(const Pass *p, const Scratch *s, int m, int n, int k, const REAL *a, const REAL *b, REAL *c) {
    const REAL one = 1;
    if (!p->half_gemm) {
        if (k) p->gemm("N", "T", &n, &m, &k, &one, b, &n, a, &m, &one, c, &n);
        return;
    }
    for (int64_t from = 0; from < k; from += HALF_ROWS) {
        int rows = k - from < HALF_ROWS ? k - from : HALF_ROWS;
        round_off((int64_t)rows * m, a + from * m, s->half_a);
        round_off((int64_t)rows * n, b + from * n, s->half_b);
        p->half_gemm("N", "T", &n, &m, &rows, &one, s->half_b, &n, s->half_a, &m, &one, c, &n);
    }
}

static uint64_t mix(uint64_t z) { /* splitmix64 */
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* The dropout mask of one row of one site, the same at every call; 0 where nothing is dropped. */
static int draw(const Pass *p, int site, int64_t t, int64_t r, int64_t i, int64_t size, REAL *restrict mask) {
    int64_t place = (t * p->B + p->row[r]) * p->N + i;
    if (p->given[site]) {
        memcpy(mask, p->given[site] + place * size, size * sizeof(REAL));
        return 1;
    }
    if (p->level[site] == NONE) return 0;
    uint64_t key = mix(p->seed + mix((uint64_t)place * SITES + site));
    int32_t level = p->level[site];
    int16_t noise[4 * ((size + 3) / 4)];
    uint64_t *words = (uint64_t *)noise;
    for (int64_t j = 0; j < (size + 3) / 4; j++) {
        uint64_t word = mix(key + (uint64_t)j * 0x9e3779b97f4a7c15u);
        memcpy(words + j, &word, 8);
    }
    SIMD for (int64_t j = 0; j < size; j++) mask[j] = noise[j] >= level;
    return 1;
}

static void multiply(int64_t size, const REAL *restrict mask, REAL *restrict values) {
    SIMD for (int64_t j = 0; j < size; j++) values[j] *= mask[j];
}

static REAL dot(int64_t size, const REAL *restrict a, const REAL *restrict b) {
    REAL s = 0;
    SUM(s) for (int64_t j = 0; j < size; j++) s += a[j] * b[j];
    return s;
}

static void add(int64_t size, const REAL *restrict a, REAL *restrict into) {
    SIMD for (int64_t j = 0; j < size; j++) into[j] += a[j];
}

/* Mean and 1 / standard deviation. */
static void moments(int64_t size, const REAL *restrict values, REAL epsilon, REAL *mean, REAL *inverse) {
    REAL s = 0, v = 0;
    SUM(s) for (int64_t j = 0; j < size; j++) s += values[j];
    s /= size;
    SUM(v) for (int64_t j = 0; j < size; j++) v += (values[j] - s) * (values[j] - s);
    *mean = s;
    *inverse = 1 / SQRT(v / size + epsilon);
}

/* Reverse of LN: gradient (used up) of the result → of the values; adds those of weight and bias. */
static void reverse_norm(int64_t size, const REAL *restrict values, REAL mean, REAL inverse,
                         const REAL *restrict weight, REAL *restrict gradient, REAL *restrict d_weight,
                         REAL *restrict d_bias) {
    REAL s = 0, v = 0;
    SUM(s, v) for (int64_t j = 0; j < size; j++) {
        REAL normal = (values[j] - mean) * inverse;
        d_weight[j] += gradient[j] * normal;
        d_bias[j] += gradient[j];
        gradient[j] *= weight[j];
        s += gradient[j];
        v += gradient[j] * normal;
    }
    s /= size;
    v /= size;
    SIMD for (int64_t j = 0; j < size; j++)
        gradient[j] = inverse * (gradient[j] - s - (values[j] - mean) * inverse * v);
}

static const REAL *token(const Pass *p, const REAL *sequence, int64_t t, int64_t r) {
    return sequence + (t * p->B + p->row[r]) * p->D;
}

static REAL *row_of(const Pass *p, const REAL *state, int64_t r, int64_t i) {
    return (REAL *)state + (p->row[r] * p->N + i) * p->D;
}

static int64_t running(const Pass *p, int64_t t) {
    int64_t r = 0;
    while (r < p->R && p->length[r] > t) r++;
    return r;
}

/* Number the pairs of a step from its first active slots. */
static void number(const Pass *p, int64_t rows, const int32_t *top, int32_t *pair, int32_t *pair_row,
                   int64_t *slot_start) {
    int64_t next = 0;
    for (int64_t i = 0; i < p->N; i++) {
        if (slot_start) slot_start[i] = next;
        for (int64_t r = 0; r < rows; r++) {
            if (top[r] <= i && pair_row) pair_row[next] = r;
            pair[r * p->N + i] = top[r] <= i ? (int32_t)next++ : -1;
        }
    }
    if (slot_start) slot_start[p->N] = next;
}

/* Where the inputs of a step's pairs are: without a reverse pass to come only two steps are held. */
static REAL *inputs_of(const Pass *p, int64_t t) {
    return p->input + (p->keep ? p->start[t] : (t & 1) * p->R * p->N) * 2 * p->D;
}

/* M̂_i after step t (the initial one for t = -1). */
static const REAL *candidate_of(const Pass *p, int64_t t, const int32_t *pair, int64_t r, int64_t i) {
    if (t < 0) return row_of(p, p->candidate0, r, i);
    if (i == p->N - 1) return token(p, p->out, t, r);
    int32_t next = pair[r * p->N + i + 1];
    return next < 0 ? token(p, p->x, t, r) : inputs_of(p, t) + next * 2 * p->D + p->D;
}

/* M_i after step t, or null where the slot was not active and M_i does not count. */
static const REAL *memory_of(const Pass *p, int64_t t, const int32_t *pair, int64_t r, int64_t i) {
    if (t < 0) return row_of(p, p->memory0, r, i);
    int32_t j = pair[r * p->N + i];
    return j < 0 ? 0 : inputs_of(p, t) + j * 2 * p->D;
}

static REAL mask_of(const Pass *p, const REAL *occupancy, int64_t i) {
    return occupancy[i + 1] < p->threshold ? 0 : occupancy[i + 1];
}

/* The keys and features of all slots that rows attend to; how many. Equation (8) up to its last map. */
static int64_t features(const Pass *p, Scratch *s, int64_t t, int64_t rows) {
    int64_t D = p->D, count = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < p->N; i++) {
            if (mask_of(p, s->occupancy + r * (p->N + 1), i) == 0) continue;
            s->entry_row[count] = r;
            s->entry_slot[count] = i;
            REAL *entry = s->entries + count * D;
            memcpy(entry, candidate_of(p, t - 1, s->old_pair, r, i), D * sizeof(REAL));
            if (draw(p, KEY, t, r, i, D, s->mask)) multiply(D, s->mask, entry);
            count++;
        }
    product(p, s, count, D, D, s->entries, p->key_t, p->half_key_t, s->keys);
    for (int64_t e = 0; e < count; e++) {
        REAL *restrict key = s->keys + e * D, *restrict feature = s->features + e * D;
        const REAL *restrict query = token(p, p->query, t, s->entry_row[e]);
        add(D, p->key_bias, key);
        if (p->normalized) {
            REAL mean, inverse;
            moments(D, key, p->key_epsilon, &mean, &inverse);
            SIMD for (int64_t j = 0; j < D; j++) {
                REAL f = (key[j] - mean) * inverse * p->key_norm[j] + p->key_norm_bias[j] + query[j];
                feature[j] = f < 0 ? 0 : f; /* as relu: NaN stays */
            }
        } else {
            SIMD for (int64_t j = 0; j < D; j++) { /* tanh z = 1 - 2 / (1 + exp 2z) */
                feature[j] = 1 - 2 / (1 + EXP(2 * (key[j] + query[j])));
            }
        }
    }
    return count;
}

/* →π and ←π of a row. */
static void masks(int64_t N, const REAL *attention, REAL *forward, REAL *backward) {
    REAL sum = 0;
    for (int64_t i = 0; i < N; i++) forward[i] = sum += attention[i];
    sum = 0;
    for (int64_t i = N; i-- > 0;) backward[i] = sum += attention[i];
}

/* Equations (9)-(11), (3), (4): p of every row, its masks and its first active slot. */
static void attend(const Pass *p, Scratch *s, int64_t t, int64_t rows) {
    int64_t N = p->N, D = p->D, count = features(p, s, t, rows);
    for (int64_t e = 0; e < count; e++) {
        REAL *feature = s->features + e * D;
        if (draw(p, FEATURE, t, s->entry_row[e], s->entry_slot[e], D, s->mask)) multiply(D, s->mask, feature);
        s->scores[e] = dot(D, feature, p->output) + p->output_bias;
    }
    for (int64_t r = 0, e = 0; r < rows; r++) {
        REAL *attention = p->attention + (t * p->B + p->row[r]) * N, total = 0;
        const REAL *occupancy = s->occupancy + r * (N + 1);
        int64_t begin = e;
        REAL largest = -INFINITY;
        for (; e < count && s->entry_row[e] == r; e++) largest = s->scores[e] > largest ? s->scores[e] : largest;
        memset(attention, 0, N * sizeof(REAL));
        for (int64_t k = begin; k < e; k++) {
            int64_t i = s->entry_slot[k];
            total += attention[i] = mask_of(p, occupancy, i) * EXP(s->scores[k] - largest);
        }
        if (total != 0)
            for (int64_t i = 0; i < N; i++) attention[i] /= total;
        REAL *forward = s->forward + r * N;
        masks(N, attention, forward, s->backward + r * N);
        int32_t top = 0;
        while (top < N && forward[top] == 0) top++;
        p->top[t * p->R + r] = top;
    }
}

/* Equation (5): M of all pairs, into their inputs. */
static void update_memory(const Pass *p, Scratch *s, int64_t t) {
    int64_t D = p->D, N = p->N;
    REAL *inputs = inputs_of(p, t);
    for (int64_t i = 0; i < N; i++)
        for (int64_t j = s->slot_start[i]; j < s->slot_start[i + 1]; j++) {
            int64_t r = s->pair_row[j];
            REAL weight = s->backward[r * N + i];
            REAL *restrict memory = inputs + j * 2 * D;
            const REAL *restrict new = candidate_of(p, t - 1, s->old_pair, r, i);
            const REAL *restrict old = memory_of(p, t - 1, s->old_pair, r, i);
            if (!old)
                memcpy(memory, new, D * sizeof(REAL));
            else
                SIMD for (int64_t d = 0; d < D; d++) memory[d] = old[d] + weight * (new[d] - old[d]);
        }
}

/* The Gated Recursive Cell, its LayerNorm and equation (7) for the rows of slot i. */
static void compose(const Pass *p, Scratch *s, int64_t t, int64_t i) {
    int64_t D = p->D, N = p->N, begin = s->slot_start[i], count = s->slot_start[i + 1] - begin;
    REAL *inputs = inputs_of(p, t) + begin * 2 * D;
    int64_t kept = p->keep ? p->start[t] + begin : 0;
    REAL *hidden = p->hidden + kept * 4 * D, *units = p->units + kept * 4 * D, *composed = p->composed + kept * D;
    const REAL *masked = inputs;
    for (int64_t k = 0; k < count; k++) {
        int64_t r = s->pair_row[begin + k];
        REAL *input = inputs + k * 2 * D;
        if (p->top[t * p->R + r] == i) memcpy(input + D, token(p, p->x, t, r), D * sizeof(REAL));
        if (!draw(p, INPUT, t, r, i, 2 * D, s->mask)) continue;
        REAL *restrict to = s->masked + k * 2 * D;
        SIMD for (int64_t d = 0; d < 2 * D; d++) to[d] = input[d] * s->mask[d];
        masked = s->masked;
    }
    product(p, s, count, 4 * D, 2 * D, masked, p->first_t, p->half_first_t, hidden);
    for (int64_t k = 0; k < count; k++) {
        REAL *restrict h = hidden + k * 4 * D;
        const REAL *restrict bias = p->first_bias;
        SIMD for (int64_t d = 0; d < 4 * D; d++) {
            REAL pre = h[d] + bias[d];
            h[d] = pre < 0 ? 0 : pre;
        }
        if (draw(p, HIDDEN, t, s->pair_row[begin + k], i, 4 * D, s->mask)) multiply(4 * D, s->mask, h);
    }
    product(p, s, count, 4 * D, 4 * D, hidden, p->second_t, p->half_second_t, units);
    for (int64_t k = 0; k < count; k++) {
        int64_t r = s->pair_row[begin + k];
        REAL *restrict u = units + k * 4 * D, *restrict c = composed + k * D;
        const REAL *restrict memory = inputs + k * 2 * D, *restrict below = memory + D;
        const REAL *restrict bias = p->second_bias, *restrict x = token(p, p->x, t, r);
        SIMD for (int64_t d = 0; d < 3 * D; d++) u[d] = 1 / (1 + EXP(-(u[d] + bias[d])));
        SIMD for (int64_t d = 0; d < D; d++) {
            u[3 * D + d] += bias[3 * D + d];
            c[d] = u[d] * memory[d] + u[D + d] * below[d] + u[2 * D + d] * u[3 * D + d];
        }
        REAL mean, inverse, weight = s->forward[r * N + i];
        moments(D, c, p->epsilon, &mean, &inverse);
        REAL *restrict out = (REAL *)candidate_of(p, t, s->pair, r, i);
        SIMD for (int64_t d = 0; d < D; d++) {
            REAL normalized = (c[d] - mean) * inverse * p->norm[d] + p->norm_bias[d];
            out[d] = x[d] + weight * (normalized - x[d]);
        }
    }
}

/* The state of a row after its last token. A slot that is not active took the last candidate, except in a
   memory that was empty. */
static void write_state(const Pass *p, Scratch *s, int64_t t, int64_t r) {
    int64_t N = p->N, size = p->D * sizeof(REAL);
    int empty = s->forward[r * N + N - 1] == 0;
    for (int64_t i = 0; i < N; i++) {
        const REAL *memory = memory_of(p, t, s->pair, r, i);
        if (!memory)
            memory = empty ? memory_of(p, t - 1, s->old_pair, r, i) : candidate_of(p, t - 1, s->old_pair, r, i);
        memcpy(row_of(p, p->memory, r, i), memory, size);
        memcpy(row_of(p, p->candidate, r, i), candidate_of(p, t, s->pair, r, i), size);
    }
    REAL *occupancy = p->occupancy + p->row[r] * (N + 1);
    memcpy(occupancy, s->forward + r * N, N * sizeof(REAL));
    occupancy[N] = 1;
}

static void *room(char **from, int64_t bytes) {
    void *here = *from;
    *from += (bytes + 63) / 64 * 64;
    return here;
}

/* Lay the scratch out from `base`; its size in bytes. */
static int64_t lay_out(const Pass *p, Scratch *s, char *base, int reverse) {
    int64_t R = p->R, N = p->N, D = p->D, F = sizeof(REAL);
    char *at = base;
    s->pair = room(&at, 4 * R * N);
    s->old_pair = room(&at, 4 * R * N);
    s->pair_row = room(&at, 4 * R * N);
    s->slot_start = room(&at, 8 * (N + 1));
    s->occupancy = room(&at, F * R * (N + 1));
    s->forward = room(&at, F * R * N);
    s->backward = room(&at, F * R * N);
    s->entry_row = room(&at, 4 * R * N);
    s->entry_slot = room(&at, 4 * R * N);
    s->keys = room(&at, F * R * N * D);
    s->entries = room(&at, F * R * N * D);
    s->features = room(&at, F * R * N * D);
    s->scores = room(&at, F * R * N);
    s->masked = room(&at, F * R * 2 * D);
    s->mask = room(&at, F * 4 * D);
    s->half_a = room(&at, p->half_gemm ? 2 * HALF_ROWS * 4 * D : 0);
    s->half_b = room(&at, p->half_gemm && reverse ? 2 * HALF_ROWS * 4 * D : 0);
    if (reverse) {
        int64_t waiting = WASTE + R * N;
        s->d_memory = room(&at, F * R * N * D);
        s->d_candidate = room(&at, F * R * N * D);
        s->d_occupancy = room(&at, F * R * (N + 1));
        s->d_forward = room(&at, F * R * N);
        s->d_composed = room(&at, F * R * D);
        s->d_units = room(&at, F * waiting * 4 * D);
        s->d_hidden = room(&at, F * waiting * 4 * D);
        s->d_masked = room(&at, F * waiting * 2 * D);
        s->d_input = room(&at, F * R * 2 * D);
    }
    return at - base;
}

int64_t scratch_size(const Pass *p, int64_t reverse) {
    Scratch s;
    return lay_out(p, &s, 0, reverse);
}

/* All steps; the number of pairs. */
int64_t run(const Pass *p, char *memory) {
    unsigned before = flush_denormals();
    Scratch scratch, *s = &scratch;
    lay_out(p, s, memory, 0);
    int64_t N = p->N, rows = running(p, 0);
    for (int64_t r = 0; r < p->R; r++)
        memcpy(s->occupancy + r * (N + 1), p->occupancy0 + p->row[r] * (N + 1), (N + 1) * sizeof(REAL));
    p->start[0] = 0;
    for (int64_t t = 0; rows; t++) {
        attend(p, s, t, rows);
        number(p, rows, p->top + t * p->R, s->pair, s->pair_row, s->slot_start);
        p->start[t + 1] = p->start[t] + s->slot_start[N];
        update_memory(p, s, t);
        for (int64_t r = 0; r < rows; r++)
            if (p->top[t * p->R + r] == N)
                memcpy((REAL *)token(p, p->out, t, r), token(p, p->x, t, r), p->D * sizeof(REAL));
        for (int64_t i = 0; i < N; i++)
            if (s->slot_start[i + 1] > s->slot_start[i]) compose(p, s, t, i);
        int64_t still = running(p, t + 1);
        for (int64_t r = still; r < rows; r++) write_state(p, s, t, r);
        for (int64_t r = 0; r < still; r++) {
            memcpy(s->occupancy + r * (N + 1), s->forward + r * N, N * sizeof(REAL));
            s->occupancy[r * (N + 1) + N] = 1;
        }
        int32_t *swap = s->pair;
        s->pair = s->old_pair;
        s->old_pair = swap;
        p->start[p->T + 1] = t + 1;
        rows = still;
    }
    restore_denormals(before);
    return p->start[p->start[p->T + 1]];
}

/* Reverse of one pair's gates, LayerNorm and equation (7): d_units of the pair; the gradient of what was
   composed, into `gradient`. `d_out` is that of M̂_i. */
static void reverse_gates(const Pass *p, Scratch *s, int64_t t, int64_t i, int64_t j, REAL *restrict gradient,
                          REAL *restrict d_units) {
    int64_t D = p->D, N = p->N, r = s->pair_row[j], kept = p->start[t] + j;
    const REAL *restrict u = p->units + kept * 4 * D, *restrict c = p->composed + kept * D;
    const REAL *restrict memory = p->input + kept * 2 * D, *restrict below = memory + D;
    const REAL *restrict x = token(p, p->x, t, r), *restrict d_out = s->d_candidate + (r * N + i) * D;
    REAL *restrict d_x = (REAL *)token(p, p->d_x, t, r);
    REAL mean, inverse, weight = s->forward[r * N + i], d_forward = 0;
    moments(D, c, p->epsilon, &mean, &inverse);
    SUM(d_forward) for (int64_t d = 0; d < D; d++) {
        REAL normalized = (c[d] - mean) * inverse * p->norm[d] + p->norm_bias[d];
        d_forward += d_out[d] * (normalized - x[d]);
        gradient[d] = d_out[d] * weight;
        d_x[d] += d_out[d] - gradient[d];
    }
    s->d_forward[j] = d_forward;
    reverse_norm(D, c, mean, inverse, p->norm, gradient, p->d_norm, p->d_norm_bias);
    SIMD for (int64_t d = 0; d < D; d++) {
        REAL g = gradient[d], to_memory = u[d], to_below = u[D + d], to_update = u[2 * D + d];
        d_units[d] = g * memory[d] * to_memory * (1 - to_memory);
        d_units[D + d] = g * below[d] * to_below * (1 - to_below);
        d_units[2 * D + d] = g * u[3 * D + d] * to_update * (1 - to_update);
        d_units[3 * D + d] = g * to_update;
    }
    add(4 * D, d_units, p->d_second_bias);
}

/* Reverse of `compose`. `waiting` is where the step's pairs stand among those that wait. */
static void decompose(const Pass *p, Scratch *s, int64_t t, int64_t i, int64_t waiting) {
    int64_t D = p->D, N = p->N, begin = s->slot_start[i], count = s->slot_start[i + 1] - begin;
    int64_t kept = p->start[t] + begin, at = waiting + begin;
    REAL *d_units = s->d_units + at * 4 * D, *d_hidden = s->d_hidden + at * 4 * D;
    for (int64_t k = 0; k < count; k++)
        reverse_gates(p, s, t, i, begin + k, s->d_composed + k * D, d_units + k * 4 * D);
    product(p, s, count, 4 * D, 4 * D, d_units, p->second, p->half_second, d_hidden);
    for (int64_t k = 0; k < count; k++) {
        REAL *restrict d = d_hidden + k * 4 * D;
        const REAL *restrict h = p->hidden + (kept + k) * 4 * D;
        SIMD for (int64_t j = 0; j < 4 * D; j++) d[j] = h[j] > 0 ? d[j] : 0;
        /* Where masks are 0 or 1, those that are 0 left hidden units of 0. */
        if (p->given[HIDDEN] && draw(p, HIDDEN, t, s->pair_row[begin + k], i, 4 * D, s->mask))
            multiply(4 * D, s->mask, d);
        add(4 * D, d, p->d_first_bias);
    }
    product(p, s, count, 2 * D, 4 * D, d_hidden, p->first, p->half_first, s->d_input);
    for (int64_t k = 0; k < count; k++) {
        int64_t r = s->pair_row[begin + k];
        const REAL *input = p->input + (kept + k) * 2 * D;
        REAL *restrict d_input = s->d_input + k * 2 * D, *restrict masked = s->d_masked + (at + k) * 2 * D;
        if (draw(p, INPUT, t, r, i, 2 * D, s->mask)) {
            multiply(2 * D, s->mask, d_input);
            SIMD for (int64_t d = 0; d < 2 * D; d++) masked[d] = input[d] * s->mask[d];
        } else
            memcpy(masked, input, 2 * D * sizeof(REAL));
        const REAL *restrict g = s->d_composed + k * D, *restrict u = p->units + (kept + k) * 4 * D;
        REAL *restrict d_memory = s->d_memory + (r * N + i) * D;
        REAL *restrict d_below = i ? s->d_candidate + (r * N + i - 1) * D : (REAL *)token(p, p->d_x, t, r);
        SIMD for (int64_t d = 0; d < D; d++) {
            d_memory[d] += d_input[d] + g[d] * u[d];
            d_below[d] += d_input[D + d] + g[d] * u[D + d];
        }
    }
}

/* Weight gradients of `count` waiting pairs that end before pair `end`. */
static void add_waiting(const Pass *p, const Scratch *s, int64_t at, int64_t count, int64_t first) {
    int64_t D = p->D;
    add_product(p, s, 4 * D, 4 * D, count, s->d_units + at * 4 * D, p->hidden + first * 4 * D, p->d_second);
    add_product(p, s, 4 * D, 2 * D, count, s->d_hidden + at * 4 * D, s->d_masked + at * 2 * D, p->d_first);
}

/* Reverse of `update_memory`: the gradients of M and M̂ of this step become those of the step before. */
static void reverse_memory(const Pass *p, Scratch *s, int64_t t, int64_t r, REAL *d_backward) {
    int64_t D = p->D, N = p->N, top = p->top[t * p->R + r];
    for (int64_t i = 0; i < top; i++) { /* M̂_i was x̃ */
        REAL *d_candidate = s->d_candidate + (r * N + i) * D;
        add(D, d_candidate, (REAL *)token(p, p->d_x, t, r));
        memset(d_candidate, 0, D * sizeof(REAL));
        memset(s->d_memory + (r * N + i) * D, 0, D * sizeof(REAL));
        d_backward[i] = 0;
    }
    for (int64_t i = top; i < N; i++) {
        REAL *restrict d_memory = s->d_memory + (r * N + i) * D;
        REAL *restrict d_candidate = s->d_candidate + (r * N + i) * D;
        const REAL *restrict new = candidate_of(p, t - 1, s->old_pair, r, i);
        const REAL *restrict old = memory_of(p, t - 1, s->old_pair, r, i);
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
        d_backward[i] = sum;
    }
}

/* Reverse of equations (3), (4), (9)-(11): gradients of the scores of a row's entries, (N) by slot, and
   of the occupancy it was masked by. */
static void reverse_attention(const Pass *p, Scratch *s, int64_t t, int64_t r, const REAL *d_backward,
                              REAL *d_score) {
    int64_t N = p->N;
    const REAL *attention = p->attention + (t * p->B + p->row[r]) * N;
    const REAL *upstream = p->d_attention ? p->d_attention + (t * p->B + p->row[r]) * N : 0;
    REAL *d_occupancy = s->d_occupancy + r * (N + 1), d_attention[N], sum = 0, mean = 0;
    for (int64_t i = 0; i < N; i++) {
        int32_t j = s->pair[r * N + i];
        if (j >= 0) d_occupancy[i] += s->d_forward[j];
    }
    for (int64_t i = N; i-- > 0;) d_attention[i] = sum += d_occupancy[i];
    sum = 0;
    for (int64_t i = 0; i < N; i++) {
        sum += d_backward[i];
        d_attention[i] += sum + (upstream ? upstream[i] : 0);
        mean += attention[i] * d_attention[i];
    }
    d_occupancy[0] = 0;
    for (int64_t i = 0; i < N; i++) {
        REAL mask = mask_of(p, s->occupancy + r * (N + 1), i);
        d_score[i] = attention[i] * (d_attention[i] - mean);
        d_occupancy[i + 1] = mask == 0 ? 0 : d_score[i] / mask;
    }
}

/* Reverse of `features` and of the score's last map, given the gradients of scores (R, N). */
static void reverse_scores(const Pass *p, Scratch *s, int64_t t, int64_t rows, const REAL *d_scores) {
    int64_t D = p->D, N = p->N, count = features(p, s, t, rows);
    for (int64_t e = 0; e < count; e++) {
        int64_t r = s->entry_row[e], i = s->entry_slot[e];
        REAL *restrict key = s->keys + e * D, *restrict feature = s->features + e * D;
        REAL *restrict d_query = (REAL *)token(p, p->d_query, t, r), d_score = d_scores[r * N + i];
        REAL *restrict d_output = p->d_output, *restrict mask = s->mask, gradient[D];
        *p->d_output_bias += d_score;
        if (!draw(p, FEATURE, t, r, i, D, mask))
            for (int64_t d = 0; d < D; d++) mask[d] = 1;
        SIMD for (int64_t d = 0; d < D; d++) {
            d_output[d] += d_score * feature[d] * mask[d];
            REAL slope = p->normalized ? feature[d] > 0 : 1 - feature[d] * feature[d];
            gradient[d] = d_score * p->output[d] * mask[d] * slope;
            d_query[d] += gradient[d];
        }
        if (p->normalized) {
            REAL mean, inverse;
            moments(D, key, p->key_epsilon, &mean, &inverse);
            reverse_norm(D, key, mean, inverse, p->key_norm, gradient, p->d_key_norm, p->d_key_norm_bias);
        }
        memcpy(key, gradient, D * sizeof(REAL));
        add(D, key, p->d_key_bias);
    }
    add_product(p, s, D, D, count, s->keys, s->entries, p->d_key);
    product(p, s, count, D, D, s->keys, p->key, p->half_key, s->features);
    for (int64_t e = 0; e < count; e++) {
        int64_t r = s->entry_row[e], i = s->entry_slot[e];
        REAL *d_entry = s->features + e * D;
        if (draw(p, KEY, t, r, i, D, s->mask)) multiply(D, s->mask, d_entry);
        add(D, d_entry, s->d_candidate + (r * N + i) * D);
    }
}

/* Begin the reverse of a row at its last token, with the gradients of its final state. */
static void begin_row(const Pass *p, Scratch *s, int64_t t, int64_t r) {
    int64_t N = p->N, D = p->D, size = N * D * sizeof(REAL), here = p->row[r] * N * D;
    memset(s->d_memory + r * N * D, 0, size);
    memset(s->d_candidate + r * N * D, 0, size);
    memset(s->d_occupancy + r * (N + 1), 0, (N + 1) * sizeof(REAL));
    if (p->d_candidate) memcpy(s->d_candidate + r * N * D, p->d_candidate + here, size);
    if (p->d_memory) memcpy(s->d_memory + r * N * D, p->d_memory + here, size);
    if (p->d_occupancy)
        memcpy(s->d_occupancy + r * (N + 1), p->d_occupancy + p->row[r] * (N + 1), (N + 1) * sizeof(REAL));
}

/* After a row's last step: M_i of the slots that were not active came from the step before. */
static void end_row(const Pass *p, Scratch *s, int64_t t, int64_t r) {
    int64_t N = p->N, D = p->D;
    if (!p->d_memory) return;
    int empty = s->forward[r * N + N - 1] == 0;
    for (int64_t i = 0; i < p->top[t * p->R + r]; i++)
        add(D, row_of(p, p->d_memory, r, i), (empty ? s->d_memory : s->d_candidate) + (r * N + i) * D);
}

/* The occupancy before step t, and the masks of its attention. */
static void recall(const Pass *p, Scratch *s, int64_t t, int64_t rows) {
    int64_t N = p->N;
    REAL unused[N];
    for (int64_t r = 0; r < rows; r++) {
        REAL *occupancy = s->occupancy + r * (N + 1);
        masks(N, p->attention + (t * p->B + p->row[r]) * N, s->forward + r * N, s->backward + r * N);
        if (t) {
            masks(N, p->attention + ((t - 1) * p->B + p->row[r]) * N, occupancy, unused);
            occupancy[N] = 1;
        } else
            memcpy(occupancy, p->occupancy0 + p->row[r] * (N + 1), (N + 1) * sizeof(REAL));
    }
}

/* Back through all steps. Gradients of weights are added to what is there. */
void run_back(const Pass *p, char *memory) {
    unsigned before = flush_denormals();
    Scratch scratch, *s = &scratch;
    lay_out(p, s, memory, 1);
    int64_t N = p->N, D = p->D, room_for = WASTE + p->R * N, waiting = 0, steps = p->start[p->T + 1];
    REAL *d_scores = malloc(sizeof(REAL) * p->R * N), d_backward[N];
    for (int64_t t = steps; t-- > 0;) {
        int64_t rows = running(p, t), ending = running(p, t + 1), pairs = p->start[t + 1] - p->start[t];
        number(p, rows, p->top + t * p->R, s->pair, s->pair_row, s->slot_start);
        if (t) number(p, running(p, t - 1), p->top + (t - 1) * p->R, s->old_pair, 0, 0);
        recall(p, s, t, rows);
        for (int64_t r = ending; r < rows; r++) begin_row(p, s, t, r);
        if (p->d_out)
            for (int64_t r = 0; r < rows; r++)
                add(D, token(p, p->d_out, t, r), s->d_candidate + (r * N + N - 1) * D);
        if (waiting + pairs > room_for) {
            add_waiting(p, s, room_for - waiting, waiting, p->start[t + 1]);
            waiting = 0;
        }
        waiting += pairs;
        for (int64_t i = N; i-- > 0;)
            if (s->slot_start[i + 1] > s->slot_start[i]) decompose(p, s, t, i, room_for - waiting);
        for (int64_t r = 0; r < rows; r++) {
            reverse_memory(p, s, t, r, d_backward);
            reverse_attention(p, s, t, r, d_backward, d_scores + r * N);
        }
        for (int64_t r = ending; r < rows; r++) end_row(p, s, t, r);
        reverse_scores(p, s, t, rows, d_scores);
    }
    add_waiting(p, s, room_for - waiting, waiting, p->start[0]);
    for (int64_t r = 0; r < running(p, 0); r++) {
        memcpy(row_of(p, p->d_memory0, r, 0), s->d_memory + r * N * D, N * D * sizeof(REAL));
        memcpy(row_of(p, p->d_candidate0, r, 0), s->d_candidate + r * N * D, N * D * sizeof(REAL));
        memcpy(p->d_occupancy0 + p->row[r] * (N + 1), s->d_occupancy + r * (N + 1), (N + 1) * sizeof(REAL));
    }
    free(d_scores);
    restore_denormals(before);
}
