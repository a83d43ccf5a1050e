/* Matrix products of operands that are scalar_t or bfloat16. Results are scalar_t.

   A row of a bfloat16 operand is computed as scalar_t in a buffer, and rounded once, when it is complete. A row of a
   scalar_t operand is computed in place. */

/* Row `row` of an operand with `size` columns. */
static void *operand_row(const Share *s, const void *operand, int64_t row, int64_t size) {
    return (char *)operand + row * size * operand_bytes(s->p);
}

/* Where to compute a row of an operand; `store_row` must follow. */
static scalar_t *row_to_compute(const Share *s, const void *operand, int64_t row, int64_t size, scalar_t *buffer) {
    return has_bf16_operands(s->p) ? buffer : operand_row(s, operand, row, size);
}

static void store_row(const Share *s, const void *operand, int64_t row, int64_t size, const scalar_t *values) {
    if (has_bf16_operands(s->p)) to_bf16(size, values, operand_row(s, operand, row, size));
}

/* A row of an operand as scalar_t: in place, or converted in `buffer`. */
static const scalar_t *load_row(const Share *s, const void *operand, int64_t row, int64_t size,
                                scalar_t *restrict buffer) {
    const void *from = operand_row(s, operand, row, size);
    if (!has_bf16_operands(s->p)) return from;
    from_bf16(size, from, buffer);
    return buffer;
}

/* C = A B, row-major, for an operand A (m, k) and a weight B (k, n): `packed`, or `bf16_b` for BLAS. */
static void multiply_by_weight(const Share *s, int m, int n, int k, const void *a, const scalar_t *packed,
                               const bf16_t *bf16_b, scalar_t *c) {
    const Pass *p = s->p;
    const scalar_t one = 1, zero = 0;
    if (p->bf16_gemm) /* column-major: C' = B' A' */
        p->bf16_gemm("N", "N", &n, &m, &k, &one, bf16_b, &n, a, &k, &zero, c, &n);
    else
        gemm_packed(m, n, p->bf16_vnni ? k / 2 : k, a, packed, c, n, 0, p->bf16_vnni);
}

/* C = A W', for an operand A (m, k) and a weight W (n, k), as a linear map computes it: in the forward pass. `packed` and
   `bf16_w_t` are its transpose. */
static void multiply_forward(const Share *s, int m, int n, int k, const void *a, const scalar_t *weight,
                             const scalar_t *packed, const bf16_t *bf16_w_t, scalar_t *c) {
    if (few_tokens(s->p)) gemm_transposed(m, n, k, a, weight, c, n, 0);
    else multiply_by_weight(s, m, n, k, a, packed, bf16_w_t, c);
}

/* C += A' B for at most K_BLOCK rows of A and B. A is packed in tiles of TILE_ROWS columns and B in panels, so that
   both are read sequentially. */
static void add_block_product(const Share *s, int m, int n, int64_t rows, const void *a, const void *b, scalar_t *c) {
    int bf16_vnni = s->p->bf16_vnni;
    int64_t k = bf16_vnni ? (rows + 1) / 2 : rows;
    scalar_t panel[K_BLOCK * PANEL_COLUMNS];
    for (int64_t r = 0; r < m; r += TILE_ROWS) {
        int64_t columns = smaller(m - r, TILE_ROWS);
        scalar_t *tile = s->packed_tiles + r * k;
        if (bf16_vnni) interleave_rows(rows, columns, (const bf16_t *)a + r, m, (uint32_t *)tile, TILE_ROWS);
        for (int64_t i = 0; !bf16_vnni && i < rows; i++)
            memcpy(tile + i * TILE_ROWS, (const scalar_t *)a + i * m + r, columns * sizeof(scalar_t));
    }
    Left left = {s->packed_tiles, .row_stride = 1, .k_stride = TILE_ROWS, .tile_stride = TILE_ROWS * k};
    for (int64_t j = 0; j < n; j += PANEL_COLUMNS) {
        int64_t columns = smaller(n - j, PANEL_COLUMNS);
        if (bf16_vnni) interleave_rows(rows, columns, (const bf16_t *)b + j, n, (uint32_t *)panel, PANEL_COLUMNS);
        else pack(rows, columns, (const scalar_t *)b + j, n, panel);
        gemm_panel(m, columns, k, left, panel, c + j, n, 1, bf16_vnni);
    }
}

/* The gradient of a weight: C += A' B, row-major, for operands A (k, m) and B (k, n). */
static void add_weight_gradient(const Share *s, int m, int n, int k, const void *a, const void *b, scalar_t *c) {
    const scalar_t one = 1;
    if (s->p->bf16_gemm) { /* column-major: C' += B' A */
        s->p->bf16_gemm("N", "T", &n, &m, &k, &one, b, &n, a, &m, &one, c, &n);
        return;
    }
    for (int64_t first = 0; first < k; first += K_BLOCK) {
        int64_t rows = smaller(k - first, K_BLOCK);
        add_block_product(s, m, n, rows, operand_row(s, a, first, m), operand_row(s, b, first, n), c);
    }
}
