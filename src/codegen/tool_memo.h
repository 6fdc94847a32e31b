/* tool_memo.h -- the versions of tools, from one process to the next.
 *
 * Asking a tool for its version starts a process or opens a library, which takes longer
 * than loading a kernel from disk.  So the answer is remembered for exactly that file: its
 * device, inode, size and times, to the nanosecond.  Kept in EIDER_HOME/tools, a line each;
 * without such a place, or when anything is wrong with it, tools are asked.
 */
#ifndef EIDER_CODEGEN_TOOL_MEMO_H
#define EIDER_CODEGEN_TOOL_MEMO_H

#include <stddef.h>

#define EIDER_TOOL_VERSION_BYTES 64

/* The version that the file at `path` told as tool `name`; 0 when it is not known. */
int eider_tool_memo_find(const char *name, const char *path,
                         char version[EIDER_TOOL_VERSION_BYTES]);

/* Remembers it. */
void eider_tool_memo_keep(const char *name, const char *path, const char *version);

#endif
