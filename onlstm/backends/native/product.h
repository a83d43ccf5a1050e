/* A product with a matrix that is used again and again, a few rows at a time: what a recurrent step multiplies.

   BLAS packs such a matrix anew each time, or reads it in an order that memory is slow at: for the 20 rows of a
   language model and H = 1150 this takes 0.6 of its time. The matrix is packed once: panels of WIDTH columns,
   one row of the panel after the other, so that it is read from its beginning to its end at every step.
   Vectors are GCC's and Clang's own, on any processor. */

#if defined(__AVX512F__)
enum { VECTOR = 64 / sizeof(REAL), VECTORS = 3, TILE = 8 };
#elif defined(__AVX__)
enum { VECTOR = 32 / sizeof(REAL), VECTORS = 2, TILE = 6 };
#else
enum { VECTOR = 16 / sizeof(REAL), VECTORS = 2, TILE = 6 };
#endif
enum { WIDTH = VECTOR * VECTORS, AHEAD = 24 }; /* columns of a panel; rows to fetch in advance */

typedef REAL vector __attribute__((vector_size(sizeof(REAL) * VECTOR), aligned(sizeof(REAL)), may_alias));

/* Numbers that a packed matrix of k rows and n columns takes. */
static int64_t packed_size(int64_t k, int64_t n) { return (n + WIDTH - 1) / WIDTH * WIDTH * k; }

/* Pack columns of B, whose row i begins at b + i * ld. */
static void pack(int64_t k, int64_t n, const REAL *b, int64_t ld, REAL *restrict packed) {
    for (int64_t j = 0; j < n; j += WIDTH)
        for (int64_t i = 0, width = n - j < WIDTH ? n - j : WIDTH; i < k; i++, packed += WIDTH) {
            memcpy(packed, b + i * ld + j, width * sizeof(REAL));
            memset(packed + width, 0, (WIDTH - width) * sizeof(REAL));
        }
}

/* Pack a panel from its columns, which are rows of another matrix: a cache line of each at a time. */
static void pack_transposed(int64_t k, int64_t width, const REAL *const *columns, REAL *restrict panel) {
    enum { LINE = 64 / sizeof(REAL) };
    for (int64_t j = width; j < WIDTH; j++)
        for (int64_t i = 0; i < k; i++) panel[i * WIDTH + j] = 0;
    for (int64_t i = 0; i < k; i += LINE)
        for (int64_t j = 0, end = k - i < LINE ? k : i + LINE; j < width; j++)
            for (int64_t at = i; at < end; at++) panel[at * WIDTH + j] = columns[j][at];
}

/* `rows` rows of C, WIDTH columns: C = A B, or C += A B. */
static inline __attribute__((always_inline)) void tile(const int rows, int64_t k, const REAL *a, int64_t lda,
                                                       const REAL *b, REAL *c, int64_t ldc, int add) {
    vector sum[TILE][VECTORS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 3
        for (int v = 0; v < VECTORS; v++)
            sum[r][v] = add ? *(const vector *)(c + r * ldc + v * VECTOR) : (vector){0};
    for (int64_t i = 0; i < k; i++, b += WIDTH) {
#pragma GCC unroll 3
        for (int v = 0; v < VECTORS; v++) __builtin_prefetch(b + AHEAD * WIDTH + v * VECTOR);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            REAL one = a[r * lda + i];
#pragma GCC unroll 3
            for (int v = 0; v < VECTORS; v++) sum[r][v] += one * *(const vector *)(b + v * VECTOR);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 3
        for (int v = 0; v < VECTORS; v++) *(vector *)(c + r * ldc + v * VECTOR) = sum[r][v];
}

static void tiles(int rows, int64_t k, const REAL *a, int64_t lda, const REAL *b, REAL *c, int64_t ldc, int add) {
    switch (rows) {
    case 1: tile(1, k, a, lda, b, c, ldc, add); break;
    case 2: tile(2, k, a, lda, b, c, ldc, add); break;
    case 3: tile(3, k, a, lda, b, c, ldc, add); break;
    case 4: tile(4, k, a, lda, b, c, ldc, add); break;
    case 5: tile(5, k, a, lda, b, c, ldc, add); break;
    case 6: tile(6, k, a, lda, b, c, ldc, add); break;
#if defined(__AVX512F__)
    case 7: tile(7, k, a, lda, b, c, ldc, add); break;
    case 8: tile(8, k, a, lda, b, c, ldc, add); break;
#endif
    }
}

/* C = A B or C += A B, row-major: A (m, k), B packed (k, n), C with rows ldc apart. */
static void packed_product(int64_t m, int64_t n, int64_t k, const REAL *a, int64_t lda, const REAL *b, REAL *c,
                           int64_t ldc, int add) {
    REAL last[TILE * WIDTH];
    for (int64_t j = 0; j < n; j += WIDTH, b += k * WIDTH) {
        int64_t width = n - j < WIDTH ? n - j : WIDTH;
        for (int64_t r = 0; r < m; r += TILE) {
            int rows = m - r < TILE ? m - r : TILE;
            REAL *to = c + r * ldc + j;
            if (width == WIDTH) {
                tiles(rows, k, a + r * lda, lda, b, to, ldc, add);
                continue;
            }
            for (int s = 0; add && s < rows; s++) memcpy(last + s * WIDTH, to + s * ldc, width * sizeof(REAL));
            tiles(rows, k, a + r * lda, lda, b, last, WIDTH, add);
            for (int s = 0; s < rows; s++) memcpy(to + s * ldc, last + s * WIDTH, width * sizeof(REAL));
        }
    }
}
