/* test_budget.c -- what the rows cost in math=approx, and that they stay free of NaN there.
 *
 * Counted on the graph that is lowered, with the one fusion that every backend does: a product
 * that is only used by one sum becomes an fma.  The numbers are those of activations.def,
 * which are what the best hand-written kernels need.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "activations.h"
#include "ops.h"
#include "parse.h"
#include "passes.h"
#include "support_f32.h"

/* The graph that is lowered for operands of f32; `with_gradient`: of the program's gradient. */
static struct eider_graph *planned(const char *text, int with_gradient, eider_math math)
{
    eider_allocator a = eider_memory_default((eider_allocator){0});
    struct eider_graph *g[5] = {0};
    eider_dtype types[EIDER_OPERANDS_MAX] = {0};
    if (eider_parse(&a, text, &g[0]) != EIDER_OK) fail_msg("%s: %s", text, eider_error());
    if (with_gradient) {
        struct eider_graph *back = NULL;
        assert_int_equal(eider_grad(g[0], NULL, 0, 1, &back), EIDER_OK);
        eider_graph_destroy(g[0]);
        g[0] = back;
    }
    assert_int_equal(eider_activation_expand(g[0], &g[1]), EIDER_OK);
    for (uint32_t i = 0; i < g[1]->n_operands; i++) g[1]->operands[i].type = EIDER_F32;
    for (uint32_t i = 0; i < g[1]->n_operands; i++) types[i] = EIDER_F32;
    assert_int_equal(eider_simplify(g[1], &g[2]), EIDER_OK);
    assert_int_equal(eider_mathmode(g[2], math, types, &g[3]), EIDER_OK);
    assert_int_equal(eider_simplify(g[3], &g[4]), EIDER_OK);
    for (int i = 0; i < 4; i++) eider_graph_destroy(g[i]);
    return g[4];
}

struct cost {
    int special, mul, add, fma;
};

static void count_uses(const struct eider_graph *g, uint32_t *uses)
{
    for (eider_node id = 1; id < g->n_cells; id++)
        for (uint32_t k = 0; k < g->cells[id].n_args; k++) uses[eider_graph_args(g, id)[k]]++;
    for (uint32_t i = 0; i < g->n_operands; i++)
        if (g->operands[i].kind == EIDER_OUTPUT) uses[g->operands[i].node]++;
}

static struct cost cost_of(const struct eider_graph *g)
{
    struct cost c = {0};
    uint32_t uses[512] = {0};
    assert_true(g->n_cells < 512);
    count_uses(g, uses);
    for (eider_node id = 1; id < g->n_cells; id++) {
        const eider_node *args = eider_graph_args(g, id);
        switch (g->cells[id].op) {
        case EIDER_OP_add:
        case EIDER_OP_sub:
            if ((g->cells[args[0]].op == EIDER_OP_mul && uses[args[0]] == 1) ||
                (g->cells[args[1]].op == EIDER_OP_mul && uses[args[1]] == 1))
                c.fma++, c.mul--;
            else
                c.add++;
            break;
        case EIDER_OP_mul:
            c.mul++;
            break;
        case EIDER_OP_fma:
            c.fma++;
            break;
        default:
            c.special += g->cells[id].op >= EIDER_OP_m_tanh;
        }
    }
    return c;
}

static const struct {
    const char *text;
    struct cost want; /* special-function, FMUL, FADD, FFMA */
} budgets[] = {
    {"out = tanh(x)", {1, 0, 0, 0}},
    {"out = sigmoid(x)", {1, 1, 0, 1}},
    {"out = silu(x)", {1, 1, 0, 1}},
    {"out = quick_gelu(x)", {1, 2, 0, 1}},
    {"out = gelu_tanh(x)", {1, 3, 0, 2}},
    {"out = swiglu(x, y)", {1, 2, 0, 1}},
    {"out = swiglu_oai(x, y)", {1, 2, 0, 2}},
    {"out = glu(x, y)", {1, 2, 0, 1}},
    {"out = geglu(x, y)", {1, 4, 0, 2}},
    {"out = mish(x)", {2, 4, 2, 0}},
    {"dx, out = dtanh(x, d)", {1, 1, 0, 1}},
    {"dx, out = dsigmoid(x, d)", {1, 2, 0, 2}},
    {"dx, out = dsilu(x, d)", {1, 3, 0, 3}},
    {"dx, out = dquick_gelu(x, d)", {1, 3, 0, 3}},
    {"dx, out = dgelu_tanh(x, d)", {1, 5, 0, 5}},
    {"dx, dy, out = dswiglu(x, y, d)", {1, 5, 0, 3}},
    {"dx, dy, out = dswiglu_oai(x, y, d)", {1, 4, 0, 5}},
    {"dx, dy, out = dswiglu_oai(x, y, d, 1.702, 7)", {1, 4, 0, 5}},
    {"dx, dy, out = dglu(x, y, d)", {1, 4, 1, 1}},
    {"dx, dy, out = dgeglu(x, y, d)", {1, 8, 0, 5}},
};

static void assert_cost(const char *text, int with_gradient, struct cost want)
{
    struct eider_graph *g = planned(text, with_gradient, EIDER_MATH_APPROX);
    struct cost got = cost_of(g);
    if (memcmp(&got, &want, sizeof got) != 0)
        fail_msg("%s: MUFU %d FMUL %d FADD %d FFMA %d, want %d %d %d %d", text, got.special,
                 got.mul, got.add, got.fma, want.special, want.mul, want.add, want.fma);
    eider_graph_destroy(g);
}

static void rows_cost_what_hand_written_kernels_cost(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++)
        assert_cost(budgets[i].text, 0, budgets[i].want);
}

static void derived_gradients_cost_no_more_than_rows(void **state)
{
    (void)state;
    assert_cost("out = tanh(x)", 1, (struct cost){1, 1, 0, 1});
    assert_cost("out = silu(x) * y", 1, (struct cost){1, 5, 0, 3});
    assert_cost("out = gelu_tanh(x) * y", 1, (struct cost){1, 8, 0, 5});
    assert_cost("out = sigmoid(x) * y", 1, (struct cost){1, 4, 0, 2}); /* 6, as dglu */
    assert_cost("out = swiglu(x, y)", 1, (struct cost){1, 5, 0, 3});
}

/* ---- Values ---------------------------------------------------------------- */

static const float points[] = {
    0.0F,  -0.0F, 1e-45F, -1e-40F, 1e-30F, -1e-30F, 1.0F,   -1.0F,    3.0F,     -9.0F,
    17.0F, 88.0F, -88.0F, 1e4F,    -1e4F,  1e19F,   -1e19F, 1e30F,    -1e30F,   FLT_MAX,
    5.0F,  0.3F,  -0.3F,  -2.5F,   12.0F,  -17.0F,  2.0F,   -FLT_MAX, INFINITY, -INFINITY,
};

/* Neither mode makes NaN of a point where the program in double has a value, and, with
 * operations as exact as here, neither is off by more than they cancel. */
static void check_mode(const char *text, eider_math math)
{
    struct eider_graph *g = planned(text, 1, math), *reference = planned(text, 1, EIDER_MATH_EXACT);
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        float in[3] = {points[i], 0.75F, 0.75F}, got[3];
        double in64[3] = {(double)in[0], 0.75, 0.75}, want[3];
        uint32_t n = 0;
        for (uint32_t k = 0; k < g->n_operands; k++) n += g->operands[k].kind == EIDER_OUTPUT;
        assert_int_equal(support_eval_f32(g, 0, in, got), EIDER_OK);
        assert_int_equal(eider_eval(reference, in64, want), EIDER_OK);
        for (uint32_t k = 0; k < n; k++) {
            if (fabs(want[k]) > 0.9 * (double)FLT_MAX) want[k] = copysign(INFINITY, want[k]);
            if (isinf(want[k]) && (double)fabsf(got[k]) > 0.5 * (double)FLT_MAX) continue;
            if (!(fabs((double)got[k] - want[k]) <= 2e-5 * (fabs(want[k]) + 1)))
                fail_msg("%s, mode %d, at %g: result %u is %g, want %g", text, (int)math, in64[0],
                         k, (double)got[k], want[k]);
        }
    }
    eider_graph_destroy(g);
    eider_graph_destroy(reference);
}

static void no_mode_makes_nan_of_an_extreme(void **state)
{
    (void)state;
    for (size_t i = 0; eider_activation_row(i); i++) {
        const struct eider_activation *row = eider_activation_row(i);
        char text[128];
        if (row->n_tensors < 1 || row->n_tensors > 2) continue;
        snprintf(text, sizeof text, "out = %s(%s)", row->name, row->n_tensors == 2 ? "x, y" : "x");
        check_mode(text, EIDER_MATH_FAST);
        check_mode(text, EIDER_MATH_APPROX);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_cost_what_hand_written_kernels_cost),
        cmocka_unit_test(derived_gradients_cost_no_more_than_rows),
        cmocka_unit_test(no_mode_makes_nan_of_an_extreme),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
