/* test_range.c -- what is known of a node's values, and the short forms that follow from it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "parse.h"
#include "passes.h"
#include "range.h"

#define INF ((double)INFINITY)

static struct eider_graph *parsed(const char *text)
{
    eider_allocator a = eider_memory_default((eider_allocator){0});
    struct eider_graph *g = NULL;
    if (eider_parse(&a, text, &g) != EIDER_OK) fail_msg("%s: %s", text, eider_error());
    return g;
}

static eider_node output_of(const struct eider_graph *g)
{
    return g->operands[g->n_operands - 1].node;
}

static void ranges_hold_and_are_tight(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double low, high, slack;
    } cases[] = {
        {"out = x", -INF, INF, 0},
        {"out = abs(x)", 0, INF, 0},
        {"out = -abs(x)", -INF, 0, 0},
        {"out = abs(max(x, 3.0))", 3, INF, 0},
        {"out = abs(min(x, -3.0))", 3, INF, 0},
        {"out = x * x", 0, INF, 0},
        {"out = x * y", -INF, INF, 0},
        {"out = min(max(x, -2.0), 5.0)", -2, 5, 0},
        {"out = min(max(x, -2.0), 5.0) * min(max(y, -3.0), 1.0)", -15, 6, 0},
        {"out = 2.0 - min(max(x, -2.0), 5.0)", -3, 4, 0},
        {"out = exp(x)", 0, INF, 0},
        {"out = exp(-abs(x))", 0, 1, 1e-4},
        {"out = exp(min(x, 1.0)) + 2.0", 2, 2 + 2.718281828, 1e-4},
        {"out = sigmoid(x) + tanh(y)", -1, 2, 0},
        {"out = select(x > 0, sigmoid(x), 7.0)", 0, 7, 0},
        {"out = abs(x) - abs(y)", -INF, INF, 0},
        {"out = 0 * abs(x)", 0, 0, 0},
        {"out = sqrt(x)", -INF, INF, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct eider_graph *g = parsed(cases[i].text);
        struct eider_range r = eider_range_of(g, output_of(g));
        int is_right = r.low <= cases[i].low && r.low >= cases[i].low - cases[i].slack &&
                       r.high >= cases[i].high && r.high <= cases[i].high + cases[i].slack;
        if (!is_right)
            fail_msg("%s: [%g, %g], want [%g, %g]", cases[i].text, r.low, r.high, cases[i].low,
                     cases[i].high);
        eider_graph_destroy(g);
    }
}

static int count(const char *text, eider_math math, enum eider_op op)
{
    eider_dtype types[EIDER_OPERANDS_MAX] = {0};
    struct eider_graph *g = parsed(text), *rewritten = NULL;
    for (uint32_t i = 0; i < g->n_operands; i++) g->operands[i].type = types[i] = EIDER_F32;
    assert_int_equal(eider_mathmode(g, math, types, &rewritten), EIDER_OK);
    int n = 0;
    for (eider_node id = 1; id < rewritten->n_cells; id++) n += rewritten->cells[id].op == op;
    eider_graph_destroy(rewritten);
    eider_graph_destroy(g);
    return n;
}

static void short_forms_are_used_where_their_range_is_known(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum eider_op op;
        int in_fast, in_approx;
    } cases[] = {
        {"out = rcp(abs(x) + 2.0)", EIDER_OP_m_rcp, 0, 1}, /* fast: 1/2^127 is not 0 */
        {"out = rcp(min(abs(x), 9.0) + 2.0)", EIDER_OP_m_rcp, 1, 1},
        {"out = rcp(abs(x))", EIDER_OP_m_rcp, 0, 0},
        {"out = rcp(x + 2.0)", EIDER_OP_m_rcp, 0, 0},
        {"out = y / (exp(x) + 1.0)", EIDER_OP_m_rcp, 0, 1},
        {"out = y / (exp(x) - 1.0)", EIDER_OP_m_rcp, 0, 0},
        {"out = log1p(exp(-abs(x)))", EIDER_OP_m_log1p, 1, 0},
        {"out = log1p(sigmoid(x))", EIDER_OP_m_log1p, 1, 0},
        {"out = log1p(exp(x))", EIDER_OP_m_log1p, 0, 0},
        {"out = log1p(tanh(x))", EIDER_OP_m_log1p, 0, 0},
        {"out = sum(exp(x - max(x)))", EIDER_OP_m_ex2, 1, 1},
        {"out = sum(exp(x - min(x)))", EIDER_OP_m_ex2, 0, 1},
        {"e = exp(x - max(x)); out = e / sum(e)", EIDER_OP_m_ex2, 0, 1},
        {"e = exp(x - max(x)); out = e / sum(e)", EIDER_OP_m_rcp, 0, 1},
        {"e = exp(x - min(x)); out = e / sum(e)", EIDER_OP_m_rcp, 0, 0},
        {"e = exp(x - max(y)); out = e / sum(e)", EIDER_OP_m_rcp, 0, 0},
        {"m = max(x); e = exp(x - select(m == -inf, 0, m)); out = e / sum(e)", EIDER_OP_m_rcp, 0,
         0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int fast = count(cases[i].text, EIDER_MATH_FAST, cases[i].op);
        int approx = count(cases[i].text, EIDER_MATH_APPROX, cases[i].op);
        if (fast != cases[i].in_fast || approx != cases[i].in_approx)
            fail_msg("%s: %d in fast, %d in approx", cases[i].text, fast, approx);
    }
}

/* A loss in f32 and a gradient in bf16: the gradient's own exp is short, what the loss takes is
 * not. */
static void only_outputs_of_16_bits_take_the_short_exp(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int n_short;
    } cases[] = {
        {"in x, y; out loss: f32, grad: bf16; loss = exp(x); grad = exp(y)", 1},
        {"in x; out loss: f32, grad: bf16; e = exp(x); loss = e; grad = 2 * e", 0},
        {"in x, y; out loss: f32, grad: f32; loss = exp(x); grad = exp(y)", 0},
        {"in x, y; out loss: f16, grad: e4m3; loss = exp(x); grad = exp(y)", 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        eider_dtype types[EIDER_OPERANDS_MAX] = {0};
        struct eider_graph *g = parsed(cases[i].text), *rewritten = NULL;
        for (uint32_t k = 0; k < g->n_operands; k++) {
            types[k] = g->operands[k].type < 0 ? EIDER_F32 : (eider_dtype)g->operands[k].type;
            g->operands[k].type = (int32_t)types[k];
        }
        eider_math math = eider_math_resolve(g, types, EIDER_MATH_AUTO);
        assert_int_equal(eider_mathmode(g, math, types, &rewritten), EIDER_OK);
        int n = 0;
        for (eider_node id = 1; id < rewritten->n_cells; id++)
            n += rewritten->cells[id].op == EIDER_OP_m_ex2;
        if (n != cases[i].n_short) fail_msg("%s: %d short", cases[i].text, n);
        eider_graph_destroy(rewritten);
        eider_graph_destroy(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_hold_and_are_tight),
        cmocka_unit_test(short_forms_are_used_where_their_range_is_known),
        cmocka_unit_test(only_outputs_of_16_bits_take_the_short_exp),
    };
    return cmocka_run_group_tests_name("range", tests, NULL, NULL);
}
