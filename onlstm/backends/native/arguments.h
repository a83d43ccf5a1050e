/* The arguments of the functions of recurrence.c, and how their work is divided.

   Notation is that of onlstm/functional.py, tokens are packed as there. Sizes: T steps, B sequences of which
   rows[t] reach step t, I features of a token, H units in M chunks of C, G = 4H + 2M pre-activations, P tokens.

   The units are divided into parts, each of some chunks. `gates` has the columns of one part after the other:
   its units of i, f, ĉ and o, then its logits of f̃ and ĩ. So the backward pass needs the parts of the forward pass;
   it does not need as many threads. */

typedef struct {
    int64_t T, B, I, H, M, C, G, parts, keep; /* keep: for a backward pass */
    int64_t pairs;                            /* 1: products take pairs of bfloat16 numbers, each in place of a REAL */
    const int64_t *rows, *start;              /* (T): sequences of a step, its first token */
    const REAL *tokens, *weight_ih;           /* (P, I), (G, I); in pairs */
    const REAL *weight_hh, *bias;             /* (G, H) in pairs, backwards those of its transpose; (G) or null */
    const REAL *hidden0, *cell0;              /* (B, H) */
    REAL *gates;                              /* (P, G); of a block of steps if not kept */
    REAL *softmax, *cells;                    /* (P, 2M), (P, H); none, and those of one step, if not kept */
    REAL *output;                             /* (P, H) */
    REAL *last_hidden, *last_cell;            /* (B, H): the initial state at first */
    REAL *forget_distance, *input_distance;   /* (P) */
    const REAL *d_output, *d_forget_distance, *d_input_distance; /* upstream or null */
    REAL *d_gates;                            /* (P, G), in the order of the weights' rows */
    REAL *d_hidden, *d_cell;                  /* (B, H): of the last state at first, of the initial one at last */
    REAL *d_masters;                          /* (B, 2M): scratch */
    bf16_t *narrow;                           /* (B, H): the state as pairs; null without */
    REAL *scratch;                            /* (scratch_size) */
    int64_t *barrier;                         /* (2): zero */
} Pass;
EXPORT_SIZE(Pass)

enum { BLOCK = 256 }; /* tokens whose product with W is one */

/* The first of `size` items that belongs to a share, of `shares` in all. */
static int64_t share_of(int64_t size, int64_t share, int64_t shares) { return size * share / shares; }

static int64_t first_chunk(const Pass *p, int64_t part) { return share_of(p->M, part, p->parts); }

/* Where the columns of a part begin in `gates`. */
static int64_t first_column(const Pass *p, int64_t part) { return first_chunk(p, part) * (4 * p->C + 2); }

/* Numbers of scratch for a part: its packed weights, and a row of units and of master gates. */
static int64_t part_scratch(const Pass *p, int64_t backward) {
    int64_t chunks = (p->M + p->parts - 1) / p->parts;
    int64_t packed = backward ? packed_size(p->G, chunks * p->C) : packed_size(p->H + p->I, chunks * (4 * p->C + 2));
    int64_t narrow = backward && p->pairs ? p->B * p->G / 2 : 0; /* d_gates of a step as pairs */
    return (packed + 2 * (p->H + p->M) + narrow + 63) / 64 * 64;
}

/* How many REAL a row of `size` numbers takes as an operand. */
static int64_t operand_size(const Pass *p, int64_t size) { return p->pairs ? size / 2 : size; }

int64_t scratch_size(const Pass *p, int64_t backward) { return p->parts * part_scratch(p, backward); }

/* The state before a step: of the step before it, or the initial one. */
static const REAL *previous(const Pass *p, const REAL *kept, const REAL *initial, int64_t t) {
    return t ? kept + p->start[t - 1] * p->H : initial;
}
