/* disk.h -- whole files: read with care, published atomically.
 *
 * Invariants: a name never shows part of a file; a file that could not be read or written
 * is never removed; nothing is read or written through a link that somebody else made.
 * These functions report through struct eider_disk_error and not through eider_fail,
 * because what they fail at is mostly not worth failing for.
 * Not here: what the files mean.
 */
#ifndef EIDER_BASE_DISK_H
#define EIDER_BASE_DISK_H

#include <sys/types.h>

#include "memory.h"

/* What went wrong: a reason to show, and errno (0 where there is none). */
struct eider_disk_error {
    int code;
    char why[160];
};

/* What is at the end of `path`, and whether it is safe to use: owned by this user or by
 * root, writable by nobody else, and, where it is a link, a link of theirs. */
enum eider_disk_kind { EIDER_DISK_ABSENT, EIDER_DISK_FOLDER, EIDER_DISK_FILE, EIDER_DISK_UNSAFE };
enum eider_disk_kind eider_disk_look(const char *path, struct eider_disk_error *error);

/* Creates a folder and those above it that are missing, mode 0700.  Returns 0 on failure;
 * an existing folder is a success and is not looked at. */
int eider_disk_make(const char *path, struct eider_disk_error *error);

/* Reads all of a regular file of at most `limit` bytes, not through a link, and its times.
 * Returns EIDER_OK, EIDER_OOM (recorded), or EIDER_IO with *error filled, whose code is
 * ENOENT when there is no such file.  Caller owns out->data. */
eider_status eider_disk_read(const eider_allocator *a, const char *path, size_t limit,
                             struct eider_blob *out, struct eider_disk_error *error);

/* The same for `size` bytes at `offset` of an open file; 0 on failure. */
int eider_disk_read_at(int fd, void *to, size_t size, uint64_t offset,
                       struct eider_disk_error *error);

/* Writes all of it; 0 on failure, and errno says why.  A limit on the size of files is a
 * failure like others (EFBIG) and not a signal, which would end the host. */
int eider_disk_write(int fd, const void *data, size_t size);

/* A file that is being written and has no name of its own yet. */
#define EIDER_DISK_PATH_BYTES 4608
struct eider_disk_draft {
    int fd;
    uint64_t size;
    char name[EIDER_DISK_PATH_BYTES];
};

/* Starts a file in the folder `temporary`, mode 0600.  These return 0 on failure. */
int eider_disk_draft(const char *temporary, struct eider_disk_draft *out,
                     struct eider_disk_error *error);
int eider_disk_draft_add(struct eider_disk_draft *draft, const void *data, size_t size,
                         struct eider_disk_error *error);
/* Makes it `path`, on the same file system: fsync, rename.  After a failure, and after
 * eider_disk_draft_discard, nothing is left of it. */
int eider_disk_draft_publish(struct eider_disk_draft *draft, const char *path,
                             struct eider_disk_error *error);
void eider_disk_draft_discard(struct eider_disk_draft *draft);

/* All of it for one piece. */
int eider_disk_publish(const char *temporary, const char *path, const void *data, size_t size,
                       struct eider_disk_error *error);

/* Whether renaming a file to `path` would replace nothing but a file.  A link, a pipe or a device,
 * such as /dev/stdout, would be gone. */
int eider_disk_may_replace(const char *path);

/* Removes the temporary files in `temporary` whose writers are gone: processes of this
 * machine that ended, and whatever is a day old. */
void eider_disk_collect(const char *temporary);

/* Calls `visit` with every name in a folder but those that begin with a dot, in any order,
 * until it returns nonzero.  Returns 0 when the folder cannot be read. */
int eider_disk_each(const char *path, int (*visit)(void *user, const char *name), void *user,
                    struct eider_disk_error *error);

#endif
