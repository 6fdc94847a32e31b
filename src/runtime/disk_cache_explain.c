/* disk_cache_explain.c -- why a key missed: the most similar entry, and what differs. */
#include <string.h>

#include "disk_cache.h"
#include "kernel.h"

#define TEXTS_BYTES_MAX ((size_t)64 << 20)

/* Another program is further away than another target or assembler. */
#define WEIGHT_OF_PROGRAM 8

struct explanation {
    eider_cache_explanation shown; /* first: what the caller has is its address */
    struct eider_arena texts;
};

/* ---- Manifests as lines "name: value" ------------------------------------------- */

struct line {
    const char *name, *value;
    size_t name_size, value_size;
};

/* Takes one line off *at; 0 at the end. */
static int next_line(const char **at, struct line *out)
{
    if (!**at) return 0;
    size_t size = strcspn(*at, "\n"), name = strcspn(*at, ":\n");
    const char *value = *at + name + (name < size);
    while (*value == ' ') value++;
    *out = (struct line){*at, value, name, (size_t)(*at + size - value)};
    *at += size + ((*at)[size] == '\n');
    return 1;
}

static int find_line(const char *manifest, const struct line *like, struct line *out)
{
    while (next_line(&manifest, out))
        if (out->name_size == like->name_size && memcmp(out->name, like->name, out->name_size) == 0)
            return 1;
    return 0;
}

static int is_equal(const struct line *a, const struct line *b)
{
    return a->value_size == b->value_size && memcmp(a->value, b->value, a->value_size) == 0;
}

static unsigned weight(const struct line *line)
{
    static const char *const names[] = {"program", "source", "data", "identity"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i]) == line->name_size &&
            memcmp(names[i], line->name, line->name_size) == 0)
            return WEIGHT_OF_PROGRAM;
    return 1;
}

static unsigned distance(const char *wanted, const char *kept)
{
    struct line line, other;
    unsigned sum = 0;
    for (const char *at = wanted; next_line(&at, &line);)
        if (!find_line(kept, &line, &other) || !is_equal(&line, &other)) sum += weight(&line);
    return sum;
}

/* ---- The nearest entry ---------------------------------------------------------- */

struct nearest {
    const eider_allocator *a;
    const char *wanted;
    unsigned distance;
    char *manifest; /* NULL: none yet */
    eider_status status;
};

static int compare(void *user, const char *name, const char *path, const struct eider_blob *file,
                   const char *problem)
{
    (void)name, (void)path;
    struct nearest *nearest = user;
    struct eider_disk_entry entry;
    if (problem || eider_disk_entry_read(file, &entry)) return 0;
    const char *manifest = entry.section[EIDER_SECTION_MANIFEST].data;
    unsigned d = distance(nearest->wanted, manifest);
    if (nearest->manifest && d >= nearest->distance) return 0;
    char *copy = eider_mem_strdup(nearest->a, manifest);
    if (!copy) {
        nearest->status = EIDER_OOM;
        return 1;
    }
    eider_mem_free(nearest->a, nearest->manifest);
    nearest->manifest = copy;
    nearest->distance = d;
    return 0;
}

static eider_status find_nearest(struct eider_disk_cache *cache, struct nearest *nearest)
{
    for (size_t i = 0; i <= cache->n_layers && nearest->status == EIDER_OK; i++) {
        eider_status status;
        eider_disk_cache_each(cache, i, NULL, compare, nearest, &status);
        if (status != EIDER_OK) nearest->status = status;
    }
    return nearest->status;
}

/* ---- The explanation ------------------------------------------------------------ */

static const char *keep(struct explanation *out, const char *text, size_t size)
{
    return eider_arena_text(&out->texts, text, size);
}

static eider_status add_difference(struct explanation *out, eider_cache_difference *at,
                                   const struct line *name, const struct line *wanted,
                                   const struct line *kept)
{
    at->name = keep(out, name->name, name->name_size);
    at->wanted = keep(out, wanted ? wanted->value : "", wanted ? wanted->value_size : 0);
    at->kept = keep(out, kept ? kept->value : "", kept ? kept->value_size : 0);
    if (!at->name || !at->wanted || !at->kept) return EIDER_OOM;
    out->shown.n_differences++;
    return EIDER_OK;
}

static size_t count_lines(const char *text)
{
    struct line line;
    size_t n = 0;
    while (next_line(&text, &line)) n++;
    return n;
}

static eider_status list_differences(struct explanation *out, const char *kept)
{
    const char *wanted = out->shown.manifest;
    struct line line, other;
    eider_cache_difference *rows =
        eider_arena_alloc(&out->texts, (count_lines(wanted) + count_lines(kept)) * sizeof *rows);
    if (!rows) return EIDER_OOM;
    out->shown.differences = rows;
    for (const char *at = wanted; next_line(&at, &line);) {
        int has = find_line(kept, &line, &other);
        if (has && is_equal(&line, &other)) continue;
        EIDER_TRY(add_difference(out, &rows[out->shown.n_differences], &line, &line,
                                 has ? &other : NULL));
    }
    for (const char *at = kept; next_line(&at, &line);)
        if (!find_line(wanted, &line, &other))
            EIDER_TRY(add_difference(out, &rows[out->shown.n_differences], &line, NULL, &line));
    return EIDER_OK;
}

static eider_status describe(struct explanation *out, const char *kept)
{
    char name[EIDER_DISK_NAME_BYTES];
    eider_disk_entry_name(kept, name);
    out->shown.nearest = keep(out, name + EIDER_DISK_PREFIX, 32);
    if (!out->shown.nearest) return EIDER_OOM;
    return list_differences(out, kept);
}

static eider_status explain(eider_context *ctx, const struct eider_kernel *kernel,
                            int any_assembler, struct explanation *out)
{
    const char *manifest = kernel->info.manifest;
    struct eider_disk_found found;
    struct nearest nearest = {.a = &ctx->allocator, .wanted = manifest};
    out->shown.key = keep(out, kernel->info.key, strlen(kernel->info.key));
    out->shown.manifest = keep(out, manifest, strlen(manifest));
    out->shown.nearest = "";
    if (!out->shown.key || !out->shown.manifest) return EIDER_OOM;
    EIDER_TRY(eider_disk_cache_find(ctx->disk, manifest, any_assembler, &found));
    if (any_assembler && found.miss != EIDER_MISS_NONE)
        EIDER_TRY(eider_disk_cache_find(ctx->disk, manifest, 0, &found));
    out->shown.is_hit = found.miss == EIDER_MISS_NONE;
    if (out->shown.is_hit) {
        eider_status status = describe(out, found.entry.section[EIDER_SECTION_MANIFEST].data);
        eider_blob_release(&ctx->allocator, &found.file);
        return status;
    }
    eider_status status = find_nearest(ctx->disk, &nearest);
    if (status == EIDER_OK && nearest.manifest) status = describe(out, nearest.manifest);
    eider_mem_free(&ctx->allocator, nearest.manifest);
    return status;
}

eider_status eider_cache_explain(eider_context *ctx, eider_device *device,
                                 const eider_request *request, eider_cache_explanation **out)
{
    struct eider_plan plan;
    struct eider_kernel *kernel;
    int any_assembler;
    if (!ctx || !request || !out)
        return eider_fail(EIDER_BAD_ARG, "eider_cache_explain: NULL argument");
    EIDER_TRY(eider_prepare_plan(ctx, device, request, &plan));
    struct explanation *made = eider_mem_zero(&ctx->allocator, sizeof *made);
    if (!made) return EIDER_OOM;
    eider_arena_init(&made->texts, &ctx->allocator, TEXTS_BYTES_MAX);
    eider_status status = eider_kernel_identify(&plan, &kernel, &any_assembler);
    if (status == EIDER_OK) {
        status = explain(ctx, kernel, any_assembler, made);
        eider_kernel_release(kernel);
    }
    if (status == EIDER_OK)
        *out = &made->shown;
    else
        eider_cache_explanation_release(&made->shown);
    return status;
}

void eider_cache_explanation_release(eider_cache_explanation *explanation)
{
    if (!explanation) return;
    struct explanation *made = (struct explanation *)explanation;
    eider_allocator a = made->texts.allocator;
    eider_arena_release(&made->texts);
    eider_mem_free(&a, made);
}
