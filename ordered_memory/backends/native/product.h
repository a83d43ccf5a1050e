/* Matrix products: of REAL operands, of pairs of bfloat16 numbers, or of bfloat16 operands by BLAS. Sums are REAL. */

/* C = A B, row-major: operands A (m, k); B (k, n) packed, or as bfloat16 for BLAS. */
static void product(const Share *s, int m, int n, int k, const void *a, const REAL *packed, const bf16_t *bf16_b,
                    REAL *c) {
    const Pass *p = s->p;
    const REAL one = 1, zero = 0;
    if (p->bf16_gemm)
        p->bf16_gemm("N", "N", &n, &m, &k, &one, bf16_b, &n, a, &k, &zero, c, &n); /* column-major for BLAS: C' = B' A' */
    else if (p->pairs)
        packed_pair_product(m, n, k / 2, a, k / 2, packed, c, n, 0);
    else
        packed_product(m, n, k, a, k, packed, c, n, 0);
}

/* C += A' B for `rows` rows of A and B. A is packed in tiles of columns and B in panels: both are read sequentially. */
static void add_block_product(const Share *s, int m, int n, int64_t rows, const void *a, const void *b, REAL *c) {
    int pairs = s->p->pairs;
    int64_t k = pairs ? (rows + 1) / 2 : rows;
    REAL panel[BLOCK * WIDTH];
    for (int64_t r = 0; r < m; r += TILE) {
        int64_t width = m - r < TILE ? m - r : TILE;
        REAL *tile = s->tiles + r * k;
        if (pairs) pair_rows(rows, width, (const bf16_t *)a + r, m, (uint32_t *)tile, TILE);
        for (int64_t i = 0; !pairs && i < rows; i++)
            memcpy(tile + i * TILE, (const REAL *)a + i * m + r, width * sizeof(REAL));
    }
    for (int64_t j = 0; j < n; j += WIDTH) {
        int64_t width = n - j < WIDTH ? n - j : WIDTH;
        if (pairs) {
            pair_rows(rows, width, (const bf16_t *)b + j, n, (uint32_t *)panel, WIDTH);
            panel_product(1, m, width, k, s->tiles, 1, TILE, TILE * k, panel, c + j, n, 1);
        } else {
            pack(rows, width, (const REAL *)b + j, n, panel);
            panel_product(0, m, width, k, s->tiles, 1, TILE, TILE * k, panel, c + j, n, 1);
        }
    }
}

/* C += A' B, row-major, for operands A (k, m) and B (k, n). */
static void add_product(const Share *s, int m, int n, int k, const void *a, const void *b, REAL *c) {
    const REAL one = 1;
    if (s->p->bf16_gemm) {
        s->p->bf16_gemm("N", "T", &n, &m, &k, &one, b, &n, a, &m, &one, c, &n);
        return;
    }
    for (int64_t from = 0; from < k; from += BLOCK) {
        int64_t rows = k - from < BLOCK ? k - from : BLOCK;
        add_block_product(s, m, n, rows, operand(s, a, from, m), operand(s, b, from, n), c);
    }
}
