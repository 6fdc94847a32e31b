/* tools.h -- finding what is not linked: assemblers and the disassembler.
 *
 * Invariant: a tool counts as found only after it ran or was opened and told its version.
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

/* Looks for the tool, or remembers where it was.  Returns 0 when it is not there. */
int eider_tools_get(enum eider_tool_id id, struct eider_tool_found *out);

/* "nvptxcompiler", "ptxas", ... */
const char *eider_tools_name(enum eider_tool_id id);

#endif
