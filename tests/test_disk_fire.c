/* test_disk_fire.c -- the cache on disk under fire: system calls that fail as network file
 * systems let them fail, full disks, and processes that are killed.
 *
 * The calls are replaced in this program, as a preloaded library would: its definitions come
 * before libc's.  They fail only when armed, and only below the test's directory.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "disk_cache.h"
#include "support_cache.h"
#include "support_runtime.h"

static char directory[CACHE_PATH_BYTES];

/* ---- Calls that fail ------------------------------------------------------------------ */

enum call { NO_CALL, OPEN, WRITE, FSYNC, CLOSE, RENAME, UNLINK, MKDIR, PREAD, FSTAT, N_CALLS };

static struct {
    enum call call;
    int code; /* errno; 0: a short read or write */
    int nth;  /* of such calls, from 1; then `times` in a row */
    int times;
    int n_calls, n_failed;
} fault;

static int is_ours(int fd)
{
    char link[64], path[CACHE_PATH_BYTES];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0) return 0;
    path[n] = '\0';
    return strncmp(path, directory, strlen(directory)) == 0;
}

/* Whether this call is to fail. */
static int fails(enum call call, int is_here)
{
    if (fault.call != call || !is_here) return 0;
    int n = ++fault.n_calls;
    if (n < fault.nth || n >= fault.nth + fault.times) return 0;
    fault.n_failed++;
    errno = fault.code;
    return 1;
}

static int is_below(const char *path)
{
    return directory[0] && strncmp(path, directory, strlen(directory)) == 0;
}

/* libc's declarations have attributes and other names for parameters. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

__attribute__((visibility("default"))) int open(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, int) : 0;
    va_end(list);
    if (fails(OPEN, is_below(path))) return -1;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

__attribute__((visibility("default"))) ssize_t write(int fd, const void *data, size_t size)
{
    if (fault.call == WRITE && fails(WRITE, is_ours(fd))) {
        if (fault.code) return -1;
        size = (size + 1) / 2;
    }
    return syscall(SYS_write, fd, data, size);
}

__attribute__((visibility("default"))) ssize_t pread(int fd, void *data, size_t size, off_t at)
{
    if (fault.call == PREAD && fails(PREAD, is_ours(fd))) {
        if (fault.code) return -1;
        size = (size + 1) / 2;
    }
    return syscall(SYS_pread64, fd, data, size, at);
}

__attribute__((visibility("default"))) int fsync(int fd)
{
    if (fails(FSYNC, 1)) return -1;
    return (int)syscall(SYS_fsync, fd);
}

__attribute__((visibility("default"))) int fstat(int fd, struct stat *st)
{
    if (fault.call == FSTAT && fails(FSTAT, is_ours(fd))) return -1;
    return (int)syscall(SYS_fstat, fd, st);
}

__attribute__((visibility("default"))) int close(int fd)
{
    int is_to_fail = fault.call == CLOSE && fails(CLOSE, is_ours(fd));
    int code = errno, rc = (int)syscall(SYS_close, fd);
    if (!is_to_fail) return rc;
    errno = code;
    return -1;
}

__attribute__((visibility("default"))) int rename(const char *from, const char *to)
{
    if (fails(RENAME, is_below(to))) return -1;
    return (int)syscall(SYS_rename, from, to);
}

__attribute__((visibility("default"))) int unlink(const char *path)
{
    if (fails(UNLINK, is_below(path))) return -1;
    return (int)syscall(SYS_unlink, path);
}

__attribute__((visibility("default"))) int mkdir(const char *path, mode_t mode)
{
    if (fails(MKDIR, is_below(path))) return -1;
    return (int)syscall(SYS_mkdir, path, mode);
}

static void arm(enum call call, int code, int nth, int times)
{
    memset(&fault, 0, sizeof fault);
    fault.code = code;
    fault.nth = nth;
    fault.times = times;
    fault.call = call;
}

static void disarm(void)
{
    fault.call = NO_CALL;
}

/* ---- Setting up ------------------------------------------------------------------------ */

static int set_up(void **state)
{
    (void)state;
    cache_directory(directory);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    disarm();
    cache_remove(directory);
    return 0;
}

static void empty_directory(void)
{
    cache_remove(directory);
    assert_int_equal(mkdir(directory, 0700), 0);
}

/* Everything in the directory is whole; the number of entries. */
static int count_good(void)
{
    static struct cache_files files;
    for (int i = 0; i < cache_list(directory, &files); i++) {
        struct eider_blob file;
        struct eider_disk_entry entry;
        file.data = cache_read(files.path[i], &file.size);
        const char *problem =
            eider_disk_cache_check(&file, strrchr(files.path[i], '/') + 1, &entry);
        if (problem) fail_msg("%s was published and %s", files.path[i], problem);
        free(file.data);
    }
    return files.n;
}

/* ---- Failing calls ----------------------------------------------------------------------- */

struct row {
    enum call call;
    int code, nth, times;
    int warns; /* how often at most */
    const char *what;
};

/* Two kernels are compiled and written while the call fails. */
static void writing_survives_every_failure(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {OPEN, EIO, 1, 1, 1, "open: EIO"},
        {OPEN, ESTALE, 2, 1, 1, "open: ESTALE, later"},
        {OPEN, ENOENT, 2, 3, 1, "open: ENOENT for a while"},
        {OPEN, EACCES, 1, 99, 2, "open: EACCES, always"},
        {OPEN, EMFILE, 1, 99, 2, "open: EMFILE, always"},
        {WRITE, ENOSPC, 1, 99, 1, "write: ENOSPC, always"},
        {WRITE, EIO, 1, 1, 1, "write: EIO"},
        {WRITE, EINTR, 1, 3, 0, "write: EINTR"},
        {WRITE, 0, 1, 5, 0, "write: short"},
        {FSYNC, EIO, 1, 1, 1, "fsync: EIO"},
        {FSYNC, EINVAL, 1, 99, 0, "fsync: not there"},
        {CLOSE, ENOSPC, 1, 99, 1, "close: ENOSPC"},
        {RENAME, ESTALE, 1, 1, 1, "rename: ESTALE, once"},
        {RENAME, EBUSY, 1, 99, 1, "rename: EBUSY, always"},
        {RENAME, EXDEV, 1, 1, 1, "rename: EXDEV"},
        {UNLINK, EBUSY, 1, 99, 0, "unlink: EBUSY"},
        {MKDIR, EROFS, 1, 99, 1, "mkdir: EROFS, always"},
        {MKDIR, ENOSPC, 1, 1, 1, "mkdir: ENOSPC"},
        {MKDIR, EDQUOT, 2, 99, 1, "mkdir: EDQUOT"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *row = &rows[i];
        struct cache_session s;
        empty_directory();
        cache_open(&s, directory, NULL);
        arm(row->call, row->code, row->nth, row->times);
        int ok = cache_run(&s, 0, NULL) && cache_run(&s, 1, NULL);
        int n_failed = fault.n_failed;
        disarm();
        cache_close(&s);
        if (!ok) fail_msg("%s: wrong", row->what);
        if (row->call != UNLINK && !n_failed) fail_msg("%s: no such call", row->what);
        if (s.log.n > row->warns)
            fail_msg("%s: %d warnings, the last: %s", row->what, (int)s.log.n, s.log.last);
        if (row->warns && !s.log.n) fail_msg("%s: nothing was said", row->what);
        count_good();
        if (row->call != UNLINK) assert_int_equal(cache_temporaries(directory), 0);
        cache_open(&s, directory, NULL);
        if (!cache_run(&s, 0, NULL) || !cache_run(&s, 1, NULL) || s.log.n)
            fail_msg("%s: afterwards: %s", row->what, s.log.last);
        cache_close(&s);
        assert_int_equal(count_good(), 2);
    }
}

/* A kernel that is on disk is wanted while the call fails. */
static void reading_survives_every_failure(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {OPEN, ENOENT, 1, 1, 0, "open: ENOENT"}, {OPEN, ESTALE, 1, 1, 1, "open: ESTALE"},
        {OPEN, EIO, 1, 1, 1, "open: EIO"},       {OPEN, EACCES, 1, 99, 2, "open: EACCES"},
        {OPEN, ENFILE, 1, 1, 1, "open: ENFILE"}, {FSTAT, ESTALE, 1, 1, 1, "fstat: ESTALE"},
        {PREAD, EIO, 1, 1, 1, "pread: EIO"},     {PREAD, ESTALE, 1, 1, 1, "pread: ESTALE"},
        {PREAD, EINTR, 1, 4, 0, "pread: EINTR"}, {PREAD, 0, 1, 6, 0, "pread: short"},
    };
    struct cache_session s;
    cache_open(&s, directory, NULL);
    cache_expect(&s, 0, 0);
    cache_close(&s);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *row = &rows[i];
        cache_open(&s, directory, NULL);
        arm(row->call, row->code, row->nth, row->times);
        int ok = cache_run(&s, 0, NULL), n_failed = fault.n_failed;
        disarm();
        eider_counters c;
        eider_context_counters(s.ctx, &c);
        assert_int_equal(c.disk_hits + c.disk_absent + c.disk_unreadable, 1);
        assert_int_equal(c.disk_unreadable, s.log.n > 0);
        cache_close(&s);
        if (!ok || !n_failed) fail_msg("%s: %d calls failed", row->what, n_failed);
        if (s.log.n > row->warns)
            fail_msg("%s: %d warnings, the last: %s", row->what, (int)s.log.n, s.log.last);
        assert_int_equal(count_good(), 1); /* nothing was deleted because it was not read */
        cache_open(&s, directory, NULL);
        cache_expect(&s, 0, 1);
        assert_int_equal(s.log.n, 0);
        cache_close(&s);
    }
}

/* ---- Small disks --------------------------------------------------------------------------- */

static void run_on_small_disk(const char *options)
{
    struct cache_session s;
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", directory, "tmpfs", 0, options) != 0)
        _exit(77);
    cache_open(&s, directory, NULL);
    for (int k = 0; k < 40; k++)
        if (!cache_run(&s, k, NULL)) _exit(1);
    if (s.log.n != 1 || !strstr(s.log.last, "nothing more is kept")) {
        fprintf(stderr, "%d warnings, the last: %s\n", (int)s.log.n, s.log.last);
        _exit(2);
    }
    cache_close(&s);
    int n = count_good();
    cache_open(&s, directory, NULL);
    for (int k = 0; k < n; k++)
        if (!cache_run(&s, k, NULL)) _exit(3);
    eider_counters c;
    eider_context_counters(s.ctx, &c);
    if (n < 2 || c.disk_hits != (uint64_t)n || cache_temporaries(directory)) _exit(4);
    _exit(0);
}

static void expect_small_disk(const char *options)
{
    int status;
    pid_t child = fork();
    if (child == 0) run_on_small_disk(options);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        fprintf(stderr, "SKIPPED (may not mount): a full disk\n");
        skip();
    }
    assert_int_equal(status, 0);
}

static void a_disk_of_64_kib_is_filled_and_then_left_alone(void **state)
{
    (void)state;
    expect_small_disk("size=64k,mode=700");
}

static void a_disk_without_inodes_is_filled_and_then_left_alone(void **state)
{
    (void)state;
    expect_small_disk("nr_inodes=24,mode=700");
}

/* Beyond the limit a write raises a signal, which would end the host. */
static void run_with_small_files(void)
{
    struct cache_session s;
    struct rlimit limit = {1024, 1024};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(1);
    cache_open(&s, directory, NULL);
    if (!cache_run(&s, 0, NULL) || !cache_run(&s, 1, NULL)) _exit(2);
    if (s.log.n != 1 || !strstr(s.log.last, "nothing more is kept")) _exit(3);
    cache_close(&s);
    sigset_t pending;
    if (sigpending(&pending) != 0 || sigismember(&pending, SIGXFSZ)) _exit(4);
    if (cache_temporaries(directory)) _exit(5);
    _exit(0);
}

static void a_limit_on_the_size_of_files_is_a_full_disk_and_no_signal(void **state)
{
    (void)state;
    int status;
    pid_t child = fork();
    if (child == 0) run_with_small_files();
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(count_good(), 0);
}

/* ---- Processes ------------------------------------------------------------------------------- */

static void processes_that_start_together_are_all_right(void **state)
{
    (void)state;
    cache_storm(directory, 16, 3, 0, 1);
    assert_int_equal(count_good(), 3);
    assert_int_equal(cache_temporaries(directory), 0);
}

static void killed_processes_leave_nothing_bad(void **state)
{
    (void)state;
    struct cache_session s;
    uint64_t removed;
    cache_storm(directory, 16, 6, 1, 2);
    cache_open(&s, directory, NULL);
    must(eider_cache_prune(s.ctx, UINT64_MAX - 1, UINT64_MAX, &removed));
    assert_int_equal(cache_temporaries(directory), 0);
    for (int k = 0; k < 6; k++) assert_true(cache_run(&s, k, NULL));
    assert_int_equal(s.log.n, 0);
    cache_close(&s);
    assert_int_equal(count_good(), 6);
}

/* Somebody removes everything, again and again, while others read and write. */
static void entries_may_vanish_at_any_time(void **state)
{
    (void)state;
    enum { N = 8 };
    char task[CACHE_PATH_BYTES + 64];
    struct cache_session s;
    int child[N], status, n_running = N;
    uint64_t removed, n_removed = 0;
    for (int i = 0; i < N; i++) {
        snprintf(task, sizeof task, "storm 3 %d %s", i % 3, directory);
        child[i] = cache_spawn(task);
    }
    cache_open(&s, directory, NULL);
    while (n_running) {
        must(eider_cache_prune(s.ctx, UINT64_MAX, 0, &removed));
        n_removed += removed;
        for (int i = 0; i < N; i++) {
            if (!child[i] || waitpid(child[i], &status, WNOHANG) != child[i]) continue;
            assert_int_equal(status, 0);
            child[i] = 0;
            n_running--;
        }
    }
    assert_true(n_removed > 3);
    assert_int_equal(s.log.n, 0);
    cache_close(&s);
    count_good();
    assert_int_equal(cache_temporaries(directory), 0);
}

int main(void)
{
    if (cache_task()) return cache_storm_task(cache_task());
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(writing_survives_every_failure),
        TEST(reading_survives_every_failure),
        TEST(a_disk_of_64_kib_is_filled_and_then_left_alone),
        TEST(a_disk_without_inodes_is_filled_and_then_left_alone),
        TEST(a_limit_on_the_size_of_files_is_a_full_disk_and_no_signal),
        TEST(processes_that_start_together_are_all_right),
        TEST(killed_processes_leave_nothing_bad),
        TEST(entries_may_vanish_at_any_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
