/* lower.c -- see lower.h.
 *
 * Operands are converted where they are used: a literal becomes a constant of the type it
 * meets, other values follow infer.c.  With `contract`, additions and multiplications
 * carry LLVM's flag of that name, which both must have to be fused; a product with several
 * users does not carry it, since it is computed in any case.
 */
#include "lower.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "activations.h"
#include "ops.h"
#include "pack.h"
#include "passes.h"

/* ---- Plan ------------------------------------------------------------------ */

eider_status eider_lower_plan(const struct eider_graph *program, const eider_dtype *dtypes,
                              eider_math math, struct eider_lowered *out)
{
    struct eider_graph *stage[5] = {NULL};
    struct eider_lowered made = {.math = eider_math_resolve(program, dtypes, math)};
    eider_status status = eider_activation_expand(program, &stage[0]);
    /* Simplification does more where it knows the types. */
    for (uint32_t i = 0; status == EIDER_OK && i < program->n_operands; i++)
        stage[0]->operands[i].type = (int32_t)dtypes[i];
    if (status == EIDER_OK) status = eider_reduce(stage[0], &stage[1]);
    if (status == EIDER_OK) status = eider_simplify(stage[1], &stage[2]);
    if (status == EIDER_OK) status = eider_mathmode(stage[2], made.math, dtypes, &stage[3]);
    if (status == EIDER_OK) status = eider_simplify(stage[3], &stage[4]);
    if (status == EIDER_OK) {
        made.types = eider_mem_alloc(&program->allocator, stage[4]->n_cells);
        status = made.types
                     ? eider_infer(stage[4], dtypes, made.math == EIDER_MATH_EXACT, made.types)
                     : EIDER_OOM;
    }
    for (int i = 0; i < 4; i++) eider_graph_destroy(stage[i]);
    made.graph = stage[4];
    for (uint32_t i = 0; i < program->n_operands; i++) made.dtypes[i] = dtypes[i];
    if (status != EIDER_OK) {
        if (made.types) eider_mem_free(&program->allocator, made.types);
        eider_graph_destroy(made.graph);
        return status;
    }
    *out = made;
    return EIDER_OK;
}

void eider_lower_release(struct eider_lowered *l)
{
    if (!l->graph) return;
    eider_allocator a = l->graph->allocator;
    eider_mem_free(&a, l->types);
    eider_graph_destroy(l->graph);
    *l = (struct eider_lowered){0};
}

/* ---- Conversions ------------------------------------------------------------ */

static int is_float(enum eider_vtype type)
{
    return type == EIDER_V_F32 || type == EIDER_V_F64;
}

static pack to_bool(struct eider_emit *e, pack v, enum eider_vtype from)
{
    if (is_float(from)) return p_is(e, v, LLVMRealUNE, 0);
    return LLVMBuildICmp(e->builder, LLVMIntNE, v, p_integer(LLVMTypeOf(v), 0), "");
}

/* Truncates; NaN is 0 and what does not fit is the nearest number that does. */
static pack float_to_integer(struct eider_emit *e, pack v, LLVMTypeRef type)
{
    LLVMTypeRef types[2] = {type, LLVMTypeOf(v)};
    return eider_emit_intrinsic(e, "llvm.fptosi.sat", types, 2, &v, 1);
}

static pack narrow_integer(struct eider_emit *e, pack v, LLVMTypeRef type)
{
    v = p_binary(e, "llvm.smin", v, p_integer(LLVMTypeOf(v), INT32_MAX));
    v = p_binary(e, "llvm.smax", v, p_integer(LLVMTypeOf(v), INT32_MIN));
    return LLVMBuildTrunc(e->builder, v, type, "");
}

static pack convert(struct eider_emit *e, pack v, enum eider_vtype to)
{
    LLVMBuilderRef b = e->builder;
    enum eider_vtype from = eider_pack_vtype(v);
    if (from == to) return v;
    LLVMTypeRef type = eider_emit_type(e, to);
    if (to == EIDER_V_BOOL) return to_bool(e, v, from);
    if (from == EIDER_V_BOOL)
        return is_float(to) ? LLVMBuildUIToFP(b, v, type, "") : LLVMBuildZExt(b, v, type, "");
    if (is_float(from) && is_float(to))
        return to == EIDER_V_F64 ? LLVMBuildFPExt(b, v, type, "")
                                 : LLVMBuildFPTrunc(b, v, type, "");
    if (is_float(from)) return float_to_integer(e, v, type);
    if (is_float(to)) return LLVMBuildSIToFP(b, v, type, "");
    return to == EIDER_V_I64 ? LLVMBuildSExt(b, v, type, "") : narrow_integer(e, v, type);
}

/* A value on its way to a storage type of floats: integers go through f64, so that they
 * are rounded once. */
static pack before_rounding(struct eider_emit *e, pack v, eider_dtype type)
{
    if (is_float(eider_pack_vtype(v))) return v;
    return convert(e, v, type == EIDER_F32 ? EIDER_V_F32 : EIDER_V_F64);
}

/* ---- Operations ---------------------------------------------------------------- */

/* One node being lowered: its operands, converted to `type`, and the type itself. */
struct node {
    struct eider_emit *e;
    enum eider_op op;
    enum eider_vtype type;
    uint32_t n_uses;
    pack v[3];
};

LLVMValueRef eider_lower_contract(const struct eider_emit *e, LLVMValueRef v)
{
    if (e->contract && LLVMIsAInstruction(v)) LLVMSetFastMathFlags(v, LLVMFastMathAllowContract);
    return v;
}

static pack contractible(const struct node *n, pack v)
{
    int is_shared = n->op == EIDER_OP_mul && n->n_uses > 1;
    return is_shared ? v : eider_lower_contract(n->e, v);
}

/* LLVM's instruction for floats or for integers. */
typedef LLVMValueRef (*build_two)(LLVMBuilderRef, LLVMValueRef, LLVMValueRef, const char *);

static pack arithmetic(const struct node *n, build_two floats, build_two integers)
{
    if (!is_float(n->type)) return integers(n->e->builder, n->v[0], n->v[1], "");
    return contractible(n, floats(n->e->builder, n->v[0], n->v[1], ""));
}

static pack by_type(const struct node *n, const char *floats, const char *integers)
{
    return p_binary(n->e, is_float(n->type) ? floats : integers, n->v[0], n->v[1]);
}

static pack by_machine(const struct node *n)
{
    return n->e->machine->math(n->e, n->op, n->type, n->v);
}

static pack compare(const struct node *n, LLVMRealPredicate floats, LLVMIntPredicate integers)
{
    if (is_float(n->type)) return p_compare(n->e, floats, n->v[0], n->v[1]);
    return LLVMBuildICmp(n->e->builder, integers, n->v[0], n->v[1], "");
}

static pack emit_add(const struct node *n)
{
    return arithmetic(n, LLVMBuildFAdd, LLVMBuildAdd);
}
static pack emit_sub(const struct node *n)
{
    return arithmetic(n, LLVMBuildFSub, LLVMBuildSub);
}
static pack emit_mul(const struct node *n)
{
    return arithmetic(n, LLVMBuildFMul, LLVMBuildMul);
}

static pack emit_neg(const struct node *n)
{
    return is_float(n->type) ? p_neg(n->e, n->v[0]) : LLVMBuildNeg(n->e->builder, n->v[0], "");
}

static pack emit_abs(const struct node *n)
{
    if (is_float(n->type)) return p_abs(n->e, n->v[0]);
    LLVMTypeRef type = LLVMTypeOf(n->v[0]);
    pack args[2] = {n->v[0], LLVMConstInt(LLVMInt1TypeInContext(n->e->context), 0, 0)};
    return eider_pack_intrinsic(n->e, "llvm.abs", type, args, 2);
}

static pack emit_fma(const struct node *n)
{
    return p_fma(n->e, n->v[0], n->v[1], n->v[2]);
}
static pack emit_max(const struct node *n)
{
    return by_type(n, "llvm.maximum", "llvm.smax");
}
static pack emit_min(const struct node *n)
{
    return by_type(n, "llvm.minimum", "llvm.smin");
}
static pack emit_fmax(const struct node *n)
{
    return is_float(n->type) ? by_machine(n) : by_type(n, NULL, "llvm.smax");
}

static pack emit_fmin(const struct node *n)
{
    return is_float(n->type) ? by_machine(n) : by_type(n, NULL, "llvm.smin");
}

static pack emit_sign(const struct node *n)
{
    struct eider_emit *e = n->e;
    pack v = n->v[0];
    LLVMTypeRef type = LLVMTypeOf(v);
    if (is_float(n->type)) {
        v = p_select(e, p_is(e, n->v[0], LLVMRealOGT, 0), p_number(type, 1), v);
        return p_select(e, p_is(e, n->v[0], LLVMRealOLT, 0), p_number(type, -1), v);
    }
    v = p_binary(e, "llvm.smin", v, p_integer(type, 1));
    return p_binary(e, "llvm.smax", v, p_integer(type, -1));
}

static pack emit_floor(const struct node *n)
{
    return p_unary(n->e, "llvm.floor", n->v[0]);
}
static pack emit_ceil(const struct node *n)
{
    return p_unary(n->e, "llvm.ceil", n->v[0]);
}
static pack emit_trunc(const struct node *n)
{
    return p_unary(n->e, "llvm.trunc", n->v[0]);
}
/* rint: ties to even in the default environment, and known to every C library. */
static pack emit_round(const struct node *n)
{
    return p_unary(n->e, "llvm.rint", n->v[0]);
}

static pack emit_eq(const struct node *n)
{
    return compare(n, LLVMRealOEQ, LLVMIntEQ);
}
static pack emit_ne(const struct node *n)
{
    return compare(n, LLVMRealUNE, LLVMIntNE);
}
/* v < inf is v <= FLT_MAX.  LLVM would make |v| < inf a test of the bits, which takes one
 * instruction more than a comparison of floats. */
static pack emit_lt(const struct node *n)
{
    LLVMBool inexact;
    if (n->type == EIDER_V_F32 && LLVMIsAConstantFP(n->v[1]) &&
        isinf(LLVMConstRealGetDouble(n->v[1], &inexact)))
        return p_is(n->e, n->v[0], LLVMRealOLE, (double)FLT_MAX);
    return compare(n, LLVMRealOLT, LLVMIntSLT);
}
static pack emit_le(const struct node *n)
{
    return compare(n, LLVMRealOLE, LLVMIntSLE);
}
static pack emit_gt(const struct node *n)
{
    return compare(n, LLVMRealOGT, LLVMIntSGT);
}
static pack emit_ge(const struct node *n)
{
    return compare(n, LLVMRealOGE, LLVMIntSGE);
}

static pack emit_and(const struct node *n)
{
    return LLVMBuildAnd(n->e->builder, n->v[0], n->v[1], "");
}

static pack emit_or(const struct node *n)
{
    return LLVMBuildOr(n->e->builder, n->v[0], n->v[1], "");
}

static pack emit_not(const struct node *n)
{
    return LLVMBuildNot(n->e->builder, n->v[0], "");
}

static pack emit_isnan(const struct node *n)
{
    if (is_float(n->type)) return p_compare(n->e, LLVMRealUNO, n->v[0], n->v[0]);
    return p_integer(eider_emit_type(n->e, EIDER_V_BOOL), 0);
}

static pack emit_select(const struct node *n)
{
    return p_select(n->e, n->v[0], n->v[1], n->v[2]);
}

/* What the machine computes. */
#define emit_div by_machine
#define emit_copysign by_machine
#define emit_sqrt by_machine
#define emit_rsqrt by_machine
#define emit_rcp by_machine
#define emit_exp by_machine
#define emit_exp2 by_machine
#define emit_expm1 by_machine
#define emit_log by_machine
#define emit_log2 by_machine
#define emit_log1p by_machine
#define emit_pow by_machine
#define emit_sin by_machine
#define emit_cos by_machine
#define emit_tanh by_machine
#define emit_sigmoid by_machine
#define emit_erf by_machine
#define emit_erfc by_machine
#define emit_normcdf by_machine
#define emit_m_tanh by_machine
#define emit_m_ex2 by_machine
#define emit_m_lg2 by_machine
#define emit_m_log1p by_machine
#define emit_m_rcp by_machine
#define emit_m_rsqrt by_machine
#define emit_m_sqrt by_machine
#define emit_m_sin by_machine
#define emit_m_cos by_machine

/* What is no operation on operands of one type; see lower_node. */
#define emit_poison NULL
#define emit_input NULL
#define emit_scalar NULL
#define emit_number NULL
#define emit_integer NULL
#define emit_call NULL
#define emit_result NULL
#define emit_cast NULL
#define emit_cast_nan NULL
/* Over rows: what a template does around the elements. */
#define emit_row NULL
#define emit_col NULL
#define emit_cols NULL
#define emit_pick NULL
#define emit_sum NULL
#define emit_mean NULL
#define emit_prod NULL
#define emit_rmax NULL
#define emit_rmin NULL
#define emit_amax NULL
#define emit_amin NULL
#define emit_argmax NULL
#define emit_argmin NULL
#define emit_logsumexp NULL
#define emit_any NULL
#define emit_all NULL
#define emit_colsum NULL

static pack (*const emit_table[EIDER_OP_COUNT])(const struct node *n) = {
#define EIDER_OP(name, arity, text, rule, doc) [EIDER_OP_##name] = emit_##name,
#include "ops.def"
};

/* ---- A graph ---------------------------------------------------------------------- */

static pack literal(struct eider_emit *e, const struct eider_cell *cell, enum eider_vtype type)
{
    int whole = cell->op == EIDER_OP_integer;
    LLVMTypeRef pack_type = eider_emit_type(e, type);
    double number = whole ? (double)(int64_t)cell->payload : eider_cell_number(cell);
    if (is_float(type)) return p_number(pack_type, number);
    if (type == EIDER_V_BOOL) return p_integer(pack_type, number != 0);
    return p_integer(pack_type, whole ? (int64_t)cell->payload : (int64_t)number);
}

static int is_literal(const struct eider_cell *cell)
{
    return cell->op == EIDER_OP_number || cell->op == EIDER_OP_integer;
}

static pack operand(const struct eider_lowering *w, eider_node node, enum eider_vtype type)
{
    const struct eider_cell *cell = &w->l->graph->cells[node];
    if (is_literal(cell)) return literal(w->e, cell, type);
    return convert(w->e, w->values[node], type);
}

/* The type in which a comparison is made: the widest of its operands, where a literal adds
 * no more than its kind. */
static enum eider_vtype meeting_type(const struct eider_lowering *w, const eider_node *args,
                                     uint32_t n)
{
    uint8_t real = w->l->math == EIDER_MATH_EXACT ? EIDER_V_F64 : EIDER_V_F32;
    uint8_t widest = EIDER_V_NONE;
    for (uint32_t i = 0; i < n; i++) {
        uint8_t type = w->l->types[args[i]];
        enum eider_op op = (enum eider_op)w->l->graph->cells[args[i]].op;
        if (op == EIDER_OP_number) type = real;
        if (op == EIDER_OP_integer) type = EIDER_V_I32;
        if (type > widest) widest = type;
    }
    return (enum eider_vtype)widest;
}

static pack lower_cast(const struct eider_lowering *w, eider_node id)
{
    const struct eider_cell *cell = &w->l->graph->cells[id];
    eider_node arg = eider_graph_args(w->l->graph, id)[0];
    eider_dtype to = (eider_dtype)cell->payload;
    enum eider_vtype type = (enum eider_vtype)w->l->types[id];
    pack v = operand(w, arg, (enum eider_vtype)w->l->types[arg]);
    if (!is_float(type)) return convert(w->e, v, type);
    v = before_rounding(w->e, v, to);
    return convert(w->e, w->e->machine->round(w->e, to, cell->op == EIDER_OP_cast, v), type);
}

pack eider_lowering_node(const struct eider_lowering *w, eider_node id)
{
    const struct eider_graph *g = w->l->graph;
    const struct eider_cell *cell = &g->cells[id];
    const eider_node *args = eider_graph_args(g, id);
    enum eider_vtype type = (enum eider_vtype)w->l->types[id];
    struct node n = {.e = w->e, .op = (enum eider_op)cell->op, .type = type, .n_uses = w->uses[id]};
    if (is_literal(cell)) return literal(w->e, cell, type);
    if (cell->op == EIDER_OP_input || cell->op == EIDER_OP_scalar)
        return convert(w->e, w->in[cell->payload], type);
    if (cell->op == EIDER_OP_cast || cell->op == EIDER_OP_cast_nan) return lower_cast(w, id);
    if (!emit_table[cell->op])
        return eider_emit_fail(w->e, EIDER_UNSUPPORTED, "the operation %s cannot be lowered",
                               eider_ops[cell->op].name);

    enum eider_type_rule rule = eider_ops[cell->op].rule;
    if (rule == EIDER_RULE_BOOL) n.type = meeting_type(w, args, cell->n_args);
    for (uint32_t i = 0; i < cell->n_args && i < 3; i++) {
        int is_condition = rule == EIDER_RULE_LOGIC || (rule == EIDER_RULE_SELECT && i == 0);
        n.v[i] = operand(w, args[i], is_condition ? EIDER_V_BOOL : n.type);
    }
    return emit_table[cell->op](&n);
}

pack eider_lowering_as(const struct eider_lowering *w, eider_node id, enum eider_vtype type)
{
    return operand(w, id, type);
}

pack eider_lowering_output(const struct eider_lowering *w, uint32_t i)
{
    eider_node node = w->l->graph->operands[i].node;
    enum eider_vtype to = eider_vtype_of(w->l->dtypes[i]);
    pack v = operand(w, node, (enum eider_vtype)w->l->types[node]);
    return is_float(to) ? before_rounding(w->e, v, w->l->dtypes[i]) : convert(w->e, v, to);
}

static void count_uses(const struct eider_graph *g, uint32_t *uses)
{
    for (uint32_t i = 0; i < g->n_operands; i++) uses[g->operands[i].node]++;
    for (eider_node id = g->n_cells; id-- > 1;) {
        const eider_node *args = eider_graph_args(g, id);
        for (uint32_t k = 0; uses[id] && k < g->cells[id].n_args; k++) uses[args[k]]++;
    }
}

eider_status eider_lowering_begin(struct eider_lowering *w, struct eider_emit *e,
                                  const struct eider_lowered *l)
{
    *w = (struct eider_lowering){.e = e, .l = l};
    w->uses = eider_mem_zero(e->allocator, l->graph->n_cells * sizeof *w->uses);
    if (!w->uses) return EIDER_OOM;
    count_uses(l->graph, w->uses);
    return EIDER_OK;
}

void eider_lowering_end(struct eider_lowering *w)
{
    eider_mem_free(w->e->allocator, w->uses);
}

void eider_lower(struct eider_emit *e, const struct eider_lowered *l, const LLVMValueRef *in,
                 LLVMValueRef *out)
{
    const struct eider_graph *g = l->graph;
    struct eider_lowering w;
    if (e->status != EIDER_OK) return;
    e->status = eider_lowering_begin(&w, e, l);
    w.in = in;
    w.values = eider_mem_zero(e->allocator, g->n_cells * sizeof *w.values);
    if (!w.values) e->status = EIDER_OOM;
    for (uint32_t id = 1; id < g->n_cells && e->status == EIDER_OK; id++)
        if (w.uses[id]) {
            eider_lines_set(e, EIDER_LINE_NODE, id);
            LLVMValueRef mark = eider_emit_mark(e);
            w.values[id] = eider_lowering_node(&w, id);
            if (e->status == EIDER_OK) eider_emit_count(e, mark);
        }
    for (uint32_t i = 0; i < g->n_operands && e->status == EIDER_OK; i++)
        if (g->operands[i].kind == EIDER_OUTPUT) {
            eider_lines_set(e, EIDER_LINE_CONVERT, i);
            out[i] = eider_lowering_output(&w, i);
        }
    eider_lines_set(e, EIDER_LINE_ADDRESS, 0);
    eider_mem_free(e->allocator, w.values);
    eider_lowering_end(&w);
}
