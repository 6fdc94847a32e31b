/* test_row_moments.c -- variances in the pass that finds the mean, on the CPU.
 *
 * Invariant: they have the digits that a pass for the mean and another one for them gives, wherever
 * the values are and whichever thread has them.
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

/* Rows whose lanes have means that are alike, apart, far from 0 or from their first elements. */
static double spread_out(size_t i, int64_t row, int64_t col)
{
    double wave = row_wave(i, row, col);
    switch (row % 8) {
    case 0:
        return wave;
    case 1:
        return 1e4 + wave; /* far from 0 */
    case 2:
        return (double)col; /* neighbouring lanes alike, far ones apart */
    case 3:
        return (double)(col % 32) * 100 + wave; /* each lane elsewhere */
    case 4:
        return col == 0 ? 1e5 : wave; /* the first element of all far from the others */
    case 5:
        return col < 8 ? -3e3 : 3e3 + wave; /* and those of the first thread */
    case 6:
        return col % 2 ? 1e6 : -1e6;
    default:
        return 1e-3 * wave - 7;
    }
}

static double special(size_t i, int64_t row, int64_t col)
{
    double wave = row_wave(i, row, col);
    switch (row % 4) {
    case 0:
        return 1234; /* no variance at all */
    case 1:
        return col == 100 ? INFINITY : wave;
    case 2:
        return col == 0 ? NAN : wave;
    default:
        return col == 511 ? -INFINITY : col == 3 ? INFINITY : wave;
    }
}

static const char corrected[] = "out y, v; d = x - mean(x); e = mean(d)\n"
                                "v = max(mean(d * d) - e * e, 0); y = (d - e) * rsqrt(v + 1e-5)";

static const char *const texts[] = {
    corrected,
    "m = mean(x); d = x - m; v = mean(d * d); k = sqrt(v)",
    "d = x - mean(x); q = mean(d * d); e = mean(d); v = q - e * e", /* the second moment first */
    "in x, w: column; h = x * 2 + w; d = h - mean(h); e = mean(d); v = mean(d * d) - e * e",
    "d = x - mean(x); a = max(x); b = mean(abs(x)); v = sum(d * d); c = sum(d * d * d * d)",
    "out v, f; f = mean(x) + mean(x - mean(x)); d = x - mean(x); v = mean(d * d)",
    /* What is infinite where differences are NaN. */
    "out m, v; m = mean(x); d = x - m; e = mean(d); v = mean(d * d) - e * e",
    "out s, m, v; s = sum(x); d = x - mean(x); e = mean(d); v = mean(d * d) - e * e; m = s + e",
    "out u, m, v; d = x - mean(x); e = mean(d); v = mean(d * d) - e * e; m = mean(x) + e\n"
    "u = max(mean(x), 2)",
    /* Means that need another sum of the same kind wait for it. */
    "out v, w; d = x - mean(x); z = d * 2 - mean(d * 2); e = mean(z); w = mean(z * z) - e * e\n"
    "f = mean(d); v = mean(d * d) - f * f",
    "out v, w; d = x - mean(x); e = mean(d); v = mean(d * d) - e * e; q = d * d * 0.001\n"
    "u = q - mean(q); f = mean(u); w = mean(u * u) - f * f",
    "out w; p = exp((x - max(x)) * 1e-7); c = p - mean(p); f = mean(c); w = mean(c * c) - f * f",
};

/* Lengths of 512 and 2048 are whole numbers of vectors for every thread. */
static const char *const configs[] = {
    "block=32,row=1,vec=8,keep=0,unroll=2",
    "block=32,row=1,vec=8,keep=0,unroll=8",
    "block=32,row=8,vec=8,keep=4,unroll=1",
    "block=32,row=32,vec=4,keep=4,unroll=2",
    "block=64,row=32,vec=1,keep=0,unroll=4",
    "block=128,row=64,vec=2,keep=1,shared=3,unroll=1",
    "block=128,row=128,vec=4,keep=0,shared=1,unroll=1,async=1",
    "block=64,row=64,vec=4,keep=1,unroll=1,resident=1",
    "block=64,row=64,vec=4,keep=0,shared=2,unroll=1,async=1,resident=1",
    "cluster=2,block=64,row=64,vec=4,keep=1,unroll=1",
    "cluster=4,block=64,row=32,vec=2,keep=0,unroll=2,mbarrier=1",
    "cluster=8,block=32,row=32,vec=2,keep=1,unroll=1",
    "cluster=16,block=32,row=32,vec=1,keep=1,unroll=1,mbarrier=1",
    "cluster=2,block=128,row=128,vec=2,keep=0,shared=1,unroll=1,ahead=1",
    "split=2,block=32,row=32,vec=4,keep=0,unroll=1",
};

static void check_all(row_filler fill, eider_dtype type, double tolerance, double least)
{
    static const int64_t lengths[] = {512, 2048, 1000};
    for (size_t t = 0; t < COUNT(texts); t++)
        for (size_t k = 0; k < COUNT(configs); k++) {
            char config[128];
            snprintf(config, sizeof config, "%s,online=1", configs[k]);
            int64_t cols = lengths[(t + k) % COUNT(lengths)];
            row_check((struct row_call){.text = texts[t],
                                        .config = config,
                                        .type = type,
                                        .math = EIDER_MATH_FAST,
                                        .rows = 8,
                                        .cols = cols,
                                        .fill = fill},
                      tolerance, least);
        }
}

static void variances_have_all_their_digits(void **state)
{
    (void)state;
    check_all(spread_out, EIDER_F64, 1e-11, 1e-9);
}

static void infinite_values_and_none_at_all(void **state)
{
    (void)state;
    check_all(special, EIDER_F32, 1e-5, 1e-3);
    check_all(special, EIDER_F64, 1e-12, 1e-9);
}

/* The variance of a row, of its values as f32 has them. */
static double variance(int64_t row, int64_t cols)
{
    double mean = 0, sum = 0;
    for (int64_t k = 0; k < cols; k++) mean += (float)spread_out(0, row, k);
    mean /= (double)cols;
    for (int64_t k = 0; k < cols; k++) {
        double d = (float)spread_out(0, row, k) - mean;
        sum += d * d;
    }
    return sum / (double)cols;
}

/* In f32 a mean of 10000 is no exact one: what it lacks is in the mean of the differences. */
static void a_mean_far_from_zero_costs_nothing(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT(configs); k++)
        for (int64_t cols = 512; cols <= 2048; cols *= 2) {
            char config[128];
            snprintf(config, sizeof config, "%s,online=1", configs[k]);
            struct row_call c = {.text = corrected,
                                 .config = config,
                                 .math = EIDER_MATH_FAST,
                                 .type = EIDER_F32,
                                 .rows = 8,
                                 .cols = cols,
                                 .fill = spread_out};
            row_make(&c);
            row_run(&c);
            for (int64_t r = 0; r < c.rows; r++) {
                double want = variance(r, cols), got = row_output(&c, "v", r, 0);
                if (!(fabs(got - want) <= 4e-6 * want))
                    fail_msg("%s, row %d of %d: the variance is %.9g, not %.9g", config, (int)r,
                             (int)cols, got, want);
            }
            row_release(&c);
        }
}

/* What is loaded ahead is the same, and a row does not depend on its neighbours. */
static void no_bit_depends_on_loads_or_neighbours(void **state)
{
    static const char *const tried[] = {
        "block=64,row=64,vec=4,keep=1,shared=3,unroll=2,online=1",
        "block=128,row=32,vec=2,keep=3,unroll=2,online=1",
        "cluster=2,block=64,row=32,vec=4,keep=2,shared=1,unroll=1,online=1",
        "cluster=4,block=32,row=32,vec=2,keep=0,shared=4,unroll=2,online=1,mbarrier=1",
    };
    static const char text[] = "in x, w: column; d = x - mean(x); e = mean(d)\n"
                               "v = mean(d * d) - e * e + sum(x * w); y = (d - e) * w + v";
    (void)state;
    for (size_t k = 0; k < COUNT(tried); k++) {
        struct row_call c[3];
        char config[3][128];
        for (int i = 0; i < 3; i++) {
            snprintf(config[i], sizeof config[i], "%s,ahead=%d", tried[k], i == 1);
            c[i] = (struct row_call){.text = text,
                                     .config = config[i],
                                     .math = EIDER_MATH_FAST,
                                     .type = EIDER_F32,
                                     .rows = i == 2 ? 1 : 5,
                                     .cols = 1024,
                                     .fill = spread_out};
            row_make(&c[i]);
            row_run(&c[i]);
        }
        for (int64_t r = 0; r < 5; r++)
            for (int64_t col = 0; col < 1024; col++) {
                double y = row_output(&c[0], "y", r, col);
                assert_true(y == row_output(&c[1], "y", r, col));
                if (r == 0) assert_true(y == row_output(&c[2], "y", r, col));
            }
        for (int i = 0; i < 3; i++) row_release(&c[i]);
    }
}

/* ---- What it saves, and where ---------------------------------------------------------- */

/* Times that the threads of a row of `cols` meet at the cluster's barrier, after the first. */
static int meetings(const char *text, const char *config, int64_t cols)
{
    struct row_call c = {
        .text = text, .type = EIDER_F32, .rows = 4, .cols = cols, .fill = row_wave};
    eider_kernel *kernel;
    const char *ptx;
    size_t size;
    row_make(&c);
    eider_request request = row_request(&c);
    request.target = "sm_90";
    request.config = config;
    must(eider_compile(row_context, &request, &kernel));
    must(eider_kernel_stage(kernel, EIDER_STAGE_PTX, (const void **)&ptx, &size));
    int n = row_count(ptx, "barrier.cluster.arrive"), ways = row_count(ptx, ".relaxed");
    eider_kernel_release(kernel);
    row_release(&c);
    return (n - ways) / 2; /* by vectors and by elements */
}

static void an_exchange_is_saved(void **state)
{
    static const char config[] = "cluster=4,row=128,block=128,vec=4,keep=2,unroll=1,online=";
    char with[128], without[128];
    (void)state;
    snprintf(with, sizeof with, "%s1", config);
    snprintf(without, sizeof without, "%s0", config);
    assert_int_equal(meetings(corrected, without, 4096), 2);
    assert_int_equal(meetings(corrected, with, 4096), 1);
    assert_int_equal(meetings(corrected, with, 4092), 2);    /* some threads have less */
    assert_int_equal(meetings(corrected, with, 1 << 20), 2); /* much more than first elements */
    /* Of a mean of differences the sum is in the first pass, and theirs in the second. */
    assert_int_equal(meetings("d = x - mean(x); z = d - mean(d); e = mean(z)", with, 4096), 2);
    /* What is taken off is not the mean of the same. */
    assert_int_equal(meetings("d = x - mean(x * x); e = mean(d); v = mean(d * d)", with, 4096), 2);
    assert_int_equal(meetings("d = x - max(x); e = mean(d); v = mean(d * d)", with, 4096), 2);
    assert_int_equal(meetings("d = mean(x) - x; e = mean(d); v = mean(d * d)", with, 4096), 2);
    /* Without the sum of differences nobody knows where a lane's mean is. */
    assert_int_equal(meetings("d = x - mean(x); v = mean(d * d)", with, 4096), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variances_have_all_their_digits),
        cmocka_unit_test(infinite_values_and_none_at_all),
        cmocka_unit_test(a_mean_far_from_zero_costs_nothing),
        cmocka_unit_test(no_bit_depends_on_loads_or_neighbours),
        cmocka_unit_test(an_exchange_is_saved),
    };
    return cmocka_run_group_tests(tests, row_set_up, row_tear_down);
}
