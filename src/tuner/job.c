/* job.c -- see job.h. */
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#define POLL_MS 10

eider_status eider_job_enter(const char *path, const char *key, int32_t deadline_ms,
                             struct eider_job *out)
{
    char file[4096];
    /* A few files for all keys: keys that share one only wait for each other. */
    int n = snprintf(file, sizeof file, "%s.lock%.1s", path, key);
    out->fd = -1;
    if (n < 0 || (size_t)n >= sizeof file) return EIDER_OK;
    int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return EIDER_OK;
    for (int32_t waited = 0;; waited += POLL_MS) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) break;
        if (errno != EWOULDBLOCK && errno != EINTR) {
            close(fd);
            return EIDER_OK;
        }
        if (waited >= deadline_ms) {
            close(fd);
            return eider_fail(EIDER_TIMEOUT,
                              "another process has tuned the same for %d ms (%s is locked)",
                              deadline_ms, file);
        }
        nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000L}, NULL);
    }
    out->fd = fd;
    return EIDER_OK;
}

void eider_job_leave(struct eider_job *job)
{
    if (job->fd >= 0) close(job->fd);
    job->fd = -1;
}
