/* What every C file of a backend begins with. REAL is float or double. */

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
#define TANH tanh
#define SQRT sqrt
#else
typedef float REAL;
#define EXP expf
#define TANH tanhf
#define SQRT sqrtf
#endif
/* For c_struct.py, which reads the struct from its typedef, to check that both see the same. */
#define EXPORT_SIZE(name) const int64_t size_of_##name = sizeof(name);

typedef uint16_t bf16_t; /* a bfloat16 number */

#define SIMD _Pragma("omp simd")
#define PRAGMA(text) _Pragma(#text)
#define SUM(...) PRAGMA(omp simd reduction(+ : __VA_ARGS__))

/* BLAS's own, column-major. */
typedef void (*gemm_t)(const char *, const char *, const int *, const int *, const int *, const REAL *,
                       const REAL *, const int *, const REAL *, const int *, const REAL *, REAL *, const int *);

/* The same with bfloat16 operands. */
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
