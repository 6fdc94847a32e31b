/* map_bind.c -- a call to the parameters of a launch.
 *
 * Invariant: allocates nothing, takes no lock, reads arguments only.  A call of contiguous
 * tensors of one shape, by far the most common, takes a short way; every other call is
 * normalised as eider_prepare did and compared with the layout of the kernel.
 */
#include "map.h"

#include <string.h>

#define GRID_MAX 0x7FFFFFFF /* blocks in x, of CUDA */

void eider_map_slots_of(const struct eider_layout *layout, int index_bits,
                        struct eider_map_slots *out)
{
    memset(out, 0xFF, sizeof *out);
    out->n = layout->n_operands;
    out->count = (uint16_t)out->n++;
    out->flags = (uint16_t)out->n++;
    for (int d = 1; d < layout->rank; d++) {
        out->extent[d] = (uint16_t)out->n++;
        if (index_bits == 64) continue;
        out->magic[d] = (uint16_t)out->n++;
        out->shift[d] = (uint16_t)out->n++;
    }
    for (uint32_t i = 0; i < layout->n_operands; i++)
        for (int d = 0; d < layout->rank && layout->operands[i].kind != EIDER_SCALAR; d++)
            if (layout->operands[i].stride_class[d] == 2) out->stride[i][d] = (uint16_t)out->n++;
}

/* Blocks and everything that does not depend on strides. */
static eider_status put_geometry(const struct eider_map_config *c, uint32_t n_operands,
                                 int64_t count, unsigned flags, struct eider_bound *out)
{
    int64_t per_block = eider_map_tile(c) * c->tiles;
    int64_t blocks = (count - 1) / per_block + 1;
    if (blocks > GRID_MAX)
        return eider_fail(EIDER_TOO_LARGE,
                          "%lld elements need %lld blocks of %lld, at most %d are possible",
                          (long long)count, (long long)blocks, (long long)per_block, GRID_MAX);
    out->grid = (uint64_t)blocks;
    out->block = (uint32_t)c->block;
    eider_bound_put(out, n_operands, (uint64_t)count);
    eider_bound_put(out, n_operands + 1, flags);
    return EIDER_OK;
}

static eider_status put_operand(const struct eider_layout_operand *operand, uint32_t i,
                                const eider_tensor *arg, uintptr_t data, struct eider_bound *out)
{
    if (!arg->data) return eider_fail(EIDER_BAD_ARG, "operand %u has no data", (unsigned)i);
    if (operand->kind == EIDER_SCALAR) {
        eider_bound_put(out, i, 0);
        memcpy(&out->slots[i], arg->data, eider_dtype_size(operand->type));
    } else {
        eider_bound_put(out, i, data);
    }
    return EIDER_OK;
}

static int access_bytes(const struct eider_map_config *c, eider_dtype type)
{
    int bytes = c->vec * (int)eider_dtype_size(type);
    return bytes < EIDER_MAP_ACCESS_BYTES ? bytes : EIDER_MAP_ACCESS_BYTES;
}

/* ---- The short way ------------------------------------------------------- */

/* Elements of a row-major contiguous tensor, or -1. */
static int64_t contiguous_count(const eider_tensor *arg)
{
    int64_t count = 1;
    if (arg->rank < 0 || arg->rank > EIDER_RANK_MAX || (arg->rank && !arg->shape)) return -1;
    for (int d = arg->rank - 1; d >= 0; d--) {
        int64_t extent = arg->shape[d];
        if (extent < 0 || (arg->strides && arg->strides[d] != count && extent != 1)) return -1;
        if (__builtin_mul_overflow(count, extent, &count)) return -1;
    }
    return count;
}

static int same_shape(const eider_tensor *a, const eider_tensor *b)
{
    if (a->rank != b->rank) return 0;
    for (int d = 0; d < a->rank; d++)
        if (a->shape[d] != b->shape[d]) return 0;
    return 1;
}

/* Whether [a, a + bytes) of two dense operands are apart, or, for an input, the same. */
static int may_share(const struct eider_layout *layout, const eider_tensor *args, uint32_t out,
                     uint32_t other, uint64_t count, unsigned *flags)
{
    uintptr_t a = (uintptr_t)args[out].data, b = (uintptr_t)args[other].data;
    size_t size_a = eider_dtype_size(layout->operands[out].type);
    size_t size_b = eider_dtype_size(layout->operands[other].type);
    if (a + count * size_a <= b || b + count * size_b <= a) return 1;
    *flags &= ~EIDER_MAP_APART;
    return a == b && size_a == size_b && layout->operands[other].kind == EIDER_INPUT;
}

/* Binds contiguous operands of one shape.  Returns 0, without recording a failure, where
 * that is not what the call is or anything is wrong with it. */
static int bind_contiguous(const struct eider_layout *layout, const struct eider_map_config *c,
                           const eider_tensor *args, struct eider_bound *out)
{
    uint32_t n = layout->n_operands, first = n - 1; /* outputs come last */
    unsigned flags = EIDER_MAP_EVEN | EIDER_MAP_ALIGNED | EIDER_MAP_APART | EIDER_MAP_STREAM;
    if (layout->rank != 1) return 0;
    int64_t count = contiguous_count(&args[first]);
    if (count <= 0 || count > INT64_MAX / 64) return 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct eider_layout_operand *operand = &layout->operands[i];
        if (args[i].type != operand->type || !args[i].data) return 0;
        if (operand->kind == EIDER_SCALAR) {
            if (args[i].rank != 0) return 0;
            eider_bound_put(out, i, 0);
            memcpy(&out->slots[i], args[i].data, eider_dtype_size(operand->type));
            continue;
        }
        int64_t size = (int64_t)eider_dtype_size(operand->type);
        uintptr_t data = (uintptr_t)args[i].data;
        if (operand->stride_class[0] != 1 || !same_shape(&args[i], &args[first])) return 0;
        if (contiguous_count(&args[i]) != count || data & (uintptr_t)(size - 1)) return 0;
        if (c->index_bits == 32 && count * size > INT32_MAX) return 0;
        if (data & (uintptr_t)(access_bytes(c, operand->type) - 1)) flags &= ~EIDER_MAP_ALIGNED;
        if (operand->kind == EIDER_OUTPUT && data & (EIDER_STREAM_ALIGN - 1))
            flags &= ~EIDER_MAP_STREAM;
        eider_bound_put(out, i, data);
    }
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < n && layout->operands[i].kind == EIDER_OUTPUT; j++) {
            int again = layout->operands[j].kind == EIDER_OUTPUT && j <= i;
            if (layout->operands[j].kind == EIDER_SCALAR || again) continue;
            if (!may_share(layout, args, i, j, (uint64_t)count, &flags)) return 0;
        }
    out->n_params = n + 2;
    return put_geometry(c, n, count, flags, out) == EIDER_OK;
}

/* ---- Every other call ---------------------------------------------------- */

static int fits_class(int stride_class, int64_t stride, int64_t size)
{
    return stride_class == 2 || (stride_class == 1 ? stride == size : stride == 0);
}

/* The first operand whose stride in dimension `from` of the call does not fit dimension
 * `to` of the kernel, or n_operands. */
static uint32_t misfit(const struct eider_layout *layout, const struct eider_map_space *s, int from,
                       int to)
{
    for (uint32_t i = 0; i < layout->n_operands; i++) {
        const struct eider_layout_operand *operand = &layout->operands[i];
        int64_t size = (int64_t)eider_dtype_size(operand->type);
        if (operand->kind != EIDER_SCALAR &&
            !fits_class(operand->stride_class[to], s->stride[i][from], size))
            return i;
    }
    return layout->n_operands;
}

/* Finds for every dimension of the call one of the kernel, innermost first and in order;
 * the kernel's other dimensions have one element.  from[to] is -1 for those. */
static eider_status match_dimensions(const struct eider_layout *layout,
                                     const struct eider_map_space *s, int from[EIDER_RANK_MAX])
{
    static const char *const expected[] = {"repeats", "has unit stride", "has any stride"};
    int d = s->rank - 1;
    for (int to = layout->rank - 1; to >= 0; to--) {
        int fits = d >= 0 && misfit(layout, s, d, to) == layout->n_operands;
        from[to] = fits ? d-- : -1;
    }
    if (d < 0) return EIDER_OK;
    int to = layout->rank - s->rank + d;
    if (to < 0)
        return eider_fail(EIDER_NOT_PREPARED,
                          "the call has %d dimensions after joining contiguous ones, the kernel "
                          "was prepared for %d",
                          s->rank, (int)layout->rank);
    uint32_t i = misfit(layout, s, d, to);
    if (i == layout->n_operands)
        return eider_fail(EIDER_NOT_PREPARED, "the call's dimensions do not fit the kernel's");
    return eider_fail(EIDER_NOT_PREPARED,
                      "operand %u has a stride of %lld bytes in dimension %d of %d, after joining "
                      "contiguous ones; the kernel was prepared for one that %s",
                      (unsigned)i, (long long)s->stride[i][d], d, s->rank,
                      expected[layout->operands[i].stride_class[to]]);
}

/* n / d = mulhi(2 n, magic) >> shift for every n below 2^31: with 2^(shift - 1) < d <=
 * 2^shift, magic = ceil(2^(31 + shift) / d) is off by less than 2^shift / d parts of n. */
static void put_divisor(struct eider_bound *out, const struct eider_map_slots *slots, int d,
                        uint64_t extent)
{
    unsigned shift = 0;
    eider_bound_put(out, slots->extent[d], extent);
    if (slots->magic[d] == EIDER_MAP_NO_SLOT) return;
    while (((uint64_t)1 << shift) < extent) shift++;
    eider_bound_put(out, slots->magic[d], (((uint64_t)1 << (31 + shift)) + extent - 1) / extent);
    eider_bound_put(out, slots->shift[d], shift);
}

/* Vectors along the innermost dimension: whether rows are whole numbers of them, and
 * whether all addresses are aligned. */
static unsigned vector_flags(const struct eider_layout *layout, const struct eider_map_config *c,
                             const struct eider_map_space *s, const int from[EIDER_RANK_MAX])
{
    unsigned flags = EIDER_MAP_EVEN | EIDER_MAP_ALIGNED | EIDER_MAP_STREAM;
    int inner = layout->rank - 1;
    int64_t extent = from[inner] < 0 ? 1 : s->extent[from[inner]];
    if (s->count != extent && extent % c->vec) flags &= ~EIDER_MAP_EVEN;
    for (uint32_t i = 0; i < layout->n_operands; i++) {
        const struct eider_layout_operand *operand = &layout->operands[i];
        if (operand->kind == EIDER_SCALAR || operand->stride_class[inner] != 1) continue;
        int64_t access = access_bytes(c, operand->type);
        int64_t all = (int64_t)s->data[i];
        for (int to = 0; to < inner; to++)
            if (from[to] >= 0) all |= s->stride[i][from[to]];
        if (all & (access - 1)) flags &= ~EIDER_MAP_ALIGNED;
        if (operand->kind == EIDER_OUTPUT && all & (EIDER_STREAM_ALIGN - 1))
            flags &= ~EIDER_MAP_STREAM;
    }
    return flags;
}

static eider_status bind_general(const struct eider_layout *layout,
                                 const struct eider_map_config *c, const eider_tensor *args,
                                 struct eider_bound *out)
{
    struct eider_map_space s;
    struct eider_map_slots slots;
    int from[EIDER_RANK_MAX], apart;
    uint32_t n = layout->n_operands;
    EIDER_TRY(eider_map_space_of(layout->operands, n, NULL, args, &s));
    eider_map_slots_of(layout, c->index_bits, &slots);
    out->n_params = slots.n;
    out->block = (uint32_t)c->block;
    out->grid = 0;
    if (s.count == 0) return EIDER_OK;
    EIDER_TRY(match_dimensions(layout, &s, from));
    if (c->index_bits == 32 && !eider_map_fits_32(&s, layout->operands, n))
        return eider_fail(EIDER_NOT_PREPARED, "the call needs 64-bit offsets, the kernel was "
                                              "prepared for 32");
    EIDER_TRY(eider_map_overlap_check(&s, layout->operands, n, NULL, &apart));
    for (uint32_t i = 0; i < n; i++)
        EIDER_TRY(put_operand(&layout->operands[i], i, &args[i], s.data[i], out));
    unsigned flags = vector_flags(layout, c, &s, from) | (apart ? EIDER_MAP_APART : 0);
    EIDER_TRY(put_geometry(c, n, s.count, flags, out));
    for (int d = 1; d < layout->rank; d++)
        put_divisor(out, &slots, d, from[d] < 0 ? 1 : (uint64_t)s.extent[from[d]]);
    for (uint32_t i = 0; i < n; i++)
        for (int d = 0; d < layout->rank; d++)
            if (slots.stride[i][d] != EIDER_MAP_NO_SLOT)
                eider_bound_put(out, slots.stride[i][d],
                                from[d] < 0 ? 0 : (uint64_t)s.stride[i][from[d]]);
    return EIDER_OK;
}

eider_status eider_map_bind(const struct eider_layout *layout, const struct eider_config *config,
                            const eider_tensor *args, struct eider_bound *out)
{
    struct eider_map_config c = eider_map_config_of(config);
    if (bind_contiguous(layout, &c, args, out)) return EIDER_OK;
    return bind_general(layout, &c, args, out);
}
