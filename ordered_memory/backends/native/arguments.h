/* The arguments of the C functions. Python reads the names, order and types of the fields from this typedef.

   Sizes: T steps, B sequences, N slots, D slot size. The sequences are divided into shares, one for each thread: share
   s has the sequences order[s], order[s + shares], order[s + 2 shares], ... Pointers to optional arguments may be null.
   REAL is float or double. */

#include "common.h"
#include "team.h"

typedef struct {
    int64_t T, B, N, D, rows, shares;   /* rows: sequences with a token */
    int64_t keep;                       /* 1 if a backward pass may follow */
    const int64_t *order, *lengths;     /* (rows): indices of the sequences, longest first, and their lengths */
    REAL threshold, norm_epsilon, key_epsilon;
    const REAL *inputs, *queries;                         /* (T, B, D) */
    const REAL *memory0, *candidate0, *occupancy0;        /* (B, N, D) twice, (B, N + 1) */
    const REAL *key, *key_bias, *score;                   /* (D, D), (D) twice */
    const REAL *w_in, *b_in, *w_out, *b_out;              /* (4D, 2D), (4D), (4D, 4D), (4D) */
    const REAL *norm, *norm_bias;                         /* (D) */
    const REAL *key_norm, *key_norm_bias;                 /* (D); null for the additive score */
    const bf16_t *bf16_key, *bf16_key_t, *bf16_w_in, *bf16_w_in_t, *bf16_w_out, *bf16_w_out_t;
    const REAL *cell_input_mask, *hidden_mask, *key_mask, *feature_mask; /* given masks, (T, B, N, ·) */
    int64_t cell_level, score_level;                      /* drawn masks: an entry with noise below it is dropped */
    const int64_t *seed;                                  /* seed of the noise */
    REAL *output, *attention;                             /* (T, B, D), (T, B, N) */
    REAL *memory, *candidate, *occupancy;                 /* the final state */
    const int64_t *tape;                /* three addresses per share: cell inputs, hidden units, gates (operands) */
    int32_t *top;                       /* (T, B): first active slot */
    const REAL *d_output, *d_attention, *d_memory, *d_candidate, *d_occupancy;
    REAL *d_inputs, *d_queries, *d_memory0, *d_candidate0, *d_occupancy0;
    REAL *d_key, *d_key_bias, *d_score;                   /* (shares, ·), like all weight gradients */
    REAL *d_w_in, *d_b_in, *d_w_out, *d_b_out;
    REAL *d_norm, *d_norm_bias, *d_key_norm, *d_key_norm_bias;
    int64_t pairs;                                        /* 1: multiply pairs of bfloat16 numbers */
    bf16_gemm_t bf16_gemm;                                /* BLAS's product of bfloat16 operands; null if not used */
    uint8_t *scratch;                                     /* `scratch_size` bytes */
} Pass;
EXPORT_SIZE(Pass)
