/* test_grad.c -- gradients: against goldens, finite differences, and at the extremes.
 *
 * An activation has two gradients, that of its row and the one derived from its body; both
 * are tested here.
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

#include "activations.h"
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

static struct eider_graph *gradient(const struct eider_graph *g, int with_forward)
{
    struct eider_graph *back = NULL;
    if (eider_grad(g, NULL, 0, with_forward, &back) != EIDER_OK) fail_msg("%s", eider_error());
    return back;
}

/* The gradient of a program; `derived`: of its activations' bodies, whatever their rows say. */
static struct eider_graph *gradient_of(const char *text, int derived, int with_forward)
{
    struct eider_graph *g = parsed(text);
    if (derived) {
        struct eider_graph *expanded = NULL;
        assert_int_equal(eider_activation_expand(g, &expanded), EIDER_OK);
        eider_graph_destroy(g);
        g = expanded;
    }
    struct eider_graph *back = gradient(g, with_forward);
    eider_graph_destroy(g);
    return back;
}

static void assert_near(double got, double want, double error)
{
    if (!(fabs(got - want) <= error)) fail_msg("%.17g, want %.17g", got, want);
}

static uint32_t count(const struct eider_graph *g, eider_operand_kind kind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_operands; i++) n += g->operands[i].kind == kind;
    return n;
}

static uint32_t count_ops(const struct eider_graph *g, enum eider_op op)
{
    uint32_t n = 0;
    for (eider_node id = 1; id < g->n_cells; id++) n += g->cells[id].op == op;
    return n;
}

/* ---- Finite differences ---------------------------------------------- */

static double value_at(const struct eider_graph *g, const double *in, uint32_t k, double step)
{
    double moved[EIDER_OPERANDS_MAX], out[EIDER_OPERANDS_MAX];
    memcpy(moved, in, count(g, EIDER_INPUT) * sizeof *in);
    moved[k] += step;
    assert_int_equal(eider_eval(g, moved, out), EIDER_OK);
    return out[0];
}

/* The derivative of output 0 by input k, with an error of the order of step**4. */
static double slope(const struct eider_graph *g, const double *in, uint32_t k)
{
    double h = 1e-3 * (1 + fabs(in[k]));
    double wide = (value_at(g, in, k, h) - value_at(g, in, k, -h)) / (2 * h);
    double half = (value_at(g, in, k, h / 2) - value_at(g, in, k, -h / 2)) / h;
    return (4 * half - wide) / 3;
}

/* Whether the gradient of `text`, of one output and inputs only, is the slope at `in`. */
static void assert_slopes(const char *text, int derived, const double *in)
{
    struct eider_graph *g = parsed(text), *back = gradient_of(text, derived, 0);
    uint32_t n = count(g, EIDER_INPUT);
    double all[EIDER_OPERANDS_MAX], got[EIDER_OPERANDS_MAX];
    memcpy(all, in, n * sizeof *in);
    all[n] = 1.25;
    assert_int_equal(eider_eval(back, all, got), EIDER_OK);
    for (uint32_t k = 0; k < n; k++) {
        double want = 1.25 * slope(g, in, k);
        if (!(fabs(got[k] - want) <= 2e-8 * (1 + fabs(want))))
            fail_msg("%s at (%g, %g, %g): gradient %u is %.12g, the slope %.12g", text, in[0],
                     in[1], in[2], k, got[k], want);
    }
    eider_graph_destroy(g);
    eider_graph_destroy(back);
}

/* Away from kinks; what logarithms and powers can take comes from the first point on. */
static const double points[][4] = {
    {0.7, 1.3, 0.4, 2.1},   {1.9, 0.6, 2.2, 0.3},   {3.2, 2.7, 0.9, 1.1},
    {-0.6, 1.7, 0.8, -0.4}, {-1.8, -0.3, 1.2, 0.5}, {0.2, -2.6, -1.1, 1.6},
};

static int needs_positive(const char *name)
{
    static const char *const names[] = {"sqrt", "rsqrt", "log", "log2", "log1p", "pow"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return 1;
    return 0;
}

static void every_primitive_has_the_slope_of_its_value(void **state)
{
    (void)state;
    int tested = 0;
    for (int op = 0; op < EIDER_OP_COUNT; op++) {
        const struct eider_op_row *row = &eider_ops[op];
        int is_number = row->rule == EIDER_RULE_SAME || row->rule == EIDER_RULE_FLOAT;
        if (row->arity < 1 || !is_number || eider_ops_over_rows((enum eider_op)op)) continue;
        const char *args = row->arity == 1 ? "x" : row->arity == 2 ? "x, y" : "x, y, z";
        char text[128];
        if (eider_ops_find(row->name) != (enum eider_op)op) fail_msg("%s", row->name);
        int is_infix = strpbrk(row->text, "+-*/") != NULL;
        if (is_infix)
            snprintf(text, sizeof text, "in x, y; out = x %s y", row->text);
        else
            snprintf(text, sizeof text, "in %s; out = %s(%s)", args, row->name, args);
        size_t n = needs_positive(row->name) ? 3 : sizeof points / sizeof *points;
        for (size_t i = 0; i < n; i++) assert_slopes(text, 0, points[i]);
        tested++;
    }
    assert_int_equal(tested, 34);
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        assert_slopes("in x, y, z; out = select(x > z, x * y, y * z)", 0, points[i]);
        assert_slopes("in x, y; out = cast(x, f64) * y + x", 0, points[i]);
    }
}

static void compositions_have_the_slope_of_their_value(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "in x, y, z; out = x * sigmoid(x) * y + z",
        "in x, y; out = sigmoid(x) * tanh(y) * x",
        "in x, y; h = sigmoid(x * y); out = h * h * x + h",
        "in x, y, z; out = exp(-(x * x)) * sin(y * z) / (1.0 + y * y)",
        "in x, y; u = x * x * x; out = select(u > y, tanh(u), u * y) * x",
        "in x, y, z, w; out = max(x * y, z * w) + min(x, y) * fma(x, y, z)",
        "in x, y; out = silu(x) * gelu_tanh(y) + silu(silu(x) * y)",
        "in x, y, z; out = swiglu(x * z, y + x)",
        "in x, y; h = silu(x); out = h * h * silu(y) * h",
        "in x, y; out = mish(x) / (1.0 + softplus(y)) - elu(x, 0.7) * clamp(y, -2, 2)",
        "in x, y, z; out = swiglu_oai(x, y, z, 9.0)",
        "in x, y, z; d, e, o = dswiglu(x, y, z); out = d + e * o",
        "in x; out = x * x * x * x",
        "in x; out = x + x - x * 3.0 - (x - 2.0)",
    };
    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++)
        for (size_t i = 0; i < sizeof points / sizeof *points; i++)
            for (int derived = 0; derived < 2; derived++)
                assert_slopes(texts[t], derived, points[i]);
}

/* "out = NAME(x, y)" for row `i` if it is differentiable; all its tensors are inputs. */
static int program_of_row(size_t i, char *text, size_t size)
{
    static const char *const args[] = {"", "x", "x, y", "x, y, z"};
    const struct eider_activation *row = eider_activation_row(i);
    if (row->n_tensors == 0) return 0;
    snprintf(text, size, "in %s; out = %s(%s)", args[row->n_tensors], row->name,
             args[row->n_tensors]);
    return 1;
}

static void every_activation_has_the_slope_of_its_value(void **state)
{
    (void)state;
    int tested = 0;
    for (size_t i = 0; eider_activation_row(i); i++) {
        char text[128];
        if (!program_of_row(i, text, sizeof text)) continue;
        for (size_t p = 0; p < sizeof points / sizeof *points; p++)
            for (int derived = 0; derived < 2; derived++) assert_slopes(text, derived, points[p]);
        tested++;
    }
    assert_true(tested >= 20);
}

static void every_backward_row_gives_the_forward_value_too(void **state)
{
    (void)state;
    for (size_t i = 0; eider_activation_row(i); i++) {
        char text[128];
        if (!program_of_row(i, text, sizeof text)) continue;
        struct eider_graph *g = parsed(text), *back = gradient_of(text, 0, 1);
        uint32_t n = count(g, EIDER_INPUT);
        for (size_t p = 0; p < sizeof points / sizeof *points; p++) {
            double in[5], want, got[5];
            memcpy(in, points[p], sizeof points[p]);
            in[n] = 3;
            assert_int_equal(eider_eval(g, in, &want), EIDER_OK);
            assert_int_equal(eider_eval(back, in, got), EIDER_OK);
            if (fabs(got[n] - want) > 1e-15 * fabs(want))
                fail_msg("%s: %.17g, with its gradient %.17g", text, want, got[n]);
        }
        eider_graph_destroy(g);
        eider_graph_destroy(back);
    }
}

/* ---- Goldens --------------------------------------------------------- */

static FILE *open_goldens(const char *name)
{
    const char *folder = getenv("EIDER_TEST_DATA");
    char path[1024];
    snprintf(path, sizeof path, "%s/goldens/%s", folder ? folder : EIDER_TEST_DATA, name);
    FILE *file = fopen(path, "r");
    if (!file) fail_msg("%s cannot be read", path);
    return file;
}

/* Within 1e-11 of `want`, or of `unit` where it is the difference of larger terms; what the
 * file writes as 0 may be a little more. */
static int agrees(double got, double want, double unit)
{
    if (isnan(want)) return isnan(got);
    if (isinf(want)) return got == want;
    return fabs(got - want) <= 1e-11 * fmax(fabs(want), unit) + 0x1p-1060;
}

/* As goldens/README.md has it under Cancellation. */
static double cancellation(const char *name, double x)
{
    static const char *const names[] = {"silu",   "quick_gelu", "gelu_tanh", "gelu_erf",
                                        "swiglu", "geglu",      "swiglu_oai"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0 && x >= -2 && x <= 0) return 0.25;
    return 0;
}

static void check_golden(char *line, int derived, int *rows, int *bad)
{
    char name[32], field[6][64], text[128];
    int n = sscanf(line, "%31s %63s %63s %63s %63s %63s %63s", name, field[0], field[1], field[2],
                   field[3], field[4], field[5]);
    int gated = n == 7;
    if (strcmp(name, "name") == 0) return;
    double v[6] = {0}, got[3];
    for (int i = 0; i < (gated ? 6 : 3); i++) v[i] = strtod(field[i], NULL);
    char *limit = strstr(name, "_limit7");
    if (limit) *limit = '\0';
    snprintf(text, sizeof text, "in %s; out = %s(%s%s)", gated ? "x, y" : "x", name,
             gated ? "x, y" : "x", limit ? ", limit=7" : "");
    struct eider_graph *back = gradient_of(text, derived, 1);
    double in[3] = {v[0], gated ? v[1] : 1, v[2]};
    assert_int_equal(eider_eval(back, in, got), EIDER_OK);
    eider_graph_destroy(back);
    double unit = cancellation(name, v[0]);
    int ok = gated ? agrees(got[0], v[4], unit * fabs(v[2]) * (fabs(v[1]) + 1)) &&
                         agrees(got[1], v[5], 0) && agrees(got[2], v[3], 0)
                   : agrees(got[0], v[2], unit) && agrees(got[1], v[1], 0);
    /* At its kink, and for NaN, max(x, 0) has the slope of x; these have a convention there, or
     * are smooth. */
    if (derived && !ok && (v[0] == 0 || isnan(v[0])))
        ok = strstr("relu reglu softplus", name) != NULL;
    if (!ok && (*bad)++ < 10)
        print_error("%sderived %s: %.17g %.17g %.17g for %s", derived ? "" : "not ", text, got[0],
                    got[1], got[2], line);
    (*rows)++;
}

static void goldens_agree(void **state)
{
    (void)state;
    static const char *const files[] = {"unary.tsv", "gated.tsv"};
    for (int derived = 0; derived < 2; derived++) {
        int rows = 0, bad = 0;
        for (int i = 0; i < 2; i++) {
            char line[512];
            FILE *file = open_goldens(files[i]);
            while (fgets(line, sizeof line, file)) check_golden(line, derived, &rows, &bad);
            fclose(file);
        }
        assert_int_equal(rows, 9 * 303 + 6 * 250);
        assert_int_equal(bad, 0);
    }
}

/* ---- Extremes -------------------------------------------------------- */

static const float extremes[] = {
    0.0F, -0.0F, 1e-45F, -1e-45F, 1e-40F, -1e-40F, 1e-30F,  -1e-30F,  1.0F,     -1.0F,
    3.0F, -3.0F, 9.0F,   -9.0F,   17.0F,  -17.0F,  88.0F,   -88.0F,   1e2F,     -1e2F,
    1e4F, -1e4F, 1e19F,  -1e19F,  1e30F,  -1e30F,  FLT_MAX, -FLT_MAX, INFINITY, -INFINITY,
};
#define N_EXTREMES (sizeof extremes / sizeof *extremes)

/* In f32 every result is within this of the same program in double.  Derivatives that are
 * differences lose digits near their zeros; tails multiply the rounding of their exponents; y
 * multiplies an underflow. */
static int is_close(float got, double want, double y)
{
    if (isnan(got)) return 0;
    if (isinf(want) || fabs(want) > (double)FLT_MAX * 0.999)
        return fabs((double)got) > 0.9 * (double)FLT_MAX && !signbit(got) == !signbit(want);
    return fabs((double)got - want) <= 3e-5 * fabs(want) + 1e-37 + 200 * 0x1p-149 * fabs(y);
}

static void check_extreme(const struct eider_graph *back, const char *what, const float *in,
                          uint32_t n, int with_y)
{
    float got[4];
    double in64[4], want[4];
    for (uint32_t i = 0; i <= n; i++) in64[i] = (double)in[i];
    int is_subnormal = n > 1 && fpclassify(in[1]) == FP_SUBNORMAL; /* flushed: inf * 0 */
    for (int flush = 0; flush < 2 - is_subnormal; flush++) {
        assert_int_equal(support_eval_f32(back, flush, in, got), EIDER_OK);
        assert_int_equal(eider_eval(back, in64, want), EIDER_OK);
        for (uint32_t k = 0; k < n + 1; k++) {
            /* An infinite y times a slope of 0 has no value; its own gradient has. */
            if (!with_y && k != 1) continue;
            if (isnan(got[k]) || isnan(want[k]) || (!flush && !is_close(got[k], want[k], in64[1])))
                fail_msg("%s at (%g, %g), flush %d: result %u is %g in f32, %g in f64", what,
                         (double)in[0], n > 1 ? (double)in[1] : 0.0, flush, k, (double)got[k],
                         want[k]);
        }
    }
}

static void extremes_give_no_nan_and_lose_no_gradient(void **state)
{
    (void)state;
    static const float ys[] = {0.5F, -3.0F, 1e-40F, 1e30F, -1e4F, INFINITY};
    for (size_t i = 0; eider_activation_row(i); i++) {
        const struct eider_activation *row = eider_activation_row(i);
        char text[128], what[160];
        if (row->n_tensors > 2 || !program_of_row(i, text, sizeof text)) continue;
        uint32_t n = (uint32_t)row->n_tensors;
        for (int derived = 0; derived < 2; derived++) {
            struct eider_graph *back = gradient_of(text, derived, 1);
            snprintf(what, sizeof what, "%s%s", text, derived ? ", derived," : "");
            for (size_t e = 0; e < N_EXTREMES; e++)
                for (size_t y = 0; y < (n == 1 ? 1 : sizeof ys / sizeof *ys); y++) {
                    float in[3] = {extremes[e], n == 1 ? 1 : ys[y], 1};
                    check_extreme(back, what, in, n, n == 1 || isfinite(ys[y]));
                }
            eider_graph_destroy(back);
        }
    }
}

/* dx of one input in f32. */
static float dx_times(const char *text, float x, float dout)
{
    struct eider_graph *back = gradient_of(text, 0, 0);
    float in[2] = {x, dout}, out[2];
    assert_int_equal(support_eval_f32(back, 0, in, out), EIDER_OK);
    eider_graph_destroy(back);
    return out[0];
}

static float dx_f32(const char *text, float x)
{
    return dx_times(text, x, 1);
}

/* x * dout is beyond f32, the gradient is not. */
static void large_cotangents_do_not_overflow(void **state)
{
    (void)state;
    static const char *const silu[] = {"out = silu(x)", "out = x * sigmoid(x)",
                                       "out = x / (1.0 + exp(-x))", "out = x / (exp(-x) + 1)"};
    for (size_t i = 0; i < sizeof silu / sizeof *silu; i++) {
        assert_near((double)dx_times(silu[i], 1e30F, 1e30F), 1e30, 1e24);
        assert_near((double)dx_times(silu[i], -1e30F, 1e30F), 0, 0);
        assert_near((double)dx_times(silu[i], 1e4F, -3e38F), -3e38, 1e32);
        assert_near((double)dx_times(silu[i], 1, 1e30F), 0.9276705118714867 * 1e30, 1e24);
        assert_near((double)dx_times(silu[i], -3, 1e30F), -0.08810410601516962 * 1e30, 1e24);
        assert_true(isnan(dx_times(silu[i], NAN, 1e30F)));
        assert_true(isnan(dx_times(silu[i], 2, NAN)));
    }
}

static void logarithms_of_what_overflows_have_slopes(void **state)
{
    (void)state;
    static const char *const softplus[] = {"out = log(1 + exp(x))",
                                           "out = log(exp(x) + 1.0)",
                                           "out = log1p(exp(x))",
                                           "out = -log(sigmoid(-x))",
                                           "out = log(exp(x) + exp(0.0 * x))",
                                           "out = log2(1 + exp(x)) * 0.6931471805599453"};
    for (size_t i = 0; i < sizeof softplus / sizeof *softplus; i++) {
        assert_near((double)dx_f32(softplus[i], 1.5F), 1 / (1 + exp(-1.5)), 1e-6);
        assert_near((double)dx_f32(softplus[i], 100), 1, 1e-6);
        assert_near((double)dx_f32(softplus[i], 1e30F), 1, 1e-6);
        assert_near((double)dx_f32(softplus[i], -1e30F), 0, 0);
    }
    assert_near((double)dx_f32(softplus[2], INFINITY), 1, 0);
    assert_near((double)dx_f32(softplus[2], -INFINITY), 0, 0);
    assert_near((double)dx_f32("out = log(2 + exp(x))", 1), exp(1) / (2 + exp(1)), 1e-6);
    assert_near((double)dx_f32("out = log1p(x)", 1), 0.5, 0);
    assert_near((double)dx_f32("out = log1p(1 + 0 * x)", 1), 0, 0);
}

static void a_branch_not_taken_does_not_leak(void **state)
{
    (void)state;
    assert_near((double)dx_f32("out = select(x > 0.0, log(x), 2.0 * x)", 0), 2, 0);
    assert_near((double)dx_f32("out = select(x > 0.0, sqrt(x), 0.0)", 0), 0, 0);
    assert_near((double)dx_f32("out = select(x > 0.0, sqrt(x) * log(x) / x, 0.0)", 0), 0, 0);
    assert_near((double)dx_f32("out = select(x == 0.0, 1.0, sin(x) / x)", 0), 0, 0);
    assert_near((double)dx_f32("out = max(log(x), -5.0)", 0), 0, 0);
    assert_near((double)dx_f32("out = max(-5.0, log(x))", 0), 0, 0);
    assert_near((double)dx_f32("out = min(rcp(x), 9.0)", 0), 0, 0);
    assert_near((double)dx_f32("out = fmax(log(x), -5.0)", -1), 0, 0);
    assert_near((double)dx_f32("out = select(x > 1.0, select(x > 2.0, log(x - 2.0), x), x * x)", 2),
                1, 0);
    assert_near((double)dx_f32("out = select(x < 80.0, exp(x * x), x)", 100), 1, 0);
}

static void a_slope_that_has_vanished_stays_zero(void **state)
{
    (void)state;
    assert_near((double)dx_f32("out = exp(-x * x)", INFINITY), 0, 0);
    assert_near((double)dx_f32("out = x * exp(-x)", INFINITY), 0, 0);
    assert_near((double)dx_f32("out = tanh(x * x * x)", 1e30F), 0, 0);
    assert_near((double)dx_f32("out = x * sigmoid(x)", INFINITY), 1, 0);
    assert_near((double)dx_f32("out = silu(-x * x)", INFINITY), 0, 0);
    assert_near((double)dx_f32("out = 0.5 * x * (1.0 + tanh(0.8 * (x + 0.04 * x**3)))", -INFINITY),
                0, 0);
    assert_near((double)dx_f32("out = 0.5 * x * (1.0 + tanh(0.8 * (x + 0.04 * x**3)))", 1e30F), 1,
                0);
    assert_near((double)dx_f32("out = 0.5 * x * (1.0 + erf(x / sqrt(2.0)))", -INFINITY), 0, 0);
    assert_near((double)dx_f32("out = x / (1.0 + exp(-x))", 1e30F), 1, 0);
    assert_near((double)dx_f32("out = x / (1.0 + exp(-x))", -1e30F), 0, 0);
    assert_near((double)dx_f32("out = 1.0 / (1.0 + exp(-x))", -100), 0, 0);
    assert_near((double)dx_f32("out = rsqrt(exp(-x))", -200), 0, 0);
    assert_near((double)dx_f32("out = erf(x * x)", 1e30F), 0, 0);
    assert_near((double)dx_f32("out = exp2(-exp(x))", 1e30F), 0, 0);
    /* Not where it has not vanished. */
    assert_near((double)dx_f32("out = exp(x * x)", 1), 5.4365637, 1e-5);
    assert_true(isnan(dx_f32("out = exp(-x * x)", NAN)));
    assert_true(isnan(dx_f32("out = x * sigmoid(x)", NAN)));
}

static void primitives_at_extremes_have_their_limits(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        float x, want;
    } cases[] = {
        {"out = sqrt(x)", 0, INFINITY},
        {"out = sqrt(x)", INFINITY, 0},
        {"out = rsqrt(x)", INFINITY, 0},
        {"out = rsqrt(x)", 1e-40F, -INFINITY},
        {"out = rcp(x)", INFINITY, 0},
        {"out = rcp(x)", 1e30F, 0},
        {"out = log(x)", 0, INFINITY},
        {"out = log(x)", INFINITY, 0},
        {"out = log1p(x)", INFINITY, 0},
        {"out = log2(x)", 1e30F, 1.4426950e-30F},
        {"out = 0.0 / x", 1e-40F, 0},
        {"out = 2.0 / x", INFINITY, 0},
        {"out = pow(x, 2.0)", 0, 0},
        {"out = pow(x, 1.0)", 0, 1},
        {"out = pow(x, 0.0)", 0, 0},
        {"out = pow(x, 0.5)", INFINITY, 0},
        {"out = pow(0.0, x)", 2, 0},
        {"out = pow(0.5, x)", INFINITY, 0},
        {"out = pow(x, inf)", 0.5F, 0},
        {"out = abs(x)", 0, 0},
        {"out = abs(x)", -INFINITY, -1},
        {"out = sign(x)", 3, 0},
        {"out = floor(x)", 3.5F, 0},
        {"out = max(x, 1.0)", 1, 1},
        {"out = min(x, 1.0)", 1, 1},
        {"out = max(1.0, x)", 1, 0},
        {"out = relu(x)", 0, 0},
        {"out = expm1(x)", -INFINITY, 0},
        {"out = expm1(x)", -20, 2.0611537e-9F},
        {"out = tanh(x)", 20, 1.6993417e-17F},
        {"out = sigmoid(x)", 20, 2.0611536e-9F},
        {"out = erf(x)", 5, 1.5670866e-11F},
        {"out = normcdf(x)", INFINITY, 0},
        {"out = normcdf(x)", -6, 6.0758828e-9F},
        {"out = softplus(x)", INFINITY, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float got = dx_f32(cases[i].text, cases[i].x), want = cases[i].want;
        if (isinf(want) ? got != want : !(fabsf(got - want) <= 4e-6F * fabsf(want)))
            fail_msg("%s at %g: %g, want %g", cases[i].text, (double)cases[i].x, (double)got,
                     (double)want);
    }
}

/* ---- Operands and names ---------------------------------------------- */

static void assert_operands(const struct eider_graph *g, const char *want)
{
    static const char *const kinds[] = {"in", "scalar", "out"};
    char have[1024] = "";
    for (uint32_t i = 0; i < g->n_operands; i++) {
        size_t used = strlen(have);
        const char *type =
            g->operands[i].type < 0 ? "" : eider_dtype_name((eider_dtype)g->operands[i].type);
        snprintf(have + used, sizeof have - used, "%s%s %s%s%s", i ? ", " : "",
                 kinds[g->operands[i].kind], g->operands[i].name, *type ? ":" : "", type);
    }
    assert_string_equal(have, want);
}

static void operands_are_inputs_scalars_cotangents_then_gradients(void **state)
{
    (void)state;
    struct eider_graph *g = parsed("in x: bf16, k: i32\nscalar a\nin y\nout p: f16, q\n"
                                   "p = x * y * a\nq = y + k");
    struct eider_graph *back = gradient(g, 1);
    assert_operands(back, "in x:bf16, in k:i32, scalar a, in y, in dp:f16, in dq, out dx:bf16, "
                          "out dy, out p:f16, out q");
    eider_graph_destroy(back);
    const char *const wrt[] = {"y", "x"};
    assert_int_equal(eider_grad(g, wrt, 2, 0, &back), EIDER_OK);
    assert_operands(back, "in x:bf16, in k:i32, scalar a, in y, in dp:f16, in dq, out dy, "
                          "out dx:bf16");
    double in[] = {2, 0, 5, 3, 0.5, 0.25}, out[2];
    assert_int_equal(eider_eval(back, in, out), EIDER_OK);
    assert_near(out[0], 0.5 * 2 * 5 + 0.25, 0);
    assert_near(out[1], 0.5 * 3 * 5, 0);
    eider_graph_destroy(back);
    eider_graph_destroy(g);
}

static void what_no_output_depends_on_has_gradient_zero(void **state)
{
    (void)state;
    struct eider_graph *g = parsed("in x, y; out = floor(x) + cast(y, i32) + sign(x) * (x > y)");
    struct eider_graph *back = gradient(g, 0);
    double in[] = {1.5, 2.5, 7}, out[2];
    assert_int_equal(eider_eval(back, in, out), EIDER_OK);
    assert_near(out[0], 0, 0);
    assert_near(out[1], 0, 0);
    eider_graph_destroy(back);
    eider_graph_destroy(g);
}

static void assert_refused(const char *text, const char *wrt, int with_forward, const char *message)
{
    struct eider_graph *g = parsed(text), *back = NULL;
    const char *names[2] = {wrt, NULL};
    const char *comma = wrt ? strchr(wrt, '+') : NULL;
    char first[32];
    if (comma) {
        snprintf(first, sizeof first, "%.*s", (int)(comma - wrt), wrt);
        names[0] = first;
        names[1] = comma + 1;
    }
    size_t n = wrt ? (comma ? 2 : *wrt ? 1 : 0) : 0;
    assert_int_equal(eider_grad(g, wrt ? names : NULL, n, with_forward, &back), EIDER_BAD_ARG);
    assert_string_equal(eider_error(), message);
    assert_null(back);
    eider_graph_destroy(g);
}

static void impossible_requests_are_refused(void **state)
{
    (void)state;
    assert_refused("out = x * y", "z", 0, "the program has no input 'z' to differentiate by");
    assert_refused("scalar a; out = x * a", "a", 0,
                   "'a' is a scalar: gradients are those of inputs");
    assert_refused("out = x * y", "out", 0, "'out' is an output: gradients are those of inputs");
    assert_refused("in k: i32; out = x * k", "k", 0,
                   "the input 'k' is of type i32, which has no gradient");
    assert_refused("out = x * y", "x+x", 0, "the gradient of 'x' is asked for twice");
    assert_refused("out = x * y", "", 0, "no input is named to differentiate by");
    assert_refused("in k: i32; out = k * 2", NULL, 0,
                   "the program has no floating-point input to differentiate by");
}

static void clashing_names_are_refused(void **state)
{
    (void)state;
    assert_refused("out = x * dout", NULL, 0,
                   "the cotangent of 'out' needs the name 'dout', which an input has: rename one");
    assert_refused("scalar dx; out = x * dx", NULL, 0,
                   "the gradient of 'x' needs the name 'dx', which a scalar has: rename one");
    assert_refused("dx = x * x", NULL, 1,
                   "the forward output 'dx' and a gradient have the same name: rename one");
    assert_refused("o = x * x; do = x", NULL, 1,
                   "the forward output 'do' and a cotangent have the same name: rename one");
    /* No clash where the forward value is not asked for. */
    struct eider_graph *back = gradient_of("dx = x * x", 0, 0);
    assert_operands(back, "in x, in ddx, out dx");
    eider_graph_destroy(back);
}

/* ---- Shape of the result --------------------------------------------- */

static void a_row_of_gradients_is_used_for_the_forward_value_too(void **state)
{
    (void)state;
    struct eider_graph *back = gradient_of("out = swiglu(x, y)", 0, 1);
    assert_int_equal(count_ops(back, EIDER_OP_call), 1);
    assert_int_equal(count_ops(back, EIDER_OP_result), 2);
    eider_graph_destroy(back);
    /* silu(x) is needed by the gradient of y: it cannot wait for that of x. */
    struct eider_graph *expanded;
    back = gradient_of("out = silu(x) * y", 0, 1);
    assert_int_equal(eider_activation_expand(back, &expanded), EIDER_OK);
    assert_int_equal(count_ops(expanded, EIDER_OP_sigmoid), 2); /* of x and -x, once each */
    eider_graph_destroy(expanded);
    eider_graph_destroy(back);
}

static void a_tensor_for_a_parameter_is_differentiated_through_the_body(void **state)
{
    (void)state;
    struct eider_graph *back = gradient_of("in x, a; out = elu(x, a)", 0, 0);
    double in[] = {-1, 2, 1}, out[2];
    assert_int_equal(count_ops(back, EIDER_OP_call), 0);
    assert_int_equal(eider_eval(back, in, out), EIDER_OK);
    assert_near(out[0], 2 * exp(-1), 1e-15);
    assert_near(out[1], expm1(-1), 1e-15);
    eider_graph_destroy(back);
}

static void the_gradient_of_a_gradient_works(void **state)
{
    (void)state;
    struct eider_graph *first = gradient_of("out = silu(x)", 0, 0), *second = NULL;
    const char *const wrt[] = {"x"};
    assert_int_equal(eider_grad(first, wrt, 1, 0, &second), EIDER_OK);
    assert_operands(second, "in x, in dout, in ddx, out dx");
    double in[] = {0.75, 1, 1}, out;
    assert_int_equal(eider_eval(second, in, &out), EIDER_OK);
    assert_near(out, slope(first, in, 0), 1e-9);
    eider_graph_destroy(first);
    eider_graph_destroy(second);
}

/* ---- Memory ---------------------------------------------------------- */

struct failing {
    int left;
};

static void *resize_failing(void *user, void *ptr, size_t old_size, size_t new_size)
{
    struct failing *f = user;
    (void)old_size;
    if (new_size == 0) {
        free(ptr);
        return NULL;
    }
    return f->left-- <= 0 ? NULL : realloc(ptr, new_size);
}

/* How many allocations the gradient of `text` makes, each of which fails once. */
static int failures(const char *text)
{
    for (int n = 0;; n++) {
        struct failing f = {1 << 30};
        eider_allocator a = {resize_failing, &f};
        struct eider_graph *g = NULL, *back = NULL;
        assert_int_equal(eider_parse(&a, text, &g), EIDER_OK);
        f.left = n;
        eider_status status = eider_grad(g, NULL, 0, 1, &back);
        f.left = 1 << 30;
        eider_graph_destroy(back);
        eider_graph_destroy(g);
        if (status == EIDER_OK) return n;
        assert_int_equal(status, EIDER_OOM);
        assert_true(n < 10000);
    }
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    assert_true(failures("out = swiglu(x, y) + mish(x) * elu(y)") > 20);
    assert_true(failures("y = pick(x, select(x > 0, cols() - 1 - col(), 0)) * w\n"
                         "out = pick(y * x, min(col() + 1, cols() - 1)) + pick(y, max(col(), 3))") >
                20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_primitive_has_the_slope_of_its_value),
        cmocka_unit_test(compositions_have_the_slope_of_their_value),
        cmocka_unit_test(every_activation_has_the_slope_of_its_value),
        cmocka_unit_test(every_backward_row_gives_the_forward_value_too),
        cmocka_unit_test(goldens_agree),
        cmocka_unit_test(extremes_give_no_nan_and_lose_no_gradient),
        cmocka_unit_test(large_cotangents_do_not_overflow),
        cmocka_unit_test(logarithms_of_what_overflows_have_slopes),
        cmocka_unit_test(a_branch_not_taken_does_not_leak),
        cmocka_unit_test(a_slope_that_has_vanished_stays_zero),
        cmocka_unit_test(primitives_at_extremes_have_their_limits),
        cmocka_unit_test(operands_are_inputs_scalars_cotangents_then_gradients),
        cmocka_unit_test(what_no_output_depends_on_has_gradient_zero),
        cmocka_unit_test(impossible_requests_are_refused),
        cmocka_unit_test(clashing_names_are_refused),
        cmocka_unit_test(a_row_of_gradients_is_used_for_the_forward_value_too),
        cmocka_unit_test(a_tensor_for_a_parameter_is_differentiated_through_the_body),
        cmocka_unit_test(the_gradient_of_a_gradient_works),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
