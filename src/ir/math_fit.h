/* math_fit.h -- printed by bench/fit_math.py; do not edit.
 *
 * Polynomials whose coefficients have no closed form, lowest power first.
 */
#ifndef EIDER_IR_MATH_FIT_H
#define EIDER_IR_MATH_FIT_H

#define ERFCX_F64_K 3.5
#define ERFCX_F64_MAX 28.0
/* (1 + 2a) erfcx(a), a in [0, 28], in q = (a - 3.5) / (a + 3.5): relative error 2^-54.8. */
static const double erfcx_f64[] = {
    0x1.3e0a99a0ee914p+0,   -0x1.1ebd220ea5933p-3,  -0x1.59e2c284b0f5fp-7, 0x1.8f702ec6b2c29p-4,
    -0x1.d76830c3549acp-4,  0x1.686106047d895p-4,   -0x1.8ff5ef767d44ap-5, 0x1.38ec666d92097p-6,
    -0x1.143c4ccd0c155p-8,  -0x1.3cf361fd1566dp-12, 0x1.27e66ea2f237bp-11, -0x1.fda9a4d98f490p-14,
    -0x1.66e5458b620aep-15, 0x1.9710a312706f9p-16,  0x1.392449ddd70b3p-19, -0x1.0041fcabd39f3p-18,
    -0x1.d1a3620574a06p-25, 0x1.450232c18e8e5p-21,  0x1.4f6c89cd2cc6dp-28, -0x1.9f4ff8ba9c9c7p-24,
    -0x1.29f327252b2f9p-27, 0x1.8b89db69c8ebdp-27,  0x1.89ffb87dd2723p-29,
};

#define ERFCX_F32_K 2.0
#define ERFCX_F32_MAX 11.0
/* (1 + 2a) erfcx(a), a in [0, 11], in q = (a - 2) / (a + 2): relative error 2^-25.0. */
static const double erfcx_f32[] = {
    0x1.46e80e0000000p+0,   -0x1.7bf6000000000p-4,  -0x1.5408560000000p-3, 0x1.4ffb120000000p-3,
    -0x1.bc085e0000000p-5,  -0x1.07893a0000000p-7,  0x1.1ad8f00000000p-7,  0x1.4affe80000000p-10,
    -0x1.47701e0000000p-10, -0x1.6f110c0000000p-12, 0x1.143c2e0000000p-15,
};

/* erf(a), a in [0, 0.8]: erf(a) / a - 1 in a^2: relative error 2^-29.2. */
static const double erf_f32[] = {
    0x1.06eba80000000p-3, -0x1.8127460000000p-2,  0x1.ce2ee00000000p-4,  -0x1.b823520000000p-6,
    0x1.55aec20000000p-8, -0x1.b37c640000000p-11, 0x1.805ffa0000000p-14,
};

/* tanh(a), a in [0, 0.6]: (tanh(a) / a - 1) / a^2 in a^2: relative error 2^-26.0. */
static const double tanh_f32[] = {
    -0x1.5555540000000p-2, 0x1.110ee00000000p-3,  -0x1.b955dc0000000p-5,
    0x1.59e1c80000000p-6,  -0x1.9ada600000000p-8,
};

#define NORMCDF_TANH_SQUARE_MAX 20.25
/* atanh(2 normcdf(x) - 1) / x in x^2: absolute error of normcdf 6.7e-6. */
static const double normcdf_tanh_fit[] = {
    0x1.987bf20000000p-1,
    0x1.2b61c00000000p-5,
    -0x1.96a9700000000p-13,
    -0x1.cd95780000000p-17,
};

#endif
