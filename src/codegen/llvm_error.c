/* llvm_error.c -- see llvm_error.h. */
#include "llvm_error.h"

#include <stdio.h>
#include <string.h>

/* LLVM ends some messages with a newline; a record is one sentence or a quoted text. */
static int trimmed(const char *text)
{
    size_t length = strlen(text);
    while (length && (text[length - 1] == '\n' || text[length - 1] == ' ')) length--;
    return length > 4096 ? 4096 : (int)length;
}

eider_status eider_llvm_error_fail(LLVMErrorRef error, const char *doing)
{
    if (!error) return EIDER_OK;
    char *message = LLVMGetErrorMessage(error);
    eider_status status = eider_fail(EIDER_CODEGEN, "%s: %.*s", doing, trimmed(message), message);
    LLVMDisposeErrorMessage(message);
    return status;
}

eider_status eider_llvm_error_message(char *message, const char *doing)
{
    const char *text = message ? message : "no reason given";
    eider_status status = eider_fail(EIDER_CODEGEN, "%s: %.*s", doing, trimmed(text), text);
    LLVMDisposeMessage(message);
    return status;
}

/* Errors, and the one warning that is asked for: a stack frame that would not fit. */
static void on_diagnostic(LLVMDiagnosticInfoRef info, void *user)
{
    struct eider_llvm_watch *watch = user;
    LLVMDiagnosticSeverity severity = LLVMGetDiagInfoSeverity(info);
    if (severity != LLVMDSError && severity != LLVMDSWarning) return;
    char *text = LLVMGetDiagInfoDescription(info);
    int counts = severity == LLVMDSError || strstr(text, "stack frame size");
    if (!counts || watch->errors++ > 0) {
        LLVMDisposeMessage(text);
        return;
    }
    snprintf(watch->first, sizeof watch->first, "%.*s", trimmed(text), text);
    LLVMDisposeMessage(text);
}

void eider_llvm_error_watch(struct eider_llvm_watch *watch, LLVMContextRef context)
{
    watch->context = context;
    watch->old_handler = LLVMContextGetDiagnosticHandler(context);
    watch->old_user = LLVMContextGetDiagnosticContext(context);
    watch->errors = 0;
    watch->first[0] = '\0';
    LLVMContextSetDiagnosticHandler(context, on_diagnostic, watch);
}

void eider_llvm_error_unwatch(struct eider_llvm_watch *watch)
{
    LLVMContextSetDiagnosticHandler(watch->context, watch->old_handler, watch->old_user);
}

eider_status eider_llvm_error_watched(const struct eider_llvm_watch *watch, const char *doing)
{
    if (watch->errors == 0) return EIDER_OK;
    if (watch->errors == 1) return eider_fail(EIDER_CODEGEN, "%s: %s", doing, watch->first);
    return eider_fail(EIDER_CODEGEN, "%s: %s (and %d more errors)", doing, watch->first,
                      watch->errors - 1);
}
