/* support_cache.c -- see support_cache.h. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "disk_cache.h"
#include "support_cache.h"
#include "support_runtime.h"

#define N_VALUES 100

/* ---- Directories and files ------------------------------------------------------- */

void cache_directory(char out[CACHE_PATH_BYTES])
{
    const char *root = getenv("TMPDIR");
    snprintf(out, CACHE_PATH_BYTES, "%s/eider-cache-XXXXXX", root ? root : "/tmp");
    assert_non_null(mkdtemp(out));
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)ftw;
    return type == FTW_DP ? rmdir(path) : unlink(path);
}

void cache_remove(const char *directory)
{
    nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static struct cache_files *listed;

static int list_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    if (type != FTW_F || !eider_disk_entry_is_name(path + ftw->base)) return 0;
    assert_true(listed->n < 256);
    snprintf(listed->path[listed->n++], CACHE_PATH_BYTES, "%s", path);
    return 0;
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(a, b);
}

int cache_list(const char *directory, struct cache_files *out)
{
    out->n = 0;
    listed = out;
    nftw(directory, list_one, 16, FTW_PHYS);
    qsort(out->path, (size_t)out->n, sizeof out->path[0], compare_paths);
    return out->n;
}

static int count_one(void *user, const char *name)
{
    (void)name;
    ++*(int *)user;
    return 0;
}

int cache_temporaries(const char *directory)
{
    char path[CACHE_PATH_BYTES + 16];
    struct eider_disk_error error;
    int n = 0;
    snprintf(path, sizeof path, "%s/tmp", directory);
    eider_disk_each(path, count_one, &n, &error);
    return n;
}

char *cache_read(const char *path, size_t *size)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    *size = (size_t)st.st_size;
    char *data = malloc(*size + 1);
    assert_int_equal(read(fd, data, *size), (ssize_t)*size);
    data[*size] = '\0';
    close(fd);
    return data;
}

void cache_write(const char *path, const void *data, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, size), (ssize_t)size);
    close(fd);
}

/* ---- Sessions -------------------------------------------------------------------- */

static void note(void *user, int level, const char *line)
{
    struct cache_log *log = user;
    if (level > 1) return;
    log->n++;
    snprintf(log->last, sizeof log->last, "%s", line);
}

void cache_open(struct cache_session *s, const char *directory,
                const eider_context_options *options)
{
    eider_context_options mine = options ? *options : (eider_context_options){0};
    memset(s, 0, sizeof *s);
    mine.cache_dir = directory;
    mine.cpu_threads = 1;
    mine.log = note;
    mine.log_user = &s->log;
    must(eider_context_create(&mine, &s->ctx));
    must(eider_device_open(s->ctx, "cpu", &s->cpu));
}

void cache_close(struct cache_session *s)
{
    eider_device_release(s->cpu);
    eider_context_destroy(s->ctx);
}

static int is_right(const float *x, const float *out, int k)
{
    for (int i = 0; i < N_VALUES; i++)
        if (out[i] != 2 * x[i] + (float)k) return 0;
    return 1;
}

int cache_run(struct cache_session *s, int k, eider_kernel_info *out_info)
{
    char text[64];
    int64_t n = N_VALUES;
    float x[N_VALUES], out[N_VALUES] = {0};
    eider_tensor args[] = {tensor_of(x, EIDER_F32, 1, &n), tensor_of(out, EIDER_F32, 1, &n)};
    eider_program *program = NULL;
    eider_kernel *kernel = NULL;
    for (int i = 0; i < N_VALUES; i++) x[i] = (float)i;
    snprintf(text, sizeof text, "out = x * 2 + %d", k);
    eider_status status = eider_program_parse(s->ctx, text, &program);
    eider_request request = {.program = program, .args = args, .n_args = 2};
    if (status == EIDER_OK) status = eider_prepare(s->cpu, &request, &kernel);
    if (status == EIDER_OK) status = eider_launch(kernel, NULL, args, 2);
    int ok = status == EIDER_OK && is_right(x, out, k);
    if (!ok) fprintf(stderr, "kernel %d: %s\n", k, status ? eider_error() : "wrong values");
    /* The numbers are copied; strings would not outlive the handle. */
    if (out_info) eider_kernel_describe(kernel, out_info);
    eider_kernel_release(kernel);
    eider_program_release(program);
    return ok;
}

void cache_expect(struct cache_session *s, int k, int is_hit)
{
    eider_counters before, after;
    eider_context_counters(s->ctx, &before);
    assert_true(cache_run(s, k, NULL));
    eider_context_counters(s->ctx, &after);
    assert_int_equal(after.compiles - before.compiles, !is_hit);
    assert_int_equal(after.disk_hits - before.disk_hits, is_hit);
}

/* ---- Processes -------------------------------------------------------------------- */

const char *cache_task(void)
{
    return getenv("EIDER_TEST_TASK");
}

int cache_spawn(const char *task)
{
    enum { WORDS = 8 };
    static char words[4096];
    char *argv[WORDS + 1] = {0};
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t size = read(fd, words, sizeof words - 1);
    close(fd);
    assert_true(size > 0);
    int n = 0;
    for (char *at = words; at < words + size && n < WORDS; at += strlen(at) + 1) argv[n++] = at;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child > 0) return child;
    setenv("EIDER_TEST_TASK", task, 1);
    execv("/proc/self/exe", argv);
    _exit(127);
}

int cache_storm_task(const char *task)
{
    char directory[CACHE_PATH_BYTES];
    int n_kernels, first;
    struct cache_session s;
    if (sscanf(task, "storm %d %d %511s", &n_kernels, &first, directory) != 3) return 2;
    cache_open(&s, directory, NULL);
    int ok = 1;
    for (int i = 0; i < n_kernels; i++) ok &= cache_run(&s, (first + i) % n_kernels, NULL);
    if (s.log.n) fprintf(stderr, "%s\n", s.log.last);
    ok &= s.log.n == 0;
    cache_close(&s);
    return !ok;
}

static void check_directory(const char *directory)
{
    static struct cache_files files;
    for (int i = 0; i < cache_list(directory, &files); i++) {
        struct eider_blob file;
        struct eider_disk_entry entry;
        file.data = cache_read(files.path[i], &file.size);
        const char *problem =
            eider_disk_cache_check(&file, strrchr(files.path[i], '/') + 1, &entry);
        if (problem) fail_msg("%s: %s", files.path[i], problem);
        free(file.data);
    }
}

void cache_storm(const char *directory, int n_processes, int n_kernels, int kills, unsigned seed)
{
    enum { MAX = 64 };
    char task[CACHE_PATH_BYTES + 64];
    int child[MAX], status;
    assert_true(n_processes <= MAX);
    srand(seed);
    for (int i = 0; i < n_processes; i++) {
        snprintf(task, sizeof task, "storm %d %d %s", n_kernels, rand() % n_kernels, directory);
        child[i] = cache_spawn(task);
    }
    for (int i = 1; kills && i < n_processes; i += 2) {
        struct timespec wait = {.tv_nsec = rand() % 1000 * 1000000L * 2 / n_processes};
        nanosleep(&wait, NULL);
        kill(child[i], SIGKILL);
    }
    for (int i = 0; i < n_processes; i++) {
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        int is_victim = kills && i % 2 == 1 && WIFSIGNALED(status);
        if (!is_victim && status != 0)
            fail_msg("process %d of the storm ended with status %#x", i, (unsigned)status);
    }
    check_directory(directory);
}
