/* foreign.c -- see foreign.h. */
#include "foreign.h"

eider_status eider_foreign_lower(LLVMModuleRef module, const char *entry)
{
    (void)module;
    return eider_fail(EIDER_UNSUPPORTED, "kernel '%.200s' of the GPU style on the CPU", entry);
}
