/* Equations (8)-(11), (3), (4): scores, attention p and its masks; and their gradients. */

static REAL mask_of(const Pass *p, const REAL *occupancy, int64_t i) {
    return occupancy[i + 1] < p->threshold ? 0 : occupancy[i + 1];
}

/* Compute keys and features of all unmasked slots, and return their number: equation (8) before its last map. */
static int64_t score_features(Share *s, int64_t t, int64_t rows) {
    const Pass *p = s->p;
    int64_t D = p->D, count = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < p->N; i++) {
            if (mask_of(p, s->occupancy + r * (p->N + 1), i) == 0) continue;
            s->entry_row[count] = r;
            s->entry_slot[count] = i;
            REAL *entry = begin_row(s, s->entries, count, D, s->row_values);
            memcpy(entry, candidate_of(s, t - 1, s->old_pair, r, i), D * sizeof(REAL));
            if (draw(s, KEY, t, r, i, D, s->mask)) multiply(D, s->mask, entry);
            end_row(s, s->entries, count++, D, entry);
        }
    product(s, count, D, D, s->entries, s->packed.key_t, p->bf16_key_t, s->keys);
    for (int64_t e = 0; e < count; e++) {
        REAL *restrict key = s->keys + e * D, *restrict feature = s->features + e * D;
        const REAL *restrict query = token(s, p->queries, t, s->entry_row[e]);
        add(D, p->key_bias, key);
        if (p->key_norm) {
            REAL mean, inverse;
            moments(D, key, p->key_epsilon, &mean, &inverse);
            SIMD for (int64_t j = 0; j < D; j++) {
                REAL f = (key[j] - mean) * inverse * p->key_norm[j] + p->key_norm_bias[j] + query[j];
                feature[j] = f < 0 ? 0 : f; /* as relu: NaN stays */
            }
        } else {
            SIMD for (int64_t j = 0; j < D; j++) { /* tanh z = 1 - 2 / (1 + exp 2z) */
                feature[j] = 1 - 2 / (1 + EXP(2 * (key[j] + query[j])));
            }
        }
    }
    return count;
}

/* →π and ←π of a row; either may be null. */
static void cumulate(int64_t N, const REAL *attention, REAL *forward, REAL *backward) {
    REAL sum = 0;
    for (int64_t i = 0; forward && i < N; i++) forward[i] = sum += attention[i];
    sum = 0;
    for (int64_t i = N; backward && i-- > 0;) backward[i] = sum += attention[i];
}

/* Compute p of every row, its masks →π and ←π, and its first active slot. */
static void attend(Share *s, int64_t t, int64_t rows) {
    const Pass *p = s->p;
    int64_t N = p->N, D = p->D, count = score_features(s, t, rows);
    for (int64_t e = 0; e < count; e++) {
        REAL *feature = s->features + e * D;
        if (draw(s, FEATURE, t, s->entry_row[e], s->entry_slot[e], D, s->mask)) multiply(D, s->mask, feature);
        s->scores[e] = dot(D, feature, p->score);
    }
    for (int64_t r = 0, e = 0; r < rows; r++) {
        REAL *attention = attention_of(s, p->attention, t, r), total = 0;
        const REAL *occupancy = s->occupancy + r * (N + 1);
        int64_t begin = e;
        REAL largest = -INFINITY;
        for (; e < count && s->entry_row[e] == r; e++) largest = s->scores[e] > largest ? s->scores[e] : largest;
        memset(attention, 0, N * sizeof(REAL));
        for (int64_t k = begin; k < e; k++) {
            int64_t i = s->entry_slot[k];
            total += attention[i] = mask_of(p, occupancy, i) * EXP(s->scores[k] - largest);
        }
        if (total != 0)
            for (int64_t i = 0; i < N; i++) attention[i] /= total;
        REAL *forward = s->forward + r * N;
        cumulate(N, attention, forward, s->backward + r * N);
        int32_t top = 0;
        while (top < N && forward[top] == 0) top++;
        *top_of(s, t, r) = top;
    }
}

/* Recompute the occupancy before step t, and →π and ←π of the step. */
static void recall_masks(Share *s, int64_t t, int64_t rows) {
    const Pass *p = s->p;
    int64_t N = p->N;
    for (int64_t r = 0; r < rows; r++) {
        REAL *occupancy = s->occupancy + r * (N + 1);
        cumulate(N, attention_of(s, p->attention, t, r), s->forward + r * N, s->backward + r * N);
        if (t) {
            cumulate(N, attention_of(s, p->attention, t - 1, r), occupancy, 0);
            occupancy[N] = 1;
        } else
            memcpy(occupancy, p->occupancy0 + s->row[r] * (N + 1), (N + 1) * sizeof(REAL));
    }
}

/* Backward of a row's p, from the gradients of ←π in `d_backward`: the gradients of its scores, by slot, and of the
   occupancy. */
static void attention_backward(Share *s, int64_t t, int64_t r) {
    const Pass *p = s->p;
    int64_t N = p->N;
    const REAL *attention = attention_of(s, p->attention, t, r);
    const REAL *upstream = p->d_attention ? attention_of(s, p->d_attention, t, r) : 0;
    REAL *d_occupancy = s->d_occupancy + r * (N + 1), *d_score = s->d_scores + r * N;
    REAL *d_attention = s->d_attention, sum = 0, mean = 0;
    for (int64_t i = 0; i < N; i++) {
        int32_t j = s->pair[r * N + i];
        if (j >= 0) d_occupancy[i] += s->d_forward[j];
    }
    for (int64_t i = N; i-- > 0;) d_attention[i] = sum += d_occupancy[i];
    sum = 0;
    for (int64_t i = 0; i < N; i++) {
        sum += s->d_backward[i];
        d_attention[i] += sum + (upstream ? upstream[i] : 0);
        mean += attention[i] * d_attention[i];
    }
    d_occupancy[0] = 0;
    for (int64_t i = 0; i < N; i++) {
        REAL mask = mask_of(p, s->occupancy + r * (N + 1), i);
        d_score[i] = attention[i] * (d_attention[i] - mean);
        d_occupancy[i + 1] = mask == 0 ? 0 : d_score[i] / mask;
    }
}

/* Backward of `score_features` and of the score's last map, from the gradients of all scores. */
static void scores_backward(Share *s, int64_t t, int64_t rows) {
    const Pass *p = s->p;
    int64_t D = p->D, N = p->N, count = score_features(s, t, rows);
    for (int64_t e = 0; e < count; e++) {
        int64_t r = s->entry_row[e], i = s->entry_slot[e];
        REAL *key = s->keys + e * D, *feature = s->features + e * D;
        REAL *restrict d_query = token(s, p->d_queries, t, r), d_score = s->d_scores[r * N + i];
        REAL *restrict d_last = s->d_score, *restrict mask = s->mask;
        REAL *gradient = begin_row(s, s->d_keys, e, D, s->row_values); /* may overwrite the features */
        const REAL *restrict last = p->score;
        if (!draw(s, FEATURE, t, r, i, D, mask))
            for (int64_t d = 0; d < D; d++) mask[d] = 1;
        SIMD for (int64_t d = 0; d < D; d++) {
            d_last[d] += d_score * feature[d] * mask[d];
            REAL slope = p->key_norm ? feature[d] > 0 : 1 - feature[d] * feature[d];
            gradient[d] = d_score * last[d] * mask[d] * slope;
            d_query[d] += gradient[d];
        }
        if (p->key_norm) {
            REAL mean, inverse;
            moments(D, key, p->key_epsilon, &mean, &inverse);
            norm_backward(D, key, mean, inverse, p->key_norm, gradient, s->d_key_norm, s->d_key_norm_bias);
        }
        end_row(s, s->d_keys, e, D, gradient);
        add(D, gradient, s->d_key_bias);
    }
    add_product(s, D, D, count, s->d_keys, s->entries, s->d_key);
    product(s, count, D, D, s->d_keys, s->packed.key, p->bf16_key, s->keys);
    for (int64_t e = 0; e < count; e++) {
        int64_t r = s->entry_row[e], i = s->entry_slot[e];
        REAL *d_entry = s->keys + e * D;
        if (draw(s, KEY, t, r, i, D, s->mask)) multiply(D, s->mask, d_entry);
        add(D, d_entry, s->d_candidate + (r * N + i) * D);
    }
}
