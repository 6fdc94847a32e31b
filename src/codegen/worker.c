/* worker.c -- foreign IR, compiled in a process of its own; see codegen.h. */
#include "codegen.h"

eider_status eider_worker_compile(const eider_allocator *a, const eider_source *source,
                                  const char *config, const struct eider_codegen_job *job,
                                  int deadline_ms, struct eider_codegen_result *out)
{
    (void)a, (void)source, (void)config, (void)job, (void)deadline_ms, (void)out;
    return eider_fail(EIDER_UNSUPPORTED, "foreign IR is not compiled yet");
}
