/* row_build.c -- the IR of a row kernel; row.h describes its shape.
 *
 * Invariants: every thread of a block takes part in every exchange and barrier, whether its row
 * exists or not (rows that do not are read as the last one, and not stored); an element is read
 * in all stages before its place in an output is written.
 * Values that a node has in an element stay for later stages, as long as the element does.
 */
#include "row.h"

#include <stdio.h>
#include <string.h>

#include "ops.h"
#include "pack.h"

#define PICK_DEPTH_MAX 16
#define WARP 32
#define ELEMENTS_IN_FLIGHT 2   /* of a thread, where a launch does not allow vectors */
#define SHARED_BYTES_MAX 49152 /* of a block, without asking for more */

static const struct eider_graph *graph_of(const struct eider_row_build *b)
{
    return b->program->graph;
}

static LLVMValueRef param(struct eider_row_build *b, unsigned slot)
{
    return b->machine->param(b->e, slot);
}

LLVMValueRef eider_row_number(LLVMTypeRef type, int64_t value)
{
    return LLVMConstInt(type, (unsigned long long)value, 1);
}

LLVMBasicBlockRef eider_row_block(struct eider_row_build *b, const char *name)
{
    return LLVMAppendBasicBlockInContext(b->e->context, b->e->function, name);
}

void *eider_row_alloc(struct eider_row_build *b, size_t n, size_t size)
{
    void *memory = b->e->status == EIDER_OK ? eider_arena_alloc(&b->arena, n * size + 1) : NULL;
    if (!memory && b->e->status == EIDER_OK) b->e->status = EIDER_OOM;
    return memory;
}

LLVMValueRef eider_row_spread(struct eider_row_build *b, LLVMValueRef scalar, int width)
{
    if (width == 1) return scalar;
    LLVMTypeRef type = LLVMVectorType(LLVMTypeOf(scalar), (unsigned)width);
    LLVMValueRef undef = LLVMGetUndef(type);
    LLVMValueRef first =
        LLVMBuildInsertElement(b->e->builder, undef, scalar, eider_row_number(b->i32, 0), "");
    LLVMValueRef lanes = LLVMConstNull(LLVMVectorType(b->i32, (unsigned)width));
    return LLVMBuildShuffleVector(b->e->builder, first, undef, lanes, "");
}

/* ---- Nodes ------------------------------------------------------------------ */

static int is_literal(const struct eider_cell *cell)
{
    return cell->op == EIDER_OP_number || cell->op == EIDER_OP_integer;
}

/* Sees to it that the context has the value of a node that is known. */
static void bring(struct eider_row_build *b, struct eider_row_context *c, eider_node node)
{
    if (b->e->status != EIDER_OK) return;
    if (c->values[node] || is_literal(&graph_of(b)->cells[node])) return;
    LLVMValueRef one = b->one.values[node];
    if (!one) {
        eider_emit_fail(b->e, EIDER_CODEGEN, "%s is not known yet",
                        eider_ops[graph_of(b)->cells[node].op].name);
        return;
    }
    c->values[node] = eider_row_spread(b, one, c->width);
}

LLVMValueRef eider_row_value(struct eider_row_build *b, struct eider_row_context *c,
                             eider_node node, enum eider_vtype type)
{
    bring(b, c, node);
    b->lowering.values = c->values;
    b->e->width = c->width;
    if (b->e->status != EIDER_OK) return LLVMGetUndef(eider_emit_type(b->e, type));
    return eider_lowering_as(&b->lowering, node, type);
}

static void lower_in(struct eider_row_build *b, struct eider_row_context *c, eider_node id);

struct eider_row_context eider_row_context(struct eider_row_build *b, int width)
{
    struct eider_row_context c = {.width = width};
    c.values = eider_row_alloc(b, graph_of(b)->n_cells, sizeof *c.values);
    c.in = eider_row_alloc(b, EIDER_OPERANDS_MAX, sizeof *c.in);
    return c;
}

void eider_row_compute(struct eider_row_build *b, struct eider_row_context *c, const uint8_t *need)
{
    for (eider_node id = 1; id < graph_of(b)->n_cells && b->e->status == EIDER_OK; id++)
        if (need[id] && !c->values[id] && !is_literal(&graph_of(b)->cells[id])) lower_in(b, c, id);
}

/* What is picked outside of the row. */
static LLVMValueRef outside(struct eider_row_build *b, LLVMTypeRef type)
{
    enum eider_vtype v =
        (LLVMGetTypeKind(type) == LLVMVectorTypeKind ? LLVMGetElementType(type) : type) ==
                LLVMFloatTypeInContext(b->e->context)
            ? EIDER_V_F32
            : EIDER_V_NONE;
    LLVMTypeRef one = LLVMGetTypeKind(type) == LLVMVectorTypeKind ? LLVMGetElementType(type) : type;
    if (v == EIDER_V_F32 || one == LLVMDoubleTypeInContext(b->e->context))
        return eider_emit_real(type, __builtin_nan(""));
    return LLVMConstNull(type);
}

/* The inputs that differ within the row, of the nodes that are set. */
uint64_t eider_row_inputs(const struct eider_row_build *b, const uint8_t *nodes)
{
    uint64_t which = 0;
    for (uint32_t i = 0; i < b->layout->n_operands; i++) {
        eider_node leaf = graph_of(b)->operands[i].node;
        int is_input = b->layout->operands[i].kind == EIDER_INPUT;
        if (is_input && b->plan.varies[leaf] && nodes[leaf]) which |= (uint64_t)1 << i;
    }
    return which;
}

/* Those of which every row reads the same elements. */
static uint64_t shared_inputs(const struct eider_row_build *b)
{
    uint64_t which = 0;
    for (uint32_t i = 0; i < b->layout->n_operands; i++) {
        if (eider_row_shares(b->layout, i)) which |= (uint64_t)1 << i;
    }
    return which;
}

/* The value that the element at c->col has of a node that differs within the row. */
static LLVMValueRef value_there(struct eider_row_build *b, LLVMValueRef cols, int width,
                                eider_node node)
{
    struct eider_row_context there = eider_row_context(b, width);
    uint8_t *need = eider_row_alloc(b, graph_of(b)->n_cells, 1);
    if (b->e->status != EIDER_OK) return NULL;
    there.col = cols;
    need[node] = 1;
    eider_row_plan_need(graph_of(b), &b->plan, need);
    b->e->width = width;
    eider_row_load_at(b, &there, eider_row_inputs(b, need));
    eider_row_compute(b, &there, need);
    return eider_row_value(b, &there, node, (enum eider_vtype)b->program->types[node]);
}

static LLVMValueRef pick(struct eider_row_build *b, struct eider_row_context *c, eider_node id)
{
    LLVMBuilderRef ir = b->e->builder;
    const eider_node *args = eider_graph_args(graph_of(b), id);
    LLVMValueRef place = eider_row_value(b, c, args[1], EIDER_V_I64);
    LLVMTypeRef type = LLVMTypeOf(place);
    LLVMValueRef cols = LLVMBuildZExt(ir, b->cols, b->i64, "");
    LLVMValueRef inside =
        LLVMBuildICmp(ir, LLVMIntULT, place, eider_row_spread(b, cols, c->width), "");
    if (b->faults) eider_row_fault(b, c, id, place, inside);
    place = LLVMBuildSelect(ir, inside, place, LLVMConstNull(type), "");
    place = LLVMBuildTrunc(ir, place, eider_emit_type(b->e, EIDER_V_I32), "");
    enum eider_vtype v = (enum eider_vtype)b->program->types[args[0]];
    if (++b->depth > PICK_DEPTH_MAX)
        return eider_emit_fail(b->e, EIDER_TOO_LARGE, "pick within pick, more than %d deep",
                               PICK_DEPTH_MAX);
    LLVMValueRef value = b->plan.varies[args[0]] ? value_there(b, place, c->width, args[0])
                                                 : eider_row_value(b, c, args[0], v);
    b->depth--;
    if (b->e->status != EIDER_OK) return NULL;
    return LLVMBuildSelect(ir, inside, value, outside(b, LLVMTypeOf(value)), "");
}

static void lower_in(struct eider_row_build *b, struct eider_row_context *c, eider_node id)
{
    const struct eider_cell *cell = &graph_of(b)->cells[id];
    const eider_node *args = eider_graph_args(graph_of(b), id);
    b->e->width = c->width;
    eider_lines_set(b->e, EIDER_LINE_NODE, id);
    switch (cell->op) {
    case EIDER_OP_row:
        c->values[id] = b->row_number;
        break;
    case EIDER_OP_cols:
        c->values[id] = b->cols;
        break;
    case EIDER_OP_col:
        c->values[id] = c->col;
        break;
    case EIDER_OP_pick:
        c->values[id] = pick(b, c, id);
        break;
    default:
        for (uint32_t k = 0; k < cell->n_args; k++) bring(b, c, args[k]);
        b->lowering.values = c->values;
        b->lowering.in = c->in;
        if (b->e->status == EIDER_OK) c->values[id] = eider_lowering_node(&b->lowering, id);
        break;
    }
    eider_lines_set(b->e, EIDER_LINE_ADDRESS, 0);
}

/* What is the same for the whole row and known once `level` stages are done. */
void eider_row_compute_row(struct eider_row_build *b, uint32_t level)
{
    const struct eider_graph *g = graph_of(b);
    for (eider_node id = 1; id < g->n_cells && b->e->status == EIDER_OK; id++) {
        enum eider_op op = (enum eider_op)g->cells[id].op;
        if (!b->plan.live[id] || b->plan.varies[id] || b->plan.level[id] > level) continue;
        if (b->one.values[id] || eider_ops_reduces(op) || is_literal(&g->cells[id])) continue;
        lower_in(b, &b->one, id);
    }
    b->e->width = b->width;
}

/* ---- Vectors of a thread ------------------------------------------------------ */

/* `base` + step * k in every lane k of a pack. */
static LLVMValueRef steps(const struct eider_row_build *b, int64_t base, int64_t step)
{
    LLVMValueRef lanes[64];
    for (int lane = 0; lane < b->width; lane++)
        lanes[lane] = eider_row_number(b->i32, base + step * lane);
    return b->width == 1 ? lanes[0] : LLVMConstVector(lanes, (unsigned)b->width);
}

/* Which ends of the row may lie within a vector. */
struct ends {
    int start, end;
};

static void place_ends(struct eider_row_build *b, struct eider_row_vector *v, struct ends ends)
{
    LLVMBuilderRef ir = b->e->builder;
    v->begins = v->whole = v->part = NULL;
    if (ends.end)
        v->begins = LLVMBuildICmp(ir, b->shift ? LLVMIntSLT : LLVMIntULT, v->col, b->cols, "");
    if (!b->ragged || (!ends.start && !ends.end)) {
        v->whole = v->begins;
        return;
    }
    LLVMValueRef zero = eider_row_number(b->i32, 0);
    LLVMValueRef last = eider_row_number(b->i32, b->layout->length - b->c.vec + 1);
    if (ends.end)
        v->whole = LLVMBuildICmp(ir, ends.start ? LLVMIntULT : LLVMIntSLT, v->col, last, "");
    else
        v->whole = LLVMBuildICmp(ir, LLVMIntSGE, v->col, zero, "");
    v->part = LLVMBuildNot(ir, v->whole, "");
    if (v->begins) v->part = LLVMBuildAnd(ir, v->part, v->begins, "");
}

/* Which elements of the vector's pack `p` are in the row; one comparison each with a constant
 * where only one end of the row is near. */
static LLVMValueRef valid_of(struct eider_row_build *b, const struct eider_row_vector *v, int p,
                             struct ends ends)
{
    LLVMBuilderRef ir = b->e->builder;
    int64_t length = b->layout->length, k = (int64_t)p * b->width;
    if (length && !b->ragged) return eider_row_spread(b, v->whole, b->width);
    if (!length || (ends.start && ends.end))
        return LLVMBuildICmp(ir, LLVMIntULT, v->packs[p].col,
                             eider_row_spread(b, b->cols, b->width), "");
    LLVMValueRef first = eider_row_spread(b, v->col, b->width);
    return ends.end ? LLVMBuildICmp(ir, LLVMIntSLT, first, steps(b, length - k, -1), "")
                    : LLVMBuildICmp(ir, LLVMIntSGE, first, steps(b, -k, -1), "");
}

/* `v->col` as the place of the first element, of a thread's vector, which is at least `from` where
 * nothing is shifted, and the last one's is below `beyond`. */
static void place_vector(struct eider_row_build *b, struct eider_row_vector *v, int64_t from,
                         int64_t beyond)
{
    LLVMBuilderRef ir = b->e->builder;
    int64_t length = b->layout->length;
    struct ends ends = {.start = b->shift && from <= 0, .end = !length || beyond > length};
    place_ends(b, v, ends);
    for (int p = 0; p < b->n_packs; p++) {
        struct eider_row_context *c = &v->packs[p];
        LLVMValueRef step = steps(b, (int64_t)p * b->width, 1);
        c->col = LLVMBuildAdd(ir, eider_row_spread(b, v->col, b->width), step, "");
        c->valid = v->whole ? valid_of(b, v, p, ends) : NULL;
    }
}

struct eider_row_vector *eider_row_vectors(struct eider_row_build *b, int n)
{
    struct eider_row_vector *vectors = eider_row_alloc(b, (size_t)n, sizeof *vectors);
    for (int v = 0; v < n && b->e->status == EIDER_OK; v++) {
        vectors[v].packs = eider_row_alloc(b, (size_t)b->n_packs, sizeof *vectors[v].packs);
        for (int p = 0; p < b->n_packs && b->e->status == EIDER_OK; p++)
            vectors[v].packs[p] = eider_row_context(b, b->width);
    }
    return vectors;
}

/* The places of `n` vectors of this thread, the first `from` elements into the row. */
void eider_row_place(struct eider_row_build *b, struct eider_row_vector *vectors, int n,
                     LLVMValueRef from, int64_t from_at_most)
{
    int64_t step = (int64_t)eider_row_threads(&b->c) * b->c.vec;
    LLVMBuilderRef ir = b->e->builder;
    LLVMValueRef wide = LLVMBuildZExt(ir, from, b->i64, "");
    LLVMValueRef mine = LLVMBuildAdd(ir, b->first, from, "");
    for (int v = 0; v < n; v++) {
        vectors[v].col = LLVMBuildAdd(ir, mine, eider_row_number(b->i32, v * step), "");
        vectors[v].at = LLVMBuildAdd(ir, wide, eider_row_number(b->i64, v * step), "");
        place_vector(b, &vectors[v], from_at_most < 0 ? 0 : from_at_most + v * step,
                     from_at_most < 0 ? INT64_MAX : from_at_most + (v + 1) * step);
    }
}

void eider_row_forget(struct eider_row_build *b, struct eider_row_vector *vectors, int n)
{
    for (int v = 0; v < n; v++)
        for (int p = 0; p < b->n_packs; p++)
            memset(vectors[v].packs[p].values, 0,
                   graph_of(b)->n_cells * sizeof *vectors[v].packs[p].values);
}

/* ---- A pass over the row -------------------------------------------------------- */

struct place;

/* What is done with the vectors of one step: totals are added to, or outputs are stored. */
struct pass {
    const uint8_t *need;
    struct eider_row_total *totals; /* NULL: outputs are stored */
    int n_totals;
    uint64_t fills;     /* nothing is computed: shared memory takes these inputs */
    struct place *next; /* the last pass: where the next row is; or NULL */
};

static void set_outputs(struct eider_row_build *b, struct eider_row_context *c)
{
    const struct eider_graph *g = graph_of(b);
    for (uint32_t i = 0; i < g->n_operands && b->e->status == EIDER_OK; i++) {
        if (g->operands[i].kind != EIDER_OUTPUT || b->layout->operands[i].extent != EIDER_FULL)
            continue;
        bring(b, c, g->operands[i].node);
        b->lowering.values = c->values;
        b->e->width = c->width;
        if (b->e->status == EIDER_OK) c->in[i] = eider_lowering_output(&b->lowering, i);
    }
}

static void do_step(struct eider_row_build *b, const struct pass *pass,
                    struct eider_row_vector *vectors, int n)
{
    struct eider_row_context *all[EIDER_ROW_PACKS_MAX];
    int n_all = 0;
    for (int v = 0; v < n; v++)
        for (int p = 0; p < b->n_packs; p++) {
            eider_row_compute(b, &vectors[v].packs[p], pass->need);
            all[n_all++] = &vectors[v].packs[p];
        }
    for (int i = 0; i < pass->n_totals && b->e->status == EIDER_OK; i++)
        eider_row_total_add(b, &pass->totals[i], all, n_all);
    for (int v = 0; v < n && !pass->totals && b->e->status == EIDER_OK; v++) {
        for (int p = 0; p < b->n_packs; p++) set_outputs(b, &vectors[v].packs[p]);
        if (b->e->status == EIDER_OK) eider_row_store(b, &vectors[v]);
    }
}

/* The members of totals that a loop carries. */
static int list_carried(struct pass *pass, LLVMValueRef **out)
{
    int n = 0;
    for (int i = 0; i < pass->n_totals; i++) {
        struct eider_row_total *t = &pass->totals[i];
        LLVMValueRef *members[] = {&t->value, &t->place, &t->lost};
        for (int k = 0; k < 3; k++)
            if (*members[k]) out[n++] = members[k];
    }
    return n;
}

/* A part of the row that a loop goes through, `unroll` vectors at a time. */
struct part {
    int64_t from, to; /* places; to: 0 is the end of the row */
    int unroll;
    int stays; /* in shared memory */
};

static LLVMValueRef end_of(struct eider_row_build *b, const struct part *part)
{
    LLVMValueRef end = eider_row_number(b->i32, part->to);
    if (!part->to) return b->end;
    LLVMValueRef shorter = LLVMBuildICmp(b->e->builder, LLVMIntULT, b->end, end, "");
    return LLVMBuildSelect(b->e->builder, shorter, b->end, end, "");
}

/* Where a row is, of what the build knows. */
struct place {
    LLVMValueRef base[EIDER_OPERANDS_MAX], mine[EIDER_OPERANDS_MAX];
    LLVMValueRef first, shift, end, row_number, row_exists;
};

static void swap_place(struct eider_row_build *b, struct place *p)
{
    struct place old = {.first = b->first,
                        .shift = b->shift,
                        .end = b->end,
                        .row_number = b->row_number,
                        .row_exists = b->row_exists};
    memcpy(old.base, b->base, sizeof old.base);
    memcpy(old.mine, b->mine, sizeof old.mine);
    memcpy(b->base, p->base, sizeof p->base);
    memcpy(b->mine, p->mine, sizeof p->mine);
    b->first = p->first;
    b->shift = p->shift;
    b->end = p->end;
    b->row_number = p->row_number;
    b->row_exists = p->row_exists;
    *p = old;
}

/* What a loop does with the vectors at `at`. */
static void do_part(struct eider_row_build *b, const struct pass *pass, const struct part *part,
                    struct eider_row_vector *vectors, LLVMValueRef at)
{
    eider_row_forget(b, vectors, part->unroll);
    eider_row_place(b, vectors, part->unroll, at, -1);
    if (pass->fills) {
        eider_row_fill_shared(b, vectors, part->unroll, pass->fills, at, NULL);
        return;
    }
    uint64_t inputs = eider_row_inputs(b, pass->need);
    uint64_t there = part->stays ? inputs & (b->loaded | b->columns) : 0;
    eider_row_load_shared(b, vectors, part->unroll, there, at);
    eider_row_load(b, vectors, part->unroll, inputs & ~there);
    do_step(b, pass, vectors, part->unroll);
    if (!part->stays || !pass->next || b->e->status != EIDER_OK) return;
    swap_place(b, pass->next);
    eider_row_place(b, vectors, part->unroll, at, -1);
    eider_row_fill_shared(b, vectors, part->unroll, b->loaded, at, b->more);
    swap_place(b, pass->next);
}

static void loop(struct eider_row_build *b, struct pass *pass, struct eider_row_vector *vectors,
                 const struct part *part)
{
    LLVMBuilderRef ir = b->e->builder;
    int64_t step = (int64_t)eider_row_threads(&b->c) * b->c.vec * part->unroll;
    LLVMValueRef *carried[3 * 64], before[3 * 64], phis[3 * 64];
    for (int i = 0; i < pass->n_totals; i++) eider_row_total_loop(b, &pass->totals[i]);
    int n = list_carried(pass, carried);
    for (int i = 0; i < n; i++) before[i] = *carried[i];
    LLVMValueRef first = eider_row_number(b->i32, part->from), end = end_of(b, part);
    LLVMBasicBlockRef entry = LLVMGetInsertBlock(ir), body = eider_row_block(b, "part");
    LLVMBasicBlockRef after = eider_row_block(b, "parted");
    LLVMBuildCondBr(ir, LLVMBuildICmp(ir, LLVMIntULT, first, end, ""), body, after);
    LLVMPositionBuilderAtEnd(ir, body);
    LLVMValueRef at = LLVMBuildPhi(ir, b->i32, "");
    for (int i = 0; i < n; i++) *carried[i] = phis[i] = LLVMBuildPhi(ir, LLVMTypeOf(before[i]), "");
    do_part(b, pass, part, vectors, at);
    if (b->e->status != EIDER_OK) return;
    LLVMValueRef next = LLVMBuildAdd(ir, at, eider_row_number(b->i32, step), "");
    LLVMBasicBlockRef latch = LLVMGetInsertBlock(ir);
    LLVMValueRef again = LLVMBuildICmp(ir, LLVMIntULT, next, end, "");
    eider_emit_keep_loop(b->e, LLVMBuildCondBr(ir, again, body, after));
    LLVMAddIncoming(at, &first, &entry, 1);
    LLVMAddIncoming(at, &next, &latch, 1);
    for (int i = 0; i < n; i++) {
        LLVMAddIncoming(phis[i], &before[i], &entry, 1);
        LLVMAddIncoming(phis[i], carried[i], &latch, 1);
    }
    LLVMPositionBuilderAtEnd(ir, after);
    for (int i = 0; i < n; i++) {
        LLVMValueRef last = *carried[i], ends[2] = {before[i], last};
        LLVMBasicBlockRef froms[2] = {entry, latch};
        *carried[i] = LLVMBuildPhi(ir, LLVMTypeOf(last), "");
        LLVMAddIncoming(*carried[i], ends, froms, 2);
    }
}

/* What all rows share does not stay. */
static void forget_words(struct eider_row_vector *vector, uint64_t which)
{
    for (uint32_t i = 0; i < EIDER_OPERANDS_MAX; i++)
        if (which >> i & 1) vector->words[i] = NULL;
}

/* The part of the row that is in shared memory, and the one that is read again. */
static struct part shared_part(const struct eider_row_build *b)
{
    int64_t step = (int64_t)eider_row_threads(&b->c) * b->c.vec;
    return (struct part){.from = b->c.keep * step,
                         .to = (b->c.keep + b->c.shared) * step,
                         .unroll = b->c.shared % b->c.unroll ? 1 : b->c.unroll,
                         .stays = 1};
}

static struct part rest_of(const struct eider_row_build *b)
{
    return (struct part){.from = shared_part(b).to, .unroll = b->c.unroll};
}

static int has_part(const struct eider_row_build *b, const struct part *part)
{
    if (part->stays && part->from == part->to) return 0;
    return !b->layout->length || part->from < eider_row_cut(b->layout, b->c.vec) * b->c.vec;
}

static void do_pass(struct eider_row_build *b, struct pass *pass, struct eider_row_vector *kept,
                    struct eider_row_vector *rest)
{
    struct part parts[2] = {shared_part(b), rest_of(b)};
    uint64_t missing = eider_row_inputs(b, pass->need) & ~b->loaded;
    int64_t step = (int64_t)eider_row_threads(&b->c) * b->c.vec;
    for (int v = 0; v < b->c.keep; v++) {
        if (b->passes) eider_row_again(b, &kept[v]);
        eider_row_load_shared(b, &kept[v], 1, missing & b->columns,
                              eider_row_number(b->i32, v * step));
        eider_row_load(b, &kept[v], 1, missing & ~b->columns);
        forget_words(&kept[v], missing);
        do_step(b, pass, &kept[v], 1);
    }
    b->passes++;
    for (int i = 0; i < 2; i++)
        if (has_part(b, &parts[i]) && b->e->status == EIDER_OK) loop(b, pass, rest, &parts[i]);
}

/* ---- The stages ------------------------------------------------------------------ */

static int is_full_output(const struct eider_row_build *b, uint32_t i)
{
    return graph_of(b)->operands[i].kind == EIDER_OUTPUT &&
           b->layout->operands[i].extent == EIDER_FULL;
}

static int has_full_outputs(const struct eider_row_build *b)
{
    int any = 0;
    for (uint32_t i = 0; i < b->layout->n_operands; i++) any |= is_full_output(b, i);
    return any;
}

static void do_stage(struct eider_row_build *b, uint32_t stage, struct eider_row_vector *kept,
                     struct eider_row_vector *rest, struct place *next)
{
    const struct eider_graph *g = graph_of(b);
    struct eider_row_total totals[64];
    struct pass pass = {.totals = totals};
    uint8_t *need = eider_row_alloc(b, g->n_cells, 1);
    for (eider_node id = 1; id < g->n_cells && b->e->status == EIDER_OK; id++) {
        if (!b->plan.live[id] || !eider_ops_reduces((enum eider_op)g->cells[id].op)) continue;
        if (b->plan.level[id] != stage + 1) continue;
        if (pass.n_totals == 64) {
            eider_emit_fail(b->e, EIDER_TOO_LARGE, "more than 64 reductions in one stage");
            return;
        }
        need[eider_graph_args(g, id)[0]] = 1;
        totals[pass.n_totals++] = eider_row_total_begin(b, id);
    }
    if (b->e->status != EIDER_OK) return;
    eider_row_plan_need(g, &b->plan, need);
    pass.need = need;
    pass.next = stage + 1 == b->plan.n_stages && !has_full_outputs(b) ? next : NULL;
    do_pass(b, &pass, kept, rest);
    if (b->e->status == EIDER_OK) eider_row_total_end(b, totals, pass.n_totals);
    b->e->width = b->width;
}

/* Where threads read what others may write from now on, all of them have to be here. */
static void wait_for_readers(struct eider_row_build *b)
{
    if (!b->plan.picks && b->plan.n_stages > 0) return;
    if (b->rank) {
        eider_emit_cluster_arrive(b->e, 0);
        eider_emit_cluster_wait(b->e);
    } else if (b->c.row > 1) {
        b->machine->barrier(b->e);
    }
}

static void store_outputs(struct eider_row_build *b, struct eider_row_vector *kept,
                          struct eider_row_vector *rest, struct place *next)
{
    const struct eider_graph *g = graph_of(b);
    struct pass pass = {.next = next};
    uint8_t *need = eider_row_alloc(b, g->n_cells, 1);
    if (b->e->status != EIDER_OK) return;
    for (uint32_t i = 0; i < g->n_operands; i++)
        if (is_full_output(b, i)) need[g->operands[i].node] = 1;
    eider_row_plan_need(g, &b->plan, need);
    pass.need = need;
    wait_for_readers(b);
    if (has_full_outputs(b)) do_pass(b, &pass, kept, rest);
    eider_row_store_row(b);
}

/* One row, of which shared memory has been given its part. */
static void build_stages(struct eider_row_build *b, struct eider_row_vector *kept,
                         struct eider_row_vector *rest, struct place *next)
{
    b->passes = 0;
    b->shared_used = 0;
    b->one = eider_row_context(b, 1);
    if (b->e->status != EIDER_OK) return;
    eider_row_load_row(b);
    eider_row_forget(b, kept, b->c.keep);
    if (b->c.keep) {
        eider_row_place(b, kept, b->c.keep, eider_row_number(b->i32, 0), 0);
        eider_row_load(b, kept, b->c.keep, b->loaded);
    }
    if (b->rows_memory) eider_row_wait_shared(b);
    for (uint32_t stage = 0; stage < b->plan.n_stages && b->e->status == EIDER_OK; stage++) {
        eider_row_compute_row(b, stage);
        do_stage(b, stage, kept, rest, next);
    }
    eider_row_compute_row(b, b->plan.n_stages);
    store_outputs(b, kept, rest, next);
}

/* ---- The rows of a block ------------------------------------------------------------- */

/* Which thread of its row this one is. */
static void number_threads(struct eider_row_build *b)
{
    LLVMBuilderRef ir = b->e->builder;
    LLVMValueRef thread = b->machine->thread_index(b->e);
    b->thread = LLVMBuildAnd(ir, thread, eider_row_number(b->i32, b->c.row - 1), "");
    if (b->c.cluster == 1) return;
    b->rank = eider_emit_cluster_rank(b->e);
    LLVMValueRef before = LLVMBuildMul(ir, b->rank, eider_row_number(b->i32, b->c.row), "");
    b->thread = LLVMBuildAdd(ir, b->thread, before, "");
    /* The first reduction waits for it. */
    if (b->plan.n_stages) eider_emit_cluster_arrive(b->e, 1);
}

/* Goes to the row that this thread has in a part of the rows: as many as a block has at once. */
static void go_to(struct eider_row_build *b, LLVMValueRef part)
{
    LLVMBuilderRef ir = b->e->builder;
    int per_block = b->c.block / b->c.row;
    LLVMValueRef row = part;
    b->shift = NULL;
    b->end = b->cols;
    b->first = LLVMBuildMul(ir, b->thread, eider_row_number(b->i32, b->c.vec), "");
    if (per_block > 1) {
        LLVMValueRef rows = param(b, b->slots.rows), thread = b->machine->thread_index(b->e);
        LLVMValueRef in_block = LLVMBuildUDiv(ir, thread, eider_row_number(b->i32, b->c.row), "");
        row = LLVMBuildMul(ir, row, eider_row_number(b->i64, per_block), "");
        row = LLVMBuildAdd(ir, row, LLVMBuildZExt(ir, in_block, b->i64, ""), "");
        b->row_exists = LLVMBuildICmp(ir, LLVMIntULT, row, rows, "");
        LLVMValueRef end = LLVMBuildSub(ir, rows, eider_row_number(b->i64, 1), "");
        row = LLVMBuildSelect(ir, b->row_exists, row, end, "");
    }
    eider_row_locate(b, row);
}

static uint64_t columns_of(const struct eider_row_build *b)
{
    uint64_t which = 0;
    for (uint32_t i = 0; i < b->layout->n_operands; i++)
        if (eider_row_is_column(b->layout, &b->c, i)) which |= (uint64_t)1 << i;
    return which & eider_row_inputs(b, b->plan.live);
}

static void fill(struct eider_row_build *b, struct eider_row_vector *vectors, struct part part,
                 uint64_t which)
{
    struct pass pass = {.fills = which};
    if (which && has_part(b, &part) && b->e->status == EIDER_OK) loop(b, &pass, vectors, &part);
}

/* What all rows share, from the row's beginning to where shared memory's part of it ends. */
static struct part column_part(const struct eider_row_build *b)
{
    struct part part = shared_part(b);
    part.from = 0;
    part.unroll = 1;
    return part;
}

/* Threads of a row may still read what they were left when the next row's leave theirs, where no
 * other reduction is in between. */
static void wait_for_slots(struct eider_row_build *b)
{
    if (b->plan.n_stages != 1) return;
    if (b->rank) {
        eider_emit_cluster_arrive(b->e, 0);
        eider_emit_cluster_wait(b->e);
    } else if (b->c.row > WARP) {
        b->machine->barrier(b->e);
    }
}

/* Every so many parts of the rows one, from the block's own on. */
static void go_through_parts(struct eider_row_build *b, LLVMValueRef own,
                             struct eider_row_vector *kept, struct eider_row_vector *rest)
{
    LLVMBuilderRef ir = b->e->builder;
    int64_t per_block = b->c.block / b->c.row;
    LLVMValueRef rows = param(b, b->slots.rows), each = param(b, b->slots.in_flight);
    LLVMValueRef more = LLVMBuildAdd(ir, rows, eider_row_number(b->i64, per_block - 1), "");
    LLVMValueRef all = LLVMBuildUDiv(ir, more, eider_row_number(b->i64, per_block), "");
    LLVMBasicBlockRef entry = LLVMGetInsertBlock(ir), body = eider_row_block(b, "row");
    LLVMBasicBlockRef after = eider_row_block(b, "rows");
    if (b->rank && b->plan.n_stages) eider_emit_cluster_wait(b->e);
    b->peers_begun = 1;
    LLVMBuildBr(ir, body);
    LLVMPositionBuilderAtEnd(ir, body);
    LLVMValueRef part = LLVMBuildPhi(ir, b->i64, "");
    LLVMValueRef next = LLVMBuildAdd(ir, part, each, "");
    b->more = LLVMBuildICmp(ir, LLVMIntULT, next, all, "");
    go_to(b, LLVMBuildSelect(ir, b->more, next, part, ""));
    struct place *place = eider_row_alloc(b, 1, sizeof *place);
    if (b->e->status != EIDER_OK) return;
    swap_place(b, place);
    go_to(b, part);
    build_stages(b, kept, rest, place);
    wait_for_slots(b);
    if (b->e->status != EIDER_OK) return;
    LLVMBasicBlockRef latch = LLVMGetInsertBlock(ir);
    eider_emit_keep_loop(b->e, LLVMBuildCondBr(ir, b->more, body, after));
    LLVMAddIncoming(part, &own, &entry, 1);
    LLVMAddIncoming(part, &next, &latch, 1);
    LLVMPositionBuilderAtEnd(ir, after);
}

static void build_rows(struct eider_row_build *b)
{
    struct eider_row_vector *kept = eider_row_vectors(b, b->c.keep);
    struct eider_row_vector *rest = eider_row_vectors(b, b->c.unroll);
    LLVMValueRef own = b->machine->block_index(b->e);
    if (b->e->status != EIDER_OK) return;
    if (b->c.cluster > 1)
        own = LLVMBuildUDiv(b->e->builder, own, eider_row_number(b->i64, b->c.cluster), "");
    b->loaded = eider_row_inputs(b, b->plan.live) & ~shared_inputs(b);
    b->columns = b->rows_memory && b->leader < 0 ? columns_of(b) : 0;
    go_to(b, own);
    fill(b, rest, column_part(b), b->columns);
    fill(b, rest, shared_part(b), b->loaded);
    if (b->c.resident)
        go_through_parts(b, own, kept, rest);
    else
        build_stages(b, kept, rest, NULL);
}

/* ---- The kernel -------------------------------------------------------------------- */

static void declare(struct eider_row_build *b, struct eider_kernel_param *params)
{
    const struct eider_layout *l = b->layout;
    LLVMTypeRef ptr = LLVMPointerTypeInContext(b->e->context, 0);
    for (uint32_t s = 0; s < b->slots.n; s++)
        params[s] = (struct eider_kernel_param){.name = "", .type = b->i64};
    for (uint32_t i = 0; i < l->n_operands; i++) {
        const struct eider_layout_operand *o = &l->operands[i];
        params[i].name = graph_of(b)->operands[i].name;
        params[i].type = o->kind == EIDER_SCALAR ? eider_emit_storage(b->e, o->type) : ptr;
        params[i].is_read = o->kind == EIDER_INPUT;
        params[i].align = (uint32_t)eider_dtype_size(o->type);
    }
    params[b->slots.rows].name = "rows";
    params[b->slots.cols] = (struct eider_kernel_param){.name = "cols", .type = b->i32};
    params[b->slots.flags] = (struct eider_kernel_param){.name = "flags", .type = b->i32};
}

static LLVMValueRef flags_have(struct eider_row_build *b, unsigned needed)
{
    LLVMValueRef mask = eider_row_number(b->i32, needed);
    LLVMValueRef set = LLVMBuildAnd(b->e->builder, param(b, b->slots.flags), mask, "");
    return LLVMBuildICmp(b->e->builder, LLVMIntEQ, set, mask, "");
}

/* Which ways of loading there are, and what decides between them. */
void eider_row_read_flags(struct eider_row_build *b)
{
    unsigned needed = 0;
    int64_t length = b->layout->length;
    b->vectors = !length || length % b->c.vec == 0 || b->ragged;
    if (!length && b->c.vec > 1) needed |= EIDER_ROW_EVEN;
    if (b->machine->needs_alignment && b->c.vec > 1)
        needed |= b->leader < 0 ? EIDER_ROW_ALIGNED : EIDER_ROW_ALIKE;
    /* The read-only path does not see what the kernel itself stores. */
    if (b->c.load == EIDER_LOAD_NC) needed |= EIDER_ROW_APART;
    b->elements = !b->vectors || needed;
    if (b->vectors && needed) b->vectors_ok = flags_have(b, needed);
}

/* The row's first vector begins `shift` elements before the row. */
static void shift_row(struct eider_row_build *b)
{
    LLVMBuilderRef ir = b->e->builder;
    uint32_t i = (uint32_t)b->leader;
    int size = (int)eider_dtype_size(b->layout->operands[i].type);
    int mask = eider_row_access(b->layout, i, b->c.vec) - 1;
    LLVMValueRef at = LLVMBuildPtrToInt(ir, b->base[i], b->i64, "");
    at = LLVMBuildLShr(ir, at, eider_row_number(b->i64, __builtin_ctz((unsigned)size)), "");
    at = LLVMBuildTrunc(ir, at, b->i32, "");
    b->shift = LLVMBuildAnd(ir, at, eider_row_number(b->i32, mask), "");
    b->first = LLVMBuildSub(ir, b->first, b->shift, "");
    b->end = LLVMBuildAdd(ir, b->cols, b->shift, "");
}

/* Sets where the thread's first place is in each operand. */
static void locate_first(struct eider_row_build *b)
{
    LLVMBuilderRef ir = b->e->builder;
    LLVMValueRef first = b->shift ? LLVMBuildSExt(ir, b->first, b->i64, "")
                                  : LLVMBuildZExt(ir, b->first, b->i64, "");
    for (uint32_t i = 0; i < b->layout->n_operands; i++) {
        int64_t size = (int64_t)eider_dtype_size(b->layout->operands[i].type);
        if (b->layout->operands[i].kind == EIDER_SCALAR) continue;
        LLVMValueRef offset = LLVMBuildMul(ir, first, eider_row_number(b->i64, size), "");
        b->mine[i] = LLVMBuildGEP2(ir, b->i8, b->base[i], &offset, 1, "");
    }
}

void eider_row_locate(struct eider_row_build *b, LLVMValueRef row)
{
    LLVMBuilderRef ir = b->e->builder;
    LLVMValueRef at[EIDER_RANK_MAX];
    int last = b->layout->rank - 1;
    b->row_number = row;
    for (int d = last - 1; d > 0; d--) {
        LLVMValueRef extent = param(b, b->slots.extent[d]);
        at[d] = LLVMBuildURem(ir, row, extent, "");
        row = LLVMBuildUDiv(ir, row, extent, "");
    }
    at[0] = row;
    for (uint32_t i = 0; i < b->layout->n_operands; i++) {
        if (b->layout->operands[i].kind == EIDER_SCALAR) continue;
        b->base[i] = param(b, i);
        for (int d = 0; d < last; d++) {
            if (b->slots.stride[i][d] == EIDER_MAP_NO_SLOT) continue;
            LLVMValueRef bytes = LLVMBuildMul(ir, at[d], param(b, b->slots.stride[i][d]), "");
            b->base[i] = LLVMBuildGEP2(ir, b->i8, b->base[i], &bytes, 1, "");
        }
    }
    if (b->leader >= 0) shift_row(b);
    locate_first(b);
}

int eider_row_begin(struct eider_row_build *b, const char *name, uint32_t shared)
{
    struct eider_kernel_param *params = eider_row_alloc(b, b->slots.n, sizeof *params);
    if (b->e->status != EIDER_OK) return 0;
    declare(b, params);
    b->machine->kernel_begin(b->e, name, params, b->slots.n, (uint32_t)b->c.block);
    if (b->e->status != EIDER_OK) return 1;
    if (shared) b->shared = eider_emit_shared(b->e, shared);
    if (b->layout->checks) eider_row_fault_begin(b);
    b->cols =
        b->layout->length ? eider_row_number(b->i32, b->layout->length) : param(b, b->slots.cols);
    b->end = b->cols;
    return 1;
}

/* Sets how many elements a pack has, and how many packs a vector. */
static void set_width(struct eider_row_build *b)
{
    b->e->width = b->machine->width(b->e);
    if (b->e->width > b->c.vec) b->e->width = b->c.vec;
    b->width = b->e->width;
    b->n_packs = b->c.vec / b->width;
}

/* From here on vectors have one element, and nothing stays. */
static void take_elements(struct eider_row_build *b)
{
    b->c.vec = 1;
    b->c.keep = b->c.shared = 0;
    b->c.unroll = ELEMENTS_IN_FLIGHT;
    b->rows_memory = NULL;
    b->leader = -1;
    b->ragged = 0;
    set_width(b);
}

static void begin_way(struct eider_row_build *b, int by_vector)
{
    b->vectors = by_vector;
    b->elements = !by_vector;
    b->vectors_ok = NULL;
    b->peers_begun = 0;
    if (!by_vector) take_elements(b);
}

/* The kernel by vectors, and once more, in few instructions, for launches that do not allow
 * them. */
static void build_ways(struct eider_row_build *b)
{
    LLVMBuilderRef ir = b->e->builder;
    LLVMValueRef ok = b->vectors_ok;
    if (!ok) {
        build_rows(b);
        return;
    }
    LLVMBasicBlockRef fast = eider_row_block(b, "vectors"), slow = eider_row_block(b, "elements");
    LLVMBasicBlockRef end = eider_row_block(b, "done");
    LLVMBuildCondBr(ir, ok, fast, slow);
    for (int by_vector = 1; by_vector >= 0; by_vector--) {
        LLVMPositionBuilderAtEnd(ir, by_vector ? fast : slow);
        begin_way(b, by_vector);
        build_rows(b);
        if (b->e->status == EIDER_OK) LLVMBuildBr(ir, end);
    }
    LLVMPositionBuilderAtEnd(ir, end);
}

/* Reductions' and rows' shared memory. */
static int shared_fits(struct eider_row_build *b)
{
    int64_t own = eider_row_shared_bytes(b), rows = eider_row_launch_bytes(b->layout, &b->c);
    int64_t most = eider_row_shared_limit(b->e->target);
    if (own <= SHARED_BYTES_MAX && own + rows <= most) return 1;
    eider_emit_fail(b->e, EIDER_CONFIG,
                    "block=%d, cluster=%d, shared=%d: reductions need %lld bytes of shared memory, "
                    "of at most %d, and rows %lld; together %lld are possible",
                    b->c.block, b->c.cluster, b->c.shared, (long long)own, SHARED_BYTES_MAX,
                    (long long)rows, (long long)most);
    return 0;
}

static void build_kernel(struct eider_row_build *b, const char *name)
{
    if (!shared_fits(b)) return;
    if (!eider_row_begin(b, name, eider_row_shared_bytes(b))) return;
    if (b->e->status == EIDER_OK) {
        if (eider_row_launch_bytes(b->layout, &b->c))
            b->rows_memory = eider_emit_shared_at_launch(b->e);
        number_threads(b);
        eider_row_read_flags(b);
        build_ways(b);
    }
    b->machine->kernel_end(b->e);
}

static void set_types(struct eider_row_build *b)
{
    LLVMContextRef context = b->e->context;
    b->i1 = LLVMInt1TypeInContext(context);
    b->i8 = LLVMInt8TypeInContext(context);
    b->i32 = LLVMInt32TypeInContext(context);
    b->i64 = LLVMInt64TypeInContext(context);
    set_width(b);
}

eider_status eider_row_open(struct eider_row_build *b)
{
    uint8_t in_row[EIDER_OPERANDS_MAX];
    eider_arena_init(&b->arena, b->e->allocator, SIZE_MAX);
    set_types(b);
    eider_row_slots_of(b->layout, &b->slots);
    b->leader = -1;
    if (eider_row_shifts(b->layout, b->c.vec)) b->leader = eider_row_leader(b->layout, b->c.vec);
    b->ragged = b->leader >= 0 || b->layout->length % b->c.vec;
    for (uint32_t i = 0; i < b->layout->n_operands; i++)
        in_row[i] = b->layout->operands[i].kind == EIDER_INPUT &&
                    b->layout->operands[i].stride_class[b->layout->rank - 1] != 0;
    EIDER_TRY(eider_row_plan_create(graph_of(b), in_row, &b->plan));
    return eider_lowering_begin(&b->lowering, b->e, b->program);
}

void eider_row_close(struct eider_row_build *b)
{
    eider_lowering_end(&b->lowering);
    eider_row_plan_release(b->e->allocator, &b->plan);
    eider_arena_release(&b->arena);
}

void eider_row_build(struct eider_emit *e, const struct eider_lowered *program,
                     const struct eider_layout *layout, const struct eider_config *config,
                     const char *name)
{
    struct eider_row_build b = {.e = e,
                                .machine = e->machine,
                                .program = program,
                                .layout = layout,
                                .c = eider_row_config_of(config),
                                .lowering = {.e = e}};
    e->status = eider_row_open(&b);
    if (e->status == EIDER_OK) build_kernel(&b, name);
    eider_row_close(&b);
}
