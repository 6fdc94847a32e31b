/* cpu_fiber.h -- blocks of many threads on one core: every thread is a fiber.
 *
 * Threads of a block run one at a time and switch where a GPU's threads wait: in a
 * barrier, a warp barrier, a shuffle, a ballot or the barrier of a cluster of blocks.  Threads
 * that have returned no longer take part in any of them.  A block that cannot go on, because its
 * threads wait for different things, is an error, not a hang.
 */
#ifndef EIDER_RUNTIME_CPU_FIBER_H
#define EIDER_RUNTIME_CPU_FIBER_H

#include "cpu_abi.h"
#include "memory.h"

#define EIDER_FIBER_WARP 32u
#define EIDER_FIBER_THREADS_MAX 1024u /* of a block, as on a GPU */
#define EIDER_FIBER_CLUSTER_MAX 16u   /* blocks of a cluster, as on a GPU */
/* Their threads; each stack takes two of the 65530 mappings that Linux gives a process, which is
 * why kernels share them. */
#define EIDER_FIBER_CLUSTER_THREADS_MAX 4096u

/* What thread-style code calls; for eider_cpu_image_create. */
extern const struct eider_cpu_hooks eider_cpu_fiber_hooks;

/* Stacks of fibers, for whoever runs: one after the other.  As many as the largest of those that
 * were created with them needs.  Caller owns *out: eider_cpu_stacks_release, after all of them. */
struct eider_cpu_stacks;
eider_status eider_cpu_stacks_create(const eider_allocator *a, struct eider_cpu_stacks **out);
void eider_cpu_stacks_release(struct eider_cpu_stacks *stacks);

/* Thread records and memory for one cluster of `n_blocks` blocks at a time.  Waits for those that
 * run where there are too few stacks.
 * Caller owns *out: eider_cpu_fiber_release. */
struct eider_cpu_fibers;
eider_status eider_cpu_fiber_create(const eider_allocator *a, struct eider_cpu_stacks *stacks,
                                    uint32_t n_threads, uint32_t n_blocks, uint32_t shared_bytes,
                                    struct eider_cpu_fibers **out);
void eider_cpu_fiber_release(struct eider_cpu_fibers *fibers);

/* Runs all clusters of `grid`, which lie along x, one after the other, on the calling thread, once
 * nobody else has the stacks.
 * `block` has at most the threads that `fibers` was created for.
 * Fails with EIDER_UNSUPPORTED, naming the block and what its threads wait for, when a
 * block cannot finish; and when a block writes to the shared memory of one that has not begun, or
 * has ended. */
eider_status eider_cpu_fiber_run(struct eider_cpu_fibers *fibers, eider_cpu_thread_entry entry,
                                 void *const *params, const uint32_t grid[3],
                                 const uint32_t block[3]);

#endif
