/* eval.c -- a graph in double precision, by the C library: the reference.
 *
 * Invariant: host_<name> states what a primitive means, NaN and signed zeros included.
 * Not here: types.  Integers and bools are doubles, so integer arithmetic is exact up to
 * 2^53 and does not wrap.  What sees more than one element is in eval_rows.c.
 */
#include "eval.h"

#include <float.h>
#include <math.h>

#include "activations.h"
#include "extent.h"
#include "ops.h"
#include "passes.h"

/* ---- The primitives, in the order of ops.def ------------------------------ */

#define HOST1(name, value)                     \
    static double host_##name(const double *v) \
    {                                          \
        double a = v[0];                       \
        return value;                          \
    }
#define HOST2(name, value)                     \
    static double host_##name(const double *v) \
    {                                          \
        double a = v[0], b = v[1];             \
        return value;                          \
    }
#define HOST3(name, value)                     \
    static double host_##name(const double *v) \
    {                                          \
        double a = v[0], b = v[1], c = v[2];   \
        return value;                          \
    }

static double maximum(double a, double b)
{
    if (isnan(a) || isnan(b)) return NAN;
    if (a == b) return signbit(a) ? b : a; /* max(-0, 0) is 0 */
    return a > b ? a : b;
}

/* Neither branch loses a tail. */
static double logistic(double a)
{
    double e = exp(-fabs(a));
    return a < 0 ? e / (1 + e) : 1 / (1 + e);
}

#define SQRT_HALF 0.70710678118654752440

/* exp(x) and friends are the C library's; sqrt(1/2) is the only constant. */
HOST2(add, a + b)
HOST2(sub, a - b)
HOST2(mul, a *b)
HOST2(div, a / b)
HOST1(neg, -a)
HOST1(abs, fabs(a))
HOST3(fma, fma(a, b, c))
HOST2(max, maximum(a, b))
HOST2(min, -maximum(-a, -b))
HOST2(fmax, isnan(a) ? b : isnan(b) ? a : maximum(a, b))
HOST2(fmin, isnan(a) ? b : isnan(b) ? a : -maximum(-a, -b))
HOST2(copysign, copysign(a, b))
HOST1(sign, a > 0 ? 1 : a < 0 ? -1 : a)
HOST1(floor, floor(a))
HOST1(ceil, ceil(a))
HOST1(trunc, trunc(a))
HOST1(round, roundeven(a))
HOST1(sqrt, sqrt(a))
HOST1(rsqrt, 1 / sqrt(a))
HOST1(rcp, 1 / a)
HOST1(exp, exp(a))
HOST1(exp2, exp2(a))
HOST1(expm1, expm1(a))
HOST1(log, log(a))
HOST1(log2, log2(a))
HOST1(log1p, log1p(a))
HOST2(pow, pow(a, b))
HOST1(sin, sin(a))
HOST1(cos, cos(a))
HOST1(tanh, tanh(a))
HOST1(sigmoid, logistic(a))
HOST1(erf, erf(a))
HOST1(erfc, erfc(a))
HOST1(normcdf, 0.5 * erfc(-a * SQRT_HALF))
HOST2(eq, a == b)
HOST2(ne, a != b)
HOST2(lt, a < b)
HOST2(le, a <= b)
HOST2(gt, a > b)
HOST2(ge, a >= b)
HOST2(and, a != 0 && b != 0)
HOST2(or, a != 0 || b != 0)
HOST1(not, a == 0)
HOST1(isnan, isnan(a) != 0)
HOST3(select, a != 0 ? b : c)
/* Machine forms, as exact as the host is. */
HOST1(m_tanh, tanh(a))
HOST1(m_ex2, exp2(a))
HOST1(m_lg2, log2(a))
HOST1(m_log1p, log1p(a))
HOST1(m_rcp, 1 / a)
HOST1(m_rsqrt, 1 / sqrt(a))
HOST1(m_sqrt, sqrt(a))
HOST1(m_sin, sin(a))
HOST1(m_cos, cos(a))

/* Leaves and casts, which need the payload: see value_of. */
#define host_poison NULL
#define host_input NULL
#define host_scalar NULL
#define host_number NULL
#define host_integer NULL
#define host_call NULL
#define host_result NULL
#define host_cast NULL
#define host_cast_nan NULL

/* Over rows: see eval_rows.c. */
#define host_row NULL
#define host_col NULL
#define host_cols NULL
#define host_pick NULL
#define host_sum NULL
#define host_mean NULL
#define host_prod NULL
#define host_rmax NULL
#define host_rmin NULL
#define host_amax NULL
#define host_amin NULL
#define host_argmax NULL
#define host_argmin NULL
#define host_logsumexp NULL
#define host_any NULL
#define host_all NULL
#define host_colsum NULL

static double (*const host_table[EIDER_OP_COUNT])(const double *v) = {
#define EIDER_OP(name, arity, text, rule, doc) [EIDER_OP_##name] = host_##name,
#include "ops.def"
};

/* ---- Rounding ----------------------------------------------------------- */

/* A storage type of floats: significant bits, exponent of the smallest normal number, the
 * largest finite number, and what lies beyond it. */
struct format {
    int bits, least_exponent;
    double largest, beyond;
};

static const struct format formats[] = {
    [EIDER_F32] = {FLT_MANT_DIG, FLT_MIN_EXP - 1, FLT_MAX, INFINITY},
    [EIDER_F16] = {11, -14, 65504.0, INFINITY},
    [EIDER_BF16] = {8, -126, 0x1.fep127, INFINITY},
    [EIDER_F64] = {DBL_MANT_DIG, DBL_MIN_EXP - 1, DBL_MAX, INFINITY},
    [EIDER_E4M3] = {4, -6, 448.0, NAN},
    [EIDER_E5M2] = {3, -14, 57344.0, INFINITY},
};

static double round_float(double value, eider_dtype type, int saturate)
{
    const struct format *f = &formats[type];
    if (isnan(value) || value == 0) return value;
    double rounded = value;
    if (!isinf(value)) {
        int exponent = ilogb(value) > f->least_exponent ? ilogb(value) : f->least_exponent;
        int unit = exponent - (f->bits - 1);
        rounded = ldexp(roundeven(ldexp(value, -unit)), unit);
    }
    if (fabs(rounded) <= f->largest) return rounded;
    int clamps = saturate && (type == EIDER_E4M3 || type == EIDER_E5M2);
    return copysign(clamps ? f->largest : f->beyond, value);
}

/* Truncates; NaN is 0 and what does not fit is the nearest number that does. */
static double round_integer(double value, double least, double largest)
{
    if (isnan(value)) return 0;
    double whole = trunc(value);
    return whole < least ? least : whole > largest ? largest : whole;
}

double eider_round_to(double value, eider_dtype type, int saturate)
{
    switch (type) {
    case EIDER_F64:
        return value;
    case EIDER_I32:
        return round_integer(value, INT32_MIN, INT32_MAX);
    case EIDER_I64:
        return round_integer(value, (double)INT64_MIN, (double)INT64_MAX);
    case EIDER_BOOL:
        return value != 0;
    default:
        return round_float(value, type, saturate);
    }
}

/* ---- A graph ------------------------------------------------------------ */

double eider_eval_maximum(double a, double b)
{
    return maximum(a, b);
}

double eider_eval_cell(const struct eider_cell *cell, const double *v)
{
    switch (cell->op) {
    case EIDER_OP_number:
        return eider_cell_number(cell);
    case EIDER_OP_integer:
        return (double)(int64_t)cell->payload;
    case EIDER_OP_cast:
    case EIDER_OP_cast_nan:
        return eider_round_to(v[0], (eider_dtype)cell->payload, cell->op == EIDER_OP_cast);
    default:
        return host_table[cell->op](v);
    }
}

static double value_of(const struct eider_graph *g, eider_node id, const double *values,
                       const double *in)
{
    const struct eider_cell *cell = &g->cells[id];
    const eider_node *args = eider_graph_args(g, id);
    double v[3] = {0};
    if (cell->op == EIDER_OP_input || cell->op == EIDER_OP_scalar) return in[cell->payload];
    for (uint32_t k = 0; k < cell->n_args && k < 3; k++) v[k] = values[args[k]];
    return eider_eval_cell(cell, v);
}

/* One row of one element. */
static eider_status eval_row(const struct eider_graph *g, const double *in, double *out)
{
    struct eider_doubles *operands =
        eider_mem_zero(&g->allocator, g->n_operands * sizeof *operands);
    double *values = eider_mem_zero(&g->allocator, g->n_operands * sizeof *values);
    eider_status status = operands && values ? EIDER_OK : EIDER_OOM;
    for (uint32_t i = 0; i < g->n_operands && status == EIDER_OK; i++) {
        if (g->operands[i].kind != EIDER_OUTPUT) values[i] = in[i];
        operands[i].data = &values[i];
    }
    if (status == EIDER_OK) status = eider_eval_rows(g, 1, 1, operands);
    for (uint32_t i = 0; i < g->n_operands && status == EIDER_OK; i++)
        if (g->operands[i].kind == EIDER_OUTPUT) *out++ = values[i];
    eider_mem_free(&g->allocator, operands);
    eider_mem_free(&g->allocator, values);
    return status;
}

static eider_status eval_expanded(const struct eider_graph *g, const double *in, double *out)
{
    if (eider_extent_over_rows(g)) return eval_row(g, in, out);
    double *values = eider_mem_alloc(&g->allocator, g->n_cells * sizeof *values);
    if (!values) return EIDER_OOM;
    for (eider_node id = 1; id < g->n_cells; id++) values[id] = value_of(g, id, values, in);
    for (uint32_t i = 0; i < g->n_operands; i++)
        if (g->operands[i].kind == EIDER_OUTPUT) *out++ = values[g->operands[i].node];
    eider_mem_free(&g->allocator, values);
    return EIDER_OK;
}

eider_status eider_eval(const struct eider_graph *g, const double *in, double *out)
{
    int calls = 0;
    for (eider_node id = 1; id < g->n_cells; id++) calls |= g->cells[id].op == EIDER_OP_call;
    if (!calls) return eval_expanded(g, in, out);
    struct eider_graph *expanded;
    EIDER_TRY(eider_activation_expand(g, &expanded));
    eider_status status = eval_expanded(expanded, in, out);
    eider_graph_destroy(expanded);
    return status;
}
