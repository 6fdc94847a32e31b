/* column.c -- the template of sums down the rows, such as gradients of weights.
 *
 * Invariant: the result is the same run after run, and nothing but the outputs is written.
 * Built from the parts of the template `row` (row.h); column_build.c has the shape of the kernel.
 */
#include "extent.h"
#include "ops.h"
#include "row.h"

/* Only sums down the rows, of what needs no reduction along them. */
static int column_takes(const struct eider_graph *program)
{
    int any = 0;
    for (uint32_t i = 0; i < program->n_operands; i++) {
        eider_node node = program->operands[i].node;
        if (program->operands[i].kind != EIDER_OUTPUT) continue;
        while (program->cells[node].op == EIDER_OP_cast ||
               program->cells[node].op == EIDER_OP_cast_nan)
            node = eider_graph_args(program, node)[0];
        if (program->cells[node].op != EIDER_OP_colsum) return 0;
        any = 1;
    }
    for (eider_node id = 1; id < program->n_cells; id++) {
        enum eider_op op = (enum eider_op)program->cells[id].op;
        if (eider_ops_reduces(op)) return 0;
    }
    return any;
}

/* A thread has the same columns in all rows, so vectors are not shifted. */
static eider_status column_layout(const struct eider_graph *program, const eider_tensor *args,
                                  int any_layout, struct eider_layout *out)
{
    EIDER_TRY(eider_row_layout(program, args, any_layout, out));
    while (out->length % out->vec_max) out->vec_max /= 2;
    out->aligned = EIDER_VECTOR_MAX;
    return EIDER_OK;
}

/* ---- Configs ---------------------------------------------------------------------------- */

/* Bytes of an element that is read. */
static int widest(const struct eider_layout *layout)
{
    int bytes = 1;
    for (uint32_t i = 0; i < layout->n_operands; i++) {
        int size = (int)eider_dtype_size(layout->operands[i].type);
        int in_row = layout->operands[i].stride_class[layout->rank - 1] == 1;
        if (layout->operands[i].kind == EIDER_INPUT && in_row && size > bytes) bytes = size;
    }
    return bytes;
}

#define BLOCKS_WANTED 4   /* for each multiprocessor, at most */
#define UNITS_ASSUMED 132 /* multiprocessors, where they are not known: an H100 */
#define STEPS_LEFT 2      /* of a thread through its rows, at least */

/* Parts of the rows, where the columns are too few blocks.  How many rows there are is what the
 * example says. */
static int parts_of(const struct eider_layout *layout, const struct eider_device_facts *facts,
                    const struct eider_config *config)
{
    struct eider_row_config c = eider_row_config_of(config);
    int64_t width = (int64_t)c.row * c.vec, units = facts->units > 0 ? facts->units : UNITS_ASSUMED;
    int64_t step = (int64_t)(c.block / c.row) * c.unroll, parts = 1;
    if (!layout->length || !facts->target.sm) return 1;
    int64_t blocks = (layout->length + width - 1) / width, rows = layout->count / layout->length;
    while (parts < EIDER_ROW_SPLIT_MAX && 2 * parts * blocks <= BLOCKS_WANTED * units &&
           2 * parts * step * STEPS_LEFT <= rows)
        parts *= 2;
    return (int)parts;
}

#define CPU_LANES 2 /* of a pack, at least: f64 */

static int n_outputs(const struct eider_layout *layout)
{
    int n = 0;
    for (uint32_t i = 0; i < layout->n_operands; i++) n += layout->operands[i].kind == EIDER_OUTPUT;
    return n;
}

#define GPU_BLOCK 256
#define SEGMENT 128  /* bytes of a row side by side, for each block */
#define VECTOR 4     /* elements */
#define IN_FLIGHT 64 /* bytes of a thread */

/* Measured on an H200 (bench/RESULTS.md); vectors of which a thread can carry all sums. */
static void choose_gpu(const struct eider_layout *layout, struct eider_config *config)
{
    int bytes = widest(layout), vec = bytes > VECTOR ? VECTOR * 4 / bytes : VECTOR;
    while (vec > 1 && (vec > layout->vec_max || vec * n_outputs(layout) > EIDER_COLUMN_SUMS_MAX))
        vec /= 2;
    vec = eider_config_choose(config, EIDER_PARAM_vec, vec);
    int block = eider_config_choose(config, EIDER_PARAM_block, GPU_BLOCK), row = 1, unroll = 2;
    while (block % (2 * row) == 0 && 2 * row * vec * bytes <= SEGMENT) row *= 2;
    while (2 * unroll * vec * bytes <= IN_FLIGHT && unroll < 8) unroll *= 2;
    eider_config_choose(config, EIDER_PARAM_row, row);
    eider_config_choose(config, EIDER_PARAM_unroll, unroll);
}

static void choose_cpu(const struct eider_layout *layout, struct eider_config *config)
{
    int vec = 16, most = EIDER_COLUMN_SUMS_MAX * CPU_LANES;
    while (vec > 1 && (vec > layout->vec_max || vec * n_outputs(layout) > most)) vec /= 2;
    eider_config_choose(config, EIDER_PARAM_vec, vec);
    eider_config_choose(config, EIDER_PARAM_block, 1);
    eider_config_choose(config, EIDER_PARAM_row, 1);
    eider_config_choose(config, EIDER_PARAM_unroll, 1);
}

static void column_defaults(const struct eider_layout *layout,
                            const struct eider_device_facts *facts, struct eider_config *config)
{
    if (facts->target.sm)
        choose_gpu(layout, config);
    else
        choose_cpu(layout, config);
    eider_config_choose(config, EIDER_PARAM_split, parts_of(layout, facts, config));
    eider_config_choose_word(config, EIDER_PARAM_load, "ca");
    eider_config_choose_word(config, EIDER_PARAM_store, "wb");
}

static void column_space(const struct eider_layout *layout, struct eider_target target,
                         const struct eider_config *rule, struct eider_text *out)
{
    struct eider_row_config c = eider_row_config_of(rule);
    int vec = c.vec > 1 ? c.vec / 2 : 1, row = c.row > 1 ? c.row / 2 : 1;
    int block = c.block >= 2 * EIDER_ROW_WARP ? c.block / 2 : c.block;
    (void)layout;
    if (target.sm) {
        eider_text_add(out,
                       "vec=%d|%d|%d,row=%d|%d|%d,block=%d|%d|%d,unroll=2|4|8,load=ca|cs|nc,"
                       "store=wb\n",
                       vec, 2 * vec, 4 * vec, row, 2 * row, 4 * row, block, 2 * block, 4 * block);
        eider_text_add(out, "vec=%d,row=%d,block=%d,unroll=%d,split=1|2|4|8|16|32|64|128\n", c.vec,
                       c.row, c.block, c.unroll);
    } else
        eider_text_add(out, "vec=%d|%d|%d,row=1,block=1,unroll=1|2|4\n", vec, 2 * vec, 4 * vec);
}

static eider_status column_check(const struct eider_layout *layout, struct eider_target target,
                                 const struct eider_config *config)
{
    struct eider_row_config c = eider_row_config_of(config);
    EIDER_TRY(eider_row_check(layout, target, config));
    int shared = c.block > c.row ? c.block * c.vec * EIDER_ROW_SLOT_BYTES : 0;
    if (shared > EIDER_ROW_STATIC_MAX)
        return eider_fail(EIDER_CONFIG,
                          "block=%d, vec=%d: %d bytes of shared memory, at most %d are possible",
                          c.block, c.vec, shared, EIDER_ROW_STATIC_MAX);
    return EIDER_OK;
}

static uint32_t column_fibers(const struct eider_layout *layout, const struct eider_config *config)
{
    struct eider_row_config c = eider_row_config_of(config);
    (void)layout;
    return c.block > c.row ? (uint32_t)c.block : 0;
}

static eider_status column_rounds(const struct eider_lowered *program,
                                  const struct eider_layout *layout,
                                  const struct eider_config *config, struct eider_rounds *out)
{
    struct eider_row_config c = eider_row_config_of(config);
    const struct eider_graph *g = program->graph;
    uint8_t *live = eider_mem_zero(&g->allocator, g->n_cells);
    uint64_t sums = 0;
    (void)layout;
    if (!live) return EIDER_OOM;
    eider_graph_live(g, live);
    for (eider_node id = 1; id < g->n_cells; id++)
        sums += live[id] && g->cells[id].op == EIDER_OP_colsum;
    eider_mem_free(&g->allocator, live);
    *out = (struct eider_rounds){.n = 1, .last_share = 1};
    if (c.split > 1)
        *out = (struct eider_rounds){.n = 2,
                                     .unit_bytes = sums * (uint64_t)c.split * EIDER_ROW_SLOT_BYTES,
                                     .last_share = (uint32_t)c.split};
    return EIDER_OK;
}

static double column_pass(const struct eider_layout *layout, const struct eider_config *config)
{
    struct eider_row_config c = eider_row_config_of(config);
    (void)layout;
    return (double)c.vec * c.unroll;
}

#define USES(param) (1u << EIDER_PARAM_##param)

const struct eider_template eider_template_column = {
    .name = "column",
    .doc = "sums down the rows, one for each place in them",
    .uses =
        USES(vec) | USES(unroll) | USES(block) | USES(load) | USES(store) | USES(row) | USES(split),
    .takes = column_takes,
    .layout = column_layout,
    .defaults = column_defaults,
    .space = column_space,
    .check = column_check,
    .fibers = column_fibers,
    .rounds = column_rounds,
    .build = eider_column_build,
    .bind = eider_column_bind,
    .pass = column_pass,
    .bytes = eider_row_bytes,
    .describe = eider_row_describe,
};
