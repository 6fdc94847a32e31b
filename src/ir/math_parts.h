/* math_parts.h -- what math_*.c share: formats, and the functions by arithmetic.
 *
 * Invariant: nothing here asks how wide a pack is.
 */
#ifndef EIDER_IR_MATH_PARTS_H
#define EIDER_IR_MATH_PARTS_H

#include "math_code.h"
#include "pack.h"

/* What differs between the ways to compute with one format. */
struct eider_math_format {
    int mantissa;             /* stored bits */
    int bias;                 /* of the exponent */
    double exp_low, exp_high; /* outside, exp is 0 or infinite */
    double log2e, log2e_low;  /* log2(e) = the sum, log2e rounded to the format; so below */
    double ln2, ln2_low;
    double half_pi[3];
    double tiny;                    /* smallest normal number */
    double lift;                    /* a power of two that makes a subnormal normal ... */
    int lift_log2;                  /* ... and its logarithm */
    int64_t root_half;              /* bits of sqrt(1/2) */
    int n_exp, n_log, n_sin, n_cos; /* terms of the series */
    const double *erf;              /* erf(a) / a - 1 in a^2, below erf_max */
    int n_erf;
    double erf_max;
    const double *erfcx; /* (a + k) erfcx(a) in (a - k) / (a + k), up to erfcx_max */
    int n_erfcx;
    double erfcx_k, erfcx_max;
    pack (*exp)(struct eider_emit *e, pack x);
    /* exp(-c a^2), c a power of two, |a| such that the exponent is not far below exp_low. */
    pack (*decay)(struct eider_emit *e, pack a, double c);
    /* a / b where b is neither huge nor tiny. */
    pack (*divide)(struct eider_emit *e, pack a, pack b);
};

/* f64 by arithmetic alone. */
extern const struct eider_math_format eider_math_f64;

/* exp, exp2, expm1, log, log2, log1p, pow, sin, cos, tanh, sigmoid, erf, erfc or normcdf of
 * packs in `f`, by arithmetic. */
pack eider_math_arithmetic(struct eider_emit *e, const struct eider_math_format *f,
                           enum eider_op op, const pack *args);

/* The parts, each in the file of its name. */
/* exp(high + low), |low| much smaller or NULL for 0. */
pack eider_math_exp(struct eider_emit *e, pack high, pack low, const struct eider_math_format *f);
/* a^2 as the sum of the returned and *rest. */
pack eider_math_square(struct eider_emit *e, pack a, pack *rest);
pack eider_math_exp2(struct eider_emit *e, pack x, const struct eider_math_format *f);
pack eider_math_expm1(struct eider_emit *e, pack x, const struct eider_math_format *f);
pack eider_math_sigmoid(struct eider_emit *e, pack x, const struct eider_math_format *f);
pack eider_math_tanh(struct eider_emit *e, pack x, const struct eider_math_format *f);
pack eider_math_log(struct eider_emit *e, pack x, const struct eider_math_format *f);
pack eider_math_log2(struct eider_emit *e, pack x, const struct eider_math_format *f);
pack eider_math_log1p(struct eider_emit *e, pack x, const struct eider_math_format *f);
pack eider_math_pow(struct eider_emit *e, pack x, pack y, const struct eider_math_format *f);
pack eider_math_sin(struct eider_emit *e, pack x, const struct eider_math_format *f);
pack eider_math_cos(struct eider_emit *e, pack x, const struct eider_math_format *f);
pack eider_math_erf(struct eider_emit *e, pack x, const struct eider_math_format *f);
pack eider_math_erfc(struct eider_emit *e, pack x, const struct eider_math_format *f);
pack eider_math_normcdf(struct eider_emit *e, pack x, const struct eider_math_format *f);
/* |a| with the sign of b. */
pack eider_math_copysign(struct eider_emit *e, pack a, pack b);

#endif
