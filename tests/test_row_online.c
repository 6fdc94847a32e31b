/* test_row_online.c -- sums of powers in the pass that finds the largest value, on the CPU.
 *
 * Invariant: `online` never changes more than roundings, whatever the order in which the values
 * of a row come, and never what is infinite, NaN, or empty.
 *
 * timeout: 600
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "kernel.h"
#include "row.h"
#include "support_row.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* ---- Values --------------------------------------------------------------------------- */

/* A row for each order that moves the reference often, seldom, late, or far. */
static double orders(size_t i, int64_t row, int64_t col)
{
    double wave = row_wave(i, row, col);
    switch (row % 8) {
    case 0:
        return 0.37 * (double)col + wave; /* ever larger */
    case 1:
        return -0.37 * (double)col + wave;
    case 2:
        return 1e-3 * (double)col; /* larger by less than the headroom for long */
    case 3:
        return col % 2 ? 500 : -500;
    case 4:
        return col % 97 == 96 ? 30 + wave : wave;
    case 5:
        return (double)(col * 7919 % 1009) - 504;
    case 6:
        return 1e4 + wave; /* far from 0, near each other */
    default:
        return -1e30 + 1e28 * (double)(col % 199);
    }
}

static double infinite(size_t i, int64_t row, int64_t col)
{
    double wave = row_wave(i, row, col);
    switch (row % 9) {
    case 0:
        return -INFINITY;
    case 8:
        return -2000 + wave; /* what is left of nothing must not be moved to it */
    case 1:
        return col == 5 ? 3 : -INFINITY;
    case 2:
        return col % 3 ? -1000 + wave : -INFINITY;
    case 3:
        return col < 40 ? -INFINITY : -1000 + wave;
    case 4:
        return col == 17 ? INFINITY : wave;
    case 5:
        return col == 17 ? NAN : wave;
    case 6:
        return col % 2 ? INFINITY : -INFINITY;
    default:
        return col == 63 ? -INFINITY : 80 + wave; /* e^80 is finite, its square is not */
    }
}

static const char *const configs[] = {
    "block=1,row=1,vec=1,keep=0,unroll=1",
    "block=1,row=1,vec=8,keep=0,unroll=2",
    "block=32,row=1,vec=4,keep=1,unroll=1",
    "block=64,row=16,vec=2,keep=0,unroll=4",
    "block=32,row=32,vec=1,keep=0,unroll=1",
    "block=128,row=128,vec=1,keep=1,unroll=1",
    "block=64,row=64,vec=2,keep=0,shared=4,unroll=2",
    "block=64,row=64,vec=1,keep=0,shared=2,unroll=1,async=1,resident=1",
    "cluster=2,block=32,row=32,vec=2,keep=0,unroll=1",
    "cluster=8,block=32,row=32,vec=1,keep=0,unroll=1",
    "cluster=4,block=64,row=64,vec=1,keep=1,shared=1,unroll=1",
    "split=2,block=32,row=32,vec=1,keep=0,unroll=1",
    "split=64,block=1,row=1,vec=1,keep=0,unroll=1",
};

static const char *const texts[] = {
    "l = logsumexp(x)",
    "m = max(x); s = sum(exp(x - m))",
    "m = amax(x); e = exp(x - select(m == -inf, 0, m)); s = sum(e); y = select(s > 0, e / s, s)",
    "m = max(x); e = exp(x - m); y = e / sum(e)",
    "a = x * 0.25; l = logsumexp(a); p = max(x)",
    "in x, w: column; s = x * w; l = logsumexp(s); k = logsumexp(x); d = sum(x * 0 + 1)",
};

static void check_all(row_filler fill, eider_dtype type, eider_math math, double tolerance)
{
    static const int64_t lengths[] = {1, 31, 64, 1000, 4099};
    size_t n = 0;
    for (size_t t = 0; t < COUNT(texts); t++)
        for (size_t k = t % 3; k < COUNT(configs); k += 3) {
            char config[128];
            int64_t cols = lengths[n++ % COUNT(lengths)];
            if (cols == 1 && !strstr(configs[k], "vec=1,")) cols = lengths[1];
            snprintf(config, sizeof config, "%s,online=1", configs[k]);
            row_check((struct row_call){.text = texts[t],
                                        .config = config,
                                        .type = type,
                                        .math = math,
                                        .rows = 9,
                                        .cols = cols,
                                        .fill = fill},
                      tolerance, 1e-30);
        }
}

static void the_order_of_values_costs_no_digits(void **state)
{
    (void)state;
    check_all(orders, EIDER_F32, EIDER_MATH_EXACT, 3e-6);
    check_all(orders, EIDER_F64, EIDER_MATH_EXACT, 1e-13);
}

static void short_powers_are_as_good_as_ever(void **state)
{
    (void)state;
    check_all(orders, EIDER_F32, EIDER_MATH_FAST, 1e-5);
}

/* Steps that are within the headroom, of powers that are not. */
static double steep(size_t i, int64_t row, int64_t col)
{
    (void)i;
    return row % 2 ? (double)(col % 3) * 2 : 99 - (double)(col % 4) + (col == 30 ? 2000 : 0);
}

/* Large factors, and references that are not the largest value, are no sums of this kind. */
static void powers_beyond_the_headroom_are_left_alone(void **state)
{
    static const char *const other[] = {
        "m = max(x); e = exp((x - m) * 50); y = e / sum(e)",
        "m = max(x); e = exp((x - m) * 9); y = e / sum(e)",
        "m = max(x); s = sum(exp(x - select(m < 1000, 0, m)))",
        "m = max(x); s = sum(exp(x - select(abs(m) == inf, 0, m)))",
    };
    (void)state;
    for (size_t t = 0; t < COUNT(other); t++)
        for (size_t k = t % 2; k < COUNT(configs); k += 2) {
            char config[128];
            snprintf(config, sizeof config, "%s,online=1", configs[k]);
            row_check((struct row_call){.text = other[t],
                                        .config = config,
                                        .math = t % 2 ? EIDER_MATH_FAST : EIDER_MATH_APPROX,
                                        .rows = 2,
                                        .cols = 300,
                                        .fill = steep},
                      1e-2, 1e-30);
        }
}

static void infinite_values_stay_what_they_are(void **state)
{
    (void)state;
    check_all(infinite, EIDER_F32, EIDER_MATH_FAST, 1e-5);
    check_all(infinite, EIDER_F32, EIDER_MATH_APPROX, 1e-2);
    check_all(infinite, EIDER_F64, EIDER_MATH_EXACT, 1e-13);
}

/* ---- What it saves, and when it is taken ------------------------------------------------ */

static int loads(const char *text, const char *config)
{
    int64_t shape[2] = {16, 65536};
    eider_program *program;
    eider_kernel *kernel;
    const char *ptx;
    size_t size;
    must(eider_program_parse(row_context, text, &program));
    eider_tensor args[2];
    for (int i = 0; i < 2; i++)
        args[i] = (eider_tensor){.type = EIDER_F32, .rank = 2, .shape = shape};
    eider_request request = {
        .program = program, .args = args, .n_args = 2, .config = config, .target = "sm_90"};
    must(eider_compile(row_context, &request, &kernel));
    must(eider_kernel_stage(kernel, EIDER_STAGE_PTX, (const void **)&ptx, &size));
    int n = row_count(ptx, "ld.global.v4");
    eider_kernel_release(kernel);
    eider_program_release(program);
    return n;
}

static void a_pass_is_saved(void **state)
{
    static const char softmax[] = "m = max(x); e = exp(x - m); y = e / sum(e)";
    static const char other[] = "m = max(x); e = exp(m - x); y = e / sum(e)";
    static const char config[] = "row=1024,block=1024,cluster=1,keep=0,shared=0,unroll=1,online=";
    char with[128], without[128];
    (void)state;
    snprintf(with, sizeof with, "%s1", config);
    snprintf(without, sizeof without, "%s0", config);
    assert_int_equal(loads(softmax, without), 3);
    assert_int_equal(loads(softmax, with), 2);
    assert_int_equal(loads(other, with), 3); /* the difference is the wrong way round */
}

static struct eider_row_config config_of(const char *text, eider_dtype type, int64_t cols,
                                         const char *target)
{
    struct row_call c = {.text = text, .type = type, .rows = 1, .cols = cols, .fill = row_wave};
    struct eider_plan plan;
    row_make(&c);
    eider_request request = row_request(&c);
    request.target = target;
    must(eider_prepare_plan(row_context, NULL, &request, &plan));
    row_release(&c);
    return eider_row_config_of(&plan.config);
}

/* What one pass can do keeps nothing; what is kept in registers is not summed online. */
static void the_default_goes_over_a_row_as_seldom_as_it_can(void **state)
{
    static const struct {
        const char *text;
        eider_dtype type;
        int64_t cols;
        const char *target;
        int keeps, online;
    } cases[] = {
        {"cross_entropy", EIDER_BF16, 1024, "sm_90", 1, 0},
        {"cross_entropy", EIDER_BF16, 2048, "sm_90", 1, 0},
        {"layernorm", EIDER_BF16, 1024, "sm_90", 1, 0},
        {"layernorm", EIDER_F32, 131072, "sm_90", 1, 1},
        {"layernorm", EIDER_BF16, 1024, "cpu", 0, 0},
        {"cross_entropy", EIDER_BF16, 65536, "sm_90", 0, 1},
        {"cross_entropy", EIDER_F32, 128256, "sm_90", 0, 1},
        {"y = select(col() == 3, x, 0)", EIDER_BF16, 100000, "sm_90", 0, 1},
        {"softmax", EIDER_BF16, 2048, "sm_90", 1, 0},
        {"softmax", EIDER_BF16, 4096, "sm_90", 0, 1},
        {"softmax", EIDER_F32, 16384, "sm_90", 0, 1},
        {"softmax", EIDER_BF16, 65536, "sm_90", 1, 0},
        {"cross_entropy_train", EIDER_BF16, 4096, "sm_90", 1, 0},
        {"cross_entropy_train", EIDER_BF16, 131072, "sm_90", 1, 0},
        {"l = logsumexp(x); a = max(abs(x - l))", EIDER_BF16, 65536, "sm_90", 1, 0},
        {"softmax", EIDER_BF16, 65536, "cpu", 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct eider_row_config c =
            config_of(cases[i].text, cases[i].type, cases[i].cols, cases[i].target);
        if ((c.keep + c.shared > 0) != cases[i].keeps || c.online != cases[i].online)
            fail_msg("%s of %d on %s: keep=%d,shared=%d,online=%d", cases[i].text,
                     (int)cases[i].cols, cases[i].target, c.keep, c.shared, c.online);
    }
}

/* A default config is one that the template takes, also where weights stay in shared memory. */
static void no_default_is_refused(void **state)
{
    static const char *const names[] = {"add_rmsnorm_full",   "add_layernorm",
                                        "add_layernorm_full", "rmsnorm_backward",
                                        "layernorm_backward", "add_rmsnorm_fp8"};
    static const char *const targets[] = {"sm_80", "sm_90", "sm_120"};
    static const int64_t lengths[] = {16383, 17000, 28672, 32768};
    (void)state;
    for (size_t n = 0; n < COUNT(names); n++)
        for (size_t t = 0; t < COUNT(targets); t++)
            for (size_t k = 0; k < COUNT(lengths); k++)
                config_of(names[n], EIDER_BF16, lengths[k], targets[t]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_order_of_values_costs_no_digits),
        cmocka_unit_test(short_powers_are_as_good_as_ever),
        cmocka_unit_test(powers_beyond_the_headroom_are_left_alone),
        cmocka_unit_test(infinite_values_stay_what_they_are),
        cmocka_unit_test(a_pass_is_saved),
        cmocka_unit_test(the_default_goes_over_a_row_as_seldom_as_it_can),
        cmocka_unit_test(no_default_is_refused),
    };
    return cmocka_run_group_tests(tests, row_set_up, row_tear_down);
}
