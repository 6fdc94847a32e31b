/* test_convert.c -- storage formats against readings of their definitions: every pattern of
 * f16, bf16 and fp8 widens right, and f32 and f64 round once, to nearest even.
 *
 * The reference finds the nearest of all values of a format by bisection and comparison
 * with midpoints in double; nothing of it is shared with the library.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "support_map.h"

/* ---- The reference ------------------------------------------------------- */

/* A format: its non-negative finite values ascend with their patterns. */
struct format {
    eider_dtype type;
    uint32_t top, over, sign; /* largest finite pattern, what overflow becomes, sign bit */
    double *values;           /* of patterns 0 to top, then the value that would follow */
};

static struct format formats[] = {
    {EIDER_F16, 0x7BFF, 0x7C00, 0x8000, NULL},
    {EIDER_BF16, 0x7F7F, 0x7F80, 0x8000, NULL},
    {EIDER_E4M3, 0x7E, 0x7F, 0x80, NULL},
    {EIDER_E5M2, 0x7B, 0x7C, 0x80, NULL},
};

#define N_FORMATS 4

static double value_of(const struct format *f, uint32_t bits)
{
    uint16_t wide = (uint16_t)bits;
    uint8_t narrow = (uint8_t)bits;
    return map_get(f->type, f->sign == 0x80 ? (void *)&narrow : (void *)&wide, 0);
}

static int make_tables(void **state)
{
    (void)state;
    for (int i = 0; i < N_FORMATS; i++) {
        struct format *f = &formats[i];
        f->values = malloc((f->top + 2) * sizeof *f->values);
        for (uint32_t bits = 0; bits <= f->top; bits++) f->values[bits] = value_of(f, bits);
        f->values[f->top + 1] = 2 * f->values[f->top] - f->values[f->top - 1];
    }
    return 0;
}

static int free_tables(void **state)
{
    (void)state;
    for (int i = 0; i < N_FORMATS; i++) free(formats[i].values);
    return 0;
}

/* The pattern nearest to `value`, ties to even; NaN gives `over` + 1 or more. */
static uint32_t nearest(const struct format *f, double value, int saturate)
{
    uint32_t sign = signbit(value) ? f->sign : 0, low = 0, high = f->top + 1;
    double magnitude = fabs(value);
    if (magnitude >= f->values[high])
        low = high;
    else
        while (high - low > 1) {
            uint32_t middle = (low + high) / 2;
            if (f->values[middle] <= magnitude)
                low = middle;
            else
                high = middle;
        }
    if (low <= f->top) {
        double half = (f->values[low] + f->values[low + 1]) / 2;
        if (magnitude > half || (magnitude == half && low % 2)) low++;
    }
    if (low > f->top) low = saturate && f->sign == 0x80 ? f->top : f->over;
    return sign | low;
}

/* ---- Conversions under test ---------------------------------------------- */

/* A kernel that applies eider_convert_* to one pack per block: the integer arithmetic that
 * processors without an instruction for the format use. */
struct converter {
    struct eider_cpu_image *image;
    eider_cpu_block_entry entry;
    int width;
};

enum direction { WIDEN, NARROW, NARROW_F64 };

static void build_converter(struct eider_emit *e, enum direction direction, eider_dtype type,
                            int saturate)
{
    LLVMTypeRef ptr = LLVMPointerTypeInContext(e->context, 0);
    LLVMTypeRef i64 = LLVMInt64TypeInContext(e->context);
    struct eider_kernel_param params[2] = {{.name = "in", .type = ptr},
                                           {.name = "out", .type = ptr}};
    e->machine->kernel_begin(e, "convert", params, 2, 1);
    LLVMValueRef at = e->machine->block_index(e), value, in, out;
    at = LLVMBuildMul(e->builder, at, LLVMConstInt(i64, (unsigned)e->width, 0), "");
    LLVMTypeRef element = direction == NARROW_F64 ? LLVMDoubleTypeInContext(e->context)
                                                  : LLVMFloatTypeInContext(e->context);
    in = LLVMBuildGEP2(e->builder, element, e->machine->param(e, 0), &at, 1, "");
    out = LLVMBuildGEP2(e->builder, LLVMFloatTypeInContext(e->context), e->machine->param(e, 1),
                        &at, 1, "");
    if (direction == WIDEN) {
        e->machine->load(e, EIDER_I32, in, e->width, EIDER_LOAD_CA, 1, &value);
        value = eider_convert_widen(e, type, value);
        e->machine->store(e, EIDER_F32, out, e->width, EIDER_STORE_WB, 1, &value);
    } else {
        e->machine->load(e, direction == NARROW ? EIDER_F32 : EIDER_F64, in, e->width,
                         EIDER_LOAD_CA, 1, &value);
        if (direction == NARROW_F64) value = eider_convert_odd(e, value);
        value = eider_convert_narrow(e, type, saturate, value);
        e->machine->store(e, EIDER_I32, out, e->width, EIDER_STORE_WB, 1, &value);
    }
    e->machine->kernel_end(e);
}

static struct converter converter_make(enum direction direction, eider_dtype type, int saturate,
                                       int width, int ftz)
{
    static const struct eider_cpu_hooks no_hooks;
    struct converter c = {.width = width};
    struct eider_codegen_result result;
    void *entry;
    struct eider_emit e = {.allocator = &map_allocator,
                           .context = LLVMContextCreate(),
                           .machine = &eider_machine_cpu,
                           .width = width,
                           .ftz = ftz};
    assert_int_equal(eider_codegen_init(), EIDER_OK);
    build_converter(&e, direction, type, saturate);
    assert_int_equal(e.status, EIDER_OK);
    struct eider_codegen_job job = {.entry = "convert"};
    assert_int_equal(eider_codegen_emit(&map_allocator, e.module, &job, &result), EIDER_OK);
    LLVMContextDispose(e.context);
    assert_int_equal(eider_cpu_image_create(&map_allocator, &result.code, "convert", 0, &no_hooks,
                                            &c.image, &entry),
                     EIDER_OK);
    memcpy(&c.entry, &entry, sizeof entry);
    eider_blob_release(&map_allocator, &result.code);
    return c;
}

/* Runs over n elements, n a multiple of the width, and releases the converter. */
static void convert(struct converter c, const void *in, void *out, int n)
{
    void *params[2] = {&in, &out};
    c.entry(params, 0, (uint64_t)(n / c.width));
    eider_cpu_image_release(c.image);
}

/* ---- Inputs -------------------------------------------------------------- */

/* All exponents and leading mantissa bits, with low bits that sit on, beside and between the
 * ties of every format; then neighbours of every value and midpoint of the format itself. */
#define LOW_PATTERNS 8
#define N_SWEEP (0x10000 * LOW_PATTERNS)

static float *make_sweep(void)
{
    static const uint32_t low[LOW_PATTERNS] = {0,      1,      0x7FFF, 0x8000,
                                               0x8001, 0xFFFF, 0x1000, 0xF000};
    float *sweep = malloc(N_SWEEP * sizeof *sweep);
    for (uint32_t high = 0; high < 0x10000; high++)
        for (uint32_t k = 0; k < LOW_PATTERNS; k++) {
            uint32_t bits = high << 16 | low[k];
            memcpy(&sweep[high * LOW_PATTERNS + k], &bits, 4);
        }
    return sweep;
}

/* Midpoints between neighbouring values and the doubles around them. */
static int make_ties(const struct format *f, double **out)
{
    int n = 0;
    double *ties = malloc((f->top + 1) * 6 * sizeof *ties + 64 * sizeof *ties);
    for (uint32_t i = 0; i <= f->top; i++) {
        double half = (f->values[i] + f->values[i + 1]) / 2;
        double near[3] = {half, nextafter(half, 0), nextafter(half, INFINITY)};
        for (int k = 0; k < 3; k++) {
            ties[n++] = near[k];
            ties[n++] = -near[k];
        }
    }
    static const double edges[] = {0.0, -0.0, 1e-300, -1e-300, 1e300, -1e300, INFINITY, -INFINITY};
    for (int i = 0; i < 8; i++) ties[n++] = edges[i];
    while (n % 16) ties[n++] = 1;
    *out = ties;
    return n;
}

static void check_narrow(const struct format *f, double value, int saturate, uint32_t got)
{
    uint32_t want = isnan(value) ? f->over : nearest(f, value, saturate);
    int right = isnan(value) ? isnan(value_of(f, got)) : got == want;
    if (!right)
        fail_msg("%s: %a became %#x, not %#x", eider_dtype_name(f->type), value, (unsigned)got,
                 (unsigned)want);
}

/* ---- Tests --------------------------------------------------------------- */

static void every_pattern_widens(void **state)
{
    (void)state;
    for (int i = 0; i < N_FORMATS * 4; i++) {
        const struct format *f = &formats[i / 4];
        static const int widths[] = {1, 4, 8, 16};
        int n = f->sign == 0x80 ? 0x100 : 0x10000;
        uint32_t *in = malloc((size_t)n * 4);
        float *out = malloc((size_t)n * 4);
        for (int k = 0; k < n; k++) in[k] = (uint32_t)k;
        convert(converter_make(WIDEN, f->type, 0, widths[i % 4], 0), in, out, n);
        for (uint32_t k = 0; k < (uint32_t)n; k++) {
            double want = value_of(f, k);
            if (isnan(want) ? !isnan(out[k])
                            : (double)out[k] != want || !signbit(out[k]) != !signbit(want))
                fail_msg("%s %#x became %a", eider_dtype_name(f->type), (unsigned)k,
                         (double)out[k]);
        }
        free(in);
        free(out);
    }
}

static void f32_rounds_to_nearest_even(void **state)
{
    (void)state;
    float *sweep = make_sweep();
    uint32_t *got = malloc(N_SWEEP * 4);
    for (int i = 0; i < N_FORMATS * 2; i++) {
        const struct format *f = &formats[i / 2];
        int saturate = i % 2;
        if (f->sign != 0x80 && saturate) continue;
        convert(converter_make(NARROW, f->type, saturate, i % 3 ? 8 : 1, 0), sweep, got, N_SWEEP);
        for (int k = 0; k < N_SWEEP; k++) check_narrow(f, (double)sweep[k], saturate, got[k]);
    }
    free(sweep);
    free(got);
}

static void f64_rounds_once(void **state)
{
    (void)state;
    for (int i = 0; i < N_FORMATS; i++) {
        const struct format *f = &formats[i];
        double *ties;
        int n = make_ties(f, &ties);
        uint32_t *got = malloc((size_t)n * 4);
        convert(converter_make(NARROW_F64, f->type, 1, i % 2 ? 4 : 8, 0), ties, got, n);
        for (int k = 0; k < n; k++) check_narrow(f, ties[k], 1, got[k]);
        free(ties);
        free(got);
    }
}

/* With subnormals flushed only results that are f32 subnormals may change. */
static void flushing_leaves_the_small_formats_alone(void **state)
{
    (void)state;
    static const int small[] = {0, 2, 3}; /* not bf16, which has f32's exponents */
    float *sweep = make_sweep();
    uint32_t *got = malloc(N_SWEEP * 4), in[256];
    float out[256];
    for (int i = 0; i < 3; i++) {
        const struct format *f = &formats[small[i]];
        convert(converter_make(NARROW, f->type, 1, 8, 1), sweep, got, N_SWEEP);
        for (int k = 0; k < N_SWEEP; k++) check_narrow(f, (double)sweep[k], 1, got[k]);
        for (uint32_t k = 0; k < 256; k++) in[k] = k;
        convert(converter_make(WIDEN, f->type, 1, 8, 1), in, out, 256);
        for (uint32_t k = 0; k < 256; k++)
            if (!isnan(value_of(f, k))) assert_true((double)out[k] == value_of(f, k));
    }
    free(sweep);
    free(got);
}

/* Runs "out = x" from one type to another over n elements, as any user would. */
static void run_cast(const char *text, eider_dtype from, const void *in, eider_dtype to, void *out,
                     int64_t n)
{
    eider_tensor args[2] = {{(void *)(uintptr_t)in, from, 1, &n, NULL}, {out, to, 1, &n, NULL}};
    struct map_request r = {.text = text, .args = args};
    map_once(&r);
}

static void kernels_convert_every_pattern_and_back(void **state)
{
    (void)state;
    for (int i = 0; i < N_FORMATS; i++) {
        const struct format *f = &formats[i];
        int n = f->sign == 0x80 ? 0x100 : 0x10000;
        size_t size = eider_dtype_size(f->type);
        unsigned char *in = malloc((size_t)n * size), *back = malloc((size_t)n * size);
        float *wide = malloc((size_t)n * 4);
        for (uint32_t k = 0; k < (uint32_t)n; k++) memcpy(in + k * size, &k, size);
        run_cast("out = x", f->type, in, EIDER_F32, wide, n);
        run_cast("out = x", EIDER_F32, wide, f->type, back, n);
        for (int k = 0; k < n; k++) {
            double value = map_get(f->type, in, k), again = map_get(f->type, back, k);
            assert_true(isnan(value) ? isnan(wide[k]) : (double)wide[k] == value);
            if (isinf(value) && size == 1) continue; /* saturates */
            assert_true(isnan(value) ? isnan(again) : again == value);
        }
        free(in);
        free(back);
        free(wide);
    }
}

static void kernels_round_f32_and_f64_once(void **state)
{
    (void)state;
    float *sweep = make_sweep();
    uint16_t *out = malloc(N_SWEEP * 2);
    for (int i = 0; i < N_FORMATS; i++) {
        const struct format *f = &formats[i];
        double *ties;
        int n = make_ties(f, &ties);
        run_cast("out = x", EIDER_F32, sweep, f->type, out, N_SWEEP);
        for (int k = 0; k < N_SWEEP; k++)
            check_narrow(f, (double)sweep[k], 1, f->sign == 0x80 ? ((uint8_t *)out)[k] : out[k]);
        run_cast("out = x", EIDER_F64, ties, f->type, out, n);
        for (int k = 0; k < n; k++)
            check_narrow(f, ties[k], 1, f->sign == 0x80 ? ((uint8_t *)out)[k] : out[k]);
        free(ties);
    }
    free(sweep);
    free(out);
}

/* Values that known bugs get wrong: truncation, the bit trick that turns NaN into infinity
 * or -0, and rounding through a second format. */
static void known_bug_values_are_right(void **state)
{
    (void)state;
    static const struct {
        uint32_t in;
        eider_dtype to;
        uint32_t want;
    } rows[] = {
        {0x3F80C000, EIDER_BF16, 0x3F81}, /* 1.005859375; truncation gives 1.0 */
        {0x3F808000, EIDER_BF16, 0x3F80}, /* ties to even, down and up */
        {0x3F818000, EIDER_BF16, 0x3F82},
        {0x7F7F8000, EIDER_BF16, 0x7F80},
        {0x7F7F7FFF, EIDER_BF16, 0x7F7F},
        {0x7F800001, EIDER_BF16, 0x7FC0}, /* NaN, whose payload is all in the lost bits */
        {0x7FFFFFFF, EIDER_BF16, 0x7FFF},
        {0x43E00000, EIDER_E4M3, 0x7E}, /* 448 */
        {0x447A0000, EIDER_E4M3, 0x7E}, /* 1000 */
        {0x7F800000, EIDER_E4M3, 0x7E},
        {0xFF800000, EIDER_E4M3, 0xFE},
        {0x7FC00000, EIDER_E4M3, 0x7F},
        {0x80000000, EIDER_E4M3, 0x80},
        {0x3A800000, EIDER_E4M3, 0x00}, /* 2^-10, a tie */
        {0x3A800001, EIDER_E4M3, 0x01},
        {0x3C880800, EIDER_E4M3, 0x09}, /* 0.016605615...: through bf16 or f16 it is 8 */
        {0x7F800000, EIDER_E5M2, 0x7B},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint16_t out = 0;
        run_cast("out = x", EIDER_F32, &rows[i].in, rows[i].to, &out, 1);
        if (out != rows[i].want)
            fail_msg("%#x to %s is %#x, not %#x", (unsigned)rows[i].in,
                     eider_dtype_name(rows[i].to), (unsigned)out, (unsigned)rows[i].want);
    }
}

static void cast_nan_does_not_saturate(void **state)
{
    (void)state;
    static const float in[] = {464, 464.00003f, INFINITY, -INFINITY, 61440, 61439, 57344};
    uint8_t out[7];
    float value[7];
    run_cast("out = cast_nan(x, e4m3)", EIDER_F32, in, EIDER_E4M3, out, 4);
    static const uint8_t e4m3[] = {0x7E, 0x7F, 0x7F, 0x7F}; /* NaN has one pattern */
    for (int i = 0; i < 4; i++) assert_int_equal(out[i], e4m3[i]);
    run_cast("out = cast_nan(x, e5m2)", EIDER_F32, in, EIDER_E5M2, out, 7);
    assert_int_equal(out[2], 0x7C);
    assert_int_equal(out[3], 0xFC);
    assert_int_equal(out[4], 0x7C);
    assert_int_equal(out[5], 0x7B);
    run_cast("out = cast_nan(x, e4m3)", EIDER_F32, in, EIDER_F32, value, 4);
    assert_true(value[0] == 448 && isnan(value[1]) && isnan(value[2]) && isnan(value[3]));
    run_cast("out = cast(x, e4m3)", EIDER_F32, in, EIDER_F32, value, 4);
    assert_true(value[1] == 448 && value[3] == -448);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pattern_widens),
        cmocka_unit_test(f32_rounds_to_nearest_even),
        cmocka_unit_test(f64_rounds_once),
        cmocka_unit_test(flushing_leaves_the_small_formats_alone),
        cmocka_unit_test(kernels_convert_every_pattern_and_back),
        cmocka_unit_test(kernels_round_f32_and_f64_once),
        cmocka_unit_test(known_bug_values_are_right),
        cmocka_unit_test(cast_nan_does_not_saturate),
    };
    return cmocka_run_group_tests(tests, make_tables, free_tables);
}
