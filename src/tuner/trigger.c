/* trigger.c -- see trigger.h. */
#include "trigger.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "element.h"

/* Changes when the same call should get another key. */
#define KEY_VERSION 1
#define TRIGGERS_MAX 64

struct lines {
    const struct eider_call *call;
    size_t n;
    char *at[TRIGGERS_MAX];
};

/* ---- Triggers ---------------------------------------------------------------- */

static eider_status keep(struct lines *lines, struct eider_text *line)
{
    char *text;
    if (lines->n == TRIGGERS_MAX) {
        eider_text_release(line);
        return eider_fail(EIDER_TOO_LARGE, "more than %d triggers", TRIGGERS_MAX);
    }
    EIDER_TRY(eider_text_take(line, &text, NULL));
    lines->at[lines->n++] = text;
    return EIDER_OK;
}

static eider_status add_trigger(struct lines *lines, const char *text, const char **at,
                                uint64_t *whole)
{
    struct eider_expr_scope scope = eider_call_scope(lines->call, NULL);
    struct eider_expr_value v;
    struct eider_text line;
    eider_text_init(&line, &lines->call->ctx->allocator);
    eider_status status = eider_expr_eval("triggers", text, at, &scope, &line, &v);
    if (status != EIDER_OK) {
        eider_text_release(&line);
        return status;
    }
    if (v.operand >= 0) *whole |= UINT64_C(1) << v.operand;
    eider_text_add(&line, " = %s", v.text);
    return keep(lines, &line);
}

/* "x" says everything about x: its own properties say nothing more. */
static void absorb(struct lines *lines, uint64_t whole)
{
    const struct eider_call *call = lines->call;
    for (size_t i = 0; i < call->n; i++) {
        size_t length = strlen(call->names[i]), kept = 0;
        if (!(whole >> i & 1)) continue;
        for (size_t k = 0; k < lines->n; k++) {
            char *line = lines->at[k];
            int is_property = strncmp(line, call->names[i], length) == 0 && line[length] == '.';
            /* A property and nothing else, up to " = ". */
            size_t end = strcspn(line, " ");
            for (size_t c = length + 1; is_property && c < end; c++)
                is_property = isalnum((unsigned char)line[c]) || strchr("()-_", line[c]);
            if (is_property)
                eider_mem_free(&call->ctx->allocator, line);
            else
                lines->at[kept++] = line;
        }
        lines->n = kept;
    }
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* By default sizes are bucketed: a new token count is not a new tuning. */
static eider_status add_default(struct lines *lines)
{
    const struct eider_call *call = lines->call;
    for (size_t i = 0; i < call->n; i++) {
        char text[EIDER_NAME_BYTES + 16];
        uint64_t whole = 0;
        const char *at = text;
        if (call->kinds[i] != EIDER_OUTPUT) continue;
        snprintf(text, sizeof text, "pow2(%.64s.count)", call->names[i]);
        EIDER_TRY(add_trigger(lines, text, &at, &whole));
    }
    return EIDER_OK;
}

static eider_status add_listed(struct lines *lines)
{
    const char *text = lines->call->request->triggers, *at = text;
    uint64_t whole = 0;
    while (isspace((unsigned char)*at)) at++;
    while (*at) {
        EIDER_TRY(add_trigger(lines, text, &at, &whole));
        if (*at != ',') break;
        at++;
        while (isspace((unsigned char)*at)) at++;
        if (!*at)
            return eider_fail(EIDER_PARSE, "triggers: %zu: expected a trigger after ',' in '%s'",
                              (size_t)(at - text) + 1, text);
    }
    absorb(lines, whole);
    return EIDER_OK;
}

static eider_status add_functions(struct lines *lines)
{
    const eider_tune_request *r = lines->call->request;
    for (size_t i = 0; i < r->n_functions; i++) {
        const eider_tune_function *f = &r->functions[i];
        struct eider_text line;
        eider_text_init(&line, &lines->call->ctx->allocator);
        eider_text_add(&line, "%s() = %lld", f->name,
                       (long long)f->call(f->user, lines->call->kernel->args, lines->call->n));
        EIDER_TRY(keep(lines, &line));
    }
    return EIDER_OK;
}

eider_status eider_trigger_lines(const struct eider_call *call, char **out)
{
    struct lines lines = {.call = call};
    struct eider_text text;
    eider_text_init(&text, &call->ctx->allocator);
    eider_status status = call->request->triggers ? add_listed(&lines) : add_default(&lines);
    if (status == EIDER_OK) status = add_functions(&lines);
    if (lines.n) qsort(lines.at, lines.n, sizeof lines.at[0], by_text);
    for (size_t i = 0; i < lines.n; i++) {
        if (i == 0 || strcmp(lines.at[i - 1], lines.at[i]) != 0)
            eider_text_add(&text, "trigger: %s\n", lines.at[i]);
    }
    for (size_t i = 0; i < lines.n; i++) eider_mem_free(&call->ctx->allocator, lines.at[i]);
    if (status == EIDER_OK) return eider_text_take(&text, out, NULL);
    eider_text_release(&text);
    return status;
}

/* ---- The key ------------------------------------------------------------------- */

static void add_device(const struct eider_call *call, struct eider_text *text)
{
    const eider_device_info *info = &call->device->info;
    eider_text_add(text, "device: %s; %s; %d units; %d kHz; %" PRIu64 " bytes of L2; driver %d\n",
                   info->name, info->target, info->units, info->clock_khz, info->l2_bytes,
                   info->driver);
    eider_text_add(text, "timing: %s%s\n", call->request->hot ? "hot" : "cold",
                   call->request->hooks.timer ? ", the caller's timer" : "");
}

/* What decides which configs can work and how fast they are, and is not in the manifest. */
static void add_call(const struct eider_call *call, struct eider_text *text)
{
    const eider_tune_request *r = call->request;
    if (call->graph) {
        eider_text_add(text, "rows: vectors up to %d\n", call->plan.layout.vec_max);
    } else {
        eider_text_add(text, "align:");
        for (size_t i = 0; i < call->n; i++)
            eider_text_add(text, " %d", eider_element_align(call->kernel->args[i].data));
        eider_text_add(text, "\ngrid: %s; block: %s; shared: %s\n", r->grid ? r->grid : "",
                       r->block ? r->block : "", r->shared ? r->shared : "");
    }
    if (r->tolerance > 0) eider_text_add(text, "tolerance: %.9g\n", r->tolerance);
}

/* The manifest of the kernel with an open config. */
static eider_status add_manifest(const struct eider_call *call, struct eider_text *text)
{
    char assembler[EIDER_ASSEMBLER_TEXT_BYTES];
    struct eider_kernel *kernel = eider_mem_zero(&call->ctx->allocator, sizeof *kernel);
    eider_request open = *call->kernel;
    struct eider_plan plan = call->plan;
    if (!kernel) return EIDER_OOM;
    eider_status status = eider_codegen_init();
    open.config = NULL;
    plan.request = &open;
    plan.config = eider_config_unset();
    eider_arena_init(&kernel->texts, &call->ctx->allocator, SIZE_MAX);
    if (open.source) {
        for (int i = 0; i < 3; i++)
            kernel->block[i] = open.source->block[i] ? open.source->block[i] : 1;
        kernel->shared_bytes = open.source->shared_bytes;
    }
    if (status == EIDER_OK) status = eider_kernel_assembler(&plan, assembler);
    if (status == EIDER_OK) status = eider_manifest_write(&plan, assembler, kernel);
    if (status == EIDER_OK) eider_text_add(text, "%s", kernel->info.manifest);
    eider_arena_release(&kernel->texts);
    eider_mem_free(&call->ctx->allocator, kernel);
    return status;
}

eider_status eider_trigger_key(const struct eider_call *call, struct eider_key *out)
{
    struct eider_text text;
    char *triggers;
    EIDER_TRY(eider_trigger_lines(call, &triggers));
    eider_text_init(&text, &call->ctx->allocator);
    eider_text_add(&text, "tuning: %d\n", KEY_VERSION);
    eider_status status = add_manifest(call, &text);
    add_device(call, &text);
    add_call(call, &text);
    eider_text_add(&text, "%s", triggers);
    eider_mem_free(&call->ctx->allocator, triggers);
    if (status == EIDER_OK) status = eider_text_take(&text, &out->text, NULL);
    eider_text_release(&text);
    if (status != EIDER_OK) return status;
    XXH128_hash_t hash = XXH3_128bits(out->text, strlen(out->text));
    snprintf(out->digits, sizeof out->digits, "%016" PRIx64 "%016" PRIx64, hash.high64, hash.low64);
    return EIDER_OK;
}

void eider_trigger_release(const struct eider_call *call, struct eider_key *key)
{
    eider_mem_free(&call->ctx->allocator, key->text);
    key->text = NULL;
}
