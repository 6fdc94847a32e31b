/* emit.c -- verify, optimise, emit; see codegen.h and emit.h.
 *
 * Invariant: the module is gone on return, whatever happened.
 */
#include "emit.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "foreign.h"
#include "llvm_error.h"
#include "ptx.h"
#include "target_machine.h"

/* The templates write what they mean: vectors, one base address, no memory but the
 * operands'.  Over such IR default<O3> takes twenty times as long as removing common
 * subexpressions and gave code no shorter (swiglu of bf16 for sm_90: 280 instructions
 * against 272, 32 registers both; on the CPU equal times).  Foreign IR can be anything. */
#define PIPELINE_OWN "function(early-cse)"
#define PIPELINE_FOREIGN "default<O3>"

/* Half of the stack that a thread of a block has on the CPU (cpu_fiber.c). */
#define FRAME_BYTES_MAX "65536"

const char *eider_codegen_pipeline(void)
{
    return "own=" PIPELINE_OWN " foreign=" PIPELINE_FOREIGN " nvptx=O1";
}

uint64_t eider_emit_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- The lock ------------------------------------------------------------ */

static const pthread_rwlock_t open_lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static pthread_rwlock_t compiles = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

void eider_emit_enter(void)
{
    pthread_rwlock_rdlock(&compiles);
}

void eider_emit_leave(void)
{
    pthread_rwlock_unlock(&compiles);
}

int eider_emit_fork(void)
{
    pthread_rwlock_wrlock(&compiles);
    int pid = fork();
    if (pid == 0)
        compiles = open_lock; /* its owner's number was the parent's: it cannot be unlocked */
    else
        pthread_rwlock_unlock(&compiles);
    return pid;
}

/* ---- Stages -------------------------------------------------------------- */

static eider_status verify(LLVMModuleRef module)
{
    char *message = NULL;
    if (LLVMVerifyModule(module, LLVMReturnStatusAction, &message))
        return eider_llvm_error_message(message, "the module is not valid");
    LLVMDisposeMessage(message);
    return EIDER_OK;
}

/* Vector arguments are passed by what a function's own features allow, not by the target
 * machine's, so that calls to the vector math library need them spelt out.  Nothing here
 * throws, and without unwind tables linking need not lock the process's unwinder. */
static void set_host_attributes(LLVMModuleRef module, int thread_style)
{
    const struct eider_host *host = eider_target_host();
    LLVMContextRef context = LLVMGetModuleContext(module);
    LLVMAttributeRef cpu = LLVMCreateStringAttribute(context, "target-cpu", 10, host->cpu,
                                                     (unsigned)strlen(host->cpu));
    LLVMAttributeRef features = LLVMCreateStringAttribute(
        context, "target-features", 15, host->features, (unsigned)strlen(host->features));
    unsigned kind = LLVMGetEnumAttributeKindForName("nounwind", 8);
    LLVMAttributeRef nounwind = LLVMCreateEnumAttribute(context, kind, 0);
    LLVMAttributeRef frame = LLVMCreateStringAttribute(context, "warn-stack-size", 15,
                                                       FRAME_BYTES_MAX, sizeof FRAME_BYTES_MAX - 1);
    for (LLVMValueRef f = LLVMGetFirstFunction(module); f; f = LLVMGetNextFunction(f)) {
        if (LLVMGetIntrinsicID(f)) continue;
        LLVMAddAttributeAtIndex(f, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, nounwind);
        LLVMAddAttributeAtIndex(f, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, cpu);
        LLVMAddAttributeAtIndex(f, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, features);
        if (thread_style)
            LLVMAddAttributeAtIndex(f, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, frame);
    }
}

static eider_status prepare(const eider_allocator *a, LLVMModuleRef module,
                            LLVMTargetMachineRef machine, const struct eider_codegen_job *job)
{
    char *triple = LLVMGetTargetMachineTriple(machine);
    LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(machine);
    LLVMSetTarget(module, triple);
    LLVMSetModuleDataLayout(module, layout);
    LLVMDisposeTargetData(layout);
    LLVMDisposeMessage(triple);
    if (job->target.sm != 0) return EIDER_OK;

    LLVMValueRef entry = LLVMGetNamedFunction(module, job->entry);
    if (!entry || LLVMIsDeclaration(entry))
        return eider_fail(EIDER_CODEGEN, "the module defines no function '%.200s'", job->entry);
    if (job->thread_style) EIDER_TRY(eider_foreign_lower(a, module, job->entry));
    set_host_attributes(module, job->thread_style);
    return EIDER_OK;
}

static eider_status optimise(LLVMModuleRef module, LLVMTargetMachineRef machine,
                             const char *pipeline)
{
    LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
    LLVMErrorRef error = LLVMRunPasses(module, pipeline, machine, options);
    LLVMDisposePassBuilderOptions(options);
    return eider_llvm_error_fail(error, "running the passes");
}

static eider_status copy_ir(const eider_allocator *a, LLVMModuleRef module, struct eider_blob *out)
{
    char *text = LLVMPrintModuleToString(module);
    eider_status status = eider_blob_copy(a, text, strlen(text), out);
    LLVMDisposeMessage(text);
    return status;
}

static eider_status emit_code(const eider_allocator *a, LLVMModuleRef module,
                              LLVMTargetMachineRef machine, const struct eider_codegen_job *job,
                              LLVMCodeGenFileType type, const struct eider_llvm_watch *watch,
                              struct eider_codegen_result *out)
{
    LLVMMemoryBufferRef buffer = NULL;
    char *message = NULL;
    if (LLVMTargetMachineEmitToMemoryBuffer(machine, module, type, &message, &buffer))
        return eider_llvm_error_message(message, "generating code");
    eider_status status = eider_llvm_error_watched(watch, "generating code");
    const char *start = LLVMGetBufferStart(buffer);
    size_t size = LLVMGetBufferSize(buffer);
    if (status == EIDER_OK && job->target.sm != 0)
        status = eider_ptx_finish(a, start, size, job, &out->code, &out->ptx_version);
    else if (status == EIDER_OK)
        status = eider_blob_copy(a, start, size, &out->code);
    LLVMDisposeMemoryBuffer(buffer);
    return status;
}

static eider_status run_stages(const eider_allocator *a, LLVMModuleRef module,
                               LLVMTargetMachineRef machine, const struct eider_codegen_job *job,
                               unsigned flags, const struct eider_llvm_watch *watch,
                               struct eider_codegen_result *out)
{
    uint64_t start = eider_emit_clock();
    EIDER_TRY(prepare(a, module, machine, job));
    EIDER_TRY(verify(module));
    EIDER_TRY(
        optimise(module, machine, flags & EIDER_EMIT_FOREIGN ? PIPELINE_FOREIGN : PIPELINE_OWN));
    EIDER_TRY(eider_llvm_error_watched(watch, "running the passes"));
    out->opt_ns = eider_emit_clock() - start;
    if (job->keep_opt) EIDER_TRY(copy_ir(a, module, &out->opt_ir));
    start = eider_emit_clock();
    LLVMCodeGenFileType type =
        job->target.sm || flags & EIDER_EMIT_ASSEMBLY ? LLVMAssemblyFile : LLVMObjectFile;
    EIDER_TRY(emit_code(a, module, machine, job, type, watch, out));
    out->emit_ns = eider_emit_clock() - start;
    return EIDER_OK;
}

eider_status eider_emit_module(const eider_allocator *a, LLVMModuleRef module,
                               const struct eider_codegen_job *job, unsigned flags,
                               struct eider_codegen_result *out)
{
    *out = (struct eider_codegen_result){0};
    struct eider_llvm_watch watch;
    eider_llvm_error_watch(&watch, LLVMGetModuleContext(module));
    LLVMTargetMachineRef machine = NULL;
    int ptx_version = job->ptx_version ? job->ptx_version : EIDER_PTX_OF_LLVM;
    eider_status status = eider_target_machine_create(job->target, ptx_version, &machine);
    if (status == EIDER_OK) status = run_stages(a, module, machine, job, flags, &watch, out);
    if (status != EIDER_OK) {
        eider_blob_release(a, &out->code);
        eider_blob_release(a, &out->opt_ir);
    }
    if (machine) LLVMDisposeTargetMachine(machine);
    LLVMDisposeModule(module);
    eider_llvm_error_unwatch(&watch);
    return status;
}

/* ---- In this process ------------------------------------------------------ */

static eider_status emit_locked(const eider_allocator *a, LLVMModuleRef module,
                                const struct eider_codegen_job *job, unsigned flags,
                                struct eider_codegen_result *out)
{
    eider_emit_enter();
    eider_status status = eider_emit_module(a, module, job, flags, out);
    eider_emit_leave();
    if (status != EIDER_OK && status != EIDER_OOM) {
        char target[EIDER_TARGET_TEXT_BYTES];
        eider_target_print(job->target, target);
        eider_fail_prefix("compiling %.200s for %s: ", job->entry, target);
    }
    return status;
}

eider_status eider_codegen_emit(const eider_allocator *a, LLVMModuleRef module,
                                const struct eider_codegen_job *job,
                                struct eider_codegen_result *out)
{
    return emit_locked(a, module, job, 0, out);
}

eider_status eider_codegen_assembly(const eider_allocator *a, LLVMModuleRef module,
                                    const struct eider_codegen_job *job,
                                    struct eider_codegen_result *out)
{
    if (job->target.sm == 0) return emit_locked(a, module, job, EIDER_EMIT_ASSEMBLY, out);
    LLVMDisposeModule(module);
    *out = (struct eider_codegen_result){0};
    return eider_fail(EIDER_UNSUPPORTED, "assembly text is of the CPU; a GPU has PTX");
}
