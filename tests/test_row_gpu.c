/* test_row_gpu.c -- programs over rows on a real GPU, against the reference evaluation.
 *
 * labels: gpu
 * timeout: 600
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "programs.h"
#include "support_row.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static eider_device *gpu;

static int set_up(void **state)
{
    int code = row_set_up(state);
    if (code == 0 && eider_device_open(row_context, "cuda:0", &gpu) != EIDER_OK) {
        fprintf(stderr, "SKIPPED (no GPU): %s\n", eider_error());
        gpu = NULL;
    }
    return code;
}

static int tear_down(void **state)
{
    eider_device_release(gpu);
    return row_tear_down(state);
}

static void check(struct row_call c, double tolerance, double least)
{
    c.device = gpu;
    row_check(c, tolerance, least);
}

static const char everything[] =
    "in x, w: column, s: row\n"
    "m = max(x); e = exp(x - m); y = e / sum(e) * w\n"
    "z = (x - mean(x)) * s + pick(x, argmin(x))\n"
    "a = argmax(x); l = logsumexp(x); p = pick(x * w, cols() - 1) + sum(select(x > 0, x, 0))\n"
    "q = select(any(x > 1.99) or all(x < 1), amin(x), 7) + row()\n";

static const char *const schedules[] = {
    NULL,
    "block=32,row=32,keep=1",
    "block=128,row=8,keep=2",
    "block=64,row=64,keep=0,unroll=2",
    "block=1024,row=1024,keep=1,unroll=1",
    "block=256,row=128,keep=0,unroll=1,load=nc,store=cs",
    "block=32,row=1,keep=4,unroll=1",
    "block=64,row=64,keep=1,shared=2,unroll=2",
    "block=128,row=32,keep=0,shared=3,unroll=1,async=1",
    "block=512,row=512,keep=1,shared=8,unroll=1,async=1",
    "block=64,row=64,keep=0,unroll=2,load=last,store=first",
    "block=128,row=128,keep=1,unroll=1,load=last",
    "block=128,row=32,keep=2,unroll=1,ahead=1",
    "block=256,row=256,keep=1,shared=3,unroll=2,async=1,ahead=1",
    /* From here on of GPUs with clusters. */
    "cluster=2,block=32,row=32,keep=1",
    "cluster=4,block=128,row=128,keep=0,unroll=2",
    "cluster=8,block=64,row=64,keep=1,unroll=1,load=nc",
    "cluster=2,block=1024,row=1024,keep=1,unroll=1",
    "cluster=16,block=64,row=64,keep=2,unroll=1",
    "cluster=16,block=256,row=256,keep=0,unroll=1,store=cs",
    "cluster=2,block=32,row=32,keep=1,mbarrier=1",
    "cluster=8,block=512,row=512,keep=0,unroll=2,load=last,mbarrier=1",
    "cluster=8,block=256,row=256,keep=1,shared=1,unroll=1,async=1,mbarrier=1",
    "cluster=16,block=64,row=64,keep=0,unroll=1,online=1,mbarrier=1",
    "cluster=8,block=1024,row=1024,keep=1,unroll=1",
    "cluster=8,block=1024,row=1024,keep=1,unroll=1,mbarrier=1",
    "cluster=4,block=128,row=64,keep=1,unroll=1",
    "cluster=8,block=512,row=128,keep=0,unroll=1,online=1,mbarrier=1",
    "cluster=16,block=1024,row=512,keep=1,unroll=1",
    "cluster=2,block=512,row=256,keep=4,shared=4,unroll=2,async=1,ahead=1",
    "cluster=8,block=128,row=128,keep=4,unroll=4,ahead=1,mbarrier=1",
};

#define N_CLUSTERS 17

static size_t n_schedules(void)
{
    eider_device_info info;
    int sm = 0;
    eider_device_describe(gpu, &info);
    sscanf(info.target, "sm_%d", &sm);
    return COUNT(schedules) - (sm < 90 ? N_CLUSTERS : 0);
}

static void every_length(void **state)
{
    (void)state;
    if (!gpu) skip();
    for (int64_t cols = 1; cols <= 4097; cols += cols < 130 ? 1 : cols % 64 == 1 ? 61 : 1)
        check((struct row_call){.text = everything,
                                .config = schedules[(size_t)cols % n_schedules()],
                                .rows = 3,
                                .cols = cols,
                                .fill = row_wave},
              4e-6, 1);
}

static void every_type_and_alignment(void **state)
{
    static const eider_dtype types[] = {EIDER_F32, EIDER_F16, EIDER_BF16, EIDER_F64};
    static const double tolerances[] = {4e-6, 2e-3, 1e-2, 1e-13};
    (void)state;
    if (!gpu) skip();
    for (size_t t = 0; t < COUNT(types); t++)
        for (size_t k = 0; k < n_schedules(); k++)
            check((struct row_call){.text = everything,
                                    .type = types[t],
                                    .math = EIDER_MATH_FAST,
                                    .config = schedules[k],
                                    .rows = 37,
                                    .cols = 1024 + 8 * ((int64_t)k / 2),
                                    .misalign = k & 1,
                                    .gap = k > 3 ? 3 : 0,
                                    .fill = row_wave},
                  tolerances[t], 1);
}

/* More rows than blocks: what shared memory has of a row makes way for the next one's. */
static void blocks_go_through_all_rows(void **state)
{
    static const char *const texts[] = {everything,
                                        "in x, w: column; y = x * rsqrt(mean(x * x) + 0.1) * w",
                                        "m = max(x)", "y = x * 2 + col()"};
    static const char *const configs[] = {
        "block=128,row=128,keep=0,shared=3,unroll=1,async=1,resident=1",
        "block=128,row=128,keep=1,shared=2,unroll=2,async=1,resident=2",
        "block=64,row=16,keep=2,shared=4,unroll=1,async=0,resident=1",
        "block=256,row=256,keep=2,unroll=1,resident=1",
        "block=64,row=64,keep=0,unroll=1,resident=3",
        "cluster=2,block=128,row=128,keep=0,shared=2,unroll=1,async=1,resident=1",
        "cluster=4,block=64,row=64,keep=1,shared=1,unroll=1,async=1,resident=1",
        "cluster=16,block=64,row=64,keep=0,shared=1,unroll=1,async=1,resident=1",
        "cluster=4,block=128,row=32,keep=1,shared=1,unroll=1,async=1,resident=1",
    };
    static const eider_dtype types[] = {EIDER_F32, EIDER_BF16};
    (void)state;
    if (!gpu) skip();
    for (size_t k = 0; k < COUNT(configs) * COUNT(texts); k++) {
        int is_cluster = strncmp(configs[k % COUNT(configs)], "cluster", 7) == 0;
        if (is_cluster && n_schedules() < COUNT(schedules)) continue;
        check((struct row_call){.text = texts[k / COUNT(configs) % COUNT(texts)],
                                .type = types[(k + k / COUNT(configs)) % COUNT(types)],
                                .math = EIDER_MATH_FAST,
                                .config = configs[k % COUNT(configs)],
                                .rows = 301,
                                .cols = 512 + 8 * (int64_t)(k % 7) + (k % 3 == 0),
                                .fill = row_wave},
              (k + k / COUNT(configs)) % COUNT(types) ? 1e-2 : 4e-6, 1);
    }
}

/* Types of different sizes among what is in the row. */
static const char mixed[] = "in x: bf16, r: f32, w: column\n"
                            "out y: f32, t: bf16, b: bool, n\n"
                            "h = x + r; y = h * rsqrt(mean(h * h) + 0.1) * w\n"
                            "t = h; b = x > r; n = sum(abs(h))\n";

static const char *const ragged[] = {
    "vec=8,block=32,row=32,keep=1,unroll=1",
    "vec=4,block=128,row=8,keep=2,unroll=1",
    "vec=2,block=64,row=64,keep=0,unroll=2",
    "vec=8,block=256,row=128,keep=3,unroll=1",
    "vec=16,block=32,row=4,keep=1,unroll=1",
    "vec=8,block=64,row=64,keep=0,unroll=1,load=nc",
    "vec=8,block=64,row=64,keep=1,shared=2,unroll=1,async=1,resident=1",
    "vec=4,block=128,row=32,keep=0,shared=3,unroll=2,resident=2",
    "vec=8,block=128,row=128,keep=0,shared=2,unroll=1,async=1",
    "vec=4,block=32,row=32,keep=1,shared=6,unroll=2,async=1",
};

/* Rows that begin anywhere, in vectors, and operands that do not agree about it (`apart`). */
static void rows_that_begin_anywhere(void **state)
{
    static const eider_dtype types[] = {EIDER_BF16, EIDER_F32, EIDER_F16, EIDER_F64};
    static const double tolerances[] = {1e-2, 4e-6, 2e-3, 1e-13};
    (void)state;
    if (!gpu) skip();
    for (size_t k = 0; k < 32; k++) {
        size_t t = k % COUNT(types);
        struct row_call c = {.text = everything,
                             .type = types[t],
                             .math = EIDER_MATH_FAST,
                             .config = ragged[k % COUNT(ragged)],
                             .rows = 9,
                             .cols = 31 + (int64_t)(k * k) % 1499,
                             .misalign = k / 2 % 8,
                             .gap = k % 3 == 1 ? 7 : 0,
                             .apart = k % 7 == 6,
                             .fill = row_wave};
        check(c, tolerances[t], 1);
        c.text = mixed;
        check(c, 1e-2, 1);
    }
    for (int64_t cols = 4093; cols < 70000; cols += 15401)
        check((struct row_call){.text = everything,
                                .type = EIDER_BF16,
                                .math = EIDER_MATH_FAST,
                                .rows = 9,
                                .cols = cols,
                                .misalign = (size_t)cols % 5,
                                .fill = row_wave},
              1e-2, 1);
}

static double equal_rows(size_t i, int64_t row, int64_t col)
{
    (void)row;
    return row_wave(i, 0, col);
}

/* Eight rows on, a row of 16-bit elements begins at the same place modulo 16 bytes. */
static void equal_rows_at_equal_shifts_have_equal_bits(void **state)
{
    (void)state;
    if (!gpu) skip();
    for (size_t s = 0; s <= COUNT(ragged); s++) {
        struct row_call c = {.text = "in x; out y: f32, s: f32\ns = sum(x); y = x * s",
                             .type = EIDER_BF16,
                             .config = s < COUNT(ragged) ? ragged[s] : NULL,
                             .rows = 40,
                             .cols = 5003,
                             .misalign = s,
                             .fill = equal_rows,
                             .device = gpu};
        row_make(&c);
        row_run(&c);
        for (int64_t r = 8; r < c.rows; r++) {
            assert_true(row_output(&c, "s", r, 0) == row_output(&c, "s", r - 8, 0));
            assert_true(row_output(&c, "y", r, 5002) == row_output(&c, "y", r - 8, 5002));
        }
        row_release(&c);
    }
}

/* More clusters than run at a time. */
static void long_rows_in_clusters(void **state)
{
    static const int64_t lengths[] = {16385, 131072, 262144};
    static const char text[] = "in x, w: column\n"
                               "e = exp(x - max(x)); y = e / sum(e) * w; a = argmax(x)\n"
                               "s = mean(abs(x)); p = pick(x, argmin(x))";
    (void)state;
    if (!gpu) skip();
    for (size_t k = 0; k < COUNT(lengths); k++)
        for (size_t s = COUNT(schedules) - N_CLUSTERS; s <= n_schedules(); s++)
            check((struct row_call){.text = text,
                                    .type = k % 2 ? EIDER_F32 : EIDER_BF16,
                                    .math = EIDER_MATH_FAST,
                                    .config = s < n_schedules() ? schedules[s] : NULL,
                                    .rows = 24,
                                    .cols = lengths[k],
                                    .fill = row_wave},
                  k % 2 ? 1e-5 : 1e-2, 1e-9);
}

static const char *const splits[] = {
    "split=2,row=32,block=32,unroll=1",
    "split=16,row=64,block=64,unroll=2",
    "split=128,row=512,block=512,unroll=1,load=nc,store=cs,online=1",
    "split=1024,row=256,block=256,unroll=2",
    "split=64,row=1024,block=1024,vec=1,online=1",
};

static void parts_of_rows(void **state)
{
    static const int64_t lengths[] = {1, 2, 31, 33, 127, 129, 1000, 4097, 50257};
    (void)state;
    if (!gpu) skip();
    for (size_t k = 0; k < COUNT(lengths) * COUNT(splits); k++)
        check((struct row_call){.text = everything,
                                .config = splits[k % COUNT(splits)],
                                .rows = 1 + (int64_t)k % 3,
                                .cols = lengths[k / COUNT(splits)],
                                .misalign = k & 1,
                                .fill = row_wave},
              4e-6, 1);
}

/* By the default rule, too: a class and a weight of a row are few numbers. */
static double long_value(size_t i, int64_t row, int64_t col)
{
    return i == 0 ? row_wave(i, row, col) : (double)(299999 * row + 1);
}

static void parts_of_very_long_rows(void **state)
{
    static const char *const texts[] = {
        "in x; y = exp(x - max(x)) / sum(exp(x - max(x)))",
        "in x, s: row; y = x * rsqrt(mean(x * x) + 1e-6); r = mean(x * x) * s",
        "in x; a = argmax(x); b = argmin(x)", "in x, t: i32 row; l = logsumexp(x) - pick(x, t)",
        "in x, t: i32 row; d = exp(x - logsumexp(x)) - select(col() == t, 1, 0)"};
    static const char *const configs[] = {NULL, "split=512,row=512,block=512,unroll=2"};
    (void)state;
    if (!gpu) skip();
    for (size_t k = 0; k < 2 * COUNT(texts); k++)
        check((struct row_call){.text = texts[k / 2],
                                .config = configs[k % 2],
                                .type = k / 2 == 1 ? EIDER_BF16 : EIDER_F32,
                                .math = EIDER_MATH_FAST,
                                .rows = k % 2 ? 3 : 1,
                                .cols = k % 2 ? 300001 : 4 << 20,
                                .fill = long_value},
              k / 2 == 1 ? 1e-2 : 1e-5, 1e-9);
}

/* Rounding of parts counts against their sizes, whatever is left of those in the end. */
static void sums_down_the_rows(void **state)
{
    static const int64_t rows[] = {0, 1, 100, 4097, 20000}, cols[] = {1, 100, 1024, 4096, 5000};
    static const char *const configs[] = {NULL, "block=256,row=8,unroll=2", "block=32,row=32",
                                          "block=256,row=8,split=16", "block=64,row=64,split=128"};
    (void)state;
    if (!gpu) skip();
    for (size_t i = 0; i < 2 * COUNT(rows); i++)
        check((struct row_call){.text = "in x, s: row; a = colsum(x * s); b = colsum(x)",
                                .config = configs[(i + i / COUNT(rows)) % COUNT(configs)],
                                .type = i % 2 ? EIDER_F32 : EIDER_BF16,
                                .rows = rows[i % COUNT(rows)],
                                .cols = cols[(i * 2 + 1) % COUNT(cols)],
                                .fill = row_wave},
              i % 2 ? 4e-7 : 1e-2, 64 + (double)rows[i % COUNT(rows)] / 64);
}

static void special_values_in_every_lane(void **state)
{
    static const row_filler fillers[] = {row_only_one, row_masked, row_one_nan};
    (void)state;
    if (!gpu) skip();
    for (size_t f = 0; f < COUNT(fillers); f++)
        for (size_t s = 0; s < n_schedules(); s++)
            check((struct row_call){.text = row_softmax,
                                    .config = schedules[s],
                                    .rows = 1101,
                                    .cols = 1100,
                                    .fill = fillers[f]},
                  2e-6, 1e-30);
}

static double any_value(size_t i, int64_t row, int64_t col)
{
    return (double)row + 0.3 + 0.1 * row_wave(i, row, col);
}

static void every_program(void **state)
{
    static const struct {
        eider_dtype type;
        eider_math math;
        double tolerance;
    } ways[] = {{EIDER_F32, EIDER_MATH_FAST, 4e-5},
                {EIDER_F32, EIDER_MATH_APPROX, 2e-3},
                {EIDER_BF16, EIDER_MATH_AUTO, 2e-2}};
    (void)state;
    if (!gpu) skip();
    for (size_t k = 0; eider_programs_row(k); k++)
        for (size_t w = 0; w < COUNT(ways); w++) {
            const char *name = eider_programs_row(k)->name;
            int is_fp8 = strstr(eider_programs_row(k)->text, "e4m3") != NULL;
            for (int64_t cols = 37; cols < 3000; cols += 1283)
                check((struct row_call){.text = name,
                                        .type = ways[w].type,
                                        .math = ways[w].math,
                                        .rows = 2,
                                        .cols = cols,
                                        .fill = any_value},
                      is_fp8 ? 0.07 : ways[w].tolerance, 0.1);
        }
}

static double vocabulary(size_t i, int64_t row, int64_t col)
{
    if (i == 1) return row ? 5 : 31999;
    return i == 3 ? -100 : i == 2 ? 1 : i > 3 ? 0 : 4 * row_wave(i, row, col);
}

static void losses_of_real_vocabularies(void **state)
{
    static const int64_t sizes[] = {32000,  50257,  100352, 128256, 129280, 151936,
                                    152064, 200064, 201088, 256000, 262208};
    (void)state;
    if (!gpu) skip();
    for (size_t i = 0; i < 2 * COUNT(sizes); i++)
        check((struct row_call){.text = "cross_entropy_train",
                                .type = i % 2 ? EIDER_F32 : EIDER_BF16,
                                .math = EIDER_MATH_FAST,
                                .rows = 2,
                                .cols = sizes[i / 2],
                                .fill = vocabulary},
              i % 2 ? 4e-6 : 4e-3, 1e-4);
}

/* Bit for bit: wherever a row stands, and run after run. */
static void a_row_depends_on_itself_alone(void **state)
{
    (void)state;
    if (!gpu) skip();
    for (size_t s = 0; s < n_schedules() + COUNT(splits); s++) {
        struct row_call c = {.text = "softmax",
                             .config = s < n_schedules() ? schedules[s] : splits[s - n_schedules()],
                             .rows = 300,
                             .cols = 2000,
                             .fill = row_same,
                             .device = gpu};
        row_make(&c);
        row_run(&c);
        double first = row_got(&c, 1, 1, 77);
        for (int64_t r = 4; r < c.rows; r += 3)
            for (int64_t col = 0; col < c.cols; col++)
                assert_true(row_got(&c, 1, r, col) == row_got(&c, 1, 1, col));
        row_run(&c);
        assert_true(row_got(&c, 1, 298, 77) == first);
        row_release(&c);
    }
}

static void an_output_may_be_an_input(void **state)
{
    (void)state;
    if (!gpu) skip();
    for (size_t k = 0; k < n_schedules(); k++) row_check_in_place(schedules[k], 5000, gpu);
    for (size_t k = 0; k < COUNT(splits); k++) row_check_in_place(splits[k], 5000, gpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length),
        cmocka_unit_test(every_type_and_alignment),
        cmocka_unit_test(blocks_go_through_all_rows),
        cmocka_unit_test(rows_that_begin_anywhere),
        cmocka_unit_test(equal_rows_at_equal_shifts_have_equal_bits),
        cmocka_unit_test(long_rows_in_clusters),
        cmocka_unit_test(parts_of_rows),
        cmocka_unit_test(parts_of_very_long_rows),
        cmocka_unit_test(sums_down_the_rows),
        cmocka_unit_test(special_values_in_every_lane),
        cmocka_unit_test(every_program),
        cmocka_unit_test(losses_of_real_vocabularies),
        cmocka_unit_test(a_row_depends_on_itself_alone),
        cmocka_unit_test(an_output_may_be_an_input),
    };
    return cmocka_run_group_tests_name("row on a GPU", tests, set_up, tear_down);
}
