/* row_shift.c -- where the vectors of a row begin.
 *
 * Invariant: a vector that lies in the row is aligned, in every operand that differs between rows,
 * to the size of the accesses it is loaded with.  Nothing here needs LLVM.
 */
#include "row.h"

int eider_row_access(const struct eider_layout *layout, uint32_t i, int vec)
{
    int most = EIDER_MAP_ACCESS_BYTES / (int)eider_dtype_size(layout->operands[i].type);
    return vec < most ? vec : most;
}

int eider_row_shares(const struct eider_layout *layout, uint32_t i)
{
    for (int d = 0; d < layout->rank - 1; d++)
        if (layout->operands[i].stride_class[d]) return 0;
    return 1;
}

/* Whether vectors of operand `i` have to begin where they are aligned. */
static int has_shift(const struct eider_layout *layout, uint32_t i)
{
    return layout->operands[i].kind != EIDER_SCALAR && !eider_row_shares(layout, i) &&
           layout->operands[i].stride_class[layout->rank - 1] == 1;
}

int eider_row_leader(const struct eider_layout *layout, int vec)
{
    int leader = -1, most = 0;
    for (uint32_t i = 0; i < layout->n_operands; i++) {
        if (!has_shift(layout, i) || eider_row_access(layout, i, vec) <= most) continue;
        leader = (int)i;
        most = eider_row_access(layout, i, vec);
    }
    return leader;
}

/* The low bits that two addresses of operands, or two strides, differ in, in elements. */
static uint64_t differ(const struct eider_layout *layout, uint32_t i, uint64_t a, uint32_t j,
                       uint64_t b)
{
    int by_i = __builtin_ctz((unsigned)eider_dtype_size(layout->operands[i].type));
    int by_j = __builtin_ctz((unsigned)eider_dtype_size(layout->operands[j].type));
    return a >> by_i ^ b >> by_j;
}

int eider_row_alike(const struct eider_layout *layout, int vec, const struct eider_map_space *space)
{
    int leader = eider_row_leader(layout, vec);
    uint32_t k = (uint32_t)leader;
    for (uint32_t i = 0; i < layout->n_operands && leader >= 0; i++) {
        if (!has_shift(layout, i)) continue;
        uint64_t bits = differ(layout, i, space->data[i], k, space->data[k]);
        for (int d = 0; d < space->rank - 1; d++)
            bits |=
                differ(layout, i, (uint64_t)space->stride[i][d], k, (uint64_t)space->stride[k][d]);
        if (bits & (uint64_t)(eider_row_access(layout, i, vec) - 1)) return 0;
    }
    return 1;
}

/* A single row may be one of many, side by side, at another launch. */
static int64_t pitch(const struct eider_map_space *s, uint32_t i, int d, int64_t row_bytes)
{
    return s->extent[d] > 1 ? s->stride[i][d] : row_bytes;
}

void eider_row_shift_of(const struct eider_map_space *space, struct eider_layout *layout)
{
    const struct eider_map_space *s = space;
    layout->aligned = EIDER_VECTOR_MAX;
    for (uint32_t i = 0; i < layout->n_operands; i++) {
        if (!has_shift(layout, i)) continue;
        int64_t size = (int64_t)eider_dtype_size(layout->operands[i].type);
        int64_t all = (int64_t)s->data[i];
        for (int d = 0; d < s->rank - 1; d++) all |= pitch(s, i, d, s->extent[s->rank - 1] * size);
        int64_t align = all & -all;
        if (all && align < EIDER_MAP_ACCESS_BYTES && align / size < layout->aligned)
            layout->aligned = (int32_t)(align / size);
    }
    layout->alike = eider_row_alike(layout, EIDER_VECTOR_MAX, s);
}

int eider_row_shifts(const struct eider_layout *layout, int vec)
{
    return vec > layout->aligned && layout->length >= 2 * (int64_t)vec - 1;
}

int64_t eider_row_reach(const struct eider_layout *layout, int vec)
{
    if (!eider_row_shifts(layout, vec)) return layout->length;
    uint32_t leader = (uint32_t)eider_row_leader(layout, vec);
    return layout->length + eider_row_access(layout, leader, vec) - 1;
}

int64_t eider_row_cut(const struct eider_layout *layout, int vec)
{
    return (eider_row_reach(layout, vec) + vec - 1) / vec;
}
