/* Included first by the C code of both models: number types, vectorized loops, activation functions. */

#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE__
#include <immintrin.h>
#endif

/* Declare the vector versions of exp, which are in glibc's libmvec. */
#if defined(__x86_64__) && defined(__GLIBC__)
__attribute__((simd("notinbranch"))) float expf(float);
__attribute__((simd("notinbranch"))) double exp(double);
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

/* tanh x = 1 - 2 / (1 + exp 2x): of tanh no vector version is declared. */
INLINE scalar_t tanh_from_exp(scalar_t x) { return 1 - 2 / (1 + EXP(2 * x)); }
