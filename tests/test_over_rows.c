/* test_over_rows.c -- programs over rows: text, types, extents, values and gradients, by the
 * reference evaluation.  Kernels are in test_row.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "activations.h"
#include "extent.h"
#include "infer.h"
#include "parse.h"
#include "passes.h"
#include "template.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define ROWS_MAX 4
#define COLS_MAX 32

static eider_allocator heap(void)
{
    return eider_memory_default((eider_allocator){0});
}

static struct eider_graph *parsed(const char *text)
{
    eider_allocator a = heap();
    struct eider_graph *g = NULL, *expanded = NULL;
    if (eider_parse(&a, text, &g) != EIDER_OK) fail_msg("%s: %s", text, eider_error());
    assert_int_equal(eider_activation_expand(g, &expanded), EIDER_OK);
    eider_graph_destroy(g);
    return expanded;
}

/* ---- Data of a program ------------------------------------------------------ */

struct data {
    int64_t n_rows, n_cols;
    double values[EIDER_OPERANDS_MAX][ROWS_MAX * COLS_MAX];
    struct eider_doubles at[EIDER_OPERANDS_MAX];
};

static void shape(const struct eider_graph *g, struct data *d, int64_t n_rows, int64_t n_cols)
{
    uint8_t bits[4096];
    assert_true(g->n_cells <= sizeof bits && n_rows <= ROWS_MAX && n_cols <= COLS_MAX);
    memset(d, 0, sizeof *d);
    eider_extent_infer(g, bits);
    d->n_rows = n_rows;
    d->n_cols = n_cols;
    for (uint32_t i = 0; i < g->n_operands; i++) {
        const struct eider_graph_operand *o = &g->operands[i];
        eider_extent extent =
            o->kind == EIDER_OUTPUT ? eider_extent_of_output(g, i, bits) : o->extent;
        d->at[i] = (struct eider_doubles){d->values[i], extent == EIDER_PER_COLUMN ? 0 : COLS_MAX,
                                          extent == EIDER_PER_ROW ? 0 : 1};
        if (o->kind == EIDER_SCALAR) d->at[i].row_stride = d->at[i].col_stride = 0;
    }
}

static double at(const struct data *d, uint32_t i, int64_t row, int64_t col)
{
    return d->at[i].data[row * d->at[i].row_stride + col * d->at[i].col_stride];
}

static uint32_t operand(const struct eider_graph *g, const char *name)
{
    const struct eider_graph_operand *o = eider_graph_find(g, name);
    if (!o) fail_msg("no operand %s", name);
    return (uint32_t)(o - g->operands);
}

/* ---- One row of input x, one value of output `out` ------------------------ */

static double value_of(const char *text, const double *x, int64_t n)
{
    static struct data d;
    struct eider_graph *g = parsed(text);
    shape(g, &d, 1, n);
    if (n) memcpy(d.values[operand(g, "x")], x, (size_t)n * sizeof *x);
    if (eider_eval_rows(g, 1, n, d.at) != EIDER_OK) fail_msg("%s: %s", text, eider_error());
    double value = d.values[operand(g, "out")][0];
    eider_graph_destroy(g);
    return value;
}

static void assert_value(const char *text, const double *x, int64_t n, double want)
{
    double got = value_of(text, x, n);
    int same = isnan(want) ? isnan(got) : got == want && !signbit(got) == !signbit(want);
    if (!same) fail_msg("%s: %.17g, want %.17g", text, got, want);
}

#define VALUE(text, want, ...)                                   \
    do {                                                         \
        static const double x[] = {__VA_ARGS__};                 \
        assert_value("out = " text, x, (int64_t)COUNT(x), want); \
    } while (0)

static void reductions_have_their_values(void **state)
{
    (void)state;
    VALUE("sum(x)", 10, 1, 2, 3, 4);
    VALUE("sum(x)", 2, 1e16, 1, -1e16, 1); /* a plain sum gives 0 or 1 */
    VALUE("mean(x)", 2.5, 1, 2, 3, 4);
    VALUE("prod(x)", -24, 1, 2, -3, 4);
    VALUE("max(x)", 4, 1, 4, -3, 4);
    VALUE("amax(x)", 4, 1, 4, -3, 4);
    VALUE("min(x)", -3, 1, 4, -3, 4);
    VALUE("amin(x)", -3, 1, 4, -3, 4);
    VALUE("max(x)", 0.0, -0.0, 0.0, -0.0);
    VALUE("min(x)", -0.0, 0.0, -0.0, 0.0);
    VALUE("argmax(x)", 1, 1, 4, -3, 4);
    VALUE("argmin(x)", 0, -3, 4, -3, 4);
    VALUE("argmax(x)", 0, -INFINITY, -INFINITY);
    VALUE("logsumexp(x)", 1000 + log(2), 1000, 1000);
    VALUE("logsumexp(x)", -1000 + log(3), -1000, -1000, -1000);
    VALUE("select(any(x > 3), 1, 0)", 1, 1, 4, 2);
    VALUE("select(any(x > 5), 1, 0)", 0, 1, 4, 2);
    VALUE("select(all(x > 0), 1, 0)", 1, 1, 4, 2);
    VALUE("select(all(x > 1), 1, 0)", 0, 1, 4, 2);
    VALUE("pick(x, 2)", 7, 1, 4, 7);
    VALUE("sum(x * cols())", 18, 1, 2, 3);
    VALUE("sum(x * col())", 8, 1, 2, 3);
    VALUE("sum(0 * x + 1)", 3, 0, 0, 0);
}

static void nan_and_infinity_are_kept(void **state)
{
    (void)state;
    VALUE("sum(x)", NAN, 1, NAN, 2);
    VALUE("sum(x)", INFINITY, 1, INFINITY, 2);
    VALUE("sum(x)", NAN, -INFINITY, INFINITY);
    VALUE("max(x)", NAN, 1, NAN, 2);
    VALUE("min(x)", NAN, 1, NAN, 2);
    VALUE("max(x)", -INFINITY, -INFINITY, -INFINITY);
    VALUE("argmax(x)", 1, 5, NAN, 7, NAN);
    VALUE("argmin(x)", 1, 5, NAN, -7, NAN);
    VALUE("logsumexp(x)", -INFINITY, -INFINITY, -INFINITY);
    VALUE("logsumexp(x)", 3, -INFINITY, 3, -INFINITY);
    VALUE("logsumexp(x)", INFINITY, 1, INFINITY);
    VALUE("logsumexp(x)", NAN, 1, NAN);
    VALUE("pick(x, 3)", NAN, 1, 4, 7);
    VALUE("pick(x, -1)", NAN, 1, 4, 7);
}

static void an_empty_row_has_the_neutral_value(void **state)
{
    static const struct {
        const char *text;
        double want;
    } cases[] = {
        {"out = sum(x)", 0},
        {"out = prod(x)", 1},
        {"out = max(x)", -INFINITY},
        {"out = min(x)", INFINITY},
        {"out = mean(x)", NAN},
        {"out = logsumexp(x)", -INFINITY},
        {"out = pick(x, 0)", NAN},
        {"out = select(any(x > 0), 1, 0)", 0},
        {"out = select(all(x > 0), 1, 0)", 1},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) assert_value(cases[i].text, NULL, 0, cases[i].want);
}

/* ---- Stages, broadcasting, extents ----------------------------------------- */

static void results_broadcast_over_their_row(void **state)
{
    static struct data d;
    struct eider_graph *g = parsed("in x, w: column, s: row\n"
                                   "centred = x - mean(x)\n"
                                   "y = centred * rsqrt(mean(centred * centred)) * w + s * row()\n"
                                   "most = max(centred)\n"
                                   "dw = colsum(x * s)\n");
    (void)state;
    shape(g, &d, 2, 2);
    double *x = d.values[0], *w = d.values[1], *s = d.values[2];
    x[0] = 1, x[1] = 3, x[COLS_MAX] = 10, x[COLS_MAX + 1] = 4;
    w[0] = 5, w[1] = 7;
    s[0] = 2, s[COLS_MAX] = 100;
    assert_int_equal(eider_eval_rows(g, 2, 2, d.at), EIDER_OK);
    uint32_t y = operand(g, "y"), most = operand(g, "most"), dw = operand(g, "dw");
    assert_true(at(&d, y, 0, 0) == -5 && at(&d, y, 0, 1) == 7);
    assert_true(at(&d, y, 1, 0) == 105 && at(&d, y, 1, 1) == 93);
    assert_true(at(&d, most, 0, 0) == 1 && at(&d, most, 1, 0) == 3);
    assert_true(at(&d, dw, 0, 0) == 1002 && at(&d, dw, 0, 1) == 406);
    eider_graph_destroy(g);
}

static void extents_follow_from_the_text(void **state)
{
    static const struct {
        const char *text;
        eider_extent want;
    } cases[] = {
        {"out = x + 1", EIDER_FULL},
        {"out = sum(x)", EIDER_PER_ROW},
        {"out = x - sum(x)", EIDER_FULL},
        {"out = sqrt(mean(x * x) + 1)", EIDER_PER_ROW},
        {"in x, t: i32 row; out = logsumexp(x) - pick(x, t)", EIDER_PER_ROW},
        {"in x, t: i32; out = pick(x, t)", EIDER_FULL},
        {"out = pick(x, argmax(x))", EIDER_PER_ROW},
        {"in x, s: row; out = select(s == 0, 0, 2 * s)", EIDER_PER_ROW},
        {"in x, w: column; out = sum(x * w) * w", EIDER_FULL},
        {"out = colsum(x)", EIDER_PER_COLUMN},
        {"out = cast(colsum(x), bf16)", EIDER_PER_COLUMN},
        {"out = x * 0 + row()", EIDER_FULL},
        {"in x; out = row()", EIDER_PER_ROW},
        {"in x; out = col()", EIDER_FULL},
    };
    uint8_t bits[256];
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct eider_graph *g = parsed(cases[i].text);
        eider_extent_infer(g, bits);
        eider_extent got = eider_extent_of_output(g, operand(g, "out"), bits);
        if (got != cases[i].want) fail_msg("%s: %d", cases[i].text, (int)got);
        assert_int_equal(eider_extent_over_rows(g), i > 0);
        eider_graph_destroy(g);
    }
}

static void a_colsum_is_an_output_only(void **state)
{
    struct eider_graph *g = parsed("out = colsum(x) * 2");
    (void)state;
    assert_int_equal(eider_extent_check(g), EIDER_UNSUPPORTED);
    assert_non_null(strstr(eider_error(), "mul of a colsum"));
    eider_graph_destroy(g);
    g = parsed("a = cast(colsum(x), bf16); b = colsum(x * 2)");
    assert_int_equal(eider_extent_check(g), EIDER_OK);
    eider_graph_destroy(g);
}

/* ---- Text and types -------------------------------------------------------- */

static void text_round_trips(void **state)
{
    static const char *const texts[] = {
        "in x, w: column, target: i64 row, scale: f32 row\n"
        "t1 = max(x)\n"
        "loss = log(sum(exp(x - t1))) + t1 - pick(x, target)\n"
        "y = x * w * scale\n",
        "out = x - max(x) + min(x) * amax(x) - amin(x)\n",
        "out = select(col() == argmax(x), 1.0, mean(x)) + row() * cols()\n",
        "out = select(any(x > 1) and not all(x > 2), argmin(x), prod(x))\n",
        "a = colsum(x)\nb = logsumexp(x)\n",
        "out a: f32 full, b\na = mean(x)\nb = max(x)\n",
    };
    eider_allocator a = heap();
    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++) {
        struct eider_graph *g = NULL, *again = NULL;
        char *text = NULL;
        if (eider_parse(&a, texts[i], &g) != EIDER_OK) fail_msg("%s", eider_error());
        assert_int_equal(eider_print(g, &text), EIDER_OK);
        assert_string_equal(text, texts[i]);
        assert_int_equal(eider_parse(&a, text, &again), EIDER_OK);
        assert_int_equal(eider_graph_equal(g, again), 1);
        struct eider_hash x = eider_graph_hash(g), y = eider_graph_hash(again);
        assert_true(x.low == y.low && x.high == y.high);
        eider_mem_free(&a, text);
        eider_graph_destroy(g);
        eider_graph_destroy(again);
    }
}

static void an_extent_is_part_of_the_program(void **state)
{
    struct eider_graph *plain = parsed("in x, w; out = x * w + sum(x)");
    struct eider_graph *column = parsed("in x, w: column; out = x * w + sum(x)");
    (void)state;
    assert_int_equal(eider_graph_equal(plain, column), 0);
    assert_true(eider_graph_hash(plain).low != eider_graph_hash(column).low);
    eider_graph_destroy(plain);
    eider_graph_destroy(column);
}

/* The type of output `out`, and "" where the types do not fit. */
static const char *type_of(const char *text, eider_dtype x)
{
    static const char *const names[] = {"none", "bool", "i32", "i64", "f32", "f64"};
    eider_dtype dtypes[EIDER_OPERANDS_MAX];
    uint8_t types[256];
    struct eider_graph *g = parsed(text);
    for (uint32_t i = 0; i < g->n_operands; i++)
        dtypes[i] = g->operands[i].kind == EIDER_OUTPUT ? EIDER_F64 : x;
    eider_status status = eider_infer(g, dtypes, 0, types);
    const char *name = status == EIDER_OK ? names[types[g->operands[operand(g, "out")].node]] : "";
    eider_graph_destroy(g);
    return name;
}

static void types_follow_from_the_operands(void **state)
{
    (void)state;
    assert_string_equal(type_of("out = sum(x)", EIDER_BF16), "f32");
    assert_string_equal(type_of("out = sum(x)", EIDER_F64), "f64");
    assert_string_equal(type_of("out = sum(x)", EIDER_I64), "i64");
    assert_string_equal(type_of("out = mean(x)", EIDER_I32), "f32");
    assert_string_equal(type_of("out = max(x)", EIDER_I32), "i32");
    assert_string_equal(type_of("out = logsumexp(x)", EIDER_I32), "f32");
    assert_string_equal(type_of("out = argmax(x)", EIDER_F64), "i32");
    assert_string_equal(type_of("in x; out = row()", EIDER_F32), "i64");
    assert_string_equal(type_of("in x; out = col()", EIDER_F32), "i32");
    assert_string_equal(type_of("out = pick(x, 0)", EIDER_F64), "f64");
    assert_string_equal(type_of("out = pick(x, col() + 1) * 0.5", EIDER_F64), "f64");
    assert_string_equal(type_of("out = pick(x, 0.5)", EIDER_F32), "");
    assert_non_null(strstr(eider_error(), "the place in the row is an integer"));
    assert_string_equal(type_of("in x, t, u: i32; out = pick(x, select(u == 0, t, 0))", EIDER_F32),
                        "");
    assert_non_null(strstr(eider_error(), "and so 't' should be i32 or i64"));
    assert_string_equal(type_of("out = sum(x > 0)", EIDER_F32), "");
    assert_string_equal(type_of("out = select(any(x), 1, 0)", EIDER_F32), "");
}

/* ---- Gradients ------------------------------------------------------------- */

/* Different for every element, away from kinks. */
static double sample(uint32_t i, int64_t row, int64_t col)
{
    return 1.3 * sin(1 + 3.1 * (double)i + 1.7 * (double)row + 2.3 * (double)col) + 0.1;
}

/* What the gradients differentiate: all outputs, weighted by their cotangents. */
static double objective(const struct eider_graph *g, struct data *d, const struct data *back)
{
    double total = 0;
    uint32_t n_inputs = 0, seen = 0;
    while (g->operands[n_inputs].kind != EIDER_OUTPUT) n_inputs++;
    assert_int_equal(eider_eval_rows(g, d->n_rows, d->n_cols, d->at), EIDER_OK);
    for (uint32_t i = n_inputs; i < g->n_operands; i++, seen++) {
        int64_t n_rows = d->at[i].row_stride ? d->n_rows : 1;
        int64_t n_cols = d->at[i].col_stride ? d->n_cols : 1;
        for (int64_t r = 0; r < n_rows; r++)
            for (int64_t c = 0; c < n_cols; c++)
                total += at(d, i, r, c) * at(back, n_inputs + seen, r, c);
    }
    return total;
}

static void fill(const struct eider_graph *g, struct data *d)
{
    for (uint32_t i = 0; i < g->n_operands && g->operands[i].kind != EIDER_OUTPUT; i++)
        for (int64_t r = 0; r < d->n_rows; r++)
            for (int64_t c = 0; c < d->n_cols; c++) {
                double v = sample(i, r, c);
                if (g->operands[i].type == EIDER_I32) v = (double)((r * 2 + c) % d->n_cols);
                d->at[i].data[r * d->at[i].row_stride + c * d->at[i].col_stride] = v;
            }
}

static void assert_gradient(const char *text)
{
    static struct data d, b;
    struct eider_graph *g = parsed(text), *back = NULL;
    if (eider_grad(g, NULL, 0, 0, &back) != EIDER_OK) fail_msg("%s: %s", text, eider_error());
    assert_int_equal(eider_extent_check(back), EIDER_OK);
    shape(g, &d, 3, 5);
    shape(back, &b, 3, 5);
    fill(g, &d);
    fill(back, &b);
    assert_int_equal(eider_eval_rows(back, 3, 5, b.at), EIDER_OK);
    for (uint32_t i = 0; g->operands[i].kind != EIDER_OUTPUT; i++) {
        char name[EIDER_NAME_BYTES + 1];
        snprintf(name, sizeof name, "d%s", g->operands[i].name);
        const struct eider_graph_operand *found = eider_graph_find(back, name);
        if (!found) continue;
        uint32_t k = (uint32_t)(found - back->operands);
        if (d.at[i].row_stride != b.at[k].row_stride || d.at[i].col_stride != b.at[k].col_stride)
            fail_msg("%s: %s has another extent than its input", text, name);
        int64_t n_rows = d.at[i].row_stride ? 3 : 1, n_cols = d.at[i].col_stride ? 5 : 1;
        for (int64_t r = 0; r < n_rows; r++)
            for (int64_t c = 0; c < n_cols; c++) {
                double *v = &d.at[i].data[r * d.at[i].row_stride + c * d.at[i].col_stride];
                double was = *v, h = 1e-5, got = at(&b, k, r, c);
                *v = was + h;
                double up = objective(g, &d, &b);
                *v = was - h;
                double want = (up - objective(g, &d, &b)) / (2 * h);
                *v = was;
                if (!(fabs(got - want) <= 1e-7 * (1 + fabs(want))))
                    fail_msg("%s: %s[%lld, %lld] is %.12g, the slope %.12g", text, name,
                             (long long)r, (long long)c, got, want);
            }
    }
    eider_graph_destroy(g);
    eider_graph_destroy(back);
}

static void gradients_are_the_slopes(void **state)
{
    static const char *const texts[] = {
        "out = sum(x)",
        "out = sum(x * y)",
        "out = x * sum(x)",
        "out = mean(x * x)",
        "out = prod(x)",
        "out = max(x) * 2",
        "out = min(x) + x",
        "out = amax(x * y)",
        "out = amin(x)",
        "out = logsumexp(x)",
        "out = exp(x - logsumexp(x))",
        "m = max(x); e = exp(x - m); out = e / sum(e)",
        "in x, t: i32 row; out = logsumexp(x) - pick(x, t)",
        "in x, t: i32 row; out = pick(x * x, t) * x",
        "in x, w: column; out = x * rsqrt(mean(x * x) + 0.01) * w",
        "in x, w: column, b: column; c = x - mean(x); out = c * rsqrt(mean(c * c)) * w + b",
        "in x, s: row; out = x * s + s * s",
        "in x, s: row; out = sum(x * s)",
        "in x, w: column; out = sum(x * w)",
        "in x, w: column, s: row; out = colsum(x * w * s)",
        "a = x * sum(y); b = sum(x) * y; c = sum(x * y)",
        "out = select(any(x > 0.5), x, 2 * x) * cols() + row() * col()",
        "out = sum(x) * argmax(x)",
        "out = silu(x) * sigmoid(sum(x))",
        "out = x / amax(abs(x))",
        "in x, s: row; out = sum(s) * x",
        "in x, s: row; out = sum(x + s)",
        "in x, s: row; out = mean(s) * max(s) * amax(s) + logsumexp(s) + prod(x)",
        "in x, w: column; out = x * w + w * w",
        "in x, w: column; a = colsum(w); b = colsum(x)",
        "in x, s: row; a = colsum(s * s); b = colsum(mean(x) * s + max(x)); c = colsum(x)",
        "in x, w: column; v = 2 * w + 1; out = sum(x * v) * v",
        "in x, s: row, w: column; out = s * w",
        "out a: full; a = mean(x) * 2",
        /* Places that differ within the row. */
        "out = pick(x, cols() - 1 - col()) * y",
        "out = select(col() > 0, pick(x * x, col() - 1), 0) * y",
        "out = pick(x * x, min(col() + 2, cols() - 1))",
        "out = pick(x, max(col() - 1, 0)) - x",
        "in x, k: i32 row; out = pick(x, min(max(col() - k, 0), cols() - 1)) * x",
        "out = pick(x, select(col() < 2, col() + 3, col() - 2)) * y",
        "out = pick(x, col() + select(col() < 2, 3, -2)) * y",
        "out = pick(x * y, select(x > 0.2, col(), 0))",
        "in s: row, x; out = pick(s * s, cols() - 1 - col()) * x",
        "in w: column, x; out = pick(w * w, cols() - 1 - col()) * x",
        "out = sum(pick(x, cols() - 1 - col()) * x)",
        "out = sum(pick(x, cols() - 1 - col()))",
        "out = sum(pick(x * x, col() - col() + 3))",
        "out = pick(pick(x, max(col() - 1, 0)) * x, min(col() + 1, cols() - 1))",
        "out = exp(pick(x, -(col() - 4))) * sum(x)",
    };
    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++) assert_gradient(texts[i]);
}

/* The gradient of `out` by x for a cotangent of 1. */
static void slopes_of(const char *text, const double *x, int64_t n, double *out)
{
    static struct data d;
    struct eider_graph *g = parsed(text), *back = NULL;
    if (eider_grad(g, NULL, 0, 0, &back) != EIDER_OK) fail_msg("%s: %s", text, eider_error());
    shape(back, &d, 1, n);
    memcpy(d.values[0], x, (size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) d.values[1][i] = 1;
    assert_int_equal(eider_eval_rows(back, 1, n, d.at), EIDER_OK);
    memcpy(out, d.values[operand(back, "dx")], (size_t)n * sizeof *out);
    eider_graph_destroy(g);
    eider_graph_destroy(back);
}

static void assert_slopes(const char *text, const double *x, const double *want, int64_t n)
{
    double got[COLS_MAX];
    slopes_of(text, x, n, got);
    for (int64_t i = 0; i < n; i++)
        if (!(got[i] == want[i])) fail_msg("%s: dx[%d] is %.17g", text, (int)i, got[i]);
}

static void ties_have_the_documented_slopes(void **state)
{
    static const double x[] = {1, 5, 5, 2}, first[] = {0, 1, 0, 0}, evenly[] = {0, 0.5, 0.5, 0};
    (void)state;
    assert_slopes("out = max(x)", x, first, 4);
    assert_slopes("out = amax(x)", x, evenly, 4);
    assert_slopes("out = min(-x)", x, (double[]){0, -1, 0, 0}, 4);
    assert_slopes("out = amin(-x)", x, (double[]){0, -0.5, -0.5, 0}, 4);
}

static void slopes_are_finite_where_they_exist(void **state)
{
    const double inf = INFINITY;
    (void)state;
    assert_slopes("out = prod(x)", (double[]){2, 0, 3}, (double[]){0, 6, 0}, 3);
    assert_slopes("out = prod(x)", (double[]){0, 0, 3}, (double[]){0, 0, 0}, 3);
    assert_slopes("out = logsumexp(x)", (double[]){-inf, 0, 0}, (double[]){0, 0.5, 0.5}, 3);
    assert_slopes("out = logsumexp(x)", (double[]){-inf, -inf}, (double[]){0, 0}, 2);
}

static void a_gradient_is_a_program_over_rows(void **state)
{
    struct eider_graph *g = parsed("in x, w: column; out = x * rsqrt(mean(x * x)) * w");
    struct eider_graph *back = NULL;
    eider_allocator a = heap();
    char *text = NULL;
    (void)state;
    assert_int_equal(eider_grad(g, NULL, 0, 0, &back), EIDER_OK);
    assert_int_equal(eider_print(back, &text), EIDER_OK);
    assert_string_equal(text, "in x, w: column, dout\n"
                              "t1 = rsqrt(mean(x * x))\n"
                              "t2 = w * dout\n"
                              "t3 = t1 * (t1 * (t1 * (sum(x * t2) * -0.5)))\n"
                              "t4 = select(t3 != 0.0, x * (t3 / cols()), 0.0)\n"
                              "dx = t4 + (t1 * t2 + t4)\n"
                              "dw = colsum(dout * (x * t1))\n");
    eider_mem_free(&a, text);
    eider_graph_destroy(g);
    eider_graph_destroy(back);
}

static void a_scatter_is_refused(void **state)
{
    static const struct {
        const char *text, *input, *place;
    } cases[] = {
        {"in x, i: i32; out = pick(x, i)", "'x'", "of 'i'"},
        {"in i: i32, y, x; out = y * pick(x * y, select(y > 0, col(), i + 1))", "'y'", "of 'i'"},
        {"out = pick(x, 2 * col())", "'x'", "of 'col()'"},
        {"out = pick(x, col() + col())", "'x'", "of 'col()'"},
        {"a = col() + col(); b = a + a; c = b + b; d = c + c; e = d + d; f = e + e; g = f + f\n"
         "h = g + g; i = h + h; out = pick(x, i)",
         "'x'", "of 'col()'"},
        {"in x, i: i32; a = select(i > 0, col(), 0); b = select(i > 1, a, -a)\n"
         "c = select(i > 2, b, -b); d = select(i > 3, c, -c); e = select(i > 4, d, -d)\n"
         "out = pick(x, e)",
         "'x'", "of 'i'"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct eider_graph *g = parsed(cases[i].text), *back = NULL;
        assert_int_equal(eider_grad(g, NULL, 0, 0, &back), EIDER_UNSUPPORTED);
        assert_null(back);
        if (!strstr(eider_error(), cases[i].input) || !strstr(eider_error(), cases[i].place))
            fail_msg("%s: %s", cases[i].text, eider_error());
        eider_graph_destroy(g);
    }
}

/* ---- Splitting --------------------------------------------------------------- */

/* Gives `to` what an operand of the same name has in `from`, and compares its outputs. */
static void take(const struct eider_graph *from, const struct data *d, const struct eider_graph *to,
                 struct data *e)
{
    for (uint32_t i = 0; i < to->n_operands; i++) {
        const struct eider_graph_operand *o = eider_graph_find(from, to->operands[i].name);
        if (o && to->operands[i].kind != EIDER_OUTPUT)
            memcpy(e->values[i], d->values[o - from->operands], sizeof e->values[i]);
    }
}

static void assert_outputs(const struct eider_graph *whole, const struct data *d,
                           const struct eider_graph *part, const struct data *e)
{
    for (uint32_t i = 0; i < part->n_operands; i++) {
        const struct eider_graph_operand *o = eider_graph_find(whole, part->operands[i].name);
        if (!o || part->operands[i].kind != EIDER_OUTPUT) continue;
        uint32_t k = (uint32_t)(o - whole->operands);
        assert_true(d->at[k].row_stride == e->at[i].row_stride);
        assert_true(d->at[k].col_stride == e->at[i].col_stride);
        for (int64_t r = 0; r < d->n_rows; r++)
            for (int64_t c = 0; c < d->n_cols; c++) assert_true(at(d, k, r, c) == at(e, i, r, c));
    }
}

/* Both parts together do what the whole does; the outputs of each are named. */
static void assert_split(const char *text, const char *rows_have, const char *columns_have)
{
    static struct data d, e, f;
    struct eider_graph *g = parsed(text), *parts[2];
    shape(g, &d, 3, 5);
    fill(g, &d);
    assert_int_equal(eider_eval_rows(g, 3, 5, d.at), EIDER_OK);
    if (eider_split(g, &parts[0], &parts[1]) != EIDER_OK) fail_msg("%s: %s", text, eider_error());
    const char *want[] = {rows_have, columns_have};
    for (int p = 0; p < 2; p++) {
        char names[EIDER_OPERANDS_MAX * EIDER_NAME_BYTES + 1] = "";
        for (uint32_t i = 0; parts[p] && i < parts[p]->n_operands; i++)
            if (parts[p]->operands[i].kind == EIDER_OUTPUT)
                strcat(strcat(names, " "), parts[p]->operands[i].name);
        if (strcmp(names, want[p]) != 0) fail_msg("%s: part %d has%s", text, p, names);
        if (!parts[p]) continue;
        assert_non_null(eider_template_for(parts[p]));
        struct data *own = p ? &f : &e;
        shape(parts[p], own, 3, 5);
        take(g, &d, parts[p], own);
        if (p && parts[0]) take(parts[0], &e, parts[1], &f); /* what is passed on */
        assert_int_equal(eider_eval_rows(parts[p], 3, 5, own->at), EIDER_OK);
        assert_outputs(g, &d, parts[p], own);
    }
    for (int p = 0; p < 2; p++)
        if (parts[p]) eider_graph_destroy(parts[p]);
    eider_graph_destroy(g);
}

static void sums_down_the_columns_are_split_off(void **state)
{
    (void)state;
    assert_split("in x, w: column, dy; r = rsqrt(mean(x * x)); g = dy * w\n"
                 "dx = r * (g - x * r * r * mean(g * x)); dw = colsum(dy * x * r)",
                 " dx row1", " dw");
    assert_split("in x; a = colsum(x * row()); b = cast(colsum(x * sum(x * row())), bf16)", " row1",
                 " a b");
    assert_split("in x, s: row; a = colsum(x * s)", "", " a");
    assert_split("in x, s: row; y = x * s; z = sum(x)", " y z", "");
    assert_split("in x, row1: row; a = colsum(x * row1 + max(x)); b = sum(x) + max(x)", " b row2",
                 " a");
    assert_split("in x, t: i32 row; a = colsum(select(x > mean(x), pick(x, t), 0))", " row1 row2",
                 " a");
    assert_split("in x, t: i32; a = colsum(pick(x * mean(x), t) + pick(x, 0))", " row1 row2", " a");
    assert_split("in x, w: column; out y: f32 full, a; y = mean(x)\n"
                 "a = colsum(select(any(x > 1), x, w) + argmax(x))",
                 " y row1 row2", " a");
}

/* A rounded value equals nothing: not a gradient of 0, but an error. */
static void equality_with_what_is_rounded_is_refused(void **state)
{
    static const char *const refused[] = {
        "in x, w: column, dy: row; a = colsum(select(x * w == amax(x * w), dy, 0))",
        "in x, w: column; a = colsum(select(min(x + w) != x + w, x, 0))",
        "a = colsum(select(x == mean(x), 1, 0))",
    };
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct eider_graph *g = parsed(refused[i]), *parts[2];
        assert_int_equal(eider_split(g, &parts[0], &parts[1]), EIDER_UNSUPPORTED);
        assert_non_null(strstr(eider_error(), "which is rounded"));
        assert_null(parts[0]);
        assert_null(parts[1]);
        eider_graph_destroy(g);
    }
    assert_split("a = colsum(select(x == amax(x), 1, 0))", " row1", " a");
    assert_split("a = colsum(select(col() == argmax(x * x), x, 0))", " row1", " a");
}

/* What is passed on is stored as what it is. */
static void bools_and_places_are_passed_on_as_such(void **state)
{
    struct eider_graph *g = parsed("a = colsum(select(any(x > 1), x, 0) + argmax(x) * mean(x))");
    struct eider_graph *parts[2];
    (void)state;
    assert_int_equal(eider_split(g, &parts[0], &parts[1]), EIDER_OK);
    for (int p = 0; p < 2; p++) {
        static const int32_t types[] = {EIDER_BOOL, -1};
        for (uint32_t i = 0; i < 2; i++) {
            uint32_t k = operand(parts[p], i ? "row2" : "row1");
            assert_int_equal(parts[p]->operands[k].type, types[i]);
        }
        eider_graph_destroy(parts[p]);
    }
    eider_graph_destroy(g);
}

/* Mean far above the deviation: what the corrected two passes keep, in doubles of a magnitude
 * that rounds as f32 does at 10000. */
static void a_corrected_variance_keeps_its_digits(void **state)
{
    static const char text[] = "m = mean(x); d = x - m; e = mean(d)\n"
                               "v = max(mean(d * d) - e * e, 0); o = (d - e) * rsqrt(v + 1e-5)\n"
                               "out = pick(o, 0)";
    double x[16];
    (void)state;
    for (int i = 0; i < 16; i++) x[i] = (double)(float)(10000 + i * 1e-3);
    assert_true(fabs(value_of(text, x, 16) - -1.33133335) < 1e-8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reductions_have_their_values),
        cmocka_unit_test(nan_and_infinity_are_kept),
        cmocka_unit_test(an_empty_row_has_the_neutral_value),
        cmocka_unit_test(results_broadcast_over_their_row),
        cmocka_unit_test(extents_follow_from_the_text),
        cmocka_unit_test(a_colsum_is_an_output_only),
        cmocka_unit_test(text_round_trips),
        cmocka_unit_test(an_extent_is_part_of_the_program),
        cmocka_unit_test(types_follow_from_the_operands),
        cmocka_unit_test(gradients_are_the_slopes),
        cmocka_unit_test(ties_have_the_documented_slopes),
        cmocka_unit_test(slopes_are_finite_where_they_exist),
        cmocka_unit_test(a_gradient_is_a_program_over_rows),
        cmocka_unit_test(a_scatter_is_refused),
        cmocka_unit_test(sums_down_the_columns_are_split_off),
        cmocka_unit_test(equality_with_what_is_rounded_is_refused),
        cmocka_unit_test(bools_and_places_are_passed_on_as_such),
        cmocka_unit_test(a_corrected_variance_keeps_its_digits),
    };
    return cmocka_run_group_tests_name("over rows", tests, NULL, NULL);
}
