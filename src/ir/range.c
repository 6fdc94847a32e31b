/* range.c -- intervals of values, bottom up (range.h). */
#include "range.h"

#include <math.h>

#define DEPTH_MAX 8 /* of operands looked at: deeper, anything is possible */

typedef struct eider_range range;

static const range anything = {-(double)INFINITY, (double)INFINITY};

/* 0 times infinity: the factor 0 is exact where limits of finite values are multiplied. */
static double product(double a, double b)
{
    return a == 0 || b == 0 ? 0 : a * b;
}

static range of_add(const range *a)
{
    return (range){a[0].low + a[1].low, a[0].high + a[1].high};
}

static range of_sub(const range *a)
{
    return (range){a[0].low - a[1].high, a[0].high - a[1].low};
}

static range of_mul(const range *a)
{
    double p[4] = {product(a[0].low, a[1].low), product(a[0].low, a[1].high),
                   product(a[0].high, a[1].low), product(a[0].high, a[1].high)};
    return (range){fmin(fmin(p[0], p[1]), fmin(p[2], p[3])),
                   fmax(fmax(p[0], p[1]), fmax(p[2], p[3]))};
}

static range of_neg(const range *a)
{
    return (range){-a[0].high, -a[0].low};
}

static range of_abs(const range *a)
{
    double low = a[0].low > 0 ? a[0].low : a[0].high < 0 ? -a[0].high : 0;
    return (range){low, fmax(-a[0].low, a[0].high)};
}

static range of_max(const range *a)
{
    return (range){fmax(a[0].low, a[1].low), fmax(a[0].high, a[1].high)};
}

static range of_min(const range *a)
{
    return (range){fmin(a[0].low, a[1].low), fmin(a[0].high, a[1].high)};
}

static range of_select(const range *a)
{
    return (range){fmin(a[1].low, a[2].low), fmax(a[1].high, a[2].high)};
}

/* A relative error of some ulp is allowed for, and underflow. */
static range of_exp(const range *a)
{
    return (range){fmax(0, exp(a[0].low) * (1 - 0x1p-16) - 0x1p-126),
                   exp(a[0].high) * (1 + 0x1p-16) + 0x1p-126};
}

static range of_sigmoid(const range *a)
{
    (void)a;
    return (range){0, 1};
}

static range of_tanh(const range *a)
{
    (void)a;
    return (range){-1, 1};
}

static range (*const rules[EIDER_OP_COUNT])(const range *a) = {
    [EIDER_OP_add] = of_add,         [EIDER_OP_sub] = of_sub,         [EIDER_OP_mul] = of_mul,
    [EIDER_OP_neg] = of_neg,         [EIDER_OP_abs] = of_abs,         [EIDER_OP_max] = of_max,
    [EIDER_OP_min] = of_min,         [EIDER_OP_select] = of_select,   [EIDER_OP_exp] = of_exp,
    [EIDER_OP_sigmoid] = of_sigmoid, [EIDER_OP_normcdf] = of_sigmoid, [EIDER_OP_tanh] = of_tanh,
};

/* sum(exp(a - max(a))), as in a softmax: one term is 1, none is more, and a row has fewer than
 * 2^31.  Where max(a) is infinite, it is NaN. */
static int is_softmax_sum(const struct eider_graph *g, eider_node n)
{
    eider_node power = eider_graph_args(g, n)[0];
    if (g->cells[power].op != EIDER_OP_exp) return 0;
    eider_node fall = eider_graph_args(g, power)[0];
    if (g->cells[fall].op != EIDER_OP_sub) return 0;
    const eider_node *parts = eider_graph_args(g, fall);
    enum eider_op most = (enum eider_op)g->cells[parts[1]].op;
    return (most == EIDER_OP_rmax || most == EIDER_OP_amax) &&
           eider_graph_args(g, parts[1])[0] == parts[0];
}

static range range_within(const struct eider_graph *g, eider_node n, int depth)
{
    const struct eider_cell *cell = &g->cells[n];
    range args[3], found;
    double value;
    if (eider_cell_literal(cell, &value)) return (range){value, value};
    if (cell->op == EIDER_OP_sum && is_softmax_sum(g, n)) return (range){1 - 0x1p-16, 0x1p32};
    if (depth == 0 || !rules[cell->op]) return anything;
    for (uint32_t k = 0; k < cell->n_args; k++)
        args[k] = range_within(g, eider_graph_args(g, n)[k], depth - 1);
    found = rules[cell->op](args);
    if (!(found.low <= found.high)) return anything; /* NaN, from opposite infinities */
    const eider_node *operands = eider_graph_args(g, n);
    int is_square = cell->op == EIDER_OP_mul && operands[0] == operands[1];
    if (is_square) found.low = fmax(found.low, 0);
    return found;
}

struct eider_range eider_range_of(const struct eider_graph *g, eider_node n)
{
    return range_within(g, n, DEPTH_MAX);
}
