/* code_cache.h -- the kernels of a context, by identity and device.
 *
 * Invariants: a kernel is built by one thread while others that want the same one wait;
 * nobody waits for the build of another kernel; a failed build leaves nothing behind, and
 * those who waited for it get its error.
 * Not here: what identity means (prepare.c), files.
 */
#ifndef EIDER_RUNTIME_CODE_CACHE_H
#define EIDER_RUNTIME_CODE_CACHE_H

#include "kernel.h"

eider_status eider_code_cache_create(eider_context *ctx, struct eider_code_cache **out);
/* Unloads and releases every kernel. */
void eider_code_cache_destroy(struct eider_code_cache *cache);

/* The kernel of plan->identity on plan->device: found, waited for, or built here.
 * Caller owns *out: eider_kernel_release. */
eider_status eider_code_cache_get(struct eider_code_cache *cache, const struct eider_plan *plan,
                                  struct eider_kernel **out);

/* Unloads and forgets a kernel that nobody but the caller holds; releases the caller's
 * reference in any case. */
void eider_code_cache_forget(struct eider_code_cache *cache, struct eider_kernel *kernel);

/* Unloads and forgets every kernel of a device that is about to go. */
void eider_code_cache_drop(struct eider_code_cache *cache, eider_device *device);

#endif
