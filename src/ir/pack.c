/* pack.c -- see pack.h. */
#include "pack.h"

#include <string.h>

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
    case LLVMFloatTypeKind: return EIDER_V_F32;
    case LLVMDoubleTypeKind: return EIDER_V_F64;
    case LLVMIntegerTypeKind: break;
    default: return EIDER_V_NONE;
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

pack eider_pack_splat(LLVMTypeRef type, LLVMValueRef element)
{
    LLVMValueRef all[64];
    if (LLVMGetTypeKind(type) != LLVMVectorTypeKind) return element;
    unsigned width = LLVMGetVectorSize(type);
    for (unsigned i = 0; i < width; i++) all[i] = element;
    return LLVMConstVector(all, width);
}

static pack call_intrinsic(struct eider_emit *e, const char *name, LLVMTypeRef *types,
                           size_t n_types, const pack *args, unsigned n_args)
{
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    if (!id)
        return eider_emit_fail(e, EIDER_CODEGEN, "LLVM has no intrinsic named %s", name);
    LLVMValueRef callee = LLVMGetIntrinsicDeclaration(e->module, id, types, n_types);
    LLVMTypeRef type = LLVMIntrinsicGetType(e->context, id, types, n_types);
    return LLVMBuildCall2(e->builder, type, callee, (pack *)args, n_args, "");
}

pack eider_pack_intrinsic(struct eider_emit *e, const char *name, LLVMTypeRef type,
                          const pack *args, unsigned n_args)
{
    return call_intrinsic(e, name, &type, 1, args, n_args);
}

pack eider_pack_native(struct eider_emit *e, const char *name, const pack *args, unsigned n_args)
{
    return call_intrinsic(e, name, NULL, 0, args, n_args);
}

pack eider_pack_asm(struct eider_emit *e, const char *text, const char *constraints,
                    LLVMTypeRef type, const pack *args, unsigned n_args)
{
    static const char *const pure[] = {"memory", "nounwind", "willreturn"};
    LLVMTypeRef types[4];
    for (unsigned i = 0; i < n_args; i++) types[i] = LLVMTypeOf(args[i]);
    LLVMTypeRef function = LLVMFunctionType(type, types, n_args, 0);
    LLVMValueRef code = LLVMGetInlineAsm(function, text, strlen(text), constraints,
                                         strlen(constraints), 0, 0, LLVMInlineAsmDialectATT, 0);
    pack call = LLVMBuildCall2(e->builder, function, code, (pack *)args, n_args, "");
    for (size_t i = 0; i < sizeof pure / sizeof *pure; i++) {
        unsigned kind = LLVMGetEnumAttributeKindForName(pure[i], strlen(pure[i]));
        LLVMAddCallSiteAttribute(call, (LLVMAttributeIndex)LLVMAttributeFunctionIndex,
                                 LLVMCreateEnumAttribute(e->context, kind, 0));
    }
    return call;
}

pack eider_pack_polynomial(struct eider_emit *e, pack x, const double *c, int n)
{
    pack sum = p_like(x, c[n - 1]);
    for (int i = n - 1; i-- > 0;) sum = p_fma(e, sum, x, p_like(x, c[i]));
    return sum;
}
