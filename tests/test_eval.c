/* test_eval.c -- the double-precision reference: primitives, rounding, golden values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parse.h"
#include "passes.h"

static const eider_allocator heap;

static void eval(const char *text, const double *in, double *out)
{
    eider_allocator a = eider_memory_default(heap);
    struct eider_graph *g = NULL;
    if (eider_parse(&a, text, &g) != EIDER_OK) fail_msg("%s: %s", text, eider_error());
    assert_int_equal(eider_eval(g, in, out), EIDER_OK);
    eider_graph_destroy(g);
}

/* ---- Goldens -------------------------------------------------------------- */

/* In double the text of an activation is within 1e-12 of the exact value; what the file
 * cannot write (tiny values) is a zero there and a subnormal or zero here. */
static int agrees(double got, double want, double unit)
{
    if (isnan(want)) return isnan(got);
    if (isinf(want)) return got == want;
    double scale = fabs(want) > unit ? fabs(want) : unit;
    return fabs(got - want) <= 1e-12 * scale + 0x1p-1060;
}

/* Rows whose f is the difference of larger terms near a zero of the gradient. */
static double gradient_unit(const char *name, double x)
{
    static const char *const names[] = {"silu", "quick_gelu", "gelu_tanh", "gelu_erf"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0 && x >= -2 && x <= 0) return 0.25;
    return 0;
}

static FILE *open_goldens(const char *name)
{
    const char *folder = getenv("EIDER_TEST_DATA");
    char path[1024];
    snprintf(path, sizeof path, "%s/goldens/%s", folder ? folder : EIDER_TEST_DATA, name);
    FILE *file = fopen(path, "r");
    if (!file) fail_msg("%s cannot be read", path);
    return file;
}

static void unary_goldens_agree(void **state)
{
    (void)state;
    FILE *file = open_goldens("unary.tsv");
    char line[512], name[32], x_text[64], f_text[64], d_text[64], text[128];
    int rows = 0, bad = 0;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%31s %63s %63s %63s", name, x_text, f_text, d_text) != 4) continue;
        if (strcmp(name, "name") == 0) continue;
        double in[2] = {strtod(x_text, NULL), 1}, forward, back[2];
        double f = strtod(f_text, NULL), d = strtod(d_text, NULL);
        snprintf(text, sizeof text, "f = %s(x)", name);
        eval(text, in, &forward);
        snprintf(text, sizeof text, "in x, dout; dx, f = d%s(x, dout)", name);
        eval(text, in, back);
        int ok = agrees(forward, f, 0) && agrees(back[1], f, 0) &&
                 agrees(back[0], d, gradient_unit(name, in[0]));
        if (!ok && bad++ < 30)
            print_error("%s(%s): %.17g %.17g, want %s; %.17g, want %s\n", name, x_text, forward,
                        back[1], f_text, back[0], d_text);
        rows++;
    }
    fclose(file);
    assert_int_equal(rows, 9 * 303);
    assert_int_equal(bad, 0);
}

static void gated_goldens_agree(void **state)
{
    (void)state;
    FILE *file = open_goldens("gated.tsv");
    char line[512], name[32], field[6][64], text[128];
    int rows = 0, bad = 0;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%31s %63s %63s %63s %63s %63s %63s", name, field[0], field[1], field[2],
                   field[3], field[4], field[5]) != 7 ||
            strcmp(name, "name") == 0)
            continue;
        double v[6], forward, back[3];
        for (int i = 0; i < 6; i++) v[i] = strtod(field[i], NULL);
        char *limit7 = strstr(name, "_limit7");
        if (limit7) *limit7 = '\0';
        const char *more = limit7 ? ", limit=7" : "";
        snprintf(text, sizeof text, "out = %s(x, y%s)", name, more);
        eval(text, v, &forward);
        snprintf(text, sizeof text, "in x, y, dout; dx, dy, f = d%s(x, y, dout%s)", name, more);
        eval(text, v, back);
        double unit = fabs(v[2]) * (fabs(v[1]) + 1) * 0.25;
        int ok = agrees(forward, v[3], 0) && agrees(back[2], v[3], 0) &&
                 agrees(back[0], v[4], v[0] >= -2 && v[0] <= 0 ? unit : 0) &&
                 agrees(back[1], v[5], 0);
        if (!ok && bad++ < 30)
            print_error(
                "%s%s(%s, %s, %s): %.17g %.17g want %s; dx %.17g want %s; dy %.17g want %s\n", name,
                more, field[0], field[1], field[2], forward, back[2], field[3], back[0], field[4],
                back[1], field[5]);
        rows++;
    }
    fclose(file);
    assert_int_equal(rows, 6 * 250);
    assert_int_equal(bad, 0);
}

/* ---- Primitives ----------------------------------------------------------- */

static void assert_same(const char *text, double got, double want)
{
    if (isnan(want) ? !isnan(got) : got != want || signbit(got) != signbit(want))
        fail_msg("%s: %.17g, not %.17g", text, got, want);
}

static const struct {
    const char *text;
    double x, y, want;
} primitives[] = {
    {"o = x + y", 2, 3, 5},
    {"o = x - y", 2, 3, -1},
    {"o = x * y", 2, 3, 6},
    {"o = x / y", 3, 2, 1.5},
    {"o = -x", 0, 0, -0.0},
    {"o = abs(x)", -2, 0, 2},
    {"o = fma(x, x, y)", 1 + 0x1p-30, -1, 0x1p-29 + 0x1p-60},
    {"o = max(x, y)", NAN, 1, NAN},
    {"o = max(x, y)", 1, NAN, NAN},
    {"o = max(x, y)", -0.0, 0, 0},
    {"o = max(x, y)", 0, -0.0, 0},
    {"o = max(x, y)", -2, -3, -2},
    {"o = min(x, y)", NAN, 1, NAN},
    {"o = min(x, y)", 1, NAN, NAN},
    {"o = min(x, y)", 0, -0.0, -0.0},
    {"o = min(x, y)", -2, -3, -3},
    {"o = fmax(x, y)", NAN, 1, 1},
    {"o = fmax(x, y)", 1, NAN, 1},
    {"o = fmax(x, y)", 2, 1, 2},
    {"o = fmin(x, y)", NAN, 1, 1},
    {"o = fmin(x, y)", 1, NAN, 1},
    {"o = fmin(x, y)", 2, 1, 1},
    {"o = copysign(x, y)", 2, -0.0, -2},
    {"o = sign(x)", -7, 0, -1},
    {"o = sign(x)", 7, 0, 1},
    {"o = sign(x)", 0, 0, 0},
    {"o = sign(x)", NAN, 0, NAN},
    {"o = floor(x)", -1.5, 0, -2},
    {"o = ceil(x)", -1.5, 0, -1},
    {"o = trunc(x)", -1.5, 0, -1},
    {"o = round(x)", 2.5, 0, 2},
    {"o = round(x)", 3.5, 0, 4},
    {"o = sqrt(x)", 2.25, 0, 1.5},
    {"o = rsqrt(x)", 0.25, 0, 2},
    {"o = rcp(x)", -0.25, 0, -4},
    {"o = exp(x)", 0, 0, 1},
    {"o = exp2(x)", -3, 0, 0.125},
    {"o = expm1(x)", 1e-300, 0, 1e-300},
    {"o = log(x)", 1, 0, 0},
    {"o = log2(x)", 0.125, 0, -3},
    {"o = log1p(x)", 1e-300, 0, 1e-300},
    {"o = pow(x, y)", -2, 3, -8},
    {"o = x ** y", NAN, 0, 1},
    {"o = sin(x)", 0x1p-600, 0, 0x1p-600},
    {"o = cos(x)", 0, 0, 1},
    {"o = tanh(x)", INFINITY, 0, 1},
    {"o = sigmoid(x)", 0, 0, 0.5},
    {"o = sigmoid(x)", -INFINITY, 0, 0},
    {"o = sigmoid(x)", INFINITY, 0, 1},
    {"o = erf(x)", INFINITY, 0, 1},
    {"o = erfc(x)", -INFINITY, 0, 2},
    {"o = normcdf(x)", 0, 0, 0.5},
    {"o = x == y", NAN, NAN, 0},
    {"o = x != y", NAN, NAN, 1},
    {"o = x < y", 1, 1, 0},
    {"o = x <= y", 1, 1, 1},
    {"o = x > y", 2, 1, 1},
    {"o = x >= y", NAN, 1, 0},
    {"o = x > 0 and y > 0", 1, -1, 0},
    {"o = x > 0 or y > 0", 1, -1, 1},
    {"o = not x > y", 1, -1, 0},
    {"o = isnan(x)", NAN, 0, 1},
    {"o = select(x > 0, x, y)", -1, 7, 7},
    {"o = select(x > 0, x, y)", 1, NAN, 1},
};

static void primitives_mean_what_the_table_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof primitives / sizeof *primitives; i++) {
        double in[2] = {primitives[i].x, primitives[i].y}, out;
        eval(primitives[i].text, in, &out);
        assert_same(primitives[i].text, out, primitives[i].want);
    }
}

static void sigmoid_and_normcdf_keep_their_tails(void **state)
{
    (void)state;
    double x = -700, out;
    eval("o = sigmoid(x)", &x, &out);
    assert_true(fabs(out / exp(-700) - 1) < 1e-15);
    x = -20;
    eval("o = normcdf(x)", &x, &out);
    assert_true(fabs(out / 2.7536241186062337e-89 - 1) < 1e-13);
}

/* ---- Rounding ------------------------------------------------------------- */

static void rounding_is_to_nearest_even_in_one_step(void **state)
{
    (void)state;
    static const struct {
        double value;
        eider_dtype type;
        double want;
    } cases[] = {
        {1.005859375, EIDER_BF16, 1.0078125},
        {1.00390625, EIDER_BF16, 1.0},
        {1.01171875, EIDER_BF16, 1.015625},
        {0x1.fep127, EIDER_BF16, 0x1.fep127},
        {0x1.ffp127, EIDER_BF16, INFINITY},       /* a tie with 2^128 */
        {0x1.fefffep127, EIDER_BF16, 0x1.fep127}, /* just below it */
        {-INFINITY, EIDER_BF16, -INFINITY},
        {0x1p-134, EIDER_BF16, 0}, /* half the smallest subnormal */
        {0x1.8p-134, EIDER_BF16, 0x1p-133},
        {0x1.8p-133, EIDER_BF16, 0x1p-132},
        {65504, EIDER_F16, 65504},
        {65519.99, EIDER_F16, 65504},
        {65520, EIDER_F16, INFINITY},
        {0x1p-25, EIDER_F16, 0},
        {-0x1.000002p-25, EIDER_F16, -0x1p-24},
        {1 + 0x1p-11 + 0x1p-40, EIDER_F16, 1 + 0x1p-10}, /* through f32 it would be 1 */
        {0x1.fffffefp127, EIDER_F32, 0x1.fffffep127},
        {0x1.ffffffp127, EIDER_F32, INFINITY},
        {0x1p-150, EIDER_F32, 0},
        {0x1.8p-150, EIDER_F32, 0x1p-149},
        {0x1.4p-148, EIDER_F32, 0x1p-148},
        {0.1, EIDER_F32, 0.1f},
        {0.1, EIDER_F64, 0.1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *name = eider_dtype_name(cases[i].type);
        for (int saturate = 0; saturate < 2; saturate++)
            assert_same(name, eider_round_to(cases[i].value, cases[i].type, saturate),
                        cases[i].want);
    }
    for (int type = EIDER_F32; type <= EIDER_E5M2; type++) {
        assert_true(isnan(eider_round_to(NAN, (eider_dtype)type, 1)));
        assert_true(signbit(eider_round_to(-0.0, (eider_dtype)type, 1)));
    }
}

static void fp8_saturates_or_does_not(void **state)
{
    (void)state;
    static const struct {
        eider_dtype type;
        double value, saturated, open;
    } cases[] = {
        {EIDER_E4M3, 448, 448, 448},
        {EIDER_E4M3, 449, 448, 448},
        {EIDER_E4M3, 463.99, 448, 448},
        {EIDER_E4M3, 464, 448, 448},
        {EIDER_E4M3, 0x1.d00002p8, 448, NAN},
        {EIDER_E4M3, 465, 448, NAN},
        {EIDER_E4M3, -1000, -448, NAN},
        {EIDER_E4M3, INFINITY, 448, NAN},
        {EIDER_E4M3, NAN, NAN, NAN},
        {EIDER_E4M3, -0.0, -0.0, -0.0},
        {EIDER_E4M3, 0x1p-10, 0, 0},
        {EIDER_E4M3, 0x1.000002p-10, 0x1p-9, 0x1p-9},
        {EIDER_E4M3, 0x1.8p-9, 0x1p-8, 0x1p-8},
        {EIDER_E4M3, 0.016605615615844727, 0.017578125, 0.017578125},
        {EIDER_E5M2, 57344, 57344, 57344},
        {EIDER_E5M2, 61439.99, 57344, 57344},
        {EIDER_E5M2, 61440, 57344, INFINITY},
        {EIDER_E5M2, -1e9, -57344, -INFINITY},
        {EIDER_E5M2, INFINITY, 57344, INFINITY},
        {EIDER_E5M2, NAN, NAN, NAN},
        {EIDER_E5M2, 0x1p-17, 0, 0},
        {EIDER_E5M2, 0x1.8p-17, 0x1p-16, 0x1p-16},
        {EIDER_E5M2, 1.125, 1, 1},
        {EIDER_E5M2, 1.375, 1.5, 1.5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *name = eider_dtype_name(cases[i].type);
        assert_same(name, eider_round_to(cases[i].value, cases[i].type, 1), cases[i].saturated);
        assert_same(name, eider_round_to(cases[i].value, cases[i].type, 0), cases[i].open);
    }
}

static void every_value_of_a_small_type_is_itself(void **state)
{
    (void)state;
    for (int exponent = -16; exponent <= 15; exponent++)
        for (int m = 0; m < 4; m++) {
            double value = exponent == -15 ? 0 : ldexp(4 + m, exponent - 2);
            if (exponent < -14) value = ldexp(m, -16);
            assert_true(eider_round_to(value, EIDER_E5M2, 0) == value);
        }
    for (int bits = 0; bits < 0x7f80; bits++) {
        uint32_t wide = (uint32_t)bits << 16;
        float value;
        memcpy(&value, &wide, sizeof value);
        assert_true(eider_round_to((double)value, EIDER_BF16, 0) == (double)value);
    }
}

static void integers_truncate_and_saturate(void **state)
{
    (void)state;
    assert_same("i32", eider_round_to(-2.75, EIDER_I32, 0), -2);
    assert_same("i32", eider_round_to(1e10, EIDER_I32, 0), 2147483647);
    assert_same("i32", eider_round_to(-INFINITY, EIDER_I32, 0), -2147483648.0);
    assert_same("i32", eider_round_to(NAN, EIDER_I32, 0), 0);
    assert_same("i64", eider_round_to(3e9, EIDER_I64, 0), 3e9);
    assert_same("bool", eider_round_to(-0.5, EIDER_BOOL, 0), 1);
    assert_same("bool", eider_round_to(-0.0, EIDER_BOOL, 0), 0);
}

static void several_operands_go_by_order(void **state)
{
    (void)state;
    double in[3] = {2, 3, 5}, out[2];
    eval("scalar a; in y, x; p = x - y; q = a * x", in, out);
    assert_true(out[0] == 2 && out[1] == 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unary_goldens_agree),
        cmocka_unit_test(gated_goldens_agree),
        cmocka_unit_test(primitives_mean_what_the_table_says),
        cmocka_unit_test(sigmoid_and_normcdf_keep_their_tails),
        cmocka_unit_test(rounding_is_to_nearest_even_in_one_step),
        cmocka_unit_test(fp8_saturates_or_does_not),
        cmocka_unit_test(every_value_of_a_small_type_is_itself),
        cmocka_unit_test(integers_truncate_and_saturate),
        cmocka_unit_test(several_operands_go_by_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
