/* number.c -- conversions between storage types and double, and the ulp of each.
 *
 * All small floats share one pair of routines driven by a table of formats.
 */
#include "number.h"

#include <math.h>
#include <string.h>

/* A binary floating-point format: `digits` significant bits, least normal 2^min_exp. */
static const struct format {
    int digits, min_exp, bits;
    int saturates; /* finite overflow gives `max`, not an infinity */
    double max;
    uint32_t infinity, nan;
} formats[] = {
    [EIDER_F32] = {24, -126, 32, 0, 0x1.fffffep127, 0x7f800000, 0x7fc00000},
    [EIDER_F16] = {11, -14, 16, 0, 65504.0, 0x7c00, 0x7e00},
    [EIDER_BF16] = {8, -126, 16, 0, 0x1.fep127, 0x7f80, 0x7fc0},
    [EIDER_F64] = {53, -1022, 64, 0, 0x1.fffffffffffffp1023, 0, 0},
    [EIDER_E4M3] = {4, -6, 8, 1, 448.0, 0, 0x7f}, /* no infinities */
    [EIDER_E5M2] = {3, -14, 8, 1, 57344.0, 0x7c, 0x7e},
};

static double decode(const struct format *f, uint32_t bits)
{
    uint32_t sign = bits >> (f->bits - 1) & 1;
    uint32_t rest = bits & ((UINT32_C(1) << (f->bits - 1)) - 1);
    uint32_t exponent = rest >> (f->digits - 1);
    uint32_t fraction = rest & ((UINT32_C(1) << (f->digits - 1)) - 1);
    double value;
    if (f->infinity ? rest > f->infinity : rest == f->nan)
        value = NAN;
    else if (f->infinity && rest == f->infinity)
        value = INFINITY;
    else if (exponent == 0)
        value = ldexp(fraction, f->min_exp - (f->digits - 1));
    else
        value = ldexp(fraction + (UINT32_C(1) << (f->digits - 1)),
                      (int)exponent - 1 + f->min_exp - (f->digits - 1));
    return sign ? -value : value;
}

static uint32_t encode(const struct format *f, double value)
{
    uint32_t sign = signbit(value) ? UINT32_C(1) << (f->bits - 1) : 0;
    double a = fabs(value);
    if (isnan(a)) return sign | f->nan;
    if (isinf(a)) return sign | (f->infinity ? f->infinity : f->nan);
    int e;
    frexp(a, &e);
    int exponent = a == 0 || e - 1 < f->min_exp ? f->min_exp : e - 1;
    double steps = nearbyint(ldexp(a, f->digits - 1 - exponent));
    uint32_t hidden = UINT32_C(1) << (f->digits - 1);
    if (ldexp(steps, exponent - (f->digits - 1)) > f->max) {
        if (!f->saturates) return sign | f->infinity;
        return encode(f, value < 0 ? -f->max : f->max);
    }
    uint32_t mantissa = (uint32_t)steps;
    if (mantissa < hidden) return sign | mantissa; /* subnormal; a carry lands in the exponent */
    return sign | (((uint32_t)(exponent - f->min_exp) << (f->digits - 1)) + mantissa);
}

double cli_number_get(eider_dtype type, const void *data, size_t i)
{
    switch (type) {
    case EIDER_F32:
        return ((const float *)data)[i];
    case EIDER_F64:
        return ((const double *)data)[i];
    case EIDER_I32:
        return ((const int32_t *)data)[i];
    case EIDER_I64:
        return (double)((const int64_t *)data)[i];
    case EIDER_BOOL:
        return ((const uint8_t *)data)[i] != 0;
    case EIDER_F16:
    case EIDER_BF16:
        return decode(&formats[type], ((const uint16_t *)data)[i]);
    case EIDER_E4M3:
    case EIDER_E5M2:
        return decode(&formats[type], ((const uint8_t *)data)[i]);
    }
    return NAN;
}

/* To an integer in [low, high]; NaN gives 0. */
static double integer(double value, double low, double high)
{
    if (isnan(value)) return 0;
    value = nearbyint(value);
    return value < low ? low : value > high ? high : value;
}

void cli_number_put(eider_dtype type, void *data, size_t i, double value)
{
    switch (type) {
    case EIDER_F32:
        ((float *)data)[i] = (float)value;
        break;
    case EIDER_F64:
        ((double *)data)[i] = value;
        break;
    case EIDER_I32:
        ((int32_t *)data)[i] = (int32_t)integer(value, INT32_MIN, INT32_MAX);
        break;
    case EIDER_I64:
        /* 2^63 - 1024 is the largest double below 2^63 */
        ((int64_t *)data)[i] = (int64_t)integer(value, -0x1p63, 0x1p63 - 1024);
        break;
    case EIDER_BOOL:
        ((uint8_t *)data)[i] = value != 0;
        break;
    case EIDER_F16:
    case EIDER_BF16:
        ((uint16_t *)data)[i] = (uint16_t)encode(&formats[type], value);
        break;
    case EIDER_E4M3:
    case EIDER_E5M2:
        ((uint8_t *)data)[i] = (uint8_t)encode(&formats[type], value);
        break;
    }
}

double cli_number_plain(double value)
{
    return isnan(value) ? NAN : value;
}

int cli_number_is_float(eider_dtype type)
{
    return type <= EIDER_E5M2;
}

double cli_number_ulp(eider_dtype type, double value)
{
    const struct format *f = &formats[type];
    int exponent = f->min_exp;
    if (value != 0) {
        int e;
        frexp(value, &e);
        if (e - 1 > exponent) exponent = e - 1;
    }
    return ldexp(1, exponent - (f->digits - 1));
}

double cli_number_max(eider_dtype type)
{
    return formats[type].max;
}

double cli_number_min_normal(eider_dtype type)
{
    return ldexp(1, formats[type].min_exp);
}

eider_dtype cli_number_promote(eider_dtype a, eider_dtype b)
{
    if (a == b) return a;
    if (a == EIDER_F64 || b == EIDER_F64) return EIDER_F64;
    if (cli_number_is_float(a) && cli_number_is_float(b)) return EIDER_F32;
    if (cli_number_is_float(a)) return a;
    if (cli_number_is_float(b)) return b;
    return a == EIDER_I64 || b == EIDER_I64 ? EIDER_I64 : EIDER_I32;
}
