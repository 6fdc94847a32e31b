/* test_disk_cache.c -- kernels come back from disk as they were, and whatever lies there
 * instead of them costs one warning and a compile.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <llvm-c/Core.h>
#include <llvm-c/IRReader.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "disk_cache.h"
#include "fake_cuda.h"
#include "support_cache.h"
#include "support_runtime.h"

static char directory[CACHE_PATH_BYTES];
static struct cache_files files;

static int set_up(void **state)
{
    (void)state;
    cache_directory(directory);
    unsetenv("EIDER_CACHE_PATH");
    unsetenv("EIDER_FORCE_CACHE_UPDATE");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    cache_remove(directory);
    return 0;
}

/* Fills the directory with kernels 0 to n-1. */
static void fill(int n)
{
    struct cache_session s;
    cache_open(&s, directory, NULL);
    for (int k = 0; k < n; k++) cache_expect(&s, k, 0);
    assert_int_equal(s.log.n, 0);
    cache_close(&s);
    assert_int_equal(cache_list(directory, &files), n);
}

/* ---- Hits -------------------------------------------------------------------------- */

static void a_kernel_of_another_context_is_found_and_not_compiled(void **state)
{
    (void)state;
    struct cache_session s;
    eider_counters c;
    fill(2);
    cache_open(&s, directory, NULL);
    cache_expect(&s, 1, 1);
    cache_expect(&s, 0, 1);
    cache_expect(&s, 2, 0);
    eider_context_counters(s.ctx, &c);
    assert_int_equal(c.disk_hits, 2);
    assert_int_equal(c.disk_absent, 1);
    assert_int_equal(c.disk_writes, 1);
    assert_true(c.disk_read_bytes > 1000 && c.disk_written_bytes > 1000);
    assert_true(c.disk_ns > 0 && c.ir_ns > 0 && c.load_ns > 0);
    assert_int_equal(s.log.n, 0);
    cache_close(&s);
    assert_int_equal(cache_list(directory, &files), 3);
    assert_int_equal(cache_temporaries(directory), 0);
}

struct look {
    char key[33], manifest[4096], entry[64], config[256], numerics[64], assembler[64];
    char *stage[5];
    size_t size[5];
    int32_t registers, shared_bytes;
};

static void look_at(struct cache_session *s, const eider_request *request, struct look *out)
{
    eider_kernel *kernel;
    eider_kernel_info info;
    must(eider_compile(s->ctx, request, &kernel));
    eider_kernel_describe(kernel, &info);
    snprintf(out->key, sizeof out->key, "%s", info.key);
    snprintf(out->manifest, sizeof out->manifest, "%s", info.manifest);
    snprintf(out->entry, sizeof out->entry, "%s", info.entry);
    snprintf(out->config, sizeof out->config, "%s", info.config);
    snprintf(out->numerics, sizeof out->numerics, "%s", info.numerics);
    snprintf(out->assembler, sizeof out->assembler, "%s", info.assembler);
    out->registers = info.registers;
    out->shared_bytes = info.shared_bytes;
    for (int i = 0; i < 5; i++) {
        const void *data;
        out->stage[i] = NULL;
        if (eider_kernel_stage(kernel, (eider_stage)i, &data, &out->size[i]) != EIDER_OK) continue;
        out->stage[i] = malloc(out->size[i] + 1);
        memcpy(out->stage[i], data, out->size[i]);
    }
    eider_kernel_release(kernel);
}

/* Compiled, then found: nothing that a caller can see differs. */
static void compare_looks(eider_request request, const char *text)
{
    struct cache_session s;
    struct look made, found;
    eider_counters c;
    for (int round = 0; round < 2; round++) {
        eider_program *program = NULL;
        cache_open(&s, directory, NULL);
        if (text) must(eider_program_parse(s.ctx, text, &program));
        request.program = program;
        look_at(&s, &request, round ? &found : &made);
        eider_context_counters(s.ctx, &c);
        assert_int_equal(c.compiles, round == 0);
        assert_int_equal(c.disk_hits, round);
        eider_program_release(program);
        cache_close(&s);
    }
    assert_string_equal(made.key, found.key);
    assert_string_equal(made.manifest, found.manifest);
    assert_string_equal(made.entry, found.entry);
    assert_string_equal(made.config, found.config);
    assert_string_equal(made.numerics, found.numerics);
    assert_string_equal(made.assembler, found.assembler);
    assert_int_equal(made.registers, found.registers);
    assert_int_equal(made.shared_bytes, found.shared_bytes);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(made.stage[i] != NULL, found.stage[i] != NULL);
        if (!made.stage[i]) continue;
        assert_int_equal(made.size[i], found.size[i]);
        assert_memory_equal(made.stage[i], found.stage[i], made.size[i]);
        free(made.stage[i]);
        free(found.stage[i]);
    }
}

static void what_comes_from_disk_looks_like_what_was_compiled(void **state)
{
    (void)state;
    int64_t n = 64;
    eider_tensor args[] = {tensor_of(NULL, EIDER_BF16, 1, &n), tensor_of(NULL, EIDER_BF16, 1, &n)};
    eider_request request = {.args = args, .n_args = 2, .target = "sm_90"};
    compare_looks(request, "out = silu(x)");
    request.target = "cpu";
    compare_looks(request, "out = silu(x)");
    static const eider_operand operands[] = {{"x", EIDER_INPUT, EIDER_F32}};
    eider_source source = {.kind = EIDER_SOURCE_LL,
                           .data = "define void @k(ptr %x) {\n  store float 1.0, ptr %x\n"
                                   "  ret void\n}\n",
                           .entry = "k",
                           .n_operands = 1,
                           .operands = operands};
    compare_looks((eider_request){.source = &source, .target = "cpu"}, NULL);
}

static void force_compiles_again_and_replaces(void **state)
{
    (void)state;
    struct cache_session s;
    eider_counters c;
    struct stat before, after;
    fill(1);
    assert_int_equal(stat(files.path[0], &before), 0);
    setenv("EIDER_FORCE_CACHE_UPDATE", "1", 1);
    cache_open(&s, directory, NULL);
    cache_expect(&s, 0, 0);
    eider_context_counters(s.ctx, &c);
    assert_int_equal(c.disk_forced, 1);
    cache_close(&s);
    assert_int_equal(stat(files.path[0], &after), 0);
    assert_true(before.st_ino != after.st_ino);
    static const char *const off[] = {"0", "", "false"};
    for (int i = 0; i < 3; i++) {
        setenv("EIDER_FORCE_CACHE_UPDATE", off[i], 1);
        cache_open(&s, directory, NULL);
        cache_expect(&s, 0, 1);
        cache_close(&s);
    }
}

static void equal_kernels_are_equal_files(void **state)
{
    (void)state;
    size_t size, again;
    fill(1);
    char *first = cache_read(files.path[0], &size);
    setenv("EIDER_FORCE_CACHE_UPDATE", "1", 1);
    struct cache_session s;
    cache_open(&s, directory, NULL);
    cache_expect(&s, 0, 0);
    cache_close(&s);
    char *second = cache_read(files.path[0], &again);
    assert_int_equal(size, again);
    assert_memory_equal(first, second, size);
    free(first);
    free(second);
}

static void without_a_directory_nothing_is_written_or_said(void **state)
{
    (void)state;
    struct cache_session s;
    eider_counters c;
    cache_open(&s, "", NULL);
    cache_expect(&s, 0, 0);
    eider_context_counters(s.ctx, &c);
    assert_int_equal(c.disk_absent + c.disk_writes + (uint64_t)s.log.n, 0);
    cache_close(&s);
}

/* ---- What does not work is not kept ---------------------------------------------- */

static int is_broken;

static void *build(void *user, void *context, const char *triple, const char *config, char *reason,
                   size_t reason_size)
{
    static const char text[] = "define void @k(ptr %x) { store float 1.0, ptr %x\n ret void }";
    LLVMModuleRef module = NULL;
    char *message = NULL;
    (void)user, (void)triple, (void)config;
    if (is_broken) {
        snprintf(reason, reason_size, "not today");
        return NULL;
    }
    LLVMMemoryBufferRef buffer =
        LLVMCreateMemoryBufferWithMemoryRangeCopy(text, sizeof text - 1, "text");
    LLVMParseIRInContext(context, buffer, &module, &message);
    return module;
}

static const eider_operand one_operand[] = {{"x", EIDER_OUTPUT, EIDER_F32}};

/* Neither on disk nor in memory: asked again, it is compiled again. */
static void a_failed_compile_leaves_nothing(void **state)
{
    (void)state;
    struct cache_session s;
    eider_counters c;
    eider_kernel *kernel;
    eider_source source = {.kind = EIDER_SOURCE_CALLBACK,
                           .build = build,
                           .identity = "test-v1",
                           .entry = "k",
                           .n_operands = 1,
                           .operands = one_operand};
    eider_request request = {.source = &source};
    cache_open(&s, directory, NULL);
    for (is_broken = 2; is_broken; is_broken--) {
        assert_int_equal(eider_prepare(s.cpu, &request, &kernel), EIDER_CODEGEN);
        assert_non_null(strstr(eider_error(), "not today"));
        assert_int_equal(cache_list(directory, &files), 0);
        assert_int_equal(cache_temporaries(directory), 0);
    }
    must(eider_prepare(s.cpu, &request, &kernel));
    eider_kernel_release(kernel);
    eider_context_counters(s.ctx, &c);
    assert_int_equal(c.disk_writes, 1);
    cache_close(&s);
    is_broken = 1;
    cache_open(&s, directory, NULL);
    must(eider_prepare(s.cpu, &request, &kernel)); /* the callback is not asked */
    eider_kernel_release(kernel);
    cache_close(&s);
}

/* What an assembler made is loaded before it is kept. */
static void what_a_driver_refuses_is_not_kept(void **state)
{
    (void)state;
    const char *folder = getenv("EIDER_TEST_LIB");
    char path[4096];
    snprintf(path, sizeof path, "%s/fake/libcuda.so.1", folder ? folder : EIDER_TEST_LIB);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
    const struct fake_cuda *fake = dlsym(library, "fake_cuda");
    fake->reset();
    struct cache_session s;
    eider_device *gpu;
    eider_kernel *kernel;
    eider_counters c;
    eider_source source = {.kind = EIDER_SOURCE_PTX,
                           .data = ".version 7.8\n.target sm_80\n.address_size 64\n"
                                   ".visible .entry k(.param .u64 x) { ret; }\n",
                           .entry = "k",
                           .n_operands = 1,
                           .operands = one_operand};
    eider_request request = {.source = &source};
    cache_open(&s, directory, &(eider_context_options){.cuda_library = path});
    must(eider_device_open(s.ctx, "cuda:0", &gpu));
    fake->break_call("cuModuleLoadDataEx", 1, 218); /* CUDA_ERROR_INVALID_PTX */
    assert_int_not_equal(eider_prepare(gpu, &request, &kernel), EIDER_OK);
    assert_true(fake->has_failed());
    assert_int_equal(cache_list(directory, &files), 0);
    must(eider_prepare(gpu, &request, &kernel));
    eider_kernel_release(kernel);
    eider_context_counters(s.ctx, &c);
    assert_int_equal(c.disk_writes, cache_list(directory, &files));
    eider_device_release(gpu);
    cache_close(&s);
}

/* ---- Damage ------------------------------------------------------------------------ */

/* The entry is not used, one warning says so, and the next context finds it replaced. */
static void expect_repair(const char *what, int is_refused)
{
    struct cache_session s;
    eider_counters c;
    cache_open(&s, directory, NULL);
    cache_expect(&s, 0, 0);
    eider_context_counters(s.ctx, &c);
    if (s.log.n != 1 || c.disk_damaged != (is_refused ? 0 : 1) ||
        c.disk_refused != (is_refused ? 1 : 0))
        fail_msg("%s: %d warnings, the last: %s", what, (int)s.log.n, s.log.last);
    cache_close(&s);
    cache_open(&s, directory, NULL);
    cache_expect(&s, 0, 1);
    if (s.log.n) fail_msg("%s: after the repair: %s", what, s.log.last);
    cache_close(&s);
    assert_int_equal(cache_list(directory, &files), 1);
}

static void a_cut_entry_is_replaced(void **state)
{
    (void)state;
    size_t size;
    fill(1);
    char *good = cache_read(files.path[0], &size);
    size_t cuts[] = {0, 1, size / 2, size - 1};
    for (size_t i = 0; i < 4; i++) {
        char what[32];
        cache_write(files.path[0], good, cuts[i]);
        snprintf(what, sizeof what, "cut at %zu", cuts[i]);
        expect_repair(what, 0);
    }
    free(good);
}

static void every_flipped_bit_is_noticed(void **state)
{
    (void)state;
    struct eider_blob file;
    struct eider_disk_entry entry;
    fill(1);
    const char *name = strrchr(files.path[0], '/') + 1;
    file.data = cache_read(files.path[0], &file.size);
    assert_null(eider_disk_cache_check(&file, name, &entry));
    for (size_t at = 0; at < file.size; at++) {
        unsigned char *byte = (unsigned char *)file.data + at;
        *byte ^= (unsigned char)(1 << at % 8);
        if (!eider_disk_cache_check(&file, name, &entry)) fail_msg("byte %zu", at);
        *byte ^= (unsigned char)(1 << at % 8);
    }
    for (size_t size = 0; size < file.size; size++) {
        struct eider_blob cut = {file.data, size};
        assert_non_null(eider_disk_cache_check(&cut, name, &entry));
    }
    /* And through the whole path. */
    for (size_t at = 0; at < file.size; at += 64) {
        char *byte = (char *)file.data + at;
        *byte ^= 4;
        cache_write(files.path[0], file.data, file.size);
        *byte ^= 4;
        expect_repair("a flipped bit", 0);
    }
    free(file.data);
}

static void another_kernels_entry_under_this_name_is_not_used(void **state)
{
    (void)state;
    size_t size;
    struct cache_session s;
    fill(2);
    /* Whichever of the two kernel 0 is, it now lies under the other's name as well. */
    char *first = cache_read(files.path[0], &size);
    cache_write(files.path[1], first, size);
    free(first);
    cache_open(&s, directory, NULL);
    assert_true(cache_run(&s, 0, NULL) && cache_run(&s, 1, NULL));
    eider_counters c;
    eider_context_counters(s.ctx, &c);
    assert_int_equal(c.disk_hits, 1);
    assert_int_equal(c.disk_damaged, 1);
    assert_int_equal(s.log.n, 1);
    cache_close(&s);
}

/* Its checksum is right and its code is not: what another machine, or a bug, may write. */
static void an_entry_that_does_not_load_is_compiled_once_more(void **state)
{
    (void)state;
    struct eider_blob file, bad;
    struct eider_disk_entry entry;
    eider_allocator a = eider_memory_default((eider_allocator){0});
    fill(1);
    file.data = cache_read(files.path[0], &file.size);
    assert_null(eider_disk_entry_read(&file, &entry));
    memset(entry.section[EIDER_SECTION_CODE].data, 'x', entry.section[EIDER_SECTION_CODE].size);
    must(eider_disk_entry_write(&a, &entry, &bad));
    cache_write(files.path[0], bad.data, bad.size);
    eider_blob_release(&a, &bad);
    free(file.data);
    expect_repair("code that does not load", 1);
}

/* ---- Places that cannot be used ------------------------------------------------------ */

/* Compiles, is right, and says one thing, which contains `why`. */
static void expect_memory_only(const char *place, const char *why)
{
    struct cache_session s;
    cache_open(&s, place, NULL);
    cache_expect(&s, 0, 0);
    cache_expect(&s, 1, 0);
    if (s.log.n != 1 || !strstr(s.log.last, why))
        fail_msg("%d warnings, the last: %s", (int)s.log.n, s.log.last);
    cache_close(&s);
}

static void a_directory_that_others_may_write_is_refused(void **state)
{
    (void)state;
    fill(2);
    assert_int_equal(chmod(directory, 0770), 0);
    expect_memory_only(directory, "others may write");
    assert_int_equal(chmod(directory, 0702), 0);
    expect_memory_only(directory, "others may write");
    assert_int_equal(chmod(directory, 0755), 0);
    struct cache_session s;
    cache_open(&s, directory, NULL);
    cache_expect(&s, 0, 1);
    cache_close(&s);
}

static void a_directory_of_someone_else_is_refused(void **state)
{
    (void)state;
    char link[CACHE_PATH_BYTES + 16];
    if (getuid() != 0) {
        fprintf(stderr, "SKIPPED (not root): directories of others\n");
        skip();
    }
    fill(2);
    assert_int_equal(chown(directory, 65534, 65534), 0);
    expect_memory_only(directory, "someone else");
    assert_int_equal(chown(directory, 0, 0), 0);
    snprintf(link, sizeof link, "%s.link", directory);
    assert_int_equal(symlink(directory, link), 0);
    struct cache_session s;
    cache_open(&s, link, NULL); /* one's own link is welcome */
    cache_expect(&s, 0, 1);
    cache_close(&s);
    assert_int_equal(lchown(link, 65534, 65534), 0);
    expect_memory_only(link, "link that belongs to someone else");
    unlink(link);
}

static void an_entry_that_is_a_link_is_not_followed(void **state)
{
    (void)state;
    char elsewhere[CACHE_PATH_BYTES + 16];
    struct cache_session s;
    fill(1);
    snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", directory);
    assert_int_equal(rename(files.path[0], elsewhere), 0);
    assert_int_equal(symlink(elsewhere, files.path[0]), 0);
    cache_open(&s, directory, NULL);
    cache_expect(&s, 0, 0);
    assert_int_equal(s.log.n, 1);
    cache_close(&s);
    cache_open(&s, directory, NULL); /* it was replaced, and its target was not touched */
    cache_expect(&s, 0, 1);
    cache_close(&s);
    assert_int_equal(access(elsewhere, R_OK), 0);
}

static void a_file_where_the_directory_should_be_is_left_alone(void **state)
{
    (void)state;
    char place[CACHE_PATH_BYTES + 16], below[CACHE_PATH_BYTES + 32];
    snprintf(place, sizeof place, "%s/file", directory);
    snprintf(below, sizeof below, "%s/deeper", place);
    cache_write(place, "hello", 5);
    expect_memory_only(place, "it is a file");
    expect_memory_only(below, "");
    size_t size;
    char *text = cache_read(place, &size);
    assert_string_equal(text, "hello");
    free(text);
}

static void no_home_is_one_warning(void **state)
{
    (void)state;
    static const char *const variables[] = {"EIDER_CACHE_DIR", "EIDER_HOME", "XDG_CACHE_HOME",
                                            "HOME"};
    char *kept[4];
    for (int i = 0; i < 4; i++) {
        const char *value = getenv(variables[i]);
        kept[i] = value ? strdup(value) : NULL;
        unsetenv(variables[i]);
    }
    expect_memory_only(NULL, "HOME");
    for (int i = 0; i < 4; i++) {
        if (kept[i]) setenv(variables[i], kept[i], 1);
        free(kept[i]);
    }
}

/* As a user without rights, in a process of its own. */
static void as_nobody(void (*body)(void))
{
    if (getuid() != 0) {
        body();
        return;
    }
    pid_t child = fork();
    if (child == 0) {
        if (setgid(65534) != 0 || setuid(65534) != 0) _exit(3);
        body();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void read_but_do_not_write(void)
{
    struct cache_session s;
    cache_open(&s, directory, NULL);
    int ok = cache_run(&s, 0, NULL) && cache_run(&s, 1, NULL) && cache_run(&s, 2, NULL);
    eider_counters c;
    eider_context_counters(s.ctx, &c);
    if (!ok || c.disk_hits != 1 || c.compiles != 2 || s.log.n != 1 ||
        !strstr(s.log.last, "nothing more is kept"))
        _exit(1);
    cache_close(&s);
}

static void a_directory_without_permission_is_still_read(void **state)
{
    (void)state;
    fill(1);
    for (char *at = strrchr(files.path[0], '/'); at; at = NULL) {
        char shard[CACHE_PATH_BYTES], temporary[CACHE_PATH_BYTES + 16];
        snprintf(shard, sizeof shard, "%.*s", (int)(at - files.path[0]), files.path[0]);
        snprintf(temporary, sizeof temporary, "%s/tmp", directory);
        assert_int_equal(chmod(files.path[0], 0444), 0);
        assert_int_equal(chmod(shard, 0555), 0);
        assert_int_equal(chmod(temporary, 0555), 0);
        assert_int_equal(chmod(directory, 0555), 0);
        as_nobody(read_but_do_not_write);
        chmod(directory, 0755);
        chmod(shard, 0755);
        chmod(temporary, 0755);
    }
    assert_int_equal(cache_list(directory, &files), 1);
}

static void nothing_there_and_nothing_may_be_made(void)
{
    char place[CACHE_PATH_BYTES + 16];
    struct cache_session s;
    snprintf(place, sizeof place, "%s/a/b", directory);
    cache_open(&s, place, NULL);
    if (!cache_run(&s, 0, NULL) || !cache_run(&s, 1, NULL) || s.log.n != 1) _exit(1);
    cache_close(&s);
}

static void a_directory_that_cannot_be_made_is_one_warning(void **state)
{
    (void)state;
    assert_int_equal(chmod(directory, 0555), 0);
    as_nobody(nothing_there_and_nothing_may_be_made);
    chmod(directory, 0755);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_kernel_of_another_context_is_found_and_not_compiled),
        TEST(what_comes_from_disk_looks_like_what_was_compiled),
        TEST(force_compiles_again_and_replaces),
        TEST(equal_kernels_are_equal_files),
        TEST(without_a_directory_nothing_is_written_or_said),
        TEST(a_failed_compile_leaves_nothing),
        TEST(what_a_driver_refuses_is_not_kept),
        TEST(a_cut_entry_is_replaced),
        TEST(every_flipped_bit_is_noticed),
        TEST(another_kernels_entry_under_this_name_is_not_used),
        TEST(an_entry_that_does_not_load_is_compiled_once_more),
        TEST(a_directory_that_others_may_write_is_refused),
        TEST(a_directory_of_someone_else_is_refused),
        TEST(an_entry_that_is_a_link_is_not_followed),
        TEST(a_file_where_the_directory_should_be_is_left_alone),
        TEST(no_home_is_one_warning),
        TEST(a_directory_without_permission_is_still_read),
        TEST(a_directory_that_cannot_be_made_is_one_warning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
