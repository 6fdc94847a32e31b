/* foreign_intrinsics.h -- NVVM intrinsics on the CPU; a part of foreign.c. */
#ifndef EIDER_CODEGEN_FOREIGN_INTRINSICS_H
#define EIDER_CODEGEN_FOREIGN_INTRINSICS_H

#include <llvm-c/Types.h>

#include "fail.h"

/* Gives every NVVM intrinsic that is used a body.  Fails with EIDER_CODEGEN, naming the
 * first that has no counterpart. */
eider_status eider_foreign_intrinsics(LLVMModuleRef module);

/* The declaration of a function of struct eider_cpu_hooks. `is_constant`: it gives one
 * thread the same value every time. */
LLVMValueRef eider_foreign_hook(LLVMModuleRef module, const char *name, LLVMTypeRef type,
                                int is_constant);

#endif
