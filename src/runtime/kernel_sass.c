/* kernel_sass.c -- reports on machine code: of kernels, with what their lines mean, and of
 * cubins; see docs/SASS.md.
 *
 * A kernel is inspected as it was loaded.  What its instructions are for is known from a
 * twin, compiled with line information (lines.h), and counts only where the twin has the same
 * bytes.
 * Invariant: nothing here changes a kernel.
 */
#include <stdio.h>
#include <string.h>

#include "context.h"
#include "kernel.h"
#include "parse.h"
#include "sass.h"

/* ---- What lines mean --------------------------------------------------- */

/* The tables of struct eider_sass_names, being made.  Steps lie behind their terms. */
struct naming {
    const struct eider_kernel *kernel;
    const struct eider_graph *lowered;
    const char *const *written, *const *steps; /* texts of nodes */
    struct eider_arena arena;
    struct eider_sass_name *names;
    eider_sass_term *terms;
    struct eider_sass_names out;
};

/* Both lines, in and out of the loop over single elements, mean `term`. */
static void name_lines(struct naming *n, enum eider_line_kind kind, uint32_t id, int32_t term)
{
    for (int is_tail = 0; is_tail < 2; is_tail++) {
        uint32_t line = eider_lines_number((struct eider_line){kind, id, is_tail});
        size_t at = n->out.n_names++;
        for (; at > 0 && n->names[at - 1].line > line; at--) n->names[at] = n->names[at - 1];
        n->names[at] = (struct eider_sass_name){line, term, is_tail};
    }
}

static int32_t add_term(struct naming *n, eider_sass_kind kind, const char *text, int32_t parent)
{
    n->terms[n->out.n_terms] = (eider_sass_term){.kind = kind, .text = text, .parent = parent};
    return (int32_t)n->out.n_terms++;
}

static const char *phrase(struct naming *n, const char *verb, const char *name)
{
    char text[EIDER_NAME_BYTES + 32];
    int length = snprintf(text, sizeof text, "%s %s", verb, name);
    const char *copy = eider_arena_text(&n->arena, text, (size_t)length);
    return copy ? copy : verb;
}

/* The terms as written that some step came from, each with its steps. */
static void name_program(struct naming *n, uint32_t n_written, const uint8_t *live)
{
    const struct eider_graph *g = n->lowered;
    for (uint32_t origin = 1; origin < n_written; origin++) {
        int32_t term = -1;
        for (eider_node id = 1; id < g->n_cells; id++) {
            if (!live[id] || !n->steps[id][0] || g->origins[id] != origin) continue;
            const char *text = n->written[origin][0] ? n->written[origin] : n->steps[id];
            if (term < 0) term = add_term(n, EIDER_SASS_TERM, text, -1);
            name_lines(n, EIDER_LINE_NODE, id, add_term(n, EIDER_SASS_STEP, n->steps[id], term));
        }
    }
}

static void name_operands(struct naming *n)
{
    static const struct {
        eider_sass_kind kind;
        enum eider_line_kind line;
        const char *in, *out;
    } rows[] = {
        {EIDER_SASS_LOAD, EIDER_LINE_LOAD, "load", NULL},
        {EIDER_SASS_CONVERT, EIDER_LINE_CONVERT, "convert", "convert"},
        {EIDER_SASS_STORE, EIDER_LINE_STORE, NULL, "store"},
    };
    const struct eider_graph *g = n->lowered;
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
        for (uint32_t i = 0; i < g->n_operands; i++) {
            int is_out = g->operands[i].kind == EIDER_OUTPUT;
            const char *verb = is_out ? rows[r].out : rows[r].in;
            if (!verb) continue;
            name_lines(n, rows[r].line, i,
                       add_term(n, rows[r].kind, phrase(n, verb, g->operands[i].name), -1));
        }
    name_lines(n, EIDER_LINE_ADDRESS, 0, add_term(n, EIDER_SASS_ADDRESS, "addresses, bounds", -1));
}

/* Cuts a text into its lines; `n` of them, missing ones empty. */
static const char **cut(struct eider_arena *arena, char *text, uint32_t n)
{
    const char **lines = eider_arena_alloc(arena, (n + 1) * sizeof *lines);
    for (uint32_t i = 0; lines && i < n; i++) {
        lines[i] = text;
        text += strcspn(text, "\n");
        if (*text) *text++ = '\0';
    }
    return lines;
}

static uint32_t count_lines(const char *text)
{
    uint32_t n = 0;
    for (; *text; text++) n += *text == '\n';
    return n;
}

static eider_status make_names(struct naming *n, char *written, char *steps)
{
    const struct eider_graph *g = n->lowered;
    uint32_t n_written = count_lines(written);
    size_t most = g->n_cells + n_written + 3u * EIDER_OPERANDS_MAX + 1;
    n->written = cut(&n->arena, written, n_written);
    n->steps = cut(&n->arena, steps, g->n_cells);
    n->names = eider_arena_alloc(&n->arena, 2 * most * sizeof *n->names);
    n->terms = eider_arena_alloc(&n->arena, 2 * most * sizeof *n->terms);
    uint8_t *live = eider_arena_alloc(&n->arena, g->n_cells);
    if (!n->written || !n->steps || !n->names || !n->terms || !live) return EIDER_OOM;
    eider_graph_live(g, live);
    name_program(n, n_written, live);
    name_operands(n);
    n->out.names = n->names;
    n->out.terms = n->terms;
    n->out.has_program = 1;
    return EIDER_OK;
}

/* ---- The twin ---------------------------------------------------------- */

struct twin {
    char *ir; /* LLVM's */
    struct eider_blob ptx, cubin;
};

static eider_status assemble_twin(const struct eider_kernel *kernel, struct twin *twin)
{
    char by[64];
    snprintf(by, sizeof by, "%.*s", (int)strcspn(kernel->info.assembler, " "),
             kernel->info.assembler);
    struct eider_assemble_job job = {
        .target = kernel->target,
        .assembler = by,
        .contract = kernel->contract,
        .line_info = 1,
        .deadline_ms = kernel->ctx->worker_deadline_ms,
    };
    struct eider_assemble_result result = {0};
    EIDER_TRY(eider_assemble(&kernel->ctx->allocator, &twin->ptx, &job, &result));
    twin->cubin = result.cubin;
    return EIDER_OK;
}

static eider_status make_twin(const struct eider_kernel *kernel, struct twin *twin)
{
    LLVMContextRef context;
    LLVMModuleRef module;
    struct eider_codegen_job job = {
        .target = kernel->target,
        .entry = kernel->info.entry,
        .registers = kernel->registers,
        .cluster = kernel->cluster,
        .contract = kernel->contract,
    };
    struct eider_codegen_result result = {0};
    EIDER_TRY(eider_kernel_module(kernel, 1, &context, &module, &job.block_threads));
    twin->ir = LLVMPrintModuleToString(module);
    eider_status status = eider_codegen_emit(&kernel->ctx->allocator, module, &job, &result);
    LLVMContextDispose(context);
    if (status != EIDER_OK) return status;
    twin->ptx = result.code;
    return assemble_twin(kernel, twin);
}

/* ---- Reports ----------------------------------------------------------- */

/* Bytes of one element: operands that repeat along a dimension come from a cache. */
static double bytes_of(const struct eider_kernel *kernel)
{
    double bytes = 0;
    for (uint32_t i = 0; i < kernel->layout.n_operands; i++) {
        const struct eider_layout_operand *o = &kernel->layout.operands[i];
        int repeats = o->kind == EIDER_SCALAR;
        for (int d = 0; d < kernel->layout.rank; d++) repeats |= o->stride_class[d] == 0;
        if (!repeats) bytes += (double)eider_dtype_size(o->type);
    }
    return bytes;
}

static void set_device(const struct eider_kernel *kernel, struct eider_sass_job *job)
{
    if (job->options->device)
        job->device = *job->options->device;
    else if (kernel && kernel->device)
        job->device = kernel->device->info;
}

static eider_status report_program(const struct eider_kernel *kernel, struct eider_sass_job *job,
                                   struct eider_lowered *lowered, eider_sass **out)
{
    const eider_allocator *a = &kernel->ctx->allocator;
    struct naming n = {.kernel = kernel, .lowered = lowered->graph};
    struct twin twin = {0};
    char *steps = NULL, *written = eider_mem_strdup(a, kernel->nodes);
    eider_arena_init(&n.arena, a, (size_t)256 << 20);
    eider_status status = written ? EIDER_OK : EIDER_OOM;
    if (status == EIDER_OK) status = eider_print_nodes(n.lowered, 1, &steps);
    if (status == EIDER_OK) status = make_names(&n, written, steps);
    if (status == EIDER_OK) status = make_twin(kernel, &twin);
    if (status == EIDER_OK) {
        job->names = &n.out;
        if (eider_sass_same_code(&job->cubin, &twin.cubin, kernel->info.entry)) {
            job->twin = twin.cubin;
            job->ir = twin.ir;
            job->ptx = twin.ptx.data;
        } else {
            job->attribution = "with line information the code is another";
        }
        status = eider_sass_make(a, job, out);
    }
    if (twin.ir) LLVMDisposeMessage(twin.ir);
    eider_blob_release(a, &twin.ptx);
    eider_blob_release(a, &twin.cubin);
    eider_mem_free(a, steps);
    eider_mem_free(a, written);
    eider_arena_release(&n.arena);
    return status;
}

static eider_status report(eider_kernel *kernel, struct eider_sass_job *job, eider_sass **out)
{
    eider_dtype types[EIDER_OPERANDS_MAX];
    struct eider_lowered lowered;
    job->spill_bytes = kernel->info.spill_bytes;
    job->shared_bytes = (int32_t)kernel->shared_bytes;
    if (!kernel->graph) {
        job->twin = job->cubin;
        job->text = kernel->stages[EIDER_STAGE_IR].data;
        job->ptx = kernel->stages[EIDER_STAGE_PTX].data;
        int32_t threads = (int32_t)(kernel->block[0] * kernel->block[1] * kernel->block[2]);
        if (threads > 1) job->block_threads = threads; /* else nobody said */
        return eider_sass_make(&kernel->ctx->allocator, job, out);
    }
    job->elements = kernel->shape->pass(&kernel->layout, &kernel->config);
    job->bytes = bytes_of(kernel);
    for (uint32_t i = 0; i < kernel->n_operands; i++) types[i] = kernel->layout.operands[i].type;
    EIDER_TRY(eider_lower_plan(kernel->graph, types, kernel->math, &lowered));
    eider_status status = report_program(kernel, job, &lowered, out);
    eider_lower_release(&lowered);
    return status;
}

eider_status eider_kernel_sass(eider_kernel *kernel, const eider_sass_options *options,
                               eider_sass **out)
{
    eider_sass_options chosen = {0};
    const void *cubin;
    size_t size;
    if (!kernel || !out) return eider_fail(EIDER_BAD_ARG, "eider_kernel_sass: NULL argument");
    EIDER_TRY(eider_context_check(kernel->ctx));
    if (kernel->target.sm == 0)
        return eider_fail(EIDER_UNSUPPORTED, "the CPU's machine code is not SASS");
    EIDER_TRY(eider_kernel_stage(kernel, EIDER_STAGE_CUBIN, &cubin, &size));
    if (options) chosen = *options;
    chosen.entry = kernel->info.entry;
    struct eider_sass_job job = {.options = &chosen};
    job.cubin = kernel->stages[EIDER_STAGE_CUBIN];
    set_device(kernel, &job);
    return report(kernel, &job, out);
}

eider_status eider_sass_read(eider_context *ctx, const void *cubin, size_t size,
                             const eider_sass_options *options, eider_sass **out)
{
    static const eider_sass_options defaults;
    if (!ctx || !cubin || !out)
        return eider_fail(EIDER_BAD_ARG, "eider_sass_read: an argument is NULL");
    EIDER_TRY(eider_context_check(ctx));
    struct eider_sass_job job = {.options = options ? options : &defaults, .spill_bytes = -1};
    EIDER_TRY(eider_blob_copy(&ctx->allocator, cubin, size, &job.cubin));
    job.twin = job.cubin;
    set_device(NULL, &job);
    eider_status status = eider_sass_make(&ctx->allocator, &job, out);
    eider_blob_release(&ctx->allocator, &job.cubin);
    return status;
}
