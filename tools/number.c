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
    uint32_t top, infinity, nan; /* bits of max and of the others; 0: there is none */
} formats[] = {
    [EIDER_F32] = {24, -126, 32, 0, 0x1.fffffep127, 0x7f7fffff, 0x7f800000, 0x7fc00000},
    [EIDER_F16] = {11, -14, 16, 0, 65504.0, 0x7bff, 0x7c00, 0x7e00},
    [EIDER_BF16] = {8, -126, 16, 0, 0x1.fep127, 0x7f7f, 0x7f80, 0x7fc0},
    [EIDER_F64] = {53, -1022, 64, 0, 0x1.fffffffffffffp1023, 0, 0, 0},
    [EIDER_E4M3] = {4, -6, 8, 1, 448.0, 0x7e, 0, 0x7f}, /* no infinities */
    [EIDER_E5M2] = {3, -14, 8, 1, 57344.0, 0x7b, 0x7c, 0x7e},
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

/* Rounds to nearest even on the bits of the double. */
static uint32_t encode(const struct format *f, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = bits >> 63 ? UINT32_C(1) << (f->bits - 1) : 0;
    uint64_t hidden = UINT64_C(1) << 52, mantissa = (bits & (hidden - 1)) | hidden;
    int exponent = (int)(bits >> 52 & 0x7ff) - 1023;
    if (exponent == 1024) {
        if (isnan(value)) return sign | f->nan;
        return sign | (f->infinity ? f->infinity : f->nan);
    }
    int is_normal = exponent >= f->min_exp;
    int dropped = 53 - f->digits + (is_normal ? 0 : f->min_exp - exponent);
    if (dropped > 54) return sign; /* less than half of the least subnormal */
    uint64_t steps = mantissa >> dropped, rest = mantissa & ((UINT64_C(1) << dropped) - 1);
    uint64_t half = UINT64_C(1) << (dropped - 1);
    steps += rest > half || (rest == half && (steps & 1));
    if (is_normal) steps += (uint64_t)(exponent - f->min_exp) << (f->digits - 1);
    if (steps <= f->top) return sign | (uint32_t)steps;
    return sign | (f->saturates ? f->top : f->infinity);
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
