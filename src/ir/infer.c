/* infer.c -- see infer.h.
 *
 * Two sweeps.  Forward, a node made of literals alone stays weak: it has no type, only a
 * kind.  Backward, each weak node takes the widest type that a user computes in, so that
 * 1.0 / 3.0 * x is as precise as x.
 */
#include "infer.h"

#include <stdio.h>

#include "ops.h"

/* Literals, and what is computed from them alone. */
enum { WEAK_INTEGER = EIDER_V_F64 + 1, WEAK_NUMBER };

static const char *const names[] = {"nothing", "bool", "i32",        "i64",
                                    "f32",     "f64",  "an integer", "a number"};

struct inference {
    const struct eider_graph *g;
    const eider_dtype *dtypes;
    uint8_t *types;
    uint8_t real; /* what f32 arithmetic is done in */
};

static int is_weak(int type)
{
    return type > EIDER_V_F64;
}

static int is_integer(int type)
{
    return type == EIDER_V_I32 || type == EIDER_V_I64;
}

enum eider_vtype eider_vtype_of(eider_dtype type)
{
    switch (type) {
    case EIDER_BOOL:
        return EIDER_V_BOOL;
    case EIDER_I32:
        return EIDER_V_I32;
    case EIDER_I64:
        return EIDER_V_I64;
    case EIDER_F64:
        return EIDER_V_F64;
    default:
        return EIDER_V_F32;
    }
}

static uint8_t compute_type(const struct inference *in, eider_dtype type)
{
    enum eider_vtype v = eider_vtype_of(type);
    return v == EIDER_V_F32 ? in->real : (uint8_t)v;
}

/* The type that two numbers meet in. */
static uint8_t promote(const struct inference *in, uint8_t a, uint8_t b)
{
    if (a == WEAK_INTEGER) return b;
    if (b == WEAK_INTEGER) return a;
    if (a == WEAK_NUMBER) return is_integer(b) ? in->real : b;
    if (b == WEAK_NUMBER) return is_integer(a) ? in->real : a;
    return a > b ? a : b;
}

/* ---- Forward -------------------------------------------------------------- */

static eider_status mismatch(const struct inference *in, eider_node id, const char *rule)
{
    const struct eider_cell *cell = &in->g->cells[id];
    const eider_node *args = eider_graph_args(in->g, id);
    const char *t[3] = {"", "", ""};
    for (uint32_t k = 0; k < cell->n_args && k < 3; k++) t[k] = names[in->types[args[k]]];
    return eider_fail(EIDER_TYPE, "%s of %s%s%s%s%s: %s", eider_ops[cell->op].name, t[0],
                      cell->n_args > 1 ? ", " : "", t[1], cell->n_args > 2 ? ", " : "", t[2], rule);
}

/* The promoted type of operands [first, n). */
static uint8_t promoted(const struct inference *in, eider_node id, uint32_t first)
{
    const eider_node *args = eider_graph_args(in->g, id);
    uint8_t type = WEAK_INTEGER;
    for (uint32_t k = first; k < in->g->cells[id].n_args; k++)
        type = promote(in, type, in->types[args[k]]);
    return type;
}

static uint32_t count_bools(const struct inference *in, eider_node id, uint32_t first)
{
    const eider_node *args = eider_graph_args(in->g, id);
    uint32_t n = 0;
    for (uint32_t k = first; k < in->g->cells[id].n_args; k++)
        n += in->types[args[k]] == EIDER_V_BOOL;
    return n;
}

static const char no_bools[] = "a bool becomes a number by select only";

static eider_status infer_number(struct inference *in, eider_node id)
{
    if (count_bools(in, id, 0)) return mismatch(in, id, no_bools);
    enum eider_type_rule rule = eider_ops[in->g->cells[id].op].rule;
    uint8_t type = promoted(in, id, 0);
    if (rule == EIDER_RULE_FLOAT && is_integer(type)) type = in->real;
    if (rule == EIDER_RULE_FLOAT && type == WEAK_INTEGER) type = WEAK_NUMBER;
    in->types[id] = rule == EIDER_RULE_BOOL ? EIDER_V_BOOL : type;
    return EIDER_OK;
}

static eider_status infer_logic(struct inference *in, eider_node id)
{
    if (count_bools(in, id, 0) != in->g->cells[id].n_args)
        return mismatch(in, id, "its operands are bools, such as comparisons");
    in->types[id] = EIDER_V_BOOL;
    return EIDER_OK;
}

static eider_status infer_select(struct inference *in, eider_node id)
{
    uint32_t bools = count_bools(in, id, 1);
    if (in->types[eider_graph_args(in->g, id)[0]] != EIDER_V_BOOL)
        return mismatch(in, id, "its condition is a bool, such as a comparison");
    if (bools == 1) return mismatch(in, id, "both values are bools, or none is");
    in->types[id] = bools ? EIDER_V_BOOL : promoted(in, id, 1);
    return EIDER_OK;
}

static eider_status infer_cast(struct inference *in, eider_node id)
{
    uint8_t to = compute_type(in, (eider_dtype)in->g->cells[id].payload);
    if (in->types[eider_graph_args(in->g, id)[0]] == EIDER_V_BOOL && to != EIDER_V_BOOL)
        return mismatch(in, id, no_bools);
    in->types[id] = to;
    return EIDER_OK;
}

/* The input that a value is, or is first computed from; NULL where that is none. */
static const char *source_of(const struct eider_graph *g, eider_node id)
{
    while (g->cells[id].n_args) id = eider_graph_args(g, id)[g->cells[id].op == EIDER_OP_select];
    return g->cells[id].op == EIDER_OP_input ? g->operands[g->cells[id].payload].name : NULL;
}

static eider_status infer_pick(struct inference *in, eider_node id)
{
    const eider_node *args = eider_graph_args(in->g, id);
    uint8_t place = in->types[args[1]];
    char reason[160] = "the place in the row is an integer";
    if (!is_integer(place) && place != WEAK_INTEGER) {
        const char *source = source_of(in->g, args[1]);
        if (source)
            snprintf(reason, sizeof reason,
                     "the place in the row is an integer, and so '%s' should be i32 or i64",
                     source);
        return mismatch(in, id, reason);
    }
    in->types[id] = in->types[args[0]];
    return EIDER_OK;
}

static eider_status infer_place(struct inference *in, eider_node id)
{
    in->types[id] = in->g->cells[id].op == EIDER_OP_row ? EIDER_V_I64 : EIDER_V_I32;
    return EIDER_OK;
}

static eider_status infer_index(struct inference *in, eider_node id)
{
    if (count_bools(in, id, 0)) return mismatch(in, id, no_bools);
    in->types[id] = EIDER_V_I32;
    return EIDER_OK;
}

static eider_status infer_leaf(struct inference *in, eider_node id)
{
    const struct eider_cell *cell = &in->g->cells[id];
    switch (cell->op) {
    case EIDER_OP_input:
    case EIDER_OP_scalar:
        in->types[id] = compute_type(in, in->dtypes[cell->payload]);
        break;
    case EIDER_OP_number:
        in->types[id] = WEAK_NUMBER;
        break;
    case EIDER_OP_integer:
        in->types[id] = WEAK_INTEGER;
        break;
    default:
        return eider_fail(EIDER_BAD_ARG, "%s: types are inferred after expansion",
                          eider_ops[cell->op].name);
    }
    return EIDER_OK;
}

static eider_status (*const rules[])(struct inference *in, eider_node id) = {
    [EIDER_RULE_LEAF] = infer_leaf,    [EIDER_RULE_SAME] = infer_number,
    [EIDER_RULE_FLOAT] = infer_number, [EIDER_RULE_BOOL] = infer_number,
    [EIDER_RULE_LOGIC] = infer_logic,  [EIDER_RULE_SELECT] = infer_select,
    [EIDER_RULE_CAST] = infer_cast,    [EIDER_RULE_PICK] = infer_pick,
    [EIDER_RULE_PLACE] = infer_place,  [EIDER_RULE_INDEX] = infer_index,
};

/* ---- Backward ------------------------------------------------------------- */

/* Asks a weak node for at least `type`, which may be weak itself. */
static void want(uint8_t *wanted, eider_node node, uint8_t type)
{
    if (is_weak(type)) return;
    if (type > wanted[node]) wanted[node] = type;
}

/* What node `id`, whose own type is settled, computes its operands in. */
static void want_operands(struct inference *in, eider_node id, uint8_t *wanted)
{
    const struct eider_cell *cell = &in->g->cells[id];
    const eider_node *args = eider_graph_args(in->g, id);
    enum eider_type_rule rule = eider_ops[cell->op].rule;
    uint8_t type = in->types[id];
    uint32_t n = rule == EIDER_RULE_PICK ? 1 : cell->n_args; /* a place is never widened */
    if (rule == EIDER_RULE_BOOL || rule == EIDER_RULE_INDEX) type = promoted(in, id, 0);
    if (rule == EIDER_RULE_LOGIC || rule == EIDER_RULE_LEAF || type == EIDER_V_BOOL) return;
    for (uint32_t k = 0; k < n; k++)
        if (is_weak(in->types[args[k]])) want(wanted, args[k], type);
}

static void settle(struct inference *in, eider_node id, uint8_t *wanted)
{
    uint8_t weak = in->types[id];
    if (is_weak(weak)) {
        uint8_t least = weak == WEAK_NUMBER ? in->real : EIDER_V_I32;
        in->types[id] = wanted[id] > least ? wanted[id] : least;
    }
    want_operands(in, id, wanted);
}

static eider_status check_outputs(struct inference *in, uint8_t *wanted)
{
    for (uint32_t i = 0; i < in->g->n_operands; i++) {
        const struct eider_graph_operand *o = &in->g->operands[i];
        if (o->kind != EIDER_OUTPUT) continue;
        uint8_t stored = compute_type(in, in->dtypes[i]);
        if (in->types[o->node] == EIDER_V_BOOL && stored != EIDER_V_BOOL)
            return eider_fail(EIDER_TYPE, "output %s: a bool cannot be stored as %s; %s", o->name,
                              eider_dtype_name(in->dtypes[i]), no_bools);
        want(wanted, o->node, stored);
    }
    return EIDER_OK;
}

eider_status eider_infer(const struct eider_graph *g, const eider_dtype *dtypes, int wide,
                         uint8_t *types)
{
    struct inference in = {g, dtypes, types, wide ? EIDER_V_F64 : EIDER_V_F32};
    types[0] = EIDER_V_NONE;
    for (eider_node id = 1; id < g->n_cells; id++)
        EIDER_TRY(rules[eider_ops[g->cells[id].op].rule](&in, id));
    uint8_t *wanted = eider_mem_zero(&g->allocator, g->n_cells);
    if (!wanted) return EIDER_OOM;
    eider_status status = check_outputs(&in, wanted);
    if (status == EIDER_OK)
        for (eider_node id = g->n_cells; id-- > 1;) settle(&in, id, wanted);
    eider_mem_free(&g->allocator, wanted);
    return status;
}
