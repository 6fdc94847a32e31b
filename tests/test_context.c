/* test_context.c -- contexts, devices by name, memory, streams, and what they refuse. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend.h"
#include "support_runtime.h"

static void a_context_starts_no_thread_and_gives_everything_back(void **state)
{
    (void)state;
    struct counting_allocator memory = {0};
    eider_context_options options = {.allocator = counting_allocator(&memory),
                                     .cuda_library = "/nowhere/libcuda.so"};
    eider_context *ctx;
    must(eider_context_create(&options, &ctx));
    assert_true(memory.n_alive > 0);
    eider_context_destroy(ctx);
    assert_int_equal(memory.n_alive, 0);
    eider_context_destroy(NULL);
}

static void options_out_of_range_are_named(void **state)
{
    (void)state;
    eider_context *ctx = NULL;
    eider_context_options options = {.cpu_threads = -3};
    assert_int_equal(eider_context_create(&options, &ctx), EIDER_BAD_ARG);
    assert_non_null(strstr(eider_error(), "cpu_threads is -3"));
    assert_null(ctx);
    assert_int_equal(eider_context_create(NULL, NULL), EIDER_BAD_ARG);
}

static void every_backend_fills_every_function(void **state)
{
    (void)state;
    size_t n = 0;
    for (const struct eider_backend *row; (row = eider_backend_row(n)); n++) {
        /* All members behind the two that are not functions are pointers to one. */
        void *functions[(sizeof *row - offsetof(struct eider_backend, count)) / sizeof(void *)];
        memcpy(functions, (const char *)row + offsetof(struct eider_backend, count),
               sizeof functions);
        for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
            if (!functions[i]) fail_msg("backend %s lacks function %zu", row->name, i);
    }
    assert_int_equal(n, EIDER_BACKEND_COUNT);
}

static void devices_are_found_by_name(void **state)
{
    (void)state;
    static const char *const bad[] = {"",     "gpu",     "cpu:1", "cpu:x",
                                      "cpu:", "cuda:-1", "cpu0",  "cuda:99999999999999999999"};
    eider_context *ctx;
    eider_device *cpu, *again, *other = NULL;
    int32_t n = 0;
    eider_context_options options = {.cuda_library = "/nowhere/libcuda.so"};
    must(eider_context_create(&options, &ctx));
    must(eider_device_count(ctx, "cpu", &n));
    assert_int_equal(n, 1);
    must(eider_device_open(ctx, "cpu", &cpu));
    must(eider_device_open(ctx, "cpu:0", &again));
    assert_ptr_equal(cpu, again);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(eider_device_open(ctx, bad[i], &other), EIDER_NO_DEVICE);
    assert_int_equal(eider_device_open(ctx, "cuda", &other), EIDER_NO_DRIVER);
    assert_null(other);
    eider_device_release(again);
    eider_device_release(cpu);
    eider_device_release(NULL);
    eider_context_destroy(ctx);
}

static void the_cpu_describes_itself(void **state)
{
    (void)state;
    eider_context *ctx;
    eider_device *cpu;
    eider_device_info info;
    eider_context_options options = {.cpu_threads = 3};
    must(eider_context_create(&options, &ctx));
    must(eider_device_open(ctx, "cpu", &cpu));
    eider_device_describe(cpu, &info);
    assert_string_equal(info.backend, "cpu");
    assert_int_equal(info.units, 3);
    assert_int_equal(info.driver, 0);
    assert_true(strlen(info.name) > 0 && strlen(info.target) > 0);
    assert_null(strchr(info.target, ' '));
    assert_true(info.memory_bytes > (uint64_t)1 << 28);
    eider_device_release(cpu);
    eider_context_destroy(ctx);
}

static void memory_of_the_cpu_is_aligned_and_copied(void **state)
{
    (void)state;
    struct counting_allocator memory = {0};
    eider_context_options options = {.allocator = counting_allocator(&memory)};
    eider_context *ctx;
    eider_device *cpu;
    void *a, *b, *stream = &a;
    char text[] = "0123456789";
    must(eider_context_create(&options, &ctx));
    must(eider_device_open(ctx, "cpu", &cpu));
    must(eider_stream_create(cpu, &stream));
    assert_null(stream);
    for (size_t bytes = 0; bytes < 200; bytes += 7) {
        must(eider_memory_alloc(cpu, bytes, &a));
        assert_int_equal((uintptr_t)a % 64, 0);
        memset(a, 1, bytes);
        eider_memory_free(cpu, a);
    }
    must(eider_memory_alloc(cpu, sizeof text, &a));
    must(eider_memory_alloc(cpu, sizeof text, &b));
    must(eider_memory_copy(cpu, stream, a, text, sizeof text, EIDER_HOST_TO_DEVICE));
    must(eider_memory_copy(cpu, stream, b, a, sizeof text, EIDER_DEVICE_TO_DEVICE));
    memset(text, 0, sizeof text);
    must(eider_memory_copy(cpu, stream, text, b, sizeof text, EIDER_DEVICE_TO_HOST));
    must(eider_stream_wait(cpu, stream));
    assert_string_equal(text, "0123456789");
    assert_int_equal(eider_memory_copy(cpu, NULL, a, NULL, 1, EIDER_HOST_TO_DEVICE), EIDER_BAD_ARG);
    must(eider_memory_copy(cpu, NULL, NULL, NULL, 0, EIDER_HOST_TO_DEVICE));
    assert_int_equal(eider_memory_copy(cpu, NULL, a, b, 1, (eider_copy_kind)7), EIDER_BAD_ARG);
    assert_int_equal(eider_memory_alloc(cpu, SIZE_MAX - 8, &a), EIDER_OOM);
    eider_memory_free(cpu, a);
    eider_memory_free(cpu, b);
    eider_memory_free(cpu, NULL);
    eider_device_release(cpu);
    eider_context_destroy(ctx);
    assert_int_equal(memory.n_alive, 0);
}

static void statuses_and_versions_have_texts(void **state)
{
    (void)state;
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", EIDER_VERSION_MAJOR, EIDER_VERSION_MINOR,
             EIDER_VERSION_PATCH);
    assert_string_equal(eider_version(), version);
#define EIDER_STATUS(name, value, text)                                            \
    assert_string_equal(eider_status_name((eider_status)(value)), "EIDER_" #name); \
    assert_string_equal(eider_status_text((eider_status)(value)), text);
#include "eider/status.def"
    assert_string_equal(eider_status_name((eider_status)1000), "unknown status");
    assert_non_null(eider_status_text((eider_status)-1));
}

static void *fail_elsewhere(void *arg)
{
    eider_dtype type;
    int *is_right = arg;
    *is_right = eider_error()[0] == '\0' && eider_dtype_parse("f17", &type) == EIDER_BAD_ARG &&
                strstr(eider_error(), "f17") != NULL;
    return NULL;
}

static void the_detail_of_an_error_is_the_threads_own(void **state)
{
    (void)state;
    eider_dtype type;
    pthread_t thread;
    int is_right = 0;
    assert_int_equal(eider_dtype_parse("f18", &type), EIDER_BAD_ARG);
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, &is_right), 0);
    pthread_join(thread, NULL);
    assert_true(is_right);
    assert_non_null(strstr(eider_error(), "f18"));
}

static void null_arguments_are_errors_not_crashes(void **state)
{
    (void)state;
    eider_context *ctx;
    eider_device *cpu;
    must(eider_context_create(NULL, &ctx));
    must(eider_device_open(ctx, "cpu", &cpu));
    assert_int_equal(eider_device_open(NULL, "cpu", &cpu), EIDER_BAD_ARG);
    assert_int_equal(eider_device_open(ctx, NULL, &cpu), EIDER_BAD_ARG);
    assert_int_equal(eider_device_open(ctx, "cpu", NULL), EIDER_BAD_ARG);
    assert_int_equal(eider_device_from_cuda(ctx, NULL, &cpu), EIDER_BAD_ARG);
    assert_int_equal(eider_memory_alloc(NULL, 1, NULL), EIDER_BAD_ARG);
    assert_int_equal(eider_memory_alloc(cpu, 1, NULL), EIDER_BAD_ARG);
    assert_int_equal(eider_stream_wait(NULL, NULL), EIDER_BAD_ARG);
    assert_int_equal(eider_prepare(cpu, NULL, NULL), EIDER_BAD_ARG);
    assert_int_equal(eider_compile(ctx, NULL, NULL), EIDER_BAD_ARG);
    assert_int_equal(eider_launch(NULL, NULL, NULL, 0), EIDER_BAD_ARG);
    assert_int_equal(eider_launch_grid(NULL, NULL, NULL, NULL, 0), EIDER_BAD_ARG);
    eider_kernel_release(NULL);
    eider_device_release(cpu);
    eider_context_destroy(ctx);
}

static void the_driver_is_looked_for_where_the_environment_says(void **state)
{
    (void)state;
    eider_context *ctx;
    int32_t n;
    setenv("EIDER_LIBCUDA", "/nowhere/of/the/environment.so", 1);
    must(eider_context_create(NULL, &ctx));
    assert_int_equal(eider_device_count(ctx, "cuda", &n), EIDER_NO_DRIVER);
    assert_non_null(strstr(eider_error(), "/nowhere/of/the/environment.so: "));
    assert_null(strstr(eider_error(), "/usr/lib64"));
    unsetenv("EIDER_LIBCUDA");
    eider_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_context_starts_no_thread_and_gives_everything_back),
        cmocka_unit_test(options_out_of_range_are_named),
        cmocka_unit_test(every_backend_fills_every_function),
        cmocka_unit_test(devices_are_found_by_name),
        cmocka_unit_test(the_cpu_describes_itself),
        cmocka_unit_test(memory_of_the_cpu_is_aligned_and_copied),
        cmocka_unit_test(statuses_and_versions_have_texts),
        cmocka_unit_test(the_detail_of_an_error_is_the_threads_own),
        cmocka_unit_test(null_arguments_are_errors_not_crashes),
        cmocka_unit_test(the_driver_is_looked_for_where_the_environment_says),
    };
    return cmocka_run_group_tests_name("context", tests, NULL, NULL);
}
