/* test_hostile.c -- bad input from a caller who keeps to the header: one clear error each.
 *
 * Not here: what parsing, shapes and files refuse in ordinary use; see the tests of those.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support_runtime.h"

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

static eider_context *ctx;
static eider_device *cpu;

static int set_up(void **state)
{
    (void)state;
    must(eider_context_create(NULL, &ctx));
    must(eider_device_open(ctx, "cpu", &cpu));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    eider_device_release(cpu);
    eider_context_destroy(ctx);
    return 0;
}

/* The last error is `status` and its message has `part`. */
static void assert_refused(eider_status got, eider_status wanted, const char *part)
{
    if (got == wanted && strstr(eider_error(), part)) return;
    fail_msg("%s instead of %s with '%s': %s", eider_status_name(got), eider_status_name(wanted),
             part, got == EIDER_OK ? "" : eider_error());
}

/* ---- Foreign kernels that do not fit what is said of them -------------------- */

static const eider_operand operands[] = {{"x", EIDER_INPUT, EIDER_F32},
                                         {"s", EIDER_SCALAR, EIDER_F32},
                                         {"any", EIDER_SCALAR, -1},
                                         {"y", EIDER_OUTPUT, EIDER_F32}};

/* Prepares kernel k of `text` with the first `n` operands. */
static eider_status prepare(const char *text, size_t n, eider_kernel **out)
{
    eider_source source = {
        .kind = EIDER_SOURCE_LL, .data = text, .entry = "k", .n_operands = n, .operands = operands};
    eider_request request = {.source = &source};
    return eider_prepare(cpu, &request, out);
}

static void foreign_kernels_that_cannot_run_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t n_operands;
        eider_status status;
        const char *part;
    } rows[] = {
        {"define void @k(ptr %a, ptr %b) { store i32 1, ptr %b\n ret void }", 1, EIDER_BAD_ARG,
         "k takes 2 parameters, the source names 1 operands"},
        {"define void @k() { ret void }", 1, EIDER_BAD_ARG, "k takes 0 parameters"},
        {"define void @k(ptr %a, i64 %b) { ret void }", 2, EIDER_BAD_ARG,
         "parameter 1 of k has 8 bytes, operand 1 of the source is a scalar of 4"},
        {"define void @k(<64 x i64> %a) { ret void }", 1, EIDER_BAD_ARG,
         "parameter 0 of k has 512 bytes, operand 0 of the source is a pointer of 8"},
        {"define void @k(ptr byval([100 x i64]) %a) { ret void }", 1, EIDER_BAD_ARG, "800 bytes"},
        {"define void @k(token %a) { ret void }", 1, EIDER_CODEGEN, "a type without a size"},
        {"@t = thread_local global i32 5\n"
         "define void @k(ptr %a) { store volatile i32 1, ptr @t\n ret void }",
         1, EIDER_CODEGEN, "the variable t is thread-local"},
        {"@t = global [1099511627776 x i8] zeroinitializer\n"
         "define void @k(ptr %a) { store volatile i8 1, ptr @t\n ret void }",
         1, EIDER_TOO_LARGE, "with t the module's variables have more than 67108864 bytes"},
        {"@t = global i32 0, align 65536\n"
         "define void @k(ptr %a) { store volatile i8 1, ptr @t\n ret void }",
         1, EIDER_TOO_LARGE, "aligned to 65536 bytes; 4096 are possible"},
        {"@s = internal addrspace(3) global [4294967297 x i8] undef\n"
         "define void @k(ptr %a) { store volatile i8 1, ptr addrspace(3) @s\n ret void }",
         1, EIDER_TOO_LARGE, "shared variables have more than 1048576 bytes"},
        {"define void @k(ptr %a) {\n %m = alloca [100000 x i8]\n %i = load i64, ptr %a\n"
         " %p = getelementptr i8, ptr %m, i64 %i\n store volatile i8 1, ptr %p\n ret void }",
         1, EIDER_CODEGEN, "stack frame size"},
        {"define void @\"k.thread\"(ptr %a) { ret void }\ndefine void @k(ptr %a) { ret void }", 1,
         EIDER_CODEGEN, "the module has a 'k.thread' of its own"},
        {"@\"k.shared\" = global i8 1\ndefine void @k(ptr %a) { ret void }", 1, EIDER_CODEGEN,
         "the module has a 'k.shared' of its own"},
        {"define void @k(ptr %a) {\n"
         " call i32 asm \"@$0 st.global.b32 [$1], $2;\", \"=r,r,l,r\"(i1 true, ptr %a, i32 1)\n"
         " ret void }",
         1, EIDER_CODEGEN, "cannot run on the CPU"},
        {"declare void @nobody()\ndefine void @k(ptr %a) { call void @nobody()\n ret void }", 1,
         EIDER_CODEGEN, "Symbols not found: [ nobody ]"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        eider_kernel *kernel = NULL;
        eider_status status = prepare(rows[i].text, rows[i].n_operands, &kernel);
        assert_refused(status, rows[i].status, rows[i].part);
        assert_null(kernel);
    }
}

static void a_scalar_of_any_type_must_have_the_parameters_size(void **state)
{
    (void)state;
    static const char text[] = "define void @k(ptr %a, float %s, i64 %b, ptr %c) {\n"
                               " store i64 %b, ptr %c\n ret void }";
    eider_kernel *kernel;
    float x = 1, s = 2;
    int64_t b = 7, y = 0, n = 1;
    const uint32_t grid[] = {1, 1, 1};
    eider_tensor args[] = {tensor_of(&x, EIDER_F32, 1, &n), tensor_of(&s, EIDER_F32, 0, NULL),
                           tensor_of(&b, EIDER_I64, 0, NULL), tensor_of(&y, EIDER_F32, 1, &n)};
    must(prepare(text, 4, &kernel));
    must(eider_launch_grid(kernel, NULL, grid, args, 4));
    assert_int_equal(y, 7);
    args[2] = tensor_of(&s, EIDER_F32, 0, NULL);
    assert_refused(eider_launch_grid(kernel, NULL, grid, args, 4), EIDER_BAD_ARG,
                   "argument 2 is a scalar of 4 bytes, the kernel's parameter has 8");
    args[2].type = (eider_dtype)77;
    assert_refused(eider_launch_grid(kernel, NULL, grid, args, 4), EIDER_BAD_ARG,
                   "argument 2 is a scalar of 0 bytes");
    eider_kernel_release(kernel);
}

static void ptx_says_what_it_takes(void **state)
{
    (void)state;
    static const struct {
        const char *params;
        size_t n_operands;
        eider_status status;
        const char *part;
    } rows[] = {
        {"(.param .u64 x)", 1, EIDER_OK, ""},
        {"( // a comment, with (parentheses)\n .param .u64 .ptr .global .align 16 x /* , */ ,\n"
         "\t.param .align 4 .f32 s)",
         2, EIDER_OK, ""},
        {"", 0, EIDER_OK, ""},
        {"()", 0, EIDER_OK, ""},
        {"(.param .u64 x)", 0, EIDER_OK, ""}, /* only compiled: nothing need be said */
        {"()", 1, EIDER_BAD_ARG, "k takes 0 parameters, the source names 1 operands"},
        {"(.param .u64 x, .param .u64 s)", 2, EIDER_BAD_ARG,
         "parameter 1 of k has 8 bytes, operand 1 of the source is a scalar of 4"},
        {"(.param .align 8 .b8 x[16])", 1, EIDER_BAD_ARG, "parameter 0 of k has 16 bytes"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[512];
        eider_kernel *kernel = NULL;
        snprintf(text, sizeof text,
                 ".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry k%s\n{ ret; }\n",
                 rows[i].params);
        eider_source source = {.kind = EIDER_SOURCE_PTX,
                               .data = text,
                               .entry = "k",
                               .n_operands = rows[i].n_operands,
                               .operands = operands};
        eider_request request = {.source = &source, .target = "sm_90"};
        eider_status status = eider_compile(ctx, &request, &kernel);
        if (rows[i].status == EIDER_OK)
            must(status);
        else
            assert_refused(status, rows[i].status, rows[i].part);
        eider_kernel_release(kernel);
    }
}

/* ---- Programs that blow up ------------------------------------------------------- */

/* Compiles y = f(f(...f(x))) of `n` calls for `target`. */
static eider_status compile_chain(const char *function, int n, const char *target)
{
    eider_builder *b;
    eider_program *program;
    eider_kernel *kernel = NULL;
    int64_t extent = 64;
    must(eider_builder_create(ctx, &b));
    eider_value x = eider_builder_input(b, "x", -1);
    for (int i = 0; i < n; i++) x = eider_builder_call(b, function, &x, 1);
    eider_builder_output(b, "y", x, -1);
    must(eider_builder_finish(b, &program));
    eider_tensor args[] = {tensor_of(NULL, EIDER_F32, 1, &extent),
                           tensor_of(NULL, EIDER_F32, 1, &extent)};
    eider_request request = {.program = program, .args = args, .n_args = 2, .target = target};
    eider_status status = eider_compile(ctx, &request, &kernel);
    eider_kernel_release(kernel);
    eider_program_release(program);
    return status;
}

static void a_kernel_that_would_compile_for_minutes_is_refused(void **state)
{
    (void)state;
    static const char limit[] = "the kernel has more than 16384 instructions";
    assert_refused(compile_chain("exp", 20000, "cpu"), EIDER_TOO_LARGE, limit);
    assert_refused(compile_chain("erf", 1000, "sm_90"), EIDER_TOO_LARGE, limit);
    must(compile_chain("exp", 30, "sm_90"));
}

/* ---- Tensors of extremes ---------------------------------------------------------- */

static const int64_t extremes[] = {
    0,         1,         2,         3,         -1,           INT32_MAX, INT64_MAX,
    INT64_MIN, 1ll << 32, 1ll << 59, 1ll << 61, -(1ll << 32), 1ll << 40, INT64_MAX / 4};

static uint32_t state_of_dice = 1;

static uint32_t dice(uint32_t n)
{
    state_of_dice = state_of_dice * 1664525u + 1013904223u;
    return (state_of_dice >> 8) % n;
}

/* Elements that the two shapes broadcast to, where that is clearly none. */
static int is_empty(const eider_tensor *t)
{
    for (int d = 0; d < t->rank; d++)
        if (t->shape[d] == 0) return 1;
    return 0;
}

/* Without data a launch succeeds only where there is nothing to do. */
static void any_shape_and_stride_is_survived(void **state)
{
    (void)state;
    eider_program *program;
    eider_kernel *kernel;
    int64_t example[EIDER_RANK_MAX] = {2, 2, 2, 2, 2, 2, 2, 2}, shape[2][12], strides[2][12];
    eider_tensor args[] = {tensor_of(NULL, EIDER_F32, EIDER_RANK_MAX, example),
                           tensor_of(NULL, EIDER_F32, EIDER_RANK_MAX, example)};
    must(eider_program_parse(ctx, "y = x + 1", &program));
    eider_request request = {.program = program, .args = args, .n_args = 2, .any_layout = 1};
    must(eider_prepare(cpu, &request, &kernel));
    for (int round = 0; round < 20000; round++) {
        uint64_t bytes;
        for (int i = 0; i < 2; i++) {
            for (int d = 0; d < 12; d++) {
                shape[i][d] = dice(2) ? 1 + dice(3) : extremes[dice(COUNT(extremes))];
                strides[i][d] = dice(2) ? dice(9) : extremes[dice(COUNT(extremes))];
                if (i && dice(4)) shape[i][d] = shape[0][d];
            }
            args[i] = (eider_tensor){.type = dice(50) ? EIDER_F32 : (eider_dtype)dice(99),
                                     .rank = dice(20) ? (int32_t)dice(4) : (int32_t)dice(13) - 2,
                                     .shape = dice(50) ? shape[i] : NULL,
                                     .strides = dice(3) ? strides[i] : NULL};
        }
        eider_status status = eider_launch(kernel, NULL, args, 2);
        if (status == EIDER_OK) assert_true(is_empty(&args[1]));
        status = eider_kernel_bytes(kernel, args, 2, &bytes);
        if (status != EIDER_OK) assert_true(*eider_error() != '\0');
    }
    eider_kernel_release(kernel);
    eider_program_release(program);
}

/* ---- A host with its own arithmetic ------------------------------------------------ */

#define N_VALUES 50000 /* more than one thread's share */

static void fill(float *values)
{
    for (int i = 0; i < N_VALUES; i++) values[i] = (float)(i - N_VALUES / 2) * 0x1p-140f;
    values[0] = INFINITY;
    values[1] = NAN;
    values[2] = 0.1f;
}

/* What a program gives, as text, reference and result; settings are the caller's. */
struct outcome {
    char text[256];
    double reference;
    float y[N_VALUES];
};

static void tell(struct outcome *out, float *x)
{
    static const char text[] = "y = x * (0.1 * 0.3) / 0.7 + cast(x * 1e-45, f16)";
    eider_program *program, *backward;
    eider_kernel *kernel;
    int64_t n = N_VALUES;
    eider_tensor args[] = {tensor_of(x, EIDER_F32, 1, &n), tensor_of(out->y, EIDER_F32, 1, &n)};
    must(eider_program_parse(ctx, text, &program));
    must(eider_program_grad(program, NULL, &backward));
    snprintf(out->text, sizeof out->text, "%s%s", eider_program_text(program),
             eider_program_text(backward));
    must(eider_program_eval(program, &(double){0x1.fp-1040}, &out->reference));
    eider_request request = {.program = program, .args = args, .n_args = 2};
    must(eider_prepare(cpu, &request, &kernel));
    must(eider_launch(kernel, NULL, args, 2));
    eider_kernel_release(kernel);
    eider_program_release(backward);
    eider_program_release(program);
}

static void the_hosts_rounding_and_traps_change_nothing(void **state)
{
    (void)state;
    static const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    static float x[N_VALUES];
    static struct outcome want, got;
    fenv_t before;
    fill(x);
    tell(&want, x);
    fegetenv(&before);
    for (size_t m = 0; m < COUNT(modes); m++) {
        tear_down(NULL); /* nothing is remembered */
        set_up(NULL);
        memset(&got, 0, sizeof got);
        fesetround(modes[m]);
        feenableexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW);
#if defined(__x86_64__)
        __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040); /* subnormals are 0 */
        unsigned control = __builtin_ia32_stmxcsr();
#endif
        tell(&got, x);
        int mode = fegetround(), traps = fegetexcept();
#if defined(__x86_64__)
        int is_kept = control == __builtin_ia32_stmxcsr();
#else
        int is_kept = 1;
#endif
        fesetenv(&before);
        assert_int_equal(mode, modes[m]);
        assert_int_equal(traps, FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW);
        assert_true(is_kept);
        assert_string_equal(got.text, want.text);
        assert_memory_equal(&got.reference, &want.reference, sizeof want.reference);
        assert_memory_equal(got.y, want.y, sizeof want.y);
    }
}

/* ---- Calls over rows -------------------------------------------------------------- */

#define EXTENTS(...) ((const int64_t[]){__VA_ARGS__})
#define BIG (INT64_C(1) << 40)

static void calls_over_rows_that_cannot_be_are_refused(void **state)
{
    (void)state;
    static float x[64], y[64];
    const struct {
        const char *text;
        eider_tensor args[3];
        eider_status status;
        const char *part;
    } rows[] = {
        {"in x, y; m = sum(x) + sum(y)",
         {{NULL, EIDER_BF16, 2, EXTENTS(BIG, 1), NULL},
          {NULL, EIDER_BF16, 2, EXTENTS(1, 1 << 29), NULL},
          {NULL, EIDER_F32, 1, EXTENTS(BIG), NULL}},
         EIDER_OK,
         ""},
        {"in x, y; m = colsum(x + y)", /* the rows are more than 2^63, and there are none */
         {{NULL, EIDER_BF16, 4, EXTENTS(BIG, 1, 0, 4), EXTENTS(0, 0, 0, 1)},
          {NULL, EIDER_BF16, 4, EXTENTS(1, BIG, 1, 4), EXTENTS(0, 0, 0, 1)},
          {y, EIDER_F32, 1, EXTENTS(4), NULL}},
         EIDER_OK,
         ""},
        {"in x, y; m = sum(x) + sum(y)",
         {{x, EIDER_F32, 2, EXTENTS(4, 4), NULL},
          {x, EIDER_F32, 2, EXTENTS(4, 4), NULL},
          {y, EIDER_F32, 1, EXTENTS(4), EXTENTS(0)}},
         EIDER_OVERLAP,
         "output 'm' overlaps itself"},
        {"in x, y; m = colsum(x + y)",
         {{x, EIDER_F32, 2, EXTENTS(4, 4), NULL},
          {x, EIDER_F32, 2, EXTENTS(4, 4), NULL},
          {y, EIDER_F32, 1, EXTENTS(4), EXTENTS(0)}},
         EIDER_OVERLAP,
         "output 'm' overlaps itself"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        eider_program *program;
        eider_kernel *kernel = NULL;
        must(eider_program_parse(ctx, rows[i].text, &program));
        eider_request request = {.program = program, .args = rows[i].args, .n_args = 3};
        eider_status status = eider_prepare(cpu, &request, &kernel);
        assert_refused(status, rows[i].status, status ? rows[i].part : "");
        eider_kernel_release(kernel);
        eider_program_release(program);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(foreign_kernels_that_cannot_run_are_refused),
        cmocka_unit_test(a_scalar_of_any_type_must_have_the_parameters_size),
        cmocka_unit_test(ptx_says_what_it_takes),
        cmocka_unit_test(a_kernel_that_would_compile_for_minutes_is_refused),
        cmocka_unit_test(any_shape_and_stride_is_survived),
        cmocka_unit_test(the_hosts_rounding_and_traps_change_nothing),
        cmocka_unit_test(calls_over_rows_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
