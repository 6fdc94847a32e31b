/* test_row.c -- kernels of programs over rows, on the CPU: every schedule against the reference
 * evaluation, between guard bands.  Blocks of several threads per row run as fibers.
 * test_row_sweep.c has every length.
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

/* ---- Every length -------------------------------------------------------------- */

static const char *const schedules[] = {
    NULL,
    "block=32,row=32,vec=1,keep=1,unroll=1",
    "block=64,row=64,vec=1,keep=2,unroll=2",
    "block=64,row=4,vec=1,keep=0,unroll=1,online=1",
    "block=1,row=1,vec=1,keep=0,unroll=4,online=1",
    "block=128,row=32,vec=1,keep=3,unroll=1",
    "block=1,row=1,vec=1,keep=4,unroll=2",
    "block=32,row=1,vec=1,keep=1,unroll=1",
    "block=64,row=64,vec=1,keep=0,shared=2,unroll=1,online=1",
    "block=128,row=32,vec=1,keep=1,shared=3,unroll=2,async=1",
    "block=32,row=1,vec=1,keep=2,shared=4,unroll=2,async=1,online=1",
    "block=64,row=64,vec=1,keep=1,shared=1,unroll=1,resident=1",
    "block=32,row=16,vec=1,keep=0,shared=2,unroll=2,resident=1,online=1",
    "block=128,row=128,vec=1,keep=1,unroll=1,resident=1",
    "block=1,row=1,vec=1,keep=2,unroll=1,resident=1",
    "block=32,row=32,vec=1,keep=2,unroll=1,ahead=1",
    "block=64,row=64,vec=1,keep=1,shared=3,unroll=2,ahead=1",
    "block=128,row=32,vec=1,keep=3,shared=2,unroll=2,async=1,ahead=1",
    "block=64,row=64,vec=1,keep=0,shared=2,unroll=1,resident=1,ahead=1",
};

static const char *const clusters[] = {
    "cluster=2,block=32,row=32,vec=1,keep=1,unroll=1",
    "cluster=4,block=32,row=32,vec=1,keep=0,unroll=2,online=1",
    "cluster=8,block=32,row=32,vec=1,keep=2,unroll=1,mbarrier=1",
    "cluster=2,block=64,row=64,vec=1,keep=1,unroll=2,online=1,mbarrier=1",
    "cluster=16,block=32,row=32,vec=1,keep=0,unroll=1,load=last",
    "cluster=2,block=32,row=32,vec=1,keep=1,shared=2,unroll=2",
    "cluster=2,block=64,row=64,vec=1,keep=0,shared=2,unroll=1,resident=1,online=1",
    "cluster=2,block=128,row=32,vec=1,keep=1,unroll=1",
    "cluster=4,block=128,row=64,vec=1,keep=0,unroll=2,online=1,mbarrier=1",
    "cluster=2,block=64,row=32,vec=1,keep=1,shared=1,unroll=1,resident=1",
    "cluster=2,block=32,row=32,vec=1,keep=3,shared=2,unroll=2,ahead=1",
    "cluster=4,block=64,row=32,vec=1,keep=0,shared=2,unroll=1,ahead=1,mbarrier=1",
};

/* As many warps as a warp has threads, twice and four times as many. */
static const char *const large_clusters[] = {
    "cluster=16,block=64,row=64,vec=1,keep=1,unroll=1",
    "cluster=8,block=256,row=256,vec=1,keep=0,unroll=1,online=1",
    "cluster=4,block=1024,row=1024,vec=1,keep=1,unroll=1",
};

/* Of both tables. */
static const char *schedule(size_t i)
{
    return i < COUNT(schedules) ? schedules[i] : clusters[i - COUNT(schedules)];
}

static void lengths_in_every_schedule(void **state)
{
    static const int64_t lengths[] = {1,  2,  3,   5,   8,   15,  17,  31,   32,   33,  63,
                                      65, 96, 127, 129, 255, 257, 513, 1023, 1025, 4097};
    (void)state;
    for (size_t k = 0; k < COUNT(lengths); k++)
        for (size_t s = k % 4; s < COUNT(schedules); s += 4)
            row_check((struct row_call){.text = row_everything,
                                        .config = schedules[s],
                                        .rows = 3,
                                        .cols = lengths[k],
                                        .fill = row_wave},
                      2e-6, 1);
}

static const char short_program[] =
    "in x, w: column, s: row\n"
    "y = exp(x - max(x)) * w + pick(x, argmin(x)); t = sum(x) * s; a = argmax(x)\n"
    "b = select(any(x > 1.9), 1, 0); u = sum(exp(x - max(x)))";

/* One kernel for all of them, and one for the length where that differs. */
static void lengths_in_clusters(void **state)
{
    (void)state;
    for (int64_t cols = 0; cols <= 300; cols += cols < 40 ? 1 : 9)
        row_check((struct row_call){.text = short_program,
                                    .config = clusters[(size_t)cols % COUNT(clusters)],
                                    .rows = 2,
                                    .cols = cols,
                                    .fill = row_wave,
                                    .any = cols % 16 != 1},
                  2e-6, 1);
    for (int64_t k = 0; k < (int64_t)COUNT(large_clusters); k++)
        row_check((struct row_call){.text = short_program,
                                    .config = large_clusters[k],
                                    .rows = 2,
                                    .cols = 1 + 2000 * k,
                                    .fill = row_wave,
                                    .any = k == 1},
                  2e-6, 32);
}

static void vectors_of_every_width(void **state)
{
    static const char *const configs[] = {"block=32,row=8,vec=2,keep=2,unroll=1",
                                          "block=32,row=32,vec=4,keep=1,unroll=2",
                                          "block=64,row=64,vec=8,keep=1,unroll=1",
                                          "block=64,row=16,vec=16,keep=0,unroll=1",
                                          "block=64,row=64,vec=8,keep=0,shared=2,unroll=2",
                                          "block=96,row=32,vec=2,keep=1,shared=1,unroll=1",
                                          "block=64,row=64,vec=8,keep=0,shared=4,resident=1",
                                          "cluster=2,row=32,block=32,vec=4,shared=2,resident=1",
                                          "block=1,row=1,vec=32,keep=1,unroll=1",
                                          "block=1,row=1,vec=64,keep=0,unroll=2",
                                          "cluster=2,row=64,block=64,vec=4,keep=1,unroll=1",
                                          "cluster=4,row=32,block=32,vec=8,keep=0,unroll=2"};
    static const int64_t lengths[] = {64, 192, 640, 2048};
    (void)state;
    for (size_t i = 0; i < COUNT(configs); i++)
        row_check((struct row_call){.text = row_everything,
                                    .config = configs[i],
                                    .rows = 5,
                                    .cols = lengths[i % COUNT(lengths)],
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
                                    .config = t ? "block=32,row=32,vec=4,keep=1,unroll=1" : NULL,
                                    .type = types[t],
                                    .math = EIDER_MATH_FAST,
                                    .rows = 4,
                                    .cols = 260,
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
    for (size_t s = 0; s < COUNT(schedules) + COUNT(clusters); s++)
        row_check(
            (struct row_call){
                .text = text, .config = schedule(s), .rows = 3, .cols = 150, .fill = whole},
            1e-6, 1);
}

static void rows_and_pointers_anywhere(void **state)
{
    static const char *const any[] = {NULL, "block=32,row=32,vec=4,keep=1,unroll=1",
                                      "cluster=2,block=32,row=32,vec=4,keep=1,unroll=1"};
    (void)state;
    for (int k = 0; k < 8; k++)
        row_check(
            (struct row_call){.text = row_everything,
                              .config = k & 4   ? "cluster=2,block=32,row=32,vec=4,keep=1,unroll=1"
                                        : k & 1 ? "block=32,row=16,vec=4,keep=1,unroll=1"
                                                : NULL,
                              .rows = 3,
                              .cols = 200,
                              .misalign = k & 2 ? 1 : 0,
                              .gap = 3,
                              .fill = row_wave},
            2e-6, 1);
    for (int k = 0; k < 15; k++) /* one kernel for every length, by vectors and without */
        row_check((struct row_call){.text = row_everything,
                                    .config = any[k % 3],
                                    .rows = 2,
                                    .cols = k / 3 * 23,
                                    .fill = row_wave,
                                    .any = 1},
                  2e-6, 1);
}

/* 2^32 + 3 is no place, though its lower half is one. */
static double some_place(size_t i, int64_t row, int64_t col)
{
    static const double places[] = {3, -1, 4294967299.0, 0, 2147483648.0, -4294967293.0, 36, 37};
    return i == 1 ? places[row] : row_wave(i, row, col);
}

static void places_are_compared_in_64_bits(void **state)
{
    static const char *const configs[] = {NULL, "block=32,row=8,vec=1,keep=2",
                                          "block=32,row=32,vec=4,keep=0"};
    (void)state;
    for (size_t k = 0; k < COUNT(configs); k++)
        row_check((struct row_call){.text = "in x, t: i64 row; out y, z\n"
                                            "y = select(col() == t, x, 7); z = select(t != col(), "
                                            "x, 9)",
                                    .config = configs[k],
                                    .rows = 8,
                                    .cols = 37,
                                    .fill = some_place},
                  1e-6, 1);
}

static void no_rows_is_nothing_to_do(void **state)
{
    (void)state;
    row_check((struct row_call){.text = row_everything, .rows = 0, .cols = 10, .fill = row_wave}, 0,
              1);
}

static void long_rows(void **state)
{
    static const char text[] = "m = max(x); l = logsumexp(x); a = mean(x); y = exp(x - l)";
    static const int64_t lengths[] = {32768, 65537, 131072, 262144, 1048579};
    static const char *const long_schedules[] = {
        "block=256,row=256,vec=8,keep=2,unroll=1",
        "block=32,row=32,vec=4,keep=1,unroll=1",
        "block=256,row=256,vec=8,keep=4,shared=8,unroll=2,async=1",
        "cluster=8,block=128,row=128,vec=4,keep=8,shared=24,unroll=1",
        "block=32,row=1,vec=8,keep=2,unroll=2",
        "cluster=4,block=256,row=256,vec=4,keep=2,shared=6,unroll=1,resident=1",
        "cluster=16,block=64,row=64,vec=8,keep=4,unroll=1",
        "block=1,row=1,vec=16,keep=0,unroll=1,online=1",
        "block=512,row=512,vec=4,keep=0,shared=4,unroll=1,resident=1",
        "cluster=2,block=256,row=256,vec=4,keep=0,shared=10,unroll=2,online=1",
    };
    (void)state;
    row_check((struct row_call){.text = text, .rows = 2, .cols = 65537, .fill = row_wave}, 1e-6,
              1e-6);
    for (size_t k = 0; k < COUNT(long_schedules); k++)
        row_check((struct row_call){.text = text,
                                    .config = long_schedules[k],
                                    .rows = 1,
                                    .cols = lengths[k % COUNT(lengths)],
                                    .fill = row_wave},
                  1e-6, 1e-6);
}

/* ---- Masked, infinite and NaN elements ------------------------------------------- */

static double one_infinity(size_t i, int64_t row, int64_t col)
{
    return row == col ? INFINITY : row_wave(i, row, col);
}

static void special_values_in_every_lane(void **state)
{
    static const row_filler fillers[] = {row_only_one, row_masked, row_one_nan, one_infinity};
    static const char *const configs[] = {NULL,
                                          "block=32,row=32,vec=2,keep=1,unroll=1",
                                          "block=128,row=64,vec=1,keep=1,unroll=1",
                                          "block=32,row=8,vec=2,keep=0,unroll=2",
                                          "cluster=2,block=32,row=32,vec=1,keep=1,unroll=1",
                                          "cluster=4,block=32,row=32,vec=2,keep=0,unroll=1",
                                          "block=64,row=32,vec=2,keep=0,shared=1,unroll=1",
                                          "block=64,row=64,vec=1,shared=1,async=1,resident=1"};
    (void)state;
    for (size_t f = 0; f < COUNT(fillers); f++)
        for (size_t k = 0; k < COUNT(configs); k++)
            row_check((struct row_call){.text = row_softmax,
                                        .config = configs[k],
                                        .rows = 70,
                                        .cols = 70,
                                        .fill = fillers[f]},
                      1e-6, 1e-30);
}

static void the_first_of_equal_elements_is_found_in_any_block(void **state)
{
    static const char text[] = "a = argmax(x); b = argmin(x); c = argmax(-abs(x))";
    (void)state;
    for (size_t k = 0; k < 2 * COUNT(clusters); k++)
        row_check((struct row_call){.text = text,
                                    .config = clusters[k / 2],
                                    .rows = 2,
                                    .cols = 150,
                                    .fill = k % 2 ? row_all_equal : row_ties},
                  0, 1);
}

/* ---- Accuracy --------------------------------------------------------------------- */

/* The mean is rounded to f32, and the deviations must not notice. */
static void a_mean_far_from_zero_costs_no_digits(void **state)
{
    static const char text[] = "m = mean(x); d = x - m; e = mean(d)\n"
                               "v = max(mean(d * d) - e * e, 0); y = (d - e) * rsqrt(v + 1e-5)";
    (void)state;
    for (size_t s = 0; s < 3; s++)
        row_check((struct row_call){.text = text,
                                    .config = schedules[s],
                                    .math = EIDER_MATH_FAST,
                                    .rows = 2,
                                    .cols = 16,
                                    .fill = row_large_mean},
                  1e-5, 1e-3);
}

static double tiny_down(size_t i, int64_t row, int64_t col)
{
    (void)i, (void)col;
    return row ? 0x1p-26 : 1;
}

/* A plain sum in f32 would stay at 1. */
static void long_sums_keep_what_rounding_loses(void **state)
{
    static const char *const configs[] = {NULL, "block=32,row=32,vec=1,keep=0,unroll=1"};
    (void)state;
    for (size_t k = 0; k < COUNT(configs); k++)
        row_check((struct row_call){.text = "s = sum(x)",
                                    .config = configs[k],
                                    .rows = 1,
                                    .cols = 200001,
                                    .fill = row_tiny_after_large},
                  1.2e-7, 1);
}

/* ---- Sums down the rows --------------------------------------------------------------- */

static void sums_down_the_rows(void **state)
{
    static const char text[] =
        "in x, s: row, w: column\n"
        "a = colsum(x * s); b = cast(colsum(x + w * row()), f16); c = colsum(w)\n"
        "d = colsum(pick(x * s, cols() - 1 - col()) * pick(w, 0) + pick(x, 0))";
    static const char *const configs[] = {NULL,
                                          "block=64,row=8,vec=1,unroll=2",
                                          "block=32,row=32,vec=1,unroll=1",
                                          "block=256,row=2,vec=1,unroll=4",
                                          "block=1,row=1,vec=1,unroll=8,resident=1,cluster=2",
                                          "block=64,row=8,vec=1,unroll=2,split=4",
                                          "block=1,row=1,vec=1,unroll=1,split=32",
                                          "block=32,row=32,vec=1,unroll=1,split=2",
                                          "block=256,row=2,vec=1,unroll=4,split=64"};
    static const int64_t rows[] = {0, 1, 2, 33, 130}, cols[] = {1, 3, 17, 64, 300};
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++)
        for (size_t k = 0; k < COUNT(configs); k++)
            row_check((struct row_call){.text = text,
                                        .config = configs[(i + k) % COUNT(configs)],
                                        .rows = rows[i],
                                        .cols = cols[k % COUNT(cols)],
                                        .misalign = k & 1,
                                        .fill = row_wave},
                      1e-3, 1);
    static const char *const vectors[] = {NULL, "block=64,row=16,vec=4,unroll=2",
                                          "block=64,row=16,vec=4,unroll=2,split=8",
                                          "block=64,row=1,vec=16,unroll=1,split=1024"};
    for (size_t k = 0; k < COUNT(vectors); k++)
        row_check((struct row_call){.text = "in x, s: row; a = colsum(x * s)",
                                    .config = vectors[k],
                                    .rows = 1000,
                                    .cols = 64,
                                    .gap = 5,
                                    .fill = row_wave},
                  k < 2 ? 2e-7 : 4e-7, 16); /* the sum of each part is rounded */
    for (int k = 0; k < 2; k++)
        row_check((struct row_call){.text = "s = colsum(x)",
                                    .config = k ? "block=32,row=1,vec=1,split=128" : NULL,
                                    .rows = 100001,
                                    .cols = 2,
                                    .fill = tiny_down},
                  1.2e-7, 1);
}

/* Sixteenths, of which f32 has all sums and those of products exactly. */
static double sixteenths(size_t i, int64_t row, int64_t col)
{
    return (double)((row * 37 + col * 11 + (int64_t)i) % 61 - 30) / 16;
}

static void sums_of_16_bit_values_are_exact(void **state)
{
    static const char *const configs[] = {NULL, "block=64,row=8,vec=2,unroll=8",
                                          "block=32,row=32,vec=4,unroll=4,split=4",
                                          "block=1,row=1,vec=1,unroll=2"};
    (void)state;
    for (size_t k = 0; k < COUNT(configs); k++)
        row_check((struct row_call){.text = "in x: bf16, y: f16, s: bf16 row\n"
                                            "out a: f32, b: f32; a = colsum(x * s); b = colsum(y)",
                                    .config = configs[k],
                                    .rows = 4097,
                                    .cols = 100,
                                    .fill = sixteenths},
                  0, 1);
}

/* Few columns are few blocks: then the rows are cut, too, where there are enough. */
static void sums_of_many_rows_are_cut_by_default(void **state)
{
    static const struct {
        const char *target;
        int64_t rows, cols;
        int least, most;
    } cases[] = {
        {"sm_90", 32768, 1024, 8, 64},  {"sm_90", 32768, 4096, 4, 16},
        {"sm_90", 32768, 262144, 1, 1}, {"sm_90", 1000000, 1, 256, 1024},
        {"sm_90", 100, 4096, 1, 1},     {"cpu", 32768, 1024, 1, 1},
    };
    eider_program *program;
    (void)state;
    must(eider_program_parse(row_context, "a = colsum(x)", &program));
    for (size_t i = 0; i < COUNT(cases); i++) {
        int64_t shape[2] = {cases[i].rows, cases[i].cols}, column[1] = {cases[i].cols};
        struct eider_plan plan;
        eider_tensor args[2] = {tensor_of(NULL, EIDER_BF16, 2, shape),
                                tensor_of(NULL, EIDER_BF16, 1, column)};
        eider_request request = {
            .program = program, .args = args, .n_args = 2, .target = cases[i].target};
        must(eider_prepare_plan(row_context, NULL, &request, &plan));
        int split = eider_row_config_of(&plan.config).split;
        if (split < cases[i].least || split > cases[i].most)
            fail_msg("%d x %d on %s: split=%d", (int)cases[i].rows, (int)cases[i].cols,
                     cases[i].target, split);
    }
    eider_program_release(program);
}

/* dx[k] of y[k] = x[place of k], rotated by `h`: all that take x[k] give their share. */
static void gradients_of_picks_gather(void **state)
{
    static const struct {
        const char *text;
        int64_t step, from; /* place of k: from + step * k, modulo the length */
    } cases[] = {
        {"in x; y = pick(x, select(col() < cols() - 5, col() + 5, col() - (cols() - 5)))", 1, 5},
        {"in x; y = pick(x, cols() - 1 - col())", -1, -1},
        {"in x; y = pick(x, col() - select(col() < 2, 2 - cols(), 2))", 1, -2},
    };
    static const char *const configs[] = {NULL, "block=32,row=32,vec=1,keep=1,unroll=2",
                                          "block=64,row=64,vec=1,keep=0,unroll=1",
                                          "cluster=2,block=32,row=32,vec=1,keep=1,unroll=1"};
    (void)state;
    for (size_t i = 0; i < COUNT(cases) * COUNT(configs); i++) {
        eider_program *program, *back;
        int64_t step = cases[i % 3].step, from = cases[i % 3].from, n = i % 2 ? 333 : 64;
        must(eider_program_parse(row_context, cases[i % 3].text, &program));
        must(eider_program_grad(program, NULL, &back));
        struct row_call c = {.text = eider_program_text(back),
                             .config = configs[i / 3],
                             .rows = 3,
                             .cols = n,
                             .fill = row_wave};
        row_make(&c);
        row_run(&c);
        row_compare(&c, 0, 1);
        for (int64_t r = 0; r < c.rows; r++)
            for (int64_t k = 0; k < n; k++) {
                int64_t place = (from + step * k + 2 * n) % n;
                assert_true(row_output(&c, "dx", r, place) == (double)(float)row_wave(1, r, k));
            }
        row_release(&c);
        eider_program_release(back);
        eider_program_release(program);
    }
}

/* What a row has once is added for every column; without any that differs there is one. */
static void sums_of_what_a_row_has_once(void **state)
{
    static const char *const texts[] = {
        "in x, s: row; a = colsum(s); b = cast(colsum(s * row()), f16); n = colsum(2.0)",
        "in s: row; a = colsum(s); b = cast(colsum(s * row()), f16); n = colsum(2.0)"};
    static const char *const configs[] = {NULL, "block=64,row=8,vec=1,unroll=2",
                                          "block=32,row=32,vec=1,unroll=1",
                                          "block=1,row=1,vec=1,unroll=8"};
    static const int64_t rows[] = {0, 1, 33, 130};
    (void)state;
    for (size_t i = 0; i < COUNT(texts) * COUNT(rows) * COUNT(configs); i++) {
        struct row_call c = {.text = texts[i % 2],
                             .config = configs[i / 2 % COUNT(configs)],
                             .rows = rows[i / 2 / COUNT(configs)],
                             .cols = i % 2 ? 1 : 19,
                             .fill = row_wave};
        double a = 0, b = 0;
        row_make(&c);
        row_run(&c);
        row_compare(&c, 1e-3, 1);
        for (int64_t r = 0; r < c.rows; r++) {
            double s = (double)(float)row_wave(i % 2 ? 0 : 1, r, 0);
            a += s;
            b += s * (double)r;
        }
        for (int64_t k = 0; k < c.cols; k++) {
            assert_true(fabs(row_output(&c, "a", 0, k) - a) <= 3e-7 * (double)(c.rows + 1));
            assert_true(fabs(row_output(&c, "b", 0, k) - b) <= 1e-3 * fabs(b) + 1e-6);
            assert_true(row_output(&c, "n", 0, k) == 2 * (double)c.rows);
        }
        row_release(&c);
    }
}

/* ---- Programs of inputs per row or column alone ---------------------------------------- */

static void values_per_row_are_computed_from_values_per_row(void **state)
{
    static const char *const configs[] = {NULL, "block=32,row=32,vec=1,keep=1,unroll=1",
                                          "block=64,row=1,vec=1,keep=0,unroll=1"};
    float s[5] = {3, -1, 0.5F, 7, 2}, y[5], m[5];
    int64_t shape[] = {5};
    (void)state;
    for (size_t i = 0; i < COUNT(configs); i++) {
        eider_program *program;
        eider_kernel *kernel;
        eider_tensor args[] = {tensor_of(s, EIDER_F32, 1, shape), tensor_of(y, EIDER_F32, 1, shape),
                               tensor_of(m, EIDER_F32, 1, shape)};
        must(eider_program_parse(row_context, "in s: row; y = 2 * s + row(); m = max(s) + cols()",
                                 &program));
        eider_request request = {
            .program = program, .args = args, .n_args = 3, .config = configs[i]};
        must(eider_prepare(row_cpu, &request, &kernel));
        must(eider_launch(kernel, NULL, args, 3));
        for (int r = 0; r < 5; r++) assert_true(y[r] == 2 * s[r] + (float)r && m[r] == s[r] + 1);
        eider_kernel_release(kernel);
        eider_program_release(program);
    }
}

static void values_per_column_are_computed_from_values_per_column(void **state)
{
    static const char *const texts[] = {"in w: column; y = 2 * w + col(); a = sum(w); l = max(w)",
                                        "in w: column; y = colsum(2 * w)"};
    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++) {
        struct row_call c = {.text = texts[i], .rows = 1, .cols = 37, .fill = row_wave};
        double sum = 0;
        row_make(&c);
        row_run(&c);
        row_compare(&c, 1e-6, 1);
        for (int64_t k = 0; k < 37; k++) {
            double w = (double)(float)row_wave(0, 0, k);
            sum += w;
            assert_true(fabs(row_output(&c, "y", 0, k) - (2 * w + (i ? 0 : (double)k))) < 1e-5);
        }
        if (i == 0) assert_true(fabs(row_output(&c, "a", 0, 0) - sum) < 1e-5);
        row_release(&c);
    }
}

/* Inputs declared row and column, of these shapes, and those of the outputs. */
static void inputs_of_one_dimension_have_rows_or_columns(void **state)
{
    static const struct {
        const char *text;
        int64_t x[2], s[2], want[2][2]; /* 0: no such dimension */
    } cases[] = {
        {"in s: row; y = s * 2; a = colsum(s)", {0}, {5}, {{5, 1}, {1, 0}}},
        {"in s: row; y = s * 2; a = colsum(s)", {0}, {5, 1}, {{5, 1}, {1, 0}}},
        {"in x, s: row; y = x * s; a = sum(x)", {7}, {5}, {{5, 7}, {5, 1}}},
        {"in x, s: row; y = x * s; a = sum(x)", {7}, {1}, {{7, 0}, {1, 0}}},
        {"in x, s: row; y = x * s; a = sum(x)", {5, 7}, {5}, {{5, 7}, {5, 1}}},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        eider_program *program;
        eider_tensor args[4] = {{0}};
        int has_x = cases[i].x[0] != 0;
        must(eider_program_parse(row_context, cases[i].text, &program));
        if (has_x) args[0] = tensor_of(NULL, EIDER_F32, 1 + (cases[i].x[1] != 0), cases[i].x);
        args[has_x] = tensor_of(NULL, EIDER_F32, 1 + (cases[i].s[1] != 0), cases[i].s);
        for (size_t k = 0; k < 2; k++) {
            const int64_t *want = cases[i].want[k];
            int64_t shape[EIDER_RANK_MAX];
            int32_t rank;
            must(eider_program_shape(program, args, (size_t)has_x + 3, (size_t)has_x + 1 + k, &rank,
                                     shape));
            assert_int_equal(rank, 1 + (want[1] != 0));
            for (int32_t d = 0; d < rank; d++) assert_int_equal(shape[d], want[d]);
        }
        eider_program_release(program);
    }
}

/* ---- Independence and aliasing -------------------------------------------------------- */

static void a_row_does_not_depend_on_others(void **state)
{
    static const char *const configs[] = {NULL, "block=64,row=16,vec=2,keep=1,unroll=1",
                                          "cluster=4,block=64,row=64,vec=1,keep=0,unroll=1",
                                          "cluster=2,block=32,row=32,vec=2,keep=1,unroll=1",
                                          "block=64,row=32,vec=2,keep=1,shared=1,resident=1"};
    (void)state;
    for (size_t k = 0; k < COUNT(configs); k++) row_check_alone(configs[k], 98);
}

static void an_output_may_be_an_input(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT(schedules) + COUNT(clusters); k++)
        row_check_in_place(schedule(k), 150, NULL);
}

static void refusals_say_why(void **state)
{
    static const struct {
        const char *text, *config, *want;
        int64_t rows[2], cols[2]; /* of x and w */
    } cases[] = {
        {"in x, w: column; y = sum(x) * w",
         NULL,
         "input 'w' has extent 9 where others have 8",
         {2, 1},
         {8, 9}},
        {"in x, w: row; y = sum(x) * w", NULL, "it has one value per row", {2, 2}, {8, 8}},
        {"in x, w; y = sum(x) * w", "row=64,block=32", "row=64", {2, 2}, {8, 8}},
        {"in x, w; y = sum(x) * w", "registers=48", "registers=48: only GPUs", {2, 2}, {8, 8}},
        {"in x, w; y = sum(x) * w", "vec=16", "vectors of at most 8", {2, 2}, {8, 8}},
        {"in x, w; y = sum(x) * w",
         "shared=2,block=1,row=1",
         "shared=2, block=1: shared memory needs whole warps",
         {2, 2},
         {8, 8}},
        {"in x, w; y = sum(x) * w",
         "shared=32,block=1024,row=1024,vec=2",
         "524288 bytes of shared memory; 232448 are possible",
         {2, 2},
         {8, 8}},
        {"in x, w; y = sum(x) * w",
         "cluster=2,row=8",
         "cluster=2, row=8: row must be at least 32, a warp of each block",
         {2, 2},
         {8, 8}},
        {"in x, w; y = sum(x) * w",
         "cluster=2,block=96",
         "row=64: threads of a row are a part of a block of 96",
         {2, 2},
         {8, 8}},
        {"in x, w; y = sum(x) * w",
         "cluster=8,row=1024,block=1024",
         "a cluster of 8 blocks of 1024 threads; on the CPU, 1 to 16 blocks of 4096 threads",
         {2, 2},
         {8, 8}},
        {"in x, w; y = colsum(x - max(w))",
         NULL,
         "a colsum needs a program of its own",
         {2, 2},
         {8, 8}},
    };
    static float data[64];
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        int64_t shape[2][2] = {{cases[i].rows[0], cases[i].cols[0]},
                               {cases[i].rows[1], cases[i].cols[1]}};
        int64_t out[2] = {2, strstr(cases[i].text, ": row") ? 1 : 8};
        eider_tensor args[3] = {tensor_of(data, EIDER_F32, 2, shape[0]),
                                tensor_of(data, EIDER_F32, 2, shape[1]),
                                tensor_of(data + 32, EIDER_F32, 2, out)};
        eider_program *program;
        eider_kernel *kernel = NULL;
        must(eider_program_parse(row_context, cases[i].text, &program));
        eider_request request = {
            .program = program, .args = args, .n_args = 3, .config = cases[i].config};
        assert_int_not_equal(eider_prepare(row_cpu, &request, &kernel), EIDER_OK);
        if (!strstr(eider_error(), cases[i].want)) fail_msg("%s", eider_error());
        eider_program_release(program);
    }
}

static void a_kernel_is_for_its_length(void **state)
{
    static float data[64];
    int64_t shape[2] = {2, 8}, other[2] = {2, 9}, out[1] = {2};
    eider_tensor args[2] = {tensor_of(data, EIDER_F32, 2, shape),
                            tensor_of(data + 32, EIDER_F32, 1, out)};
    eider_program *program;
    eider_kernel *kernel;
    (void)state;
    for (int i = 0; i < 16; i++) data[i] = (float)i;
    must(eider_program_parse(row_context, "y = sum(x)", &program));
    eider_request request = {.program = program, .args = args, .n_args = 2};
    must(eider_prepare(row_cpu, &request, &kernel));
    must(eider_launch(kernel, NULL, args, 2));
    assert_true(data[32] == 28 && data[33] == 92);
    args[0].shape = other;
    assert_int_equal(eider_launch(kernel, NULL, args, 2), EIDER_NOT_PREPARED);
    assert_non_null(strstr(eider_error(), "rows of 9 elements; the kernel was prepared for 8"));
    eider_kernel_release(kernel);
    eider_program_release(program);
}

/* ---- Memory --------------------------------------------------------------------------- */

static eider_status compile_with(struct counting_allocator *memory, const char *text,
                                 const char *config)
{
    static float data[3][64];
    static int64_t full[2] = {2, 16}, column[2] = {1, 16};
    eider_context_options options = {.allocator = counting_allocator(memory), .cpu_threads = 1};
    eider_tensor args[3];
    eider_context *context = NULL;
    eider_device *device = NULL;
    eider_program *program = NULL;
    eider_kernel *kernel = NULL;
    memory->n_calls = 0;
    eider_status status = eider_context_create(&options, &context);
    if (status == EIDER_OK) status = eider_device_open(context, "cpu", &device);
    if (status == EIDER_OK) status = eider_program_parse(context, text, &program);
    for (size_t i = 0; i < 3 && status == EIDER_OK; i++) {
        int is_column = eider_program_extent(program, i) == EIDER_PER_COLUMN;
        args[i] = tensor_of(data[i], EIDER_F32, 2, is_column ? column : full);
    }
    eider_request request = {.program = program, .args = args, .n_args = 3, .config = config};
    if (status == EIDER_OK) status = eider_prepare(device, &request, &kernel);
    if (status == EIDER_OK) status = eider_launch(kernel, NULL, args, 3);
    eider_kernel_release(kernel);
    eider_program_release(program);
    eider_device_release(device);
    eider_context_destroy(context);
    return status;
}

static void a_failed_allocation_is_survived(void **state)
{
    static const char *const cases[][2] = {
        {"in x, w: column; y = x / sum(exp(x)) * pick(x, argmax(x)) * w", NULL},
        {"in x, w: column; y = x * rsqrt(mean(x * x)) * w", "block=64,row=64,vec=1,keep=1"},
        {"in x, w: column; y = x * rsqrt(mean(x * x)) * w", "cluster=2,block=32,row=32,vec=1"},
        {"in x, w: column; y = x * rsqrt(mean(x * x)) * w",
         "block=32,row=32,vec=1,keep=0,shared=1,async=1,resident=1"},
        {"in x, w: column; y = x * pick(x, argmax(x)) * w",
         "cluster=2,block=32,row=32,vec=1,keep=0,shared=1,resident=1"},
        {"in x, y; w = colsum(x * y)", "block=32,row=8,vec=1"},
        {"in x, y; w = colsum(x * y)", "block=32,row=8,vec=1,split=4"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct counting_allocator memory = {0};
        assert_int_equal(compile_with(&memory, cases[i][0], cases[i][1]), EIDER_OK);
        long total = memory.n_calls;
        for (long at = 1; at <= total; at += 1 + at / 12) {
            memory.fail_at = at;
            eider_status status = compile_with(&memory, cases[i][0], cases[i][1]);
            if (status != EIDER_OOM && status != EIDER_OK)
                fail_msg("%s: allocation %ld: %s", cases[i][0], at, eider_error());
            if (memory.n_alive) fail_msg("%s: allocation %ld: lost blocks", cases[i][0], at);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_in_every_schedule),
        cmocka_unit_test(lengths_in_clusters),
        cmocka_unit_test(vectors_of_every_width),
        cmocka_unit_test(every_type),
        cmocka_unit_test(integers_wrap_and_compare),
        cmocka_unit_test(rows_and_pointers_anywhere),
        cmocka_unit_test(places_are_compared_in_64_bits),
        cmocka_unit_test(no_rows_is_nothing_to_do),
        cmocka_unit_test(long_rows),
        cmocka_unit_test(special_values_in_every_lane),
        cmocka_unit_test(the_first_of_equal_elements_is_found_in_any_block),
        cmocka_unit_test(a_mean_far_from_zero_costs_no_digits),
        cmocka_unit_test(long_sums_keep_what_rounding_loses),
        cmocka_unit_test(sums_down_the_rows),
        cmocka_unit_test(sums_of_16_bit_values_are_exact),
        cmocka_unit_test(sums_of_many_rows_are_cut_by_default),
        cmocka_unit_test(gradients_of_picks_gather),
        cmocka_unit_test(sums_of_what_a_row_has_once),
        cmocka_unit_test(values_per_row_are_computed_from_values_per_row),
        cmocka_unit_test(values_per_column_are_computed_from_values_per_column),
        cmocka_unit_test(inputs_of_one_dimension_have_rows_or_columns),
        cmocka_unit_test(a_row_does_not_depend_on_others),
        cmocka_unit_test(an_output_may_be_an_input),
        cmocka_unit_test(refusals_say_why),
        cmocka_unit_test(a_kernel_is_for_its_length),
        cmocka_unit_test(a_failed_allocation_is_survived),
    };
    return cmocka_run_group_tests_name("row", tests, row_set_up, row_tear_down);
}
