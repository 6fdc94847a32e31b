/* test_ptxc_plugin.c -- eider_nvptxcompiler.so keeps the contract of its header.
 *
 * labels: tsan
 *
 * Skipped, and says so, where the build did not find NVIDIA's archive.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nvptxcompiler_plugin.h"

static const struct eider_ptxc_api *api;

static const char good_ptx[] = ".version 7.8\n"
                               ".target sm_90\n"
                               ".address_size 64\n"
                               ".visible .entry k(.param .u64 p)\n"
                               "{\n"
                               "    .reg .b64 %rd<3>;\n"
                               "    .reg .f32 %f<2>;\n"
                               "    ld.param.u64 %rd1, [p];\n"
                               "    cvta.to.global.u64 %rd2, %rd1;\n"
                               "    mov.f32 %f1, 0f3F800000;\n"
                               "    st.global.f32 [%rd2], %f1;\n"
                               "    ret;\n"
                               "}\n";

/* Line 6 names an instruction that does not exist. */
static const char bad_ptx[] = ".version 7.8\n"
                              ".target sm_90\n"
                              ".address_size 64\n"
                              ".visible .entry k()\n"
                              "{\n"
                              "    fly.to.the.moon;\n"
                              "    ret;\n"
                              "}\n";

static const char *const options[] = {"--gpu-name=sm_90", "--verbose"};

/* The plug-in's place in a build folder, or in an unpacked bundle; NULL when it was not built. */
static const char *find_plugin(void)
{
    static char path[4096];
    const char *named = getenv("EIDER_NVPTXCOMPILER");
    if (named) return named;
    const char *lib = getenv("EIDER_TEST_LIB");
#ifdef EIDER_TEST_LIB
    if (!lib) lib = EIDER_TEST_LIB;
#endif
    static const char *const below[] = {"", "eider/"};
    for (size_t i = 0; lib && i < 2; i++) {
        snprintf(path, sizeof path, "%s/%seider_nvptxcompiler.so", lib, below[i]);
        if (access(path, R_OK) == 0) return path;
    }
    return NULL;
}

static void need_plugin(void)
{
    if (api) return;
    puts("SKIPPED: eider_nvptxcompiler.so was not built (libnvptxcompiler_static.a not found)");
    skip();
}

static int open_plugin(void **state)
{
    (void)state;
    const char *path = find_plugin();
    if (!path) return 0;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        fprintf(stderr, "%s\n", dlerror());
        return -1;
    }
    eider_ptxc_api_fn get;
    void *symbol = dlsym(handle, "eider_ptxc_api");
    memcpy(&get, &symbol, sizeof get);
    api = symbol ? get() : NULL;
    return api ? 0 : -1;
}

static void names_its_abi_and_version(void **state)
{
    (void)state;
    need_plugin();
    assert_int_equal(api->abi, EIDER_PTXC_ABI);
    assert_true(api->major >= 11);
}

static void assembles_a_cubin(void **state)
{
    (void)state;
    need_plugin();
    void *cubin = NULL;
    char *log = NULL;
    size_t len = 0;
    int rc = api->compile(good_ptx, sizeof good_ptx - 1, options, 2, &cubin, &len, &log);
    assert_int_equal(rc, 0);
    assert_true(len > 64);
    assert_memory_equal(cubin, "\177ELF", 4);
    assert_non_null(log);
    assert_non_null(strstr(log, "registers"));
    api->free(cubin);
    api->free(log);
}

static void names_the_line_of_an_error(void **state)
{
    (void)state;
    need_plugin();
    void *cubin = &cubin;
    char *log = NULL;
    size_t len = 1;
    int rc = api->compile(bad_ptx, sizeof bad_ptx - 1, options, 1, &cubin, &len, &log);
    assert_int_not_equal(rc, 0);
    assert_null(cubin);
    assert_int_equal(len, 0);
    assert_non_null(log);
    assert_non_null(strstr(log, "line 6"));
    api->free(log);
}

static void refuses_an_unknown_option(void **state)
{
    (void)state;
    need_plugin();
    static const char *const wrong[] = {"--gpu-name=sm_90", "--no-such-option"};
    void *cubin;
    char *log;
    size_t len;
    assert_int_not_equal(api->compile(good_ptx, sizeof good_ptx - 1, wrong, 2, &cubin, &len, &log),
                         0);
    assert_null(cubin);
    api->free(log);
}

/* Counts, in `*arg`, what did not come out as it does on one thread. */
static void *compile_both(void *arg)
{
    int *n_wrong = arg;
    for (int i = 0; i < 4; i++) {
        void *cubin;
        char *log;
        size_t len;
        *n_wrong +=
            api->compile(good_ptx, sizeof good_ptx - 1, options, 2, &cubin, &len, &log) != 0;
        *n_wrong += !cubin || memcmp(cubin, "\177ELF", 4) != 0;
        api->free(cubin);
        api->free(log);
        *n_wrong += api->compile(bad_ptx, sizeof bad_ptx - 1, options, 1, &cubin, &len, &log) == 0;
        *n_wrong += !log || !strstr(log, "line 6");
        api->free(log);
    }
    return NULL;
}

static void serves_four_threads_at_once(void **state)
{
    (void)state;
    need_plugin();
    pthread_t threads[4];
    int n_wrong[4] = {0};
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, compile_both, &n_wrong[i]), 0);
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < 4; i++) assert_int_equal(n_wrong[i], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_its_abi_and_version),   cmocka_unit_test(assembles_a_cubin),
        cmocka_unit_test(names_the_line_of_an_error),  cmocka_unit_test(refuses_an_unknown_option),
        cmocka_unit_test(serves_four_threads_at_once),
    };
    return cmocka_run_group_tests(tests, open_plugin, NULL);
}
