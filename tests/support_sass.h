/* support_sass.h -- reports for tests; a test is skipped, loudly, where a tool is missing. */
#ifndef EIDER_TESTS_SUPPORT_SASS_H
#define EIDER_TESTS_SUPPORT_SASS_H

#include "eider/eider.h"

/* Whether an assembler and nvdisasm are there; says so once on standard error if not. */
int support_sass_has_tools(void);

/* How a program is compiled: for `target`, all operands contiguous tensors of `type`. */
struct support_sass {
    const char *target, *config;
    eider_math math;
    eider_dtype type;
    int with_gradient; /* of the program's gradient, with the forward results */
};

/* The kernel; fails the test with the library's message. */
eider_kernel *support_sass_compile(eider_context *ctx, const char *program,
                                   const struct support_sass *how);
eider_sass *support_sass_report(eider_context *ctx, const char *program,
                                const struct support_sass *how);

/* The same without failing the test, for threads. */
eider_status support_sass_try(eider_context *ctx, const char *program,
                              const struct support_sass *how, eider_sass **out);

/* Instructions per element of the pass whose opcode is or continues `name`. */
double support_sass_count(const eider_sass *sass, const char *name);

#endif
