/* disk_cache.c -- finding, keeping, and telling what is wrong; see disk_cache.h.
 *
 * The user's directory is looked at once per context; when it is not there yet, that is
 * no trouble until something is to be kept.
 */
#include "disk_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "home.h"

#define FOLDER "kernels"
#define TEMPORARY "tmp"
#define MAX_BYTES ((unsigned long long)1 << 30) /* a kernel takes about 20 KiB */
#define MAX_FILES 65536ull
#define STAMP_AGE_S (24 * 3600) /* of the last use, before it is written again */

/* ---- Creating ------------------------------------------------------------------ */

static eider_status set_root(struct eider_disk_cache *cache, const char *given)
{
    char path[EIDER_HOME_BYTES];
    enum eider_home found = EIDER_HOME_FOUND;
    if (given)
        snprintf(path, sizeof path, "%s", given);
    else
        found = eider_home_find("EIDER_CACHE_DIR", FOLDER, path);
    cache->is_homeless = found == EIDER_HOME_NONE;
    if (found != EIDER_HOME_FOUND || !path[0]) return EIDER_OK;
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') path[--n] = '\0';
    cache->root = eider_mem_strdup(&cache->ctx->allocator, path);
    return cache->root ? EIDER_OK : EIDER_OOM;
}

/* "a:b:c", each one layer. */
static eider_status set_layers(struct eider_disk_cache *cache, const char *path)
{
    const eider_allocator *a = &cache->ctx->allocator;
    size_t n = 1;
    if (!path || !*path) return EIDER_OK;
    for (const char *at = path; *at; at++) n += *at == ':';
    cache->layers = eider_mem_zero(a, n * sizeof *cache->layers);
    if (!cache->layers) return EIDER_OOM;
    for (const char *at = path; *at;) {
        size_t length = strcspn(at, ":");
        if (length) {
            char *copy = eider_mem_zero(a, length + 1);
            if (!copy) return EIDER_OOM;
            memcpy(copy, at, length);
            cache->layers[cache->n_layers++].path = copy;
        }
        at += length + (at[length] == ':');
    }
    return EIDER_OK;
}

static void set_limit(struct eider_disk_cache *cache, uint64_t given, const char *variable,
                      unsigned long long otherwise, uint64_t *out)
{
    unsigned long long value;
    *out = given;
    if (given) return;
    if (!eider_home_limit(variable, otherwise, &value))
        eider_disk_cache_tell(cache, EIDER_CAUSE_LIMITS,
                              "%s=%.40s is no number such as 512M; %llu is used", variable,
                              getenv(variable), otherwise);
    *out = value;
}

eider_status eider_disk_cache_create(eider_context *ctx, const eider_context_options *options,
                                     struct eider_disk_cache **out)
{
    struct eider_disk_cache *cache = eider_mem_zero(&ctx->allocator, sizeof *cache);
    if (!cache) return EIDER_OOM;
    cache->ctx = ctx;
    pthread_mutex_init(&cache->lock, NULL);
    cache->is_forced = eider_home_switch("EIDER_FORCE_CACHE_UPDATE");
    set_limit(cache, options->cache_max_bytes, "EIDER_CACHE_MAX_BYTES", MAX_BYTES,
              &cache->max_bytes);
    set_limit(cache, options->cache_max_files, "EIDER_CACHE_MAX_FILES", MAX_FILES,
              &cache->max_files);
    const char *layers =
        options->cache_path ? options->cache_path : eider_home_setting("EIDER_CACHE_PATH");
    eider_status status = set_root(cache, options->cache_dir);
    if (status == EIDER_OK) status = set_layers(cache, layers);
    if (status == EIDER_OK)
        *out = cache;
    else
        eider_disk_cache_destroy(cache);
    return status;
}

void eider_disk_cache_destroy(struct eider_disk_cache *cache)
{
    if (!cache) return;
    const eider_allocator *a = &cache->ctx->allocator;
    for (size_t i = 0; i < cache->n_layers; i++) {
        eider_disk_archive_close(cache->layers[i].archive);
        eider_mem_free(a, cache->layers[i].path);
    }
    pthread_mutex_destroy(&cache->lock);
    eider_mem_free(a, cache->layers);
    eider_mem_free(a, cache->root);
    eider_mem_free(a, cache);
}

/* ---- Telling ------------------------------------------------------------------- */

void eider_disk_cache_tell(struct eider_disk_cache *cache, enum eider_disk_cause cause,
                           const char *format, ...)
{
    char text[640];
    pthread_mutex_lock(&cache->lock);
    int is_told = (cache->told >> cause & 1) != 0;
    cache->told |= 1u << cause;
    pthread_mutex_unlock(&cache->lock);
    if (is_told) return;
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    eider_context_log(cache->ctx, 1, "cache: %s", text);
}

/* ---- Places -------------------------------------------------------------------- */

int eider_disk_cache_path(const char *folder, const char *name, char out[EIDER_DISK_PATH_BYTES])
{
    int n = snprintf(out, EIDER_DISK_PATH_BYTES, "%s/%.2s/%s", folder, name, name);
    return n > 0 && n < EIDER_DISK_PATH_BYTES;
}

int eider_disk_cache_root(struct eider_disk_cache *cache)
{
    struct eider_disk_error error;
    if (cache->is_homeless)
        eider_disk_cache_tell(cache, EIDER_CAUSE_NO_HOME,
                              "neither EIDER_HOME is set nor XDG_CACHE_HOME or HOME to an absolute "
                              "path; kernels are kept in memory only");
    if (!cache->root) return 0;
    pthread_mutex_lock(&cache->lock);
    int is_known = cache->root_is_known, is_usable = cache->root_is_usable;
    pthread_mutex_unlock(&cache->lock);
    if (is_known) return is_usable;
    enum eider_disk_kind kind = eider_disk_look(cache->root, &error);
    if (kind == EIDER_DISK_FILE) {
        kind = EIDER_DISK_UNSAFE;
        snprintf(error.why, sizeof error.why, "it is a file");
    }
    if (kind == EIDER_DISK_UNSAFE)
        eider_disk_cache_tell(cache, EIDER_CAUSE_FOLDER,
                              "%s is not used: %s; kernels are kept in memory only", cache->root,
                              error.why);
    pthread_mutex_lock(&cache->lock);
    cache->root_is_known = kind != EIDER_DISK_ABSENT;
    cache->root_is_usable = kind == EIDER_DISK_FOLDER;
    pthread_mutex_unlock(&cache->lock);
    return kind == EIDER_DISK_FOLDER;
}

int eider_disk_cache_layer(struct eider_disk_cache *cache, size_t i)
{
    struct eider_disk_layer *layer = &cache->layers[i];
    struct eider_disk_error error;
    struct eider_disk_archive *archive = NULL;
    pthread_mutex_lock(&cache->lock);
    int is_known = layer->is_known, is_usable = layer->is_usable;
    pthread_mutex_unlock(&cache->lock);
    if (is_known) return is_usable;
    enum eider_disk_kind kind = eider_disk_look(layer->path, &error);
    is_usable = kind == EIDER_DISK_FOLDER || kind == EIDER_DISK_FILE;
    const char *why = error.why;
    if (kind == EIDER_DISK_FILE) {
        is_usable =
            eider_disk_archive_open(&cache->ctx->allocator, layer->path, &archive) == EIDER_OK;
        why = eider_error();
    }
    if (!is_usable)
        eider_disk_cache_tell(cache, EIDER_CAUSE_LAYER, "layer %s is not used: %s", layer->path,
                              why);
    pthread_mutex_lock(&cache->lock);
    struct eider_disk_archive *mine = archive;
    if (!layer->is_known) {
        layer->is_known = 1;
        layer->is_usable = is_usable;
        layer->archive = archive;
        mine = NULL;
    }
    is_usable = layer->is_usable;
    pthread_mutex_unlock(&cache->lock);
    eider_disk_archive_close(mine);
    return is_usable;
}

/* ---- Finding ------------------------------------------------------------------- */

/* Where a lookup stands: a name, whole or its beginning, for a manifest. */
struct search {
    struct eider_disk_cache *cache;
    const char *manifest;
    char name[EIDER_DISK_NAME_BYTES];
    int any_assembler;
    struct eider_disk_found *out;
};

/* Whether two manifests are equal but for the assembler's line. */
static int is_same_but_assembler(const char *a, const char *b)
{
    static const char line[] = "\nassembler: ";
    const char *at = strstr(a, line), *other = strstr(b, line);
    if (!at || !other || at - a != other - b || memcmp(a, b, (size_t)(at - a)) != 0) return 0;
    const char *text = other + sizeof line - 1;
    if (*text == '\n' || strncmp(text, "driver ", 7) == 0) return 0; /* nothing was assembled */
    return strcmp(at + 1 + strcspn(at + 1, "\n"), other + 1 + strcspn(other + 1, "\n")) == 0;
}

const char *eider_disk_cache_check(const struct eider_blob *file, const char *name,
                                   struct eider_disk_entry *entry)
{
    char real[EIDER_DISK_NAME_BYTES];
    const char *problem = eider_disk_entry_read(file, entry);
    if (problem) return problem;
    eider_disk_entry_name(entry->section[EIDER_SECTION_MANIFEST].data, real);
    return strcmp(real, name) == 0 ? NULL : "it is another kernel's";
}

/* What was read is the kernel, or it is released and the miss has a reason.  1 when found. */
static int judge(struct search *search, const char *where, const char *name,
                 const struct eider_blob *file)
{
    struct eider_disk_entry entry;
    struct eider_disk_cache *cache = search->cache;
    const char *problem = eider_disk_cache_check(file, name, &entry);
    int is_it = 0;
    if (!problem) {
        const char *manifest = entry.section[EIDER_SECTION_MANIFEST].data;
        is_it = search->any_assembler ? is_same_but_assembler(search->manifest, manifest)
                                      : strcmp(search->manifest, manifest) == 0;
    } else {
        eider_context_log(cache->ctx, 1, "cache: %s in %s is damaged (%s); it is compiled again",
                          name, where, problem);
        search->out->miss = EIDER_MISS_DAMAGED;
    }
    if (is_it) {
        search->out->file = *file;
        search->out->entry = entry;
        search->out->miss = EIDER_MISS_NONE;
    } else {
        struct eider_blob unused = *file;
        eider_blob_release(&cache->ctx->allocator, &unused);
    }
    return is_it;
}

static void miss_unreadable(struct search *search, const char *where,
                            const struct eider_disk_error *error)
{
    if (error->code == ENOENT) return;
    search->out->miss = EIDER_MISS_UNREADABLE;
    eider_disk_cache_tell(search->cache, EIDER_CAUSE_READ,
                          "an entry of %s cannot be read (%s) and is compiled again", where,
                          error->why);
}

static eider_status find_in_archive(struct search *search, const struct eider_disk_layer *layer)
{
    struct eider_disk_archive *archive = layer->archive;
    struct eider_disk_error error;
    size_t n = search->any_assembler ? EIDER_DISK_PREFIX : EIDER_DISK_NAME_BYTES - 1;
    size_t i = eider_disk_archive_find(archive, search->name, n);
    for (; i < eider_disk_archive_size(archive); i++) {
        const char *name = eider_disk_archive_name(archive, i);
        struct eider_blob file;
        if (strncmp(name, search->name, n) != 0) break;
        eider_status status = eider_disk_archive_read(archive, i, &file, &error);
        if (status == EIDER_OOM) return status;
        if (status != EIDER_OK)
            miss_unreadable(search, layer->path, &error);
        else if (judge(search, layer->path, name, &file))
            break;
    }
    return EIDER_OK;
}

static eider_status find_file(struct search *search, const char *folder, const char *name)
{
    char path[EIDER_DISK_PATH_BYTES];
    struct eider_disk_error error;
    struct eider_blob file;
    if (!eider_disk_cache_path(folder, name, path)) return EIDER_OK;
    eider_status status =
        eider_disk_read(&search->cache->ctx->allocator, path, EIDER_ENTRY_BYTES_MAX, &file, &error);
    if (status == EIDER_OOM) return status;
    if (status == EIDER_OK)
        judge(search, folder, name, &file);
    else
        miss_unreadable(search, folder, &error);
    return EIDER_OK;
}

/* The first name of a folder that begins as wanted and comes after `last`. */
struct next {
    const char *prefix;
    char last[EIDER_DISK_NAME_BYTES], best[EIDER_DISK_NAME_BYTES];
};

static int offer(void *user, const char *name)
{
    struct next *next = user;
    if (strncmp(name, next->prefix, EIDER_DISK_PREFIX) == 0 && eider_disk_entry_is_name(name) &&
        strcmp(name, next->last) > 0 && (!next->best[0] || strcmp(name, next->best) < 0))
        memcpy(next->best, name, EIDER_DISK_NAME_BYTES);
    return 0;
}

static eider_status find_any(struct search *search, const char *folder)
{
    struct next next = {.prefix = search->name};
    struct eider_disk_error error;
    char shard[EIDER_DISK_PATH_BYTES];
    if (snprintf(shard, sizeof shard, "%s/%.2s", folder, search->name) >= (int)sizeof shard)
        return EIDER_OK;
    while (search->out->miss != EIDER_MISS_NONE) {
        next.best[0] = '\0';
        if (!eider_disk_each(shard, offer, &next, &error) || !next.best[0]) break;
        memcpy(next.last, next.best, sizeof next.last);
        EIDER_TRY(find_file(search, folder, next.best));
    }
    return EIDER_OK;
}

/* Marks the last use, unless that was done today: a hit rarely writes. */
static void stamp(struct search *search)
{
    char path[EIDER_DISK_PATH_BYTES], name[EIDER_DISK_NAME_BYTES];
    struct stat st;
    time_t now = time(NULL);
    eider_disk_entry_name(search->out->entry.section[EIDER_SECTION_MANIFEST].data, name);
    if (!eider_disk_cache_path(search->cache->root, name, path) || lstat(path, &st) != 0) return;
    if (st.st_mtime <= now && st.st_mtime > now - STAMP_AGE_S) return;
    utimensat(AT_FDCWD, path, NULL, AT_SYMLINK_NOFOLLOW); /* where it fails, it is read-only */
}

static eider_status find_in_folder(struct search *search, const char *folder)
{
    if (search->any_assembler) return find_any(search, folder);
    return find_file(search, folder, search->name);
}

eider_status eider_disk_cache_find(struct eider_disk_cache *cache, const char *manifest,
                                   int any_assembler, struct eider_disk_found *out)
{
    struct search search = {
        .cache = cache, .manifest = manifest, .any_assembler = any_assembler, .out = out};
    *out = (struct eider_disk_found){.miss = EIDER_MISS_OFF};
    if (!cache->root && !cache->n_layers && !cache->is_homeless) return EIDER_OK;
    out->miss = cache->is_forced ? EIDER_MISS_FORCED : EIDER_MISS_ABSENT;
    if (cache->is_forced) return EIDER_OK;
    eider_disk_entry_name(manifest, search.name);
    for (size_t i = 0; i < cache->n_layers && out->miss != EIDER_MISS_NONE; i++) {
        if (!eider_disk_cache_layer(cache, i)) continue;
        if (cache->layers[i].archive)
            EIDER_TRY(find_in_archive(&search, &cache->layers[i]));
        else
            EIDER_TRY(find_in_folder(&search, cache->layers[i].path));
    }
    if (out->miss == EIDER_MISS_NONE || !eider_disk_cache_root(cache)) return EIDER_OK;
    EIDER_TRY(find_in_folder(&search, cache->root));
    if (out->miss == EIDER_MISS_NONE) stamp(&search);
    return EIDER_OK;
}

/* ---- Keeping ------------------------------------------------------------------- */

static void tell_write(struct eider_disk_cache *cache, const struct eider_disk_error *error)
{
    static const struct {
        int code;
        enum eider_disk_cause cause;
    } ends[] = {{EACCES, EIDER_CAUSE_DENIED}, {EPERM, EIDER_CAUSE_DENIED},
                {EROFS, EIDER_CAUSE_DENIED},  {ENOSPC, EIDER_CAUSE_FULL},
                {EDQUOT, EIDER_CAUSE_FULL},   {EFBIG, EIDER_CAUSE_FULL}};
    enum eider_disk_cause cause = EIDER_CAUSE_WRITE;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (error->code == ends[i].code) cause = ends[i].cause;
    if (cause == EIDER_CAUSE_WRITE) {
        eider_disk_cache_tell(cache, cause, "a kernel could not be kept in %s: %s", cache->root,
                              error->why);
        return;
    }
    eider_disk_cache_tell(cache, cause, "nothing more is kept in %s: %s", cache->root, error->why);
    pthread_mutex_lock(&cache->lock);
    cache->writes_are_off = 1;
    pthread_mutex_unlock(&cache->lock);
}

static int publish(struct eider_disk_cache *cache, const char *name, const struct eider_blob *file,
                   struct eider_disk_error *error)
{
    char path[EIDER_DISK_PATH_BYTES], folder[EIDER_DISK_PATH_BYTES];
    char temporary[EIDER_DISK_PATH_BYTES];
    if (!eider_disk_cache_path(cache->root, name, path) ||
        snprintf(folder, sizeof folder, "%s/%.2s", cache->root, name) >= (int)sizeof folder ||
        snprintf(temporary, sizeof temporary, "%s/" TEMPORARY, cache->root) >=
            (int)sizeof temporary) {
        snprintf(error->why, sizeof error->why, "its path is too long");
        return 0;
    }
    return eider_disk_make(temporary, error) && eider_disk_make(folder, error) &&
           eider_disk_publish(temporary, path, file->data, file->size, error);
}

/* Creates the directory where it is missing, and looks at it. */
static int is_writable(struct eider_disk_cache *cache)
{
    struct eider_disk_error error;
    pthread_mutex_lock(&cache->lock);
    int is_known = cache->root_is_known, is_off = cache->writes_are_off;
    pthread_mutex_unlock(&cache->lock);
    if (!cache->root || is_off) return 0;
    if (!is_known && !eider_disk_make(cache->root, &error)) {
        tell_write(cache, &error);
        return 0;
    }
    return eider_disk_cache_root(cache);
}

int eider_disk_cache_put(struct eider_disk_cache *cache, const char *manifest,
                         const struct eider_blob *file)
{
    char name[EIDER_DISK_NAME_BYTES];
    struct eider_disk_error error = {0};
    if (!is_writable(cache)) return 0;
    eider_disk_entry_name(manifest, name);
    if (!publish(cache, name, file, &error)) {
        tell_write(cache, &error);
        return 0;
    }
    eider_context_add(cache->ctx, EIDER_COUNT_DISK_WRITES, 1);
    eider_context_add(cache->ctx, EIDER_COUNT_DISK_WRITTEN_BYTES, file->size);
    eider_disk_cache_published(cache, file->size);
    return 1;
}
