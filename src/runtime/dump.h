/* dump.h -- every stage of every kernel as files, for those who want to look.
 *
 * EIDER_DUMP=program,ir,opt,ptx,cubin,sass (any of them) writes <key>.<stage> into
 * EIDER_DUMP_DIR, or EIDER_HOME/dump, when a kernel is compiled or comes from disk.
 * Invariant: it never fails a kernel: what cannot be written is told once.
 */
#ifndef EIDER_RUNTIME_DUMP_H
#define EIDER_RUNTIME_DUMP_H

#include "kernel.h"

struct eider_dump;

/* Reads the environment; *out is NULL when nothing is to be written. */
eider_status eider_dump_create(eider_context *ctx, struct eider_dump **out);
void eider_dump_destroy(struct eider_dump *dump);

/* Writes what is wanted of a kernel; of one that failed, what there was before.  Keeps the
 * thread's error record. */
void eider_dump_kernel(struct eider_dump *dump, struct eider_kernel *kernel, eider_status status);

#endif
