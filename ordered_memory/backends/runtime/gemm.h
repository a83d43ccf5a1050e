/* GEMM, the product of two matrices, for small m and a right operand that every time step reuses. Include after bf16.h.

   C = A B or C += A B, all row-major, with A (m, k), B (k, n) and C (m, n); `ldc` is the leading dimension of C, the
   distance between its rows. B is packed once, into panels of PANEL_COLUMNS columns: panel after panel, and the rows of
   a panel one after the other, so that it is read sequentially. The micro-kernel computes up to TILE_ROWS rows of a
   panel's columns in registers, the accumulators (other libraries call these sizes MR and NR).

   BLAS packs a matrix at every call, or reads it in an order that is slow: for the 20 rows of a language model and
   H = 1150 this takes 0.6 of its time. And MKL does not use the wide vectors of processors that are not Intel's. Here a
   row of the result is also the same to the bit for every number of rows.

   Packing pays where the product is repeated. For a few tokens, as when a model reads a text word by word,
   packing would take longer than all products. Then `gemm_transposed` reads the transpose of B, a weight,
   without packing it, and adds in a different order.

   With `bf16_vnni`, operands are bfloat16 numbers in the VNNI layout (bf16.h), k is the number of VNNI elements, and a
   pointer to scalar_t points to them. Accumulators are scalar_t. Vector types are the vector extensions of GCC and
   Clang. */

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#define TILE_ROWS 12 /* 24 of 32 vector registers are accumulators */
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#define TILE_ROWS 6 /* 12 of 16 */
#elif defined(__aarch64__)
#define VECTOR_BYTES 16
#define TILE_ROWS 8 /* 16 of 32: with 24, GCC spills; four units of latency 4 need 16 */
#else
#define VECTOR_BYTES 16
#define TILE_ROWS 6
#endif
enum {
    LANES = VECTOR_BYTES / sizeof(scalar_t), /* numbers in a vector register */
    PANEL_VECTORS = 2,
    PANEL_COLUMNS = PANEL_VECTORS * LANES,
    PREFETCH_ROWS = 24, /* how far ahead of its use a panel is prefetched */
};

typedef scalar_t vector __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(scalar_t)), may_alias));
typedef uint32_t vector_bits __attribute__((vector_size(4 * LANES)));
typedef scalar_t element __attribute__((may_alias)); /* a number, or a VNNI element */

/* The left operand: entry (r, i) is data[r * row_stride + i * k_stride], for the rows of one tile. The next tile begins
   tile_stride further on. */
typedef struct {
    const scalar_t *data;
    int64_t row_stride, k_stride, tile_stride;
} Left;

/* accumulator + a * b. With `bf16_vnni`, a is one VNNI element, and both of its products with each element of
   b are added. */
INLINE vector multiply_add(vector accumulator, scalar_t a, vector b, const int bf16_vnni) {
#if BF16_VNNI == 1
    if (bf16_vnni)
        return (vector)_mm512_dpbf16_ps((__m512)accumulator, (__m512bh)_mm512_set1_ps(a), (__m512bh)b);
#elif BF16_VNNI == 2
    if (bf16_vnni) {
        vector_bits a_bits = (vector_bits){0} + float_to_bits(a), b_bits = (vector_bits)b;
        accumulator += (vector)(a_bits << 16) * (vector)(b_bits << 16);
        return accumulator + (vector)(a_bits & 0xffff0000) * (vector)(b_bits & 0xffff0000);
    }
#endif
    (void)bf16_vnni;
    return accumulator + a * b;
}

/* The micro-kernel: `rows` rows (a constant where this is inlined) of one panel's columns. */
INLINE void microkernel(const int rows, const int bf16_vnni, int64_t k, Left a, const scalar_t *panel, scalar_t *c,
                        int64_t ldc, int accumulate) {
    vector accumulators[TILE_ROWS][PANEL_VECTORS];
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < PANEL_VECTORS; v++)
            accumulators[r][v] = accumulate ? *(const vector *)(c + r * ldc + v * LANES) : (vector){0};
    for (int64_t i = 0; i < k; i++, panel += PANEL_COLUMNS) {
#pragma GCC unroll 2
        for (int v = 0; v < PANEL_VECTORS; v++) __builtin_prefetch(panel + PREFETCH_ROWS * PANEL_COLUMNS + v * LANES);
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            scalar_t one = *(const element *)(a.data + r * a.row_stride + i * a.k_stride);
#pragma GCC unroll 2
            for (int v = 0; v < PANEL_VECTORS; v++)
                accumulators[r][v] =
                    multiply_add(accumulators[r][v], one, *(const vector *)(panel + v * LANES), bf16_vnni);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < PANEL_VECTORS; v++) *(vector *)(c + r * ldc + v * LANES) = accumulators[r][v];
}

/* The micro-kernel for 1 to TILE_ROWS rows. */
INLINE void tile(int rows, const int bf16_vnni, int64_t k, Left a, const scalar_t *panel, scalar_t *c, int64_t ldc,
                 int accumulate) {
    switch (rows) {
    case 1: microkernel(1, bf16_vnni, k, a, panel, c, ldc, accumulate); break;
    case 2: microkernel(2, bf16_vnni, k, a, panel, c, ldc, accumulate); break;
    case 3: microkernel(3, bf16_vnni, k, a, panel, c, ldc, accumulate); break;
    case 4: microkernel(4, bf16_vnni, k, a, panel, c, ldc, accumulate); break;
    case 5: microkernel(5, bf16_vnni, k, a, panel, c, ldc, accumulate); break;
    case 6: microkernel(6, bf16_vnni, k, a, panel, c, ldc, accumulate); break;
#if TILE_ROWS >= 8
    case 7: microkernel(7, bf16_vnni, k, a, panel, c, ldc, accumulate); break;
    case 8: microkernel(8, bf16_vnni, k, a, panel, c, ldc, accumulate); break;
#endif
#if TILE_ROWS >= 12
    case 9: microkernel(9, bf16_vnni, k, a, panel, c, ldc, accumulate); break;
    case 10: microkernel(10, bf16_vnni, k, a, panel, c, ldc, accumulate); break;
    case 11: microkernel(11, bf16_vnni, k, a, panel, c, ldc, accumulate); break;
    case 12: microkernel(12, bf16_vnni, k, a, panel, c, ldc, accumulate); break;
#endif
    }
}

/* All tiles of one panel. A panel with fewer columns is computed in a buffer as wide as a panel. */
INLINE void panel_tiles(const int bf16_vnni, int64_t m, int64_t columns, int64_t k, Left a, const scalar_t *panel,
                        scalar_t *c, int64_t ldc, int accumulate) {
    scalar_t buffer[TILE_ROWS * PANEL_COLUMNS];
    for (int64_t r = 0; r < m; r += TILE_ROWS, a.data += a.tile_stride) {
        int rows = smaller(m - r, TILE_ROWS);
        scalar_t *to = c + r * ldc;
        if (columns == PANEL_COLUMNS) {
            tile(rows, bf16_vnni, k, a, panel, to, ldc, accumulate);
            continue;
        }
        for (int s = 0; accumulate && s < rows; s++)
            memcpy(buffer + s * PANEL_COLUMNS, to + s * ldc, columns * sizeof(scalar_t));
        tile(rows, bf16_vnni, k, a, panel, buffer, PANEL_COLUMNS, accumulate);
        for (int s = 0; s < rows; s++) memcpy(to + s * ldc, buffer + s * PANEL_COLUMNS, columns * sizeof(scalar_t));
    }
}

/* C = A B or C += A B for the columns of one panel. */
INLINE void gemm_panel(int64_t m, int64_t columns, int64_t k, Left a, const scalar_t *panel, scalar_t *c, int64_t ldc,
                       int accumulate, int bf16_vnni) {
    if (BF16_VNNI && bf16_vnni) panel_tiles(1, m, columns, k, a, panel, c, ldc, accumulate);
    else panel_tiles(0, m, columns, k, a, panel, c, ldc, accumulate);
}

/* C = A B or C += A B, for A without gaps between its rows, and B packed. */
SINGLE_COPY void gemm_packed(int64_t m, int64_t n, int64_t k, const scalar_t *a, const scalar_t *packed, scalar_t *c,
                             int64_t ldc, int accumulate, int bf16_vnni) {
    Left left = {a, .row_stride = k, .k_stride = 1, .tile_stride = TILE_ROWS * k};
    for (int64_t j = 0; j < n; j += PANEL_COLUMNS, packed += k * PANEL_COLUMNS)
        gemm_panel(m, smaller(n - j, PANEL_COLUMNS), k, left, packed, c + j, ldc, accumulate, bf16_vnni);
}

/* The dot products of `rows` rows of A and `columns` rows of W, both constants where this is inlined. */
INLINE void dot_products(const int rows, const int columns, int64_t k, const scalar_t *a, const scalar_t *w, scalar_t *c,
                         int64_t ldc, int accumulate) {
    vector sums[2][4] = {{{0}}};
    int64_t i = 0;
    for (; i + LANES <= k; i += LANES)
#pragma GCC unroll 4
        for (int j = 0; j < columns; j++)
#pragma GCC unroll 2
            for (int r = 0; r < rows; r++)
                sums[r][j] += *(const vector *)(a + r * k + i) * *(const vector *)(w + j * k + i);
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < columns; j++) {
            scalar_t sum = accumulate ? c[r * ldc + j] : 0;
            for (int lane = 0; lane < LANES; lane++) sum += sums[r][j][lane];
            for (int64_t rest = i; rest < k; rest++) sum += a[r * k + rest] * w[j * k + rest];
            c[r * ldc + j] = sum;
        }
}

/* C = A W' or C += A W', for A (m, k) and W (n, k) without gaps between their rows; fast for small m. */
SINGLE_COPY void gemm_transposed(int64_t m, int64_t n, int64_t k, const scalar_t *a, const scalar_t *w, scalar_t *c,
                                 int64_t ldc, int accumulate) {
    int64_t j = 0;
    for (; j + 4 <= n; j += 4) {
        int64_t r = 0;
        for (; r + 2 <= m; r += 2) dot_products(2, 4, k, a + r * k, w + j * k, c + r * ldc + j, ldc, accumulate);
        if (r < m) dot_products(1, 4, k, a + r * k, w + j * k, c + r * ldc + j, ldc, accumulate);
    }
    for (; j < n; j++)
        for (int64_t r = 0; r < m; r++)
            dot_products(1, 1, k, a + r * k, w + j * k, c + r * ldc + j, ldc, accumulate);
}

/* Number of elements of a packed matrix (k, n). */
static int64_t packed_size(int64_t k, int64_t n) {
    return (n + PANEL_COLUMNS - 1) / PANEL_COLUMNS * PANEL_COLUMNS * k;
}

/* Pack B (k, n), whose rows are `ldb` apart. The last panel is padded with columns of zeros. */
static void pack(int64_t k, int64_t n, const scalar_t *b, int64_t ldb, scalar_t *restrict packed) {
    for (int64_t j = 0; j < n; j += PANEL_COLUMNS)
        for (int64_t i = 0, columns = smaller(n - j, PANEL_COLUMNS); i < k; i++, packed += PANEL_COLUMNS) {
            memcpy(packed, b + i * ldb + j, columns * sizeof(scalar_t));
            memset(packed + columns, 0, (PANEL_COLUMNS - columns) * sizeof(scalar_t));
        }
}

/* Pack one panel of the transpose of a matrix: `rows` are the rows, of k entries, that become the columns. Reads one
   cache line of each row at a time. */
static void pack_transposed_panel(int64_t k, int64_t columns, const scalar_t *const *rows, scalar_t *restrict panel) {
    enum { CACHE_LINE = 64 / sizeof(scalar_t) };
    for (int64_t j = columns; j < PANEL_COLUMNS; j++)
        for (int64_t i = 0; i < k; i++) panel[i * PANEL_COLUMNS + j] = 0;
    for (int64_t begin = 0; begin < k; begin += CACHE_LINE)
        for (int64_t j = 0, end = smaller(begin + CACHE_LINE, k); j < columns; j++)
            for (int64_t i = begin; i < end; i++) panel[i * PANEL_COLUMNS + j] = rows[j][i];
}

/* Pack B (k, n), the transpose of `matrix` (n, k). */
static void pack_transposed(int64_t k, int64_t n, const scalar_t *matrix, scalar_t *restrict packed) {
    const scalar_t *rows[PANEL_COLUMNS];
    for (int64_t j = 0; j < n; j += PANEL_COLUMNS) {
        int64_t columns = smaller(n - j, PANEL_COLUMNS);
        for (int64_t column = 0; column < columns; column++) rows[column] = matrix + (j + column) * k;
        pack_transposed_panel(k, columns, rows, packed + j * k);
    }
}
