/* row.c -- the template of programs over rows.
 *
 * Invariant: two layouts with the same text (describe) give the same kernel for a config.
 * See row.h for the shape of the kernel.
 */
#include "row.h"

#include <string.h>

#include "extent.h"
#include "ops.h"

#define PARAM_BYTES_MAX 4096 /* of kernel parameters, up to PTX 8.0 */
#define IN_FLIGHT_MAX 128    /* elements: more take the assembler minutes */
#define KEPT_MAX 256         /* elements: a thread has that many registers */

_Static_assert(KEPT_MAX <= EIDER_ROW_PACKS_MAX && 8 * EIDER_VECTOR_MAX <= EIDER_ROW_PACKS_MAX,
               "a pack has an element at least");

/* A parameter that the template may not have. */
static int number_or(const struct eider_config *config, enum eider_param param, int otherwise)
{
    return config->choice[param] < 0 ? otherwise : eider_config_number(config, param);
}

struct eider_row_config eider_row_config_of(const struct eider_config *config)
{
    return (struct eider_row_config){
        .vec = eider_config_number(config, EIDER_PARAM_vec),
        .unroll = eider_config_number(config, EIDER_PARAM_unroll),
        .block = eider_config_number(config, EIDER_PARAM_block),
        .row = eider_config_number(config, EIDER_PARAM_row),
        .keep = eider_config_number(config, EIDER_PARAM_keep),
        .cluster = number_or(config, EIDER_PARAM_cluster, 1),
        .shared = number_or(config, EIDER_PARAM_shared, 0),
        .async = number_or(config, EIDER_PARAM_async, 0),
        .resident = number_or(config, EIDER_PARAM_resident, 0),
        .registers = number_or(config, EIDER_PARAM_registers, 0),
        .online = number_or(config, EIDER_PARAM_online, 0),
        .split = number_or(config, EIDER_PARAM_split, 1),
        .mbarrier = number_or(config, EIDER_PARAM_mbarrier, 0),
        .ahead = number_or(config, EIDER_PARAM_ahead, 0),
        .load = (enum eider_load_policy)config->choice[EIDER_PARAM_load],
        .store = (enum eider_store_policy)config->choice[EIDER_PARAM_store],
    };
}

int eider_row_threads(const struct eider_row_config *c)
{
    return c->row * c->cluster * c->split;
}

/* Sums down the rows are done by a template of their own. */
static int row_takes(const struct eider_graph *program)
{
    for (eider_node id = 1; id < program->n_cells; id++)
        if (program->cells[id].op == EIDER_OP_colsum) return 0;
    return eider_extent_over_rows(program);
}

/* ---- Layout -------------------------------------------------------------- */

static eider_status check_types(const struct eider_graph *program, const eider_tensor *args,
                                struct eider_layout *out)
{
    char name[EIDER_MAP_NAME_BYTES];
    uint8_t *bits = eider_mem_alloc(&program->allocator, program->n_cells);
    eider_status status = bits ? EIDER_OK : EIDER_OOM;
    if (bits) eider_extent_infer(program, bits);
    for (uint32_t i = 0; i < program->n_operands && status == EIDER_OK; i++) {
        const struct eider_graph_operand *operand = &program->operands[i];
        int is_output = operand->kind == EIDER_OUTPUT;
        if (!eider_dtype_name(args[i].type))
            status = eider_fail(EIDER_TYPE, "%s has type %d, which is none",
                                eider_map_name(program, i, name), (int)args[i].type);
        else if (operand->type >= 0 && operand->type != (int32_t)args[i].type)
            status = eider_fail(EIDER_TYPE, "%s is %s, the program declares %s",
                                eider_map_name(program, i, name), eider_dtype_name(args[i].type),
                                eider_dtype_name((eider_dtype)operand->type));
        out->operands[i].kind = operand->kind;
        out->operands[i].type = args[i].type;
        out->operands[i].extent =
            is_output ? eider_extent_of_output(program, i, bits) : operand->extent;
    }
    eider_mem_free(&program->allocator, bits);
    return status;
}

/* The largest power of two up to `limit` that divides `value`. */
static uint32_t power_in(uint64_t value, uint32_t limit)
{
    uint32_t power = limit;
    while (value % power) power /= 2;
    return power;
}

/* The stride class of operand `i` in dimension `d` of the kernel.  A single row may be one of
 * many at another launch. */
static int class_of(const struct eider_map_space *s, const struct eider_layout *out, uint32_t i,
                    int d)
{
    const struct eider_layout_operand *operand = &out->operands[i];
    int is_last = d == out->rank - 1;
    if (operand->extent == (is_last ? EIDER_PER_ROW : EIDER_PER_COLUMN)) return 0;
    if (out->any) return 2;
    int64_t stride = s->stride[i][d], size = (int64_t)eider_dtype_size(operand->type);
    if (is_last && (stride == size || s->extent[d] < 2)) return 1;
    return stride == 0 && s->extent[d] > 1 ? 0 : 2;
}

static void classify(const struct eider_map_space *s, struct eider_layout *out)
{
    for (uint32_t i = 0; i < out->n_operands; i++) {
        struct eider_layout_operand *operand = &out->operands[i];
        uint64_t all = s->data[i];
        memset(operand->stride_class, 0, sizeof operand->stride_class);
        operand->align = EIDER_MAP_ACCESS_BYTES;
        if (operand->kind == EIDER_SCALAR) continue;
        for (int d = 0; d < out->rank; d++)
            operand->stride_class[d] = (uint8_t)class_of(s, out, i, d);
        for (int d = 0; d < s->rank - 1; d++) all |= (uint64_t)s->stride[i][d];
        operand->align = power_in(all, EIDER_MAP_ACCESS_BYTES);
    }
    out->vec_max = EIDER_VECTOR_MAX;
    while (out->length % out->vec_max && out->length < 2 * (int64_t)out->vec_max - 1)
        out->vec_max /= 2;
    eider_row_shift_of(s, out);
}

/* Reductions have all their results after one pass, where none needs another's and no element of
 * an output needs one; and so has what reduces nothing. */
static int goes_once(const struct eider_graph *g, const struct eider_layout *layout, uint8_t *level)
{
    int most = 0, outputs = 0;
    for (eider_node id = 1; id < g->n_cells; id++) {
        const eider_node *args = eider_graph_args(g, id);
        int above = 0;
        for (uint32_t k = 0; k < g->cells[id].n_args; k++)
            if (level[args[k]] > above) above = level[args[k]];
        level[id] =
            (uint8_t)(above + (above < 2 && eider_ops_reduces((enum eider_op)g->cells[id].op)));
        if (level[id] > most) most = level[id];
    }
    for (uint32_t i = 0; i < g->n_operands; i++) outputs |= eider_row_is_full_output(layout, i);
    return most == 0 || (most == 1 && !outputs);
}

/* Whether node `id`, a mean, is of differences from the mean: a corrected variance has it. */
static int is_moment(const struct eider_graph *g, eider_node id)
{
    eider_node term = eider_graph_args(g, id)[0];
    const eider_node *args = eider_graph_args(g, term);
    return g->cells[term].op == EIDER_OP_sub && g->cells[args[1]].op == EIDER_OP_mean &&
           eider_graph_args(g, args[1])[0] == args[0];
}

static eider_status look_at_nodes(const struct eider_graph *program, struct eider_layout *out)
{
    uint8_t *bits = eider_mem_alloc(&program->allocator, program->n_cells);
    if (!bits) return EIDER_OOM;
    eider_extent_infer(program, bits);
    for (eider_node id = 1; id < program->n_cells; id++) {
        enum eider_op op = (enum eider_op)program->cells[id].op;
        if (op == EIDER_OP_pick && bits[eider_graph_args(program, id)[1]] & EIDER_BY_COL)
            out->gathers = 1;
        out->work += op != EIDER_OP_input && bits[id] & EIDER_BY_COL;
        out->moments |= op == EIDER_OP_mean && is_moment(program, id);
    }
    memset(bits, 0, program->n_cells);
    out->once = goes_once(program, out, bits);
    eider_mem_free(&program->allocator, bits);
    return EIDER_OK;
}

eider_status eider_row_layout(const struct eider_graph *program, const eider_tensor *args,
                              int any_layout, struct eider_layout *out)
{
    struct eider_map_space s;
    int apart, rank_max = 2;
    memset(out, 0, sizeof *out);
    out->n_operands = program->n_operands;
    out->any = any_layout != 0;
    EIDER_TRY(check_types(program, args, out));
    EIDER_TRY(eider_row_space_of(out->operands, out->n_operands, program, args, &s));
    EIDER_TRY(look_at_nodes(program, out));
    for (uint32_t i = 0; i < out->n_operands; i++) {
        if (args[i].rank > rank_max) rank_max = args[i].rank;
        if (!args[i].data) s.data[i] = 0; /* wherever its first element is */
    }
    int64_t cols = s.extent[s.rank - 1];
    if (s.count && cols)
        EIDER_TRY(eider_row_overlap_check(&s, out->operands, out->n_operands, program, &apart));
    out->rank = out->any ? rank_max : s.rank;
    out->index_bits = 64;
    out->length = out->any ? 0 : cols;
    if (__builtin_mul_overflow(s.count, cols, &out->count)) out->count = INT64_MAX;
    classify(&s, out);
    return EIDER_OK;
}

void eider_row_describe(const struct eider_graph *program, const struct eider_layout *layout,
                        struct eider_text *out)
{
    static const char extents[] = {
        [EIDER_FULL] = 'f', [EIDER_PER_ROW] = 'r', [EIDER_PER_COLUMN] = 'c'};
    for (uint32_t i = 0; i < layout->n_operands; i++) {
        const struct eider_layout_operand *operand = &layout->operands[i];
        eider_text_add(out, "%s:%s", program->operands[i].name, eider_dtype_name(operand->type));
        if (operand->kind != EIDER_SCALAR) {
            for (int d = 0; d < layout->rank; d++)
                eider_text_add(out, "%s%u", d ? "," : "[", (unsigned)operand->stride_class[d]);
            eider_text_add(out, "]%c", extents[operand->extent]);
        }
        eider_text_add(out, " ");
    }
    eider_text_add(out, "length=%lld%s", (long long)layout->length,
                   layout->checks ? " checks" : "");
    if (layout->aligned < EIDER_VECTOR_MAX)
        eider_text_add(out, " aligned=%d", (int)layout->aligned);
}

/* ---- Checks -------------------------------------------------------------- */

static eider_status check_cluster(struct eider_target target, const struct eider_row_config *c)
{
    if (c->cluster == 1) return EIDER_OK;
    if (c->mbarrier && c->resident)
        return eider_fail(EIDER_CONFIG,
                          "mbarrier=1, resident=%d: an mbarrier serves for one row of a cluster; "
                          "resident must be 0",
                          c->resident);
    if (target.sm && target.sm < EIDER_ROW_CLUSTER_SM)
        return eider_fail(EIDER_CONFIG,
                          "cluster=%d: sm_%d has no clusters of blocks; from sm_%d on", c->cluster,
                          target.sm, EIDER_ROW_CLUSTER_SM);
    if (c->row < EIDER_ROW_WARP)
        return eider_fail(EIDER_CONFIG,
                          "cluster=%d, row=%d: row must be at least %d, a warp of each block",
                          c->cluster, c->row, EIDER_ROW_WARP);
    return EIDER_OK;
}

/* A part of a row is read anew in every launch. */
static eider_status check_split(const struct eider_row_config *c)
{
    if (c->split == 1) return EIDER_OK;
    if (c->cluster > 1 || c->resident || c->shared || c->keep)
        return eider_fail(EIDER_CONFIG,
                          "split=%d, cluster=%d, resident=%d, shared=%d, keep=%d: parts of a row "
                          "stay nowhere; cluster must be 1 and the others 0",
                          c->split, c->cluster, c->resident, c->shared, c->keep);
    if (c->row != c->block)
        return eider_fail(EIDER_CONFIG,
                          "split=%d, row=%d, block=%d: a block has one part of a row, row and "
                          "block are equal",
                          c->split, c->row, c->block);
    return EIDER_OK;
}

/* Of a block; the CUDA C++ Programming Guide, technical specifications per compute capability. */
static const struct {
    int sm;
    int64_t bytes;
} shared_limits[] = {{75, 64 << 10},   {80, 163 << 10}, {86, 99 << 10},   {87, 163 << 10},
                     {89, 99 << 10},   {90, 227 << 10}, {100, 227 << 10}, {103, 227 << 10},
                     {110, 227 << 10}, {120, 99 << 10}, {121, 99 << 10}};

int64_t eider_row_shared_limit(struct eider_target target)
{
    int64_t bytes = 48 << 10;
    for (size_t i = 0; i < sizeof shared_limits / sizeof *shared_limits; i++)
        if (shared_limits[i].sm <= target.sm) bytes = shared_limits[i].bytes;
    return target.sm ? bytes : 227 << 10;
}

static eider_status check_shared(const struct eider_layout *layout, struct eider_target target,
                                 const struct eider_row_config *c)
{
    int64_t bytes = eider_row_launch_bytes(layout, c), most = eider_row_shared_limit(target);
    if (c->shared && c->block < EIDER_ROW_WARP)
        return eider_fail(EIDER_CONFIG,
                          "shared=%d, block=%d: shared memory needs whole warps of 32", c->shared,
                          c->block);
    if (c->async && target.sm && target.sm < EIDER_ROW_ASYNC_SM)
        return eider_fail(EIDER_CONFIG, "async=1: sm_%d has no asynchronous copies; from sm_%d on",
                          target.sm, EIDER_ROW_ASYNC_SM);
    if (bytes > most)
        return eider_fail(EIDER_CONFIG,
                          "shared=%d, block=%d: %lld bytes of shared memory; %lld are possible",
                          c->shared, c->block, (long long)bytes, (long long)most);
    return EIDER_OK;
}

eider_status eider_row_check(const struct eider_layout *layout, struct eider_target target,
                             const struct eider_config *config)
{
    struct eider_row_config c = eider_row_config_of(config);
    struct eider_row_slots slots;
    if (c.vec > layout->vec_max)
        return eider_fail(EIDER_CONFIG, "vec=%d: rows allow vectors of at most %d elements", c.vec,
                          (int)layout->vec_max);
    if (c.keep * c.vec > KEPT_MAX)
        return eider_fail(EIDER_CONFIG, "keep=%d, vec=%d: a thread keeps at most %d elements",
                          c.keep, c.vec, KEPT_MAX);
    if (c.vec * c.unroll > IN_FLIGHT_MAX)
        return eider_fail(EIDER_CONFIG,
                          "vec=%d, unroll=%d: a thread has at most %d elements in flight", c.vec,
                          c.unroll, IN_FLIGHT_MAX);
    if (c.row > c.block || c.block % c.row)
        return eider_fail(EIDER_CONFIG, "row=%d: threads of a row are a part of a block of %d",
                          c.row, c.block);
    if (target.sm && c.block < EIDER_ROW_WARP)
        return eider_fail(EIDER_CONFIG, "block=%d: a GPU needs whole warps of 32", c.block);
    if (c.row > 1 && c.block % EIDER_ROW_WARP)
        return eider_fail(EIDER_CONFIG, "row=%d, block=%d: threads of a row need whole warps",
                          c.row, c.block);
    if (c.registers && !target.sm)
        return eider_fail(EIDER_CONFIG, "registers=%d: only GPUs share registers out", c.registers);
    EIDER_TRY(check_cluster(target, &c));
    EIDER_TRY(check_shared(layout, target, &c));
    eider_row_slots_of(layout, c.split, &slots);
    if (slots.n > EIDER_SLOTS_MAX || slots.n * 8 > PARAM_BYTES_MAX)
        return eider_fail(EIDER_TOO_LARGE,
                          "the kernel would have %u parameters for strides and operands, at most "
                          "%d bytes are possible",
                          (unsigned)slots.n, PARAM_BYTES_MAX);
    return EIDER_OK;
}

static eider_status row_check(const struct eider_layout *layout, struct eider_target target,
                              const struct eider_config *config)
{
    for (int p = 0; p < EIDER_PARAM_COUNT; p++)
        if (eider_template_row.uses >> p & 1 && config->choice[p] < 0)
            return eider_fail(EIDER_CONFIG, "a parameter is not set");
    EIDER_TRY(eider_row_check(layout, target, config));
    struct eider_row_config c = eider_row_config_of(config);
    return check_split(&c);
}

static uint32_t row_fibers(const struct eider_layout *layout, const struct eider_config *config)
{
    struct eider_row_config c = eider_row_config_of(config);
    int waits = c.row * c.cluster > 1 || eider_row_launch_bytes(layout, &c) > 0;
    return waits ? (uint32_t)c.block : 0;
}

static uint32_t row_shared(const struct eider_layout *layout, const struct eider_config *config)
{
    struct eider_row_config c = eider_row_config_of(config);
    return (uint32_t)eider_row_launch_bytes(layout, &c);
}

/* ---- Bytes --------------------------------------------------------------- */

eider_status eider_row_bytes(const struct eider_layout *layout, const eider_tensor *args,
                             uint64_t *out)
{
    struct eider_map_space s;
    EIDER_TRY(eider_row_space_of(layout->operands, layout->n_operands, NULL, args, &s));
    *out = eider_map_space_bytes(layout, &s);
    return EIDER_OK;
}

static double row_pass(const struct eider_layout *layout, const struct eider_config *config)
{
    struct eider_row_config c = eider_row_config_of(config);
    double kept = (double)c.keep * c.vec, loop = (double)c.unroll * c.vec;
    double each = (double)layout->length / eider_row_threads(&c);
    if (layout->length == 0 || kept < each) return loop; /* of what registers do not keep */
    return each < 1 ? kept : each;
}

#define USES(param) (1u << EIDER_PARAM_##param)

const struct eider_template eider_template_row = {
    .name = "row",
    .doc = "over rows: reductions along the last dimension, and everything around them",
    .uses = USES(vec) | USES(unroll) | USES(block) | USES(load) | USES(store) | USES(row) |
            USES(keep) | USES(cluster) | USES(shared) | USES(async) | USES(resident) |
            USES(registers) | USES(online) | USES(split) | USES(mbarrier) | USES(ahead),
    .takes = row_takes,
    .layout = eider_row_layout,
    .defaults = eider_row_defaults,
    .space = eider_row_space,
    .check = row_check,
    .fibers = row_fibers,
    .shared = row_shared,
    .rounds = eider_row_rounds,
    .build = eider_row_build,
    .bind = eider_row_bind,
    .pass = row_pass,
    .bytes = eider_row_bytes,
    .describe = eider_row_describe,
};
