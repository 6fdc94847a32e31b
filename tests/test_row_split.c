/* test_row_split.c -- rows that are cut into parts, one block each, on the CPU: every kind of
 * reduction, lengths around the number of parts, parts that are empty or masked, outputs that
 * overwrite what other parts read, and what a launch allocates; between guard bands.
 *
 * timeout: 600
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel.h"
#include "row.h"
#include "support_row.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* A thread, a warp and several of them for each part; vectors or none. */
static const char *const schedules[] = {
    "split=2,block=1,row=1,vec=1,unroll=1",
    "split=4,block=32,row=32,vec=1,unroll=2",
    "split=16,block=64,row=64,vec=2,unroll=1",
    "split=64,block=32,row=32,vec=1,unroll=1",
    "split=128,block=1,row=1,vec=4,unroll=2",
    "split=1024,block=1,row=1,vec=1,unroll=1",
    "split=8,block=128,row=128,vec=1,online=1",
    "split=64,block=1,row=1,vec=1,online=1",
    "split=32",
};

static int parts_of(const char *config)
{
    return atoi(strstr(config, "split=") + strlen("split="));
}

static void lengths_around_the_number_of_parts(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT(schedules); s++) {
        int64_t parts = parts_of(schedules[s]), threads = s == 2 ? 64 * parts : 32 * parts;
        const int64_t lengths[] = {1,           2,       parts - 1,   parts, parts + 1,
                                   threads - 1, threads, threads + 1, 4097};
        for (size_t k = s % 2; k < COUNT(lengths); k += 2) {
            int64_t cols = lengths[k] > 0 && lengths[k] < 5000 ? lengths[k] : 7;
            if (strstr(schedules[s], "vec=2") || strstr(schedules[s], "vec=4"))
                cols += cols % 4 ? 4 - cols % 4 : 0;
            row_check((struct row_call){.text = row_everything,
                                        .config = schedules[s],
                                        .rows = 1 + (int64_t)k % 3,
                                        .cols = cols,
                                        .fill = row_wave,
                                        .any = k % 4 == 3},
                      2e-6, 1);
        }
    }
}

static void rows_and_pointers_anywhere(void **state)
{
    (void)state;
    for (int k = 0; k < 8; k++)
        row_check((struct row_call){.text = row_everything,
                                    .config = k & 1 ? "split=4,block=32,row=32,vec=4"
                                                    : "split=16,block=1,row=1,vec=8",
                                    .rows = 3,
                                    .cols = 333,
                                    .misalign = k & 2 ? 1 : 0,
                                    .gap = k & 4 ? 3 : 0,
                                    .fill = row_wave},
                  2e-6, 1);
}

static void every_type(void **state)
{
    static const eider_dtype types[] = {EIDER_F16, EIDER_BF16, EIDER_F64};
    static const double tolerances[] = {2e-3, 1e-2, 1e-13};
    (void)state;
    for (size_t t = 0; t < COUNT(types); t++)
        row_check((struct row_call){.text = row_everything,
                                    .config = t ? "split=4,block=64,row=64,vec=4" : "split=8",
                                    .type = types[t],
                                    .math = EIDER_MATH_FAST,
                                    .rows = 4,
                                    .cols = 1000,
                                    .fill = row_wave},
                  tolerances[t], 1);
}

static double whole(size_t i, int64_t row, int64_t col)
{
    return floor(100 * row_wave(i, row, col));
}

static void integers_wrap_and_compare(void **state)
{
    static const char text[] = "in x: i32\nout s: i32, m: i64, a: i32, d: i32, f\n"
                               "s = sum(x); m = max(x) - min(x); a = argmin(x); d = x - s\n"
                               "f = mean(x) + prod(select(col() == 0, x, 1))\n";
    (void)state;
    for (size_t s = 0; s < COUNT(schedules); s++)
        row_check(
            (struct row_call){
                .text = text, .config = schedules[s], .rows = 3, .cols = 156, .fill = whole},
            1e-6, 1);
}

static void long_rows(void **state)
{
    static const char text[] = "m = max(x); l = logsumexp(x); a = mean(x); y = exp(x - l)";
    static const char *const configs[] = {"split=64,block=256,row=256,vec=4,unroll=2",
                                          "split=256,block=1,row=1,vec=16,unroll=1",
                                          "split=256,block=64,row=64,vec=8"};
    (void)state;
    for (size_t k = 0; k < COUNT(configs); k++)
        row_check(
            (struct row_call){
                .text = text, .config = configs[k], .rows = 1, .cols = 1000003, .fill = row_wave},
            1e-6, 1e-6);
}

static void programs_without_a_stage_have_one_round(void **state)
{
    static const char *const texts[] = {"in x, s: row; y = x * s", "in x, s: row; y = s * 2",
                                        "in x, s: row; y = x + 1; t = s * 2",
                                        "in x, t: i32 row; y = x - pick(x, t)"};
    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++)
        for (size_t s = 0; s < COUNT(schedules); s++)
            row_check((struct row_call){.text = texts[i],
                                        .config = schedules[s],
                                        .rows = 3,
                                        .cols = 72,
                                        .fill = row_wave},
                      1e-6, 1);
}

static void no_rows_is_nothing_to_do(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT(schedules); s++) {
        row_check((struct row_call){.text = row_everything,
                                    .config = schedules[s],
                                    .rows = 0,
                                    .cols = 12,
                                    .fill = row_wave},
                  0, 1);
        row_check((struct row_call){.text = "s = sum(x); m = max(x)",
                                    .config = schedules[s],
                                    .rows = 2,
                                    .cols = 0,
                                    .fill = row_wave,
                                    .any = 1},
                  0, 1);
    }
}

/* ---- Masked, infinite and NaN elements -------------------------------------------- */

static double one_infinity(size_t i, int64_t row, int64_t col)
{
    return row == col ? INFINITY : row_wave(i, row, col);
}

static void special_values_in_every_part(void **state)
{
    static const row_filler fillers[] = {row_only_one, row_masked, row_one_nan, one_infinity};
    static const char *const configs[] = {
        "split=2,block=1,row=1,vec=1,online=1",   "split=8,block=1,row=1,vec=2",
        "split=128,block=1,row=1,vec=1,online=1", "split=2,block=64,row=64,vec=1,online=1",
        "split=2,block=32,row=32,vec=1",          "split=4,block=64,row=64,vec=2"};
    (void)state;
    for (size_t f = 0; f < COUNT(fillers); f++)
        for (size_t k = 0; k < COUNT(configs); k++)
            row_check((struct row_call){.text = row_softmax,
                                        .config = configs[k],
                                        .rows = strstr(configs[k], "block=1,") ? 72 : 20,
                                        .cols = 144,
                                        .fill = fillers[f]},
                      1e-6, 1e-30);
}

static void the_first_of_equal_elements_is_found_in_any_part(void **state)
{
    static const char text[] = "a = argmax(x); b = argmin(x); c = argmax(-abs(x))";
    (void)state;
    for (size_t k = 0; k < 2 * COUNT(schedules); k++)
        row_check((struct row_call){.text = text,
                                    .config = schedules[k / 2],
                                    .rows = 2,
                                    .cols = 156,
                                    .fill = k % 2 ? row_all_equal : row_ties},
                  0, 1);
}

/* ---- Accuracy ---------------------------------------------------------------------- */

/* A plain sum in f32 would stay at 1; so would one of 1024 parts, one after the other. */
static void sums_keep_what_rounding_loses(void **state)
{
    static const char *const configs[] = {"split=2,block=1,row=1,vec=1",
                                          "split=1024,block=1,row=1,vec=1",
                                          "split=64,block=32,row=32,vec=1"};
    static const char norm[] = "m = mean(x); d = x - m; e = mean(d)\n"
                               "v = max(mean(d * d) - e * e, 0); y = (d - e) * rsqrt(v + 1e-5)";
    (void)state;
    for (size_t k = 0; k < COUNT(configs); k++) {
        row_check((struct row_call){.text = "s = sum(x)",
                                    .config = configs[k],
                                    .rows = 1,
                                    .cols = 200001,
                                    .fill = row_tiny_after_large},
                  1.2e-7, 1);
        row_check((struct row_call){.text = norm,
                                    .config = configs[k],
                                    .math = EIDER_MATH_FAST,
                                    .rows = 2,
                                    .cols = 16,
                                    .fill = row_large_mean},
                  1e-5, 1e-3);
    }
}

/* ---- Independence and aliasing ------------------------------------------------------- */

static void a_row_does_not_depend_on_others(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT(schedules); k++) row_check_alone(schedules[k], 100);
}

static void an_output_may_be_an_input(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT(schedules); k++) row_check_in_place(schedules[k], 156, NULL);
}

/* ---- Configs -------------------------------------------------------------------------- */

/* Prepares softmax of 2 x 4096 and releases it. */
static eider_status prepare(const char *target, const char *config, int64_t cols,
                            struct eider_row_config *out)
{
    int64_t shape[2] = {2, cols};
    struct eider_plan plan = {0};
    eider_program *program;
    must(eider_program_parse(row_context, "y = exp(x - logsumexp(x))", &program));
    eider_tensor args[2] = {tensor_of(NULL, EIDER_F32, 2, shape),
                            tensor_of(NULL, EIDER_F32, 2, shape)};
    eider_request request = {
        .program = program, .args = args, .n_args = 2, .config = config, .target = target};
    eider_status status = eider_prepare_plan(row_context, NULL, &request, &plan);
    eider_program_release(program);
    if (status == EIDER_OK) *out = eider_row_config_of(&plan.config);
    return status;
}

static void refusals_say_why(void **state)
{
    static const struct {
        const char *config, *want;
    } cases[] = {
        {"split=4,cluster=2,block=32,row=32",
         "split=4, cluster=2, resident=0, shared=0, keep=0: parts of a row stay nowhere"},
        {"split=4,keep=2", "split=4, cluster=1, resident=0, shared=0, keep=2: parts"},
        {"split=4,resident=1", "split=4, cluster=1, resident=1, shared=0, keep=0: parts"},
        {"split=4,shared=1,block=32,row=32", "split=4, cluster=1, resident=0, shared=1"},
        {"split=4,block=64,row=32", "split=4, row=32, block=64: a block has one part of a row"},
        {"split=3", "split"},
    };
    struct eider_row_config c;
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(prepare("cpu", cases[i].config, 4096, &c), EIDER_CONFIG);
        if (!strstr(eider_error(), cases[i].want)) fail_msg("%s", eider_error());
    }
}

/* Rows that a cluster of 16 blocks could not keep, and those that are asked for. */
static void very_long_rows_are_split_by_default(void **state)
{
    static const struct {
        const char *target, *config;
        int64_t cols;
        int split, row, block;
    } cases[] = {
        {"sm_90", NULL, 262144, 1, 0, 0},
        {"sm_90", NULL, (1 << 19) - 1, 1, 0, 0},
        {"sm_90", NULL, 1 << 19, 16, 512, 512},
        {"sm_90", NULL, 4000003, 64, 512, 512},
        {"sm_90", NULL, 1 << 24, 512, 512, 512},
        {"sm_80", NULL, 1 << 22, 128, 512, 512},
        {"sm_90", "split=1", 1 << 24, 1, 0, 0},
        {"sm_90", "cluster=8", 1 << 24, 1, 0, 0},
        {"sm_90", "block=256", 1 << 24, 1, 0, 0},
        {"sm_90", "resident=1", 1 << 24, 1, 0, 0},
        {"sm_90", "resident=0", 1 << 24, 512, 512, 512},
        {"sm_90", "split=8", 4096, 8, 512, 512},
        {"sm_90", "split=8,block=96", 4096, 0, 0, 0},
        {"sm_90", "split=8,row=64", 4096, 8, 64, 64},
        {"cpu", NULL, 1 << 24, 1, 1, 1},
        {"cpu", "split=16", 4096, 16, 1, 1},
        {"cpu", "split=16,block=64", 4096, 16, 64, 64},
    };
    struct eider_row_config c;
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        eider_status status = prepare(cases[i].target, cases[i].config, cases[i].cols, &c);
        if (!cases[i].split) {
            assert_int_equal(status, EIDER_CONFIG);
            continue;
        }
        must(status);
        int is_right = c.split == cases[i].split &&
                       (!cases[i].row || (c.row == cases[i].row && c.block == cases[i].block));
        if (!is_right)
            fail_msg("%s [%s] %lld: split=%d, row=%d, block=%d", cases[i].target,
                     cases[i].config ? cases[i].config : "", (long long)cases[i].cols, c.split,
                     c.row, c.block);
    }
}

/* ---- Memory --------------------------------------------------------------------------- */

struct launch {
    eider_context *context;
    eider_device *device;
    eider_program *program;
    eider_kernel *kernel;
    eider_tensor args[2];
};

static float data[2][2 * 100];
static int64_t shape[2] = {2, 100};

static eider_status begin(struct counting_allocator *memory, const char *config, struct launch *l)
{
    eider_context_options options = {.allocator = counting_allocator(memory), .cpu_threads = 1};
    *l = (struct launch){0};
    memory->n_calls = 0;
    eider_status status = eider_context_create(&options, &l->context);
    if (status == EIDER_OK) status = eider_device_open(l->context, "cpu", &l->device);
    if (status == EIDER_OK)
        status = eider_program_parse(l->context, "y = exp(x - logsumexp(x)) * pick(x, argmax(x))",
                                     &l->program);
    for (int i = 0; i < 2; i++) l->args[i] = tensor_of(data[i], EIDER_F32, 2, shape);
    eider_request request = {.program = l->program, .args = l->args, .n_args = 2, .config = config};
    if (status == EIDER_OK) status = eider_prepare(l->device, &request, &l->kernel);
    return status;
}

static void end(struct launch *l)
{
    eider_kernel_release(l->kernel);
    eider_program_release(l->program);
    eider_device_release(l->device);
    eider_context_destroy(l->context);
}

static void launches_allocate_once_and_only_where_rows_are_split(void **state)
{
    static const struct {
        const char *config;
        long allocations;
    } cases[] = {{"split=4,block=32,row=32", 1}, {"split=4,block=1,row=1", 1}, {"split=1", 0}};
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct counting_allocator memory = {0};
        struct launch l;
        double ns[3];
        must(begin(&memory, cases[i].config, &l));
        long before = memory.n_calls, alive = memory.n_alive;
        must(eider_launch(l.kernel, NULL, l.args, 2));
        assert_int_equal(memory.n_calls - before, cases[i].allocations);
        assert_int_equal(memory.n_alive, alive);
        memory.fail_at = memory.n_calls + 1;
        int fails = cases[i].allocations > 0;
        assert_int_equal(eider_launch(l.kernel, NULL, l.args, 2), fails ? EIDER_OOM : EIDER_OK);
        assert_int_equal(memory.n_alive, alive);
        memory.fail_at = 0;
        must(eider_launch(l.kernel, NULL, l.args, 2));
        must(eider_time(l.kernel, NULL, l.args, 2, 3, 0, ns));
        assert_int_equal(memory.n_alive, alive);
        end(&l);
        assert_int_equal(memory.n_alive, 0);
    }
}

static void a_failed_allocation_is_survived(void **state)
{
    static const char *const configs[] = {"split=4,block=32,row=32", "split=16,block=1,row=1"};
    (void)state;
    for (size_t i = 0; i < COUNT(configs); i++) {
        struct counting_allocator memory = {0};
        struct launch l;
        must(begin(&memory, configs[i], &l));
        must(eider_launch(l.kernel, NULL, l.args, 2));
        long total = memory.n_calls;
        end(&l);
        for (long at = 1; at <= total; at += 1 + at / 12) {
            memory.fail_at = at;
            eider_status status = begin(&memory, configs[i], &l);
            if (status == EIDER_OK) status = eider_launch(l.kernel, NULL, l.args, 2);
            end(&l);
            if (status != EIDER_OOM && status != EIDER_OK)
                fail_msg("allocation %ld: %s", at, eider_error());
            if (memory.n_alive) fail_msg("allocation %ld: lost blocks", at);
        }
    }
}

/* ---- The GPU's code ------------------------------------------------------------------- */

/* One kernel, whose parameter says which round it is; nothing that waits for other blocks. */
static void kernels_assemble_for_gpus(void **state)
{
    static const char *const configs[] = {"split=1024", "split=2,block=32,row=32,load=nc,store=cs",
                                          "split=256,block=1024,row=1024,vec=2,unroll=4"};
    static const char *const never[] = {"barrier.cluster", "atom.", "\tred.", "ld.volatile"};
    int64_t full[2] = {2, 1 << 20}, column[2] = {1, 1 << 20}, row[2] = {2, 1};
    eider_program *program;
    eider_tensor args[9];
    (void)state;
    must(eider_program_parse(row_context, row_everything, &program));
    row_everything_args(args, full, column, row);
    for (size_t k = 0; k < COUNT(configs); k++) {
        eider_kernel *kernel;
        const void *ptx;
        size_t size;
        eider_request request = {.program = program,
                                 .args = args,
                                 .n_args = 9,
                                 .config = configs[k],
                                 .target = k ? "sm_90" : "sm_80"};
        if (eider_compile(row_context, &request, &kernel) != EIDER_OK)
            fail_msg("[%s]: %s", configs[k], eider_error());
        must(eider_kernel_stage(kernel, EIDER_STAGE_PTX, &ptx, &size));
        for (size_t i = 0; i < COUNT(never); i++)
            if (strstr(ptx, never[i])) fail_msg("[%s]: %s\n%s", configs[k], never[i], (char *)ptx);
        const char *entry = strstr(ptx, ".entry");
        assert_non_null(entry);
        assert_null(strstr(entry + 1, ".entry"));
        eider_kernel_release(kernel);
    }
    eider_program_release(program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_around_the_number_of_parts),
        cmocka_unit_test(rows_and_pointers_anywhere),
        cmocka_unit_test(every_type),
        cmocka_unit_test(integers_wrap_and_compare),
        cmocka_unit_test(long_rows),
        cmocka_unit_test(programs_without_a_stage_have_one_round),
        cmocka_unit_test(no_rows_is_nothing_to_do),
        cmocka_unit_test(special_values_in_every_part),
        cmocka_unit_test(the_first_of_equal_elements_is_found_in_any_part),
        cmocka_unit_test(sums_keep_what_rounding_loses),
        cmocka_unit_test(a_row_does_not_depend_on_others),
        cmocka_unit_test(an_output_may_be_an_input),
        cmocka_unit_test(refusals_say_why),
        cmocka_unit_test(very_long_rows_are_split_by_default),
        cmocka_unit_test(launches_allocate_once_and_only_where_rows_are_split),
        cmocka_unit_test(a_failed_allocation_is_survived),
        cmocka_unit_test(kernels_assemble_for_gpus),
    };
    return cmocka_run_group_tests_name("row_split", tests, row_set_up, row_tear_down);
}
