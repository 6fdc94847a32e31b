/* test_disk.c -- files appear whole or not at all, under names that nobody else has. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "disk.h"
#include "support_cache.h"

static char folder[CACHE_PATH_BYTES], path[CACHE_PATH_BYTES + 16];
static struct eider_disk_error error;

static int set_up(void **state)
{
    (void)state;
    cache_directory(folder);
    snprintf(path, sizeof path, "%s/file", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    cache_remove(folder);
    return 0;
}

static eider_status read_file(struct eider_blob *out)
{
    eider_allocator a = eider_memory_default((eider_allocator){0});
    return eider_disk_read(&a, path, 1 << 20, out, &error);
}

static void a_file_appears_whole_with_mode_600(void **state)
{
    (void)state;
    struct eider_disk_draft draft;
    struct stat st;
    assert_true(eider_disk_draft(folder, &draft, &error));
    assert_true(eider_disk_draft_add(&draft, "hello ", 6, &error));
    assert_int_equal(access(path, F_OK), -1);
    assert_true(eider_disk_draft_add(&draft, "world", 5, &error));
    assert_true(eider_disk_draft_publish(&draft, path, &error));
    assert_int_equal(access(draft.name, F_OK), -1);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    struct eider_blob blob;
    eider_allocator a = eider_memory_default((eider_allocator){0});
    assert_int_equal(read_file(&blob), EIDER_OK);
    assert_int_equal(blob.size, 11);
    assert_memory_equal(blob.data, "hello world", 12);
    eider_blob_release(&a, &blob);
}

static void what_is_discarded_or_cannot_be_published_leaves_nothing(void **state)
{
    (void)state;
    struct eider_disk_draft draft;
    assert_true(eider_disk_draft(folder, &draft, &error));
    eider_disk_draft_discard(&draft);
    assert_int_equal(access(draft.name, F_OK), -1);
    snprintf(path, sizeof path, "%s/no/file", folder);
    assert_false(eider_disk_publish(folder, path, "x", 1, &error));
    assert_int_equal(error.code, ENOENT);
    assert_non_null(strstr(error.why, "rename"));
    assert_int_equal(rmdir(folder), 0); /* it is empty */
    assert_int_equal(mkdir(folder, 0700), 0);
}

enum { N_THREADS = 4, N_DRAFTS = 64 };
static struct eider_disk_draft drafts[N_THREADS * N_DRAFTS];

static void *draft_many(void *arg)
{
    struct eider_disk_draft *mine = arg;
    struct eider_disk_error own;
    for (int i = 0; i < N_DRAFTS; i++)
        if (!eider_disk_draft(folder, &mine[i], &own)) return arg;
    return NULL;
}

/* The name of a draft has its host and process, so that those of the dead are known, and
 * 128 random bits. */
static void no_two_drafts_have_one_name(void **state)
{
    (void)state;
    pthread_t threads[N_THREADS];
    for (int i = 0; i < N_THREADS; i++)
        pthread_create(&threads[i], NULL, draft_many, drafts + N_DRAFTS * i);
    for (int i = 0; i < N_THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    char process[32];
    snprintf(process, sizeof process, "-%x-", (unsigned)getpid());
    for (int i = 0; i < N_THREADS * N_DRAFTS; i++) {
        const char *random = strstr(drafts[i].name, process);
        assert_non_null(random);
        random += strlen(process);
        assert_int_equal(strlen(random), 32);
        for (int j = 0; j < i; j++) assert_string_not_equal(drafts[i].name, drafts[j].name);
    }
    for (int i = 0; i < N_THREADS * N_DRAFTS; i++) eider_disk_draft_discard(&drafts[i]);
}

static void folders_are_made_with_those_above_them(void **state)
{
    (void)state;
    static const char *const steps[] = {"a", "a/b", "a/b/c"};
    struct stat st;
    snprintf(path, sizeof path, "%s/a/b/c", folder);
    mode_t before = umask(0);
    int made = eider_disk_make(path, &error) && eider_disk_make(path, &error);
    umask(before);
    assert_true(made);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, steps[i]);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0700);
    }
}

static void only_ones_own_regular_files_are_read(void **state)
{
    (void)state;
    char target[CACHE_PATH_BYTES + 16];
    struct eider_blob blob;
    assert_int_equal(read_file(&blob), EIDER_IO);
    assert_int_equal(error.code, ENOENT);
    assert_int_equal(mkfifo(path, 0600), 0); /* nobody waits for its other end */
    assert_int_equal(read_file(&blob), EIDER_IO);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(read_file(&blob), EIDER_IO);
    assert_int_equal(rmdir(path), 0);
    snprintf(target, sizeof target, "%s/target", folder);
    cache_write(target, "x", 1);
    assert_int_equal(symlink(target, path), 0);
    assert_int_equal(read_file(&blob), EIDER_IO);
    assert_int_equal(error.code, ELOOP);
    assert_int_equal(unlink(path), 0);
    cache_write(path, "x", 1);
    assert_int_equal(chmod(path, 0620), 0);
    assert_int_equal(read_file(&blob), EIDER_IO);
    assert_non_null(strstr(error.why, "only this user may write"));
}

/* In a child: what a write beyond the limit leaves, when the signal is blocked or not. */
static void write_too_much(int is_blocked)
{
    static const char data[100];
    struct rlimit limit = {10, 10};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    if (is_blocked) {
        sigprocmask(SIG_BLOCK, &set, NULL);
        raise(SIGXFSZ); /* the host's own */
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(1);
    errno = 0;
    if (eider_disk_write(fd, data, sizeof data) || errno != EFBIG) _exit(2);
    if (!eider_disk_write(fd, data, 0)) _exit(3);
    sigset_t pending, mask;
    sigpending(&pending);
    sigprocmask(SIG_BLOCK, NULL, &mask);
    if (sigismember(&pending, SIGXFSZ) != is_blocked) _exit(4);
    if (sigismember(&mask, SIGXFSZ) != is_blocked) _exit(5);
    _exit(0);
}

static void a_limit_on_files_is_an_error_and_leaves_signals_alone(void **state)
{
    (void)state;
    for (int is_blocked = 0; is_blocked < 2; is_blocked++) {
        int status;
        pid_t child = fork();
        if (child == 0) write_too_much(is_blocked);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_file_appears_whole_with_mode_600),
        TEST(what_is_discarded_or_cannot_be_published_leaves_nothing),
        TEST(no_two_drafts_have_one_name),
        TEST(folders_are_made_with_those_above_them),
        TEST(only_ones_own_regular_files_are_read),
        TEST(a_limit_on_files_is_an_error_and_leaves_signals_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
