/* kernel.c -- from a plan to a kernel: IR, machine code, loading; and looking at it.
 *
 * Invariant: whatever fails, everything made so far is released here.
 */
#include "kernel.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "arithmetic.h"
#include "code_cache.h"
#include "cpu_fiber.h"
#include "disk_cache.h"
#include "dump.h"
#include "parse.h"
#include "program.h"
#include "stack.h"

#define TEXTS_BYTES_MAX ((size_t)16 << 20) /* a manifest holds the program's text */

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- Life -------------------------------------------------------------- */

static void destroy(struct eider_kernel *kernel)
{
    eider_allocator a = kernel->texts.allocator;
    for (int i = 0; i < EIDER_STAGES; i++) eider_blob_release(&a, &kernel->stages[i]);
    if (kernel->graph) eider_graph_destroy(kernel->graph);
    eider_mem_free(&a, kernel->nodes);
    eider_arena_release(&kernel->texts);
    pthread_mutex_destroy(&kernel->lock);
    eider_mem_free(&a, kernel);
}

void eider_kernel_release(eider_kernel *kernel)
{
    if (kernel && atomic_fetch_sub_explicit(&kernel->refs, 1, memory_order_acq_rel) == 1)
        destroy(kernel);
}

void eider_kernel_unload(struct eider_kernel *kernel)
{
    eider_device *device = kernel->device;
    kernel->device = NULL;
    if (device) device->backend->unload(device, &kernel->loaded);
}

static void set_source(struct eider_kernel *kernel, const eider_source *source)
{
    for (int i = 0; i < 3; i++) kernel->block[i] = source->block[i] ? source->block[i] : 1;
    kernel->shared_bytes = source->shared_bytes;
    kernel->n_operands = (uint32_t)source->n_operands;
    for (size_t i = 0; i < source->n_operands; i++) {
        kernel->operands[i].kind = source->operands[i].kind;
        kernel->operands[i].type = source->operands[i].type;
    }
}

static void set_shape(struct eider_kernel *kernel, const struct eider_plan *plan)
{
    int has_index = plan->config.choice[EIDER_PARAM_index] >= 0;
    uint32_t threads = plan->shape->fibers ? plan->shape->fibers(&plan->layout, &plan->config) : 0;
    kernel->info.index_bits =
        has_index ? eider_config_number(&plan->config, EIDER_PARAM_index) : plan->layout.index_bits;
    int cluster = eider_config_number(&plan->config, EIDER_PARAM_cluster);
    int registers = eider_config_number(&plan->config, EIDER_PARAM_registers);
    kernel->cluster = cluster > 1 ? (uint32_t)cluster : 0;
    kernel->registers = registers > 0 ? (uint32_t)registers : 0;
    kernel->shared_bytes =
        plan->shape->shared ? plan->shape->shared(&plan->layout, &plan->config) : 0;
    kernel->thread_style = threads > 0 && plan->target.sm == 0;
    if (kernel->thread_style)
        for (int i = 0; i < 3; i++) kernel->block[i] = i == 0 ? threads : 1;
}

/* A kernel outlives its program. */
static eider_status keep_program(struct eider_kernel *kernel, const struct eider_plan *plan)
{
    const char *text = eider_program_text(plan->request->program);
    EIDER_TRY(eider_blob_copy(&plan->ctx->allocator, text, strlen(text),
                              &kernel->stages[EIDER_STAGE_PROGRAM]));
    EIDER_TRY(eider_print_nodes(plan->request->program->graph, 0, &kernel->nodes));
    return eider_graph_copy(plan->graph, &kernel->graph);
}

static eider_status create(const struct eider_plan *plan, struct eider_kernel **out)
{
    const eider_allocator *a = &plan->ctx->allocator;
    struct eider_kernel *kernel = eider_mem_zero(a, sizeof *kernel);
    if (!kernel) return EIDER_OOM;
    eider_arena_init(&kernel->texts, a, TEXTS_BYTES_MAX);
    pthread_mutex_init(&kernel->lock, NULL);
    atomic_init(&kernel->refs, 1);
    kernel->ctx = plan->ctx;
    kernel->shape = plan->shape;
    kernel->layout = plan->layout;
    kernel->config = plan->config;
    kernel->target = plan->target;
    kernel->math = plan->math;
    kernel->ftz = plan->ftz;
    kernel->contract = plan->contract;
    kernel->line_info = plan->request->line_info != 0;
    kernel->identity = plan->identity;
    kernel->n_operands = plan->layout.n_operands;
    kernel->info.registers = kernel->info.spill_bytes = kernel->info.shared_bytes = -1;
    if (plan->shape) set_shape(kernel, plan);
    if (plan->request->source) set_source(kernel, plan->request->source);
    eider_status status = plan->graph ? keep_program(kernel, plan) : EIDER_OK;
    if (status != EIDER_OK)
        destroy(kernel);
    else
        *out = kernel;
    return status;
}

/* ---- Program to module ------------------------------------------------- */

static eider_status lower(const struct eider_kernel *kernel, struct eider_lowered *out)
{
    eider_dtype types[EIDER_OPERANDS_MAX];
    for (uint32_t i = 0; i < kernel->n_operands; i++) types[i] = kernel->layout.operands[i].type;
    return eider_lower_plan(kernel->graph, types, kernel->math, out);
}

/* Also of a kernel from disk: a launch has to know. */
static eider_status find_rounds(struct eider_kernel *kernel)
{
    struct eider_lowered lowered;
    if (eider_config_number(&kernel->config, EIDER_PARAM_split) <= 1) return EIDER_OK;
    EIDER_TRY(lower(kernel, &lowered));
    eider_status status =
        kernel->shape->rounds(&lowered, &kernel->layout, &kernel->config, &kernel->rounds);
    eider_lower_release(&lowered);
    return status;
}

eider_status eider_kernel_module(const struct eider_kernel *kernel, int line_info,
                                 LLVMContextRef *out_context, LLVMModuleRef *out_module,
                                 uint32_t *out_block_threads)
{
    struct eider_lowered lowered;
    *out_context = NULL;
    EIDER_TRY(lower(kernel, &lowered));
    struct eider_emit e = {
        .allocator = &kernel->ctx->allocator,
        .context = LLVMContextCreate(),
        .machine = eider_machine_of(kernel->target),
        .target = kernel->target,
        .ftz = kernel->ftz,
        .contract = kernel->contract,
        .math = kernel->math,
        .line_info = line_info,
        .waits = kernel->thread_style,
    };
    kernel->shape->build(&e, &lowered, &kernel->layout, &kernel->config, kernel->info.entry);
    eider_lower_release(&lowered);
    if (e.status != EIDER_OK) {
        if (e.module) LLVMDisposeModule(e.module);
        LLVMContextDispose(e.context);
        return e.status;
    }
    *out_context = e.context;
    *out_module = e.module;
    *out_block_threads = e.block_threads;
    return EIDER_OK;
}

static struct eider_codegen_job job_of(const struct eider_kernel *kernel)
{
    return (struct eider_codegen_job){
        .target = kernel->target,
        .entry = kernel->info.entry,
        .contract = kernel->contract,
        .registers = kernel->registers,
        .cluster = kernel->cluster,
        .thread_style = kernel->thread_style,
    };
}

static eider_status compile_program(struct eider_kernel *kernel, struct eider_blob *out)
{
    LLVMContextRef context;
    LLVMModuleRef module;
    struct eider_codegen_job job = job_of(kernel);
    struct eider_codegen_result result = {0};
    uint64_t start = now_ns();
    EIDER_TRY(
        eider_kernel_module(kernel, kernel->line_info, &context, &module, &job.block_threads));
    kernel->info.ir_ns = now_ns() - start;
    eider_status status = eider_codegen_emit(&kernel->ctx->allocator, module, &job, &result);
    LLVMContextDispose(context);
    if (status != EIDER_OK) return status;
    *out = result.code;
    kernel->info.opt_ns = result.opt_ns;
    kernel->info.ptx_ns = result.emit_ns;
    return EIDER_OK;
}

/* ---- Source to code ---------------------------------------------------- */

/* IR that eider did not write is optimised in the worker only, so its text is kept now. */
static eider_status compile_source(struct eider_kernel *kernel, const struct eider_plan *plan,
                                   struct eider_blob *out)
{
    const eider_allocator *a = &kernel->ctx->allocator;
    const eider_source *source = plan->request->source;
    size_t size =
        source->size || source->kind == EIDER_SOURCE_CALLBACK ? source->size : strlen(source->data);
    if (source->kind == EIDER_SOURCE_PTX) return eider_blob_copy(a, source->data, size, out);
    if (source->kind == EIDER_SOURCE_LL)
        EIDER_TRY(eider_blob_copy(a, source->data, size, &kernel->stages[EIDER_STAGE_IR]));
    struct eider_codegen_job job = job_of(kernel);
    struct eider_codegen_result result = {0};
    job.keep_opt = 1;
    job.thread_style = 1;
    job.line_info = kernel->line_info;
    job.hooks = &eider_cpu_fiber_hooks;
    EIDER_TRY(eider_worker_compile(a, source, kernel->info.config, &job,
                                   kernel->ctx->worker_deadline_ms, &result));
    *out = result.code;
    kernel->stages[EIDER_STAGE_OPT] = result.opt_ir;
    kernel->info.opt_ns = result.opt_ns;
    kernel->info.ptx_ns = result.emit_ns;
    return EIDER_OK;
}

/* ---- Code to machine code ---------------------------------------------- */

/* Who turns PTX into machine code. */
enum assembler_kind { NOBODY, A_TOOL, THE_DRIVER };

struct assembler {
    enum assembler_kind kind;
    struct eider_assembler_info tool;
    int is_a_makeshift;                    /* there is none here: what any of them made is better */
    char text[EIDER_ASSEMBLER_TEXT_BYTES]; /* as in the manifest */
};

static eider_status choose_assembler(const struct eider_plan *plan, struct assembler *out)
{
    const char *wanted = plan->request->assembler;
    int is_auto = !wanted || strcmp(wanted, "auto") == 0;
    *out = (struct assembler){.kind = NOBODY};
    if (plan->target.sm == 0) return EIDER_OK;
    if (is_auto || strcmp(wanted, "driver") != 0) {
        /* Without one, a device's own driver does it, and PTX can still be looked at. */
        out->is_a_makeshift = is_auto && !eider_assembler_look(wanted, &out->tool);
        if (!is_auto) EIDER_TRY(eider_assembler_find(wanted, &out->tool));
    }
    if (out->tool.name[0]) {
        out->kind = A_TOOL;
        snprintf(out->text, sizeof out->text, "%s %s", out->tool.name, out->tool.version);
    }
    if (out->kind == NOBODY && plan->device) {
        out->kind = THE_DRIVER;
        snprintf(out->text, sizeof out->text, "driver %d.%d", plan->device->info.driver / 1000,
                 plan->device->info.driver % 1000 / 10);
    }
    if (out->kind == NOBODY && !is_auto)
        return eider_fail(EIDER_ASSEMBLER, "assembler=driver needs a device: use eider_prepare");
    return EIDER_OK;
}

eider_status eider_kernel_assembler(const struct eider_plan *plan,
                                    char out[EIDER_ASSEMBLER_TEXT_BYTES])
{
    struct assembler by;
    EIDER_TRY(choose_assembler(plan, &by));
    memcpy(out, by.text, sizeof by.text);
    return EIDER_OK;
}

/* PTX that LLVM wrote says in every instruction whether it may be contracted; other PTX
 * leaves that to the assembler's options, which the driver does not have. */
static eider_status check_driver(const struct eider_kernel *kernel, const struct eider_plan *plan)
{
    const eider_source *source = plan->request->source;
    if (!source || source->kind != EIDER_SOURCE_PTX || kernel->contract) return EIDER_OK;
    return eider_fail(EIDER_UNSUPPORTED,
                      "contract=off for PTX text needs another assembler than the driver");
}

static eider_status assemble(struct eider_kernel *kernel, const struct eider_plan *plan,
                             const struct assembler *by)
{
    struct eider_assemble_job job = {
        .target = kernel->target,
        .assembler = by->tool.name,
        .contract = kernel->contract,
        .line_info = kernel->line_info,
        .deadline_ms = kernel->ctx->worker_deadline_ms,
    };
    struct eider_assemble_result result = {0};
    if (by->kind == THE_DRIVER) return check_driver(kernel, plan);
    if (by->kind == NOBODY) return EIDER_OK;
    EIDER_TRY(
        eider_assemble(&kernel->ctx->allocator, &kernel->stages[EIDER_STAGE_PTX], &job, &result));
    kernel->stages[EIDER_STAGE_CUBIN] = result.cubin;
    kernel->info.registers = result.registers;
    kernel->info.spill_bytes = result.spill_bytes;
    kernel->info.shared_bytes = result.shared_bytes;
    kernel->info.assemble_ns = result.ns;
    return EIDER_OK;
}

static void learn(int32_t *known, int32_t from_device)
{
    if (*known < 0) *known = from_device;
}

/* Whether the operands that a source names are what its kernel takes: every launch reads as
 * many bytes as the kernel's parameters have. */
static eider_status check_params(struct eider_kernel *kernel,
                                 const struct eider_entry_params *params)
{
    const char *entry = kernel->info.entry;
    if (params->n != kernel->n_operands)
        return eider_fail(EIDER_BAD_ARG, "%.200s takes %u parameters, the source names %u operands",
                          entry, params->n, kernel->n_operands);
    for (uint32_t i = 0; i < params->n; i++) {
        int is_scalar = kernel->operands[i].kind == EIDER_SCALAR;
        int32_t type = kernel->operands[i].type;
        size_t bytes = is_scalar && type >= 0 ? eider_dtype_size((eider_dtype)type)
                       : is_scalar            ? 0
                                              : sizeof(void *);
        kernel->operands[i].bytes = params->bytes[i];
        if (bytes && params->bytes[i] && bytes != params->bytes[i])
            return eider_fail(EIDER_BAD_ARG,
                              "parameter %u of %.200s has %u bytes, operand %u of the source is %s "
                              "of %zu",
                              i, entry, params->bytes[i], i, is_scalar ? "a scalar" : "a pointer",
                              bytes);
    }
    return EIDER_OK;
}

/* The same for PTX, which says itself what it takes. */
static eider_status check_ptx(struct eider_kernel *kernel)
{
    const struct eider_blob *ptx = &kernel->stages[EIDER_STAGE_PTX];
    struct eider_entry_params params;
    EIDER_TRY(eider_ptx_params(ptx->data, kernel->info.entry, &params));
    return check_params(kernel, &params);
}

static eider_status load(struct eider_kernel *kernel, const struct eider_plan *plan)
{
    const struct eider_blob *code = &kernel->stages[EIDER_STAGE_CUBIN];
    int is_foreign = plan->request->source != NULL;
    struct eider_load what = {
        .code = code->data ? code : &kernel->stages[EIDER_STAGE_PTX],
        .is_ptx = !code->data,
        .line_info = kernel->line_info,
        .thread_style = is_foreign || kernel->thread_style,
        .block = {kernel->block[0], kernel->block[1], kernel->block[2]},
        .shared_bytes = kernel->shared_bytes,
        .cluster = kernel->cluster,
        .entry = kernel->info.entry,
        .words = kernel->layout.checks ? EIDER_FAULTS : NULL,
        .shares_memory = kernel->rounds.unit_bytes > 0,
    };
    /* Who only compiles may not know what the kernel takes, and names nothing. */
    if (!plan->device)
        return is_foreign && kernel->target.sm && kernel->n_operands ? check_ptx(kernel) : EIDER_OK;
    uint64_t start = now_ns();
    EIDER_TRY(plan->device->backend->load(plan->device, &what, &kernel->loaded));
    kernel->info.load_ns = now_ns() - start;
    kernel->device = plan->device;
    if (is_foreign) {
        eider_status status =
            kernel->target.sm ? check_ptx(kernel) : check_params(kernel, &kernel->loaded.params);
        if (status != EIDER_OK) {
            eider_kernel_unload(kernel);
            return status;
        }
    }
    learn(&kernel->info.registers, kernel->loaded.registers);
    learn(&kernel->info.spill_bytes, kernel->loaded.spill_bytes);
    learn(&kernel->info.shared_bytes, kernel->loaded.shared_bytes);
    return EIDER_OK;
}

static eider_status compile(struct eider_kernel *kernel, const struct eider_plan *plan,
                            const struct assembler *by)
{
    struct eider_blob code = {0};
    if (plan->request->source)
        EIDER_TRY(compile_source(kernel, plan, &code));
    else
        EIDER_TRY(compile_program(kernel, &code));
    eider_context_count(kernel->ctx, EIDER_COUNT_COMPILES);
    int is_cpu = kernel->target.sm == 0;
    kernel->stages[is_cpu ? EIDER_STAGE_CUBIN : EIDER_STAGE_PTX] = code;
    EIDER_TRY(assemble(kernel, plan, by));
    EIDER_TRY(load(kernel, plan));
    const eider_kernel_info *i = &kernel->info;
    uint64_t ns = i->ir_ns + i->opt_ns + i->ptx_ns + i->assemble_ns + i->load_ns;
    eider_context_log(kernel->ctx, 2, "compiled %s for %s in %.1f ms, %s", i->entry, i->target,
                      1e-6 * (double)ns, i->config);
    return EIDER_OK;
}

/* ---- From disk, or all of it -------------------------------------------------- */

/* Whether compiling again may help where what was on disk did not load. */
static int may_be_stale(eider_status status)
{
    return status == EIDER_DRIVER || status == EIDER_CODEGEN || status == EIDER_TARGET ||
           status == EIDER_ASSEMBLER || status == EIDER_UNSUPPORTED;
}

/* *done is 1 when the kernel was on disk and is loaded. */
static eider_status recall(struct eider_kernel *kernel, const struct eider_plan *plan,
                           const struct assembler *by, int *done)
{
    EIDER_TRY(eider_disk_cache_recall(kernel, plan, by->is_a_makeshift, done));
    if (!*done) return EIDER_OK;
    eider_status status = load(kernel, plan);
    if (status == EIDER_OK) eider_context_count(kernel->ctx, EIDER_COUNT_DISK_HITS);
    if (!may_be_stale(status)) return status;
    *done = 0;
    return eider_disk_cache_reject(kernel, plan, by->text);
}

struct building {
    struct eider_kernel *kernel;
    const struct eider_plan *plan;
};

static eider_status build(void *arg)
{
    struct eider_kernel *kernel = ((struct building *)arg)->kernel;
    const struct eider_plan *plan = ((struct building *)arg)->plan;
    struct assembler by;
    int done;
    if (plan->shape) EIDER_TRY(find_rounds(kernel));
    EIDER_TRY(choose_assembler(plan, &by));
    EIDER_TRY(eider_manifest_write(plan, by.text, kernel));
    EIDER_TRY(recall(kernel, plan, &by, &done));
    if (done) return EIDER_OK;
    EIDER_TRY(compile(kernel, plan, &by));
    eider_disk_cache_keep(kernel);
    return EIDER_OK;
}

static void count_stages(struct eider_kernel *kernel)
{
    const eider_kernel_info *info = &kernel->info;
    eider_context_add(kernel->ctx, EIDER_COUNT_IR_NS, info->ir_ns);
    eider_context_add(kernel->ctx, EIDER_COUNT_OPT_NS, info->opt_ns);
    eider_context_add(kernel->ctx, EIDER_COUNT_PTX_NS, info->ptx_ns);
    eider_context_add(kernel->ctx, EIDER_COUNT_ASSEMBLE_NS, info->assemble_ns);
    eider_context_add(kernel->ctx, EIDER_COUNT_LOAD_NS, info->load_ns);
}

eider_status eider_kernel_build(const struct eider_plan *plan, struct eider_kernel **out)
{
    struct eider_kernel *kernel;
    struct eider_arithmetic host;
    EIDER_TRY(create(plan, &kernel));
    eider_arithmetic_enter(&host); /* before it starts a thread: those inherit */
    struct building building = {kernel, plan};
    eider_status status = eider_stack_run(&plan->ctx->allocator, build, &building);
    eider_arithmetic_leave(&host);
    count_stages(kernel);
    eider_dump_kernel(kernel->ctx->dump, kernel, status);
    if (status == EIDER_OK)
        *out = kernel;
    else
        destroy(kernel);
    return status;
}

eider_status eider_kernel_identify(const struct eider_plan *plan, struct eider_kernel **out,
                                   int *any_assembler)
{
    struct assembler by;
    struct eider_kernel *kernel;
    EIDER_TRY(choose_assembler(plan, &by));
    EIDER_TRY(create(plan, &kernel));
    eider_status status = eider_manifest_write(plan, by.text, kernel);
    *any_assembler = by.is_a_makeshift;
    if (status == EIDER_OK)
        *out = kernel;
    else
        destroy(kernel);
    return status;
}

/* ---- Looking at it ----------------------------------------------------- */

void eider_kernel_describe(const eider_kernel *kernel, eider_kernel_info *out)
{
    if (kernel && out) *out = kernel->info;
}

static eider_status keep_printed(struct eider_kernel *kernel, LLVMModuleRef module)
{
    char *text = LLVMPrintModuleToString(module);
    eider_status status = eider_blob_copy(&kernel->ctx->allocator, text, strlen(text),
                                          &kernel->stages[EIDER_STAGE_IR]);
    LLVMDisposeMessage(text);
    return status;
}

struct remaking {
    struct eider_kernel *kernel;
    eider_stage stage;
};

/* Makes a text that was not kept: IR, OPT, and on the CPU assembly. */
static eider_status remake(void *arg)
{
    struct eider_kernel *kernel = ((struct remaking *)arg)->kernel;
    eider_stage stage = ((struct remaking *)arg)->stage;
    const eider_allocator *a = &kernel->ctx->allocator;
    LLVMContextRef context;
    LLVMModuleRef module;
    struct eider_codegen_job job = job_of(kernel);
    struct eider_codegen_result result = {0};
    EIDER_TRY(
        eider_kernel_module(kernel, kernel->line_info, &context, &module, &job.block_threads));
    eider_status status = EIDER_OK;
    if (stage == EIDER_STAGE_IR) {
        status = keep_printed(kernel, module);
        LLVMDisposeModule(module);
    } else {
        job.keep_opt = stage == EIDER_STAGE_OPT;
        status = stage == EIDER_STAGE_OPT ? eider_codegen_emit(a, module, &job, &result)
                                          : eider_codegen_assembly(a, module, &job, &result);
    }
    LLVMContextDispose(context);
    if (status != EIDER_OK || stage == EIDER_STAGE_IR) return status;
    struct eider_blob *kept = stage == EIDER_STAGE_OPT ? &result.opt_ir : &result.code;
    kernel->stages[stage] = *kept;
    *kept = (struct eider_blob){0};
    eider_blob_release(a, &result.code);
    eider_blob_release(a, &result.opt_ir);
    return EIDER_OK;
}

static eider_status make_stage(struct eider_kernel *kernel, eider_stage stage)
{
    if (stage == EIDER_STAGE_CUBIN)
        return eider_fail(EIDER_UNSUPPORTED, "no machine code to show: %s",
                          kernel->device ? "the driver assembled this kernel and keeps it"
                                         : "no assembler was found");
    if (!kernel->graph)
        return eider_fail(EIDER_UNSUPPORTED, "a kernel that eider did not write has no stage %d",
                          (int)stage);
    struct eider_arithmetic host;
    eider_arithmetic_enter(&host);
    struct remaking remaking = {kernel, stage};
    eider_status status = eider_stack_run(&kernel->ctx->allocator, remake, &remaking);
    eider_arithmetic_leave(&host);
    return status;
}

eider_status eider_kernel_stage(eider_kernel *kernel, eider_stage stage, const void **out,
                                size_t *size)
{
    if (!kernel || !out || !size)
        return eider_fail(EIDER_BAD_ARG, "eider_kernel_stage: NULL argument");
    if (stage < EIDER_STAGE_PROGRAM || stage > EIDER_STAGE_CUBIN)
        return eider_fail(EIDER_BAD_ARG, "eider_kernel_stage: %d is no stage", (int)stage);
    pthread_mutex_lock(&kernel->lock);
    struct eider_blob *blob = &kernel->stages[stage];
    eider_status status = blob->data ? EIDER_OK : make_stage(kernel, stage);
    if (status == EIDER_OK) {
        *out = blob->data;
        *size = blob->size;
    }
    pthread_mutex_unlock(&kernel->lock);
    return status;
}

/* ---- What it has found ------------------------------------------------- */

/* One after the other: the operands, and what comes from none of them. */
static eider_status report(const eider_kernel *kernel, const struct eider_fault *faults)
{
    for (uint32_t i = 0; i <= kernel->n_operands; i++) {
        uint64_t first = ~faults[i].first;
        int32_t place = (int32_t)(uint32_t)first;
        const char *more = place == INT32_MAX ? " or more" : place == INT32_MIN ? " or less" : "";
        if (!faults[i].first) continue;
        return eider_fail(EIDER_OUTSIDE,
                          "pick: in row %llu place %d%s, of %s, is outside: the row has %llu "
                          "elements",
                          (unsigned long long)(first >> 32), (int)place, more,
                          i < kernel->n_operands ? kernel->graph->operands[i].name : "no input",
                          (unsigned long long)faults[i].length);
    }
    return EIDER_OK;
}

eider_status eider_kernel_check(const eider_kernel *kernel, void *stream)
{
    struct eider_fault faults[EIDER_OPERANDS_MAX + 1];
    if (!kernel) return eider_fail(EIDER_BAD_ARG, "eider_kernel_check: NULL argument");
    EIDER_TRY(eider_context_check(kernel->ctx));
    eider_device *device = kernel->device;
    if (!device)
        return eider_fail(EIDER_NOT_PREPARED, "eider_kernel_check: the kernel is not loaded on a "
                                              "device");
    if (!kernel->loaded.words) return EIDER_OK;
    size_t bytes = (kernel->n_operands + 1) * sizeof faults[0];
    void *words = kernel->loaded.words;
    EIDER_TRY(device->backend->stream_wait(device, stream));
    EIDER_TRY(device->backend->copy(device, stream, faults, words, bytes, EIDER_DEVICE_TO_HOST));
    eider_status status = report(kernel, faults);
    if (status == EIDER_OK) return EIDER_OK;
    eider_status reset = device->backend->fill(device, stream, words, 0, bytes);
    return reset == EIDER_OK ? status : reset;
}

eider_status eider_kernel_bytes(const eider_kernel *kernel, const eider_tensor *args, size_t n_args,
                                uint64_t *out)
{
    if (!kernel || !out || (!args && n_args))
        return eider_fail(EIDER_BAD_ARG, "eider_kernel_bytes: NULL argument");
    if (!kernel->shape)
        return eider_fail(EIDER_UNSUPPORTED,
                          "what a kernel that eider did not write moves is not known");
    if (n_args != kernel->n_operands)
        return eider_fail(EIDER_BAD_ARG, "eider_kernel_bytes: %zu arguments, the kernel has %u",
                          n_args, kernel->n_operands);
    return kernel->shape->bytes(&kernel->layout, args, out);
}
