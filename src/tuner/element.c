/* element.c -- see element.h. */
#include "element.h"

#include <math.h>
#include <string.h>

#define ALIGN_MAX 16

/* A float of `mantissa` bits and this bias, from its bits without the sign. */
static double small_float(unsigned bits, int mantissa, int bias)
{
    unsigned exponent = bits >> mantissa, fraction = bits & ((1u << mantissa) - 1);
    if (exponent == 0) return ldexp((double)fraction, 1 - bias - mantissa);
    return ldexp((double)(fraction | 1u << mantissa), (int)exponent - bias - mantissa);
}

static double from_f16(unsigned bits)
{
    unsigned rest = bits & 0x7fff;
    double x = rest > 0x7c00 ? (double)NAN : rest == 0x7c00 ? (double)INFINITY : 0;
    if (rest < 0x7c00) x = small_float(rest, 10, 15);
    return bits & 0x8000 ? -x : x;
}

static double from_e5m2(unsigned bits)
{
    return from_f16(bits << 8);
}

static double from_e4m3(unsigned bits)
{
    unsigned rest = bits & 0x7f;
    double x = rest == 0x7f ? (double)NAN : small_float(rest, 3, 7);
    return bits & 0x80 ? -x : x;
}

static double from_bf16(unsigned bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &wide, sizeof x);
    return (double)x;
}

double eider_element_get(eider_dtype type, const void *data, size_t i)
{
    union {
        float f32;
        double f64;
        int32_t i32;
        int64_t i64;
        uint16_t u16;
        uint8_t u8;
    } bits = {0};
    size_t size = eider_dtype_size(type);
    memcpy(&bits, (const char *)data + i * size, size);
    switch (type) {
    case EIDER_F32:
        return (double)bits.f32;
    case EIDER_F16:
        return from_f16(bits.u16);
    case EIDER_BF16:
        return from_bf16(bits.u16);
    case EIDER_F64:
        return bits.f64;
    case EIDER_E4M3:
        return from_e4m3(bits.u8);
    case EIDER_E5M2:
        return from_e5m2(bits.u8);
    case EIDER_I32:
        return bits.i32;
    case EIDER_I64:
        return (double)bits.i64;
    case EIDER_BOOL:
        return bits.u8 != 0;
    }
    return (double)NAN;
}

/* ---- Made-up values -------------------------------------------------------- */

/* The bits of k/256 for |k| up to 32768, cut to what the type has. */
static uint64_t float_bits(eider_dtype type, int k)
{
    float f = (float)k / 256;
    double d = (double)k / 256;
    uint32_t f32;
    uint64_t f64;
    memcpy(&f32, &f, sizeof f32);
    memcpy(&f64, &d, sizeof f64);
    unsigned sign = f32 >> 31, exponent = f32 >> 23 & 255, fraction = f32 >> 13 & 1023;
    switch (type) {
    case EIDER_F64:
        return f64;
    case EIDER_BF16:
        return f32 >> 16;
    case EIDER_F16:
        return k ? sign << 15 | (exponent - 112) << 10 | fraction : 0;
    case EIDER_E5M2:
        return k ? sign << 7 | (exponent - 112) << 2 | fraction >> 8 : 0;
    case EIDER_E4M3:
        return exponent > 120 ? sign << 7 | (exponent - 120) << 3 | fraction >> 7 : 0;
    default:
        return f32;
    }
}

/* SplitMix64. */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

void eider_element_make(eider_dtype type, void *data, size_t n, uint64_t seed, int is_wide)
{
    size_t size = eider_dtype_size(type);
    for (size_t i = 0; i < n; i++) {
        uint64_t random = mix(seed ^ mix(i)), bits;
        if (type == EIDER_BOOL)
            bits = random & 1;
        else if (type == EIDER_I32 || type == EIDER_I64)
            bits = (uint64_t)((int64_t)(random % 201) - 100);
        else
            bits = float_bits(type, ((int)(random % 2049) - 1024) *
                                        (is_wide && random >> 60 == 0 ? 32 : 1));
        memcpy((char *)data + i * size, &bits, size); /* little-endian hosts */
    }
}

int eider_element_align(const void *data)
{
    uintptr_t address = (uintptr_t)data;
    int align = ALIGN_MAX;
    while (address % (uintptr_t)align) align /= 2;
    return align;
}
