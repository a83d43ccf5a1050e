/* The arguments of the functions of recurrence.c, and how the work is divided among threads.

   Notation and packing of tokens are those of onlstm/functional.py. Sizes: T steps, B sequences of which rows[t] have
   step t, I features of a token, H units in M chunks of C, G = 4H + 2M pre-activations, P tokens.

   The units are divided into parts of whole chunks. The columns of `gates` are ordered by part: the units of i, f, ĉ
   and o of a part, then its logits of f̃ and ĩ. So the backward pass must use the same parts as the forward pass, but
   not the same number of threads. */

typedef struct {
    int64_t T, B, I, H, M, C, G, parts, keep; /* keep: 1 to save for a backward pass */
    int64_t pairs;                            /* 1: operands are pairs of bfloat16 numbers, each as one REAL */
    const int64_t *rows, *start;              /* (T): number of sequences and first token of each step */
    const REAL *tokens, *weight_ih;           /* (P, I), (G, I); or pairs */
    const REAL *weight_hh, *bias;             /* (G, H), or pairs, of the transpose in the backward pass; (G) or null */
    const REAL *hidden0, *cell0;              /* (B, H) */
    REAL *gates;                              /* (P, G); without `keep`, of one block of steps */
    REAL *softmax, *cells;                    /* (P, 2M), (P, H); without `keep`, none and those of one step */
    REAL *output;                             /* (P, H) */
    REAL *last_hidden, *last_cell;            /* (B, H): initialized with the initial state */
    REAL *forget_distance, *input_distance;   /* (P) */
    const REAL *d_output, *d_forget_distance, *d_input_distance; /* upstream gradients, or null */
    REAL *d_gates;                            /* (P, G), in the order of the weights' rows */
    REAL *d_hidden, *d_cell;                  /* (B, H): gradients of the final state, then of the initial one */
    REAL *d_masters;                          /* (B, 2M): scratch */
    bf16_t *narrow;                           /* (B, H): the hidden state as pairs; null without pairs */
    REAL *scratch;                            /* (scratch_size) */
    int64_t *barrier;                         /* (2): initialized with zeros */
} Pass;
EXPORT_SIZE(Pass)

enum { BLOCK = 256 }; /* number of tokens in one product with W */

/* The first of `size` items that belongs to a share, of `shares` in all. */
static int64_t share_of(int64_t size, int64_t share, int64_t shares) { return size * share / shares; }

static int64_t first_chunk(const Pass *p, int64_t part) { return share_of(p->M, part, p->parts); }

/* The first column of a part in `gates`. */
static int64_t first_column(const Pass *p, int64_t part) { return first_chunk(p, part) * (4 * p->C + 2); }

/* Number of elements of scratch memory for a part: its packed weights, and a row of units and of master gates. */
static int64_t part_scratch(const Pass *p, int64_t backward) {
    int64_t chunks = (p->M + p->parts - 1) / p->parts;
    int64_t packed = backward ? packed_size(p->G, chunks * p->C) : packed_size(p->H + p->I, chunks * (4 * p->C + 2));
    int64_t narrow = backward && p->pairs ? p->B * p->G / 2 : 0; /* d_gates of a step as pairs */
    return (packed + 2 * (p->H + p->M) + narrow + 63) / 64 * 64;
}

/* The number of REALs that a row of `size` numbers takes as an operand. */
static int64_t operand_size(const Pass *p, int64_t size) { return p->pairs ? size / 2 : size; }

int64_t scratch_size(const Pass *p, int64_t backward) { return p->parts * part_scratch(p, backward); }

/* The state before a step: that of the previous step, or the initial state. */
static const REAL *previous(const Pass *p, const REAL *kept, const REAL *initial, int64_t t) {
    return t ? kept + p->start[t - 1] * p->H : initial;
}
