/* context.c -- see context.h.
 *
 * Forks are noticed by a handler that the child runs, so that a check costs a load and
 * not a system call.
 */
#include "context.h"

#include <stdarg.h>
#include <stdio.h>

#include "backend.h"
#include "code_cache.h"
#include "disk_cache.h"
#include "dump.h"
#include "recent.h"

#define WORKER_DEADLINE_MS 60000
#define CPU_THREADS_MAX 4096 /* more than any machine has cores */

static atomic_uint forks;
static pthread_once_t watch_once = PTHREAD_ONCE_INIT;
static int watch_error;

static void count_fork(void)
{
    atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
}

static void watch_forks(void)
{
    watch_error = pthread_atfork(NULL, NULL, count_fork);
}

unsigned eider_context_fork_generation(void)
{
    return atomic_load_explicit(&forks, memory_order_relaxed);
}

eider_status eider_context_check(const eider_context *ctx)
{
    if (!eider_context_forked(ctx)) return EIDER_OK;
    return eider_fail(EIDER_FORKED, "this process was forked after the context was created: "
                                    "create a context, and open devices, in the child");
}

const eider_allocator *eider_context_allocator(eider_context *ctx)
{
    return &ctx->allocator;
}

static void set_options(eider_context *ctx, const eider_context_options *options)
{
    ctx->log = options->log;
    ctx->log_user = options->log_user;
    ctx->parallel_for = options->parallel_for;
    ctx->parallel_user = options->parallel_user;
    ctx->cpu_threads = options->cpu_threads;
    ctx->worker_deadline_ms =
        options->worker_deadline_ms ? options->worker_deadline_ms : WORKER_DEADLINE_MS;
}

eider_status eider_context_create(const eider_context_options *options, eider_context **out)
{
    static const eider_context_options defaults;
    if (!options) options = &defaults;
    if (!out) return eider_fail(EIDER_BAD_ARG, "eider_context_create: out is NULL");
    if (options->cpu_threads < 0 || options->worker_deadline_ms < 0)
        return eider_fail(EIDER_BAD_ARG,
                          "eider_context_create: cpu_threads is %d and worker_deadline_ms is %d; "
                          "neither may be negative",
                          options->cpu_threads, options->worker_deadline_ms);
    if (options->cpu_threads > CPU_THREADS_MAX)
        return eider_fail(EIDER_TOO_LARGE,
                          "eider_context_create: cpu_threads is %d; %d are possible",
                          options->cpu_threads, CPU_THREADS_MAX);
    pthread_once(&watch_once, watch_forks);
    if (watch_error) return eider_fail(EIDER_OOM, "out of memory: no room for a fork handler");

    eider_allocator allocator = eider_memory_default(options->allocator);
    eider_context *ctx = eider_mem_zero(&allocator, sizeof *ctx);
    if (!ctx) return EIDER_OOM;
    ctx->allocator = allocator;
    set_options(ctx, options);
    ctx->fork_generation = eider_context_fork_generation();
    pthread_mutex_init(&ctx->lock, NULL);
    eider_status status = eider_recent_create(ctx, &ctx->recent);
    if (status == EIDER_OK) status = eider_code_cache_create(ctx, &ctx->cache);
    if (status == EIDER_OK) status = eider_disk_cache_create(ctx, options, &ctx->disk);
    if (status == EIDER_OK) status = eider_dump_create(ctx, &ctx->dump);
    if (status == EIDER_OK && options->cuda_library) {
        ctx->cuda_library = eider_mem_strdup(&allocator, options->cuda_library);
        if (!ctx->cuda_library) status = EIDER_OOM;
    }
    if (status == EIDER_OK)
        *out = ctx;
    else
        eider_context_destroy(ctx);
    return status;
}

/* In a fork the lock may be held by a thread that does not exist there: it is made anew. */
void eider_context_destroy(eider_context *ctx)
{
    if (!ctx) return;
    eider_allocator allocator = ctx->allocator;
    if (eider_context_forked(ctx)) pthread_mutex_init(&ctx->lock, NULL);
    if (ctx->tuner) ctx->tuner_destroy(ctx->tuner);
    eider_recent_destroy(ctx->recent);
    eider_code_cache_destroy(ctx->cache);
    eider_device_close_all(ctx);
    eider_disk_cache_destroy(ctx->disk);
    eider_dump_destroy(ctx->dump);
    pthread_mutex_destroy(&ctx->lock);
    eider_mem_free(&allocator, ctx->cuda_library);
    eider_mem_free(&allocator, ctx);
}

void eider_context_counters(eider_context *ctx, eider_counters *out)
{
    if (!ctx || !out) return;
    uint64_t values[EIDER_COUNT_COUNT];
    for (int i = 0; i < EIDER_COUNT_COUNT; i++)
        values[i] = atomic_load_explicit(&ctx->counters[i], memory_order_relaxed);
    *out = (eider_counters){
        .compiles = values[EIDER_COUNT_COMPILES],
        .memory_hits = values[EIDER_COUNT_MEMORY_HITS],
        .waits = values[EIDER_COUNT_WAITS],
        .launches = values[EIDER_COUNT_LAUNCHES],
        .empty_launches = values[EIDER_COUNT_EMPTY_LAUNCHES],
        .disk_hits = values[EIDER_COUNT_DISK_HITS],
        .disk_absent = values[EIDER_COUNT_DISK_ABSENT],
        .disk_damaged = values[EIDER_COUNT_DISK_DAMAGED],
        .disk_unreadable = values[EIDER_COUNT_DISK_UNREADABLE],
        .disk_refused = values[EIDER_COUNT_DISK_REFUSED],
        .disk_forced = values[EIDER_COUNT_DISK_FORCED],
        .disk_read_bytes = values[EIDER_COUNT_DISK_READ_BYTES],
        .disk_writes = values[EIDER_COUNT_DISK_WRITES],
        .disk_written_bytes = values[EIDER_COUNT_DISK_WRITTEN_BYTES],
        .disk_evictions = values[EIDER_COUNT_EVICTIONS],
        .disk_ns = values[EIDER_COUNT_DISK_NS],
        .ir_ns = values[EIDER_COUNT_IR_NS],
        .opt_ns = values[EIDER_COUNT_OPT_NS],
        .ptx_ns = values[EIDER_COUNT_PTX_NS],
        .assemble_ns = values[EIDER_COUNT_ASSEMBLE_NS],
        .load_ns = values[EIDER_COUNT_LOAD_NS],
    };
}

void eider_context_log(eider_context *ctx, int level, const char *format, ...)
{
    if (!ctx->log) return;
    char line[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    ctx->log(ctx->log_user, level, line);
}
