/* test_tuner_measure.c -- how candidates are measured: compiled ahead and on all cores, timed in
 * turns, warmed and repeated as asked, and which of them at all.
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

#include "support_runtime.h"
#include "support_tuner.h"

#define EVENTS_MAX 4096

/* What the hooks saw, in order: 'b'efore, 't'imed, 'a'fter, and of which config. */
struct event {
    char kind;
    int config; /* vec * 10 + unroll */
};

static struct workbench b;
static struct event events[EVENTS_MAX];
static int n_events, n_timer_calls;
static int running;
static uint64_t compiles_at_first_time;
static const double *ns_in_turn; /* what the timer says, cyclically; NULL: 1000 */
static int n_in_turn;

static int open_bench(void **state)
{
    (void)state;
    workbench_open(&b);
    n_events = n_timer_calls = 0;
    ns_in_turn = NULL;
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

static void note(char kind, int config)
{
    assert_true(n_events < EVENTS_MAX);
    events[n_events++] = (struct event){kind, config};
}

static void before(void *user, const char *config, const eider_tensor *args, size_t n)
{
    int vec = 0, unroll = 0;
    (void)user, (void)args, (void)n;
    assert_int_equal(sscanf(config, "vec=%d,unroll=%d", &vec, &unroll), 2);
    running = vec * 10 + unroll;
    note('b', running);
}

static void after(void *user, const char *config, const eider_tensor *args, size_t n)
{
    (void)user, (void)config, (void)args, (void)n;
    note('a', running);
}

static eider_status timer(void *user, eider_tune_run run, void *arg, double *out_ns)
{
    (void)user;
    if (n_timer_calls == 0) compiles_at_first_time = compiles();
    *out_ns = ns_in_turn ? ns_in_turn[n_timer_calls % n_in_turn] : 1000;
    n_timer_calls++;
    note('t', running);
    return run(arg);
}

static void watch(void)
{
    b.request.hooks = (eider_tune_hooks){.before_run = before, .after_run = after, .timer = timer};
}

/* The configs that were timed, in order. */
static int timed(int *out)
{
    int n = 0;
    for (int i = 0; i < n_events; i++)
        if (events[i].kind == 't') out[n++] = events[i].config;
    return n;
}

/* ---- Compiling ----------------------------------------------------------------------- */

static void everything_is_compiled_before_anything_is_timed(void **state)
{
    (void)state;
    eider_tune_summary s;
    watch();
    must(workbench_tune(&b, &s));
    assert_int_equal(s.n_timed, 4);
    assert_true(compiles_at_first_time >= 4);
    assert_int_equal(compiles(), compiles_at_first_time);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_t seen[64];
static int n_seen;

static void *count_threads(void *user, void *ptr, size_t old_size, size_t new_size)
{
    (void)user, (void)old_size;
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < n_seen && !pthread_equal(seen[i], pthread_self())) i++;
    if (i == n_seen && n_seen < 64) seen[n_seen++] = pthread_self();
    pthread_mutex_unlock(&lock);
    if (new_size) return realloc(ptr, new_size);
    free(ptr);
    return NULL;
}

static void compiling_uses_as_many_threads_as_the_context_may(void **state)
{
    (void)state;
    eider_context_options options = {.cpu_threads = 4, .allocator = {count_threads, NULL}};
    eider_context *ctx;
    eider_device *device;
    eider_program *program;
    eider_tuning *tuning;
    must(eider_context_create(&options, &ctx));
    must(eider_device_open(ctx, "cpu", &device));
    must(eider_program_parse(ctx, "out = silu(x) * y", &program));
    eider_request kernel = b.kernel;
    kernel.program = program;
    b.request.kernel = &kernel;
    b.request.space = "vec=4|8,unroll=1|2|4,tiles=4|8";
    b.request.rounds = 1;
    n_seen = 0;
    must(eider_tune(device, &b.request, &tuning));
    assert_in_range(n_seen, 3, 4);
    eider_tune_release(tuning);
    eider_program_release(program);
    eider_device_release(device);
    eider_context_destroy(ctx);
}

/* ---- Timing -------------------------------------------------------------------------- */

static void candidates_take_turns_and_every_round_begins_elsewhere(void **state)
{
    (void)state;
    enum { N = 4, ROUNDS = 4 };
    eider_tune_summary s;
    int order[EVENTS_MAX], firsts = 0;
    watch();
    b.request.rounds = ROUNDS;
    must(workbench_tune(&b, &s));
    assert_true(timed(order) >= N * ROUNDS);
    for (int round = 0; round < ROUNDS; round++) {
        const int *at = order + round * N;
        for (int i = 0; i < N; i++)
            for (int k = 0; k < i; k++) assert_int_not_equal(at[i], at[k]);
        for (int k = 0; k < round; k++) firsts += at[0] == order[k * N];
    }
    assert_int_equal(firsts, 0);
}

static void hooks_are_around_every_run_and_outside_the_time(void **state)
{
    (void)state;
    eider_tune_summary s;
    watch();
    must(workbench_tune(&b, &s));
    int n = 0;
    for (int i = 0; i < n_events; i++) {
        if (events[i].kind != 'b') continue;
        int is_timed = events[i + 1].kind == 't';
        assert_int_equal(events[i + 1 + is_timed].kind, 'a');
        assert_int_equal(events[i + 1 + is_timed].config, events[i].config);
        n += 2 + is_timed;
    }
    assert_int_equal(n, n_events);
}

/* Hot, five runs are one sample: the first two bring the data in, the median of the others
 * counts. */
static void hot_times_are_of_warm_runs(void **state)
{
    (void)state;
    static const double ns[] = {900, 800, 10, 30, 20};
    eider_tuning *tuning;
    eider_tune_summary s;
    b.request.hot = 1;
    b.request.hooks = (eider_tune_hooks){.timer = timer};
    b.request.rounds = 3;
    ns_in_turn = ns;
    n_in_turn = 5;
    must(eider_tune(b.device, &b.request, &tuning));
    eider_tune_describe(tuning, &s);
    int n_samples = 0;
    for (size_t i = 0; i < s.n_entries; i++) {
        eider_tune_entry e;
        must(eider_tune_entry_get(tuning, i, &e));
        n_samples += (int)e.n_samples;
        for (size_t k = 0; k < e.n_samples; k++) assert_true(e.samples_ns[k] == 20);
    }
    assert_int_equal(n_timer_calls, 5 * n_samples);
    eider_tune_release(tuning);
}

static void warm_up_runs_are_not_counted(void **state)
{
    (void)state;
    eider_tuning *tuning;
    eider_tune_summary s;
    static const double ns[] = {1000};
    int order[EVENTS_MAX];
    watch();
    b.request.rounds = 1;
    b.request.warm_up_runs = 3;
    ns_in_turn = ns;
    n_in_turn = 1;
    must(eider_tune(b.device, &b.request, &tuning));
    eider_tune_describe(tuning, &s);
    size_t n_samples = 0;
    for (size_t i = 0; i < s.n_entries; i++) {
        eider_tune_entry e;
        must(eider_tune_entry_get(tuning, i, &e));
        n_samples += e.n_samples;
    }
    assert_int_equal(n_samples, 4 * (1 + 3)); /* a round, and three of finalists */
    assert_int_equal(n_timer_calls, n_samples + 4 * 3);
    timed(order);
    for (int i = 1; i < 3; i++) assert_int_equal(order[i], order[0]);
    eider_tune_release(tuning);
    b.request.warm_up_runs = -1;
    assert_int_equal(workbench_tune(&b, &s), EIDER_BAD_ARG);
}

static void repeats_may_be_given_as_a_time(void **state)
{
    (void)state;
    eider_tuning *tuning;
    eider_tune_entry e;
    eider_tune_summary s;
    watch();
    b.request.repeat_ms = 0.02; /* 20 runs of 1000 ns */
    must(eider_tune(b.device, &b.request, &tuning));
    must(eider_tune_entry_get(tuning, 0, &e));
    assert_int_equal(e.n_samples, 20 + 3 * 20);
    eider_tune_release(tuning);
    b.request.force = 1;
    b.request.repeat_ms = 1e-9;
    must(eider_tune(b.device, &b.request, &tuning));
    must(eider_tune_entry_get(tuning, 0, &e));
    assert_int_equal(e.n_samples, 3 + 3 * 3);
    eider_tune_release(tuning);
    b.request.repeat_ms = -1;
    assert_int_equal(workbench_tune(&b, &s), EIDER_BAD_ARG);
    b.request.repeat_ms = (double)INFINITY;
    assert_int_equal(workbench_tune(&b, &s), EIDER_BAD_ARG);
}

static void times_that_spread_are_called_noisy(void **state)
{
    (void)state;
    static const double noisy[] = {1000, 1400, 1800}, steady[] = {1000, 1001};
    eider_tune_summary s;
    watch();
    ns_in_turn = noisy;
    n_in_turn = 3;
    must(workbench_tune(&b, &s));
    assert_int_equal(s.noisy, 1);
    assert_non_null(strstr(b.log, "is the device shared?"));
    ns_in_turn = steady;
    n_in_turn = 2;
    b.request.force = 1;
    must(workbench_tune(&b, &s));
    assert_int_equal(s.noisy, 0);
}

/* ---- Which ------------------------------------------------------------------------------ */

/* Wide vectors are expected to be fast; of vec=2 nothing is known. */
static double expect(void *user, const char *config, const eider_tensor *args, size_t n)
{
    int vec = 0;
    (void)user;
    assert_int_equal(n, 3);
    assert_int_equal(args[0].shape[1], BENCH_COLUMNS);
    sscanf(config, "vec=%d", &vec);
    return vec == 2 ? (double)NAN : 1.0 / vec;
}

static void a_model_of_the_callers_leaves_only_what_it_expects_most_of(void **state)
{
    (void)state;
    eider_tuning *tuning;
    eider_tune_summary s;
    eider_tune_entry e;
    b.request.space = "vec=1|2|4|8,unroll=1|2";
    b.request.hooks = (eider_tune_hooks){.predict = expect};
    b.request.keep = 3;
    must(eider_tune(b.device, &b.request, &tuning));
    eider_tune_describe(tuning, &s);
    static const char *const want[] = {"vec=4,unroll=1", "vec=8,unroll=1", "vec=8,unroll=2"};
    assert_int_equal(s.n_entries, 3);
    assert_int_equal(s.n_timed, 3);
    for (size_t i = 0; i < 3; i++) {
        must(eider_tune_entry_get(tuning, i, &e));
        assert_memory_equal(e.config, want[i], strlen(want[i]));
    }
    eider_tune_release(tuning);
    b.request.keep = 1; /* and one needs no timing */
    must(workbench_tune(&b, &s));
    assert_int_equal(s.end, EIDER_TUNE_SINGLE);
    b.request.hooks.predict = NULL;
    assert_int_equal(workbench_tune(&b, &s), EIDER_BAD_ARG);
    assert_non_null(strstr(eider_error(), "keep is 1 and hooks.predict is NULL"));
}

static void the_default_rules_config_is_always_a_candidate(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{64, 256}, {1, 12}, {3, 5}};
    for (size_t k = 0; k < 3; k++) {
        eider_kernel *kernel;
        eider_kernel_info info;
        eider_tuning *tuning;
        eider_tune_summary s;
        int n = 0;
        memcpy(b.shape, shapes[k], sizeof b.shape);
        must(eider_prepare(b.device, &b.kernel, &kernel));
        eider_kernel_describe(kernel, &info);
        b.request.space = NULL;
        b.request.rounds = 1;
        must(eider_tune(b.device, &b.request, &tuning));
        eider_tune_describe(tuning, &s);
        for (size_t i = 0; i < s.n_entries; i++) {
            eider_tune_entry e;
            must(eider_tune_entry_get(tuning, i, &e));
            n += strcmp(e.config, info.config) == 0;
        }
        assert_int_equal(n, 1);
        eider_tune_release(tuning);
        eider_kernel_release(kernel);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_bench, close_bench)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(everything_is_compiled_before_anything_is_timed),
        TEST(compiling_uses_as_many_threads_as_the_context_may),
        TEST(candidates_take_turns_and_every_round_begins_elsewhere),
        TEST(hooks_are_around_every_run_and_outside_the_time),
        TEST(hot_times_are_of_warm_runs),
        TEST(warm_up_runs_are_not_counted),
        TEST(repeats_may_be_given_as_a_time),
        TEST(times_that_spread_are_called_noisy),
        TEST(a_model_of_the_callers_leaves_only_what_it_expects_most_of),
        TEST(the_default_rules_config_is_always_a_candidate),
    };
    return cmocka_run_group_tests_name("tuner_measure", tests, NULL, NULL);
}
