/* assembler.h -- one way of turning PTX into a cubin.
 *
 * A row of assemble.c's table has one such function.  `options` are ptxas's, without the
 * assembler's own spelling differences.
 */
#ifndef EIDER_CODEGEN_ASSEMBLER_H
#define EIDER_CODEGEN_ASSEMBLER_H

#include "tools.h"

/* The options that all assemblers understand. */
struct eider_assembler_options {
    char arch[EIDER_TARGET_TEXT_BYTES]; /* "sm_90" */
    int contract, line_info, deadline_ms;
};

/* Sets *cubin on success; `log` receives what the assembler said in both cases.  Returns
 * EIDER_OK, EIDER_ASSEMBLER when the PTX was refused (the caller makes the message from
 * the log), or another status with the message made. */
typedef eider_status (*eider_assembler_run)(const eider_allocator *a,
                                            const struct eider_tool_found *tool,
                                            const struct eider_blob *ptx,
                                            const struct eider_assembler_options *options,
                                            struct eider_blob *cubin, struct eider_text *log);

eider_status eider_assembler_nvptxcompiler(const eider_allocator *a,
                                           const struct eider_tool_found *tool,
                                           const struct eider_blob *ptx,
                                           const struct eider_assembler_options *options,
                                           struct eider_blob *cubin, struct eider_text *log);
eider_status eider_assembler_ptxas(const eider_allocator *a, const struct eider_tool_found *tool,
                                   const struct eider_blob *ptx,
                                   const struct eider_assembler_options *options,
                                   struct eider_blob *cubin, struct eider_text *log);
eider_status eider_assembler_nvjitlink(const eider_allocator *a,
                                       const struct eider_tool_found *tool,
                                       const struct eider_blob *ptx,
                                       const struct eider_assembler_options *options,
                                       struct eider_blob *cubin, struct eider_text *log);

#endif
