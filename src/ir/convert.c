/* convert.c -- see convert.h. */
#include "convert.h"

/* Formats with fewer exponent bits than f32. */
struct format {
    uint32_t mantissa, bias; /* bits, exponent bias */
    uint32_t top;            /* bits of the largest finite value */
    uint32_t over;           /* bits of what overflow gives when not saturating */
    uint32_t nan;            /* bits of NaN; f16 also keeps its payload */
    uint32_t sign;           /* the sign bit */
};

static const struct format formats[] = {
    [EIDER_F16] = {10, 15, 0x7BFF, 0x7C00, 0x7E00, 0x8000},
    [EIDER_E4M3] = {3, 7, 0x7E, 0x7F, 0x7F, 0x80},
    [EIDER_E5M2] = {2, 15, 0x7B, 0x7C, 0x7F, 0x80},
};

#define F32_MANTISSA 23u
#define F32_BIAS 127u
#define F32_INF 0x7F800000u
#define F32_QUIET 0x00400000u
#define F32_MAGNITUDE 0x7FFFFFFFu

static LLVMValueRef k(LLVMValueRef like, uint32_t value)
{
    return eider_emit_int(LLVMTypeOf(like), value);
}

static LLVMValueRef shift_left(struct eider_emit *e, LLVMValueRef v, uint32_t bits)
{
    return LLVMBuildShl(e->builder, v, k(v, bits), "");
}

static LLVMValueRef shift_right(struct eider_emit *e, LLVMValueRef v, uint32_t bits)
{
    return LLVMBuildLShr(e->builder, v, k(v, bits), "");
}

static LLVMValueRef mask(struct eider_emit *e, LLVMValueRef v, uint32_t bits)
{
    return LLVMBuildAnd(e->builder, v, k(v, bits), "");
}

static LLVMValueRef above(struct eider_emit *e, LLVMValueRef v, uint32_t limit)
{
    return LLVMBuildICmp(e->builder, LLVMIntUGT, v, k(v, limit), "");
}

static LLVMValueRef either(struct eider_emit *e, LLVMValueRef a, LLVMValueRef b)
{
    return LLVMBuildOr(e->builder, a, b, "");
}

static LLVMValueRef choose(struct eider_emit *e, LLVMValueRef if_, LLVMValueRef a, LLVMValueRef b)
{
    return LLVMBuildSelect(e->builder, if_, a, b, "");
}

LLVMValueRef eider_convert_widen(struct eider_emit *e, eider_dtype type, LLVMValueRef bits)
{
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef f32 = eider_emit_type(e, EIDER_V_F32);
    LLVMTypeRef i32 = eider_emit_type(e, EIDER_V_I32);
    if (type == EIDER_BF16) return LLVMBuildBitCast(b, shift_left(e, bits, 16), f32, "");
    const struct format *f = &formats[type];
    uint32_t up = F32_MANTISSA - f->mantissa, rebias = (F32_BIAS - f->bias) << F32_MANTISSA;
    LLVMValueRef magnitude = mask(e, bits, f->sign - 1);
    LLVMValueRef moved = shift_left(e, magnitude, up);
    LLVMValueRef normal = LLVMBuildAdd(b, moved, k(moved, rebias), "");
    /* A subnormal is an integer times the smallest one: exact, and safe from flushing. */
    double smallest = 1.0 / (double)(1u << (f->bias - 1 + f->mantissa));
    LLVMValueRef counted = LLVMBuildUIToFP(b, magnitude, f32, "");
    counted = LLVMBuildFMul(b, counted, eider_emit_real(f32, smallest), "");
    counted = LLVMBuildBitCast(b, counted, i32, "");
    LLVMValueRef is_normal = above(e, magnitude, (1u << f->mantissa) - 1);
    LLVMValueRef value = choose(e, is_normal, normal, counted);
    if (type == EIDER_E4M3) {
        value = choose(e, above(e, magnitude, f->top), k(value, F32_INF | F32_QUIET), value);
    } else {
        LLVMValueRef special = either(e, moved, k(moved, F32_INF));
        LLVMValueRef quiet = either(e, special, k(special, F32_QUIET));
        special = choose(e, above(e, magnitude, f->over), quiet, special);
        value = choose(e, above(e, magnitude, f->top), special, value);
    }
    LLVMValueRef sign = mask(e, bits, f->sign);
    sign = shift_left(e, sign, 31 - (f->mantissa == 10 ? 15u : 7u));
    return LLVMBuildBitCast(b, either(e, value, sign), f32, "");
}

/* Adds half of what `shift` drops, a little less where that decides a tie towards even. */
static LLVMValueRef round_shift(struct eider_emit *e, LLVMValueRef v, uint32_t shift)
{
    LLVMValueRef odd = mask(e, shift_right(e, v, shift), 1);
    LLVMValueRef half = k(v, (1u << (shift - 1)) - 1);
    LLVMValueRef sum = LLVMBuildAdd(e->builder, v, LLVMBuildAdd(e->builder, odd, half, ""), "");
    return shift_right(e, sum, shift);
}

static LLVMValueRef narrow_bf16(struct eider_emit *e, LLVMValueRef bits)
{
    LLVMValueRef quiet = either(e, shift_right(e, bits, 16), k(bits, F32_QUIET >> 16));
    LLVMValueRef is_nan = above(e, mask(e, bits, F32_MAGNITUDE), F32_INF);
    return choose(e, is_nan, quiet, round_shift(e, bits, 16));
}

LLVMValueRef eider_convert_narrow(struct eider_emit *e, eider_dtype type, int saturate,
                                  LLVMValueRef value)
{
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef f32 = eider_emit_type(e, EIDER_V_F32);
    LLVMTypeRef i32 = eider_emit_type(e, EIDER_V_I32);
    LLVMValueRef bits = LLVMBuildBitCast(b, value, i32, "");
    if (type == EIDER_BF16) return narrow_bf16(e, bits);
    const struct format *f = &formats[type];
    uint32_t down = F32_MANTISSA - f->mantissa, rebias = (F32_BIAS - f->bias) << f->mantissa;
    LLVMValueRef magnitude = mask(e, bits, F32_MAGNITUDE);
    LLVMValueRef normal = round_shift(e, magnitude, down);
    normal = LLVMBuildSub(b, normal, k(normal, rebias), "");
    /* Below the normal range, adding a number whose last bit is the smallest subnormal
     * makes the addition round; the sum of two magnitudes is exact or rounded once. */
    uint32_t magic_exponent = F32_BIAS + 1 - f->bias + F32_MANTISSA - f->mantissa;
    LLVMValueRef magic = k(bits, magic_exponent << F32_MANTISSA);
    LLVMValueRef sum = LLVMBuildFAdd(b, LLVMBuildBitCast(b, magnitude, f32, ""),
                                     LLVMBuildBitCast(b, magic, f32, ""), "");
    LLVMValueRef counted = LLVMBuildSub(b, LLVMBuildBitCast(b, sum, i32, ""), magic, "");
    uint32_t least_normal = (F32_BIAS + 1 - f->bias) << F32_MANTISSA;
    LLVMValueRef result = choose(e, above(e, magnitude, least_normal - 1), normal, counted);
    uint32_t limit = saturate && type != EIDER_F16 ? f->top : f->over;
    result = choose(e, above(e, result, limit), k(result, limit), result);
    LLVMValueRef is_nan = above(e, magnitude, F32_INF), nan = k(result, f->nan);
    if (type == EIDER_F16)
        nan = either(e, nan, mask(e, shift_right(e, magnitude, down), f->nan & 0x3FF));
    LLVMValueRef sign = mask(e, shift_right(e, bits, f->sign == 0x80 ? 24 : 16), f->sign);
    if (type != EIDER_F16) return choose(e, is_nan, nan, either(e, result, sign));
    return either(e, choose(e, is_nan, nan, result), sign);
}

LLVMValueRef eider_convert_odd(struct eider_emit *e, LLVMValueRef value)
{
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef f32 = eider_emit_type(e, EIDER_V_F32), f64 = eider_emit_type(e, EIDER_V_F64);
    LLVMTypeRef i32 = eider_emit_type(e, EIDER_V_I32);
    LLVMValueRef near = LLVMBuildFPTrunc(b, value, f32, "");
    LLVMValueRef back = LLVMBuildFPExt(b, near, f64, "");
    LLVMValueRef bits = LLVMBuildBitCast(b, near, i32, "");
    LLVMValueRef inexact = LLVMBuildFCmp(b, LLVMRealONE, back, value, "");
    LLVMValueRef even = LLVMBuildICmp(b, LLVMIntEQ, mask(e, bits, 1), k(bits, 0), "");
    /* Of the two neighbours of an inexact value the odd one is wanted; where `near` is the
     * even one, that is one step towards the value. */
    LLVMValueRef size = eider_emit_intrinsic(e, "llvm.fabs", &f64, 1, &value, 1);
    LLVMValueRef near_size = eider_emit_intrinsic(e, "llvm.fabs", &f64, 1, &back, 1);
    LLVMValueRef short_of = LLVMBuildFCmp(b, LLVMRealOLT, near_size, size, "");
    LLVMValueRef step = choose(e, short_of, k(bits, 1), k(bits, UINT32_MAX));
    LLVMValueRef moved = LLVMBuildAdd(b, bits, step, "");
    bits = choose(e, LLVMBuildAnd(b, inexact, even, ""), moved, bits);
    return LLVMBuildBitCast(b, bits, f32, "");
}
