/* ptx.h -- PTX as text: its version, and what is written into its header.
 *
 * LLVM is asked for the newest PTX that it knows, so that every instruction can be
 * selected, and the header is then lowered to what the text needs, because older drivers
 * refuse a newer number.
 * Not here: any other change to the text.
 */
#ifndef EIDER_CODEGEN_PTX_H
#define EIDER_CODEGEN_PTX_H

#include "codegen.h"
#include "target_machine.h"

/* The newest PTX that LLVM 19 writes. */
#define EIDER_PTX_OF_LLVM 85

/* The lowest version in which `ptx` is valid for `target`.  *why is the instruction that
 * decided, or NULL when it was the target. */
int eider_ptx_version_needed(const char *ptx, struct eider_target target, const char **why);

/* Sets the version of `ptx` and gives job->entry its `.maxntid`.  Fails with
 * EIDER_CODEGEN when there is no such entry (naming those there are) or when
 * job->ptx_version is too old for the text.  Caller owns the blob. */
eider_status eider_ptx_finish(const eider_allocator *a, const char *ptx, size_t size,
                              const struct eider_codegen_job *job, struct eider_blob *out,
                              int *out_version);

#endif
