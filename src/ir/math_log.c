/* math_log.c -- logarithms and pow, by arithmetic.
 *
 * log(x) = k ln 2 + log(1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), and with s = f / (2 + f)
 *     log(1 + f) = 2 atanh(s) = f - (f^2/2 - s (f^2/2 + R)),   R = s^2 (2/3 + s^2 (2/5 + ...)),
 * the form in which the rounding of s hardly matters (FDLIBM's e_log.c).
 */
#include "math_parts.h"

#include <math.h>

/* 2 / (2k + 3) (Taylor). */
static const double atanh_series[] = {
    2.0 / 3, 2.0 / 5, 2.0 / 7, 2.0 / 9, 2.0 / 11, 2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21,
};

/* The exponent k of x = 2^k (1 + f), as integers. */
static pack exponent_of(struct eider_emit *e, pack x, const struct eider_math_format *f)
{
    pack bits = p_bits(e, x);
    LLVMTypeRef type = LLVMTypeOf(bits);
    bits = LLVMBuildSub(e->builder, bits, p_integer(type, f->root_half), "");
    return LLVMBuildAShr(e->builder, bits, p_integer(type, f->mantissa), "");
}

/* x 2^-k by subtraction from the exponent: x and the result are normal, or x is 0. */
static pack divide_by_power(struct eider_emit *e, pack x, pack k, const struct eider_math_format *f)
{
    LLVMTypeRef type = LLVMTypeOf(k);
    pack shifted = LLVMBuildShl(e->builder, k, p_integer(type, f->mantissa), "");
    return p_from_bits(e, LLVMBuildSub(e->builder, p_bits(e, x), shifted, ""), LLVMTypeOf(x));
}

static pack to_float(struct eider_emit *e, pack integers, LLVMTypeRef type)
{
    LLVMTypeRef i32 = eider_pack_like(type, LLVMInt32TypeInContext(e->context));
    pack narrow = LLVMBuildTruncOrBitCast(e->builder, integers, i32, "");
    return LLVMBuildSIToFP(e->builder, narrow, type, "");
}

/* f^2/2 - log(1 + f) + f, to be subtracted from f. */
static pack log_excess(struct eider_emit *e, pack f, const struct eider_math_format *m)
{
    pack s = m->divide(e, f, p_offset(e, f, 2));
    pack z = p_mul(e, s, s);
    pack r = p_mul(e, z, eider_pack_polynomial(e, z, atanh_series, m->n_log));
    pack half_square = p_mul(e, p_scale(e, f, 0.5), f);
    return p_sub(e, half_square, p_mul(e, s, p_add(e, half_square, r)));
}

/* k ln 2 + log(1 + f). */
static pack log_sum(struct eider_emit *e, pack k, pack f, const struct eider_math_format *m)
{
    pack excess = log_excess(e, f, m);
    pack low = p_sub(e, p_scale(e, k, m->ln2_low), excess);
    return p_fma_by(e, k, m->ln2, p_add(e, f, low));
}

/* f and k of x > 0. */
static pack split(struct eider_emit *e, pack x, const struct eider_math_format *m, pack *k)
{
    LLVMTypeRef type = LLVMTypeOf(x);
    pack is_small = p_is(e, x, LLVMRealOLT, m->tiny);
    x = p_select(e, is_small, p_scale(e, x, m->lift), x);
    pack n = exponent_of(e, x, m);
    pack f = p_offset(e, divide_by_power(e, x, n, m), -1);
    n = to_float(e, n, type);
    *k = p_select(e, is_small, p_offset(e, n, -m->lift_log2), n);
    return f;
}

/* The logarithm's limits, where `u` is what it is taken of. */
static pack with_limits(struct eider_emit *e, pack u, pack log)
{
    log = p_select(e, p_is(e, u, LLVMRealOGT, 0), log, p_like(u, (double)NAN));
    log = p_select(e, p_is(e, u, LLVMRealOEQ, 0), p_like(u, -(double)INFINITY), log);
    return p_select(e, p_is(e, u, LLVMRealOEQ, (double)INFINITY), u, log);
}

pack eider_math_log(struct eider_emit *e, pack x, const struct eider_math_format *m)
{
    pack k, f = split(e, x, m, &k);
    return with_limits(e, x, log_sum(e, k, f, m));
}

pack eider_math_log2(struct eider_emit *e, pack x, const struct eider_math_format *m)
{
    pack k, f = split(e, x, m, &k);
    pack natural = p_sub(e, f, log_excess(e, f, m));
    pack low = p_fma_by(e, natural, m->log2e_low, k);
    return with_limits(e, x, p_fma_by(e, natural, m->log2e, low));
}

/* k comes from 1 + x; f is then x 2^-k + (2^-k - 1), in which only the last sum rounds. */
pack eider_math_log1p(struct eider_emit *e, pack x, const struct eider_math_format *m)
{
    LLVMTypeRef type = LLVMTypeOf(x);
    pack u = p_offset(e, x, 1);
    pack n = exponent_of(e, u, m);
    LLVMTypeRef bits = LLVMTypeOf(n);
    pack scaled = divide_by_power(e, x, n, m);
    /* 2^-k; 0 instead of what is too small to matter. */
    pack field = LLVMBuildSub(e->builder, p_integer(bits, m->bias), n, "");
    pack is_positive = LLVMBuildICmp(e->builder, LLVMIntSGT, field, p_integer(bits, 0), "");
    field = LLVMBuildSelect(e->builder, is_positive, field, p_integer(bits, 0), "");
    field = LLVMBuildShl(e->builder, field, p_integer(bits, m->mantissa), "");
    pack f = p_add(e, scaled, p_offset(e, p_from_bits(e, field, type), -1));
    pack log = with_limits(e, u, log_sum(e, to_float(e, n, type), f, m));
    return p_select(e, p_is(e, x, LLVMRealOEQ, 0), x, log);
}

/* ---- pow ------------------------------------------------------------------ */

static pack is_integer(struct eider_emit *e, pack x)
{
    return p_compare(e, LLVMRealOEQ, p_unary(e, "llvm.floor", x), x);
}

/* exp(y log|x|): the relative error grows with the exponent's size, to 2^-42 in f64. */
pack eider_math_pow(struct eider_emit *e, pack x, pack y, const struct eider_math_format *m)
{
    LLVMBuilderRef b = e->builder;
    pack one = p_like(x, 1), size = p_abs(e, x);
    pack power = m->exp(e, p_mul(e, y, eider_math_log(e, size, m)));

    /* |x| = 1 with y infinite; then y = 0 and x = 1, which beat NaN. */
    pack y_infinite = p_is(e, p_abs(e, y), LLVMRealOEQ, (double)INFINITY);
    pack is_unit = p_is(e, size, LLVMRealOEQ, 1);
    power = p_select(e, LLVMBuildAnd(b, is_unit, y_infinite, ""), one, power);

    /* A negative base: odd exponents negate, exponents that are no integers have no value. */
    pack whole = is_integer(e, y);
    pack even = is_integer(e, p_scale(e, y, 0.5));
    pack odd = LLVMBuildAnd(b, whole, LLVMBuildNot(b, even, ""), "");
    power = p_select(e, odd, eider_math_copysign(e, power, x), power);
    pack negative =
        LLVMBuildAnd(b, p_is(e, x, LLVMRealOLT, 0), p_is(e, x, LLVMRealOGT, -(double)INFINITY), "");
    pack undefined = LLVMBuildAnd(b, negative, LLVMBuildNot(b, whole, ""), "");
    power = p_select(e, undefined, p_like(x, (double)NAN), power);

    pack trivial = LLVMBuildOr(b, p_is(e, x, LLVMRealOEQ, 1), p_is(e, y, LLVMRealOEQ, 0), "");
    return p_select(e, trivial, one, power);
}
