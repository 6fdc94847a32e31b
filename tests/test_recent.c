/* test_recent.c -- requests that were answered before get the same kernel without planning;
 * any that differs is planned.
 *
 * labels: tsan
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel.h"
#include "recent.h"
#include "support_cache.h"
#include "support_runtime.h"

static eider_context *ctx;
static eider_device *cpu;
static _Alignas(64) char memory[4096];

static int set_up(void **state)
{
    (void)state;
    eider_context_options options = {.cpu_threads = 1, .cache_dir = ""};
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

struct ask {
    eider_tensor args[2];
    eider_request request;
    int64_t shape[2], strides[2];
};

static void begin(struct ask *ask, const eider_program *program)
{
    memset(ask, 0, sizeof *ask);
    ask->shape[0] = ask->shape[1] = 8;
    ask->strides[0] = 8;
    ask->strides[1] = 1;
    for (int i = 0; i < 2; i++)
        ask->args[i] = (eider_tensor){
            .data = memory + 2048 * i, .type = EIDER_F32, .rank = 2, .shape = ask->shape};
    ask->request = (eider_request){.program = program, .args = ask->args, .n_args = 2};
}

/* Whether the request is answered at once; it is answered, and remembered, in any case. */
static int is_recent(const struct ask *ask)
{
    struct eider_recent_key key;
    eider_kernel *kernel;
    struct eider_kernel *found = eider_recent_find(ctx->recent, cpu, &ask->request, &key);
    must(eider_prepare(cpu, &ask->request, &kernel));
    if (found) assert_ptr_equal(found, kernel);
    eider_kernel_release(found);
    eider_kernel_release(kernel);
    return found != NULL;
}

static void a_repeated_request_is_answered_at_once(void **state)
{
    (void)state;
    struct ask ask;
    eider_program *program;
    eider_counters before, after;
    must(eider_program_parse(ctx, "out = x + 1", &program));
    begin(&ask, program);
    assert_false(is_recent(&ask));
    eider_context_counters(ctx, &before);
    assert_true(is_recent(&ask));
    eider_context_counters(ctx, &after);
    assert_int_equal(after.memory_hits - before.memory_hits, 1);
    assert_int_equal(after.compiles, before.compiles);
    ask.args[0].data = memory + 64; /* aligned alike */
    assert_true(is_recent(&ask));
    eider_program_release(program);
}

static void whatever_planning_reads_makes_another_request(void **state)
{
    (void)state;
    struct ask ask;
    eider_program *program, *same;
    must(eider_program_parse(ctx, "out = x + 2", &program));
    must(eider_program_parse(ctx, "out = x + 2", &same));
    begin(&ask, program);
    is_recent(&ask);
#define CHANGE(change)                          \
    do {                                        \
        begin(&ask, program);                   \
        assert_true(is_recent(&ask));           \
        change;                                 \
        if (is_recent(&ask)) fail_msg(#change); \
        assert_true(is_recent(&ask));           \
    } while (0)
    CHANGE(ask.request.program = same);
    CHANGE(ask.request.config = "unroll=2");
    CHANGE(ask.request.config = "");
    CHANGE(ask.request.target = "cpu");
    CHANGE(ask.request.numerics.math = EIDER_MATH_EXACT);
    CHANGE(ask.request.numerics.ftz = EIDER_ON);
    CHANGE(ask.request.numerics.contract = EIDER_OFF);
    CHANGE(ask.request.line_info = 1);
    CHANGE(ask.request.any_layout = 1);
    CHANGE(ask.request.assembler = "auto");
    CHANGE(ask.args[0].type = EIDER_BF16);
    CHANGE(ask.args[0].data = memory + 4);
    CHANGE(ask.args[1].data = memory + 2056);
    CHANGE(ask.args[0].strides = ask.strides);
    CHANGE((ask.args[0].strides = ask.strides, ask.strides[0] = 9));
    CHANGE(ask.shape[0] = 4);
    CHANGE(ask.args[0].rank = 1);
    eider_program_release(program);
    eider_program_release(same);
}

static void a_program_at_an_old_address_is_another(void **state)
{
    (void)state;
    struct ask ask;
    for (int i = 0; i < 20; i++) {
        char text[32];
        eider_program *program;
        snprintf(text, sizeof text, "out = x + %d", 100 + i);
        must(eider_program_parse(ctx, text, &program));
        begin(&ask, program);
        assert_false(is_recent(&ask));
        eider_program_release(program);
    }
}

static void requests_that_are_wrong_are_refused_as_ever(void **state)
{
    (void)state;
    struct ask ask;
    eider_program *program;
    eider_kernel *kernel;
    must(eider_program_parse(ctx, "out = x + 3", &program));
    begin(&ask, program);
    is_recent(&ask);
    ask.args[0].rank = 99;
    assert_int_equal(eider_prepare(cpu, &ask.request, &kernel), EIDER_SHAPE);
    ask.args[0].rank = -1;
    assert_int_equal(eider_prepare(cpu, &ask.request, &kernel), EIDER_SHAPE);
    begin(&ask, program);
    ask.request.n_args = 1;
    assert_int_equal(eider_prepare(cpu, &ask.request, &kernel), EIDER_BAD_ARG);
    begin(&ask, program);
    ask.request.config = "vec=3";
    for (int i = 0; i < 2; i++)
        assert_int_equal(eider_prepare(cpu, &ask.request, &kernel), EIDER_CONFIG);
    eider_program_release(program);
}

/* Many more requests than there is room for, from many threads. */
static void *ask_much(void *arg)
{
    eider_program **programs = arg;
    for (int64_t i = 0; i < 2000; i++) {
        struct ask ask;
        eider_kernel *kernel;
        begin(&ask, programs[i % 3]);
        ask.shape[0] = 1 + i;
        ask.args[0].data = ask.args[1].data = NULL; /* none is that large */
        if (eider_prepare(cpu, &ask.request, &kernel) != EIDER_OK) {
            fprintf(stderr, "extent %d: %s\n", (int)ask.shape[0], eider_error());
            return arg;
        }
        eider_kernel_release(kernel);
    }
    return NULL;
}

static void threads_share_what_is_remembered(void **state)
{
    (void)state;
    pthread_t threads[4];
    eider_program *programs[3];
    must(eider_program_parse(ctx, "out = x + 4", &programs[0]));
    must(eider_program_parse(ctx, "out = x + 5", &programs[1]));
    must(eider_program_parse(ctx, "out = x + 6", &programs[2]));
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, ask_much, programs);
    for (int i = 0; i < 4; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    for (int i = 0; i < 3; i++) eider_program_release(programs[i]);
}

/* One context and a directory: kernels are compiled, written, and found there again. */
static void *run_from_disk(void *arg)
{
    for (int k = 0; k < 8; k++)
        if (!cache_run(arg, k, NULL)) return arg;
    return NULL;
}

static void threads_share_a_directory(void **state)
{
    (void)state;
    char directory[CACHE_PATH_BYTES];
    cache_directory(directory);
    for (int round = 0; round < 2; round++) {
        pthread_t threads[4];
        struct cache_session s;
        eider_counters c;
        cache_open(&s, directory, NULL);
        for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, run_from_disk, &s);
        for (int i = 0; i < 4; i++) {
            void *failed;
            pthread_join(threads[i], &failed);
            assert_null(failed);
        }
        eider_context_counters(s.ctx, &c);
        assert_int_equal(c.compiles, round ? 0 : 8);
        assert_int_equal(c.disk_hits, round ? 8 : 0);
        assert_int_equal(s.log.n, 0);
        cache_close(&s);
    }
    cache_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_repeated_request_is_answered_at_once),
        cmocka_unit_test(whatever_planning_reads_makes_another_request),
        cmocka_unit_test(a_program_at_an_old_address_is_another),
        cmocka_unit_test(requests_that_are_wrong_are_refused_as_ever),
        cmocka_unit_test(threads_share_what_is_remembered),
        cmocka_unit_test(threads_share_a_directory),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
