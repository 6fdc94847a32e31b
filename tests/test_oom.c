/* test_oom.c -- whichever allocation fails, the call says so, nothing is lost, and the
 * context goes on working.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "support_runtime.h"

static struct counting_allocator memory;
static float x[100], out[100];

/* One pass over everything that allocates; the first failure ends it. */
struct story {
    eider_device *cpu;
    eider_builder *builder;
    eider_program *parsed, *built, *backward, *norm, *rows, *columns;
    eider_kernel *kernel;
    void *buffer;
};

static eider_status build(eider_context *ctx, struct story *s)
{
    eider_builder *b;
    eider_status status = eider_builder_create(ctx, &b);
    if (status != EIDER_OK) return status;
    eider_value v = eider_builder_input(b, "x", -1);
    v = eider_builder_call(b, "silu", &v, 1);
    eider_builder_output(b, "out", v, -1);
    return eider_builder_finish(b, &s->built);
}

static eider_status tell(eider_context *ctx, struct story *s, int with_stages)
{
    int64_t n = 100;
    double ns;
    const void *text;
    size_t size;
    eider_tensor args[] = {tensor_of(x, EIDER_F32, 1, &n), tensor_of(out, EIDER_F32, 1, &n)};
    eider_status status;
    if ((status = eider_device_open(ctx, "cpu", &s->cpu)) ||
        (status = eider_memory_alloc(s->cpu, 1000, &s->buffer)) ||
        (status = eider_program_parse(ctx, "out = silu(x) * 2", &s->parsed)) ||
        (status = build(ctx, s)) || (status = eider_program_grad(s->built, NULL, &s->backward)) ||
        (status = eider_program_parse(ctx, "y = x - mean(x); a = colsum(y)", &s->norm)) ||
        (status = eider_program_split(s->norm, &s->rows, &s->columns)))
        return status;
    eider_request request = {.program = s->parsed, .args = args, .n_args = 2};
    if ((status = eider_prepare(s->cpu, &request, &s->kernel)) ||
        (status = eider_launch(s->kernel, NULL, args, 2)) ||
        (status = eider_time(s->kernel, NULL, args, 2, 1, 0, &ns)))
        return status;
    for (int stage = EIDER_STAGE_PROGRAM; with_stages && stage <= EIDER_STAGE_CUBIN; stage++)
        if ((status = eider_kernel_stage(s->kernel, (eider_stage)stage, &text, &size)))
            return status;
    return EIDER_OK;
}

static void clean_up(struct story *s)
{
    eider_kernel_release(s->kernel);
    eider_program_release(s->parsed);
    eider_program_release(s->built);
    eider_program_release(s->backward);
    eider_program_release(s->norm);
    eider_program_release(s->rows);
    eider_program_release(s->columns);
    eider_memory_free(s->cpu, s->buffer);
    eider_device_release(s->cpu);
}

/* The stages compile again, and are left out where that proves nothing new. */
static eider_status try_once(long fail_at, int fail_ever_after)
{
    struct story s = {0};
    eider_context *ctx = NULL;
    memory.n_calls = 0;
    memory.fail_at = fail_at;
    memory.fail_ever_after = fail_ever_after;
    eider_context_options options = {.allocator = counting_allocator(&memory), .cpu_threads = 2};
    eider_status status = eider_context_create(&options, &ctx);
    if (status == EIDER_OK) status = tell(ctx, &s, !fail_ever_after);
    if (status != EIDER_OK && status != EIDER_OOM)
        fail_msg("allocation %ld failed and the status is %s: %s", fail_at,
                 eider_status_name(status), eider_error());
    if (status == EIDER_OOM) assert_non_null(strstr(eider_error(), "out of memory"));
    clean_up(&s);
    memory.fail_at = 0;
    if (status == EIDER_OOM && ctx) {
        struct story again = {0};
        must(tell(ctx, &again, 0));
        clean_up(&again);
    }
    eider_context_destroy(ctx);
    if (memory.n_alive) fail_msg("allocation %ld failed and blocks were lost", fail_at);
    return status;
}

static long failures(int fail_ever_after)
{
    long n = 0, fail_at = 1;
    must(try_once(0, fail_ever_after));
    long total = memory.n_calls;
    assert_true(total > 100);
    /* Every one of the first, then a growing step: the later ones repeat in loops. */
    for (; fail_at <= total; fail_at += fail_at < 60 ? 1 : 1 + fail_at / 20)
        n += try_once(fail_at, fail_ever_after) == EIDER_OOM;
    assert_int_equal(try_once(2 * total, fail_ever_after), EIDER_OK);
    return n;
}

static void one_failed_allocation_is_survived(void **state)
{
    (void)state;
    assert_true(failures(0) > 50);
}

static void memory_that_stays_exhausted_is_survived(void **state)
{
    (void)state;
    assert_true(failures(1) > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_failed_allocation_is_survived),
        cmocka_unit_test(memory_that_stays_exhausted_is_survived),
    };
    return cmocka_run_group_tests_name("oom", tests, NULL, NULL);
}
