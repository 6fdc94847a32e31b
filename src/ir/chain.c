/* chain.c -- see chain.h.
 *
 * A derivative is written in the form that loses no digits where it is small:
 * sigmoid(a) * sigmoid(-a), never 1 - sigmoid(a).  The modes that can afford the short form
 * find it there (mathmode.c).
 */
#include "chain.h"

#include <math.h>

#include "activations.h"
#include "extent.h"
#include "ops.h"
#include "scatter.h"

#define LN2 0.6931471805599453
#define LOG2_E 1.4426950408889634
#define TWO_OVER_SQRT_PI 1.1283791670955126
#define ONE_OVER_SQRT_2PI 0.3989422804014327

/* One node about to share its cotangent with its operands.  Values are nodes of `to`. */
struct site {
    struct eider_chain *chain;
    eider_node node; /* in `from`, as are the operands */
    const struct eider_cell *cell;
    const eider_node *args;
    struct eider_cotangent bar;
    eider_node y, a, b, c; /* the node's own value and its operands' */
};

/* ---- Building in the backward graph ---------------------------------- */

static eider_node number(const struct site *s, double value)
{
    return eider_graph_number(s->chain->to, value);
}

static eider_node apply(const struct site *s, enum eider_op op, eider_node a)
{
    return eider_graph_unary(s->chain->to, op, a);
}

static eider_node join(const struct site *s, enum eider_op op, eider_node a, eider_node b)
{
    return eider_graph_binary(s->chain->to, op, a, b);
}

static eider_node mul(const struct site *s, eider_node a, eider_node b)
{
    return join(s, EIDER_OP_mul, a, b);
}

static eider_node scale(const struct site *s, eider_node a, double factor)
{
    return mul(s, a, number(s, factor));
}

static eider_node choose(const struct site *s, eider_node condition, eider_node a, eider_node b)
{
    return eider_graph_ternary(s->chain->to, EIDER_OP_select, condition, a, b);
}

static int is_literal(const struct eider_graph *g, eider_node node)
{
    double value;
    return eider_cell_literal(&g->cells[node], &value);
}

/* ---- Cotangents ------------------------------------------------------ */

static eider_node both(struct eider_graph *g, eider_node a, eider_node b)
{
    return a && b ? eider_graph_binary(g, EIDER_OP_and, a, b) : a ? a : b;
}

static void settle_faded(struct eider_graph *g, struct eider_cotangent *bar)
{
    if (!bar->faded) return;
    eider_node zero = eider_graph_number(g, 0);
    eider_node nonzero = eider_graph_binary(g, EIDER_OP_ne, bar->faded, zero);
    bar->guard = both(g, bar->guard, nonzero);
    bar->faded = 0;
}

eider_node eider_chain_whole(struct eider_chain *c, struct eider_cotangent bar)
{
    struct eider_graph *g = c->to;
    eider_node value = bar.core;
    if (bar.factor) {
        if (!bar.is_apart) settle_faded(g, &bar);
        value = eider_graph_binary(g, EIDER_OP_mul, value, bar.factor);
    }
    if (!bar.guard) return value;
    return eider_graph_ternary(g, EIDER_OP_select, bar.guard, value, eider_graph_number(g, 0));
}

/* `more`, summed over the row where its user has a value for every element and `node`, that it
 * reaches, one for all of them.  Columns are summed where everything has come together: at
 * inputs (grad.c). */
static struct eider_cotangent gathered(struct eider_chain *c, eider_node node,
                                       struct eider_cotangent more)
{
    if (!(c->used_by & ~c->bits[node] & EIDER_BY_COL)) return more;
    eider_node whole = eider_chain_whole(c, more);
    return (struct eider_cotangent){.core = eider_graph_unary(c->to, EIDER_OP_sum, whole)};
}

void eider_chain_add(struct eider_chain *c, eider_node node, struct eider_cotangent more)
{
    if (!c->active[node]) return;
    if (c->over_rows) more = gathered(c, node, more);
    struct eider_cotangent *bar = &c->bar[node];
    if (!bar->core) {
        *bar = more;
        return;
    }
    struct eider_cotangent sum = more;
    if (bar->factor == more.factor && bar->guard == more.guard && bar->faded == more.faded) {
        sum.core = eider_graph_binary(c->to, EIDER_OP_add, bar->core, more.core);
    } else {
        eider_node a = eider_chain_whole(c, *bar), b = eider_chain_whole(c, more);
        sum = (struct eider_cotangent){.core = eider_graph_binary(c->to, EIDER_OP_add, a, b)};
    }
    *bar = sum;
}

/* Operand k gets `core`, which is the node's own cotangent times something bounded. */
static void pass(const struct site *s, int k, eider_node core)
{
    struct eider_cotangent bar = s->bar;
    bar.core = core;
    eider_chain_add(s->chain, s->args[k], bar);
}

/* The same, times something that may be infinite. */
static void give(const struct site *s, int k, eider_node core)
{
    struct eider_cotangent bar = s->bar;
    settle_faded(s->chain->to, &bar);
    bar.core = core;
    eider_chain_add(s->chain, s->args[k], bar);
}

/* The same to a node of `from`, times a slope that vanishes at an infinity where the value is
 * finite. */
static void give_fading_to(const struct site *s, eider_node node, eider_node core)
{
    struct eider_cotangent bar = s->bar;
    settle_faded(s->chain->to, &bar);
    bar.core = bar.faded = core;
    eider_chain_add(s->chain, node, bar);
}

static void give_fading(const struct site *s, int k, eider_node core)
{
    give_fading_to(s, s->args[k], core);
}

/* Operand k gets the node's cotangent where `condition` holds. */
static void give_where(const struct site *s, int k, eider_node condition)
{
    struct eider_cotangent bar = s->bar;
    bar.guard = both(s->chain->to, bar.guard, condition);
    eider_chain_add(s->chain, s->args[k], bar);
}

/* ---- Arithmetic ------------------------------------------------------ */

static void grad_add(const struct site *s)
{
    pass(s, 0, s->bar.core);
    pass(s, 1, s->bar.core);
}

static void grad_sub(const struct site *s)
{
    pass(s, 0, s->bar.core);
    pass(s, 1, apply(s, EIDER_OP_neg, s->bar.core));
}

static void grad_neg(const struct site *s)
{
    pass(s, 0, apply(s, EIDER_OP_neg, s->bar.core));
}

/* The only operand of a sum or multiple that a cotangent passes to, or 0. */
static eider_node only_active(const struct eider_chain *c, eider_node node)
{
    const struct eider_cell *cell = &c->from->cells[node];
    const eider_node *args = eider_graph_args(c->from, node);
    switch (cell->op) {
    case EIDER_OP_neg:
        return args[0];
    case EIDER_OP_add:
    case EIDER_OP_sub:
        return !c->active[args[0]] ? args[1] : !c->active[args[1]] ? args[0] : 0;
    case EIDER_OP_mul:
        return is_literal(c->from, args[0]) ? args[1] : is_literal(c->from, args[1]) ? args[0] : 0;
    default:
        return 0;
    }
}

/* Whether operand k is a function's value, or 1.0 plus twice one, that nothing else uses. */
static int is_private_function(const struct site *s, int k)
{
    const struct eider_chain *c = s->chain;
    for (eider_node node = s->args[k]; node; node = only_active(c, node)) {
        const struct eider_cell *cell = &c->from->cells[node];
        const struct eider_op_row *row = &eider_ops[cell->op];
        if (c->uses[node] != 1) return 0;
        if (cell->op == EIDER_OP_call) return 1;
        if (row->arity == 1 && row->rule == EIDER_RULE_FLOAT) return 1;
    }
    return 0;
}

/* Operand k gets the cotangent times `other`: afterwards where its own slope is still to come. */
static void give_product(const struct site *s, int k)
{
    const struct eider_chain *c = s->chain;
    struct eider_cotangent bar = s->bar;
    eider_node other = k ? s->a : s->b;
    if (is_literal(c->to, other)) {
        pass(s, k, mul(s, bar.core, other));
    } else if (!bar.factor && is_private_function(s, k)) {
        bar.factor = other;
        bar.is_apart = (c->leaves[s->args[0]] & c->leaves[s->args[1]]) == 0;
        eider_chain_add(s->chain, s->args[k], bar);
    } else {
        give(s, k, mul(s, bar.core, other));
    }
}

static void grad_mul(const struct site *s)
{
    give_product(s, 0);
    give_product(s, 1);
}

/* -(g * y) / b, not -(g / b) * y: 0 / b is 0 however small b is.  But where b has its own slope
 * still to come, -g / b times that slope, then y: g * y may overflow. */
static void give_divisor(const struct site *s, eider_node quotient)
{
    const struct eider_chain *c = s->chain;
    struct eider_cotangent bar = s->bar;
    if (bar.factor || !is_private_function(s, 1)) {
        eider_node product = join(s, EIDER_OP_div, mul(s, bar.core, s->y), s->b);
        give_fading(s, 1, apply(s, EIDER_OP_neg, product));
        return;
    }
    settle_faded(c->to, &bar);
    bar.core = bar.faded = apply(s, EIDER_OP_neg, quotient);
    bar.factor = s->y;
    eider_chain_add(s->chain, s->args[1], bar);
}

static void grad_div(const struct site *s)
{
    eider_node quotient = join(s, EIDER_OP_div, s->bar.core, s->b);
    if (is_literal(s->chain->to, s->b)) {
        pass(s, 0, quotient);
        return;
    }
    give(s, 0, quotient);
    give_divisor(s, quotient);
}

static void grad_fma(const struct site *s)
{
    grad_mul(s);
    pass(s, 2, s->bar.core);
}

/* ---- Pieces: 0 at the kinks that have no better value ---------------- */

static void grad_abs(const struct site *s)
{
    pass(s, 0, mul(s, s->bar.core, apply(s, EIDER_OP_sign, s->a)));
}

static void grad_copysign(const struct site *s)
{
    eider_node signs =
        mul(s, apply(s, EIDER_OP_sign, s->a), join(s, EIDER_OP_copysign, number(s, 1), s->b));
    pass(s, 0, mul(s, s->bar.core, signs));
}

/* The second operand where `second` holds, else the first. */
static void grad_choice(const struct site *s, eider_node second)
{
    give_where(s, 0, apply(s, EIDER_OP_not, second));
    give_where(s, 1, second);
}

static void grad_max(const struct site *s)
{
    grad_choice(s, join(s, EIDER_OP_lt, s->a, s->b));
}

static void grad_min(const struct site *s)
{
    grad_choice(s, join(s, EIDER_OP_gt, s->a, s->b));
}

static void grad_fmax(const struct site *s)
{
    eider_node less = join(s, EIDER_OP_lt, s->a, s->b);
    grad_choice(s, join(s, EIDER_OP_or, less, apply(s, EIDER_OP_isnan, s->a)));
}

static void grad_fmin(const struct site *s)
{
    eider_node greater = join(s, EIDER_OP_gt, s->a, s->b);
    grad_choice(s, join(s, EIDER_OP_or, greater, apply(s, EIDER_OP_isnan, s->a)));
}

static void grad_select(const struct site *s)
{
    give_where(s, 1, s->a);
    give_where(s, 2, apply(s, EIDER_OP_not, s->a));
}

static void grad_cast(const struct site *s)
{
    pass(s, 0, s->bar.core);
}

#define grad_cast_nan grad_cast

/* ---- Powers ---------------------------------------------------------- */

static void grad_sqrt(const struct site *s)
{
    give(s, 0, join(s, EIDER_OP_div, scale(s, s->bar.core, 0.5), s->y));
}

/* From the left, so that a cotangent of 0 meets no infinite product. */
static void grad_rsqrt(const struct site *s)
{
    eider_node half = mul(s, scale(s, s->bar.core, -0.5), s->y);
    give_fading(s, 0, mul(s, mul(s, half, s->y), s->y));
}

static void grad_rcp(const struct site *s)
{
    eider_node square = mul(s, mul(s, s->bar.core, s->y), s->y);
    give_fading(s, 0, apply(s, EIDER_OP_neg, square));
}

/* b * a**(b-1) is 0 where b is 0, and where the power is 0 even if b is infinite. */
static void grad_pow_base(const struct site *s)
{
    const struct eider_cell *exponent = &s->chain->to->cells[s->b];
    eider_node zero = number(s, 0);
    eider_node power = join(s, EIDER_OP_pow, s->a, join(s, EIDER_OP_sub, s->b, number(s, 1)));
    eider_node core = mul(s, mul(s, s->bar.core, s->b), power);
    eider_node flat =
        join(s, EIDER_OP_or, join(s, EIDER_OP_eq, s->b, zero), join(s, EIDER_OP_eq, power, zero));
    int is_plain = exponent->op == EIDER_OP_integer
                       ? exponent->payload != 0
                       : exponent->op == EIDER_OP_number && eider_cell_number(exponent) != 0 &&
                             isfinite(eider_cell_number(exponent));
    give(s, 0, is_plain ? core : choose(s, flat, zero, core));
}

/* y * log(a) is 0 where y is 0. */
static void grad_pow(const struct site *s)
{
    grad_pow_base(s);
    eider_node growth = mul(s, mul(s, s->bar.core, s->y), apply(s, EIDER_OP_log, s->a));
    eider_node zero = number(s, 0);
    give(s, 1, choose(s, join(s, EIDER_OP_eq, s->y, zero), zero, growth));
}

/* ---- Exponentials and logarithms ------------------------------------- */

static void grad_exp(const struct site *s)
{
    give_fading(s, 0, mul(s, s->bar.core, s->y));
}

static void grad_exp2(const struct site *s)
{
    give_fading(s, 0, mul(s, scale(s, s->bar.core, LN2), s->y));
}

static void grad_expm1(const struct site *s)
{
    give_fading(s, 0, mul(s, s->bar.core, apply(s, EIDER_OP_exp, s->a)));
}

/* Whether a node of `from` is exp(a), or 1, which is exp(0): then a is 0, no node. */
static int is_exponential(const struct site *s, eider_node node, eider_node *a)
{
    const struct eider_graph *g = s->chain->from;
    const struct eider_cell *cell = &g->cells[node];
    int is_exp = cell->op == EIDER_OP_exp;
    *a = is_exp ? eider_graph_args(g, node)[0] : 0;
    return is_exp || (cell->op == EIDER_OP_integer && cell->payload == 1) ||
           (cell->op == EIDER_OP_number && eider_cell_number(cell) == 1);
}

/* The slope of log(exp(a) + exp(b)) in a, where a or b may be no node. */
static void give_share(const struct site *s, eider_node core, eider_node a, eider_node b)
{
    const eider_node *value = s->chain->value;
    if (!a) return;
    eider_node above = b ? join(s, EIDER_OP_sub, value[a], value[b]) : value[a];
    give_fading_to(s, a, mul(s, core, apply(s, EIDER_OP_sigmoid, above)));
}

/* The slopes of log(exp(a) + exp(b)) and log(sigmoid(a)), which are quotients of what has
 * overflowed or vanished long before they have; returns whether the operand is one of these. */
static int give_through_log(const struct site *s, eider_node core)
{
    const struct eider_graph *g = s->chain->from;
    const eider_node *args = eider_graph_args(g, s->args[0]);
    eider_node a, b;
    switch (g->cells[s->args[0]].op) {
    case EIDER_OP_sigmoid:
        a = apply(s, EIDER_OP_neg, s->chain->value[args[0]]);
        give_fading_to(s, args[0], mul(s, core, apply(s, EIDER_OP_sigmoid, a)));
        return 1;
    case EIDER_OP_add:
        if (!is_exponential(s, args[0], &a) || !is_exponential(s, args[1], &b)) return 0;
        give_share(s, core, a, b);
        give_share(s, core, b, a);
        return 1;
    default:
        return 0;
    }
}

static void grad_log(const struct site *s)
{
    if (give_through_log(s, s->bar.core)) return;
    give(s, 0, join(s, EIDER_OP_div, s->bar.core, s->a));
}

static void grad_log2(const struct site *s)
{
    eider_node core = scale(s, s->bar.core, LOG2_E);
    if (give_through_log(s, core)) return;
    give(s, 0, join(s, EIDER_OP_div, core, s->a));
}

static void grad_log1p(const struct site *s)
{
    eider_node a;
    if (is_exponential(s, s->args[0], &a)) {
        give_share(s, s->bar.core, a, 0);
        return;
    }
    eider_node whole = join(s, EIDER_OP_add, s->a, number(s, 1));
    give(s, 0, join(s, EIDER_OP_div, s->bar.core, whole));
}

static void grad_sin(const struct site *s)
{
    pass(s, 0, mul(s, s->bar.core, apply(s, EIDER_OP_cos, s->a)));
}

static void grad_cos(const struct site *s)
{
    pass(s, 0, apply(s, EIDER_OP_neg, mul(s, s->bar.core, apply(s, EIDER_OP_sin, s->a))));
}

/* ---- Sigmoid functions ----------------------------------------------- */

/* sigmoid(a) * sigmoid(-a), for a scaled by `times`. */
static eider_node bell(const struct site *s, double times)
{
    return mul(s, apply(s, EIDER_OP_sigmoid, scale(s, s->a, times)),
               apply(s, EIDER_OP_sigmoid, scale(s, s->a, -times)));
}

static void grad_tanh(const struct site *s)
{
    give_fading(s, 0, mul(s, s->bar.core, scale(s, bell(s, 2), 4)));
}

/* g * y first: the gradient of z in sigmoid(a) * z is the same product. */
static void grad_sigmoid(const struct site *s)
{
    eider_node mirror = apply(s, EIDER_OP_sigmoid, apply(s, EIDER_OP_neg, s->a));
    give_fading(s, 0, mul(s, mul(s, s->bar.core, s->y), mirror));
}

/* factor * exp(times * a**2) */
static eider_node gauss(const struct site *s, double factor, double times)
{
    eider_node square = scale(s, mul(s, s->a, s->a), times);
    return scale(s, apply(s, EIDER_OP_exp, square), factor);
}

static void grad_erf(const struct site *s)
{
    give_fading(s, 0, mul(s, s->bar.core, gauss(s, TWO_OVER_SQRT_PI, -1)));
}

static void grad_erfc(const struct site *s)
{
    give_fading(s, 0, mul(s, s->bar.core, gauss(s, -TWO_OVER_SQRT_PI, -1)));
}

static void grad_normcdf(const struct site *s)
{
    give_fading(s, 0, mul(s, s->bar.core, gauss(s, ONE_OVER_SQRT_2PI, -0.5)));
}

/* ---- Over rows -------------------------------------------------------- */

static eider_node place(const struct site *s)
{
    return eider_graph_put(s->chain->to, EIDER_OP_col, NULL, 0, 0);
}

static void grad_sum(const struct site *s)
{
    pass(s, 0, s->bar.core);
}

#define grad_colsum grad_sum

static void grad_mean(const struct site *s)
{
    eider_node cols = eider_graph_put(s->chain->to, EIDER_OP_cols, NULL, 0, 0);
    pass(s, 0, join(s, EIDER_OP_div, s->bar.core, cols));
}

/* To the first of the largest. */
static void grad_rmax(const struct site *s)
{
    eider_node first =
        apply(s, s->cell->op == EIDER_OP_rmax ? EIDER_OP_argmax : EIDER_OP_argmin, s->a);
    give_where(s, 0, join(s, EIDER_OP_eq, place(s), first));
}

#define grad_rmin grad_rmax

/* Evenly to all that are the largest. */
static void grad_amax(const struct site *s)
{
    struct eider_cotangent bar = s->bar;
    eider_node is_largest = join(s, EIDER_OP_eq, s->a, s->y);
    eider_node one = choose(s, is_largest, number(s, 1), number(s, 0));
    bar.core = join(s, EIDER_OP_div, bar.core, apply(s, EIDER_OP_sum, one));
    bar.guard = both(s->chain->to, bar.guard, is_largest);
    eider_chain_add(s->chain, s->args[0], bar);
}

#define grad_amin grad_amax

/* The product of the others: y / a where no factor is 0; else only one that is 0 alone has any,
 * the product of all but it. */
static void grad_prod(const struct site *s)
{
    eider_node zero = number(s, 0), one = number(s, 1);
    eider_node is_zero = join(s, EIDER_OP_eq, s->a, zero);
    eider_node zeros = apply(s, EIDER_OP_sum, choose(s, is_zero, one, zero));
    eider_node others = apply(s, EIDER_OP_prod, choose(s, is_zero, one, s->a));
    eider_node quotient = join(s, EIDER_OP_div, s->y, choose(s, is_zero, one, s->a));
    eider_node alone = join(s, EIDER_OP_and, is_zero, join(s, EIDER_OP_eq, zeros, one));
    eider_node none = join(s, EIDER_OP_eq, zeros, zero);
    eider_node slope = choose(s, none, quotient, choose(s, alone, others, zero));
    give(s, 0, mul(s, s->bar.core, slope));
}

/* The share of each in the sum; what is -inf has none, even in a row of nothing else. */
static void grad_logsumexp(const struct site *s)
{
    eider_node share = apply(s, EIDER_OP_exp, join(s, EIDER_OP_sub, s->a, s->y));
    eider_node counts = join(s, EIDER_OP_ne, s->a, number(s, -INFINITY));
    give_fading(s, 0, mul(s, s->bar.core, choose(s, counts, share, number(s, 0))));
}

/* To the element that was picked. */
static void grad_pick(const struct site *s)
{
    struct eider_chain *c = s->chain;
    if (!c->active[s->args[0]]) return;
    if (c->bits[s->args[1]] & EIDER_BY_COL) {
        eider_scatter(c, s->node, s->bar);
        return;
    }
    give_where(s, 0, join(s, EIDER_OP_eq, place(s), s->b));
}

/* ---- Calls ----------------------------------------------------------- */

/* The row's gradients, each times the same cotangent. */
static void grad_call(const struct site *s)
{
    struct eider_chain *c = s->chain;
    const struct eider_activation *row = eider_activation_row(s->cell->payload);
    uint32_t n = 0, n_tensors = (uint32_t)row->n_tensors;
    eider_node args[EIDER_CALL_ARGS_MAX + 1];
    for (uint32_t k = 0; k < s->cell->n_args; k++) {
        if (k == n_tensors) args[n++] = s->bar.core;
        args[n++] = c->value[s->args[k]];
    }
    if (n == n_tensors) args[n++] = s->bar.core;
    eider_node call =
        eider_activation_call(c->to, (size_t)eider_activation_find(row->backward), args, n);
    c->backward[s->node] = call;
    for (uint32_t k = 0; k < n_tensors; k++)
        give_fading(s, (int)k, k ? eider_graph_put(c->to, EIDER_OP_result, &call, 1, k) : call);
}

/* ---- The table ------------------------------------------------------- */

/* Without operands, or constant wherever they are differentiable. */
#define grad_poison NULL
#define grad_input NULL
#define grad_scalar NULL
#define grad_number NULL
#define grad_integer NULL
#define grad_result NULL
#define grad_sign NULL
#define grad_floor NULL
#define grad_ceil NULL
#define grad_trunc NULL
#define grad_round NULL
#define grad_eq NULL
#define grad_ne NULL
#define grad_lt NULL
#define grad_le NULL
#define grad_gt NULL
#define grad_ge NULL
#define grad_and NULL
#define grad_or NULL
#define grad_not NULL
#define grad_isnan NULL
#define grad_row NULL
#define grad_col NULL
#define grad_cols NULL
#define grad_argmax NULL
#define grad_argmin NULL
#define grad_any NULL
#define grad_all NULL
/* Made after the gradient has been taken. */
#define grad_m_tanh NULL
#define grad_m_ex2 NULL
#define grad_m_lg2 NULL
#define grad_m_log1p NULL
#define grad_m_rcp NULL
#define grad_m_rsqrt NULL
#define grad_m_sqrt NULL
#define grad_m_sin NULL
#define grad_m_cos NULL

static void (*const grad_table[EIDER_OP_COUNT])(const struct site *s) = {
#define EIDER_OP(name, arity, text, rule, doc) [EIDER_OP_##name] = grad_##name,
#include "ops.def"
};

static int is_float_cast(const struct eider_cell *cell)
{
    return cell->payload != EIDER_I32 && cell->payload != EIDER_I64 && cell->payload != EIDER_BOOL;
}

int eider_chain_is_active(const struct eider_graph *g, const uint8_t *active, eider_node node)
{
    const struct eider_cell *cell = &g->cells[node];
    int is_cast = cell->op == EIDER_OP_cast || cell->op == EIDER_OP_cast_nan;
    if (!grad_table[cell->op] || (is_cast && !is_float_cast(cell))) return 0;
    const eider_node *args = eider_graph_args(g, node);
    for (uint32_t k = 0; k < cell->n_args; k++)
        if (active[args[k]]) return 1;
    return 0;
}

void eider_chain_step(struct eider_chain *c, eider_node node)
{
    struct site s = {.chain = c,
                     .node = node,
                     .cell = &c->from->cells[node],
                     .args = eider_graph_args(c->from, node),
                     .bar = c->bar[node],
                     .y = c->value[node]};
    eider_node *operands[] = {&s.a, &s.b, &s.c};
    if (!s.bar.core || !grad_table[s.cell->op]) return;
    enum eider_op op = (enum eider_op)s.cell->op;
    int sees_row = eider_ops_reduces(op) || op == EIDER_OP_pick;
    c->used_by = sees_row ? EIDER_BY_COL : c->bits[node];
    for (uint32_t k = 0; k < s.cell->n_args && k < 3; k++) *operands[k] = c->value[s.args[k]];
    grad_table[s.cell->op](&s);
}
