/* column_build.c -- the IR of sums down the rows.
 *
 * `row` threads of a block lie side by side along the rows, with `vec` columns each; the block's
 * other threads have other rows: thread number y of n has rows y, y + n, ..., of which `unroll` are
 * in flight.  Each adds its rows, carrying what rounding loses, and the first one combines what the
 * n have, in order, through shared memory.  Every column belongs to one block, but where split.
 *
 * Where that is too few blocks, `split` of them have the same columns and other rows: the kernel is
 * launched in two rounds, as split rows are.  In the first each block leaves its sums in memory; in
 * the second one block for the same columns adds those of all, in order.
 *
 * Invariant: the order in which rows are added depends on the config and their number alone, so the
 * result is the same run after run; no block waits for another.
 */
#include <string.h>

#include "ops.h"
#include "row.h"

#define UNROLL_MAX 8 /* of params.def */

struct column_build {
    struct eider_row_build b;
    struct eider_row_total totals[EIDER_COLUMN_SUMS_MAX]; /* of each sum, the packs of a vector */
    int n_sums;
    LLVMValueRef part;                /* i32, of the rows, that this block has */
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
        if ((k->n_sums + 1) * b->n_packs > EIDER_COLUMN_SUMS_MAX) {
            eider_emit_fail(b->e, EIDER_CONFIG,
                            "vec=%d: a thread would carry more than %d packs of sums", b->c.vec,
                            EIDER_COLUMN_SUMS_MAX);
            return;
        }
        for (int p = 0; p < b->n_packs; p++)
            k->totals[k->n_sums * b->n_packs + p] = eider_row_total_begin(b, id);
        k->need[eider_graph_args(g, id)[0]] = 1;
        k->n_sums++;
    }
    eider_row_plan_need(g, &b->plan, k->need);
    k->inputs = eider_row_inputs(b, k->need);
}

/* Nothing is in the sums. */
static void begin_sums(struct column_build *k)
{
    struct eider_row_build *b = &k->b;
    for (int i = 0; i < k->n_sums * b->n_packs; i++) {
        k->totals[i] = eider_row_total_begin(b, k->totals[i].node);
        b->e->width = b->width;
        eider_row_total_loop(b, &k->totals[i]);
    }
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

/* Rows from one of a thread to its next. */
static int64_t stride_of(const struct eider_row_build *b)
{
    return (int64_t)n_y(b) * b->c.split;
}

/* What the sums add of these elements, which have the row's values at hand now. */
static void compute_terms(struct column_build *k, struct eider_row_context *c)
{
    struct eider_row_build *b = &k->b;
    eider_row_compute(b, c, k->need);
    for (int i = 0; i < k->n_sums && b->e->status == EIDER_OK; i++)
        eider_row_bring(b, c,
                        eider_graph_args(eider_row_graph(b), k->totals[i * b->n_packs].node)[0]);
}

/* Whether elements of a few rows are added to one another before their sum is: those of 16 bits,
 * and their products, have sums that f32 nearly always holds, and need not be added with care. */
static int adds_rows_first(const struct eider_row_build *b)
{
    for (uint32_t i = 0; i < b->layout->n_operands; i++) {
        const struct eider_layout_operand *operand = &b->layout->operands[i];
        int is_term = operand->kind == EIDER_INPUT && operand->stride_class[b->layout->rank - 1];
        if (is_term && eider_dtype_size(operand->type) > 2) return 0;
    }
    return 1;
}

/* Adds pack `p` of `n` rows from number `u` on to the sums. */
static void add_terms(struct column_build *k, int u, int n, int p)
{
    struct eider_row_build *b = &k->b;
    struct eider_row_context *terms[UNROLL_MAX];
    for (int r = 0; r < n; r++) terms[r] = &k->vectors[u + r].packs[p];
    for (int i = 0; i < k->n_sums && b->e->status == EIDER_OK; i++)
        eider_row_total_add(b, &k->totals[i * b->n_packs + p], terms, n);
}

/* Loads row `at` + u * stride for each row in flight, then adds their elements. */
static void add_rows(struct column_build *k, LLVMValueRef at)
{
    struct eider_row_build *b = &k->b;
    LLVMBuilderRef ir = b->e->builder;
    LLVMValueRef rows = b->machine->param(b->e, b->slots.rows);
    LLVMValueRef exists[UNROLL_MAX], read[UNROLL_MAX];
    LLVMValueRef last = LLVMBuildSub(ir, rows, eider_row_number(b->i64, 1), "");
    for (int u = 0; u < b->c.unroll && b->e->status == EIDER_OK; u++) {
        LLVMValueRef row = LLVMBuildAdd(ir, at, eider_row_number(b->i64, u * stride_of(b)), "");
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
        for (int p = 0; p < b->n_packs && b->e->status == EIDER_OK; p++)
            compute_terms(k, &k->vectors[u].packs[p]);
    }
    int at_once = adds_rows_first(b) ? b->c.unroll : 1;
    for (int u = 0; u < b->c.unroll; u += at_once)
        for (int p = 0; p < b->n_packs; p++) add_terms(k, u, at_once, p);
}

/* What a thread goes through: places, a step apart, that are added to the sums. */
struct series {
    LLVMValueRef first, end; /* i64 */
    int64_t step;
    void (*add)(struct column_build *k, LLVMValueRef at);
};

static void add_series(struct column_build *k, const struct series *series)
{
    struct eider_row_build *b = &k->b;
    LLVMBuilderRef ir = b->e->builder;
    LLVMValueRef any = LLVMBuildICmp(ir, LLVMIntULT, series->first, series->end, "");
    struct eider_row_loop l;
    eider_row_loop_begin(b, &l, k->totals, k->n_sums * b->n_packs, series->first, any);
    series->add(k, l.at);
    if (b->e->status != EIDER_OK) return;
    LLVMValueRef next = LLVMBuildAdd(ir, l.at, eider_row_number(b->i64, series->step), "");
    eider_row_loop_end(b, &l, next, LLVMBuildICmp(ir, LLVMIntULT, next, series->end, ""));
}

static void add_all_rows(struct column_build *k)
{
    struct eider_row_build *b = &k->b;
    LLVMBuilderRef ir = b->e->builder;
    LLVMValueRef first = k->y;
    if (k->part) {
        first = LLVMBuildMul(ir, k->part, eider_row_number(b->i32, n_y(b)), "");
        first = LLVMBuildAdd(ir, first, k->y, "");
    }
    struct series rows = {.first = LLVMBuildZExt(ir, first, b->i64, ""),
                          .end = b->machine->param(b->e, b->slots.rows),
                          .step = stride_of(b) * b->c.unroll,
                          .add = add_rows};
    add_series(k, &rows);
}

/* ---- The blocks that have the same columns ------------------------------------------ */

/* Where part `part` (i64) leaves element `e` of sum `i`: a slot for each column that some thread
 * has, there or not. */
static LLVMValueRef slot_of_part(struct column_build *k, int i, LLVMValueRef part, int e)
{
    struct eider_row_build *b = &k->b;
    LLVMBuilderRef ir = b->e->builder;
    int64_t width = (int64_t)b->c.row * b->c.vec;
    LLVMValueRef blocks = LLVMBuildAdd(ir, b->cols, eider_row_number(b->i32, width - 1), "");
    blocks = LLVMBuildUDiv(ir, blocks, eider_row_number(b->i32, width), "");
    LLVMValueRef columns = LLVMBuildZExt(ir, blocks, b->i64, "");
    columns = LLVMBuildMul(ir, columns, eider_row_number(b->i64, width), "");
    LLVMValueRef at = eider_row_number(b->i64, (int64_t)i * b->c.split);
    at = LLVMBuildMul(ir, LLVMBuildAdd(ir, at, part, ""), columns, "");
    LLVMValueRef column = LLVMBuildZExt(ir, b->first, b->i64, "");
    at = LLVMBuildAdd(ir, at, column, "");
    at = LLVMBuildAdd(ir, at, eider_row_number(b->i64, e), "");
    at = LLVMBuildMul(ir, at, eider_row_number(b->i64, EIDER_ROW_SLOT_BYTES), "");
    return LLVMBuildGEP2(ir, b->i8, b->memory, &at, 1, "");
}

static LLVMValueRef lane_of(struct eider_row_build *b, LLVMValueRef pack, int lane)
{
    if (b->width == 1) return pack;
    return LLVMBuildExtractElement(b->e->builder, pack, eider_row_number(b->i32, lane), "");
}

static LLVMValueRef with_lane(struct eider_row_build *b, LLVMValueRef pack, int lane,
                              LLVMValueRef v)
{
    if (b->width == 1) return v;
    return LLVMBuildInsertElement(b->e->builder, pack, v, eider_row_number(b->i32, lane), "");
}

/* Of those with the same columns, it has the sums in the end. */
static LLVMValueRef is_first_thread(struct column_build *k)
{
    return LLVMBuildICmp(k->b.e->builder, LLVMIntEQ, k->y, eider_row_number(k->b.i32, 0), "");
}

static void leave_parts(struct column_build *k)
{
    struct eider_row_build *b = &k->b;
    LLVMBuilderRef ir = b->e->builder;
    LLVMValueRef part = LLVMBuildZExt(ir, k->part, b->i64, "");
    LLVMBasicBlockRef after = eider_row_where(b, is_first_thread(k));
    for (int i = 0; i < k->n_sums; i++)
        for (int e = 0; e < b->c.vec; e++) {
            LLVMValueRef pack = k->totals[i * b->n_packs + e / b->width].value;
            eider_row_value_put(b, slot_of_part(k, i, part, e), lane_of(b, pack, e % b->width));
        }
    eider_row_end_where(b, after);
}

/* Adds what part `at` has left. */
static void add_part(struct column_build *k, LLVMValueRef at)
{
    struct eider_row_build *b = &k->b;
    for (int i = 0; i < k->n_sums; i++)
        for (int p = 0; p < b->n_packs; p++) {
            struct eider_row_total *t = &k->totals[i * b->n_packs + p];
            LLVMTypeRef type = LLVMTypeOf(t->value);
            LLVMValueRef pack = LLVMGetUndef(type);
            if (b->width > 1) type = LLVMGetElementType(type);
            for (int lane = 0; lane < b->width; lane++) {
                LLVMValueRef from = slot_of_part(k, i, at, p * b->width + lane);
                pack = with_lane(b, pack, lane, eider_row_value_get(b, from, type));
            }
            b->e->width = b->width;
            eider_row_total_more(b, t, pack);
        }
}

static void add_all_parts(struct column_build *k)
{
    struct eider_row_build *b = &k->b;
    struct series parts = {.first = LLVMBuildZExt(b->e->builder, k->y, b->i64, ""),
                           .end = eider_row_number(b->i64, b->c.split),
                           .step = n_y(b),
                           .add = add_part};
    add_series(k, &parts);
}

/* ---- The threads that have the same columns --------------------------------------- */

/* Where thread number `y` leaves element `e` of its vector. */
static LLVMValueRef slot(struct column_build *k, LLVMValueRef y, int e)
{
    struct eider_row_build *b = &k->b;
    LLVMBuilderRef ir = b->e->builder;
    LLVMValueRef at = LLVMBuildMul(ir, y, eider_row_number(b->i32, b->c.row), "");
    at = LLVMBuildAdd(ir, at, b->thread, "");
    at = LLVMBuildMul(ir, at, eider_row_number(b->i32, (int64_t)b->c.vec * EIDER_ROW_SLOT_BYTES),
                      "");
    at = LLVMBuildAdd(ir, at, eider_row_number(b->i32, (int64_t)e * EIDER_ROW_SLOT_BYTES), "");
    return LLVMBuildInBoundsGEP2(ir, b->i8, b->shared, &at, 1, "");
}

static void leave(struct column_build *k, const struct eider_row_total *totals)
{
    struct eider_row_build *b = &k->b;
    for (int e = 0; e < b->c.vec; e++) {
        LLVMValueRef v = lane_of(b, totals[e / b->width].value, e % b->width);
        LLVMSetAlignment(LLVMBuildStore(b->e->builder, v, slot(k, k->y, e)), EIDER_ROW_SLOT_BYTES);
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
        LLVMSetAlignment(v[y], EIDER_ROW_SLOT_BYTES);
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
    if (n_y(b) == 1) return;
    for (int i = 0; i < k->n_sums; i++) {
        struct eider_row_total *totals = &k->totals[i * b->n_packs];
        if (i) b->machine->barrier(b->e);
        leave(k, totals);
        b->machine->barrier(b->e);
        for (int p = 0; p < b->n_packs; p++) {
            LLVMValueRef pack = LLVMGetUndef(LLVMTypeOf(totals[p].value));
            for (int lane = 0; lane < b->width; lane++)
                pack = with_lane(b, pack, lane, gather(k, &totals[p], p * b->width + lane));
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
    LLVMBasicBlockRef after = eider_row_where(b, is_first_thread(k));
    eider_row_locate(b, eider_row_number(b->i64, 0));
    eider_row_place(b, k->vectors, 1, eider_row_number(b->i32, 0), EIDER_ROW_ANYWHERE);
    for (int p = 0; p < b->n_packs && b->e->status == EIDER_OK; p++)
        finish_pack(k, &k->vectors[0].packs[p], p);
    if (b->e->status == EIDER_OK) eider_row_store(b, &k->vectors[0]);
    eider_row_end_where(b, after);
}

/* ---- The kernel ---------------------------------------------------------------------- */

/* `is_first`: of the two rounds of a split kernel. */
static void locate_thread(struct column_build *k, int is_first)
{
    struct eider_row_build *b = &k->b;
    LLVMBuilderRef ir = b->e->builder;
    LLVMValueRef thread = b->machine->thread_index(b->e);
    LLVMValueRef block = LLVMBuildTrunc(ir, b->machine->block_index(b->e), b->i32, "");
    if (is_first) {
        LLVMValueRef parts = eider_row_number(b->i32, b->c.split);
        k->part = LLVMBuildURem(ir, block, parts, "");
        block = LLVMBuildUDiv(ir, block, parts, "");
    }
    b->thread = LLVMBuildAnd(ir, thread, eider_row_number(b->i32, b->c.row - 1), "");
    k->y = LLVMBuildUDiv(ir, thread, eider_row_number(b->i32, b->c.row), "");
    LLVMValueRef at = LLVMBuildMul(ir, block, eider_row_number(b->i32, b->c.row), "");
    at = LLVMBuildAdd(ir, at, b->thread, "");
    b->first = LLVMBuildMul(ir, at, eider_row_number(b->i32, b->c.vec), "");
}

/* Adds all that the series has, of all threads with the same columns. */
static void add_up(struct column_build *k, void (*add_all)(struct column_build *))
{
    struct eider_row_build *b = &k->b;
    begin_sums(k);
    if (b->e->status == EIDER_OK) add_all(k);
    for (int i = 0; i < k->n_sums * b->n_packs && b->e->status == EIDER_OK; i++)
        eider_row_total_close(b, &k->totals[i]);
    if (b->e->status == EIDER_OK) combine(k);
}

static void do_rounds(struct column_build *k)
{
    struct eider_row_build *b = &k->b;
    LLVMBuilderRef ir = b->e->builder;
    LLVMBasicBlockRef first = eider_row_block(b, "parts"), last = eider_row_block(b, "outputs");
    LLVMBasicBlockRef after = eider_row_block(b, "both");
    LLVMValueRef round = eider_row_param(b, b->slots.round);
    b->memory = eider_row_param(b, b->slots.memory);
    LLVMBuildCondBr(ir, LLVMBuildICmp(ir, LLVMIntEQ, round, LLVMConstNull(LLVMTypeOf(round)), ""),
                    first, last);
    LLVMPositionBuilderAtEnd(ir, first);
    locate_thread(k, 1);
    add_up(k, add_all_rows);
    if (b->e->status == EIDER_OK) leave_parts(k);
    LLVMBuildBr(ir, after);
    LLVMPositionBuilderAtEnd(ir, last);
    locate_thread(k, 0);
    add_up(k, add_all_parts);
    if (b->e->status == EIDER_OK) store(k);
    LLVMBuildBr(ir, after);
    LLVMPositionBuilderAtEnd(ir, after);
}

static void do_once(struct column_build *k)
{
    locate_thread(k, 0);
    add_up(k, add_all_rows);
    if (k->b.e->status == EIDER_OK) store(k);
}

static void build_kernel(struct column_build *k, const char *name)
{
    struct eider_row_build *b = &k->b;
    uint32_t shared = n_y(b) > 1 ? (uint32_t)(b->c.block * b->c.vec * EIDER_ROW_SLOT_BYTES) : 0;
    k->need = eider_row_alloc(b, b->program->graph->n_cells, 1);
    k->ones = eider_row_alloc(b, (size_t)b->c.unroll, sizeof *k->ones);
    k->vectors = eider_row_vectors(b, b->c.unroll);
    for (int u = 0; u < b->c.unroll && b->e->status == EIDER_OK; u++)
        k->ones[u] = eider_row_context(b, 1);
    if (b->e->status != EIDER_OK || !eider_row_begin(b, name, shared)) return;
    if (b->e->status == EIDER_OK) {
        eider_row_read_flags(b);
        list_sums(k);
        if (b->e->status == EIDER_OK) (b->c.split > 1 ? do_rounds : do_once)(k);
    }
    b->machine->kernel_end(b->e);
}

void eider_column_build(struct eider_emit *e, const struct eider_lowered *program,
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
