/* row_traits.c -- see row_traits.h. */
#include "row_traits.h"

#define LENGTH_ASSUMED 4096 /* elements, where it is not known */
#define HEAVY_WORK 7        /* operations of an element */

struct eider_row_traits eider_row_traits_of(const struct eider_layout *layout)
{
    struct eider_row_traits t = {.widest = 1,
                                 .align = EIDER_MAP_ACCESS_BYTES,
                                 .heavy = layout->work >= HEAVY_WORK,
                                 .once = layout->once};
    for (uint32_t i = 0; i < layout->n_operands; i++) {
        const struct eider_layout_operand *operand = &layout->operands[i];
        int size = (int)eider_dtype_size(operand->type), align = (int)operand->align / size;
        int inner = operand->stride_class[layout->rank - 1], is_shared = 1;
        if (operand->kind == EIDER_SCALAR || inner == 0) continue;
        for (int d = 0; d < layout->rank - 1; d++) is_shared &= operand->stride_class[d] == 0;
        t.n_inputs += operand->kind == EIDER_INPUT && !is_shared;
        t.columns += operand->kind == EIDER_INPUT && is_shared;
        t.stores |= operand->kind == EIDER_OUTPUT;
        if (inner == 2) t.align = 1;
        if (size > t.widest) t.widest = size;
        if (operand->align < EIDER_MAP_ACCESS_BYTES && align < t.align) t.align = align;
    }
    if (t.n_inputs == 0) t.n_inputs = 1;
    t.width = t.widest <= 2 ? NARROW : WIDE;
    t.kind = t.once ? (t.stores ? MAP : ONCE) : (t.n_inputs > 1 ? MANY : ONE);
    t.class = t.columns > 1 ? COLUMNS : t.columns ? COLUMN : t.heavy ? HEAVY : PLAIN;
    return t;
}

int eider_row_rule_vec(const struct eider_row_traits *t, int access)
{
    if (!access) access = EIDER_MAP_ACCESS_BYTES;
    return access > t->widest ? access / t->widest : 1;
}

int eider_row_has_edges(const struct eider_layout *layout, int vec)
{
    return eider_row_shifts(layout, vec) || layout->length % vec;
}

int eider_row_vectors_fit(const struct eider_layout *layout, int vec, int align)
{
    return eider_row_shifts(layout, vec) ? layout->alike : align >= vec;
}

int64_t eider_row_vectors_of(const struct eider_layout *layout, int vec)
{
    return layout->length ? eider_row_cut(layout, vec) : LENGTH_ASSUMED / vec;
}

int eider_row_kept(int64_t n)
{
    static const int allowed[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32};
    size_t i = 0;
    while (i + 1 < sizeof allowed / sizeof *allowed && allowed[i] < n) i++;
    return allowed[i];
}

int eider_row_fitting(const struct eider_row_traits *t, struct eider_target target, int row,
                      int64_t wanted)
{
    int n = eider_row_kept(wanted);
    int64_t each = (int64_t)row * t->n_inputs * EIDER_MAP_ACCESS_BYTES;
    int64_t most = (eider_row_shared_limit(target) - EIDER_ROW_SHARED_FOR_REDUCTIONS) / each;
    while (n > most) n = eider_row_kept(n / 2);
    return n;
}
