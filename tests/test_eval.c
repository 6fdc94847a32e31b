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

static double eval1(const char *text, double x)
{
    double out;
    eval(text, &x, &out);
    return out;
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

int main(void)
{
    (void)eval1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unary_goldens_agree),
        cmocka_unit_test(gated_goldens_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
