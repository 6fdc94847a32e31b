/* disk_cache_sweep.c -- budgets: the entries that were used longest ago make room.
 *
 * Invariant: at most one process sweeps a directory at a time, claimed by a lock on a file
 * that is never removed; the lock goes with its process, and its time is that of the last
 * sweep.  Where locks do not work, sweeping twice does no harm.
 * A process sweeps when the last sweep is an hour old, and when it published a sixteenth of a
 * budget itself.
 */
#include "disk_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define N_SHARDS 256
#define LOCK "sweep.lock"
#define TEMPORARY "tmp"
#define SWEEP_AGE_S 3600
#define SHARE 16 /* of a budget, for one process between sweeps */
#define SPARE 8  /* a sweep leaves this share of a budget free, so that it is not repeated soon */

/* ---- Claiming ------------------------------------------------------------------ */

/* A descriptor to release the claim with; -1 when somebody else sweeps, -2 when nothing can
 * be locked here. */
static int claim(const struct eider_disk_cache *cache)
{
    char path[EIDER_DISK_PATH_BYTES];
    if (snprintf(path, sizeof path, "%s/" LOCK, cache->root) >= (int)sizeof path) return -2;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return -2;
    int rc;
    do rc = flock(fd, LOCK_EX | LOCK_NB);
    while (rc != 0 && errno == EINTR);
    if (rc == 0) return fd;
    int is_taken = errno == EWOULDBLOCK;
    close(fd);
    return is_taken ? -1 : -2;
}

static void end_claim(int fd)
{
    if (fd < 0) return;
    futimens(fd, NULL);
    close(fd);
}

/* ---- Looking ------------------------------------------------------------------- */

struct file {
    char name[EIDER_DISK_NAME_BYTES];
    uint64_t bytes;
    int64_t used_ns;
};

struct files {
    eider_allocator allocator;
    struct file *at;
    size_t n, room;
};

static eider_status add_file(struct files *files, const char *name, const struct stat *st)
{
    if (files->n == files->room) {
        size_t room = files->room ? 2 * files->room : 256;
        struct file *grown = eider_mem_resize(&files->allocator, files->at, room * sizeof *grown);
        if (!grown) return EIDER_OOM;
        files->at = grown;
        files->room = room;
    }
    struct file *file = &files->at[files->n++];
    uint64_t size = (uint64_t)st->st_size, room_taken = 512 * (uint64_t)st->st_blocks;
    memcpy(file->name, name, sizeof file->name);
    file->bytes = size > room_taken ? size : room_taken;
    file->used_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
    return EIDER_OK;
}

static eider_status list_files(const struct eider_disk_cache *cache, struct files *files)
{
    char path[EIDER_DISK_PATH_BYTES];
    struct stat st;
    eider_status status = EIDER_OK;
    for (int shard = 0; shard < N_SHARDS && status == EIDER_OK; shard++) {
        struct eider_disk_names names;
        eider_disk_names_read(&files->allocator, cache->root, shard, &names);
        status = names.status;
        for (size_t i = 0; i < names.n && status == EIDER_OK; i++) {
            if (eider_disk_cache_path(cache->root, names.at[i], path) && lstat(path, &st) == 0)
                status = add_file(files, names.at[i], &st);
        }
        eider_mem_free(&files->allocator, names.at);
    }
    return status;
}

static int compare_files(const void *a, const void *b)
{
    const struct file *first = a, *second = b;
    int order = (first->used_ns > second->used_ns) - (first->used_ns < second->used_ns);
    return order ? order : strcmp(first->name, second->name);
}

/* ---- Trimming ------------------------------------------------------------------ */

static void trim(struct eider_disk_cache *cache, struct files *files, uint64_t max_bytes,
                 uint64_t max_files, struct eider_disk_total *out)
{
    char path[EIDER_DISK_PATH_BYTES];
    if (files->n) qsort(files->at, files->n, sizeof *files->at, compare_files);
    for (size_t i = 0; i < files->n && (out->bytes > max_bytes || out->files > max_files); i++) {
        if (!eider_disk_cache_path(cache->root, files->at[i].name, path)) continue;
        if (unlink(path) != 0 && errno != ENOENT) continue;
        out->bytes -= files->at[i].bytes;
        out->files--;
        out->removed_bytes += files->at[i].bytes;
        out->removed_files++;
    }
    eider_context_add(cache->ctx, EIDER_COUNT_EVICTIONS, out->removed_files);
}

static eider_status count_and_trim(struct eider_disk_cache *cache, uint64_t max_bytes,
                                   uint64_t max_files, uint64_t spare, struct eider_disk_total *out)
{
    struct files files = {.allocator = cache->ctx->allocator};
    *out = (struct eider_disk_total){0};
    eider_status status = list_files(cache, &files);
    if (status == EIDER_OK) {
        for (size_t i = 0; i < files.n; i++) out->bytes += files.at[i].bytes;
        out->files = files.n;
        if (out->bytes > max_bytes || out->files > max_files)
            trim(cache, &files, spare ? max_bytes - max_bytes / spare : max_bytes,
                 spare ? max_files - max_files / spare : max_files, out);
    }
    eider_mem_free(&files.allocator, files.at);
    return status;
}

static void collect(const struct eider_disk_cache *cache)
{
    char path[EIDER_DISK_PATH_BYTES];
    if (snprintf(path, sizeof path, "%s/" TEMPORARY, cache->root) < (int)sizeof path)
        eider_disk_collect(path);
}

eider_status eider_disk_cache_trim(struct eider_disk_cache *cache, uint64_t max_bytes,
                                   uint64_t max_files, struct eider_disk_total *out)
{
    int only_counts = max_bytes == UINT64_MAX && max_files == UINT64_MAX;
    *out = (struct eider_disk_total){0};
    if (!eider_disk_cache_root(cache)) return EIDER_OK;
    if (only_counts) return count_and_trim(cache, max_bytes, max_files, 0, out);
    int fd = claim(cache); /* who was asked to sweep does so beside another, who may have stopped */
    collect(cache);
    eider_status status = count_and_trim(cache, max_bytes, max_files, 0, out);
    end_claim(fd);
    return status;
}

/* ---- Now and then -------------------------------------------------------------- */

static int is_stale(const struct eider_disk_cache *cache)
{
    char path[EIDER_DISK_PATH_BYTES];
    struct stat st;
    time_t now = time(NULL);
    if (snprintf(path, sizeof path, "%s/" LOCK, cache->root) >= (int)sizeof path) return 0;
    if (lstat(path, &st) != 0) return 1;
    return st.st_mtime > now || st.st_mtime < now - SWEEP_AGE_S; /* a clock may be wrong */
}

void eider_disk_cache_published(struct eider_disk_cache *cache, uint64_t bytes)
{
    pthread_mutex_lock(&cache->lock);
    cache->new_bytes += bytes;
    cache->new_files++;
    int is_first = !cache->has_swept;
    int is_due =
        cache->new_bytes > cache->max_bytes / SHARE || cache->new_files > cache->max_files / SHARE;
    cache->has_swept = 1;
    if (is_due) cache->new_bytes = cache->new_files = 0;
    pthread_mutex_unlock(&cache->lock);
    if (!is_due && !(is_first && is_stale(cache))) return;

    int fd = claim(cache);
    if (fd == -1) return;
    struct eider_disk_total ignored;
    collect(cache);
    /* Out of memory here is no failure of what was published. */
    (void)!count_and_trim(cache, cache->max_bytes, cache->max_files, SPARE, &ignored);
    end_claim(fd);
}
