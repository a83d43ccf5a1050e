/* The attention, Ordered Memory, §3.1: scores (8), p (9)-(11), and its sums →π and ←π (3), (4); and the backward pass. */

/* m_i, equation (10). */
static scalar_t attention_mask(const Pass *p, const scalar_t *occupancy, int64_t i) {
    return occupancy[i + 1] < p->threshold ? 0 : occupancy[i + 1];
}

/* Collect M̂_i[t-1] after dropout for every slot with m_i > 0, row after row; returns their number. */
static int64_t gather_key_inputs(Share *s, int64_t t, int64_t rows) {
    const Pass *p = s->p;
    int64_t D = p->D, count = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < p->N; i++) {
            if (attention_mask(p, s->occupancy + r * (p->N + 1), i) == 0) continue;
            s->key_row[count] = r;
            s->key_slot[count] = i;
            scalar_t *key_input = row_to_compute(s, s->key_inputs, count, D, s->unrounded_row);
            memcpy(key_input, candidate_of(s, t - 1, s->previous_pair, r, i), D * sizeof(scalar_t));
            apply_dropout(s, KEY, t, r, i, D, key_input);
            store_row(s, s->key_inputs, count++, D, key_input);
        }
    return count;
}

/* Compute the keys and the features, which are the input of the score's last map; returns their number.
   Additive score: tanh(query + key), (8). Normalized score: relu(query + LN(key)); `queries` are normalized already. */
static int64_t compute_features(Share *s, int64_t t, int64_t rows) {
    const Pass *p = s->p;
    int64_t D = p->D, count = gather_key_inputs(s, t, rows);
    multiply_forward(s, count, D, D, s->key_inputs, p->key, s->packed.key_t, p->bf16_key_t, s->keys);
    for (int64_t k = 0; k < count; k++) {
        scalar_t *restrict key = s->keys + k * D, *restrict feature = s->features + k * D;
        const scalar_t *restrict query = token_of(s, p->queries, t, s->key_row[k]);
        add_into(D, p->key_bias, key);
        if (p->key_norm) {
            scalar_t mean, rstd;
            layer_norm_statistics(D, key, p->key_epsilon, &mean, &rstd);
            SIMD for (int64_t d = 0; d < D; d++) {
                scalar_t sum = (key[d] - mean) * rstd * p->key_norm[d] + p->key_norm_bias[d] + query[d];
                feature[d] = sum < 0 ? 0 : sum; /* NaN remains, as in torch.relu */
            }
        } else {
            SIMD for (int64_t d = 0; d < D; d++) feature[d] = tanh_from_exp(key[d] + query[d]);
        }
    }
    return count;
}

/* →π and ←π of a row, equations (3) and (4); either may be null. */
static void cumulative_masks(int64_t N, const scalar_t *attention, scalar_t *forward_pi, scalar_t *backward_pi) {
    scalar_t sum = 0;
    for (int64_t i = 0; forward_pi && i < N; i++) forward_pi[i] = sum += attention[i];
    sum = 0;
    for (int64_t i = N; backward_pi && i-- > 0;) backward_pi[i] = sum += attention[i];
}

/* p of a row, from the scores of its `count` slots with m_i > 0, equations (9) and (11):
   p_i = m_i exp(a_i - max a) / Σ_j m_j exp(a_j - max a). */
static void masked_softmax(const Pass *p, const scalar_t *occupancy, int64_t count, const int32_t *slots,
                           const scalar_t *scores, scalar_t *attention) {
    scalar_t largest = -INFINITY, total = 0;
    for (int64_t k = 0; k < count; k++) largest = scores[k] > largest ? scores[k] : largest;
    memset(attention, 0, p->N * sizeof(scalar_t));
    for (int64_t k = 0; k < count; k++) {
        int64_t i = slots[k];
        total += attention[i] = attention_mask(p, occupancy, i) * EXP(scores[k] - largest);
    }
    if (total != 0)
        for (int64_t i = 0; i < p->N; i++) attention[i] /= total;
}

/* Compute p of every row, →π and ←π, and the first active slot. */
static void attend(Share *s, int64_t t, int64_t rows) {
    const Pass *p = s->p;
    int64_t N = p->N, D = p->D, count = compute_features(s, t, rows);
    for (int64_t k = 0; k < count; k++) {
        scalar_t *feature = s->features + k * D;
        apply_dropout(s, FEATURE, t, s->key_row[k], s->key_slot[k], D, feature);
        s->scores[k] = dot(D, feature, p->score_out);
    }
    for (int64_t r = 0, begin = 0, end = 0; r < rows; r++, begin = end) {
        while (end < count && s->key_row[end] == r) end++;
        scalar_t *attention = attention_of(s, p->attention, t, r), *forward_pi = s->forward_pi + r * N;
        masked_softmax(p, s->occupancy + r * (N + 1), end - begin, s->key_slot + begin, s->scores + begin, attention);
        cumulative_masks(N, attention, forward_pi, s->backward_pi + r * N);
        int32_t first_active = 0;
        while (first_active < N && forward_pi[first_active] == 0) first_active++;
        *first_active_of(s, t, r) = first_active;
    }
}

/* Recompute the occupancy before step t, and →π and ←π of the step, for the backward pass. */
static void restore_masks(Share *s, int64_t t, int64_t rows) {
    const Pass *p = s->p;
    int64_t N = p->N;
    for (int64_t r = 0; r < rows; r++) {
        scalar_t *occupancy = s->occupancy + r * (N + 1);
        cumulative_masks(N, attention_of(s, p->attention, t, r), s->forward_pi + r * N, s->backward_pi + r * N);
        if (t) {
            cumulative_masks(N, attention_of(s, p->attention, t - 1, r), occupancy, 0);
            occupancy[N] = 1;
        } else
            memcpy(occupancy, p->occupancy0 + s->sequence[r] * (N + 1), (N + 1) * sizeof(scalar_t));
    }
}

/* Backward of a row's p, →π and ←π, given the gradients of ←π in `d_backward_pi`, and of →π in `d_forward_pi` (by the
   cell of this step) and `d_occupancy` (by the next step). Writes the gradients of the scores, and of the occupancy
   before the step:
       dp_i = upstream + Σ_{j≥i} d→π_j + Σ_{j≤i} d←π_j;
       da_i = p_i (dp_i - Σ_j p_j dp_j);
       dm_i = da_i / m_i, since p depends on m_i exp(a_i). */
static void attention_backward(Share *s, int64_t t, int64_t r) {
    const Pass *p = s->p;
    int64_t N = p->N;
    const scalar_t *attention = attention_of(s, p->attention, t, r);
    const scalar_t *upstream = p->d_attention ? attention_of(s, p->d_attention, t, r) : 0;
    scalar_t *d_occupancy = s->d_occupancy + r * (N + 1), *d_score = s->d_scores + r * N;
    scalar_t *d_attention = s->d_attention, sum = 0, mean = 0;
    for (int64_t i = 0; i < N; i++) {
        int32_t j = s->pair[r * N + i];
        if (j >= 0) d_occupancy[i] += s->d_forward_pi[j];
    }
    for (int64_t i = N; i-- > 0;) d_attention[i] = sum += d_occupancy[i];
    sum = 0;
    for (int64_t i = 0; i < N; i++) {
        sum += s->d_backward_pi[i];
        d_attention[i] += sum + (upstream ? upstream[i] : 0);
        mean += attention[i] * d_attention[i];
    }
    d_occupancy[0] = 0;
    for (int64_t i = 0; i < N; i++) {
        scalar_t mask = attention_mask(p, s->occupancy + r * (N + 1), i);
        d_score[i] = attention[i] * (d_attention[i] - mean);
        d_occupancy[i + 1] = mask == 0 ? 0 : d_score[i] / mask;
    }
}

/* Backward of the score of key k, down to the result of the key map: writes `d_keys`, adds to the gradients of the
   query, of the LayerNorm and of the last map. */
static void feature_backward(Share *s, int64_t t, int64_t k) {
    const Pass *p = s->p;
    int64_t D = p->D, r = s->key_row[k], i = s->key_slot[k];
    scalar_t *key = s->keys + k * D, *feature = s->features + k * D, d_score = s->d_scores[r * p->N + i];
    scalar_t *restrict d_query = token_of(s, p->d_queries, t, r), *restrict d_weight = s->d_score_out;
    scalar_t *restrict mask = s->mask;
    scalar_t *d_key = row_to_compute(s, s->d_keys, k, D, s->unrounded_row); /* may overwrite the feature */
    const scalar_t *restrict weight = p->score_out;
    if (!dropout_mask(s, FEATURE, t, r, i, D, mask))
        for (int64_t d = 0; d < D; d++) mask[d] = 1;
    SIMD for (int64_t d = 0; d < D; d++) {
        d_weight[d] += d_score * feature[d] * mask[d];
        scalar_t slope = p->key_norm ? !(feature[d] <= 0) : 1 - feature[d] * feature[d]; /* of relu, of tanh */
        d_key[d] = d_score * weight[d] * mask[d] * slope;
        d_query[d] += d_key[d];
    }
    if (p->key_norm) {
        scalar_t mean, rstd;
        layer_norm_statistics(D, key, p->key_epsilon, &mean, &rstd);
        layer_norm_backward(D, key, mean, rstd, p->key_norm, d_key, s->d_key_norm, s->d_key_norm_bias);
    }
    store_row(s, s->d_keys, k, D, d_key);
    add_into(D, d_key, s->d_key_bias);
}

/* Backward of the scores: adds to the gradients of M̂[t-1], of the queries and of the score's weights. Keys and
   features are computed again. */
static void scores_backward(Share *s, int64_t t, int64_t rows) {
    const Pass *p = s->p;
    int64_t D = p->D, count = compute_features(s, t, rows);
    for (int64_t k = 0; k < count; k++) feature_backward(s, t, k);
    add_weight_gradient(s, D, D, count, s->d_keys, s->key_inputs, s->d_key);
    scalar_t *d_key_inputs = s->keys; /* which are no longer needed */
    multiply_by_weight(s, count, D, D, s->d_keys, s->packed.key, p->bf16_key, d_key_inputs);
    for (int64_t k = 0; k < count; k++) {
        int64_t r = s->key_row[k], i = s->key_slot[k];
        scalar_t *d_key_input = d_key_inputs + k * D;
        apply_dropout(s, KEY, t, r, i, D, d_key_input);
        add_into(D, d_key_input, s->d_candidate + (r * p->N + i) * D);
    }
}
