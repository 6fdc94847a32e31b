/* process.h -- waiting for a child process that must not outlive its deadline.
 *
 * Invariant: on return of eider_process_collect the child and its process group are dead
 * and reaped, and its descriptors are closed.
 * Not here: starting it (spawn.c, worker.c).
 */
#ifndef EIDER_CODEGEN_PROCESS_H
#define EIDER_CODEGEN_PROCESS_H

#include <sys/types.h>

#include "memory.h"

/* One descriptor of ours that the child writes to. */
struct eider_process_stream {
    int fd;                  /* read end */
    size_t limit;            /* bytes kept; the rest is read and dropped */
    struct eider_text *text; /* receives them */
};

#define EIDER_PROCESS_STREAMS 2

struct eider_process {
    pid_t pid; /* leads a process group of its own */
    struct eider_process_stream streams[EIDER_PROCESS_STREAMS];
    size_t n_streams;
    int stall_ms;   /* a child that uses no processor for so long ends; 0: never */
    int is_stalled; /* set when that, and not the deadline, was the end */
};

/* Reads the streams until the child has ended; kills the group at the deadline, or when
 * the child stalls.  Gives EIDER_OK, EIDER_OOM or, then, EIDER_TIMEOUT; a message is the
 * caller's to make for the latter.
 * *exit_code is 128 + n for signal n, and -1 when someone else reaped the child. */
eider_status eider_process_collect(struct eider_process *process, int deadline_ms, int *exit_code);

/* A pipe whose ends close on exec and are no standard descriptors.  EIDER_IO. */
eider_status eider_process_pipe(int ends[2]);

/* Moves `fd` away from the standard descriptors, which may be closed in this process;
 * -1 stays -1. */
int eider_process_lift(int fd);

#endif
