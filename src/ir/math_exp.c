/* math_exp.c -- exponentials and what follows from them, by arithmetic.
 *
 * exp(x) = 2^n exp(r) with n = round(x / ln 2) and |r| <= ln(2)/2, exp(r) by its Taylor
 * series.  x - n ln 2 is exact for the leading part of ln 2: the product is inside an fma
 * and the difference has no more bits than x.  2^n is multiplied in two halves, so that
 * results down to the smallest subnormal are rounded once and large ones reach infinity.
 */
#include "math_parts.h"

/* 1 / k!, k = 0 ... (Taylor). */
static const double inverse_factorial[] = {
    1,
    1,
    1.0 / 2,
    1.0 / 6,
    1.0 / 24,
    1.0 / 120,
    1.0 / 720,
    1.0 / 5040,
    1.0 / 40320,
    1.0 / 362880,
    1.0 / 3628800,
    1.0 / 39916800,
    1.0 / 479001600,
    1.0 / 6227020800,
    1.0 / 87178291200,
};

static pack clamp(struct eider_emit *e, pack x, double low, double high)
{
    x = p_select(e, p_is(e, x, LLVMRealOGT, high), p_like(x, high), x);
    return p_select(e, p_is(e, x, LLVMRealOLT, low), p_like(x, low), x);
}

/* round(x * by), also as integers.  Adding 1.5 * 2^mantissa leaves the rounded integer in
 * the low bits of the sum, and no conversion sees a NaN. */
static pack round_scaled(struct eider_emit *e, pack x, double by, const struct eider_math_format *f,
                         pack *integer)
{
    double magic = 1.5 * (double)(1ULL << f->mantissa);
    pack sum = p_fma_by(e, x, by, p_like(x, magic));
    *integer = LLVMBuildSub(e->builder, p_bits(e, sum), p_bits(e, p_like(x, magic)), "");
    return p_sub(e, sum, p_like(x, magic));
}

/* 2^n for n within the exponents of normal numbers. */
static pack power_of_two(struct eider_emit *e, pack n, LLVMTypeRef type,
                         const struct eider_math_format *f)
{
    LLVMTypeRef bits = LLVMTypeOf(n);
    n = LLVMBuildAdd(e->builder, n, p_integer(bits, f->bias), "");
    return p_from_bits(e, LLVMBuildShl(e->builder, n, p_integer(bits, f->mantissa), ""), type);
}

/* 2^n as two factors. */
static void split_power(struct eider_emit *e, pack n, LLVMTypeRef type,
                        const struct eider_math_format *f, pack factors[2])
{
    pack half = LLVMBuildAShr(e->builder, n, p_integer(LLVMTypeOf(n), 1), "");
    factors[0] = power_of_two(e, half, type, f);
    factors[1] = power_of_two(e, LLVMBuildSub(e->builder, n, half, ""), type, f);
}

pack eider_math_exp(struct eider_emit *e, pack high, pack low, const struct eider_math_format *f)
{
    pack n_bits, factors[2];
    pack x = clamp(e, high, f->exp_low, f->exp_high);
    pack n = round_scaled(e, x, f->log2e, f, &n_bits);
    pack r = p_fma_by(e, n, -f->ln2, x);
    r = p_fma_by(e, n, -f->ln2_low, r);
    if (low) r = p_add(e, r, low);
    pack sum = eider_pack_polynomial(e, r, inverse_factorial, f->n_exp);
    split_power(e, n_bits, LLVMTypeOf(x), f, factors);
    return p_mul(e, p_mul(e, sum, factors[0]), factors[1]);
}

pack eider_math_exp2(struct eider_emit *e, pack x, const struct eider_math_format *f)
{
    pack n_bits, factors[2];
    x = clamp(e, x, f->exp_low * f->log2e, f->exp_high * f->log2e);
    pack n = round_scaled(e, x, 1, f, &n_bits);
    pack r = p_scale(e, p_sub(e, x, n), f->ln2);
    pack sum = eider_pack_polynomial(e, r, inverse_factorial, f->n_exp);
    split_power(e, n_bits, LLVMTypeOf(x), f, factors);
    return p_mul(e, p_mul(e, sum, factors[0]), factors[1]);
}

/* 2^n (exp(r) - 1) + (2^n - 1), with 2^n = a b: (a (exp(r) - 1) + (a - 1/b)) b. */
pack eider_math_expm1(struct eider_emit *e, pack x, const struct eider_math_format *f)
{
    pack n_bits, factors[2];
    pack clamped = clamp(e, x, f->exp_low, f->exp_high);
    pack n = round_scaled(e, clamped, f->log2e, f, &n_bits);
    pack r = p_fma_by(e, n, -f->ln2, clamped);
    r = p_fma_by(e, n, -f->ln2_low, r);
    pack q = eider_pack_polynomial(e, r, inverse_factorial + 2, f->n_exp - 2);
    q = p_fma(e, p_mul(e, r, r), q, r);
    split_power(e, n_bits, LLVMTypeOf(x), f, factors);
    pack half = LLVMBuildAShr(e->builder, n_bits, p_integer(LLVMTypeOf(n_bits), 1), "");
    pack inverse = power_of_two(e, LLVMBuildSub(e->builder, half, n_bits, ""), LLVMTypeOf(x), f);
    pack sum = p_fma(e, q, factors[0], p_sub(e, factors[0], inverse));
    return p_select(e, p_is(e, x, LLVMRealOEQ, 0), x, p_mul(e, sum, factors[1]));
}

/* The number that fills a constant pack; 0 when `v` is no such thing. */
static int is_number(pack v, double *value)
{
    LLVMBool inexact;
    if (LLVMIsConstant(v) && LLVMGetTypeKind(LLVMTypeOf(v)) == LLVMVectorTypeKind)
        v = LLVMGetAggregateElement(v, 0);
    if (!v || !LLVMIsAConstantFP(v)) return 0;
    *value = LLVMConstRealGetDouble(v, &inexact);
    return 1;
}

static int is_instruction(pack v, LLVMOpcode opcode)
{
    return LLVMIsAInstruction(v) && LLVMGetInstructionOpcode(v) == opcode;
}

static pack without_sign(pack v)
{
    return is_instruction(v, LLVMFNeg) ? LLVMGetOperand(v, 0) : v;
}

/* |x|, made of the same values for a multiple of something and for the opposite multiple. */
static pack magnitude(struct eider_emit *e, pack x)
{
    double factor;
    x = without_sign(x);
    if (!is_instruction(x, LLVMFMul) || !is_number(LLVMGetOperand(x, 1), &factor))
        return p_abs(e, x);
    pack base = p_abs(e, without_sign(LLVMGetOperand(x, 0)));
    return p_scale(e, base, factor < 0 ? -factor : factor);
}

/* 1 / (1 + exp(-x)) through exp(-|x|), which cannot overflow and keeps the negative tail.
 * sigmoid(x) and sigmoid(-x) have it in common. */
pack eider_math_sigmoid(struct eider_emit *e, pack x, const struct eider_math_format *f)
{
    pack decay = f->exp(e, p_neg(e, magnitude(e, x)));
    pack above = p_select(e, p_is(e, x, LLVMRealOLT, 0), decay, p_like(x, 1));
    return f->divide(e, above, p_offset(e, decay, 1));
}

/* -m / (2 + m) with m = exp(-2|x|) - 1. */
pack eider_math_tanh(struct eider_emit *e, pack x, const struct eider_math_format *f)
{
    pack m = eider_math_expm1(e, p_scale(e, p_abs(e, x), -2), f);
    return eider_math_copysign(e, f->divide(e, m, p_offset(e, m, 2)), x);
}

pack eider_math_copysign(struct eider_emit *e, pack a, pack b)
{
    pack magnitude = p_bits(e, a), sign = p_bits(e, b);
    LLVMTypeRef type = LLVMTypeOf(magnitude);
    unsigned width = LLVMGetIntTypeWidth(eider_pack_element(type));
    int64_t below = (int64_t)((1ULL << (width - 1)) - 1);
    magnitude = LLVMBuildAnd(e->builder, magnitude, p_integer(type, below), "");
    sign = LLVMBuildAnd(e->builder, sign, p_integer(type, ~below), "");
    return p_from_bits(e, LLVMBuildOr(e->builder, magnitude, sign, ""), LLVMTypeOf(a));
}
