/* disk_cache.h -- kernels that outlive the process: one file each, found by key.
 *
 * Invariants: the cache is an optimisation only: whatever happens to its files, a kernel
 * is compiled and runs; a reader sees a whole entry or none; nothing is deleted because it
 * could not be read; each cause of trouble is told once per context, through its log.
 * docs/CACHE.md describes files and folders.
 * Not here: what the key is made of (manifest.c), kernels in memory (code_cache.h).
 */
#ifndef EIDER_RUNTIME_DISK_CACHE_H
#define EIDER_RUNTIME_DISK_CACHE_H

#include <pthread.h>

#include "context.h"
#include "disk.h"

struct eider_kernel;
struct eider_plan;

/* ---- One entry (disk_cache_format.c) ------------------------------------ */

enum eider_disk_section {
    EIDER_SECTION_MANIFEST,
    EIDER_SECTION_ENTRY, /* name of the kernel's function */
    EIDER_SECTION_PTX,
    EIDER_SECTION_CODE, /* a cubin, or an object file of the CPU */
    EIDER_SECTION_OPT,  /* optimised IR, where eider did not write it */
    EIDER_SECTION_COUNT
};

/* An entry; the sections point into memory that somebody else owns.  Each is followed by a
 * NUL that its size does not count; an absent one has size 0. */
struct eider_disk_entry {
    struct eider_blob section[EIDER_SECTION_COUNT];
    int32_t registers, spill_bytes, shared_bytes; /* -1 where unknown */
};

#define EIDER_ENTRY_BYTES_MAX ((size_t)1 << 28)
#define EIDER_ENTRY_HEADER_BYTES 72
#define EIDER_ENTRY_TRAILER_BYTES 16

/* Caller owns out->data. */
eider_status eider_disk_entry_write(const eider_allocator *a, const struct eider_disk_entry *entry,
                                    struct eider_blob *out);

/* Points *out into `file`.  Returns NULL, or why the file is no entry. */
const char *eider_disk_entry_read(const struct eider_blob *file, struct eider_disk_entry *out);

/* What a kernel's file is called: a hash of the manifest without its assembler, then the
 * key.  So one prefix finds the kernel as any assembler made it. */
#define EIDER_DISK_NAME_BYTES 50 /* 16 + '-' + 32 + NUL */
#define EIDER_DISK_PREFIX 17
void eider_disk_entry_name(const char *manifest, char out[EIDER_DISK_NAME_BYTES]);

/* Whether `name` has that form. */
int eider_disk_entry_is_name(const char *name);

/* ---- Archives (disk_cache_archive.c) ------------------------------------- */

/* Entries in one file, in the order of their names, with an index. */
struct eider_disk_archive;

/* Caller owns *out: eider_disk_archive_close.  Fails with EIDER_IO or EIDER_OOM, recorded. */
eider_status eider_disk_archive_open(const eider_allocator *a, const char *path,
                                     struct eider_disk_archive **out);
void eider_disk_archive_close(struct eider_disk_archive *archive);
size_t eider_disk_archive_size(const struct eider_disk_archive *archive);
const char *eider_disk_archive_name(const struct eider_disk_archive *archive, size_t i);
/* Reads entry `i`.  Returns as eider_disk_read does.  Caller owns out->data. */
eider_status eider_disk_archive_read(const struct eider_disk_archive *archive, size_t i,
                                     struct eider_blob *out, struct eider_disk_error *error);
/* The entry `name`, or with `n` < EIDER_DISK_NAME_BYTES - 1 the first that begins with n
 * characters of it; the archive's size when there is none. */
size_t eider_disk_archive_find(const struct eider_disk_archive *archive, const char *name,
                               size_t n);

/* Writes an archive.  Zero-initialise all but the allocator. */
struct eider_disk_archive_writer {
    eider_allocator allocator;
    struct eider_disk_draft draft;
    unsigned char *rows;
    size_t n, room;
};

/* Starts an archive that will be called `path`.  The first failure of these is recorded
 * (EIDER_IO, EIDER_OOM) and ends it; `finish` keeps it and `discard` drops it. */
eider_status eider_disk_archive_start(struct eider_disk_archive_writer *writer, const char *path);
eider_status eider_disk_archive_add(struct eider_disk_archive_writer *writer, const char *name,
                                    const struct eider_blob *file);
/* Of entries with one name the first is kept; *out_n entries are in it. */
eider_status eider_disk_archive_finish(struct eider_disk_archive_writer *writer, const char *path,
                                       uint64_t *out_n);
void eider_disk_archive_discard(struct eider_disk_archive_writer *writer);

/* ---- The cache (disk_cache.c) --------------------------------------------- */

/* A place with entries that are only read. */
struct eider_disk_layer {
    char *path;
    struct eider_disk_archive *archive; /* NULL: a folder */
    int is_known;                       /* looked at, once */
    int is_usable;
};

/* What is told once per context. */
enum eider_disk_cause {
    EIDER_CAUSE_NO_HOME,
    EIDER_CAUSE_LIMITS,
    EIDER_CAUSE_FOLDER, /* the directory cannot be used at all */
    EIDER_CAUSE_LAYER,
    EIDER_CAUSE_READ,
    EIDER_CAUSE_DENIED, /* no permission to write: nothing more is written */
    EIDER_CAUSE_FULL,   /* no space, or no inode: nothing more is written */
    EIDER_CAUSE_WRITE,  /* any other failure to write */
    EIDER_CAUSE_COUNT
};

struct eider_disk_cache {
    eider_context *ctx;
    char *root; /* NULL: none */
    int is_homeless;
    struct eider_disk_layer *layers;
    size_t n_layers;
    uint64_t max_bytes, max_files; /* UINT64_MAX: no limit */
    int is_forced;                 /* compile everything again and replace it */

    pthread_mutex_t lock; /* for what follows */
    int root_is_known, root_is_usable, writes_are_off;
    unsigned told; /* a bit per cause */
    int has_swept;
    uint64_t new_bytes, new_files; /* published since the last sweep */
};

/* Reads options and environment; touches no disk.  *out is never NULL on success. */
eider_status eider_disk_cache_create(eider_context *ctx, const eider_context_options *options,
                                     struct eider_disk_cache **out);
void eider_disk_cache_destroy(struct eider_disk_cache *cache);

/* Why a kernel was not found. */
enum eider_disk_miss {
    EIDER_MISS_NONE, /* it was found */
    EIDER_MISS_OFF,  /* there is no cache */
    EIDER_MISS_ABSENT,
    EIDER_MISS_DAMAGED,
    EIDER_MISS_UNREADABLE,
    EIDER_MISS_FORCED
};

/* What was found: an entry, with the memory that it points into. */
struct eider_disk_found {
    struct eider_blob file;
    struct eider_disk_entry entry;
    enum eider_disk_miss miss;
};

/* Looks for the kernel of `manifest` in all layers, then in the user's directory; with
 * `any_assembler`, as whatever assembler made it.  EIDER_OOM is its only failure.
 * Caller owns out->file.data, when it was found. */
eider_status eider_disk_cache_find(struct eider_disk_cache *cache, const char *manifest,
                                   int any_assembler, struct eider_disk_found *out);

/* Writes an entry into the user's directory, replacing what is there.  Returns 0 when
 * that was not possible; the reason was told. */
int eider_disk_cache_put(struct eider_disk_cache *cache, const char *manifest,
                         const struct eider_blob *file);

/* Tells `cause` through the context's log unless that was done.  */
void eider_disk_cache_tell(struct eider_disk_cache *cache, enum eider_disk_cause cause,
                           const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Whether the user's directory can be read; looked at once. */
int eider_disk_cache_root(struct eider_disk_cache *cache);
/* Whether layer `i` can; looked at, and an archive opened, once. */
int eider_disk_cache_layer(struct eider_disk_cache *cache, size_t i);

/* The file `name` below `folder`; 0 when the path would be too long. */
int eider_disk_cache_path(const char *folder, const char *name, char out[EIDER_DISK_PATH_BYTES]);

/* ---- Walking (disk_cache_walk.c) --------------------------------------------- */

/* The entries in one of the 256 folders of a directory, by name, in order.  Names of other
 * forms are left out.  Caller owns out->at: eider_mem_free. */
struct eider_disk_names {
    char (*at)[EIDER_DISK_NAME_BYTES];
    size_t n, room;
    eider_allocator allocator;
    eider_status status; /* EIDER_OK or EIDER_OOM */
};
void eider_disk_names_read(const eider_allocator *a, const char *root, int shard,
                           struct eider_disk_names *out);

/* Calls `visit` with every entry of layer `i` (n_layers: of the user's directory) whose key
 * begins with `key`, in the order of names, until it returns nonzero, which is passed on.
 * `file` is valid during the call and NULL when it could not be read; `problem` is NULL or
 * says why it is no entry.  *status is EIDER_OK or EIDER_OOM. */
typedef int (*eider_disk_visit)(void *user, const char *name, const char *path,
                                const struct eider_blob *file, const char *problem);
int eider_disk_cache_each(struct eider_disk_cache *cache, size_t i, const char *key,
                          eider_disk_visit visit, void *user, eider_status *status);

/* NULL, or why the bytes are not what `name` promises. */
const char *eider_disk_cache_check(const struct eider_blob *file, const char *name,
                                   struct eider_disk_entry *entry);

/* ---- Budgets (disk_cache_sweep.c) ------------------------------------------ */

struct eider_disk_total {
    uint64_t bytes, files; /* that are there */
    uint64_t removed_bytes, removed_files;
};

/* Counts the user's entries and removes those used longest ago until at most max_bytes and
 * max_files remain; collects what dead processes left.  With UINT64_MAX twice it only
 * counts.  Fails with EIDER_OOM. */
eider_status eider_disk_cache_trim(struct eider_disk_cache *cache, uint64_t max_bytes,
                                   uint64_t max_files, struct eider_disk_total *out);

/* After a file of `bytes` was published: keeps the budgets, now and then. */
void eider_disk_cache_published(struct eider_disk_cache *cache, uint64_t bytes);

/* ---- Kernels (disk_cache_kernel.c) ----------------------------------------- */

/* Fills stages and info of a kernel whose manifest is written from the cache; with
 * `any_assembler` rather as any assembler made it.  *found is 0 when there is none. */
eider_status eider_disk_cache_recall(struct eider_kernel *kernel, const struct eider_plan *plan,
                                     int any_assembler, int *found);
/* Undoes it: the driver refused what was found. */
eider_status eider_disk_cache_reject(struct eider_kernel *kernel, const struct eider_plan *plan,
                                     const char *assembler);
/* Keeps a kernel that was compiled and, where there is a device, loaded. */
void eider_disk_cache_keep(struct eider_kernel *kernel);

#endif
