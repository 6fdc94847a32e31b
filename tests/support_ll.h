/* support_ll.h -- LLVM modules from text, for tests. */
#ifndef EIDER_TESTS_SUPPORT_LL_H
#define EIDER_TESTS_SUPPORT_LL_H

#include "codegen.h"

/* An allocator that fails once `left` allocations were made; counts those it is asked for. */
struct ll_failing {
    int left, asked;
};
eider_allocator ll_failing_allocator(struct ll_failing *failing);

/* Parses `text` in a context of its own, compiles it and disposes of the context. */
eider_status ll_emit(const char *text, const struct eider_codegen_job *job,
                     struct eider_codegen_result *out);
eider_status ll_emit_with(const eider_allocator *a, const char *text,
                          const struct eider_codegen_job *job, struct eider_codegen_result *out);

/* The allocator that tests use where they do not count. */
extern const eider_allocator ll_allocator;

/* A vectorised swiglu of bf16 for NVPTX: "swiglu(gate, up, out)". */
extern const char ll_swiglu[];

/* out[i] = 2 * in[i] for block style on the CPU: "twice". */
extern const char ll_twice[];

#endif
