/* test_goldens.c -- golden values through compiled kernels, forward and backward, in every
 * mode, against the bounds that NUMERICS.md publishes.
 *
 * The goldens are independent of eider; so this sees an error that evaluator and kernels share.
 * On a GPU too where there is one.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "passes.h"
#include "support_map.h"
#include "support_runtime.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define ROWS_MAX 320

static eider_context *ctx;
static eider_device *cpu, *gpu;

static const char *const modes[] = {"approx", "fast", "exact"};
#define N_MODES 3

/* ---- What NUMERICS.md publishes ------------------------------------------- */

/* Of one result in one mode: ulp where the value is normal, ulp where it is subnormal, and
 * absolute where it is at most 1. */
struct bound {
    double ulp, tiny, absolute;
};

static struct {
    char function[24], result[8], type[8];
    int is_gpu;
    struct bound of[N_MODES];
} published[1024];
static size_t n_published;

/* "| `name` | `result` | ulp | at | subnormal | absolute | ... |", four columns a mode. */
static void read_row(char *line, const char *type, int is_gpu)
{
    char *cells[32];
    size_t n = 0;
    for (char *at = line; n < COUNT(cells) && (at = strchr(at, '|'));) {
        *at++ = '\0';
        cells[n++] = at;
    }
    if (n != 2 + 4 * N_MODES + 2 || cells[0][1] != '`') return;
    assert_true(n_published < COUNT(published));
    sscanf(cells[0], " `%23[^`]`", published[n_published].function);
    sscanf(cells[1], " `%7[^`]`", published[n_published].result);
    snprintf(published[n_published].type, sizeof published[0].type, "%s", type);
    published[n_published].is_gpu = is_gpu;
    for (size_t m = 0; m < N_MODES; m++) {
        char **of = cells + 2 + 4 * m;
        published[n_published].of[m] =
            (struct bound){strtod(of[0], NULL), strtod(of[2], NULL), strtod(of[3], NULL)};
    }
    n_published++;
}

static FILE *open_data(const char *name)
{
    const char *folder = getenv("EIDER_TEST_DATA");
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder ? folder : EIDER_TEST_DATA, name);
    return fopen(path, "r");
}

static void read_published(void)
{
    FILE *file = open_data("NUMERICS.md"); /* in a bundle */
    if (!file) file = open_data("../docs/NUMERICS.md");
    if (!file) fail_msg("NUMERICS.md is not there");
    char line[2048], type[8] = "";
    int is_gpu = 0;
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, "### ", 4) == 0) is_gpu = strncmp(line, "### GPU", 7) == 0;
        if (strstr(line, " on ") && line[0] != '|') sscanf(line, "%7s", type);
        if (line[0] == '|') read_row(line, type, is_gpu);
    }
    fclose(file);
}

static const struct bound *bound_of(const char *function, const char *result, eider_dtype type,
                                    int mode, int is_gpu)
{
    for (size_t i = 0; i < n_published; i++)
        if (published[i].is_gpu == is_gpu && strcmp(published[i].function, function) == 0 &&
            strcmp(published[i].result, result) == 0 &&
            strcmp(published[i].type, eider_dtype_name(type)) == 0)
            return &published[i].of[mode];
    fail_msg("NUMERICS.md has no bound for %s of %s in %s", result, function,
             eider_dtype_name(type));
    return NULL;
}

/* ---- Goldens ---------------------------------------------------------------- */

/* The rows of one function: inputs x, y, dout and results out, dx, dy. */
static struct golden_function {
    char name[24]; /* as in the file */
    int is_gated;
    size_t n;
    double in[3][ROWS_MAX], want[3][ROWS_MAX];
} functions[16];
static size_t n_functions;

static struct golden_function *function_of(const char *name, int is_gated)
{
    struct golden_function *f = &functions[n_functions - (n_functions > 0)];
    if (n_functions == 0 || strcmp(f->name, name) != 0) {
        assert_true(n_functions < COUNT(functions));
        f = &functions[n_functions++];
        snprintf(f->name, sizeof f->name, "%s", name);
        f->is_gated = is_gated;
    }
    assert_true(f->n < ROWS_MAX);
    return f;
}

static void read_goldens(const char *name, int is_gated)
{
    char line[512], word[7][64];
    FILE *file = open_data(name);
    if (!file) fail_msg("%s is not there", name);
    while (fgets(line, sizeof line, file)) {
        int n = sscanf(line, "%63s %63s %63s %63s %63s %63s %63s", word[0], word[1], word[2],
                       word[3], word[4], word[5], word[6]);
        if (n < (is_gated ? 7 : 4) || strcmp(word[0], "name") == 0) continue;
        struct golden_function *f = function_of(word[0], is_gated);
        size_t row = f->n++;
        for (int i = 0; i < (is_gated ? 3 : 1); i++) f->in[i][row] = strtod(word[1 + i], NULL);
        if (!is_gated) f->in[2][row] = 1;
        for (int i = 0; i < (is_gated ? 3 : 2); i++)
            f->want[i][row] = strtod(word[(is_gated ? 4 : 2) + i], NULL);
    }
    fclose(file);
}

static int set_up(void **state)
{
    (void)state;
    read_published();
    read_goldens("goldens/unary.tsv", 0);
    read_goldens("goldens/gated.tsv", 1);
    must(eider_context_create(NULL, &ctx));
    must(eider_device_open(ctx, "cpu", &cpu));
    if (eider_device_open(ctx, "cuda:0", &gpu) != EIDER_OK) gpu = NULL;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    eider_device_release(gpu);
    eider_device_release(cpu);
    eider_context_destroy(ctx);
    return 0;
}

/* ---- Running -------------------------------------------------------------------- */

/* A program on the rows whose inputs a type has exactly. */
struct run {
    const struct golden_function *f;
    eider_dtype type;
    size_t n, row[ROWS_MAX];
    double got[3][ROWS_MAX]; /* by output of the program */
};

static void select_rows(struct run *run)
{
    const struct golden_function *f = run->f;
    run->n = 0;
    for (size_t i = 0; i < f->n; i++) {
        int is_exact = 1;
        for (int k = 0; k < 3; k++)
            is_exact &=
                isnan(f->in[k][i]) || eider_round_to(f->in[k][i], run->type, 0) == f->in[k][i];
        if (is_exact) run->row[run->n++] = i;
    }
}

static size_t bind(struct run *run, eider_device *device, const eider_program *program,
                   const int64_t *shape, eider_tensor *args)
{
    static double host[ROWS_MAX];
    size_t n_args = eider_program_operands(program);
    for (size_t a = 0; a < n_args; a++) {
        eider_operand operand;
        must(eider_program_operand(program, a, &operand));
        args[a] = tensor_of(NULL, run->type, 1, shape);
        must(eider_memory_alloc(device, sizeof host, &args[a].data));
        if (operand.kind != EIDER_INPUT) continue;
        const double *in = run->f->in[strcmp(operand.name, "x") == 0   ? 0
                                      : strcmp(operand.name, "y") == 0 ? 1
                                                                       : 2];
        for (size_t i = 0; i < run->n; i++) map_put(run->type, host, (int64_t)i, in[run->row[i]]);
        must(eider_memory_copy(device, NULL, args[a].data, host,
                               run->n * eider_dtype_size(run->type), EIDER_HOST_TO_DEVICE));
    }
    return n_args;
}

static void run_program(struct run *run, eider_device *device, const char *text, eider_math math)
{
    static double host[ROWS_MAX];
    eider_program *program;
    eider_kernel *kernel;
    eider_tensor args[8];
    int64_t n = (int64_t)run->n;
    must(eider_program_parse(ctx, text, &program));
    size_t n_args = bind(run, device, program, &n, args), n_out = 0;
    eider_request request = {
        .program = program, .args = args, .n_args = n_args, .numerics = {.math = math}};
    must(eider_prepare(device, &request, &kernel));
    must(eider_launch(kernel, NULL, args, n_args));
    for (size_t a = 0; a < n_args; a++) {
        eider_operand operand;
        must(eider_program_operand(program, a, &operand));
        if (operand.kind == EIDER_OUTPUT) {
            must(eider_memory_copy(device, NULL, host, args[a].data,
                                   run->n * eider_dtype_size(run->type), EIDER_DEVICE_TO_HOST));
            for (size_t i = 0; i < run->n; i++)
                run->got[n_out][i] = map_get(run->type, host, (int64_t)i);
            n_out++;
        }
        eider_memory_free(device, args[a].data);
    }
    eider_kernel_release(kernel);
    eider_program_release(program);
}

/* ---- Comparing -------------------------------------------------------------------- */

static double ulp_of(eider_dtype type, double v)
{
    int p = type == EIDER_F32 ? 24 : type == EIDER_F16 ? 11 : 8, m = type == EIDER_F16 ? -14 : -126;
    int exponent = v == 0 ? m : ilogb(v);
    return ldexp(1, (exponent > m ? exponent : m) - (p - 1));
}

/* The bounds have three digits. */
static int agrees(eider_dtype type, double got, double want, const struct bound *bound)
{
    const double slack = 1.005;
    double rounded = eider_round_to(want, type, 0), unit = ulp_of(type, want);
    if (isnan(want) || isnan(got)) return isnan(want) && isnan(got);
    if (isinf(rounded) || isinf(got))
        return got == rounded || (!isinf(want) && fabs(got - want) <= 1.5 * unit);
    double error = fabs(got - want), least = type == EIDER_F16 ? 0x1p-14 : 0x1p-126;
    double allowed = (fabs(want) < least ? bound->tiny : bound->ulp) * unit;
    if (fabs(want) <= 1) allowed = fmax(allowed, bound->absolute);
    return error <= slack * allowed;
}

static int check_result(const struct run *run, const char *function, const char *result, int mode,
                        int is_gpu, const double *got, const double *want)
{
    const struct bound *bound = bound_of(function, result, run->type, mode, is_gpu);
    int bad = 0;
    for (size_t i = 0; i < run->n; i++) {
        size_t row = run->row[i];
        if (agrees(run->type, got[i], want[row], bound)) continue;
        if (bad++ < 3)
            print_error("%s of %s in %s, %s: x=%a y=%a dout=%a: %.9g, want %.9g: %.3g ulp\n",
                        result, run->f->name, eider_dtype_name(run->type), modes[mode],
                        run->f->in[0][row], run->f->in[1][row], run->f->in[2][row], got[i],
                        want[row], fabs(got[i] - want[row]) / ulp_of(run->type, want[row]));
    }
    return bad;
}

/* Both programs of a function: the value alone, and gradients with the value. */
static int check_function(struct run *run, eider_device *device, int mode)
{
    const struct golden_function *f = run->f;
    char name[24], backward[32], text[128];
    int is_gpu = device == gpu, bad = 0;
    snprintf(name, sizeof name, "%s", f->name);
    char *limit = strstr(name, "_limit7");
    if (limit) *limit = '\0';
    snprintf(backward, sizeof backward, "d%s", name);
    const char *more = limit ? ", limit=7" : "", *tensors = f->is_gated ? "x, y" : "x";
    eider_math math = (eider_math)(EIDER_MATH_APPROX + mode);

    snprintf(text, sizeof text, "out = %s(%s%s)", name, tensors, more);
    run_program(run, device, text, math);
    bad += check_result(run, name, "out", mode, is_gpu, run->got[0], f->want[0]);

    snprintf(text, sizeof text, "in %s, dout; %s, out = %s(%s, dout%s)", tensors,
             f->is_gated ? "dx, dy" : "dx", backward, tensors, more);
    run_program(run, device, text, math);
    bad += check_result(run, backward, "dx", mode, is_gpu, run->got[0], f->want[1]);
    if (f->is_gated)
        bad += check_result(run, backward, "dy", mode, is_gpu, run->got[1], f->want[2]);
    return bad + check_result(run, backward, "out", mode, is_gpu, run->got[f->is_gated ? 2 : 1],
                              f->want[0]);
}

static void check_device(eider_device *device)
{
    static const eider_dtype types[] = {EIDER_F32, EIDER_F16, EIDER_BF16};
    static struct run run;
    int bad = 0;
    assert_int_equal(n_functions, 15);
    for (size_t t = 0; t < COUNT(types); t++) {
        for (size_t i = 0; i < n_functions; i++) {
            run.f = &functions[i];
            run.type = types[t];
            select_rows(&run);
            assert_true(run.n >= (types[t] == EIDER_F32 ? 250u : 5u));
            for (int mode = 0; mode < N_MODES; mode++) bad += check_function(&run, device, mode);
        }
    }
    assert_int_equal(bad, 0);
}

static void goldens_pass_within_the_published_bounds(void **state)
{
    (void)state;
    check_device(cpu);
}

static void goldens_pass_on_a_gpu_within_the_published_bounds(void **state)
{
    (void)state;
    int is_published = 0;
    for (size_t i = 0; i < n_published; i++) is_published |= published[i].is_gpu;
    if (!gpu || !is_published) {
        fprintf(stderr, "SKIPPED (no GPU%s)\n", gpu ? "'s bounds in NUMERICS.md" : "");
        skip();
    }
    check_device(gpu);
}

/* ---- Exact ---------------------------------------------------------------------------- */

static double exact_at(eider_device *device, const char *text, float x)
{
    eider_program *program;
    eider_kernel *kernel;
    int64_t n = 1;
    float out;
    eider_tensor args[] = {tensor_of(NULL, EIDER_F32, 1, &n), tensor_of(NULL, EIDER_F32, 1, &n)};
    must(eider_program_parse(ctx, text, &program));
    for (int i = 0; i < 2; i++) must(eider_memory_alloc(device, sizeof x, &args[i].data));
    must(eider_memory_copy(device, NULL, args[0].data, &x, sizeof x, EIDER_HOST_TO_DEVICE));
    eider_request request = {
        .program = program, .args = args, .n_args = 2, .numerics = {.math = EIDER_MATH_EXACT}};
    must(eider_prepare(device, &request, &kernel));
    must(eider_launch(kernel, NULL, args, 2));
    must(eider_memory_copy(device, NULL, &out, args[1].data, sizeof out, EIDER_DEVICE_TO_HOST));
    for (int i = 0; i < 2; i++) eider_memory_free(device, args[i].data);
    eider_kernel_release(kernel);
    eider_program_release(program);
    return (double)out;
}

/* Two values where textbook formulas in f32 have lost every digit. */
static void exact_keeps_its_tails(void **state)
{
    (void)state;
    eider_device *const devices[] = {cpu, gpu};
    for (size_t i = 0; i < COUNT(devices) && devices[i]; i++) {
        double gelu = exact_at(devices[i], "out = gelu_tanh(x)", -6);
        double silu = exact_at(devices[i], "out = silu(x)", -87.5f);
        assert_true(fabs(gelu - -8.4396e-11) < 1e-15);
        assert_true(fabs(silu - -8.73456e-37) < 1e-41);
    }
}

/* All that is published for exact in f32 is within 2 ulp, and within half of one in 16 bits. */
static void exact_is_published_within_two_ulp(void **state)
{
    (void)state;
    int n = 0;
    for (size_t i = 0; i < n_published; i++) {
        const struct bound *exact = &published[i].of[N_MODES - 1];
        double most = strcmp(published[i].type, "f32") == 0 ? 2 : 0.51;
        if (exact->ulp > most || exact->tiny > most)
            fail_msg("%s of %s in %s: %g ulp, %g where subnormal", published[i].result,
                     published[i].function, published[i].type, exact->ulp, exact->tiny);
        n++;
    }
    assert_true(n >= 3 * 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_is_published_within_two_ulp),
        cmocka_unit_test(exact_keeps_its_tails),
        cmocka_unit_test(goldens_pass_within_the_published_bounds),
        cmocka_unit_test(goldens_pass_on_a_gpu_within_the_published_bounds),
    };
    return cmocka_run_group_tests_name("goldens", tests, set_up, tear_down);
}
