/* disk_faults.c -- a library to preload: one call on a file fails as on a network file system.
 *
 *   EIDER_TEST_FAULT=rename:ESTALE:2   the second rename fails; `open` or `rename`, or `moved`:
 *                                      a rename that is done, and reported as failed, as when
 *                                      a server's answer is lost and the request repeated
 *   EIDER_TEST_FAULT_BELOW=FOLDER      only files below it count
 *   EIDER_TEST_FAULT_LOG=FILE          gets a line when the call failed
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_int n_calls;

static int code_of(const char *name)
{
    static const struct {
        const char *name;
        int code;
    } codes[] = {{"ENOENT", ENOENT}, {"ESTALE", ESTALE}, {"EIO", EIO}, {"EBUSY", EBUSY}};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        if (strcmp(codes[i].name, name) == 0) return codes[i].code;
    return 0;
}

/* The errno with which this call is to fail, or 0. */
static int fault(const char *call, const char *path)
{
    char wanted[16], name[16], line[80];
    int nth = 0;
    const char *rule = getenv("EIDER_TEST_FAULT"), *below = getenv("EIDER_TEST_FAULT_BELOW");
    const char *log = getenv("EIDER_TEST_FAULT_LOG");
    if (!rule || !below || !log || strncmp(path, below, strlen(below)) != 0) return 0;
    if (sscanf(rule, "%15[^:]:%15[^:]:%d", wanted, name, &nth) != 3) return 0;
    if (strcmp(wanted, call) != 0 || atomic_fetch_add(&n_calls, 1) + 1 != nth) return 0;
    int n = snprintf(line, sizeof line, "%s\n", rule);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (syscall(SYS_write, fd, line, n) != n) _exit(99);
    syscall(SYS_close, fd);
    return code_of(name);
}

/* libc's declarations have attributes and other names for parameters. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

int open(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, int) : 0;
    va_end(list);
    int code = fault("open", path);
    if (!code) return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    errno = code;
    return -1;
}

int rename(const char *from, const char *to)
{
    int code = fault("rename", to);
    if (!code && syscall(SYS_rename, from, to) != 0) return -1;
    if (!code) code = fault("moved", to);
    if (!code) return 0;
    errno = code;
    return -1;
}
