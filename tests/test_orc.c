/* test_orc.c -- host code: objects become functions that run, and go away again.
 *
 * labels: tsan
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support_ll.h"

static const struct eider_cpu_hooks no_hooks;

static void run_twice(eider_cpu_block_entry entry, float *in, float *out, uint64_t n)
{
    void *params[] = {&in, &out};
    entry(params, 0, n);
}

/* Compiles block-style text and links it. */
static eider_status build(const char *text, const char *name, struct eider_cpu_image **image,
                          void **entry)
{
    struct eider_codegen_job job = {.entry = name};
    struct eider_codegen_result result;
    eider_status status = ll_emit(text, &job, &result);
    if (status != EIDER_OK) return status;
    status = eider_cpu_image_create(&ll_allocator, &result.code, name, 0, &no_hooks, image, entry);
    eider_blob_release(&ll_allocator, &result.code);
    return status;
}

static void code_runs(void **state)
{
    (void)state;
    struct eider_cpu_image *image;
    void *entry;
    assert_int_equal(build(ll_twice, "twice", &image, &entry), EIDER_OK);
    float in[100], out[100] = {0};
    for (int i = 0; i < 100; i++) in[i] = (float)i - 40;
    eider_cpu_block_entry f;
    memcpy(&f, &entry, sizeof f);
    run_twice(f, in, out, 99);
    for (int i = 0; i < 99; i++) assert_true(out[i] == 2 * ((float)i - 40));
    assert_true(out[99] == 0);
    eider_cpu_image_release(image);
}

/* One call of a unary function of floats, of a name that the test chooses. */
static eider_status build_call(const char *name, const char *type, struct eider_cpu_image **image,
                               void **entry)
{
    char text[1024];
    snprintf(text, sizeof text,
             "declare %s @%s(%s)\n"
             "define void @k(ptr %%params, i64 %%first, i64 %%last)\n"
             "{\n"
             "  %%p = load ptr, ptr %%params\n"
             "  %%d = load ptr, ptr %%p\n"
             "  %%x = load %s, ptr %%d, align 4\n"
             "  %%y = call %s @%s(%s %%x)\n"
             "  store %s %%y, ptr %%d, align 4\n"
             "  ret void\n"
             "}\n",
             type, name, type, type, type, name, type, type);
    return build(text, "k", image, entry);
}

static void call_on(const char *name, const char *type, float *values)
{
    struct eider_cpu_image *image;
    void *entry;
    assert_int_equal(build_call(name, type, &image, &entry), EIDER_OK);
    eider_cpu_block_entry f;
    memcpy(&f, &entry, sizeof f);
    void *params[] = {&values};
    f(params, 0, 1);
    eider_cpu_image_release(image);
}

static void vector_math_is_called_by_name(void **state)
{
    (void)state;
    float four[4] = {0, 1, -2, 10};
    call_on("Sleef_expf4_u10", "<4 x float>", four);
    float want[4] = {1, 2.71828182f, 0.135335283f, 22026.4658f};
    for (int i = 0; i < 4; i++) assert_true(fabsf(four[i] - want[i]) <= 2e-7f * want[i]);
    if (!__builtin_cpu_supports("avx2")) return;
    float eight[8] = {0, 1, -2, 10, 0.5f, 3, -1, 2};
    call_on("Sleef_expf8_u10", "<8 x float>", eight);
    for (int i = 0; i < 4; i++) assert_true(fabsf(eight[i] - want[i]) <= 2e-7f * want[i]);
    assert_true(fabsf(eight[7] - 7.3890561f) <= 2e-6f);
}

static void libm_is_called_by_name(void **state)
{
    (void)state;
    float x[1] = {0.25f};
    call_on("cbrtf", "float", x);
    assert_true(fabsf(x[0] - 0.62996052f) < 1e-7f);
}

static void assert_no_page_is_writable_and_executable(void)
{
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps))
        if (strstr(line, " rwx")) fail_msg("%s", line);
    fclose(maps);
}

/* Constants, data and 64 MiB of zeros, which are not in the file, each aligned in its own way. */
static void sections_of_every_kind_are_in_reach(void **state)
{
    (void)state;
    static const char text[] =
        "@zeros = internal global [67108864 x i8] zeroinitializer, align 64\n"
        "@small = internal global [100 x i8] zeroinitializer, align 16384\n"
        "@data = internal global [4 x float] [float 1.0, float 2.0, float 3.0, float 4.0]\n"
        "@table = internal constant [2 x float] [float 10.0, float 20.0], align 4096\n"
        "define void @k(ptr %params, i64 %first, i64 %last)\n"
        "{\n"
        "  %p = load ptr, ptr %params\n"
        "  %out = load ptr, ptr %p\n"
        "  %z = getelementptr i8, ptr @zeros, i64 67108860\n"
        "  %d = getelementptr float, ptr @data, i64 %last\n"
        "  %t = getelementptr float, ptr @table, i64 %last\n"
        "  %a = load volatile float, ptr %d\n"
        "  store volatile float %a, ptr %z\n"
        "  store volatile float %a, ptr @small\n"
        "  %b = load volatile float, ptr %z\n"
        "  %c = load volatile float, ptr %t\n"
        "  %s = fadd float %b, %c\n"
        "  store volatile float %s, ptr %d\n"
        "  %e = load volatile float, ptr %d\n"
        "  store float %e, ptr %out\n"
        "  ret void\n"
        "}\n";
    for (int i = 0; i < 3; i++) {
        struct eider_cpu_image *image;
        void *entry;
        float out = 0, *outs = &out;
        void *params[] = {&outs};
        eider_cpu_block_entry f;
        if (build(text, "k", &image, &entry) != EIDER_OK) fail_msg("%s", eider_error());
        memcpy(&f, &entry, sizeof f);
        f(params, 0, 1);
        assert_true(out == 22);
        assert_no_page_is_writable_and_executable();
        eider_cpu_image_release(image);
    }
}

static void a_missing_function_is_named(void **state)
{
    (void)state;
    struct eider_cpu_image *image = NULL;
    void *entry;
    assert_int_equal(build_call("no_such_function_anywhere", "float", &image, &entry),
                     EIDER_CODEGEN);
    assert_null(image);
    assert_non_null(strstr(eider_error(), "no_such_function_anywhere"));
}

static void a_missing_entry_is_named(void **state)
{
    (void)state;
    struct eider_codegen_job job = {.entry = "twice"};
    struct eider_codegen_result result;
    assert_int_equal(ll_emit(ll_twice, &job, &result), EIDER_OK);
    struct eider_cpu_image *image = NULL;
    void *entry;
    assert_int_equal(
        eider_cpu_image_create(&ll_allocator, &result.code, "thrice", 0, &no_hooks, &image, &entry),
        EIDER_CODEGEN);
    assert_non_null(strstr(eider_error(), "thrice"));
    eider_blob_release(&ll_allocator, &result.code);
}

static void bytes_that_are_no_object_are_refused(void **state)
{
    (void)state;
    char bytes[256] = "\177ELF\2\1\1 and then nothing that makes sense";
    struct eider_blob object = {bytes, sizeof bytes};
    struct eider_cpu_image *image = NULL;
    void *entry;
    for (size_t size = 0; size <= sizeof bytes; size += 64) {
        object.size = size;
        assert_int_equal(
            eider_cpu_image_create(&ll_allocator, &object, "k", 0, &no_hooks, &image, &entry),
            EIDER_CODEGEN);
    }
}

/* bfloat of LLVM is rounded by a function that GCC 12's library lacks. */
static void float_to_bf16_rounds_to_even(void **state)
{
    (void)state;
    static const char text[] = "define void @k(ptr %params, i64 %first, i64 %last)\n"
                               "{\n"
                               "  %p = load ptr, ptr %params\n"
                               "  %d = load ptr, ptr %p\n"
                               "  %x = load double, ptr %d\n"
                               "  %s = fptrunc double %x to float\n"
                               "  %y = fptrunc float %s to bfloat\n"
                               "  %z = fptrunc double %x to bfloat\n"
                               "  %e = getelementptr i8, ptr %d, i64 2\n"
                               "  store bfloat %y, ptr %d\n"
                               "  store bfloat %z, ptr %e\n"
                               "  ret void\n"
                               "}\n";
    static const struct {
        double x;
        uint16_t by_float, directly;
    } rows[] = {
        {1, 0x3f80, 0x3f80},
        {1.00390625, 0x3f80, 0x3f80}, /* half way, to even */
        {1.01171875, 0x3f82, 0x3f82},
        {1.00390625 + 0x1p-40, 0x3f80, 0x3f81}, /* float drops what decides */
        {-1.01171875 + 0x1p-40, 0xbf82, 0xbf81},
        {1e300, 0x7f80, 0x7f80},
        {-0.0, 0x8000, 0x8000},
    };
    struct eider_cpu_image *image;
    void *entry;
    assert_int_equal(build(text, "k", &image, &entry), EIDER_OK);
    eider_cpu_block_entry f;
    memcpy(&f, &entry, sizeof f);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double x = rows[i].x;
        double *at = &x;
        void *params[] = {&at};
        f(params, 0, 1);
        uint16_t got[2];
        memcpy(got, &x, sizeof got);
        assert_int_equal(got[0], rows[i].by_float);
        assert_int_equal(got[1], rows[i].directly);
    }
    eider_cpu_image_release(image);
}

#define N_THREADS 24

static void *build_and_run(void *arg)
{
    int *n_wrong = arg;
    for (int round = 0; round < 3; round++) {
        struct eider_cpu_image *image;
        void *entry;
        if (build(ll_twice, "twice", &image, &entry) != EIDER_OK) {
            ++*n_wrong;
            continue;
        }
        float in[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[8] = {0};
        eider_cpu_block_entry f;
        memcpy(&f, &entry, sizeof f);
        run_twice(f, in, out, 8);
        for (int i = 0; i < 8; i++) *n_wrong += out[i] != 2 * in[i];
        eider_cpu_image_release(image);
    }
    return NULL;
}

static void threads_build_and_run_at_once(void **state)
{
    (void)state;
    pthread_t threads[N_THREADS];
    int n_wrong[N_THREADS] = {0};
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, build_and_run, &n_wrong[i]), 0);
    for (int i = 0; i < N_THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < N_THREADS; i++) assert_int_equal(n_wrong[i], 0);
}

static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    struct eider_codegen_job job = {.entry = "twice"};
    struct eider_codegen_result result;
    assert_int_equal(ll_emit(ll_twice, &job, &result), EIDER_OK);
    eider_status status = EIDER_OOM;
    int left = 0;
    for (; status == EIDER_OOM; left++) {
        struct ll_failing failing = {.left = left};
        eider_allocator a = ll_failing_allocator(&failing);
        struct eider_cpu_image *image = NULL;
        void *entry;
        status = eider_cpu_image_create(&a, &result.code, "twice", 0, &no_hooks, &image, &entry);
        eider_cpu_image_release(image);
    }
    assert_int_equal(status, EIDER_OK);
    assert_true(left >= 2);
    eider_blob_release(&ll_allocator, &result.code);
}

static size_t resident_kib(void)
{
    unsigned long total = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file) return 0;
    if (fscanf(file, "%lu %lu", &total, &resident) != 2) resident = 0;
    fclose(file);
    return resident * 4;
}

static void releasing_gives_memory_back(void **state)
{
    (void)state;
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    /* Freed memory is kept in quarantine; leaks are found by the sanitizer itself. */
    fputs("SKIPPED: memory stays with the sanitizer; eider-tests of the bundle looks\n", stderr);
    skip();
#endif
    struct eider_codegen_job job = {.entry = "twice"};
    struct eider_codegen_result result;
    assert_int_equal(ll_emit(ll_twice, &job, &result), EIDER_OK);
    size_t before = 0;
    for (int i = 0; i < 400; i++) {
        struct eider_cpu_image *image;
        void *entry;
        assert_int_equal(eider_cpu_image_create(&ll_allocator, &result.code, "twice", 0, &no_hooks,
                                                &image, &entry),
                         EIDER_OK);
        eider_cpu_image_release(image);
        if (i == 100) before = resident_kib();
    }
    assert_true(resident_kib() < before + 3000); /* 300 leaked images would be 12 MB at least */
    eider_blob_release(&ll_allocator, &result.code);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(code_runs),
        cmocka_unit_test(vector_math_is_called_by_name),
        cmocka_unit_test(libm_is_called_by_name),
        cmocka_unit_test(sections_of_every_kind_are_in_reach),
        cmocka_unit_test(a_missing_function_is_named),
        cmocka_unit_test(a_missing_entry_is_named),
        cmocka_unit_test(bytes_that_are_no_object_are_refused),
        cmocka_unit_test(float_to_bf16_rounds_to_even),
        cmocka_unit_test(threads_build_and_run_at_once),
        cmocka_unit_test(memory_may_run_out_anywhere),
        cmocka_unit_test(releasing_gives_memory_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
