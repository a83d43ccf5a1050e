/* The arguments of the C functions. Python reads the names, order and types of the fields from this typedef.

   Sizes: T steps, B sequences, N slots, D slot size. The sequences are divided into shares, one for each thread: share
   s has the sequences order[s], order[s + shares], order[s + 2 shares], ... Pointers to optional arguments may be null.
   Weights, dropout and state are those of backends/contract.py. d_y is the gradient with respect to y. */

/* BLAS's GEMM of bfloat16 operands, column-major. */
typedef void (*bf16_gemm_t)(const char *, const char *, const int *, const int *, const int *, const scalar_t *,
                            const bf16_t *, const int *, const bf16_t *, const int *, const scalar_t *, scalar_t *,
                            const int *);

typedef struct {
    int64_t T, B, N, D, shares;
    int64_t nonempty;                               /* number of sequences that have a token */
    int64_t save;                                   /* 1 to write the tape, as a backward pass may follow */
    const int64_t *order, *lengths;                 /* (nonempty): sequences, longest first, and their lengths */
    scalar_t threshold, norm_epsilon, key_epsilon;
    const scalar_t *inputs, *queries;               /* x̃, and the score's map of x̃: (T, B, D) */
    const scalar_t *memory0, *candidate0, *occupancy0; /* the initial state: M, M̂ (B, N, D), (B, N + 1) */
    const scalar_t *key, *key_bias, *score_out;     /* the score's map of M̂ (D, D), (D); its last map (D) */
    const scalar_t *w_in, *b_in, *w_out, *b_out;    /* the cell's W1 (4D, 2D), b1 (4D), W2 (4D, 4D), b2 (4D) */
    const scalar_t *norm, *norm_bias;               /* LayerNorm of the cell, (D) */
    const scalar_t *key_norm, *key_norm_bias;       /* LayerNorm of the keys, (D); null for the additive score */
    const bf16_t *bf16_key, *bf16_w_in, *bf16_w_out;       /* the matrices in bfloat16, if operands are bfloat16 */
    const bf16_t *bf16_key_t, *bf16_w_in_t, *bf16_w_out_t; /* their transposes */
    const scalar_t *cell_input_mask, *hidden_mask, *key_mask, *feature_mask; /* given dropout masks, (T, B, N, ·) */
    int64_t cell_drop_below, score_drop_below;      /* drawn dropout masks: an entry with noise below it is dropped */
    const int64_t *seed;                            /* seed of the noise */
    scalar_t *output, *attention;                   /* (T, B, D), p (T, B, N) */
    scalar_t *memory, *candidate, *occupancy;       /* the final state; initialized with the initial state */
    uint8_t *tape_cell_inputs, *tape_hidden, *tape_gates; /* the tape of all shares: see share.h; null unless `save` */
    int32_t *first_active;                          /* (T, B): the first slot with →π_i > 0, or N */
    const scalar_t *d_output, *d_attention, *d_memory, *d_candidate, *d_occupancy;
    scalar_t *d_inputs, *d_queries, *d_memory0, *d_candidate0, *d_occupancy0;
    scalar_t *d_key, *d_key_bias, *d_score_out;     /* (shares, ·), as all gradients of weights */
    scalar_t *d_w_in, *d_b_in, *d_w_out, *d_b_out;
    scalar_t *d_norm, *d_norm_bias, *d_key_norm, *d_key_norm_bias;
    int64_t bf16_vnni;                              /* 1: operands of products have the VNNI layout (bf16.h) */
    bf16_gemm_t bf16_gemm;                          /* or BLAS multiplies bfloat16 operands; else null */
    uint8_t *workspace;                             /* `workspace_size` bytes */
} Pass;
EXPORT_SIZE(Pass)
