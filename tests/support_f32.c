/* support_f32.c -- see support_f32.h. */
#include "support_f32.h"

#include <float.h>
#include <math.h>

#include "activations.h"

static float logistic(float a)
{
    float e = expf(-fabsf(a));
    return a < 0 ? e / (1 + e) : 1 / (1 + e);
}

static float maximum(float a, float b)
{
    if (isnan(a) || isnan(b)) return NAN;
    if (a == b) return signbit(a) ? b : a;
    return a > b ? a : b;
}

static float truth(int condition)
{
    return condition ? 1.0F : 0.0F;
}

/* A function of three operands, of which it may use fewer, for each primitive. */
#define F32(name, value)                               \
    static float f32_##name(float a, float b, float c) \
    {                                                  \
        (void)a, (void)b, (void)c;                     \
        return value;                                  \
    }

F32(add, a + b)
F32(sub, a - b)
F32(mul, a *b)
F32(div, a / b)
F32(neg, -a)
F32(abs, fabsf(a))
F32(fma, fmaf(a, b, c))
F32(max, maximum(a, b))
F32(min, -maximum(-a, -b))
F32(fmax, isnan(a) ? b : isnan(b) ? a : maximum(a, b))
F32(fmin, isnan(a) ? b : isnan(b) ? a : -maximum(-a, -b))
F32(copysign, copysignf(a, b))
F32(sign, a > 0 ? 1 : a < 0 ? -1 : a)
F32(floor, floorf(a))
F32(ceil, ceilf(a))
F32(trunc, truncf(a))
F32(round, roundevenf(a))
F32(sqrt, sqrtf(a))
F32(rsqrt, 1 / sqrtf(a))
F32(rcp, 1 / a)
F32(exp, expf(a))
F32(exp2, exp2f(a))
F32(expm1, expm1f(a))
F32(log, logf(a))
F32(log2, log2f(a))
F32(log1p, log1pf(a))
F32(pow, powf(a, b))
F32(sin, sinf(a))
F32(cos, cosf(a))
F32(tanh, tanhf(a))
F32(sigmoid, logistic(a))
F32(erf, erff(a))
F32(erfc, erfcf(a))
F32(normcdf, 0.5F * erfcf(-a * 0.70710678F))
F32(eq, truth(a == b))
F32(ne, truth(a != b))
F32(lt, truth(a < b))
F32(le, truth(a <= b))
F32(gt, truth(a > b))
F32(ge, truth(a >= b))
F32(and, truth(a != 0 && b != 0))
F32(or, truth(a != 0 || b != 0))
F32(not, truth(a == 0))
F32(isnan, truth(isnan(a)))
F32(select, a != 0 ? b : c)
F32(m_tanh, tanhf(a))
F32(m_ex2, exp2f(a))
F32(m_lg2, log2f(a))
F32(m_log1p, log1pf(a))
F32(m_rcp, 1 / a)
F32(m_rsqrt, 1 / sqrtf(a))
F32(m_sqrt, sqrtf(a))
F32(m_sin, sinf(a))
F32(m_cos, cosf(a))

#define f32_poison NULL
#define f32_input NULL
#define f32_scalar NULL
#define f32_number NULL
#define f32_integer NULL
#define f32_call NULL
#define f32_result NULL
#define f32_cast NULL
#define f32_cast_nan NULL
#define f32_row NULL
#define f32_col NULL
#define f32_cols NULL
#define f32_pick NULL
#define f32_sum NULL
#define f32_mean NULL
#define f32_prod NULL
#define f32_rmax NULL
#define f32_rmin NULL
#define f32_amax NULL
#define f32_amin NULL
#define f32_argmax NULL
#define f32_argmin NULL
#define f32_logsumexp NULL
#define f32_any NULL
#define f32_all NULL
#define f32_colsum NULL

static float (*const f32_table[EIDER_OP_COUNT])(float a, float b, float c) = {
#define EIDER_OP(name, arity, text, rule, doc) [EIDER_OP_##name] = f32_##name,
#include "ops.def"
};

static float value_of(const struct eider_graph *g, eider_node id, const float *values,
                      const float *in)
{
    const struct eider_cell *cell = &g->cells[id];
    const eider_node *args = eider_graph_args(g, id);
    float v[3] = {0};
    for (uint32_t k = 0; k < cell->n_args; k++) v[k] = values[args[k]];
    switch (cell->op) {
    case EIDER_OP_input:
    case EIDER_OP_scalar:
        return in[cell->payload];
    case EIDER_OP_number:
        return (float)eider_cell_number(cell);
    case EIDER_OP_integer:
        return (float)(int64_t)cell->payload;
    case EIDER_OP_cast:
    case EIDER_OP_cast_nan:
        return (float)eider_round_to((double)v[0], (eider_dtype)cell->payload,
                                     cell->op == EIDER_OP_cast);
    default:
        return f32_table[cell->op](v[0], v[1], v[2]);
    }
}

eider_status support_eval_f32(const struct eider_graph *g, int flush, const float *in, float *out)
{
    struct eider_graph *expanded;
    EIDER_TRY(eider_activation_expand(g, &expanded));
    float *values = eider_mem_alloc(&g->allocator, expanded->n_cells * sizeof *values);
    for (eider_node id = 1; values && id < expanded->n_cells; id++) {
        values[id] = value_of(expanded, id, values, in);
        if (flush && fabsf(values[id]) < FLT_MIN) values[id] = copysignf(0, values[id]);
    }
    for (uint32_t i = 0; values && i < expanded->n_operands; i++)
        if (expanded->operands[i].kind == EIDER_OUTPUT) *out++ = values[expanded->operands[i].node];
    eider_status status = values ? EIDER_OK : EIDER_OOM;
    eider_mem_free(&g->allocator, values);
    eider_graph_destroy(expanded);
    return status;
}
