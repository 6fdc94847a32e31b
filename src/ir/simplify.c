/* simplify.c -- local identities, one rule per function.
 *
 * Nodes are rebuilt in order; the rules of a node's operation are tried in the order of the
 * table until one answers.  Equal nodes have been one since they were built (graph.h), so
 * there is no pass for common subexpressions.
 *
 * Whoever adds a rule sees to it that
 *   1. it holds for every value of its operands: NaN, infinities, -0, subnormal numbers
 *      (x + 0 is not x: -0 + 0 is 0; x - x is not 0: inf - inf is NaN; pow(x, 0.5) is not
 *      sqrt(x): they differ at -inf).  Which NaN it is, does not count;
 *   2. it holds in f32, in f64 and in every type of integers the operands may have, where
 *      products and sums wrap, and the type of the result stays: x * 1.0 makes an i32 an
 *      f32, so it is x only where x is known to be a float (absorbs, is_float);
 *   3. it rounds as often as before: 0.1 * (0.1 * x) is not 0.01 * x.  What the approximate
 *      modes may do in addition is in mathmode.c;
 *   4. operations on literals alone are done in double, rounded once.  Double is what
 *      math=exact computes in; in f32 it is at least as accurate.  Never make a NaN;
 *   5. what it makes is simpler by some measure that no other rule undoes: fewer or cheaper
 *      nodes, then literals last, then negations further out;
 *   6. it makes nodes through put(), of operands that exist, and answers 0 when it does not
 *      apply, having made nothing;
 *   7. tests/test_simplify.c has a line where it fires, and one where it must not.
 */
#include "passes.h"

#include <math.h>
#include <string.h>

#include "infer.h"
#include "ops.h"

struct fold {
    struct eider_graph *g; /* being made */
    uint8_t *types;        /* of each node of g: the types it may have, as bits */
    uint32_t n_typed;
    enum eider_op op; /* of the node being put */
    uint64_t payload;
};

static eider_node put(struct fold *f, enum eider_op op, const eider_node *args, uint32_t n_args,
                      uint64_t payload);

/* ---- Types ----------------------------------------------------------- */

/* Sets of types, bit i being enum eider_vtype i, whose order is that of promotion. */
#define TYPE(name) (1u << EIDER_V_##name)
#define ANY (TYPE(BOOL) | TYPE(I32) | TYPE(I64) | TYPE(F32) | TYPE(F64))
#define FLOATS (TYPE(F32) | TYPE(F64))

_Static_assert(EIDER_V_BOOL < EIDER_V_I32 && EIDER_V_I32 < EIDER_V_I64 &&
                   EIDER_V_I64 < EIDER_V_F32 && EIDER_V_F32 < EIDER_V_F64,
               "the larger type wins");

static uint32_t promoted(uint32_t a, uint32_t b)
{
    uint32_t set = 0;
    for (uint32_t i = EIDER_V_BOOL; i <= EIDER_V_F64; i++)
        for (uint32_t k = EIDER_V_BOOL; k <= EIDER_V_F64; k++)
            if ((a >> i & 1) && (b >> k & 1)) set |= 1u << (i > k ? i : k);
    return set;
}

static uint32_t stored(int32_t type)
{
    switch (type) {
    case -1:
        return ANY;
    case EIDER_BOOL:
        return TYPE(BOOL);
    case EIDER_I32:
        return TYPE(I32);
    case EIDER_I64:
        return TYPE(I64);
    case EIDER_F64:
        return TYPE(F64);
    default:
        return TYPE(F32);
    }
}

static uint32_t leaf_types(const struct eider_graph *g, const struct eider_cell *cell)
{
    switch (cell->op) {
    case EIDER_OP_input:
    case EIDER_OP_scalar:
        return stored(g->operands[cell->payload].type);
    case EIDER_OP_number:
        return TYPE(F32);
    case EIDER_OP_integer:
        return (int64_t)cell->payload == (int32_t)cell->payload ? TYPE(I32) : TYPE(I64);
    default:
        return ANY; /* calls */
    }
}

static uint32_t types_of(const struct fold *f, eider_node node)
{
    const struct eider_cell *cell = &f->g->cells[node];
    const eider_node *args = eider_graph_args(f->g, node);
    enum eider_type_rule rule = eider_ops[cell->op].rule;
    uint32_t set = rule == EIDER_RULE_FLOAT ? TYPE(F32) : TYPE(BOOL);
    switch (rule) {
    case EIDER_RULE_LEAF:
        return leaf_types(f->g, cell);
    case EIDER_RULE_CAST:
        set = stored((int32_t)cell->payload);
        return set == TYPE(F32) && (f->types[args[0]] & TYPE(F64)) ? FLOATS : set;
    case EIDER_RULE_SELECT:
        return promoted(f->types[args[1]], f->types[args[2]]);
    case EIDER_RULE_PICK:
        return f->types[args[0]];
    case EIDER_RULE_PLACE:
        return cell->op == EIDER_OP_row ? TYPE(I64) : TYPE(I32);
    case EIDER_RULE_INDEX:
        return TYPE(I32);
    case EIDER_RULE_SAME:
    case EIDER_RULE_FLOAT:
        for (uint32_t k = 0; k < cell->n_args; k++) set = promoted(set, f->types[args[k]]);
        return set;
    default:
        return TYPE(BOOL);
    }
}

static int is_float(const struct fold *f, eider_node node)
{
    return (f->types[node] & ~FLOATS) == 0;
}

/* Whether an operation on both has the type of `a` alone, whatever the types are. */
static int absorbs(const struct fold *f, eider_node a, eider_node b)
{
    uint32_t least = f->types[a] & -f->types[a];
    return f->types[b] < least << 1;
}

/* ---- Looking at nodes ------------------------------------------------ */

static const struct eider_cell *cell_of(const struct fold *f, eider_node node)
{
    return &f->g->cells[node];
}

static int is(const struct fold *f, eider_node node, enum eider_op op)
{
    return f->g->cells[node].op == op;
}

static eider_node arg(const struct fold *f, eider_node node, uint32_t k)
{
    return eider_graph_args(f->g, node)[k];
}

/* The value of a literal that a double holds exactly. */
static int is_literal(const struct fold *f, eider_node node, double *value)
{
    const struct eider_cell *cell = cell_of(f, node);
    return eider_cell_literal(cell, value) &&
           (cell->op == EIDER_OP_number || fabs(*value) < 0x1p53);
}

static int is_number(const struct fold *f, eider_node node, double *value)
{
    return is(f, node, EIDER_OP_number) && is_literal(f, node, value);
}

/* A literal equal to `value`, 0 and -0 being different. */
static int is_value(const struct fold *f, eider_node node, double value)
{
    double have;
    return is_literal(f, node, &have) && have == value && !signbit(have) == !signbit(value);
}

/* Whether f32 and f64 hold 2**k exactly for the literal +-2**k, and its inverse. */
static int is_power_of_two(double value)
{
    int exponent;
    return isfinite(value) && fabs(frexp(value, &exponent)) == 0.5 && exponent > -126 &&
           exponent < 126;
}

/* ---- Making nodes ---------------------------------------------------- */

static eider_node put1(struct fold *f, enum eider_op op, eider_node a)
{
    return put(f, op, &a, 1, 0);
}

static eider_node put2(struct fold *f, enum eider_op op, eider_node a, eider_node b)
{
    eider_node args[2] = {a, b};
    return put(f, op, args, 2, 0);
}

static eider_node put_number(struct fold *f, double value)
{
    union {
        double value;
        uint64_t bits;
    } u = {.value = value};
    return put(f, EIDER_OP_number, NULL, 0, u.bits);
}

/* ---- Literals -------------------------------------------------------- */

static int computes(enum eider_op op, double a, double b, double *out)
{
    switch (op) {
    case EIDER_OP_add:
        *out = a + b;
        break;
    case EIDER_OP_sub:
        *out = a - b;
        break;
    case EIDER_OP_mul:
        *out = a * b;
        break;
    case EIDER_OP_div:
        *out = a / b;
        break;
    case EIDER_OP_neg:
        *out = -a;
        break;
    case EIDER_OP_abs:
        *out = fabs(a);
        break;
    case EIDER_OP_max:
        *out = a > b || (a == b && !signbit(a)) ? a : b;
        break;
    case EIDER_OP_min:
        *out = a < b || (a == b && signbit(a)) ? a : b;
        break;
    case EIDER_OP_sqrt:
        *out = sqrt(a);
        break;
    case EIDER_OP_rcp:
        *out = 1 / a;
        break;
    default:
        return 0;
    }
    return 1;
}

/* 2 * 3, sqrt(2), -1: correctly rounded operations only, so that every host agrees. */
static eider_node literal_operands(struct fold *f, const eider_node *v)
{
    double a = 0, b = 0, result;
    int binary = eider_ops[f->op].arity == 2;
    if (!is_literal(f, v[0], &a) || (binary && !is_literal(f, v[1], &b))) return 0;
    if (isnan(a) || isnan(b) || !computes(f->op, a, b, &result) || isnan(result)) return 0;
    int whole = is(f, v[0], EIDER_OP_integer) && (!binary || is(f, v[1], EIDER_OP_integer));
    if (!whole || eider_ops[f->op].rule == EIDER_RULE_FLOAT) return put_number(f, result);
    if (fabs(a) > INT32_MAX || fabs(b) > INT32_MAX || fabs(result) > INT32_MAX) return 0;
    if (result == 0 && signbit(result)) return 0; /* as a double -0, which no integer is */
    return put(f, EIDER_OP_integer, NULL, 0, (uint64_t)(int64_t)result);
}

/* Whether a bool is known: 1 true, 0 false, -1 unknown.  Nothing is beyond infinity. */
static int truth(const struct fold *f, eider_node node)
{
    double a, b;
    if (cell_of(f, node)->n_args != 2 || !is_literal(f, arg(f, node, 1), &b)) return -1;
    if (is(f, node, EIDER_OP_gt) && b == INFINITY) return 0;
    if (is(f, node, EIDER_OP_lt) && b == -INFINITY) return 0;
    if (!is_literal(f, arg(f, node, 0), &a)) return -1;
    switch (cell_of(f, node)->op) {
    case EIDER_OP_eq:
        return a == b;
    case EIDER_OP_ne:
        return a != b;
    case EIDER_OP_lt:
        return a < b;
    case EIDER_OP_le:
        return a <= b;
    case EIDER_OP_gt:
        return a > b;
    case EIDER_OP_ge:
        return a >= b;
    default:
        return -1;
    }
}

/* ---- Sums ------------------------------------------------------------ */

/* x + -0 = x */
static eider_node add_minus_zero(struct fold *f, const eider_node *v)
{
    return is_value(f, v[1], -0.0) && absorbs(f, v[0], v[1]) ? v[0] : 0;
}

/* i + 0 = i for integers */
static eider_node add_integer_zero(struct fold *f, const eider_node *v)
{
    int whole = (f->types[v[0]] & FLOATS) == 0;
    return whole && is_value(f, v[1], 0) && absorbs(f, v[0], v[1]) ? v[0] : 0;
}

/* x - 0 = x */
static eider_node sub_zero(struct fold *f, const eider_node *v)
{
    return is_value(f, v[1], 0) && absorbs(f, v[0], v[1]) ? v[0] : 0;
}

/* a + -b = a - b; integers of two types may not: -b wraps in the narrow one */
static eider_node add_neg(struct fold *f, const eider_node *v)
{
    for (int k = 1; k >= 0; k--)
        if (is(f, v[k], EIDER_OP_neg) && is_float(f, v[k]))
            return put2(f, EIDER_OP_sub, v[!k], arg(f, v[k], 0));
    return 0;
}

/* a - -b = a + b */
static eider_node sub_neg(struct fold *f, const eider_node *v)
{
    if (!is(f, v[1], EIDER_OP_neg) || !is_float(f, v[1])) return 0;
    return put2(f, EIDER_OP_add, v[0], arg(f, v[1], 0));
}

/* ---- Products -------------------------------------------------------- */

/* x * 1 = x */
static eider_node mul_one(struct fold *f, const eider_node *v)
{
    return is_value(f, v[1], 1) && absorbs(f, v[0], v[1]) ? v[0] : 0;
}

/* x * -1 = -x */
static eider_node mul_minus_one(struct fold *f, const eider_node *v)
{
    if (!is_value(f, v[1], -1) || !absorbs(f, v[0], v[1])) return 0;
    return put1(f, EIDER_OP_neg, v[0]);
}

/* -a * 3.0 = a * -3.0 */
static eider_node mul_neg_literal(struct fold *f, const eider_node *v)
{
    double factor;
    if (!is(f, v[0], EIDER_OP_neg) || !is_float(f, v[0]) || !is_number(f, v[1], &factor)) return 0;
    return put2(f, EIDER_OP_mul, arg(f, v[0], 0), put_number(f, -factor));
}

/* -a * b = -(a * b), and -a / b; -a * -b = a * b comes from both and neg_neg */
static eider_node product_neg(struct fold *f, const eider_node *v)
{
    for (int k = 0; k < 2; k++) {
        if (!is(f, v[k], EIDER_OP_neg) || !is_float(f, v[k])) continue;
        eider_node plain[2] = {v[0], v[1]};
        plain[k] = arg(f, v[k], 0);
        return put1(f, EIDER_OP_neg, put(f, f->op, plain, 2, 0));
    }
    return 0;
}

/* (x * 2) * 4 = x * 8: exact where neither factor is below 1 and their product is an f32 */
static eider_node mul_powers_of_two(struct fold *f, const eider_node *v)
{
    double outer, inner;
    if (!is_number(f, v[1], &outer) || !is(f, v[0], EIDER_OP_mul)) return 0;
    if (!is_number(f, arg(f, v[0], 1), &inner)) return 0;
    if (!is_power_of_two(outer) || !is_power_of_two(inner) || !is_power_of_two(outer * inner))
        return 0;
    if (fabs(outer) < 1 || fabs(inner) < 1) return 0;
    return put2(f, EIDER_OP_mul, arg(f, v[0], 0), put_number(f, outer * inner));
}

/* x / 1 = x */
static eider_node div_one(struct fold *f, const eider_node *v)
{
    return is_value(f, v[1], 1) && is_float(f, v[0]) ? v[0] : 0;
}

/* x / 4 = x * 0.25; the quotient of integers is an f32, too */
static eider_node div_power_of_two(struct fold *f, const eider_node *v)
{
    double divisor;
    if (!is_literal(f, v[1], &divisor) || !is_power_of_two(divisor)) return 0;
    return put2(f, EIDER_OP_mul, v[0], put_number(f, 1 / divisor));
}

/* 1 / x */
static eider_node div_of_one(struct fold *f, const eider_node *v)
{
    return is_value(f, v[0], 1) ? put1(f, EIDER_OP_rcp, v[1]) : 0;
}

/* pow(x, 1) = x, pow(x, 2) = x * x, pow(x, -1) = 1 / x; integers are squared as f32 */
static eider_node pow_small(struct fold *f, const eider_node *v)
{
    if (!is_float(f, v[0]) || !absorbs(f, v[0], v[1])) return 0;
    if (is_value(f, v[1], 1)) return v[0];
    if (is_value(f, v[1], 2)) return put2(f, EIDER_OP_mul, v[0], v[0]);
    if (is_value(f, v[1], -1)) return put1(f, EIDER_OP_rcp, v[0]);
    return 0;
}

/* ---- Signs ----------------------------------------------------------- */

/* --x = x */
static eider_node neg_neg(struct fold *f, const eider_node *v)
{
    return is(f, v[0], EIDER_OP_neg) ? arg(f, v[0], 0) : 0;
}

/* -(a * 3.0) = a * -3.0 */
static eider_node neg_product(struct fold *f, const eider_node *v)
{
    double factor;
    if (!is(f, v[0], EIDER_OP_mul) || !is_number(f, arg(f, v[0], 1), &factor)) return 0;
    return put2(f, EIDER_OP_mul, arg(f, v[0], 0), put_number(f, -factor));
}

/* abs(-x) = abs(abs(x)) = abs(x) */
static eider_node abs_sign(struct fold *f, const eider_node *v)
{
    if (is(f, v[0], EIDER_OP_abs)) return v[0];
    return is(f, v[0], EIDER_OP_neg) ? put1(f, EIDER_OP_abs, arg(f, v[0], 0)) : 0;
}

/* ---- Maximum and minimum --------------------------------------------- */

/* max(x, x) = x and p and p = p */
static eider_node idempotent(struct fold *f, const eider_node *v)
{
    (void)f;
    return v[0] == v[1] ? v[0] : 0;
}

/* max(x, -inf) = x = min(x, inf); fmax and fmin make a number of NaN */
static eider_node no_limit(struct fold *f, const eider_node *v)
{
    double none = f->op == EIDER_OP_max ? -INFINITY : INFINITY;
    for (int k = 0; k < 2; k++)
        if (is_value(f, v[k], none) && absorbs(f, v[!k], v[k])) return v[!k];
    return 0;
}

/* max(max(a, b), b) = max(a, b) */
static eider_node same_limit(struct fold *f, const eider_node *v)
{
    for (int k = 0; k < 2; k++)
        if (is(f, v[k], f->op) && (arg(f, v[k], 0) == v[!k] || arg(f, v[k], 1) == v[!k]))
            return v[k];
    return 0;
}

/* max(max(x, 1.0), 2.0) = max(x, 2.0) */
static eider_node stricter_limit(struct fold *f, const eider_node *v)
{
    enum eider_op op = f->op;
    double outer, inner, both;
    if (!is(f, v[0], op) || !is_number(f, v[1], &outer)) return 0;
    if (!is_number(f, arg(f, v[0], 1), &inner) || isnan(inner) || isnan(outer)) return 0;
    if (!computes(op, inner, outer, &both)) return 0;
    return put2(f, op, arg(f, v[0], 0), put_number(f, both));
}

/* ---- Casts ----------------------------------------------------------- */

/* Whether every value of `narrow` is one of `wide`, as f32. */
static int holds(int32_t wide, int32_t narrow)
{
    int fp8 = narrow == EIDER_E4M3 || narrow == EIDER_E5M2;
    switch (wide) {
    case EIDER_F32:
        return fp8 || narrow == EIDER_F32 || narrow == EIDER_F16 || narrow == EIDER_BF16;
    case EIDER_F16:
        return fp8 || narrow == EIDER_F16;
    case EIDER_BF16:
        return fp8 || narrow == EIDER_BF16;
    default:
        return wide == narrow;
    }
}

/* cast(cast(x, bf16), f32) = cast(x, bf16), and cast(x, bf16) = x for an input of bf16.  An
 * infinity of e5m2 is not kept by a cast that saturates. */
static eider_node cast_of_value(struct fold *f, const eider_node *v)
{
    const struct eider_cell *inner = cell_of(f, v[0]);
    int32_t from = -1;
    if (inner->op == EIDER_OP_cast || inner->op == EIDER_OP_cast_nan)
        from = (int32_t)inner->payload;
    if (inner->op == EIDER_OP_input || inner->op == EIDER_OP_scalar)
        from = f->g->operands[inner->payload].type;
    if (from == -1 || !holds((int32_t)f->payload, from)) return 0;
    int saturates = f->op == EIDER_OP_cast && inner->op != EIDER_OP_cast;
    return f->payload == EIDER_E5M2 && saturates ? 0 : v[0];
}

/* cast(0.1, bf16) = 0.10009765625 */
static eider_node cast_of_number(struct fold *f, const eider_node *v)
{
    double value;
    uint32_t to = stored((int32_t)f->payload);
    if (to != TYPE(F32) || !is_number(f, v[0], &value)) return 0;
    double rounded = eider_round_to(value, (eider_dtype)f->payload, f->op == EIDER_OP_cast);
    return isnan(rounded) ? 0 : put_number(f, rounded);
}

/* ---- Conditions ------------------------------------------------------ */

/* not not p = p; not a == b is a != b; NaN keeps the others apart: not a < b is not a >= b */
static eider_node not_of_bool(struct fold *f, const eider_node *v)
{
    switch (cell_of(f, v[0])->op) {
    case EIDER_OP_not:
        return arg(f, v[0], 0);
    case EIDER_OP_eq:
        return put2(f, EIDER_OP_ne, arg(f, v[0], 0), arg(f, v[0], 1));
    case EIDER_OP_ne:
        return put2(f, EIDER_OP_eq, arg(f, v[0], 0), arg(f, v[0], 1));
    default:
        return 0;
    }
}

/* p and 1 < 2 = p; p and 2 < 1 = 2 < 1 */
static eider_node logic_known(struct fold *f, const eider_node *v)
{
    int neutral = f->op == EIDER_OP_and;
    for (int k = 0; k < 2; k++) {
        int known = truth(f, v[k]);
        if (known >= 0) return known == neutral ? v[!k] : v[k];
    }
    return 0;
}

/* select(p, x, x) = x */
static eider_node select_same(struct fold *f, const eider_node *v)
{
    (void)f;
    return v[1] == v[2] ? v[1] : 0;
}

/* select(1 < 2, a, b) = a, where b would not have widened it */
static eider_node select_known(struct fold *f, const eider_node *v)
{
    int known = truth(f, v[0]);
    if (known < 0) return 0;
    eider_node taken = known ? v[1] : v[2], other = known ? v[2] : v[1];
    return absorbs(f, taken, other) ? taken : 0;
}

/* select(not p, a, b) = select(p, b, a) */
static eider_node select_not(struct fold *f, const eider_node *v)
{
    if (!is(f, v[0], EIDER_OP_not)) return 0;
    eider_node swapped[3] = {arg(f, v[0], 0), v[2], v[1]};
    return put(f, EIDER_OP_select, swapped, 3, 0);
}

/* select(p, select(p, a, b), c) = select(p, a, c), and so for c */
static eider_node select_select(struct fold *f, const eider_node *v)
{
    for (uint32_t k = 1; k < 3; k++) {
        if (!is(f, v[k], EIDER_OP_select) || arg(f, v[k], 0) != v[0]) continue;
        eider_node taken = arg(f, v[k], k), other = arg(f, v[k], 3 - k);
        if (!absorbs(f, taken, other) && !absorbs(f, v[3 - k], other)) continue;
        eider_node plain[3] = {v[0], v[1], v[2]};
        plain[k] = taken;
        return put(f, EIDER_OP_select, plain, 3, 0);
    }
    return 0;
}

/* ---- The table ------------------------------------------------------- */

static const struct {
    enum eider_op op;
    eider_node (*rule)(struct fold *f, const eider_node *v);
} rules[] = {
    {EIDER_OP_add, literal_operands},
    {EIDER_OP_add, add_minus_zero},
    {EIDER_OP_add, add_integer_zero},
    {EIDER_OP_add, add_neg},
    {EIDER_OP_sub, literal_operands},
    {EIDER_OP_sub, sub_zero},
    {EIDER_OP_sub, sub_neg},
    {EIDER_OP_mul, literal_operands},
    {EIDER_OP_mul, mul_one},
    {EIDER_OP_mul, mul_minus_one},
    {EIDER_OP_mul, mul_neg_literal},
    {EIDER_OP_mul, product_neg},
    {EIDER_OP_mul, mul_powers_of_two},
    {EIDER_OP_div, literal_operands},
    {EIDER_OP_div, div_one},
    {EIDER_OP_div, div_power_of_two},
    {EIDER_OP_div, div_of_one},
    {EIDER_OP_div, product_neg},
    {EIDER_OP_pow, pow_small},
    {EIDER_OP_neg, literal_operands},
    {EIDER_OP_neg, neg_neg},
    {EIDER_OP_neg, neg_product},
    {EIDER_OP_abs, literal_operands},
    {EIDER_OP_abs, abs_sign},
    {EIDER_OP_sqrt, literal_operands},
    {EIDER_OP_rcp, literal_operands},
    {EIDER_OP_max, literal_operands},
    {EIDER_OP_max, idempotent},
    {EIDER_OP_max, no_limit},
    {EIDER_OP_max, same_limit},
    {EIDER_OP_max, stricter_limit},
    {EIDER_OP_min, literal_operands},
    {EIDER_OP_min, idempotent},
    {EIDER_OP_min, no_limit},
    {EIDER_OP_min, same_limit},
    {EIDER_OP_min, stricter_limit},
    {EIDER_OP_fmax, idempotent},
    {EIDER_OP_fmin, idempotent},
    {EIDER_OP_cast, cast_of_value},
    {EIDER_OP_cast, cast_of_number},
    {EIDER_OP_cast_nan, cast_of_value},
    {EIDER_OP_cast_nan, cast_of_number},
    {EIDER_OP_not, not_of_bool},
    {EIDER_OP_and, idempotent},
    {EIDER_OP_and, logic_known},
    {EIDER_OP_or, idempotent},
    {EIDER_OP_or, logic_known},
    {EIDER_OP_select, select_same},
    {EIDER_OP_select, select_known},
    {EIDER_OP_select, select_not},
    {EIDER_OP_select, select_select},
};

/* Operations whose first two operands may change places. */
static int commutes(enum eider_op op)
{
    return op == EIDER_OP_add || op == EIDER_OP_mul || op == EIDER_OP_fma || op == EIDER_OP_max ||
           op == EIDER_OP_min || op == EIDER_OP_eq || op == EIDER_OP_ne || op == EIDER_OP_and ||
           op == EIDER_OP_or;
}

/* Literals last, else in the order in which they were made. */
static void order(const struct fold *f, eider_node *v)
{
    double value;
    int first = is_literal(f, v[0], &value), second = is_literal(f, v[1], &value);
    if (first != second ? first : v[0] > v[1]) {
        eider_node other = v[0];
        v[0] = v[1];
        v[1] = other;
    }
}

static eider_node put(struct fold *f, enum eider_op op, const eider_node *args, uint32_t n_args,
                      uint64_t payload)
{
    eider_node v[EIDER_CALL_ARGS_MAX];
    for (uint32_t k = 0; k < n_args; k++) {
        v[k] = args[k];
        if (v[k] == 0) return 0;
    }
    if (commutes(op)) order(f, v);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (rules[i].op != op) continue;
        f->op = op;
        f->payload = payload;
        eider_node simpler = rules[i].rule(f, v);
        if (simpler) return simpler;
    }
    eider_node node = eider_graph_put(f->g, op, v, n_args, payload);
    for (; f->n_typed < f->g->n_cells; f->n_typed++)
        f->types[f->n_typed] = (uint8_t)types_of(f, f->n_typed);
    return node;
}

static eider_status simplify(const struct eider_graph *from, struct fold *f, eider_node *map)
{
    struct eider_graph *to = f->g;
    memcpy(to->operands, from->operands, sizeof to->operands);
    to->n_operands = from->n_operands;
    for (eider_node id = 1; id < from->n_cells; id++) {
        const struct eider_cell *cell = &from->cells[id];
        const eider_node *args = eider_graph_args(from, id);
        eider_node mapped[EIDER_CALL_ARGS_MAX];
        for (uint32_t k = 0; k < cell->n_args; k++) mapped[k] = map[args[k]];
        to->origin = from->origins[id];
        map[id] = put(f, (enum eider_op)cell->op, mapped, cell->n_args, cell->payload);
    }
    for (uint32_t i = 0; i < to->n_operands; i++)
        to->operands[i].node = map[from->operands[i].node];
    return to->status;
}

eider_status eider_simplify(const struct eider_graph *from, struct eider_graph **out)
{
    const eider_allocator *a = &from->allocator;
    struct fold f = {.n_typed = 1};
    eider_node *map = eider_mem_zero(a, from->n_cells * sizeof *map);
    f.types = eider_mem_zero(a, EIDER_NODES_MAX);
    eider_status status = map && f.types ? eider_graph_create(a, &f.g) : EIDER_OOM;
    if (status == EIDER_OK) status = simplify(from, &f, map);
    if (status == EIDER_OK) status = eider_graph_copy(f.g, out);
    eider_graph_destroy(f.g);
    eider_mem_free(a, map);
    eider_mem_free(a, f.types);
    return status;
}
