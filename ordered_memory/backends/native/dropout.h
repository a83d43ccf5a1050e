/* Dropout masks: given, or drawn.

   A drawn mask has entries 0 and 1; the weights contain the factor 1 / (1 - probability). The noise that decides what
   is dropped is a hash of seed and position, so that the backward pass draws it again and it need not be stored. */

/* Where dropout acts: on the inputs and the hidden units of the cell, on the inputs of the score's two maps. */
enum { CELL_INPUT, HIDDEN, KEY, FEATURE, DROPOUT_SITES };

/* Finalizer and increment of the splitmix64 generator. */
static uint64_t splitmix64(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
static const uint64_t SPLITMIX64_INCREMENT = 0x9e3779b97f4a7c15u;

/* Write the dropout mask of slot i of a row at step t, for one site. Returns 0 if nothing is dropped. */
static int dropout_mask(const Share *s, int site, int64_t t, int64_t r, int64_t i, int64_t size,
                        scalar_t *restrict mask) {
    const Pass *p = s->p;
    const scalar_t *given[DROPOUT_SITES] = {p->cell_input_mask, p->hidden_mask, p->key_mask, p->feature_mask};
    int64_t position = (t * p->B + s->sequence[r]) * p->N + i;
    if (given[site]) {
        memcpy(mask, given[site] + position * size, size * sizeof(scalar_t));
        return 1;
    }
    int32_t drop_below = site == CELL_INPUT || site == HIDDEN ? p->cell_drop_below : p->score_drop_below;
    if (drop_below <= INT16_MIN) return 0; /* no noise is below it */
    uint64_t key = splitmix64((uint64_t)*p->seed + splitmix64((uint64_t)position * DROPOUT_SITES + site));
    int16_t *restrict noise = s->noise;
    for (int64_t j = 0; j < (size + 3) / 4; j++) { /* four entries of 16 bits from each word */
        uint64_t word = splitmix64(key + (uint64_t)j * SPLITMIX64_INCREMENT);
        memcpy(noise + 4 * j, &word, sizeof word);
    }
    SIMD for (int64_t j = 0; j < size; j++) mask[j] = noise[j] >= drop_below;
    return 1;
}

/* Multiply a vector by its dropout mask. */
static void apply_dropout(const Share *s, int site, int64_t t, int64_t r, int64_t i, int64_t size, scalar_t *values) {
    if (dropout_mask(s, site, t, r, i, size, s->mask)) multiply_into(size, s->mask, values);
}
