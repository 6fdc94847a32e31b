/* map.c -- the template of elementwise programs: any rank, strides and types.
 *
 * Invariant: two layouts with the same text (describe) give the same kernel for a config.
 * See map.h for the shape of the kernel.
 */
#include "map.h"

#include <string.h>

#include "extent.h"

#define VEC_MAX 64
#define PARAM_BYTES_MAX 4096 /* of kernel parameters, up to PTX 8.0 */

struct eider_map_config eider_map_config_of(const struct eider_config *config)
{
    return (struct eider_map_config){
        .vec = eider_config_number(config, EIDER_PARAM_vec),
        .unroll = eider_config_number(config, EIDER_PARAM_unroll),
        .block = eider_config_number(config, EIDER_PARAM_block),
        .tiles = eider_config_number(config, EIDER_PARAM_tiles),
        .index_bits = eider_config_number(config, EIDER_PARAM_index),
        .packed = eider_config_number(config, EIDER_PARAM_packed),
        .load = (enum eider_load_policy)config->choice[EIDER_PARAM_load],
        .store = (enum eider_store_policy)config->choice[EIDER_PARAM_store],
    };
}

static int map_takes(const struct eider_graph *program)
{
    if (eider_extent_over_rows(program)) return 0;
    for (uint32_t i = 0; i < program->n_operands; i++)
        if (program->operands[i].kind == EIDER_OUTPUT) return 1;
    return 0;
}

/* ---- Layout -------------------------------------------------------------- */

static eider_status check_types(const struct eider_graph *program, const eider_tensor *args,
                                struct eider_layout *out)
{
    for (uint32_t i = 0; i < program->n_operands; i++) {
        const struct eider_graph_operand *operand = &program->operands[i];
        char name[EIDER_MAP_NAME_BYTES];
        if (!eider_dtype_name(args[i].type))
            return eider_fail(EIDER_TYPE, "%s has type %d, which is none",
                              eider_map_name(program, i, name), (int)args[i].type);
        if (operand->type >= 0 && operand->type != (int32_t)args[i].type)
            return eider_fail(EIDER_TYPE, "%s is %s, the program declares %s",
                              eider_map_name(program, i, name), eider_dtype_name(args[i].type),
                              eider_dtype_name((eider_dtype)operand->type));
        out->operands[i].kind = operand->kind;
        out->operands[i].type = args[i].type;
    }
    return EIDER_OK;
}

/* The largest power of two up to `limit` that divides `value`. */
static uint32_t power_in(uint64_t value, uint32_t limit)
{
    uint32_t power = limit;
    while (value % power) power /= 2;
    return power;
}

/* Vectors that do not cross rows and, where rows are not aligned to them, are narrower. */
static int32_t widest_vector(const struct eider_layout *layout, const struct eider_map_space *s)
{
    int inner = s->rank - 1;
    uint32_t vec = VEC_MAX;
    if (layout->any) return 1;
    if (s->rank < 2) return VEC_MAX;
    vec = power_in((uint64_t)s->extent[inner], VEC_MAX);
    for (uint32_t i = 0; i < layout->n_operands; i++) {
        const struct eider_layout_operand *operand = &layout->operands[i];
        uint32_t size = (uint32_t)eider_dtype_size(operand->type);
        uint64_t all = 0;
        if (operand->kind == EIDER_SCALAR || operand->stride_class[inner] != 1) continue;
        for (int d = 0; d < inner; d++) all |= (uint64_t)s->stride[i][d];
        uint32_t fits = power_in(all, EIDER_MAP_ACCESS_BYTES) / size;
        if (fits < EIDER_MAP_ACCESS_BYTES / size && fits < vec) vec = fits;
    }
    return (int32_t)vec;
}

static void classify(const struct eider_map_space *s, struct eider_layout *out)
{
    for (uint32_t i = 0; i < out->n_operands; i++) {
        struct eider_layout_operand *operand = &out->operands[i];
        int64_t size = (int64_t)eider_dtype_size(operand->type);
        memset(operand->stride_class, 0, sizeof operand->stride_class);
        operand->align =
            power_in(operand->kind == EIDER_SCALAR ? 0 : s->data[i], EIDER_MAP_ACCESS_BYTES);
        for (int d = 0; d < out->rank && operand->kind != EIDER_SCALAR; d++) {
            int unit = d == s->rank - 1 && s->stride[i][d] == size;
            operand->stride_class[d] = out->any ? 2 : s->stride[i][d] == 0 ? 0 : unit ? 1 : 2;
            if (s->rank == 0 && !out->any) operand->stride_class[d] = 1;
        }
    }
}

static eider_status map_layout(const struct eider_graph *program, const eider_tensor *args,
                               int any_layout, struct eider_layout *out)
{
    struct eider_map_space s;
    int apart, rank_max = 1;
    memset(out, 0, sizeof *out);
    out->n_operands = program->n_operands;
    out->any = any_layout != 0;
    EIDER_TRY(check_types(program, args, out));
    EIDER_TRY(eider_map_space_of(out->operands, out->n_operands, program, args, &s));
    for (uint32_t i = 0; i < out->n_operands; i++) {
        if (args[i].rank > rank_max) rank_max = args[i].rank;
        if (!args[i].data) s.data[i] = 0; /* wherever its first element is */
    }
    if (s.count)
        EIDER_TRY(eider_map_overlap_check(&s, out->operands, out->n_operands, program, &apart));
    out->rank = out->any ? rank_max : s.rank > 0 ? s.rank : 1;
    out->index_bits = eider_map_fits_32(&s, out->operands, out->n_operands) ? 32 : 64;
    out->count = s.count;
    classify(&s, out);
    out->vec_max = widest_vector(out, &s);
    return eider_map_packed_takes(program, out, &out->packable);
}

static void map_describe(const struct eider_graph *program, const struct eider_layout *layout,
                         struct eider_text *out)
{
    for (uint32_t i = 0; i < layout->n_operands; i++) {
        const struct eider_layout_operand *operand = &layout->operands[i];
        eider_text_add(out, "%s:%s", program->operands[i].name, eider_dtype_name(operand->type));
        if (operand->kind == EIDER_SCALAR) {
            eider_text_add(out, " ");
            continue;
        }
        for (int d = 0; d < layout->rank; d++)
            eider_text_add(out, "%s%u", d ? "," : "[", (unsigned)operand->stride_class[d]);
        eider_text_add(out, "]@%u ", (unsigned)operand->align);
    }
    eider_text_add(out, "index=%d", (int)layout->index_bits);
}

/* ---- Checks -------------------------------------------------------------- */

static int bytes_per_element(const struct eider_layout *layout)
{
    int bytes = 0;
    for (uint32_t i = 0; i < layout->n_operands; i++)
        if (layout->operands[i].kind != EIDER_SCALAR)
            bytes += (int)eider_dtype_size(layout->operands[i].type);
    return bytes;
}

static eider_status check_parameters(const struct eider_layout *layout, int index_bits)
{
    struct eider_map_slots slots;
    eider_map_slots_of(layout, index_bits, &slots);
    if (slots.n > EIDER_SLOTS_MAX || slots.n * 8 > PARAM_BYTES_MAX)
        return eider_fail(EIDER_TOO_LARGE,
                          "the kernel would have %u parameters for strides and operands, at most "
                          "%d bytes are possible",
                          (unsigned)slots.n, PARAM_BYTES_MAX);
    return EIDER_OK;
}

/* Registers that hold loaded words on a GPU, at most what a thread of the block may have. */
static eider_status check_registers(const struct eider_layout *layout,
                                    const struct eider_map_config *c)
{
    int words = c->vec * c->unroll * bytes_per_element(layout) / 4;
    int registers = 65536 / (c->block < 256 ? 256 : c->block); /* of a multiprocessor */
    if (words > registers)
        return eider_fail(EIDER_CONFIG,
                          "vec=%d, unroll=%d: %d words in flight, a thread of a block of %d has "
                          "%d registers",
                          c->vec, c->unroll, words, c->block, registers);
    return EIDER_OK;
}

static eider_status map_check(const struct eider_layout *layout, struct eider_target target,
                              const struct eider_config *config)
{
    struct eider_map_config c = eider_map_config_of(config);
    for (int p = 0; p < EIDER_PARAM_COUNT; p++)
        if (eider_template_map.uses >> p & 1 && config->choice[p] < 0)
            return eider_fail(EIDER_CONFIG, "a parameter is not set");
    if (c.vec > layout->vec_max)
        return eider_fail(EIDER_CONFIG, "vec=%d: rows allow vectors of at most %d elements", c.vec,
                          (int)layout->vec_max);
    if (c.index_bits < layout->index_bits)
        return eider_fail(EIDER_CONFIG, "index=32: the offsets need 64 bits");
    if (c.packed && !eider_machine_of(target)->pair)
        return eider_fail(EIDER_CONFIG, "packed=1: the target has no arithmetic on pairs of 16-bit "
                                        "values");
    if (c.packed && !layout->packable)
        return eider_fail(EIDER_CONFIG, "packed=1: pairs of 16-bit values would not give the same "
                                        "bits");
    if (target.sm && c.block < 32)
        return eider_fail(EIDER_CONFIG, "block=%d: a GPU needs whole warps of 32", c.block);
    if (target.sm) EIDER_TRY(check_registers(layout, &c));
    return check_parameters(layout, c.index_bits);
}

/* ---- Bytes --------------------------------------------------------------- */

static eider_status map_bytes(const struct eider_layout *layout, const eider_tensor *args,
                              uint64_t *out)
{
    struct eider_map_space s;
    EIDER_TRY(eider_map_space_of(layout->operands, layout->n_operands, NULL, args, &s));
    *out = eider_map_space_bytes(layout, &s);
    return EIDER_OK;
}

static double map_pass(const struct eider_layout *layout, const struct eider_config *config)
{
    struct eider_map_config c = eider_map_config_of(config);
    (void)layout;
    return (double)c.vec * c.unroll;
}

#define USES(param) (1u << EIDER_PARAM_##param)

const struct eider_template eider_template_map = {
    .name = "map",
    .doc = "elementwise: every output element from the input elements at its position",
    .uses = USES(vec) | USES(unroll) | USES(block) | USES(tiles) | USES(load) | USES(store) |
            USES(index) | USES(packed),
    .takes = map_takes,
    .layout = map_layout,
    .defaults = eider_map_defaults,
    .space = eider_map_space,
    .check = map_check,
    .build = eider_map_build,
    .bind = eider_map_bind,
    .pass = map_pass,
    .bytes = map_bytes,
    .describe = map_describe,
};
