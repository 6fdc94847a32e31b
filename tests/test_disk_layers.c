/* test_disk_layers.c -- layers and archives, kernels of other machines' assemblers, budgets,
 * what dead processes leave, and what a caller may ask about the cache.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "disk_cache.h"
#include "support_cache.h"
#include "support_runtime.h"

static char directory[CACHE_PATH_BYTES], other[CACHE_PATH_BYTES], archive[CACHE_PATH_BYTES + 16];
static struct cache_files files;

static int set_up(void **state)
{
    (void)state;
    cache_directory(directory);
    cache_directory(other);
    snprintf(archive, sizeof archive, "%s/kernels", other);
    unsetenv("EIDER_CACHE_PATH");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    cache_remove(directory);
    cache_remove(other);
    return 0;
}

static void fill(const char *where, int first, int n)
{
    struct cache_session s;
    cache_open(&s, where, NULL);
    for (int k = first; k < first + n; k++) cache_expect(&s, k, 0);
    cache_close(&s);
}

/* Makes `archive` of kernels 0 to n-1. */
static void fill_archive(int n)
{
    struct cache_session s;
    uint64_t exported;
    fill(directory, 0, n);
    cache_open(&s, directory, NULL);
    must(eider_cache_export(s.ctx, NULL, archive, &exported));
    assert_int_equal(exported, n);
    cache_close(&s);
}

/* ---- Layers ------------------------------------------------------------------------- */

static void a_layer_is_read_and_never_written(void **state)
{
    (void)state;
    struct cache_session s;
    struct stat before, after;
    fill(other, 0, 1);
    cache_list(other, &files);
    struct timespec old[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    assert_int_equal(utimensat(AT_FDCWD, files.path[0], old, 0), 0);
    assert_int_equal(stat(files.path[0], &before), 0);
    cache_open(&s, directory, &(eider_context_options){.cache_path = other});
    cache_expect(&s, 0, 1);
    cache_expect(&s, 1, 0);
    assert_string_equal(eider_cache_layer(s.ctx, 0), other);
    assert_null(eider_cache_layer(s.ctx, 1));
    assert_int_equal(s.log.n, 0);
    cache_close(&s);
    assert_int_equal(stat(files.path[0], &after), 0);
    assert_int_equal(after.st_mtim.tv_sec, before.st_mtim.tv_sec);
    assert_int_equal(cache_list(other, &files), 1);
    assert_int_equal(cache_list(directory, &files), 1);
}

static void layers_come_from_the_environment_in_order(void **state)
{
    (void)state;
    struct cache_session s;
    char path[3 * CACHE_PATH_BYTES];
    fill(other, 0, 1);
    snprintf(path, sizeof path, ":/nowhere/at/all:%s:", other);
    setenv("EIDER_CACHE_PATH", path, 1);
    cache_open(&s, "", NULL); /* layers work without a directory, too */
    cache_expect(&s, 0, 1);
    cache_expect(&s, 1, 0);
    cache_expect(&s, 2, 0);
    assert_int_equal(s.log.n, 1); /* of the one that is not there */
    assert_non_null(strstr(s.log.last, "/nowhere/at/all"));
    cache_close(&s);
    unsetenv("EIDER_CACHE_PATH");
}

static void an_archive_is_a_layer(void **state)
{
    (void)state;
    struct cache_session s;
    fill_archive(3);
    assert_int_equal(chmod(archive, 0444), 0);
    cache_open(&s, "", &(eider_context_options){.cache_path = archive});
    for (int k = 0; k < 3; k++) cache_expect(&s, k, 1);
    cache_expect(&s, 3, 0);
    assert_int_equal(s.log.n, 0);
    cache_close(&s);
}

/* The disk of `other`, where the user's directory would be, too. */
static void run_on_read_only_disk(void)
{
    char place[CACHE_PATH_BYTES + 16];
    struct cache_session s;
    eider_counters c;
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount(other, other, NULL, MS_BIND, NULL) != 0 ||
        mount("none", other, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) != 0)
        _exit(77);
    snprintf(place, sizeof place, "%s/mine", other);
    cache_open(&s, place, &(eider_context_options){.cache_path = archive});
    for (int k = 0; k < 3; k++)
        if (!cache_run(&s, k, NULL)) _exit(1);
    eider_context_counters(s.ctx, &c);
    if (c.disk_hits != 3 || c.compiles || s.log.n) _exit(2);
    if (!cache_run(&s, 3, NULL) || !cache_run(&s, 4, NULL)) _exit(3);
    if (s.log.n != 1 || !strstr(s.log.last, "Read-only file system")) _exit(4);
    cache_close(&s);
    _exit(0);
}

static void an_archive_serves_on_a_read_only_disk(void **state)
{
    (void)state;
    int status;
    fill_archive(3);
    pid_t child = fork();
    if (child == 0) run_on_read_only_disk();
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        fprintf(stderr, "SKIPPED (may not mount): an archive on a read-only disk\n");
        skip();
    }
    assert_int_equal(status, 0);
}

static void an_archive_may_be_empty(void **state)
{
    (void)state;
    struct cache_session s;
    uint64_t n = 7;
    fill_archive(0);
    cache_open(&s, directory, &(eider_context_options){.cache_path = archive});
    cache_expect(&s, 0, 0);
    must(eider_cache_import(s.ctx, archive, &n));
    assert_int_equal(n, 0);
    assert_int_equal(s.log.n, 0);
    cache_close(&s);
}

static void an_archive_is_imported(void **state)
{
    (void)state;
    struct cache_session s;
    char third[CACHE_PATH_BYTES];
    uint64_t n;
    fill_archive(3);
    cache_directory(third);
    cache_open(&s, third, NULL);
    must(eider_cache_import(s.ctx, archive, &n));
    assert_int_equal(n, 3);
    for (int k = 0; k < 3; k++) cache_expect(&s, k, 1);
    assert_int_equal(s.log.n, 0);
    cache_close(&s);
    cache_open(&s, "", NULL);
    assert_int_equal(eider_cache_import(s.ctx, archive, &n), EIDER_IO);
    cache_close(&s);
    cache_remove(third);
}

static void an_export_replaces_nothing_but_a_file(void **state)
{
    (void)state;
    struct cache_session s;
    char folder[CACHE_PATH_BYTES], link[CACHE_PATH_BYTES + 8];
    struct stat st;
    uint64_t n;
    fill_archive(1);
    cache_directory(folder);
    snprintf(link, sizeof link, "%s/link", folder);
    assert_int_equal(symlink("/dev/null", link), 0);
    cache_open(&s, directory, NULL);
    assert_int_equal(eider_cache_export(s.ctx, NULL, link, &n), EIDER_IO);
    assert_non_null(strstr(eider_error(), "link is no file, and an archive would replace it"));
    assert_true(lstat(link, &st) == 0 && S_ISLNK(st.st_mode));
    cache_close(&s);
    cache_remove(folder);
}

/* Anywhere in the file: opening or reading notices, the kernel is compiled, and an import
 * says so and takes the rest. */
static void a_damaged_archive_does_no_harm(void **state)
{
    (void)state;
    size_t size;
    fill_archive(2);
    char *good = cache_read(archive, &size);
    for (size_t at = 0; at < size; at += size / 9) {
        struct cache_session s;
        uint64_t n;
        good[at] ^= 16;
        cache_write(archive, good, size);
        good[at] ^= 16;
        cache_open(&s, "", &(eider_context_options){.cache_path = archive});
        assert_true(cache_run(&s, 0, NULL) && cache_run(&s, 1, NULL));
        if (s.log.n != 1) fail_msg("byte %zu: %d warnings: %s", at, (int)s.log.n, s.log.last);
        cache_close(&s);
        cache_open(&s, directory, NULL);
        assert_int_equal(eider_cache_import(s.ctx, archive, &n), EIDER_IO);
        cache_close(&s);
    }
    for (size_t cut = 0; cut < size; cut += size / 7) {
        struct eider_disk_archive *opened;
        eider_allocator a = eider_memory_default((eider_allocator){0});
        cache_write(archive, good, cut);
        assert_int_equal(eider_disk_archive_open(&a, archive, &opened), EIDER_IO);
    }
    free(good);
}

/* ---- Machines without a compiler ------------------------------------------------------ */

static int32_t has_ptxas(eider_context *ctx)
{
    eider_tool tool;
    for (size_t i = 0; eider_tool_find(ctx, i, &tool); i++)
        if (strcmp(tool.name, "ptxas") == 0) return tool.found;
    return 0;
}

static eider_status compile_gpu(struct cache_session *s, const char *assembler,
                                eider_kernel **kernel)
{
    int64_t n = 64;
    eider_program *program;
    eider_tensor args[] = {tensor_of(NULL, EIDER_F32, 1, &n), tensor_of(NULL, EIDER_F32, 1, &n)};
    must(eider_program_parse(s->ctx, "out = x + 1", &program));
    eider_request request = {
        .program = program, .args = args, .n_args = 2, .target = "sm_90", .assembler = assembler};
    eider_status status = eider_compile(s->ctx, &request, kernel);
    eider_program_release(program);
    return status;
}

static void without_an_assembler_any_assemblers_kernel_is_found(void **state)
{
    (void)state;
    static const char *const variables[] = {"EIDER_PTXAS", "EIDER_NVPTXCOMPILER",
                                            "EIDER_NVJITLINK"};
    struct cache_session s;
    eider_kernel *kernel;
    eider_kernel_info info;
    const void *cubin;
    size_t size;
    char key[33], *kept[3];
    cache_open(&s, directory, NULL);
    if (!has_ptxas(s.ctx)) {
        cache_close(&s);
        fprintf(stderr, "SKIPPED (no ptxas): a kernel of another machine's assembler\n");
        skip();
    }
    must(compile_gpu(&s, "ptxas", &kernel));
    eider_kernel_describe(kernel, &info);
    snprintf(key, sizeof key, "%s", info.key);
    eider_kernel_release(kernel);
    uint64_t n;
    must(eider_cache_export(s.ctx, NULL, archive, &n));
    cache_close(&s);

    for (int i = 0; i < 3; i++) {
        const char *value = getenv(variables[i]);
        kept[i] = value ? strdup(value) : NULL;
        setenv(variables[i], "/nowhere", 1);
    }
    for (int with_archive = 0; with_archive < 2; with_archive++) {
        eider_counters c;
        cache_open(&s, with_archive ? "" : directory,
                   &(eider_context_options){.cache_path = with_archive ? archive : ""});
        must(compile_gpu(&s, NULL, &kernel));
        eider_kernel_describe(kernel, &info);
        assert_string_equal(info.key, key);
        assert_memory_equal(info.assembler, "ptxas ", 6);
        assert_non_null(strstr(info.manifest, info.assembler));
        must(eider_kernel_stage(kernel, EIDER_STAGE_CUBIN, &cubin, &size));
        assert_memory_equal(cubin, "\177ELF", 4);
        eider_context_counters(s.ctx, &c);
        assert_int_equal(c.compiles, 0);
        assert_int_equal(c.disk_hits, 1);
        assert_int_equal(s.log.n, 0);
        eider_kernel_release(kernel);
        cache_close(&s);
    }
    for (int i = 0; i < 3; i++) {
        if (kept[i])
            setenv(variables[i], kept[i], 1);
        else
            unsetenv(variables[i]);
        free(kept[i]);
    }
}

/* ---- Budgets ------------------------------------------------------------------------- */

static void set_used(const char *path, time_t when)
{
    struct timespec times[2] = {{.tv_sec = when}, {.tv_sec = when}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void the_budget_of_files_is_kept_and_the_oldest_go(void **state)
{
    (void)state;
    struct cache_session s;
    eider_counters c;
    cache_open(&s, directory, &(eider_context_options){.cache_max_files = 6});
    for (int k = 0; k < 20; k++) {
        cache_expect(&s, k, 0);
        assert_true(cache_list(directory, &files) <= 6);
    }
    eider_context_counters(s.ctx, &c);
    assert_int_equal(c.disk_evictions, 20 - (uint64_t)cache_list(directory, &files));
    cache_close(&s);
    cache_open(&s, directory, NULL);
    cache_expect(&s, 19, 1);
    cache_expect(&s, 18, 1);
    cache_expect(&s, 0, 0);
    cache_close(&s);
}

static void the_budget_of_bytes_is_kept(void **state)
{
    (void)state;
    struct cache_session s;
    cache_open(&s, directory, &(eider_context_options){.cache_max_bytes = 40000});
    for (int k = 0; k < 20; k++) cache_expect(&s, k, 0);
    eider_cache_info info;
    must(eider_cache_describe(s.ctx, &info));
    assert_string_equal(info.directory, directory);
    assert_int_equal(info.max_bytes, 40000);
    assert_true(info.bytes <= 40000 && info.files > 2 && info.files < 20);
    assert_int_equal(info.files, cache_list(directory, &files));
    cache_close(&s);
}

static void use_and_not_age_decides_and_is_written_once_a_day(void **state)
{
    (void)state;
    struct cache_session s;
    struct stat st;
    time_t now = time(NULL);
    uint64_t removed;
    fill(directory, 0, 4);
    cache_list(directory, &files);
    for (int i = 0; i < 4; i++) set_used(files.path[i], now - 10 * 24 * 3600 + i);
    cache_open(&s, directory, NULL);
    cache_expect(&s, 2, 1);
    int n_used = 0;
    char used[CACHE_PATH_BYTES] = "";
    for (int i = 0; i < 4; i++) {
        assert_int_equal(stat(files.path[i], &st), 0);
        if (st.st_mtime < now - 10) continue;
        n_used++;
        snprintf(used, sizeof used, "%s", files.path[i]);
    }
    assert_int_equal(n_used, 1);
    cache_close(&s);
    set_used(used, now - 3600);
    cache_open(&s, directory, NULL);
    cache_expect(&s, 2, 1);
    assert_int_equal(stat(used, &st), 0);
    assert_int_equal(st.st_mtime, now - 3600);
    must(eider_cache_prune(s.ctx, UINT64_MAX, 1, &removed));
    assert_int_equal(removed, 3);
    assert_int_equal(cache_list(directory, &files), 1);
    assert_string_equal(files.path[0], used);
    cache_close(&s);
}

/* Names as disk.c writes them, of a process that ended, of this one, and of long ago. */
/* Such as a process that was stopped in a sweep; its lock file stays. */
static void nobody_waits_for_a_sweep(void **state)
{
    (void)state;
    struct cache_session s;
    struct stat before, after;
    char path[CACHE_PATH_BYTES + 16];
    uint64_t removed;
    fill(directory, 0, 3);
    snprintf(path, sizeof path, "%s/sweep.lock", directory);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(fstat(fd, &before), 0);
    set_used(path, time(NULL) - 7200);
    cache_open(&s, directory, &(eider_context_options){.cache_max_files = 3});
    cache_expect(&s, 3, 0);
    assert_int_equal(cache_list(directory, &files), 4); /* the other will see to it */
    must(eider_cache_prune(s.ctx, UINT64_MAX, 1, &removed));
    assert_int_equal(removed, 3);
    assert_int_equal(s.log.n, 0);
    cache_close(&s);
    close(fd);
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
}

static void what_dead_processes_left_is_collected(void **state)
{
    (void)state;
    struct cache_session s;
    struct eider_disk_draft draft;
    struct eider_disk_error error;
    char temporary[CACHE_PATH_BYTES + 8], path[CACHE_PATH_BYTES + 128];
    uint64_t removed;
    fill(directory, 0, 1);
    snprintf(temporary, sizeof temporary, "%s/tmp", directory);
    pid_t child = fork();
    if (child == 0) _exit(!eider_disk_draft(temporary, &draft, &error));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(eider_disk_draft(temporary, &draft, &error));         /* alive */
    snprintf(path, sizeof path, "%s/%016x-1-%032x", temporary, 7, 7); /* another machine's */
    cache_write(path, "", 0);
    snprintf(path, sizeof path, "%s/%016x-1-%032x", temporary, 8, 8);
    cache_write(path, "", 0);
    set_used(path, time(NULL) - 2 * 24 * 3600);
    assert_int_equal(cache_temporaries(directory), 4);
    cache_open(&s, directory, NULL);
    must(eider_cache_prune(s.ctx, UINT64_MAX - 1, UINT64_MAX, &removed));
    assert_int_equal(removed, 0);
    assert_int_equal(cache_temporaries(directory), 2);
    assert_int_equal(access(draft.name, F_OK), 0);
    eider_disk_draft_discard(&draft);
    assert_int_equal(cache_temporaries(directory), 1);
    cache_close(&s);
}

/* ---- What a caller may ask ------------------------------------------------------------- */

struct visits {
    int n, n_bad;
    size_t layer;
    char key[33];
};

static int32_t visit(void *user, const eider_cache_entry *entry)
{
    struct visits *v = user;
    v->n++;
    v->layer = entry->layer;
    assert_int_equal(strlen(entry->key), 32);
    snprintf(v->key, sizeof v->key, "%s", entry->key);
    if (entry->problem) {
        v->n_bad++;
        assert_string_equal(entry->manifest, "");
        return 0;
    }
    assert_non_null(strstr(entry->manifest, "\nprogram: out = x * 2"));
    assert_memory_equal(entry->entry, "eider_map_", 10);
    assert_true(entry->code_size > 100 && entry->bytes > entry->code_size);
    assert_memory_equal(entry->code, "\177ELF", 4);
    assert_true(entry->used_s > time(NULL) - 100);
    return 0;
}

static void entries_can_be_walked(void **state)
{
    (void)state;
    struct cache_session s;
    struct visits v = {0};
    fill(directory, 0, 3);
    fill(other, 3, 1);
    cache_list(directory, &files);
    assert_int_equal(truncate(files.path[0], 10), 0);
    cache_open(&s, directory, &(eider_context_options){.cache_path = other});
    must(eider_cache_each(s.ctx, NULL, visit, &v));
    assert_int_equal(v.n, 4);
    assert_int_equal(v.n_bad, 1);
    assert_int_equal(v.layer, 1);
    char prefix[9];
    snprintf(prefix, sizeof prefix, "%.8s", v.key);
    v = (struct visits){0};
    must(eider_cache_each(s.ctx, prefix, visit, &v));
    assert_int_equal(v.n, 1);
    v = (struct visits){0};
    must(eider_cache_each(s.ctx, "no such key", visit, &v));
    assert_int_equal(v.n, 0);
    assert_int_equal(s.log.n, 0);
    cache_close(&s);
}

static eider_cache_explanation *explain(struct cache_session *s, const char *text,
                                        const char *config)
{
    int64_t n = 64;
    eider_program *program;
    eider_cache_explanation *out;
    eider_tensor args[] = {tensor_of(NULL, EIDER_F32, 1, &n), tensor_of(NULL, EIDER_F32, 1, &n)};
    must(eider_program_parse(s->ctx, text, &program));
    eider_request request = {.program = program, .args = args, .n_args = 2, .config = config};
    must(eider_cache_explain(s->ctx, s->cpu, &request, &out));
    eider_program_release(program);
    return out;
}

static void a_miss_is_explained_by_the_nearest_entry(void **state)
{
    (void)state;
    struct cache_session s;
    eider_counters c;
    cache_open(&s, directory, NULL);
    eider_cache_explanation *e = explain(&s, "out = x * 2 + 5", NULL);
    assert_int_equal(e->is_hit, 0);
    assert_string_equal(e->nearest, "");
    assert_int_equal(e->n_differences, 0);
    eider_cache_explanation_release(e);
    for (int k = 0; k < 3; k++) cache_expect(&s, k, 0);

    e = explain(&s, "out = x * 2 + 1", "unroll=4");
    assert_int_equal(e->is_hit, 0);
    assert_int_equal(strlen(e->nearest), 32);
    assert_string_not_equal(e->nearest, e->key);
    assert_int_equal(e->n_differences, 1);
    assert_string_equal(e->differences[0].name, "config");
    assert_non_null(strstr(e->differences[0].wanted, "unroll=4"));
    assert_null(strstr(e->differences[0].kept, "unroll=4"));
    eider_cache_explanation_release(e);

    e = explain(&s, "out = x * 2 + 2", NULL);
    assert_int_equal(e->n_differences, 0);
    assert_int_equal(e->is_hit, 1);
    assert_string_equal(e->nearest, e->key);
    assert_non_null(strstr(e->manifest, "\nprogram: out = x * 2"));
    eider_cache_explanation_release(e);
    eider_context_counters(s.ctx, &c);
    assert_int_equal(c.compiles, 3);
    cache_close(&s);
}

/* ---- Memory ---------------------------------------------------------------------------- */

static eider_status tell(eider_context *ctx)
{
    int64_t n = 64;
    uint64_t count;
    eider_device *cpu = NULL;
    eider_program *program = NULL;
    eider_kernel *kernel = NULL;
    eider_cache_explanation *e = NULL;
    eider_cache_info info;
    eider_tensor args[] = {tensor_of(NULL, EIDER_F32, 1, &n), tensor_of(NULL, EIDER_F32, 1, &n)};
    eider_status status = eider_device_open(ctx, "cpu", &cpu);
    if (status == EIDER_OK) status = eider_program_parse(ctx, "out = x * 2 + 0", &program);
    eider_request request = {.program = program, .args = args, .n_args = 2};
    if (status == EIDER_OK) status = eider_prepare(cpu, &request, &kernel);
    request.config = "unroll=4";
    if (status == EIDER_OK) status = eider_cache_explain(ctx, cpu, &request, &e);
    if (status == EIDER_OK) status = eider_cache_describe(ctx, &info);
    if (status == EIDER_OK) status = eider_cache_export(ctx, NULL, archive, &count);
    if (status == EIDER_OK) status = eider_cache_import(ctx, archive, &count);
    if (status == EIDER_OK) status = eider_cache_prune(ctx, 1000000, 10, &count);
    eider_cache_explanation_release(e);
    eider_kernel_release(kernel);
    eider_program_release(program);
    eider_device_release(cpu);
    return status;
}

static void whichever_allocation_fails_nothing_is_lost(void **state)
{
    (void)state;
    struct counting_allocator memory = {0};
    fill(directory, 0, 2);
    for (long fail_at = 1;; fail_at++) {
        eider_context *ctx = NULL;
        memory.n_calls = 0;
        memory.fail_at = fail_at;
        eider_context_options options = {.allocator = counting_allocator(&memory),
                                         .cpu_threads = 1,
                                         .cache_dir = directory,
                                         .cache_path = other};
        eider_status status = eider_context_create(&options, &ctx);
        if (status == EIDER_OK) status = tell(ctx);
        /* An import counts what could not be written, whatever the reason. */
        if (status != EIDER_OK && status != EIDER_OOM && status != EIDER_IO)
            fail_msg("allocation %ld: %s", fail_at, eider_error());
        memory.fail_at = 0;
        eider_context_destroy(ctx);
        if (memory.n_alive) fail_msg("allocation %ld failed and blocks were lost", fail_at);
        if (memory.n_calls < fail_at) break;
    }
    struct cache_session s;
    cache_open(&s, directory, NULL);
    cache_expect(&s, 0, 1);
    assert_int_equal(s.log.n, 0);
    cache_close(&s);
    assert_int_equal(cache_temporaries(directory), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_layer_is_read_and_never_written),
        TEST(layers_come_from_the_environment_in_order),
        TEST(an_archive_is_a_layer),
        TEST(an_archive_serves_on_a_read_only_disk),
        TEST(an_archive_may_be_empty),
        TEST(an_archive_is_imported),
        TEST(an_export_replaces_nothing_but_a_file),
        TEST(a_damaged_archive_does_no_harm),
        TEST(without_an_assembler_any_assemblers_kernel_is_found),
        TEST(the_budget_of_files_is_kept_and_the_oldest_go),
        TEST(the_budget_of_bytes_is_kept),
        TEST(use_and_not_age_decides_and_is_written_once_a_day),
        TEST(nobody_waits_for_a_sweep),
        TEST(what_dead_processes_left_is_collected),
        TEST(entries_can_be_walked),
        TEST(a_miss_is_explained_by_the_nearest_entry),
        TEST(whichever_allocation_fails_nothing_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
