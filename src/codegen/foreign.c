/* foreign.c -- see foreign.h.
 *
 * Shared variables are globals of address space 3, one instance per block.  On the CPU
 * they become offsets into the block's memory, whose address a hook gives, so every
 * constant that mentions one is computed anew at the entry of the function that uses it.
 */
#include "foreign.h"

#include <llvm-c/Core.h>
#include <llvm-c/Target.h>
#include <stdio.h>
#include <string.h>

#include "cpu_abi.h"
#include "foreign_intrinsics.h"

#define SHARED_SPACE 3
#define SHARED_ALIGN 128 /* of the block's memory and of dynamic shared memory */
#define NAME_BYTES 512
#define SHARED_BYTES_MAX ((uint64_t)1 << 20)  /* more than any GPU's */
#define GLOBAL_BYTES_MAX ((uint64_t)64 << 20) /* tables; a GPU's constant memory is 64 KiB */
#define GLOBAL_ALIGN_MAX 4096u

/* ---- What cannot run, and what must only be renamed -------------------------------- */

static eider_status refuse_assembly(LLVMValueRef callee)
{
    size_t length = 0;
    const char *text = LLVMGetInlineAsmAsmString(callee, &length);
    return eider_fail(EIDER_CODEGEN, "the inline assembly '%.*s' cannot run on the CPU",
                      length > 200 ? 200 : (int)length, text);
}

/* Bits of a store under a predicate as eider's own kernels have it, whatever their program
 * (machine_nvptx.c); 0 for other assembly. */
static unsigned stored_bits(LLVMValueRef call)
{
    static const unsigned widths[] = {8, 16, 32, 64};
    char store[32];
    size_t length = 0;
    const char *text = LLVMGetInlineAsmAsmString(LLVMGetCalledValue(call), &length);
    if (!LLVMIsACallInst(call) || LLVMGetNumArgOperands(call) != 3 ||
        LLVMGetTypeKind(LLVMTypeOf(call)) != LLVMVoidTypeKind)
        return 0;
    LLVMTypeRef condition = LLVMTypeOf(LLVMGetOperand(call, 0));
    LLVMTypeRef to = LLVMTypeOf(LLVMGetOperand(call, 1)), of = LLVMTypeOf(LLVMGetOperand(call, 2));
    if (LLVMGetTypeKind(condition) != LLVMIntegerTypeKind || LLVMGetIntTypeWidth(condition) != 1 ||
        LLVMGetTypeKind(to) != LLVMPointerTypeKind || LLVMGetTypeKind(of) != LLVMIntegerTypeKind)
        return 0;
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        snprintf(store, sizeof store, "@$0 st.global.b%u [$1], $2;", widths[i]);
        if (strcmp(store, text) == 0 && LLVMGetIntTypeWidth(of) >= widths[i]) return widths[i];
    }
    return 0;
}

/* Such a store goes to its place or to one that nobody reads. */
static eider_status lower_assembly(LLVMValueRef call)
{
    LLVMValueRef callee = LLVMGetCalledValue(call);
    if (!LLVMIsAInlineAsm(callee)) return EIDER_OK;
    unsigned bits = stored_bits(call);
    if (!bits) return refuse_assembly(callee);
    LLVMValueRef to = LLVMGetOperand(call, 1), word = LLVMGetOperand(call, 2);
    LLVMContextRef context = LLVMGetTypeContext(LLVMTypeOf(word));
    LLVMBasicBlockRef entry =
        LLVMGetEntryBasicBlock(LLVMGetBasicBlockParent(LLVMGetInstructionParent(call)));
    LLVMBuilderRef builder = LLVMCreateBuilderInContext(context);
    LLVMPositionBuilderBefore(builder, LLVMGetFirstInstruction(entry));
    LLVMValueRef nowhere = LLVMBuildAlloca(builder, LLVMInt64TypeInContext(context), "");
    LLVMPositionBuilderBefore(builder, call);
    nowhere = LLVMBuildAddrSpaceCast(builder, nowhere, LLVMTypeOf(to), "");
    word = LLVMBuildIntCast2(builder, word, LLVMIntTypeInContext(context, bits), 0, "");
    to = LLVMBuildSelect(builder, LLVMGetOperand(call, 0), to, nowhere, "");
    LLVMSetAlignment(LLVMBuildStore(builder, word, to), bits / 8);
    LLVMDisposeBuilder(builder);
    LLVMInstructionEraseFromParent(call);
    return EIDER_OK;
}

static int is_ptx_convention(unsigned convention)
{
    return convention == LLVMPTXKernelCallConv || convention == LLVMPTXDeviceCallConv;
}

static eider_status retarget_function(LLVMValueRef f)
{
    if (is_ptx_convention(LLVMGetFunctionCallConv(f))) LLVMSetFunctionCallConv(f, LLVMCCallConv);
    for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(f); b; b = LLVMGetNextBasicBlock(b)) {
        for (LLVMValueRef i = LLVMGetFirstInstruction(b), next; i; i = next) {
            next = LLVMGetNextInstruction(i);
            if (!LLVMIsACallInst(i) && !LLVMIsAInvokeInst(i)) continue;
            if (is_ptx_convention(LLVMGetInstructionCallConv(i)))
                LLVMSetInstructionCallConv(i, LLVMCCallConv);
            EIDER_TRY(lower_assembly(i));
        }
    }
    return EIDER_OK;
}

/* ---- Shared variables ---------------------------------------------------------------- */

/* A constant and the instruction that computes it in the current function. */
struct replaced {
    LLVMValueRef constant, value;
};

struct shared {
    const eider_allocator *allocator;
    LLVMModuleRef module;
    LLVMTargetDataRef layout;
    LLVMBuilderRef builder; /* at the entry of the current function */
    struct replaced *list;  /* of the current function */
    size_t n, room;
    uint64_t static_bytes;
    eider_status status;
};

static int is_shared(LLVMValueRef value)
{
    return LLVMIsAGlobalVariable(value) &&
           LLVMGetPointerAddressSpace(LLVMTypeOf(value)) == SHARED_SPACE;
}

static int mentions_shared(LLVMValueRef value)
{
    if (!LLVMIsAConstant(value)) return 0;
    if (is_shared(value)) return 1;
    if (LLVMIsAGlobalValue(value)) return 0;
    for (int i = 0; i < LLVMGetNumOperands(value); i++)
        if (mentions_shared(LLVMGetOperand(value, (unsigned)i))) return 1;
    return 0;
}

static uint64_t align_up(uint64_t value, uint64_t align)
{
    return (value + align - 1) / align * align;
}

static int is_dynamic(LLVMValueRef global)
{
    return LLVMIsDeclaration(global) != 0;
}

/* Where `wanted` lies in the block's memory; for NULL, the bytes of all variables, or more
 * than SHARED_BYTES_MAX. */
static uint64_t offset_of(const struct shared *s, LLVMValueRef wanted)
{
    uint64_t offset = 0;
    for (LLVMValueRef g = LLVMGetFirstGlobal(s->module); g; g = LLVMGetNextGlobal(g)) {
        if (!is_shared(g) || is_dynamic(g)) continue;
        LLVMTypeRef type = LLVMGlobalGetValueType(g);
        unsigned align = LLVMGetAlignment(g);
        offset = align_up(offset, align ? align : LLVMPreferredAlignmentOfGlobal(s->layout, g));
        if (g == wanted) return offset;
        uint64_t bytes = LLVMABISizeOfType(s->layout, type);
        if (bytes > SHARED_BYTES_MAX || offset > SHARED_BYTES_MAX) return SHARED_BYTES_MAX + 1;
        offset += bytes;
    }
    return align_up(offset, SHARED_ALIGN);
}

static LLVMValueRef address_of(struct shared *s, LLVMValueRef global)
{
    LLVMContextRef context = LLVMGetModuleContext(s->module);
    LLVMTypeRef pointer = LLVMPointerTypeInContext(context, 0);
    LLVMTypeRef type = LLVMFunctionType(pointer, NULL, 0, 0);
    LLVMValueRef hook = eider_foreign_hook(s->module, "eider_cpu_shared", type, 1);
    LLVMValueRef base = LLVMBuildCall2(s->builder, type, hook, NULL, 0, "");
    uint64_t bytes = is_dynamic(global) ? s->static_bytes : offset_of(s, global);
    LLVMValueRef offset = LLVMConstInt(LLVMInt64TypeInContext(context), bytes, 0);
    LLVMValueRef at =
        LLVMBuildGEP2(s->builder, LLVMInt8TypeInContext(context), base, &offset, 1, "");
    return LLVMBuildAddrSpaceCast(s->builder, at, LLVMTypeOf(global), "");
}

static LLVMValueRef replace(struct shared *s, LLVMValueRef constant);

#define OPERANDS_MAX 16

/* A constant expression as an instruction. */
static LLVMValueRef rebuild(struct shared *s, LLVMValueRef constant)
{
    LLVMValueRef operands[OPERANDS_MAX];
    int n = LLVMGetNumOperands(constant);
    LLVMOpcode opcode = LLVMIsAConstantExpr(constant) ? LLVMGetConstOpcode(constant) : LLVMRet;
    LLVMTypeRef type = LLVMTypeOf(constant);
    if (n < 1 || n > OPERANDS_MAX) opcode = LLVMRet;
    for (int i = 0; i < n && i < OPERANDS_MAX; i++)
        operands[i] = replace(s, LLVMGetOperand(constant, (unsigned)i));
    if (s->status != EIDER_OK) return constant;
    switch (opcode) {
    case LLVMGetElementPtr:
        return LLVMBuildGEP2(s->builder, LLVMGetGEPSourceElementType(constant), operands[0],
                             operands + 1, (unsigned)n - 1, "");
    case LLVMAddrSpaceCast:
    case LLVMPtrToInt:
    case LLVMIntToPtr:
    case LLVMBitCast:
    case LLVMTrunc:
        return LLVMBuildCast(s->builder, opcode, operands[0], type, "");
    case LLVMAdd:
    case LLVMSub:
    case LLVMXor:
        return LLVMBuildBinOp(s->builder, opcode, operands[0], operands[1], "");
    default:
        break;
    }
    s->status = eider_fail(EIDER_CODEGEN, "a shared variable's address is part of a constant that "
                                          "the CPU backend does not compute");
    return constant;
}

static LLVMValueRef replace(struct shared *s, LLVMValueRef constant)
{
    if (!mentions_shared(constant)) return constant;
    for (size_t i = 0; i < s->n; i++)
        if (s->list[i].constant == constant) return s->list[i].value;
    LLVMValueRef value = is_shared(constant) ? address_of(s, constant) : rebuild(s, constant);
    if (s->status != EIDER_OK) return constant;
    if (s->n == s->room) {
        size_t room = s->room ? 2 * s->room : 16;
        struct replaced *list = eider_mem_resize(s->allocator, s->list, room * sizeof *list);
        if (!list) {
            s->status = EIDER_OOM;
            return constant;
        }
        s->list = list;
        s->room = room;
    }
    s->list[s->n++] = (struct replaced){constant, value};
    return value;
}

static void replace_in_function(struct shared *s, LLVMValueRef f)
{
    LLVMValueRef first = LLVMGetFirstInstruction(LLVMGetEntryBasicBlock(f));
    s->n = 0;
    for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(f); b; b = LLVMGetNextBasicBlock(b)) {
        for (LLVMValueRef i = LLVMGetFirstInstruction(b); i; i = LLVMGetNextInstruction(i)) {
            for (int o = 0; o < LLVMGetNumOperands(i); o++) {
                LLVMValueRef operand = LLVMGetOperand(i, (unsigned)o);
                if (!operand || !mentions_shared(operand)) continue;
                LLVMPositionBuilderBefore(s->builder, first);
                LLVMSetOperand(i, (unsigned)o, replace(s, operand));
                if (s->status != EIDER_OK) return;
            }
        }
    }
}

static void refuse_initialisers(struct shared *s)
{
    for (LLVMValueRef g = LLVMGetFirstGlobal(s->module); g; g = LLVMGetNextGlobal(g)) {
        LLVMValueRef value = LLVMGetInitializer(g);
        if (!value || is_shared(g) || !mentions_shared(value)) continue;
        size_t length;
        s->status = eider_fail(EIDER_CODEGEN,
                               "the initial value of %.200s holds the address of a "
                               "shared variable, which differs between blocks",
                               LLVMGetValueName2(g, &length));
        return;
    }
}

/* What the host's linker cannot place would end the process that links it. */
static eider_status check_globals(LLVMModuleRef module)
{
    LLVMTargetDataRef layout = LLVMGetModuleDataLayout(module);
    uint64_t total = 0;
    for (LLVMValueRef g = LLVMGetFirstGlobal(module); g; g = LLVMGetNextGlobal(g)) {
        size_t length;
        const char *name = LLVMGetValueName2(g, &length);
        if (LLVMIsThreadLocal(g))
            return eider_fail(EIDER_CODEGEN,
                              "the variable %.200s is thread-local, which the CPU "
                              "backend does not place",
                              name);
        if (LLVMGetAlignment(g) > GLOBAL_ALIGN_MAX)
            return eider_fail(EIDER_TOO_LARGE,
                              "the variable %.200s is aligned to %u bytes; %u are "
                              "possible",
                              name, LLVMGetAlignment(g), GLOBAL_ALIGN_MAX);
        if (is_shared(g) || LLVMIsDeclaration(g)) continue;
        uint64_t bytes = LLVMABISizeOfType(layout, LLVMGlobalGetValueType(g));
        if (bytes > GLOBAL_BYTES_MAX || total + bytes > GLOBAL_BYTES_MAX)
            return eider_fail(EIDER_TOO_LARGE,
                              "with %.200s the module's variables have more than %llu bytes", name,
                              (unsigned long long)GLOBAL_BYTES_MAX);
        total += bytes;
    }
    return EIDER_OK;
}

/* Adds the constant `<entry><suffix>`. */
static eider_status add_constant(LLVMModuleRef module, const char *entry, const char *suffix,
                                 LLVMValueRef value)
{
    char name[NAME_BYTES];
    size_t length;
    snprintf(name, sizeof name, "%s%s", entry, suffix);
    LLVMValueRef global = LLVMAddGlobal(module, LLVMTypeOf(value), name);
    LLVMSetInitializer(global, value);
    LLVMSetGlobalConstant(global, 1);
    if (strcmp(LLVMGetValueName2(global, &length), name) == 0) return EIDER_OK;
    return eider_fail(EIDER_CODEGEN, "the module has a '%.200s' of its own", name);
}

static eider_status place_shared(const eider_allocator *a, LLVMModuleRef module, const char *entry)
{
    LLVMContextRef context = LLVMGetModuleContext(module);
    struct shared s = {
        .allocator = a,
        .module = module,
        .layout = LLVMGetModuleDataLayout(module),
        .builder = LLVMCreateBuilderInContext(context),
    };
    s.static_bytes = offset_of(&s, NULL);
    if (s.static_bytes > SHARED_BYTES_MAX)
        s.status =
            eider_fail(EIDER_TOO_LARGE, "the module's shared variables have more than %llu bytes",
                       (unsigned long long)SHARED_BYTES_MAX);
    if (s.status == EIDER_OK) refuse_initialisers(&s);
    for (LLVMValueRef f = LLVMGetFirstFunction(module); f; f = LLVMGetNextFunction(f))
        if (!LLVMIsDeclaration(f) && s.status == EIDER_OK) replace_in_function(&s, f);
    for (LLVMValueRef g = LLVMGetFirstGlobal(module); g; g = LLVMGetNextGlobal(g))
        if (is_shared(g) && !is_dynamic(g)) LLVMSetLinkage(g, LLVMInternalLinkage);
    LLVMDisposeBuilder(s.builder);
    eider_mem_free(a, s.list);
    EIDER_TRY(s.status);
    LLVMTypeRef i32 = LLVMInt32TypeInContext(context);
    return add_constant(module, entry, ".shared", LLVMConstInt(i32, s.static_bytes, 0));
}

/* ---- The entry of a thread -------------------------------------------------------------- */

static unsigned by_value_kind(void)
{
    static const char by_value[] = "byval";
    return LLVMGetEnumAttributeKindForName(by_value, sizeof by_value - 1);
}

/* The type of the value that parameter `i` takes; *is_by_value when it is handed over in
 * memory. */
static LLVMTypeRef param_type(LLVMValueRef kernel, unsigned i, int *is_by_value)
{
    LLVMAttributeRef attribute = LLVMGetEnumAttributeAtIndex(kernel, i + 1, by_value_kind());
    *is_by_value = attribute != NULL;
    return attribute ? LLVMGetTypeAttributeValue(attribute) : LLVMTypeOf(LLVMGetParam(kernel, i));
}

/* The argument for parameter `i`, whose value lies at `slot`. */
static LLVMValueRef load_argument(LLVMBuilderRef builder, LLVMValueRef kernel, unsigned i,
                                  LLVMValueRef slot)
{
    int is_by_value;
    LLVMTypeRef type = param_type(kernel, i, &is_by_value);
    if (!is_by_value) {
        LLVMValueRef load = LLVMBuildLoad2(builder, type, slot, "");
        LLVMSetAlignment(load, 1);
        return load;
    }
    LLVMValueRef copy = LLVMBuildAlloca(builder, type, "");
    LLVMSetAlignment(copy, 64); /* at least what a kernel's parameter may ask for in PTX */
    LLVMBuildMemCpy(builder, copy, 64, slot, 1, LLVMSizeOf(type));
    LLVMRemoveEnumAttributeAtIndex(kernel, i + 1, by_value_kind());
    return copy;
}

/* Writes what the kernel takes into the module. */
static eider_status describe_params(LLVMModuleRef module, LLVMValueRef kernel, const char *entry)
{
    LLVMTypeRef i32 = LLVMInt32TypeInContext(LLVMGetModuleContext(module));
    LLVMTargetDataRef layout = LLVMGetModuleDataLayout(module);
    LLVMValueRef words[1 + EIDER_ENTRY_PARAMS_MAX];
    unsigned n = LLVMCountParams(kernel);
    words[0] = LLVMConstInt(i32, n, 0);
    for (unsigned i = 0; i < EIDER_ENTRY_PARAMS_MAX; i++) {
        int is_by_value;
        LLVMTypeRef type = i < n ? param_type(kernel, i, &is_by_value) : NULL;
        if (type && !LLVMTypeIsSized(type))
            return eider_fail(EIDER_CODEGEN, "parameter %u of the kernel has a type without a size",
                              i);
        uint64_t bytes = type ? LLVMStoreSizeOfType(layout, type) : 0;
        words[1 + i] = LLVMConstInt(i32, bytes < UINT32_MAX ? bytes : UINT32_MAX, 0);
    }
    return add_constant(module, entry, ".params",
                        LLVMConstArray2(i32, words, 1 + EIDER_ENTRY_PARAMS_MAX));
}

static eider_status add_thread_entry(LLVMModuleRef module, LLVMValueRef kernel, const char *entry)
{
    LLVMContextRef context = LLVMGetModuleContext(module);
    LLVMTypeRef type = LLVMGlobalGetValueType(kernel);
    LLVMTypeRef pointer = LLVMPointerTypeInContext(context, 0);
    LLVMTypeRef nothing = LLVMVoidTypeInContext(context);
    LLVMTypeRef i32 = LLVMInt32TypeInContext(context);
    if (LLVMGetReturnType(type) != nothing || LLVMIsFunctionVarArg(type))
        return eider_fail(EIDER_CODEGEN, "the kernel returns a value or takes '...'");
    unsigned n = LLVMCountParams(kernel);
    if (n > EIDER_ENTRY_PARAMS_MAX)
        return eider_fail(EIDER_TOO_LARGE, "the kernel has %u parameters, at most %d are allowed",
                          n, EIDER_ENTRY_PARAMS_MAX);
    EIDER_TRY(describe_params(module, kernel, entry));

    char name[NAME_BYTES];
    size_t length;
    snprintf(name, sizeof name, "%s.thread", entry);
    LLVMValueRef f = LLVMAddFunction(module, name, LLVMFunctionType(nothing, &pointer, 1, 0));
    if (strcmp(LLVMGetValueName2(f, &length), name) != 0)
        return eider_fail(EIDER_CODEGEN, "the module has a '%.200s' of its own", name);
    LLVMBuilderRef builder = LLVMCreateBuilderInContext(context);
    LLVMPositionBuilderAtEnd(builder, LLVMAppendBasicBlockInContext(context, f, ""));
    LLVMValueRef args[EIDER_ENTRY_PARAMS_MAX];
    for (unsigned i = 0; i < n; i++) {
        LLVMValueRef index = LLVMConstInt(i32, i, 0);
        LLVMValueRef at = LLVMBuildGEP2(builder, pointer, LLVMGetParam(f, 0), &index, 1, "");
        LLVMValueRef slot = LLVMBuildLoad2(builder, pointer, at, "");
        args[i] = load_argument(builder, kernel, i, slot);
    }
    LLVMBuildCall2(builder, type, kernel, args, n, "");
    LLVMBuildRetVoid(builder);
    LLVMDisposeBuilder(builder);
    return EIDER_OK;
}

eider_status eider_foreign_lower(const eider_allocator *a, LLVMModuleRef module, const char *entry)
{
    size_t length = 0;
    if (strlen(entry) + sizeof ".thread" > NAME_BYTES)
        return eider_fail(EIDER_TOO_LARGE, "a kernel's name has more than %d bytes", NAME_BYTES);
    LLVMGetModuleInlineAsm(module, &length);
    if (length > 0)
        return eider_fail(EIDER_CODEGEN, "the module's inline assembly cannot run on the CPU");
    for (LLVMValueRef f = LLVMGetFirstFunction(module); f; f = LLVMGetNextFunction(f))
        EIDER_TRY(retarget_function(f));
    EIDER_TRY(eider_foreign_intrinsics(module));
    EIDER_TRY(check_globals(module));
    EIDER_TRY(place_shared(a, module, entry));
    return add_thread_entry(module, LLVMGetNamedFunction(module, entry), entry);
}
