/* dump.c -- see dump.h. */
#include "dump.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "disk.h"
#include "home.h"

#define SASS EIDER_STAGES /* behind the stages of a kernel */
#define N_KINDS (EIDER_STAGES + 1)

static const struct {
    const char *name;      /* in EIDER_DUMP */
    const char *gpu, *cpu; /* what follows the key */
} kinds[N_KINDS] = {
    [EIDER_STAGE_PROGRAM] = {"program", "program.txt", "program.txt"},
    [EIDER_STAGE_IR] = {"ir", "ir.ll", "ir.ll"},
    [EIDER_STAGE_OPT] = {"opt", "opt.ll", "opt.ll"},
    [EIDER_STAGE_PTX] = {"ptx", "ptx", "s"},
    [EIDER_STAGE_CUBIN] = {"cubin", "cubin", "o"},
    [SASS] = {"sass", "sass", "sass"},
};

struct eider_dump {
    eider_context *ctx;
    unsigned wanted;  /* a bit per kind */
    atomic_uint told; /* a bit per kind, and one for files */
    char folder[EIDER_HOME_BYTES];
};

/* ---- What is wanted --------------------------------------------------------------- */

static unsigned read_wanted(eider_context *ctx, const char *list)
{
    unsigned wanted = 0;
    for (const char *at = list; *at;) {
        size_t n = strcspn(at, ","), kind = 0;
        while (kind < N_KINDS &&
               (strlen(kinds[kind].name) != n || memcmp(kinds[kind].name, at, n) != 0))
            kind++;
        if (kind < N_KINDS)
            wanted |= 1u << kind;
        else if (n)
            eider_context_log(ctx, 1,
                              "dump: EIDER_DUMP: '%.*s' is none of program, ir, opt, ptx, cubin, "
                              "sass",
                              n > 40 ? 40 : (int)n, at);
        at += n + (at[n] == ',');
    }
    return wanted;
}

eider_status eider_dump_create(eider_context *ctx, struct eider_dump **out)
{
    const char *list = eider_home_setting("EIDER_DUMP");
    char folder[EIDER_HOME_BYTES];
    *out = NULL;
    unsigned wanted = list ? read_wanted(ctx, list) : 0;
    if (!wanted) return EIDER_OK;
    if (eider_home_find("EIDER_DUMP_DIR", "dump", folder) != EIDER_HOME_FOUND) {
        eider_context_log(ctx, 1,
                          "dump: neither EIDER_DUMP_DIR nor a home names a folder; "
                          "nothing is written");
        return EIDER_OK;
    }
    struct eider_dump *dump = eider_mem_zero(&ctx->allocator, sizeof *dump);
    if (!dump) return EIDER_OOM;
    dump->ctx = ctx;
    dump->wanted = wanted;
    memcpy(dump->folder, folder, sizeof folder);
    *out = dump;
    return EIDER_OK;
}

void eider_dump_destroy(struct eider_dump *dump)
{
    if (dump) eider_mem_free(&dump->ctx->allocator, dump);
}

/* ---- Writing ---------------------------------------------------------------------- */

static void tell(struct eider_dump *dump, size_t kind, const char *what, const char *why)
{
    if (atomic_fetch_or(&dump->told, 1u << kind) >> kind & 1) return;
    eider_context_log(dump->ctx, 1, "dump: no %s: %.300s", what, why);
}

static void write_file(struct eider_dump *dump, const struct eider_kernel *kernel, size_t kind,
                       const void *data, size_t size)
{
    char path[EIDER_DISK_PATH_BYTES];
    struct eider_disk_error error;
    const char *suffix = kernel->target.sm ? kinds[kind].gpu : kinds[kind].cpu;
    if (snprintf(path, sizeof path, "%s/%s.%s", dump->folder, kernel->info.key, suffix) >=
        (int)sizeof path)
        return;
    if (!eider_disk_make(dump->folder, &error) ||
        !eider_disk_publish(dump->folder, path, data, size, &error))
        tell(dump, N_KINDS, "file", error.why);
}

static void dump_sass(struct eider_dump *dump, struct eider_kernel *kernel)
{
    const struct eider_blob *cubin = &kernel->stages[EIDER_STAGE_CUBIN];
    eider_sass *sass;
    eider_sass_instruction at;
    if (!kernel->target.sm || !cubin->data) {
        tell(dump, SASS, "sass", kernel->target.sm ? "there is no cubin" : "the CPU has none");
        return;
    }
    if (eider_sass_read(dump->ctx, cubin->data, cubin->size, NULL, &sass) != EIDER_OK) {
        tell(dump, SASS, "sass", eider_error());
        return;
    }
    struct eider_text text;
    eider_text_init(&text, &dump->ctx->allocator);
    for (size_t i = 0; eider_sass_code(sass, i, &at); i++)
        eider_text_add(&text, "%06x  %s%s%s %s\n", at.offset, at.predicate,
                       at.predicate[0] ? " " : "", at.opcode, at.operands);
    if (text.status == EIDER_OK)
        write_file(dump, kernel, SASS, text.data ? text.data : "", text.size);
    eider_text_release(&text);
    eider_sass_release(sass);
}

/* A stage that is there, or that a kernel which did not fail can make. */
static void dump_stage(struct eider_dump *dump, struct eider_kernel *kernel, eider_stage stage,
                       eider_status status)
{
    const void *data = kernel->stages[stage].data;
    size_t size = kernel->stages[stage].size;
    if (status == EIDER_OK && eider_kernel_stage(kernel, stage, &data, &size) != EIDER_OK)
        tell(dump, (size_t)stage, kinds[stage].name, eider_error());
    else if (data)
        write_file(dump, kernel, (size_t)stage, data, size);
}

void eider_dump_kernel(struct eider_dump *dump, struct eider_kernel *kernel, eider_status status)
{
    if (!dump || !kernel->info.key) return;
    char *error =
        status == EIDER_OK ? NULL : eider_mem_strdup(&dump->ctx->allocator, eider_error());
    for (size_t kind = 0; kind < EIDER_STAGES; kind++)
        if (dump->wanted >> kind & 1) dump_stage(dump, kernel, (eider_stage)kind, status);
    if (dump->wanted >> SASS & 1 && status == EIDER_OK) dump_sass(dump, kernel);
    if (error) eider_fail_text(status, error);
    eider_mem_free(&dump->ctx->allocator, error);
}
