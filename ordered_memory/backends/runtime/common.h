/* Included first by the C of every backend. REAL is float or double. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE__
#include <immintrin.h>
#endif

/* Vector versions of these are in glibc's libmvec. */
#if defined(__x86_64__) && defined(__GLIBC__)
__attribute__((simd("notinbranch"))) float expf(float);
__attribute__((simd("notinbranch"))) double exp(double);
#endif

#if DOUBLE
typedef double REAL;
#define EXP exp
#define SQRT sqrt
#else
typedef float REAL;
#define EXP expf
#define SQRT sqrtf
#endif
/* Exports the size of a struct, with which c_struct.py checks how it parsed the typedef. */
#define EXPORT_SIZE(name) const int64_t size_of_##name = sizeof(name);

typedef uint16_t bf16_t; /* a bfloat16 number */

/* Products of pairs of bfloat16 numbers, both added to a float. 0: not supported; 1: one instruction of the processor;
   2: emulated by several instructions (EMULATE_PAIRS), for tests on any processor. */
#if DOUBLE
#define BF16_PAIRS 0
#elif defined(__AVX512BF16__)
#define BF16_PAIRS 1
#elif defined(EMULATE_PAIRS)
#define BF16_PAIRS 2
#else
#define BF16_PAIRS 0
#endif
const int64_t multiplies_pairs = BF16_PAIRS > 0;

#define SIMD _Pragma("omp simd")
#define PRAGMA(text) _Pragma(#text)
#define SUM(...) PRAGMA(omp simd reduction(+ : __VA_ARGS__))

/* BLAS's product of bfloat16 operands, column-major. */
typedef void (*bf16_gemm_t)(const char *, const char *, const int *, const int *, const int *, const REAL *,
                            const uint16_t *, const int *, const uint16_t *, const int *, const REAL *, REAL *,
                            const int *);

static unsigned flush_denormals(void) {
#ifdef __SSE__
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040);
    return before;
#else
    return 0;
#endif
}

static void restore_denormals(unsigned before) {
#ifdef __SSE__
    _mm_setcsr(before);
#endif
}
