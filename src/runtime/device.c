/* device.c -- devices by name, their memory and streams, and what was looked for.
 *
 * Invariant: a device is in its context's list from its first handle on, so that all
 * handles of one device are one object.
 */
#include "backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "code_cache.h"
#include "codegen.h"
#include "recent.h"

static const struct eider_backend *const backends[] = {
#define EIDER_BACKEND(name) &eider_backend_##name,
#include "backends.def"
};

const struct eider_backend *eider_backend_row(size_t i)
{
    return i < sizeof backends / sizeof backends[0] ? backends[i] : NULL;
}

/* "cuda:1" is backend cuda, ordinal 1; "cuda" is ordinal 0. */
static eider_status parse_name(const char *name, const struct eider_backend **out_backend,
                               int32_t *out_ordinal)
{
    size_t length = strcspn(name, ":");
    const char *digits = name[length] ? name + length + 1 : "0";
    int is_number = *digits && digits[strspn(digits, "0123456789")] == '\0';
    long ordinal = strtol(digits, NULL, 10);
    if (is_number && ordinal <= INT32_MAX) {
        for (size_t i = 0; eider_backend_row(i); i++) {
            const char *row = eider_backend_row(i)->name;
            if (strlen(row) != length || memcmp(row, name, length) != 0) continue;
            *out_backend = eider_backend_row(i);
            *out_ordinal = (int32_t)ordinal;
            return EIDER_OK;
        }
    }
    return eider_fail(EIDER_NO_DEVICE, "unknown device '%.40s': expected cpu, cuda or cuda:N",
                      name);
}

/* ---- The list of devices ----------------------------------------------- */

/* An open device like `wanted`, with one more handle, or NULL.  ctx->lock is held. */
static eider_device *share(const eider_device *wanted)
{
    for (eider_device *d = wanted->ctx->devices; d; d = d->next) {
        if (d->backend != wanted->backend || d->borrowed != wanted->borrowed) continue;
        if (d->borrowed ? d->native != wanted->native : d->ordinal != wanted->ordinal) continue;
        d->refs++;
        return d;
    }
    return NULL;
}

/* Opens what `wanted` describes, unless it is open already. */
static eider_status open_shared(const eider_device *wanted, eider_device **out)
{
    eider_context *ctx = wanted->ctx;
    pthread_mutex_lock(&ctx->lock);
    eider_device *found = share(wanted);
    pthread_mutex_unlock(&ctx->lock);
    if (found) {
        *out = found;
        return EIDER_OK;
    }
    eider_device *mine = eider_mem_alloc(&ctx->allocator, sizeof *mine);
    if (!mine) return EIDER_OOM;
    *mine = *wanted;
    eider_status status = mine->backend->open(mine);
    if (status != EIDER_OK) {
        eider_mem_free(&ctx->allocator, mine);
        return status;
    }
    pthread_mutex_lock(&ctx->lock);
    found = share(wanted); /* opened by another thread meanwhile */
    if (!found) {
        mine->refs = 1;
        mine->next = ctx->devices;
        ctx->devices = mine;
    }
    pthread_mutex_unlock(&ctx->lock);
    if (found) {
        mine->backend->close(mine);
        eider_mem_free(&ctx->allocator, mine);
    }
    *out = found ? found : mine;
    return EIDER_OK;
}

static void close_one(eider_device *device)
{
    eider_context *ctx = device->ctx;
    device->backend->close(device);
    eider_mem_free(&ctx->allocator, device);
}

void eider_device_close_all(eider_context *ctx)
{
    while (ctx->devices) {
        eider_device *device = ctx->devices;
        ctx->devices = device->next;
        close_one(device);
    }
    for (size_t i = 0; eider_backend_row(i); i++) eider_backend_row(i)->shutdown(ctx);
}

/* ---- Public: devices --------------------------------------------------- */

eider_status eider_device_count(eider_context *ctx, const char *backend, int32_t *out)
{
    const struct eider_backend *row;
    int32_t ordinal;
    if (!ctx || !backend || !out)
        return eider_fail(EIDER_BAD_ARG, "eider_device_count: NULL argument");
    EIDER_TRY(eider_context_check(ctx));
    EIDER_TRY(parse_name(backend, &row, &ordinal));
    if (strchr(backend, ':'))
        return eider_fail(EIDER_BAD_ARG, "eider_device_count: '%.40s' is one device; expected %s",
                          backend, row->name);
    return row->count(ctx, out);
}

eider_status eider_device_open(eider_context *ctx, const char *name, eider_device **out)
{
    eider_device wanted = {.ctx = ctx};
    int32_t n;
    if (!ctx || !name || !out) return eider_fail(EIDER_BAD_ARG, "eider_device_open: NULL argument");
    EIDER_TRY(eider_context_check(ctx));
    EIDER_TRY(parse_name(name, &wanted.backend, &wanted.ordinal));
    EIDER_TRY(wanted.backend->count(ctx, &n));
    if (wanted.ordinal >= n)
        return eider_fail(EIDER_NO_DEVICE, "no device '%.40s': there are %d %s devices", name, n,
                          wanted.backend->name);
    return open_shared(&wanted, out);
}

eider_status eider_device_from_cuda(eider_context *ctx, void *cu_context, eider_device **out)
{
    if (!ctx || !cu_context || !out)
        return eider_fail(EIDER_BAD_ARG, "eider_device_from_cuda: NULL argument");
    EIDER_TRY(eider_context_check(ctx));
    eider_device wanted = {
        .ctx = ctx, .backend = &eider_backend_cuda, .borrowed = 1, .native = cu_context};
    return open_shared(&wanted, out);
}

void eider_device_release(eider_device *device)
{
    if (!device) return;
    eider_context *ctx = device->ctx;
    pthread_mutex_lock(&ctx->lock);
    int ends = --device->refs == 0 && device->borrowed;
    for (eider_device **at = &ctx->devices; ends && *at; at = &(*at)->next) {
        if (*at == device) {
            *at = device->next;
            break;
        }
    }
    pthread_mutex_unlock(&ctx->lock);
    if (!ends) return;
    eider_recent_drop(ctx->recent, device);
    eider_code_cache_drop(ctx->cache, device);
    close_one(device);
}

void eider_device_describe(const eider_device *device, eider_device_info *out)
{
    if (device && out) *out = device->info;
}

/* ---- Public: memory and streams ---------------------------------------- */

/* What every call on a device asks first. */
static eider_status check_device(const eider_device *device, const void *needed, const char *call)
{
    if (!device || !needed) return eider_fail(EIDER_BAD_ARG, "%s: NULL argument", call);
    return eider_context_check(device->ctx);
}

eider_status eider_memory_alloc(eider_device *device, size_t bytes, void **out)
{
    EIDER_TRY(check_device(device, out, "eider_memory_alloc"));
    return device->backend->alloc(device, bytes, out);
}

void eider_memory_free(eider_device *device, void *ptr)
{
    if (!device || !ptr) return;
    if (device->native && eider_context_forked(device->ctx)) return;
    device->backend->free(device, ptr);
}

eider_status eider_memory_copy(eider_device *device, void *stream, void *to, const void *from,
                               size_t bytes, eider_copy_kind kind)
{
    EIDER_TRY(check_device(device, device, "eider_memory_copy"));
    if (bytes && (!to || !from))
        return eider_fail(EIDER_BAD_ARG, "eider_memory_copy: NULL address for %zu bytes", bytes);
    if (kind < EIDER_HOST_TO_DEVICE || kind > EIDER_DEVICE_TO_DEVICE)
        return eider_fail(EIDER_BAD_ARG, "eider_memory_copy: kind %d is none", (int)kind);
    return device->backend->copy(device, stream, to, from, bytes, kind);
}

eider_status eider_stream_wait(eider_device *device, void *stream)
{
    EIDER_TRY(check_device(device, device, "eider_stream_wait"));
    return device->backend->stream_wait(device, stream);
}

eider_status eider_stream_create(eider_device *device, void **out)
{
    EIDER_TRY(check_device(device, out, "eider_stream_create"));
    return device->backend->stream_create(device, out);
}

void eider_stream_destroy(eider_device *device, void *stream)
{
    if (!device || !stream || eider_context_forked(device->ctx)) return;
    device->backend->stream_destroy(device, stream);
}

/* ---- Public: tools ----------------------------------------------------- */

int32_t eider_tool_find(eider_context *ctx, size_t i, eider_tool *out)
{
    eider_tool found;
    if (!ctx || !out) return 0;
    if (eider_codegen_tool(i, out)) return 1;
    if (i == 0 || !eider_codegen_tool(i - 1, &found)) return 0;
    eider_backend_cuda_tool(ctx, out);
    return 1;
}
