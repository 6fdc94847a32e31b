/* search.c -- see search.h.
 *
 * The directed search treats candidates as points of a grid whose axes are the parameters' values
 * in order.  It asks in batches, because a batch is compiled on all cores and timed together: first
 * the start, what is likely and a spread of random points; then, round after round, those of which
 * a model of everything seen expects most, and neighbours of the best, one step along one axis; and
 * random points where both run out.
 */
#include "search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pairs.h"
#include "search_model.h"

#define SPREAD 15    /* points of a start: likely ones, and random ones */
#define PROMISING 3  /* of a batch: what the model expects most of */
#define FAR 0.7      /* log cost over the best: worse is no worse */
#define FAILED 0.4   /* of what does not work: its neighbours may */
#define NEIGHBOURS 1 /* of a batch: beside the best */

struct axes {
    size_t n;
    char names[EIDER_PAIRS_MAX][EIDER_PAIR_BYTES];
    size_t n_values[EIDER_PAIRS_MAX];
    int is_ordered[EIDER_PAIRS_MAX];
};

struct search {
    const struct eider_search_job *job;
    struct axes axes;
    struct eider_search_grid grid;
    struct eider_search_model model;
    size_t best;  /* known candidate; n while there is none */
    uint16_t *at; /* n x axes: positions; UINT16_MAX where a config lacks the name */
    double *cost; /* NaN: not asked for */
    size_t *batch;
    size_t n_batch, n_asked, limit;
    uint64_t state; /* of the random numbers */
};

static uint64_t random_bits(struct search *s)
{
    uint64_t x = s->state += 0x9e3779b97f4a7c15u; /* SplitMix64 */
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* ---- Asking -------------------------------------------------------------- */

static int is_known(const struct search *s, size_t i)
{
    return !isnan(s->cost[i]);
}

static void want(struct search *s, size_t i)
{
    if (is_known(s, i) || s->n_asked + s->n_batch >= s->limit) return;
    for (size_t k = 0; k < s->n_batch; k++)
        if (s->batch[k] == i) return;
    s->batch[s->n_batch++] = i;
}

/* Asks for the batch; *out_new says how many that were. */
static eider_status ask(struct search *s, size_t *out_new)
{
    size_t n = s->n_batch;
    double *cost;
    *out_new = n;
    if (n == 0) return EIDER_OK;
    cost = eider_mem_alloc(s->job->allocator, n * sizeof *cost);
    if (!cost) return EIDER_OOM;
    eider_status status = s->job->costs(s->job->user, s->batch, n, cost);
    for (size_t k = 0; status == EIDER_OK && k < n; k++) s->cost[s->batch[k]] = cost[k];
    eider_mem_free(s->job->allocator, cost);
    s->n_asked += n;
    s->n_batch = 0;
    return status;
}

static eider_status all(struct search *s)
{
    size_t n;
    for (size_t i = 0; i < s->job->n; i++) want(s, i);
    return ask(s, &n);
}

static void spread(struct search *s, size_t n)
{
    size_t target = s->n_batch + n;
    for (size_t tries = 0; tries < 20 * n && s->n_batch < target; tries++)
        want(s, random_bits(s) % s->job->n);
}

static eider_status sample(struct search *s)
{
    size_t n;
    /* A limit near the number of candidates would make random picks miss for long. */
    if (s->limit >= s->job->n) return all(s);
    while (s->n_batch < s->limit) want(s, random_bits(s) % s->job->n);
    return ask(s, &n);
}

/* ---- The grid -------------------------------------------------------------- */

static int by_position(const void *a, const void *b)
{
    const struct eider_pair *x = a, *y = b;
    return eider_pairs_compare_values(x->name, x->value, y->value);
}

/* The values of one axis in order, and everyone's position among them. */
static eider_status place_axis(struct search *s, size_t axis)
{
    const struct eider_search_job *job = s->job;
    struct eider_pair *seen = eider_mem_alloc(job->allocator, job->n * sizeof *seen);
    if (!seen) return EIDER_OOM;
    struct eider_pairs config;
    size_t n = 0;
    eider_status status = EIDER_OK;
    for (int pass = 0; pass < 2 && status == EIDER_OK; pass++) {
        for (size_t i = 0; i < job->n && status == EIDER_OK; i++) {
            status = eider_pairs_parse("config", job->configs[i], &config);
            const char *value = eider_pairs_get(&config, s->axes.names[axis]);
            size_t k = 0;
            while (value && k < n && strcmp(seen[k].value, value) != 0) k++;
            if (pass == 1) {
                s->at[i * s->axes.n + axis] = value ? (uint16_t)k : UINT16_MAX;
            } else if (value && k == n) {
                memcpy(seen[n].name, s->axes.names[axis], sizeof seen[n].name);
                memcpy(seen[n++].value, value, sizeof seen[n].value);
            }
        }
        if (pass == 0 && n) qsort(seen, n, sizeof *seen, by_position);
    }
    s->axes.n_values[axis] = n;
    s->axes.is_ordered[axis] = 1;
    for (size_t k = 0; k < n; k++)
        if (seen[k].value[0] < '0' || seen[k].value[0] > '9') s->axes.is_ordered[axis] = 0;
    eider_mem_free(job->allocator, seen);
    return status;
}

static eider_status find_axes(struct search *s)
{
    for (size_t i = 0; i < s->job->n; i++) {
        struct eider_pairs config;
        EIDER_TRY(eider_pairs_parse("config", s->job->configs[i], &config));
        for (size_t p = 0; p < config.n; p++) {
            size_t k = 0;
            while (k < s->axes.n && strcmp(s->axes.names[k], config.at[p].name) != 0) k++;
            if (k < s->axes.n || k == EIDER_PAIRS_MAX) continue;
            memcpy(s->axes.names[s->axes.n++], config.at[p].name, EIDER_PAIR_BYTES);
        }
    }
    s->at = eider_mem_zero(s->job->allocator, s->job->n * (s->axes.n + 1) * sizeof *s->at);
    if (!s->at) return EIDER_OOM;
    for (size_t axis = 0; axis < s->axes.n; axis++) EIDER_TRY(place_axis(s, axis));
    return EIDER_OK;
}

/* How many axes differ, and by how much at most. */
static void distance(const struct search *s, size_t a, size_t b, int *out_axes, int *out_steps)
{
    const uint16_t *x = s->at + a * s->axes.n, *y = s->at + b * s->axes.n;
    *out_axes = *out_steps = 0;
    for (size_t k = 0; k < s->axes.n; k++) {
        int d = abs((int)x[k] - (int)y[k]);
        *out_axes += d != 0;
        if (d > *out_steps) *out_steps = d;
    }
}

/* ---- The directed search ----------------------------------------------------- */

/* The best known candidate, the first of equals; n when there is none. */
static size_t find_best(const struct search *s)
{
    size_t best = s->job->n;
    for (size_t i = 0; i < s->job->n; i++) {
        if (!is_known(s, i) || isinf(s->cost[i])) continue;
        if (best == s->job->n || s->cost[i] < s->cost[best]) best = i;
    }
    return best;
}

/* Up to `n` unknown candidates that differ from one in up to `n_axes` parameters, by up to
 * `steps` positions. */
static void want_near(struct search *s, size_t center, int n_axes, int steps, size_t n)
{
    size_t target = s->n_batch + n;
    for (size_t i = 0; i < s->job->n && s->n_batch < target; i++) {
        int axes, step;
        distance(s, center, i, &axes, &step);
        if (axes >= 1 && axes <= n_axes && step <= steps) want(s, i);
    }
}

static int is_wanted(const struct search *s, size_t i)
{
    for (size_t k = 0; k < s->n_batch; k++)
        if (s->batch[k] == i) return 1;
    return is_known(s, i);
}

static double log_over_best(void *arg, size_t i)
{
    const struct search *s = arg;
    double y = isinf(s->cost[i]) ? FAILED : log(s->cost[i] / s->cost[s->best]);
    return y < FAR ? y : FAR;
}

/* Up to `n` unknown candidates of which the model expects most; of each it is then told that
 * it was right, so that the next one is elsewhere. */
static void want_promising(struct search *s, size_t n)
{
    struct eider_search_model *m = &s->model;
    eider_search_model_learn(m, log_over_best, s);
    for (size_t found = 0; found < n; found++) {
        size_t chosen = s->job->n;
        double most = 0, y = 0;
        for (size_t k = 0; k < m->n_guessed; k++) {
            double hope, mean = eider_search_model_guess(m, k, &hope);
            if (is_wanted(s, k * m->step) || (chosen < s->job->n && hope <= most)) continue;
            most = hope;
            y = mean;
            chosen = k * m->step;
        }
        size_t before = s->n_batch;
        if (chosen < s->job->n) want(s, chosen);
        if (s->n_batch == before) return;
        eider_search_model_look(m, chosen, y);
    }
}

/* Asks for the batch, of which the model has seen the first `n_looked`. */
static eider_status ask_and_look(struct search *s, size_t n_looked, size_t *out_new)
{
    for (size_t k = n_looked; k < s->n_batch; k++)
        eider_search_model_look(&s->model, s->batch[k], 0);
    return ask(s, out_new);
}

static eider_status explore(struct search *s)
{
    size_t n_new = 1, n_looked;
    want(s, s->job->first < s->job->n ? s->job->first : 0);
    for (size_t i = 0; s->job->likely && i < s->job->n && s->n_batch <= SPREAD; i++)
        if (s->job->likely[i]) want(s, i);
    spread(s, SPREAD + 1 - s->n_batch);
    EIDER_TRY(ask_and_look(s, 0, &n_new));
    while (n_new && s->n_asked < s->limit) {
        s->best = find_best(s);
        if (s->best < s->job->n) want_promising(s, PROMISING);
        n_looked = s->n_batch;
        if (s->best < s->job->n) want_near(s, s->best, 1, 1, NEIGHBOURS);
        if (s->n_batch < PROMISING + NEIGHBOURS) spread(s, PROMISING + NEIGHBOURS - s->n_batch);
        EIDER_TRY(ask_and_look(s, n_looked, &n_new));
    }
    return EIDER_OK;
}

static eider_status directed(struct search *s)
{
    EIDER_TRY(find_axes(s));
    s->grid = (struct eider_search_grid){.n = s->job->n,
                                         .n_axes = s->axes.n,
                                         .at = s->at,
                                         .n_values = s->axes.n_values,
                                         .is_ordered = s->axes.is_ordered};
    EIDER_TRY(eider_search_model_open(s->job->allocator, &s->grid, s->limit, &s->model));
    return explore(s);
}

/* ---- The table of searches ----------------------------------------------------- */

static eider_status (*const searches[])(struct search *s) = {
    [EIDER_SEARCH_AUTO] = all,
    [EIDER_SEARCH_EXHAUSTIVE] = all,
    [EIDER_SEARCH_RANDOM] = sample,
    [EIDER_SEARCH_DIRECTED] = directed,
};

eider_status eider_search_run(const struct eider_search_job *job)
{
    struct search s = {.job = job,
                       .state = job->seed,
                       .limit = job->limit && job->limit < job->n ? job->limit : job->n};
    if (job->n == 0) return EIDER_OK;
    s.cost = eider_mem_alloc(job->allocator, job->n * sizeof *s.cost);
    s.batch = eider_mem_alloc(job->allocator, job->n * sizeof *s.batch);
    eider_status status = s.cost && s.batch ? EIDER_OK : EIDER_OOM;
    for (size_t i = 0; status == EIDER_OK && i < job->n; i++) s.cost[i] = (double)NAN;
    if (status == EIDER_OK) status = searches[job->kind](&s);
    if (s.model.factor) eider_search_model_close(&s.model);
    eider_mem_free(job->allocator, s.at);
    eider_mem_free(job->allocator, s.cost);
    eider_mem_free(job->allocator, s.batch);
    return status;
}
