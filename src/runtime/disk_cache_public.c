/* disk_cache_public.c -- what a caller may do with the cache on disk; see eider.h. */
#include <string.h>
#include <sys/stat.h>

#include "disk_cache.h"

static eider_status check(eider_context *ctx, const void *needed, const char *call)
{
    if (!ctx || !needed) return eider_fail(EIDER_BAD_ARG, "%s: NULL argument", call);
    return eider_context_check(ctx);
}

eider_status eider_cache_describe(eider_context *ctx, eider_cache_info *out)
{
    struct eider_disk_total total;
    EIDER_TRY(check(ctx, out, "eider_cache_describe"));
    const struct eider_disk_cache *cache = ctx->disk;
    EIDER_TRY(eider_disk_cache_trim(ctx->disk, UINT64_MAX, UINT64_MAX, &total));
    *out = (eider_cache_info){.directory = cache->root ? cache->root : "",
                              .n_layers = cache->n_layers,
                              .max_bytes = cache->max_bytes,
                              .max_files = cache->max_files,
                              .bytes = total.bytes,
                              .files = total.files};
    return EIDER_OK;
}

const char *eider_cache_layer(eider_context *ctx, size_t i)
{
    return ctx && i < ctx->disk->n_layers ? ctx->disk->layers[i].path : NULL;
}

/* ---- Walking -------------------------------------------------------------------- */

struct tour {
    eider_cache_visit visit;
    void *user;
    size_t layer;
};

static void show_entry(const struct eider_disk_entry *entry, eider_cache_entry *out)
{
    out->manifest = entry->section[EIDER_SECTION_MANIFEST].data;
    out->entry = entry->section[EIDER_SECTION_ENTRY].data;
    out->ptx = entry->section[EIDER_SECTION_PTX].data;
    out->ptx_size = entry->section[EIDER_SECTION_PTX].size;
    out->code = entry->section[EIDER_SECTION_CODE].data;
    out->code_size = entry->section[EIDER_SECTION_CODE].size;
    out->opt_ir = entry->section[EIDER_SECTION_OPT].data;
    out->opt_ir_size = entry->section[EIDER_SECTION_OPT].size;
    out->registers = entry->registers;
    out->spill_bytes = entry->spill_bytes;
    out->shared_bytes = entry->shared_bytes;
}

static int show(void *user, const char *name, const char *path, const struct eider_blob *file,
                const char *problem)
{
    const struct tour *tour = user;
    struct eider_disk_entry entry;
    struct stat st;
    eider_cache_entry shown = {.key = name + EIDER_DISK_PREFIX,
                               .path = path,
                               .layer = tour->layer,
                               .bytes = file ? file->size : 0,
                               .problem = problem,
                               .manifest = "",
                               .entry = "",
                               .ptx = "",
                               .code = "",
                               .opt_ir = "",
                               .registers = -1,
                               .spill_bytes = -1,
                               .shared_bytes = -1};
    if (lstat(path, &st) == 0) shown.used_s = (int64_t)st.st_mtime;
    if (!problem && !eider_disk_entry_read(file, &entry)) show_entry(&entry, &shown);
    return tour->visit(tour->user, &shown);
}

eider_status eider_cache_each(eider_context *ctx, const char *key, eider_cache_visit visit,
                              void *user)
{
    EIDER_TRY(check(ctx, ctx, "eider_cache_each"));
    if (!visit) return eider_fail(EIDER_BAD_ARG, "eider_cache_each: visit is NULL");
    struct tour tour = {.visit = visit, .user = user};
    eider_status status = EIDER_OK;
    for (; tour.layer <= ctx->disk->n_layers; tour.layer++) {
        int ends = eider_disk_cache_each(ctx->disk, tour.layer, key, show, &tour, &status);
        if (ends || status != EIDER_OK) break;
    }
    return status;
}

/* ---- Removing and moving --------------------------------------------------------- */

eider_status eider_cache_prune(eider_context *ctx, uint64_t max_bytes, uint64_t max_files,
                               uint64_t *out_files)
{
    struct eider_disk_total total;
    EIDER_TRY(check(ctx, out_files, "eider_cache_prune"));
    EIDER_TRY(eider_disk_cache_trim(ctx->disk, max_bytes, max_files, &total));
    *out_files = total.removed_files;
    return EIDER_OK;
}

struct shipment {
    struct eider_disk_archive_writer writer;
    eider_status status;
};

static int export_entry(void *user, const char *name, const char *path,
                        const struct eider_blob *file, const char *problem)
{
    (void)path;
    struct shipment *shipment = user;
    if (problem) return 0;
    shipment->status = eider_disk_archive_add(&shipment->writer, name, file);
    return shipment->status != EIDER_OK;
}

eider_status eider_cache_export(eider_context *ctx, const char *key, const char *path,
                                uint64_t *out_files)
{
    EIDER_TRY(check(ctx, path, "eider_cache_export"));
    EIDER_TRY(check(ctx, out_files, "eider_cache_export"));
    struct shipment shipment = {.writer = {.allocator = ctx->allocator}};
    EIDER_TRY(eider_disk_archive_start(&shipment.writer, path));
    for (size_t i = 0; i <= ctx->disk->n_layers && shipment.status == EIDER_OK; i++) {
        eider_status status;
        eider_disk_cache_each(ctx->disk, i, key, export_entry, &shipment, &status);
        if (status != EIDER_OK) shipment.status = status;
    }
    if (shipment.status == EIDER_OK)
        return eider_disk_archive_finish(&shipment.writer, path, out_files);
    eider_disk_archive_discard(&shipment.writer);
    return shipment.status;
}

/* Puts entry `i` into the directory; *problem is why not. */
static eider_status import_entry(struct eider_disk_cache *cache,
                                 const struct eider_disk_archive *archive, size_t i,
                                 const char **problem)
{
    const char *name = eider_disk_archive_name(archive, i);
    struct eider_disk_error error;
    struct eider_disk_entry entry;
    struct eider_blob file;
    *problem = NULL;
    eider_status status = eider_disk_archive_read(archive, i, &file, &error);
    if (status == EIDER_OOM) return status;
    if (status != EIDER_OK) {
        *problem = "it cannot be read";
        return EIDER_OK;
    }
    *problem = eider_disk_cache_check(&file, name, &entry);
    if (!*problem &&
        !eider_disk_cache_put(cache, entry.section[EIDER_SECTION_MANIFEST].data, &file))
        *problem = "it cannot be written";
    eider_blob_release(&cache->ctx->allocator, &file);
    return EIDER_OK;
}

eider_status eider_cache_import(eider_context *ctx, const char *path, uint64_t *out_files)
{
    struct eider_disk_archive *archive;
    const char *problem, *first = NULL;
    uint64_t n_bad = 0;
    EIDER_TRY(check(ctx, path, "eider_cache_import"));
    EIDER_TRY(check(ctx, out_files, "eider_cache_import"));
    if (!ctx->disk->root)
        return eider_fail(EIDER_IO, "there is no directory to import into: set EIDER_CACHE_DIR");
    EIDER_TRY(eider_disk_archive_open(&ctx->allocator, path, &archive));
    *out_files = 0;
    eider_status status = EIDER_OK;
    size_t n = eider_disk_archive_size(archive);
    for (size_t i = 0; i < n && status == EIDER_OK; i++) {
        status = import_entry(ctx->disk, archive, i, &problem);
        if (!first) first = problem;
        if (problem)
            n_bad++;
        else if (status == EIDER_OK)
            ++*out_files;
    }
    eider_disk_archive_close(archive);
    if (status != EIDER_OK || !n_bad) return status;
    return eider_fail(EIDER_IO, "%llu of %zu entries of %s were not imported; of the first: %s",
                      (unsigned long long)n_bad, n, path, first);
}
