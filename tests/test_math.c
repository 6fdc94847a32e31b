/* test_math.c -- transcendental functions stay within their bounds, at every input class.
 *
 * The GPU's math runs here too: its f64 is arithmetic, and its f32 is arithmetic over a few
 * instructions that support_lower.c replaces by correctly rounded ones.  On a GPU those
 * instructions add their own error, of 1 or 2 ulp each.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ops.h"
#include "support_lower.h"

#define N_SWEEP 2048
#define N_SPECIAL 64

enum variant { GPU_F64, GPU_F32, CPU_F64, CPU_F32, GPU_EXACT_F32, GPU_APPROX_F32, N_VARIANTS };

static const struct {
    const char *name;
    int on_gpu, is_double;
    eider_math math;
} variants[N_VARIANTS] = {
    [GPU_F64] = {"gpu f64", 1, 1, EIDER_MATH_FAST},
    [GPU_F32] = {"gpu f32 fast", 1, 0, EIDER_MATH_FAST},
    [CPU_F64] = {"cpu f64", 0, 1, EIDER_MATH_FAST},
    [CPU_F32] = {"cpu f32 fast", 0, 0, EIDER_MATH_FAST},
    [GPU_EXACT_F32] = {"gpu f32 exact", 1, 0, EIDER_MATH_EXACT},
    [GPU_APPROX_F32] = {"gpu f32 approx", 1, 0, EIDER_MATH_APPROX},
};

/* ---- References in x87 precision -------------------------------------------------- */

static long double ref_sigmoid(long double x)
{
    return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x));
}

static long double ref_normcdf(long double x)
{
    return erfcl(-x * 0.707106781186547524400844362104849039L) / 2;
}

static long double ref_rsqrt(long double x)
{
    return 1 / sqrtl(x);
}

static long double ref_rcp(long double x)
{
    return 1 / x;
}

struct range {
    double low, high;
    int is_geometric;
};

/* Bounds in ulp per variant: what was measured, rounded up; 0 where a variant never has the
 * operation, and in approx where it has no code of its own. */
static const struct function {
    enum eider_op op;
    long double (*reference)(long double);
    struct range ranges[3];
    double bounds[N_VARIANTS];
} functions[] = {
    {EIDER_OP_exp, expl, {{-800, 720, 0}, {-110, 90, 0}, {-1, 1, 0}}, {1, 1, 1, 1, 0.51}},
    {EIDER_OP_exp2, exp2l, {{-1080, 1030, 0}, {-150, 129, 0}, {-1, 1, 0}}, {1, 1, 1, 1, 0.51}},
    {EIDER_OP_expm1,
     expm1l,
     {{-110, 90, 0}, {-2, 2, 0}, {1e-300, 1, 1}},
     {2, 1.5, 1, 1.5, 0.51, 150}},
    {EIDER_OP_log, logl, {{1e-320, 1e308, 1}, {0.5, 2, 0}, {1e-45, 1e38, 1}}, {1, 1, 1, 1, 0.51}},
    {EIDER_OP_log2, log2l, {{1e-320, 1e308, 1}, {0.5, 2, 0}, {1e-45, 1e38, 1}}, {2, 2, 1, 1, 0.51}},
    {EIDER_OP_log1p,
     log1pl,
     {{-1, 2, 0}, {1e-320, 1e308, 1}, {1e-45, 1e38, 1}},
     {1.5, 1.5, 1.01, 1.01, 0.51, 150}},
    {EIDER_OP_sin, sinl, {{-10, 10, 0}, {1, 1e6, 1}, {1e-300, 1, 1}}, {2, 2, 1, 1, 0.51}},
    {EIDER_OP_cos, cosl, {{-10, 10, 0}, {1, 1e6, 1}, {1e-300, 1, 1}}, {2, 2, 1, 1, 0.51}},
    {EIDER_OP_tanh, tanhl, {{-20, 20, 0}, {-1, 1, 0}, {1e-310, 30, 1}}, {3, 2, 1.01, 3.5, 0.51}},
    {EIDER_OP_sigmoid,
     ref_sigmoid,
     {{-750, 750, 0}, {-100, 100, 0}, {-3, 3, 0}},
     {3, 3, 3, 3, 0.51}},
    {EIDER_OP_erf, erfl, {{-6, 6, 0}, {-1, 1, 0}, {1e-310, 10, 1}}, {2, 2, 1.01, 2, 0.51}},
    {EIDER_OP_erfc, erfcl, {{-6, 28, 0}, {-3, 10.1, 0}, {-1, 1, 0}}, {5, 5, 1.5, 5, 0.51}},
    {EIDER_OP_normcdf, ref_normcdf, {{-38.5, 8, 0}, {-14, 4, 0}, {-1, 1, 0}}, {6, 5, 4, 5, 0.51}},
    {EIDER_OP_m_log1p, log1pl, {{0, 1, 0}, {1e-45, 1, 1}, {0.5, 1, 0}}, {0, 1.5, 0, 1.01, 0}},
    {EIDER_OP_rsqrt,
     ref_rsqrt,
     {{1e-320, 1e308, 1}, {0.5, 2, 0}, {1e-45, 1e38, 1}},
     {2, 2, 2, 2, 0.51}},
    {EIDER_OP_rcp,
     ref_rcp,
     {{1e-320, 1e308, 1}, {0.5, 2, 0}, {1e-45, 1e38, 1}},
     {0.51, 0.51, 0.51, 0.51, 0.51}},
};

/* Special values and the edges of ranges; a value may overflow to infinity in f32. */
static const double specials[] = {
    0.0,
    -0.0,
    1,
    -1,
    2,
    -2,
    0.5,
    -0.5,
    3,
    -3,
    7.5,
    -7.5,
    0x1p-149,
    -0x1p-149,
    0x1p-126,
    -0x1p-126,
    0x1p-127,
    1e30,
    -1e30,
    1e-30,
    -1e-30,
    0x1.fffffep127,
    -0x1.fffffep127,
    88.7228,
    88.7229,
    -87.33,
    -103.97,
    -103.98,
    127.99,
    128,
    -149,
    -150,
    10.05,
    10.06,
    -14.2,
    709.78,
    709.79,
    -745.1,
    -745.2,
    0x1p-1074,
    -0x1p-1074,
    0x1p-1022,
    0x1.fffffffffffffp1023,
    -0x1.fffffffffffffp1023,
    27.2,
    27.3,
    -38.4,
    0.6,
    0.75,
    0.8,
    0x1p-60,
    -0x1p-60,
    INFINITY,
    -INFINITY,
    NAN,
};

#define N_SPECIALS (sizeof specials / sizeof *specials)
#define N_ALL (3 * N_SWEEP + N_SPECIAL) /* three ranges, then the special values */

_Static_assert(N_SPECIALS <= N_SPECIAL, "room for the special values");

/* ---- Arrays of one format ------------------------------------------------------------ */

struct array {
    double f64[N_ALL];
    float f32[N_ALL];
};

static struct array in, in2, out;

static void put(struct array *a, size_t i, double v)
{
    a->f64[i] = v;
    a->f32[i] = (float)v;
}

static double get(const struct array *a, size_t i, int is_double)
{
    return is_double ? a->f64[i] : (double)a->f32[i];
}

static void *data(struct array *a, int is_double)
{
    return is_double ? (void *)a->f64 : (void *)a->f32;
}

static double point(const struct range *r, size_t i)
{
    double u = ((double)i + 0.37) / N_SWEEP;
    return r->is_geometric ? exp(log(r->low) + u * (log(r->high) - log(r->low)))
                           : r->low + u * (r->high - r->low);
}

static void build(enum eider_op op, uint32_t n_args, enum variant v, int width,
                  struct lowered_code *code)
{
    struct eider_lowered l;
    struct lowered_options options = {
        .gpu_math = variants[v].on_gpu, .width = width, .contract = 1};
    eider_dtype type = variants[v].is_double ? EIDER_F64 : EIDER_F32;
    eider_status status = lowered_operation(op, n_args, type, variants[v].math, &l);
    if (status == EIDER_OK) status = lowered_build(&l, &options, code);
    if (status != EIDER_OK)
        fail_msg("%s, %s: %s", eider_ops[op].name, variants[v].name, eider_error());
    eider_lower_release(&l);
}

/* Beyond 2^20, sine and cosine in f32 lose their meaning on a GPU; m_log1p is for [0, 1]. */
static int is_defined(const struct function *f, enum variant v, double x)
{
    if (f->op == EIDER_OP_m_log1p) return isnan(x) || (x >= 0 && x <= 1);
    int is_circular = f->op == EIDER_OP_sin || f->op == EIDER_OP_cos;
    double limit = v == GPU_F32 ? 0x1p20 : v == GPU_F64 || v == GPU_EXACT_F32 ? 0x1p45 : INFINITY;
    return !is_circular || fabs(x) <= limit || !isfinite(x);
}

static void check_function(const struct function *f, enum variant v)
{
    struct lowered_code code;
    int is_double = variants[v].is_double;
    size_t n = 0;
    for (size_t r = 0; r < 3; r++)
        for (size_t i = 0; i < N_SWEEP; i++) put(&in, n++, point(&f->ranges[r], i));
    for (; n < N_ALL; n++) put(&in, n, specials[n % N_SPECIALS]);
    build(f->op, 1, v, 0, &code);
    void *arrays[EIDER_OPERANDS_MAX] = {data(&in, is_double), data(&out, is_double)};
    lowered_run(&code, arrays, N_ALL);
    lowered_release(&code);

    double worst = 0, at = 0, got = 0;
    for (size_t i = 0; i < N_ALL; i++) {
        double x = get(&in, i, is_double), y = get(&out, i, is_double);
        if (!is_defined(f, v, x)) continue;
        double ulps = lowered_ulps(y, f->reference(x), is_double);
        if (!(ulps <= worst)) worst = ulps, at = x, got = y;
    }
    if (!(worst <= f->bounds[v]))
        fail_msg("%s, %s: %g ulp, %g allowed, at %a: got %a, want %La", eider_ops[f->op].name,
                 variants[v].name, worst, f->bounds[v], at, got, f->reference(at));
}

static void check_variant(enum variant v)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (functions[i].bounds[v] > 0) check_function(&functions[i], v);
}

static void gpu_f64_is_within_bounds(void **state)
{
    (void)state;
    check_variant(GPU_F64);
}

static void gpu_f32_is_within_bounds(void **state)
{
    (void)state;
    check_variant(GPU_F32);
}

static void gpu_exact_is_the_nearest_f32(void **state)
{
    (void)state;
    check_variant(GPU_EXACT_F32);
}

static void cpu_f64_is_within_bounds(void **state)
{
    (void)state;
    check_variant(CPU_F64);
}

static void cpu_f32_is_within_bounds(void **state)
{
    (void)state;
    check_variant(CPU_F32);
}

static void approx_is_within_bounds(void **state)
{
    (void)state;
    check_variant(GPU_APPROX_F32);
}

/* ---- pow ------------------------------------------------------------------------------- */

static const double bases[] = {0.0,   -0.0,  1,        -1,        2,         -2,  0.5,
                               -0.5,  3,     -3,       INFINITY,  -INFINITY, NAN, 1e30,
                               -1e30, 1e-30, 0x1p-126, 1.0000001, 0.9999999, 10};
static const double exponents[] = {0.0,   -0.0, 1,   -1,    2,        -2,        3,   -3,
                                   0.5,   -0.5, 2.5, -2.5,  INFINITY, -INFINITY, NAN, 1e30,
                                   -1e30, 33,   -33, 1e-30, 16777217, 4};

#define N_BASES (sizeof bases / sizeof *bases)
#define N_EXPONENTS (sizeof exponents / sizeof *exponents)

static void check_pow(enum variant v, double bound)
{
    struct lowered_code code;
    int is_double = variants[v].is_double;
    for (size_t i = 0; i < N_ALL; i++) {
        if (i < N_BASES * N_EXPONENTS) {
            put(&in, i, bases[i % N_BASES]);
            put(&in2, i, exponents[i / N_BASES % N_EXPONENTS]);
        } else {
            put(&in, i, exp(-9 + 18 * (double)(i * 7919 % 4096) / 4096));
            put(&in2, i, -9.1 + 18.3 * (double)(i * 104729 % 4099) / 4099);
        }
    }
    build(EIDER_OP_pow, 2, v, 0, &code);
    void *arrays[EIDER_OPERANDS_MAX] = {data(&in, is_double), data(&in2, is_double),
                                        data(&out, is_double)};
    lowered_run(&code, arrays, N_ALL);
    lowered_release(&code);
    for (size_t i = 0; i < N_ALL; i++) {
        double x = get(&in, i, is_double), y = get(&in2, i, is_double);
        double got = get(&out, i, is_double), ulps = lowered_ulps(got, powl(x, y), is_double);
        if (!(ulps <= bound))
            fail_msg("pow, %s: %g ulp at %a, %a: got %a, want %La", variants[v].name, ulps, x, y,
                     got, powl(x, y));
    }
}

static void pow_is_within_bounds(void **state)
{
    (void)state;
    check_pow(GPU_F64, 0x1p12); /* relative 2^-40 */
    check_pow(GPU_F32, 0.51);
    check_pow(CPU_F64, 1.1);
    check_pow(CPU_F32, 1.1);
}

/* ---- Widths ------------------------------------------------------------------------------ */

static void cpu_bits_do_not_depend_on_the_width(void **state)
{
    (void)state;
    static struct array first;
    static const int widths[] = {1, 4, 8, 16};
    static const enum variant both[] = {CPU_F32, CPU_F64};
    for (size_t f = 0; f < sizeof functions / sizeof *functions; f++)
        for (size_t v = 0; v < 2; v++)
            for (size_t w = 0; w < 4; w++) {
                struct lowered_code code;
                int is_double = variants[both[v]].is_double;
                struct array *to = w == 0 ? &first : &out;
                for (size_t i = 0; i < 512; i++) put(&in, i, point(&functions[f].ranges[1], 8 * i));
                build(functions[f].op, 1, both[v], widths[w], &code);
                void *arrays[EIDER_OPERANDS_MAX] = {data(&in, is_double), data(to, is_double)};
                lowered_run(&code, arrays, 512);
                lowered_release(&code);
                assert_memory_equal(data(to, is_double), data(&first, is_double),
                                    512 * (is_double ? sizeof(double) : sizeof(float)));
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpu_f64_is_within_bounds),
        cmocka_unit_test(gpu_f32_is_within_bounds),
        cmocka_unit_test(gpu_exact_is_the_nearest_f32),
        cmocka_unit_test(cpu_f64_is_within_bounds),
        cmocka_unit_test(cpu_f32_is_within_bounds),
        cmocka_unit_test(approx_is_within_bounds),
        cmocka_unit_test(pow_is_within_bounds),
        cmocka_unit_test(cpu_bits_do_not_depend_on_the_width),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
