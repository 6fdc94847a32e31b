/* recent.h -- the answers to requests that were made before, found without planning them.
 *
 * Invariant: an answer is given only to a request that equals an answered one in every field
 * that decides the plan: the program, the device, numerics, texts, and of each argument its
 * type, extents, strides and alignment.  So a hit costs a hash of a few hundred bytes.  That
 * arguments overlap, which planning refuses, is left to the launch, which checks it anyway.
 * The table is small and forgets; nothing depends on what it remembers.  It holds no
 * reference: kernels stay in the code cache, which tells it when they go.
 */
#ifndef EIDER_RUNTIME_RECENT_H
#define EIDER_RUNTIME_RECENT_H

#include "context.h"

struct eider_kernel;

/* A request as bytes; size 0: one that is not remembered. */
#define EIDER_RECENT_BYTES 1024
struct eider_recent_key {
    unsigned char bytes[EIDER_RECENT_BYTES];
    size_t size;
    uint64_t hash;
};

eider_status eider_recent_create(eider_context *ctx, struct eider_recent **out);
void eider_recent_destroy(struct eider_recent *recent);

/* Fills *key, and gives the kernel with one more reference, or NULL. */
struct eider_kernel *eider_recent_find(struct eider_recent *recent, const eider_device *device,
                                       const eider_request *request, struct eider_recent_key *key);

/* Remembers that `kernel`, which is in the code cache, answers it. */
void eider_recent_keep(struct eider_recent *recent, const struct eider_recent_key *key,
                       const eider_device *device, struct eider_kernel *kernel);

/* Forgets a kernel of which nobody holds more than `refs` references; returns 0 when somebody
 * does.  Called with ctx->lock held, so frees nothing. */
int eider_recent_forget(struct eider_recent *recent, struct eider_kernel *kernel, unsigned refs);

/* Forgets the kernels of a device; NULL: all. */
void eider_recent_drop(struct eider_recent *recent, const eider_device *device);

#endif
