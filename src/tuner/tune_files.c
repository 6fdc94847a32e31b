/* tune_files.c -- timings in and out of files: the public functions.
 *
 * Invariant: what is written is sorted and has each line once, so that the same timings are
 * the same bytes, however they came together.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "records.h"
#include "tuner.h"

/* The file of the records in `folder`, or EIDER_IO where there is no place for one. */
static eider_status find_file(eider_context *ctx, const char *folder, char *buffer,
                              const char **out)
{
    struct eider_tuner *tuner;
    EIDER_TRY(eider_tuner_get(ctx, &tuner));
    *out = eider_tuner_file(tuner, folder, buffer);
    if (*out) return EIDER_OK;
    return eider_fail(EIDER_IO, "there is no folder for timings: EIDER_HOME, XDG_CACHE_HOME and "
                                "HOME name none, or EIDER_CACHE_AUTOTUNING is off");
}

static eider_status read_file(eider_context *ctx, struct eider_records *records, const char *path,
                              const char *key, int must_be)
{
    size_t before = records->n;
    if (must_be && access(path, R_OK) != 0)
        return eider_fail(EIDER_IO, "%s: %s", path, strerror(errno));
    EIDER_TRY(eider_records_read(records, path, key));
    if (records->n_bad)
        eider_context_log(ctx, 1, "skipped %zu lines of %s: they are not timings of this version",
                          records->n_bad, path);
    records->n_bad = 0;
    if (must_be && records->n == before) return eider_fail(EIDER_IO, "%s has no timings", path);
    return EIDER_OK;
}

eider_status eider_tune_export(eider_context *ctx, const char *records, const char *key,
                               const char *file)
{
    struct eider_records all;
    char buffer[4096];
    const char *path;
    if (!ctx || !file) return eider_fail(EIDER_BAD_ARG, "eider_tune_export: NULL argument");
    EIDER_TRY(eider_context_check(ctx));
    EIDER_TRY(find_file(ctx, records, buffer, &path));
    eider_records_init(&all, &ctx->allocator);
    eider_status status = read_file(ctx, &all, path, key, 1);
    eider_records_sort(&all);
    if (status == EIDER_OK) status = eider_records_write(&all, file);
    eider_records_release(&all);
    return status;
}

/* Adds to `path` the lines of `from` that `have` lacks. */
static eider_status add_new(eider_context *ctx, const char *path, const struct eider_records *have,
                            const struct eider_records *from)
{
    struct eider_text text;
    char *lines;
    size_t size, k = 0;
    eider_text_init(&text, &ctx->allocator);
    for (size_t i = 0; i < from->n; i++) {
        int order = -1;
        for (; k < have->n; k++) {
            order = strcmp(have->at[k].key, from->at[i].key);
            if (order == 0) order = strcmp(have->at[k].line, from->at[i].line);
            if (order >= 0) break;
        }
        if (k == have->n || order != 0) eider_text_add(&text, "%s\n", from->at[i].line);
    }
    EIDER_TRY(eider_text_take(&text, &lines, &size));
    eider_status status = size ? eider_records_append(path, lines, size) : EIDER_OK;
    eider_mem_free(&ctx->allocator, lines);
    return status;
}

eider_status eider_tune_import(eider_context *ctx, const char *records, const char *file)
{
    struct eider_records have, from;
    char buffer[4096];
    const char *path;
    if (!ctx || !file) return eider_fail(EIDER_BAD_ARG, "eider_tune_import: NULL argument");
    EIDER_TRY(eider_context_check(ctx));
    EIDER_TRY(find_file(ctx, records, buffer, &path));
    eider_records_init(&have, &ctx->allocator);
    eider_records_init(&from, &ctx->allocator);
    eider_status status = read_file(ctx, &from, file, NULL, 1);
    if (status == EIDER_OK) status = read_file(ctx, &have, path, NULL, 0);
    eider_records_sort(&have);
    eider_records_sort(&from);
    if (status == EIDER_OK) status = add_new(ctx, path, &have, &from);
    eider_records_release(&have);
    eider_records_release(&from);
    return status;
}

eider_status eider_tune_merge(eider_context *ctx, const char *a, const char *b, const char *file)
{
    struct eider_records all;
    if (!ctx || !a || !b || !file)
        return eider_fail(EIDER_BAD_ARG, "eider_tune_merge: NULL argument");
    EIDER_TRY(eider_context_check(ctx));
    eider_records_init(&all, &ctx->allocator);
    eider_status status = read_file(ctx, &all, a, NULL, 1);
    if (status == EIDER_OK) status = read_file(ctx, &all, b, NULL, 1);
    eider_records_sort(&all);
    if (status == EIDER_OK) status = eider_records_write(&all, file);
    eider_records_release(&all);
    return status;
}
