/* test_programs.c -- the programs that have names: all run, and say what they should. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "passes.h"
#include "programs.h"
#include "support_row.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static const char *const schedules[] = {NULL, "block=32,row=32,vec=1,keep=1,unroll=1"};

static void assert_near(double got, double want, double error)
{
    if (!(fabs(got - want) <= error)) fail_msg("%.12g, want %.12g", got, want);
}

/* ---- The table ----------------------------------------------------------------- */

static void names_stand_for_programs(void **state)
{
    (void)state;
    assert_string_equal(eider_programs_resolve(" softmax\n"), eider_programs_resolve("softmax"));
    assert_non_null(strstr(eider_programs_resolve("softmax"), "max(x)"));
    assert_string_equal(eider_programs_resolve("softmax x"), "softmax x");
    assert_string_equal(eider_programs_resolve("soft"), "soft");
    eider_row row;
    size_t n = 0, found = 0;
    for (; eider_table_row(EIDER_TABLE_KERNELS, n, &row); n++)
        if (strcmp(row.name, "rmsnorm") == 0 && strcmp(row.signature, "program") == 0) found++;
    assert_int_equal(found, 1);
}

/* Scalars are small and positive; the target of row 0 is ignore_index. */
static double any_value(size_t i, int64_t row, int64_t col)
{
    return (double)row + 0.3 + 0.1 * row_wave(i, row, col);
}

/* Every program, as far as its kernel agrees with the reference. */
static void every_program_runs(void **state)
{
    int n = 0;
    (void)state;
    for (size_t k = 0; eider_programs_row(k); k++, n++)
        for (size_t s = 0; s < COUNT(schedules); s++) {
            struct row_call c = {.text = eider_programs_row(k)->name,
                                 .config = schedules[s],
                                 .math = EIDER_MATH_FAST,
                                 .rows = 2,
                                 .cols = 37,
                                 .fill = any_value};
            int is_fp8 = strstr(eider_programs_row(k)->text, "e4m3") != NULL;
            row_check(c, is_fp8 ? 0.07 : 1e-5, 0.1); /* a rounding may fall the other way */
        }
    assert_true(n >= 25);
}

static void gradients_of_programs_are_programs(void **state)
{
    static const char *const names[] = {"rmsnorm", "layernorm", "softmax", "log_softmax",
                                        "add_rmsnorm"};
    (void)state;
    for (size_t i = 0; i < COUNT(names); i++) {
        eider_program *program, *back;
        must(eider_program_parse(row_context, names[i], &program));
        must(eider_program_grad(program, NULL, &back));
        assert_true(eider_program_operands(back) > eider_program_operands(program));
        eider_program_release(back);
        eider_program_release(program);
    }
}

/* ---- Values ----------------------------------------------------------------------- */

static const double *given[8]; /* row-major values of each operand */
static int64_t given_cols;

static double from_given(size_t i, int64_t row, int64_t col)
{
    return given[i][row * given_cols + col];
}

static double from_given_rows(size_t i, int64_t row, int64_t col)
{
    return i == 0 ? given[0][row * given_cols + col] : given[i][row];
}

/* Ignored rows leak into nothing, not even where labels are smoothed. */
static void an_ignored_row_has_no_loss_and_no_gradient(void **state)
{
    static const double logits[] = {1, 2, 3, 0.4}, target[] = {-100, 1}, one[] = {1, 1},
                        ignore[] = {-100}, smoothing[] = {0.1}, none[] = {0};
    (void)state;
    given_cols = 2;
    given[0] = logits, given[1] = target, given[2] = one, given[3] = ignore, given[4] = smoothing,
    given[5] = none;
    for (size_t s = 0; s < COUNT(schedules); s++) {
        struct row_call c = {.text = "cross_entropy_train",
                             .config = schedules[s],
                             .rows = 2,
                             .cols = 2,
                             .fill = from_given_rows};
        row_make(&c);
        row_run(&c);
        assert_true(row_output(&c, "loss", 0, 0) == 0);
        assert_true(row_output(&c, "dlogits", 0, 0) == 0 && row_output(&c, "dlogits", 0, 1) == 0);
        assert_near(row_output(&c, "loss", 1, 0), 2.54164469197, 1e-6);
        assert_near(row_output(&c, "dlogits", 1, 0), 0.880861579657, 1e-6);
        assert_near(row_output(&c, "dlogits", 1, 1), -0.880861579657, 1e-6);
        row_release(&c);
    }
}

static double outside_target(size_t i, int64_t row, int64_t col)
{
    static const double targets[] = {37, -1, 1e9, 36};
    if (i == 1) return targets[row];
    return i == 2 ? -100 : row_wave(i, row, col);
}

/* The reads stay in the row: the guard bands would not notice, the sanitizer does. */
static void a_target_outside_poisons_its_row_only(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT(schedules); s++) {
        struct row_call c = {.text = "cross_entropy",
                             .config = schedules[s],
                             .rows = 4,
                             .cols = 37,
                             .fill = outside_target};
        row_make(&c);
        row_run(&c);
        for (int64_t row = 0; row < 3; row++) assert_true(isnan(row_output(&c, "loss", row, 0)));
        assert_true(isfinite(row_output(&c, "loss", 3, 0)));
        row_release(&c);
    }
}

static double masked(size_t i, int64_t row, int64_t col)
{
    if (i == 0) return row == 2 ? -INFINITY : row_wave(i, row, col);
    return row == 1 ? 0 : col % 2 == 0;
}

static void masked_rows_follow_the_name(void **state)
{
    (void)state;
    struct row_call c = {.text = "softmax_masked", .rows = 3, .cols = 10, .fill = masked};
    c.type = EIDER_F32;
    row_make(&c);
    row_run(&c);
    row_compare(&c, 1e-6, 1e-30);
    assert_true(row_output(&c, "y", 0, 1) == 0 && row_output(&c, "y", 0, 0) > 0);
    for (int64_t col = 0; col < 10; col++) assert_true(row_output(&c, "y", 1, col) == 0);
    row_release(&c);
    for (int safe = 0; safe < 2; safe++) {
        struct row_call d = {
            .text = safe ? "safe_softmax" : "softmax", .rows = 3, .cols = 10, .fill = masked};
        row_make(&d);
        row_run(&d);
        double y = row_output(&d, "y", 2, 3);
        assert_true(safe ? y == 0 : isnan(y));
        row_release(&d);
    }
}

static double zeros(size_t i, int64_t row, int64_t col)
{
    (void)i, (void)row, (void)col;
    return 0;
}

/* Sums in 16 bits would stop at 256 or 2048, and lanes beyond the end would add to them. */
static void equal_elements_share_evenly(void **state)
{
    static const int64_t widths[] = {1, 2, 3, 31, 33, 513, 1000, 1023, 4096, 4097};
    static const eider_dtype types[] = {EIDER_F32, EIDER_F16, EIDER_BF16, EIDER_F64};
    (void)state;
    for (size_t w = 0; w < COUNT(widths); w++) {
        struct row_call c = {.text = "softmax",
                             .config = schedules[w % 2],
                             .type = types[w % 4],
                             .rows = 2,
                             .cols = widths[w],
                             .fill = zeros};
        row_make(&c);
        row_run(&c);
        double want = eider_round_to(1 / (double)widths[w], c.type, 0);
        for (int64_t col = 0; col < widths[w]; col++)
            assert_near(row_output(&c, "y", 1, col), want, c.type == EIDER_F64 ? 0 : 1e-7 * want);
        row_release(&c);
    }
}

/* 1 + 2**-8 is 1 in bf16; the offset is added in f32. */
static void offsets_of_weights_are_added_in_f32(void **state)
{
    static const double x[] = {1.5, 1.5, 1.5, .5, .5, .5, .5, .5};
    static const double w[] = {0x1p-8, 0x1p-8, 0x1p-8, 0, 0, 0, 0, 0};
    static const double eps[] = {1e-6}, offset[] = {1};
    (void)state;
    given_cols = 8;
    given[0] = x, given[1] = w, given[2] = eps, given[3] = offset;
    struct row_call c = {.text = "rmsnorm_offset",
                         .type = EIDER_BF16,
                         .math = EIDER_MATH_FAST,
                         .rows = 1,
                         .cols = 8,
                         .fill = from_given};
    row_make(&c);
    row_run(&c);
    for (int64_t col = 0; col < 8; col++)
        assert_true(row_output(&c, "y", 0, col) == (col < 3 ? 1.5078125 : 0.5));
    row_release(&c);
}

static double constant_row(size_t i, int64_t row, int64_t col)
{
    (void)col;
    return i == 0 ? 1234 + 7 * (double)row : i == 3 ? 1e-12 : i == 1 ? 1 : 0;
}

static void a_constant_row_is_its_bias(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT(schedules); s++) {
        struct row_call c = {.text = "layernorm",
                             .config = schedules[s],
                             .math = EIDER_MATH_FAST,
                             .rows = 3,
                             .cols = 257,
                             .fill = constant_row};
        row_make(&c);
        row_run(&c);
        for (int64_t col = 0; col < 257; col++) assert_true(row_output(&c, "y", 2, col) == 0);
        row_release(&c);
    }
}

static double vocabulary(size_t i, int64_t row, int64_t col)
{
    if (i == 1) return row ? 5 : 31999; /* within all of them */
    return i == 3 ? -100 : i == 2 ? 1 : i > 3 ? 0 : 4 * row_wave(i, row, col);
}

/* Lengths that are no multiple of anything: a lane too many would add exp(0) to every sum. */
static void losses_of_real_vocabularies(void **state)
{
    static const int64_t sizes[] = {32000,  50257,  100352, 128256, 129280, 151936,
                                    152064, 200064, 201088, 256000, 262208};
    (void)state;
    for (size_t i = 0; i < COUNT(sizes); i++)
        row_check((struct row_call){.text = "cross_entropy_train",
                                    .type = i % 2 ? EIDER_F32 : EIDER_BF16,
                                    .math = EIDER_MATH_FAST,
                                    .rows = 1,
                                    .cols = sizes[i],
                                    .fill = vocabulary},
                  i % 2 ? 2e-6 : 4e-3, 1e-4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_stand_for_programs),
        cmocka_unit_test(every_program_runs),
        cmocka_unit_test(gradients_of_programs_are_programs),
        cmocka_unit_test(an_ignored_row_has_no_loss_and_no_gradient),
        cmocka_unit_test(a_target_outside_poisons_its_row_only),
        cmocka_unit_test(masked_rows_follow_the_name),
        cmocka_unit_test(equal_elements_share_evenly),
        cmocka_unit_test(offsets_of_weights_are_added_in_f32),
        cmocka_unit_test(a_constant_row_is_its_bias),
        cmocka_unit_test(losses_of_real_vocabularies),
    };
    return cmocka_run_group_tests_name("programs", tests, row_set_up, row_tear_down);
}
