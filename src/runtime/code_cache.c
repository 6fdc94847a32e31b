/* code_cache.c -- see code_cache.h.
 *
 * A *flight* is a build in progress.  It is in the list while it runs; its references are
 * the builder and those who wait.
 */
#include "code_cache.h"

#include "recent.h"

#define N_BUCKETS 1024u /* a power of two; a process has tens to thousands of kernels */

struct flight {
    struct eider_hash identity;
    const eider_device *device;
    int done;
    eider_status status;
    char *error;                 /* NULL when there was no memory for it */
    struct eider_kernel *kernel; /* one reference, of the flight */
    unsigned refs;
    struct flight *next;
};

struct eider_code_cache {
    eider_context *ctx;
    pthread_cond_t landed;  /* some flight is done; with ctx->lock */
    struct flight *flights; /* ctx->lock, as are the buckets */
    struct eider_kernel *buckets[N_BUCKETS];
};

eider_status eider_code_cache_create(eider_context *ctx, struct eider_code_cache **out)
{
    struct eider_code_cache *cache = eider_mem_zero(&ctx->allocator, sizeof *cache);
    if (!cache) return EIDER_OOM;
    cache->ctx = ctx;
    pthread_cond_init(&cache->landed, NULL);
    *out = cache;
    return EIDER_OK;
}

static int same(struct eider_hash a, struct eider_hash b)
{
    return a.low == b.low && a.high == b.high;
}

static struct eider_kernel **bucket_of(struct eider_code_cache *cache, struct eider_hash identity)
{
    return &cache->buckets[identity.low & (N_BUCKETS - 1)];
}

/* ---- Removing ---------------------------------------------------------- */

/* Takes all kernels of `device` (NULL: all there are) out of the table, as a list. */
static struct eider_kernel *take(struct eider_code_cache *cache, const eider_device *device)
{
    struct eider_kernel *taken = NULL;
    pthread_mutex_lock(&cache->ctx->lock);
    for (uint32_t i = 0; i < N_BUCKETS; i++) {
        for (struct eider_kernel **at = &cache->buckets[i]; *at;) {
            struct eider_kernel *kernel = *at;
            if (device && kernel->device != device) {
                at = &kernel->next;
                continue;
            }
            *at = kernel->next;
            kernel->next = taken;
            taken = kernel;
        }
    }
    pthread_mutex_unlock(&cache->ctx->lock);
    return taken;
}

void eider_code_cache_drop(struct eider_code_cache *cache, eider_device *device)
{
    struct eider_kernel *kernel = take(cache, device);
    while (kernel) {
        struct eider_kernel *next = kernel->next;
        eider_kernel_unload(kernel);
        eider_kernel_release(kernel);
        kernel = next;
    }
}

void eider_code_cache_forget(struct eider_code_cache *cache, struct eider_kernel *kernel)
{
    int ends = 0;
    pthread_mutex_lock(&cache->ctx->lock);
    struct eider_kernel **at = bucket_of(cache, kernel->identity);
    while (*at && *at != kernel) at = &(*at)->next;
    /* Whoever finds it counts it under a lock, so two references are the table's and ours. */
    if (*at && eider_recent_forget(cache->ctx->recent, kernel, 2)) {
        *at = kernel->next;
        ends = 1;
    }
    pthread_mutex_unlock(&cache->ctx->lock);
    if (ends) {
        eider_kernel_unload(kernel);
        eider_kernel_release(kernel);
    }
    eider_kernel_release(kernel);
}

void eider_code_cache_destroy(struct eider_code_cache *cache)
{
    if (!cache) return;
    eider_code_cache_drop(cache, NULL);
    if (!eider_context_forked(cache->ctx)) pthread_cond_destroy(&cache->landed);
    eider_mem_free(&cache->ctx->allocator, cache);
}

/* ---- Flights ----------------------------------------------------------- */

static void release_flight(struct eider_code_cache *cache, struct flight *flight)
{
    pthread_mutex_lock(&cache->ctx->lock);
    int ends = --flight->refs == 0;
    pthread_mutex_unlock(&cache->ctx->lock);
    if (!ends) return;
    eider_kernel_release(flight->kernel);
    eider_mem_free(&cache->ctx->allocator, flight->error);
    eider_mem_free(&cache->ctx->allocator, flight);
}

/* The finished kernel, with one more reference, or NULL.  ctx->lock is held. */
static struct eider_kernel *find_kernel(struct eider_code_cache *cache,
                                        const struct eider_plan *plan)
{
    struct eider_kernel *kernel = *bucket_of(cache, plan->identity);
    while (kernel && !(same(kernel->identity, plan->identity) && kernel->device == plan->device))
        kernel = kernel->next;
    if (kernel) atomic_fetch_add_explicit(&kernel->refs, 1, memory_order_relaxed);
    return kernel;
}

/* The flight that builds it, or NULL.  ctx->lock is held. */
static struct flight *find_flight(struct eider_code_cache *cache, const struct eider_plan *plan)
{
    struct flight *flight = cache->flights;
    while (flight && !(same(flight->identity, plan->identity) && flight->device == plan->device))
        flight = flight->next;
    return flight;
}

/* Ends a flight that this thread flew: `status`, and the kernel when it is EIDER_OK. */
static void land(struct eider_code_cache *cache, struct flight *flight, eider_status status,
                 struct eider_kernel *kernel)
{
    char *error =
        status == EIDER_OK ? NULL : eider_mem_strdup(&cache->ctx->allocator, eider_error());
    pthread_mutex_lock(&cache->ctx->lock);
    struct flight **at = &cache->flights;
    while (*at != flight) at = &(*at)->next;
    *at = flight->next;
    if (status == EIDER_OK) {
        struct eider_kernel **bucket = bucket_of(cache, flight->identity);
        atomic_fetch_add_explicit(&kernel->refs, 2, memory_order_relaxed); /* table and flight */
        kernel->next = *bucket;
        *bucket = kernel;
        flight->kernel = kernel;
    }
    flight->status = status;
    flight->error = error;
    flight->done = 1;
    pthread_cond_broadcast(&cache->landed);
    pthread_mutex_unlock(&cache->ctx->lock);
}

static eider_status fly(struct eider_code_cache *cache, struct flight *flight,
                        const struct eider_plan *plan, struct eider_kernel **out)
{
    struct eider_kernel *kernel = NULL;
    eider_status status = eider_kernel_build(plan, &kernel);
    land(cache, flight, status, kernel);
    /* What became of the copy of the message is not this caller's error. */
    if (status != EIDER_OK && flight->error) status = eider_fail_text(status, flight->error);
    if (status == EIDER_OK) *out = kernel;
    release_flight(cache, flight);
    return status;
}

/* Waits for another thread's flight.  *retry is set when its failure was about that
 * thread and not about the kernel. */
static eider_status wait_for(struct eider_code_cache *cache, struct flight *flight, int *retry,
                             struct eider_kernel **out)
{
    pthread_mutex_lock(&cache->ctx->lock);
    while (!flight->done) pthread_cond_wait(&cache->landed, &cache->ctx->lock);
    if (flight->kernel) {
        atomic_fetch_add_explicit(&flight->kernel->refs, 1, memory_order_relaxed);
        *out = flight->kernel;
    }
    pthread_mutex_unlock(&cache->ctx->lock);
    eider_status status = flight->status;
    *retry = status == EIDER_CAPTURING;
    if (status != EIDER_OK)
        eider_fail(status, "%s", flight->error ? flight->error : eider_status_text(status));
    release_flight(cache, flight);
    return status;
}

/* Finds the kernel (*out), or joins a flight (its result: 0) or starts one (1). */
static int join(struct eider_code_cache *cache, const struct eider_plan *plan,
                struct flight **flight, struct eider_kernel **out)
{
    struct flight *mine = *flight;
    int starts = 0;
    pthread_mutex_lock(&cache->ctx->lock);
    struct eider_kernel *kernel = find_kernel(cache, plan);
    struct flight *other = kernel ? NULL : find_flight(cache, plan);
    if (kernel) {
        *out = kernel;
        *flight = NULL;
    } else if (other) {
        other->refs++;
        *flight = other;
    } else if (mine) {
        mine->next = cache->flights;
        cache->flights = mine;
        starts = 1;
    }
    pthread_mutex_unlock(&cache->ctx->lock);
    if (mine && !starts) eider_mem_free(&cache->ctx->allocator, mine);
    return starts;
}

static struct flight *create_flight(struct eider_code_cache *cache, const struct eider_plan *plan)
{
    struct flight *flight = eider_mem_zero(&cache->ctx->allocator, sizeof *flight);
    if (!flight) return NULL;
    flight->identity = plan->identity;
    flight->device = plan->device;
    flight->refs = 1;
    return flight;
}

eider_status eider_code_cache_get(struct eider_code_cache *cache, const struct eider_plan *plan,
                                  struct eider_kernel **out)
{
    for (;;) {
        struct flight *flight = NULL;
        struct eider_kernel *kernel = NULL;
        int retry, starts = join(cache, plan, &flight, &kernel); /* a hit allocates nothing */
        if (!kernel && !flight) {
            flight = create_flight(cache, plan);
            if (!flight) return EIDER_OOM;
            starts = join(cache, plan, &flight, &kernel);
        }
        if (kernel) {
            eider_context_count(cache->ctx, EIDER_COUNT_MEMORY_HITS);
            *out = kernel;
            return EIDER_OK;
        }
        if (starts) return fly(cache, flight, plan, out);
        eider_context_count(cache->ctx, EIDER_COUNT_WAITS);
        eider_status status = wait_for(cache, flight, &retry, out);
        if (!retry) return status;
    }
}
