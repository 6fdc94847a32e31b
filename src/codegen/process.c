/* process.c -- see process.h. */
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* How often a kernel without pidfd_open is asked whether the child has ended. */
#define SLICE_MS 10
/* Less processor time than this in a whole stall_ms is a child that waits. */
#define STALL_USED_MS 5

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int eider_process_lift(int fd)
{
    if (fd < 0 || fd > STDERR_FILENO) return fd;
    int lifted = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    close(fd);
    return lifted;
}

eider_status eider_process_pipe(int ends[2])
{
    if (pipe2(ends, O_CLOEXEC) != 0)
        return eider_fail(EIDER_IO, "no pipe could be made: %s", strerror(errno));
    ends[0] = eider_process_lift(ends[0]);
    ends[1] = eider_process_lift(ends[1]);
    if (ends[0] >= 0 && ends[1] >= 0) return EIDER_OK;
    if (ends[0] >= 0) close(ends[0]);
    if (ends[1] >= 0) close(ends[1]);
    return eider_fail(EIDER_IO, "no pipe could be made: too many open files");
}

/* Reads what is there; closes the stream at its end. */
static void drain(struct eider_process_stream *stream)
{
    char bytes[16384];
    for (;;) {
        ssize_t n = read(stream->fd, bytes, sizeof bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) break;
        size_t room = stream->limit > stream->text->size ? stream->limit - stream->text->size : 0;
        eider_text_bytes(stream->text, bytes, (size_t)n < room ? (size_t)n : room);
    }
    close(stream->fd);
    stream->fd = -1;
}

/* Whether the child has ended, without reaping it: its number stays taken. */
static int has_ended(pid_t pid)
{
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0) return errno == ECHILD;
    return info.si_pid == pid;
}

/* Waits for output or the end; 1 when the child has ended. */
static int wait_some(struct eider_process *process, int pidfd, int64_t left_ms)
{
    struct pollfd polls[EIDER_PROCESS_STREAMS + 1];
    size_t n = process->n_streams;
    for (size_t i = 0; i < n; i++)
        polls[i] = (struct pollfd){.fd = process->streams[i].fd, .events = POLLIN};
    polls[n] = (struct pollfd){.fd = pidfd, .events = POLLIN};
    int64_t wait_ms = pidfd < 0 && left_ms > SLICE_MS ? SLICE_MS : left_ms;
    int ready = poll(polls, n + 1, wait_ms > INT32_MAX ? INT32_MAX : (int)wait_ms);
    for (size_t i = 0; ready > 0 && i < n; i++)
        if (polls[i].fd >= 0 && polls[i].revents) drain(&process->streams[i]);
    if (pidfd >= 0 && !(ready > 0 && polls[n].revents)) return 0;
    return has_ended(process->pid);
}

/* Processor time of the child, in ms; -1 when it cannot be told. */
static int64_t used_ms(pid_t pid)
{
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) != 0) return -1;
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* EIDER_OK when the child ended by itself. */
static eider_status wait_for_end(struct eider_process *process, int pidfd, int deadline_ms)
{
    int64_t end = now_ms() + deadline_ms;
    int64_t next_look = process->stall_ms ? now_ms() + process->stall_ms : INT64_MAX;
    int64_t used = 0;
    int ended = has_ended(process->pid);
    while (!ended) {
        int64_t now = now_ms();
        if (now >= end) return EIDER_TIMEOUT;
        if (now >= next_look) {
            int64_t used_now = used_ms(process->pid);
            process->is_stalled = used_now >= 0 && used_now < used + STALL_USED_MS;
            if (process->is_stalled) return EIDER_TIMEOUT;
            used = used_now;
            next_look = now + process->stall_ms;
        }
        ended = wait_some(process, pidfd, (end < next_look ? end : next_look) - now);
    }
    return EIDER_OK;
}

static int reap(pid_t pid)
{
    int status = 0;
    pid_t got;
    do got = waitpid(pid, &status, 0);
    while (got < 0 && errno == EINTR);
    if (got < 0) return -1; /* SIGCHLD is ignored in this process, or someone waits for all */
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

eider_status eider_process_collect(struct eider_process *process, int deadline_ms, int *exit_code)
{
    for (size_t i = 0; i < process->n_streams; i++)
        fcntl(process->streams[i].fd, F_SETFL, O_NONBLOCK);
    int pidfd = (int)syscall(SYS_pidfd_open, process->pid, 0);
    eider_status status = wait_for_end(process, pidfd, deadline_ms);
    kill(-process->pid, SIGKILL); /* the group: what the child started ends with it */
    *exit_code = reap(process->pid);
    if (pidfd >= 0) close(pidfd);
    for (size_t i = 0; i < process->n_streams; i++) {
        struct eider_process_stream *stream = &process->streams[i];
        if (stream->fd >= 0) drain(stream);
        if (stream->fd >= 0) close(stream->fd);
        if (status == EIDER_OK) status = stream->text->status;
    }
    return status;
}
