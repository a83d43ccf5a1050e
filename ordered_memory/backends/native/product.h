/* Matrix products of REAL operands, of pairs of bfloat16 numbers, or by BLAS of bfloat16 ones; sums stay REAL. */

/* A row of hidden units or gates: where it is kept, or as REAL in `buffer`. */
static const REAL *kept_row(const Share *s, const void *kept, int64_t row, REAL *restrict buffer) {
    int64_t size = 4 * s->p->D;
    if (!is_narrow(s->p)) return (const REAL *)kept + row * size;
    const bf16_t *restrict from = (const bf16_t *)kept + row * size;
    SIMD for (int64_t j = 0; j < size; j++) buffer[j] = bf16_value(from[j]);
    return buffer;
}

/* C = A B of a rounded A. */
static void narrow_product(const Pass *p, int m, int n, int k, const bf16_t *a, const REAL *packed,
                           const bf16_t *bf16_b, REAL *c) {
    const REAL one = 1, zero = 0;
    if (p->pairs)
        packed_pair_product(m, n, k / 2, (const REAL *)a, k / 2, packed, c, n, 0);
    else
        p->bf16_gemm("N", "N", &n, &m, &k, &one, bf16_b, &n, a, &k, &zero, c, &n); /* to BLAS it is C' = B' A' */
}

/* C = A B, row-major, A (m, k), B (k, n) packed, or as bfloat16. */
static void product(const Share *s, int m, int n, int k, const REAL *a, const REAL *packed, const bf16_t *bf16_b,
                    REAL *c) {
    if (!is_narrow(s->p)) {
        packed_product(m, n, k, a, k, packed, c, n, 0);
        return;
    }
    for (int64_t from = 0; from < m; from += BF16_ROWS) {
        int rows = m - from < BF16_ROWS ? m - from : BF16_ROWS;
        round_to_bf16((int64_t)rows * k, a + from * k, s->bf16_a);
        narrow_product(s->p, rows, n, k, s->bf16_a, packed, bf16_b, c + from * n);
    }
}

/* `rows` rows of C += A' B. A is packed in tiles of columns and B in panels, so that neither is read with a stride. */
static void add_block_product(const Share *s, int m, int n, int64_t rows, const REAL *a, const REAL *b,
                              const bf16_t *bf16_b, REAL *c) {
    int pairs = s->p->pairs;
    int64_t k = pairs ? (rows + 1) / 2 : rows;
    REAL panel[BLOCK * WIDTH];
    for (int64_t r = 0; r < m; r += TILE) {
        int64_t width = m - r < TILE ? m - r : TILE;
        REAL *tile = s->tiles + r * k;
        if (pairs) pair_rows(rows, width, a + r, m, (uint32_t *)tile, TILE);
        for (int64_t i = 0; !pairs && i < rows; i++) memcpy(tile + i * TILE, a + i * m + r, width * sizeof(REAL));
    }
    for (int64_t j = 0; j < n; j += WIDTH) {
        int64_t width = n - j < WIDTH ? n - j : WIDTH;
        if (!pairs) {
            pack(rows, width, b + j, n, panel);
            panel_product(0, m, width, k, s->tiles, 1, TILE, TILE * k, panel, c + j, n, 1);
            continue;
        }
        if (bf16_b) pair_bf16_rows(rows, width, bf16_b + j, n, (uint32_t *)panel, WIDTH);
        else pair_rows(rows, width, b + j, n, (uint32_t *)panel, WIDTH);
        panel_product(1, m, width, k, s->tiles, 1, TILE, TILE * k, panel, c + j, n, 1);
    }
}

/* C += A' B, row-major, A (k, m), B (k, n), which may be there rounded alone. */
static void add_product(const Share *s, int m, int n, int k, const REAL *a, const REAL *b, const bf16_t *bf16_b,
                        REAL *c) {
    const Pass *p = s->p;
    const REAL one = 1;
    for (int64_t from = 0, most = p->bf16_gemm ? BF16_ROWS : BLOCK; from < k; from += most) {
        int rows = k - from < most ? k - from : most;
        const REAL *a_rows = a + from * m, *b_rows = b ? b + from * n : 0;
        const bf16_t *narrow = bf16_b ? bf16_b + from * n : 0;
        if (!p->bf16_gemm) {
            add_block_product(s, m, n, rows, a_rows, b_rows, narrow, c);
            continue;
        }
        round_to_bf16((int64_t)rows * m, a_rows, s->bf16_a);
        if (!narrow) round_to_bf16((int64_t)rows * n, b_rows, s->bf16_b);
        p->bf16_gemm("N", "T", &n, &m, &rows, &one, narrow ? narrow : s->bf16_b, &n, s->bf16_a, &m, &one, c, &n);
    }
}
