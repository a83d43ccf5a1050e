/* Matrix products by BLAS, of REAL or of bfloat16 operands; sums stay REAL. */

/* Numbers as bfloat16, the nearest ones, ties to even; NaN stays NaN. */
static void round_to_bf16(int64_t size, const REAL *restrict from, bf16_t *restrict to) {
#if !DOUBLE
    SIMD for (int64_t j = 0; j < size; j++) {
        union { float number; uint32_t bits; } u = {from[j]};
        uint32_t rounded = u.bits + 0x7fff + ((u.bits >> 16) & 1);
        to[j] = ((u.bits & 0x7fffffff) > 0x7f800000 ? u.bits | 0x400000 : rounded) >> 16;
    }
#endif
}

/* C = A B, row-major, A (m, k), B (k, n), which is there as bfloat16 too: to BLAS it is C' = B' A'. */
static void product(const Share *s, int m, int n, int k, const REAL *a, const REAL *b, const bf16_t *bf16_b,
                    REAL *c) {
    const Pass *p = s->p;
    const REAL one = 1, zero = 0;
    if (!p->bf16_gemm) {
        if (m) p->gemm("N", "N", &n, &m, &k, &one, b, &n, a, &k, &zero, c, &n);
        return;
    }
    for (int64_t from = 0; from < m; from += BF16_ROWS) {
        int rows = m - from < BF16_ROWS ? m - from : BF16_ROWS;
        round_to_bf16((int64_t)rows * k, a + from * k, s->bf16_a);
        p->bf16_gemm("N", "N", &n, &rows, &k, &one, bf16_b, &n, s->bf16_a, &k, &zero, c + from * n, &n);
    }
}

/* C += A' B, row-major, A (k, m), B (k, n). */
static void add_product(const Share *s, int m, int n, int k, const REAL *a, const REAL *b, REAL *c) {
    const Pass *p = s->p;
    const REAL one = 1;
    if (!p->bf16_gemm) {
        if (k) p->gemm("N", "T", &n, &m, &k, &one, b, &n, a, &m, &one, c, &n);
        return;
    }
    for (int64_t from = 0; from < k; from += BF16_ROWS) {
        int rows = k - from < BF16_ROWS ? k - from : BF16_ROWS;
        round_to_bf16((int64_t)rows * m, a + from * m, s->bf16_a);
        round_to_bf16((int64_t)rows * n, b + from * n, s->bf16_b);
        p->bf16_gemm("N", "T", &n, &m, &rows, &one, s->bf16_b, &n, s->bf16_a, &m, &one, c, &n);
    }
}
