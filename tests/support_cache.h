/* support_cache.h -- what tests of the cache on disk share: directories of their own, a log
 * that counts, kernels whose results are known, and files to look at and damage.
 */
#ifndef EIDER_TESTS_SUPPORT_CACHE_H
#define EIDER_TESTS_SUPPORT_CACHE_H

#include <stdatomic.h>

#include "eider/eider.h"

#define CACHE_PATH_BYTES 512

/* A new empty directory, mode 0700; the process removes it with cache_remove. */
void cache_directory(char out[CACHE_PATH_BYTES]);
void cache_remove(const char *directory);

/* What a context said, but for information. */
struct cache_log {
    atomic_int n;
    char last[1024];
};

/* A context and the CPU. */
struct cache_session {
    eider_context *ctx;
    eider_device *cpu;
    struct cache_log log;
};

/* `options` may be NULL; its log and number of threads are set here. */
void cache_open(struct cache_session *s, const char *directory,
                const eider_context_options *options);
void cache_close(struct cache_session *s);

/* Prepares `out = x * 2 + k`, runs it and compares.  0 when anything is wrong, which is
 * printed; for processes that may not use cmocka.  *out_info may be NULL. */
int cache_run(struct cache_session *s, int k, eider_kernel_info *out_info);

/* cache_run must succeed, and the counters be as they should. */
void cache_expect(struct cache_session *s, int k, int is_hit);

/* Entries in a directory, in the order of their paths; the number of all there are. */
struct cache_files {
    int n;
    char path[256][CACHE_PATH_BYTES];
};
int cache_list(const char *directory, struct cache_files *out);
/* Files in the folder of temporary files. */
int cache_temporaries(const char *directory);

/* A whole file; caller frees. */
char *cache_read(const char *path, size_t *size);
void cache_write(const char *path, const void *data, size_t size);

/* Runs this program again with EIDER_TEST_TASK=task; returns the process. */
int cache_spawn(const char *task);
/* The task of such a process, or NULL. */
const char *cache_task(void);

/* `n_processes` find the directory cold and want the same kernels; with `kills`, every other
 * one is killed at a random moment.  Fails the test unless the others are right and told
 * nothing, and everything in the directory is whole.  Needs cache_storm_task in main. */
void cache_storm(const char *directory, int n_processes, int n_kernels, int kills, unsigned seed);
/* What a process of the storm does; its exit status. */
int cache_storm_task(const char *task);

#endif
