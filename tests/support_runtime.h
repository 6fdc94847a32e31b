/* support_runtime.h -- what tests of the runtime share: contexts, an allocator that counts
 * and fails, and tensors.
 */
#ifndef EIDER_TESTS_SUPPORT_RUNTIME_H
#define EIDER_TESTS_SUPPORT_RUNTIME_H

#include <stdatomic.h>

#include "eider/eider.h"

/* An allocator over malloc.  It checks that old sizes are told truly. */
struct counting_allocator {
    atomic_long n_calls; /* allocations and growths */
    atomic_long n_alive; /* blocks */
    long fail_at;        /* the call that fails; 0: none */
    int fail_ever_after; /* and all later ones */
};

eider_allocator counting_allocator(struct counting_allocator *state);

/* Row-major contiguous, of `rank` extents in `shape`, which must outlive it. */
eider_tensor tensor_of(void *data, eider_dtype type, int32_t rank, const int64_t *shape);

/* LLVM IR of a kernel k(x, bias, out) for blocks of 256 threads, written as for a GPU:
 * out[block] = bias + the sum of x over the block, by halves in shared memory. */
extern const char sum_of_blocks_ll[];

/* Fails the test with eider_error() unless `status` is EIDER_OK. */
#define must(call) must_at(call, #call, __FILE__, __LINE__)
void must_at(eider_status status, const char *call, const char *file, int line);

#endif
