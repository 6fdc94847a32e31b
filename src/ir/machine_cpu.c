/* machine_cpu.c -- the machine of the host processor.
 *
 * A pack is one native vector.  A kernel is one function that runs a range of blocks
 * (block style, see cpu_abi.h): loops over blocks and over the threads of a block around
 * the template's code.
 * Invariant: calls no library function for conversions: f16 uses F16C where the host has
 * it, everything else is integer arithmetic (LLVM's fptrunc to bfloat would call
 * __truncsfbf2, which no libgcc of Debian 12 has).
 * Not here: mathematical functions (see the math member), threads.
 */
#include "convert.h"
#include "math_code.h"

#include <llvm-c/DebugInfo.h>
#include <llvm-c/TargetMachine.h>
#include <string.h>

#define MXCSR_FLUSH 0x8040 /* FTZ and DAZ of the x86 control register */

/* Between kernel_begin and kernel_end. */
struct cpu_state {
    LLVMValueRef block, thread; /* loop counters; thread is NULL for one thread */
    LLVMValueRef control;       /* saved MXCSR, or NULL */
    LLVMBasicBlockRef block_loop, thread_loop, leave; /* NULL where threads are fibers */
    LLVMValueRef last;
    int has_f16c, has_streamed;
    LLVMValueRef params[];
};

/* Whether the host has a feature: "+avx2" as LLVM lists it. */
static int host_has(const char *feature)
{
    char *list = LLVMGetHostCPUFeatures();
    size_t length = strlen(feature);
    int found = 0;
    for (const char *at = list; at && !found; at = strchr(at, ',')) {
        if (*at == ',') at++;
        found = strncmp(at, feature, length) == 0 && (at[length] == ',' || !at[length]);
    }
    LLVMDisposeMessage(list);
    return found;
}

static int cpu_width(const struct eider_emit *e)
{
    (void)e;
    return host_has("+avx512f") ? 16 : host_has("+avx2") ? 8 : 4;
}

static LLVMTypeRef int_type(struct eider_emit *e, unsigned bits)
{
    return LLVMIntTypeInContext(e->context, bits);
}

static LLVMBasicBlockRef new_block(struct eider_emit *e, const char *name)
{
    return LLVMAppendBasicBlockInContext(e->context, e->function, name);
}

/* ---- The kernel ---------------------------------------------------------- */

static int is_x86(struct eider_emit *e)
{
    return strncmp(LLVMGetTarget(e->module), "x86_64", 6) == 0;
}

/* Sets the flush bits of MXCSR; the old value is restored where the kernel ends. */
static void flush_subnormals(struct eider_emit *e, struct cpu_state *s)
{
    LLVMTypeRef i32 = int_type(e, 32);
    if (!is_x86(e)) return;
    LLVMValueRef now = LLVMBuildAlloca(e->builder, i32, "");
    s->control = LLVMBuildAlloca(e->builder, i32, "");
    eider_emit_intrinsic(e, "llvm.x86.sse.stmxcsr", NULL, 0, &s->control, 1);
    LLVMValueRef value = LLVMBuildLoad2(e->builder, i32, s->control, "");
    value = LLVMBuildOr(e->builder, value, LLVMConstInt(i32, MXCSR_FLUSH, 0), "");
    LLVMBuildStore(e->builder, value, now);
    eider_emit_intrinsic(e, "llvm.x86.sse.ldmxcsr", NULL, 0, &now, 1);
}

/* Loads the parameters' values; params[i] points to parameter i. */
static void load_params(struct eider_emit *e, struct cpu_state *s,
                        const struct eider_kernel_param *params, uint32_t n_params)
{
    LLVMTypeRef ptr = LLVMPointerTypeInContext(e->context, 0);
    for (uint32_t i = 0; i < n_params; i++) {
        LLVMValueRef at = LLVMConstInt(int_type(e, 32), i, 0);
        LLVMValueRef slot =
            LLVMBuildInBoundsGEP2(e->builder, ptr, LLVMGetParam(e->function, 0), &at, 1, "");
        slot = LLVMBuildLoad2(e->builder, ptr, slot, "");
        s->params[i] = LLVMBuildLoad2(e->builder, params[i].type, slot, params[i].name);
        LLVMSetAlignment(s->params[i], 1);
    }
}

/* Opens a loop from `first` that kernel_end closes. */
static LLVMValueRef open_loop(struct eider_emit *e, const char *name, LLVMValueRef first,
                              LLVMBasicBlockRef *loop)
{
    LLVMBasicBlockRef before = LLVMGetInsertBlock(e->builder);
    *loop = new_block(e, name);
    LLVMBuildBr(e->builder, *loop);
    LLVMPositionBuilderAtEnd(e->builder, *loop);
    LLVMValueRef counter = LLVMBuildPhi(e->builder, LLVMTypeOf(first), "");
    LLVMAddIncoming(counter, &first, &before, 1);
    return counter;
}

/* Closes it: continues with `counter` + 1 below `end`, else the builder goes on after. */
static void close_loop(struct eider_emit *e, LLVMValueRef counter, LLVMValueRef end,
                       LLVMBasicBlockRef loop)
{
    LLVMValueRef one = LLVMConstInt(LLVMTypeOf(counter), 1, 0);
    LLVMValueRef next = LLVMBuildNUWAdd(e->builder, counter, one, "");
    LLVMBasicBlockRef here = LLVMGetInsertBlock(e->builder), after = new_block(e, "after");
    LLVMAddIncoming(counter, &next, &here, 1);
    LLVMValueRef more = LLVMBuildICmp(e->builder, LLVMIntULT, next, end, "");
    eider_emit_keep_loop(e, LLVMBuildCondBr(e->builder, more, loop, after));
    LLVMPositionBuilderAtEnd(e->builder, after);
}

static void declare(struct eider_emit *e, const char *name, LLVMTypeRef type)
{
    char *triple = LLVMGetDefaultTargetTriple();
    e->module = LLVMModuleCreateWithNameInContext(name, e->context);
    e->builder = LLVMCreateBuilderInContext(e->context);
    LLVMSetTarget(e->module, triple);
    LLVMDisposeMessage(triple);
    e->function = LLVMAddFunction(e->module, name, type);
    unsigned kind = LLVMGetEnumAttributeKindForName("nounwind", strlen("nounwind"));
    LLVMAddAttributeAtIndex(e->function, (LLVMAttributeIndex)LLVMAttributeFunctionIndex,
                            LLVMCreateEnumAttribute(e->context, kind, 0));
}

static void declare_entry(struct eider_emit *e, const char *name)
{
    LLVMTypeRef i64 = int_type(e, 64);
    LLVMTypeRef types[3] = {LLVMPointerTypeInContext(e->context, 0), i64, i64};
    declare(e, name, LLVMFunctionType(LLVMVoidTypeInContext(e->context), types, 3, 0));
}

/* A range of blocks. */
static void begin_blocks(struct eider_emit *e, struct cpu_state *s, const char *name,
                         const struct eider_kernel_param *params, uint32_t n_params)
{
    declare_entry(e, name);
    LLVMBasicBlockRef entry = new_block(e, "entry"), begin = new_block(e, "begin");
    s->leave = new_block(e, "leave");
    LLVMPositionBuilderAtEnd(e->builder, entry);
    LLVMValueRef first = LLVMGetParam(e->function, 1);
    s->last = LLVMGetParam(e->function, 2);
    LLVMValueRef any = LLVMBuildICmp(e->builder, LLVMIntULT, first, s->last, "");
    LLVMBuildCondBr(e->builder, any, begin, s->leave);
    LLVMPositionBuilderAtEnd(e->builder, begin);
    if (e->ftz) flush_subnormals(e, s);
    load_params(e, s, params, n_params);
    s->block = open_loop(e, "block", first, &s->block_loop);
    if (e->block_threads > 1)
        s->thread = open_loop(e, "thread", LLVMConstInt(int_type(e, 32), 0, 0), &s->thread_loop);
}

static LLVMValueRef special_register(struct eider_emit *e, const char *name)
{
    return eider_emit_intrinsic(e, name, NULL, 0, NULL, 0);
}

/* One thread, as on a GPU. */
static void begin_thread(struct eider_emit *e, struct cpu_state *s, const char *name,
                         const struct eider_kernel_param *params, uint32_t n_params)
{
    LLVMTypeRef *types = eider_mem_alloc(e->allocator, n_params * sizeof *types);
    if (!types) {
        e->status = EIDER_OOM;
        return;
    }
    for (uint32_t i = 0; i < n_params; i++) types[i] = params[i].type;
    LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(e->context), types, n_params, 0);
    eider_mem_free(e->allocator, types);
    declare(e, name, type);
    LLVMPositionBuilderAtEnd(e->builder, new_block(e, "entry"));
    if (e->ftz) flush_subnormals(e, s);
    for (uint32_t i = 0; i < n_params; i++) s->params[i] = LLVMGetParam(e->function, i);
    s->thread = special_register(e, "llvm.nvvm.read.ptx.sreg.tid.x");
    s->block = LLVMBuildZExt(e->builder, special_register(e, "llvm.nvvm.read.ptx.sreg.ctaid.x"),
                             int_type(e, 64), "");
}

static void cpu_kernel_begin(struct eider_emit *e, const char *name,
                             const struct eider_kernel_param *params, uint32_t n_params,
                             uint32_t block_threads)
{
    struct cpu_state *s = eider_mem_zero(e->allocator, sizeof *s + n_params * sizeof s->params[0]);
    e->block_threads = block_threads;
    e->state = s;
    if (!s) {
        e->status = EIDER_OOM;
        return;
    }
    s->has_f16c = host_has("+f16c");
    if (e->waits && block_threads > 1)
        begin_thread(e, s, name, params, n_params);
    else
        begin_blocks(e, s, name, params, n_params);
}

static void cpu_kernel_end(struct eider_emit *e)
{
    struct cpu_state *s = e->state;
    if (e->status == EIDER_OK) {
        LLVMValueRef threads = LLVMConstInt(int_type(e, 32), e->block_threads, 0);
        if (s->thread_loop) close_loop(e, s->thread, threads, s->thread_loop);
        if (s->block_loop) close_loop(e, s->block, s->last, s->block_loop);
        if (s->control) eider_emit_intrinsic(e, "llvm.x86.sse.ldmxcsr", NULL, 0, &s->control, 1);
        if (s->leave) {
            LLVMBuildBr(e->builder, s->leave);
            LLVMPositionBuilderAtEnd(e->builder, s->leave);
        }
        LLVMBuildRetVoid(e->builder);
    }
    if (e->builder) LLVMDisposeBuilder(e->builder);
    eider_mem_free(e->allocator, s);
    e->builder = NULL;
    e->state = NULL;
}

static LLVMValueRef cpu_param(struct eider_emit *e, uint32_t i)
{
    struct cpu_state *s = e->state;
    return s->params[i];
}

static LLVMValueRef cpu_thread_index(struct eider_emit *e)
{
    struct cpu_state *s = e->state;
    return s->thread ? s->thread : LLVMConstInt(int_type(e, 32), 0, 0);
}

static LLVMValueRef cpu_block_index(struct eider_emit *e)
{
    struct cpu_state *s = e->state;
    return s->block;
}

static void cpu_barrier(struct eider_emit *e)
{
    if (e->block_threads > 1) eider_emit_intrinsic(e, "llvm.nvvm.barrier0", NULL, 0, NULL, 0);
}

/* ---- Storage packs and compute packs ------------------------------------- */

static LLVMTypeRef bits_type(struct eider_emit *e, eider_dtype type)
{
    return eider_emit_pack(e, int_type(e, 8 * (unsigned)eider_dtype_size(type)));
}

static int is_f64(LLVMValueRef value)
{
    LLVMTypeRef type = LLVMTypeOf(value);
    if (LLVMGetTypeKind(type) == LLVMVectorTypeKind) type = LLVMGetElementType(type);
    return LLVMGetTypeKind(type) == LLVMDoubleTypeKind;
}

static LLVMValueRef widen(struct eider_emit *e, eider_dtype type, LLVMValueRef bits)
{
    struct cpu_state *s = e->state;
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef f32 = eider_emit_type(e, EIDER_V_F32);
    switch (type) {
    case EIDER_F32:
        return LLVMBuildBitCast(b, bits, f32, "");
    case EIDER_F64:
        return LLVMBuildBitCast(b, bits, eider_emit_type(e, EIDER_V_F64), "");
    case EIDER_I32:
    case EIDER_I64:
        return bits;
    case EIDER_BOOL:
        return LLVMBuildICmp(b, LLVMIntNE, bits, LLVMConstNull(LLVMTypeOf(bits)), "");
    case EIDER_F16:
        if (s->has_f16c) {
            LLVMTypeRef half = eider_emit_pack(e, LLVMHalfTypeInContext(e->context));
            return LLVMBuildFPExt(b, LLVMBuildBitCast(b, bits, half, ""), f32, "");
        }
        break;
    default:
        break;
    }
    bits = LLVMBuildZExt(b, bits, eider_emit_type(e, EIDER_V_I32), "");
    return eider_convert_widen(e, type, bits);
}

static LLVMValueRef narrow(struct eider_emit *e, eider_dtype type, int saturate, LLVMValueRef v)
{
    struct cpu_state *s = e->state;
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef bits = bits_type(e, type);
    switch (type) {
    case EIDER_F32:
        if (is_f64(v)) v = LLVMBuildFPTrunc(b, v, eider_emit_type(e, EIDER_V_F32), "");
        return LLVMBuildBitCast(b, v, bits, "");
    case EIDER_F64:
        if (!is_f64(v)) v = LLVMBuildFPExt(b, v, eider_emit_type(e, EIDER_V_F64), "");
        return LLVMBuildBitCast(b, v, bits, "");
    case EIDER_I32:
    case EIDER_I64:
        return v;
    case EIDER_BOOL:
        return LLVMBuildZExt(b, v, bits, "");
    default:
        break;
    }
    if (is_f64(v)) v = eider_convert_odd(e, v);
    if (type == EIDER_F16 && s->has_f16c) {
        LLVMTypeRef half = eider_emit_pack(e, LLVMHalfTypeInContext(e->context));
        return LLVMBuildBitCast(b, LLVMBuildFPTrunc(b, v, half, ""), bits, "");
    }
    return LLVMBuildTrunc(b, eider_convert_narrow(e, type, saturate, v), bits, "");
}

/* ---- Memory -------------------------------------------------------------- */

static LLVMValueRef offset(struct eider_emit *e, LLVMValueRef ptr, int bytes)
{
    LLVMValueRef at = LLVMConstInt(int_type(e, 32), (unsigned)bytes, 0);
    return LLVMBuildInBoundsGEP2(e->builder, int_type(e, 8), ptr, &at, 1, "");
}

static int cpu_fetch(struct eider_emit *e, eider_dtype type, LLVMValueRef ptr, int n,
                     enum eider_load_policy policy, int read_only, LLVMValueRef *words)
{
    int size = (int)eider_dtype_size(type);
    (void)policy;
    (void)read_only;
    for (int i = 0; i < n; i += e->width) {
        LLVMValueRef bits =
            LLVMBuildLoad2(e->builder, bits_type(e, type), offset(e, ptr, i * size), "");
        LLVMSetAlignment(bits, (unsigned)size);
        words[i / e->width] = bits;
    }
    return n / e->width;
}

static int cpu_fetch_each(struct eider_emit *e, eider_dtype type, const LLVMValueRef *ptrs, int n,
                          LLVMValueRef *words)
{
    LLVMTypeRef one = int_type(e, 8 * (unsigned)eider_dtype_size(type));
    for (int i = 0; i < n; i++) {
        int at = i / e->width;
        LLVMValueRef lane = LLVMConstInt(int_type(e, 32), (unsigned)(i % e->width), 0);
        LLVMValueRef value = LLVMBuildLoad2(e->builder, one, ptrs[i], "");
        LLVMSetAlignment(value, (unsigned)eider_dtype_size(type));
        if (i % e->width == 0) words[at] = LLVMGetUndef(bits_type(e, type));
        words[at] =
            e->width == 1 ? value : LLVMBuildInsertElement(e->builder, words[at], value, lane, "");
    }
    return n / e->width;
}

static void cpu_unpack(struct eider_emit *e, eider_dtype type, int n, const LLVMValueRef *words,
                       LLVMValueRef *out)
{
    for (int i = 0; i < n / e->width; i++) out[i] = widen(e, type, words[i]);
}

static void cpu_put(struct eider_emit *e, eider_dtype type, LLVMValueRef ptr, int n,
                    const LLVMValueRef *words)
{
    int size = (int)eider_dtype_size(type);
    for (int i = 0; i < n; i += e->width) {
        LLVMValueRef store =
            LLVMBuildStore(e->builder, words[i / e->width], offset(e, ptr, i * size));
        LLVMSetAlignment(store, (unsigned)size);
    }
}

static void cpu_load(struct eider_emit *e, eider_dtype type, LLVMValueRef ptr, int n,
                     enum eider_load_policy policy, int read_only, LLVMValueRef *out)
{
    LLVMValueRef words[EIDER_VECTOR_MAX];
    cpu_fetch(e, type, ptr, n, policy, read_only, words);
    cpu_unpack(e, type, n, words, out);
}

/* Past the caches, which then need not read the line first. */
static void mark_streaming(struct eider_emit *e, LLVMValueRef store)
{
    LLVMMetadataRef one = LLVMValueAsMetadata(LLVMConstInt(int_type(e, 32), 1, 0));
    LLVMMetadataRef node = LLVMMDNodeInContext2(e->context, &one, 1);
    unsigned kind = LLVMGetMDKindIDInContext(e->context, "nontemporal", 11);
    LLVMSetMetadata(store, kind, LLVMMetadataAsValue(e->context, node));
}

static void cpu_store(struct eider_emit *e, eider_dtype type, LLVMValueRef ptr, int n,
                      enum eider_store_policy policy, int saturate, const LLVMValueRef *in)
{
    struct cpu_state *s = e->state;
    int size = (int)eider_dtype_size(type), align = size;
    int streams = policy == EIDER_STORE_CS || policy == EIDER_STORE_FIRST;
    if (streams)
        align = size * e->width < EIDER_STREAM_ALIGN ? size * e->width : EIDER_STREAM_ALIGN;
    s->has_streamed |= streams;
    for (int i = 0; i < n; i += e->width) {
        LLVMValueRef bits = narrow(e, type, saturate, in[i / e->width]);
        LLVMValueRef store = LLVMBuildStore(e->builder, bits, offset(e, ptr, i * size));
        LLVMSetAlignment(store, (unsigned)align);
        if (streams) mark_streaming(e, store);
    }
}

static LLVMValueRef cpu_load_each(struct eider_emit *e, eider_dtype type, const LLVMValueRef *ptrs)
{
    LLVMValueRef bits;
    cpu_fetch_each(e, type, ptrs, e->width, &bits);
    return widen(e, type, bits);
}

static void cpu_store_each(struct eider_emit *e, eider_dtype type, const LLVMValueRef *ptrs,
                           int saturate, LLVMValueRef value)
{
    LLVMValueRef bits = narrow(e, type, saturate, value);
    for (int i = 0; i < e->width; i++) {
        LLVMValueRef lane = LLVMConstInt(int_type(e, 32), (unsigned)i, 0);
        LLVMValueRef one =
            e->width == 1 ? bits : LLVMBuildExtractElement(e->builder, bits, lane, "");
        LLVMValueRef store = LLVMBuildStore(e->builder, one, ptrs[i]);
        LLVMSetAlignment(store, (unsigned)eider_dtype_size(type));
    }
}

static LLVMValueRef cpu_splat(struct eider_emit *e, eider_dtype type, LLVMValueRef scalar)
{
    LLVMTypeRef one = int_type(e, 8 * (unsigned)eider_dtype_size(type));
    LLVMValueRef bits = LLVMBuildBitCast(e->builder, scalar, one, "");
    if (e->width == 1) return widen(e, type, bits);
    LLVMTypeRef pack = bits_type(e, type), i32 = int_type(e, 32);
    LLVMValueRef zero = LLVMConstInt(i32, 0, 0);
    LLVMValueRef first = LLVMBuildInsertElement(e->builder, LLVMGetUndef(pack), bits, zero, "");
    LLVMValueRef lanes = LLVMConstNull(eider_emit_pack(e, i32));
    return widen(e, type, LLVMBuildShuffleVector(e->builder, first, LLVMGetUndef(pack), lanes, ""));
}

static LLVMValueRef cpu_round(struct eider_emit *e, eider_dtype type, int saturate, LLVMValueRef v)
{
    LLVMTypeRef own = LLVMTypeOf(v);
    LLVMValueRef rounded = widen(e, type, narrow(e, type, saturate, v));
    return LLVMTypeOf(rounded) == own ? rounded : LLVMBuildFPCast(e->builder, rounded, own, "");
}

const struct eider_machine eider_machine_cpu = {
    .name = "cpu",
    .streams_aligned = 1,
    .width = cpu_width,
    .kernel_begin = cpu_kernel_begin,
    .kernel_end = cpu_kernel_end,
    .param = cpu_param,
    .thread_index = cpu_thread_index,
    .block_index = cpu_block_index,
    .load = cpu_load,
    .fetch = cpu_fetch,
    .fetch_each = cpu_fetch_each,
    .unpack = cpu_unpack,
    .put = cpu_put,
    .store = cpu_store,
    .load_each = cpu_load_each,
    .store_each = cpu_store_each,
    .splat = cpu_splat,
    .round = cpu_round,
    .math = eider_math_cpu,
    .barrier = cpu_barrier,
};
