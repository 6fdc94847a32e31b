/* test_assemble.c -- PTX becomes cubins, by every assembler that is here. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support_ll.h"

static const char *const names[] = {"nvptxcompiler", "ptxas", "nvjitlink"};
static const char *const targets[] = {"sm_80",  "sm_86",  "sm_89", "sm_90",
                                      "sm_90a", "sm_100", "sm_120"};

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

static struct eider_blob ptx_for(struct eider_target target)
{
    struct eider_codegen_job job = {.target = target, .entry = "swiglu", .block_threads = 256};
    struct eider_codegen_result result;
    assert_int_equal(ll_emit(ll_swiglu, &job, &result), EIDER_OK);
    return result.code;
}

static void every_assembler_makes_cubins_for_every_target(void **state)
{
    (void)state;
    for (size_t n = 0; n < COUNT(names); n++) {
        struct eider_assembler_info info;
        if (eider_assembler_find(names[n], &info) != EIDER_OK) {
            fprintf(stderr, "SKIPPED (no %s): %s\n", names[n], eider_error());
            continue;
        }
        for (size_t t = 0; t < COUNT(targets); t++) {
            struct eider_assemble_job job = {.assembler = names[n], .contract = 1};
            assert_int_equal(eider_target_parse(targets[t], &job.target), EIDER_OK);
            struct eider_blob ptx = ptx_for(job.target);
            struct eider_assemble_result result;
            if (eider_assemble(&ll_allocator, &ptx, &job, &result) != EIDER_OK)
                fail_msg("%s %s: %s", names[n], targets[t], eider_error());
            assert_memory_equal(result.cubin.data, "\177ELF", 4);
            assert_string_equal(result.by.name, names[n]);
            assert_in_range(result.registers, 8, 64);
            assert_int_equal(result.spill_bytes, 0);
            assert_int_equal(result.shared_bytes, 0);
            assert_true(result.ns > 0);
            eider_blob_release(&ll_allocator, &result.cubin);
            eider_blob_release(&ll_allocator, &ptx);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_assembler_makes_cubins_for_every_target),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
