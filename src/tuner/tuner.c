/* tuner.c -- see tuner.h. */
#include "tuner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "home.h"

#define FILE_NAME "timings.jsonl"

static void destroy(struct eider_tuner *tuner)
{
    eider_context *ctx = tuner->ctx;
    pthread_mutex_destroy(&tuner->lock);
    eider_records_release(&tuner->known);
    eider_mem_free(&ctx->allocator, tuner);
}

static eider_status create(eider_context *ctx, struct eider_tuner **out)
{
    struct eider_tuner *tuner = eider_mem_zero(&ctx->allocator, sizeof *tuner);
    if (!tuner) return EIDER_OOM;
    tuner->ctx = ctx;
    pthread_mutex_init(&tuner->lock, NULL);
    eider_records_init(&tuner->known, &ctx->allocator);
    tuner->uses_files =
        !getenv("EIDER_CACHE_AUTOTUNING") || eider_home_switch("EIDER_CACHE_AUTOTUNING");
    tuner->forces = eider_home_switch("EIDER_FORCE_CACHE_UPDATE");
    tuner->tells = eider_home_switch("EIDER_PRINT_AUTOTUNING");
    if (eider_home_find(NULL, "tuning", tuner->place) != EIDER_HOME_FOUND) tuner->place[0] = '\0';
    *out = tuner;
    return EIDER_OK;
}

eider_status eider_tuner_get(eider_context *ctx, struct eider_tuner **out)
{
    struct eider_tuner *mine = NULL;
    pthread_mutex_lock(&ctx->lock);
    struct eider_tuner *found = ctx->tuner;
    pthread_mutex_unlock(&ctx->lock);
    if (!found) {
        EIDER_TRY(create(ctx, &mine));
        pthread_mutex_lock(&ctx->lock);
        if (!ctx->tuner) {
            ctx->tuner = mine;
            ctx->tuner_destroy = destroy;
        }
        found = ctx->tuner;
        pthread_mutex_unlock(&ctx->lock);
        if (found != mine) destroy(mine);
    }
    *out = found;
    return EIDER_OK;
}

const char *eider_tuner_file(struct eider_tuner *tuner, const char *records, char *buffer)
{
    const char *folder = records ? records : tuner->uses_files ? tuner->place : "";
    int n = snprintf(buffer, 4096, "%s/" FILE_NAME, folder);
    return *folder && n > 0 && n < 4096 ? buffer : NULL;
}

static void warn_once(struct eider_tuner *tuner, int *told, const char *what, const char *detail)
{
    if (!*told) eider_context_log(tuner->ctx, 1, "%s: %s", what, detail);
    *told = 1;
}

eider_status eider_tuner_read(struct eider_tuner *tuner, const char *file, const char *key)
{
    struct eider_records *known = &tuner->known;
    char text[256];
    if (!file) return EIDER_OK;
    known->n_bad = 0;
    eider_status status = eider_records_read(known, file, key);
    eider_records_sort(known);
    if (status == EIDER_IO) {
        warn_once(tuner, &tuner->told_io, "timings are not remembered", eider_error());
        status = EIDER_OK;
    }
    snprintf(text, sizeof text, "%zu lines of %.160s are not timings of this version", known->n_bad,
             file);
    if (known->n_bad) warn_once(tuner, &tuner->told_bad, "skipped", text);
    return status;
}

eider_status eider_tuner_publish(struct eider_tuner *tuner, const char *file, const char *lines,
                                 size_t size)
{
    /* What is in the file is known when it is read again, in the order of the file. */
    if (file && eider_records_append(file, lines, size) == EIDER_OK) return EIDER_OK;
    if (file) warn_once(tuner, &tuner->told_io, "timings are not remembered", eider_error());
    eider_status status = eider_records_add(&tuner->known, lines, size, NULL);
    eider_records_sort(&tuner->known);
    return status;
}
