/* pack.c -- see pack.h. */
#include "pack.h"

LLVMTypeRef eider_pack_element(LLVMTypeRef type)
{
    return LLVMGetTypeKind(type) == LLVMVectorTypeKind ? LLVMGetElementType(type) : type;
}

LLVMTypeRef eider_pack_like(LLVMTypeRef type, LLVMTypeRef element)
{
    if (LLVMGetTypeKind(type) != LLVMVectorTypeKind) return element;
    return LLVMVectorType(element, LLVMGetVectorSize(type));
}

enum eider_vtype eider_pack_vtype(pack v)
{
    LLVMTypeRef element = eider_pack_element(LLVMTypeOf(v));
    switch (LLVMGetTypeKind(element)) {
    case LLVMFloatTypeKind:
        return EIDER_V_F32;
    case LLVMDoubleTypeKind:
        return EIDER_V_F64;
    case LLVMIntegerTypeKind:
        break;
    default:
        return EIDER_V_NONE;
    }
    unsigned bits = LLVMGetIntTypeWidth(element);
    return bits == 1 ? EIDER_V_BOOL : bits == 32 ? EIDER_V_I32 : EIDER_V_I64;
}

LLVMTypeRef eider_pack_bits_type(LLVMTypeRef type)
{
    LLVMTypeRef element = eider_pack_element(type);
    unsigned bits = LLVMGetTypeKind(element) == LLVMDoubleTypeKind ? 64 : 32;
    return eider_pack_like(type, LLVMIntTypeInContext(LLVMGetTypeContext(type), bits));
}

pack eider_pack_intrinsic(struct eider_emit *e, const char *name, LLVMTypeRef type,
                          const pack *args, uint32_t n_args)
{
    return eider_emit_intrinsic(e, name, &type, 1, (pack *)args, n_args);
}

pack eider_pack_polynomial(struct eider_emit *e, pack x, const double *c, int n)
{
    pack sum = p_like(x, c[n - 1]);
    for (int i = n - 1; i-- > 0;) sum = p_fma(e, sum, x, p_like(x, c[i]));
    return sum;
}
