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
#include "program.h"
#include "programs.h"
#include "support_row.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static const char *const schedules[] = {
    NULL,
    "block=32,row=32,vec=1,keep=1,unroll=1",
    "cluster=2,block=32,row=32,vec=1,keep=1,unroll=1",
    "block=64,row=64,vec=1,keep=0,shared=1,unroll=1,async=1,resident=1,online=1",
    "block=64,row=4,vec=1,keep=1,unroll=2,online=1",
    "split=4,block=32,row=32,vec=1",
    "split=16,block=1,row=1,vec=1,online=1"};

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

/* A part of `program`, of which nothing remains. */
static void run_part(eider_program *part)
{
    if (!part) return;
    struct row_call c = {.text = eider_program_text(part),
                         .math = EIDER_MATH_FAST,
                         .rows = 3,
                         .cols = 21,
                         .fill = any_value};
    if (eider_program_operands(part) <= ROW_OPERANDS_MAX) row_check(c, 1e-4, 1);
    eider_program_release(part);
}

/* The gradient by one input: 1 where it is computed, in one kernel or in two. */
static int differentiate(const eider_program *program, const char *name, const char *input)
{
    eider_program *back, *parts[2] = {NULL};
    eider_grad_options options = {.wrt = &input, .n_wrt = 1};
    if (eider_program_grad(program, &options, &back) != EIDER_OK) {
        /* What is a gradient already has names that a gradient would need. */
        if (!strstr(eider_error(), "rename one"))
            fail_msg("%s, %s: %s", name, input, eider_error());
        return 0;
    }
    if (eider_template_for(back->expanded)) {
        eider_program_release(back);
        return 1;
    }
    must(eider_program_split(back, &parts[0], &parts[1]));
    eider_program_release(back);
    for (int p = 0; p < 2; p++) {
        if (parts[p] && !eider_template_for(parts[p]->expanded))
            fail_msg("%s, %s: %s", name, input, eider_program_text(parts[p]));
        run_part(parts[p]);
    }
    return 1;
}

static void every_program_has_gradients_in_two_kernels_at_most(void **state)
{
    int n = 0;
    (void)state;
    for (size_t k = 0; eider_programs_row(k); k++) {
        const char *name = eider_programs_row(k)->name;
        eider_program *program;
        must(eider_program_parse(row_context, name, &program));
        for (size_t i = 0; i < eider_program_operands(program); i++) {
            eider_operand o;
            must(eider_program_operand(program, i, &o));
            int is_place = strcmp(o.name, "target") == 0 || o.type == EIDER_BOOL;
            if (o.kind == EIDER_INPUT && !is_place) n += differentiate(program, name, o.name);
        }
        eider_program_release(program);
    }
    assert_true(n > 80);
}

static void sums_of_what_a_row_has_once_stay_sums(void **state)
{
    static const char text[] = "a = colsum(max(x)); b = cast(colsum(pick(x, argmax(x))), f32)";
    eider_program *program, *parts[2];
    (void)state;
    must(eider_program_parse(row_context, text, &program));
    must(eider_program_split(program, &parts[0], &parts[1]));
    eider_program_release(program);
    assert_null(strstr(eider_program_text(parts[0]), "colsum"));
    assert_non_null(strstr(eider_program_text(parts[1]), "colsum"));
    run_part(parts[0]);
    run_part(parts[1]);
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
        struct row_call c = {.text = "cross_entropy_smooth_train",
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
        for (int64_t row = 0; row < 3; row++)
            for (int64_t col = 0; col < 257; col++) assert_true(row_output(&c, "y", row, col) == 0);
        row_release(&c);
    }
}

/* ---- Means far larger than the deviation --------------------------------------- */

/* Row `k` of the table begins at `first`, goes up by `step` and ends with `last` where that is not
 * 0; the wanted values are those of exact arithmetic on the rounded inputs. */
static const struct far_row {
    double first, step, last;
    int64_t n;
    double want_first, want_last;
    eider_dtype type;
    double eps;
} far_rows[] = {
    {0, 1e-3, 0, 16, -1.34164080, 1.34164072, EIDER_F32, 1e-5},
    {100, 1e-3, 0, 16, -1.34152771, 1.34135713, EIDER_F32, 1e-5},
    {1000, 1e-3, 0, 16, -1.34150776, 1.34423718, EIDER_F32, 1e-5},
    {10000, 1e-3, 0, 16, -1.33133335, 1.33133335, EIDER_F32, 1e-5},
    {40000, 1, 0, 4, -1.34163542, 1.34163542, EIDER_F32, 1e-5},
    {80000, 1, 0, 4, -1.34163542, 1.34163542, EIDER_F32, 1e-5},
    {1234, 0, 0, 256, 0, 0, EIDER_F32, 1e-5},
    {256, 0, 255, 10240, 0.00941238, -96.3734041, EIDER_F32, 1e-5},
    {1449.3, 0.125, 0, 16, -1.62695393, 1.62695393, EIDER_F32, 1e-5},
    {3, 0, 0, 64, 0, 0, EIDER_F16, 1e-12},
};

static const struct far_row *far_row;

static double far_mean(size_t i, int64_t row, int64_t col)
{
    (void)row;
    if (i) return i == 1 ? 1 : i == 2 ? 0 : far_row->eps;
    if (far_row->last != 0 && col == far_row->n - 1) return far_row->last;
    return far_row->first + (double)col * far_row->step;
}

static void a_mean_far_from_zero_costs_no_digits(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT(far_rows) * COUNT(schedules); k++) {
        far_row = &far_rows[k / COUNT(schedules)];
        struct row_call c = {.text = "layernorm",
                             .config = schedules[k % COUNT(schedules)],
                             .type = far_row->type,
                             .math = EIDER_MATH_FAST,
                             .rows = 1,
                             .cols = far_row->n,
                             .fill = far_mean};
        row_make(&c);
        row_run(&c);
        row_compare(&c, 1e-5, 1e-3);
        assert_near(row_output(&c, "y", 0, 0), far_row->want_first,
                    1e-5 * fabs(far_row->want_first));
        assert_near(row_output(&c, "y", 0, far_row->n - 1), far_row->want_last,
                    1e-5 * fabs(far_row->want_last));
        row_release(&c);
    }
}

static double vocabulary(size_t i, int64_t row, int64_t col)
{
    if (i == 1) return row ? 5 : 31999; /* within all of them */
    return i == 3 ? -100 : i == 2 ? 1 : i > 3 ? 0 : 4 * row_wave(i, row, col);
}

/* Lengths that are no multiple of anything: a lane too many would add exp(0) to every sum.  The
 * smallest gradients are 1e-12, and nearly all of them below 1e-4. */
static void losses_of_real_vocabularies(void **state)
{
    static const int64_t sizes[] = {32000,  50257,  100352, 128256, 129280, 151936,
                                    152064, 200064, 201088, 256000, 262208};
    (void)state;
    for (size_t i = 0; i < 2 * COUNT(sizes); i++)
        row_check((struct row_call){.text = "cross_entropy_train",
                                    .type = i % 2 ? EIDER_F32 : EIDER_BF16,
                                    .math = EIDER_MATH_FAST,
                                    .rows = 1,
                                    .cols = sizes[i / 2],
                                    .fill = vocabulary},
                  i % 2 ? 4e-6 : 4e-3, 1e-12);
}

/* ---- Programs against formulas of their own ---------------------------------------- */

static size_t index_of(const struct row_call *c, const char *name)
{
    for (size_t i = 0; i < c->n; i++)
        if (strcmp(c->info[i].name, name) == 0) return i;
    fail_msg("%s has no operand %s", c->text, name);
    return 0;
}

/* An input as the kernel has it. */
static double in(const struct row_call *c, const char *name, int64_t row, int64_t col)
{
    return row_want(c, index_of(c, name), row, col);
}

static void near_output(const struct row_call *c, const char *name, int64_t row, int64_t col,
                        double want)
{
    double got = row_output(c, name, row, col);
    int good = isnan(want) || isinf(want) ? (isnan(want) ? isnan(got) : got == want)
                                          : fabs(got - want) <= 3e-6 * fmax(1, fabs(want));
    if (!good)
        fail_msg("%s: %s[%lld, %lld] is %.9g, want %.9g", c->text, name, (long long)row,
                 (long long)col, got, want);
}

/* Runs the program on every schedule and gives the call to `check`. */
static void against(const char *text, int64_t rows, int64_t cols, row_filler fill,
                    void (*check)(const struct row_call *c))
{
    for (size_t s = 0; s < COUNT(schedules); s++) {
        struct row_call c = {.text = text,
                             .config = schedules[s],
                             .math = EIDER_MATH_FAST,
                             .rows = rows,
                             .cols = cols,
                             .fill = fill};
        row_make(&c);
        row_run(&c);
        check(&c);
        row_release(&c);
    }
}

/* What a norm makes of a row: mean (0 for rmsnorm) and the reciprocal of the deviation. */
static void statistics(const struct row_call *c, const char *x, const char *residual, int centred,
                       int64_t row, double out[2])
{
    double sum = 0, squares = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t k = 0; k < c->cols; k++) {
            double v = in(c, x, row, k) + (residual ? in(c, residual, row, k) : 0);
            double d = v - (centred ? sum / (double)c->cols : 0);
            if (pass) squares += d * d;
            if (!pass) sum += v;
        }
    out[0] = centred ? sum / (double)c->cols : 0;
    out[1] = 1 / sqrt(squares / (double)c->cols + 0.25);
}

/* The scalars are eps = 0.25 and offset = 1.5. */
static double norm_value(size_t i, int64_t row, int64_t col)
{
    return i == 4 ? 0.25 : i == 5 ? 1.5 : row_wave(i, row, col) + (i == 0 ? 0.5 : 0);
}

static void check_full_norm(const struct row_call *c)
{
    double stats[2];
    int centred = strstr(c->text, "layernorm") != NULL;
    for (int64_t r = 0; r < c->rows; r++) {
        statistics(c, "x", "residual", centred, r, stats);
        near_output(c, "rstd", r, 0, stats[1]);
        if (centred) near_output(c, "mean", r, 0, stats[0]);
        for (int64_t k = 0; k < c->cols; k++) {
            double total = in(c, "x", r, k) + in(c, "residual", r, k);
            near_output(c, "total", r, k, total);
            near_output(c, "y", r, k,
                        (total - stats[0]) * stats[1] * (in(c, "weight", 0, k) + 1.5) +
                            in(c, "bias", 0, k));
        }
    }
}

static void full_norms_add_offset_and_keep(void **state)
{
    (void)state;
    against("add_rmsnorm_full", 3, 37, norm_value, check_full_norm);
    against("add_layernorm_full", 3, 37, norm_value, check_full_norm);
}

/* x, weight and bias, then eps (and offset). */
static double plain_norm_value(size_t i, int64_t row, int64_t col)
{
    return i == 3 ? 0.25 : i == 4 ? 1.5 : row_wave(i, row, col) + (i == 0 ? 0.5 : 0);
}

static void check_plain_norm(const struct row_call *c)
{
    double stats[2], offset = strstr(c->text, "offset") ? 1.5 : 0;
    for (int64_t r = 0; r < c->rows; r++) {
        statistics(c, "x", NULL, strstr(c->text, "layernorm") != NULL, r, stats);
        for (int64_t k = 0; k < c->cols; k++)
            near_output(c, "y", r, k,
                        (in(c, "x", r, k) - stats[0]) * stats[1] *
                                (in(c, "weight", 0, k) + offset) +
                            in(c, "bias", 0, k));
    }
}

static void norms_have_bias_and_offset(void **state)
{
    (void)state;
    against("rmsnorm_bias", 2, 21, plain_norm_value, check_plain_norm);
    against("layernorm_offset", 2, 21, plain_norm_value, check_plain_norm);
}

static void check_added_layernorm(const struct row_call *c)
{
    double stats[2];
    statistics(c, "x", "residual", 1, 1, stats);
    for (int64_t k = 0; k < c->cols; k++) {
        double total = in(c, "x", 1, k) + in(c, "residual", 1, k);
        near_output(c, "total", 1, k, total);
        near_output(c, "y", 1, k,
                    (total - stats[0]) * stats[1] * in(c, "weight", 0, k) + in(c, "bias", 0, k));
    }
}

static void a_residual_is_added_before_layernorm(void **state)
{
    (void)state;
    against("add_layernorm", 2, 21, norm_value, check_added_layernorm);
}

/* The gradient of sum(dy * y + dtotal * total) by differences, in double. */
static double norm_objective(const struct row_call *c, int64_t row, int64_t moved, double step)
{
    int centred = strstr(c->text, "layernorm") != NULL;
    double n = (double)c->cols, sum = 0, squares = 0, objective = 0;
    for (int pass = 0; pass < 3; pass++)
        for (int64_t k = 0; k < c->cols; k++) {
            double v = in(c, "total", row, k) + (k == moved ? step : 0);
            double d = v - (centred ? sum / n : 0);
            if (pass == 0) sum += v;
            if (pass == 1) squares += d * d;
            if (pass == 2)
                objective += in(c, "dtotal", row, k) * v + in(c, "dy", row, k) *
                                                               (in(c, "weight", 0, k) + 1.5) * d /
                                                               sqrt(squares / n + 0.25);
        }
    return objective;
}

/* Saved statistics of what the first operand holds. */
static const struct row_call *saved;

static double backward_value(size_t i, int64_t row, int64_t col)
{
    double stats[2], sum = 0, squares = 0;
    int has_mean = strstr(saved->text, "layernorm") != NULL;
    size_t rstd = has_mean ? 3 : 2;
    if (i == rstd + 3) return 1.5;
    if (i != rstd && !(has_mean && i == 2)) return (double)(float)row_wave(i, row, col);
    for (int64_t k = 0; k < saved->cols; k++) sum += (double)(float)row_wave(0, row, k);
    stats[0] = has_mean ? sum / (double)saved->cols : 0;
    for (int64_t k = 0; k < saved->cols; k++) {
        double d = (double)(float)row_wave(0, row, k) - stats[0];
        squares += d * d;
    }
    stats[1] = 1 / sqrt(squares / (double)saved->cols + 0.25);
    return stats[i == rstd];
}

static void check_norm_backward(const struct row_call *c)
{
    for (int64_t r = 0; r < c->rows; r++)
        for (int64_t k = 0; k < c->cols; k++) {
            double slope = (norm_objective(c, r, k, 1e-4) - norm_objective(c, r, k, -1e-4)) / 2e-4;
            assert_near(row_output(c, "dx", r, k), slope, 2e-6);
        }
}

static void gradients_of_norms_pass_the_residual_on(void **state)
{
    static const char *const names[] = {"add_rmsnorm_backward", "add_layernorm_backward"};
    (void)state;
    for (size_t i = 0; i < COUNT(names); i++) {
        struct row_call shape = {.text = names[i], .cols = 19};
        saved = &shape;
        against(names[i], 2, 19, backward_value, check_norm_backward);
    }
}

static void check_dweight_dbias(const struct row_call *c)
{
    for (int64_t k = 0; k < c->cols; k++) {
        double dweight = 0, dbias = 0;
        for (int64_t r = 0; r < c->rows; r++) {
            dweight += in(c, "dy", r, k) * in(c, "x", r, k) * in(c, "rstd", r, 0);
            dbias += in(c, "dy", r, k);
        }
        near_output(c, "dweight", 0, k, dweight);
        near_output(c, "dbias", 0, k, dbias);
    }
}

static void weights_and_biases_get_sums_of_columns(void **state)
{
    (void)state;
    struct row_call c = {.text = "rmsnorm_dweight_dbias", .rows = 40, .cols = 7, .fill = row_wave};
    row_make(&c);
    row_run(&c);
    check_dweight_dbias(&c);
    row_release(&c);
}

/* Row 1 is masked altogether; row 2 is -inf where the mask is true. */
static double softmax_value(size_t i, int64_t row, int64_t col)
{
    int is_kept = row != 1 && col % 3 != 1;
    if (i == 1) return is_kept;
    return row == 2 && is_kept ? -INFINITY : row_wave(i, row, col);
}

/* Logarithm of softmax over what counts, and -inf elsewhere. */
static double log_softmax_of(const struct row_call *c, const char *x, double scale, int64_t row,
                             int64_t col, int masks)
{
    double sum = 0, v = 0;
    for (int64_t k = 0; k < c->cols; k++) {
        double e = scale * in(c, x, row, k);
        if (masks && in(c, "mask", row, k) == 0) e = -INFINITY;
        sum += exp(e);
        if (k == col) v = e;
    }
    return v == -INFINITY ? -INFINITY : v - log(sum);
}

static void check_masked_log(const struct row_call *c)
{
    for (int64_t r = 0; r < c->rows; r++)
        for (int64_t k = 0; k < c->cols; k++)
            near_output(c, "y", r, k, log_softmax_of(c, "x", 1, r, k, 1));
}

static double scaled_value(size_t i, int64_t row, int64_t col)
{
    return i == 1 ? 0.75 : row_wave(i, row, col);
}

static void check_scaled_log(const struct row_call *c)
{
    for (int64_t k = 0; k < c->cols; k++)
        near_output(c, "y", 1, k, log_softmax_of(c, "x", 0.75, 1, k, 0));
}

static double empty_row_value(size_t i, int64_t row, int64_t col)
{
    return i == 0 && row == 1 ? -INFINITY : row_wave(i, row, col);
}

static void check_safe_log(const struct row_call *c)
{
    for (int64_t r = 0; r < c->rows; r++)
        for (int64_t k = 0; k < c->cols; k++)
            near_output(c, "y", r, k, log_softmax_of(c, "x", 1, r, k, 0));
}

static void logarithms_of_softmax_follow_the_name(void **state)
{
    (void)state;
    against("log_softmax_masked", 3, 17, softmax_value, check_masked_log);
    against("log_softmax_scaled", 2, 17, scaled_value, check_scaled_log);
    against("safe_log_softmax", 2, 17, empty_row_value, check_safe_log);
}

/* y of softmax over what counts; dy is infinite where nothing counts. */
static int wants_log;
static int64_t softmax_cols;

static double softmax_backward_value(size_t i, int64_t row, int64_t col)
{
    int is_kept = row != 1 && col % 3 != 1;
    double sum = 0;
    if (i == 1) return is_kept;
    if (i == 2) return is_kept ? row_wave(2, row, col) : INFINITY;
    if (!is_kept) return wants_log ? -INFINITY : 0;
    for (int64_t k = 0; k < softmax_cols; k++)
        if (k % 3 != 1) sum += exp(row_wave(0, row, k));
    double y = row_wave(0, row, col) - log(sum);
    return wants_log ? y : exp(y);
}

static void check_masked_backward(const struct row_call *c)
{
    for (int64_t r = 0; r < c->rows; r++) {
        double sum = 0;
        for (int64_t k = 0; k < c->cols; k++)
            if (in(c, "mask", r, k) != 0)
                sum += in(c, "dy", r, k) * (wants_log ? 1 : in(c, "y", r, k));
        for (int64_t k = 0; k < c->cols; k++) {
            double y = in(c, "y", r, k), dy = in(c, "dy", r, k);
            double want = wants_log ? dy - exp(y) * sum : y * (dy - sum);
            near_output(c, "dx", r, k, in(c, "mask", r, k) != 0 ? want : 0);
        }
    }
}

static void masked_elements_have_no_gradient(void **state)
{
    (void)state;
    softmax_cols = 17;
    wants_log = 0;
    against("softmax_masked_backward", 3, 17, softmax_backward_value, check_masked_backward);
    wants_log = 1;
    against("log_softmax_masked_backward", 3, 17, softmax_backward_value, check_masked_backward);
}

static double scaled_backward_value(size_t i, int64_t row, int64_t col)
{
    return i == 2 ? 0.75 : i == 0 ? 0.3 + 0.1 * row_wave(i, row, col) : row_wave(i, row, col);
}

static void check_scaled_backward(const struct row_call *c)
{
    double products = 0, sum = 0;
    for (int64_t k = 0; k < c->cols; k++) {
        products += in(c, "y", 1, k) * in(c, "dy", 1, k);
        sum += in(c, "dy", 1, k);
    }
    for (int64_t k = 0; k < c->cols; k++) {
        double y = in(c, "y", 1, k), dy = in(c, "dy", 1, k);
        int is_log = strstr(c->text, "log") != NULL;
        near_output(c, "dx", 1, k, 0.75 * (is_log ? dy - exp(y) * sum : y * (dy - products)));
    }
}

static void check_safe_backward(const struct row_call *c)
{
    double sum = 0;
    for (int64_t k = 0; k < c->cols; k++) sum += in(c, "dy", 0, k);
    for (int64_t k = 0; k < c->cols; k++) {
        near_output(c, "dx", 0, k, in(c, "dy", 0, k) - exp(in(c, "y", 0, k)) * sum);
        assert_true(row_output(c, "dx", 1, k) == 0);
    }
}

static void gradients_of_softmax_follow_the_name(void **state)
{
    (void)state;
    against("softmax_scaled_backward", 2, 17, scaled_backward_value, check_scaled_backward);
    against("log_softmax_scaled_backward", 2, 17, scaled_backward_value, check_scaled_backward);
    against("safe_log_softmax_backward", 2, 17, empty_row_value, check_safe_backward);
}

/* ---- The gradient of layernorm's weight where the mean is far away ------------------------ */

#define FAR_ROWS 6
#define FAR_COLS 16

/* x around 10000 with a deviation of 5e-3, of which f32 keeps five bits; dy. */
static double far_value(size_t i, int64_t row, int64_t col)
{
    double x = 10000 + 3 * (double)row + 1e-3 * (double)((5 * col + row) % FAR_COLS);
    return (double)(float)(i == 0 ? x : row_wave(i, row, col));
}

/* The first call's operands by name, to those of the second. */
static const struct row_call *far_from;
static const char *const *far_names;

static double taken_value(size_t i, int64_t row, int64_t col)
{
    const char *name = far_names[i];
    if (strcmp(name, "x") == 0) return far_value(0, row, col);
    if (strcmp(name, "dy") == 0) return far_value(1, row, col);
    return strcmp(name, "eps") == 0 ? 1e-12 : row_output(far_from, name, row, 0);
}

static double first_value(size_t i, int64_t row, int64_t col)
{
    double values[] = {0, 1, 0, 1e-12};
    return i == 0 ? far_value(0, row, col) : i < 4 ? values[i] : far_value(1, row, col);
}

/* In double, of the rounded x; `scale` is the sum of magnitudes, of a deviation of 1. */
static double far_dweight(int64_t col, double *scale)
{
    double total = 0;
    *scale = 0;
    for (int64_t r = 0; r < FAR_ROWS; r++) {
        double mean = 0, squares = 0, dy = far_value(1, r, col);
        for (int64_t k = 0; k < FAR_COLS; k++) mean += far_value(0, r, k) / FAR_COLS;
        for (int64_t k = 0; k < FAR_COLS; k++) squares += pow(far_value(0, r, k) - mean, 2);
        total += dy * (far_value(0, r, col) - mean) / sqrt(squares / FAR_COLS + 1e-12);
        *scale += fabs(dy);
    }
    return total;
}

/* The largest error of dweight, of the sum of magnitudes, from what `first` saves of each row. */
static double far_error(const char *first, const char *second, const char *const *names)
{
    struct row_call a = {.text = first, .rows = FAR_ROWS, .cols = FAR_COLS, .fill = first_value};
    row_make(&a);
    row_run(&a);
    far_from = &a;
    far_names = names;
    struct row_call b = {.text = second, .rows = FAR_ROWS, .cols = FAR_COLS, .fill = taken_value};
    row_make(&b);
    for (size_t i = 0; i < b.n && b.info[i].kind != EIDER_OUTPUT; i++)
        assert_string_equal(b.info[i].name, names[i]);
    row_run(&b);
    double most = 0;
    for (int64_t k = 0; k < FAR_COLS; k++) {
        double scale, want = far_dweight(k, &scale);
        most = fmax(most, fabs(row_output(&b, "dweight", 0, k) - want) / scale);
    }
    row_release(&b);
    row_release(&a);
    return most;
}

/* The derived gradient keeps what rounding took from the mean; from a saved mean it is lost: half
 * the spacing of f32 at 10000 is a tenth of the deviation. */
static void a_derived_gradient_of_weight_keeps_the_digits(void **state)
{
    static const char *const saved_names[] = {"x", "mean", "rstd", "dy"};
    static const char *const derived_names[] = {"x",  "weight", "bias", "eps",
                                                "dy", "row1",   "row2", "row3"};
    static const char weight[] = "weight";
    const char *const wrt[] = {weight};
    eider_grad_options options = {.wrt = wrt, .n_wrt = 1};
    eider_program *program, *back, *parts[2];
    (void)state;
    must(eider_program_parse(row_context, "layernorm", &program));
    must(eider_program_grad(program, &options, &back));
    must(eider_program_split(back, &parts[0], &parts[1]));
    double derived =
        far_error(eider_program_text(parts[0]), eider_program_text(parts[1]), derived_names);
    double kept = far_error("layernorm_saved", "layernorm_dweight", saved_names);
    if (!(derived < 1e-6)) fail_msg("derived: %g", derived);
    if (!(kept < 0.12)) fail_msg("from the saved mean: %g", kept);
    eider_program_release(parts[0]);
    eider_program_release(parts[1]);
    eider_program_release(back);
    eider_program_release(program);
}

/* ---- Losses, as PyTorch defines them ------------------------------------------------ */

#define CLASSES 11

/* What is on; 0 turns an option off, as weights of 1 do. */
static struct {
    double smoothing, z_loss, cap;
    int weighs;
} loss_options;

/* logits, target, class_weight, then dloss where there is one, then the scalars.  Row 1 is
 * ignored. */
static double loss_value(size_t i, int64_t row, int64_t col)
{
    if (i == 0) return 2 * row_wave(0, row, col);
    if (i == 1) return row == 1 ? -100 : (double)((3 * row + 2) % CLASSES);
    return i == 2 && !loss_options.weighs ? 1 : 0.7 + 0.3 * row_wave(i, row, col);
}

static double full_loss_value(size_t i, int64_t row, int64_t col)
{
    double options[] = {-100, loss_options.smoothing, loss_options.z_loss, loss_options.cap};
    return i < 3 ? loss_value(i, row, col) : options[i - 3];
}

static double full_train_value(size_t i, int64_t row, int64_t col)
{
    return i == 3 ? loss_value(3, row, col) : full_loss_value(i - (i > 3), row, col);
}

static double capped(double logit)
{
    double cap = loss_options.cap;
    return cap > 0 ? cap * tanh(logit / cap) : logit;
}

/* lse comes before dloss. */
static double full_backward_value(size_t i, int64_t row, int64_t col)
{
    double sum = 0;
    if (i != 3) return i < 3 ? loss_value(i, row, col) : full_train_value(i - 1, row, col);
    for (int64_t k = 0; k < CLASSES; k++) sum += exp(capped((double)(float)loss_value(0, row, k)));
    return log(sum);
}

/* The forms without class weights. */
static double smooth_train_value(size_t i, int64_t row, int64_t col)
{
    return full_train_value(i + (i > 1), row, col);
}

static double smooth_backward_value(size_t i, int64_t row, int64_t col)
{
    return full_backward_value(i + (i > 1), row, col);
}

static double weight_of(const struct row_call *c, int64_t class)
{
    for (size_t i = 0; i < c->n; i++)
        if (strcmp(c->info[i].name, "class_weight") == 0) return in(c, "class_weight", 0, class);
    return 1;
}

/* Of logits in double, of which one is moved; -(1-a) w_t log p_t - a/K sum(w log p) + z lse^2. */
static double full_loss_of(const struct row_call *c, int64_t row, int64_t moved, double step)
{
    double sum = 0, even = 0, at = 0, weight = 0, a = loss_options.smoothing;
    int64_t target = (int64_t)in(c, "target", row, 0);
    if (target == -100) return 0;
    for (int64_t k = 0; k < c->cols; k++)
        sum += exp(capped(in(c, "logits", row, k) + (k == moved ? step : 0)));
    for (int64_t k = 0; k < c->cols; k++) {
        double loss = log(sum) - capped(in(c, "logits", row, k) + (k == moved ? step : 0));
        even += weight_of(c, k) * loss / (double)c->cols;
        if (k != target) continue;
        at = loss;
        weight = weight_of(c, k);
    }
    return (1 - a) * weight * at + a * even + loss_options.z_loss * log(sum) * log(sum);
}

static void check_full_loss(const struct row_call *c)
{
    for (int64_t r = 0; r < c->rows; r++) {
        int64_t target = (int64_t)in(c, "target", r, 0);
        near_output(c, "loss", r, 0, full_loss_of(c, r, -1, 0));
        near_output(c, "weight", r, 0, target == -100 ? 0 : in(c, "class_weight", 0, target));
    }
}

static void check_full_gradient(const struct row_call *c)
{
    for (int64_t r = 0; r < c->rows; r++)
        for (int64_t k = 0; k < c->cols; k++) {
            double slope = (full_loss_of(c, r, k, 1e-4) - full_loss_of(c, r, k, -1e-4)) / 2e-4;
            assert_near(row_output(c, "dlogits", r, k), in(c, "dloss", r, 0) * slope, 2e-6);
        }
}

static void check_full_training(const struct row_call *c)
{
    check_full_loss(c);
    check_full_gradient(c);
}

static void check_smooth_training(const struct row_call *c)
{
    for (int64_t r = 0; r < c->rows; r++) near_output(c, "loss", r, 0, full_loss_of(c, r, -1, 0));
    check_full_gradient(c);
}

static void smoothing_and_class_weights_join_as_in_pytorch(void **state)
{
    (void)state;
    loss_options.smoothing = 0.2;
    loss_options.z_loss = 0.03;
    loss_options.cap = 0;
    loss_options.weighs = 1;
    against("cross_entropy_full", 4, CLASSES, full_loss_value, check_full_loss);
    against("cross_entropy_full_train", 4, CLASSES, full_train_value, check_full_training);
    against("cross_entropy_full_backward", 4, CLASSES, full_backward_value, check_full_gradient);
}

static void smoothing_alone_has_shorter_forms(void **state)
{
    (void)state;
    loss_options.smoothing = 0.2;
    loss_options.z_loss = 0.03;
    loss_options.cap = loss_options.weighs = 0;
    against("cross_entropy_smooth_train", 4, CLASSES, smooth_train_value, check_smooth_training);
    against("cross_entropy_smooth_backward", 4, CLASSES, smooth_backward_value,
            check_full_gradient);
}

/* Every set of options is one of numbers, which no kernel depends on. */
static void a_cap_joins_every_other_option(void **state)
{
    (void)state;
    for (int which = 0; which < 16; which++) {
        loss_options.smoothing = which & 1 ? 0.2 : 0;
        loss_options.z_loss = which & 2 ? 0.03 : 0;
        loss_options.cap = which & 4 ? 1.5 : 0;
        loss_options.weighs = which & 8;
        against("cross_entropy_softcap_full", 4, CLASSES, full_loss_value, check_full_loss);
        against("cross_entropy_softcap_full_train", 4, CLASSES, full_train_value,
                check_full_training);
        against("cross_entropy_softcap_full_backward", 4, CLASSES, full_backward_value,
                check_full_gradient);
    }
}

/* The plain forms, with a cap and without. */
static double plain_value(size_t i, int64_t row, int64_t col)
{
    return i < 2    ? loss_value(i, row, col)
           : i == 2 ? loss_value(3, row, col)
           : i == 3 ? -100
                    : loss_options.cap;
}

static void check_plain(const struct row_call *c)
{
    double cap = loss_options.cap;
    for (int64_t r = 0; r < c->rows; r++) {
        double sum = 0, target = in(c, "target", r, 0), dloss = in(c, "dloss", r, 0);
        for (int64_t k = 0; k < c->cols; k++) sum += exp(capped(in(c, "logits", r, k)));
        near_output(c, "lse", r, 0, log(sum));
        for (int64_t k = 0; k < c->cols; k++) {
            double z = capped(in(c, "logits", r, k)), slope = cap > 0 ? 1 - z * z / (cap * cap) : 1;
            double want = dloss * (exp(z) / sum - (k == (int64_t)target)) * slope;
            near_output(c, "dlogits", r, k, target == -100 ? 0 : want);
            if (k == (int64_t)target) near_output(c, "loss", r, 0, log(sum) - z);
        }
    }
}

static void ignore_index_and_a_cap_alone_have_short_forms(void **state)
{
    (void)state;
    loss_options.cap = 1.5;
    against("cross_entropy_softcap_train", 4, CLASSES, plain_value, check_plain);
    loss_options.cap = 0;
    against("cross_entropy_train", 4, CLASSES, plain_value, check_plain);
}

/* A tensor of one weight stands for all of them, as it broadcasts. */
static void one_weight_is_enough_for_all_classes(void **state)
{
    (void)state;
    loss_options.smoothing = 0.2;
    loss_options.z_loss = 0.03;
    loss_options.cap = 1.5;
    loss_options.weighs = 0;
    for (size_t s = 0; s < COUNT(schedules); s++) {
        struct row_call c = {.text = "cross_entropy_softcap_full_train",
                             .config = schedules[s],
                             .rows = 4,
                             .cols = CLASSES,
                             .fill = full_train_value};
        row_make(&c);
        c.shape[index_of(&c, "class_weight")][1] = 1;
        row_run(&c);
        check_full_training(&c);
        row_release(&c);
    }
}

/* Losses of 1 + k of row 0 of 6; targets of -100 do not count. */
static int counts_none;

static double reduced_value(size_t i, int64_t row, int64_t col)
{
    (void)row;
    if (i == 0) return counts_none || col % 3 == 1 ? 0 : (double)(1 + col);
    if (i == 1) return counts_none || col % 3 == 1 ? -100 : 5;
    return -100;
}

static double weighted_value(size_t i, int64_t row, int64_t col)
{
    (void)row;
    return counts_none ? 0 : i == 0 ? (double)(1 + col) : 0.5 * (double)(col % 2);
}

static void check_sum(const struct row_call *c)
{
    assert_true(row_output(c, "total", 0, 0) == (counts_none ? 0 : 1 + 3 + 4 + 6));
}

static void check_mean(const struct row_call *c)
{
    near_output(c, "mean", 0, 0, counts_none ? NAN : 14 / 4.0);
    near_output(c, "scale", 0, 0, counts_none ? INFINITY : 1 / 4.0);
}

static void check_weighted_mean(const struct row_call *c)
{
    near_output(c, "mean", 0, 0, counts_none ? NAN : 21 / 1.5);
    near_output(c, "scale", 0, 0, counts_none ? INFINITY : 1 / 1.5);
}

static double target_value(size_t i, int64_t row, int64_t col)
{
    return i ? -100 : reduced_value(1, row, col);
}

static void check_scale(const struct row_call *c)
{
    near_output(c, "scale", 0, 0, counts_none ? INFINITY : 1 / 4.0);
}

static void losses_are_reduced_as_in_pytorch(void **state)
{
    (void)state;
    for (counts_none = 0; counts_none < 2; counts_none++) {
        against("loss_sum", 1, 6, reduced_value, check_sum);
        against("loss_mean", 1, 6, reduced_value, check_mean);
        against("loss_mean_weighted", 1, 6, weighted_value, check_weighted_mean);
        against("loss_scale", 1, 6, target_value, check_scale);
    }
}

static double big(size_t i, int64_t row, int64_t col)
{
    return i == 0 ? (row ? 896 * (col == 3) - 5 : 0) : 0;
}

static void a_row_has_its_scale(void **state)
{
    (void)state;
    struct row_call c = {.text = "row_amax_scale", .rows = 2, .cols = 9, .fill = big};
    row_make(&c);
    row_run(&c);
    assert_true(row_output(&c, "most", 0, 0) == 0 && row_output(&c, "scale", 0, 0) == 1);
    near_output(&c, "most", 1, 0, 891);
    near_output(&c, "scale", 1, 0, 891.0 / 448);
    row_release(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_stand_for_programs),
        cmocka_unit_test(every_program_runs),
        cmocka_unit_test(gradients_of_programs_are_programs),
        cmocka_unit_test(sums_of_what_a_row_has_once_stay_sums),
        cmocka_unit_test(every_program_has_gradients_in_two_kernels_at_most),
        cmocka_unit_test(an_ignored_row_has_no_loss_and_no_gradient),
        cmocka_unit_test(a_target_outside_poisons_its_row_only),
        cmocka_unit_test(masked_rows_follow_the_name),
        cmocka_unit_test(equal_elements_share_evenly),
        cmocka_unit_test(offsets_of_weights_are_added_in_f32),
        cmocka_unit_test(a_constant_row_is_its_bias),
        cmocka_unit_test(a_mean_far_from_zero_costs_no_digits),
        cmocka_unit_test(losses_of_real_vocabularies),
        cmocka_unit_test(full_norms_add_offset_and_keep),
        cmocka_unit_test(norms_have_bias_and_offset),
        cmocka_unit_test(a_residual_is_added_before_layernorm),
        cmocka_unit_test(gradients_of_norms_pass_the_residual_on),
        cmocka_unit_test(weights_and_biases_get_sums_of_columns),
        cmocka_unit_test(logarithms_of_softmax_follow_the_name),
        cmocka_unit_test(masked_elements_have_no_gradient),
        cmocka_unit_test(gradients_of_softmax_follow_the_name),
        cmocka_unit_test(a_derived_gradient_of_weight_keeps_the_digits),
        cmocka_unit_test(smoothing_and_class_weights_join_as_in_pytorch),
        cmocka_unit_test(smoothing_alone_has_shorter_forms),
        cmocka_unit_test(a_cap_joins_every_other_option),
        cmocka_unit_test(ignore_index_and_a_cap_alone_have_short_forms),
        cmocka_unit_test(one_weight_is_enough_for_all_classes),
        cmocka_unit_test(losses_are_reduced_as_in_pytorch),
        cmocka_unit_test(a_row_has_its_scale),
    };
    return cmocka_run_group_tests_name("programs", tests, row_set_up, row_tear_down);
}
