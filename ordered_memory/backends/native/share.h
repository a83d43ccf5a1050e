/* One thread's share of the sequences, and its memory: the workspace, and the tape between the two passes.

   A row is a sequence of the share; row r is sequence[r] of the batch. An active pair is a row and a slot with →π_i > 0
   at one step. Other slots hold x̃, and nothing is computed for them. Pairs are numbered by step, then by slot, then by
   row, so that the rows of a slot are consecutive rows of a matrix.

   Row j of `cell_inputs` is [M_i; M̂_{i-1}], the inputs of the cell for pair j. M̂_i is written where it is read next:
   among the cell's inputs for slot i + 1, or to the output if i is the last slot.

   The tape has three matrices: the inputs, the hidden units and the gates of the cell for all pairs of all steps. They
   are operands (products.h): scalar_t or bfloat16. If they are bfloat16, `bf16_cell_inputs` is on the tape, and
   `cell_inputs` has room for two steps: the backward pass converts `bf16_cell_inputs` back into it. Without a tape
   (`save` is 0), `cell_inputs` has two steps and the others one slot. */

enum { MAX_PENDING = 2048 }; /* pairs whose weight gradients are computed in one product: many rows are faster */
enum { K_BLOCK = 256 };      /* rows of the operands of a weight gradient that are packed at a time, so that a packed
                                panel (32 KiB) stays in the cache */

/* The weights, packed. The forward pass multiplies by the transposes of the cell's weights. */
typedef struct {
    scalar_t *key, *key_t, *w_in, *w_out;
} PackedWeights;

typedef struct {
    const Pass *p;
    PackedWeights packed;
    int64_t R;                                     /* number of rows */
    int64_t *sequence, *length;                    /* (R): of each row: index in the batch, number of tokens */
    int64_t *step_start;                           /* (T + 1): first pair of each step */
    /* the cell */
    scalar_t *cell_inputs;                         /* (pairs, 2D) */
    void *bf16_cell_inputs, *hidden, *gates;       /* operands: (pairs, 2D), (pairs, 4D) twice */
    void *masked_cell_inputs;                      /* operand: after dropout, (R, 2D); backward pass (capacity, 2D) */
    scalar_t *unrounded_rows, *unrounded_row;      /* (R, 4D), (4D): rows of bfloat16 operands before rounding */
    scalar_t *composed;                            /* (D): result of the cell before the LayerNorm */
    int32_t *pair, *previous_pair;                 /* (R, N): index of each pair in its step, or -1; previous step's */
    int32_t *pair_row;                             /* (R * N): row of each pair of the step */
    int64_t *slot_start;                           /* (N + 1): first pair of each slot in the step */
    /* the attention */
    scalar_t *occupancy;                           /* (R, N + 1): after the previous step */
    scalar_t *forward_pi, *backward_pi;            /* (R, N): →π, ←π */
    int32_t *key_row, *key_slot;                   /* (R * N): row and slot of each key; masked slots have none */
    void *key_inputs;                              /* operand: (R * N, D), M̂[t-1] after dropout */
    scalar_t *keys, *features, *scores;            /* (R * N, D) twice, (R * N) */
    scalar_t *mask;                                /* (4D): a dropout mask */
    int16_t *noise;                                /* (4D) */
    /* only in the backward pass; pending are the pairs whose weight gradients are not yet added */
    scalar_t *packed_tiles;                        /* (K_BLOCK, 4D): packed operand of a weight gradient */
    scalar_t *d_memory, *d_candidate, *d_occupancy; /* (R, N, D) twice, (R, N + 1) */
    scalar_t *d_forward_pi, *d_composed;           /* (R * N), (R, D) */
    void *d_gates, *d_hidden;                      /* operands: (capacity, 4D) */
    void *d_keys;                                  /* operand: (R * N, D); if scalar_t, the memory of the features */
    scalar_t *d_cell_inputs;                       /* (R, 2D) */
    scalar_t *d_scores, *d_backward_pi, *d_attention; /* (R, N), (N) twice */
    scalar_t *d_key, *d_key_bias, *d_score_out, *d_w_in, *d_b_in, *d_w_out, *d_b_out;
    scalar_t *d_norm, *d_norm_bias, *d_key_norm, *d_key_norm_bias;
} Share;

static int has_bf16_operands(const Pass *p) { return p->bf16_vnni || p->bf16_gemm; }
static int64_t operand_bytes(const Pass *p) { return has_bf16_operands(p) ? sizeof(bf16_t) : sizeof(scalar_t); }

/* Whether the forward pass multiplies by the weights as they are: packing them would take longer. See gemm.h. From five
   tokens on, packing was as fast or faster: each token multiplies by the cell's weights for every active slot. */
enum { FEW_TOKENS = 4 };
static int few_tokens(const Pass *p) { return p->T * p->B <= FEW_TOKENS && !has_bf16_operands(p); }

/* A bump allocator: returns *next, and advances it by `bytes`, rounded up to cache lines. */
static void *take(char **next, int64_t bytes) {
    enum { CACHE_LINE = 64 };
    void *taken = *next;
    *next += (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    return taken;
}

static int64_t rows_of_share(const Pass *p, int64_t number) {
    return number < p->nonempty ? (p->nonempty - number + p->shares - 1) / p->shares : 0;
}

/* Assign the workspace of a share of R rows, from `base` on; returns its size in bytes. */
static int64_t assign_workspace(const Pass *p, Share *s, int64_t R, char *base, int is_backward_pass) {
    int64_t N = p->N, D = p->D, scalar = sizeof(scalar_t), operand = operand_bytes(p), bf16 = has_bf16_operands(p);
    int64_t capacity = MAX_PENDING + R * N; /* of the buffers of pending pairs */
    char *next = base;
    s->sequence = take(&next, 8 * R);
    s->length = take(&next, 8 * R);
    s->step_start = take(&next, 8 * (p->T + 1));
    s->cell_inputs = take(&next, p->save && !bf16 ? 0 : scalar * 2 * R * N * 2 * D);
    s->bf16_cell_inputs = take(&next, p->save || !bf16 ? 0 : operand * R * 2 * D);
    s->hidden = take(&next, p->save ? 0 : operand * R * 4 * D);
    s->gates = take(&next, p->save ? 0 : operand * R * 4 * D);
    s->masked_cell_inputs = take(&next, operand * (is_backward_pass ? capacity : R) * 2 * D);
    s->unrounded_rows = take(&next, bf16 ? scalar * R * 4 * D : 0);
    s->unrounded_row = take(&next, bf16 ? scalar * 4 * D : 0);
    s->composed = take(&next, scalar * D);
    s->pair = take(&next, 4 * R * N);
    s->previous_pair = take(&next, 4 * R * N);
    s->pair_row = take(&next, 4 * R * N);
    s->slot_start = take(&next, 8 * (N + 1));
    s->occupancy = take(&next, scalar * R * (N + 1));
    s->forward_pi = take(&next, scalar * R * N);
    s->backward_pi = take(&next, scalar * R * N);
    s->key_row = take(&next, 4 * R * N);
    s->key_slot = take(&next, 4 * R * N);
    s->key_inputs = take(&next, operand * R * N * D);
    s->keys = take(&next, scalar * R * N * D);
    s->features = take(&next, scalar * R * N * D);
    s->scores = take(&next, scalar * R * N);
    s->mask = take(&next, scalar * 4 * D);
    s->noise = take(&next, 2 * 4 * D);
    if (!is_backward_pass) return next - base;
    s->packed_tiles = take(&next, p->bf16_gemm ? 0 : scalar * K_BLOCK * (4 * D + TILE_ROWS));
    s->d_memory = take(&next, scalar * R * N * D);
    s->d_candidate = take(&next, scalar * R * N * D);
    s->d_occupancy = take(&next, scalar * R * (N + 1));
    s->d_forward_pi = take(&next, scalar * R * N);
    s->d_composed = take(&next, scalar * R * D);
    s->d_gates = take(&next, operand * capacity * 4 * D);
    s->d_hidden = take(&next, operand * capacity * 4 * D);
    s->d_keys = bf16 ? take(&next, operand * R * N * D) : s->features;
    s->d_cell_inputs = take(&next, scalar * R * 2 * D);
    s->d_scores = take(&next, scalar * R * N);
    s->d_backward_pi = take(&next, scalar * N);
    s->d_attention = take(&next, scalar * N);
    return next - base;
}

/* Assign the memory of the packed weights, from `base` on; returns their size in bytes, 0 if none is packed. */
static int64_t assign_packed(const Pass *p, PackedWeights *packed, char *base, int is_backward_pass) {
    int64_t D = p->D, k = p->bf16_vnni ? D / 2 : D;
    int64_t scalar = p->bf16_gemm || (few_tokens(p) && !is_backward_pass) ? 0 : sizeof(scalar_t);
    char *next = base;
    packed->key_t = take(&next, scalar * packed_size(k, D));
    packed->key = take(&next, is_backward_pass ? scalar * packed_size(k, D) : 0);
    packed->w_in = take(&next, scalar * (is_backward_pass ? packed_size(4 * k, 2 * D) : packed_size(2 * k, 4 * D)));
    packed->w_out = take(&next, scalar * packed_size(4 * k, 4 * D));
    return next - base;
}

/* The size of the largest workspace of a share: share 0 has the most rows. */
static int64_t share_bytes(const Pass *p, int is_backward_pass) {
    Share s;
    return assign_workspace(p, &s, rows_of_share(p, 0), 0, is_backward_pass);
}

/* The size in bytes of `p->workspace`: packed weights, then the workspace of each share. */
int64_t workspace_size(const Pass *p, int64_t is_backward_pass) {
    PackedWeights packed;
    return assign_packed(p, &packed, 0, is_backward_pass) + p->shares * share_bytes(p, is_backward_pass);
}

static Share share_of(const Pass *p, int64_t number, int is_backward_pass) {
    Share s = {.p = p, .R = rows_of_share(p, number)};
    char *workspace = (char *)p->workspace;
    workspace += assign_packed(p, &s.packed, workspace, is_backward_pass);
    assign_workspace(p, &s, s.R, workspace + number * share_bytes(p, is_backward_pass), is_backward_pass);
    for (int64_t r = 0; r < s.R; r++) {
        s.sequence[r] = p->order[number + r * p->shares];
        s.length[r] = p->lengths[number + r * p->shares];
    }
    if (p->save) { /* the tape of this share follows those of the shares before it */
        int64_t rows_before = number * (p->nonempty / p->shares) + smaller(number, p->nonempty % p->shares);
        int64_t bytes_before = rows_before * p->T * p->N * p->D * operand_bytes(p); /* of matrices with D columns */
        void *cell_inputs = p->tape_cell_inputs + 2 * bytes_before;
        if (has_bf16_operands(p)) s.bf16_cell_inputs = cell_inputs;
        else s.cell_inputs = cell_inputs;
        s.hidden = p->tape_hidden + 4 * bytes_before, s.gates = p->tape_gates + 4 * bytes_before;
    }
    if (is_backward_pass) {
        int64_t D = p->D;
        s.d_key = p->d_key + number * D * D, s.d_key_bias = p->d_key_bias + number * D;
        s.d_score_out = p->d_score_out + number * D;
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
static scalar_t *token_of(const Share *s, const scalar_t *sequence, int64_t t, int64_t r) {
    return (scalar_t *)sequence + (t * s->p->B + s->sequence[r]) * s->p->D;
}

static scalar_t *slot_of(const Share *s, const scalar_t *state, int64_t r, int64_t i) {
    return (scalar_t *)state + (s->sequence[r] * s->p->N + i) * s->p->D;
}

static scalar_t *attention_of(const Share *s, const scalar_t *attention, int64_t t, int64_t r) {
    return (scalar_t *)attention + (t * s->p->B + s->sequence[r]) * s->p->N;
}

static int32_t *first_active_of(const Share *s, int64_t t, int64_t r) {
    return s->p->first_active + t * s->p->B + s->sequence[r];
}

/* The number of rows that have a token at step t; they come first. */
static int64_t rows_at(const Share *s, int64_t t) {
    int64_t r = 0;
    while (r < s->R && s->length[r] > t) r++;
    return r;
}
