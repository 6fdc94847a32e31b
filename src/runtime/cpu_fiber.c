/* cpu_fiber.c -- see cpu_fiber.h.
 *
 * The scheduler lives on the caller's stack and switches to one fiber after the other;
 * a fiber switches back when it waits or ends.  When no fiber can run, whatever groups
 * are complete are released:
 *
 *   warp operation   all threads of the mask that have not ended wait in the same
 *                    operation with the same mask
 *   block barrier    all threads of the block that have not ended wait in it
 *
 * Switching uses ucontext: slower than a switch of our own, but the same on every
 * processor, and known to debuggers.  Both sanitizers are told of every switch.
 */
#include "cpu_fiber.h"

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

enum state { READY, AT_BARRIER, AT_WARP, ENDED };

enum warp_op { WARP_BARRIER, WARP_SHUFFLE, WARP_BALLOT };

struct fiber {
    ucontext_t context;
    enum state state;
    uint32_t thread; /* x + ntid.x * (y + ntid.y * z) */
    uint32_t tid[3];
    /* The warp operation it waits in, and what that gives it. */
    enum warp_op op;
    uint32_t mode, mask, value, lane, clamp;
    uint32_t result;
    char *stack;
    void *fake_stack; /* address sanitizer's */
    void *tsan;
};

struct eider_cpu_fibers {
    eider_allocator allocator;
    char *stacks; /* room * (guard page + STACK_BYTES) */
    size_t stack_stride, stacks_bytes;
    void *shared_block; /* allocation that `shared` lies in */
    void *shared;
    uint32_t shared_bytes, room;

    /* The block that runs. */
    eider_cpu_thread_entry entry;
    void *const *params;
    uint32_t n_threads, ntid[3], ctaid[3], nctaid[3];
    ucontext_t scheduler;
    void *fake_stack, *tsan;
    const void *caller_stack;
    size_t caller_stack_bytes;
    struct fiber *fibers;
};

/* The fiber that runs on this thread.  A block stays on one thread, so a function may
 * keep this across a switch. */
static _Thread_local struct eider_cpu_fibers *block;
static _Thread_local struct fiber *self;

/* ---- Switching --------------------------------------------------------- */

static void to_fiber(struct eider_cpu_fibers *b, struct fiber *f)
{
    block = b;
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
    struct eider_cpu_fibers *b = block;
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
    to_scheduler(block, self, 0);
}

/* ---- Hooks ------------------------------------------------------------- */

static uint32_t hook_sreg(uint32_t which)
{
    const uint32_t *groups[] = {self->tid, block->ntid, block->ctaid, block->nctaid};
    if (which < EIDER_SREG_LANEID) return groups[which / 3][which % 3];
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
    return block->shared;
}

const struct eider_cpu_hooks eider_cpu_fiber_hooks = {
    .sreg = hook_sreg,
    .barrier = hook_barrier,
    .warp_barrier = hook_warp_barrier,
    .shuffle = hook_shuffle,
    .ballot = hook_ballot,
    .shared = hook_shared,
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

static int release_warps(struct eider_cpu_fibers *b)
{
    int released = 0;
    for (uint32_t first = 0; first < b->n_threads; first += EIDER_FIBER_WARP) {
        uint32_t n =
            b->n_threads - first < EIDER_FIBER_WARP ? b->n_threads - first : EIDER_FIBER_WARP;
        for (uint32_t lane = 0; lane < n; lane++)
            if (b->fibers[first + lane].state == AT_WARP)
                released |= try_group(b->fibers + first, n, lane);
    }
    return released;
}

static uint32_t count_in(const struct eider_cpu_fibers *b, enum state state)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n_threads; i++) n += b->fibers[i].state == state;
    return n;
}

static int release_barrier(struct eider_cpu_fibers *b)
{
    if (count_in(b, AT_BARRIER) + count_in(b, ENDED) < b->n_threads) return 0;
    for (uint32_t i = 0; i < b->n_threads; i++)
        if (b->fibers[i].state == AT_BARRIER) b->fibers[i].state = READY;
    return 1;
}

/* ---- A block ----------------------------------------------------------- */

static void start_thread(struct eider_cpu_fibers *b, uint32_t thread)
{
    struct fiber *f = &b->fibers[thread];
    f->state = READY;
    f->thread = thread;
    f->tid[0] = thread % b->ntid[0];
    f->tid[1] = thread / b->ntid[0] % b->ntid[1];
    f->tid[2] = thread / b->ntid[0] / b->ntid[1];
    f->stack = b->stacks + thread * b->stack_stride + (b->stack_stride - STACK_BYTES);
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

static eider_status stuck(const struct eider_cpu_fibers *b)
{
    uint32_t mask = 0;
    for (uint32_t i = 0; i < b->n_threads && !mask; i++)
        if (b->fibers[i].state == AT_WARP) mask = b->fibers[i].mask;
    return eider_fail(EIDER_UNSUPPORTED,
                      "block (%u, %u, %u) cannot finish: of its %u threads %u wait in the block's "
                      "barrier, %u in a warp operation (mask 0x%08x) and %u have ended",
                      b->ctaid[0], b->ctaid[1], b->ctaid[2], b->n_threads, count_in(b, AT_BARRIER),
                      count_in(b, AT_WARP), mask, count_in(b, ENDED));
}

static eider_status run_block(struct eider_cpu_fibers *b)
{
    eider_status status = EIDER_OK;
    for (uint32_t i = 0; i < b->n_threads; i++) start_thread(b, i);
    while (count_in(b, ENDED) < b->n_threads) {
        for (uint32_t i = 0; i < b->n_threads; i++)
            if (b->fibers[i].state == READY) to_fiber(b, &b->fibers[i]);
        if (!release_warps(b) && !release_barrier(b)) {
            status = stuck(b);
            break;
        }
    }
#if defined(__SANITIZE_THREAD__)
    for (uint32_t i = 0; i < b->n_threads; i++) __tsan_destroy_fiber(b->fibers[i].tsan);
#endif
    return status;
}

eider_status eider_cpu_fiber_run(struct eider_cpu_fibers *b, eider_cpu_thread_entry entry,
                                 void *const *params, const uint32_t grid[3],
                                 const uint32_t threads[3])
{
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
            for (uint32_t x = 0; x < grid[0]; x++) {
                b->ctaid[0] = x;
                b->ctaid[1] = y;
                b->ctaid[2] = z;
                EIDER_TRY(run_block(b));
            }
    return EIDER_OK;
}

/* ---- Memory ------------------------------------------------------------ */

/* The page below each stack faults instead of letting an overflow reach its neighbour. */
static eider_status map_stacks(struct eider_cpu_fibers *b)
{
    size_t guard = (size_t)sysconf(_SC_PAGESIZE);
    b->stack_stride = guard + STACK_BYTES;
    b->stacks_bytes = b->room * b->stack_stride;
    void *stacks = mmap(NULL, b->stacks_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED)
        return eider_fail(EIDER_OOM, "out of memory: %zu bytes of stacks for %u threads",
                          b->stacks_bytes, b->room);
    b->stacks = stacks;
    for (uint32_t i = 0; i < b->room; i++)
        if (mprotect(b->stacks + i * b->stack_stride, guard, PROT_NONE) != 0)
            return eider_fail(EIDER_OOM, "out of memory: no guard page for thread %u", i);
    return EIDER_OK;
}

eider_status eider_cpu_fiber_create(const eider_allocator *a, uint32_t n_threads,
                                    uint32_t shared_bytes, struct eider_cpu_fibers **out)
{
    if (n_threads == 0 || n_threads > EIDER_FIBER_THREADS_MAX)
        return eider_fail(EIDER_BAD_ARG, "a block of %u threads; 1 to %u are possible", n_threads,
                          EIDER_FIBER_THREADS_MAX);
    struct eider_cpu_fibers *b = eider_mem_zero(a, sizeof *b);
    if (!b) return EIDER_OOM;
    b->allocator = *a;
    b->room = n_threads;
    b->shared_bytes = shared_bytes;
    b->fibers = eider_mem_zero(a, n_threads * sizeof b->fibers[0]);
    b->shared_block = eider_mem_zero(a, (size_t)shared_bytes + SHARED_ALIGN);
    eider_status status = b->fibers && b->shared_block ? map_stacks(b) : EIDER_OOM;
    if (status != EIDER_OK) {
        eider_cpu_fiber_release(b);
        return status;
    }
    uintptr_t at = ((uintptr_t)b->shared_block + SHARED_ALIGN - 1) & ~(uintptr_t)(SHARED_ALIGN - 1);
    b->shared = (char *)b->shared_block + (at - (uintptr_t)b->shared_block);
    *out = b;
    return EIDER_OK;
}

void eider_cpu_fiber_release(struct eider_cpu_fibers *b)
{
    if (!b) return;
    eider_allocator a = b->allocator;
    if (b->stacks) munmap(b->stacks, b->stacks_bytes);
    eider_mem_free(&a, b->shared_block);
    eider_mem_free(&a, b->fibers);
    eider_mem_free(&a, b);
}
