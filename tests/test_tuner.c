/* test_tuner.c -- tuning as callers see it, on the CPU: choices, what is timed again and what
 * is not, what is fixed, what fails.
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

#include "support_runtime.h"
#include "support_tuner.h"

static struct workbench b;

static int open_bench(void **state)
{
    (void)state;
    workbench_open(&b);
    return 0;
}

static int close_bench(void **state)
{
    (void)state;
    workbench_close(&b);
    return 0;
}

static uint64_t compiles(void)
{
    eider_counters counters;
    eider_context_counters(b.ctx, &counters);
    return counters.compiles;
}

static void every_candidate_is_timed_and_one_is_chosen(void **state)
{
    (void)state;
    eider_tuning *tuning;
    eider_tune_summary s;
    must(eider_tune(b.device, &b.request, &tuning));
    eider_tune_describe(tuning, &s);
    assert_int_equal(s.n_entries, 4);
    assert_int_equal(s.n_timed, 4);
    assert_int_equal(s.end, EIDER_TUNE_COMPLETE);
    assert_int_equal(strlen(s.key), 32);
    assert_true(s.median_ns > 0);
    for (size_t i = 0; i < s.n_entries; i++) {
        eider_tune_entry e;
        must(eider_tune_entry_get(tuning, i, &e));
        assert_true(e.n_samples >= 2);
        assert_true(e.p20_ns <= e.median_ns && e.median_ns <= e.p80_ns);
        assert_true(eider_tune_quantile(&e, 0) == e.samples_ns[0]);
        assert_true(eider_tune_quantile(&e, 1) == e.samples_ns[e.n_samples - 1]);
        assert_int_equal(i == s.choice, strcmp(e.config, s.config) == 0);
    }
    eider_tune_entry none;
    assert_int_equal(eider_tune_entry_get(tuning, 4, &none), EIDER_BAD_ARG);
    eider_tune_release(tuning);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_candidate_is_timed_and_one_is_chosen, open_bench,
                                        close_bench),
    };
    (void)compiles;
    return cmocka_run_group_tests_name("tuner", tests, NULL, NULL);
}
