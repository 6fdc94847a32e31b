/* llvm_error.h -- everything that LLVM says passes through here.
 *
 * Invariant: strings and errors of LLVM are consumed by the function that reports them.
 * While a watch is on a context, LLVM neither prints nor exits for a diagnostic of that
 * context; fatal errors (report_fatal_error) are not diagnostics, see worker.c.
 */
#ifndef EIDER_CODEGEN_LLVM_ERROR_H
#define EIDER_CODEGEN_LLVM_ERROR_H

#include <llvm-c/Core.h>
#include <llvm-c/Error.h>

#include "fail.h"

/* Records "<doing>: <message>" as EIDER_CODEGEN; EIDER_OK for NULL.  Consumes `error`. */
eider_status eider_llvm_error_fail(LLVMErrorRef error, const char *doing);

/* The same for a message that LLVM allocated, which may be NULL. */
eider_status eider_llvm_error_message(char *message, const char *doing);

/* The diagnostics of one context while it is being compiled. */
struct eider_llvm_watch {
    LLVMContextRef context;
    LLVMDiagnosticHandler old_handler;
    void *old_user;
    int errors;
    char first[1024]; /* the first error's text */
};

/* Takes over the context's diagnostics.  `watch` stays where it is until it ends. */
void eider_llvm_error_watch(struct eider_llvm_watch *watch, LLVMContextRef context);

/* Gives the diagnostics back. */
void eider_llvm_error_unwatch(struct eider_llvm_watch *watch);

/* EIDER_CODEGEN with the first error's text if there was one, else EIDER_OK. */
eider_status eider_llvm_error_watched(const struct eider_llvm_watch *watch, const char *doing);

#endif
