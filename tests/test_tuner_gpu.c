/* test_tuner_gpu.c -- tuning on a real GPU: times and clocks that can be, and candidates whose
 * only fault a GPU's own comparison can find.
 *
 * labels: gpu
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "eider/eider.h"
#include "support_runtime.h"

#define N 1000
#define ONE "0f3F800000"
#define TWO "0f40000000"

static eider_context *ctx;
static eider_device *gpu;

static int set_up(void **state)
{
    (void)state;
    must(eider_context_create(NULL, &ctx));
    if (eider_device_open(ctx, "cuda:0", &gpu) == EIDER_OK) return 0;
    fprintf(stderr, "SKIPPED (no GPU): %s\n", eider_error());
    gpu = NULL;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    eider_device_release(gpu);
    eider_context_destroy(ctx);
    return 0;
}

#define NEED_GPU()        \
    do {                  \
        if (!gpu) skip(); \
    } while (0)

static void programs_are_tuned_with_times_and_clocks_that_can_be(void **state)
{
    (void)state;
    NEED_GPU();
    static const int64_t shape[] = {1024, 4096};
    eider_tensor args[3];
    eider_program *program;
    eider_tuning *tuning;
    eider_tune_summary s;
    eider_kernel *kernel;
    for (int i = 0; i < 3; i++) args[i] = tensor_of(NULL, EIDER_BF16, 2, shape);
    must(eider_program_parse(ctx, "out = silu(x) * y", &program));
    eider_request request = {.program = program, .args = args, .n_args = 3};
    eider_tune_request tune = {.kernel = &request,
                               .space = "vec=4|8,unroll=1|2,block=128|256,load=ca|cs",
                               .check_program = 1,
                               .no_records = 1};
    must(eider_tune(gpu, &tune, &tuning));
    eider_tune_describe(tuning, &s);
    assert_int_equal(s.n_timed, 16);
    assert_int_equal(s.n_wrong + s.n_failed, 0);
    for (size_t i = 0; i < s.n_entries; i++) {
        eider_tune_entry e;
        must(eider_tune_entry_get(tuning, i, &e));
        /* 24 MB: no GPU moves them in a microsecond, and none needs a second. */
        assert_true(e.samples_ns[0] > 1e3 && e.samples_ns[e.n_samples - 1] < 1e9);
        for (size_t k = 0; k < e.n_samples; k++) assert_in_range(e.clock_khz[k], 100000, 4000000);
    }
    request.config = s.config;
    must(eider_prepare(gpu, &request, &kernel));
    eider_kernel_release(kernel);
    eider_tune_release(tuning);
    eider_program_release(program);
}

/* o[i] = x[i] + add, for i below n. */
static const char add_ptx[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                              ".visible .entry k(.param .u64 x, .param .u64 o)\n{\n"
                              ".reg .pred %p<2>; .reg .b32 %r<5>; .reg .f32 %f<3>;\n"
                              ".reg .b64 %d<6>;\n"
                              "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;\n"
                              "mad.lo.u32 %r4, %r1, %r2, %r3;\n"
                              "setp.ge.u32 %p1, %r4, ${n}; @%p1 bra done;\n"
                              "ld.param.u64 %d1, [x]; ld.param.u64 %d2, [o];\n"
                              "mul.wide.u32 %d3, %r4, 4;\n"
                              "add.u64 %d4, %d1, %d3; add.u64 %d5, %d2, %d3;\n"
                              "ld.global.f32 %f1, [%d4]; add.f32 %f2, %f1, ${add};\n"
                              "st.global.f32 [%d5], %f2;\n"
                              "done: ret;\n}\n";

static void wrong_candidates_are_found_by_the_gpu(void **state)
{
    (void)state;
    NEED_GPU();
    static const eider_operand operands[] = {{"x", EIDER_INPUT, EIDER_F32},
                                             {"o", EIDER_OUTPUT, EIDER_F32}};
    static const char *const configs[] = {"n=1000,add=" ONE, "n=1000,add=" TWO, "n=999,add=" ONE,
                                          "n=1001,add=" ONE};
    static const char *const reasons[] = {"", "the reference gives", "is nan", "writes behind it"};
    static const int64_t shape[] = {N};
    eider_source source = {.kind = EIDER_SOURCE_PTX,
                           .data = add_ptx,
                           .entry = "k",
                           .n_operands = 2,
                           .operands = operands};
    eider_tensor args[] = {tensor_of(NULL, EIDER_F32, 1, shape),
                           tensor_of(NULL, EIDER_F32, 1, shape)};
    eider_request request = {.source = &source, .args = args, .n_args = 2};
    eider_tune_request tune = {.kernel = &request,
                               .configs = configs,
                               .n_configs = 4,
                               .reference = configs[0],
                               .grid = "ceil_div(n, 256)",
                               .block = "256",
                               .no_records = 1};
    eider_tuning *tuning;
    eider_tune_summary s;
    must(eider_tune(gpu, &tune, &tuning));
    eider_tune_describe(tuning, &s);
    assert_string_equal(s.config, "add=" ONE ",n=1000");
    assert_int_equal(s.n_wrong, 3);
    for (size_t i = 0; i < s.n_entries; i++) {
        eider_tune_entry e;
        must(eider_tune_entry_get(tuning, i, &e));
        size_t k = strstr(e.config, TWO)        ? 1
                   : strstr(e.config, "n=999")  ? 2
                   : strstr(e.config, "n=1001") ? 3
                                                : 0;
        assert_int_equal(e.outcome, k ? EIDER_TUNE_WRONG : EIDER_TUNE_TIMED);
        if (!strstr(e.reason, reasons[k])) fail_msg("%s: %s", e.config, e.reason);
    }
    eider_tune_release(tuning);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_are_tuned_with_times_and_clocks_that_can_be),
        cmocka_unit_test(wrong_candidates_are_found_by_the_gpu),
    };
    return cmocka_run_group_tests_name("tuner_gpu", tests, set_up, tear_down);
}
