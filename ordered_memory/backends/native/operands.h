/* Rows of operands of matrix products: REAL, or bfloat16, to which a row is rounded when it has been computed. */

/* Row `row` of operands with `size` entries each. */
static void *operand(const Share *s, const void *operands, int64_t row, int64_t size) {
    return (char *)operands + row * size * operand_size(s->p);
}

/* Where to compute a row of operands: in place, or in `buffer` if it is to be rounded by `end_row`. */
static REAL *begin_row(const Share *s, const void *operands, int64_t row, int64_t size, REAL *buffer) {
    return is_narrow(s->p) ? buffer : operand(s, operands, row, size);
}

static void end_row(const Share *s, const void *operands, int64_t row, int64_t size, const REAL *buffer) {
    if (is_narrow(s->p)) round_to_bf16(size, buffer, operand(s, operands, row, size));
}

/* A row of operands as REAL: in place, or converted in `buffer`. */
static const REAL *read_row(const Share *s, const void *operands, int64_t row, int64_t size, REAL *restrict buffer) {
    const void *from = operand(s, operands, row, size);
    if (!is_narrow(s->p)) return from;
    widen_bf16(size, from, buffer);
    return buffer;
}
