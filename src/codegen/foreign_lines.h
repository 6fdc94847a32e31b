/* foreign_lines.h -- line information for IR that came as text: the lines of that text.
 *
 * Invariant: where the text and the module do not match line by line, or the module has debug
 * information already, nothing is changed.
 */
#ifndef EIDER_CODEGEN_FOREIGN_LINES_H
#define EIDER_CODEGEN_FOREIGN_LINES_H

#include <llvm-c/Types.h>
#include <stddef.h>

void eider_foreign_lines_add(LLVMModuleRef module, const char *text, size_t size);

#endif
