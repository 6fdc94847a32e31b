/* test_builder.c -- programs from text and from calls, through the public interface. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eider/eider.h"

static eider_context *ctx;

static int create_context(void **state)
{
    (void)state;
    return eider_context_create(NULL, &ctx) != EIDER_OK;
}

static int destroy_context(void **state)
{
    (void)state;
    eider_context_destroy(ctx);
    return 0;
}

static eider_builder *create(void)
{
    eider_builder *b = NULL;
    assert_int_equal(eider_builder_create(ctx, &b), EIDER_OK);
    return b;
}

static void assert_text(const eider_program *program, const char *want)
{
    assert_string_equal(eider_program_text(program), want);
}

static void a_built_program_is_the_written_one(void **state)
{
    (void)state;
    eider_builder *b = create();
    eider_value gate = eider_builder_input(b, "gate", EIDER_BF16);
    eider_value up = eider_builder_input(b, "up", -1);
    eider_value half = eider_builder_number(b, 0.5);
    eider_value act = eider_builder_call(b, "silu", &gate, 1);
    eider_value out = eider_builder_call(b, "mul", (eider_value[]){act, up}, 2);
    eider_builder_output(b, "out", out, -1);
    eider_value scale = eider_builder_scalar(b, "scale", EIDER_F32); /* after an output */
    out = eider_builder_call(b, "fma", (eider_value[]){out, scale, half}, 3);
    out = eider_builder_cast(b, out, EIDER_E4M3);
    eider_builder_output(b, "small", out, EIDER_E4M3);
    eider_program *program = NULL, *again = NULL;
    assert_int_equal(eider_builder_finish(b, &program), EIDER_OK);
    assert_text(program, "in gate: bf16, up\nscalar scale: f32\nout out, small: e4m3\n"
                         "out = silu(gate) * up\nsmall = cast(fma(out, scale, 0.5), e4m3)\n");
    assert_int_equal(eider_program_parse(ctx, eider_program_text(program), &again), EIDER_OK);
    assert_text(again, eider_program_text(program));

    double in[] = {2, 3, 100}, values[2];
    assert_int_equal(eider_program_eval(again, in, values), EIDER_OK);
    double want = 2 / (1 + exp(-2)) * 3;
    assert_true(fabs(values[0] - want) < 1e-14);
    assert_true(values[1] == 448);
    eider_program_release(program);
    eider_program_release(again);
}

static void literals_are_integers_or_numbers(void **state)
{
    (void)state;
    eider_program *program = NULL;
    eider_builder *b = create();
    eider_value x = eider_builder_input(b, "x", EIDER_I64);
    eider_value args[] = {x, eider_builder_integer(b, INT64_MAX)};
    eider_builder_output(b, "i", eider_builder_call(b, "sub", args, 2), EIDER_I64);
    args[1] = eider_builder_number(b, 0.5);
    eider_builder_output(b, "f", eider_builder_call(b, "mul", args, 2), EIDER_F32);
    assert_int_equal(eider_builder_finish(b, &program), EIDER_OK);
    assert_non_null(strstr(eider_program_text(program), "i = x - 9223372036854775807"));
    assert_non_null(strstr(eider_program_text(program), "f = x * 0.5"));
    eider_program_release(program);
    assert_int_equal(eider_builder_integer(NULL, 1), 0);
}

static void operands_are_listed_in_launch_order(void **state)
{
    (void)state;
    eider_program *program = NULL;
    assert_int_equal(eider_program_parse(ctx, "scalar a: f32; o = x * a", &program), EIDER_OK);
    static const eider_operand want[] = {
        {"a", EIDER_SCALAR, EIDER_F32}, {"x", EIDER_INPUT, -1}, {"o", EIDER_OUTPUT, -1}};
    assert_int_equal(eider_program_operands(program), 3);
    for (size_t i = 0; i < 3; i++) {
        eider_operand got;
        assert_int_equal(eider_program_operand(program, i, &got), EIDER_OK);
        assert_string_equal(got.name, want[i].name);
        assert_int_equal(got.kind, want[i].kind);
        assert_int_equal(got.type, want[i].type);
    }
    eider_operand none;
    assert_int_equal(eider_program_operand(program, 3, &none), EIDER_BAD_ARG);
    assert_string_equal(eider_error(), "operand 3: the program has 3");
    eider_program_release(program);
}

static void several_results_are_numbered(void **state)
{
    (void)state;
    eider_builder *b = create();
    eider_value args[3];
    for (int i = 0; i < 3; i++)
        args[i] = eider_builder_input(b, (const char *[]){"x", "y", "d"}[i], -1);
    eider_value call = eider_builder_call(b, "dswiglu", args, 3);
    assert_int_equal(eider_builder_result(b, call, 0), call);
    eider_builder_output(b, "f", eider_builder_result(b, call, 2), -1);
    eider_builder_output(b, "dx", call, -1);
    eider_program *program = NULL;
    assert_int_equal(eider_builder_finish(b, &program), EIDER_OK);
    assert_text(program, "out f, dx\ndx, _, f = dswiglu(x, y, d)\n");
    eider_program_release(program);
}

/* Each makes one mistake; everything after it must be harmless. */
static void mistake(eider_builder *b, int which)
{
    eider_value x = eider_builder_input(b, "x", -1), args[20];
    for (int i = 0; i < 20; i++) args[i] = x;
    switch (which) {
    case 0:
        eider_builder_call(b, "slu", args, 1);
        break;
    case 1:
        eider_builder_call(b, "mul", args, 1);
        break;
    case 2:
        eider_builder_call(b, "silu", args, 2);
        break;
    case 3:
        eider_builder_call(b, NULL, args, 1);
        break;
    case 4:
        eider_builder_call(b, "mul", NULL, 2);
        break;
    case 5:
        eider_builder_call(b, "mul", args, 20);
        break;
    case 6:
        eider_builder_call(b, "exp", (eider_value[]){999}, 1);
        break;
    case 7:
        eider_builder_call(b, "exp", (eider_value[]){0}, 1);
        break;
    case 8:
        eider_builder_result(b, x, 1);
        break;
    case 9:
        eider_builder_cast(b, x, (eider_dtype)99);
        break;
    case 10:
        eider_builder_cast(b, 4711, EIDER_F16);
        break;
    case 11:
        eider_builder_output(b, NULL, x, -1);
        break;
    case 12:
        eider_builder_input(b, "x", -1);
        break;
    case 13:
        eider_builder_input(b, "not", -1);
        break;
    case 14:
        eider_builder_scalar(b, NULL, -1);
        break;
    case 15:
        eider_builder_output(b, "x", x, -1);
        break;
    case 16:
        eider_builder_call(b, "cast", args, 1);
        break;
    case 17:
        eider_builder_call(b, "m_tanh", args, 1);
        break;
    default:
        eider_builder_output(b, "o", x, 42);
        break;
    }
    x = eider_builder_call(b, "exp", &x, 1);
    eider_builder_output(b, "last", x, -1);
}

static void the_first_mistake_is_what_finish_reports(void **state)
{
    (void)state;
    static const char *const messages[] = {
        "there is no function 'slu'",
        "arguments given to mul: 1, it takes 2",
        "arguments given to out = silu(x): 2",
        "eider_builder_call: an argument is NULL",
        "eider_builder_call: an argument is NULL",
        "mul: 20 arguments; at most 16 are possible",
        "exp: 999 is no value of this builder",
        "exp: 0 is no value",
        "eider_builder_result: result 1 of a value that has 1",
        "eider_builder_cast: 99 is not an element type",
        "eider_builder_cast: 4711 is no value of this builder",
        "'' is not a name of 1 to 63 letters, digits and '_'",
        "the operand 'x' is declared twice",
        "'not' is a word of the language, not a name",
        "'' is not a name of 1 to 63 letters, digits and '_'",
        "the operand 'x' is declared twice",
        "there is no function 'cast'",
        "there is no function 'm_tanh'",
        "o: 42 is not an element type",
    };
    for (int i = 0; i < (int)(sizeof messages / sizeof *messages); i++) {
        eider_builder *b = create();
        eider_program *program = NULL;
        mistake(b, i);
        eider_program *other = NULL;
        assert_int_equal(eider_program_parse(ctx, "=", &other), EIDER_PARSE); /* another error */
        assert_int_equal(eider_builder_finish(b, &program), EIDER_BAD_ARG);
        assert_string_equal(eider_error(), messages[i]);
        assert_null(program);
    }
}

static void gradients_are_programs_like_any_other(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "out = silu(gate) * up",
        "scalar a: f32; t = x * a; o = gelu_tanh(t) + y; p = exp(t) / y",
        "o = select(x > y, cast(x, bf16), swiglu_oai(x, y, limit=7)) ** 2",
        "o = log1p(abs(x)) * max(x, y) - normcdf(-y); p = softplus(o) * clamp(y, -1, 1)",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        for (int forward = 0; forward < 2; forward++) {
            eider_program *program = NULL, *grad = NULL, *again = NULL;
            eider_grad_options options = {.with_forward = forward};
            assert_int_equal(eider_program_parse(ctx, texts[i], &program), EIDER_OK);
            if (eider_program_grad(program, &options, &grad) != EIDER_OK)
                fail_msg("%s: %s", texts[i], eider_error());
            if (eider_program_parse(ctx, eider_program_text(grad), &again) != EIDER_OK)
                fail_msg("%s: %s", eider_program_text(grad), eider_error());
            assert_text(again, eider_program_text(grad));
            eider_program_release(program);
            eider_program_release(grad);
            eider_program_release(again);
        }
}

static void gradients_name_what_they_derive(void **state)
{
    (void)state;
    eider_program *program = NULL, *grad = NULL;
    assert_int_equal(eider_program_parse(ctx, "out = silu(gate) * up", &program), EIDER_OK);
    assert_int_equal(eider_program_grad(program, NULL, &grad), EIDER_OK);
    static const char *const names[] = {"gate", "up", "dout", "dgate", "dup"};
    assert_int_equal(eider_program_operands(grad), 5);
    for (size_t i = 0; i < 5; i++) {
        eider_operand operand;
        assert_int_equal(eider_program_operand(grad, i, &operand), EIDER_OK);
        assert_string_equal(operand.name, names[i]);
    }
    double in[] = {2, 3, 5}, out[2], s = 1 / (1 + exp(-2));
    assert_int_equal(eider_program_eval(grad, in, out), EIDER_OK);
    assert_true(fabs(out[0] - 15 * (s + 2 * s * (1 - s))) < 1e-13);
    assert_true(fabs(out[1] - 10 * s) < 1e-13);
    eider_program_release(grad);
    grad = NULL;
    const char *const wrt[] = {"up", NULL};
    eider_grad_options options = {.wrt = wrt, .n_wrt = 2};
    assert_int_equal(eider_program_grad(program, &options, &grad), EIDER_BAD_ARG);
    assert_int_equal(eider_program_grad(NULL, NULL, &grad), EIDER_BAD_ARG);
    assert_int_equal(eider_program_grad(program, NULL, NULL), EIDER_BAD_ARG);
    options.n_wrt = 1;
    assert_int_equal(eider_program_grad(program, &options, &grad), EIDER_OK);
    assert_int_equal(eider_program_operands(grad), 4);
    eider_program_release(grad);
    eider_program_release(program);
}

static void a_program_needs_an_output(void **state)
{
    (void)state;
    eider_builder *b = create();
    eider_program *program = NULL;
    eider_builder_input(b, "x", -1);
    assert_int_equal(eider_builder_finish(b, &program), EIDER_BAD_ARG);
    assert_string_equal(eider_error(), "the program has no output");
    eider_builder_discard(create());
    eider_builder_discard(NULL);
    eider_program_release(NULL);
}

static void null_arguments_are_errors(void **state)
{
    (void)state;
    eider_program *program = NULL;
    eider_builder *b = NULL;
    double value = 0;
    assert_int_equal(eider_program_parse(NULL, "o = x", &program), EIDER_BAD_ARG);
    assert_int_equal(eider_program_parse(ctx, NULL, &program), EIDER_BAD_ARG);
    assert_int_equal(eider_program_parse(ctx, "o = x", NULL), EIDER_BAD_ARG);
    assert_int_equal(eider_builder_create(NULL, &b), EIDER_BAD_ARG);
    assert_int_equal(eider_builder_finish(NULL, &program), EIDER_BAD_ARG);
    assert_int_equal(eider_builder_finish(create(), NULL), EIDER_BAD_ARG);
    assert_int_equal(eider_builder_number(NULL, 1), 0);
    assert_int_equal(eider_builder_call(NULL, "exp", NULL, 0), 0);
    assert_int_equal(eider_program_parse(ctx, "o = x", &program), EIDER_OK);
    assert_int_equal(eider_program_eval(program, NULL, &value), EIDER_BAD_ARG);
    assert_int_equal(eider_program_eval(program, &value, NULL), EIDER_BAD_ARG);
    assert_int_equal(eider_program_operand(program, 0, NULL), EIDER_BAD_ARG);
    eider_program_release(program);
    assert_int_equal(eider_program_parse(ctx, "o = 2 ** 3", &program), EIDER_OK);
    assert_int_equal(eider_program_eval(program, NULL, &value), EIDER_OK);
    assert_true(value == 8);
    eider_program_release(program);
}

/* ---- Tables --------------------------------------------------------------- */

static const char *signature(eider_table table, const char *name)
{
    eider_row row;
    for (size_t i = 0; eider_table_row(table, i, &row); i++)
        if (strcmp(row.name, name) == 0) return row.signature;
    fail_msg("no row %s", name);
    return NULL;
}

static void tables_show_how_each_row_is_written(void **state)
{
    (void)state;
    static const struct {
        eider_table table;
        const char *name, *signature;
    } rows[] = {
        {EIDER_TABLE_ACTIVATIONS, "swiglu", "out = swiglu(x, y)"},
        {EIDER_TABLE_ACTIVATIONS, "dswiglu", "dx, dy, out = dswiglu(x, y, dout)"},
        {EIDER_TABLE_OPS, "mul", "a * b"},
        {EIDER_TABLE_OPS, "max", "max(a, b)"},
        {EIDER_TABLE_OPS, "fma", "fma(a, b, c)"},
        {EIDER_TABLE_OPS, "exp", "exp(a)"},
        {EIDER_TABLE_OPS, "and", "a and b"},
        {EIDER_TABLE_OPS, "not", "not(a)"},
        {EIDER_TABLE_OPS, "ge", "a >= b"},
        {EIDER_TABLE_OPS, "cast", "cast(a, type)"},
        {EIDER_TABLE_OPS, "select", "select(a, b, c)"},
        {EIDER_TABLE_PARAMS, "unroll", "unroll = 1|2|4|8"},
        {EIDER_TABLE_KERNELS, "map", "template"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(signature(rows[i].table, rows[i].name), rows[i].signature);
    eider_row row;
    for (int table = 0; table < 4; table++) {
        size_t n = 0;
        for (; eider_table_row((eider_table)table, n, &row); n++)
            assert_true(row.name[0] && row.signature[0] && row.text && row.doc[0]);
        assert_int_equal(eider_table_row((eider_table)table, n + 1000, &row), 0);
    }
    assert_int_equal(eider_table_row((eider_table)4, 0, &row), 0);
    assert_int_equal(eider_table_row(EIDER_TABLE_OPS, 0, NULL), 0);
}

/* What a table shows can be written: every primitive's signature is an expression. */
static void signatures_of_primitives_parse(void **state)
{
    (void)state;
    eider_row row;
    for (size_t i = 0; eider_table_row(EIDER_TABLE_OPS, i, &row); i++) {
        char text[80];
        eider_program *program = NULL;
        if (strstr(row.signature, "type")) continue;
        snprintf(text, sizeof text, "o = %s", row.signature);
        if (eider_program_parse(ctx, text, &program) != EIDER_OK)
            fail_msg("%s: %s", text, eider_error());
        eider_program_release(program);
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

static eider_status build(eider_context *in)
{
    eider_program *program = NULL, *parsed = NULL;
    eider_builder *b = NULL;
    double x = 1, y;
    eider_status status = eider_builder_create(in, &b);
    if (status != EIDER_OK) return status;
    eider_value value = eider_builder_input(b, "x", -1);
    value = eider_builder_call(b, "dsilu", (eider_value[]){value, value}, 2);
    eider_builder_output(b, "o", eider_builder_result(b, value, 1), -1);
    status = eider_builder_finish(b, &program);
    if (status == EIDER_OK) status = eider_program_parse(in, eider_program_text(program), &parsed);
    if (status == EIDER_OK) status = eider_program_eval(parsed, &x, &y);
    eider_program_release(program);
    eider_program_release(parsed);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    eider_context_options options = {.allocator = {resize_failing, NULL}};
    eider_context *failing = NULL;
    calls_left = 1000;
    assert_int_equal(eider_context_create(&options, &failing), EIDER_OK);
    for (int n = 0;; n++) {
        calls_left = n;
        eider_status status = build(failing);
        if (status == EIDER_OK) break;
        assert_int_equal(status, EIDER_OOM);
        assert_true(n < 1000);
    }
    calls_left = 1000;
    eider_context_destroy(failing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_built_program_is_the_written_one),
        cmocka_unit_test(literals_are_integers_or_numbers),
        cmocka_unit_test(operands_are_listed_in_launch_order),
        cmocka_unit_test(several_results_are_numbered),
        cmocka_unit_test(the_first_mistake_is_what_finish_reports),
        cmocka_unit_test(gradients_are_programs_like_any_other),
        cmocka_unit_test(gradients_name_what_they_derive),
        cmocka_unit_test(a_program_needs_an_output),
        cmocka_unit_test(null_arguments_are_errors),
        cmocka_unit_test(tables_show_how_each_row_is_written),
        cmocka_unit_test(signatures_of_primitives_parse),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, create_context, destroy_context);
}
