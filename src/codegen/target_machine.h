/* target_machine.h -- LLVM's targets and target machines.
 *
 * Invariant: a target machine belongs to one compile of one thread; sharing one between
 * threads crashes LLVM.
 */
#ifndef EIDER_CODEGEN_TARGET_MACHINE_H
#define EIDER_CODEGEN_TARGET_MACHINE_H

#include <llvm-c/TargetMachine.h>

#include "target.h"

/* The host, asked of LLVM once. */
struct eider_host {
    const char *cpu;      /* "znver3" */
    const char *features; /* "+avx2,+fma,..." */
    const char *triple;
};
const struct eider_host *eider_target_host(void);

/* "nvptx64-nvidia-cuda", or the host's. */
const char *eider_target_triple(struct eider_target target);

/* The newest GPU that LLVM 19 generates code for and that `target` runs: targets it does
 * not know get the code of the nearest older one. */
struct eider_target eider_target_generated(struct eider_target target);

/* `ptx_version` (78 is 7.8) switches features of the NVPTX backend; ignored for the CPU.
 * Caller owns *out: LLVMDisposeTargetMachine. */
eider_status eider_target_machine_create(struct eider_target target, int ptx_version,
                                         LLVMTargetMachineRef *out);

#endif
