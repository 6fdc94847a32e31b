/* jit_memory.h -- where an image's sections lie: in one mapping, so that none is out of reach.
 *
 * Host code refers to its constants by 32-bit offsets.  LLVM's own memory manager maps each
 * section by itself and only hopes that they are near; where the address space is crowded
 * they are not, and the code reads from somewhere else.  No page is ever writable and
 * executable at once.
 */
#ifndef EIDER_CODEGEN_JIT_MEMORY_H
#define EIDER_CODEGEN_JIT_MEMORY_H

#include <llvm-c/Orc.h>
#include <stddef.h>

#include "eider/eider.h"

/* Zeroed before use; must outlive the layer. */
struct eider_jit_memory {
    unsigned char *start;
    size_t bytes, used, first;          /* first: of the sections */
    struct eider_jit_section *sections; /* newest first */
    const char *trouble;                /* reported when the sections are complete */
};

/* Room for what an object file of `object_bytes` needs. */
eider_status eider_jit_memory_reserve(struct eider_jit_memory *m, size_t object_bytes);
void eider_jit_memory_release(struct eider_jit_memory *m);

/* The layer that links objects into `m`. */
LLVMOrcObjectLayerRef eider_jit_memory_layer(struct eider_jit_memory *m,
                                             LLVMOrcExecutionSessionRef session);

#endif
