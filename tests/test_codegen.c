/* test_codegen.c -- LLVM modules become PTX and objects; failures are messages.
 *
 * labels: tsan
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx.h"
#include "support_ll.h"

/* Compiles for `target`; the PTX is the caller's. */
static char *ptx_of(const char *text, const char *entry, const char *target, uint32_t block)
{
    struct eider_codegen_job job = {.entry = entry, .block_threads = block};
    struct eider_codegen_result result;
    assert_int_equal(eider_target_parse(target, &job.target), EIDER_OK);
    if (ll_emit(text, &job, &result) != EIDER_OK) fail_msg("%s: %s", target, eider_error());
    assert_int_equal(strlen(result.code.data), result.code.size);
    return result.code.data;
}

static void assert_in(const char *text, const char *part)
{
    if (!strstr(text, part)) fail_msg("'%s' is not in:\n%s", part, text);
}

static void headers_fit_the_target(void **state)
{
    (void)state;
    static const struct {
        const char *target, *version, *written;
    } rows[] = {
        {"sm_80", ".version 7.1\n", ".target sm_80\n"},
        {"sm_86", ".version 7.1\n", ".target sm_86\n"},
        {"sm_89", ".version 7.8\n", ".target sm_89\n"},
        {"sm_90", ".version 7.8\n", ".target sm_90\n"},
        {"sm_90a", ".version 8.0\n", ".target sm_90a\n"},
        {"sm_100", ".version 7.8\n", ".target sm_90\n"},
        {"sm_120a", ".version 7.8\n", ".target sm_90\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *ptx = ptx_of(ll_swiglu, "swiglu", rows[i].target, 256);
        assert_in(ptx, rows[i].version);
        assert_in(ptx, rows[i].written);
        assert_in(ptx, "tanh.approx.f32");
        eider_mem_free(&ll_allocator, ptx);
    }
}

static void the_block_is_stated_between_parameters_and_body(void **state)
{
    (void)state;
    char *ptx = ptx_of(ll_swiglu, "swiglu", "sm_90", 256);
    assert_in(ptx, ")\n.maxntid 256, 1, 1\n{");
    eider_mem_free(&ll_allocator, ptx);
    ptx = ptx_of(ll_swiglu, "swiglu", "sm_90", 0);
    assert_null(strstr(ptx, ".maxntid"));
    eider_mem_free(&ll_allocator, ptx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_fit_the_target),
        cmocka_unit_test(the_block_is_stated_between_parameters_and_body),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
