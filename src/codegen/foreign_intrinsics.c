/* foreign_intrinsics.c -- each NVVM intrinsic becomes a function of the same type.
 *
 * Invariant: a row of the table says how one intrinsic is computed on the CPU; an
 * intrinsic without a row is an error that names it.
 */
#include "foreign_intrinsics.h"

#include <llvm-c/Core.h>
#include <stdio.h>
#include <string.h>

#include "cpu_abi.h"

struct rewrite {
    LLVMModuleRef module;
    LLVMContextRef context;
    LLVMBuilderRef builder;
    LLVMTypeRef i32, nothing;
    LLVMValueRef function; /* being given a body */
};

/* Builds the value that the function returns; NULL for void. */
typedef LLVMValueRef (*body_fn)(struct rewrite *r, int detail, const char *name);

/* ---- Hooks ---------------------------------------------------------------------- */

static void add_attribute(LLVMContextRef context, LLVMValueRef f, const char *name)
{
    unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
    LLVMAddAttributeAtIndex(f, (LLVMAttributeIndex)LLVMAttributeFunctionIndex,
                            LLVMCreateEnumAttribute(context, kind, 0));
}

LLVMValueRef eider_foreign_hook(LLVMModuleRef module, const char *name, LLVMTypeRef type,
                                int is_constant)
{
    LLVMValueRef f = LLVMGetNamedFunction(module, name);
    if (f) return f;
    LLVMContextRef context = LLVMGetModuleContext(module);
    f = LLVMAddFunction(module, name, type);
    add_attribute(context, f, "nounwind");
    if (is_constant) {
        add_attribute(context, f, "memory"); /* none: the same for a thread's whole life */
        add_attribute(context, f, "willreturn");
    } else {
        add_attribute(context, f, "convergent");
    }
    return f;
}

static LLVMValueRef call_hook(struct rewrite *r, const char *name, LLVMTypeRef result,
                              LLVMValueRef *args, unsigned n, int is_constant)
{
    LLVMTypeRef types[5];
    for (unsigned i = 0; i < n; i++) types[i] = r->i32;
    LLVMTypeRef type = LLVMFunctionType(result, types, n, 0);
    LLVMValueRef f = eider_foreign_hook(r->module, name, type, is_constant);
    return LLVMBuildCall2(r->builder, type, f, args, n, "");
}

static LLVMValueRef number(struct rewrite *r, int value)
{
    return LLVMConstInt(r->i32, (unsigned)value, 0);
}

static LLVMValueRef param(struct rewrite *r, unsigned i)
{
    return LLVMGetParam(r->function, i);
}

static LLVMValueRef body_sreg(struct rewrite *r, int detail, const char *name)
{
    (void)name;
    LLVMValueRef which = number(r, detail);
    return call_hook(r, "eider_cpu_sreg", r->i32, &which, 1, 1);
}

static LLVMValueRef body_barrier(struct rewrite *r, int detail, const char *name)
{
    (void)detail, (void)name;
    call_hook(r, "eider_cpu_barrier", r->nothing, NULL, 0, 0);
    return NULL;
}

static LLVMValueRef body_warp_barrier(struct rewrite *r, int detail, const char *name)
{
    (void)detail, (void)name;
    LLVMValueRef mask = param(r, 0);
    call_hook(r, "eider_cpu_warp_barrier", r->nothing, &mask, 1, 0);
    return NULL;
}

static LLVMValueRef body_cluster_arrive(struct rewrite *r, int detail, const char *name)
{
    (void)detail, (void)name;
    call_hook(r, "eider_cpu_cluster_arrive", r->nothing, NULL, 0, 0);
    return NULL;
}

static LLVMValueRef body_cluster_wait(struct rewrite *r, int detail, const char *name)
{
    (void)detail, (void)name;
    call_hook(r, "eider_cpu_cluster_wait", r->nothing, NULL, 0, 0);
    return NULL;
}

/* (pointer, rank) */
static LLVMValueRef body_peer(struct rewrite *r, int detail, const char *name)
{
    LLVMValueRef args[] = {param(r, 0), param(r, 1)};
    LLVMTypeRef types[] = {LLVMTypeOf(args[0]), r->i32};
    LLVMTypeRef type = LLVMFunctionType(types[0], types, 2, 0);
    LLVMValueRef f = eider_foreign_hook(r->module, "eider_cpu_peer", type, 1);
    (void)detail, (void)name;
    return LLVMBuildCall2(r->builder, type, f, args, 2, "");
}

/* (mask, value, lane, clamp), the value an i32 or a float. */
static LLVMValueRef body_shuffle(struct rewrite *r, int detail, const char *name)
{
    (void)name;
    LLVMValueRef value = LLVMBuildBitCast(r->builder, param(r, 1), r->i32, "");
    LLVMValueRef args[] = {number(r, detail), param(r, 0), value, param(r, 2), param(r, 3)};
    LLVMValueRef got = call_hook(r, "eider_cpu_shuffle", r->i32, args, 5, 0);
    return LLVMBuildBitCast(r->builder, got, LLVMTypeOf(param(r, 1)), "");
}

static LLVMValueRef ballot(struct rewrite *r, LLVMValueRef predicate)
{
    LLVMValueRef args[] = {param(r, 0), LLVMBuildZExt(r->builder, predicate, r->i32, "")};
    return call_hook(r, "eider_cpu_ballot", r->i32, args, 2, 0);
}

static LLVMValueRef body_ballot(struct rewrite *r, int detail, const char *name)
{
    (void)detail, (void)name;
    return ballot(r, param(r, 1));
}

static LLVMValueRef body_any(struct rewrite *r, int detail, const char *name)
{
    (void)detail, (void)name;
    return LLVMBuildICmp(r->builder, LLVMIntNE, ballot(r, param(r, 1)), number(r, 0), "");
}

static LLVMValueRef body_all(struct rewrite *r, int detail, const char *name)
{
    (void)detail, (void)name;
    LLVMValueRef against = ballot(r, LLVMBuildNot(r->builder, param(r, 1), ""));
    return LLVMBuildICmp(r->builder, LLVMIntEQ, against, number(r, 0), "");
}

static LLVMValueRef body_fence(struct rewrite *r, int detail, const char *name)
{
    (void)detail, (void)name;
    LLVMBuildFence(r->builder, LLVMAtomicOrderingSequentiallyConsistent, 0, "");
    return NULL;
}

/* ---- Arithmetic ------------------------------------------------------------------- */

static LLVMValueRef call_math(struct rewrite *r, const char *name, LLVMValueRef *args, unsigned n)
{
    LLVMTypeRef type = LLVMTypeOf(args[0]);
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    LLVMValueRef f = LLVMGetIntrinsicDeclaration(r->module, id, &type, 1);
    return LLVMBuildCall2(r->builder, LLVMIntrinsicGetType(r->context, id, &type, 1), f, args, n,
                          "");
}

static LLVMValueRef body_math(struct rewrite *r, int detail, const char *name)
{
    LLVMValueRef args[3];
    for (int i = 0; i < detail; i++) args[i] = param(r, (unsigned)i);
    return call_math(r, name, args, (unsigned)detail);
}

/* 1 / x, or 1 / sqrt(x) when `name` is that of the square root. */
static LLVMValueRef body_reciprocal(struct rewrite *r, int detail, const char *name)
{
    (void)detail;
    LLVMValueRef x = param(r, 0);
    if (name) x = call_math(r, name, &x, 1);
    return LLVMBuildFDiv(r->builder, LLVMConstReal(LLVMTypeOf(x), 1), x, "");
}

static LLVMValueRef body_binary(struct rewrite *r, int detail, const char *name)
{
    (void)name;
    return LLVMBuildBinOp(r->builder, (LLVMOpcode)detail, param(r, 0), param(r, 1), "");
}

/* (pointer, alignment) */
static LLVMValueRef body_load(struct rewrite *r, int detail, const char *name)
{
    (void)detail, (void)name;
    LLVMTypeRef type = LLVMGetReturnType(LLVMGlobalGetValueType(r->function));
    LLVMValueRef load = LLVMBuildLoad2(r->builder, type, param(r, 0), "");
    LLVMSetAlignment(load, 1);
    return load;
}

/* ---- The table ---------------------------------------------------------------------- */

#define SREG(name, which)                                          \
    {                                                              \
        "read.ptx.sreg." name, body_sreg, EIDER_SREG_##which, NULL \
    }

/* A '*' at the end stands for any ending. */
static const struct intrinsic_row {
    const char *name; /* behind "llvm.nvvm." */
    body_fn body;
    int detail;
    const char *math;
} intrinsic_table[] = {
    SREG("tid.x", TID_X),
    SREG("tid.y", TID_Y),
    SREG("tid.z", TID_Z),
    SREG("ntid.x", NTID_X),
    SREG("ntid.y", NTID_Y),
    SREG("ntid.z", NTID_Z),
    SREG("ctaid.x", CTAID_X),
    SREG("ctaid.y", CTAID_Y),
    SREG("ctaid.z", CTAID_Z),
    SREG("nctaid.x", NCTAID_X),
    SREG("nctaid.y", NCTAID_Y),
    SREG("nctaid.z", NCTAID_Z),
    SREG("laneid", LANEID),
    SREG("warpsize", WARPSIZE),
    SREG("cluster.ctarank", CLUSTER_RANK),
    SREG("cluster.nctarank", CLUSTER_SIZE),
    {"barrier0", body_barrier, 0, NULL},
    {"bar.warp.sync", body_warp_barrier, 0, NULL},
    {"barrier.cluster.arrive*", body_cluster_arrive, 0, NULL},
    {"barrier.cluster.wait*", body_cluster_wait, 0, NULL},
    {"mapa", body_peer, 0, NULL},
    {"shfl.sync.idx.i32", body_shuffle, 0, NULL},
    {"shfl.sync.idx.f32", body_shuffle, 0, NULL},
    {"shfl.sync.up.i32", body_shuffle, 1, NULL},
    {"shfl.sync.up.f32", body_shuffle, 1, NULL},
    {"shfl.sync.down.i32", body_shuffle, 2, NULL},
    {"shfl.sync.down.f32", body_shuffle, 2, NULL},
    {"shfl.sync.bfly.i32", body_shuffle, 3, NULL},
    {"shfl.sync.bfly.f32", body_shuffle, 3, NULL},
    {"vote.ballot.sync", body_ballot, 0, NULL},
    {"vote.any.sync", body_any, 0, NULL},
    {"vote.all.sync", body_all, 0, NULL},
    {"membar.cta", body_fence, 0, NULL},
    {"membar.gl", body_fence, 0, NULL},
    {"membar.sys", body_fence, 0, NULL},
    {"ldg.global.*", body_load, 0, NULL},
    {"ex2.approx.*", body_math, 1, "llvm.exp2"},
    {"lg2.approx.*", body_math, 1, "llvm.log2"},
    {"sin.approx.*", body_math, 1, "llvm.sin"},
    {"cos.approx.*", body_math, 1, "llvm.cos"},
    {"sqrt.*", body_math, 1, "llvm.sqrt"},
    {"rsqrt.approx.*", body_reciprocal, 0, "llvm.sqrt"},
    {"rcp.*", body_reciprocal, 0, NULL},
    {"div.*", body_binary, LLVMFDiv, NULL},
    {"mul.rn.*", body_binary, LLVMFMul, NULL},
    {"add.rn.*", body_binary, LLVMFAdd, NULL},
    {"fma.rn.f", body_math, 3, "llvm.fma"},
    {"fma.rn.ftz.f", body_math, 3, "llvm.fma"},
    {"fma.rn.d", body_math, 3, "llvm.fma"},
    {"fmax.f", body_math, 2, "llvm.maxnum"},
    {"fmax.ftz.f", body_math, 2, "llvm.maxnum"},
    {"fmax.d", body_math, 2, "llvm.maxnum"},
    {"fmin.f", body_math, 2, "llvm.minnum"},
    {"fmin.ftz.f", body_math, 2, "llvm.minnum"},
    {"fmin.d", body_math, 2, "llvm.minnum"},
    {"fabs.*", body_math, 1, "llvm.fabs"},
};

#define PREFIX "llvm.nvvm."

static const struct intrinsic_row *find_row(const char *name)
{
    for (size_t i = 0; i < sizeof intrinsic_table / sizeof intrinsic_table[0]; i++) {
        const char *pattern = intrinsic_table[i].name;
        size_t fixed = strcspn(pattern, "*");
        if (strncmp(name, pattern, fixed) != 0) continue;
        if (pattern[fixed] ? 1 : name[fixed] == '\0') return &intrinsic_table[i];
    }
    return NULL;
}

/* What was true of the intrinsic need not be true of its replacement. */
static void strip_attributes(LLVMValueRef f)
{
    LLVMAttributeIndex index = (LLVMAttributeIndex)LLVMAttributeFunctionIndex;
    for (unsigned kind = 1; kind <= LLVMGetLastEnumAttributeKind(); kind++)
        LLVMRemoveEnumAttributeAtIndex(f, index, kind);
    for (unsigned i = 0; i < LLVMCountParams(f); i++)
        for (unsigned kind = 1; kind <= LLVMGetLastEnumAttributeKind(); kind++)
            LLVMRemoveEnumAttributeAtIndex(f, i + 1, kind);
}

static void give_body(struct rewrite *r, const struct intrinsic_row *row)
{
    char name[256];
    snprintf(name, sizeof name, "eider.nvvm.%s", row->name);
    LLVMSetValueName2(r->function, name, strlen(name)); /* no longer an intrinsic */
    strip_attributes(r->function);
    add_attribute(r->context, r->function, "alwaysinline");
    add_attribute(r->context, r->function, "nounwind");
    LLVMSetLinkage(r->function, LLVMInternalLinkage);
    LLVMBasicBlockRef block = LLVMAppendBasicBlockInContext(r->context, r->function, "");
    LLVMPositionBuilderAtEnd(r->builder, block);
    LLVMValueRef value = row->body(r, row->detail, row->math);
    if (value)
        LLVMBuildRet(r->builder, value);
    else
        LLVMBuildRetVoid(r->builder);
}

eider_status eider_foreign_intrinsics(LLVMModuleRef module)
{
    LLVMContextRef context = LLVMGetModuleContext(module);
    struct rewrite r = {
        .module = module,
        .context = context,
        .builder = LLVMCreateBuilderInContext(context),
        .i32 = LLVMInt32TypeInContext(context),
        .nothing = LLVMVoidTypeInContext(context),
    };
    eider_status status = EIDER_OK;
    LLVMValueRef f = LLVMGetFirstFunction(module);
    while (f && status == EIDER_OK) {
        LLVMValueRef next = LLVMGetNextFunction(f);
        size_t length;
        const char *name = LLVMGetValueName2(f, &length);
        if (strncmp(name, PREFIX, strlen(PREFIX)) == 0 && LLVMGetFirstUse(f)) {
            const struct intrinsic_row *row = find_row(name + strlen(PREFIX));
            r.function = f;
            if (row)
                give_body(&r, row);
            else
                status = eider_fail(EIDER_CODEGEN, "%.200s has no counterpart on the CPU", name);
        }
        f = next;
    }
    LLVMDisposeBuilder(r.builder);
    return status;
}
