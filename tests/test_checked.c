/* test_checked.c -- kernels that are asked to check say which place lies outside of its row.
 *
 * labels: gpu
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

#include "support_row.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define COLS 37

static const char *const schedules[] = {
    NULL,
    "block=64,row=64,vec=1,keep=1,unroll=1",
    "block=32,row=4,vec=1,keep=0,unroll=2",
    "block=32,row=2,vec=8,keep=1,unroll=1",
    "cluster=2,block=32,row=32,vec=1,keep=1,unroll=1",
    "split=4,block=32,row=32,vec=1",
    "split=8,block=1,row=1,vec=1,online=1",
};

static double targets[8]; /* of the rows */

static double fill(size_t i, int64_t row, int64_t col)
{
    if (i == 1) return targets[row];
    return i == 2 ? -100 : row_wave(i, row, col);
}

static eider_kernel *prepared(struct row_call *c, int checked)
{
    eider_kernel *kernel;
    eider_request request = {.program = c->program,
                             .args = c->args,
                             .n_args = c->n,
                             .config = c->config,
                             .checked = checked};
    must(eider_prepare(c->device ? c->device : row_cpu, &request, &kernel));
    return kernel;
}

/* A check after a launch on the CPU; the message is kept. */
static eider_status launched(const char *text, const char *config, int64_t rows, int64_t cols)
{
    struct row_call c = {.text = text, .config = config, .rows = rows, .cols = cols, .fill = fill};
    row_make(&c);
    eider_kernel *kernel = prepared(&c, 1);
    must(eider_launch(kernel, NULL, c.args, c.n));
    eider_status status = eider_kernel_check(kernel, NULL);
    if (status != EIDER_OK) { /* it is told once */
        char message[256];
        snprintf(message, sizeof message, "%s", eider_error());
        must(eider_kernel_check(kernel, NULL));
        (void)eider_fail(status, "%s", message);
    }
    eider_kernel_release(kernel);
    row_release(&c);
    return status;
}

static void says(const char *text, const char *config, int64_t rows, const char *want)
{
    eider_status status = launched(text, config, rows, COLS);
    if (status != EIDER_OUTSIDE) fail_msg("%s [%s]: %d", text, config ? config : "", (int)status);
    assert_string_equal(eider_error(), want);
}

static void set_targets(const double *values, size_t n)
{
    memcpy(targets, values, n * sizeof *values);
}

#define TARGETS(...)                                   \
    do {                                               \
        static const double values_[] = {__VA_ARGS__}; \
        set_targets(values_, COUNT(values_));          \
    } while (0)

/* ---- What is found ---------------------------------------------------------------- */

static void the_first_row_outside_is_named(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT(schedules); s++) {
        TARGETS(0, 36, 5, 37, -1, 40, 2, 3);
        says("cross_entropy", schedules[s], 8,
             "pick: in row 3 place 37, of target, is outside: the row has 37 elements");
        TARGETS(0, 36, 5, 6, 36, -1, 2, 99);
        says("cross_entropy", schedules[s], 8,
             "pick: in row 5 place -1, of target, is outside: the row has 37 elements");
    }
}

static void places_of_64_bits_are_not_cut_to_size(void **state)
{
    (void)state;
    TARGETS(4294967296.0 * 8 + 5, 0);
    says("cross_entropy", NULL, 2,
         "pick: in row 0 place 2147483647 or more, of target, is outside: the row has 37 elements");
    TARGETS(-4294967296.0 * 8 + 5, 0);
    says("cross_entropy", NULL, 2,
         "pick: in row 0 place -2147483648 or less, of target, is outside: the row has 37 "
         "elements");
}

static void what_is_ignored_is_not_outside(void **state)
{
    (void)state;
    TARGETS(-100, 3, -100, 36);
    for (size_t s = 0; s < COUNT(schedules); s++)
        must(launched("cross_entropy", schedules[s], 4, COLS));
    TARGETS(3, -100, 36, -100);
    must(launched("in logits, target: row; keep = target != -100\n"
                  "loss = pick(logits, select(keep, target, 0))",
                  NULL, 4, COLS));
}

/* Vectors reach beyond the end of a row, where there is nothing to pick. */
static void places_that_differ_in_the_row_count_as_far_as_it_goes(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT(schedules); s++) {
        for (int64_t cols = 18; cols < 70; cols += 17) {
            must(launched("in x; y = pick(x, cols() - 1 - col())", schedules[s], 3, cols));
            must(launched("in x; y = pick(x, col()) + sum(x)", schedules[s], 3, cols));
        }
        says("in x; y = pick(x, col() + 1)", schedules[s], 3,
             "pick: in row 0 place 37, of no input, is outside: the row has 37 elements");
        says("in x; y = pick(x, 0 - col())", schedules[s], 3,
             "pick: in row 0 place -36, of no input, is outside: the row has 37 elements");
    }
}

/* Elements that the row does not have, or that nobody picks, have no places. */
static void picks_within_picks_count_where_they_are_wanted(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT(schedules); s++) {
        must(launched("in x; y = pick(pick(x, col() - 1), max(col(), 1))", schedules[s], 3, COLS));
        must(launched("in x; y = pick(pick(x, col() - 1), cols() - 1) + x", schedules[s], 3, 18));
        says("in x; y = pick(pick(x, col() - 1), col())", schedules[s], 3,
             "pick: in row 0 place -1, of no input, is outside: the row has 37 elements");
    }
}

static void sums_down_the_rows_are_checked(void **state)
{
    static const char *const configs[] = {NULL, "block=32,row=32,vec=1,unroll=1",
                                          "block=64,row=16,vec=1,unroll=4"};
    (void)state;
    for (size_t s = 0; s < COUNT(configs); s++) {
        TARGETS(0, 36, 5, 37, -1, 40, 2);
        must(launched("in x; a = colsum(pick(x, cols() - 1 - col()))", configs[s], 7, COLS));
        says("in x; a = colsum(pick(x, col() + 1))", configs[s], 7,
             "pick: in row 0 place 37, of no input, is outside: the row has 37 elements");
        says("in x, target: i64 row; a = colsum(pick(x, target))", configs[s], 7,
             "pick: in row 3 place 37, of target, is outside: the row has 37 elements");
    }
}

static double masked_target(size_t i, int64_t row, int64_t col)
{
    return i == 1 ? (double)(col == 5 && row == 1 ? 200 : col) : row_wave(i, row, col);
}

static void gathers_are_checked_element_by_element(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT(schedules); s++) {
        struct row_call c = {.text = "in x, t: i32; y = pick(x, t)",
                             .config = schedules[s],
                             .rows = 3,
                             .cols = COLS,
                             .fill = masked_target};
        row_make(&c);
        eider_kernel *kernel = prepared(&c, 1);
        must(eider_launch(kernel, NULL, c.args, c.n));
        assert_int_equal(eider_kernel_check(kernel, NULL), EIDER_OUTSIDE);
        assert_string_equal(eider_error(),
                            "pick: in row 1 place 200, of t, is outside: the row has 37 elements");
        assert_true(isnan(row_output(&c, "y", 1, 5)) && isfinite(row_output(&c, "y", 1, 6)));
        eider_kernel_release(kernel);
        row_release(&c);
    }
}

/* One kernel for rows of any length, launched with two. */
static void the_length_is_that_of_the_launch(void **state)
{
    (void)state;
    struct row_call c = {
        .text = "in logits, target: row; y = pick(logits, target)", .any = 1, .rows = 3};
    for (int64_t cols = 20; cols > 9; cols -= 10) {
        eider_kernel *kernel;
        char want[128];
        c.cols = cols;
        c.fill = fill;
        TARGETS(0, 25, 1);
        row_make(&c);
        eider_request request = {
            .program = c.program, .args = c.args, .n_args = c.n, .any_layout = 1, .checked = 1};
        must(eider_prepare(row_cpu, &request, &kernel));
        must(eider_launch(kernel, NULL, c.args, c.n));
        assert_int_equal(eider_kernel_check(kernel, NULL), EIDER_OUTSIDE);
        snprintf(want, sizeof want, "the row has %d elements", (int)cols);
        assert_non_null(strstr(eider_error(), want));
        eider_kernel_release(kernel);
        row_release(&c);
    }
}

/* ---- Who is asked ------------------------------------------------------------------- */

static void key_of(struct row_call *c, int checked, char key[64])
{
    eider_kernel *kernel = prepared(c, checked);
    eider_kernel_info info;
    eider_kernel_describe(kernel, &info);
    snprintf(key, 64, "%s", info.key);
    eider_kernel_release(kernel);
}

static void checking_is_part_of_the_key_where_something_is_picked(void **state)
{
    static const char *const texts[] = {"cross_entropy", "softmax", "out = x * 2"};
    char plain[64], checked[64];
    (void)state;
    TARGETS(0, 0);
    for (size_t i = 0; i < COUNT(texts); i++) {
        struct row_call c = {.text = texts[i], .rows = 2, .cols = COLS, .fill = fill};
        row_make(&c);
        key_of(&c, 0, plain);
        key_of(&c, 1, checked);
        if ((strcmp(plain, checked) != 0) != (i == 0)) fail_msg("%s", texts[i]);
        row_release(&c);
    }
}

static void who_does_not_ask_hears_nothing(void **state)
{
    (void)state;
    struct row_call c = {.text = "cross_entropy", .rows = 2, .cols = COLS, .fill = fill};
    const void *ptx;
    size_t size;
    TARGETS(99, 99);
    row_make(&c);
    eider_kernel *kernel = prepared(&c, 0);
    must(eider_launch(kernel, NULL, c.args, c.n));
    must(eider_kernel_check(kernel, NULL));
    eider_kernel_release(kernel);
    for (int checked = 0; checked < 2; checked++) {
        eider_request request = {.program = c.program,
                                 .args = c.args,
                                 .n_args = c.n,
                                 .target = "sm_90",
                                 .checked = checked};
        must(eider_compile(row_context, &request, &kernel));
        must(eider_kernel_stage(kernel, EIDER_STAGE_PTX, &ptx, &size));
        assert_int_equal(strstr(ptx, "atom.global.max.u64") != NULL, checked);
        assert_int_equal(eider_kernel_check(kernel, NULL), EIDER_NOT_PREPARED);
        eider_kernel_release(kernel);
    }
    assert_int_equal(eider_kernel_check(NULL, NULL), EIDER_BAD_ARG);
    row_release(&c);
}

static void a_kernel_from_disk_checks_as_well(void **state)
{
    char folder[] = "/tmp/eider_checked_XXXXXX", command[64];
    (void)state;
    assert_non_null(mkdtemp(folder));
    eider_context_options options = {.cache_dir = folder};
    for (int pass = 0; pass < 2; pass++) {
        eider_context *ctx;
        eider_device *cpu;
        eider_program *program;
        eider_kernel *kernel;
        eider_counters counters;
        int64_t shape[] = {2, 3}, rows[] = {2, 1};
        float x[6] = {0}, y[2];
        int32_t t[] = {2, 3};
        eider_tensor args[] = {tensor_of(x, EIDER_F32, 2, shape), tensor_of(t, EIDER_I32, 2, rows),
                               tensor_of(y, EIDER_F32, 2, rows)};
        must(eider_context_create(&options, &ctx));
        must(eider_device_open(ctx, "cpu", &cpu));
        must(eider_program_parse(ctx, "in x, t: row; y = pick(x, t)", &program));
        eider_request request = {.program = program, .args = args, .n_args = 3, .checked = 1};
        must(eider_prepare(cpu, &request, &kernel));
        eider_context_counters(ctx, &counters);
        assert_int_equal(counters.disk_hits, pass);
        must(eider_launch(kernel, NULL, args, 3));
        assert_int_equal(eider_kernel_check(kernel, NULL), EIDER_OUTSIDE);
        assert_non_null(strstr(eider_error(), "in row 1 place 3, of t"));
        eider_kernel_release(kernel);
        eider_program_release(program);
        eider_device_release(cpu);
        eider_context_destroy(ctx);
    }
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* ---- On a GPU ------------------------------------------------------------------------ */

/* The process goes on: nothing traps. */
static void a_gpu_says_the_same_and_stays_usable(void **state)
{
    eider_device *gpu;
    (void)state;
    if (eider_device_open(row_context, "cuda:0", &gpu) != EIDER_OK) {
        fprintf(stderr, "SKIPPED (no GPU): %s\n", eider_error());
        skip();
    }
    for (size_t s = 0; s < COUNT(schedules); s++) {
        struct row_call c = {.text = "cross_entropy",
                             .config = schedules[s],
                             .rows = 8,
                             .cols = COLS,
                             .device = gpu,
                             .fill = fill};
        TARGETS(0, 36, 5, 37, -1, 40, 2, 3);
        row_make(&c);
        eider_kernel *kernel = prepared(&c, 1);
        eider_tensor args[ROW_OPERANDS_MAX];
        for (int pass = 0; pass < 2; pass++) {
            for (size_t i = 0; i < c.n; i++) {
                args[i] = c.args[i];
                if (c.info[i].kind == EIDER_SCALAR) continue;
                size_t bytes = (size_t)(row_rows_of(&c, i) * row_cols_of(&c, i)) *
                               eider_dtype_size(c.args[i].type);
                must(eider_memory_alloc(gpu, bytes, &args[i].data));
                must(eider_memory_copy(gpu, NULL, args[i].data, c.args[i].data, bytes,
                                       EIDER_HOST_TO_DEVICE));
            }
            must(eider_launch(kernel, NULL, args, c.n));
            assert_int_equal(eider_kernel_check(kernel, NULL), EIDER_OUTSIDE);
            assert_string_equal(
                eider_error(),
                "pick: in row 3 place 37, of target, is outside: the row has 37 elements");
            must(eider_kernel_check(kernel, NULL));
            for (size_t i = 0; i < c.n; i++)
                if (c.info[i].kind != EIDER_SCALAR) eider_memory_free(gpu, args[i].data);
        }
        eider_kernel_release(kernel);
        row_release(&c);
    }
    eider_device_release(gpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_row_outside_is_named),
        cmocka_unit_test(places_of_64_bits_are_not_cut_to_size),
        cmocka_unit_test(what_is_ignored_is_not_outside),
        cmocka_unit_test(places_that_differ_in_the_row_count_as_far_as_it_goes),
        cmocka_unit_test(picks_within_picks_count_where_they_are_wanted),
        cmocka_unit_test(sums_down_the_rows_are_checked),
        cmocka_unit_test(gathers_are_checked_element_by_element),
        cmocka_unit_test(the_length_is_that_of_the_launch),
        cmocka_unit_test(checking_is_part_of_the_key_where_something_is_picked),
        cmocka_unit_test(who_does_not_ask_hears_nothing),
        cmocka_unit_test(a_kernel_from_disk_checks_as_well),
        cmocka_unit_test(a_gpu_says_the_same_and_stays_usable),
    };
    return cmocka_run_group_tests_name("checked", tests, row_set_up, row_tear_down);
}
