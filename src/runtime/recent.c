/* recent.c -- see recent.h. */
#include "recent.h"

#include <string.h>
#include <xxhash.h>

#include "kernel.h"
#include "program.h"

#define N_SLOTS 512u /* a power of two; one answer each, the last one */

struct slot {
    unsigned char *bytes; /* NULL: empty */
    size_t size;
    uint64_t hash;
    const eider_device *device;
    struct eider_kernel *kernel;
};

struct eider_recent {
    eider_context *ctx;
    pthread_mutex_t lock;
    struct slot slots[N_SLOTS];
};

/* ---- Requests as bytes ----------------------------------------------------------- */

static void put(struct eider_recent_key *key, const void *data, size_t size)
{
    memcpy(key->bytes + key->size, data, size);
    key->size += size;
}

static int put_text(struct eider_recent_key *key, const char *text)
{
    size_t size = text ? strlen(text) + 1 : 0;
    if (size > EIDER_RECENT_BYTES - key->size) return 0;
    if (size)
        put(key, text, size);
    else
        put(key, "\1", 1); /* not "", which is another text */
    return 1;
}

/* Extents and strides as they are, of the address what planning looks at. */
static int put_argument(struct eider_recent_key *key, const eider_tensor *arg)
{
    const int32_t head[] = {(int32_t)arg->type, arg->rank, arg->strides != NULL,
                            (int32_t)((uintptr_t)arg->data & 15)};
    if (arg->rank < 0 || arg->rank > EIDER_RANK_MAX || (arg->rank && !arg->shape)) return 0;
    size_t row = (size_t)arg->rank * sizeof *arg->shape;
    if (sizeof head + 2 * row > EIDER_RECENT_BYTES - key->size) return 0;
    put(key, head, sizeof head);
    if (row) put(key, arg->shape, row);
    if (row && arg->strides) put(key, arg->strides, row);
    return 1;
}

static int write_key(struct eider_recent_key *key, const eider_device *device,
                     const eider_request *request)
{
    const struct {
        const void *device;
        uint64_t program, n_args;
        int32_t math, ftz, contract, line_info, any_layout, checked;
    } head = {device,
              request->program->id,
              request->n_args,
              (int32_t)request->numerics.math,
              (int32_t)request->numerics.ftz,
              (int32_t)request->numerics.contract,
              request->line_info,
              request->any_layout,
              request->checked};
    put(key, &head, sizeof head);
    for (size_t i = 0; i < request->n_args; i++)
        if (!put_argument(key, &request->args[i])) return 0;
    return put_text(key, request->config) && put_text(key, request->target) &&
           put_text(key, request->assembler);
}

/* ---- The table -------------------------------------------------------------------- */

eider_status eider_recent_create(eider_context *ctx, struct eider_recent **out)
{
    struct eider_recent *recent = eider_mem_zero(&ctx->allocator, sizeof *recent);
    if (!recent) return EIDER_OOM;
    recent->ctx = ctx;
    pthread_mutex_init(&recent->lock, NULL);
    *out = recent;
    return EIDER_OK;
}

void eider_recent_destroy(struct eider_recent *recent)
{
    if (!recent) return;
    /* In a fork the lock may be held by a thread that does not exist there. */
    if (eider_context_forked(recent->ctx)) pthread_mutex_init(&recent->lock, NULL);
    eider_recent_drop(recent, NULL);
    pthread_mutex_destroy(&recent->lock);
    eider_mem_free(&recent->ctx->allocator, recent);
}

struct eider_kernel *eider_recent_find(struct eider_recent *recent, const eider_device *device,
                                       const eider_request *request, struct eider_recent_key *key)
{
    struct eider_kernel *kernel = NULL;
    key->size = 0;
    if (!request->program || (request->n_args && !request->args)) return NULL;
    if (!write_key(key, device, request)) {
        key->size = 0;
        return NULL;
    }
    key->hash = XXH3_64bits(key->bytes, key->size);
    const struct slot *slot = &recent->slots[key->hash & (N_SLOTS - 1)];
    pthread_mutex_lock(&recent->lock);
    if (slot->bytes && slot->hash == key->hash && slot->size == key->size &&
        memcmp(slot->bytes, key->bytes, key->size) == 0) {
        kernel = slot->kernel;
        atomic_fetch_add_explicit(&kernel->refs, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&recent->lock);
    return kernel;
}

void eider_recent_keep(struct eider_recent *recent, const struct eider_recent_key *key,
                       const eider_device *device, struct eider_kernel *kernel)
{
    if (!key->size) return;
    unsigned char *bytes = eider_mem_alloc(&recent->ctx->allocator, key->size);
    if (!bytes) return; /* then it is planned again */
    memcpy(bytes, key->bytes, key->size);
    struct slot *slot = &recent->slots[key->hash & (N_SLOTS - 1)];
    pthread_mutex_lock(&recent->lock);
    unsigned char *old = slot->bytes;
    *slot = (struct slot){bytes, key->size, key->hash, device, kernel};
    pthread_mutex_unlock(&recent->lock);
    eider_mem_free(&recent->ctx->allocator, old);
}

int eider_recent_forget(struct eider_recent *recent, struct eider_kernel *kernel, unsigned refs)
{
    pthread_mutex_lock(&recent->lock);
    /* Who finds it counts it under this lock. */
    int is_free = atomic_load_explicit(&kernel->refs, memory_order_acquire) <= refs;
    for (uint32_t i = 0; is_free && i < N_SLOTS; i++) {
        struct slot *slot = &recent->slots[i];
        if (slot->kernel != kernel) continue;
        slot->kernel = NULL;
        slot->size = 0; /* no request has this size; the bytes go when the slot is filled */
    }
    pthread_mutex_unlock(&recent->lock);
    return is_free;
}

void eider_recent_drop(struct eider_recent *recent, const eider_device *device)
{
    for (uint32_t i = 0; i < N_SLOTS; i++) {
        struct slot *slot = &recent->slots[i];
        unsigned char *old = NULL;
        pthread_mutex_lock(&recent->lock);
        if (!device || slot->device == device) {
            old = slot->bytes;
            *slot = (struct slot){0};
        }
        pthread_mutex_unlock(&recent->lock);
        eider_mem_free(&recent->ctx->allocator, old);
    }
}
