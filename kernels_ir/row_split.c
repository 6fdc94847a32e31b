/* row_split.c -- the IR of rows that are cut into parts, each of a block anywhere on the GPU.
 *
 * A kernel is launched in rounds.  Round k < n_stages ends stage k: every block leaves the totals
 * of its part of the row in memory.  The last round stores the outputs.  In every round a block
 * first takes what earlier ones have left, of all parts of its row, always in the same order.
 *
 * What the row as a whole reads from memory (picks, inputs of one value per row) is left there by
 * the round in which it becomes known, because the last round may overwrite it.  Where it becomes
 * known only after the last stage and the last round would overwrite it, there is one more round
 * before that, for nothing else.
 *
 * Invariants: no block waits for another; each slot of memory is written by one thread and read in
 * later rounds only; a row's result depends on the row and the config, not on other rows.
 */
#include "ops.h"
#include "pack.h"
#include "row.h"

/* ---- What is left --------------------------------------------------------------- */

/* Outputs with an element for every place, or others. */
static int has_outputs(const struct eider_layout *layout, int is_full)
{
    int any = 0;
    for (uint32_t i = 0; i < layout->n_operands; i++)
        any |= layout->operands[i].kind == EIDER_OUTPUT &&
               eider_row_is_full_output(layout, i) == is_full;
    return any;
}

/* The row as a whole reads it from memory. */
static int is_read(const struct eider_graph *g, const struct eider_row_plan *plan, eider_node id)
{
    enum eider_op op = (enum eider_op)g->cells[id].op;
    return plan->live[id] && !plan->varies[id] && (op == EIDER_OP_pick || op == EIDER_OP_input);
}

static int is_total(const struct eider_graph *g, const struct eider_row_plan *plan, eider_node id)
{
    return plan->live[id] && eider_ops_reduces((enum eider_op)g->cells[id].op);
}

/* Whether something is read after the last stage that outputs may overwrite meanwhile: a full one
 * what is picked, one per row an input of one value per row. */
static int reads_late(const struct eider_graph *g, const struct eider_row_plan *plan,
                      const struct eider_layout *layout)
{
    int per_row = has_outputs(layout, 0), any = 0;
    for (eider_node id = 1; id < g->n_cells; id++)
        any |= is_read(g, plan, id) && plan->level[id] == plan->n_stages &&
               (per_row || g->cells[id].op == EIDER_OP_pick);
    return any && has_outputs(layout, 1);
}

static uint32_t count_rounds(const struct eider_graph *g, const struct eider_row_plan *plan,
                             const struct eider_layout *layout)
{
    return plan->n_stages + (uint32_t)reads_late(g, plan, layout) + 1;
}

/* Slots of a row: those of totals, one for each part, and of values. */
static int64_t slots_before(const struct eider_row_build *b, eider_node end)
{
    const struct eider_graph *g = eider_row_graph(b);
    int64_t n = 0;
    for (eider_node id = 1; id < end; id++) {
        if (is_total(g, &b->plan, id)) n += (int64_t)b->c.split * eider_row_total_members(b, id);
        n += is_read(g, &b->plan, id);
    }
    return n;
}

static int64_t slots_of(const struct eider_row_build *b)
{
    return slots_before(b, eider_row_graph(b)->n_cells);
}

eider_status eider_row_rounds(const struct eider_lowered *program,
                              const struct eider_layout *layout, const struct eider_config *config,
                              struct eider_rounds *out)
{
    uint8_t in_row[EIDER_OPERANDS_MAX];
    struct eider_row_build b = {
        .program = program, .layout = layout, .c = eider_row_config_of(config)};
    *out = (struct eider_rounds){.n = 1, .last_share = 1};
    if (b.c.split == 1) return EIDER_OK;
    eider_row_differing(layout, in_row);
    EIDER_TRY(
        eider_row_plan_create(program, in_row, eider_row_online_kinds(layout, &b.c), &b.plan));
    out->n = count_rounds(program->graph, &b.plan, layout);
    if (out->n > 1) out->unit_bytes = (uint64_t)slots_of(&b) * EIDER_ROW_SLOT_BYTES;
    if (!has_outputs(layout, 1)) out->last_share = (uint32_t)b.c.split;
    eider_row_plan_release(&program->graph->allocator, &b.plan);
    return EIDER_OK;
}

/* ---- Parts ------------------------------------------------------------------------- */

void eider_row_number_parts(struct eider_row_build *b)
{
    LLVMBuilderRef ir = b->e->builder;
    LLVMValueRef block = b->machine->block_index(b->e);
    uint32_t n_rounds = count_rounds(eider_row_graph(b), &b->plan, b->layout);
    int bits = __builtin_ctz((unsigned)b->c.split);
    LLVMValueRef number = LLVMBuildTrunc(ir, block, b->i32, "");
    b->part = LLVMBuildAnd(ir, number, eider_row_number(b->i32, b->c.split - 1), "");
    b->own = LLVMBuildLShr(ir, block, eider_row_number(b->i64, bits), "");
    if (has_outputs(b->layout, 1)) return;
    LLVMValueRef last = eider_row_number(b->i32, n_rounds - 1);
    last = LLVMBuildICmp(ir, LLVMIntEQ, eider_row_param(b, b->slots.round), last, "");
    b->own = LLVMBuildSelect(ir, last, block, b->own, "");
    b->part = LLVMBuildSelect(ir, last, eider_row_number(b->i32, 0), b->part, "");
}

/* ---- Slots ------------------------------------------------------------------------- */

/* The slot `number` of the row, and `further` (i32, or NULL) slots behind it. */
static LLVMValueRef slot(struct eider_row_build *b, int64_t number, LLVMValueRef further)
{
    LLVMBuilderRef ir = b->e->builder;
    LLVMValueRef at = eider_row_number(b->i64, slots_of(b));
    at = LLVMBuildMul(ir, b->row_number, at, "");
    at = LLVMBuildAdd(ir, at, eider_row_number(b->i64, number), "");
    if (further) at = LLVMBuildAdd(ir, at, LLVMBuildZExt(ir, further, b->i64, ""), "");
    at = LLVMBuildMul(ir, at, eider_row_number(b->i64, EIDER_ROW_SLOT_BYTES), "");
    return LLVMBuildGEP2(ir, b->i8, b->memory, &at, 1, "");
}

/* Where part `part` has the members of a total, and behind them its largest value, of a sum of
 * powers. */
static void slots_of_total(struct eider_row_build *b, const struct eider_row_total *t,
                           LLVMValueRef part, LLVMValueRef out[2])
{
    int64_t first = slots_before(b, t->node);
    for (int k = 0; k < eider_row_total_members(b, t->node); k++)
        out[k] = slot(b, first + k * b->c.split, part);
    if (t->top) out[1] = slot(b, slots_before(b, t->top->node), part);
}

static LLVMValueRef is_zero(struct eider_row_build *b, LLVMValueRef number)
{
    return LLVMBuildICmp(b->e->builder, LLVMIntEQ, number, eider_row_number(b->i32, 0), "");
}

/* ---- Totals ------------------------------------------------------------------------ */

/* One thread of each part. */
static void leave_totals(struct eider_row_build *b, const struct eider_row_stage *s)
{
    LLVMBasicBlockRef after = eider_row_where(b, is_zero(b, b->machine->thread_index(b->e)));
    for (int i = 0; i < s->n; i++) {
        LLVMValueRef to[2];
        slots_of_total(b, &s->totals[i], b->part, to);
        eider_lines_set(b->e, EIDER_LINE_NODE, s->totals[i].node);
        eider_row_total_leave(b, &s->totals[i], to);
        eider_lines_set(b->e, EIDER_LINE_ADDRESS, 0);
    }
    eider_row_end_where(b, after);
}

/* Sums of powers, or all others. */
static void join_part(struct eider_row_build *b, struct eider_row_stage *s, int powers,
                      LLVMValueRef part, LLVMValueRef exists)
{
    for (int i = 0; i < s->n && b->e->status == EIDER_OK; i++) {
        LLVMValueRef from[2];
        if ((s->totals[i].top != NULL) != powers) continue;
        slots_of_total(b, &s->totals[i], part, from);
        eider_lines_set(b->e, EIDER_LINE_NODE, s->totals[i].node);
        eider_row_total_join(b, &s->totals[i], from, exists);
        eider_lines_set(b->e, EIDER_LINE_ADDRESS, 0);
    }
}

/* This thread's parts, every so many one; there are more of them than threads. */
static void join_parts(struct eider_row_build *b, struct eider_row_stage *s, int powers,
                       LLVMValueRef own)
{
    LLVMBuilderRef ir = b->e->builder;
    struct eider_row_loop l;
    eider_row_loop_begin(b, &l, s->totals, s->n, own, NULL);
    join_part(b, s, powers, l.at, NULL);
    if (b->e->status != EIDER_OK) return;
    LLVMValueRef next = LLVMBuildAdd(ir, l.at, eider_row_number(b->i32, b->c.row), "");
    LLVMValueRef end = eider_row_number(b->i32, b->c.split);
    eider_row_loop_end(b, &l, next, LLVMBuildICmp(ir, LLVMIntULT, next, end, ""));
}

/* What this thread's parts have left is added up. */
static void join_own(struct eider_row_build *b, struct eider_row_stage *s, int powers)
{
    LLVMBuilderRef ir = b->e->builder;
    LLVMValueRef own = b->machine->thread_index(b->e), exists = NULL;
    if (b->c.row < b->c.split) {
        join_parts(b, s, powers, own);
        return;
    }
    if (b->c.row > b->c.split) {
        exists = LLVMBuildICmp(ir, LLVMIntULT, own, eider_row_number(b->i32, b->c.split), "");
        own = LLVMBuildSelect(ir, exists, own, eider_row_number(b->i32, 0), "");
    }
    join_part(b, s, powers, own, exists);
}

/* What all parts have left of a stage; afterwards b->one has its nodes' values. */
static void take_totals(struct eider_row_build *b, uint32_t stage)
{
    struct eider_row_stage s;
    int powers = 0;
    eider_row_stage_open(b, stage, &s);
    if (b->e->status != EIDER_OK) return;
    b->e->width = 1;
    for (int i = 0; i < s.n; i++) {
        s.totals[i].value = s.totals[i].reference = NULL;
        eider_row_total_loop(b, &s.totals[i]);
        powers |= s.totals[i].top != NULL;
    }
    join_own(b, &s, 0);
    for (int i = 0; i < s.n && b->e->status == EIDER_OK; i++)
        eider_row_online_start(b, &s.totals[i], 1);
    if (powers && b->e->status == EIDER_OK) join_own(b, &s, 1);
    if (b->e->status == EIDER_OK) eider_row_total_end(b, s.totals, s.n);
    b->e->width = b->width;
}

/* ---- Values of the row ---------------------------------------------------------------- */

/* One part's, of those that have become known in this round. */
static void leave_values(struct eider_row_build *b, uint32_t round)
{
    const struct eider_graph *g = eider_row_graph(b);
    LLVMBasicBlockRef after = eider_row_where(b, is_zero(b, b->thread));
    for (eider_node id = 1; id < g->n_cells && b->e->status == EIDER_OK; id++)
        if (is_read(g, &b->plan, id) && b->plan.level[id] == round)
            eider_row_value_put(b, slot(b, slots_before(b, id), NULL), b->one.values[id]);
    eider_row_end_where(b, after);
}

static void take_values(struct eider_row_build *b, uint32_t round)
{
    const struct eider_graph *g = eider_row_graph(b);
    b->e->width = 1;
    for (eider_node id = 1; id < g->n_cells && b->e->status == EIDER_OK; id++) {
        if (!is_read(g, &b->plan, id) || b->plan.level[id] >= round) continue;
        LLVMTypeRef type = eider_emit_type(b->e, (enum eider_vtype)b->program->types[id]);
        b->one.values[id] = eider_row_value_get(b, slot(b, slots_before(b, id), NULL), type);
    }
    b->e->width = b->width;
}

/* ---- Rounds ---------------------------------------------------------------------------- */

static void do_round(struct eider_row_build *b, uint32_t round, int is_last,
                     struct eider_row_vector *rest)
{
    uint32_t level = round < b->plan.n_stages ? round : b->plan.n_stages;
    struct eider_row_stage s;
    eider_row_enter(b);
    if (b->e->status != EIDER_OK) return;
    take_values(b, round);
    for (uint32_t stage = 0; stage < level && b->e->status == EIDER_OK; stage++)
        take_totals(b, stage);
    eider_row_compute_row(b, level);
    if (b->e->status != EIDER_OK) return;
    if (is_last) {
        eider_row_outputs(b, NULL, rest, NULL);
        return;
    }
    leave_values(b, round);
    if (round >= b->plan.n_stages) return;
    eider_row_stage_open(b, round, &s);
    eider_row_stage_pass(b, &s, NULL, rest, NULL);
    if (b->e->status == EIDER_OK) eider_row_total_fold(b, s.totals, s.n);
    if (b->e->status == EIDER_OK) leave_totals(b, &s);
    b->e->width = b->width;
}

void eider_row_do_split(struct eider_row_build *b, struct eider_row_vector *rest)
{
    LLVMBuilderRef ir = b->e->builder;
    uint32_t n = count_rounds(eider_row_graph(b), &b->plan, b->layout);
    LLVMBasicBlockRef last = eider_row_block(b, "outputs"), after = eider_row_block(b, "end");
    LLVMValueRef which = LLVMBuildSwitch(ir, eider_row_param(b, b->slots.round), last, n - 1);
    b->memory = eider_row_param(b, b->slots.memory);
    for (uint32_t round = 0; round < n && b->e->status == EIDER_OK; round++) {
        int is_last = round + 1 == n;
        LLVMBasicBlockRef begin = is_last ? last : eider_row_block(b, "round");
        if (!is_last) LLVMAddCase(which, eider_row_number(b->i32, round), begin);
        LLVMPositionBuilderAtEnd(ir, begin);
        do_round(b, round, is_last, rest);
        LLVMBuildBr(ir, after);
    }
    LLVMPositionBuilderAtEnd(ir, after);
}
