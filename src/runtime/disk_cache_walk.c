/* disk_cache_walk.c -- every entry of a directory or an archive, one after the other. */
#include "disk_cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_SHARDS 256

/* ---- Names --------------------------------------------------------------------- */

static int add_name(void *user, const char *name)
{
    struct eider_disk_names *names = user;
    if (!eider_disk_entry_is_name(name)) return 0;
    if (names->n == names->room) {
        size_t room = names->room ? 2 * names->room : 16;
        void *grown = eider_mem_resize(&names->allocator, names->at, room * sizeof *names->at);
        if (!grown) {
            names->status = EIDER_OOM;
            return 1;
        }
        names->at = grown;
        names->room = room;
    }
    memcpy(names->at[names->n++], name, EIDER_DISK_NAME_BYTES);
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

void eider_disk_names_read(const eider_allocator *a, const char *root, int shard,
                           struct eider_disk_names *out)
{
    char folder[EIDER_DISK_PATH_BYTES];
    struct eider_disk_error ignored;
    *out = (struct eider_disk_names){.allocator = *a};
    if (snprintf(folder, sizeof folder, "%s/%02x", root, (unsigned)shard) >= (int)sizeof folder)
        return;
    eider_disk_each(folder, add_name, out, &ignored);
    if (out->n) qsort(out->at, out->n, sizeof *out->at, compare_names);
}

/* ---- Entries ------------------------------------------------------------------- */

struct walk {
    const eider_allocator *a;
    const char *key;
    eider_disk_visit visit;
    void *user;
    eider_status status;
};

/* What reading one entry gave goes to the visitor; nonzero ends the walk. */
static int show(struct walk *walk, const char *name, const char *path, eider_status status,
                struct eider_blob *file, const struct eider_disk_error *error)
{
    struct eider_disk_entry entry;
    if (status == EIDER_OOM) {
        walk->status = status;
        return 1;
    }
    if (status != EIDER_OK) return walk->visit(walk->user, name, path, NULL, error->why);
    int ends =
        walk->visit(walk->user, name, path, file, eider_disk_cache_check(file, name, &entry));
    eider_blob_release(walk->a, file);
    return ends;
}

static int is_wanted(const struct walk *walk, const char *name)
{
    return !walk->key || strncmp(name + EIDER_DISK_PREFIX, walk->key, strlen(walk->key)) == 0;
}

static int walk_archive(struct walk *walk, const struct eider_disk_layer *layer)
{
    struct eider_disk_error error;
    struct eider_blob file;
    for (size_t i = 0; i < eider_disk_archive_size(layer->archive); i++) {
        const char *name = eider_disk_archive_name(layer->archive, i);
        if (!is_wanted(walk, name)) continue;
        eider_status status = eider_disk_archive_read(layer->archive, i, &file, &error);
        int ends = show(walk, name, layer->path, status, &file, &error);
        if (ends) return ends;
    }
    return 0;
}

static int walk_shard(struct walk *walk, const char *root, const struct eider_disk_names *names)
{
    char path[EIDER_DISK_PATH_BYTES];
    struct eider_disk_error error;
    struct eider_blob file;
    for (size_t i = 0; i < names->n; i++) {
        if (!is_wanted(walk, names->at[i]) || !eider_disk_cache_path(root, names->at[i], path))
            continue;
        eider_status status = eider_disk_read(walk->a, path, EIDER_ENTRY_BYTES_MAX, &file, &error);
        int ends = show(walk, names->at[i], path, status, &file, &error);
        if (ends) return ends;
    }
    return 0;
}

static int walk_folder(struct walk *walk, const char *root)
{
    int ends = 0;
    for (int shard = 0; shard < N_SHARDS && !ends; shard++) {
        struct eider_disk_names names;
        eider_disk_names_read(walk->a, root, shard, &names);
        if (names.status != EIDER_OK) {
            walk->status = names.status;
            ends = 1;
        } else {
            ends = walk_shard(walk, root, &names);
        }
        eider_mem_free(walk->a, names.at);
    }
    return ends;
}

int eider_disk_cache_each(struct eider_disk_cache *cache, size_t i, const char *key,
                          eider_disk_visit visit, void *user, eider_status *status)
{
    struct walk walk = {.a = &cache->ctx->allocator, .key = key, .visit = visit, .user = user};
    int ends = 0, is_layer = i < cache->n_layers;
    if (is_layer ? !eider_disk_cache_layer(cache, i) : !eider_disk_cache_root(cache)) {
        *status = EIDER_OK;
        return 0;
    }
    if (is_layer && cache->layers[i].archive)
        ends = walk_archive(&walk, &cache->layers[i]);
    else
        ends = walk_folder(&walk, is_layer ? cache->layers[i].path : cache->root);
    *status = walk.status;
    return ends;
}
