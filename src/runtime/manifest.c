/* manifest.c -- the ingredients of a kernel's key as text, and the key.
 *
 * Invariant: the manifest names everything that the machine code depends on, and nothing
 * else: no path, address, time or process.  The key is the XXH3-128 of the manifest.
 */
#include "kernel.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "passes.h"

/* One line of the manifest: line breaks in `text` would start another. */
static void add_line(struct eider_text *out, const char *name, const char *text)
{
    eider_text_add(out, "%s: ", name);
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, "\n");
        eider_text_bytes(out, at, n);
        at += n;
        if (*at && *++at) eider_text_bytes(out, "; ", 2);
    }
    eider_text_bytes(out, "\n", 1);
}

static void add_hash(struct eider_text *out, const char *name, const void *data, size_t size)
{
    XXH128_hash_t hash = XXH3_128bits(data, size);
    eider_text_add(out, "%s: %016" PRIx64 "%016" PRIx64 "\n", name, hash.high64, hash.low64);
}

static void add_source(struct eider_text *out, const eider_source *source,
                       const struct eider_kernel *kernel, const char *config)
{
    static const char *const kinds[] = {"ll", "bitcode", "ptx", "callback"};
    static const char *const operand_kinds[] = {"input", "scalar", "output"};
    add_line(out, "source", kinds[source->kind]);
    if (source->kind == EIDER_SOURCE_CALLBACK)
        add_line(out, "identity", source->identity);
    else
        add_hash(out, "data", source->data, source->size ? source->size : strlen(source->data));
    add_line(out, "entry", source->entry);
    add_line(out, "config", config);
    eider_text_add(out, "block: %u %u %u\nshared: %u\noperands:", kernel->block[0],
                   kernel->block[1], kernel->block[2], kernel->shared_bytes);
    for (size_t i = 0; i < source->n_operands; i++) {
        const eider_operand *operand = &source->operands[i];
        eider_text_add(out, " %s:%s", operand_kinds[operand->kind],
                       operand->type < 0 ? "any" : eider_dtype_name((eider_dtype)operand->type));
    }
    eider_text_bytes(out, "\n", 1);
}

static void add_program(struct eider_text *out, const struct eider_plan *plan, const char *config)
{
    add_line(out, "program", eider_program_text(plan->request->program));
    add_line(out, "template", plan->shape->name);
    add_line(out, "config", config);
    eider_text_add(out, "layout: ");
    plan->shape->describe(plan->graph, &plan->layout, out);
    eider_text_bytes(out, "\n", 1);
}

static char *keep(struct eider_kernel *kernel, const char *text)
{
    return eider_arena_text(&kernel->texts, text, strlen(text));
}

static eider_status keep_key(struct eider_kernel *kernel, const char *manifest)
{
    char key[33];
    XXH128_hash_t hash = XXH3_128bits(manifest, strlen(manifest));
    snprintf(key, sizeof key, "%016" PRIx64 "%016" PRIx64, hash.high64, hash.low64);
    kernel->info.key = keep(kernel, key);
    kernel->info.manifest = keep(kernel, manifest);
    return kernel->info.key && kernel->info.manifest ? EIDER_OK : EIDER_OOM;
}

/* The name under which profilers show a kernel of a program: the template, and enough of
 * the key to tell kernels apart. */
static char *keep_entry(struct eider_kernel *kernel, const struct eider_plan *plan)
{
    char name[64];
    if (plan->request->source) return keep(kernel, plan->request->source->entry);
    snprintf(name, sizeof name, "eider_%.32s_%.8s", plan->shape->name, kernel->info.key);
    return keep(kernel, name);
}

eider_status eider_manifest_write(const struct eider_plan *plan, const char *assembler,
                                  struct eider_kernel *kernel)
{
    char config[EIDER_CONFIG_TEXT_BYTES], target[EIDER_TARGET_TEXT_BYTES], numerics[64];
    const char *given = plan->request->config ? plan->request->config : "";
    eider_config_print(&plan->config, config);
    const char *shown = plan->request->source ? given : config;
    eider_target_print(plan->target, target);
    snprintf(numerics, sizeof numerics, "math=%s,ftz=%s,contract=%s", eider_math_names[plan->math],
             plan->ftz ? "on" : "off", plan->contract ? "on" : "off");

    struct eider_text text;
    eider_text_init(&text, &plan->ctx->allocator);
    eider_text_add(&text, "eider: %s code %s\n", eider_version(), eider_code_digest);
    if (plan->request->source)
        add_source(&text, plan->request->source, kernel, shown);
    else
        add_program(&text, plan, shown);
    add_line(&text, "numerics", numerics);
    add_line(&text, "target", target);
    add_line(&text, "host", plan->target.sm ? "" : eider_codegen_host());
    add_line(&text, "llvm", eider_codegen_llvm_build());
    add_line(&text, "pipeline", eider_codegen_pipeline());
    add_line(&text, "ptx", plan->target.sm ? "lowest" : ""); /* the version that the code needs */
    eider_text_add(&text, "line_info: %d\n", plan->request->line_info != 0);
    add_line(&text, "assembler", assembler);

    char *manifest;
    EIDER_TRY(eider_text_take(&text, &manifest, NULL));
    eider_status status = keep_key(kernel, manifest);
    eider_mem_free(&plan->ctx->allocator, manifest);
    kernel->info.config = keep(kernel, shown);
    kernel->info.target = keep(kernel, target);
    kernel->info.numerics = keep(kernel, numerics);
    kernel->info.assembler = keep(kernel, assembler);
    if (status == EIDER_OK) kernel->info.entry = keep_entry(kernel, plan);
    if (!kernel->info.config || !kernel->info.target || !kernel->info.numerics ||
        !kernel->info.assembler || !kernel->info.entry)
        return EIDER_OOM;
    return EIDER_OK;
}
