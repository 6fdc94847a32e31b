/* cpu_fiber.c -- see cpu_fiber.h.
 *
 * The scheduler lives on the caller's stack and switches to one fiber after the other;
 * a fiber switches back when it waits or ends.  When no fiber of a block can run, whatever
 * groups are complete are released:
 *
 *   warp operation   all threads of the mask that have not ended wait in the same
 *                    operation with the same mask
 *   block barrier    all threads of the block that have not ended wait in it
 *
 * When that leaves nothing to do in any block of the cluster, its barrier is:
 *
 *   cluster barrier  all threads of the cluster that have not ended have arrived
 *
 * A block runs as far as it can before the next one gets its turn, first to last in one cluster
 * and last to first in the next, so that what only works with blocks side by side fails.  Shared
 * memory is not a block's own, and filled, until it begins and after it has ended.
 *
 * Switching uses ucontext: slower than a switch of our own, but the same on every
 * processor, and known to debuggers.  Both sanitizers are told of every switch.
 */
#include "cpu_fiber.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

/* Instrumented code needs several times the stack; pages that nobody touches cost
 * nothing. */
#define STACK_BYTES ((size_t)128 << 10)
#define SHARED_ALIGN 128u
#define SHARED_FILL 0xFF /* NaN as a float, -1 as an integer */

enum state { READY, AT_BARRIER, AT_CLUSTER, AT_WARP, ENDED };

enum warp_op { WARP_BARRIER, WARP_SHUFFLE, WARP_BALLOT };

struct fiber {
    ucontext_t context;
    enum state state;
    const struct block *block;
    uint32_t thread; /* x + ntid.x * (y + ntid.y * z) */
    uint32_t tid[3];
    /* Of the cluster's barrier: how often it has arrived, and has waited. */
    uint32_t arrivals, waits;
    /* The warp operation it waits in, and what that gives it. */
    enum warp_op op;
    uint32_t mode, mask, value, lane, clamp;
    uint32_t result;
    char *stack;
    void *fake_stack; /* address sanitizer's */
    void *tsan;
};

struct block {
    uint32_t rank; /* in its cluster */
    uint32_t ctaid[3];
    char *shared;
    struct fiber *fibers;
    int has_begun, has_ended;
};

struct eider_cpu_stacks {
    eider_allocator allocator;
    pthread_mutex_t lock; /* of those who run, and of the members below */
    char *memory;         /* room * (guard page + STACK_BYTES) */
    size_t stride, bytes;
    uint32_t room;
};

struct eider_cpu_fibers {
    eider_allocator allocator;
    struct eider_cpu_stacks *stacks;
    char *shared; /* allocation that the blocks' memory lies in */
    uint32_t shared_bytes, block_room, room, n_blocks;
    struct block *blocks;
    struct fiber *fibers; /* block_room for each block */

    /* The cluster that runs. */
    eider_cpu_thread_entry entry;
    void *const *params;
    uint32_t n_threads; /* of a block */
    uint32_t ntid[3], nctaid[3];
    ucontext_t scheduler;
    void *fake_stack, *tsan;
    const void *caller_stack;
    size_t caller_stack_bytes;
};

/* The fiber that runs on this thread.  A cluster stays on one thread, so a function may
 * keep this across a switch. */
static _Thread_local struct eider_cpu_fibers *cluster;
static _Thread_local struct fiber *self;

/* ---- Switching --------------------------------------------------------- */

static void to_fiber(struct eider_cpu_fibers *b, struct fiber *f)
{
    cluster = b;
    self = f;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&b->fake_stack, f->stack, STACK_BYTES);
#endif
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(f->tsan, 0);
#endif
    swapcontext(&b->scheduler, &f->context);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(b->fake_stack, NULL, NULL);
#endif
}

/* `ends` frees what the address sanitizer keeps of the fiber. */
static void to_scheduler(struct eider_cpu_fibers *b, struct fiber *f, int ends)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(ends ? NULL : &f->fake_stack, b->caller_stack,
                                   b->caller_stack_bytes);
#endif
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(b->tsan, 0);
#endif
    (void)ends;
    swapcontext(&f->context, &b->scheduler);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(f->fake_stack, &b->caller_stack, &b->caller_stack_bytes);
#endif
}

static void run_thread(void)
{
    struct eider_cpu_fibers *b = cluster;
    struct fiber *f = self;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(NULL, &b->caller_stack, &b->caller_stack_bytes);
#endif
    b->entry(b->params);
    f->state = ENDED;
    to_scheduler(b, f, 1);
}

static void wait_as(enum state state)
{
    self->state = state;
    to_scheduler(cluster, self, 0);
}

/* ---- Hooks ------------------------------------------------------------- */

static uint32_t hook_sreg(uint32_t which)
{
    const uint32_t *groups[] = {self->tid, cluster->ntid, self->block->ctaid, cluster->nctaid};
    if (which < EIDER_SREG_LANEID) return groups[which / 3][which % 3];
    if (which == EIDER_SREG_CLUSTER_RANK) return self->block->rank;
    if (which == EIDER_SREG_CLUSTER_SIZE) return cluster->n_blocks;
    return which == EIDER_SREG_LANEID ? self->thread % EIDER_FIBER_WARP : EIDER_FIBER_WARP;
}

static void hook_barrier(void)
{
    wait_as(AT_BARRIER);
}

static void hook_warp_barrier(uint32_t mask)
{
    self->op = WARP_BARRIER;
    self->mask = mask;
    wait_as(AT_WARP);
}

static uint32_t hook_shuffle(uint32_t mode, uint32_t mask, uint32_t value, uint32_t lane,
                             uint32_t clamp)
{
    self->op = WARP_SHUFFLE;
    self->mode = mode;
    self->mask = mask;
    self->value = value;
    self->lane = lane;
    self->clamp = clamp;
    wait_as(AT_WARP);
    return self->result;
}

static uint32_t hook_ballot(uint32_t mask, uint32_t predicate)
{
    self->op = WARP_BALLOT;
    self->mask = mask;
    self->value = predicate != 0;
    wait_as(AT_WARP);
    return self->result;
}

static void *hook_shared(void)
{
    return self->block->shared;
}

/* A thread that arrives again without having waited, which no GPU defines, waits for ever. */
static void hook_cluster_arrive(void)
{
    if (self->arrivals > self->waits) {
        self->waits = UINT32_MAX;
        wait_as(AT_CLUSTER);
    }
    self->arrivals++;
}

static void hook_cluster_wait(void)
{
    self->waits++;
    wait_as(AT_CLUSTER);
}

static void *hook_peer(void *address, uint32_t rank)
{
    if (rank >= cluster->n_blocks) return NULL;
    return cluster->blocks[rank].shared + ((char *)address - self->block->shared);
}

const struct eider_cpu_hooks eider_cpu_fiber_hooks = {
    .sreg = hook_sreg,
    .barrier = hook_barrier,
    .warp_barrier = hook_warp_barrier,
    .shuffle = hook_shuffle,
    .ballot = hook_ballot,
    .shared = hook_shared,
    .cluster_arrive = hook_cluster_arrive,
    .cluster_wait = hook_cluster_wait,
    .peer = hook_peer,
};

/* ---- Warp operations --------------------------------------------------- */

/* The lane that shfl.sync reads, or `lane` itself where the PTX manual says that the
 * predicate is false: "a source lane index that is out of range". */
static uint32_t source_lane(const struct fiber *f, uint32_t lane)
{
    uint32_t segment = f->clamp >> 8 & 31, bound = f->clamp & 31, b = f->lane & 31;
    uint32_t last = (lane & segment) | (bound & ~segment), first = lane & segment;
    uint32_t source;
    int inside;
    switch (f->mode) {
    case 0:
        source = first | (b & ~segment);
        inside = source <= last;
        break;
    case 1: /* up: `last` is the lowest lane to read from */
        source = lane - b;
        inside = lane >= b && source >= last;
        break;
    case 2:
        source = lane + b;
        inside = source <= last;
        break;
    default:
        source = lane ^ b;
        inside = source <= last;
        break;
    }
    return inside ? source & 31 : lane;
}

/* Gives every thread of the complete group `mask` its result and lets it run.  A lane
 * that is outside the group or has ended gives no value: its reader keeps its own, where
 * the result on a GPU is undefined. */
static void finish_group(struct fiber *warp, uint32_t mask, uint32_t waiting)
{
    uint32_t ballot = 0;
    for (uint32_t lane = 0; lane < EIDER_FIBER_WARP; lane++)
        if (waiting >> lane & 1 && warp[lane].value) ballot |= 1u << lane;
    for (uint32_t lane = 0; lane < EIDER_FIBER_WARP; lane++) {
        if (!(waiting >> lane & 1)) continue;
        struct fiber *f = &warp[lane];
        if (f->op == WARP_SHUFFLE) {
            uint32_t from = source_lane(f, lane);
            f->result = warp[waiting >> from & 1 ? from : lane].value;
        } else {
            f->result = ballot & mask;
        }
    }
    for (uint32_t lane = 0; lane < EIDER_FIBER_WARP; lane++)
        if (waiting >> lane & 1) warp[lane].state = READY;
}

/* Releases the group that the waiting thread `lane` belongs to, if it is complete. */
static int try_group(struct fiber *warp, uint32_t n_lanes, uint32_t lane)
{
    const struct fiber *f = &warp[lane];
    uint32_t waiting = 0;
    for (uint32_t i = 0; i < n_lanes; i++) {
        if (!(f->mask >> i & 1) || warp[i].state == ENDED) continue;
        if (warp[i].state != AT_WARP || warp[i].op != f->op || warp[i].mask != f->mask) return 0;
        waiting |= 1u << i;
    }
    if (!(waiting >> lane & 1)) return 0; /* a thread that its own mask leaves out */
    finish_group(warp, f->mask, waiting);
    return 1;
}

static int release_warps(struct block *block, uint32_t n_threads)
{
    int released = 0;
    for (uint32_t first = 0; first < n_threads; first += EIDER_FIBER_WARP) {
        uint32_t n = n_threads - first < EIDER_FIBER_WARP ? n_threads - first : EIDER_FIBER_WARP;
        for (uint32_t lane = 0; lane < n; lane++)
            if (block->fibers[first + lane].state == AT_WARP)
                released |= try_group(block->fibers + first, n, lane);
    }
    return released;
}

/* ---- Barriers ---------------------------------------------------------- */

static uint32_t count_in(const struct block *block, uint32_t n_threads, enum state state)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_threads; i++) n += block->fibers[i].state == state;
    return n;
}

static int release_barrier(struct block *block, uint32_t n_threads)
{
    uint32_t waiting = count_in(block, n_threads, AT_BARRIER);
    if (!waiting || waiting + count_in(block, n_threads, ENDED) < n_threads) return 0;
    for (uint32_t i = 0; i < n_threads; i++)
        if (block->fibers[i].state == AT_BARRIER) block->fibers[i].state = READY;
    return 1;
}

/* How often all threads that have not ended have arrived. */
static uint32_t least_arrivals(const struct eider_cpu_fibers *b)
{
    uint32_t least = UINT32_MAX - 1;
    for (uint32_t k = 0; k < b->n_blocks; k++)
        for (uint32_t i = 0; i < b->n_threads; i++) {
            const struct fiber *f = &b->blocks[k].fibers[i];
            if (f->state != ENDED && f->arrivals < least) least = f->arrivals;
        }
    return least;
}

static int release_cluster(struct eider_cpu_fibers *b)
{
    uint32_t least = least_arrivals(b);
    int released = 0;
    for (uint32_t k = 0; k < b->n_blocks; k++)
        for (uint32_t i = 0; i < b->n_threads; i++) {
            struct fiber *f = &b->blocks[k].fibers[i];
            if (f->state != AT_CLUSTER || f->waits > least) continue;
            f->state = READY;
            released = 1;
        }
    return released;
}

/* ---- A block ----------------------------------------------------------- */

static void start_thread(struct eider_cpu_fibers *b, struct block *block, uint32_t thread)
{
    struct fiber *f = &block->fibers[thread];
    size_t stack = (size_t)block->rank * b->block_room + thread;
    f->state = READY;
    f->block = block;
    f->thread = thread;
    f->tid[0] = thread % b->ntid[0];
    f->tid[1] = thread / b->ntid[0] % b->ntid[1];
    f->tid[2] = thread / b->ntid[0] / b->ntid[1];
    f->arrivals = f->waits = 0;
    f->stack = b->stacks->memory + (stack + 1) * b->stacks->stride - STACK_BYTES;
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = STACK_BYTES;
    f->context.uc_link = NULL;
    makecontext(&f->context, run_thread, 0);
#if defined(__SANITIZE_ADDRESS__)
    /* A thread that was given up in a deadlock left its red zones behind. */
    __asan_unpoison_memory_region(f->stack, STACK_BYTES);
#endif
#if defined(__SANITIZE_THREAD__)
    f->tsan = __tsan_create_fiber(0);
#endif
}

static void fill_shared(const struct eider_cpu_fibers *b, struct block *block)
{
    memset(block->shared, SHARED_FILL, b->shared_bytes);
}

/* Fails where another block has written to memory that is not the block's own, yet or any more. */
static eider_status check_shared(const struct eider_cpu_fibers *b, const struct block *block)
{
    const unsigned char *shared = (const unsigned char *)block->shared;
    for (uint32_t i = 0; i < b->shared_bytes && b->n_blocks > 1; i++)
        if (shared[i] != SHARED_FILL)
            return eider_fail(EIDER_UNSUPPORTED,
                              "block (%u, %u, %u) %s when another block of its cluster wrote to "
                              "byte %u of its shared memory",
                              block->ctaid[0], block->ctaid[1], block->ctaid[2],
                              block->has_ended ? "had ended" : "had not begun", i);
    return EIDER_OK;
}

/* Runs a block as far as it can go without the others; sets *progress if it went anywhere. */
static eider_status run_block(struct eider_cpu_fibers *b, struct block *block, int *progress)
{
    if (block->has_ended) return EIDER_OK;
    if (!block->has_begun) EIDER_TRY(check_shared(b, block));
    block->has_begun = 1;
    do {
        for (uint32_t i = 0; i < b->n_threads; i++) {
            if (block->fibers[i].state != READY) continue;
            to_fiber(b, &block->fibers[i]);
            *progress = 1;
        }
    } while (release_warps(block, b->n_threads) || release_barrier(block, b->n_threads));
    block->has_ended = count_in(block, b->n_threads, ENDED) == b->n_threads;
    if (block->has_ended) fill_shared(b, block);
    return EIDER_OK;
}

/* ---- A cluster --------------------------------------------------------- */

static eider_status stuck(const struct eider_cpu_fibers *b)
{
    const struct block *block = b->blocks;
    uint32_t mask = 0, n = b->n_threads;
    char in_cluster[64] = "";
    /* One that waits for itself says more than those that wait for it. */
    for (uint32_t k = 0; k < b->n_blocks; k++)
        if (count_in(&b->blocks[k], n, AT_BARRIER) + count_in(&b->blocks[k], n, AT_WARP))
            block = &b->blocks[k];
    for (uint32_t i = 0; i < n && !mask; i++)
        if (block->fibers[i].state == AT_WARP) mask = block->fibers[i].mask;
    if (count_in(block, n, AT_CLUSTER) || b->n_blocks > 1)
        snprintf(in_cluster, sizeof in_cluster, "%u in that of its cluster of %u, ",
                 count_in(block, n, AT_CLUSTER), b->n_blocks);
    return eider_fail(EIDER_UNSUPPORTED,
                      "block (%u, %u, %u) cannot finish: of its %u threads %u wait in the block's "
                      "barrier, %s%u in a warp operation (mask 0x%08x) and %u have ended",
                      block->ctaid[0], block->ctaid[1], block->ctaid[2], n,
                      count_in(block, n, AT_BARRIER), in_cluster, count_in(block, n, AT_WARP), mask,
                      count_in(block, n, ENDED));
}

static eider_status run_blocks(struct eider_cpu_fibers *b, int backwards)
{
    for (uint32_t n_ended = 0; n_ended < b->n_blocks;) {
        int progress = 0;
        n_ended = 0;
        for (uint32_t k = 0; k < b->n_blocks; k++) {
            struct block *block = &b->blocks[backwards ? b->n_blocks - 1 - k : k];
            EIDER_TRY(run_block(b, block, &progress));
            n_ended += (uint32_t)block->has_ended;
        }
        if (!progress && !release_cluster(b)) return stuck(b);
    }
    for (uint32_t k = 0; k < b->n_blocks; k++) EIDER_TRY(check_shared(b, &b->blocks[k]));
    return EIDER_OK;
}

/* The blocks (x, y, z), (x + 1, y, z), ... */
static eider_status run_cluster(struct eider_cpu_fibers *b, uint32_t x, uint32_t y, uint32_t z)
{
    for (uint32_t k = 0; k < b->n_blocks; k++) {
        struct block *block = &b->blocks[k];
        block->ctaid[0] = x + k;
        block->ctaid[1] = y;
        block->ctaid[2] = z;
        block->has_begun = block->has_ended = 0;
        fill_shared(b, block);
        for (uint32_t i = 0; i < b->n_threads; i++) start_thread(b, block, i);
    }
    eider_status status = run_blocks(b, x / b->n_blocks % 2 != 0);
#if defined(__SANITIZE_THREAD__)
    for (uint32_t k = 0; k < b->n_blocks; k++)
        for (uint32_t i = 0; i < b->n_threads; i++)
            __tsan_destroy_fiber(b->blocks[k].fibers[i].tsan);
#endif
    return status;
}

eider_status eider_cpu_fiber_run(struct eider_cpu_fibers *b, eider_cpu_thread_entry entry,
                                 void *const *params, const uint32_t grid[3],
                                 const uint32_t threads[3])
{
    if (grid[0] % b->n_blocks)
        return eider_fail(EIDER_BAD_ARG, "a grid of %u blocks in x is not clusters of %u", grid[0],
                          b->n_blocks);
    pthread_mutex_lock(&b->stacks->lock);
    eider_status status = EIDER_OK;
    b->entry = entry;
    b->params = params;
    b->n_threads = threads[0] * threads[1] * threads[2];
    memcpy(b->ntid, threads, sizeof b->ntid);
    memcpy(b->nctaid, grid, sizeof b->nctaid);
#if defined(__SANITIZE_THREAD__)
    b->tsan = __tsan_get_current_fiber();
#endif
    for (uint32_t z = 0; z < grid[2]; z++)
        for (uint32_t y = 0; y < grid[1]; y++)
            for (uint32_t x = 0; x < grid[0] && status == EIDER_OK; x += b->n_blocks)
                status = run_cluster(b, x, y, z);
    pthread_mutex_unlock(&b->stacks->lock);
    return status;
}

/* ---- Memory ------------------------------------------------------------ */

eider_status eider_cpu_stacks_create(const eider_allocator *a, struct eider_cpu_stacks **out)
{
    struct eider_cpu_stacks *s = eider_mem_zero(a, sizeof *s);
    if (!s) return EIDER_OOM;
    s->allocator = *a;
    s->stride = (size_t)sysconf(_SC_PAGESIZE) + STACK_BYTES;
    pthread_mutex_init(&s->lock, NULL);
    *out = s;
    return EIDER_OK;
}

void eider_cpu_stacks_release(struct eider_cpu_stacks *s)
{
    if (!s) return;
    eider_allocator a = s->allocator;
    if (s->memory) munmap(s->memory, s->bytes);
    pthread_mutex_destroy(&s->lock);
    eider_mem_free(&a, s);
}

/* The page below each stack faults instead of letting an overflow reach its neighbour. */
static eider_status map_stacks(struct eider_cpu_stacks *s, uint32_t room)
{
    size_t bytes = room * s->stride;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return eider_fail(EIDER_OOM, "out of memory: %zu bytes of stacks for %u threads", bytes,
                          room);
    for (uint32_t i = 0; i < room; i++) {
        if (mprotect(memory + i * s->stride, s->stride - STACK_BYTES, PROT_NONE) == 0) continue;
        munmap(memory, bytes);
        return eider_fail(EIDER_OOM, "out of memory: no guard page for thread %u", i);
    }
    if (s->memory) munmap(s->memory, s->bytes);
    s->memory = memory;
    s->bytes = bytes;
    s->room = room;
    return EIDER_OK;
}

static eider_status reserve_stacks(struct eider_cpu_stacks *s, uint32_t room)
{
    eider_status status = EIDER_OK;
    pthread_mutex_lock(&s->lock);
    if (room > s->room) status = map_stacks(s, room);
    pthread_mutex_unlock(&s->lock);
    return status;
}

static eider_status check_size(uint32_t n_threads, uint32_t n_blocks)
{
    if (n_threads == 0 || n_threads > EIDER_FIBER_THREADS_MAX)
        return eider_fail(EIDER_BAD_ARG, "a block of %u threads; 1 to %u are possible", n_threads,
                          EIDER_FIBER_THREADS_MAX);
    if (n_blocks == 0 || n_blocks > EIDER_FIBER_CLUSTER_MAX ||
        n_blocks * n_threads > EIDER_FIBER_CLUSTER_THREADS_MAX)
        return eider_fail(EIDER_BAD_ARG,
                          "a cluster of %u blocks of %u threads; on the CPU, 1 to %u blocks of "
                          "%u threads in all are possible",
                          n_blocks, n_threads, EIDER_FIBER_CLUSTER_MAX,
                          EIDER_FIBER_CLUSTER_THREADS_MAX);
    return EIDER_OK;
}

/* Hands out the memory of all blocks, each aligned. */
static void divide(struct eider_cpu_fibers *b, size_t shared_stride)
{
    uintptr_t begin = (uintptr_t)b->shared;
    size_t skip = (SHARED_ALIGN - begin % SHARED_ALIGN) % SHARED_ALIGN;
    for (uint32_t k = 0; k < b->n_blocks; k++) {
        b->blocks[k].rank = k;
        b->blocks[k].shared = b->shared + skip + k * shared_stride;
        b->blocks[k].fibers = b->fibers + (size_t)k * b->block_room;
    }
}

eider_status eider_cpu_fiber_create(const eider_allocator *a, struct eider_cpu_stacks *stacks,
                                    uint32_t n_threads, uint32_t n_blocks, uint32_t shared_bytes,
                                    struct eider_cpu_fibers **out)
{
    size_t shared_stride = ((size_t)shared_bytes + SHARED_ALIGN - 1) / SHARED_ALIGN * SHARED_ALIGN;
    EIDER_TRY(check_size(n_threads, n_blocks));
    struct eider_cpu_fibers *b = eider_mem_zero(a, sizeof *b);
    if (!b) return EIDER_OOM;
    b->allocator = *a;
    b->stacks = stacks;
    b->block_room = n_threads;
    b->n_blocks = n_blocks;
    b->room = n_threads * n_blocks;
    b->shared_bytes = shared_bytes;
    b->fibers = eider_mem_zero(a, b->room * sizeof b->fibers[0]);
    b->blocks = eider_mem_zero(a, n_blocks * sizeof b->blocks[0]);
    b->shared = eider_mem_alloc(a, n_blocks * shared_stride + SHARED_ALIGN);
    eider_status status =
        b->fibers && b->blocks && b->shared ? reserve_stacks(stacks, b->room) : EIDER_OOM;
    if (status != EIDER_OK) {
        eider_cpu_fiber_release(b);
        return status;
    }
    divide(b, shared_stride);
    *out = b;
    return EIDER_OK;
}

void eider_cpu_fiber_release(struct eider_cpu_fibers *b)
{
    if (!b) return;
    eider_allocator a = b->allocator;
    eider_mem_free(&a, b->shared);
    eider_mem_free(&a, b->blocks);
    eider_mem_free(&a, b->fibers);
    eider_mem_free(&a, b);
}
