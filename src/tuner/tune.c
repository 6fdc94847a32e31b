/* tune.c -- from a request to a choice: the public functions.
 *
 *   call and space        what is tuned (call.c, space.c)
 *   key                   what names the choice (trigger.c)
 *   settle                is the choice recorded already?
 *   search and measure    time what is not (search.c, measure.c, gate.c)
 *   publish               record it (records.c, tuner.c), one process at a time (job.c)
 *   choose                the simplest of the fastest (choose.c)
 *
 * Invariant: a choice is made from records alone, so whoever reads the same records makes the
 * same choice, whether it timed anything or not.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "choose.h"
#include "code_cache.h"
#include "job.h"
#include "measure.h"
#include "search.h"
#include "tuner.h"

#define DEFAULT_LIMIT 60
#define AUTO_EXHAUSTIVE_MAX 128
#define DEFAULT_TIE 0.01
#define DEFAULT_JOB_DEADLINE_MS 120000
#define NOISY 0.2
#define HASH_BYTES 33

struct eider_tuning {
    eider_allocator allocator;
    struct eider_space space; /* kernels released, samples sorted */
    eider_tune_summary summary;
};

/* One call of eider_tune. */
struct session {
    struct eider_call call;
    struct eider_tuner *tuner;
    struct eider_space space;
    struct eider_key key;
    struct eider_measure measure;
    eider_search search;
    size_t limit;
    double tie, start_s;
    char space_hash[HASH_BYTES];
    char file_buffer[4096];
    const char *file; /* NULL: memory only */
    int64_t epoch;    /* of what is measured now */
    const struct eider_candidate *choice;
    eider_tune_end end;
};

/* ---- What is recorded ----------------------------------------------------------- */

static int is_open(const struct session *s)
{
    return !s->call.request->space && !s->call.request->n_configs;
}

/* Adds what a record says of a candidate. */
static eider_status apply(struct session *s, const struct eider_record *record)
{
    struct eider_candidate *c = eider_space_find(&s->space, record->config);
    if (!c) return EIDER_OK;
    for (size_t i = 0; i < record->n_samples; i++)
        EIDER_TRY(eider_space_sample(&s->space, c, record->samples[i], record->clocks[i]));
    c->n_old = c->n_samples;
    c->recorded = 1;
    /* Of several runs the worst verdict counts. */
    if (record->outcome > c->outcome) {
        c->outcome = record->outcome;
        snprintf(c->reason, sizeof c->reason, "%.150s", record->reason);
    }
    return EIDER_OK;
}

static void forget(struct eider_space *space)
{
    for (size_t i = 0; i < space->n; i++) {
        struct eider_candidate *c = &space->at[i];
        eider_kernel *kernel = c->kernel;
        *c = (struct eider_candidate){.config = c->config, .kernel = kernel};
    }
}

/* The record of a finished search over the same space, the first that was published; with
 * `any_space` that of the largest. */
static const struct eider_record *find_done(const struct session *s, size_t from, size_t to,
                                            int64_t epoch, int any_space)
{
    const struct eider_records *known = &s->tuner->known;
    const struct eider_record *best = NULL;
    double budget = s->call.request->budget_s;
    for (size_t i = from; i < to; i++) {
        const struct eider_record *r = &known->at[i];
        if (r->kind != EIDER_RECORD_DONE || r->epoch != epoch) continue;
        if (!any_space && strcmp(r->space, s->space_hash) != 0) continue;
        /* One that ended early answers those who would wait no longer. */
        if (!any_space && r->is_cut && !(budget > 0 && budget <= r->budget_s)) continue;
        if (!eider_space_find(&s->space, r->config)) continue;
        int is_better = !best || (any_space && r->n_timed > best->n_timed) ||
                        (!(any_space && r->n_timed < best->n_timed) && r->order < best->order);
        if (is_better) best = r;
    }
    return best;
}

static int is_complete(const struct session *s)
{
    for (size_t i = 0; i < s->space.n; i++)
        if (!eider_measure_knows(s->call.request, &s->space.at[i])) return 0;
    return 1;
}

/* Fills the candidates from the records.  s->choice is set when nothing needs timing. */
static eider_status settle(struct session *s)
{
    size_t from, to;
    int64_t epoch;
    forget(&s->space);
    s->choice = NULL;
    eider_records_find(&s->tuner->known, s->key.digits, &epoch, &from, &to);
    for (size_t i = from; i < to; i++) {
        const struct eider_record *r = &s->tuner->known.at[i];
        if (r->kind == EIDER_RECORD_TIMING && r->epoch == epoch) EIDER_TRY(apply(s, r));
    }
    s->epoch = epoch < 0 ? 0 : epoch;
    const struct eider_record *done =
        find_done(s, from, to, epoch, s->call.request->pinned && is_open(s));
    if (done)
        s->choice = eider_space_find(&s->space, done->config);
    else if (s->call.request->pinned || (s->search == EIDER_SEARCH_EXHAUSTIVE && is_complete(s)))
        s->choice = eider_choose(&s->space, s->tie);
    s->end = EIDER_TUNE_RECORDED;
    return EIDER_OK;
}

/* What is searched and how, as a hash: a done record answers the same question only. */
static eider_status hash_space(struct session *s)
{
    const eider_allocator *a = &s->call.ctx->allocator;
    int is_all = s->search == EIDER_SEARCH_EXHAUSTIVE;
    struct eider_text text;
    char *joined;
    size_t size;
    eider_text_init(&text, a);
    for (size_t i = 0; i < s->space.n; i++)
        eider_text_add(&text, "%s%s\n", s->space.at[i].likely && !is_all ? "*" : "",
                       s->space.at[i].config);
    eider_text_add(&text, "%d %zu %" PRIu64 " %.9g", (int)s->search, is_all ? 0 : s->limit,
                   is_all ? 0 : s->call.request->seed, s->tie);
    EIDER_TRY(eider_text_take(&text, &joined, &size));
    XXH128_hash_t hash = XXH3_128bits(joined, size);
    eider_mem_free(a, joined);
    snprintf(s->space_hash, sizeof s->space_hash, "%016" PRIx64 "%016" PRIx64, hash.high64,
             hash.low64);
    return EIDER_OK;
}

/* ---- Measuring --------------------------------------------------------------------- */

/* The costs of candidates for the search: known, or measured now. */
static eider_status costs(void *user, const size_t *which, size_t n, double *out)
{
    struct session *s = user;
    size_t *missing = eider_mem_alloc(&s->call.ctx->allocator, n * sizeof *missing), n_missing = 0;
    if (!missing) return EIDER_OOM;
    for (size_t i = 0; i < n; i++)
        if (!eider_measure_knows(s->call.request, &s->space.at[which[i]]))
            missing[n_missing++] = which[i];
    eider_status status = eider_measure_batch(&s->measure, missing, n_missing);
    for (size_t i = 0; i < n && status == EIDER_OK; i++) {
        const struct eider_candidate *c = &s->space.at[which[i]];
        int is_timed = c->outcome == EIDER_TUNE_TIMED || c->outcome == EIDER_TUNE_STOPPED;
        out[i] = is_timed ? eider_choose_median(c) : (double)INFINITY;
    }
    eider_mem_free(&s->call.ctx->allocator, missing);
    return status;
}

static eider_status run_search(struct session *s)
{
    const eider_allocator *a = &s->call.ctx->allocator;
    const char **configs = eider_mem_alloc(a, s->space.n * sizeof *configs);
    uint8_t *likely = eider_mem_alloc(a, s->space.n);
    eider_status status = configs && likely ? EIDER_OK : EIDER_OOM;
    for (size_t i = 0; status == EIDER_OK && i < s->space.n; i++) {
        configs[i] = s->space.at[i].config;
        likely[i] = s->space.at[i].likely != 0;
    }
    const struct eider_candidate *first = eider_space_find(&s->space, s->measure.reference_config);
    struct eider_search_job job = {.allocator = a,
                                   .configs = configs,
                                   .n = s->space.n,
                                   .first = first ? (size_t)(first - s->space.at) : s->space.n / 2,
                                   .likely = likely,
                                   .kind = s->search,
                                   .seed = s->call.request->seed,
                                   .limit = s->limit,
                                   .costs = costs,
                                   .user = s};
    if (status == EIDER_OK) status = eider_search_run(&job);
    if (status == EIDER_OK) status = eider_measure_finalists(&s->measure);
    eider_mem_free(a, configs);
    eider_mem_free(a, likely);
    return status;
}

/* ---- Publishing ---------------------------------------------------------------------- */

static void tell(struct session *s)
{
    for (size_t i = 0; s->tuner->tells && i < s->space.n; i++) {
        const struct eider_candidate *c = &s->space.at[i];
        if (c->outcome == EIDER_TUNE_UNTRIED) continue;
        if (c->reason[0])
            eider_context_log(s->call.ctx, 2, "tune %s: %s", c->config, c->reason);
        else
            eider_context_log(s->call.ctx, 2, "tune %s: %.3f us%s", c->config,
                              1e-3 * eider_choose_median(c), c->recorded ? ", recorded" : "");
    }
    if (s->tuner->tells && s->choice)
        eider_context_log(s->call.ctx, 2, "tune chose %s for %s", s->choice->config, s->key.digits);
}

/* Whether there is something new to say about a candidate. */
static int is_news(const struct eider_candidate *c)
{
    int is_verdict = c->outcome == EIDER_TUNE_WRONG || c->outcome == EIDER_TUNE_FAILED;
    return is_verdict ? !c->recorded && !c->transient : c->n_samples > c->n_old;
}

/* One write: everything new about the key, and last that the search is done. */
static eider_status publish(struct session *s, int is_done)
{
    struct eider_text text;
    char *lines;
    size_t size, n_news = 0;
    double budget = s->call.request->budget_s;
    eider_text_init(&text, &s->call.ctx->allocator);
    eider_records_key_line(&text, &s->key, s->epoch);
    for (size_t i = 0; i < s->space.n; i++) {
        if (!is_news(&s->space.at[i])) continue;
        eider_records_timing_line(&text, &s->key, s->epoch, &s->space.at[i]);
        n_news++;
    }
    size_t n_timed = 0;
    for (size_t i = 0; i < s->space.n; i++) n_timed += s->space.at[i].n_samples > 0;
    if (is_done && s->choice)
        eider_records_done_line(&text, &s->key, s->epoch, s->space_hash, s->choice->config,
                                s->end == EIDER_TUNE_BUDGET, budget, n_timed);
    if (n_news == 0 && !(is_done && s->choice)) {
        eider_text_release(&text);
        return EIDER_OK;
    }
    EIDER_TRY(eider_text_take(&text, &lines, &size));
    eider_status status = eider_tuner_publish(s->tuner, s->file, lines, size);
    eider_mem_free(&s->call.ctx->allocator, lines);
    return status;
}

/* What others may have published in the meantime counts, and what came first wins. */
static eider_status agree(struct session *s)
{
    const struct eider_record *done;
    size_t from, to;
    int64_t epoch;
    EIDER_TRY(eider_tuner_read(s->tuner, s->file, s->key.digits));
    eider_records_find(&s->tuner->known, s->key.digits, &epoch, &from, &to);
    done = find_done(s, from, to, epoch, 0);
    if (done) s->choice = eider_space_find(&s->space, done->config);
    return EIDER_OK;
}

/* ---- Tuning ---------------------------------------------------------------------------- */

static eider_status fail_all(const struct session *s)
{
    size_t n = 0;
    const struct eider_candidate *first = NULL;
    for (size_t i = 0; i < s->space.n; i++) {
        const struct eider_candidate *c = &s->space.at[i];
        if (c->outcome != EIDER_TUNE_WRONG && c->outcome != EIDER_TUNE_FAILED) continue;
        if (!first) first = c;
        n++;
    }
    if (!first) return eider_fail(EIDER_TIMEOUT, "the budget ended before any config was timed");
    eider_status status = first->status ? first->status : EIDER_CONFIG;
    return eider_fail(status, "none of %zu configs works; the first, %s: %s", n, first->config,
                      first->reason);
}

/* The choice when the search is over, and how it ended.  A budget that ended before anything
 * was timed leaves the reference. */
static eider_status conclude(struct session *s)
{
    s->end = atomic_load(&s->measure.over) ? EIDER_TUNE_BUDGET : EIDER_TUNE_COMPLETE;
    s->choice = eider_choose(&s->space, s->tie);
    if (!s->choice && s->end == EIDER_TUNE_BUDGET)
        s->choice = eider_space_find(&s->space, s->measure.reference_config);
    return s->choice ? EIDER_OK : fail_all(s);
}

static eider_status measure(struct session *s)
{
    char message[512];
    EIDER_TRY(eider_measure_open(&s->call, &s->space, s->start_s, &s->measure));
    eider_status status = run_search(s);
    if (status == EIDER_OK) status = conclude(s);
    if (status == EIDER_OK) {
        status = publish(s, s->choice->n_samples > 0);
        eider_measure_close(&s->measure);
        return status;
    }
    /* Timings and verdicts are worth keeping all the same, and what went wrong is not what may
     * go wrong in closing. */
    snprintf(message, sizeof message, "%.511s", eider_error());
    s->choice = NULL;
    (void)publish(s, 0);
    eider_measure_close(&s->measure);
    return eider_fail(status, "%s", message);
}

static eider_status tune_locked(struct session *s)
{
    const eider_tune_request *r = s->call.request;
    int is_forced = !r->pinned && (r->force || s->tuner->forces);
    int64_t asked_epoch;
    EIDER_TRY(settle(s));
    if (s->choice && !is_forced) return EIDER_OK;
    EIDER_TRY(eider_tuner_read(s->tuner, s->file, s->key.digits));
    EIDER_TRY(settle(s));
    if (s->choice && !is_forced) return EIDER_OK;
    if (r->pinned)
        return eider_fail(EIDER_NOT_PREPARED,
                          "nothing is recorded for key %s, and a pinned tuning does not time",
                          s->key.digits);
    EIDER_TRY(eider_stream_wait(s->call.device, r->stream));

    struct eider_job job = {.fd = -1};
    asked_epoch = s->epoch;
    if (s->file) {
        int32_t deadline = r->job_deadline_ms ? r->job_deadline_ms : DEFAULT_JOB_DEADLINE_MS;
        (void)eider_records_make_folder(s->file);
        EIDER_TRY(eider_job_enter(s->file, s->key.digits, deadline, &job));
    }
    eider_status status = eider_tuner_read(s->tuner, s->file, s->key.digits);
    if (status == EIDER_OK) status = settle(s);
    /* Another process may have done it while this one waited, the forced update too. */
    int is_done = s->choice && (!is_forced || s->epoch > asked_epoch);
    if (status == EIDER_OK && !is_done) {
        if (is_forced) {
            int64_t epoch;
            size_t from, to;
            eider_records_find(&s->tuner->known, s->key.digits, &epoch, &from, &to);
            forget(&s->space);
            s->epoch = epoch + 1;
        }
        status = measure(s);
        if (status == EIDER_OK && s->file) status = agree(s);
    }
    eider_job_leave(&job);
    return status;
}

/* ---- Sessions ------------------------------------------------------------------------------ */

/* The candidates of a pinned call that names none: everything that is recorded. */
static eider_status space_of_records(struct session *s, struct eider_space *out)
{
    size_t from, to;
    int64_t epoch;
    eider_records_find(&s->tuner->known, s->key.digits, &epoch, &from, &to);
    size_t n = 0;
    const char **configs =
        eider_mem_alloc(&s->call.ctx->allocator, (to - from + 1) * sizeof *configs);
    if (!configs) return EIDER_OOM;
    for (size_t i = from; i < to; i++) {
        const struct eider_record *r = &s->tuner->known.at[i];
        if (r->kind == EIDER_RECORD_TIMING && r->epoch == epoch) configs[n++] = r->config;
    }
    eider_tune_request request = *s->call.request;
    struct eider_call call = s->call;
    request.configs = configs;
    request.n_configs = n;
    call.request = &request;
    eider_status status = n ? eider_space_create(&call, out)
                            : eider_fail(EIDER_NOT_PREPARED,
                                         "nothing is recorded for key %s, and a pinned tuning "
                                         "does not time",
                                         s->key.digits);
    if (status == EIDER_CONFIG)
        status = eider_fail(EIDER_NOT_PREPARED, "nothing that fits is recorded for key %s",
                            s->key.digits);
    eider_mem_free(&s->call.ctx->allocator, configs);
    return status;
}

static eider_status set_search(struct session *s)
{
    const eider_tune_request *r = s->call.request;
    s->search = r->search;
    if (s->search == EIDER_SEARCH_AUTO)
        s->search =
            s->space.n > AUTO_EXHAUSTIVE_MAX ? EIDER_SEARCH_DIRECTED : EIDER_SEARCH_EXHAUSTIVE;
    s->limit = (size_t)r->limit;
    if (s->limit == 0 && s->search != EIDER_SEARCH_EXHAUSTIVE) s->limit = DEFAULT_LIMIT;
    if (s->search == EIDER_SEARCH_EXHAUSTIVE && s->limit && s->limit < s->space.n)
        s->search = EIDER_SEARCH_RANDOM;
    s->tie = r->tie > 0 ? r->tie : DEFAULT_TIE;
    return hash_space(s);
}

static eider_status run(struct session *s)
{
    int is_from_records = s->call.request->pinned && is_open(s);
    if (!is_from_records) {
        EIDER_TRY(eider_space_create(&s->call, &s->space));
        EIDER_TRY(set_search(s));
    }
    if (!is_from_records && s->space.n == 1) {
        s->choice = &s->space.at[0];
        s->end = EIDER_TUNE_SINGLE;
        return EIDER_OK;
    }
    pthread_mutex_lock(&s->tuner->lock);
    eider_status status = EIDER_OK;
    if (is_from_records) {
        status = eider_tuner_read(s->tuner, s->file, s->key.digits);
        if (status == EIDER_OK) status = space_of_records(s, &s->space);
        if (status == EIDER_OK) status = set_search(s);
    }
    if (status == EIDER_OK) status = tune_locked(s);
    if (status == EIDER_OK) tell(s);
    pthread_mutex_unlock(&s->tuner->lock);
    return status;
}

/* ---- Results --------------------------------------------------------------------------------- */

static void sort_samples(struct eider_candidate *c)
{
    for (size_t i = 1; i < c->n_samples; i++) {
        double sample = c->samples[i];
        int32_t clock = c->clocks[i];
        size_t k = i;
        for (; k > 0 && c->samples[k - 1] > sample; k--) {
            c->samples[k] = c->samples[k - 1];
            c->clocks[k] = c->clocks[k - 1];
        }
        c->samples[k] = sample;
        c->clocks[k] = clock;
    }
}

static void count(const struct eider_space *space, eider_tune_summary *out)
{
    out->n_entries = space->n;
    for (size_t i = 0; i < space->n; i++) {
        const struct eider_candidate *c = &space->at[i];
        out->n_timed += !c->recorded && c->n_samples > c->n_old;
        out->n_recorded += c->recorded != 0;
        out->n_wrong += c->outcome == EIDER_TUNE_WRONG;
        out->n_failed += c->outcome == EIDER_TUNE_FAILED;
    }
}

static eider_status set_geometry(const struct session *s, eider_tune_summary *out)
{
    struct eider_call_request request;
    if (s->call.graph) return EIDER_OK;
    eider_status status = eider_call_request(&s->call, s->choice->config, &request);
    out->geometry = request.geometry;
    eider_call_request_release(&s->call, &request);
    return status;
}

/* The config as a request takes it: without the math mode. */
static const char *without_math(const struct session *s, const char *config)
{
    if (!s->call.graph || strncmp(config, "math=", 5) != 0) return config;
    const char *rest = config + strcspn(config, ",");
    return *rest ? rest + 1 : rest;
}

static eider_status summarise(struct session *s, struct eider_tuning *t)
{
    eider_tune_summary *out = &t->summary;
    struct eider_space *space = &s->space;
    struct eider_candidate *choice = &space->at[s->choice - space->at];
    EIDER_TRY(set_geometry(s, out));
    out->config = without_math(s, choice->config);
    out->math =
        s->call.graph ? eider_call_math(&s->call, choice->config) : s->call.kernel->numerics.math;
    out->key = eider_arena_text(&space->arena, s->key.digits, strlen(s->key.digits));
    out->key_text = eider_arena_text(&space->arena, s->key.text, strlen(s->key.text));
    if (!out->key || !out->key_text) return EIDER_OOM;
    count(space, out);
    for (size_t i = 0; i < space->n; i++) sort_samples(&space->at[i]);
    out->end = s->end;
    out->choice = (size_t)(s->choice - space->at);
    out->median_ns = eider_choose_quantile(choice->samples, choice->n_samples, 0.5);
    double spread = eider_choose_quantile(choice->samples, choice->n_samples, 0.8) -
                    eider_choose_quantile(choice->samples, choice->n_samples, 0.2);
    out->noisy = spread > NOISY * out->median_ns;
    if (out->noisy && s->end != EIDER_TUNE_RECORDED)
        eider_context_log(s->call.ctx, 1,
                          "the times of %s spread by %.0f %%: is the device shared?",
                          choice->config, 100 * spread / out->median_ns);
    out->compile_s = s->measure.compile_s;
    out->check_s = s->measure.check_s;
    out->time_s = s->measure.time_s;
    out->total_s = eider_measure_clock_s() - s->start_s;
    /* The winner stays in memory for eider_prepare; the others go. */
    eider_kernel_release(choice->kernel);
    choice->kernel = NULL;
    return EIDER_OK;
}

static void release_kernels(struct eider_space *space)
{
    for (size_t i = 0; i < space->n; i++) {
        struct eider_candidate *c = &space->at[i];
        if (c->kernel) eider_code_cache_forget(c->kernel->ctx->cache, c->kernel);
        c->kernel = NULL;
    }
}

static eider_status make_result(struct session *s, eider_tuning **out)
{
    struct eider_tuning *t = eider_mem_zero(&s->call.ctx->allocator, sizeof *t);
    if (!t) return EIDER_OOM;
    t->allocator = s->call.ctx->allocator;
    eider_status status = summarise(s, t);
    if (status != EIDER_OK) {
        eider_mem_free(&t->allocator, t);
        return status;
    }
    release_kernels(&s->space);
    t->space = s->space;
    s->space = (struct eider_space){0};
    *out = t;
    return EIDER_OK;
}

static eider_status open_session(struct session *s, eider_device *device,
                                 const eider_tune_request *request)
{
    s->start_s = eider_measure_clock_s();
    EIDER_TRY(eider_context_check(device->ctx));
    EIDER_TRY(eider_call_open(device, request, &s->call));
    EIDER_TRY(eider_tuner_get(device->ctx, &s->tuner));
    if (!request->no_records)
        s->file = eider_tuner_file(s->tuner, request->records, s->file_buffer);
    return eider_trigger_key(&s->call, &s->key);
}

eider_status eider_tune(eider_device *device, const eider_tune_request *request, eider_tuning **out)
{
    if (!device || !request || !out) return eider_fail(EIDER_BAD_ARG, "eider_tune: NULL argument");
    struct session *s = eider_mem_zero(&device->ctx->allocator, sizeof *s);
    if (!s) return EIDER_OOM;
    eider_status status = open_session(s, device, request);
    if (status == EIDER_OK) status = run(s);
    if (status == EIDER_OK) status = make_result(s, out);
    if (s->space.arena.allocator.resize) eider_space_release(&s->space);
    eider_trigger_release(&s->call, &s->key);
    eider_mem_free(&device->ctx->allocator, s);
    return status;
}

/* ---- Public: results and files -------------------------------------------------------------- */

eider_status eider_tune_lookup(eider_device *device, const eider_tune_request *request,
                               eider_tuning **out)
{
    if (!request) return eider_fail(EIDER_BAD_ARG, "eider_tune_lookup: NULL argument");
    eider_tune_request pinned = *request;
    pinned.pinned = 1;
    return eider_tune(device, &pinned, out);
}

void eider_tune_release(eider_tuning *tuning)
{
    if (!tuning) return;
    eider_allocator a = tuning->allocator;
    eider_space_release(&tuning->space);
    eider_mem_free(&a, tuning);
}

void eider_tune_describe(const eider_tuning *tuning, eider_tune_summary *out)
{
    if (tuning && out) *out = tuning->summary;
}

eider_status eider_tune_entry_get(const eider_tuning *tuning, size_t i, eider_tune_entry *out)
{
    if (!tuning || !out) return eider_fail(EIDER_BAD_ARG, "eider_tune_entry_get: NULL argument");
    if (i >= tuning->space.n)
        return eider_fail(EIDER_BAD_ARG, "entry %zu of %zu", i, tuning->space.n);
    const struct eider_candidate *c = &tuning->space.at[i];
    *out = (eider_tune_entry){.config = c->config,
                              .outcome = c->outcome,
                              .reason = c->reason,
                              .samples_ns = c->samples,
                              .clock_khz = c->clocks,
                              .n_samples = c->n_samples,
                              .median_ns = eider_choose_quantile(c->samples, c->n_samples, 0.5),
                              .p20_ns = eider_choose_quantile(c->samples, c->n_samples, 0.2),
                              .p80_ns = eider_choose_quantile(c->samples, c->n_samples, 0.8),
                              .recorded = c->recorded};
    return EIDER_OK;
}

double eider_tune_quantile(const eider_tune_entry *entry, double q)
{
    return entry ? eider_choose_quantile(entry->samples_ns, entry->n_samples, q) : 0;
}
