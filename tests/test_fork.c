/* test_fork.c -- forks and process exit: a child is told, and nothing runs at the end.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support_runtime.h"

#define N 200000

static float x[N], out[N];
static eider_context *ctx;
static eider_device *cpu;
static eider_program *program;
static eider_kernel *kernel;
static int64_t n = N;
static eider_tensor args[2];
static eider_request request;

/* What the child prints on stderr; its status is what `body` returns. */
struct child {
    int status, signal;
    char said[4096];
};

/* 10 s without an answer is a hang. */
#define CHILD_SECONDS 10

static struct child run_child(int (*body)(void), int leave_by_exit)
{
    struct child child = {0};
    int ends[2], status;
    fflush(NULL);
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(CHILD_SECONDS);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        status = body();
        if (leave_by_exit) exit(status);
        _exit(status);
    }
    close(ends[1]);
    size_t size = 0;
    ssize_t got;
    while (size < sizeof child.said - 1 &&
           (got = read(ends[0], child.said + size, sizeof child.said - 1 - size)) > 0)
        size += (size_t)got;
    close(ends[0]);
    waitpid(pid, &status, 0);
    child.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    child.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return child;
}

static void check_child(struct child child)
{
    if (child.status != 0 || child.said[0])
        fail_msg("the child ended with %d (signal %d) and said: %s", child.status, child.signal,
                 child.said);
}

#define REQUIRE(condition)                                                             \
    do {                                                                               \
        if (!(condition)) {                                                            \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, eider_error()); \
            return 1;                                                                  \
        }                                                                              \
    } while (0)

static int create_all(void)
{
    eider_context_options options = {.cpu_threads = 4, .cuda_library = "/nowhere"};
    REQUIRE(eider_context_create(&options, &ctx) == EIDER_OK);
    REQUIRE(eider_device_open(ctx, "cpu", &cpu) == EIDER_OK);
    REQUIRE(eider_program_parse(ctx, "out = 2 * x", &program) == EIDER_OK);
    args[0] = tensor_of(x, EIDER_F32, 1, &n);
    args[1] = tensor_of(out, EIDER_F32, 1, &n);
    request = (eider_request){.program = program, .args = args, .n_args = 2};
    REQUIRE(eider_prepare(cpu, &request, &kernel) == EIDER_OK);
    REQUIRE(eider_launch(kernel, NULL, args, 2) == EIDER_OK);
    return 0;
}

static void destroy_all(void)
{
    eider_kernel_release(kernel);
    eider_program_release(program);
    eider_device_release(cpu);
    eider_context_destroy(ctx);
}

static int use_what_the_parent_made(void)
{
    eider_device *device = NULL;
    eider_kernel *other = NULL;
    void *memory = NULL;
    int32_t count;
    REQUIRE(eider_launch(kernel, NULL, args, 2) == EIDER_FORKED);
    REQUIRE(strstr(eider_error(), "forked"));
    REQUIRE(eider_prepare(cpu, &request, &other) == EIDER_FORKED);
    REQUIRE(eider_device_open(ctx, "cpu", &device) == EIDER_FORKED);
    REQUIRE(eider_device_count(ctx, "cuda", &count) == EIDER_FORKED);
    REQUIRE(eider_memory_alloc(cpu, 1, &memory) == EIDER_FORKED);
    destroy_all();
    return 0;
}

static int make_a_context_of_its_own(void)
{
    if (create_all()) return 1;
    REQUIRE(out[7] == 2 * x[7]);
    destroy_all();
    return 0;
}

static void a_fork_is_told_and_may_begin_anew(void **state)
{
    (void)state;
    for (int i = 0; i < N; i++) x[i] = (float)i;
    assert_int_equal(create_all(), 0);
    check_child(run_child(use_what_the_parent_made, 0));
    check_child(run_child(make_a_context_of_its_own, 0));
    must(eider_launch(kernel, NULL, args, 2));
    destroy_all();
}

static int return_without_destroying(void)
{
    return create_all();
}

static void leaving_without_destroying_is_silent(void **state)
{
    (void)state;
    check_child(run_child(return_without_destroying, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaving_without_destroying_is_silent),
        cmocka_unit_test(a_fork_is_told_and_may_begin_anew),
    };
    return cmocka_run_group_tests_name("fork", tests, NULL, NULL);
}
