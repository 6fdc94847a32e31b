/* tools.h -- finding what is not linked: assemblers and the disassembler.
 *
 * Invariant: a tool counts as found only after it ran or was opened and told its version,
 * in this process or, for eider_tools_identify, the same file in an earlier one.
 * A variable that names a tool decides alone: nothing else is tried.
 */
#ifndef EIDER_CODEGEN_TOOLS_H
#define EIDER_CODEGEN_TOOLS_H

#include "codegen.h"

enum eider_tool_id {
    EIDER_TOOL_LLVM,
    EIDER_TOOL_NVPTXCOMPILER,
    EIDER_TOOL_PTXAS,
    EIDER_TOOL_NVJITLINK,
    EIDER_TOOL_NVDISASM,
    EIDER_TOOL_COUNT
};

/* What was found.  Libraries stay open until the process ends. */
struct eider_tool_found {
    struct eider_assembler_info info;
    void *library;
};

/* Looks for the tool, ready for use, or remembers where it was, for as long as the variables
 * that say where to look are the same.  Returns 0 when it is not there. */
int eider_tools_get(enum eider_tool_id id, struct eider_tool_found *out);

/* The same, but only which one it is: takes microseconds where it was used before. */
int eider_tools_identify(enum eider_tool_id id, struct eider_assembler_info *out);

/* "nvptxcompiler", "ptxas", ... */
const char *eider_tools_name(enum eider_tool_id id);

#endif
