/* map_overlap.c -- which operands of a launch may share memory.
 *
 * Invariant: never accepts a call in which two threads touch the same byte and one of them
 * writes it.  It may refuse a call whose views interleave in a way it does not understand.
 * An input that is exactly an output is accepted: each element is read and then written by
 * one thread.
 */
#include "map.h"

/* The bytes [low, high) that an operand touches, gaps included. */
struct range {
    uintptr_t low, high;
};

static int64_t size_of(const struct eider_layout_operand *operand)
{
    return (int64_t)eider_dtype_size(operand->type);
}

static int64_t magnitude(int64_t v)
{
    return v < 0 ? -v : v;
}

static struct range range_of(const struct eider_map_space *s,
                             const struct eider_layout_operand *operands, uint32_t i)
{
    struct range r = {s->data[i], s->data[i] + (uintptr_t)size_of(&operands[i])};
    for (int d = 0; d < s->rank; d++) {
        int64_t reach = s->stride[i][d] * (s->extent[d] - 1);
        if (reach < 0)
            r.low += (uintptr_t)reach;
        else
            r.high += (uintptr_t)reach;
    }
    return r;
}

/* No two elements share a byte if, from the smallest stride up, each one steps over all
 * that the smaller ones reach. */
static int overlaps_itself(const struct eider_map_space *s,
                           const struct eider_layout_operand *operands, uint32_t i)
{
    int order[EIDER_RANK_MAX];
    const int64_t *stride = s->stride[i];
    int64_t reach = size_of(&operands[i]);
    for (int d = 0; d < s->rank; d++) {
        int at = d;
        for (; at > 0 && magnitude(stride[order[at - 1]]) > magnitude(stride[d]); at--)
            order[at] = order[at - 1];
        order[at] = d;
    }
    for (int k = 0; k < s->rank; k++) {
        int d = order[k];
        if (magnitude(stride[d]) < reach) return 1;
        reach += magnitude(stride[d]) * (s->extent[d] - 1);
    }
    return 0;
}

static int is_same(const struct eider_map_space *s, const struct eider_layout_operand *operands,
                   uint32_t i, uint32_t j)
{
    if (s->data[i] != s->data[j] || size_of(&operands[i]) != size_of(&operands[j])) return 0;
    for (int d = 0; d < s->rank; d++)
        if (s->stride[i][d] != s->stride[j][d]) return 0;
    return 1;
}

/* Bytes that operand `i` touches from its lowest address on, within one period of `p`. */
static int64_t span_in(const struct eider_map_space *s, const struct eider_layout_operand *operands,
                       uint32_t i, int64_t p)
{
    int64_t span = size_of(&operands[i]);
    for (int d = 0; d < s->rank; d++)
        if (s->stride[i][d] % p) span += magnitude(s->stride[i][d]) * (s->extent[d] - 1);
    return span;
}

/* Two views interleave without touching when, for some period that is a stride of either,
 * each stays in its own part of every period: even and odd columns, halves of rows. */
static int interleave(const struct eider_map_space *s, const struct eider_layout_operand *operands,
                      uint32_t i, uint32_t j)
{
    uintptr_t low_i = range_of(s, operands, i).low, low_j = range_of(s, operands, j).low;
    uint32_t first = low_i <= low_j ? i : j, second = first == i ? j : i;
    uintptr_t distance = low_i <= low_j ? low_j - low_i : low_i - low_j;
    for (int k = 0; k < 2 * s->rank; k++) {
        int64_t p = magnitude(s->stride[k % 2 ? i : j][k / 2]);
        if (p == 0) continue;
        int64_t at = (int64_t)(distance % (uintptr_t)p);
        if (at >= span_in(s, operands, first, p) && at + span_in(s, operands, second, p) <= p)
            return 1;
    }
    return 0;
}

static eider_status check_pair(const struct eider_map_space *s,
                               const struct eider_layout_operand *operands, uint32_t out,
                               uint32_t other, const struct eider_graph *program, int *apart)
{
    char a[EIDER_MAP_NAME_BYTES], b[EIDER_MAP_NAME_BYTES];
    struct range x = range_of(s, operands, out), y = range_of(s, operands, other);
    if (!s->data[out] || !s->data[other]) return EIDER_OK;
    if (x.high <= y.low || y.high <= x.low) return EIDER_OK;
    int is_input = operands[other].kind == EIDER_INPUT;
    if (is_input && is_same(s, operands, out, other)) {
        *apart = 0;
        return EIDER_OK;
    }
    if (interleave(s, operands, out, other)) return EIDER_OK;
    return eider_fail(EIDER_OVERLAP, "%s overlaps %s; %s", eider_map_name(program, out, a),
                      eider_map_name(program, other, b),
                      is_input ? "only the same memory with the same strides is allowed"
                               : "outputs must be apart");
}

eider_status eider_map_overlap_check(const struct eider_map_space *space,
                                     const struct eider_layout_operand *operands,
                                     uint32_t n_operands, const struct eider_graph *program,
                                     int *apart)
{
    char name[EIDER_MAP_NAME_BYTES];
    *apart = 1;
    for (uint32_t i = 0; i < n_operands; i++) {
        if (operands[i].kind != EIDER_OUTPUT) continue;
        if (overlaps_itself(space, operands, i))
            return eider_fail(EIDER_OVERLAP,
                              "%s overlaps itself: two of its elements share "
                              "memory",
                              eider_map_name(program, i, name));
        for (uint32_t j = 0; j < n_operands; j++) {
            int again = operands[j].kind == EIDER_OUTPUT && j <= i;
            if (operands[j].kind == EIDER_SCALAR || again) continue;
            EIDER_TRY(check_pair(space, operands, i, j, program, apart));
        }
    }
    return EIDER_OK;
}
