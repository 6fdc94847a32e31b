/* math_trig.c -- sine and cosine, by arithmetic.
 *
 * x = n pi/2 + r with pi/2 in three parts: the first product leaves an exact difference,
 * as in math_exp.c, so that r keeps its relative accuracy near multiples of pi/2.  This
 * holds while n has few enough bits: |x| up to 2^45 in f64 and 2^20 in f32.  Beyond, r is
 * clamped: results stay within [-1, 1] and lose their meaning.
 */
#include "math_parts.h"

/* (-1)^(k+1) / (2k+3)! and (-1)^(k+1) / (2k+2)! (Taylor). */
static const double sin_series[] = {
    -1.0 / 6,        1.0 / 120,        -1.0 / 5040,          1.0 / 362880,
    -1.0 / 39916800, 1.0 / 6227020800, -1.0 / 1307674368000, 1.0 / 355687428096000,
};
static const double cos_series[] = {
    -1.0 / 2,       1.0 / 24,        -1.0 / 720,         1.0 / 40320,
    -1.0 / 3628800, 1.0 / 479001600, -1.0 / 87178291200, 1.0 / 20922789888000,
};

#define QUARTERS_PER_UNIT 0.63661977236758134308 /* 2 / pi */
#define R_MAX 0.9                                /* pi/4, and room for n off by a little */

/* sin(x + turn pi/2). */
static pack sine(struct eider_emit *e, pack x, double turn, const struct eider_math_format *f)
{
    pack n = p_unary(e, "llvm.rint", p_scale(e, x, QUARTERS_PER_UNIT));
    pack r = x;
    for (int i = 0; i < 3; i++) r = p_fma_by(e, n, -f->half_pi[i], r);
    r = p_select(e, p_is(e, r, LLVMRealOGT, R_MAX), p_like(r, R_MAX), r);
    r = p_select(e, p_is(e, r, LLVMRealOLT, -R_MAX), p_like(r, -R_MAX), r);

    /* quarter = n + turn modulo 4, as a float: 0 sin, 1 cos, 2 -sin, 3 -cos. */
    n = p_offset(e, n, turn);
    pack fours = p_unary(e, "llvm.floor", p_scale(e, n, 0.25));
    pack quarter = p_fma_by(e, fours, -4, n);

    pack z = p_mul(e, r, r);
    pack s = eider_pack_polynomial(e, z, sin_series, f->n_sin);
    s = p_fma(e, p_mul(e, r, z), s, r);
    pack c = eider_pack_polynomial(e, z, cos_series, f->n_cos);
    c = p_fma(e, z, c, p_like(z, 1));

    pack is_cos = LLVMBuildOr(e->builder, p_is(e, quarter, LLVMRealOEQ, 1),
                              p_is(e, quarter, LLVMRealOEQ, 3), "");
    pack value = p_select(e, is_cos, c, s);
    return p_select(e, p_is(e, quarter, LLVMRealOGE, 2), p_neg(e, value), value);
}

pack eider_math_sin(struct eider_emit *e, pack x, const struct eider_math_format *f)
{
    return p_select(e, p_is(e, x, LLVMRealOEQ, 0), x, sine(e, x, 0, f));
}

pack eider_math_cos(struct eider_emit *e, pack x, const struct eider_math_format *f)
{
    return sine(e, x, 1, f);
}
