/* row_bind.c -- a call to the parameters of a launch.
 *
 * Invariant: allocates nothing, takes no lock, reads arguments only.
 */
#include "row.h"

#include <string.h>

#define GRID_MAX 0x7FFFFFFF /* blocks in x, of CUDA */

void eider_row_slots_of(const struct eider_layout *layout, int split, struct eider_row_slots *out)
{
    memset(out, 0xFF, sizeof *out);
    out->n = layout->n_operands;
    out->rows = (uint16_t)out->n++;
    out->cols = (uint16_t)out->n++;
    out->flags = (uint16_t)out->n++;
    out->in_flight = (uint16_t)out->n++;
    if (split > 1) {
        out->round = (uint16_t)out->n++;
        out->memory = (uint16_t)out->n++;
    }
    for (int d = 1; d < layout->rank - 1; d++) out->extent[d] = (uint16_t)out->n++;
    for (uint32_t i = 0; i < layout->n_operands; i++)
        for (int d = 0; d < layout->rank && layout->operands[i].kind != EIDER_SCALAR; d++)
            if (layout->operands[i].stride_class[d] == 2) out->stride[i][d] = (uint16_t)out->n++;
}

static eider_status put_operand(const struct eider_layout_operand *operand, uint32_t i,
                                const eider_tensor *arg, int is_empty, struct eider_bound *out)
{
    eider_bound_put(out, i, (uint64_t)(uintptr_t)arg->data);
    if (!arg->data && (operand->kind == EIDER_SCALAR || !is_empty))
        return eider_fail(EIDER_BAD_ARG, "operand %u has no data", (unsigned)i);
    if (operand->kind == EIDER_SCALAR)
        memcpy(&out->slots[i], arg->data, eider_dtype_size(operand->type));
    return EIDER_OK;
}

/* ---- Matching -------------------------------------------------------------- */

/* Whether the strides of the call's dimension `from` fit the kernel's dimension `to`. */
static int fits(const struct eider_layout *layout, const struct eider_map_space *s, int from,
                int to, uint32_t *misfit)
{
    for (uint32_t i = 0; i < layout->n_operands; i++) {
        const struct eider_layout_operand *operand = &layout->operands[i];
        int64_t stride = s->stride[i][from], size = (int64_t)eider_dtype_size(operand->type);
        int stride_class = operand->stride_class[to];
        *misfit = i;
        if (operand->kind == EIDER_SCALAR || stride_class == 2) continue;
        if (stride != (stride_class == 1 ? size : 0) && s->extent[from] > 1) return 0;
    }
    return 1;
}

/* Finds for every dimension of the kernel that numbers rows one of the call, innermost first; the
 * others have one row, from[to] = -1. */
static eider_status match(const struct eider_layout *layout, const struct eider_map_space *s,
                          int from[EIDER_RANK_MAX])
{
    uint32_t misfit = 0;
    int d = s->rank - 2, last = layout->rank - 1;
    from[last] = s->rank - 1;
    if (!fits(layout, s, s->rank - 1, last, &misfit))
        return eider_fail(EIDER_NOT_PREPARED,
                          "operand %u has a stride of %lld bytes along the row; the kernel was "
                          "prepared for another",
                          (unsigned)misfit, (long long)s->stride[misfit][s->rank - 1]);
    for (int to = last - 1; to >= 0; to--)
        from[to] = d >= 0 && fits(layout, s, d, to, &misfit) ? d-- : -1;
    if (d < 0) return EIDER_OK;
    return eider_fail(EIDER_NOT_PREPARED,
                      "the call's rows, numbered by %d dimensions, do not fit "
                      "the kernel's %d",
                      s->rank - 1, (int)layout->rank - 1);
}

static unsigned flags_of(const struct eider_layout *layout, const struct eider_row_config *c,
                         const struct eider_map_space *s, int apart)
{
    unsigned flags = apart ? EIDER_ROW_APART | EIDER_ROW_ALIGNED : EIDER_ROW_ALIGNED;
    int last = layout->rank - 1;
    if (eider_row_shifts(layout, c->vec) && eider_row_alike(layout, c->vec, s))
        flags |= EIDER_ROW_ALIKE;
    if (s->extent[s->rank - 1] % c->vec == 0) flags |= EIDER_ROW_EVEN;
    for (uint32_t i = 0; i < layout->n_operands; i++) {
        const struct eider_layout_operand *operand = &layout->operands[i];
        if (operand->kind == EIDER_SCALAR || operand->stride_class[last] != 1) continue;
        int64_t access = c->vec * (int64_t)eider_dtype_size(operand->type);
        int64_t all = (int64_t)s->data[i];
        for (int d = 0; d < s->rank - 1; d++) all |= s->stride[i][d];
        if (access > EIDER_MAP_ACCESS_BYTES) access = EIDER_MAP_ACCESS_BYTES;
        if (all & (access - 1)) flags &= ~EIDER_ROW_ALIGNED;
    }
    return flags;
}

/* Whether some output has an element. */
static int has_outputs(const struct eider_layout *layout, int64_t cols)
{
    for (uint32_t i = 0; i < layout->n_operands; i++)
        if (layout->operands[i].kind == EIDER_OUTPUT &&
            (cols > 0 || layout->operands[i].extent == EIDER_PER_ROW))
            return 1;
    return 0;
}

static eider_status put_geometry(const struct eider_layout *layout,
                                 const struct eider_row_config *c, const struct eider_map_space *s,
                                 const struct eider_row_slots *slots, int apart, int by_column,
                                 struct eider_bound *out)
{
    int64_t cols = s->extent[s->rank - 1];
    int64_t per_block = by_column ? (int64_t)c->row * c->vec : c->block / c->row;
    int64_t blocks = ((by_column ? cols : s->count) - 1) / per_block + 1;
    if (__builtin_mul_overflow(blocks, c->cluster * c->split, &blocks)) blocks = INT64_MAX;
    if (blocks > GRID_MAX)
        return eider_fail(EIDER_TOO_LARGE,
                          "%lld rows of %lld elements need %lld blocks, at most %d are possible",
                          (long long)s->count, (long long)cols, (long long)blocks, GRID_MAX);
    out->grid = (uint64_t)blocks;
    out->per_unit = (uint32_t)c->resident;
    out->granule = (uint32_t)c->cluster;
    out->in_flight = slots->in_flight;
    eider_bound_put(out, slots->in_flight, (uint64_t)(blocks / c->cluster));
    if (c->split > 1) {
        out->units = (uint64_t)(by_column ? blocks / c->split * per_block : s->count);
        out->round = slots->round;
        out->memory = slots->memory;
        eider_bound_put(out, slots->round, 0);
        eider_bound_put(out, slots->memory, 0);
    }
    eider_bound_put(out, slots->rows, (uint64_t)s->count);
    eider_bound_put(out, slots->cols, (uint64_t)s->extent[s->rank - 1]);
    eider_bound_put(out, slots->flags, flags_of(layout, c, s, apart));
    return EIDER_OK;
}

static eider_status bind(const struct eider_layout *layout, const struct eider_config *config,
                         const eider_tensor *args, int by_column, struct eider_bound *out)
{
    struct eider_row_config c = eider_row_config_of(config);
    struct eider_map_space s;
    struct eider_row_slots slots;
    int from[EIDER_RANK_MAX], apart = 1;
    uint32_t n = layout->n_operands;
    EIDER_TRY(eider_row_space_of(layout->operands, n, NULL, args, &s));
    eider_row_slots_of(layout, c.split, &slots);
    int64_t cols = s.extent[s.rank - 1];
    out->n_params = slots.n;
    out->block = (uint32_t)c.block;
    out->grid = 0;
    /* Sums of no rows are 0, and there to be written. */
    if ((s.count == 0 && !by_column) || !has_outputs(layout, cols)) return EIDER_OK;
    if (layout->length && layout->length != cols)
        return eider_fail(EIDER_NOT_PREPARED,
                          "rows of %lld elements; the kernel was prepared for %lld",
                          (long long)cols, (long long)layout->length);
    EIDER_TRY(match(layout, &s, from));
    if (cols && s.count) EIDER_TRY(eider_row_overlap_check(&s, layout->operands, n, NULL, &apart));
    if (layout->gathers && !apart)
        return eider_fail(EIDER_OVERLAP,
                          "an output is an input of which the program picks elements "
                          "anywhere in the row");
    for (uint32_t i = 0; i < n; i++)
        EIDER_TRY(put_operand(&layout->operands[i], i, &args[i], cols == 0 || s.count == 0, out));
    EIDER_TRY(put_geometry(layout, &c, &s, &slots, apart, by_column, out));
    for (int d = 1; d < layout->rank - 1; d++)
        eider_bound_put(out, slots.extent[d], from[d] < 0 ? 1 : (uint64_t)s.extent[from[d]]);
    for (uint32_t i = 0; i < n; i++)
        for (int d = 0; d < layout->rank; d++)
            if (slots.stride[i][d] != EIDER_MAP_NO_SLOT)
                eider_bound_put(out, slots.stride[i][d],
                                from[d] < 0 ? 0 : (uint64_t)s.stride[i][from[d]]);
    return EIDER_OK;
}

eider_status eider_row_bind(const struct eider_layout *layout, const struct eider_config *config,
                            const eider_tensor *args, struct eider_bound *out)
{
    return bind(layout, config, args, 0, out);
}

eider_status eider_column_bind(const struct eider_layout *layout, const struct eider_config *config,
                               const eider_tensor *args, struct eider_bound *out)
{
    return bind(layout, config, args, 1, out);
}
