/* measure.c -- see measure.h. */
#include "measure.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "choose.h"
#include "code_cache.h"
#include "gate.h"

#define THREADS_MAX 64
#define COMPILE_CHUNK 256 /* candidates whose requests are made at a time */
#define DEFAULT_BUDGET_S 60.0
#define DEFAULT_WARM_UP_MS 50
#define DEFAULT_ROUNDS 10
#define FINAL_FACTOR 3 /* rounds of finalists, on top */
#define ROUNDS_MIN 3   /* of those that a time gives */
#define ROUNDS_MAX 10000
#define FINALISTS_MAX 16
#define FINAL_BAND 0.05
#define REPORT_EVERY_S 0.05
#define HOT_RUNS 5 /* of one visit: the first two bring the data into the cache */
#define HOT_DROPPED 2

/* How far behind the best a candidate may be after so many rounds.  The medians of the first
 * rounds are rough. */
static const struct {
    int32_t rounds;
    double factor;
} stops[] = {{2, 1.5}, {4, 1.2}, {7, 1.1}};

double eider_measure_clock_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- Progress, budget, cancellation ------------------------------------------------ */

/* Tells the caller where things stand and looks at the clock.  EIDER_CANCELLED ends it all. */
static eider_status report(struct eider_measure *m, const char *stage, const char *config,
                           size_t done, size_t total)
{
    const eider_tune_hooks *hooks = &m->call->request->hooks;
    double now = eider_measure_clock_s();
    if (now - m->start_s >= m->budget_s) atomic_store(&m->over, 1);
    if (!hooks->progress || (done && done < total && now - m->last_report_s < REPORT_EVERY_S))
        return EIDER_OK;
    m->last_report_s = now;
    eider_tune_progress p = {.stage = stage,
                             .config = config,
                             .done = done,
                             .total = total,
                             .n_candidates = m->space->n,
                             .best_ns = isinf(m->best_ns) ? 0 : m->best_ns,
                             .elapsed_s = now - m->start_s};
    if (!hooks->progress(hooks->user, &p)) return EIDER_OK;
    atomic_store(&m->over, 1);
    m->cancelled = 1;
    return eider_fail(EIDER_CANCELLED, "the tuning was cancelled after %.2f s", p.elapsed_s);
}

/* ---- Failures ------------------------------------------------------------------------ */

/* Failures that say nothing about the config are not recorded. */
static int is_transient(eider_status status)
{
    return status == EIDER_OOM || status == EIDER_IO || status == EIDER_DRIVER ||
           status == EIDER_TIMEOUT || status == EIDER_WORKER || status == EIDER_NO_DEVICE;
}

static void fail_candidate(struct eider_candidate *c, eider_status status, const char *text)
{
    c->outcome = EIDER_TUNE_FAILED;
    c->status = status;
    c->transient = is_transient(status);
    snprintf(c->reason, sizeof c->reason, "%.150s", text);
    for (char *at = c->reason; *at; at++) /* an assembler's log is of several lines */
        if (*at == '\n') *at = ' ';
}

/* A candidate that could not run is passed over, unless it took the device with it. */
static eider_status survive(struct eider_measure *m, struct eider_candidate *c, eider_status status)
{
    fail_candidate(c, status, eider_error());
    if (status == EIDER_CANCELLED) return status;
    status = eider_stream_wait(m->call->device, m->scratch.stream);
    if (status != EIDER_OK) eider_fail_prefix("after config %s the device fails: ", c->config);
    return status;
}

/* ---- Compiling ----------------------------------------------------------------------- */

struct compiling {
    struct eider_measure *m;
    const size_t *which;
    size_t n;
    struct eider_call_request *requests;
    atomic_size_t next, done;
};

static void compile_one(struct compiling *c, size_t i)
{
    struct eider_candidate *candidate = &c->m->space->at[c->which[i]];
    if (candidate->outcome == EIDER_TUNE_FAILED) return;
    eider_status status =
        eider_prepare(c->m->call->device, &c->requests[i].request, &candidate->kernel);
    if (status != EIDER_OK) fail_candidate(candidate, status, eider_error());
}

static void *compile_some(void *arg)
{
    struct compiling *c = arg;
    while (!atomic_load(&c->m->over)) {
        size_t i = atomic_fetch_add(&c->next, 1);
        if (i >= c->n) break;
        compile_one(c, i);
        atomic_fetch_add(&c->done, 1);
    }
    return NULL;
}

static int count_threads(const eider_context *ctx, size_t n)
{
    cpu_set_t set;
    int threads = ctx->cpu_threads;
    if (threads == 0) threads = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    if (threads > THREADS_MAX) threads = THREADS_MAX;
    return (size_t)threads > n ? (int)n : threads;
}

/* This thread compiles as well, and is the one that reports. */
static eider_status compile_parallel(struct compiling *c)
{
    pthread_t threads[THREADS_MAX];
    int n_threads = 0, wanted = count_threads(c->m->call->ctx, c->n) - 1;
    eider_status status = EIDER_OK;
    while (n_threads < wanted && pthread_create(&threads[n_threads], NULL, compile_some, c) == 0)
        n_threads++;
    while (status == EIDER_OK && !atomic_load(&c->m->over)) {
        size_t i = atomic_fetch_add(&c->next, 1);
        if (i >= c->n) break;
        compile_one(c, i);
        atomic_fetch_add(&c->done, 1);
        status = report(c->m, "compile", c->m->space->at[c->which[i]].config, atomic_load(&c->done),
                        c->n);
    }
    for (int i = 0; i < n_threads; i++) pthread_join(threads[i], NULL);
    return status;
}

static eider_status compile_chunk(struct eider_measure *m, const size_t *which, size_t n)
{
    const eider_allocator *a = &m->call->ctx->allocator;
    struct compiling c = {.m = m, .which = which, .n = n};
    c.requests = eider_mem_zero(a, n * sizeof *c.requests);
    if (!c.requests) return EIDER_OOM;
    for (size_t i = 0; i < n; i++) {
        struct eider_candidate *candidate = &m->space->at[which[i]];
        eider_status status = eider_call_request(m->call, candidate->config, &c.requests[i]);
        candidate->geometry = c.requests[i].geometry;
        if (status != EIDER_OK) fail_candidate(candidate, status, eider_error());
    }
    eider_status status = compile_parallel(&c);
    for (size_t i = 0; i < n; i++) eider_call_request_release(m->call, &c.requests[i]);
    eider_mem_free(a, c.requests);
    return status;
}

static eider_status compile(struct eider_measure *m, const size_t *which, size_t n)
{
    double start = eider_measure_clock_s();
    eider_status status = EIDER_OK;
    for (size_t i = 0; i < n && status == EIDER_OK && !atomic_load(&m->over); i += COMPILE_CHUNK)
        status = compile_chunk(m, which + i, n - i < COMPILE_CHUNK ? n - i : COMPILE_CHUNK);
    m->compile_s += eider_measure_clock_s() - start;
    return status;
}

/* ---- Checking -------------------------------------------------------------------------- */

static eider_status check(struct eider_measure *m, const size_t *which, size_t n)
{
    double start = eider_measure_clock_s();
    eider_status status = EIDER_OK;
    for (size_t i = 0; i < n && status == EIDER_OK && !atomic_load(&m->over); i++) {
        struct eider_candidate *c = &m->space->at[which[i]];
        if (!c->kernel || c->outcome == EIDER_TUNE_FAILED) continue;
        status = eider_gate_check(&m->scratch, c);
        if (status != EIDER_OK) status = survive(m, c, status);
        if (status == EIDER_OK) status = report(m, "check", c->config, i + 1, n);
    }
    m->check_s += eider_measure_clock_s() - start;
    return status;
}

/* ---- Timing ------------------------------------------------------------------------------ */

struct timed_run {
    struct eider_measure *m;
    const struct eider_candidate *c;
};

static eider_status launch(const struct eider_measure *m, const struct eider_candidate *c)
{
    const struct eider_scratch *s = &m->scratch;
    if (m->call->graph) return eider_launch(c->kernel, s->stream, s->args, s->n);
    return eider_launch_grid(c->kernel, s->stream, c->geometry.grid, s->args, s->n);
}

static eider_status run_for_timer(void *arg)
{
    struct timed_run *run = arg;
    EIDER_TRY(launch(run->m, run->c));
    return eider_stream_wait(run->m->call->device, run->m->scratch.stream);
}

/* `n` launches, each with its own time. */
static eider_status clock_runs(struct eider_measure *m, const struct eider_candidate *c, int32_t n,
                               double *ns)
{
    struct eider_scratch *s = &m->scratch;
    const eider_tune_hooks *hooks = &m->call->request->hooks;
    struct timed_run run = {m, c};
    for (int32_t i = 0; hooks->timer && i < n; i++)
        EIDER_TRY(hooks->timer(hooks->user, run_for_timer, &run, &ns[i]));
    if (hooks->timer) return EIDER_OK;
    if (m->call->graph) return eider_time(c->kernel, s->stream, s->args, s->n, n, 0, ns);
    return eider_launch_time_grid(c->kernel, s->stream, c->geometry.grid, s->args, s->n, n, ns);
}

/* Whether something must happen to the operands before every single run. */
static int needs_care(const struct eider_measure *m)
{
    const eider_tune_hooks *hooks = &m->call->request->hooks;
    for (size_t i = 0; i < m->scratch.n; i++)
        if (m->scratch.at[i].role == EIDER_SCRATCH_RESTORE ||
            m->scratch.at[i].role == EIDER_SCRATCH_RESET)
            return 1;
    return hooks->before_run || hooks->after_run;
}

/* Operands in place and, last, so that it is what the device is busy with while the launch is
 * queued behind it, the flush. */
static eider_status before_run(struct eider_measure *m, const struct eider_candidate *c)
{
    const eider_tune_hooks *hooks = &m->call->request->hooks;
    EIDER_TRY(eider_scratch_reset(&m->scratch, c->config, -1));
    if (hooks->before_run) {
        EIDER_TRY(eider_stream_wait(m->call->device, m->scratch.stream));
        hooks->before_run(hooks->user, c->config, m->scratch.args, m->scratch.n);
    }
    if (!m->call->request->hot || !needs_care(m)) EIDER_TRY(eider_scratch_flush(&m->scratch));
    /* A clock of the caller's sees the host's time, to which what is queued would count. */
    return hooks->timer ? eider_stream_wait(m->call->device, m->scratch.stream) : EIDER_OK;
}

static void after_run(struct eider_measure *m, const struct eider_candidate *c)
{
    const eider_tune_hooks *hooks = &m->call->request->hooks;
    if (hooks->after_run) hooks->after_run(hooks->user, c->config, m->scratch.args, m->scratch.n);
}

/* One visit: one cold time, or the median of a few hot ones.  Hot operands that need care
 * are warmed by a run of their own. */
static eider_status visit(struct eider_measure *m, const struct eider_candidate *c, double *out_ns)
{
    double ns[HOT_RUNS];
    int is_hot = m->call->request->hot != 0, careful = needs_care(m);
    int32_t n = is_hot && !careful ? HOT_RUNS : 1;
    if (is_hot && careful) {
        EIDER_TRY(before_run(m, c));
        EIDER_TRY(launch(m, c));
        after_run(m, c);
    }
    EIDER_TRY(before_run(m, c));
    EIDER_TRY(clock_runs(m, c, n, ns));
    after_run(m, c);
    if (n == 1) {
        *out_ns = ns[0];
        return EIDER_OK;
    }
    eider_choose_sort(ns + HOT_DROPPED, HOT_RUNS - HOT_DROPPED);
    *out_ns = eider_choose_quantile(ns + HOT_DROPPED, HOT_RUNS - HOT_DROPPED, 0.5);
    return EIDER_OK;
}

static eider_status warm_up(struct eider_measure *m)
{
    int32_t ms = m->call->request->warm_up_ms;
    double ns, until;
    if (m->is_warm || ms < 0) return EIDER_OK;
    m->is_warm = 1;
    until = eider_measure_clock_s() + 1e-3 * (ms ? ms : DEFAULT_WARM_UP_MS);
    while (eider_measure_clock_s() < until) {
        EIDER_TRY(visit(m, &m->reference, &ns));
        EIDER_TRY(report(m, "time", m->reference.config, 1, 2));
        if (atomic_load(&m->over)) return EIDER_OK;
    }
    return EIDER_OK;
}

static int in_race(const struct eider_candidate *c)
{
    return c->kernel && (c->outcome == EIDER_TUNE_UNTRIED || c->outcome == EIDER_TUNE_TIMED);
}

static eider_status time_once(struct eider_measure *m, struct eider_candidate *c)
{
    double ns;
    eider_status status = visit(m, c, &ns);
    if (status != EIDER_OK) return survive(m, c, status);
    /* Whole nanoseconds, as they are recorded: the choice is the same from a file. */
    EIDER_TRY(eider_space_sample(m->space, c, ns < 1 ? 1 : floor(ns + 0.5), m->clock_khz));
    c->outcome = EIDER_TUNE_TIMED;
    c->recorded = 0;
    return EIDER_OK;
}

static void find_best(struct eider_measure *m, const size_t *which, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct eider_candidate *c = &m->space->at[which[i]];
        double median = eider_choose_median(c);
        if (c->outcome != EIDER_TUNE_TIMED || median >= m->best_ns) continue;
        m->best_ns = median;
        m->best_config = c->config;
    }
}

static void drop_slow(struct eider_measure *m, const size_t *which, size_t n, int64_t rounds)
{
    for (size_t s = 0; s < sizeof stops / sizeof stops[0]; s++) {
        if (stops[s].rounds != rounds) continue;
        for (size_t i = 0; i < n; i++) {
            struct eider_candidate *c = &m->space->at[which[i]];
            if (in_race(c) && eider_choose_median(c) > stops[s].factor * m->best_ns)
                c->outcome = EIDER_TUNE_STOPPED;
        }
    }
}

/* By what is known of the fastest, which is nothing before the first round. */
static int32_t rounds_of(const struct eider_measure *m)
{
    const eider_tune_request *r = m->call->request;
    if (!(r->repeat_ms > 0)) return r->rounds ? r->rounds : DEFAULT_ROUNDS;
    double rounds = ceil(1e6 * r->repeat_ms / m->best_ns);
    return (int32_t)(rounds < ROUNDS_MIN ? ROUNDS_MIN : rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds);
}

static const char *leader(const struct eider_measure *m)
{
    return m->best_config ? m->best_config : m->reference.config;
}

static eider_status race(struct eider_measure *m, const size_t *which, size_t n, int32_t factor,
                         int may_stop)
{
    const struct eider_backend *backend = m->call->device->backend;
    int64_t rounds = factor * (int64_t)rounds_of(m);
    EIDER_TRY(report(m, "time", leader(m), 0, (size_t)rounds * n));
    for (int64_t round = 0; round < rounds && !atomic_load(&m->over); round++) {
        if (backend->clock(m->call->device, m->scratch.stream, &m->clock_khz) != EIDER_OK)
            m->clock_khz = 0; /* worth knowing, not worth failing for */
        for (size_t k = 0; k < n; k++) {
            /* Every round begins elsewhere: nobody always follows the same neighbour. */
            struct eider_candidate *c = &m->space->at[which[(k + (size_t)round * 7) % n]];
            if (!in_race(c)) continue;
            EIDER_TRY(time_once(m, c));
            const char *shown = m->best_config ? m->best_config : c->config;
            size_t done = (size_t)round * n + k + 1, total = (size_t)rounds * n;
            if (done < total) EIDER_TRY(report(m, "time", shown, done, total));
            if (atomic_load(&m->over)) return EIDER_OK;
        }
        /* Medians fall as well as rise: the best is looked for anew. */
        m->best_ns = INFINITY;
        for (size_t i = 0; i < m->space->n; i++) find_best(m, &i, 1);
        if (may_stop) drop_slow(m, which, n, round + 1);
        rounds = factor * (int64_t)rounds_of(m);
    }
    if (atomic_load(&m->over)) return EIDER_OK;
    /* Also where the last was dropped. */
    return report(m, "time", leader(m), (size_t)rounds * n, (size_t)rounds * n);
}

/* What the caller wants each to run before its first time. */
static eider_status warm_up_each(struct eider_measure *m, const size_t *which, size_t n)
{
    for (size_t i = 0; i < n && !atomic_load(&m->over); i++) {
        struct eider_candidate *c = &m->space->at[which[i]];
        double ns;
        for (int32_t k = 0; k < m->call->request->warm_up_runs && in_race(c); k++) {
            eider_status status = visit(m, c, &ns);
            if (status != EIDER_OK) EIDER_TRY(survive(m, c, status));
        }
    }
    return EIDER_OK;
}

int eider_measure_knows(const eider_tune_request *request, const struct eider_candidate *c)
{
    int32_t rounds = request->repeat_ms > 0 ? ROUNDS_MIN
                     : request->rounds      ? request->rounds
                                            : DEFAULT_ROUNDS;
    if (c->outcome == EIDER_TUNE_TIMED) return c->n_samples >= (size_t)rounds;
    return c->outcome != EIDER_TUNE_UNTRIED;
}

eider_status eider_measure_batch(struct eider_measure *m, const size_t *which, size_t n)
{
    if (n == 0) return EIDER_OK;
    EIDER_TRY(compile(m, which, n));
    EIDER_TRY(check(m, which, n));
    double start = eider_measure_clock_s();
    eider_status status = warm_up(m);
    if (status == EIDER_OK) status = warm_up_each(m, which, n);
    if (status == EIDER_OK && !atomic_load(&m->over)) status = race(m, which, n, 1, 1);
    find_best(m, which, n);
    m->time_s += eider_measure_clock_s() - start;
    return status;
}

eider_status eider_measure_finalists(struct eider_measure *m)
{
    size_t which[FINALISTS_MAX], n = 0;
    double start = eider_measure_clock_s();
    for (size_t i = 0; i < m->space->n; i++) {
        const struct eider_candidate *c = &m->space->at[i];
        double median = eider_choose_median(c);
        if (!in_race(c) || c->n_samples == c->n_old || median > (1 + FINAL_BAND) * m->best_ns)
            continue;
        size_t at = n < FINALISTS_MAX ? n++ : FINALISTS_MAX;
        for (; at > 0 && eider_choose_median(&m->space->at[which[at - 1]]) > median; at--)
            if (at < FINALISTS_MAX) which[at] = which[at - 1];
        if (at < FINALISTS_MAX) which[at] = i;
    }
    eider_status status = EIDER_OK;
    if (n > 1 && !atomic_load(&m->over)) status = race(m, which, n, FINAL_FACTOR, 0);
    m->time_s += eider_measure_clock_s() - start;
    return status;
}

/* ---- Life ----------------------------------------------------------------------------------- */

/* The default rule; with a tolerance in the mode that is nearest to the program. */
static eider_status set_reference(struct eider_measure *m)
{
    const struct eider_call *call = m->call;
    const eider_tune_request *r = call->request;
    struct eider_pairs config;
    EIDER_TRY(eider_pairs_parse("reference", r->reference ? r->reference : call->kernel->config,
                                &config));
    if (!call->graph && !r->reference)
        EIDER_TRY(eider_pairs_parse("reference", m->space->at[0].config, &config));
    if (call->graph && r->tolerance > 0 && !eider_pairs_get(&config, "math"))
        EIDER_TRY(eider_pairs_set(&config, "math", "exact"));
    EIDER_TRY(eider_call_complete(call, &config, m->reference_config));
    m->reference = (struct eider_candidate){.config = m->reference_config};
    return EIDER_OK;
}

static eider_status build_reference(struct eider_measure *m)
{
    struct eider_call_request request;
    eider_status status = eider_call_request(m->call, m->reference.config, &request);
    m->reference.geometry = request.geometry;
    if (status == EIDER_OK)
        status = eider_prepare(m->call->device, &request.request, &m->reference.kernel);
    eider_call_request_release(m->call, &request);
    return status;
}

eider_status eider_measure_open(const struct eider_call *call, struct eider_space *space,
                                double start_s, struct eider_measure *out)
{
    double budget = call->request->budget_s;
    *out = (struct eider_measure){.call = call,
                                  .space = space,
                                  .start_s = start_s,
                                  .budget_s = budget > 0 ? budget : DEFAULT_BUDGET_S,
                                  .best_ns = INFINITY};
    eider_status status = set_reference(out);
    if (status == EIDER_OK) status = report(out, "compile", out->reference_config, 0, 1);
    if (status == EIDER_OK) status = build_reference(out);
    if (status == EIDER_OK) status = eider_scratch_open(call, &out->scratch);
    if (status == EIDER_OK) {
        out->is_open = 1;
        status = eider_gate_open(&out->scratch, &out->reference);
    }
    if (status != EIDER_OK && status != EIDER_CANCELLED)
        eider_fail_prefix("the reference config %s: ", out->reference_config);
    if (status != EIDER_OK) eider_measure_close(out);
    return status;
}

void eider_measure_close(struct eider_measure *m)
{
    if (m->is_open) eider_scratch_close(&m->scratch);
    eider_kernel_release(m->reference.kernel);
    m->reference.kernel = NULL;
    m->is_open = 0;
}
