/* job.h -- processes that share a folder of records take turns at tuning a key.
 *
 * The lock is the kernel's (flock): it ends with its holder, however that ends, and its file
 * is never removed.  Correctness does not rest on it: where there are no locks, two processes
 * tune the same and the record that came first counts for both.
 */
#ifndef EIDER_TUNER_JOB_H
#define EIDER_TUNER_JOB_H

#include "memory.h"

struct eider_job {
    int fd; /* -1: nothing is held */
};

/* Waits until no other process tunes `key` in the folder of `path`, deadline_ms at most;
 * then fails with EIDER_TIMEOUT.  Where locks do not work, nothing is held. */
eider_status eider_job_enter(const char *path, const char *key, int32_t deadline_ms,
                             struct eider_job *out);
void eider_job_leave(struct eider_job *job);

#endif
