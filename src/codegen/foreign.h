/* foreign.h -- a kernel written like a GPU kernel, made runnable on the CPU.
 *
 * Invariant: afterwards the module calls only the functions of struct eider_cpu_hooks, as
 * "eider_cpu_sreg" and so on, and what the host's libraries have; anything else of NVPTX
 * is refused by name.
 */
#ifndef EIDER_CODEGEN_FOREIGN_H
#define EIDER_CODEGEN_FOREIGN_H

#include <llvm-c/Types.h>

#include "memory.h"

/* Redirects NVVM intrinsics, places shared variables in the block's memory, and adds
 * `<entry>.thread`, `<entry>.shared` and `<entry>.params` (cpu_abi.h).  The module's triple and
 * layout are already the host's.  Fails with EIDER_CODEGEN and EIDER_TOO_LARGE. */
eider_status eider_foreign_lower(const eider_allocator *a, LLVMModuleRef module, const char *entry);

#endif
