/* math_f32.h -- the format f32, for a target's own exp, decay and division.
 *
 * Constants: the numbers named in math_parts.h, rounded; the series' lengths leave less than
 * 2^-27 of the result.
 */
#ifndef EIDER_IR_MATH_F32_H
#define EIDER_IR_MATH_F32_H

#include "math_fit.h"
#include "math_parts.h"

/* exp_low and exp_high: below the logarithm of half the smallest number, above that of the
 * largest. */
#define EIDER_MATH_F32(exp_, decay_, divide_)                                                     \
    {                                                                                             \
        .mantissa = 23, .bias = 127, .exp_low = -104, .exp_high = 89, .log2e = 0x1.715476p+0,     \
        .log2e_low = 0x1.4ae0cp-26, .ln2 = 0x1.62e43p-1, .ln2_low = -0x1.05c61p-29,               \
        .half_pi = {0x1.921fb6p+0, -0x1.777a5cp-25, -0x1.ee59dap-50}, .tiny = 0x1p-126,           \
        .lift = 0x1p25, .lift_log2 = 25, .root_half = 0x3f3504f3, .n_exp = 9, .n_log = 4,         \
        .n_sin = 4, .n_cos = 5, .erf = erf_f32, .n_erf = (int)(sizeof erf_f32 / sizeof *erf_f32), \
        .erf_max = 0.9, .erfcx = erfcx_f32,                                                       \
        .n_erfcx = (int)(sizeof erfcx_f32 / sizeof *erfcx_f32), .erfcx_k = ERFCX_F32_K,           \
        .erfcx_max = ERFCX_F32_MAX, .exp = exp_, .decay = decay_, .divide = divide_,              \
    }

#endif
