/* disk.c -- see disk.h.
 *
 * A temporary file is called <host>-<process>-<random>, all in hexadecimal.  The host is a
 * hash of what makes a process number unique: name and boot of the machine, and the
 * name space of its process numbers.
 */
#include "disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#define PATH_BYTES EIDER_DISK_PATH_BYTES
#define TEMPORARY_AGE_S (24 * 3600)
#define OTHERS_MAY_WRITE (S_IWGRP | S_IWOTH)

/* Fills *error from errno and returns 0. */
static int failed(struct eider_disk_error *error, const char *call, const char *path)
{
    char text[64];
    error->code = errno;
    const char *why = strerror_r(error->code, text, sizeof text);
    size_t n = strlen(path), shown = n > 80 ? 80 : n;
    snprintf(error->why, sizeof error->why, "%s %s%s: %s", call, n > shown ? "..." : "",
             path + n - shown, why);
    return 0;
}

static int refused(struct eider_disk_error *error, const char *why)
{
    error->code = 0;
    snprintf(error->why, sizeof error->why, "%s", why);
    return 0;
}

/* ---- Folders ------------------------------------------------------------------- */

static int is_trusted(const struct stat *st)
{
    return st->st_uid == geteuid() || st->st_uid == 0;
}

enum eider_disk_kind eider_disk_look(const char *path, struct eider_disk_error *error)
{
    struct stat st;
    *error = (struct eider_disk_error){0};
    int rc = lstat(path, &st);
    if (rc == 0 && S_ISLNK(st.st_mode)) {
        if (!is_trusted(&st)) {
            refused(error, "it is a link that belongs to someone else");
            return EIDER_DISK_UNSAFE;
        }
        rc = stat(path, &st);
    }
    if (rc != 0) {
        failed(error, "stat", path);
        return errno == ENOENT ? EIDER_DISK_ABSENT : EIDER_DISK_UNSAFE;
    }
    if (!is_trusted(&st)) {
        refused(error, "it belongs to someone else");
    } else if (st.st_mode & OTHERS_MAY_WRITE) {
        refused(error, "others may write to it (chmod go-w)");
    } else if (S_ISDIR(st.st_mode)) {
        return EIDER_DISK_FOLDER;
    } else if (S_ISREG(st.st_mode)) {
        return EIDER_DISK_FILE;
    } else {
        refused(error, "it is neither a folder nor a file");
    }
    return EIDER_DISK_UNSAFE;
}

int eider_disk_make(const char *path, struct eider_disk_error *error)
{
    char part[PATH_BYTES];
    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part) {
        errno = ENAMETOOLONG;
        return failed(error, "mkdir", path);
    }
    if (mkdir(part, 0700) == 0 || errno == EEXIST) return 1;
    if (errno != ENOENT) return failed(error, "mkdir", path);
    for (char *at = strchr(part + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = '\0';
        int made = mkdir(part, 0700) == 0 || errno == EEXIST;
        /* A folder above that exists may be one that nothing can be created in. */
        if (!made && access(part, F_OK) != 0) return failed(error, "mkdir", part);
        *at = '/';
    }
    if (mkdir(part, 0700) == 0 || errno == EEXIST) return 1;
    return failed(error, "mkdir", path);
}

int eider_disk_each(const char *path, int (*visit)(void *user, const char *name), void *user,
                    struct eider_disk_error *error)
{
    DIR *folder = opendir(path);
    if (!folder) return failed(error, "opendir", path);
    for (struct dirent *entry; (entry = readdir(folder));)
        if (entry->d_name[0] != '.' && visit(user, entry->d_name)) break;
    closedir(folder);
    return 1;
}

/* ---- Reading ------------------------------------------------------------------- */

int eider_disk_read_at(int fd, void *to, size_t size, uint64_t offset,
                       struct eider_disk_error *error)
{
    char *at = to;
    while (size) {
        ssize_t n = pread(fd, at, size, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return failed(error, "read", "");
        if (n == 0) return refused(error, "it became shorter while it was read");
        at += n;
        offset += (uint64_t)n;
        size -= (size_t)n;
    }
    return 1;
}

static eider_status read_open(const eider_allocator *a, int fd, const char *path, size_t limit,
                              struct eider_blob *out, struct eider_disk_error *error)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        failed(error, "fstat", path);
        return EIDER_IO;
    }
    if (!S_ISREG(st.st_mode) || !is_trusted(&st) || st.st_mode & OTHERS_MAY_WRITE) {
        refused(error, "it is no file of this user's that only this user may write");
        return EIDER_IO;
    }
    if (st.st_size < 0 || (uint64_t)st.st_size > limit) {
        refused(error, "it is too large");
        return EIDER_IO;
    }
    size_t size = (size_t)st.st_size;
    char *data = eider_mem_alloc(a, size + 1);
    if (!data) return EIDER_OOM;
    if (!eider_disk_read_at(fd, data, size, 0, error)) {
        eider_mem_free(a, data);
        return EIDER_IO;
    }
    data[size] = '\0';
    *out = (struct eider_blob){data, size};
    return EIDER_OK;
}

eider_status eider_disk_read(const eider_allocator *a, const char *path, size_t limit,
                             struct eider_blob *out, struct eider_disk_error *error)
{
    *error = (struct eider_disk_error){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        failed(error, "open", path);
        return EIDER_IO;
    }
    eider_status status = read_open(a, fd, path, limit, out, error);
    close(fd);
    return status;
}

/* ---- Writing ------------------------------------------------------------------- */

int eider_disk_write(int fd, const void *data, size_t size)
{
    static const struct timespec at_once;
    const char *at = data;
    sigset_t limit, before;
    ssize_t n = 0;
    sigemptyset(&limit);
    sigaddset(&limit, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &limit, &before);
    while (size && (n = write(fd, at, size)) != 0) {
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) break;
        at += n;
        size -= (size_t)n;
    }
    int code = errno;
    if (n < 0 && code == EFBIG && !sigismember(&before, SIGXFSZ))
        sigtimedwait(&limit, NULL, &at_once);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = n == 0 && size ? EIO : code;
    return size == 0;
}

/* ---- Temporary files ----------------------------------------------------------- */

static uint64_t host;
static pthread_once_t host_once = PTHREAD_ONCE_INIT;

static void find_host(void)
{
    char text[512] = "", boot[64] = "", space[64] = "";
    if (gethostname(text, 256) != 0) text[0] = '\0';
    text[255] = '\0';
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t n = read(fd, boot, sizeof boot - 1);
        boot[n > 0 ? n : 0] = '\0';
        close(fd);
    }
    ssize_t n = readlink("/proc/self/ns/pid", space, sizeof space - 1);
    space[n > 0 ? n : 0] = '\0';
    size_t length = strlen(text);
    snprintf(text + length, sizeof text - length, "\n%s\n%s", boot, space);
    host = XXH3_64bits(text, strlen(text));
}

static int name_temporary(const char *folder, char out[PATH_BYTES])
{
    uint64_t random[2];
    pthread_once(&host_once, find_host);
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) return 0;
    int n = snprintf(out, PATH_BYTES, "%s/%016" PRIx64 "-%" PRIx64 "-%016" PRIx64 "%016" PRIx64,
                     folder, host, (uint64_t)getpid(), random[0], random[1]);
    return n > 0 && n < PATH_BYTES;
}

static int collect(void *user, const char *name)
{
    const char *folder = user;
    char path[PATH_BYTES], random[33];
    uint64_t its_host, pid;
    struct stat st;
    if (sscanf(name, "%16" SCNx64 "-%" SCNx64 "-%32[0-9a-f]", &its_host, &pid, random) != 3 ||
        snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path ||
        lstat(path, &st) != 0)
        return 0;
    int is_gone = its_host == host && kill((pid_t)pid, 0) != 0 && errno == ESRCH;
    if (is_gone || st.st_mtime < time(NULL) - TEMPORARY_AGE_S) unlink(path);
    return 0;
}

void eider_disk_collect(const char *temporary)
{
    struct eider_disk_error ignored;
    pthread_once(&host_once, find_host);
    eider_disk_each(temporary, collect, (void *)(uintptr_t)temporary, &ignored);
}

/* ---- Publishing ---------------------------------------------------------------- */

int eider_disk_may_replace(const char *path)
{
    struct stat st;
    return lstat(path, &st) != 0 || S_ISREG(st.st_mode) || S_ISDIR(st.st_mode); /* rename fails */
}

int eider_disk_draft(const char *temporary, struct eider_disk_draft *out,
                     struct eider_disk_error *error)
{
    *error = (struct eider_disk_error){0};
    out->size = 0;
    if (!name_temporary(temporary, out->name))
        return refused(error, "no name for a temporary file could be made");
    out->fd = open(out->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    return out->fd >= 0 ? 1 : failed(error, "open", out->name);
}

int eider_disk_draft_add(struct eider_disk_draft *draft, const void *data, size_t size,
                         struct eider_disk_error *error)
{
    if (!eider_disk_write(draft->fd, data, size)) return failed(error, "write", draft->name);
    draft->size += size;
    return 1;
}

int eider_disk_draft_publish(struct eider_disk_draft *draft, const char *path,
                             struct eider_disk_error *error)
{
    int ok = 1;
    if (fsync(draft->fd) != 0 && errno != EINVAL && errno != ENOTSUP)
        ok = failed(error, "fsync", draft->name);
    /* Network file systems report a full disk here; the descriptor is gone either way. */
    if (close(draft->fd) != 0 && ok) ok = failed(error, "close", draft->name);
    draft->fd = -1;
    if (ok && rename(draft->name, path) != 0) ok = failed(error, "rename", path);
    if (!ok) eider_disk_draft_discard(draft);
    return ok;
}

void eider_disk_draft_discard(struct eider_disk_draft *draft)
{
    if (draft->fd >= 0) close(draft->fd);
    draft->fd = -1;
    unlink(draft->name);
}

int eider_disk_publish(const char *temporary, const char *path, const void *data, size_t size,
                       struct eider_disk_error *error)
{
    struct eider_disk_draft draft;
    if (!eider_disk_draft(temporary, &draft, error)) return 0;
    if (eider_disk_draft_add(&draft, data, size, error))
        return eider_disk_draft_publish(&draft, path, error);
    eider_disk_draft_discard(&draft);
    return 0;
}
