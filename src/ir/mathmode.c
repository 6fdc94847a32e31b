/* mathmode.c -- what the approximate modes may do to a graph.
 *
 * fast: division by a literal becomes multiplication, and where the range of values is known
 *     (range.h), rcp(a) is one instruction (m_rcp) and log1p(a) a short polynomial (m_log1p).
 *     sum(exp(a - max(a)))   with exp as in approx
 * auto, for outputs of which some have more than 16 bits: fast, and where no such output depends
 *     on it but through sum(exp(a - max(a))), exp(a) as in approx
 * approx, besides:
 *     tanh(a)              t(a), one instruction (m_tanh)
 *     sigmoid(a)           1/2 + 1/2 t(a/2)
 *     x sigmoid(a)         h + h t(a/2), h = x/2
 *     b sigmoid(-a)        b - b s, where s = sigmoid(a) is there anyway
 *     sigmoid(a) sigmoid(-a)     s - s^2, or 1/4 - 1/4 t^2 where s has no other use
 *     s (b + 1)            s b + s
 *     exp(a)               2^(a log2 e), one instruction (m_ex2)
 *     normcdf, erf         through t of an odd polynomial
 *     rcp(a), b / a        m_rcp(a) where a is known to be positive: 0 where a is huge
 *
 * Invariants: literal factors are folded into what they scale, so that a/2 is free where a
 * is a multiple; limits of sigmoid's argument at which t has reached 1 are ignored; where
 * x and a are the same but for such limits, they become one.
 * Rules look at the old graph, whose operands come first, and add to the new one.
 */
#include "passes.h"

#include <math.h>
#include <string.h>

#include "infer.h"
#include "math_fit.h"
#include "range.h"

#define LOG2E 1.44269504088896340736 /* log2(e) */
#define SETTLED 30.0                 /* t(SETTLED / 2) = 1 in f32 */
#define FIND_MAX 4096                /* nodes looked at */
#define DEPTH_MAX 8                  /* of literals sought in an expression */

struct rewrite {
    const struct eider_graph *from;
    struct eider_graph *to;
    const uint8_t *types, *live;
    const uint8_t *wide; /* an output of more than 16 bits needs it to be exact */
    eider_math math;
    uint32_t *uses;            /* of each old node, outputs included ... */
    uint32_t *uses_as_arg;     /* ... of those, by sigmoid, directly or through neg ... */
    uint32_t *uses_as_factor;  /* ... by mul ... */
    uint32_t *uses_as_term;    /* ... and by add and sub */
    eider_node *first_sigmoid; /* base of an argument -> its live sigmoids, as a list ... */
    eider_node *next_sigmoid;  /* ... by node; 0 ends */
    eider_node *unified;       /* base of sigmoid arguments -> what stands for it; 0: itself */
    eider_node *map;           /* old to new; 0: not yet */
};

/* ---- Looking at the old graph ------------------------------------------------- */

static const struct eider_cell *cell_of(const struct rewrite *w, eider_node n)
{
    return &w->from->cells[n];
}

static int is(const struct rewrite *w, eider_node n, enum eider_op op)
{
    return cell_of(w, n)->op == op && w->types[n] == EIDER_V_F32;
}

static eider_node arg(const struct rewrite *w, eider_node n, int k)
{
    return eider_graph_args(w->from, n)[k];
}

static int is_literal(const struct rewrite *w, eider_node n, double *value)
{
    return eider_cell_literal(cell_of(w, n), value);
}

/* Operands of a commutative `n`, such that the first is `wanted` or, failing that, in order. */
static int has_operand(const struct rewrite *w, eider_node n, enum eider_op op, eider_node wanted,
                       eider_node *other)
{
    if (!is(w, n, op)) return 0;
    if (arg(w, n, 0) == wanted) return *other = arg(w, n, 1), 1;
    if (arg(w, n, 1) == wanted) return *other = arg(w, n, 0), 1;
    return 0;
}

/* n is a literal operand combined with `other` by a commutative op. */
static int has_literal(const struct rewrite *w, eider_node n, enum eider_op op, double *value,
                       eider_node *other)
{
    if (!is(w, n, op)) return 0;
    for (int k = 0; k < 2; k++)
        if (is_literal(w, arg(w, n, k), value)) return *other = arg(w, n, 1 - k), 1;
    return 0;
}

/* The live node (a op b) or (b op a), or 0.  Looks only so far, so that large graphs do not
 * take the square of their size. */
static eider_node find(const struct rewrite *w, enum eider_op op, eider_node a, eider_node b)
{
    eider_node first = a > b ? a : b;
    for (eider_node n = first; n < w->from->n_cells && n - first < FIND_MAX; n++) {
        eider_node other;
        if (w->live[n] && has_operand(w, n, op, a, &other) && other == b) return n;
    }
    return 0;
}

/* n = factor * result. */
static eider_node peel(const struct rewrite *w, eider_node n, double *factor)
{
    *factor = 1;
    for (int depth = 0; depth < DEPTH_MAX; depth++) {
        double value;
        eider_node other;
        if (is(w, n, EIDER_OP_neg)) {
            *factor = -*factor;
            n = arg(w, n, 0);
        } else if (has_literal(w, n, EIDER_OP_mul, &value, &other)) {
            *factor *= value;
            n = other;
        } else {
            break;
        }
    }
    return n;
}

/* n without a limit of the kind `op` beyond +-SETTLED. */
static eider_node without_limit(const struct rewrite *w, eider_node n, enum eider_op op)
{
    double limit;
    eider_node other;
    if (!has_literal(w, n, op, &limit, &other)) return n;
    return (op == EIDER_OP_min ? limit >= SETTLED : limit <= -SETTLED) ? other : n;
}

static eider_node without_limits(const struct rewrite *w, eider_node n)
{
    n = without_limit(w, n, EIDER_OP_min);
    n = without_limit(w, n, EIDER_OP_max);
    return without_limit(w, n, EIDER_OP_min);
}

/* The argument of sigmoid as factor * base; limits go where the factor keeps them far. */
static eider_node argument(const struct rewrite *w, eider_node sigmoid, double *factor)
{
    eider_node base = peel(w, arg(w, sigmoid, 0), factor);
    return fabs(*factor) >= 1 ? without_limits(w, base) : base;
}

/* a and b are sigmoids of opposite arguments. */
static int are_opposite(const struct rewrite *w, eider_node a, eider_node b)
{
    double fa, fb;
    if (!is(w, a, EIDER_OP_sigmoid) || !is(w, b, EIDER_OP_sigmoid)) return 0;
    return argument(w, a, &fa) == argument(w, b, &fb) && fa == -fb;
}

/* For a sigmoid of a: the live sigmoid of -a, or 0. */
static eider_node opposite(const struct rewrite *w, eider_node sigmoid)
{
    double factor;
    eider_node n = w->first_sigmoid[argument(w, sigmoid, &factor)];
    while (n && !are_opposite(w, n, sigmoid)) n = w->next_sigmoid[n];
    return n;
}

/* For m = sigmoid(-a), where that is the negative multiple: the live sigmoid(a), or 0. */
static eider_node mirrored(const struct rewrite *w, eider_node m)
{
    double factor;
    if (!is(w, m, EIDER_OP_sigmoid)) return 0;
    argument(w, m, &factor);
    return factor < 0 ? opposite(w, m) : 0;
}

/* ---- Adding to the new graph ---------------------------------------------------- */

static eider_node rewritten(struct rewrite *w, eider_node n);

/* The new node of an old one that may come later in the old order. */
static eider_node mapped(struct rewrite *w, eider_node n)
{
    uint32_t origin = w->to->origin;
    if (w->map[n]) return w->map[n];
    w->to->origin = w->from->origins[n];
    w->map[n] = rewritten(w, n);
    w->to->origin = origin;
    return w->map[n];
}

static eider_node number(struct rewrite *w, double value)
{
    return eider_graph_number(w->to, value);
}

static eider_node mul(struct rewrite *w, eider_node a, eider_node b)
{
    return eider_graph_binary(w->to, EIDER_OP_mul, a, b);
}

static eider_node neg(struct rewrite *w, eider_node a)
{
    return eider_graph_unary(w->to, EIDER_OP_neg, a);
}

static eider_node fma3(struct rewrite *w, eider_node a, eider_node b, eider_node c)
{
    return eider_graph_ternary(w->to, EIDER_OP_fma, a, b, c);
}

static eider_node times(struct rewrite *w, eider_node a, double factor)
{
    return factor == 1 ? a : factor == -1 ? neg(w, a) : mul(w, a, number(w, factor));
}

/* Whether scaling n by a literal costs nothing: some literal in it takes the factor up, and
 * nobody else needs n as it was. */
static int absorbs(const struct rewrite *w, eider_node n, int depth)
{
    double value;
    eider_node other;
    if (is_literal(w, n, &value) || has_literal(w, n, EIDER_OP_mul, &value, &other)) return 1;
    if (depth == 0 || w->uses[n] > 1) return 0;
    if (is(w, n, EIDER_OP_neg)) return absorbs(w, arg(w, n, 0), depth - 1);
    if (is(w, n, EIDER_OP_mul))
        return absorbs(w, arg(w, n, 0), depth - 1) || absorbs(w, arg(w, n, 1), depth - 1);
    if (is(w, n, EIDER_OP_add) || is(w, n, EIDER_OP_sub))
        return absorbs(w, arg(w, n, 0), depth - 1) && absorbs(w, arg(w, n, 1), depth - 1);
    return 0;
}

static eider_node scaled(struct rewrite *w, eider_node n, double factor, int depth);

/* A product or sum, scaled inside. */
static eider_node scaled_inside(struct rewrite *w, eider_node n, double factor, int depth)
{
    eider_node a = arg(w, n, 0), b = arg(w, n, 1);
    if (!is(w, n, EIDER_OP_mul))
        return eider_graph_binary(w->to, (enum eider_op)cell_of(w, n)->op,
                                  scaled(w, a, factor, depth), scaled(w, b, factor, depth));
    if (absorbs(w, b, depth)) return mul(w, mapped(w, a), scaled(w, b, factor, depth));
    return mul(w, scaled(w, a, factor, depth), mapped(w, b));
}

/* factor * n. */
static eider_node scaled(struct rewrite *w, eider_node n, double factor, int depth)
{
    double value;
    eider_node other;
    if (is_literal(w, n, &value)) return number(w, factor * value);
    if (depth == 0) return times(w, mapped(w, n), factor);
    if (is(w, n, EIDER_OP_neg)) return scaled(w, arg(w, n, 0), -factor, depth - 1);
    if (has_literal(w, n, EIDER_OP_mul, &value, &other))
        return scaled(w, other, factor * value, depth - 1);
    /* Used by sigmoid alone, and once more through neg at most. */
    int is_own = w->uses[n] == 1 || w->uses[n] == w->uses_as_arg[n];
    int can = is(w, n, EIDER_OP_mul)
                  ? absorbs(w, arg(w, n, 0), depth) || absorbs(w, arg(w, n, 1), depth)
                  : (is(w, n, EIDER_OP_add) || is(w, n, EIDER_OP_sub)) &&
                        absorbs(w, arg(w, n, 0), depth) && absorbs(w, arg(w, n, 1), depth);
    if (is_own && can) return scaled_inside(w, n, factor, depth - 1);
    return times(w, mapped(w, n), factor);
}

/* t(a/2) for sigmoid(a), or for sigmoid(-a) where that is the positive multiple; *sign is
 * then -1. */
static eider_node half_tanh(struct rewrite *w, eider_node sigmoid, double *sign)
{
    double factor;
    eider_node base = argument(w, sigmoid, &factor);
    *sign = factor < 0 ? -1 : 1;
    if (w->unified[base]) base = w->unified[base];
    eider_node half = scaled(w, base, 0.5 * fabs(factor), DEPTH_MAX);
    return eider_graph_unary(w->to, EIDER_OP_m_tanh, half);
}

/* c sigmoid(...). */
static eider_node times_sigmoid(struct rewrite *w, eider_node sigmoid, double c)
{
    double sign;
    eider_node t = half_tanh(w, sigmoid, &sign);
    return fma3(w, number(w, 0.5 * sign * c), t, number(w, 0.5 * c));
}

/* ---- normcdf and erf --------------------------------------------------------------- */

/* t(a p(a^2)), with a^2 limited to where the polynomial was fitted. */
static eider_node tanh_of_odd(struct rewrite *w, eider_node a, const double *c, int n,
                              double square_max)
{
    eider_node z = eider_graph_binary(w->to, EIDER_OP_min, mul(w, a, a), number(w, square_max));
    eider_node p = number(w, c[n - 1]);
    for (int i = n - 1; i-- > 0;) p = fma3(w, p, z, number(w, c[i]));
    return eider_graph_unary(w->to, EIDER_OP_m_tanh, mul(w, a, p));
}

static eider_node normcdf_tanh(struct rewrite *w, eider_node n)
{
    return tanh_of_odd(w, mapped(w, arg(w, n, 0)), normcdf_tanh_fit,
                       (int)(sizeof normcdf_tanh_fit / sizeof *normcdf_tanh_fit),
                       NORMCDF_TANH_SQUARE_MAX);
}

/* ---- Rules of approx ---------------------------------------------------------------- */

static eider_node approx_tanh(struct rewrite *w, eider_node n)
{
    return eider_graph_unary(w->to, EIDER_OP_m_tanh, mapped(w, arg(w, n, 0)));
}

static eider_node approx_sigmoid(struct rewrite *w, eider_node n)
{
    return times_sigmoid(w, n, 1);
}

static eider_node approx_exp(struct rewrite *w, eider_node n)
{
    return eider_graph_unary(w->to, EIDER_OP_m_ex2, scaled(w, arg(w, n, 0), LOG2E, DEPTH_MAX));
}

static eider_node approx_normcdf(struct rewrite *w, eider_node n)
{
    return fma3(w, number(w, 0.5), normcdf_tanh(w, n), number(w, 0.5));
}

/* erf(a) = 2 normcdf(a sqrt 2) - 1: the same polynomial of another argument. */
static eider_node approx_erf(struct rewrite *w, eider_node n)
{
    double c[sizeof normcdf_tanh_fit / sizeof *normcdf_tanh_fit];
    int terms = (int)(sizeof c / sizeof *c);
    double power = sqrt(2);
    for (int i = 0; i < terms; i++, power *= 2) c[i] = normcdf_tanh_fit[i] * power;
    return tanh_of_odd(w, mapped(w, arg(w, n, 0)), c, terms, NORMCDF_TANH_SQUARE_MAX / 2);
}

/* x sigmoid(a) -> h + h t. */
static eider_node times_x_sigmoid(struct rewrite *w, eider_node x, eider_node s)
{
    double factor, sign;
    if (!is(w, s, EIDER_OP_sigmoid)) return 0;
    eider_node base = argument(w, s, &factor);
    int is_same = fabs(factor) == 1 && without_limits(w, x) == base;
    if (w->uses[s] > 1 || opposite(w, s)) return 0;
    if (is_same && w->unified[base]) x = w->unified[base];
    eider_node h = scaled(w, x, 0.5, DEPTH_MAX);
    eider_node t = half_tanh(w, s, &sign);
    return fma3(w, h, times(w, t, sign), h);
}

/* x normcdf(a) -> h + h t. */
static eider_node times_x_normcdf(struct rewrite *w, eider_node x, eider_node p)
{
    if (!is(w, p, EIDER_OP_normcdf) || w->uses[p] > 1) return 0;
    eider_node h = scaled(w, x, 0.5, DEPTH_MAX);
    return fma3(w, h, normcdf_tanh(w, p), h);
}

/* c (sigmoid(v) sigmoid(-v)), or 0. */
static eider_node times_logistic_slope(struct rewrite *w, eider_node product, double c)
{
    double sign;
    if (!is(w, product, EIDER_OP_mul)) return 0;
    eider_node s = arg(w, product, 0), other = arg(w, product, 1);
    if (!are_opposite(w, s, other)) return 0;
    if (w->uses[s] == 1) s = other;
    if (w->uses[s] > 1 && c == 1) {
        eider_node v = mapped(w, s);
        return fma3(w, neg(w, v), v, v);
    }
    eider_node t = half_tanh(w, s, &sign);
    return fma3(w, times(w, t, -0.25 * c), t, number(w, 0.25 * c));
}

/* s (b + 1) -> s b + s, where all uses of b + 1 are such. */
static eider_node times_plus_one(struct rewrite *w, eider_node s, eider_node sum)
{
    double one;
    eider_node b;
    if (!has_literal(w, sum, EIDER_OP_add, &one, &b) || one != 1) return 0;
    if (w->uses[sum] != w->uses_as_factor[sum]) return 0;
    /* Of a product, the sum is an fma already; of one with a mirror, the product is. */
    if (is(w, b, EIDER_OP_mul) && !mirrored(w, arg(w, b, 0)) && !mirrored(w, arg(w, b, 1)))
        return 0;
    return fma3(w, mapped(w, s), mapped(w, b), mapped(w, s));
}

/* b sigmoid(-a) -> b - b s: one fma, or one subtraction where b s is there anyway. */
static eider_node times_mirror(struct rewrite *w, eider_node b, eider_node m)
{
    eider_node s = mirrored(w, m);
    if (!s) return 0;
    eider_node product = find(w, EIDER_OP_mul, b, s);
    if (!product) return fma3(w, neg(w, mapped(w, b)), mapped(w, s), mapped(w, b));
    return eider_graph_binary(w->to, EIDER_OP_sub, mapped(w, b), mapped(w, product));
}

/* The rules of a product, most particular first; each sees both orders of its operands. */
static const struct {
    eider_node (*rewrite)(struct rewrite *w, eider_node a, eider_node b);
    int for_terms; /* also where the product is only added, and then part of an fma as it is */
} product_rules[] = {
    {times_mirror, 1},
    {times_x_sigmoid, 0},
    {times_x_normcdf, 0},
    {times_plus_one, 0},
};

static eider_node approx_mul(struct rewrite *w, eider_node n)
{
    double c;
    int is_term = w->uses[n] == w->uses_as_term[n];
    eider_node other, found = times_logistic_slope(w, n, 1);
    if (found) return found;
    if (has_literal(w, n, EIDER_OP_mul, &c, &other) && w->uses[other] == 1)
        found = times_logistic_slope(w, other, c);
    for (size_t i = 0; !found && i < sizeof product_rules / sizeof *product_rules; i++) {
        if (is_term && !product_rules[i].for_terms) continue;
        found = product_rules[i].rewrite(w, arg(w, n, 0), arg(w, n, 1));
        if (!found) found = product_rules[i].rewrite(w, arg(w, n, 1), arg(w, n, 0));
    }
    return found;
}

/* ---- Both modes ---------------------------------------------------------------------- */

static eider_node any_div(struct rewrite *w, eider_node n)
{
    double divisor;
    if (!is_literal(w, arg(w, n, 1), &divisor)) return 0;
    double inverse = 1 / divisor;
    /* Normal in f32, and so is the divisor. */
    if (!(fabs(inverse) >= 0x1p-126 && fabs(inverse) <= 0x1p126)) return 0;
    return mul(w, mapped(w, arg(w, n, 0)), number(w, inverse));
}

#define NORMAL_MIN 0x1p-126 /* of f32 */
#define NORMAL_MAX 0x1p126  /* whose reciprocal is normal */

static eider_node machine_rcp(struct rewrite *w, eider_node a, double largest)
{
    struct eider_range r = eider_range_of(w->from, a);
    if (!(r.low >= NORMAL_MIN && r.high <= largest)) return 0;
    return eider_graph_unary(w->to, EIDER_OP_m_rcp, mapped(w, a));
}

static eider_node fast_rcp(struct rewrite *w, eider_node n)
{
    return machine_rcp(w, arg(w, n, 0), NORMAL_MAX);
}

static eider_node approx_rcp(struct rewrite *w, eider_node n)
{
    return machine_rcp(w, arg(w, n, 0), (double)INFINITY);
}

static eider_node approx_div(struct rewrite *w, eider_node n)
{
    eider_node product = any_div(w, n);
    eider_node inverse = product ? 0 : machine_rcp(w, arg(w, n, 1), (double)INFINITY);
    return inverse ? mul(w, mapped(w, arg(w, n, 0)), inverse) : product;
}

static eider_node fast_log1p(struct rewrite *w, eider_node n)
{
    struct eider_range r = eider_range_of(w->from, arg(w, n, 0));
    if (!(r.low >= 0 && r.high <= LOG1P_FIT_MAX)) return 0;
    return eider_graph_unary(w->to, EIDER_OP_m_log1p, mapped(w, arg(w, n, 0)));
}

/* The largest value of a's row, or 0 where that is infinite: what logsumexp takes off. */
static int is_largest_of(const struct rewrite *w, eider_node n, eider_node a)
{
    double zero;
    eider_node most = eider_graph_largest_in(w->from, n, a);
    return most && (most == n || (is_literal(w, arg(w, n, 1), &zero) && zero == 0));
}

/* The power in sum(exp(a - max(a))), or 0: the largest term is 1, and what a term loses in relative
 * accuracy by a short power it has lost in size before. */
static eider_node power_in_sum(const struct rewrite *w, eider_node n)
{
    eider_node power = is(w, n, EIDER_OP_sum) ? arg(w, n, 0) : 0;
    if (!power || !is(w, power, EIDER_OP_exp)) return 0;
    eider_node fall = arg(w, power, 0);
    int falls = is(w, fall, EIDER_OP_sub) && is_largest_of(w, arg(w, fall, 1), arg(w, fall, 0));
    return falls ? power : 0;
}

static eider_node fast_sum(struct rewrite *w, eider_node n)
{
    eider_node power = power_in_sum(w, n);
    if (!power || w->uses[power] > 1) return 0;
    eider_node scaled = mul(w, mapped(w, arg(w, power, 0)), number(w, LOG2E));
    power = eider_graph_unary(w->to, EIDER_OP_m_ex2, scaled);
    return eider_graph_unary(w->to, EIDER_OP_sum, power);
}

struct rule {
    eider_node (*fast)(struct rewrite *w, eider_node n);
    eider_node (*approx)(struct rewrite *w, eider_node n);
};

static const struct rule rules[EIDER_OP_COUNT] = {
    [EIDER_OP_div] = {any_div, approx_div},      [EIDER_OP_mul] = {NULL, approx_mul},
    [EIDER_OP_rcp] = {fast_rcp, approx_rcp},     [EIDER_OP_log1p] = {fast_log1p, NULL},
    [EIDER_OP_sum] = {fast_sum, NULL},           [EIDER_OP_tanh] = {NULL, approx_tanh},
    [EIDER_OP_sigmoid] = {NULL, approx_sigmoid}, [EIDER_OP_exp] = {NULL, approx_exp},
    [EIDER_OP_normcdf] = {NULL, approx_normcdf}, [EIDER_OP_erf] = {NULL, approx_erf},
};

static eider_node rewritten(struct rewrite *w, eider_node n)
{
    const struct eider_cell *cell = cell_of(w, n);
    const struct rule *rule = &rules[cell->op];
    eider_node found = 0, args[EIDER_CALL_ARGS_MAX];
    if (w->to->status != EIDER_OK) return 0;
    int is_approx = w->math == EIDER_MATH_APPROX ||
                    (w->math == EIDER_MATH_AUTO && !w->wide[n] && cell->op == EIDER_OP_exp);
    eider_node (*rewrite)(struct rewrite *, eider_node) = is_approx ? rule->approx : rule->fast;
    if (w->types[n] == EIDER_V_F32 && rewrite) found = rewrite(w, n);
    if (found) return found;
    for (uint32_t k = 0; k < cell->n_args; k++) args[k] = mapped(w, arg(w, n, (int)k));
    return eider_graph_put(w->to, (enum eider_op)cell->op, args, cell->n_args, cell->payload);
}

/* ---- The pass --------------------------------------------------------------------------- */

static void count_uses(struct rewrite *w)
{
    for (uint32_t i = 0; i < w->from->n_operands; i++) w->uses[w->from->operands[i].node]++;
    /* Users have larger ids: when n is looked at, its own counts are complete. */
    for (eider_node n = w->from->n_cells; n-- > 1;) {
        if (!w->live[n]) continue;
        int is_arg = is(w, n, EIDER_OP_sigmoid) ||
                     (is(w, n, EIDER_OP_neg) && w->uses_as_arg[n] == w->uses[n]);
        for (uint32_t k = 0; k < cell_of(w, n)->n_args; k++) {
            eider_node a = arg(w, n, (int)k);
            w->uses[a]++;
            w->uses_as_arg[a] += is_arg != 0;
            w->uses_as_factor[a] += is(w, n, EIDER_OP_mul) != 0;
            w->uses_as_term[a] += is(w, n, EIDER_OP_add) || is(w, n, EIDER_OP_sub);
        }
    }
}

static void list_sigmoids(struct rewrite *w)
{
    for (eider_node n = w->from->n_cells; n-- > 1;) {
        double factor;
        if (!w->live[n] || !is(w, n, EIDER_OP_sigmoid)) continue;
        eider_node base = argument(w, n, &factor);
        w->next_sigmoid[n] = w->first_sigmoid[base];
        w->first_sigmoid[base] = n;
    }
}

/* Where x sigmoid(+-x) differs in limits of x only, x with its lower limit stands for the
 * base everywhere: one half then serves all. */
static void unify(struct rewrite *w)
{
    for (eider_node n = 1; n < w->from->n_cells; n++) {
        if (!w->live[n] || !is(w, n, EIDER_OP_mul)) continue;
        for (int k = 0; k < 2; k++) {
            double factor;
            eider_node s = arg(w, n, k), x = arg(w, n, 1 - k);
            if (!is(w, s, EIDER_OP_sigmoid)) continue;
            eider_node base = argument(w, s, &factor);
            if (fabs(factor) != 1 || without_limits(w, x) != base) continue;
            x = without_limit(w, x, EIDER_OP_min);
            if (x != base && !w->unified[base]) w->unified[base] = x;
        }
    }
}

/* What outputs of more than 16 bits need, but for powers that are summed, which may be short. */
static void mark_wide(struct rewrite *w, const eider_dtype *dtypes, uint8_t *wide)
{
    const struct eider_graph *g = w->from;
    for (uint32_t i = 0; i < g->n_operands; i++)
        if (g->operands[i].kind == EIDER_OUTPUT && eider_dtype_size(dtypes[i]) > 2)
            wide[g->operands[i].node] = 1;
    for (eider_node n = g->n_cells; n-- > 1;) {
        if (!wide[n]) continue;
        eider_node power = power_in_sum(w, n);
        if (power)
            wide[arg(w, power, 0)] = 1;
        else
            for (uint32_t k = 0; k < g->cells[n].n_args; k++) wide[eider_graph_args(g, n)[k]] = 1;
    }
}

static eider_status rewrite_all(struct rewrite *w)
{
    struct eider_graph *to = w->to;
    memcpy(to->operands, w->from->operands, sizeof to->operands);
    to->n_operands = w->from->n_operands;
    count_uses(w);
    if (w->math == EIDER_MATH_APPROX) {
        list_sigmoids(w);
        unify(w);
    }
    for (eider_node n = 1; n < w->from->n_cells; n++)
        if (w->live[n]) mapped(w, n);
    for (uint32_t i = 0; i < to->n_operands; i++)
        to->operands[i].node = w->map[w->from->operands[i].node];
    return to->status;
}

eider_status eider_mathmode(const struct eider_graph *from, eider_math math,
                            const eider_dtype *dtypes, struct eider_graph **out)
{
    if (math == EIDER_MATH_EXACT) return eider_graph_copy(from, out);
    size_t n = from->n_cells;
    uint32_t *counts = eider_mem_zero(&from->allocator, 8 * n * sizeof *counts);
    uint8_t *bytes = eider_mem_zero(&from->allocator, 3 * n);
    struct rewrite w = {.from = from, .math = math};
    eider_status status = counts && bytes ? eider_graph_create(&from->allocator, &w.to) : EIDER_OOM;
    if (status == EIDER_OK) {
        w.uses = counts;
        w.uses_as_arg = counts + n;
        w.uses_as_factor = counts + 2 * n;
        w.uses_as_term = counts + 3 * n;
        w.unified = counts + 4 * n;
        w.map = counts + 5 * n;
        w.first_sigmoid = counts + 6 * n;
        w.next_sigmoid = counts + 7 * n;
        status = eider_infer(from, dtypes, 0, bytes);
        eider_graph_live(from, bytes + n);
        w.types = bytes;
        w.live = bytes + n;
        w.wide = bytes + 2 * n;
        mark_wide(&w, dtypes, bytes + 2 * n);
        if (status == EIDER_OK) status = rewrite_all(&w);
    }
    eider_mem_free(&from->allocator, counts);
    eider_mem_free(&from->allocator, bytes);
    if (status != EIDER_OK) {
        eider_graph_destroy(w.to);
        return status;
    }
    *out = w.to;
    return EIDER_OK;
}

const char *const eider_math_names[] = {"auto", "approx", "fast", "exact"};

eider_math eider_math_resolve(const struct eider_graph *g, const eider_dtype *dtypes,
                              eider_math math)
{
    int narrow = 0, wide = 0;
    if (math != EIDER_MATH_AUTO) return math;
    for (uint32_t i = 0; i < g->n_operands; i++) {
        if (g->operands[i].kind != EIDER_OUTPUT) continue;
        narrow |= eider_dtype_size(dtypes[i]) <= 2;
        wide |= eider_dtype_size(dtypes[i]) > 2;
    }
    return !wide ? EIDER_MATH_APPROX : narrow ? EIDER_MATH_AUTO : EIDER_MATH_FAST;
}
