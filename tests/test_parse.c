/* test_parse.c -- text to graph and back: meaning, messages, round trips, hostile text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "activations.h"
#include "ops.h"
#include "parse.h"
#include "passes.h"
#include "syntax.h"

static eider_allocator heap(void)
{
    return eider_memory_default((eider_allocator){0});
}

static struct eider_graph *parse(const char *text)
{
    eider_allocator a = heap();
    struct eider_graph *g = NULL;
    if (eider_parse(&a, text, &g) != EIDER_OK) fail_msg("%s: %s", text, eider_error());
    return g;
}

static void assert_value(const char *text, double want, double x, double y)
{
    struct eider_graph *g = parse(text);
    double in[EIDER_OPERANDS_MAX] = {x, y}, out[EIDER_OPERANDS_MAX];
    assert_int_equal(eider_eval(g, in, out), EIDER_OK);
    if (out[0] != want && !(isnan(out[0]) && isnan(want)))
        fail_msg("%s: %.17g, not %.17g", text, out[0], want);
    eider_graph_destroy(g);
}

static void assert_rejected(const char *text, eider_status want, const char *message)
{
    eider_allocator a = heap();
    struct eider_graph *g = NULL;
    eider_status status = eider_parse(&a, text, &g);
    if (status != want || strcmp(eider_error(), message) != 0)
        fail_msg("%s\n  gives %s: %s\n  not   %s", text, eider_status_name(status), eider_error(),
                 message);
    assert_null(g);
}

static char *print(const struct eider_graph *g)
{
    char *text = NULL;
    assert_int_equal(eider_print(g, &text), EIDER_OK);
    return text;
}

static void release(char *text)
{
    eider_allocator a = heap();
    eider_mem_free(&a, text);
}

static void assert_round_trip(const struct eider_graph *g)
{
    eider_allocator a = heap();
    struct eider_graph *again = NULL;
    char *text = print(g);
    if (eider_parse(&a, text, &again) != EIDER_OK) fail_msg("%s\n%s", text, eider_error());
    char *second = print(again);
    if (!eider_graph_equal(g, again) || !eider_graph_equal(again, g))
        fail_msg("a different graph:\n%s\nand\n%s", text, second);
    struct eider_hash x = eider_graph_hash(g), y = eider_graph_hash(again);
    assert_true(x.low == y.low && x.high == y.high);
    assert_string_equal(text, second);
    eider_graph_destroy(again);
    release(text);
    release(second);
}

static void assert_printed(const char *text, const char *want)
{
    struct eider_graph *g = parse(text);
    char *got = print(g);
    assert_string_equal(got, want);
    assert_round_trip(g);
    eider_graph_destroy(g);
    release(got);
}

/* ---- Meaning -------------------------------------------------------------- */

static void operators_bind_as_in_c_and_power_as_in_mathematics(void **state)
{
    (void)state;
    assert_value("o = x + y * 2", 13, 3, 5);
    assert_value("o = (x + y) * 2", 16, 3, 5);
    assert_value("o = x - y - 1", -3, 3, 5);
    assert_value("o = x / y / 2", 0.75, 3, 2);
    assert_value("o = -x ** 2", -9, 3, 0);
    assert_value("o = -2 ** 2", -4, 0, 0);
    assert_value("o = (-2) ** 2", 4, 0, 0);
    assert_value("o = x ** y ** 2", 512, 2, 3);
    assert_value("o = x ** -y", 0.125, 2, 3);
    assert_value("o = x * -y", -6, 2, 3);
    assert_value("o = x - -y", 5, 2, 3);
    assert_value("o = --x", 2, 2, 3);
    assert_value("o = select(not x > y and x == 2, 1, 0)", 1, 2, 3);
    assert_value("o = select(x > y or x == 2 and y == 4, 1, 0)", 0, 2, 3);
    assert_value("o = where(not (x < y), x, y)", 3, 2, 3);
    assert_value("o = x + y < 6", 1, 2, 3);
    assert_value("o = true and not false", 1, 0, 0);
}

static void literals_keep_their_value(void **state)
{
    (void)state;
    assert_value("o = x * 0 + 1.5e-3", 1.5e-3, 0, 0);
    assert_value("o = 0x1.8p-3", 0x1.8p-3, 0, 0);
    assert_value("o = .5", .5, 0, 0);
    assert_value("o = 1E+2", 100, 0, 0);
    assert_value("o = -inf", -INFINITY, 0, 0);
    assert_value("o = nan", NAN, 0, 0);
    assert_value("o = 4.9406564584124654e-324", 0x1p-1074, 0, 0);
    struct eider_graph *g = parse("o = -9223372036854775808 + 9223372036854775807 + 2.0");
    int integers = 0, numbers = 0;
    for (eider_node id = 1; id < g->n_cells; id++) {
        integers += g->cells[id].op == EIDER_OP_integer;
        numbers += g->cells[id].op == EIDER_OP_number;
        assert_int_not_equal(g->cells[id].op, EIDER_OP_neg);
    }
    assert_int_equal(integers, 2);
    assert_int_equal(numbers, 1);
    eider_graph_destroy(g);
}

static void statements_are_separated_and_commented(void **state)
{
    (void)state;
    assert_value(
        "\n\n# a comment; with = signs\nt = x + 1 # more\r\n;;o = t * (2 # inside\n + y);\n", 20, 3,
        3);
    assert_value("a, _ = dsilu(x, y); o = a", 1, 0, 2);
    assert_value("d, dy, o2 = dswiglu(x, y, 1.0)\no = o2\nz = d + dy", 0, 0, 2);
}

static void keywords_reach_their_parameters(void **state)
{
    (void)state;
    assert_value("o = leaky_relu(x, slope=0.5)", -1, -2, 0);
    assert_value("o = leaky_relu(x, 0.25)", -0.5, -2, 0);
    assert_value("o = clamp(hi=1, lo=y, x=x)", -1, -2, -1);
    assert_value("o = swiglu_oai(x, y, limit=7, alpha=0)", 3.5 * 8, 9, 9);
}

static void casts_round_in_place(void **state)
{
    (void)state;
    assert_value("o = cast(x, bf16)", 1.0078125, 1.005859375, 0);
    assert_value("o = cast(x, e4m3)", 448, 1000, 0);
    assert_value("o = cast_nan(x, e4m3)", NAN, 1000, 0);
    assert_value("o = cast(x, i32)", -2, -2.75, 0);
}

static void operands_come_in_the_order_of_their_names(void **state)
{
    (void)state;
    struct eider_graph *g = parse("in up: bf16\nscalar alpha: f32, beta\nout z: e4m3\n"
                                  "t = gate * alpha\ny = t + up\nz = y * beta\nw = t");
    static const struct {
        const char *name;
        eider_operand_kind kind;
        int32_t type;
    } want[] = {{"up", EIDER_INPUT, EIDER_BF16}, {"alpha", EIDER_SCALAR, EIDER_F32},
                {"beta", EIDER_SCALAR, -1},      {"gate", EIDER_INPUT, -1},
                {"z", EIDER_OUTPUT, EIDER_E4M3}, {"w", EIDER_OUTPUT, -1}};
    assert_int_equal(g->n_operands, 6);
    for (uint32_t i = 0; i < g->n_operands; i++) {
        assert_string_equal(g->operands[i].name, want[i].name);
        assert_int_equal(g->operands[i].kind, want[i].kind);
        assert_int_equal(g->operands[i].type, want[i].type);
    }
    eider_graph_destroy(g);
}

static void words_of_declarations_are_names_elsewhere(void **state)
{
    (void)state;
    assert_value("in in; scalar scalar; out out; out = in * scalar", 6, 2, 3);
    assert_value("silu = max * max(max, 2)", 9, 3, 0);
}

/* ---- Messages ------------------------------------------------------------- */

static const struct {
    const char *text, *message;
} rejected[] = {
    {"", "1:1: found the end of the text, expected an assignment"},
    {"# nothing\n", "2:1: found the end of the text, expected an assignment"},
    {"in x", "1:5: found the end of the text, expected an assignment"},
    {"o = slu(x)", "1:5: found 'slu', expected a function; did you mean 'silu'?"},
    {"o = qwertyuiop(x)", "1:5: found 'qwertyuiop', expected a function"},
    {"o = x +\n", "1:8: found the end of the line, expected an operand"},
    {"o = (x", "1:7: found the end of the text, expected ')' or an operator"},
    {"o = x y", "1:7: found 'y', expected an operator or the end of the statement"},
    {"o = x\n  y = = 2", "2:7: found '=', expected an operand"},
    {"o = x; o = 2", "1:8: found 'o', expected a new name: this one is assigned already"},
    {"o = x; x = 2", "1:8: found 'x', expected a new name: this one is an input"},
    {"x = x + 1", "1:1: found 'x', expected a new name: its value reads it as an input"},
    {"a, b = dsilu(x, b)", "1:4: found 'b', expected a new name: its value reads it as an input"},
    {"o = sum()", "1:9: found ')', expected ',': sum takes 1 argument"},
    {"o = sum(x, y)", "1:12: found 'y', expected ')': sum takes 1 argument"},
    {"o = x * row(1)", "1:13: found '1', expected ')': row takes 0 arguments"},
    {"o = pick(x)", "1:11: found ')', expected ',': pick takes 2 arguments"},
    {"o = max()", "1:9: found ')', expected ',': max takes 2 arguments"},
    {"o = hypot(x)", "1:5: found 'hypot', expected a function"},
    {"scalar s: f32 row; o = x * s",
     "1:15: found 'row', expected ',' or the end: only inputs are declared row or column"},
    {"in w: f32 rows; o = x * w",
     "1:11: found 'rows', expected an operator or the end of the statement"},
    {"in w: col; o = x * w",
     "1:7: found 'col', expected a type such as f32, f16, bf16, f64, e4m3, e5m2, i32, i64 or "
     "bool"},
    {"o = exp(x, y)", "1:12: found 'y', expected ')': exp takes 1 argument"},
    {"o = exp(x,)", "1:11: found ')', expected an operand"},
    {"o = swiglu(x)", "1:13: found ')', expected all arguments of out = swiglu(x, y)"},
    {"o = elu(x, slope=1)", "1:12: found 'slope', expected a keyword of out = elu(x, alpha=1)"},
    {"o = exp(a=1)", "1:9: found 'a', expected an operand: exp has no keywords"},
    {"o = clamp(lo=1, 2)", "1:17: found '2', expected a keyword, as before"},
    {"o = elu(x, 1, alpha=1)", "1:15: found 'alpha', expected an argument that is not given yet"},
    {"o = 1 + dsilu(x, y)",
     "1:9: found dsilu with 2 results, expected one value; write dx, out = dsilu(x, dout)"},
    {"o = dsilu(x, y)", "1:1: found 1 name, expected 2: one for each result, '_' for none"},
    {"a, b = silu(x)", "1:1: found 2 names, expected 1: the value is a single one"},
    {"a, b = dsilu(x, y) * 2",
     "1:20: found '*', expected the end of the statement: this call has several results"},
    {"a, a = dsilu(x, y)", "1:4: found 'a', expected different names"},
    {"_ = x", "1:1: found '_', expected a name to assign"},
    {"_, _ = dsilu(x, y)", "1:19: found the end of the text, expected an assignment"},
    {"o = x < y < z", "1:11: found '<', expected 'and', 'or' or the end: comparisons do not chain"},
    {"o = x + not y", "1:9: found 'not', expected an operand"},
    {"out o: f33; o = x", "1:8: found 'f33', expected a type such as f32, f16, bf16, f64, "
                          "e4m3, e5m2, i32, i64 or bool"},
    {"out o, p; o = x",
     "1:8: found an output that is never assigned, expected an assignment of it"},
    {"out o; t = o * 2; o = x",
     "1:12: found 'o', expected an operand: this output is not assigned yet"},
    {"in x, x; o = x", "1:7: found 'x', expected a name that is not in use yet"},
    {"t = 2 ; in t; o = t", "1:12: found 't', expected a name that is not in use yet"},
    {"o = 1x", "1:5: found '1x', expected a number"},
    {"o = 1e999", "1:5: found '1e999', expected a number"},
    {"o = 9223372036854775808", "1:5: found '9223372036854775808', expected an integer below 2^63"},
    {"o = 99999999999999999999", "1:5: found '99999999999999999999', expected an integer of "
                                 "at most 64 bits, or a number with '.'"},
    {"o = cast(x, 3)", "1:13: found '3', expected a type such as f32, f16, bf16, f64, e4m3, "
                       "e5m2, i32, i64 or bool"},
    {"o = x \x01 y", "1:7: found '\\x01', expected an operator or the end of the statement"},
    {"true = x", "1:1: found 'true', expected a name to assign"},
    {"2 = x", "1:1: found '2', expected a name to assign"},
    {"a = x @ y", "1:7: found '@', expected an operator or the end of the statement"},
};

static void messages_name_place_finding_and_expectation(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rejected / sizeof *rejected; i++)
        assert_rejected(rejected[i].text, EIDER_PARSE, rejected[i].message);
}

static char *repeat(const char *head, const char *unit, int n, const char *tail)
{
    char *text = malloc(strlen(head) + strlen(unit) * (size_t)n + strlen(tail) + 1);
    assert_non_null(text);
    char *at = text + sprintf(text, "%s", head);
    for (int i = 0; i < n; i++) at += sprintf(at, "%s", unit);
    sprintf(at, "%s", tail);
    return text;
}

static void limits_are_errors_not_crashes(void **state)
{
    (void)state;
    static const char *const units[] = {"(", "-", "not ", "exp(", "2 ** "};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        eider_allocator a = heap();
        struct eider_graph *g = NULL;
        char *text = repeat("o = ", units[i], 100000, "x");
        assert_int_equal(eider_parse(&a, text, &g), EIDER_PARSE);
        assert_non_null(strstr(eider_error(), "expected at most 256 levels of nesting"));
        free(text);
    }
    char *deep = repeat("o = ", "-(", 127, "x");
    char *closed = repeat(deep, ")", 127, "");
    struct eider_graph *g = parse(closed);
    eider_graph_destroy(g);
    free(deep);
    free(closed);

    char *chain = repeat("o = x", " + exp(x) * x", 20000, "");
    g = parse(chain);
    assert_round_trip(g);
    eider_graph_destroy(g);
    free(chain);

    char *longest = repeat("o = x#", " ", 1 << 20, "");
    assert_rejected(longest, EIDER_TOO_LARGE, "the program is longer than 1048576 bytes");
    free(longest);
    char *name = repeat("o = ", "x", 64, "");
    assert_int_equal(eider_parse(&(eider_allocator){heap().resize, NULL}, name, &g), EIDER_PARSE);
    assert_non_null(strstr(eider_error(), "1:5: found 'xxxx"));
    assert_non_null(strstr(eider_error(), "expected a name of at most 63 bytes"));
    free(name);
}

/* ---- Printing ------------------------------------------------------------- */

static void text_is_short_and_declares_what_is_needed(void **state)
{
    (void)state;
    assert_printed("out=silu( gate )*up", "out = silu(gate) * up\n");
    assert_printed("t = x + y; o = t * t", "t1 = x + y\no = t1 * t1\n");
    assert_printed("scalar a: f32; o = x * a + t1 * t1 * exp(x)", "scalar a: f32\nin x, t1\n"
                                                                  "o = x * a + t1 * t1 * exp(x)\n");
    assert_printed("in b, a; o = a / b", "in b, a\no = a / b\n");
    assert_printed("in unused: bf16; o = x", "in unused: bf16, x\no = x\n");
    assert_printed("out a, b; b = x + 1; a = b * 2.0", "out a, b\nb = x + 1\na = b * 2.0\n");
    assert_printed("out a, b; a = exp(x); b = a", "out a, b\na = exp(x)\nb = a\n");
    assert_printed("dx, _ = dsilu(x, d)", "dx, _ = dsilu(x, d)\n");
    assert_printed("_, o = dsilu(x, d)", "_, o = dsilu(x, d)\n");
    assert_printed("a, b = dsilu(x, d); o = a * b", "t1, t2 = dsilu(x, d)\no = t1 * t2\n");
    assert_printed("o = x - (y - z) - (-x) ** 2 ** -y", "o = x - (y - z) - (-x) ** 2 ** -y\n");
    assert_printed("o = neg(1) - -1 + (-1) ** x + -(2 ** x) + -(-x)",
                   "o = neg(1) - -1 + (-1) ** x + -2 ** x + --x\n");
    assert_printed("o = not (x < y and (true or x == y))",
                   "o = not (x < y and (true or x == y))\n");
    assert_printed("o = (x < y) and not (x > y) or isnan(x)",
                   "o = x < y and not x > y or isnan(x)\n");
    assert_printed("o = cast_nan(cast(x, bf16), e4m3) + elu(x, alpha=1.0) + elu(x, alpha=2)",
                   "o = cast_nan(cast(x, bf16), e4m3) + elu(x) + elu(x, alpha=2)\n");
    assert_printed("o = gelu(where(x < 0, 1e30, 0.1))",
                   "o = gelu_erf(select(x < 0, 1e+30, 0.1))\n");
    assert_printed("o = 1.0 + 0.3333333333333333 + -inf + nan + -0.0",
                   "o = 1.0 + 0.33333333333333331 + -inf + nan + -0.0\n");
    assert_printed("o = 3.5", "o = 3.5\n");
}

static void every_activation_round_trips(void **state)
{
    (void)state;
    const struct eider_activation *row;
    for (size_t i = 0; (row = eider_activation_row(i)); i++) {
        char text[256];
        struct eider_activation_item item;
        int n = snprintf(text, sizeof text, "%s = %s(", row->results, row->name);
        for (int k = 0; k < eider_activation_n_required(i); k++) {
            eider_activation_item(row->params, k, &item);
            n += snprintf(text + n, sizeof text - (size_t)n, "%s%.*s", k ? ", " : "",
                          (int)item.length, item.name);
        }
        snprintf(text + n, sizeof text - (size_t)n, ")");
        struct eider_graph *g = parse(text), *expanded = NULL;
        assert_round_trip(g);
        assert_int_equal(eider_activation_expand(g, &expanded), EIDER_OK);
        assert_round_trip(expanded);
        eider_graph_destroy(expanded);
        eider_graph_destroy(g);
    }
}

/* A small generator: the same programs on every machine. */
static uint64_t seed;

static uint32_t draw(uint32_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(seed >> 33) % below;
}

static eider_node draw_node(struct eider_graph *g)
{
    return 1 + draw(g->n_cells - 1);
}

static eider_node draw_literal(struct eider_graph *g)
{
    if (draw(2)) return eider_graph_integer(g, (int64_t)draw(7) - 3);
    uint64_t bits = seed ^ (seed << 29);
    double value;
    memcpy(&value, &bits, sizeof value);
    return eider_graph_number(g, value);
}

static void add_random(struct eider_graph *g)
{
    eider_node args[EIDER_CALL_ARGS_MAX];
    for (int i = 0; i < EIDER_CALL_ARGS_MAX; i++) args[i] = draw_node(g);
    enum eider_op op = (enum eider_op)draw(EIDER_OP_COUNT);
    if (op == EIDER_OP_call) {
        size_t row = 0;
        while (eider_activation_row(row)) row++;
        row = draw((uint32_t)row);
        eider_node call =
            eider_activation_call(g, row, args, (uint32_t)eider_activation_n_required(row));
        if (g->cells[call].op != EIDER_OP_call) return;
        for (int i = 1; i < eider_activation_n_results(row); i++)
            if (draw(2)) eider_graph_put(g, EIDER_OP_result, &call, 1, (uint64_t)i);
    } else if (op == EIDER_OP_cast || op == EIDER_OP_cast_nan) {
        eider_graph_put(g, op, args, 1, draw(9));
    } else if (eider_ops[op].arity >= 0) {
        eider_graph_put(g, op, args, (uint32_t)eider_ops[op].arity, 0);
    } else {
        draw_literal(g);
    }
}

static void random_graphs_round_trip(void **state)
{
    (void)state;
    eider_allocator a = heap();
    for (int i = 0; i < 400; i++) {
        struct eider_graph *g;
        char name[16];
        seed = (uint64_t)i;
        assert_int_equal(eider_graph_create(&a, &g), EIDER_OK);
        for (uint32_t k = 0, n = 1 + draw(4); k < n; k++) {
            snprintf(name, sizeof name, "%s%u", draw(2) ? "t" : "x", k);
            int32_t type = draw(2) ? -1 : (int32_t)draw(9);
            if (draw(4))
                eider_graph_input(g, name, type);
            else
                eider_graph_scalar(g, name, type);
        }
        for (uint32_t k = 0, n = draw(60); k < n; k++) add_random(g);
        for (uint32_t k = 0, n = 1 + draw(4); k < n; k++) {
            snprintf(name, sizeof name, "o%u", k);
            eider_graph_output(g, name, draw_node(g), draw(2) ? -1 : (int32_t)draw(9));
        }
        assert_int_equal(g->status, EIDER_OK);
        assert_round_trip(g);
        eider_graph_destroy(g);
    }
}

static void deep_graphs_round_trip(void **state)
{
    (void)state;
    static const enum eider_op ops[] = {EIDER_OP_neg, EIDER_OP_exp, EIDER_OP_not, EIDER_OP_pow,
                                        EIDER_OP_sub};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        eider_allocator a = heap();
        struct eider_graph *g;
        assert_int_equal(eider_graph_create(&a, &g), EIDER_OK);
        eider_node x = eider_graph_input(g, "x", -1), top = x;
        for (int k = 0; k < 3000; k++) {
            eider_node args[2] = {x, top};
            int arity = eider_ops[ops[i]].arity;
            top = eider_graph_put(g, ops[i], args + 2 - arity, (uint32_t)arity, 0);
        }
        eider_graph_output(g, "o", top, -1);
        assert_round_trip(g);
        eider_graph_destroy(g);
    }
}

/* ---- Hostile text --------------------------------------------------------- */

static const char *const programs[] = {
    "in g: bf16, u\nscalar a; out o: e4m3\no = silu(g) * (u ** -2) + a # x\n",
    "dx, _, f = dswiglu_oai(x, y, 1e-3, limit=7.5)\nz = select(not x < 2, -inf, 0x1p-3)",
    "t = cast(x, f16); o = -t + cast_nan(t, e5m2) / nan; p = t != 9 or true",
};

/* Parses, and when that works prints and parses again. */
static void survive(const char *text)
{
    eider_allocator a = heap();
    struct eider_graph *g = NULL, *again = NULL;
    if (eider_parse(&a, text, &g) != EIDER_OK) {
        if (!strstr(eider_error(), ": found ")) fail_msg("%s: %s", text, eider_error());
        return;
    }
    char *printed = print(g);
    if (eider_parse(&a, printed, &again) != EIDER_OK || !eider_graph_equal(g, again))
        fail_msg("%s prints as %s", text, printed);
    release(printed);
    eider_graph_destroy(again);
    eider_graph_destroy(g);
}

static void prefixes_and_mutations_never_crash(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        char text[256];
        size_t length = strlen(programs[i]);
        for (size_t n = 0; n <= length; n++) {
            snprintf(text, sizeof text, "%.*s", (int)n, programs[i]);
            survive(text);
        }
        for (size_t n = 0; n < length; n++)
            for (int c = 1; c < 256; c++) {
                memcpy(text, programs[i], length + 1);
                text[n] = (char)c;
                survive(text);
            }
    }
}

/* ---- Memory --------------------------------------------------------------- */

static int calls_left;

static void *resize_failing(void *user, void *ptr, size_t old_size, size_t new_size)
{
    (void)user;
    (void)old_size;
    if (new_size == 0) {
        free(ptr);
        return NULL;
    }
    return calls_left-- > 0 ? realloc(ptr, new_size) : NULL;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    eider_allocator a = {resize_failing, NULL};
    for (int n = 0;; n++) {
        struct eider_graph *g = NULL, *expanded = NULL;
        char *text = NULL;
        calls_left = n;
        eider_status status = eider_parse(&a, programs[1], &g);
        if (status == EIDER_OK) status = eider_print(g, &text);
        if (status == EIDER_OK) status = eider_activation_expand(g, &expanded);
        eider_graph_destroy(expanded);
        eider_graph_destroy(g);
        eider_mem_free(&a, text);
        if (status == EIDER_OK) break;
        assert_int_equal(status, EIDER_OOM);
        assert_true(n < 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operators_bind_as_in_c_and_power_as_in_mathematics),
        cmocka_unit_test(literals_keep_their_value),
        cmocka_unit_test(statements_are_separated_and_commented),
        cmocka_unit_test(keywords_reach_their_parameters),
        cmocka_unit_test(casts_round_in_place),
        cmocka_unit_test(operands_come_in_the_order_of_their_names),
        cmocka_unit_test(words_of_declarations_are_names_elsewhere),
        cmocka_unit_test(messages_name_place_finding_and_expectation),
        cmocka_unit_test(limits_are_errors_not_crashes),
        cmocka_unit_test(text_is_short_and_declares_what_is_needed),
        cmocka_unit_test(every_activation_round_trips),
        cmocka_unit_test(random_graphs_round_trip),
        cmocka_unit_test(deep_graphs_round_trip),
        cmocka_unit_test(prefixes_and_mutations_never_crash),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
