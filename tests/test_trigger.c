/* test_trigger.c -- expressions over a call, and what triggers make of it: the key.
 *
 * The forms and the malformed inputs are those that a tuner written around Python calls
 * accepts, or trips over with an assertion or an unbound variable.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support_runtime.h"
#include "trigger.h"

static eider_context *ctx;
static eider_device *device;
static eider_program *program;
static _Alignas(64) float memory[4][64];
static float alpha = 1.5f;
static const int64_t shape[] = {4, 8}, strides[] = {16, 1}, row[] = {8};
static eider_tensor args[4];
static eider_request kernel;
static eider_tune_request request;

static int open_call(void **state)
{
    (void)state;
    must(eider_program_parse(ctx, "scalar a\nout = a * x + y", &program));
    args[0] = (eider_tensor){.data = &alpha, .type = EIDER_F32};
    args[1] = (eider_tensor){memory[0], EIDER_F32, 2, shape, strides};
    args[2] = tensor_of(memory[1], EIDER_BF16, 1, row);
    args[3] = tensor_of(memory[2], EIDER_F32, 2, shape);
    kernel = (eider_request){.program = program, .args = args, .n_args = 4};
    request = (eider_tune_request){.kernel = &kernel};
    return 0;
}

static int close_call(void **state)
{
    (void)state;
    eider_program_release(program);
    return 0;
}

/* ---- Lines ------------------------------------------------------------------- */

static eider_status lines_of(const char *triggers, char out[1024])
{
    struct eider_call call;
    char *text;
    request.triggers = triggers;
    must(eider_call_open(device, &request, &call));
    eider_status status = eider_trigger_lines(&call, &text);
    if (status != EIDER_OK) return status;
    snprintf(out, 1024, "%s", text);
    eider_mem_free(&call.ctx->allocator, text);
    return EIDER_OK;
}

static void check_lines(const char *triggers, const char *want)
{
    char got[1024];
    must(lines_of(triggers, got));
    assert_string_equal(got, want);
}

static void every_form_of_a_trigger_has_its_value(void **state)
{
    (void)state;
    static const struct {
        const char *trigger, *line;
    } rows[] = {
        {"x", "x = f32[4,8]{16,1}"},
        {"x.dtype", "x.dtype = f32"},
        {"y.dtype", "y.dtype = bf16"},
        {"x.shape", "x.size() = 4,8"},
        {"x.size()", "x.size() = 4,8"},
        {"x.size(1)", "x.size(1) = 8"},
        {"x.size(0)", "x.size(0) = 4"},
        {"x.size(-1)", "x.size(-1) = 8"},
        {"x.size(-2)", "x.size(-2) = 4"},
        {"x.shape[1]", "x.size(1) = 8"},
        {"x.shape(1)", "x.size(1) = 8"},
        {"x.shape[-1]", "x.size(-1) = 8"},
        {"x.stride()", "x.stride() = 16,1"},
        {"x.stride(0)", "x.stride(0) = 16"},
        {"x.stride(-1)", "x.stride(-1) = 1"},
        {"out.stride()", "out.stride() = 8,1"},
        {"a", "a = 1.5"},
        {"a.dtype", "a.dtype = f32"},
        {"x.rank", "x.rank = 2"},
        {"x.count", "x.count = 32"},
        {"x.align", "x.align = 16"},
        {"pow2(y.size(0))", "pow2(y.size(0)) = 8"},
        {"pow2(y.size(0) + 1)", "pow2(y.size(0)+1) = 16"},
        {"x.size(0) * x.size(1) / 5", "x.size(0)*x.size(1)/5 = 6"},
        {"ceil_div( x.count , 5 )", "ceil_div(x.count,5) = 7"},
        {"min(x.size(0), 3)", "min(x.size(0),3) = 3"},
        {"log2(x.count)", "log2(x.count) = 5"},
        {"x.dtype == f32", "x.dtype==f32 = 1"},
        {"y.dtype == f32", "y.dtype==f32 = 0"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char want[256];
        snprintf(want, sizeof want, "trigger: %s\n", rows[i].line);
        check_lines(rows[i].trigger, want);
    }
}

static void a_tensor_without_memory_has_everything_but_an_address(void **state)
{
    (void)state;
    args[1].data = NULL;
    check_lines("x.dtype, x.size(1), x.align",
                "trigger: x.align = 16\ntrigger: x.dtype = f32\ntrigger: x.size(1) = 8\n");
}

static void a_whole_operand_absorbs_its_properties(void **state)
{
    (void)state;
    check_lines("x.size(1), x, x.dtype, y.dtype",
                "trigger: x = f32[4,8]{16,1}\ntrigger: y.dtype = bf16\n");
    check_lines("x, pow2(x.size(0))",
                "trigger: pow2(x.size(0)) = 4\ntrigger: x = f32[4,8]{16,1}\n");
}

static void without_triggers_sizes_are_bucketed(void **state)
{
    (void)state;
    check_lines(NULL, "trigger: pow2(out.count) = 32\n");
    check_lines("", "");
}

static int64_t rows_of_x(void *user, const eider_tensor *tensors, size_t n)
{
    assert_int_equal(n, 4);
    return *(const int *)user + tensors[1].shape[0];
}

static void functions_of_the_call_are_triggers(void **state)
{
    (void)state;
    int more = 100;
    const eider_tune_function functions[] = {{"bucket", rows_of_x, &more}};
    request.functions = functions;
    request.n_functions = 1;
    check_lines("x.dtype", "trigger: bucket() = 104\ntrigger: x.dtype = f32\n");
}

static void malformed_triggers_are_named_with_their_column(void **state)
{
    (void)state;
    static const struct {
        const char *trigger, *message;
    } rows[] = {
        {"x.size", "triggers: 7: expected '(', found the end"},
        {"x.shape()", "triggers: 9: expected a dimension, found ')'"},
        {"x.stride", "triggers: 9: expected '(', found the end"},
        {"x.a.b", "triggers: 3: x has no 'a'"},
        {"x.foo", "triggers: 3: x has no 'foo'"},
        {"x.", "triggers: 3: x has no ''"},
        {"x.size(", "triggers: 8: expected a dimension, found the end"},
        {"x.size(1", "triggers: 9: expected ')', found the end"},
        {"x.size(a)", "triggers: 8: expected a dimension, found 'a'"},
        {"x.size(2)", "triggers: 8: x has rank 2, there is no dimension 2"},
        {"x.size(-3)", "triggers: 8: x has rank 2, there is no dimension -3"},
        {"a.size(0)", "triggers: 8: a has rank 0, there is no dimension 0"},
        {"x.shape[1)", "triggers: 10: expected ']', found ')'"},
        {"z.dtype", "triggers: 1: unknown name 'z'"},
        {"vec", "triggers: 1: 'vec' is a tuning parameter, which has no value here"},
        {"x.dtype,", "triggers: 9: expected a trigger after ','"},
        {",x", "triggers: 1: expected an operand, a parameter or a number, found ','"},
        {"x.dtype y", "triggers: 9: expected an operator or ',', found 'y'"},
        {"frob(x)", "triggers: 1: unknown function"},
        {"pow2(x.dtype)", "triggers: 6: expected a number here"},
        {"x.size(0) / 0", "triggers: 11: division by 0"},
        {"x.dtype + 1", "triggers: 9: expected a number here"},
        {"x.dtype == 1", "a number and a word cannot be compared"},
        {"'open", "triggers: 6: expected ''', found the end"},
        {"((((((((((((((((((((((((((((((((((1", "too deep"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char got[1024];
        assert_int_equal(lines_of(rows[i].trigger, got), EIDER_PARSE);
        if (!strstr(eider_error(), rows[i].message))
            fail_msg("'%s' gives: %s", rows[i].trigger, eider_error());
    }
}

/* ---- Keys --------------------------------------------------------------------- */

static void key_of(char digits[EIDER_KEY_BYTES])
{
    struct eider_call call;
    struct eider_key key = {0};
    must(eider_call_open(device, &request, &call));
    must(eider_trigger_key(&call, &key));
    memcpy(digits, key.digits, sizeof key.digits);
    eider_trigger_release(&call, &key);
}

static char base[EIDER_KEY_BYTES];

static void same_key(const char *why)
{
    char digits[EIDER_KEY_BYTES];
    key_of(digits);
    if (strcmp(digits, base) != 0) fail_msg("the key changed: %s", why);
}

static void other_key(const char *why)
{
    char digits[EIDER_KEY_BYTES];
    key_of(digits);
    if (strcmp(digits, base) == 0) fail_msg("the key did not change: %s", why);
}

static void the_order_of_triggers_does_not_change_the_key(void **state)
{
    (void)state;
    request.triggers = "x.dtype, y.size(0), x.size(1)";
    key_of(base);
    request.triggers = "x.size(1),x.dtype,y.size(0)";
    same_key("order");
    request.triggers = " y.shape[0] , x.shape[1],x.dtype, x.dtype ";
    same_key("spelling, spaces and repetition");
    request.triggers = "x.dtype, y.size(0)";
    other_key("a trigger less");
}

static void what_the_code_depends_on_is_in_the_key(void **state)
{
    (void)state;
    eider_program *other;
    key_of(base);
    args[1].data = memory[0] + 1;
    other_key("alignment");
    args[1].data = memory[0];
    args[2].type = EIDER_F16;
    other_key("type");
    args[2].type = EIDER_BF16;
    kernel.numerics.math = EIDER_MATH_EXACT;
    other_key("math");
    kernel.numerics.math = EIDER_MATH_AUTO;
    kernel.numerics.ftz = EIDER_ON;
    other_key("ftz");
    kernel.numerics.ftz = EIDER_DEFAULT;
    kernel.numerics.contract = EIDER_OFF;
    other_key("contract");
    kernel.numerics.contract = EIDER_DEFAULT;
    request.hot = 1;
    other_key("hot and cold");
    request.hot = 0;
    request.tolerance = 0.01;
    other_key("tolerance");
    request.tolerance = 0;
    must(eider_program_parse(ctx, "scalar a\nout = a * x - y", &other));
    kernel.program = other;
    other_key("program");
    kernel.program = program;
    eider_program_release(other);
    const int64_t odd[] = {4, 7}, odd_row[] = {7};
    args[1].shape = args[3].shape = odd;
    args[2].shape = odd_row;
    other_key("what vectors the rows allow");
    args[1].shape = args[3].shape = shape;
    args[2].shape = row;
    same_key("everything is as it was");
}

/* Another board, another driver: no timing of this one is of use there. */
static void what_the_device_is_is_in_the_key(void **state)
{
    (void)state;
    eider_device_info *info = &device->info, mine = *info;
    key_of(base);
    snprintf(info->name, sizeof info->name, "another");
    other_key("name");
    *info = mine;
    snprintf(info->target, sizeof info->target, "sm_100");
    other_key("target");
    *info = mine;
    info->units++;
    other_key("multiprocessors");
    *info = mine;
    info->clock_khz++;
    other_key("clock");
    *info = mine;
    info->l2_bytes++;
    other_key("L2 cache");
    *info = mine;
    info->driver++;
    other_key("driver");
    *info = mine;
    info->ordinal++;
    same_key("which of equal devices");
    *info = mine;
    same_key("everything is as it was");
}

static void kernels_of_one_name_are_told_apart(void **state)
{
    (void)state;
    static const eider_operand operands[] = {{"x", EIDER_INPUT, EIDER_F32},
                                             {"o", EIDER_OUTPUT, EIDER_F32}};
    eider_source source = {.kind = EIDER_SOURCE_LL,
                           .data = "define void @k(ptr %x, ptr %o) { ret void }",
                           .entry = "k",
                           .n_operands = 2,
                           .operands = operands};
    eider_request foreign = {.source = &source, .args = args + 2, .n_args = 2};
    request.kernel = &foreign;
    request.grid = "1";
    args[2].type = EIDER_F32;
    key_of(base);
    source.data = "define void @k(ptr %x, ptr %o) { unreachable }";
    other_key("the text");
    source.data = "define void @k(ptr %x, ptr %o) { ret void }";
    request.grid = "2";
    other_key("the grid");
    request.grid = "1";
    args[2].data = memory[1] + 1;
    other_key("alignment");
    args[2].data = memory[1];
    same_key("everything is as it was");
}

static void what_it_does_not_depend_on_is_not(void **state)
{
    (void)state;
    key_of(base);
    args[1].data = memory[3];
    same_key("another address of the same alignment");
    setenv("EIDER_HOME", "/somewhere", 1);
    same_key("the environment");
    unsetenv("EIDER_HOME");
    kernel.config = "vec=4";
    same_key("what is fixed: it chooses among timings, which say their config");
    kernel.config = NULL;
    request.space = "unroll=1|2";
    request.search = EIDER_SEARCH_RANDOM;
    request.seed = 7;
    request.budget_s = 3;
    same_key("the space and how it is searched");
    const int64_t bucket[] = {3, 8};
    args[1].shape = args[3].shape = bucket;
    same_key("another size of the same bucket");
    const int64_t larger[] = {8, 8};
    args[1].shape = args[3].shape = larger;
    other_key("another bucket");
    alpha = 2;
    args[1].shape = args[3].shape = shape;
    same_key("a scalar that is no trigger");
    alpha = 1.5f;
}

static void a_scalar_is_a_trigger_by_value(void **state)
{
    (void)state;
    request.triggers = "a";
    key_of(base);
    alpha = 2;
    other_key("the scalar");
    alpha = 1.5f;
    same_key("the scalar again");
}

/* ---- Conditions ------------------------------------------------------------------ */

static double number_of(const char *text)
{
    struct eider_pairs config;
    struct eider_call call;
    struct eider_expr_value v;
    const char *at = text;
    must(eider_call_open(device, &request, &call));
    must(eider_pairs_parse("config", "vec=8,unroll=2,load=cs", &config));
    struct eider_expr_scope scope = eider_call_scope(&call, &config);
    must(eider_expr_eval("condition", text, &at, &scope, NULL, &v));
    assert_int_equal(*at, '\0');
    assert_int_equal(v.kind, EIDER_EXPR_NUMBER);
    return v.number;
}

static void conditions_compute_what_c_would(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double value;
    } rows[] = {
        {"vec * unroll <= 16", 1},
        {"vec * unroll < 16", 0},
        {"x.size(-1) % vec == 0", 1},
        {"load == 'cs'", 1},
        {"load != 'cs' || vec == 8", 1},
        {"1 + 2 * 3", 7},
        {"(1 + 2) * 3", 9},
        {"7 / 2", 3},
        {"7.5 / 2", 3.75},
        {"-7 / 2", -4},
        {"7 % 4", 3},
        {"2 - 1 - 1", 0},
        {"!0 && !!3", 1},
        {"- - 2", 2},
        {"1 < 2 && 2 < 3 || 0", 1},
        {"0 && 1 / 0", 0},
        {"1 || 1 / 0", 1},
        {"1 || x.size(5)", 1},
        {"max(vec, unroll) == 8 && min(vec, unroll) == 2", 1},
        {"a > 1.25", 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double got = number_of(rows[i].text);
        if (got != rows[i].value) fail_msg("'%s' gives %g", rows[i].text, got);
    }
}

static int open_device(void **state)
{
    (void)state;
    must(eider_context_create(NULL, &ctx));
    must(eider_device_open(ctx, "cpu", &device));
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    eider_device_release(device);
    eider_context_destroy(ctx);
    return 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_call, close_call)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_form_of_a_trigger_has_its_value),
        TEST(a_tensor_without_memory_has_everything_but_an_address),
        TEST(a_whole_operand_absorbs_its_properties),
        TEST(without_triggers_sizes_are_bucketed),
        TEST(functions_of_the_call_are_triggers),
        TEST(malformed_triggers_are_named_with_their_column),
        TEST(the_order_of_triggers_does_not_change_the_key),
        TEST(what_the_code_depends_on_is_in_the_key),
        TEST(what_the_device_is_is_in_the_key),
        TEST(kernels_of_one_name_are_told_apart),
        TEST(what_it_does_not_depend_on_is_not),
        TEST(a_scalar_is_a_trigger_by_value),
        TEST(conditions_compute_what_c_would),
    };
    return cmocka_run_group_tests_name("trigger", tests, open_device, close_device);
}
