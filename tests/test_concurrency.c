/* test_concurrency.c -- one context, many threads: one compile per kernel, right results.
 *
 * labels: tsan
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_pool.h"
#include "support_runtime.h"

#define N_THREADS 24
#define N_KERNELS 64
#define N_VALUES 1000

static eider_context *ctx;
static eider_device *cpu;
static pthread_barrier_t start;
static atomic_int n_wrong;

/* cmocka's assertions are for the main thread. */
static void expect(int is_right, const char *what)
{
    if (is_right) return;
    n_wrong++;
    fprintf(stderr, "%s: %s\n", what, eider_error());
}

static void run_all(void *(*body)(void *))
{
    pthread_t threads[N_THREADS];
    n_wrong = 0;
    pthread_barrier_init(&start, NULL, N_THREADS);
    for (uintptr_t i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, body, (void *)i), 0);
    for (int i = 0; i < N_THREADS; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&start);
    assert_int_equal(n_wrong, 0);
}

static int set_up(void **state)
{
    (void)state;
    eider_context_options options = {.cpu_threads = 4, .cuda_library = "/nowhere"};
    must(eider_context_create(&options, &ctx));
    must(eider_device_open(ctx, "cpu", &cpu));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    eider_device_release(cpu);
    eider_context_destroy(ctx);
    return 0;
}

/* ---- The storm --------------------------------------------------------- */

/* Kernel k adds k; each thread begins elsewhere, so that some wait and some build. */
static void *prepare_and_launch_all(void *arg)
{
    uintptr_t me = (uintptr_t)arg;
    int64_t n = N_VALUES;
    float *x = malloc(2 * N_VALUES * sizeof *x), *out = x + N_VALUES;
    eider_tensor args[] = {tensor_of(x, EIDER_F32, 1, &n), tensor_of(out, EIDER_F32, 1, &n)};
    for (int i = 0; i < N_VALUES; i++) x[i] = (float)i;
    pthread_barrier_wait(&start);
    for (uintptr_t i = 0; i < N_KERNELS; i++) {
        char text[64];
        uintptr_t k = (i + 5 * (me / 2)) % N_KERNELS;
        eider_program *program = NULL;
        eider_kernel *kernel = NULL;
        snprintf(text, sizeof text, "out = x + %d", (int)k);
        expect(eider_program_parse(ctx, text, &program) == EIDER_OK, "parse");
        eider_request request = {.program = program, .args = args, .n_args = 2};
        expect(eider_prepare(cpu, &request, &kernel) == EIDER_OK, "prepare");
        expect(eider_launch(kernel, NULL, args, 2) == EIDER_OK, "launch");
        expect(out[N_VALUES - 1] == (float)(N_VALUES - 1 + k) && out[0] == (float)k, "value");
        eider_kernel_release(kernel);
        eider_program_release(program);
    }
    free(x);
    return NULL;
}

static void threads_that_want_the_same_kernels_compile_each_once(void **state)
{
    (void)state;
    eider_counters counters;
    run_all(prepare_and_launch_all);
    eider_context_counters(ctx, &counters);
    assert_int_equal(counters.compiles, N_KERNELS);
    assert_int_equal(counters.memory_hits + counters.waits, (N_THREADS - 1) * N_KERNELS);
    assert_int_equal(counters.launches, N_THREADS * N_KERNELS);
}

static void *fail_to_prepare(void *arg)
{
    (void)arg;
    int64_t n = N_VALUES;
    eider_tensor x = tensor_of(NULL, EIDER_F32, 1, &n);
    eider_operand operand = {"x", EIDER_INPUT, EIDER_F32};
    eider_source source = {.kind = EIDER_SOURCE_LL,
                           .data = "this is no IR",
                           .entry = "k",
                           .n_operands = 1,
                           .operands = &operand};
    eider_request request = {.source = &source, .args = &x, .n_args = 1};
    eider_kernel *kernel = NULL;
    pthread_barrier_wait(&start);
    eider_status status = eider_prepare(cpu, &request, &kernel);
    expect(status != EIDER_OK && strstr(eider_error(), "expected") != NULL, "the error");
    return NULL;
}

static void everyone_gets_the_error_of_a_failed_compile(void **state)
{
    (void)state;
    eider_counters counters;
    run_all(fail_to_prepare);
    eider_context_counters(ctx, &counters);
    assert_int_equal(counters.compiles, 0);
    assert_int_equal(counters.memory_hits, 0);
}

static eider_kernel *shared_kernel;

static void *look_at_stages(void *arg)
{
    static const eider_stage stages[] = {EIDER_STAGE_IR, EIDER_STAGE_OPT, EIDER_STAGE_PTX,
                                         EIDER_STAGE_PROGRAM};
    pthread_barrier_wait(&start);
    for (uintptr_t i = 0; i < 4; i++) {
        const void *text = NULL;
        size_t size = 0;
        eider_stage stage = stages[(i + (uintptr_t)arg) % 4];
        expect(eider_kernel_stage(shared_kernel, stage, &text, &size) == EIDER_OK, "stage");
        expect(text && size == strlen(text) && size > 5, "text");
    }
    return NULL;
}

static void stages_are_made_once_for_all_threads(void **state)
{
    (void)state;
    int64_t n = N_VALUES;
    eider_program *program;
    eider_tensor args[] = {tensor_of(NULL, EIDER_F32, 1, &n), tensor_of(NULL, EIDER_F32, 1, &n)};
    must(eider_program_parse(ctx, "out = 2 * x", &program));
    eider_request request = {.program = program, .args = args, .n_args = 2};
    must(eider_prepare(cpu, &request, &shared_kernel));
    run_all(look_at_stages);
    eider_kernel_release(shared_kernel);
    eider_program_release(program);
}

/* ---- The pool ---------------------------------------------------------- */

static struct eider_cpu_pool *pool;

static void add_one(void *arg, size_t i)
{
    atomic_int *counts = arg;
    atomic_fetch_add(&counts[i], 1);
}

static void *run_jobs(void *arg)
{
    (void)arg;
    static _Thread_local atomic_int counts[200];
    pthread_barrier_wait(&start);
    for (int round = 1; round <= 50; round++) {
        eider_cpu_pool_run(pool, 200, add_one, counts);
        for (int i = 0; i < 200; i++) expect(counts[i] == round, "every index once");
    }
    return NULL;
}

static void the_pool_runs_every_index_once_for_many_callers(void **state)
{
    (void)state;
    eider_allocator a = eider_memory_default((eider_allocator){0});
    must(eider_cpu_pool_create(&a, 4, &pool));
    run_all(run_jobs);
    eider_cpu_pool_destroy(pool, 0);
}

static void run_inner(void *arg, size_t i)
{
    (void)i;
    eider_cpu_pool_run(pool, 10, add_one, arg);
}

static void a_job_may_run_jobs_of_its_own(void **state)
{
    (void)state;
    eider_allocator a = eider_memory_default((eider_allocator){0});
    atomic_int counts[10] = {0};
    must(eider_cpu_pool_create(&a, 3, &pool));
    eider_cpu_pool_run(pool, 20, run_inner, counts);
    for (int i = 0; i < 10; i++) assert_int_equal(counts[i], 20);
    eider_cpu_pool_destroy(pool, 0);
    must(eider_cpu_pool_create(&a, 1, &pool));
    eider_cpu_pool_run(pool, 10, add_one, counts);
    assert_int_equal(counts[9], 21);
    eider_cpu_pool_destroy(pool, 0);
    assert_true(eider_cpu_pool_cores() >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(threads_that_want_the_same_kernels_compile_each_once,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(everyone_gets_the_error_of_a_failed_compile, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(stages_are_made_once_for_all_threads, set_up, tear_down),
        cmocka_unit_test(the_pool_runs_every_index_once_for_many_callers),
        cmocka_unit_test(a_job_may_run_jobs_of_its_own),
    };
    return cmocka_run_group_tests_name("concurrency", tests, NULL, NULL);
}
