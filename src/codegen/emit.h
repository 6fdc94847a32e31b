/* emit.h -- compiling a module in this process.
 *
 * Invariant: a fork for a worker happens only while no other thread is inside a compile,
 * so that the child never inherits a lock of LLVM that nobody will open.
 */
#ifndef EIDER_CODEGEN_EMIT_H
#define EIDER_CODEGEN_EMIT_H

#include "codegen.h"

enum eider_emit_flag {
    EIDER_EMIT_FOREIGN = 1, /* eider did not write the IR: the whole pipeline */
    EIDER_EMIT_ASSEMBLY = 2 /* CPU: text instead of an object */
};

/* eider_codegen_emit without the lock; for the worker, which is alone. */
eider_status eider_emit_module(const eider_allocator *a, LLVMModuleRef module,
                               const struct eider_codegen_job *job, unsigned flags,
                               struct eider_codegen_result *out);

/* Around every use of LLVM's code generators and linker. */
void eider_emit_enter(void);
void eider_emit_leave(void);

/* Forks while no other thread is between enter and leave; returns as fork does. */
int eider_emit_fork(void);

/* Nanoseconds of the monotonic clock. */
uint64_t eider_emit_clock(void);

#endif
