/* The arguments of the functions of recurrence.c. Python reads the names, order and types of the fields from this
   typedef. Notation and packing of tokens are those of onlstm/functional.py. Sizes: T steps, B sequences, I features of
   a token, H units in M chunks of C, G = 4H + 2M pre-activations, P packed tokens. d_y is the gradient with respect
   to y. */

typedef struct {
    int64_t T, B, I, H, M, C, G;
    int64_t parts;                              /* number of parts: see parts.h */
    int64_t save;                               /* 1 to save gates, softmax and cells for a backward pass */
    int64_t bf16_vnni;                          /* 1: operands of products have the VNNI layout (bf16.h) */
    const int64_t *batch_sizes, *first_token;   /* (T): number of sequences of each step, and its first token */
    const scalar_t *tokens, *weight_ih;         /* x (P, I), W (G, I); or in the VNNI layout */
    const scalar_t *weight_hh;                  /* U (G, H); or in the VNNI layout, for the backward pass transposed */
    const scalar_t *bias;                       /* b (G), or null */
    const scalar_t *hidden0, *cell0;            /* the initial state, (B, H) */
    scalar_t *gates;                            /* (P, G): pre-activations, overwritten by i, f, ĉ and o; without
                                                   `save`, of one block of steps */
    scalar_t *softmax;                          /* (P, 2M): of the logits of f̃ and ĩ; without `save`, none */
    scalar_t *cells;                            /* c, (P, H); without `save`, of one step */
    scalar_t *output;                           /* h, (P, H) */
    scalar_t *last_hidden, *last_cell;          /* the final state, (B, H): initialized with the initial state */
    scalar_t *forget_distance, *input_distance; /* (P) */
    const scalar_t *d_output, *d_forget_distance, *d_input_distance; /* or null */
    scalar_t *d_preactivations;                 /* (P, G), in the order of the weights' rows */
    scalar_t *d_hidden, *d_cell;                /* (B, H): gradients of the final state, then of the initial one */
    scalar_t *d_master_gates;                   /* (B, 2M): of f̃ and ĩ of one step */
    bf16_t *bf16_hidden;                        /* h of one step in the VNNI layout, (B, H), or null */
    bf16_t *bf16_d_preactivations;              /* d_preactivations in the VNNI layout, (P, G), or null */
    scalar_t *workspace;                        /* (workspace_size) */
    int64_t *barrier;                           /* (2): initialized with zeros; see barrier.h */
} Pass;
EXPORT_SIZE(Pass)
