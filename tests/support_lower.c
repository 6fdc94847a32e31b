/* support_lower.c -- see support_lower.h. */
#include "support_lower.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <llvm-c/Core.h>

#include "math_code.h"
#include "ops.h"
#include "pack.h"
#include "parse.h"
#include "passes.h"
#include "support_ll.h"

static const struct eider_cpu_hooks no_hooks;

/* ---- Plans ------------------------------------------------------------------ */

eider_status lowered_plan(const char *text, const char *types, eider_math math,
                          struct eider_lowered *out)
{
    eider_dtype dtypes[EIDER_OPERANDS_MAX] = {0};
    struct eider_graph *g;
    char name[16];
    int n = 0, length;
    for (; sscanf(types, "%15s%n", name, &length) == 1; types += length)
        EIDER_TRY(eider_dtype_parse(name, &dtypes[n++]));
    EIDER_TRY(eider_parse(&ll_allocator, text, &g));
    eider_status status = eider_lower_plan(g, dtypes, math, out);
    eider_graph_destroy(g);
    return status;
}

eider_status lowered_operation(enum eider_op op, uint32_t n_args, eider_dtype type, eider_math math,
                               struct eider_lowered *out)
{
    static const char *const names[] = {"a", "b", "c"};
    struct eider_graph *g;
    eider_node args[3];
    EIDER_TRY(eider_graph_create(&ll_allocator, &g));
    for (uint32_t i = 0; i < n_args; i++) args[i] = eider_graph_input(g, names[i], -1);
    eider_graph_output(g, "out", eider_graph_put(g, op, args, n_args, 0), -1);
    struct eider_lowered l = {.graph = g, .math = math};
    for (uint32_t i = 0; i < n_args; i++) l.dtypes[i] = type;
    int is_bool = eider_ops[op].rule == EIDER_RULE_BOOL;
    l.dtypes[n_args] = is_bool ? EIDER_BOOL : type;
    l.types = eider_mem_alloc(&ll_allocator, g->n_cells);
    eider_status status = g->status;
    if (status == EIDER_OK) status = eider_infer(g, l.dtypes, math == EIDER_MATH_EXACT, l.types);
    if (status != EIDER_OK)
        eider_lower_release(&l);
    else
        *out = l;
    return status;
}

/* ---- A kernel ------------------------------------------------------------------ */

static LLVMTypeRef memory_type(struct eider_emit *e, enum eider_vtype type)
{
    if (type == EIDER_V_BOOL) return eider_emit_pack(e, LLVMInt8TypeInContext(e->context));
    return eider_emit_type(e, type);
}

static LLVMValueRef element(struct eider_emit *e, uint32_t i, LLVMTypeRef type)
{
    LLVMValueRef at = e->machine->block_index(e);
    return LLVMBuildGEP2(e->builder, type, e->machine->param(e, i), &at, 1, "");
}

static LLVMValueRef load(struct eider_emit *e, uint32_t i, eider_dtype type)
{
    enum eider_vtype v = eider_vtype_of(type);
    LLVMTypeRef memory = memory_type(e, v);
    LLVMValueRef value = LLVMBuildLoad2(e->builder, memory, element(e, i, memory), "");
    LLVMSetAlignment(value,
                     1u << (v == EIDER_V_BOOL ? 0 : 3) >> (v == EIDER_V_F32 || v == EIDER_V_I32));
    if (v != EIDER_V_BOOL) return value;
    return LLVMBuildICmp(e->builder, LLVMIntNE, value, p_integer(memory, 0), "");
}

static void store(struct eider_emit *e, uint32_t i, eider_dtype type, LLVMValueRef value)
{
    enum eider_vtype v = eider_vtype_of(type);
    LLVMTypeRef memory = memory_type(e, v);
    if (v == EIDER_V_BOOL) value = LLVMBuildZExt(e->builder, value, memory, "");
    if (v == EIDER_V_F32 && eider_pack_vtype(value) == EIDER_V_F64)
        value = LLVMBuildFPTrunc(e->builder, value, memory, "");
    LLVMValueRef done = LLVMBuildStore(e->builder, value, element(e, i, memory));
    LLVMSetAlignment(done,
                     1u << (v == EIDER_V_BOOL ? 0 : 3) >> (v == EIDER_V_F32 || v == EIDER_V_I32));
}

static void fill(struct eider_emit *e, const struct eider_lowered *l)
{
    struct eider_kernel_param params[EIDER_OPERANDS_MAX];
    LLVMValueRef in[EIDER_OPERANDS_MAX] = {NULL}, out[EIDER_OPERANDS_MAX] = {NULL};
    const struct eider_graph *g = l->graph;
    for (uint32_t i = 0; i < g->n_operands; i++)
        params[i] = (struct eider_kernel_param){
            .name = g->operands[i].name,
            .type = LLVMPointerTypeInContext(e->context, 0),
            .is_read = g->operands[i].kind != EIDER_OUTPUT,
            .is_alone = 1,
            .align = 8,
        };
    e->machine->kernel_begin(e, "kernel", params, g->n_operands, 1);
    for (uint32_t i = 0; i < g->n_operands; i++)
        if (g->operands[i].kind != EIDER_OUTPUT) in[i] = load(e, i, l->dtypes[i]);
    eider_lower(e, l, in, out);
    for (uint32_t i = 0; i < g->n_operands && e->status == EIDER_OK; i++)
        if (g->operands[i].kind == EIDER_OUTPUT) store(e, i, l->dtypes[i], out[i]);
    e->machine->kernel_end(e);
}

/* ---- The GPU's instructions on the host ------------------------------------------- */

static const struct {
    const char *text;      /* how the instruction begins */
    const char *intrinsic; /* what computes it here, of as many operands ... */
    int is_inverse;        /* ... and one over that */
} host_forms[] = {
    {"tanh.approx", "tanhf", 0}, {"ex2.approx", "exp2f", 0},       {"lg2.approx", "log2f", 0},
    {"rcp.approx", "", 1},       {"rsqrt.approx", "llvm.sqrt", 1}, {"sqrt.approx", "llvm.sqrt", 0},
    {"sin.approx", "sinf", 0},   {"cos.approx", "cosf", 0},
};

static LLVMValueRef host_form(struct eider_emit *e, const char *text, LLVMValueRef call)
{
    LLVMValueRef v[2] = {LLVMGetOperand(call, 0), LLVMGetOperand(call, 1)};
    enum eider_vtype type = eider_pack_vtype(v[0]);
    if (strncmp(text, "llvm.maxnum", 11) == 0) return eider_math_cpu(e, EIDER_OP_fmax, type, v);
    if (strncmp(text, "llvm.minnum", 11) == 0) return eider_math_cpu(e, EIDER_OP_fmin, type, v);
    if (strncmp(text, "div.full", 8) == 0) return p_div(e, v[0], v[1]);
    if (strncmp(text, "copysign", 8) == 0) return p_binary(e, "llvm.copysign", v[0], v[1]);
    for (size_t i = 0; i < sizeof host_forms / sizeof *host_forms; i++) {
        const char *name = host_forms[i].intrinsic;
        if (strncmp(text, host_forms[i].text, strlen(host_forms[i].text)) != 0) continue;
        if (strncmp(name, "llvm.", 5) == 0) {
            v[0] = p_unary(e, name, v[0]);
        } else if (*name) {
            LLVMTypeRef f32 = LLVMTypeOf(v[0]), unary = LLVMFunctionType(f32, &f32, 1, 0);
            LLVMValueRef callee = LLVMGetNamedFunction(e->module, name);
            if (!callee) callee = LLVMAddFunction(e->module, name, unary);
            v[0] = LLVMBuildCall2(e->builder, unary, callee, v, 1, "");
        }
        return host_forms[i].is_inverse ? p_div(e, p_like(v[0], 1), v[0]) : v[0];
    }
    return NULL;
}

/* Name or text of what `call` calls. */
static const char *called(LLVMValueRef call)
{
    size_t length;
    LLVMValueRef callee = LLVMGetCalledValue(call);
    if (LLVMIsAInlineAsm(callee)) return LLVMGetInlineAsmAsmString(callee, &length);
    return LLVMGetValueName2(callee, &length);
}

/* Replaces what means something else, or nothing, here; 0 when an instruction is not known. */
static int replace_instructions(struct eider_emit *e)
{
    int ok = 1;
    LLVMValueRef next;
    LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(e->function);
    e->builder = LLVMCreateBuilderInContext(e->context);
    for (; b; b = LLVMGetNextBasicBlock(b))
        for (LLVMValueRef i = LLVMGetFirstInstruction(b); i; i = next) {
            next = LLVMGetNextInstruction(i);
            if (!LLVMIsACallInst(i)) continue;
            LLVMPositionBuilderBefore(e->builder, i);
            LLVMValueRef form = host_form(e, called(i), i);
            if (form) {
                LLVMReplaceAllUsesWith(i, form);
                LLVMInstructionEraseFromParent(i);
            } else if (LLVMIsAInlineAsm(LLVMGetCalledValue(i))) {
                ok = 0;
            }
        }
    LLVMDisposeBuilder(e->builder);
    return ok;
}

/* ---- Code ---------------------------------------------------------------------------- */

static eider_status emit(const struct eider_lowered *l, const struct lowered_options *options,
                         struct eider_codegen_result *out, int *width)
{
    struct eider_codegen_job job = {.entry = "kernel", .contract = options->contract};
    struct eider_machine mixed = eider_machine_cpu;
    struct eider_emit e = {.allocator = &ll_allocator,
                           .ftz = options->ftz,
                           .contract = options->contract,
                           .math = l->math};
    if (options->gpu_math) mixed.math = eider_math_nvptx;
    if (options->on_gpu) job.target = e.target = (struct eider_target){.sm = 80};
    e.machine = options->on_gpu ? &eider_machine_nvptx : &mixed;
    EIDER_TRY(eider_codegen_init());
    e.context = LLVMContextCreate();
    e.width = options->on_gpu || options->gpu_math ? 1 : options->width;
    if (!e.width) e.width = e.machine->width(&e);
    *width = e.width;
    fill(&e, l);
    eider_status status = e.status;
    if (status == EIDER_OK && options->gpu_math && !replace_instructions(&e))
        status = eider_fail(EIDER_UNSUPPORTED, "an instruction has no form on the host");
    if (status == EIDER_OK)
        status = eider_codegen_emit(&ll_allocator, e.module, &job, out);
    else
        LLVMDisposeModule(e.module);
    LLVMContextDispose(e.context);
    return status;
}

eider_status lowered_build(const struct eider_lowered *l, const struct lowered_options *options,
                           struct lowered_code *out)
{
    struct eider_codegen_result result = {0};
    void *entry;
    EIDER_TRY(emit(l, options, &result, &out->width));
    eider_status status = eider_cpu_image_create(&ll_allocator, &result.code, "kernel", 0,
                                                 &no_hooks, &out->image, &entry);
    eider_blob_release(&ll_allocator, &result.code);
    if (status == EIDER_OK) memcpy(&out->run, &entry, sizeof entry);
    return status;
}

void lowered_run(const struct lowered_code *code, void *const *arrays, size_t n)
{
    void *params[EIDER_OPERANDS_MAX];
    for (size_t i = 0; i < EIDER_OPERANDS_MAX && arrays[i]; i++) params[i] = (void *)&arrays[i];
    code->run(params, 0, n / (size_t)code->width);
}

void lowered_release(struct lowered_code *code)
{
    eider_cpu_image_release(code->image);
}

eider_status lowered_ptx(const struct eider_lowered *l, const struct lowered_options *options,
                         struct eider_blob *out)
{
    struct lowered_options gpu = *options;
    struct eider_codegen_result result = {0};
    int width;
    gpu.on_gpu = 1;
    EIDER_TRY(emit(l, &gpu, &result, &width));
    *out = result.code;
    return EIDER_OK;
}

double lowered_ulps(double got, long double want, int is_double)
{
    double rounded = is_double ? (double)want : (double)(float)want;
    if (isnan(rounded) || isnan(got)) return isnan(rounded) && isnan(got) ? 0 : HUGE_VAL;
    if (isinf(rounded) || isinf(got)) return rounded == got ? 0 : HUGE_VAL;
    if (want == 0 && got == 0) return !signbit(want) == !signbit(got) ? 0 : HUGE_VAL;
    int exponent;
    frexp(rounded, &exponent);
    int least = is_double ? -1074 : -149, bits = is_double ? 53 : 24;
    int unit = rounded == 0 || exponent - bits < least ? least : exponent - bits;
    return (double)(fabsl(got - want) / ldexpl(1, unit));
}

int lowered_count(const char *text, const char *word)
{
    int n = 0;
    for (; (text = strstr(text, word)); text += strlen(word)) n++;
    return n;
}
