/* machine.c -- what the machines and their users share: types, constants, calls, failure.
 *
 * Invariant: the first failure sticks in e->status.
 * Not here: anything that differs between targets.
 */
#include "machine.h"

#include <llvm-c/DebugInfo.h>
#include <stdio.h>
#include <string.h>

const struct eider_machine *eider_machine_of(struct eider_target target)
{
    return target.sm ? &eider_machine_nvptx : &eider_machine_cpu;
}

LLVMTypeRef eider_emit_pack(const struct eider_emit *e, LLVMTypeRef scalar)
{
    return e->width == 1 ? scalar : LLVMVectorType(scalar, (unsigned)e->width);
}

LLVMTypeRef eider_emit_type(struct eider_emit *e, enum eider_vtype type)
{
    LLVMTypeRef scalars[] = {
        [EIDER_V_NONE] = LLVMVoidTypeInContext(e->context),
        [EIDER_V_BOOL] = LLVMInt1TypeInContext(e->context),
        [EIDER_V_I32] = LLVMInt32TypeInContext(e->context),
        [EIDER_V_I64] = LLVMInt64TypeInContext(e->context),
        [EIDER_V_F32] = LLVMFloatTypeInContext(e->context),
        [EIDER_V_F64] = LLVMDoubleTypeInContext(e->context),
    };
    return eider_emit_pack(e, scalars[type]);
}

LLVMTypeRef eider_emit_storage(struct eider_emit *e, eider_dtype type)
{
    if (type == EIDER_F32) return LLVMFloatTypeInContext(e->context);
    if (type == EIDER_F64) return LLVMDoubleTypeInContext(e->context);
    return LLVMIntTypeInContext(e->context, 8 * (unsigned)eider_dtype_size(type));
}

/* `scalar` in every element of `type`. */
static LLVMValueRef repeat(LLVMTypeRef type, LLVMValueRef scalar)
{
    LLVMValueRef lanes[64];
    if (LLVMGetTypeKind(type) != LLVMVectorTypeKind) return scalar;
    unsigned n = LLVMGetVectorSize(type);
    for (unsigned i = 0; i < n; i++) lanes[i] = scalar;
    return LLVMConstVector(lanes, n);
}

static LLVMTypeRef scalar_of(LLVMTypeRef type)
{
    return LLVMGetTypeKind(type) == LLVMVectorTypeKind ? LLVMGetElementType(type) : type;
}

LLVMValueRef eider_emit_int(LLVMTypeRef type, uint64_t value)
{
    return repeat(type, LLVMConstInt(scalar_of(type), value, 0));
}

LLVMValueRef eider_emit_real(LLVMTypeRef type, double value)
{
    return repeat(type, LLVMConstReal(scalar_of(type), value));
}

LLVMValueRef eider_emit_intrinsic(struct eider_emit *e, const char *name, LLVMTypeRef *types,
                                  uint32_t n_types, LLVMValueRef *args, uint32_t n_args)
{
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    if (id == 0) return eider_emit_fail(e, EIDER_CODEGEN, "LLVM does not know %s", name);
    LLVMValueRef function = LLVMGetIntrinsicDeclaration(e->module, id, types, n_types);
    LLVMTypeRef type = LLVMIntrinsicGetType(e->context, id, types, n_types);
    return LLVMBuildCall2(e->builder, type, function, args, n_args, "");
}

static void mark_call(struct eider_emit *e, LLVMValueRef call, const char *name, uint64_t value)
{
    unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
    LLVMAttributeRef attribute = LLVMCreateEnumAttribute(e->context, kind, value);
    LLVMAddCallSiteAttribute(call, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, attribute);
}

LLVMValueRef eider_emit_asm(struct eider_emit *e, LLVMTypeRef type, const char *text,
                            const char *constraints, int pure, LLVMValueRef *args, uint32_t n_args)
{
    LLVMTypeRef types[8];
    for (uint32_t i = 0; i < n_args; i++) types[i] = LLVMTypeOf(args[i]);
    LLVMTypeRef signature = LLVMFunctionType(type, types, n_args, 0);
    char all[128];
    snprintf(all, sizeof all, "%s%s%s", constraints, pure || !*constraints ? "" : ",",
             pure ? "" : "~{memory}");
    LLVMValueRef callee = LLVMGetInlineAsm(signature, text, strlen(text), all, strlen(all), !pure,
                                           0, LLVMInlineAsmDialectATT, 0);
    LLVMValueRef call = LLVMBuildCall2(e->builder, signature, callee, args, n_args, "");
    /* LLVM 19 takes assembly without these to read and write anything. */
    if (pure) mark_call(e, call, "memory", 0);
    mark_call(e, call, "nounwind", 0);
    mark_call(e, call, "willreturn", 0);
    return call;
}

LLVMValueRef eider_emit_exchange(struct eider_emit *e, LLVMValueRef value, uint32_t mask)
{
    LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
    LLVMValueRef args[4] = {LLVMConstInt(i32, UINT32_MAX, 0), value, LLVMConstInt(i32, mask, 0),
                            LLVMConstInt(i32, 31, 0)};
    return eider_emit_intrinsic(e, "llvm.nvvm.shfl.sync.bfly.i32", NULL, 0, args, 4);
}

#define SPACE_GLOBAL 1 /* plain memory to a CPU */
#define SPACE_SHARED 3
#define SHARED_ALIGN 16

LLVMValueRef eider_emit_shared(struct eider_emit *e, uint32_t bytes)
{
    LLVMTypeRef type = LLVMArrayType2(LLVMInt8TypeInContext(e->context), bytes);
    LLVMValueRef memory =
        LLVMAddGlobalInAddressSpace(e->module, type, "eider_shared", SPACE_SHARED);
    LLVMSetLinkage(memory, LLVMInternalLinkage);
    LLVMSetInitializer(memory, LLVMGetUndef(type));
    LLVMSetAlignment(memory, SHARED_ALIGN);
    return memory;
}

LLVMValueRef eider_emit_words(struct eider_emit *e, const char *name, uint32_t n)
{
    LLVMTypeRef type = LLVMArrayType2(LLVMInt64TypeInContext(e->context), n);
    LLVMValueRef words = LLVMAddGlobalInAddressSpace(e->module, type, name, SPACE_GLOBAL);
    LLVMSetInitializer(words, LLVMConstNull(type));
    return words;
}

LLVMValueRef eider_emit_cluster_rank(struct eider_emit *e)
{
    return eider_emit_intrinsic(e, "llvm.nvvm.read.ptx.sreg.cluster.ctarank", NULL, 0, NULL, 0);
}

void eider_emit_cluster_arrive(struct eider_emit *e, int relaxed)
{
    const char *name = relaxed ? "llvm.nvvm.barrier.cluster.arrive.relaxed.aligned"
                               : "llvm.nvvm.barrier.cluster.arrive.aligned";
    eider_emit_intrinsic(e, name, NULL, 0, NULL, 0);
}

void eider_emit_cluster_wait(struct eider_emit *e)
{
    eider_emit_intrinsic(e, "llvm.nvvm.barrier.cluster.wait.aligned", NULL, 0, NULL, 0);
}

LLVMValueRef eider_emit_peer(struct eider_emit *e, LLVMValueRef address, LLVMValueRef rank)
{
    LLVMTypeRef generic = LLVMPointerTypeInContext(e->context, 0);
    LLVMValueRef args[2] = {LLVMBuildAddrSpaceCast(e->builder, address, generic, ""), rank};
    return eider_emit_intrinsic(e, "llvm.nvvm.mapa", NULL, 0, args, 2);
}

uint32_t eider_emit_sent_bytes(const struct eider_emit *e, LLVMValueRef value)
{
    LLVMTypeRef type = LLVMTypeOf(value);
    int is_wide =
        type == LLVMInt64TypeInContext(e->context) || type == LLVMDoubleTypeInContext(e->context);
    return is_wide ? 8 : 4;
}

LLVMValueRef eider_emit_shared_at_launch(struct eider_emit *e)
{
    LLVMTypeRef type = LLVMArrayType2(LLVMInt8TypeInContext(e->context), 0);
    LLVMValueRef memory =
        LLVMAddGlobalInAddressSpace(e->module, type, "eider_shared_at_launch", SPACE_SHARED);
    LLVMSetAlignment(memory, SHARED_ALIGN);
    return memory;
}

/* A property of a loop: {"name", value}. */
static LLVMMetadataRef loop_property(struct eider_emit *e, const char *name, LLVMValueRef value)
{
    LLVMMetadataRef parts[2] = {LLVMMDStringInContext2(e->context, name, strlen(name)), NULL};
    if (value) parts[1] = LLVMValueAsMetadata(value);
    return LLVMMDNodeInContext2(e->context, parts, value ? 2 : 1);
}

void eider_emit_keep_loop(struct eider_emit *e, LLVMValueRef branch)
{
    LLVMValueRef off = LLVMConstInt(LLVMInt1TypeInContext(e->context), 0, 0);
    /* A loop's identity is a node that refers to itself. */
    LLVMMetadataRef self = LLVMTemporaryMDNode(e->context, NULL, 0);
    LLVMMetadataRef parts[3] = {self, loop_property(e, "llvm.loop.unroll.disable", NULL),
                                loop_property(e, "llvm.loop.vectorize.enable", off)};
    LLVMMetadataRef loop = LLVMMDNodeInContext2(e->context, parts, 3);
    LLVMMetadataReplaceAllUsesWith(self, loop);
    unsigned kind = LLVMGetMDKindIDInContext(e->context, "llvm.loop", 9);
    LLVMSetMetadata(branch, kind, LLVMMetadataAsValue(e->context, loop));
}

LLVMValueRef eider_emit_mark(const struct eider_emit *e)
{
    return LLVMGetLastInstruction(LLVMGetInsertBlock(e->builder));
}

void eider_emit_count(struct eider_emit *e, LLVMValueRef mark)
{
    LLVMValueRef at = mark ? LLVMGetNextInstruction(mark)
                           : LLVMGetFirstInstruction(LLVMGetInsertBlock(e->builder));
    for (; at; at = LLVMGetNextInstruction(at)) e->n_instructions++;
    if (e->n_instructions > EIDER_INSTRUCTIONS_MAX)
        eider_emit_fail(e, EIDER_TOO_LARGE,
                        "the kernel has more than %u instructions: it needs fewer operations, or a "
                        "smaller vec or unroll",
                        EIDER_INSTRUCTIONS_MAX);
}

LLVMValueRef eider_emit_fail(struct eider_emit *e, eider_status status, const char *format, ...)
{
    char message[512];
    if (e->status != EIDER_OK) return NULL;
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    e->status = eider_fail_text(status, message);
    return NULL;
}
