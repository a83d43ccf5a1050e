/* How the work is divided among threads. The units are divided into parts of whole chunks, each for all sequences.

   The columns of `gates` are ordered by part: the units of i, f, ĉ and o of a part, then its logits of f̃ and ĩ. So the
   backward pass must have as many parts as the forward pass, but may have another number of threads. */

/* Where part `part` of `parts` begins, if `size` items are divided as evenly as possible. */
static int64_t part_start(int64_t size, int64_t part, int64_t parts) { return size * part / parts; }

static int64_t first_chunk(const Pass *p, int64_t part) { return part_start(p->M, part, p->parts); }
static int64_t first_unit(const Pass *p, int64_t part) { return first_chunk(p, part) * p->C; }
static int64_t num_chunks(const Pass *p, int64_t part) { return first_chunk(p, part + 1) - first_chunk(p, part); }
static int64_t num_units(const Pass *p, int64_t part) { return num_chunks(p, part) * p->C; }

/* A chunk has C columns of each of i, f, ĉ and o, and one of each of f̃ and ĩ. */
static int64_t first_column(const Pass *p, int64_t part) { return first_chunk(p, part) * (4 * p->C + 2); }
static int64_t num_columns(const Pass *p, int64_t part) { return num_chunks(p, part) * (4 * p->C + 2); }

/* Number of elements that a row of `size` numbers takes as an operand of a product. */
static int64_t operand_size(const Pass *p, int64_t size) { return p->bf16_vnni ? size / 2 : size; }

/* Whether the forward pass multiplies by the weights as they are: packing them would take longer. See gemm.h. More than
   eight tokens were not measured. */
enum { FEW_TOKENS = 8 };
static int few_tokens(const Pass *p) { return p->T * p->B <= FEW_TOKENS && !p->bf16_vnni; }

/* Number of elements of the workspace of a part for one row: f̃ and ĩ of all units, and their logits. */
static int64_t row_workspace(const Pass *p) { return 2 * (p->H + p->M); }

/* Number of elements of the workspace of a part: for one row, then its packed weights. Rounded up to cache lines. */
static int64_t part_workspace(const Pass *p, int64_t is_backward_pass) {
    int64_t chunks = (p->M + p->parts - 1) / p->parts;
    int64_t packed = packed_size(p->H + p->I, chunks * (4 * p->C + 2));
    if (is_backward_pass) packed = packed_size(p->G, chunks * p->C);
    else if (few_tokens(p)) packed = 0;
    return (packed + row_workspace(p) + 63) / 64 * 64;
}

int64_t workspace_size(const Pass *p, int64_t is_backward_pass) {
    return p->parts * part_workspace(p, is_backward_pass);
}

/* h or c before a step: that of the previous step among `all_steps`, or the initial one. */
static const scalar_t *state_before(const Pass *p, const scalar_t *all_steps, const scalar_t *initial, int64_t t) {
    return t ? all_steps + p->first_token[t - 1] * p->H : initial;
}
