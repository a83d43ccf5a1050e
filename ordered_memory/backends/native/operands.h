/* Rows of operands: REAL, or bfloat16, which is rounded where a row is made and widened where it is read. */

/* Row `row` of operands of a size. */
static void *operand(const Share *s, const void *operands, int64_t row, int64_t size) {
    return (char *)operands + row * size * operand_size(s->p);
}

/* Where to compute a row of operands: in place, or in `buffer` if it has to be rounded after that. */
static REAL *begin_row(const Share *s, const void *operands, int64_t row, int64_t size, REAL *buffer) {
    return is_narrow(s->p) ? buffer : operand(s, operands, row, size);
}

static void end_row(const Share *s, const void *operands, int64_t row, int64_t size, const REAL *buffer) {
    if (is_narrow(s->p)) round_to_bf16(size, buffer, operand(s, operands, row, size));
}

/* A row of operands as REAL: where it is, or in `buffer`. */
static const REAL *read_row(const Share *s, const void *operands, int64_t row, int64_t size, REAL *restrict buffer) {
    const void *from = operand(s, operands, row, size);
    if (!is_narrow(s->p)) return from;
    widen_bf16(size, from, buffer);
    return buffer;
}
