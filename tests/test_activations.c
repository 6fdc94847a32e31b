/* test_activations.c -- every row of activations.def against an independent definition. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "activations.h"
#include "ops.h"
#include "parse.h"
#include "passes.h"

/* ---- Oracles -------------------------------------------------------------- */

typedef long double real;

/* v: the tensors, then the other parameters; an activation of one tensor has no y. */
#define EIDER_ORACLE(name, expression)                        \
    static real oracle_##name(real x, real y, real a, real b) \
    {                                                         \
        (void)x, (void)y, (void)a, (void)b;                   \
        return expression;                                    \
    }
#include "oracles.def"

static const struct oracle {
    const char *name;
    real (*at)(real x, real y, real a, real b);
} oracles[] = {
#define EIDER_ORACLE(name, expression) {#name, oracle_##name},
#include "oracles.def"
};

static const struct oracle *find_oracle(const char *name)
{
    for (size_t i = 0; i < sizeof oracles / sizeof *oracles; i++)
        if (strcmp(oracles[i].name, name) == 0) return &oracles[i];
    return NULL;
}

/* ---- Rows ----------------------------------------------------------------- */

static size_t row_named(const char *name)
{
    int row = eider_activation_find(name);
    if (row < 0) fail_msg("there is no activation %s", name);
    return (size_t)row;
}

/* A graph that calls row `i` with every parameter an input and every result an output. */
static struct eider_graph *graph_of(size_t i)
{
    eider_allocator heap = eider_memory_default((eider_allocator){0});
    const struct eider_activation *row = eider_activation_row(i);
    struct eider_graph *g = NULL, *expanded = NULL;
    struct eider_activation_item item;
    char text[512];
    int n = snprintf(text, sizeof text, "in ");
    for (int k = 0; eider_activation_item(row->params, k, &item); k++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%.*s", k ? ", " : "", (int)item.length,
                      item.name);
    n += snprintf(text + n, sizeof text - (size_t)n, "; %s = %s(", row->results, row->name);
    for (int k = 0; eider_activation_item(row->params, k, &item); k++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%.*s", k ? ", " : "", (int)item.length,
                      item.name);
    snprintf(text + n, sizeof text - (size_t)n, ")");
    if (eider_parse(&heap, text, &g) != EIDER_OK) fail_msg("%s: %s", text, eider_error());
    if (eider_activation_expand(g, &expanded) != EIDER_OK) fail_msg("%s: %s", text, eider_error());
    eider_graph_destroy(g);
    return expanded;
}

/* Evaluates with tensors x and y (if it has that many), dout = 1 in gradients, and then the
 * defaults, or 1 for what has none. */
static void evaluate(const struct eider_graph *g, size_t i, double x, double y, double dout,
                     double *out)
{
    const struct eider_activation *row = eider_activation_row(i);
    struct eider_activation_item item;
    double in[EIDER_CALL_ARGS_MAX];
    for (int k = 0; eider_activation_item(row->params, k, &item); k++) {
        int is_dout = item.length == 4 && memcmp(item.name, "dout", 4) == 0;
        in[k] = k == 0 ? x : is_dout ? dout : k == 1 ? y : item.has_default ? item.value : 1;
        if (k == 1 && item.has_default) in[k] = item.value;
    }
    assert_int_equal(eider_eval(g, in, out), EIDER_OK);
}

/* The same for an oracle: a and b are the parameters after the tensors. */
static real consult(const struct oracle *oracle, size_t i, real x, real y)
{
    const struct eider_activation *row = eider_activation_row(i);
    struct eider_activation_item item;
    real rest[2] = {1, 1};
    int first = strcmp(row->name, "clamp") == 0 ? 2 : row->n_tensors;
    for (int k = 0; k < 2; k++)
        if (eider_activation_item(row->params, first + k, &item) && item.has_default)
            rest[k] = item.value == 1.702 ? 1.702L : (real)item.value;
    return oracle->at(x, y, rest[0], rest[1]);
}

static const double ordinary[] = {-30,  -12.5, -6,  -5, -3.5, -2.75, -1.28, -1, -0.75, -0.25, -1e-3,
                                  1e-3, 0.3,   0.5, 1,  1.5,  2.5,   3.5,   6,  11,    40};
#define N_ORDINARY (sizeof ordinary / sizeof *ordinary)

static int is_near(double got, real want, double relative, double absolute)
{
    return fabsl((real)got - want) <= (real)relative * fabsl(want) + (real)absolute;
}

/* ---- Tests ---------------------------------------------------------------- */

static void forward_rows_agree_with_their_oracles(void **state)
{
    (void)state;
    const struct eider_activation *row;
    for (size_t i = 0; (row = eider_activation_row(i)); i++) {
        if (row->n_tensors == 0) continue;
        const struct oracle *oracle = find_oracle(row->name);
        if (!oracle) fail_msg("oracles.def has no row %s", row->name);
        struct eider_graph *g = graph_of(i);
        for (size_t k = 0; k < N_ORDINARY; k++) {
            double out, x = ordinary[k], y = ordinary[(k * 5 + 3) % N_ORDINARY];
            evaluate(g, i, x, y, 1, &out);
            real want = consult(oracle, i, x, y);
            /* The textbook gelu loses its tail in 1 + tanh even in long double. */
            if (!is_near(out, want, 1e-13, 1e-17))
                fail_msg("%s(%g, %g) is %.17g, not %.17Lg", row->name, x, y, out, want);
        }
        eider_graph_destroy(g);
    }
}

/* Central difference in long double; kinks of the rows lie at integers, which are skipped. */
static real slope(const struct oracle *oracle, size_t i, real x, real y, int by_y)
{
    real h = 0x1p-14L;
    real up = consult(oracle, i, by_y ? x : x + h, by_y ? y + h : y);
    real down = consult(oracle, i, by_y ? x : x - h, by_y ? y - h : y);
    real up2 = consult(oracle, i, by_y ? x : x + 2 * h, by_y ? y + 2 * h : y);
    real down2 = consult(oracle, i, by_y ? x : x - 2 * h, by_y ? y - 2 * h : y);
    return (8 * (up - down) - (up2 - down2)) / (12 * h);
}

static void gradient_rows_agree_with_the_slope_of_the_oracles(void **state)
{
    (void)state;
    const struct eider_activation *row;
    for (size_t i = 0; (row = eider_activation_row(i)); i++) {
        if (!row->backward[0]) continue;
        const struct oracle *oracle = find_oracle(row->name);
        size_t back = row_named(row->backward);
        struct eider_graph *g = graph_of(back);
        for (size_t k = 0; k < N_ORDINARY; k++) {
            double out[3], x = ordinary[k], y = ordinary[(k * 5 + 3) % N_ORDINARY], dout = 3;
            if (x == floor(x) || y == floor(y)) x += 1.0 / 64, y += 1.0 / 64;
            evaluate(g, back, x, y, dout, out);
            for (int t = 0; t < row->n_tensors; t++) {
                real want = (real)dout * slope(oracle, i, x, y, t);
                if (!is_near(out[t], want, 1e-11, 1e-11))
                    fail_msg("result %d of %s(%g, %g) is %.17g, not %.17Lg", t, row->backward, x, y,
                             out[t], want);
            }
            real value = consult(oracle, i, x, y);
            if (!is_near(out[row->n_tensors], value, 1e-13, 1e-17))
                fail_msg("%s(%g, %g) recomputes %.17g, not %.17Lg", row->backward, x, y,
                         out[row->n_tensors], value);
        }
        eider_graph_destroy(g);
    }
}

static const double extremes[] = {
    0,    -0.0,  0x1p-149, -0x1p-149, 1e-30,          -1e-30,         88, -88, 104, -104, 1e4, -1e4,
    1e30, -1e30, 1e38,     -1e38,     0x1.fffffep127, -0x1.fffffep127};
#define N_EXTREMES (sizeof extremes / sizeof *extremes)

static void extreme_operands_give_no_nan(void **state)
{
    (void)state;
    for (size_t i = 0; eider_activation_row(i); i++) {
        struct eider_graph *g = graph_of(i);
        int n = eider_activation_n_results(i);
        for (size_t k = 0; k < N_EXTREMES * N_EXTREMES; k++) {
            double out[3], x = extremes[k / N_EXTREMES], y = extremes[k % N_EXTREMES];
            evaluate(g, i, x, y, y, out);
            for (int r = 0; r < n; r++)
                if (isnan(out[r]))
                    fail_msg("result %d of %s(%g, %g) is NaN", r, eider_activation_row(i)->name, x,
                             y);
        }
        for (int negative = 0; negative < 2; negative++) {
            double out[3], x = negative ? -INFINITY : INFINITY;
            evaluate(g, i, x, 2, 1, out);
            for (int r = 0; r < n; r++)
                if (isnan(out[r]))
                    fail_msg("result %d of %s(%g) is NaN", r, eider_activation_row(i)->name, x);
        }
        eider_graph_destroy(g);
    }
}

static void a_nan_gate_makes_every_result_nan(void **state)
{
    (void)state;
    for (size_t i = 0; eider_activation_row(i); i++) {
        struct eider_graph *g = graph_of(i);
        double out[3];
        evaluate(g, i, NAN, 2, 1, out);
        for (int r = 0; r < eider_activation_n_results(i); r++)
            if (!isnan(out[r]))
                fail_msg("result %d of %s(nan) is %g", r, eider_activation_row(i)->name, out[r]);
        eider_graph_destroy(g);
    }
}

/* params of the gradient: the tensors, dout, the rest; its results: gradients, then out. */
static void gradient_rows_have_the_promised_signature(void **state)
{
    (void)state;
    const struct eider_activation *row;
    for (size_t i = 0; (row = eider_activation_row(i)); i++) {
        if (!row->backward[0]) continue;
        const struct eider_activation *back = eider_activation_row(row_named(row->backward));
        struct eider_activation_item a, b;
        for (int k = 0; eider_activation_item(back->params, k, &b); k++) {
            int n = row->n_tensors;
            if (k == n) {
                assert_memory_equal(b.name, "dout", 4);
                continue;
            }
            assert_true(eider_activation_item(row->params, k < n ? k : k - 1, &a));
            assert_int_equal(a.length, b.length);
            assert_memory_equal(a.name, b.name, a.length);
            assert_int_equal(a.has_default, b.has_default);
            assert_true(a.value == b.value);
        }
        int n = eider_activation_n_results(row_named(back->name));
        assert_int_equal(n, row->n_tensors + 1);
        for (int k = 0; k < n; k++) {
            eider_activation_item(back->results, k, &b);
            eider_activation_item(row->params, k, &a);
            if (k == n - 1)
                assert_memory_equal(b.name, "out", 3);
            else
                assert_true(b.length == a.length + 1 && b.name[0] == 'd' &&
                            memcmp(b.name + 1, a.name, a.length) == 0);
        }
        assert_int_equal(eider_activation_n_params(i) + 1,
                         eider_activation_n_params(row_named(back->name)));
    }
}

static void limits_of_swiglu_oai_are_inclusive(void **state)
{
    (void)state;
    size_t row = row_named("dswiglu_oai");
    struct eider_graph *g = graph_of(row);
    static const struct {
        double x, y;
        int dx, dy;
    } cases[] = {{7, 7, 1, 1},    {7, -7, 1, 1}, {7.5, 7, 0, 1}, {7, 7.5, 1, 0},
                 {7, -7.5, 1, 0}, {-9, 1, 1, 1}, {8, 8, 0, 0}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        double in[] = {cases[k].x, cases[k].y, 1, 1.702, 7}, out[3];
        assert_int_equal(eider_eval(g, in, out), EIDER_OK);
        assert_int_equal(out[0] != 0, cases[k].dx);
        assert_int_equal(out[1] != 0, cases[k].dy);
    }
    eider_graph_destroy(g);
}

static void aliases_and_signatures_are_found(void **state)
{
    (void)state;
    assert_int_equal(eider_activation_find("gelu_tanh_approx"), eider_activation_find("gelu_tanh"));
    assert_int_equal(eider_activation_find("gelu"), eider_activation_find("gelu_erf"));
    assert_int_equal(eider_activation_find("swish"), eider_activation_find("silu"));
    assert_int_equal(eider_activation_find("swoosh"), -1);
    assert_null(eider_activation_row(1000));
    assert_string_equal(eider_activation_signature(row_named("dswiglu_oai")),
                        "dx, dy, out = dswiglu_oai(x, y, dout, alpha=1.702, limit=inf)");
    size_t oai = row_named("swiglu_oai");
    assert_int_equal(eider_activation_n_params(oai), 4);
    assert_int_equal(eider_activation_n_required(oai), 2);
    assert_int_equal(eider_activation_n_results(oai), 1);
    for (size_t i = 0; eider_activation_row(i); i++)
        assert_int_equal(eider_activation_find(eider_activation_row(i)->name), (int)i);
    for (size_t i = 0; eider_activation_alias(i); i++)
        assert_true(eider_activation_find(eider_activation_alias(i)) >= 0);
}

static void calls_check_their_arguments(void **state)
{
    (void)state;
    eider_allocator heap = eider_memory_default((eider_allocator){0});
    struct eider_graph *g;
    assert_int_equal(eider_graph_create(&heap, &g), EIDER_OK);
    eider_node x = eider_graph_input(g, "x", -1), args[3] = {x, x, x};
    assert_int_equal(g->cells[eider_activation_call(g, row_named("tanh"), args, 1)].op,
                     EIDER_OP_tanh);
    eider_node call = eider_activation_call(g, row_named("elu"), args, 1);
    assert_int_equal(g->cells[call].n_args, 2);
    assert_true(eider_cell_number(&g->cells[eider_graph_args(g, call)[1]]) == 1);
    assert_int_equal(eider_activation_call(g, row_named("swiglu"), args, 3), 0);
    assert_int_equal(g->status, EIDER_BAD_ARG);
    assert_string_equal(eider_error(), "arguments given to out = swiglu(x, y): 3");
    eider_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_rows_agree_with_their_oracles),
        cmocka_unit_test(gradient_rows_agree_with_the_slope_of_the_oracles),
        cmocka_unit_test(extreme_operands_give_no_nan),
        cmocka_unit_test(a_nan_gate_makes_every_result_nan),
        cmocka_unit_test(gradient_rows_have_the_promised_signature),
        cmocka_unit_test(limits_of_swiglu_oai_are_inclusive),
        cmocka_unit_test(aliases_and_signatures_are_found),
        cmocka_unit_test(calls_check_their_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
