/* row_space.c -- shapes and strides of a call to rows.
 *
 * Invariant: rows keep their order, and elements theirs in the row: row() and col() are what
 * NumPy's indices of the call say.
 */
#include "row.h"

#include <string.h>

static eider_status meet(struct eider_map_space *s, const struct eider_graph *program, uint32_t i,
                         int at, int64_t extent)
{
    char name[EIDER_MAP_NAME_BYTES];
    if (extent < 0)
        return eider_fail(EIDER_SHAPE, "%s has a negative extent",
                          eider_map_name(program, i, name));
    if (s->extent[at] == 1)
        s->extent[at] = extent;
    else if (extent != 1 && extent != s->extent[at])
        return eider_fail(EIDER_SHAPE, "%s has extent %lld where others have %lld",
                          eider_map_name(program, i, name), (long long)extent,
                          (long long)s->extent[at]);
    return EIDER_OK;
}

/* The dimension of the space that dimension `d` of an operand is. */
static int dimension_of(const struct eider_map_space *s, eider_extent extent,
                        const eider_tensor *arg, int d)
{
    int without_last = extent == EIDER_PER_ROW && arg->rank < s->rank;
    return s->rank - arg->rank + d - without_last;
}

/* Whether the operand has the same value along dimension `at`, as its extent says. */
static int repeats(const struct eider_map_space *s, eider_extent extent, int at)
{
    return (extent == EIDER_PER_ROW && at == s->rank - 1) ||
           (extent == EIDER_PER_COLUMN && at < s->rank - 1);
}

static eider_status meet_operand(struct eider_map_space *s, const struct eider_graph *program,
                                 uint32_t i, eider_extent extent, const eider_tensor *arg)
{
    char name[EIDER_MAP_NAME_BYTES];
    for (int d = 0; d < arg->rank; d++) {
        int at = dimension_of(s, extent, arg, d);
        if (repeats(s, extent, at) && arg->shape[d] != 1)
            return eider_fail(EIDER_SHAPE,
                              "%s has extent %lld in dimension %d; it has one value per "
                              "%s",
                              eider_map_name(program, i, name), (long long)arg->shape[d], d,
                              extent == EIDER_PER_ROW ? "row" : "column");
        EIDER_TRY(meet(s, program, i, at, arg->shape[d]));
    }
    return EIDER_OK;
}

/* An output has every extent of the space that its own extent does not leave out. */
static eider_status check_output(const struct eider_map_space *s, const struct eider_graph *program,
                                 uint32_t i, eider_extent extent, const eider_tensor *arg, int rank)
{
    char name[EIDER_MAP_NAME_BYTES];
    int least = extent == EIDER_PER_COLUMN ? 1 : extent == EIDER_PER_ROW ? rank - 1 : rank;
    if (arg->rank < least)
        return eider_fail(EIDER_SHAPE, "%s has rank %d, the operands broadcast to rank %d",
                          eider_map_name(program, i, name), (int)arg->rank, rank);
    for (int d = 0; d < arg->rank; d++) {
        int at = dimension_of(s, extent, arg, d);
        int64_t want = repeats(s, extent, at) ? 1 : s->extent[at];
        if (arg->shape[d] != want)
            return eider_fail(EIDER_SHAPE,
                              "%s has extent %lld in dimension %d, the operands "
                              "broadcast to %lld",
                              eider_map_name(program, i, name), (long long)arg->shape[d], d,
                              (long long)want);
    }
    return EIDER_OK;
}

/* Byte strides of operand `i`; the sum of all distances is kept below 2^62. */
static eider_status place(struct eider_map_space *s, const struct eider_graph *program, uint32_t i,
                          eider_extent extent, const eider_tensor *arg)
{
    char name[EIDER_MAP_NAME_BYTES];
    int64_t size = (int64_t)eider_dtype_size(arg->type), contiguous = size, total = 0;
    for (int d = arg->rank - 1; d >= 0; d--) {
        int at = dimension_of(s, extent, arg, d);
        int64_t own = arg->shape[d], stride = contiguous, reach;
        int bad = arg->strides && __builtin_mul_overflow(arg->strides[d], size, &stride);
        if (own < 2) stride = 0;
        bad = bad || stride == INT64_MIN ||
              __builtin_mul_overflow(stride < 0 ? -stride : stride, own, &reach) ||
              __builtin_add_overflow(total, reach, &total) || total > INT64_MAX / 4 ||
              __builtin_mul_overflow(contiguous, own ? own : 1, &contiguous);
        if (bad)
            return eider_fail(EIDER_TOO_LARGE, "%s reaches beyond the 64-bit address space",
                              eider_map_name(program, i, name));
        s->stride[i][at] = stride;
    }
    return EIDER_OK;
}

static int can_join(const struct eider_map_space *s, uint32_t n, int outer, int inner)
{
    for (uint32_t i = 0; i < n; i++)
        if (s->stride[i][outer] != s->stride[i][inner] * s->extent[inner]) return 0;
    return 1;
}

/* Drops leading dimensions of one row and joins those that are one, but for the last. */
static void join_rows(struct eider_map_space *s, uint32_t n)
{
    int last = -1, row = s->rank - 1;
    for (int d = 0; d < row; d++) {
        if (s->extent[d] == 1) continue;
        int join = last >= 0 && can_join(s, n, last, d);
        if (!join) last++;
        /* Wraps only where another extent is 0. */
        uint64_t joined =
            (uint64_t)s->extent[join ? last : d] * (join ? (uint64_t)s->extent[d] : 1);
        s->extent[last] = (int64_t)joined;
        for (uint32_t i = 0; i < n; i++) s->stride[i][last] = s->stride[i][d];
    }
    int64_t cols = s->extent[row], stride[EIDER_OPERANDS_MAX];
    for (uint32_t i = 0; i < n; i++) stride[i] = s->stride[i][row];
    if (last < 0) { /* one row */
        last = 0;
        s->extent[0] = 1;
        for (uint32_t i = 0; i < n; i++) s->stride[i][0] = 0;
    }
    s->rank = last + 2;
    s->extent[last + 1] = cols;
    for (uint32_t i = 0; i < n; i++) s->stride[i][last + 1] = stride[i];
}

static eider_status count_rows(struct eider_map_space *s)
{
    s->count = 1;
    for (int d = 0; d < s->rank - 1; d++)
        if (s->extent[d] == 0) s->count = 0;
    for (int d = 0; d < s->rank - 1 && s->count; d++)
        if (__builtin_mul_overflow(s->count, s->extent[d], &s->count))
            return eider_fail(EIDER_TOO_LARGE, "the operands broadcast to more than 2^63 rows");
    if (s->extent[s->rank - 1] > INT32_MAX / 2)
        return eider_fail(EIDER_TOO_LARGE, "rows of %lld elements; at most %d are possible",
                          (long long)s->extent[s->rank - 1], INT32_MAX / 2);
    return EIDER_OK;
}

/* At least one dimension for the rows.  Returns the rank of the call. */
static int set_rank(struct eider_map_space *s, const struct eider_layout_operand *operands,
                    uint32_t n, const eider_tensor *args)
{
    int rank = 0;
    for (uint32_t i = 0; i < n; i++)
        if (operands[i].kind != EIDER_SCALAR && args[i].rank > rank) rank = args[i].rank;
    s->rank = rank < 2 ? 2 : rank;
    for (int d = 0; d < s->rank; d++) s->extent[d] = 1;
    return rank;
}

eider_status eider_row_space_of(const struct eider_layout_operand *operands, uint32_t n_operands,
                                const struct eider_graph *program, const eider_tensor *args,
                                struct eider_map_space *out)
{
    struct eider_map_space *s = out;
    for (uint32_t i = 0; i < n_operands; i++)
        EIDER_TRY(eider_map_check_operand(&operands[i], program, i, &args[i]));
    int rank = set_rank(s, operands, n_operands, args);
    for (uint32_t i = 0; i < n_operands; i++)
        if (operands[i].kind == EIDER_INPUT)
            EIDER_TRY(meet_operand(s, program, i, operands[i].extent, &args[i]));
    for (uint32_t i = 0; i < n_operands; i++) {
        s->data[i] = (uintptr_t)args[i].data;
        memset(s->stride[i], 0, sizeof s->stride[i]);
        if (operands[i].kind == EIDER_OUTPUT)
            EIDER_TRY(check_output(s, program, i, operands[i].extent, &args[i], rank));
        if (operands[i].kind != EIDER_SCALAR)
            EIDER_TRY(place(s, program, i, operands[i].extent, &args[i]));
    }
    EIDER_TRY(count_rows(s));
    join_rows(s, n_operands);
    return EIDER_OK;
}

/* ---- Overlap ---------------------------------------------------------------- */

static void range_of(const struct eider_map_space *s, const struct eider_layout_operand *operands,
                     uint32_t i, uintptr_t *low, uintptr_t *high)
{
    *low = s->data[i];
    *high = s->data[i] + eider_dtype_size(operands[i].type);
    for (int d = 0; d < s->rank; d++) {
        int64_t reach = s->stride[i][d] * (s->extent[d] > 0 ? s->extent[d] - 1 : 0);
        if (reach < 0)
            *low += (uintptr_t)reach;
        else
            *high += (uintptr_t)reach;
    }
}

static int is_same(const struct eider_map_space *s, const struct eider_layout_operand *operands,
                   uint32_t i, uint32_t j)
{
    return s->data[i] == s->data[j] && operands[j].kind == EIDER_INPUT &&
           eider_dtype_size(operands[i].type) == eider_dtype_size(operands[j].type) &&
           memcmp(s->stride[i], s->stride[j], (size_t)s->rank * sizeof s->stride[i][0]) == 0;
}

/* Whether two elements of an output of one value per row or column share memory. */
static eider_status check_alone(const struct eider_map_space *space,
                                const struct eider_layout_operand *operands, uint32_t n_operands,
                                const struct eider_graph *program, uint32_t i)
{
    struct eider_layout_operand alone[EIDER_OPERANDS_MAX] = {{0}};
    struct eider_map_space s = *space;
    int apart;
    s.rank = 0;
    for (int d = 0; d < space->rank; d++) {
        if (space->extent[d] == 1 || repeats(space, operands[i].extent, d)) continue;
        s.stride[i][s.rank] = space->stride[i][d];
        s.extent[s.rank++] = space->extent[d];
    }
    for (uint32_t k = 0; k < n_operands; k++) alone[k].kind = EIDER_SCALAR;
    alone[i] = operands[i];
    return eider_map_overlap_check(&s, alone, n_operands, program, &apart);
}

/* Outputs of one value per row against everything; they interleave with nothing. */
static eider_status check_row_output(const struct eider_map_space *s,
                                     const struct eider_layout_operand *operands,
                                     uint32_t n_operands, const struct eider_graph *program,
                                     uint32_t i, int *apart)
{
    char a[EIDER_MAP_NAME_BYTES], b[EIDER_MAP_NAME_BYTES];
    uintptr_t low, high, other_low, other_high;
    EIDER_TRY(check_alone(s, operands, n_operands, program, i));
    range_of(s, operands, i, &low, &high);
    for (uint32_t j = 0; j < n_operands; j++) {
        if (j == i || operands[j].kind == EIDER_SCALAR || !s->data[i] || !s->data[j]) continue;
        range_of(s, operands, j, &other_low, &other_high);
        if (high <= other_low || other_high <= low) continue;
        if (!is_same(s, operands, i, j))
            return eider_fail(EIDER_OVERLAP, "%s overlaps %s", eider_map_name(program, i, a),
                              eider_map_name(program, j, b));
        *apart = 0;
    }
    return EIDER_OK;
}

eider_status eider_row_overlap_check(const struct eider_map_space *space,
                                     const struct eider_layout_operand *operands,
                                     uint32_t n_operands, const struct eider_graph *program,
                                     int *apart)
{
    struct eider_layout_operand full[EIDER_OPERANDS_MAX] = {{0}};
    struct eider_map_space s = *space;
    s.rank = 0;
    for (int d = 0; d < space->rank; d++) {
        if (space->extent[d] == 1) continue;
        for (uint32_t i = 0; i < n_operands; i++) s.stride[i][s.rank] = space->stride[i][d];
        s.extent[s.rank++] = space->extent[d];
    }
    for (uint32_t i = 0; i < n_operands; i++) {
        full[i] = operands[i];
        int is_row_output = operands[i].kind == EIDER_OUTPUT && operands[i].extent != EIDER_FULL;
        if (is_row_output) full[i].kind = EIDER_SCALAR; /* looked at below */
    }
    EIDER_TRY(eider_map_overlap_check(&s, full, n_operands, program, apart));
    for (uint32_t i = 0; i < n_operands; i++)
        if (operands[i].kind == EIDER_OUTPUT && operands[i].extent != EIDER_FULL)
            EIDER_TRY(check_row_output(space, operands, n_operands, program, i, apart));
    return EIDER_OK;
}
