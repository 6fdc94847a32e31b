/* backend_cpu.c -- the processor this process runs on, as a device.
 *
 * Block-style code (cpu_abi.h) gets ranges of blocks, spread over a pool of threads or
 * the embedder's parallel-for; little work stays on the calling thread.  Thread-style
 * code runs its clusters of blocks one after the other on the calling thread, and one launch
 * of a context at a time: its kernels share the stacks of their threads.
 * Streams do not exist: a launch has completed when it returns.
 */
#include "backend.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "arithmetic.h"
#include "codegen.h"
#include "cpu_fiber.h"
#include "cpu_pool.h"

#define MEMORY_ALIGN 64u

/* Waking a pool costs about 10 us; a core moves about this much meanwhile. */
#define INLINE_BYTES ((uint64_t)128 << 10)

/* So that a core that is late delays the end by a quarter of its share only. */
#define CHUNKS_PER_THREAD 4u

/* More than any GPU's; so much of it is a mistake. */
#define SHARED_BYTES_MAX ((uint32_t)1 << 20)

struct cpu_state {
    int32_t n_threads;
    struct eider_cpu_pool *pool; /* NULL until something is loaded; ctx->lock */
    struct eider_cpu_stacks *stacks;
};

struct cpu_code {
    struct eider_cpu_image *image;
    struct eider_cpu_fibers *fibers; /* thread style only */
};

/* ---- Device ------------------------------------------------------------ */

static eider_status count_devices(eider_context *ctx, int32_t *out)
{
    (void)ctx;
    *out = 1;
    return EIDER_OK;
}

/* The value of `key` in /proc/cpuinfo, or "". */
static void read_cpuinfo(const char *key, char *out, size_t size)
{
    char line[512];
    out[0] = '\0';
    FILE *file = fopen("/proc/cpuinfo", "re");
    if (!file) return;
    while (fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, strlen(key)) != 0) continue;
        snprintf(out, size, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
        break;
    }
    fclose(file);
}

static uint64_t sysconf_bytes(int name)
{
    long n = sysconf(name);
    return n > 0 ? (uint64_t)n : 0;
}

static void describe(eider_device *device, int32_t n_threads)
{
    eider_device_info *info = &device->info;
    char mhz[32];
    double value = 0;
    read_cpuinfo("model name", info->name, sizeof info->name);
    if (!info->name[0]) snprintf(info->name, sizeof info->name, "CPU");
    read_cpuinfo("cpu MHz", mhz, sizeof mhz);
    if (sscanf(mhz, "%lf", &value) == 1) info->clock_khz = (int32_t)(1e3 * value);
    const char *host = eider_codegen_host();
    snprintf(info->target, sizeof info->target, "%.*s", (int)strcspn(host, " "), host);
    snprintf(info->backend, sizeof info->backend, "cpu");
    info->units = n_threads;
    info->memory_bytes = sysconf_bytes(_SC_PHYS_PAGES) * sysconf_bytes(_SC_PAGESIZE);
    info->l2_bytes = sysconf_bytes(_SC_LEVEL3_CACHE_SIZE);
    if (!info->l2_bytes) info->l2_bytes = sysconf_bytes(_SC_LEVEL2_CACHE_SIZE);
}

static void release_state(eider_context *ctx, struct cpu_state *state)
{
    eider_cpu_pool_destroy(state->pool, eider_context_forked(ctx));
    eider_cpu_stacks_release(state->stacks);
    eider_mem_free(&ctx->allocator, state);
}

static eider_status open_device(eider_device *device)
{
    eider_context *ctx = device->ctx;
    if (device->borrowed) return eider_fail(EIDER_UNSUPPORTED, "the CPU has no context to borrow");
    struct cpu_state *mine = eider_mem_zero(&ctx->allocator, sizeof *mine);
    if (!mine) return EIDER_OOM;
    if (eider_cpu_stacks_create(&ctx->allocator, &mine->stacks) != EIDER_OK) {
        release_state(ctx, mine);
        return EIDER_OOM;
    }
    mine->n_threads = ctx->cpu_threads ? ctx->cpu_threads : eider_cpu_pool_cores();
    pthread_mutex_lock(&ctx->lock);
    struct cpu_state *state = ctx->backend_state[EIDER_BACKEND_cpu];
    if (!state) ctx->backend_state[EIDER_BACKEND_cpu] = state = mine;
    pthread_mutex_unlock(&ctx->lock);
    if (state != mine) release_state(ctx, mine);
    device->state = state;
    describe(device, state->n_threads);
    return EIDER_OK;
}

static void close_device(eider_device *device)
{
    (void)device;
}

static void shutdown_cpu(eider_context *ctx)
{
    struct cpu_state *state = ctx->backend_state[EIDER_BACKEND_cpu];
    if (!state) return;
    release_state(ctx, state);
    ctx->backend_state[EIDER_BACKEND_cpu] = NULL;
}

/* ---- Code -------------------------------------------------------------- */

static eider_status start_pool(eider_device *device)
{
    eider_context *ctx = device->ctx;
    struct cpu_state *state = device->state;
    struct eider_cpu_pool *mine = NULL;
    if (ctx->parallel_for) return EIDER_OK;
    pthread_mutex_lock(&ctx->lock);
    int started = state->pool != NULL;
    pthread_mutex_unlock(&ctx->lock);
    if (started) return EIDER_OK;
    EIDER_TRY(eider_cpu_pool_create(&ctx->allocator, state->n_threads, &mine));
    pthread_mutex_lock(&ctx->lock);
    if (!state->pool) {
        state->pool = mine;
        mine = NULL;
    }
    pthread_mutex_unlock(&ctx->lock);
    eider_cpu_pool_destroy(mine, 0);
    return EIDER_OK;
}

static void release_code(eider_device *device, struct cpu_code *code)
{
    if (!code) return;
    eider_cpu_fiber_release(code->fibers);
    eider_cpu_image_release(code->image);
    eider_mem_free(&device->ctx->allocator, code);
}

static eider_status check_shared(uint32_t own_bytes, uint32_t dynamic_bytes)
{
    if ((uint64_t)own_bytes + dynamic_bytes <= SHARED_BYTES_MAX) return EIDER_OK;
    return eider_fail(EIDER_TOO_LARGE, "%u + %u bytes of shared memory; %u are possible", own_bytes,
                      dynamic_bytes, SHARED_BYTES_MAX);
}

static eider_status load(eider_device *device, const struct eider_load *what,
                         struct eider_loaded *out)
{
    const eider_allocator *a = &device->ctx->allocator;
    const struct cpu_state *state = device->state;
    void *entry;
    EIDER_TRY(start_pool(device));
    struct cpu_code *code = eider_mem_zero(a, sizeof *code);
    if (!code) return EIDER_OOM;
    eider_status status = eider_cpu_image_create(a, what->code, what->entry, what->thread_style,
                                                 &eider_cpu_fiber_hooks, &code->image, &entry);
    void *words = NULL;
    if (status == EIDER_OK && what->words)
        status = eider_cpu_image_find(code->image, what->words, &words);
    uint32_t n_threads = what->block[0] * what->block[1] * what->block[2];
    uint32_t own_bytes = 0; /* shared variables; dynamic memory follows them */
    if (status == EIDER_OK && what->thread_style) {
        own_bytes = eider_cpu_image_shared(code->image);
        status = check_shared(own_bytes, what->shared_bytes);
        if (status == EIDER_OK)
            status = eider_cpu_fiber_create(a, state->stacks, n_threads,
                                            what->cluster ? what->cluster : 1,
                                            own_bytes + what->shared_bytes, &code->fibers);
    }
    if (status != EIDER_OK) {
        release_code(device, code);
        return status;
    }
    *out = (struct eider_loaded){.module = code,
                                 .function = entry,
                                 .words = words,
                                 .thread_style = what->thread_style,
                                 .registers = -1,
                                 .spill_bytes = -1,
                                 .shared_bytes = (int32_t)own_bytes};
    if (what->thread_style) out->params = *eider_cpu_image_params(code->image);
    return EIDER_OK;
}

static void unload(eider_device *device, struct eider_loaded *loaded)
{
    release_code(device, loaded->module);
    *loaded = (struct eider_loaded){0};
}

/* ---- Launches ---------------------------------------------------------- */

struct spread {
    eider_cpu_block_entry entry;
    void *const *params;
    uint64_t n_blocks, n_chunks;
};

static void run_chunk(void *arg, size_t i)
{
    const struct spread *s = arg;
    uint64_t each = s->n_blocks / s->n_chunks, more = s->n_blocks % s->n_chunks;
    uint64_t first = i * each + (i < more ? i : more);
    eider_arithmetic_state host = eider_arithmetic_begin();
    s->entry(s->params, first, first + each + (i < more));
    eider_arithmetic_end(host);
}

static void run_all(struct spread *s)
{
    s->n_chunks = 1;
    run_chunk(s, 0);
}

static eider_status launch_blocks(eider_device *device, const struct eider_shot *shot)
{
    const struct cpu_state *state = device->state;
    const eider_context *ctx = device->ctx;
    struct spread s = {.params = shot->params,
                       .n_blocks = (uint64_t)shot->grid[0] * shot->grid[1] * shot->grid[2]};
    memcpy(&s.entry, &shot->code->function, sizeof s.entry); /* ISO C has no such cast */
    s.n_chunks = CHUNKS_PER_THREAD * (uint64_t)state->n_threads;
    if (s.n_chunks > s.n_blocks) s.n_chunks = s.n_blocks;
    if (s.n_chunks == 1 || state->n_threads == 1 || (shot->bytes && shot->bytes < INLINE_BYTES))
        run_all(&s);
    else if (ctx->parallel_for)
        ctx->parallel_for(ctx->parallel_user, (size_t)s.n_chunks, run_chunk, &s);
    else
        eider_cpu_pool_run(state->pool, (size_t)s.n_chunks, run_chunk, &s);
    return EIDER_OK;
}

static eider_status launch_threads(const struct eider_shot *shot)
{
    struct cpu_code *code = shot->code->module;
    eider_cpu_thread_entry entry;
    memcpy(&entry, &shot->code->function, sizeof entry);
    eider_arithmetic_state host = eider_arithmetic_begin();
    eider_status status =
        eider_cpu_fiber_run(code->fibers, entry, shot->params, shot->grid, shot->block);
    eider_arithmetic_end(host);
    return status;
}

static eider_status launch_once(eider_device *device, const struct eider_shot *shot)
{
    return shot->code->thread_style ? launch_threads(shot) : launch_blocks(device, shot);
}

static eider_status memory_alloc(eider_device *device, size_t bytes, void **out);
static void memory_free(eider_device *device, void *ptr);

static eider_status launch_rounds(eider_device *device, const struct eider_shot *shot)
{
    struct eider_shot one = *shot;
    eider_status status = EIDER_OK;
    void *memory = NULL;
    if (shot->memory_bytes) EIDER_TRY(memory_alloc(device, shot->memory_bytes, &memory));
    *shot->memory = (uint64_t)(uintptr_t)memory;
    for (uint32_t round = 0; round < shot->rounds && status == EIDER_OK; round++) {
        *shot->round = round;
        if (round + 1 == shot->rounds) one.grid[0] = shot->last_grid;
        status = launch_once(device, &one);
    }
    if (memory) memory_free(device, memory);
    return status;
}

static eider_status launch(eider_device *device, const struct eider_shot *shot)
{
    return shot->rounds ? launch_rounds(device, shot) : launch_once(device, shot);
}

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static eider_status time_shots(eider_device *device, const struct eider_shot *shot, int32_t n,
                               int32_t flush, double *out_ns)
{
    const eider_allocator *a = &device->ctx->allocator;
    size_t flush_bytes = flush ? 2 * (size_t)device->info.l2_bytes : 0;
    char *buffer = NULL;
    eider_status status = EIDER_OK;
    if (flush_bytes && !(buffer = eider_mem_alloc(a, flush_bytes))) return EIDER_OOM;
    for (int32_t i = 0; i < n && status == EIDER_OK; i++) {
        if (buffer) {
            memset(buffer, i, flush_bytes);
            __asm__ volatile("" : : "r"(buffer) : "memory"); /* nobody reads it */
        }
        double before = now_ns();
        status = launch(device, shot);
        out_ns[i] = now_ns() - before;
    }
    eider_mem_free(a, buffer);
    return status;
}

/* ---- Memory ------------------------------------------------------------ */

/* The allocator aligns for any type; where the block really begins is kept below. */
static eider_status memory_alloc(eider_device *device, size_t bytes, void **out)
{
    if (bytes > SIZE_MAX / 4)
        return eider_fail(EIDER_OOM, "out of memory: %zu bytes asked for", bytes);
    char *raw = eider_mem_alloc(&device->ctx->allocator, bytes + MEMORY_ALIGN + sizeof(void *));
    if (!raw) return EIDER_OOM;
    uintptr_t least = (uintptr_t)raw + sizeof(void *);
    uintptr_t at = (least + MEMORY_ALIGN - 1) & ~(uintptr_t)(MEMORY_ALIGN - 1);
    char *ptr = raw + (at - (uintptr_t)raw);
    memcpy(ptr - sizeof raw, &raw, sizeof raw);
    *out = ptr;
    return EIDER_OK;
}

static void memory_free(eider_device *device, void *ptr)
{
    char *raw;
    memcpy(&raw, (char *)ptr - sizeof raw, sizeof raw);
    eider_mem_free(&device->ctx->allocator, raw);
}

static eider_status memory_copy(eider_device *device, void *stream, void *to, const void *from,
                                size_t bytes, eider_copy_kind kind)
{
    (void)device, (void)stream, (void)kind;
    if (bytes) memmove(to, from, bytes);
    return EIDER_OK;
}

static eider_status memory_fill(eider_device *device, void *stream, void *ptr, unsigned char value,
                                size_t bytes)
{
    (void)device, (void)stream;
    if (bytes) memset(ptr, value, bytes);
    __asm__ volatile("" : : "r"(ptr) : "memory"); /* also where nobody reads it */
    return EIDER_OK;
}

static eider_status memory_differs(eider_device *device, void *stream, const void *a, const void *b,
                                   size_t bytes, size_t *out)
{
    const unsigned char *x = a, *y = b;
    size_t i = 0;
    (void)device, (void)stream;
    if (bytes && memcmp(x, y, bytes) == 0) i = bytes;
    while (i < bytes && x[i] == y[i]) i++;
    *out = i;
    return EIDER_OK;
}

/* As Linux tells of the first core; virtual machines often do not. */
static eider_status clock_rate(eider_device *device, void *stream, int32_t *out_khz)
{
    FILE *file = fopen("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "re");
    char text[32] = "";
    (void)device, (void)stream;
    if (file && !fgets(text, sizeof text, file)) text[0] = '\0';
    if (file) fclose(file);
    *out_khz = (int32_t)strtol(text, NULL, 10);
    return EIDER_OK;
}

static eider_status stream_wait(eider_device *device, void *stream)
{
    (void)device, (void)stream;
    return EIDER_OK;
}

static eider_status stream_create(eider_device *device, void **out)
{
    (void)device;
    *out = NULL;
    return EIDER_OK;
}

static void stream_destroy(eider_device *device, void *stream)
{
    (void)device, (void)stream;
}

const struct eider_backend eider_backend_cpu = {
    .name = "cpu",
    .wants_bytes = 1,
    .count = count_devices,
    .open = open_device,
    .close = close_device,
    .shutdown = shutdown_cpu,
    .load = load,
    .unload = unload,
    .launch = launch,
    .time = time_shots,
    .alloc = memory_alloc,
    .free = memory_free,
    .copy = memory_copy,
    .fill = memory_fill,
    .differs = memory_differs,
    .clock = clock_rate,
    .stream_wait = stream_wait,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
};
