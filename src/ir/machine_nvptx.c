/* machine_nvptx.c -- the machine of NVIDIA GPUs.
 *
 * A pack is one scalar.  Vectors exist only between memory and registers: an access moves
 * words of 32 bits (64 for 8-byte types), at most 16 bytes at a time, and elements are cut
 * from words by shifts or by the conversions that take pairs.
 * Invariant: kernels are recognised by their calling convention; the block size is stated
 * in the PTX by codegen, since annotations are kept by address in a table of the process.
 * Not here: mathematical functions (see the math member).
 */
#include "convert.h"
#include "math_code.h"

#include <stdio.h>
#include <string.h>

#define ACCESS_BYTES_MAX 16
#define WORDS_MAX 4
#define SPACE_GLOBAL 1
#define SM_FP8 89 /* first with conversions of e4m3 and e5m2 */

/* How a policy is spelled between "ld.global" and the width.  An L2 priority is a policy
 * operand; `plain` accesses are left to LLVM. */
struct policy {
    const char *text;
    int plain;
    const char *hint; /* makes the operand */
};

#define EVICT_FIRST "createpolicy.fractional.L2::evict_first.b64 $0, 1.0;"
#define EVICT_LAST "createpolicy.fractional.L2::evict_last.b64 $0, 1.0;"

static const struct policy load_policies[] = {
    [EIDER_LOAD_CA] = {"", 1, NULL},
    [EIDER_LOAD_CG] = {".cg", 0, NULL},
    [EIDER_LOAD_CS] = {".cs", 0, NULL},
    [EIDER_LOAD_NC] = {".nc", 0, NULL},
    [EIDER_LOAD_NOALLOC] = {".L1::no_allocate", 0, NULL},
    [EIDER_LOAD_FIRST] = {".L1::evict_first.L2::cache_hint", 0, EVICT_FIRST},
    [EIDER_LOAD_LAST] = {".L1::evict_last.L2::cache_hint", 0, EVICT_LAST},
};

static const struct policy store_policies[] = {
    [EIDER_STORE_WB] = {"", 1, NULL},
    [EIDER_STORE_CG] = {".cg", 0, NULL},
    [EIDER_STORE_CS] = {".cs", 0, NULL},
    [EIDER_STORE_WT] = {".wt", 0, NULL},
    [EIDER_STORE_FIRST] = {".L2::cache_hint", 0, EVICT_FIRST},
};

/* The words of one access. */
struct words {
    int n, bits, bytes;
};

static int nvptx_width(const struct eider_emit *e)
{
    (void)e;
    return 1;
}

static LLVMTypeRef int_type(struct eider_emit *e, int bits)
{
    return LLVMIntTypeInContext(e->context, (unsigned)bits);
}

static LLVMValueRef i32(struct eider_emit *e, uint64_t value)
{
    return LLVMConstInt(LLVMInt32TypeInContext(e->context), value, 0);
}

static LLVMValueRef cast_to(struct eider_emit *e, LLVMValueRef value, LLVMTypeRef type)
{
    return LLVMBuildBitCast(e->builder, value, type, "");
}

/* ---- The kernel ---------------------------------------------------------- */

static void mark(struct eider_emit *e, LLVMAttributeIndex at, const char *name, uint64_t value)
{
    unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
    LLVMAddAttributeAtIndex(e->function, at, LLVMCreateEnumAttribute(e->context, kind, value));
}

static void mark_text(struct eider_emit *e, const char *name, const char *value)
{
    LLVMAttributeRef attribute = LLVMCreateStringAttribute(e->context, name, (unsigned)strlen(name),
                                                           value, (unsigned)strlen(value));
    LLVMAddAttributeAtIndex(e->function, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, attribute);
}

static void nvptx_kernel_begin(struct eider_emit *e, const char *name,
                               const struct eider_kernel_param *params, uint32_t n_params,
                               uint32_t block_threads)
{
    LLVMTypeRef *types = eider_mem_alloc(e->allocator, (n_params + 1) * sizeof *types);
    e->module = LLVMModuleCreateWithNameInContext(name, e->context);
    e->builder = LLVMCreateBuilderInContext(e->context);
    e->block_threads = block_threads;
    if (!types) {
        e->status = EIDER_OOM;
        return;
    }
    LLVMSetTarget(e->module, "nvptx64-nvidia-cuda");
    for (uint32_t i = 0; i < n_params; i++) {
        types[i] = params[i].type;
        if (LLVMGetTypeKind(types[i]) == LLVMPointerTypeKind)
            types[i] = LLVMPointerTypeInContext(e->context, SPACE_GLOBAL);
    }
    LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(e->context), types, n_params, 0);
    eider_mem_free(e->allocator, types);
    e->function = LLVMAddFunction(e->module, name, type);
    LLVMSetFunctionCallConv(e->function, LLVMPTXKernelCallConv);
    mark(e, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, "nounwind", 0);
    if (e->ftz) mark_text(e, "denormal-fp-math-f32", "preserve-sign,preserve-sign");
    for (uint32_t i = 0; i < n_params; i++) {
        LLVMValueRef param = LLVMGetParam(e->function, i);
        LLVMSetValueName2(param, params[i].name, strlen(params[i].name));
        if (params[i].is_read) mark(e, i + 1, "readonly", 0);
        if (params[i].is_read && params[i].is_alone) mark(e, i + 1, "noalias", 0);
    }
    LLVMBasicBlockRef entry = LLVMAppendBasicBlockInContext(e->context, e->function, "entry");
    LLVMPositionBuilderAtEnd(e->builder, entry);
    eider_lines_begin(e);
}

static void nvptx_kernel_end(struct eider_emit *e)
{
    if (e->status == EIDER_OK) LLVMBuildRetVoid(e->builder);
    LLVMDisposeBuilder(e->builder);
    e->builder = NULL;
}

static LLVMValueRef nvptx_param(struct eider_emit *e, uint32_t i)
{
    return LLVMGetParam(e->function, i);
}

static LLVMValueRef nvptx_thread_index(struct eider_emit *e)
{
    return eider_emit_intrinsic(e, "llvm.nvvm.read.ptx.sreg.tid.x", NULL, 0, NULL, 0);
}

static LLVMValueRef nvptx_block_index(struct eider_emit *e)
{
    LLVMValueRef x = eider_emit_intrinsic(e, "llvm.nvvm.read.ptx.sreg.ctaid.x", NULL, 0, NULL, 0);
    return LLVMBuildZExt(e->builder, x, LLVMInt64TypeInContext(e->context), "");
}

static void nvptx_barrier(struct eider_emit *e)
{
    eider_emit_intrinsic(e, "llvm.nvvm.barrier0", NULL, 0, NULL, 0);
}

/* ---- Words in memory ----------------------------------------------------- */

static struct words words_of(eider_dtype type, int n)
{
    int size = (int)eider_dtype_size(type), bytes = n * size;
    struct words w = {.bytes = bytes < ACCESS_BYTES_MAX ? bytes : ACCESS_BYTES_MAX};
    w.bits = size == 8 ? 64 : w.bytes >= 4 ? 32 : 8 * w.bytes;
    w.n = 8 * w.bytes / w.bits;
    return w;
}

static LLVMValueRef offset(struct eider_emit *e, LLVMValueRef ptr, int bytes)
{
    LLVMValueRef at = i32(e, (uint64_t)bytes);
    if (bytes == 0) return ptr;
    return LLVMBuildInBoundsGEP2(e->builder, int_type(e, 8), ptr, &at, 1, "");
}

static LLVMTypeRef access_type(struct eider_emit *e, struct words w)
{
    LLVMTypeRef word = int_type(e, w.bits);
    return w.n == 1 ? word : LLVMVectorType(word, (unsigned)w.n);
}

/* "{$0,$1,$2,$3}" for n words from operand `first`, or "$0" for one. */
static void operand_list(char *text, size_t size, int first, int n)
{
    size_t length = 0;
    for (int i = 0; i < n; i++) {
        const char *before = i ? "," : n > 1 ? "{" : "";
        int added = snprintf(text + length, size - length, "%s$%d", before, first + i);
        length += (size_t)added;
    }
    if (n > 1) snprintf(text + length, size - length, "}");
}

/* Constraints of `n` words: ",=r,=r" with "=r" as the pattern. */
static void constraint_list(char *text, size_t size, const char *output, int bits, int n)
{
    size_t length = strlen(text);
    const char *letter = bits == 64 ? "l" : bits == 32 ? "r" : "h";
    for (int i = 0; i < n; i++) {
        const char *before = length ? "," : "";
        int added = snprintf(text + length, size - length, "%s%s%s", before, output, letter);
        length += (size_t)added;
    }
}

/* The operand of a policy; a constant in the end. */
static LLVMValueRef hint_of(struct eider_emit *e, const char *text)
{
    return eider_emit_asm(e, int_type(e, 64), text, "=l", 1, NULL, 0);
}

/* 8 bits travel in a 16-bit register. */
static LLVMTypeRef register_type(struct eider_emit *e, int bits)
{
    return int_type(e, bits == 8 ? 16 : bits);
}

/* One load by inline assembly.  It has side effects for LLVM, so that it stays before
 * every store that follows it in the program: an output may alias an input. */
static void load_by_asm(struct eider_emit *e, const struct policy *p, LLVMValueRef ptr,
                        struct words w, LLVMValueRef *out)
{
    char text[128], list[32], constraints[64] = "";
    LLVMValueRef args[2] = {ptr, p->hint ? hint_of(e, p->hint) : NULL};
    operand_list(list, sizeof list, 0, w.n);
    int length = snprintf(text, sizeof text, "ld.global%s%s.b%d %s, [$%d]", p->text,
                          w.n == 4   ? ".v4"
                          : w.n == 2 ? ".v2"
                                     : "",
                          w.bits, list, w.n);
    if (p->hint) length += snprintf(text + length, sizeof text - (size_t)length, ", $%d", w.n + 1);
    snprintf(text + length, sizeof text - (size_t)length, ";");
    constraint_list(constraints, sizeof constraints, "=", w.bits, w.n);
    constraint_list(constraints, sizeof constraints, "", 64, p->hint ? 2 : 1);
    LLVMTypeRef types[WORDS_MAX], word = register_type(e, w.bits);
    for (int i = 0; i < w.n; i++) types[i] = word;
    LLVMTypeRef type =
        w.n == 1 ? word : LLVMStructTypeInContext(e->context, types, (unsigned)w.n, 0);
    LLVMValueRef all = eider_emit_asm(e, type, text, constraints, 0, args, p->hint ? 2 : 1);
    for (int i = 0; i < w.n; i++) {
        LLVMValueRef v = w.n == 1 ? all : LLVMBuildExtractValue(e->builder, all, (unsigned)i, "");
        out[i] = w.bits == 8 ? LLVMBuildTrunc(e->builder, v, int_type(e, 8), "") : v;
    }
}

static void load_words(struct eider_emit *e, const struct policy *p, LLVMValueRef ptr,
                       struct words w, LLVMValueRef *out)
{
    if (!p->plain) {
        load_by_asm(e, p, ptr, w, out);
        return;
    }
    LLVMValueRef all = LLVMBuildLoad2(e->builder, access_type(e, w), ptr, "");
    LLVMSetAlignment(all, (unsigned)w.bytes);
    for (int i = 0; i < w.n; i++)
        out[i] = w.n == 1 ? all : LLVMBuildExtractElement(e->builder, all, i32(e, (uint64_t)i), "");
}

static void store_by_asm(struct eider_emit *e, const struct policy *p, LLVMValueRef ptr,
                         struct words w, const LLVMValueRef *in)
{
    char text[128], list[32], constraints[64] = "l";
    LLVMValueRef args[WORDS_MAX + 2] = {ptr};
    operand_list(list, sizeof list, 1, w.n);
    int length = snprintf(text, sizeof text, "st.global%s%s.b%d [$0], %s", p->text,
                          w.n == 4   ? ".v4"
                          : w.n == 2 ? ".v2"
                                     : "",
                          w.bits, list);
    if (p->hint) length += snprintf(text + length, sizeof text - (size_t)length, ", $%d", w.n + 1);
    snprintf(text + length, sizeof text - (size_t)length, ";");
    constraint_list(constraints, sizeof constraints, "", w.bits, w.n);
    if (p->hint) constraint_list(constraints, sizeof constraints, "", 64, 1);
    for (int i = 0; i < w.n; i++)
        args[1 + i] = w.bits == 8 ? LLVMBuildZExt(e->builder, in[i], int_type(e, 16), "") : in[i];
    if (p->hint) args[1 + w.n] = hint_of(e, p->hint);
    eider_emit_asm(e, LLVMVoidTypeInContext(e->context), text, constraints, 0, args,
                   (uint32_t)(1 + w.n + (p->hint != NULL)));
}

static void store_words(struct eider_emit *e, const struct policy *p, LLVMValueRef ptr,
                        struct words w, const LLVMValueRef *in)
{
    if (!p->plain) {
        store_by_asm(e, p, ptr, w, in);
        return;
    }
    LLVMValueRef all = in[0];
    if (w.n > 1) {
        all = LLVMGetUndef(access_type(e, w));
        for (int i = 0; i < w.n; i++)
            all = LLVMBuildInsertElement(e->builder, all, in[i], i32(e, (uint64_t)i), "");
    }
    LLVMSetAlignment(LLVMBuildStore(e->builder, all, ptr), (unsigned)w.bytes);
}

/* ---- Elements from words ------------------------------------------------- */

/* Bits [at, at + bits) of the access as an integer of that width. */
static LLVMValueRef cut(struct eider_emit *e, struct words w, const LLVMValueRef *words, int at,
                        int bits)
{
    LLVMValueRef word = words[at / w.bits];
    int down = at % w.bits;
    if (down) {
        LLVMValueRef by = LLVMConstInt(int_type(e, w.bits), (unsigned)down, 0);
        word = LLVMBuildLShr(e->builder, word, by, "");
    }
    return bits == w.bits ? word : LLVMBuildTrunc(e->builder, word, int_type(e, bits), "");
}

/* LLVM makes one instruction of a load and this, with the line of this: the load's. */
static LLVMValueRef widen_word(struct eider_emit *e, LLVMValueRef word)
{
    int is_load = e->lines.now.kind == EIDER_LINE_CONVERT;
    if (is_load) eider_lines_turn(e, EIDER_LINE_LOAD);
    word = LLVMBuildZExt(e->builder, word, int_type(e, 32), "");
    if (is_load) eider_lines_turn(e, EIDER_LINE_CONVERT);
    return word;
}

static LLVMValueRef widen_bf16(struct eider_emit *e, struct words w, const LLVMValueRef *words,
                               int i)
{
    LLVMTypeRef f32 = LLVMFloatTypeInContext(e->context);
    LLVMValueRef bits;
    if (w.bits == 32 && i % 2 == 1) {
        bits = LLVMBuildAnd(e->builder, words[i / 2], i32(e, 0xFFFF0000), "");
    } else {
        LLVMValueRef word = words[w.bits == 32 ? i / 2 : i];
        if (w.bits < 32) word = widen_word(e, word);
        bits = LLVMBuildShl(e->builder, word, i32(e, 16), "");
    }
    return cast_to(e, bits, f32);
}

static LLVMValueRef widen_half(struct eider_emit *e, LLVMValueRef half)
{
    return LLVMBuildFPExt(e->builder, half, LLVMFloatTypeInContext(e->context), "");
}

/* Two fp8 values from 16 bits. */
static void widen_fp8_pair(struct eider_emit *e, eider_dtype type, LLVMValueRef pair,
                           LLVMValueRef *out)
{
    const char *text =
        type == EIDER_E4M3 ? "cvt.rn.f16x2.e4m3x2 $0, $1;" : "cvt.rn.f16x2.e5m2x2 $0, $1;";
    LLVMTypeRef halves = LLVMVectorType(LLVMHalfTypeInContext(e->context), 2);
    LLVMValueRef both = eider_emit_asm(e, int_type(e, 32), text, "=r,h", 1, &pair, 1);
    both = cast_to(e, both, halves);
    for (int i = 0; i < 2; i++)
        out[i] = widen_half(e, LLVMBuildExtractElement(e->builder, both, i32(e, (uint64_t)i), ""));
}

static void widen_fp8(struct eider_emit *e, eider_dtype type, struct words w,
                      const LLVMValueRef *words, int n, LLVMValueRef *out)
{
    LLVMValueRef pair[2];
    for (int i = 0; i < n; i += 2) {
        if (e->target.sm >= SM_FP8 && n > 1) {
            widen_fp8_pair(e, type, cut(e, w, words, 8 * i, 16), out + i);
        } else if (e->target.sm >= SM_FP8) {
            LLVMValueRef bits = LLVMBuildZExt(e->builder, words[0], int_type(e, 16), "");
            widen_fp8_pair(e, type, bits, pair);
            out[0] = pair[0];
        } else {
            for (int j = i; j < n && j < i + 2; j++) {
                LLVMValueRef bits = cut(e, w, words, 8 * j, 8);
                bits = LLVMBuildZExt(e->builder, bits, int_type(e, 32), "");
                out[j] = eider_convert_widen(e, type, bits);
            }
        }
    }
}

static void elements_of(struct eider_emit *e, eider_dtype type, struct words w,
                        const LLVMValueRef *words, int n, LLVMValueRef *out)
{
    int bits = 8 * (int)eider_dtype_size(type);
    if (type == EIDER_E4M3 || type == EIDER_E5M2) {
        widen_fp8(e, type, w, words, n, out);
        return;
    }
    for (int i = 0; i < n; i++) {
        if (type == EIDER_BF16) {
            out[i] = widen_bf16(e, w, words, i);
            continue;
        }
        LLVMValueRef v = cut(e, w, words, bits * i, bits);
        if (type == EIDER_F32) v = cast_to(e, v, LLVMFloatTypeInContext(e->context));
        if (type == EIDER_F64) v = cast_to(e, v, LLVMDoubleTypeInContext(e->context));
        if (type == EIDER_F16) v = widen_half(e, cast_to(e, v, LLVMHalfTypeInContext(e->context)));
        if (type == EIDER_BOOL)
            v = LLVMBuildICmp(e->builder, LLVMIntNE, v, LLVMConstInt(int_type(e, 8), 0, 0), "");
        out[i] = v;
    }
}

/* ---- Words from elements ------------------------------------------------- */

static int is_f64(LLVMValueRef value)
{
    return LLVMGetTypeKind(LLVMTypeOf(value)) == LLVMDoubleTypeKind;
}

/* f32 from f32 or f64, such that rounding it further rounds once. */
static LLVMValueRef narrowable(struct eider_emit *e, LLVMValueRef value)
{
    return is_f64(value) ? eider_convert_odd(e, value) : value;
}

/* Conversions of two f32 to a pair, which has the second operand in its low half.  By
 * assembly, so that the pair stays one register: LLVM splits vectors of bfloat to store
 * them. */
static const struct {
    const char *text, *constraints;
    int bits, saturates;
} pair_conversions[] = {
    [EIDER_F16] = {"cvt.rn.f16x2.f32 $0, $1, $2;", "=r,f,f", 32, 0},
    [EIDER_BF16] = {"cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f", 32, 0},
    [EIDER_E4M3] = {"cvt.rn.satfinite.e4m3x2.f32 $0, $1, $2;", "=h,f,f", 16, 1},
    [EIDER_E5M2] = {"cvt.rn.satfinite.e5m2x2.f32 $0, $1, $2;", "=h,f,f", 16, 1},
};

/* Two elements of 16-bit or 8-bit floats as one integer, the first in the low half. */
static LLVMValueRef narrow_pair(struct eider_emit *e, eider_dtype type, int saturate,
                                const LLVMValueRef *in)
{
    LLVMValueRef args[2] = {narrowable(e, in[1]), narrowable(e, in[0])};
    int by_instruction = !pair_conversions[type].saturates || (e->target.sm >= SM_FP8 && saturate);
    if (by_instruction)
        return eider_emit_asm(e, int_type(e, pair_conversions[type].bits),
                              pair_conversions[type].text, pair_conversions[type].constraints, 1,
                              args, 2);
    LLVMValueRef high = eider_convert_narrow(e, type, saturate, args[0]);
    LLVMValueRef low = eider_convert_narrow(e, type, saturate, args[1]);
    high = LLVMBuildShl(e->builder, high, i32(e, 8), "");
    LLVMValueRef both = LLVMBuildOr(e->builder, high, low, "");
    return LLVMBuildTrunc(e->builder, both, int_type(e, 16), "");
}

static LLVMValueRef narrow_one(struct eider_emit *e, eider_dtype type, int saturate,
                               LLVMValueRef value)
{
    LLVMValueRef f32 = narrowable(e, value), narrow;
    if (type == EIDER_BF16) {
        narrow = eider_emit_intrinsic(e, "llvm.nvvm.f2bf16.rn", NULL, 0, &f32, 1);
        return cast_to(e, narrow, int_type(e, 16));
    }
    if (type == EIDER_F16) {
        narrow = LLVMBuildFPTrunc(e->builder, f32, LLVMHalfTypeInContext(e->context), "");
        return cast_to(e, narrow, int_type(e, 16));
    }
    if (e->target.sm >= SM_FP8 && saturate) {
        LLVMValueRef pair[2] = {f32, LLVMConstNull(LLVMFloatTypeInContext(e->context))};
        narrow = narrow_pair(e, type, 1, pair);
    } else {
        narrow = eider_convert_narrow(e, type, saturate, f32);
    }
    return LLVMBuildTrunc(e->builder, narrow, int_type(e, 8), "");
}

/* Joins `n` equal integers, the first lowest, into one of `bits`. */
static LLVMValueRef join(struct eider_emit *e, const LLVMValueRef *parts, int n, int bits)
{
    LLVMTypeRef type = int_type(e, bits);
    if (n == 1) return parts[0];
    LLVMValueRef all = LLVMBuildZExt(e->builder, parts[0], type, "");
    for (int i = 1; i < n; i++) {
        LLVMValueRef part = LLVMBuildZExt(e->builder, parts[i], type, "");
        LLVMValueRef by = LLVMConstInt(type, (unsigned)(bits / n * i), 0);
        all = LLVMBuildOr(e->builder, all, LLVMBuildShl(e->builder, part, by, ""), "");
    }
    return all;
}

static LLVMValueRef bits_of(struct eider_emit *e, eider_dtype type, int saturate, LLVMValueRef v)
{
    switch (type) {
    case EIDER_F32:
        if (is_f64(v)) v = LLVMBuildFPTrunc(e->builder, v, LLVMFloatTypeInContext(e->context), "");
        return cast_to(e, v, int_type(e, 32));
    case EIDER_F64:
        if (!is_f64(v)) v = LLVMBuildFPExt(e->builder, v, LLVMDoubleTypeInContext(e->context), "");
        return cast_to(e, v, int_type(e, 64));
    case EIDER_BOOL:
        return LLVMBuildZExt(e->builder, v, int_type(e, 8), "");
    case EIDER_I32:
    case EIDER_I64:
        return v;
    default:
        return narrow_one(e, type, saturate, v);
    }
}

static void words_from(struct eider_emit *e, eider_dtype type, int saturate, struct words w,
                       const LLVMValueRef *in, LLVMValueRef *words)
{
    int size = (int)eider_dtype_size(type), per_word = w.bits / (8 * size);
    int paired = per_word > 1 && type != EIDER_BOOL;
    for (int i = 0; i < w.n; i++) {
        LLVMValueRef parts[4] = {NULL};
        int n = paired ? per_word / 2 : per_word;
        for (int j = 0; j < n; j++) {
            const LLVMValueRef *from = in + i * per_word + (paired ? 2 * j : j);
            parts[j] =
                paired ? narrow_pair(e, type, saturate, from) : bits_of(e, type, saturate, *from);
        }
        words[i] = join(e, parts, n, w.bits);
    }
}

/* ---- The members --------------------------------------------------------- */

static int nvptx_fetch(struct eider_emit *e, eider_dtype type, LLVMValueRef ptr, int n,
                       enum eider_load_policy policy, int read_only, LLVMValueRef *words)
{
    struct words w = words_of(type, n);
    int n_words = 0;
    const struct policy *p = &load_policies[policy];
    if (policy == EIDER_LOAD_NC && !read_only) p = &load_policies[EIDER_LOAD_CA];
    eider_lines_turn(e, EIDER_LINE_LOAD);
    for (int at = 0; at < n * (int)eider_dtype_size(type); at += w.bytes, n_words += w.n)
        load_words(e, p, offset(e, ptr, at), w, words + n_words);
    return n_words;
}

static int nvptx_fetch_each(struct eider_emit *e, eider_dtype type, const LLVMValueRef *ptrs, int n,
                            LLVMValueRef *words)
{
    struct words w = words_of(type, n), one = words_of(type, 1);
    int per_word = w.bits / one.bits;
    eider_lines_turn(e, EIDER_LINE_LOAD);
    for (int i = 0; i < n; i += per_word) {
        LLVMValueRef parts[4];
        for (int k = 0; k < per_word; k++)
            load_words(e, &load_policies[EIDER_LOAD_CA], ptrs[i + k], one, &parts[k]);
        words[i / per_word] = join(e, parts, per_word, w.bits);
    }
    return n / per_word;
}

static void nvptx_unpack(struct eider_emit *e, eider_dtype type, int n, const LLVMValueRef *words,
                         LLVMValueRef *out)
{
    struct words w = words_of(type, n);
    int step = w.bytes / (int)eider_dtype_size(type);
    eider_lines_turn(e, EIDER_LINE_CONVERT);
    for (int i = 0; i < n; i += step, words += w.n) elements_of(e, type, w, words, step, out + i);
}

static void nvptx_put(struct eider_emit *e, eider_dtype type, LLVMValueRef ptr, int n,
                      const LLVMValueRef *words)
{
    struct words w = words_of(type, n);
    for (int at = 0; at < n * (int)eider_dtype_size(type); at += w.bytes, words += w.n)
        store_words(e, &store_policies[EIDER_STORE_WB], offset(e, ptr, at), w, words);
}

static LLVMValueRef shared_address(struct eider_emit *e, LLVMValueRef pointer)
{
    return LLVMBuildPtrToInt(e->builder, pointer, int_type(e, 32), "");
}

static void effect(struct eider_emit *e, const char *text, const char *constraints,
                   LLVMValueRef *args, uint32_t n_args)
{
    eider_emit_asm(e, LLVMVoidTypeInContext(e->context), text, constraints, 0, args, n_args);
}

/* What follows must not be moved before it as if it were done in any case. */
static void nvptx_leave_unless(struct eider_emit *e, LLVMValueRef stays)
{
    LLVMValueRef leaves = LLVMBuildNot(e->builder, stays, "");
    LLVMValueRef call =
        eider_emit_asm(e, LLVMVoidTypeInContext(e->context), "@$0 exit;", "b", 0, &leaves, 1);
    LLVMRemoveCallSiteEnumAttribute(call, (LLVMAttributeIndex)LLVMAttributeFunctionIndex,
                                    LLVMGetEnumAttributeKindForName("willreturn", 10));
}

/* cp.async.cg takes 16 bytes only. */
static void nvptx_copy(struct eider_emit *e, LLVMValueRef to, LLVMValueRef from, int bytes,
                       LLVMValueRef exists)
{
    int step = bytes < ACCESS_BYTES_MAX ? bytes : ACCESS_BYTES_MAX;
    char text[80];
    snprintf(text, sizeof text, "%scp.async.%s.shared.global [$0], [$1], %d;", exists ? "@$2 " : "",
             step == ACCESS_BYTES_MAX ? "cg" : "ca", step);
    for (int at = 0; at < bytes; at += step) {
        LLVMValueRef args[3] = {shared_address(e, offset(e, to, at)), offset(e, from, at), exists};
        effect(e, text, exists ? "r,l,b" : "r,l", args, exists ? 3 : 2);
    }
}

static void nvptx_copies_wait(struct eider_emit *e)
{
    effect(e, "cp.async.wait_all;", "", NULL, 0);
}

static void nvptx_load(struct eider_emit *e, eider_dtype type, LLVMValueRef ptr, int n,
                       enum eider_load_policy policy, int read_only, LLVMValueRef *out)
{
    LLVMValueRef words[EIDER_VECTOR_MAX];
    nvptx_fetch(e, type, ptr, n, policy, read_only, words);
    nvptx_unpack(e, type, n, words, out);
}

static void nvptx_store(struct eider_emit *e, eider_dtype type, LLVMValueRef ptr, int n,
                        enum eider_store_policy policy, int saturate, const LLVMValueRef *in)
{
    struct words w = words_of(type, n);
    int step = w.bytes / (int)eider_dtype_size(type);
    for (int i = 0; i < n; i += step) {
        LLVMValueRef words[WORDS_MAX];
        eider_lines_turn(e, EIDER_LINE_CONVERT);
        words_from(e, type, saturate, w, in + i, words);
        eider_lines_turn(e, EIDER_LINE_STORE);
        store_words(e, &store_policies[policy], offset(e, ptr, i * (int)eider_dtype_size(type)), w,
                    words);
    }
}

static LLVMValueRef nvptx_load_each(struct eider_emit *e, eider_dtype type,
                                    const LLVMValueRef *ptrs)
{
    LLVMValueRef out;
    nvptx_load(e, type, ptrs[0], 1, EIDER_LOAD_CA, 0, &out);
    return out;
}

static void nvptx_store_each(struct eider_emit *e, eider_dtype type, const LLVMValueRef *ptrs,
                             int saturate, LLVMValueRef value)
{
    nvptx_store(e, type, ptrs[0], 1, EIDER_STORE_WB, saturate, &value);
}

/* By assembly: LLVM would branch around the store, and sink what it can behind the branch, the
 * loads of the element among it. */
static void nvptx_store_if(struct eider_emit *e, eider_dtype type, LLVMValueRef exists,
                           LLVMValueRef ptr, int saturate, LLVMValueRef value)
{
    char text[64], constraints[64] = "b,l";
    struct words w = words_of(type, 1);
    eider_lines_turn(e, EIDER_LINE_CONVERT);
    LLVMValueRef word = cast_to(e, bits_of(e, type, saturate, value), int_type(e, w.bits));
    if (w.bits == 8) word = LLVMBuildZExt(e->builder, word, register_type(e, 8), "");
    eider_lines_turn(e, EIDER_LINE_STORE);
    LLVMValueRef args[3] = {exists, ptr, word};
    snprintf(text, sizeof text, "@$0 st.global.b%d [$1], $2;", w.bits);
    constraint_list(constraints, sizeof constraints, "", w.bits, 1);
    eider_emit_asm(e, LLVMVoidTypeInContext(e->context), text, constraints, 0, args, 3);
}

static LLVMValueRef nvptx_splat(struct eider_emit *e, eider_dtype type, LLVMValueRef scalar)
{
    struct words w = words_of(type, 1);
    LLVMValueRef word = cast_to(e, scalar, int_type(e, w.bits)), out;
    elements_of(e, type, w, &word, 1, &out);
    return out;
}

static LLVMValueRef nvptx_round(struct eider_emit *e, eider_dtype type, int saturate,
                                LLVMValueRef v)
{
    LLVMTypeRef own = LLVMTypeOf(v);
    struct words w = words_of(type, 1);
    LLVMValueRef word = bits_of(e, type, saturate, v), out;
    elements_of(e, type, w, &word, 1, &out);
    return LLVMTypeOf(out) == own ? out : LLVMBuildFPCast(e->builder, out, own, "");
}

/* Instructions on pairs.  Sums and products of bf16 exist only as fused ones before sm_90;
 * with 1, -1 or -0 in place of an operand they round once, just the same. */
static const struct {
    int n_args;
    const char *f16, *bf16;
} pair_ops[EIDER_OP_COUNT] = {
    [EIDER_OP_add] = {2, "add.rn.f16x2 $0, $1, $2;",
                      "{ .reg .b32 one; mov.b32 one, 0x3F803F80;"
                      " fma.rn.bf16x2 $0, $1, one, $2; }"},
    [EIDER_OP_sub] = {2, "sub.rn.f16x2 $0, $1, $2;",
                      "{ .reg .b32 one; mov.b32 one, 0xBF80BF80;"
                      " fma.rn.bf16x2 $0, $2, one, $1; }"},
    [EIDER_OP_mul] = {2, "mul.rn.f16x2 $0, $1, $2;",
                      "{ .reg .b32 zero; mov.b32 zero, 0x80008000;"
                      " fma.rn.bf16x2 $0, $1, $2, zero; }"},
    [EIDER_OP_neg] = {1, "neg.f16x2 $0, $1;", "neg.bf16x2 $0, $1;"},
    [EIDER_OP_abs] = {1, "abs.f16x2 $0, $1;", "abs.bf16x2 $0, $1;"},
    [EIDER_OP_max] = {2, "max.NaN.f16x2 $0, $1, $2;", "max.NaN.bf16x2 $0, $1, $2;"},
    [EIDER_OP_min] = {2, "min.NaN.f16x2 $0, $1, $2;", "min.NaN.bf16x2 $0, $1, $2;"},
    [EIDER_OP_fmax] = {2, "max.f16x2 $0, $1, $2;", "max.bf16x2 $0, $1, $2;"},
    [EIDER_OP_fmin] = {2, "min.f16x2 $0, $1, $2;", "min.bf16x2 $0, $1, $2;"},
};

static LLVMValueRef nvptx_pair(struct eider_emit *e, enum eider_op op, eider_dtype type,
                               LLVMValueRef *args)
{
    const char *text = type == EIDER_F16 ? pair_ops[op].f16 : pair_ops[op].bf16;
    return eider_emit_asm(e, int_type(e, 32), text, pair_ops[op].n_args == 1 ? "=r,r" : "=r,r,r", 1,
                          args, (uint32_t)pair_ops[op].n_args);
}

/* ---- Mbarriers: their transactions are the bytes that st.async stores (PTX ISA, parallel
 * synchronization and communication instructions).  As in CUTLASS, the first barrier of the cluster
 * may be relaxed after the fence of an mbarrier's initialisation, and the wait has the default
 * scope, the block's: what has come is in shared memory.  At the cluster's scope, which the memory
 * model asks for, ptxas adds nothing but CCTL.IVALL, which empties L1 of the row. */

static void nvptx_mbarrier_open(struct eider_emit *e, LLVMValueRef mbarrier)
{
    LLVMValueRef at = shared_address(e, mbarrier);
    effect(e, "mbarrier.init.shared.b64 [$0], 1; fence.mbarrier_init.release.cluster;", "r", &at,
           1);
}

static void nvptx_mbarrier_expect(struct eider_emit *e, LLVMValueRef mbarrier, uint32_t bytes)
{
    LLVMValueRef args[2] = {shared_address(e, mbarrier), LLVMConstInt(int_type(e, 32), bytes, 0)};
    effect(e, "mbarrier.arrive.expect_tx.shared.b64 _, [$0], $1;", "r,n", args, 2);
}

static void nvptx_mbarrier_send(struct eider_emit *e, LLVMValueRef to, LLVMValueRef value,
                                LLVMValueRef mbarrier, LLVMValueRef rank)
{
    int bits = 8 * (int)eider_emit_sent_bytes(e, value);
    char text[256], constraints[16];
    LLVMValueRef word = cast_to(e, value, int_type(e, bits));
    LLVMValueRef args[4] = {shared_address(e, to), shared_address(e, mbarrier), rank, word};
    snprintf(text, sizeof text,
             "{ .reg .b32 to, counter; mapa.shared::cluster.u32 to, $0, $2;"
             " mapa.shared::cluster.u32 counter, $1, $2;"
             " st.async.shared::cluster.mbarrier::complete_tx::bytes.b%d [to], $3, [counter]; }",
             bits);
    snprintf(constraints, sizeof constraints, "r,r,r,%c", bits == 64 ? 'l' : 'r');
    effect(e, text, constraints, args, 4);
}

static void nvptx_mbarrier_wait(struct eider_emit *e, LLVMValueRef mbarrier)
{
    LLVMValueRef at = shared_address(e, mbarrier);
    effect(e,
           "{ .reg .pred all; again: mbarrier.try_wait.parity.shared::cta.b64 all, [$0], 0;"
           " @!all bra again; }",
           "r", &at, 1);
}

const struct eider_machine eider_machine_nvptx = {
    .name = "nvptx",
    .needs_alignment = 1,
    .width = nvptx_width,
    .kernel_begin = nvptx_kernel_begin,
    .kernel_end = nvptx_kernel_end,
    .param = nvptx_param,
    .thread_index = nvptx_thread_index,
    .block_index = nvptx_block_index,
    .load = nvptx_load,
    .fetch = nvptx_fetch,
    .fetch_each = nvptx_fetch_each,
    .unpack = nvptx_unpack,
    .put = nvptx_put,
    .copy = nvptx_copy,
    .copies_wait = nvptx_copies_wait,
    .unpacks_again = 1,
    .store = nvptx_store,
    .load_each = nvptx_load_each,
    .store_each = nvptx_store_each,
    .store_if = nvptx_store_if,
    .splat = nvptx_splat,
    .round = nvptx_round,
    .math = eider_math_nvptx,
    .pair = nvptx_pair,
    .barrier = nvptx_barrier,
    .leave_unless = nvptx_leave_unless,
    .mbarrier_open = nvptx_mbarrier_open,
    .mbarrier_expect = nvptx_mbarrier_expect,
    .mbarrier_send = nvptx_mbarrier_send,
    .mbarrier_wait = nvptx_mbarrier_wait,
};
