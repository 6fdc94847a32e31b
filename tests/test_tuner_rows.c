/* test_tuner_rows.c -- tuning of programs over rows: which configs are tried, and that one which
 * adds in another order passes where one that is wrong does not.
 *
 * Wrong results are made by a hook that changes what a config has left.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "parse.h"
#include "rounding.h"
#include "space.h"
#include "support_runtime.h"
#include "support_tuner.h"

#define LAYERNORM "m = mean(x); d = x - m; out = d * rsqrt(mean(d * d) + 1e-6)"
#define ROWS 2560
#define COLUMNS 512

static struct workbench b;
static struct eider_tensor args[2];
static int64_t shape[2] = {ROWS, COLUMNS}, per_row[1] = {ROWS};
static float x[ROWS * COLUMNS];

/* What the hook does to the output of configs that contain `victim`. */
static struct {
    const char *victim;
    size_t at;
    float factor;
    uint32_t steps; /* added to the bits of an element */
    uint64_t hashes[8];
    size_t n_hashes;
} wrong;

static void spoil(void *user, const char *config, const eider_tensor *tensors, size_t n)
{
    const eider_tensor *out = &tensors[n - 1];
    size_t size = eider_dtype_size(out->type), count = (size_t)out->shape[0];
    if (out->rank == 2) count *= (size_t)out->shape[1];
    const unsigned char *bytes = out->data;
    uint64_t hash = 14695981039346656037u;
    (void)user;
    for (size_t i = 0; i < count * size && i < 4096; i++) hash = (hash ^ bytes[i]) * 1099511628211u;
    size_t k = 0;
    while (k < wrong.n_hashes && wrong.hashes[k] != hash) k++;
    if (k == wrong.n_hashes && k < 8) wrong.hashes[wrong.n_hashes++] = hash;
    if (!wrong.victim || !strstr(config, wrong.victim)) return;
    if (out->type == EIDER_F32 && !wrong.steps) ((float *)out->data)[wrong.at] *= wrong.factor;
    if (size == 4 && wrong.steps) ((uint32_t *)out->data)[wrong.at] += wrong.steps;
    if (size == 2) ((uint16_t *)out->data)[wrong.at] += (uint16_t)wrong.steps;
}

static int open_bench(void **state)
{
    (void)state;
    workbench_open(&b);
    memset(&wrong, 0, sizeof wrong);
    for (size_t i = 0; i < ROWS * COLUMNS; i++)
        x[i] = sinf((float)i * 12.9898F) * 3 + (float)(i % 7) / 3;
    b.request.hooks.after_run = spoil;
    b.request.rounds = 1;
    b.request.force = 1; /* every tuning checks */
    return 0;
}

static int close_bench(void **state)
{
    (void)state;
    workbench_close(&b);
    return 0;
}

/* Tunes a program of `x` and one output over four configs, the first being the reference. */
static eider_tuning *tuning;
static void tune(const char *text, int64_t rows, eider_dtype type, int is_per_row)
{
    static const char *const configs[] = {"vec=8,keep=0,unroll=1", "vec=4,keep=0,unroll=2",
                                          "vec=16,keep=2,unroll=1", "row=32,block=32,vec=2,keep=4"};
    eider_program *program;
    shape[0] = per_row[0] = rows;
    must(eider_program_parse(b.ctx, text, &program));
    args[0] = tensor_of(x, EIDER_F32, 2, shape);
    args[1] = tensor_of(NULL, type, is_per_row ? 1 : 2, is_per_row ? per_row : shape);
    b.kernel = (eider_request){.program = program, .args = args, .n_args = 2};
    b.request.space = NULL;
    b.request.configs = configs;
    b.request.n_configs = rows > 64 ? 3 : 4; /* fibers are slow */
    b.request.reference = configs[0];
    must(eider_tune(b.device, &b.request, &tuning));
    eider_program_release(program);
}

static void expect(eider_tune_outcome outcome, const char *reason)
{
    eider_tune_summary s;
    eider_tune_describe(tuning, &s);
    for (size_t i = 0; i < s.n_entries; i++) {
        eider_tune_entry e;
        must(eider_tune_entry_get(tuning, i, &e));
        int is_victim = wrong.victim && strstr(e.config, wrong.victim);
        if (!is_victim && e.outcome == EIDER_TUNE_WRONG) fail_msg("%s: %s", e.config, e.reason);
        if (is_victim && (e.outcome == EIDER_TUNE_WRONG) != (outcome == EIDER_TUNE_WRONG))
            fail_msg("%s has outcome %d: %s", e.config, (int)e.outcome, e.reason);
        if (is_victim && !strstr(e.reason, reason)) fail_msg("%s: %s", e.config, e.reason);
    }
    assert_int_equal(s.n_failed, 0);
    assert_int_equal(s.n_wrong, outcome == EIDER_TUNE_WRONG ? 1 : 0);
    eider_tune_release(tuning);
}

/* ---- Another order -------------------------------------------------------------- */

static void another_order_of_sums_is_not_wrong(void **state)
{
    (void)state;
    static const char *const texts[] = {LAYERNORM, "out = exp(x - logsumexp(x))",
                                        "out = x * rsqrt(mean(x * x))", "out = x / sum(abs(x))"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        tune(texts[i], 64, EIDER_F32, 0);
        expect(EIDER_TUNE_TIMED, "");
    }
    assert_true(wrong.n_hashes > sizeof texts / sizeof texts[0]); /* there was something to allow */
    tune(LAYERNORM, 64, EIDER_BF16, 0);
    expect(EIDER_TUNE_TIMED, "");
    tune("out = sum(x)", 64, EIDER_F32, 1);
    expect(EIDER_TUNE_TIMED, "");
}

static void a_thousandth_in_one_element_is_wrong(void **state)
{
    (void)state;
    wrong.victim = "vec=4";
    wrong.at = 5 * COLUMNS + 17;
    wrong.factor = 1.001F;
    tune(LAYERNORM, 64, EIDER_F32, 0);
    expect(EIDER_TUNE_WRONG, "out: element 2577 is ");
    wrong.factor = NAN;
    tune(LAYERNORM, 64, EIDER_F32, 0);
    expect(EIDER_TUNE_WRONG, "out: element 2577 is nan");
    wrong.at = 63;
    wrong.factor = 1.001F;
    tune("out = sum(x * x)", 64, EIDER_F32, 1);
    expect(EIDER_TUNE_WRONG, "out: element 63 is ");
}

static void of_16_bits_a_neighbour_passes_and_the_third_does_not(void **state)
{
    (void)state;
    wrong.victim = "vec=4";
    wrong.at = COLUMNS + 3;
    wrong.steps = 1;
    tune("out = x / mean(abs(x))", 64, EIDER_BF16, 0);
    expect(EIDER_TUNE_TIMED, "");
    wrong.steps = 3;
    tune("out = x / mean(abs(x))", 64, EIDER_BF16, 0);
    expect(EIDER_TUNE_WRONG, "out: element 515 is ");
}

static void what_no_sum_is_part_of_stays_equal_bit_for_bit(void **state)
{
    (void)state;
    wrong.victim = "vec=4";
    wrong.at = 9;
    wrong.steps = 1;
    tune("out = max(x)", 64, EIDER_F32, 1);
    expect(EIDER_TUNE_WRONG, "out: element 9 is ");
    tune("out = x - max(x)", 64, EIDER_F32, 0);
    expect(EIDER_TUNE_WRONG, "out: element 9 is ");
    tune("out out: i32; out = argmax(x)", 64, EIDER_I32, 1);
    expect(EIDER_TUNE_WRONG, "out: element 9 is ");
}

/* Of places that follow from sums, one in 64 may be another: a tie. */
static void a_tie_may_fall_to_either_side(void **state)
{
    (void)state;
    wrong.victim = "vec=4";
    wrong.at = 9;
    wrong.steps = 1;
    tune("out out: i32; out = argmax(x - mean(x))", 64, EIDER_I32, 1);
    expect(EIDER_TUNE_TIMED, "");
    tune("out out: i32; out = argmax(x - mean(x))", 63, EIDER_I32, 1);
    expect(EIDER_TUNE_WRONG, "out: element 9 is ");
}

/* 20 pieces, of which 16 are looked at. */
static void of_large_outputs_a_sample_and_the_first_difference_are_looked_at(void **state)
{
    (void)state;
    tune(LAYERNORM, ROWS, EIDER_F32, 0);
    expect(EIDER_TUNE_TIMED, "");
    wrong.victim = "vec=4";
    wrong.factor = 1.001F;
    static const size_t rows[] = {0, 1, ROWS - 1};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        wrong.at = rows[i] * COLUMNS + 100;
        tune(LAYERNORM, ROWS, EIDER_F32, 0);
        expect(EIDER_TUNE_WRONG, "the reference gives");
    }
    /* In the second piece, where the bytes before it are the same. */
    wrong.at = 130 * COLUMNS;
    tune("out = select(row() > 120, x / mean(abs(x)), x)", ROWS, EIDER_F32, 0);
    expect(EIDER_TUNE_WRONG, "out: element 66560 is ");
}

/* ---- Programs, node by node -------------------------------------------------------- */

static struct eider_rounding rounding_of(const char *text, eider_dtype in, eider_dtype out)
{
    struct eider_rounding r[EIDER_OPERANDS_MAX];
    eider_dtype types[EIDER_OPERANDS_MAX] = {in, out};
    struct eider_graph *g;
    must(eider_parse(&b.ctx->allocator, text, &g));
    assert_int_equal(g->n_operands, 2);
    must(eider_rounding_of(g, &b.ctx->allocator, types, r));
    eider_graph_destroy(g);
    return r[1];
}

static void slack_follows_from_the_program(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        eider_dtype in, out;
        double slack;
        int jumps;
    } rows[] = {
        {"out = exp(x)", EIDER_F32, EIDER_F32, 0, 0},
        {"out = max(x) - min(x)", EIDER_F32, EIDER_F32, 0, 0},
        {"out = x - mean(x)", EIDER_BF16, EIDER_BF16, 0x1p-18, 0},
        {"out = x - mean(x)", EIDER_F64, EIDER_F64, 0x1p-45, 0},
        {"out = prod(x)", EIDER_F32, EIDER_F32, 0x1p-15, 0},
        {"out = x - cast(mean(x), bf16)", EIDER_F32, EIDER_F32, 0x1p-7, 0},
        {"out = cast(x, bf16) - max(x)", EIDER_F32, EIDER_F32, 0, 0},
        {"out = x - logsumexp(x)", EIDER_F32, EIDER_F32, 0x1p-15, 0},
        {"out = colsum(x)", EIDER_F32, EIDER_F32, 0x1p-18, 0},
        {"out = select(x > mean(x), x, 0)", EIDER_F32, EIDER_F32, 0x1p-18, 1},
        {"out = sum(x)", EIDER_I32, EIDER_I32, 0, 0},
        {"out = argmax(x)", EIDER_F32, EIDER_I32, 0, 0},
        {"out = argmax(x + sum(x))", EIDER_F32, EIDER_I32, 0, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct eider_rounding r = rounding_of(rows[i].text, rows[i].in, rows[i].out);
        if (r.slack != rows[i].slack || r.jumps != rows[i].jumps)
            fail_msg("'%s' has slack %g, jumps %d", rows[i].text, r.slack, r.jumps);
    }
}

static void units_in_the_last_place_are_those_of_the_types(void **state)
{
    (void)state;
    assert_true(eider_rounding_ulp(EIDER_F32, 1) == 0x1p-23);
    assert_true(eider_rounding_ulp(EIDER_BF16, 1.5) == 0x1p-7);
    assert_true(eider_rounding_ulp(EIDER_F16, 2048) == 2);
    assert_true(eider_rounding_ulp(EIDER_F16, 0) == 0x1p-24);
    assert_true(eider_rounding_ulp(EIDER_E4M3, 0x1p-9) == 0x1p-9);
    assert_true(eider_rounding_ulp(EIDER_E5M2, 1) == 0.25);
    assert_true(eider_rounding_ulp(EIDER_F64, 1) == 0x1p-52);
    assert_true(eider_rounding_ulp(EIDER_I32, 1) == 0);
}

/* ---- The space ----------------------------------------------------------------------- */

/* Candidates of a program of x, bf16[rows, columns], and one output, for this target. */
static struct eider_space space;
static void open_space(const char *text, const char *target, int64_t columns, int is_column)
{
    static int64_t in[2], out[2];
    eider_program *program;
    in[0] = out[0] = 16384;
    in[1] = out[1] = columns;
    must(eider_program_parse(b.ctx, text, &program));
    args[0] = tensor_of(NULL, EIDER_BF16, 2, in);
    args[1] =
        is_column ? tensor_of(NULL, EIDER_F32, 1, out + 1) : tensor_of(NULL, EIDER_BF16, 2, out);
    eider_request kernel = {.program = program, .args = args, .n_args = 2, .target = target};
    eider_tune_request request = {.kernel = &kernel};
    struct eider_call call = {.ctx = b.ctx, .request = &request, .kernel = &kernel, .n = 2};
    must(eider_prepare_plan(b.ctx, NULL, &kernel, &call.plan));
    call.graph = call.plan.graph;
    must(eider_space_create(&call, &space));
    eider_program_release(program);
}

/* How many of the values the candidates have, and none has `never`. */
static size_t n_values(const char *name, const char *never)
{
    char seen[64][EIDER_PAIR_BYTES];
    size_t n = 0;
    for (size_t i = 0; i < space.n; i++) {
        struct eider_pairs pairs;
        must(eider_pairs_parse("config", space.at[i].config, &pairs));
        assert_null(eider_pairs_get(&pairs, never));
        const char *value = eider_pairs_get(&pairs, name);
        size_t k = 0;
        assert_non_null(value);
        while (k < n && strcmp(seen[k], value) != 0) k++;
        if (k == n && n < 64) snprintf(seen[n++], EIDER_PAIR_BYTES, "%s", value);
    }
    return n;
}

static void the_space_of_rows_is_of_what_rows_use(void **state)
{
    (void)state;
    static const int64_t columns[] = {128, 1000, 4096, 8192, 65536};
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        open_space(LAYERNORM, "sm_90a", columns[i], 0);
        if (space.n < 60 || space.n > 500) fail_msg("%zu configs of %d", space.n, (int)columns[i]);
        assert_in_range(n_values("row", "tiles"), 3, 5);
        assert_in_range(n_values("keep", "packed"), 2, 12);
        assert_in_range(n_values("vec", "index"), 2, 3);
        assert_in_range(n_values("block", "tiles"), 2, 4);
        assert_in_range(n_values("unroll", "tiles"), 2, 3);
        assert_in_range(n_values("load", "tiles"), 2, 4);
        assert_in_range(n_values("store", "tiles"), 2, 3);
        assert_in_range(n_values("cluster", "tiles"), columns[i] > 8192 ? 2 : 1, 5);
        eider_space_release(&space);
    }
    open_space(LAYERNORM, "sm_90", 4000000, 0);
    assert_int_equal(n_values("cluster", "tiles"), 4);
    eider_space_release(&space);
    open_space(LAYERNORM, "sm_80", 65536, 0);
    assert_int_equal(n_values("cluster", "tiles"), 1);
    eider_space_release(&space);
    open_space(LAYERNORM, "cpu", 4096, 0);
    assert_int_equal(space.n, 18);
    assert_int_equal(n_values("keep", "tiles"), 2);
    eider_space_release(&space);
}

static void the_space_of_columns_is_its_own(void **state)
{
    (void)state;
    open_space("out = colsum(x)", "sm_90a", 4096, 1);
    assert_in_range(space.n, 100, 300);
    assert_int_equal(n_values("row", "keep"), 3);
    assert_int_equal(n_values("block", "tiles"), 3);
    eider_space_release(&space);
    open_space("out = colsum(x)", "cpu", 4096, 1);
    assert_int_equal(space.n, 9);
    assert_int_equal(n_values("row", "keep"), 1);
    eider_space_release(&space);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_bench, close_bench)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(another_order_of_sums_is_not_wrong),
        TEST(a_thousandth_in_one_element_is_wrong),
        TEST(of_16_bits_a_neighbour_passes_and_the_third_does_not),
        TEST(what_no_sum_is_part_of_stays_equal_bit_for_bit),
        TEST(a_tie_may_fall_to_either_side),
        TEST(of_large_outputs_a_sample_and_the_first_difference_are_looked_at),
        TEST(slack_follows_from_the_program),
        TEST(units_in_the_last_place_are_those_of_the_types),
        TEST(the_space_of_rows_is_of_what_rows_use),
        TEST(the_space_of_columns_is_its_own),
    };
    return cmocka_run_group_tests_name("tuner_rows", tests, NULL, NULL);
}
