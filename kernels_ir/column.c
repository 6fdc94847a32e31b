/* column.c -- the template of sums down the rows, such as gradients of weights.
 *
 * The kernel.  `row` threads of a block lie side by side along the rows, with `vec` columns each;
 * the block's other threads have other rows: thread number y of n has rows y, y + n, ..., of which
 * `unroll` are in flight.  Each adds its rows, carrying what rounding loses, and the first one
 * combines what the n have, in order, through shared memory.  Every column belongs to one block,
 * so the result is the same run after run, and nothing but the outputs is written.
 * Built from the parts of the template `row` (row.h).
 */
#include <string.h>

#include "extent.h"
#include "ops.h"
#include "row.h"

#define SLOT_BYTES 8
#define SUMS_MAX 32 /* packs of sums that a thread carries, of all outputs */

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

/* ---- Building ------------------------------------------------------------------ */

struct column_build {
    struct eider_row_build b;
    struct eider_row_total totals[SUMS_MAX]; /* of each sum, the packs of a vector */
    int n_sums;
    LLVMValueRef y;                   /* i32, which of the threads with the same columns */
    struct eider_row_vector *vectors; /* one for each row in flight */
    struct eider_row_context *ones;   /* what is the same for the row */
    uint8_t *need;
    uint64_t inputs;
};

static int n_y(const struct eider_row_build *b)
{
    return b->c.block / b->c.row;
}

static void list_sums(struct column_build *k)
{
    struct eider_row_build *b = &k->b;
    const struct eider_graph *g = b->program->graph;
    for (eider_node id = 1; id < g->n_cells && b->e->status == EIDER_OK; id++) {
        if (!b->plan.live[id] || g->cells[id].op != EIDER_OP_colsum) continue;
        if ((k->n_sums + 1) * b->n_packs > SUMS_MAX) {
            eider_emit_fail(b->e, EIDER_CONFIG,
                            "vec=%d: a thread would carry more than %d packs of sums", b->c.vec,
                            SUMS_MAX);
            return;
        }
        for (int p = 0; p < b->n_packs; p++) {
            struct eider_row_total *t = &k->totals[k->n_sums * b->n_packs + p];
            *t = eider_row_total_begin(b, id);
            b->e->width = b->width;
            eider_row_total_loop(b, t);
        }
        k->need[eider_graph_args(g, id)[0]] = 1;
        k->n_sums++;
    }
    eider_row_plan_need(g, &b->plan, k->need);
    k->inputs = eider_row_inputs(b, k->need);
}

/* Columns that are not there are not stored either, but a fault in one would be recorded. */
static void set_valid(struct eider_row_build *b, struct eider_row_vector *vector,
                      LLVMValueRef exists)
{
    for (int p = 0; p < b->n_packs; p++) {
        LLVMValueRef valid = eider_row_spread(b, exists, b->width), in_row = vector->packs[p].valid;
        if (b->faults && in_row) valid = LLVMBuildAnd(b->e->builder, in_row, valid, "");
        vector->packs[p].valid = valid;
    }
}

/* Loads row `at` + u * n_y for each row in flight, then adds their elements. */
static void add_rows(struct column_build *k, LLVMValueRef at)
{
    struct eider_row_build *b = &k->b;
    LLVMBuilderRef ir = b->e->builder;
    LLVMValueRef rows = b->machine->param(b->e, b->slots.rows), exists[8], read[8];
    LLVMValueRef last = LLVMBuildSub(ir, rows, eider_row_number(b->i64, 1), "");
    for (int u = 0; u < b->c.unroll && b->e->status == EIDER_OK; u++) {
        LLVMValueRef row = LLVMBuildAdd(ir, at, eider_row_number(b->i64, (int64_t)u * n_y(b)), "");
        exists[u] = LLVMBuildICmp(ir, LLVMIntULT, row, rows, "");
        read[u] = LLVMBuildSelect(ir, exists[u], row, last, "");
        eider_row_locate(b, read[u]);
        memset(k->ones[u].values, 0, b->program->graph->n_cells * sizeof *k->ones[u].values);
        b->one = k->ones[u];
        eider_row_load_row(b);
        eider_row_compute_row(b, 0);
        eider_row_place(b, &k->vectors[u], 1, eider_row_number(b->i32, 0), EIDER_ROW_ANYWHERE);
        eider_row_load(b, &k->vectors[u], 1, k->inputs);
    }
    eider_row_forget(b, k->vectors, b->c.unroll);
    for (int u = 0; u < b->c.unroll; u++) {
        b->one = k->ones[u];
        if (b->plan.picks) eider_row_locate(b, read[u]);
        set_valid(b, &k->vectors[u], exists[u]);
        for (int p = 0; p < b->n_packs && b->e->status == EIDER_OK; p++) {
            struct eider_row_context *c = &k->vectors[u].packs[p];
            eider_row_compute(b, c, k->need);
            for (int i = 0; i < k->n_sums && b->e->status == EIDER_OK; i++)
                eider_row_total_add(b, &k->totals[i * b->n_packs + p], &c, 1);
        }
    }
}

static void loop_rows(struct column_build *k)
{
    struct eider_row_build *b = &k->b;
    LLVMBuilderRef ir = b->e->builder;
    int n = k->n_sums * b->n_packs, n_carried = 0;
    LLVMValueRef *carried[2 * SUMS_MAX], before[2 * SUMS_MAX], phis[2 * SUMS_MAX];
    for (int i = 0; i < n; i++) {
        carried[n_carried++] = &k->totals[i].value;
        if (k->totals[i].lost) carried[n_carried++] = &k->totals[i].lost;
    }
    LLVMValueRef first = LLVMBuildZExt(ir, k->y, b->i64, "");
    LLVMValueRef rows = b->machine->param(b->e, b->slots.rows);
    LLVMBasicBlockRef entry = LLVMGetInsertBlock(ir), loop = eider_row_block(b, "rows");
    LLVMBasicBlockRef after = eider_row_block(b, "added");
    LLVMBuildCondBr(ir, LLVMBuildICmp(ir, LLVMIntULT, first, rows, ""), loop, after);
    LLVMPositionBuilderAtEnd(ir, loop);
    LLVMValueRef at = LLVMBuildPhi(ir, b->i64, "");
    for (int i = 0; i < n_carried; i++) {
        before[i] = *carried[i];
        *carried[i] = phis[i] = LLVMBuildPhi(ir, LLVMTypeOf(before[i]), "");
    }
    add_rows(k, at);
    if (b->e->status != EIDER_OK) return;
    int64_t step = (int64_t)n_y(b) * b->c.unroll;
    LLVMValueRef next = LLVMBuildAdd(ir, at, eider_row_number(b->i64, step), "");
    LLVMBasicBlockRef latch = LLVMGetInsertBlock(ir), both[2] = {entry, latch};
    LLVMValueRef again = LLVMBuildICmp(ir, LLVMIntULT, next, rows, "");
    eider_emit_keep_loop(b->e, LLVMBuildCondBr(ir, again, loop, after));
    LLVMValueRef ats[2] = {first, next};
    LLVMAddIncoming(at, ats, both, 2);
    LLVMPositionBuilderAtEnd(ir, after);
    for (int i = 0; i < n_carried; i++) {
        LLVMValueRef ends[2] = {before[i], *carried[i]};
        LLVMAddIncoming(phis[i], ends, both, 2);
        *carried[i] = LLVMBuildPhi(ir, LLVMTypeOf(before[i]), "");
        LLVMAddIncoming(*carried[i], ends, both, 2);
    }
}

/* ---- The threads that have the same columns --------------------------------------- */

/* Where thread number `y` leaves element `e` of its vector. */
static LLVMValueRef slot(struct column_build *k, LLVMValueRef y, int e)
{
    struct eider_row_build *b = &k->b;
    LLVMBuilderRef ir = b->e->builder;
    LLVMValueRef at = LLVMBuildMul(ir, y, eider_row_number(b->i32, b->c.row), "");
    at = LLVMBuildAdd(ir, at, b->thread, "");
    at = LLVMBuildMul(ir, at, eider_row_number(b->i32, (int64_t)b->c.vec * SLOT_BYTES), "");
    at = LLVMBuildAdd(ir, at, eider_row_number(b->i32, (int64_t)e * SLOT_BYTES), "");
    return LLVMBuildInBoundsGEP2(ir, b->i8, b->shared, &at, 1, "");
}

static void leave(struct column_build *k, const struct eider_row_total *totals)
{
    struct eider_row_build *b = &k->b;
    for (int e = 0; e < b->c.vec; e++) {
        LLVMValueRef v = totals[e / b->width].value;
        if (b->width > 1)
            v = LLVMBuildExtractElement(b->e->builder, v, eider_row_number(b->i32, e % b->width),
                                        "");
        LLVMSetAlignment(LLVMBuildStore(b->e->builder, v, slot(k, k->y, e)), SLOT_BYTES);
    }
}

/* The sum of element `e` over all threads, by halves. */
static LLVMValueRef gather(struct column_build *k, const struct eider_row_total *t, int e)
{
    struct eider_row_build *b = &k->b;
    LLVMTypeRef type = LLVMTypeOf(t->value);
    LLVMValueRef v[1024];
    int n = n_y(b);
    if (b->width > 1) type = LLVMGetElementType(type);
    for (int y = 0; y < n; y++) {
        v[y] = LLVMBuildLoad2(b->e->builder, type, slot(k, eider_row_number(b->i32, y), e), "");
        LLVMSetAlignment(v[y], SLOT_BYTES);
    }
    for (int step = 1; step < n; step *= 2)
        for (int y = 0; y + step < n; y += 2 * step)
            v[y] = eider_row_total_two(b, t, v[y], v[y + step]);
    return v[0];
}

/* Every sum in turn, through the same memory; what the threads other than the first get is not
 * used. */
static void combine(struct column_build *k)
{
    struct eider_row_build *b = &k->b;
    LLVMBuilderRef ir = b->e->builder;
    if (n_y(b) == 1) return;
    for (int i = 0; i < k->n_sums; i++) {
        struct eider_row_total *totals = &k->totals[i * b->n_packs];
        if (i) b->machine->barrier(b->e);
        leave(k, totals);
        b->machine->barrier(b->e);
        for (int p = 0; p < b->n_packs; p++) {
            LLVMValueRef pack = LLVMGetUndef(LLVMTypeOf(totals[p].value));
            for (int lane = 0; lane < b->width; lane++) {
                LLVMValueRef v = gather(k, &totals[p], p * b->width + lane);
                pack = b->width == 1 ? v
                                     : LLVMBuildInsertElement(ir, pack, v,
                                                              eider_row_number(b->i32, lane), "");
            }
            totals[p].value = pack;
        }
    }
}

/* ---- The outputs ------------------------------------------------------------------- */

/* Casts of sums, and what machine->store expects. */
static void finish_pack(struct column_build *k, struct eider_row_context *c, int p)
{
    struct eider_row_build *b = &k->b;
    const struct eider_graph *g = b->program->graph;
    memset(c->values, 0, g->n_cells * sizeof *c->values);
    for (int i = 0; i < k->n_sums; i++) {
        const struct eider_row_total *t = &k->totals[i * b->n_packs + p];
        c->values[t->node] = t->value;
    }
    b->lowering.values = c->values;
    b->lowering.in = c->in;
    b->e->width = b->width;
    for (eider_node id = 1; id < g->n_cells && b->e->status == EIDER_OK; id++) {
        int is_cast = g->cells[id].op == EIDER_OP_cast || g->cells[id].op == EIDER_OP_cast_nan;
        if (b->plan.live[id] && is_cast && c->values[eider_graph_args(g, id)[0]])
            c->values[id] = eider_lowering_node(&b->lowering, id);
    }
    for (uint32_t i = 0; i < g->n_operands && b->e->status == EIDER_OK; i++)
        if (g->operands[i].kind == EIDER_OUTPUT) c->in[i] = eider_lowering_output(&b->lowering, i);
}

static void store(struct column_build *k)
{
    struct eider_row_build *b = &k->b;
    LLVMBuilderRef ir = b->e->builder;
    LLVMBasicBlockRef first = eider_row_block(b, "results"), after = eider_row_block(b, "end");
    LLVMValueRef is_first = LLVMBuildICmp(ir, LLVMIntEQ, k->y, eider_row_number(b->i32, 0), "");
    LLVMBuildCondBr(ir, is_first, first, after);
    LLVMPositionBuilderAtEnd(ir, first);
    eider_row_locate(b, eider_row_number(b->i64, 0));
    eider_row_place(b, k->vectors, 1, eider_row_number(b->i32, 0), EIDER_ROW_ANYWHERE);
    for (int p = 0; p < b->n_packs && b->e->status == EIDER_OK; p++)
        finish_pack(k, &k->vectors[0].packs[p], p);
    if (b->e->status == EIDER_OK) eider_row_store(b, &k->vectors[0]);
    LLVMBuildBr(ir, after);
    LLVMPositionBuilderAtEnd(ir, after);
}

/* ---- The kernel ---------------------------------------------------------------------- */

static void locate_thread(struct column_build *k)
{
    struct eider_row_build *b = &k->b;
    LLVMBuilderRef ir = b->e->builder;
    LLVMValueRef thread = b->machine->thread_index(b->e);
    LLVMValueRef block = LLVMBuildTrunc(ir, b->machine->block_index(b->e), b->i32, "");
    b->thread = LLVMBuildAnd(ir, thread, eider_row_number(b->i32, b->c.row - 1), "");
    k->y = LLVMBuildUDiv(ir, thread, eider_row_number(b->i32, b->c.row), "");
    LLVMValueRef at = LLVMBuildMul(ir, block, eider_row_number(b->i32, b->c.row), "");
    at = LLVMBuildAdd(ir, at, b->thread, "");
    b->first = LLVMBuildMul(ir, at, eider_row_number(b->i32, b->c.vec), "");
}

static void build_kernel(struct column_build *k, const char *name)
{
    struct eider_row_build *b = &k->b;
    uint32_t shared = n_y(b) > 1 ? (uint32_t)(b->c.block * b->c.vec * SLOT_BYTES) : 0;
    k->need = eider_row_alloc(b, b->program->graph->n_cells, 1);
    k->ones = eider_row_alloc(b, (size_t)b->c.unroll, sizeof *k->ones);
    k->vectors = eider_row_vectors(b, b->c.unroll);
    for (int u = 0; u < b->c.unroll && b->e->status == EIDER_OK; u++)
        k->ones[u] = eider_row_context(b, 1);
    if (b->e->status != EIDER_OK || !eider_row_begin(b, name, shared)) return;
    if (b->e->status == EIDER_OK) {
        locate_thread(k);
        eider_row_read_flags(b);
        list_sums(k);
        if (b->e->status == EIDER_OK) loop_rows(k);
        for (int i = 0; i < k->n_sums * b->n_packs && b->e->status == EIDER_OK; i++)
            eider_row_total_close(b, &k->totals[i]);
        if (b->e->status == EIDER_OK) combine(k);
        if (b->e->status == EIDER_OK) store(k);
    }
    b->machine->kernel_end(b->e);
}

static void column_build(struct eider_emit *e, const struct eider_lowered *program,
                         const struct eider_layout *layout, const struct eider_config *config,
                         const char *name)
{
    struct column_build k = {.b = {.e = e,
                                   .machine = e->machine,
                                   .program = program,
                                   .layout = layout,
                                   .c = eider_row_config_of(config),
                                   .lowering = {.e = e}}};
    e->status = eider_row_open(&k.b);
    if (e->status == EIDER_OK) build_kernel(&k, name);
    eider_row_close(&k.b);
}

/* ---- Configs ---------------------------------------------------------------------------- */

static int widest(const struct eider_layout *layout)
{
    int bytes = 1;
    for (uint32_t i = 0; i < layout->n_operands; i++) {
        int size = (int)eider_dtype_size(layout->operands[i].type);
        int in_row = layout->operands[i].stride_class[layout->rank - 1] == 1;
        if (layout->operands[i].kind != EIDER_SCALAR && in_row && size > bytes) bytes = size;
    }
    return bytes;
}

static void choose(struct eider_config *config, enum eider_param param, int rule)
{
    if (config->choice[param] < 0) eider_config_set_number(config, param, rule);
}

/* As many blocks as leave 128 bytes side by side to each. */
static void column_defaults(const struct eider_layout *layout,
                            const struct eider_device_facts *facts, struct eider_config *config)
{
    int bytes = widest(layout), gpu = facts->target.sm != 0;
    int vec = gpu ? 8 / bytes : 16;
    while (vec > 1 && vec > layout->vec_max) vec /= 2;
    choose(config, EIDER_PARAM_vec, vec > 0 ? vec : 1);
    choose(config, EIDER_PARAM_block, gpu ? 512 : 1);
    choose(config, EIDER_PARAM_row, gpu ? 16 : 1);
    choose(config, EIDER_PARAM_unroll, gpu ? 4 : 1);
    if (config->choice[EIDER_PARAM_load] < 0) eider_config_set(config, EIDER_PARAM_load, "ca");
    if (config->choice[EIDER_PARAM_store] < 0) eider_config_set(config, EIDER_PARAM_store, "wb");
}

static void column_space(const struct eider_layout *layout, struct eider_target target,
                         const struct eider_config *rule, struct eider_text *out)
{
    struct eider_row_config c = eider_row_config_of(rule);
    int vec = c.vec > 1 ? c.vec / 2 : 1, row = c.row > 1 ? c.row / 2 : 1;
    int block = c.block >= 2 * EIDER_ROW_WARP ? c.block / 2 : c.block;
    (void)layout;
    if (target.sm)
        eider_text_add(out,
                       "vec=%d|%d|%d,row=%d|%d|%d,block=%d|%d|%d,unroll=2|4|8,load=ca|cs|nc,"
                       "store=wb\n",
                       vec, 2 * vec, 4 * vec, row, 2 * row, 4 * row, block, 2 * block, 4 * block);
    else
        eider_text_add(out, "vec=%d|%d|%d,row=1,block=1,unroll=1|2|4\n", vec, 2 * vec, 4 * vec);
}

static eider_status column_check(const struct eider_layout *layout, struct eider_target target,
                                 const struct eider_config *config)
{
    struct eider_row_config c = eider_row_config_of(config);
    EIDER_TRY(eider_row_check(layout, target, config));
    int shared = c.block > c.row ? c.block * c.vec * SLOT_BYTES : 0;
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
    .uses = USES(vec) | USES(unroll) | USES(block) | USES(load) | USES(store) | USES(row),
    .takes = column_takes,
    .layout = column_layout,
    .defaults = column_defaults,
    .space = column_space,
    .check = column_check,
    .fibers = column_fibers,
    .build = column_build,
    .bind = eider_column_bind,
    .pass = column_pass,
    .bytes = eider_row_bytes,
    .describe = eider_row_describe,
};
