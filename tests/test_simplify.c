/* test_simplify.c -- every rule fires where it may, not where it must not, and changes no bit.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops.h"
#include "parse.h"
#include "passes.h"
#include "support_f32.h"

static eider_allocator heap(void)
{
    return eider_memory_default((eider_allocator){0});
}

static struct eider_graph *parsed(const char *text)
{
    eider_allocator a = heap();
    struct eider_graph *g = NULL;
    if (eider_parse(&a, text, &g) != EIDER_OK) fail_msg("%s: %s", text, eider_error());
    return g;
}

static struct eider_graph *simplified(const struct eider_graph *g)
{
    struct eider_graph *out = NULL;
    if (eider_simplify(g, &out) != EIDER_OK) fail_msg("%s", eider_error());
    return out;
}

/* ---- Rules ---------------------------------------------------------------- */

#define OPERANDS \
    "in x: f32, y: f32, b: bf16, h: f16, e: e5m2, d: f64, i: i32, j: i64, u; out o; o = "

/* `before` becomes `after`, node by node, and stays so. */
static void assert_becomes(const char *before, const char *after)
{
    char text[512], want_text[512];
    snprintf(text, sizeof text, OPERANDS "%s", before);
    snprintf(want_text, sizeof want_text, OPERANDS "%s", after);
    struct eider_graph *g = parsed(text), *want = parsed(want_text);
    struct eider_graph *got = simplified(g), *again = simplified(got);
    if (!eider_graph_equal(got, want)) {
        char *printed = NULL;
        assert_int_equal(eider_print(got, &printed), EIDER_OK);
        print_error("%s: want %s, got %s", before, after, printed);
        eider_mem_free(&got->allocator, printed);
        fail();
    }
    assert_true(eider_graph_equal(got, again));
    eider_graph_destroy(g);
    eider_graph_destroy(want);
    eider_graph_destroy(got);
    eider_graph_destroy(again);
}

static const char *const rules_that_fire[][2] = {
    /* Literals. */
    {"x + (2.0 + 3.0 * 4.0)", "x + 14.0"},
    {"x * (1.0 / 3.0)", "x * 0.33333333333333331"},
    {"x * sqrt(2.0)", "x * 1.4142135623730951"},
    {"x * rcp(8.0)", "x * 0.125"},
    {"max(x, max(2.0, 3.0))", "max(x, 3.0)"},
    {"min(x, min(2.0, 3.0))", "min(x, 2.0)"},
    {"x + abs(neg(2.0))", "x + 2.0"},
    {"x * (5.0 - 3.0)", "x * 2.0"},
    {"i + (2 * 3)", "i + 6"},
    {"x * (1 / 2)", "x * 0.5"},
    {"x + (1.0 / 0.0)", "x + inf"},
    {"x * (3 + 0.5)", "x * 3.5"},
    {"x + max(0.0, -0.0)", "x + 0.0"},
    {"x + min(0.0, -0.0)", "x"},
    {"x - max(-0.0, 0.0)", "x"},
    /* Sums. */
    {"x + neg(0.0)", "x"},
    {"i + 0", "i"},
    {"x - 0.0", "x"},
    {"x - 0", "x"},
    {"i - 0", "i"},
    {"x + neg(y)", "x - y"},
    {"neg(x) + y", "y - x"},
    {"x - neg(y)", "x + y"},
    /* Products. */
    {"x * 1.0", "x"},
    {"1 * x", "x"},
    {"i * 1", "i"},
    {"x * neg(1.0)", "neg(x)"},
    {"i * neg(1)", "neg(i)"},
    {"neg(x) * 3.0", "x * -3.0"},
    {"neg(x) * y", "neg(x * y)"},
    {"neg(x) * neg(y)", "x * y"},
    {"2.0 * (4.0 * x)", "x * 8.0"},
    {"x / 1.0", "x"},
    {"x / 4.0", "x * 0.25"},
    {"x / 1024", "x * 0.0009765625"},
    {"i / 2", "i * 0.5"},
    {"i / 1", "i * 1.0"},
    {"1.0 / x", "rcp(x)"},
    {"neg(x) / y", "neg(x / y)"},
    {"x / neg(y)", "neg(x / y)"},
    {"pow(x, 1.0)", "x"},
    {"pow(x, 2)", "x * x"},
    {"pow(d, 2.0)", "d * d"},
    {"pow(x, neg(1))", "rcp(x)"},
    /* Signs. */
    {"neg(neg(x))", "x"},
    {"neg(neg(i))", "i"},
    {"neg(x * 3.0)", "x * -3.0"},
    {"abs(neg(x))", "abs(x)"},
    {"abs(abs(x))", "abs(x)"},
    /* Limits. */
    {"max(x, x)", "x"},
    {"min(i, i)", "i"},
    {"fmax(x, x)", "x"},
    {"fmin(x, x)", "x"},
    {"min(x, inf)", "x"},
    {"max(neg(inf), d)", "d"},
    {"max(max(x, y), y)", "max(x, y)"},
    {"min(x, min(x, y))", "min(x, y)"},
    {"max(max(x, 1.0), 2.0)", "max(x, 2.0)"},
    {"min(min(x, 1.0), 2.0)", "min(x, 1.0)"},
    /* Casts. */
    {"cast(cast(x, bf16), bf16)", "cast(x, bf16)"},
    {"cast(cast(x, bf16), f32)", "cast(x, bf16)"},
    {"cast(cast(x, e4m3), f16)", "cast(x, e4m3)"},
    {"cast(cast(x, e5m2), bf16)", "cast(x, e5m2)"},
    {"cast_nan(cast_nan(x, e5m2), e5m2)", "cast_nan(x, e5m2)"},
    {"cast_nan(e, e5m2) + x", "x + e"},
    {"cast(b, bf16)", "b"},
    {"cast(h, f32)", "h"},
    {"cast(i, i32)", "i"},
    {"cast(d, f64)", "d"},
    {"x * cast(0.1, bf16)", "x * 0.10009765625"},
    {"x * cast(1000.0, e4m3)", "x * 448.0"},
    /* Conditions. */
    {"select(not (not (x < y)), x, y)", "select(x < y, x, y)"},
    {"select(not (x == y), x, y)", "select(x != y, x, y)"},
    {"select(not (x != y), x, y)", "select(x == y, x, y)"},
    {"select(x < y and x < y, x, y)", "select(x < y, x, y)"},
    {"select(x < y or x < y, x, y)", "select(x < y, x, y)"},
    {"select(x < y and true, x, y)", "select(x < y, x, y)"},
    {"select(x < y or false, x, y)", "select(x < y, x, y)"},
    {"select(x < y and false, x, y)", "y"},
    {"select(x < y or 1 < 2, x, y)", "x"},
    {"select(x < y, x, x)", "x"},
    {"select(2.0 <= 1.0, x, y)", "y"},
    {"select(2.0 >= 1.0, x, y)", "x"},
    {"select(x > inf, x, y)", "y"},
    {"select(abs(x) < neg(inf), x, y)", "y"},
    {"select(not (x < y), x, y)", "select(x < y, y, x)"},
    {"select(x < y, select(x < y, x, b), h)", "select(x < y, x, h)"},
    {"select(x < y, b, select(x < y, x, h))", "select(x < y, b, h)"},
    /* Equal nodes are one, whatever the order of a sum or product. */
    {"x * y + y * x", "x * y + x * y"},
    {"2.0 * x", "x * 2.0"},
};

static void every_rule_fires(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rules_that_fire / sizeof *rules_that_fire; i++)
        assert_becomes(rules_that_fire[i][0], rules_that_fire[i][1]);
}

static void nothing_changes_that_one_input_could_tell_apart(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "x + 0.0",                         /* -0 */
        "x + 0",                           /* -0 */
        "x * 0.0",                         /* inf, NaN, -0 */
        "x - x",                           /* inf, NaN */
        "x / x",                           /* 0, inf, NaN */
        "neg(x - y)",                      /* 0 where x == y */
        "0.0 - x",                         /* 0 */
        "x * 0.1 * 0.1",                   /* rounds twice */
        "x * 0.5 * 0.5",                   /* subnormal numbers round twice */
        "x * 0x1p100 * 0x1p100",           /* 0 * inf */
        "x / 3.0",                         /* 1/3 is not exact */
        "x * rcp(y)",                      /* rounds twice */
        "pow(x, 0.5)",                     /* sqrt(-inf) is NaN */
        "pow(x, 3.0)",                     /* rounds twice */
        "pow(i, 2)",                       /* i * i wraps */
        "fmin(x, inf)",                    /* NaN */
        "max(x, inf)",                     /* NaN */
        "select(x > y, x, y)",             /* NaN is not max's */
        "select(not (x < y), 1.0, x + y)", /* swapped, but not x >= y: see below */
        "select(x == x, y, x)",            /* NaN */
        "cast(x + y, f32)",                /* rounds where math=exact computes in f64 */
        "cast(cast(x, bf16), f16)",        /* range */
        "cast(cast(x, f16), bf16)",        /* precision */
        "cast(cast(x, bf16), f64)",        /* the type of what follows */
        "cast(e, e5m2)",                   /* saturates an infinity */
        "cast(cast_nan(x, e5m2), e5m2)",   /* the same */
        "cast(u, bf16)",                   /* u has any type */
        "u * 1.0",                         /* makes an integer a float */
        "u + -0.0",                        /* the same */
        "i * 1.0",                         /* the same */
        "i - 0.0",                         /* the same */
        "min(i, inf)",                     /* the same */
        "j + neg(i)",                      /* -i wraps in 32 bits */
        "select(1 < 2, x, d)",             /* d makes it f64 */
        "select(1 < 2, i, x)",             /* x makes it f32 */
        "x * (i + 2147483647 * 2)",        /* wraps, or not, by the type */
        "x * (0.0 / 0.0)",                 /* no literal NaN */
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (strncmp(texts[i], "select(not", 10) == 0)
            assert_becomes(texts[i], "select(x < y, x + y, 1.0)");
        else
            assert_becomes(texts[i], texts[i]);
    }
}

/* ---- Random programs ------------------------------------------------------------ */

static uint64_t seed;

static uint32_t below(uint32_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}

static const double literals[] = {0.0, -0.0, 1, -1, 2, -2, 0.5, 4, INFINITY, -INFINITY};

struct pool {
    eider_node node[64];
    uint32_t n;
};

static eider_node any(const struct pool *pool)
{
    return pool->node[below(pool->n)];
}

static void keep(struct pool *pool, eider_node node)
{
    pool->node[pool->n++] = node;
}

static enum eider_op any_of(const enum eider_op *ops, uint32_t n)
{
    return ops[below(n)];
}

static void add_number(struct eider_graph *g, struct pool *numbers, const struct pool *bools)
{
    static const enum eider_op unary[] = {EIDER_OP_neg, EIDER_OP_abs, EIDER_OP_rcp, EIDER_OP_neg};
    static const enum eider_op binary[] = {EIDER_OP_add,  EIDER_OP_sub,  EIDER_OP_mul,
                                           EIDER_OP_div,  EIDER_OP_max,  EIDER_OP_min,
                                           EIDER_OP_fmax, EIDER_OP_fmin, EIDER_OP_mul};
    static const eider_dtype types[] = {EIDER_F32, EIDER_BF16, EIDER_F16, EIDER_E4M3, EIDER_E5M2};
    eider_node a = any(numbers), b = any(numbers);
    switch (below(8)) {
    case 0:
    case 1:
        keep(numbers, eider_graph_unary(g, any_of(unary, 4), a));
        break;
    case 2:
        keep(numbers, eider_graph_ternary(g, EIDER_OP_select, any(bools), a, b));
        break;
    case 3:
        keep(numbers, eider_graph_put(g, below(2) ? EIDER_OP_cast : EIDER_OP_cast_nan, &a, 1,
                                      types[below(5)]));
        break;
    default:
        keep(numbers, eider_graph_binary(g, any_of(binary, 9), a, b));
        break;
    }
}

static void add_bool(struct eider_graph *g, const struct pool *numbers, struct pool *bools)
{
    static const enum eider_op compare[] = {EIDER_OP_eq, EIDER_OP_ne, EIDER_OP_lt,
                                            EIDER_OP_le, EIDER_OP_gt, EIDER_OP_ge};
    switch (bools->n ? below(4) : 0) {
    case 0:
    case 1:
        keep(bools, eider_graph_binary(g, any_of(compare, 6), any(numbers), any(numbers)));
        break;
    case 2:
        keep(bools, eider_graph_unary(g, EIDER_OP_not, any(bools)));
        break;
    default:
        keep(bools,
             eider_graph_binary(g, below(2) ? EIDER_OP_and : EIDER_OP_or, any(bools), any(bools)));
        break;
    }
}

static struct eider_graph *random_graph(void)
{
    eider_allocator a = heap();
    struct eider_graph *g = NULL;
    struct pool numbers = {.n = 0}, bools = {.n = 0};
    assert_int_equal(eider_graph_create(&a, &g), EIDER_OK);
    keep(&numbers, eider_graph_input(g, "x", EIDER_F32));
    keep(&numbers, eider_graph_input(g, "y", EIDER_BF16));
    keep(&numbers, eider_graph_input(g, "i", EIDER_I32));
    for (int i = 0; i < 3; i++)
        keep(&numbers, eider_graph_number(g, literals[below(sizeof literals / sizeof *literals)]));
    keep(&numbers, eider_graph_integer(g, (int64_t)below(5) - 2));
    add_bool(g, &numbers, &bools);
    for (int i = 0; i < 14; i++) {
        add_number(g, &numbers, &bools);
        if (below(3) == 0) add_bool(g, &numbers, &bools);
    }
    static const char *const names[] = {"o", "p", "q"};
    for (uint32_t i = 0; i < 3; i++)
        eider_graph_output(g, names[i], numbers.node[numbers.n - 1 - i], -1);
    assert_int_equal(g->status, EIDER_OK);
    return g;
}

static int same_double(double a, double b)
{
    return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0;
}

static int same_float(float a, float b)
{
    return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0;
}

static const float specials[] = {
    0.0F,    -0.0F, 1.0F,  -1.0F,   1.5F,     -3.0F,     1e-45F, -1e-40F, 1e-30F,
    FLT_MIN, 1e4F,  1e30F, FLT_MAX, -FLT_MAX, -INFINITY, NAN,    0.1F,    INFINITY,
};

static void assert_same_values(const struct eider_graph *a, const struct eider_graph *b)
{
    uint32_t n = sizeof specials / sizeof *specials;
    for (uint32_t i = 0; i < n * n; i++) {
        float in[3] = {specials[i % n],
                       (float)eider_round_to((double)specials[i / n], EIDER_BF16, 0),
                       (float)(i % 7) - 3};
        double in64[3] = {(double)in[0], (double)in[1], (double)in[2]};
        double out64[2][3];
        float out[2][3];
        assert_int_equal(eider_eval(a, in64, out64[0]), EIDER_OK);
        assert_int_equal(eider_eval(b, in64, out64[1]), EIDER_OK);
        assert_int_equal(support_eval_f32(a, 0, in, out[0]), EIDER_OK);
        assert_int_equal(support_eval_f32(b, 0, in, out[1]), EIDER_OK);
        for (int k = 0; k < 3; k++) {
            if (same_double(out64[0][k], out64[1][k]) && same_float(out[0][k], out[1][k])) continue;
            char *before = NULL, *after = NULL;
            if (eider_print(a, &before) == EIDER_OK && eider_print(b, &after) == EIDER_OK)
                print_error("%s\nbecame\n%s\n", before, after);
            eider_mem_free(&a->allocator, before);
            eider_mem_free(&b->allocator, after);
            fail_msg("at (%g, %g, %g), output %d: f64 %a, %a; f32 %a, %a", in64[0], in64[1],
                     in64[2], k, out64[0][k], out64[1][k], (double)out[0][k], (double)out[1][k]);
        }
    }
}

static void no_bit_of_a_random_program_changes(void **state)
{
    (void)state;
    uint32_t before = 0, after = 0;
    for (int i = 0; i < 120; i++) {
        seed = (uint64_t)i;
        struct eider_graph *g = random_graph(), *live = NULL, *simple = simplified(g);
        assert_int_equal(eider_graph_copy(g, &live), EIDER_OK);
        before += live->n_cells;
        after += simple->n_cells;
        assert_same_values(live, simple);
        eider_graph_destroy(g);
        eider_graph_destroy(live);
        eider_graph_destroy(simple);
    }
    assert_true(after < before * 9 / 10); /* the rules did fire */
}

/* ---- Memory ------------------------------------------------------------------------ */

static void *resize_failing(void *user, void *ptr, size_t old_size, size_t new_size)
{
    int *left = user;
    (void)old_size;
    if (new_size == 0) {
        free(ptr);
        return NULL;
    }
    return (*left)-- <= 0 ? NULL : realloc(ptr, new_size);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (int n = 0;; n++) {
        int left = 1 << 30;
        eider_allocator a = {resize_failing, &left};
        struct eider_graph *g = NULL, *out = NULL;
        assert_int_equal(eider_parse(&a, "out = 2.0 * (4.0 * sigmoid(x)) - neg(x)", &g), EIDER_OK);
        left = n;
        eider_status status = eider_simplify(g, &out);
        left = 1 << 30;
        eider_graph_destroy(out);
        eider_graph_destroy(g);
        if (status == EIDER_OK) {
            assert_true(n > 5);
            break;
        }
        assert_int_equal(status, EIDER_OOM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rule_fires),
        cmocka_unit_test(nothing_changes_that_one_input_could_tell_apart),
        cmocka_unit_test(no_bit_of_a_random_program_changes),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
