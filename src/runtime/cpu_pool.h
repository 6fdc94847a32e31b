/* cpu_pool.h -- threads that share the blocks of a launch.
 *
 * Invariant: whoever runs a job works on it as well, so a job always makes progress and
 * nobody waits for somebody else's job.  Idle workers sleep.  Nothing runs at process
 * exit.
 */
#ifndef EIDER_RUNTIME_CPU_POOL_H
#define EIDER_RUNTIME_CPU_POOL_H

#include "memory.h"

struct eider_cpu_pool;

/* How many cores this process may use; at least 1. */
int32_t eider_cpu_pool_cores(void);

/* Starts n_threads - 1 workers.  Fewer when the system refuses more.
 * Caller owns *out: eider_cpu_pool_destroy. */
eider_status eider_cpu_pool_create(const eider_allocator *a, int32_t n_threads,
                                   struct eider_cpu_pool **out);

/* Waits for the workers to end, unless `forked`: then there are none. */
void eider_cpu_pool_destroy(struct eider_cpu_pool *pool, int forked);

/* Runs body(arg, i) for i in [0, n) and returns when all have returned.  Allocates
 * nothing; may be called by many threads at once, also from a body. */
void eider_cpu_pool_run(struct eider_cpu_pool *pool, size_t n, void (*body)(void *arg, size_t i),
                        void *arg);

#endif
