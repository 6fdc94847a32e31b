/* map_space.c -- shapes and strides of a call to one normalised iteration space.
 *
 * Invariant: the space visits the same elements of every operand as the call does, each
 * once; only their order may differ, which no elementwise program can see.
 */
#include "map.h"

#include <stdio.h>
#include <string.h>

const char *eider_map_name(const struct eider_graph *program, uint32_t i, char *buffer)
{
    static const char *const kinds[] = {"input", "scalar", "output"};
    if (program)
        snprintf(buffer, EIDER_MAP_NAME_BYTES, "%s '%s'", kinds[program->operands[i].kind],
                 program->operands[i].name);
    else
        snprintf(buffer, EIDER_MAP_NAME_BYTES, "operand %u", (unsigned)i);
    return buffer;
}

eider_status eider_map_check_operand(const struct eider_layout_operand *operand,
                                     const struct eider_graph *program, uint32_t i,
                                     const eider_tensor *arg)
{
    char name[EIDER_MAP_NAME_BYTES];
    size_t size = eider_dtype_size(arg->type);
    if (arg->type != operand->type)
        return eider_fail(EIDER_NOT_PREPARED, "%s is %s; the kernel was prepared for %s",
                          eider_map_name(program, i, name),
                          size ? eider_dtype_name(arg->type) : "of no known type",
                          eider_dtype_name(operand->type));
    if (arg->rank < 0 || arg->rank > EIDER_RANK_MAX)
        return eider_fail(EIDER_SHAPE, "%s has rank %d, at most %d is supported",
                          eider_map_name(program, i, name), (int)arg->rank, EIDER_RANK_MAX);
    if (operand->kind == EIDER_SCALAR && arg->rank != 0)
        return eider_fail(EIDER_SHAPE, "%s is a scalar parameter, its rank must be 0, not %d",
                          eider_map_name(program, i, name), (int)arg->rank);
    if (arg->rank > 0 && !arg->shape)
        return eider_fail(EIDER_BAD_ARG, "%s has rank %d and no shape",
                          eider_map_name(program, i, name), (int)arg->rank);
    if ((uintptr_t)arg->data & (size - 1) && operand->kind != EIDER_SCALAR)
        return eider_fail(EIDER_BAD_ARG,
                          "%s is at %p, which is not a multiple of its %u-byte "
                          "elements",
                          eider_map_name(program, i, name), arg->data, (unsigned)size);
    return EIDER_OK;
}

/* Broadcasts one operand's shape into the space. */
static eider_status meet_shape(struct eider_map_space *s, const struct eider_graph *program,
                               uint32_t i, const eider_tensor *arg)
{
    char name[EIDER_MAP_NAME_BYTES];
    for (int d = 0; d < arg->rank; d++) {
        int at = s->rank - arg->rank + d;
        int64_t extent = arg->shape[d];
        if (extent < 0)
            return eider_fail(EIDER_SHAPE, "%s has extent %lld in dimension %d",
                              eider_map_name(program, i, name), (long long)extent, d);
        if (s->extent[at] == 1)
            s->extent[at] = extent;
        else if (extent != 1 && extent != s->extent[at])
            return eider_fail(
                EIDER_SHAPE, "%s has extent %lld in dimension %d, where others have %lld",
                eider_map_name(program, i, name), (long long)extent, d, (long long)s->extent[at]);
    }
    return EIDER_OK;
}

static eider_status check_output_shape(const struct eider_map_space *s,
                                       const struct eider_graph *program, uint32_t i,
                                       const eider_tensor *arg)
{
    char name[EIDER_MAP_NAME_BYTES];
    if (arg->rank != s->rank)
        return eider_fail(EIDER_SHAPE, "%s has rank %d, the inputs broadcast to rank %d",
                          eider_map_name(program, i, name), (int)arg->rank, s->rank);
    for (int d = 0; d < s->rank; d++)
        if (arg->shape[d] != s->extent[d])
            return eider_fail(EIDER_SHAPE,
                              "%s has extent %lld in dimension %d, the operands broadcast to %lld",
                              eider_map_name(program, i, name), (long long)arg->shape[d], d,
                              (long long)s->extent[d]);
    return EIDER_OK;
}

/* Byte strides of operand `i` in the space; 0 where it repeats.  The sum of all distances
 * is kept below 2^62, so that no later sum overflows. */
static eider_status place_strides(struct eider_map_space *s, const struct eider_graph *program,
                                  uint32_t i, const eider_tensor *arg)
{
    char name[EIDER_MAP_NAME_BYTES];
    int64_t size = (int64_t)eider_dtype_size(arg->type), contiguous = size, total = 0;
    for (int d = arg->rank - 1; d >= 0; d--) {
        int at = s->rank - arg->rank + d;
        int64_t extent = arg->shape[d], stride = contiguous, reach;
        int bad = arg->strides && __builtin_mul_overflow(arg->strides[d], size, &stride);
        if (extent < 2) stride = 0;
        bad = bad || stride == INT64_MIN ||
              __builtin_mul_overflow(stride < 0 ? -stride : stride, extent, &reach) ||
              __builtin_add_overflow(total, reach, &total) || total > INT64_MAX / 4 ||
              __builtin_mul_overflow(contiguous, extent ? extent : 1, &contiguous);
        if (bad)
            return eider_fail(EIDER_TOO_LARGE, "%s reaches beyond the 64-bit address space",
                              eider_map_name(program, i, name));
        s->stride[i][at] = stride;
    }
    return EIDER_OK;
}

/* Drops dimensions of one element; walks backwards where the first output does. */
static void tidy_dimensions(struct eider_map_space *s, uint32_t n, uint32_t first_output)
{
    int rank = 0;
    for (int d = 0; d < s->rank; d++) {
        if (s->extent[d] == 1) continue;
        int flip = s->stride[first_output][d] < 0;
        for (uint32_t i = 0; i < n; i++) {
            int64_t stride = s->stride[i][d];
            if (flip) {
                s->data[i] += (uintptr_t)(stride * (s->extent[d] - 1));
                stride = -stride;
            }
            s->stride[i][rank] = stride;
        }
        s->extent[rank++] = s->extent[d];
    }
    s->rank = rank;
}

static void swap_dimensions(struct eider_map_space *s, uint32_t n, int a, int b)
{
    int64_t extent = s->extent[a];
    s->extent[a] = s->extent[b];
    s->extent[b] = extent;
    for (uint32_t i = 0; i < n; i++) {
        int64_t stride = s->stride[i][a];
        s->stride[i][a] = s->stride[i][b];
        s->stride[i][b] = stride;
    }
}

/* Orders dimensions so that the first output's strides descend: a transposed but dense
 * output, with inputs like it, becomes one line. */
static void sort_dimensions(struct eider_map_space *s, uint32_t n, uint32_t first_output)
{
    const int64_t *key = s->stride[first_output];
    for (int d = 1; d < s->rank; d++)
        for (int at = d; at > 0 && key[at - 1] < key[at]; at--) swap_dimensions(s, n, at - 1, at);
}

static int can_join(const struct eider_map_space *s, uint32_t n, int outer, int inner)
{
    for (uint32_t i = 0; i < n; i++)
        if (s->stride[i][outer] != s->stride[i][inner] * s->extent[inner]) return 0;
    return 1;
}

static void join_dimensions(struct eider_map_space *s, uint32_t n)
{
    int last = 0; /* dimensions [0, last] are done */
    for (int d = 1; d < s->rank; d++) {
        int join = can_join(s, n, last, d);
        if (!join) last++;
        s->extent[last] = join ? s->extent[last] * s->extent[d] : s->extent[d];
        for (uint32_t i = 0; i < n; i++) s->stride[i][last] = s->stride[i][d];
    }
    if (s->rank > 1) s->rank = last + 1;
}

static eider_status count_elements(struct eider_map_space *s)
{
    s->count = 1;
    for (int d = 0; d < s->rank; d++)
        if (s->extent[d] == 0) s->count = 0;
    for (int d = 0; d < s->rank && s->count; d++)
        if (__builtin_mul_overflow(s->count, s->extent[d], &s->count) || s->count > INT64_MAX / 16)
            return eider_fail(EIDER_TOO_LARGE, "the operands broadcast to more than 2^59 elements");
    return EIDER_OK;
}

eider_status eider_map_space_of(const struct eider_layout_operand *operands, uint32_t n_operands,
                                const struct eider_graph *program, const eider_tensor *args,
                                struct eider_map_space *out)
{
    struct eider_map_space *s = out;
    uint32_t first_output = n_operands;
    s->rank = 0;
    for (uint32_t i = 0; i < n_operands; i++) {
        EIDER_TRY(eider_map_check_operand(&operands[i], program, i, &args[i]));
        if (args[i].rank > s->rank) s->rank = args[i].rank;
    }
    for (int d = 0; d < s->rank; d++) s->extent[d] = 1;
    for (uint32_t i = 0; i < n_operands; i++)
        if (operands[i].kind != EIDER_SCALAR) EIDER_TRY(meet_shape(s, program, i, &args[i]));
    EIDER_TRY(count_elements(s));
    for (uint32_t i = 0; i < n_operands; i++) {
        s->data[i] = (uintptr_t)args[i].data;
        memset(s->stride[i], 0, sizeof s->stride[i]);
        if (operands[i].kind == EIDER_OUTPUT) {
            EIDER_TRY(check_output_shape(s, program, i, &args[i]));
            if (first_output == n_operands) first_output = i;
        }
        if (operands[i].kind != EIDER_SCALAR) EIDER_TRY(place_strides(s, program, i, &args[i]));
    }
    for (int d = 0; d < s->rank; d++)
        if (s->extent[d] == 0) s->extent[d] = 1;
    tidy_dimensions(s, n_operands, first_output);
    sort_dimensions(s, n_operands, first_output);
    join_dimensions(s, n_operands);
    return EIDER_OK;
}

int eider_map_fits_32(const struct eider_map_space *space,
                      const struct eider_layout_operand *operands, uint32_t n_operands)
{
    if (space->count > INT32_MAX) return 0;
    for (uint32_t i = 0; i < n_operands; i++) {
        int64_t up = (int64_t)eider_dtype_size(operands[i].type), down = 0;
        for (int d = 0; d < space->rank; d++) {
            int64_t reach = space->stride[i][d] * (space->extent[d] - 1);
            if (reach < 0)
                down -= reach;
            else
                up += reach;
        }
        if (up > INT32_MAX || down > INT32_MAX) return 0;
    }
    return 1;
}

uint64_t eider_map_space_bytes(const struct eider_layout *layout,
                               const struct eider_map_space *space)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < layout->n_operands && space->count; i++) {
        uint64_t bytes = eider_dtype_size(layout->operands[i].type);
        if (layout->operands[i].kind == EIDER_SCALAR) continue;
        for (int d = 0; d < space->rank; d++)
            if (space->stride[i][d]) bytes *= (uint64_t)space->extent[d];
        total += bytes;
    }
    return total;
}
