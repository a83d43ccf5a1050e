/* Matrix products with a matrix that every time step reuses, and the gradient of such a matrix.

   BLAS packs a matrix at every call, or reads it in an order that is slow: for the 20 rows of a language model and
   H = 1150 this takes 0.6 of its time; and MKL does not use the wide vectors of processors that are not Intel's. Here
   the matrix is packed once, in panels of WIDTH columns, row after row, so that every step reads it sequentially. A row
   of the result does not depend on the number of rows. Vector types are the vector extensions of GCC and Clang.

   bfloat16 operands are stored as pairs: two numbers that are adjacent along k take the place of one REAL. */

#if defined(__AVX512F__)
enum { VECTOR = 64 / sizeof(REAL), VECTORS = 2, TILE = 12 };
#elif defined(__AVX__)
enum { VECTOR = 32 / sizeof(REAL), VECTORS = 2, TILE = 6 };
#else
enum { VECTOR = 16 / sizeof(REAL), VECTORS = 2, TILE = 6 };
#endif
enum { WIDTH = VECTOR * VECTORS, AHEAD = 24 }; /* columns of a panel; rows to prefetch */

#define INLINE static inline __attribute__((always_inline))

typedef REAL vector __attribute__((vector_size(sizeof(REAL) * VECTOR), aligned(sizeof(REAL)), may_alias));
typedef uint32_t vector_bits __attribute__((vector_size(4 * VECTOR)));
typedef REAL scalar __attribute__((may_alias)); /* a number, or a pair of bfloat16 numbers */

/* Number of elements of a packed matrix of k rows and n columns. */
static int64_t packed_size(int64_t k, int64_t n) { return (n + WIDTH - 1) / WIDTH * WIDTH * k; }

/* Pack B (k, n), whose row i begins at b + i * ld. */
static void pack(int64_t k, int64_t n, const REAL *b, int64_t ld, REAL *restrict packed) {
    for (int64_t j = 0; j < n; j += WIDTH)
        for (int64_t i = 0, width = n - j < WIDTH ? n - j : WIDTH; i < k; i++, packed += WIDTH) {
            memcpy(packed, b + i * ld + j, width * sizeof(REAL));
            memset(packed + width, 0, (WIDTH - width) * sizeof(REAL));
        }
}

/* Pack a panel whose columns are given, as rows of another matrix: one cache line of each at a time. */
static void pack_transposed(int64_t k, int64_t width, const REAL *const *columns, REAL *restrict panel) {
    enum { LINE = 64 / sizeof(REAL) };
    for (int64_t j = width; j < WIDTH; j++)
        for (int64_t i = 0; i < k; i++) panel[i * WIDTH + j] = 0;
    for (int64_t i = 0; i < k; i += LINE)
        for (int64_t j = 0, end = k - i < LINE ? k : i + LINE; j < width; j++)
            for (int64_t at = i; at < end; at++) panel[at * WIDTH + j] = columns[j][at];
}

/* Pack the transpose of a matrix (n, k). */
static void pack_transpose(int64_t k, int64_t n, const REAL *matrix, REAL *restrict packed) {
    const REAL *rows[WIDTH];
    for (int64_t j = 0; j < n; j += WIDTH) {
        int64_t width = n - j < WIDTH ? n - j : WIDTH;
        for (int64_t column = 0; column < width; column++) rows[column] = matrix + (j + column) * k;
        pack_transposed(k, width, rows, packed + j * k);
    }
}

/* A float as its bits, and back. A bfloat16 number is the upper half of a float. */
INLINE uint32_t bits_of(float number) {
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

INLINE float float_of(uint32_t bits) {
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* sum + one * b. With pairs of bfloat16 numbers, both products of each pair are added. */
INLINE vector term(vector sum, REAL one, vector b, const int pairs) {
#if BF16_PAIRS == 1
    if (pairs) return (vector)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_ps(one), (__m512bh)b);
#elif BF16_PAIRS == 2
    if (pairs) {
        vector_bits of_one = (vector_bits){0} + bits_of(one), of_b = (vector_bits)b;
        sum += (vector)(of_one << 16) * (vector)(of_b << 16);
        return sum + (vector)(of_one & 0xffff0000) * (vector)(of_b & 0xffff0000);
    }
#endif
    return sum + one * b;
}

/* `rows` rows of C, WIDTH columns: C = A B, or C += A B. A's rows are lda apart, its columns `step`. */
INLINE void tile(const int rows, const int pairs, int64_t k, const REAL *a, int64_t lda, int64_t step, const REAL *b,
                 REAL *c, int64_t ldc, int add) {
    vector sum[TILE][VECTORS];
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 3
        for (int v = 0; v < VECTORS; v++)
            sum[r][v] = add ? *(const vector *)(c + r * ldc + v * VECTOR) : (vector){0};
    for (int64_t i = 0; i < k; i++, b += WIDTH) {
#pragma GCC unroll 3
        for (int v = 0; v < VECTORS; v++) __builtin_prefetch(b + AHEAD * WIDTH + v * VECTOR);
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            REAL one = *(const scalar *)(a + r * lda + i * step);
#pragma GCC unroll 3
            for (int v = 0; v < VECTORS; v++) sum[r][v] = term(sum[r][v], one, *(const vector *)(b + v * VECTOR), pairs);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 3
        for (int v = 0; v < VECTORS; v++) *(vector *)(c + r * ldc + v * VECTOR) = sum[r][v];
}

/* The same for any number of rows up to TILE. */
INLINE void tiles(int rows, const int pairs, int64_t k, const REAL *a, int64_t lda, int64_t step, const REAL *b, REAL *c,
                  int64_t ldc, int add) {
    switch (rows) {
    case 1: tile(1, pairs, k, a, lda, step, b, c, ldc, add); break;
    case 2: tile(2, pairs, k, a, lda, step, b, c, ldc, add); break;
    case 3: tile(3, pairs, k, a, lda, step, b, c, ldc, add); break;
    case 4: tile(4, pairs, k, a, lda, step, b, c, ldc, add); break;
    case 5: tile(5, pairs, k, a, lda, step, b, c, ldc, add); break;
    case 6: tile(6, pairs, k, a, lda, step, b, c, ldc, add); break;
#if defined(__AVX512F__)
    case 7: tile(7, pairs, k, a, lda, step, b, c, ldc, add); break;
    case 8: tile(8, pairs, k, a, lda, step, b, c, ldc, add); break;
    case 9: tile(9, pairs, k, a, lda, step, b, c, ldc, add); break;
    case 10: tile(10, pairs, k, a, lda, step, b, c, ldc, add); break;
    case 11: tile(11, pairs, k, a, lda, step, b, c, ldc, add); break;
    case 12: tile(12, pairs, k, a, lda, step, b, c, ldc, add); break;
#endif
    }
}

/* The `width` columns of C = A B or C += A B that belong to one panel: see packed_product. After TILE rows, A advances
   by `next` numbers. */
INLINE void panel_product(const int pairs, int64_t m, int64_t width, int64_t k, const REAL *a, int64_t lda, int64_t step,
                          int64_t next, const REAL *panel, REAL *c, int64_t ldc, int add) {
    REAL last[TILE * WIDTH];
    for (int64_t r = 0; r < m; r += TILE, a += next) {
        int rows = m - r < TILE ? m - r : TILE;
        REAL *to = c + r * ldc;
        if (width == WIDTH) {
            tiles(rows, pairs, k, a, lda, step, panel, to, ldc, add);
            continue;
        }
        for (int s = 0; add && s < rows; s++) memcpy(last + s * WIDTH, to + s * ldc, width * sizeof(REAL));
        tiles(rows, pairs, k, a, lda, step, panel, last, WIDTH, add);
        for (int s = 0; s < rows; s++) memcpy(to + s * ldc, last + s * WIDTH, width * sizeof(REAL));
    }
}

/* C = A B or C += A B, row-major: A (m, k), B packed (k, n), C with rows ldc apart. */
static void packed_product(int64_t m, int64_t n, int64_t k, const REAL *a, int64_t lda, const REAL *b, REAL *c,
                           int64_t ldc, int add) {
    for (int64_t j = 0; j < n; j += WIDTH, b += k * WIDTH)
        panel_product(0, m, n - j < WIDTH ? n - j : WIDTH, k, a, lda, 1, TILE * lda, b, c + j, ldc, add);
}

/* The same product for operands of k pairs of bfloat16 numbers. */
static void packed_pair_product(int64_t m, int64_t n, int64_t k, const REAL *a, int64_t lda, const REAL *b, REAL *c,
                                int64_t ldc, int add) {
    for (int64_t j = 0; j < n; j += WIDTH, b += k * WIDTH)
        panel_product(1, m, n - j < WIDTH ? n - j : WIDTH, k, a, lda, 1, TILE * lda, b, c + j, ldc, add);
}

/* The bits of a number rounded to bfloat16, ties to even; NaN stays NaN. */
INLINE uint32_t bf16_bits(float number) {
    uint32_t bits = bits_of(number), rounded = bits + 0x7fff + ((bits >> 16) & 1);
    return ((bits & 0x7fffffff) > 0x7f800000 ? bits | 0x400000 : rounded) >> 16;
}

/* Round numbers to bfloat16. A row of even size then consists of pairs. */
static void round_to_bf16(int64_t size, const REAL *restrict from, bf16_t *restrict to) {
    SIMD for (int64_t j = 0; j < size; j++) to[j] = bf16_bits(from[j]);
}

/* Convert bfloat16 to REAL. */
static void widen_bf16(int64_t size, const bf16_t *restrict from, REAL *restrict to) {
    SIMD for (int64_t j = 0; j < size; j++) to[j] = float_of((uint32_t)from[j] << 16);
}

/* Combine each two rows of a matrix (k, n), with rows `ld` apart, to (k + 1) / 2 rows of n pairs, `to_ld` apart. */
static void pair_rows(int64_t k, int64_t n, const bf16_t *from, int64_t ld, uint32_t *restrict to, int64_t to_ld) {
    for (int64_t i = 0; i < k; i += 2, from += 2 * ld, to += to_ld) {
        const bf16_t *second = i + 1 < k ? from + ld : from;
        uint32_t keep = i + 1 < k ? 0xffffffff : 0xffff;
        SIMD for (int64_t j = 0; j < n; j++) to[j] = (from[j] | (uint32_t)second[j] << 16) & keep;
    }
}
