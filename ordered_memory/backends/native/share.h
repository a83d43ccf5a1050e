/* One thread's share of the sequences: its rows, its scratch memory, and its layout.

   A row is a sequence of the share, and a pair is a row and a slot with →π_i > 0 at one step. Pairs are numbered by
   step, then by slot, then by row, so that the rows of a slot are one matrix. Row j of `inputs` is the cell's input
   [M_i; M̂_{i-1}] of pair j, and M̂_i is written where it is read next: to the input of slot i + 1, or to the output.
   Other slots hold x̃ and are not computed. If no backward pass follows, only two steps of `inputs` are stored, and
   one slot of the other arrays.

   "Operands" of matrix products are REAL or bfloat16. If they are bfloat16, only two steps of `inputs` are stored as
   REAL; all steps are stored in `rounded`, from which the backward pass restores them. */

enum { PENDING = 2048 }; /* number of pairs whose weight gradients are computed in one product */
enum { BLOCK = 256 };    /* number of rows that are packed at once for a weight gradient */

/* The packed weights. In the forward pass those of the cell are transposed. */
typedef struct {
    REAL *key, *key_t, *w_in, *w_out;
} Packed;

typedef struct {
    const Pass *p;
    Packed packed;
    int64_t number, R;                         /* index of the share; number of its rows */
    int64_t *row, *length;                     /* (R): index of the sequence in the batch, number of tokens */
    int64_t *start;                            /* (T + 1): first pair of each step */
    REAL *inputs;                              /* (pairs, 2D) */
    void *rounded, *hidden, *gates;            /* operands of pairs: inputs if bfloat16 (2D); 4D; 4D */
    REAL *wide, *row_values, *composed;        /* (R, 4D) and (4D), values that will be rounded; (D) */
    int32_t *pair, *old_pair;                  /* (R, N): number of the pair in its step, or -1; of the step before */
    int32_t *pair_row;                         /* (R * N): row of each pair of the step */
    int64_t *slot_start;                       /* (N + 1) */
    REAL *occupancy;                           /* (R, N + 1), of the previous step */
    REAL *forward, *backward;                  /* (R, N): →π, ←π */
    int32_t *entry_row, *entry_slot;           /* (R * N): row and slot of each candidate that is scored */
    REAL *keys, *features, *scores;            /* (R * N, D) twice, (R * N) */
    void *entries, *masked;                    /* operands: (R * N, D); (R, 2D) */
    REAL *mask;                                /* (4D) */
    int16_t *noise;                            /* (4D), rounded up to words of four */
    /* only in the backward pass */
    REAL *tiles;                                    /* (BLOCK, 4D): packed operand of a weight gradient */
    REAL *d_memory, *d_candidate, *d_occupancy;     /* (R, N, D) twice, (R, N + 1) */
    REAL *d_forward, *d_composed;                   /* (R * N), (R, D) */
    void *d_gates, *d_hidden, *masked_inputs;       /* operands of pending pairs: 4D, 4D, 2D */
    void *d_keys;                                   /* operands: (R * N, D); if REAL, the same memory as the features */
    REAL *d_input;                                  /* (R, 2D) */
    REAL *d_scores, *d_backward, *d_attention;      /* (R, N), (N) twice */
    REAL *d_key, *d_key_bias, *d_score, *d_w_in, *d_b_in, *d_w_out, *d_b_out;
    REAL *d_norm, *d_norm_bias, *d_key_norm, *d_key_norm_bias;
} Share;

/* Whether products take bfloat16 operands, and the size of an operand. */
static int is_narrow(const Pass *p) { return p->pairs || p->bf16_gemm; }
static int64_t operand_size(const Pass *p) { return is_narrow(p) ? sizeof(bf16_t) : sizeof(REAL); }

static void *take(char **from, int64_t bytes) {
    void *here = *from;
    *from += (bytes + 63) / 64 * 64;
    return here;
}

static int64_t rows_of_share(const Pass *p, int64_t number) {
    return number < p->rows ? (p->rows - number + p->shares - 1) / p->shares : 0;
}

/* Assign the scratch memory of a share of R rows, from `base` on; returns its size in bytes. */
static int64_t lay_out(const Pass *p, Share *s, int64_t R, char *base, int reverse) {
    int64_t N = p->N, D = p->D, F = sizeof(REAL), O = operand_size(p), narrow = is_narrow(p);
    char *at = base;
    s->row = take(&at, 8 * R);
    s->length = take(&at, 8 * R);
    s->start = take(&at, 8 * (p->T + 1));
    s->inputs = take(&at, p->keep && !narrow ? 0 : F * 2 * R * N * 2 * D);
    s->rounded = take(&at, p->keep || !narrow ? 0 : O * R * 2 * D);
    s->hidden = take(&at, p->keep ? 0 : O * R * 4 * D);
    s->gates = take(&at, p->keep ? 0 : O * R * 4 * D);
    s->wide = take(&at, narrow ? F * R * 4 * D : 0);
    s->row_values = take(&at, narrow ? F * 4 * D : 0);
    s->composed = take(&at, F * D);
    s->pair = take(&at, 4 * R * N);
    s->old_pair = take(&at, 4 * R * N);
    s->pair_row = take(&at, 4 * R * N);
    s->slot_start = take(&at, 8 * (N + 1));
    s->occupancy = take(&at, F * R * (N + 1));
    s->forward = take(&at, F * R * N);
    s->backward = take(&at, F * R * N);
    s->entry_row = take(&at, 4 * R * N);
    s->entry_slot = take(&at, 4 * R * N);
    s->keys = take(&at, F * R * N * D);
    s->features = take(&at, F * R * N * D);
    s->scores = take(&at, F * R * N);
    s->entries = take(&at, O * R * N * D);
    s->masked = take(&at, O * R * 2 * D);
    s->mask = take(&at, F * 4 * D);
    s->noise = take(&at, 2 * 4 * D);
    if (reverse) {
        int64_t pending = PENDING + R * N;
        s->tiles = take(&at, p->bf16_gemm ? 0 : F * BLOCK * (4 * D + TILE));
        s->d_memory = take(&at, F * R * N * D);
        s->d_candidate = take(&at, F * R * N * D);
        s->d_occupancy = take(&at, F * R * (N + 1));
        s->d_forward = take(&at, F * R * N);
        s->d_composed = take(&at, F * R * D);
        s->d_gates = take(&at, O * pending * 4 * D);
        s->d_hidden = take(&at, O * pending * 4 * D);
        s->masked_inputs = take(&at, O * pending * 2 * D);
        s->d_keys = narrow ? take(&at, O * R * N * D) : s->features;
        s->d_input = take(&at, F * R * 2 * D);
        s->d_scores = take(&at, F * R * N);
        s->d_backward = take(&at, F * N);
        s->d_attention = take(&at, F * N);
    }
    return at - base;
}

/* Assign the memory of the packed matrices, from `base` on; returns their size in bytes. */
static int64_t lay_out_packed(const Pass *p, Packed *packed, char *base, int reverse) {
    int64_t D = p->D, F = p->bf16_gemm ? 0 : sizeof(REAL), k = p->pairs ? D / 2 : D;
    char *at = base;
    packed->key_t = take(&at, F * packed_size(k, D));
    packed->key = take(&at, reverse ? F * packed_size(k, D) : 0);
    packed->w_in = take(&at, F * (reverse ? packed_size(4 * k, 2 * D) : packed_size(2 * k, 4 * D)));
    packed->w_out = take(&at, F * packed_size(4 * k, 4 * D));
    return at - base;
}

/* Maximum size in bytes of a share's scratch memory: share 0 has the most rows. */
static int64_t share_size(const Pass *p, int reverse) {
    Share s;
    return lay_out(p, &s, rows_of_share(p, 0), 0, reverse);
}

int64_t scratch_size(const Pass *p, int64_t reverse) {
    Packed packed;
    return lay_out_packed(p, &packed, 0, reverse) + p->shares * share_size(p, reverse);
}

static Share share_of(const Pass *p, int64_t number, int reverse) {
    Share s = {.p = p, .number = number, .R = rows_of_share(p, number)};
    char *scratch = (char *)p->scratch;
    scratch += lay_out_packed(p, &s.packed, scratch, reverse);
    lay_out(p, &s, s.R, scratch + number * share_size(p, reverse), reverse);
    for (int64_t r = 0; r < s.R; r++) {
        s.row[r] = p->order[number + r * p->shares];
        s.length[r] = p->lengths[number + r * p->shares];
    }
    if (p->keep) {
        const int64_t *tape = p->tape + 3 * number;
        if (is_narrow(p)) s.rounded = (void *)tape[0];
        else s.inputs = (REAL *)tape[0];
        s.hidden = (void *)tape[1], s.gates = (void *)tape[2];
    }
    if (reverse) {
        int64_t D = p->D;
        s.d_key = p->d_key + number * D * D, s.d_key_bias = p->d_key_bias + number * D;
        s.d_score = p->d_score + number * D;
        s.d_w_in = p->d_w_in + number * 8 * D * D, s.d_b_in = p->d_b_in + number * 4 * D;
        s.d_w_out = p->d_w_out + number * 16 * D * D, s.d_b_out = p->d_b_out + number * 4 * D;
        s.d_norm = p->d_norm + number * D, s.d_norm_bias = p->d_norm_bias + number * D;
        if (p->key_norm) {
            s.d_key_norm = p->d_key_norm + number * D, s.d_key_norm_bias = p->d_key_norm_bias + number * D;
        }
    }
    return s;
}

/* The entries of row r: in a sequence (T, B, D) at step t, in a state (B, N, D) at slot i, in p (T, B, N) at step t. */
static REAL *token(const Share *s, const REAL *sequence, int64_t t, int64_t r) {
    return (REAL *)sequence + (t * s->p->B + s->row[r]) * s->p->D;
}

static REAL *slot_of(const Share *s, const REAL *state, int64_t r, int64_t i) {
    return (REAL *)state + (s->row[r] * s->p->N + i) * s->p->D;
}

static REAL *attention_of(const Share *s, const REAL *attention, int64_t t, int64_t r) {
    return (REAL *)attention + (t * s->p->B + s->row[r]) * s->p->N;
}

static int32_t *top_of(const Share *s, int64_t t, int64_t r) { return s->p->top + t * s->p->B + s->row[r]; }

/* The number of rows that have a token at step t; they come first. */
static int64_t running(const Share *s, int64_t t) {
    int64_t r = 0;
    while (r < s->R && s->length[r] > t) r++;
    return r;
}

/* Number the pairs of a step, given the first active slot of each row. */
static void number_pairs(const Share *s, int64_t t, int64_t rows, int32_t *pair, int32_t *pair_row,
                         int64_t *slot_start) {
    int64_t N = s->p->N, next = 0;
    for (int64_t i = 0; i < N; i++) {
        if (slot_start) slot_start[i] = next;
        for (int64_t r = 0; r < rows; r++) {
            int active = *top_of(s, t, r) <= i;
            if (active && pair_row) pair_row[next] = r;
            pair[r * N + i] = active ? (int32_t)next++ : -1;
        }
    }
    if (slot_start) slot_start[N] = next;
}

/* The inputs of a step's pairs. */
static REAL *inputs_of(const Share *s, int64_t t) {
    int all = s->p->keep && !is_narrow(s->p);
    return s->inputs + (all ? s->start[t] : (t & 1) * s->R * s->p->N) * 2 * s->p->D;
}

/* M̂_i after step t; t = -1 is the initial state. */
static const REAL *candidate_of(const Share *s, int64_t t, const int32_t *pair, int64_t r, int64_t i) {
    const Pass *p = s->p;
    if (t < 0) return slot_of(s, p->candidate0, r, i);
    if (i == p->N - 1) return token(s, p->output, t, r);
    int32_t next = pair[r * p->N + i + 1];
    return next < 0 ? token(s, p->inputs, t, r) : inputs_of(s, t) + next * 2 * p->D + p->D;
}

/* M_i after step t, or null if the slot was not active: then M_i has no effect. */
static const REAL *memory_of(const Share *s, int64_t t, const int32_t *pair, int64_t r, int64_t i) {
    if (t < 0) return slot_of(s, s->p->memory0, r, i);
    int32_t j = pair[r * s->p->N + i];
    return j < 0 ? 0 : inputs_of(s, t) + j * 2 * s->p->D;
}
