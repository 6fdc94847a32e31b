/* math_erf.c -- error functions and the normal distribution, by arithmetic.
 *
 * For a >= 0, erfc(a) = exp(-a^2) erfcx(a), where (a + k) erfcx(a) is a polynomial in
 * (a - k) / (a + k) = 1 - 2k / (a + k) (math_fit.h), and a^2 is known to twice the format's
 * precision, so that the tail keeps its relative accuracy.
 */
#include "math_parts.h"

#include <math.h>

#define ERFCX_TERMS_MAX 32

pack eider_math_square(struct eider_emit *e, pack a, pack *rest)
{
    pack square = p_mul(e, a, a);
    *rest = p_fma(e, a, a, p_neg(e, square));
    return square;
}

/* factor exp(-c a^2) erfcx(a sqrt(c)) for a >= 0 and c = 1 or 1/2. */
static pack tail(struct eider_emit *e, pack a, double c, double factor,
                 const struct eider_math_format *f)
{
    double terms[ERFCX_TERMS_MAX];
    for (int i = 0; i < f->n_erfcx; i++) terms[i] = factor * f->erfcx[i];
    pack inverse = f->divide(e, p_like(a, 1), p_fma_by(e, a, sqrt(c), p_like(a, f->erfcx_k)));
    pack q = p_fma_by(e, inverse, -2 * f->erfcx_k, p_like(a, 1));
    pack p = eider_pack_polynomial(e, q, terms, f->n_erfcx);
    return p_mul(e, f->decay(e, a, c), p_mul(e, p, inverse));
}

/* |x|, at most `max`; NaN stays. */
static pack size_of(struct eider_emit *e, pack x, double max)
{
    pack a = p_abs(e, x);
    return p_select(e, p_is(e, a, LLVMRealOGT, max), p_like(a, max), a);
}

/* erf(a) for a below erf_max. */
static pack erf_small(struct eider_emit *e, pack a, const struct eider_math_format *f)
{
    return p_fma(e, a, eider_pack_polynomial(e, p_mul(e, a, a), f->erf, f->n_erf), a);
}

pack eider_math_erf(struct eider_emit *e, pack x, const struct eider_math_format *f)
{
    pack a = size_of(e, x, f->erfcx_max);
    pack large = p_sub(e, p_like(a, 1), tail(e, a, 1, 1, f));
    pack is_small = p_is(e, a, LLVMRealOLT, f->erf_max);
    return eider_math_copysign(e, p_select(e, is_small, erf_small(e, a, f), large), x);
}

/* Near 0, where the tail's rounding would show, 1 - erf(x). */
pack eider_math_erfc(struct eider_emit *e, pack x, const struct eider_math_format *f)
{
    pack a = size_of(e, x, f->erfcx_max);
    pack t = tail(e, a, 1, 1, f);
    pack large = p_select(e, p_is(e, x, LLVMRealOLT, 0), p_sub(e, p_like(x, 2), t), t);
    pack small = p_sub(e, p_like(x, 1), erf_small(e, x, f));
    return p_select(e, p_is(e, a, LLVMRealOLT, f->erf_max), small, large);
}

#define ROOT_HALF 0.70710678118654752440 /* sqrt(1/2) */

pack eider_math_normcdf(struct eider_emit *e, pack x, const struct eider_math_format *f)
{
    pack a = size_of(e, x, f->erfcx_max / ROOT_HALF);
    pack t = tail(e, a, 0.5, 0.5, f);
    return p_select(e, p_is(e, x, LLVMRealOLT, 0), t, p_sub(e, p_like(x, 1), t));
}
