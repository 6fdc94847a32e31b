/* rounding.c -- see rounding.h. */
#include "rounding.h"

#include <math.h>

#include "ops.h"

/* Of a sum in another order, relative to the largest of the row: some 30 units in the last
 * place.  The kernels carry what a sum loses, a product they do not; and what a logarithm loses
 * is relative to its value, which often becomes an exponent. */
#define SLACK_F32 0x1p-18
#define SLACK_F64 0x1p-45
#define FACTOR 8 /* of these two */

/* Formats: digits after the leading one, and the exponent of the smallest normal number. */
static const struct {
    int digits, least;
} formats[] = {[EIDER_F32] = {23, -126},  [EIDER_F16] = {10, -14}, [EIDER_BF16] = {7, -126},
               [EIDER_F64] = {52, -1022}, [EIDER_E4M3] = {3, -6},  [EIDER_E5M2] = {2, -14}};

static int is_float(eider_dtype type)
{
    return (size_t)type < sizeof formats / sizeof formats[0] && formats[type].digits > 0;
}

double eider_rounding_ulp(eider_dtype type, double magnitude)
{
    int exponent;
    if (!is_float(type) || !isfinite(magnitude)) return 0;
    (void)frexp(magnitude, &exponent);
    exponent--; /* of a mantissa from 1 to 2 */
    if (magnitude == 0 || exponent < formats[type].least) exponent = formats[type].least;
    return ldexp(1, exponent - formats[type].digits);
}

int eider_rounding_allows(const struct eider_rounding *r, eider_dtype type, double largest,
                          double got, double want)
{
    if (got == want || (isnan(got) && isnan(want))) return 1;
    if (!(r->slack > 0)) return 0;
    double larger = fabs(got) > fabs(want) ? fabs(got) : fabs(want);
    return fabs(got - want) <= r->slack * largest + eider_rounding_ulp(type, larger);
}

/* ---- Through the program ----------------------------------------------------------- */

/* Whether an input is f64, or of another floating type. */
static int has_float(const struct eider_graph *g, const eider_dtype *types, int is_f64)
{
    for (uint32_t i = 0; i < g->n_operands; i++)
        if (g->operands[i].kind == EIDER_INPUT && is_float(types[i]) &&
            (types[i] == EIDER_F64) == is_f64)
            return 1;
    return 0;
}

/* What a node adds to the slack of its operands; those that have none stay so. */
static double own_slack(const struct eider_cell *cell, double of_sum, double before)
{
    enum eider_op op = (enum eider_op)cell->op;
    if (op == EIDER_OP_sum || op == EIDER_OP_mean || op == EIDER_OP_colsum) return of_sum;
    if (op == EIDER_OP_prod || op == EIDER_OP_logsumexp) return FACTOR * of_sum;
    int is_cast = op == EIDER_OP_cast || op == EIDER_OP_cast_nan;
    if (!is_cast || !(before > 0) || !is_float((eider_dtype)cell->payload)) return 0;
    /* Rounded to the neighbour, which is what all the rest is computed from. */
    return eider_rounding_ulp((eider_dtype)cell->payload, 1);
}

static int is_jump(const struct eider_cell *cell)
{
    enum eider_op op = (enum eider_op)cell->op;
    if (op == EIDER_OP_cast || op == EIDER_OP_cast_nan)
        return !is_float((eider_dtype)cell->payload);
    return (op >= EIDER_OP_copysign && op <= EIDER_OP_round) ||
           (op >= EIDER_OP_eq && op <= EIDER_OP_ge) || op == EIDER_OP_argmax ||
           op == EIDER_OP_argmin;
}

eider_status eider_rounding_of(const struct eider_graph *g, const eider_allocator *a,
                               const eider_dtype *types, struct eider_rounding *out)
{
    struct eider_rounding *at = eider_mem_zero(a, g->n_cells * sizeof *at);
    if (!at) return EIDER_OOM;
    int is_f32 = has_float(g, types, 0), is_f64 = has_float(g, types, 1);
    double of_sum = is_f64 && !is_f32 ? SLACK_F64 : SLACK_F32;
    for (eider_node id = 1; id < g->n_cells; id++) { /* operands come before what uses them */
        const struct eider_cell *cell = &g->cells[id];
        const eider_node *args = eider_graph_args(g, id);
        for (uint32_t k = 0; k < cell->n_args; k++) {
            at[id].slack = fmax(at[id].slack, at[args[k]].slack);
            at[id].jumps |= at[args[k]].jumps;
        }
        if (at[id].slack > 0 && is_jump(cell)) at[id].jumps = 1;
        at[id].slack = fmax(at[id].slack, own_slack(cell, of_sum, at[id].slack));
    }
    for (uint32_t i = 0; i < g->n_operands; i++) {
        out[i] = (struct eider_rounding){0};
        if (g->operands[i].kind != EIDER_OUTPUT) continue;
        out[i] = at[g->operands[i].node];
        if (is_float(types[i])) continue;
        /* Stored as a whole number, a float falls to one side.  Sums of whole numbers do not. */
        out[i].jumps |= out[i].slack > 0 && (is_f32 || is_f64);
        out[i].slack = 0;
    }
    eider_mem_free(a, at);
    return EIDER_OK;
}
