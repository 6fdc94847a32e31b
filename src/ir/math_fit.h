/* math_fit.h -- printed by bench/fit_math.py; do not edit.
 *
 * Polynomials whose coefficients have no closed form, lowest power first.
 */
#ifndef EIDER_IR_MATH_FIT_H
#define EIDER_IR_MATH_FIT_H

#define ERFCX_F64_K 2.5
#define ERFCX_F64_MAX 28.0
/* (a + 2.5) erfcx(a), a in [0, 28], in q = (a - 2.5) / (a + 2.5): relative error 2^-54.0. */
static const double erfcx_f64[] = {
    0x1.0dd50785280a5p+0,   -0x1.9bfb53c4039d5p-1, 0x1.d0cedcb8c8f0ap-2,   -0x1.5eb8eba1dffa1p-3,
    0x1.d0acf69236b70p-6,   0x1.1305f5659db34p-7,  -0x1.3bcdce4ef19b3p-8,  -0x1.cc8b126740f47p-12,
    0x1.7069fb639f73bp-11,  0x1.e91f0ea63f6f5p-15, -0x1.d84de26d85da3p-14, -0x1.47b1d47bd6ecap-16,
    0x1.322ce04096893p-16,  0x1.c53cfa8f75c2cp-18, -0x1.3ad2fdc528819p-19, -0x1.074243632474ap-19,
    0x1.24e0d0001b975p-26,  0x1.df91f79749e86p-22, 0x1.e1dae31909556p-24,  -0x1.29b947edaa717p-24,
    -0x1.2a46db01808c3p-25, 0x1.5d0a9a4dbd8a4p-28, 0x1.15e2291b49e47p-28,
};

#define ERFCX_F32_K 2.0
#define ERFCX_F32_MAX 11.0
/* (a + 2) erfcx(a), a in [0, 11], in q = (a - 2) / (a + 2): relative error 2^-25.0. */
static const double erfcx_f32[] = {
    0x1.0586720000000p+0,   -0x1.5fd3900000000p-1,  0x1.1e2db20000000p-2, -0x1.2a7a000000000p-5,
    -0x1.6040140000000p-6,  0x1.a58f7c0000000p-8,   0x1.8d604c0000000p-9, -0x1.7cf2ce0000000p-11,
    -0x1.0e957c0000000p-11, -0x1.4e67560000000p-15,
};

/* erf(a), a in [0, 0.9]: erf(a) / a - 1 in a^2: relative error 2^-30.1. */
static const double erf_f32[] = {
    0x1.06eba80000000p-3, -0x1.8127420000000p-2,  0x1.ce2dfa0000000p-4,  -0x1.b80ee80000000p-6,
    0x1.54d5a20000000p-8, -0x1.aafd0a0000000p-11, 0x1.5fff4c0000000p-14,
};

/* tanh(a), a in [0, 0.6]: (tanh(a) / a - 1) / a^2 in a^2: relative error 2^-28.3. */
static const double tanh_f32[] = {
    -0x1.55553c0000000p-2, 0x1.1109620000000p-3,  -0x1.b88fcc0000000p-5,
    0x1.54802a0000000p-6,  -0x1.8161ec0000000p-8,
};

#define LOG1P_FIT_MAX 1.001
/* log(1 + u), u in [0, 1.001]: (log(1 + u) / u - 1) / u: relative error 2^-24.6. */
static const double log1p_f32[] = {
    -0x1.fffef00000000p-2, 0x1.55328e0000000p-2, -0x1.fcdd100000000p-3, 0x1.876eb00000000p-3,
    -0x1.17e5da0000000p-3, 0x1.4038f20000000p-4, -0x1.e248b80000000p-6, 0x1.554bbe0000000p-8,
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
