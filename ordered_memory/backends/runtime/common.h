/* Included first by the C code of both models: number types, vectorized loops, activation functions. */

#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE__
#include <immintrin.h>
#endif

/* Declare the vector versions of exp, which are in the libmvec of glibc 2.22 and newer. */
#if defined(__x86_64__) && defined(__GLIBC__)
#if __GLIBC_PREREQ(2, 22) /* which other C libraries do not define */
__attribute__((simd("notinbranch"))) float expf(float);
__attribute__((simd("notinbranch"))) double exp(double);
#endif
#endif

/* The dtype of the parameters. Every C file is compiled twice, for float and for double. */
#if DOUBLE
typedef double scalar_t;
#define EXP exp
#define SQRT sqrt
#else
typedef float scalar_t;
#define EXP expf
#define SQRT sqrtf
#endif

#define INLINE static inline __attribute__((always_inline))
/* A function that is neither inlined nor specialized to the arguments of a caller, which makes its loops worse. */
#if __has_attribute(noclone)
#define SINGLE_COPY static __attribute__((noinline, noclone))
#else
#define SINGLE_COPY static __attribute__((noinline))
#endif

/* Before a `for`: vectorize the loop; the second form if it adds to the variables that are named. */
#define PRAGMA(text) _Pragma(#text)
#define SIMD PRAGMA(omp simd)
#define SIMD_SUM(...) PRAGMA(omp simd reduction(+ : __VA_ARGS__))

/* Exports the size of a struct, with which c_struct.py checks how it parsed the typedef. */
#define EXPORT_SIZE(name) const int64_t size_of_##name = sizeof(name);

INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

INLINE scalar_t sigmoid(scalar_t x) { return 1 / (1 + EXP(-x)); }

/* tanh x = 1 - 2 / (1 + exp 2x): no vector version of tanh is declared. Near 0 this loses digits, and for
   small x all of them. There, the power series of tanh is used instead. The first term that it leaves out,
   .0015 x^15, is smaller than the rounding error. */
INLINE scalar_t tanh_from_exp(scalar_t x) {
    const scalar_t below = DOUBLE ? 0.01 : 0.09, square = x * x;
    const scalar_t c3 = -1. / 3, c5 = 2. / 15, c7 = -17. / 315, c9 = 62. / 2835, c11 = -1382. / 155925;
    const scalar_t c13 = 21844. / 6081075;
    scalar_t tail = c3 + square * (c5 + square * (c7 + square * (c9 + square * (c11 + square * c13))));
    scalar_t from_exp = 1 - 2 / (1 + EXP(2 * x));
    return square < below ? x + x * square * tail : from_exp;
}
