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
static const char *text = "out = x * 2";
static int32_t checks; /* compares with the program's own evaluation */

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
    if (status == EIDER_OK) status = eider_program_parse(s->ctx, text, &s->program);
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
                                  .check_program = checks,
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

static void a_failed_allocation_over_rows_is_survived(void **state)
{
    (void)state;
    text = "out = x - logsumexp(x)";
    checks = 1;
    failures(EIDER_SEARCH_EXHAUSTIVE);
    text = "out = x * 2";
    checks = 0;
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

/* ---- Candidates on a device ------------------------------------------------------------ */

#define CUDA_ERROR_OUT_OF_MEMORY 2

#define TWELVE "vec=1|2|4,unroll=1|2,block=64|128"

/* Configs of "out = x * 2", cold, so that every time is preceded by a flush. */
static eider_status tune_many(struct story *s, const char *space, const eider_tune_hooks *hooks,
                              eider_tune_summary *out)
{
    eider_tensor args[] = {{.type = EIDER_F32, .rank = 1, .shape = extent},
                           {.type = EIDER_F32, .rank = 1, .shape = extent}};
    eider_request kernel = {
        .program = s->program, .args = args, .n_args = 2, .assembler = "driver"};
    eider_tune_request request = {
        .kernel = &kernel, .space = space, .rounds = 2, .warm_up_ms = -1, .no_records = 1};
    if (hooks) request.hooks = *hooks;
    eider_tune_release(s->tuning);
    s->tuning = NULL;
    eider_status status = eider_tune(s->device, &request, &s->tuning);
    eider_tune_describe(s->tuning, out);
    return status;
}

static void losers_are_unloaded(void **state)
{
    (void)state;
    struct story s = {0};
    eider_tune_summary summary;
    fake->reset();
    must(open_story(&s, "cuda:0"));
    must(tune_many(&s, TWELVE, NULL, &summary));
    assert_int_equal(summary.n_timed, 12);
    int loads = fake->calls("cuModuleLoadDataEx");
    assert_true(loads >= 12);
    /* What stays: the winner, the reference, and two kernels of the runtime's own. */
    assert_in_range(loads - fake->calls("cuModuleUnload"), 1, 4);
    close_story(&s);
    fake->reset();
}

static void every_cold_time_follows_a_flush_and_has_its_clock(void **state)
{
    (void)state;
    struct story s = {0};
    eider_tune_summary summary;
    eider_tune_entry e;
    int n_samples = 0;
    fake->reset();
    must(open_story(&s, "cuda:0"));
    must(tune_many(&s, TWELVE, NULL, &summary));
    for (size_t i = 0; i < summary.n_entries; i++) {
        must(eider_tune_entry_get(s.tuning, i, &e));
        n_samples += (int)e.n_samples;
        for (size_t k = 0; k < e.n_samples; k++) assert_int_equal(e.clock_khz[k], 1500000);
    }
    assert_true(n_samples >= 24);
    assert_true(fake->calls("cuMemsetD8Async") >= n_samples);
    close_story(&s);
    fake->reset();
}

/* It says nothing about the config, so it is not remembered. */
static void a_candidate_that_finds_no_memory_is_passed_over_and_tried_again(void **state)
{
    (void)state;
    struct story s = {0};
    eider_tune_summary summary;
    fake->reset();
    must(open_story(&s, "cuda:0"));
    fake->break_call("cuModuleLoadDataEx", 2, CUDA_ERROR_OUT_OF_MEMORY);
    must(tune_many(&s, TWELVE, NULL, &summary));
    assert_true(fake->has_failed());
    assert_int_equal(summary.n_failed, 1);
    assert_int_equal(summary.n_timed, 11);
    /* The choice among the twelve stays; a search that asks again tries it again. */
    must(tune_many(&s, TWELVE, NULL, &summary));
    assert_int_equal(summary.end, EIDER_TUNE_RECORDED);
    must(tune_many(&s, TWELVE "|256", NULL, &summary));
    assert_int_equal(summary.n_failed, 0);
    assert_int_equal(summary.n_timed, 1 + 6);
    assert_int_equal(summary.n_recorded, 11);
    close_story(&s);
    fake->reset();
}

static void lose_the_device(void *user, const char *config, const eider_tensor *args, size_t n)
{
    (void)args, (void)n;
    if (strstr(config, user)) fake->deinitialise();
}

static void a_config_that_takes_the_device_with_it_is_named(void **state)
{
    (void)state;
    struct story s = {0};
    eider_tune_summary summary;
    char culprit[] = "vec=4,unroll=2,block=128";
    eider_tune_hooks hooks = {.user = culprit, .before_run = lose_the_device};
    fake->reset();
    must(open_story(&s, "cuda:0"));
    assert_int_not_equal(tune_many(&s, TWELVE, &hooks, &summary), EIDER_OK);
    assert_non_null(strstr(eider_error(), "after config vec=4,unroll=2,block=128"));
    assert_non_null(strstr(eider_error(), "the device fails"));
    close_story(&s);
    fake->reset();
}

static const char named_ptx[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                                ".visible .entry k(.param .u64 x, .param .u64 o)\n{\n"
                                ".reg .b32 %r<2>;\nmov.u32 %r1, ${n};\nret;\n}\n";

/* The fake driver refuses PTX in which it reads BROKEN: the values are in the text. */
static void ptx_with_named_parameters_is_tuned(void **state)
{
    (void)state;
    static const eider_operand operands[] = {{"x", EIDER_INPUT, EIDER_F32},
                                             {"o", EIDER_OUTPUT, EIDER_F32}};
    struct story s = {0};
    eider_tune_summary summary;
    eider_tune_entry e;
    eider_source source = {.kind = EIDER_SOURCE_PTX,
                           .data = named_ptx,
                           .entry = "k",
                           .n_operands = 2,
                           .operands = operands};
    eider_tensor args[] = {{.type = EIDER_F32, .rank = 1, .shape = extent},
                           {.type = EIDER_F32, .rank = 1, .shape = extent}};
    eider_request kernel = {.source = &source, .args = args, .n_args = 2, .assembler = "driver"};
    eider_tune_request request = {.kernel = &kernel,
                                  .space = "n=1|2|BROKEN",
                                  .reference = "n=1",
                                  .grid = "ceil_div(x.count, 16), 3",
                                  .block = "32",
                                  .rounds = 1,
                                  .warm_up_ms = -1,
                                  .no_records = 1};
    fake->reset();
    must(open_story(&s, "cuda:0"));
    must(eider_tune(s.device, &request, &s.tuning));
    eider_tune_describe(s.tuning, &summary);
    assert_int_equal(summary.n_timed, 2);
    assert_int_equal(summary.n_failed, 1);
    assert_int_equal(summary.geometry.grid[0], N / 16);
    assert_int_equal(summary.geometry.grid[1], 3);
    assert_int_equal(summary.geometry.block[0], 32);
    for (size_t i = 0; i < 3; i++) {
        must(eider_tune_entry_get(s.tuning, i, &e));
        if (strstr(e.config, "BROKEN")) assert_non_null(strstr(e.reason, "it is BROKEN"));
    }
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
        cmocka_unit_test(a_failed_allocation_over_rows_is_survived),
        cmocka_unit_test(one_in_a_directed_search_too),
        cmocka_unit_test(a_failed_driver_call_is_survived),
        cmocka_unit_test(a_device_that_is_gone_ends_the_tuning),
        cmocka_unit_test(losers_are_unloaded),
        cmocka_unit_test(every_cold_time_follows_a_flush_and_has_its_clock),
        cmocka_unit_test(a_candidate_that_finds_no_memory_is_passed_over_and_tried_again),
        cmocka_unit_test(a_config_that_takes_the_device_with_it_is_named),
        cmocka_unit_test(ptx_with_named_parameters_is_tuned),
        cmocka_unit_test(tuning_under_capture_is_refused_and_the_capture_stays_valid),
    };
    return cmocka_run_group_tests_name("tuner_faults", tests, open_fake, NULL);
}
