/* Operations on one row of numbers: sums, LayerNorm, dropout masks. */

static void multiply(int64_t size, const REAL *restrict mask, REAL *restrict values) {
    SIMD for (int64_t j = 0; j < size; j++) values[j] *= mask[j];
}

static REAL dot(int64_t size, const REAL *restrict a, const REAL *restrict b) {
    REAL s = 0;
    SUM(s) for (int64_t j = 0; j < size; j++) s += a[j] * b[j];
    return s;
}

static void add(int64_t size, const REAL *restrict a, REAL *restrict into) {
    SIMD for (int64_t j = 0; j < size; j++) into[j] += a[j];
}

/* Mean and 1 / standard deviation. */
static void moments(int64_t size, const REAL *restrict values, REAL epsilon, REAL *mean, REAL *inverse) {
    REAL s = 0, v = 0;
    SUM(s) for (int64_t j = 0; j < size; j++) s += values[j];
    s /= size;
    SUM(v) for (int64_t j = 0; j < size; j++) v += (values[j] - s) * (values[j] - s);
    *mean = s;
    *inverse = 1 / SQRT(v / size + epsilon);
}

/* Backward of LayerNorm: turns `gradient` from that of the result to that of the values, and accumulates those of
   weight and bias. */
static void norm_backward(int64_t size, const REAL *restrict values, REAL mean, REAL inverse,
                          const REAL *restrict weight, REAL *restrict gradient, REAL *restrict d_weight,
                          REAL *restrict d_bias) {
    REAL s = 0, v = 0;
    SUM(s, v) for (int64_t j = 0; j < size; j++) {
        REAL normal = (values[j] - mean) * inverse;
        d_weight[j] += gradient[j] * normal;
        d_bias[j] += gradient[j];
        gradient[j] *= weight[j];
        s += gradient[j];
        v += gradient[j] * normal;
    }
    s /= size;
    v /= size;
    SIMD for (int64_t j = 0; j < size; j++)
        gradient[j] = inverse * (gradient[j] - s - (values[j] - mean) * inverse * v);
}

/* Where dropout acts. */
enum { CELL_INPUT, HIDDEN, KEY, FEATURE, SITES };
enum { DROP_NOTHING = -(1 << 20) }; /* as in contract.py */

static uint64_t mix(uint64_t z) { /* splitmix64 */
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* The dropout mask of one row at one site, the same at every call. Returns 0 if nothing is dropped.
   The noise is a hash of its position, so that the backward pass draws it again instead of storing it. */
static int draw(const Share *s, int site, int64_t t, int64_t r, int64_t i, int64_t size, REAL *restrict mask) {
    const Pass *p = s->p;
    const REAL *given[SITES] = {p->cell_input_mask, p->hidden_mask, p->key_mask, p->feature_mask};
    int64_t place = (t * p->B + s->row[r]) * p->N + i;
    if (given[site]) {
        memcpy(mask, given[site] + place * size, size * sizeof(REAL));
        return 1;
    }
    int32_t level = site == CELL_INPUT || site == HIDDEN ? p->cell_level : p->score_level;
    if (level == DROP_NOTHING) return 0;
    uint64_t key = mix((uint64_t)*p->seed + mix((uint64_t)place * SITES + site));
    int16_t *restrict noise = s->noise;
    for (int64_t j = 0; j < (size + 3) / 4; j++) {
        uint64_t word = mix(key + (uint64_t)j * 0x9e3779b97f4a7c15u);
        memcpy(noise + 4 * j, &word, 8);
    }
    SIMD for (int64_t j = 0; j < size; j++) mask[j] = noise[j] >= level;
    return 1;
}
