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
#include <time.h>

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

/* ---- A clock that the test sets ------------------------------------------------- */

static char running[256];
static int n_runs;
static double (*cost_of)(const char *config);

static void note_config(void *user, const char *config, const eider_tensor *args, size_t n)
{
    (void)user, (void)args, (void)n;
    snprintf(running, sizeof running, "%s", config);
    n_runs++;
}

static eider_status pretend(void *user, eider_tune_run run, void *arg, double *out_ns)
{
    (void)user;
    *out_ns = cost_of(running);
    return run(arg);
}

static void set_clock(double (*cost)(const char *config))
{
    cost_of = cost;
    n_runs = 0;
    b.request.hooks.before_run = note_config;
    b.request.hooks.timer = pretend;
}

static double vec_8_is_fast(const char *config)
{
    return strstr(config, "vec=8") ? 1000 : 2000;
}

static double all_are_alike(const char *config)
{
    /* 0.4 % apart, the more complicated ones faster. */
    return 1000 - (strstr(config, "vec=8") ? 2 : 0) - (strstr(config, "unroll=2") ? 2 : 0);
}

static void the_fastest_wins(void **state)
{
    (void)state;
    set_clock(vec_8_is_fast);
    assert_non_null(strstr(workbench_choice(&b), "vec=8,unroll=1"));
}

static void of_near_ties_the_simplest_wins_every_time(void **state)
{
    (void)state;
    set_clock(all_are_alike);
    for (int i = 0; i < 5; i++) {
        b.request.force = 1;
        assert_non_null(strstr(workbench_choice(&b), "vec=4,unroll=1"));
    }
    b.request.tie = 1e-6;
    assert_non_null(strstr(workbench_choice(&b), "vec=8,unroll=2"));
}

static void those_far_behind_stop_early(void **state)
{
    (void)state;
    eider_tuning *tuning;
    eider_tune_summary s;
    set_clock(vec_8_is_fast);
    b.request.rounds = 10;
    must(eider_tune(b.device, &b.request, &tuning));
    eider_tune_describe(tuning, &s);
    for (size_t i = 0; i < s.n_entries; i++) {
        eider_tune_entry e;
        must(eider_tune_entry_get(tuning, i, &e));
        int is_fast = strstr(e.config, "vec=8") != NULL;
        assert_int_equal(e.outcome, is_fast ? EIDER_TUNE_TIMED : EIDER_TUNE_STOPPED);
        /* 10 rounds, and 30 more of a finalist. */
        assert_int_equal(e.n_samples, is_fast ? 40 : 2);
    }
    eider_tune_release(tuning);
}

/* ---- Once is enough -------------------------------------------------------------- */

static void a_second_call_times_nothing(void **state)
{
    (void)state;
    eider_tune_summary s;
    set_clock(vec_8_is_fast);
    must(workbench_tune(&b, &s));
    int before = n_runs;
    uint64_t compiled = compiles();
    must(workbench_tune(&b, &s));
    assert_int_equal(s.end, EIDER_TUNE_RECORDED);
    assert_int_equal(s.n_timed, 0);
    assert_int_equal(n_runs, before);
    assert_int_equal(compiles(), compiled);
}

static void another_context_reads_what_was_recorded(void **state)
{
    (void)state;
    eider_tune_summary s;
    set_clock(vec_8_is_fast);
    workbench_remember(&b);
    must(workbench_tune(&b, &s));
    workbench_reopen(&b);
    n_runs = 0;
    must(workbench_tune(&b, &s));
    assert_int_equal(s.end, EIDER_TUNE_RECORDED);
    assert_int_equal(n_runs, 0);
    assert_int_equal(compiles(), 0);
    assert_true(s.median_ns == 1000);
}

static void adding_a_config_times_only_that_one(void **state)
{
    (void)state;
    eider_tune_summary s;
    eider_tuning *tuning;
    set_clock(vec_8_is_fast);
    workbench_remember(&b);
    must(workbench_tune(&b, &s));
    workbench_reopen(&b);
    const char *more[] = {"vec=2,unroll=1"};
    b.request.configs = more;
    b.request.n_configs = 1;
    n_runs = 0;
    must(eider_tune(b.device, &b.request, &tuning));
    eider_tune_describe(tuning, &s);
    assert_int_equal(s.n_entries, 5);
    assert_int_equal(s.n_timed, 1);
    assert_int_equal(s.n_recorded, 4);
    assert_int_equal(compiles(), 2); /* it, and the reference */
    for (size_t i = 0; i < s.n_entries; i++) {
        eider_tune_entry e;
        must(eider_tune_entry_get(tuning, i, &e));
        assert_int_equal(e.recorded, strstr(e.config, "vec=2") == NULL);
    }
    eider_tune_release(tuning);
    must(workbench_tune(&b, &s));
    assert_int_equal(s.end, EIDER_TUNE_RECORDED);
}

static double vec_4_is_fast(const char *config)
{
    return strstr(config, "vec=4") ? 1000 : 2000;
}

static void a_forced_update_replaces_what_is_recorded(void **state)
{
    (void)state;
    set_clock(vec_8_is_fast);
    workbench_remember(&b);
    assert_non_null(strstr(workbench_choice(&b), "vec=8"));
    cost_of = vec_4_is_fast;
    assert_non_null(strstr(workbench_choice(&b), "vec=8"));
    setenv("EIDER_FORCE_CACHE_UPDATE", "0", 1);
    workbench_reopen(&b);
    assert_non_null(strstr(workbench_choice(&b), "vec=8"));
    setenv("EIDER_FORCE_CACHE_UPDATE", "1", 1);
    workbench_reopen(&b);
    assert_non_null(strstr(workbench_choice(&b), "vec=4"));
    unsetenv("EIDER_FORCE_CACHE_UPDATE");
    workbench_reopen(&b);
    n_runs = 0;
    assert_non_null(strstr(workbench_choice(&b), "vec=4"));
    assert_int_equal(n_runs, 0);
}

static int has_records(void)
{
    char path[512];
    snprintf(path, sizeof path, "%s/tuning/timings.jsonl", b.folder);
    FILE *file = fopen(path, "r");
    if (file) fclose(file);
    return file != NULL;
}

static void remembering_can_be_switched_off(void **state)
{
    (void)state;
    static const char *const off[] = {"0", "", "false"};
    eider_tune_summary s;
    set_clock(vec_8_is_fast);
    b.request.no_records = 0;
    for (int i = 0; i < 3; i++) {
        setenv("EIDER_CACHE_AUTOTUNING", off[i], 1);
        workbench_reopen(&b);
        must(workbench_tune(&b, &s));
        assert_int_equal(has_records(), 0);
    }
    setenv("EIDER_CACHE_AUTOTUNING", "1", 1);
    workbench_reopen(&b);
    must(workbench_tune(&b, &s));
    assert_int_equal(has_records(), 1);
    unsetenv("EIDER_CACHE_AUTOTUNING");
}

static void printing_tells_every_time_and_the_choice(void **state)
{
    (void)state;
    eider_tune_summary s;
    set_clock(vec_8_is_fast);
    setenv("EIDER_PRINT_AUTOTUNING", "false", 1);
    workbench_reopen(&b);
    must(workbench_tune(&b, &s));
    assert_null(strstr(b.log, "tune "));
    setenv("EIDER_PRINT_AUTOTUNING", "1", 1);
    workbench_reopen(&b);
    must(workbench_tune(&b, &s));
    unsetenv("EIDER_PRINT_AUTOTUNING");
    /* Microseconds, and said so. */
    assert_non_null(strstr(b.log, "vec=8,unroll=1"));
    assert_non_null(strstr(b.log, "1.000 us"));
    assert_non_null(strstr(b.log, "2.000 us"));
    assert_non_null(strstr(b.log, "tune chose vec=8,unroll=1"));
}

/* ---- One candidate, fixed values, conditions -------------------------------------- */

static void a_single_candidate_is_taken_untimed_and_uncompiled(void **state)
{
    (void)state;
    eider_tune_summary s;
    set_clock(vec_8_is_fast);
    b.request.space = "vec=8,unroll=2";
    must(workbench_tune(&b, &s));
    assert_int_equal(s.end, EIDER_TUNE_SINGLE);
    assert_int_equal(n_runs, 0);
    assert_int_equal(compiles(), 0);
    b.request.space = "vec=4|8,unroll=1|2";
    b.kernel.config = "vec=4,unroll=1";
    must(workbench_tune(&b, &s));
    assert_int_equal(s.end, EIDER_TUNE_SINGLE);
}

static void what_is_fixed_overrides_what_is_tuned(void **state)
{
    (void)state;
    set_clock(vec_8_is_fast);
    b.kernel.config = "vec=4";
    assert_non_null(strstr(workbench_choice(&b), "vec=4,unroll=1"));
    b.kernel.config = "vec=2";
    eider_tune_summary s;
    assert_int_equal(workbench_tune(&b, &s), EIDER_CONFIG);
    assert_non_null(strstr(eider_error(), "vec=2 is fixed, but the space does not have it"));
    const char *listed[] = {"vec=4,unroll=1", "vec=8,unroll=1"};
    b.request.space = NULL;
    b.request.configs = listed;
    b.request.n_configs = 2;
    assert_int_equal(workbench_tune(&b, &s), EIDER_CONFIG);
    assert_non_null(strstr(eider_error(), "none of 2 configs"));
    b.request.n_configs = 0;
    b.request.condition = "tiles == 16 && unroll == 1";
    assert_non_null(strstr(workbench_choice(&b), "vec=2,unroll=1,block=1,tiles=16"));
}

static int32_t only_unroll_2(void *user, const char *config, const eider_tensor *args, size_t n)
{
    (void)user;
    assert_int_equal(n, 3);
    assert_int_equal(args[0].shape[0], BENCH_ROWS);
    return strstr(config, "unroll=2") != NULL;
}

static void conditions_see_config_and_arguments(void **state)
{
    (void)state;
    eider_tune_summary s;
    set_clock(vec_8_is_fast);
    b.request.condition = "vec * unroll <= 8 && x.size(-1) % vec == 0";
    must(workbench_tune(&b, &s));
    assert_int_equal(s.n_entries, 3);
    b.request.condition = NULL;
    b.request.hooks.accepts = only_unroll_2;
    must(workbench_tune(&b, &s));
    assert_int_equal(s.n_entries, 2);
    b.request.condition = "vec == 4 && unroll == 1";
    assert_int_equal(workbench_tune(&b, &s), EIDER_CONFIG);
    assert_non_null(strstr(eider_error(), "none of 4 configs can work here"));
    b.request.condition = "vec ==";
    assert_int_equal(workbench_tune(&b, &s), EIDER_PARSE);
    b.request.condition = "nonsense < 2";
    assert_int_equal(workbench_tune(&b, &s), EIDER_PARSE);
    assert_non_null(strstr(eider_error(), "condition: 1: unknown name 'nonsense'"));
}

static void malformed_spaces_are_named_with_their_column(void **state)
{
    (void)state;
    static const struct {
        const char *space;
        eider_status status;
        const char *message;
    } rows[] = {
        {"vec", EIDER_PARSE, "space: 4: expected '=' after vec"},
        {"vec=", EIDER_PARSE, "space: 5: expected a name or value"},
        {"vec=4|", EIDER_PARSE, "space: 7: expected a name or value"},
        {"vec=4;unroll=2", EIDER_PARSE, "space: 6: expected '|' or ',', found ';'"},
        {"vec=4,vec=8", EIDER_PARSE, "space: vec is there twice"},
        {"frob=1|2", EIDER_CONFIG, "unknown parameter 'frob'"},
        {"vec=3|5", EIDER_CONFIG, "vec=3 is not one of"},
        {"math=fast|exact", EIDER_CONFIG, "math is not tuned without a tolerance"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        eider_tune_summary s;
        b.request.space = rows[i].space;
        assert_int_equal(workbench_tune(&b, &s), rows[i].status);
        if (!strstr(eider_error(), rows[i].message))
            fail_msg("'%s' gives: %s", rows[i].space, eider_error());
    }
}

static void the_order_of_values_and_configs_changes_nothing(void **state)
{
    (void)state;
    eider_tune_summary s;
    set_clock(all_are_alike);
    must(workbench_tune(&b, &s));
    int before = n_runs;
    b.request.space = "unroll=2|1,vec=8|4|8";
    must(workbench_tune(&b, &s));
    assert_int_equal(s.end, EIDER_TUNE_RECORDED);
    const char *listed[] = {"unroll=2,vec=8", "vec=4,unroll=1", "vec=4,unroll=2", "unroll=1,vec=8",
                            "vec=4,unroll=1,tiles=64"};
    b.request.space = NULL;
    b.request.configs = listed;
    b.request.n_configs = 4;
    must(workbench_tune(&b, &s));
    assert_int_equal(s.end, EIDER_TUNE_RECORDED);
    assert_int_equal(n_runs, before);
}

/* Of the default space for elements, some parameters would mean nothing. */
static void programs_over_rows_and_down_columns_have_spaces_of_their_own(void **state)
{
    (void)state;
    static const char *const texts[] = {"out = x * sum(x * y)", "out = colsum(x * y)"};
    for (int k = 0; k < 2; k++) {
        eider_tuning *tuning;
        eider_tune_summary s;
        eider_program *program;
        const int64_t columns[] = {BENCH_COLUMNS};
        must(eider_program_parse(b.ctx, texts[k], &program));
        b.kernel.program = program;
        if (k) b.args[2] = (eider_tensor){NULL, EIDER_F32, 1, columns, NULL};
        b.request.space = NULL;
        b.request.no_records = 1;
        must(eider_tune(b.device, &b.request, &tuning));
        eider_tune_describe(tuning, &s);
        assert_int_equal(s.n_entries, k ? 9 : 18); /* rows are kept, or not */
        for (size_t i = 0; i < s.n_entries; i++) {
            eider_tune_entry e;
            must(eider_tune_entry_get(tuning, i, &e));
            assert_null(strstr(e.config, "tiles"));
            assert_int_equal(e.outcome == EIDER_TUNE_FAILED || e.outcome == EIDER_TUNE_WRONG, 0);
        }
        eider_tune_release(tuning);
        eider_program_release(program);
    }
}

static void damage(void *user, const char *config, const eider_tensor *args, size_t n)
{
    (void)user, (void)n;
    if (strstr(config, "vec=2,")) ((float *)args[2].data)[1] += 1;
}

static void sums_may_be_rounded_otherwise_but_not_be_others(void **state)
{
    (void)state;
    eider_tuning *tuning;
    eider_tune_entry e;
    eider_program *program;
    must(eider_program_parse(b.ctx, "out = x + sum(x * y)", &program));
    b.kernel.program = program;
    b.request.space = "vec=2|8|16,unroll=1";
    b.request.no_records = 1;
    b.request.hooks.after_run = damage;
    must(eider_tune(b.device, &b.request, &tuning));
    for (size_t i = 0; i < 3; i++) {
        must(eider_tune_entry_get(tuning, i, &e));
        assert_int_equal(e.outcome == EIDER_TUNE_WRONG, strncmp(e.config, "vec=2,", 6) == 0);
    }
    eider_tune_release(tuning);
    eider_program_release(program);
}

static void without_a_space_the_parameters_of_the_template_are_tuned(void **state)
{
    (void)state;
    eider_tune_summary s;
    set_clock(vec_8_is_fast);
    b.request.space = NULL;
    b.request.rounds = 1;
    must(workbench_tune(&b, &s));
    assert_in_range(s.n_entries, 10, 100);
    assert_int_equal(s.n_timed, s.n_entries);
}

static void searches_time_no_more_than_they_may(void **state)
{
    (void)state;
    eider_tune_summary s;
    set_clock(vec_8_is_fast);
    b.request.space = "vec=1|2|4|8|16,unroll=1|2|4,tiles=1|2|4|8|16|32";
    b.request.search = EIDER_SEARCH_DIRECTED;
    b.request.limit = 20;
    b.request.rounds = 1;
    must(workbench_tune(&b, &s));
    assert_int_equal(s.n_timed, 20);
    assert_true(s.median_ns == 1000);
    int before = n_runs;
    must(workbench_tune(&b, &s));
    assert_int_equal(n_runs, before);
    b.request.search = EIDER_SEARCH_RANDOM;
    b.request.limit = 7;
    b.request.seed = 3;
    must(workbench_tune(&b, &s));
    assert_in_range(s.n_timed, 0, 7);
}

/* ---- Pinned -------------------------------------------------------------------------- */

static void pinned_never_times_or_compiles(void **state)
{
    (void)state;
    eider_tune_summary s;
    set_clock(vec_8_is_fast);
    workbench_remember(&b);
    b.request.pinned = 1;
    assert_int_equal(workbench_tune(&b, &s), EIDER_NOT_PREPARED);
    assert_non_null(strstr(eider_error(), "nothing is recorded for key "));
    b.request.space = NULL;
    assert_int_equal(workbench_tune(&b, &s), EIDER_NOT_PREPARED);
    assert_int_equal(n_runs, 0);
    assert_int_equal(compiles(), 0);
    b.request.pinned = 0;
    b.request.space = "vec=4|8,unroll=1|2";
    must(workbench_tune(&b, &s));
    workbench_reopen(&b);
    n_runs = 0;
    b.request.pinned = 1;
    b.request.force = 1; /* does not matter */
    assert_non_null(strstr(workbench_choice(&b), "vec=8,unroll=1"));
    b.request.space = NULL;
    assert_non_null(strstr(workbench_choice(&b), "vec=8,unroll=1"));
    b.kernel.config = "vec=4";
    assert_non_null(strstr(workbench_choice(&b), "vec=4,unroll=1"));
    b.kernel.config = "vec=16";
    assert_int_equal(workbench_tune(&b, &s), EIDER_NOT_PREPARED);
    assert_int_equal(n_runs, 0);
    assert_int_equal(compiles(), 0);
}

static void lookup_finds_what_was_tuned_for_the_bucket(void **state)
{
    (void)state;
    eider_tuning *tuning;
    eider_tune_summary s;
    set_clock(vec_8_is_fast);
    must(workbench_tune(&b, &s));
    eider_tune_request request = {
        .kernel = &b.kernel, .hot = 1, .no_records = 1, .hooks = b.request.hooks};
    b.shape[0] -= 10; /* the same power of two of elements */
    must(eider_tune_lookup(b.device, &request, &tuning));
    eider_tune_describe(tuning, &s);
    b.kernel.config = s.config;
    eider_kernel *kernel;
    must(eider_prepare(b.device, &b.kernel, &kernel));
    must(eider_launch(kernel, NULL, b.args, 3));
    eider_kernel_release(kernel);
    eider_tune_release(tuning);
    b.kernel.config = NULL;
    b.shape[0] = 8;
    assert_int_equal(eider_tune_lookup(b.device, &request, &tuning), EIDER_NOT_PREPARED);
    assert_int_equal(eider_tune_lookup(b.device, NULL, &tuning), EIDER_BAD_ARG);
}

/* ---- Ending early ---------------------------------------------------------------------- */

static int n_reports;

static int32_t cancel_when_timing(void *user, const eider_tune_progress *p)
{
    n_reports++;
    assert_true(p->elapsed_s >= 0);
    return *(const int *)user && strcmp(p->stage, "time") == 0;
}

static void the_caller_may_cancel(void **state)
{
    (void)state;
    eider_tune_summary s;
    int cancels = 1;
    b.request.hooks = (eider_tune_hooks){.user = &cancels, .progress = cancel_when_timing};
    n_reports = 0;
    assert_int_equal(workbench_tune(&b, &s), EIDER_CANCELLED);
    assert_true(n_reports > 0);
    cancels = 0;
    must(workbench_tune(&b, &s));
    assert_int_equal(s.end, EIDER_TUNE_COMPLETE);
}

static int n_timer_calls;

/* Slowly while somebody wants to cancel: reports are as rare as a person reads. */
static eider_status count_times(void *user, eider_tune_run run, void *arg, double *out_ns)
{
    if (*(const int *)user) nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    n_timer_calls++;
    *out_ns = 1000;
    return run(arg);
}

static int32_t cancel_after_a_round(void *user, const eider_tune_progress *p)
{
    (void)p;
    return n_timer_calls >= *(const int *)user;
}

/* A config of which only a time or two are known has not been judged. */
static void what_a_cancelled_tuning_measured_is_kept_and_completed(void **state)
{
    (void)state;
    eider_tune_summary s;
    eider_tune_entry e;
    eider_tuning *tuning;
    int enough = 4;
    b.request.hooks = (eider_tune_hooks){.user = &enough,
                                         .before_run = note_config,
                                         .timer = count_times,
                                         .progress = cancel_after_a_round};
    b.request.rounds = 10;
    n_timer_calls = 0;
    workbench_remember(&b);
    assert_int_equal(workbench_tune(&b, &s), EIDER_CANCELLED);
    assert_non_null(strstr(eider_error(), "the tuning was cancelled after "));
    workbench_reopen(&b);
    b.request.hooks.progress = NULL;
    enough = 0;
    must(eider_tune(b.device, &b.request, &tuning));
    eider_tune_describe(tuning, &s);
    assert_int_equal(s.end, EIDER_TUNE_COMPLETE);
    size_t n = 0;
    for (size_t i = 0; i < s.n_entries; i++) {
        must(eider_tune_entry_get(tuning, i, &e));
        assert_true(e.n_samples >= 10);
        n += e.n_samples;
    }
    /* The times of before count as well. */
    assert_int_equal(n, n_timer_calls);
    eider_tune_release(tuning);
    n_timer_calls = 0;
    must(workbench_tune(&b, &s));
    assert_int_equal(s.end, EIDER_TUNE_RECORDED);
    assert_int_equal(n_timer_calls, 0);
}

static void a_budget_ends_with_the_best_so_far(void **state)
{
    (void)state;
    eider_tune_summary s;
    const char *listed[] = {"", "vec=2"}; /* the first is the default rule's */
    b.request.budget_s = 1e-9;
    assert_int_equal(workbench_tune(&b, &s), EIDER_TIMEOUT);
    b.request.configs = listed;
    b.request.n_configs = 2;
    must(workbench_tune(&b, &s));
    assert_int_equal(s.end, EIDER_TUNE_BUDGET);
    assert_int_equal(s.n_entries, 6);
    assert_int_equal(s.n_timed, 0);
    /* It is no answer to those who can wait. */
    b.request.budget_s = 30;
    must(workbench_tune(&b, &s));
    assert_int_equal(s.end, EIDER_TUNE_COMPLETE);
    assert_int_equal(s.n_timed, 6);
}

/* ---- Threads ------------------------------------------------------------------------------ */

static void *tune_in_thread(void *arg)
{
    eider_tune_summary *s = arg;
    if (workbench_tune(&b, s) != EIDER_OK) s->n_entries = 0;
    return NULL;
}

static void threads_that_want_the_same_tune_it_once(void **state)
{
    (void)state;
    enum { N = 6 };
    pthread_t threads[N];
    eider_tune_summary s[N] = {{0}};
    size_t n_timed = 0;
    for (int i = 0; i < N; i++) pthread_create(&threads[i], NULL, tune_in_thread, &s[i]);
    for (int i = 0; i < N; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < N; i++) {
        assert_int_equal(s[i].n_entries, 4);
        assert_int_equal(s[i].choice, s[0].choice);
        n_timed += s[i].n_timed;
    }
    assert_int_equal(n_timed, 4);
}

static void arguments_that_cannot_be_are_refused(void **state)
{
    (void)state;
    eider_tune_summary s;
    eider_tuning *tuning;
    assert_int_equal(eider_tune(NULL, &b.request, &tuning), EIDER_BAD_ARG);
    assert_int_equal(eider_tune(b.device, NULL, &tuning), EIDER_BAD_ARG);
    b.request.limit = -1;
    assert_int_equal(workbench_tune(&b, &s), EIDER_BAD_ARG);
    b.request.limit = 0;
    b.request.search = (eider_search)9;
    assert_int_equal(workbench_tune(&b, &s), EIDER_BAD_ARG);
    b.request.search = EIDER_SEARCH_AUTO;
    b.request.restore = "q";
    assert_int_equal(workbench_tune(&b, &s), EIDER_PARSE);
    assert_non_null(strstr(eider_error(), "restore: 1: expected the name of a tensor"));
    b.request.restore = NULL;
    b.request.reference = "vec=3";
    assert_int_equal(workbench_tune(&b, &s), EIDER_CONFIG);
    b.request.reference = NULL;
    b.request.kernel = NULL;
    assert_int_equal(workbench_tune(&b, &s), EIDER_BAD_ARG);
    eider_tune_release(NULL);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_bench, close_bench)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_candidate_is_timed_and_one_is_chosen),
        TEST(the_fastest_wins),
        TEST(of_near_ties_the_simplest_wins_every_time),
        TEST(those_far_behind_stop_early),
        TEST(a_second_call_times_nothing),
        TEST(another_context_reads_what_was_recorded),
        TEST(adding_a_config_times_only_that_one),
        TEST(a_forced_update_replaces_what_is_recorded),
        TEST(remembering_can_be_switched_off),
        TEST(printing_tells_every_time_and_the_choice),
        TEST(a_single_candidate_is_taken_untimed_and_uncompiled),
        TEST(what_is_fixed_overrides_what_is_tuned),
        TEST(conditions_see_config_and_arguments),
        TEST(malformed_spaces_are_named_with_their_column),
        TEST(the_order_of_values_and_configs_changes_nothing),
        TEST(without_a_space_the_parameters_of_the_template_are_tuned),
        TEST(sums_may_be_rounded_otherwise_but_not_be_others),
        TEST(programs_over_rows_and_down_columns_have_spaces_of_their_own),
        TEST(searches_time_no_more_than_they_may),
        TEST(pinned_never_times_or_compiles),
        TEST(lookup_finds_what_was_tuned_for_the_bucket),
        TEST(the_caller_may_cancel),
        TEST(what_a_cancelled_tuning_measured_is_kept_and_completed),
        TEST(a_budget_ends_with_the_best_so_far),
        TEST(threads_that_want_the_same_tune_it_once),
        TEST(arguments_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests_name("tuner", tests, NULL, NULL);
}
