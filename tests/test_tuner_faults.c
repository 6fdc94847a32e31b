/* test_tuner_faults.c -- a tuning whose allocations or driver calls fail says so, loses
 * nothing and leaves everything usable; one during a capture leaves the capture alone.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eider/eider.h"
#include "fake_cuda.h"
#include "support_runtime.h"

#define CUDA_ERROR_UNKNOWN 999
#define N 64

static const struct fake_cuda *fake;
static char fake_path[4096];
static struct counting_allocator memory;
static const int64_t extent[] = {N};

/* A context, a program and one tuning; `device` is "cpu" or "cuda:0". */
struct story {
    eider_context *ctx;
    eider_device *device;
    eider_program *program;
    eider_tuning *tuning;
    void *stream;
};

static eider_status open_story(struct story *s, const char *device)
{
    eider_context_options options = {
        .allocator = counting_allocator(&memory), .cpu_threads = 1, .cuda_library = fake_path};
    eider_status status = eider_context_create(&options, &s->ctx);
    if (status == EIDER_OK) status = eider_device_open(s->ctx, device, &s->device);
    if (status == EIDER_OK) status = eider_stream_create(s->device, &s->stream);
    if (status == EIDER_OK) status = eider_program_parse(s->ctx, "out = x * 2", &s->program);
    return status;
}

static eider_status tune(struct story *s, eider_search search, void *stream)
{
    static const char *const listed[] = {"vec=1,unroll=2"};
    eider_tensor args[] = {{.type = EIDER_F32, .rank = 1, .shape = extent},
                           {.type = EIDER_F32, .rank = 1, .shape = extent}};
    eider_request kernel = {
        .program = s->program, .args = args, .n_args = 2, .assembler = "driver"};
    eider_device_info info;
    eider_device_describe(s->device, &info);
    if (strcmp(info.backend, "cpu") == 0) kernel.assembler = NULL;
    eider_tune_request request = {.kernel = &kernel,
                                  .space = "vec=1|2,unroll=1",
                                  .configs = listed,
                                  .n_configs = 1,
                                  .triggers = "x.dtype, pow2(x.count)",
                                  .search = search,
                                  .hot = 1,
                                  .rounds = 1,
                                  .warm_up_ms = -1,
                                  .check_program = 0,
                                  .no_records = 1,
                                  .stream = stream};
    return eider_tune(s->device, &request, &s->tuning);
}

static void close_story(struct story *s)
{
    eider_tune_release(s->tuning);
    eider_program_release(s->program);
    eider_stream_destroy(s->device, s->stream);
    eider_device_release(s->device);
    if (s->ctx) eider_context_destroy(s->ctx);
}

/* ---- Host memory ----------------------------------------------------------------- */

static eider_status try_allocation(long fail_at, eider_search search)
{
    struct story s = {0};
    memory.fail_at = 0;
    must(open_story(&s, "cpu"));
    memory.n_calls = 0;
    memory.fail_at = fail_at;
    eider_status status = tune(&s, search, NULL);
    memory.fail_at = 0;
    if (status != EIDER_OK && status != EIDER_OOM)
        fail_msg("allocation %ld failed and the status is %s: %s", fail_at,
                 eider_status_name(status), eider_error());
    if (status == EIDER_OOM) {
        assert_non_null(strstr(eider_error(), "out of memory"));
        must(tune(&s, search, NULL));
    }
    close_story(&s);
    if (memory.n_alive) fail_msg("allocation %ld failed and blocks were lost", fail_at);
    return status;
}

static void failures(eider_search search)
{
    long n = 0, fail_at = 1;
    must(try_allocation(0, search));
    long total = memory.n_calls;
    assert_true(total > 50);
    for (; fail_at <= total; fail_at += fail_at < 30 ? 1 : 1 + fail_at / 12)
        n += try_allocation(fail_at, search) == EIDER_OOM;
    assert_true(n > 20);
    memory.fail_at = 0;
}

static void a_failed_allocation_is_survived(void **state)
{
    (void)state;
    failures(EIDER_SEARCH_EXHAUSTIVE);
}

static void one_in_a_directed_search_too(void **state)
{
    (void)state;
    failures(EIDER_SEARCH_DIRECTED);
}

/* ---- The driver --------------------------------------------------------------------- */

static void a_failed_driver_call_is_survived(void **state)
{
    (void)state;
    int n_failed = 0, n_survived = 0;
    /* The later calls repeat those of the first candidate. */
    for (int nth = 1;; nth += nth < 60 ? 1 : 1 + nth / 8) {
        struct story s = {0};
        fake->reset();
        must(open_story(&s, "cuda:0"));
        fake->break_call(NULL, nth, CUDA_ERROR_UNKNOWN);
        eider_status status = tune(&s, EIDER_SEARCH_EXHAUSTIVE, NULL);
        int has_failed = fake->has_failed();
        if (status != EIDER_OK) assert_true(strlen(eider_error()) > 5);
        if (status == EIDER_OK)
            n_survived += has_failed;
        else
            n_failed++;
        close_story(&s);
        assert_int_equal(memory.n_alive, 0);
        assert_int_equal(fake->depth(), 0);
        if (!has_failed) {
            must(status);
            break;
        }
    }
    /* A candidate that cannot be built, checked or timed is passed over. */
    assert_true(n_failed > 10);
    assert_true(n_survived > 10);
    fake->reset();
}

static void a_device_that_is_gone_ends_the_tuning(void **state)
{
    (void)state;
    struct story s = {0};
    fake->reset();
    must(open_story(&s, "cuda:0"));
    fake->deinitialise();
    assert_int_not_equal(tune(&s, EIDER_SEARCH_EXHAUSTIVE, NULL), EIDER_OK);
    close_story(&s);
    fake->reset();
}

static void tuning_under_capture_is_refused_and_the_capture_stays_valid(void **state)
{
    (void)state;
    struct story s = {0};
    fake->reset();
    must(open_story(&s, "cuda:0"));
    fake->begin_capture(s.stream);
    assert_int_equal(tune(&s, EIDER_SEARCH_EXHAUSTIVE, s.stream), EIDER_CAPTURING);
    assert_int_equal(fake->calls("cuLaunchKernel"), 0);
    assert_true(fake->end_capture());
    must(tune(&s, EIDER_SEARCH_EXHAUSTIVE, s.stream));
    eider_tune_release(s.tuning);
    /* What is known needs no device: it is found during a capture as well. */
    fake->begin_capture(s.stream);
    must(tune(&s, EIDER_SEARCH_EXHAUSTIVE, s.stream));
    assert_true(fake->end_capture());
    close_story(&s);
    fake->reset();
}

static int open_fake(void **state)
{
    (void)state;
    const char *folder = getenv("EIDER_TEST_LIB");
    snprintf(fake_path, sizeof fake_path, "%s/fake/libcuda.so.1", folder ? folder : EIDER_TEST_LIB);
    void *library = dlopen(fake_path, RTLD_NOW | RTLD_LOCAL);
    if (!library) fail_msg("%s", dlerror());
    fake = dlsym(library, "fake_cuda");
    return fake ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_allocation_is_survived),
        cmocka_unit_test(one_in_a_directed_search_too),
        cmocka_unit_test(a_failed_driver_call_is_survived),
        cmocka_unit_test(a_device_that_is_gone_ends_the_tuning),
        cmocka_unit_test(tuning_under_capture_is_refused_and_the_capture_stays_valid),
    };
    return cmocka_run_group_tests_name("tuner_faults", tests, open_fake, NULL);
}
