/* math_erf.c -- error functions and the normal distribution, by arithmetic.
 *
 * For a >= 0, erfc(a) = exp(-a^2) erfcx(a), where (1 + 2a) erfcx(a) is a polynomial in
 * (a - k) / (a + k) (math_fit.h), and a^2 is known to twice the format's precision, so
 * that the tail keeps its relative accuracy.
 */
#include "math_parts.h"

/* exp(-c a^2) erfcx(b) for a, b >= 0. */
static pack tail(struct eider_emit *e, pack a, double c, pack b, const struct eider_math_format *f)
{
    pack square = p_mul(e, a, a);
    pack rest = p_fma(e, a, a, p_neg(e, square));
    pack decay = f->exp(e, p_scale(e, square, -c), p_scale(e, rest, -c));

    /* One division for both quotients: erfcx = p(q) / (1 + 2b), q = (b - k) / (b + k). */
    pack sum = p_offset(e, b, f->erfcx_k), slope = p_fma_by(e, b, 2, p_like(b, 1));
    pack inverse = f->divide(e, p_like(b, 1), p_mul(e, sum, slope));
    pack q = p_mul(e, p_mul(e, p_offset(e, b, -f->erfcx_k), slope), inverse);
    pack p = eider_pack_polynomial(e, q, f->erfcx, f->n_erfcx);
    return p_mul(e, decay, p_mul(e, p, p_mul(e, sum, inverse)));
}

/* |x|, at most `max`; NaN stays. */
static pack size_of(struct eider_emit *e, pack x, double max)
{
    pack a = p_abs(e, x);
    return p_select(e, p_is(e, a, LLVMRealOGT, max), p_like(a, max), a);
}

pack eider_math_erf(struct eider_emit *e, pack x, const struct eider_math_format *f)
{
    pack a = size_of(e, x, f->erfcx_max);
    pack large = p_sub(e, p_like(a, 1), tail(e, a, 1, a, f));
    pack small = eider_pack_polynomial(e, p_mul(e, a, a), f->erf, f->n_erf);
    small = p_fma(e, a, small, a);
    pack is_small = p_is(e, a, LLVMRealOLT, f->erf_max);
    return eider_math_copysign(e, p_select(e, is_small, small, large), x);
}

pack eider_math_erfc(struct eider_emit *e, pack x, const struct eider_math_format *f)
{
    pack a = size_of(e, x, f->erfcx_max);
    pack t = tail(e, a, 1, a, f);
    return p_select(e, p_is(e, x, LLVMRealOLT, 0), p_sub(e, p_like(x, 2), t), t);
}

#define ROOT_HALF 0.70710678118654752440 /* sqrt(1/2) */

pack eider_math_normcdf(struct eider_emit *e, pack x, const struct eider_math_format *f)
{
    pack a = size_of(e, x, f->erfcx_max / ROOT_HALF);
    pack t = p_scale(e, tail(e, a, 0.5, p_scale(e, a, ROOT_HALF), f), 0.5);
    return p_select(e, p_is(e, x, LLVMRealOLT, 0), t, p_sub(e, p_like(x, 1), t));
}
