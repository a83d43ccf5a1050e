/* bfloat16 numbers. A bfloat16 number is the upper half of a float. Include after common.h.

   Some processors multiply two bfloat16 numbers by two others at once, and add both products to a float. For these
   products a matrix has the VNNI layout: two numbers that are adjacent along the summed axis k take the place of one
   float, a VNNI element. */

typedef uint16_t bf16_t;

/* How products in the VNNI layout are computed. 0: not at all; 1: by one instruction (AVX512_BF16); 2: by several
   instructions, for tests on any processor (compile with -DEMULATE_BF16_VNNI). */
#if DOUBLE
#define BF16_VNNI 0
#elif defined(__AVX512BF16__)
#define BF16_VNNI 1
#elif defined(EMULATE_BF16_VNNI)
#define BF16_VNNI 2
#else
#define BF16_VNNI 0
#endif
const int64_t has_bf16_vnni = BF16_VNNI > 0;

INLINE uint32_t float_to_bits(float number) {
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

INLINE float bits_to_float(uint32_t bits) {
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* Round a float to bfloat16, ties to even. NaN stays NaN: it is not rounded, and its quiet bit is set. */
INLINE uint32_t float_to_bf16(float number) {
    uint32_t bits = float_to_bits(number), rounded = bits + 0x7fff + ((bits >> 16) & 1);
    int is_nan = (bits & 0x7fffffff) > 0x7f800000;
    return (is_nan ? bits | 0x400000 : rounded) >> 16;
}

/* Round a row of numbers to bfloat16. If its size is even, the result is also a row of VNNI elements. */
static inline void to_bf16(int64_t size, const scalar_t *restrict from, bf16_t *restrict to) {
    SIMD for (int64_t j = 0; j < size; j++) to[j] = float_to_bf16(from[j]);
}

static inline void from_bf16(int64_t size, const bf16_t *restrict from, scalar_t *restrict to) {
    SIMD for (int64_t j = 0; j < size; j++) to[j] = bits_to_float((uint32_t)from[j] << 16);
}

/* Interleave each two rows of a matrix (k, n) to one row of n VNNI elements; if k is odd, the last row with zeros. */
static inline void interleave_rows(int64_t k, int64_t n, const bf16_t *from, int64_t ld, uint32_t *restrict to,
                                   int64_t to_ld) {
    for (int64_t i = 0; i < k; i += 2, from += 2 * ld, to += to_ld) {
        int has_second = i + 1 < k;
        const bf16_t *second = has_second ? from + ld : from;
        uint32_t keep = has_second ? 0xffffffff : 0xffff;
        SIMD for (int64_t j = 0; j < n; j++) to[j] = (from[j] | (uint32_t)second[j] << 16) & keep;
    }
}
