/* search.c -- see search.h.
 *
 * The directed search treats candidates as points of a grid whose axes are the parameters'
 * values in order.  It asks in batches, because a batch is compiled on all cores and timed
 * together: first the start and a spread of random points, then, round after round, the
 * unknown neighbours of the best few, one step along one axis.  Where nothing better is
 * left, two steps and steps along two axes are looked at, then a new spread.
 */
#include "search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pairs.h"

#define BEAM 3    /* of the best, whose neighbours are asked for */
#define SPREAD 12 /* random points of a start */
#define BATCH 16

struct axes {
    size_t n;
    char names[EIDER_PAIRS_MAX][EIDER_PAIR_BYTES];
    size_t n_values[EIDER_PAIRS_MAX];
};

struct search {
    const struct eider_search_job *job;
    struct axes axes;
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

/* The k-th best known candidate, by cost, then by order; n when there are fewer. */
static size_t kth_best(const struct search *s, size_t k)
{
    size_t found = s->job->n;
    double last_cost = -INFINITY;
    size_t last = 0;
    for (size_t round = 0; round <= k; round++) {
        found = s->job->n;
        for (size_t i = 0; i < s->job->n; i++) {
            double c = s->cost[i];
            int is_later = c > last_cost || (c == last_cost && round && i > last);
            if (!is_known(s, i) || isinf(c) || !is_later) continue;
            if (found == s->job->n || c < s->cost[found]) found = i;
        }
        if (found == s->job->n) return found;
        last = found;
        last_cost = s->cost[found];
    }
    return found;
}

/* Unknown candidates near one: `n_axes` of them differ by up to `steps`. */
static void want_near(struct search *s, size_t center, int n_axes, int steps)
{
    for (size_t i = 0; i < s->job->n && s->n_batch < BATCH; i++) {
        int axes, step;
        distance(s, center, i, &axes, &step);
        if (axes >= 1 && axes <= n_axes && step <= steps) want(s, i);
    }
}

/* Whoever differs from `center` along `axis` alone, whatever the step. */
static void want_line(struct search *s, size_t center, size_t axis)
{
    for (size_t i = 0; i < s->job->n && s->n_batch < BATCH; i++) {
        int axes, steps;
        distance(s, center, i, &axes, &steps);
        if (axes == 1 && s->at[i * s->axes.n + axis] != s->at[center * s->axes.n + axis])
            want(s, i);
    }
}

static eider_status descend(struct search *s)
{
    size_t n_new = 1;
    while (n_new && s->n_asked < s->limit) {
        size_t best = kth_best(s, 0);
        for (size_t k = 0; k < BEAM && s->n_batch < BATCH; k++) {
            size_t center = kth_best(s, k);
            if (center < s->job->n) want_near(s, center, 1, 1);
        }
        if (s->n_batch == 0 && best < s->job->n) {
            for (size_t axis = 0; axis < s->axes.n; axis++) want_line(s, best, axis);
            if (s->n_batch == 0) want_near(s, best, 2, 1);
        }
        EIDER_TRY(ask(s, &n_new));
    }
    return EIDER_OK;
}

static eider_status directed(struct search *s)
{
    size_t n_new = 1;
    EIDER_TRY(find_axes(s));
    want(s, s->job->first < s->job->n ? s->job->first : 0);
    while (n_new && s->n_asked < s->limit) {
        spread(s, SPREAD);
        EIDER_TRY(ask(s, &n_new));
        EIDER_TRY(descend(s));
    }
    return EIDER_OK;
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
    eider_mem_free(job->allocator, s.at);
    eider_mem_free(job->allocator, s.cost);
    eider_mem_free(job->allocator, s.batch);
    return status;
}
