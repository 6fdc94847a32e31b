/* row_node.c -- the IR of values: what nodes are in an element, and what they are for the row.
 *
 * Invariant: a value is computed once in a context, where all it needs is known; what is the same
 * for the whole row is in b->one and spread out where elements need it.
 */
#include "row.h"

#include "ops.h"

#define PICK_DEPTH_MAX 16

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

static int is_literal(const struct eider_cell *cell)
{
    return cell->op == EIDER_OP_number || cell->op == EIDER_OP_integer;
}

void eider_row_bring(struct eider_row_build *b, struct eider_row_context *c, eider_node node)
{
    if (b->e->status != EIDER_OK) return;
    if (c->values[node] || is_literal(&eider_row_graph(b)->cells[node])) return;
    LLVMValueRef one = b->one.values[node];
    if (!one) {
        eider_emit_fail(b->e, EIDER_CODEGEN, "%s is not known yet",
                        eider_ops[eider_row_graph(b)->cells[node].op].name);
        return;
    }
    c->values[node] = eider_row_spread(b, one, c->width);
}

LLVMValueRef eider_row_value(struct eider_row_build *b, struct eider_row_context *c,
                             eider_node node, enum eider_vtype type)
{
    eider_row_bring(b, c, node);
    b->lowering.values = c->values;
    b->e->width = c->width;
    if (b->e->status != EIDER_OK) return LLVMGetUndef(eider_emit_type(b->e, type));
    return eider_lowering_as(&b->lowering, node, type);
}

static void lower_in(struct eider_row_build *b, struct eider_row_context *c, eider_node id);

struct eider_row_context eider_row_context(struct eider_row_build *b, int width)
{
    struct eider_row_context c = {.width = width};
    c.values = eider_row_alloc(b, eider_row_graph(b)->n_cells, sizeof *c.values);
    c.in = eider_row_alloc(b, EIDER_OPERANDS_MAX, sizeof *c.in);
    return c;
}

void eider_row_compute(struct eider_row_build *b, struct eider_row_context *c, const uint8_t *need)
{
    for (eider_node id = 1; id < eider_row_graph(b)->n_cells && b->e->status == EIDER_OK; id++)
        if (need[id] && !c->values[id] && !is_literal(&eider_row_graph(b)->cells[id]))
            lower_in(b, c, id);
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

uint64_t eider_row_inputs(const struct eider_row_build *b, const uint8_t *nodes)
{
    uint64_t which = 0;
    for (uint32_t i = 0; i < b->layout->n_operands; i++) {
        eider_node leaf = eider_row_graph(b)->operands[i].node;
        int is_input = b->layout->operands[i].kind == EIDER_INPUT;
        if (is_input && b->plan.varies[leaf] && nodes[leaf]) which |= (uint64_t)1 << i;
    }
    return which;
}

uint64_t eider_row_shared_inputs(const struct eider_row_build *b)
{
    uint64_t which = 0;
    for (uint32_t i = 0; i < b->layout->n_operands; i++) {
        if (eider_row_shares(b->layout, i)) which |= (uint64_t)1 << i;
    }
    return which;
}

/* The value that the elements at `cols` have of a node that differs within the row; where they are
 * not `wanted` no place of theirs is a fault. */
static LLVMValueRef value_there(struct eider_row_build *b, LLVMValueRef cols, LLVMValueRef wanted,
                                int width, eider_node node)
{
    struct eider_row_context there = eider_row_context(b, width);
    uint8_t *need = eider_row_alloc(b, eider_row_graph(b)->n_cells, 1);
    if (b->e->status != EIDER_OK) return NULL;
    there.col = cols;
    there.valid = wanted;
    need[node] = 1;
    eider_row_plan_need(eider_row_graph(b), &b->plan, need);
    b->e->width = width;
    eider_row_load_at(b, &there, eider_row_inputs(b, need));
    eider_row_compute(b, &there, need);
    return eider_row_value(b, &there, node, (enum eider_vtype)b->program->types[node]);
}

static LLVMValueRef pick(struct eider_row_build *b, struct eider_row_context *c, eider_node id)
{
    LLVMBuilderRef ir = b->e->builder;
    const eider_node *args = eider_graph_args(eider_row_graph(b), id);
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
    LLVMValueRef wanted = c->valid ? LLVMBuildAnd(ir, inside, c->valid, "") : inside;
    LLVMValueRef value = b->plan.varies[args[0]] ? value_there(b, place, wanted, c->width, args[0])
                                                 : eider_row_value(b, c, args[0], v);
    b->depth--;
    if (b->e->status != EIDER_OK) return NULL;
    return LLVMBuildSelect(ir, inside, value, outside(b, LLVMTypeOf(value)), "");
}

/* Of a comparison with col(), what it is compared with, where that is one integer of 64 bits for
 * the whole row, such as a target; else 0. */
static eider_node compared_place(const struct eider_row_build *b, eider_node id)
{
    const struct eider_graph *g = eider_row_graph(b);
    enum eider_op op = (enum eider_op)g->cells[id].op;
    if (op != EIDER_OP_eq && op != EIDER_OP_ne) return 0;
    const eider_node *args = eider_graph_args(g, id);
    int second = g->cells[args[0]].op == EIDER_OP_col;
    eider_node other = args[second];
    if (g->cells[args[!second]].op != EIDER_OP_col || b->plan.varies[other]) return 0;
    return b->program->types[other] == EIDER_V_I64 ? other : 0;
}

/* In 32 bits, as places are; what does not fit is no place, -1. */
static LLVMValueRef compare_place(struct eider_row_build *b, const struct eider_row_context *c,
                                  eider_node id, eider_node with)
{
    LLVMBuilderRef ir = b->e->builder;
    LLVMValueRef wide = eider_row_value(b, &b->one, with, EIDER_V_I64);
    if (b->e->status != EIDER_OK) return NULL;
    LLVMValueRef fits =
        LLVMBuildICmp(ir, LLVMIntULT, wide, eider_row_number(b->i64, (int64_t)1 << 31), "");
    LLVMValueRef place = LLVMBuildTrunc(ir, wide, b->i32, "");
    place = LLVMBuildSelect(ir, fits, place, eider_row_number(b->i32, -1), "");
    b->e->width = c->width;
    int is_equal = eider_row_graph(b)->cells[id].op == EIDER_OP_eq;
    LLVMValueRef of = c->col, is = eider_row_spread(b, place, c->width);
    if (c->step) { /* one difference for all of a vector */
        of = LLVMBuildSub(ir, is, c->first, "");
        is = c->step;
    }
    return LLVMBuildICmp(ir, is_equal ? LLVMIntEQ : LLVMIntNE, of, is, "");
}

static void lower_in(struct eider_row_build *b, struct eider_row_context *c, eider_node id)
{
    const struct eider_cell *cell = &eider_row_graph(b)->cells[id];
    const eider_node *args = eider_graph_args(eider_row_graph(b), id);
    eider_node place = c == &b->one ? 0 : compared_place(b, id);
    b->e->width = c->width;
    eider_lines_set(b->e, EIDER_LINE_NODE, id);
    if (place) {
        c->values[id] = compare_place(b, c, id, place);
        eider_lines_set(b->e, EIDER_LINE_ADDRESS, 0);
        return;
    }
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
        for (uint32_t k = 0; k < cell->n_args; k++) eider_row_bring(b, c, args[k]);
        b->lowering.values = c->values;
        b->lowering.in = c->in;
        if (b->e->status == EIDER_OK) c->values[id] = eider_lowering_node(&b->lowering, id);
        break;
    }
    eider_lines_set(b->e, EIDER_LINE_ADDRESS, 0);
}

void eider_row_compute_row(struct eider_row_build *b, uint32_t level)
{
    const struct eider_graph *g = eider_row_graph(b);
    for (eider_node id = 1; id < g->n_cells && b->e->status == EIDER_OK; id++) {
        enum eider_op op = (enum eider_op)g->cells[id].op;
        if (!b->plan.live[id] || b->plan.varies[id] || b->plan.level[id] > level) continue;
        if (b->one.values[id] || eider_ops_reduces(op) || is_literal(&g->cells[id])) continue;
        lower_in(b, &b->one, id);
    }
    b->e->width = b->width;
}
