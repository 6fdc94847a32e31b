/* context.h -- what everything that runs shares: allocator, options, caches, counters.
 *
 * Invariants: a context is usable by any number of threads; `lock` is held for list
 * operations only, never while anything is compiled, loaded, allocated or called back.
 * A context belongs to the process that created it: after a fork, the child may only
 * destroy it.
 * Not here: what a device or a kernel is; see backend.h and kernel.h.
 */
#ifndef EIDER_RUNTIME_CONTEXT_H
#define EIDER_RUNTIME_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>

#include "memory.h"

enum eider_backend_id {
#define EIDER_BACKEND(name) EIDER_BACKEND_##name,
#include "backends.def"
    EIDER_BACKEND_COUNT
};

enum eider_counter {
    EIDER_COUNT_COMPILES,
    EIDER_COUNT_MEMORY_HITS,
    EIDER_COUNT_WAITS,
    EIDER_COUNT_LAUNCHES,
    EIDER_COUNT_EMPTY_LAUNCHES,
    EIDER_COUNT_DISK_HITS,
    EIDER_COUNT_DISK_ABSENT,
    EIDER_COUNT_DISK_DAMAGED,
    EIDER_COUNT_DISK_UNREADABLE,
    EIDER_COUNT_DISK_REFUSED,
    EIDER_COUNT_DISK_FORCED,
    EIDER_COUNT_DISK_READ_BYTES,
    EIDER_COUNT_DISK_WRITES,
    EIDER_COUNT_DISK_WRITTEN_BYTES,
    EIDER_COUNT_EVICTIONS,
    EIDER_COUNT_DISK_NS,
    EIDER_COUNT_IR_NS,
    EIDER_COUNT_OPT_NS,
    EIDER_COUNT_PTX_NS,
    EIDER_COUNT_ASSEMBLE_NS,
    EIDER_COUNT_LOAD_NS,
    EIDER_COUNT_COUNT
};

struct eider_code_cache;
struct eider_disk_cache;
struct eider_tuner;

struct eider_context {
    eider_allocator allocator;
    eider_log log;
    void *log_user;
    eider_parallel_for parallel_for;
    void *parallel_user;
    int32_t cpu_threads;        /* 0: one per core */
    int32_t worker_deadline_ms; /* never 0 */
    char *cuda_library;         /* NULL: the default search */
    unsigned fork_generation;   /* of the process that created it */
    _Atomic uint64_t counters[EIDER_COUNT_COUNT];
    struct eider_recent *recent;
    struct eider_code_cache *cache;
    struct eider_disk_cache *disk;
    struct eider_dump *dump;                          /* NULL: nothing is written */
    struct eider_tuner *tuner;                        /* of the layer above; lock */
    void (*tuner_destroy)(struct eider_tuner *tuner); /* set with it */

    pthread_mutex_t lock;
    eider_device *devices;                    /* linked by `next`; lock */
    void *backend_state[EIDER_BACKEND_COUNT]; /* each backend's own; lock */
};

const eider_allocator *eider_context_allocator(eider_context *ctx);

/* EIDER_FORKED, recorded, when this process is a fork of the one that created `ctx`.
 * A plain load and a comparison. */
eider_status eider_context_check(const eider_context *ctx);

/* Hands one line to the caller's log, if there is one. */
void eider_context_log(eider_context *ctx, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static inline void eider_context_add(eider_context *ctx, enum eider_counter counter, uint64_t n)
{
    atomic_fetch_add_explicit(&ctx->counters[counter], n, memory_order_relaxed);
}

static inline void eider_context_count(eider_context *ctx, enum eider_counter counter)
{
    eider_context_add(ctx, counter, 1);
}

/* How many forks lie between the process that loaded the library and this one. */
unsigned eider_context_fork_generation(void);

/* Whether this process is a fork of the one that created `ctx`: then its threads are
 * gone and the driver must not be called. */
static inline int eider_context_forked(const eider_context *ctx)
{
    return ctx->fork_generation != eider_context_fork_generation();
}

#endif
