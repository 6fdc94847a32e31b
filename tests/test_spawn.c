/* test_spawn.c -- tools run apart from this process and never outlive their deadline.
 *
 * labels: tsan
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support_ll.h"

#define DEADLINE_MS 20000
#define MIB ((size_t)1 << 20)

static eider_status run(const char *script, const struct eider_blob *input, int deadline_ms,
                        struct eider_text *output, int *code)
{
    const char *const argv[] = {"/bin/sh", "-c", script, NULL};
    return eider_spawn(&ll_allocator, argv, input, deadline_ms, output, code);
}

/* Runs and compares what the script printed. */
static void expect(const char *script, const char *want, int want_code)
{
    struct eider_text output;
    int code = -7;
    if (run(script, NULL, DEADLINE_MS, &output, &code) != EIDER_OK) fail_msg("%s", eider_error());
    assert_string_equal(output.data ? output.data : "", want);
    assert_int_equal(code, want_code);
    eider_text_release(&output);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void output_and_exit_codes_come_back(void **state)
{
    (void)state;
    expect("echo out; echo err >&2; exit 3", "out\nerr\n", 3);
    expect("exit 0", "", 0);
    expect("kill -9 $$", "", 128 + 9);
    expect("cat", "", 0); /* no input is an empty one */
}

static void a_program_that_is_not_there_is_named(void **state)
{
    (void)state;
    const char *const argv[] = {"/no/such/program", NULL};
    struct eider_text output;
    int code;
    assert_int_equal(eider_spawn(&ll_allocator, argv, NULL, 1000, &output, &code), EIDER_IO);
    assert_non_null(strstr(eider_error(), "/no/such/program could not be started: No such file"));
}

static void the_environment_is_clean(void **state)
{
    (void)state;
    setenv("EIDER_TEST_SECRET", "1", 1);
    setenv("LD_LIBRARY_PATH_FOR_TEST", "1", 1);
    setenv("LC_ALL", "de_DE.UTF-8", 1);
    expect("env | cut -d= -f1 | grep -v -e PATH -e HOME -e TMPDIR -e PWD -e SHLVL -e _", "LANG\n",
           0);
    unsetenv("EIDER_TEST_SECRET");
    unsetenv("LD_LIBRARY_PATH_FOR_TEST");
    unsetenv("LC_ALL");
}

static void large_input_arrives_and_unread_input_is_no_signal(void **state)
{
    (void)state;
    struct eider_blob input = {malloc(5 * MIB), 5 * MIB};
    assert_non_null(input.data);
    memset(input.data, 'x', input.size);
    struct eider_text output;
    int code;
    assert_int_equal(run("wc -c", &input, DEADLINE_MS, &output, &code), EIDER_OK);
    assert_int_equal(strtol(output.data, NULL, 10), 5 * MIB);
    eider_text_release(&output);
    assert_int_equal(run("true", &input, DEADLINE_MS, &output, &code), EIDER_OK);
    assert_int_equal(code, 0);
    eider_text_release(&output);
    assert_int_equal(run("wc -c < /dev/stdin", &input, DEADLINE_MS, &output, &code), EIDER_OK);
    assert_int_equal(strtol(output.data, NULL, 10), 5 * MIB);
    eider_text_release(&output);
    free(input.data);
}

static void output_is_cut_but_read_to_its_end(void **state)
{
    (void)state;
    struct eider_text output;
    int code;
    assert_int_equal(run("yes | head -c 3000000; exit 5", NULL, DEADLINE_MS, &output, &code),
                     EIDER_OK);
    assert_int_equal(code, 5);
    assert_int_equal(output.size, MIB);
    eider_text_release(&output);
}

static void the_deadline_ends_the_whole_family(void **state)
{
    (void)state;
    struct eider_text output;
    int code;
    double start = now();
    /* The child waits for its own child, whose number the message quotes. */
    assert_int_equal(run("sleep 1000 & echo $!; wait", NULL, 300, &output, &code), EIDER_TIMEOUT);
    assert_true(now() - start < 10);
    assert_non_null(strstr(eider_error(), "/bin/sh ran longer than 300 ms and was killed"));
    const char *words = strstr(eider_error(), "last words: ");
    assert_non_null(words);
    long grandchild = strtol(words + strlen("last words: "), NULL, 10);
    assert_true(grandchild > 1);
    int is_gone = 0;
    for (int i = 0; i < 200 && !is_gone; i++) {
        char path[64], line[256] = "";
        snprintf(path, sizeof path, "/proc/%ld/stat", grandchild);
        FILE *file = fopen(path, "r");
        is_gone = !file || !fgets(line, sizeof line, file) || strstr(line, ") Z") != NULL;
        if (file) fclose(file);
        if (!is_gone) usleep(10000);
    }
    assert_true(is_gone);
}

/* A daemon that keeps the pipe open does not keep us. */
static void a_grandchild_that_lives_on_does_not_hold_us(void **state)
{
    (void)state;
    double start = now();
    expect("sleep 15 & echo done", "done\n", 0);
    assert_true(now() - start < 10);
}

static void no_descriptor_and_no_zombie_is_left(void **state)
{
    (void)state;
    int before = dup(0);
    close(before);
    struct eider_text output;
    int code;
    expect("echo x", "x\n", 0);
    assert_int_equal(run("sleep 100", NULL, 50, &output, &code), EIDER_TIMEOUT);
    int after = dup(0);
    close(after);
    assert_int_equal(before, after);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

static void the_child_has_only_three_descriptors(void **state)
{
    (void)state;
    int extra = dup2(1, 77); /* inherited by a plain fork and exec */
    assert_int_equal(extra, 77);
    expect("for f in 0 1 2 3 4 5 77; do [ -e /proc/$$/fd/$f ] && echo $f; done; true", "0\n1\n2\n",
           0);
    close(extra);
}

/* Runs `test` in a child of ours, whose descriptors and signals it may spoil. */
static void in_a_fork(int (*test)(void))
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) _exit(test());
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int with_standard_descriptors_closed(void)
{
    struct eider_text output;
    struct eider_blob input = {(void *)(uintptr_t) "hello", 5};
    int code = -7;
    close(0);
    close(1);
    close(2);
    if (run("cat; echo err >&2", &input, DEADLINE_MS, &output, &code) != EIDER_OK) return 1;
    int is_wrong = code != 0 || strcmp(output.data, "helloerr\n") != 0;
    eider_text_release(&output);
    return is_wrong;
}

static int with_children_ignored(void)
{
    struct eider_text output;
    int code = -7;
    signal(SIGCHLD, SIG_IGN);
    if (run("echo x; exit 4", NULL, DEADLINE_MS, &output, &code) != EIDER_OK) return 1;
    int is_wrong = (code != -1 && code != 4) || strcmp(output.data, "x\n") != 0;
    eider_text_release(&output);
    return is_wrong;
}

static int with_signals_blocked(void)
{
    struct eider_text output;
    int code = -7;
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    signal(SIGTERM, SIG_IGN);
    if (run("kill -TERM $$; sleep 1", NULL, DEADLINE_MS, &output, &code) != EIDER_OK) return 1;
    eider_text_release(&output);
    return code != 128 + SIGTERM;
}

static void closed_descriptors_and_odd_signals_do_not_matter(void **state)
{
    (void)state;
    in_a_fork(with_standard_descriptors_closed);
    in_a_fork(with_children_ignored);
    in_a_fork(with_signals_blocked);
}

#define N_THREADS 12

static void *run_many(void *arg)
{
    int *n_wrong = arg;
    for (int i = 0; i < 4; i++) {
        struct eider_text output;
        char script[32], want[16];
        int code = -7;
        snprintf(script, sizeof script, "echo %d; exit %d", i, i);
        snprintf(want, sizeof want, "%d\n", i);
        if (run(script, NULL, DEADLINE_MS, &output, &code) != EIDER_OK) {
            ++*n_wrong;
            continue;
        }
        *n_wrong += code != i || strcmp(output.data, want) != 0;
        eider_text_release(&output);
    }
    return NULL;
}

static void threads_run_tools_at_once(void **state)
{
    (void)state;
    pthread_t threads[N_THREADS];
    int n_wrong[N_THREADS] = {0};
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_many, &n_wrong[i]), 0);
    for (int i = 0; i < N_THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < N_THREADS; i++) assert_int_equal(n_wrong[i], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(output_and_exit_codes_come_back),
        cmocka_unit_test(a_program_that_is_not_there_is_named),
        cmocka_unit_test(the_environment_is_clean),
        cmocka_unit_test(large_input_arrives_and_unread_input_is_no_signal),
        cmocka_unit_test(output_is_cut_but_read_to_its_end),
        cmocka_unit_test(the_deadline_ends_the_whole_family),
        cmocka_unit_test(a_grandchild_that_lives_on_does_not_hold_us),
        cmocka_unit_test(no_descriptor_and_no_zombie_is_left),
        cmocka_unit_test(the_child_has_only_three_descriptors),
        cmocka_unit_test(closed_descriptors_and_odd_signals_do_not_matter),
        cmocka_unit_test(threads_run_tools_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
