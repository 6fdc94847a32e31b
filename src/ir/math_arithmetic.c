/* math_arithmetic.c -- the functions of math_*.c by operation, and the format f64. */
#include "math_parts.h"

#include "math_fit.h"

pack eider_math_arithmetic(struct eider_emit *e, const struct eider_math_format *f,
                           enum eider_op op, const pack *args)
{
    pack x = args[0];
    switch (op) {
    case EIDER_OP_exp:
        return f->exp(e, x);
    case EIDER_OP_exp2:
        return eider_math_exp2(e, x, f);
    case EIDER_OP_expm1:
        return eider_math_expm1(e, x, f);
    case EIDER_OP_log:
        return eider_math_log(e, x, f);
    case EIDER_OP_log2:
        return eider_math_log2(e, x, f);
    case EIDER_OP_log1p:
        return eider_math_log1p(e, x, f);
    case EIDER_OP_pow:
        return eider_math_pow(e, x, args[1], f);
    case EIDER_OP_sin:
        return eider_math_sin(e, x, f);
    case EIDER_OP_cos:
        return eider_math_cos(e, x, f);
    case EIDER_OP_tanh:
        return eider_math_tanh(e, x, f);
    case EIDER_OP_sigmoid:
        return eider_math_sigmoid(e, x, f);
    case EIDER_OP_erf:
        return eider_math_erf(e, x, f);
    case EIDER_OP_erfc:
        return eider_math_erfc(e, x, f);
    case EIDER_OP_normcdf:
        return eider_math_normcdf(e, x, f);
    default:
        return eider_emit_fail(e, EIDER_UNSUPPORTED, "operation %d has no code", (int)op);
    }
}

/* 2 (-1)^k / ((2k+1) k! sqrt(pi)), less 1 for k = 0: erf(a) / a - 1 in a^2 (Taylor). */
#define TWO_OVER_ROOT_PI 1.12837916709551257390
static const double erf_f64[] = {
    TWO_OVER_ROOT_PI - 1,
    -TWO_OVER_ROOT_PI / 3,
    TWO_OVER_ROOT_PI / 10,
    -TWO_OVER_ROOT_PI / 42,
    TWO_OVER_ROOT_PI / 216,
    -TWO_OVER_ROOT_PI / 1320,
    TWO_OVER_ROOT_PI / 9360,
    -TWO_OVER_ROOT_PI / 75600,
    TWO_OVER_ROOT_PI / 685440,
    -TWO_OVER_ROOT_PI / 6894720,
    TWO_OVER_ROOT_PI / 76204800,
    -TWO_OVER_ROOT_PI / 918086400,
    TWO_OVER_ROOT_PI / 11975040000,
    -TWO_OVER_ROOT_PI / 168129561600,
    TWO_OVER_ROOT_PI / 2528170444800,
};

static pack exp_f64(struct eider_emit *e, pack x)
{
    return eider_math_exp(e, x, NULL, &eider_math_f64);
}

static pack decay_f64(struct eider_emit *e, pack a, double c)
{
    pack rest, square = eider_math_square(e, a, &rest);
    return eider_math_exp(e, p_scale(e, square, -c), p_scale(e, rest, -c), &eider_math_f64);
}

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* Constants: the numbers named in math_parts.h, rounded; the series' lengths leave less than
 * 2^-56 of the result. */
const struct eider_math_format eider_math_f64 = {
    .mantissa = 52,
    .bias = 1023,
    .exp_low = -746, /* below the logarithm of half the smallest number */
    .exp_high = 710, /* above that of the largest */
    .log2e = 0x1.71547652b82fep+0,
    .log2e_low = 0x1.777d0ffda0d24p-56,
    .ln2 = 0x1.62e42fefa39efp-1,
    .ln2_low = 0x1.abc9e3b39803fp-56,
    .half_pi = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54, -0x1.f1976b7ed8fbcp-110},
    .tiny = 0x1p-1022,
    .lift = 0x1p54,
    .lift_log2 = 54,
    .root_half = 0x3fe6a09e667f3bcd,
    .n_exp = 14,
    .n_log = 10,
    .n_sin = 8,
    .n_cos = 8,
    .erf = erf_f64,
    .n_erf = COUNT(erf_f64),
    .erf_max = 0.75,
    .erfcx = erfcx_f64,
    .n_erfcx = COUNT(erfcx_f64),
    .erfcx_k = ERFCX_F64_K,
    .erfcx_max = ERFCX_F64_MAX,
    .exp = exp_f64,
    .decay = decay_f64,
    .divide = p_div,
};
