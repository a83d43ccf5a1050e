/* Operations on one vector: sums, LayerNorm. */

static void multiply_into(int64_t size, const scalar_t *restrict factors, scalar_t *restrict into) {
    SIMD for (int64_t j = 0; j < size; j++) into[j] *= factors[j];
}

static void add_into(int64_t size, const scalar_t *restrict terms, scalar_t *restrict into) {
    SIMD for (int64_t j = 0; j < size; j++) into[j] += terms[j];
}

static scalar_t dot(int64_t size, const scalar_t *restrict a, const scalar_t *restrict b) {
    scalar_t sum = 0;
    SIMD_SUM(sum) for (int64_t j = 0; j < size; j++) sum += a[j] * b[j];
    return sum;
}

/* The statistics of LayerNorm: mean, and rstd = 1 / standard deviation. */
static void layer_norm_statistics(int64_t size, const scalar_t *restrict x, scalar_t epsilon, scalar_t *mean,
                                  scalar_t *rstd) {
    scalar_t sum = 0, squares = 0;
    SIMD_SUM(sum) for (int64_t j = 0; j < size; j++) sum += x[j];
    sum /= size;
    SIMD_SUM(squares) for (int64_t j = 0; j < size; j++) squares += (x[j] - sum) * (x[j] - sum);
    *mean = sum;
    *rstd = 1 / SQRT(squares / size + epsilon);
}

/* Backward of LayerNorm: `gradient` holds the gradient of the result and is overwritten with that of x. The
   gradients of weight and bias are accumulated. With x̂ = (x - mean) rstd and g = gradient * weight,
   dx = rstd (g - mean(g) - x̂ mean(g x̂)). */
static void layer_norm_backward(int64_t size, const scalar_t *restrict x, scalar_t mean, scalar_t rstd,
                                const scalar_t *restrict weight, scalar_t *restrict gradient,
                                scalar_t *restrict d_weight, scalar_t *restrict d_bias) {
    scalar_t sum = 0, product = 0;
    SIMD_SUM(sum, product) for (int64_t j = 0; j < size; j++) {
        scalar_t normalized = (x[j] - mean) * rstd;
        d_weight[j] += gradient[j] * normalized;
        d_bias[j] += gradient[j];
        gradient[j] *= weight[j];
        sum += gradient[j];
        product += gradient[j] * normalized;
    }
    sum /= size;
    product /= size;
    SIMD for (int64_t j = 0; j < size; j++)
        gradient[j] = rstd * (gradient[j] - sum - (x[j] - mean) * rstd * product);
}
