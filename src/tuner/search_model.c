/* search_model.c -- see search_model.h.
 *
 * Everything grows by one row per sample: the factor, and what is kept of each candidate, so
 * that a guess costs as many steps as there are samples.
 */
#include "search_model.h"

#include <math.h>
#include <stdlib.h>

/* Found by replaying timings (tests/test_search.c). */
#define PRIOR 0.4 /* mean and deviation of log costs over the best */
#define NOISE 0.005
#define REACH 0.7  /* of a value along its axis, whose length is 1 */
#define SHARED 0.5 /* of the variance: effects of single parameters */
#define WORD 0.7   /* distance of two words */

#define GUESSED_MAX 8192

eider_status eider_search_model_open(const eider_allocator *a, const struct eider_search_grid *grid,
                                     size_t n_samples, struct eider_search_model *out)
{
    size_t room = n_samples < EIDER_MODEL_SAMPLES_MAX ? n_samples : EIDER_MODEL_SAMPLES_MAX;
    size_t step = grid->n / GUESSED_MAX + 1, n_guessed = (grid->n + step - 1) / step;
    *out = (struct eider_search_model){
        .allocator = *a, .grid = grid, .room = room, .n_guessed = n_guessed, .step = step};
    out->sample = eider_mem_alloc(a, room * sizeof *out->sample);
    out->factor = eider_mem_alloc(a, (room * room + 2 * room) * sizeof *out->factor);
    out->seen = eider_mem_alloc(a, n_guessed * room * sizeof *out->seen);
    out->explained = eider_mem_zero(a, n_guessed * sizeof *out->explained);
    if (!out->sample || !out->factor || !out->seen || !out->explained) {
        eider_search_model_close(out);
        return EIDER_OOM;
    }
    out->weight = out->factor + room * room;
    out->row = out->weight + room;
    return EIDER_OK;
}

void eider_search_model_close(struct eider_search_model *m)
{
    eider_mem_free(&m->allocator, m->sample);
    eider_mem_free(&m->allocator, m->factor);
    eider_mem_free(&m->allocator, m->seen);
    eider_mem_free(&m->allocator, m->explained);
    *m = (struct eider_search_model){0};
}

static double covariance(const struct eider_search_grid *g, size_t a, size_t b)
{
    const uint16_t *x = g->at + a * g->n_axes, *y = g->at + b * g->n_axes;
    double shared = 0, distance = 0;
    for (size_t k = 0; k < g->n_axes; k++) {
        size_t last = g->n_values[k] - 1;
        int is_word = !g->is_ordered[k] || x[k] > last || y[k] > last;
        double d = x[k] == y[k] ? 0 : is_word ? WORD : abs((int)x[k] - (int)y[k]) / (double)last;
        shared += exp(-d / REACH);
        distance += d;
    }
    shared = g->n_axes ? shared / (double)g->n_axes : 1;
    return PRIOR * PRIOR * (SHARED * shared + (1 - SHARED) * exp(-distance / REACH));
}

/* row := factor^-1 times the covariances of candidate `i`; returns the sum of its squares. */
static double project(struct eider_search_model *m, size_t i)
{
    double explained = 0;
    for (size_t s = 0; s < m->n; s++) {
        const double *factor = m->factor + s * m->room;
        double sum = covariance(m->grid, m->sample[s], i);
        for (size_t k = 0; k < s; k++) sum -= factor[k] * m->row[k];
        m->row[s] = sum / factor[s];
        explained += m->row[s] * m->row[s];
    }
    return explained;
}

static double weight_of(const struct eider_search_model *m, size_t s, double y)
{
    const double *factor = m->factor + s * m->room;
    double sum = y - PRIOR;
    for (size_t k = 0; k < s; k++) sum -= factor[k] * m->weight[k];
    return sum / factor[s];
}

void eider_search_model_look(struct eider_search_model *m, size_t i, double y)
{
    size_t n = m->n;
    if (n == m->room) return;
    double *factor = m->factor + n * m->room;
    double rest = PRIOR * PRIOR + NOISE * NOISE - project(m, i);
    for (size_t k = 0; k < n; k++) factor[k] = m->row[k];
    factor[n] = sqrt(rest > NOISE * NOISE ? rest : NOISE * NOISE);
    m->sample[n] = i;
    m->weight[n] = weight_of(m, n, y);
    for (size_t g = 0; g < m->n_guessed; g++) {
        double *seen = m->seen + g * m->room, sum = covariance(m->grid, i, g * m->step);
        for (size_t k = 0; k < n; k++) sum -= factor[k] * seen[k];
        seen[n] = sum / factor[n];
        m->explained[g] += seen[n] * seen[n];
    }
    m->n++;
}

void eider_search_model_learn(struct eider_search_model *m, double (*y)(void *arg, size_t i),
                              void *arg)
{
    for (size_t s = 0; s < m->n; s++) m->weight[s] = weight_of(m, s, y(arg, m->sample[s]));
}

/* Expected improvement on the best, whose logarithm is 0. */
double eider_search_model_guess(const struct eider_search_model *m, size_t k,
                                double *out_improvement)
{
    const double *seen = m->seen + k * m->room;
    double variance = PRIOR * PRIOR - m->explained[k], mean = PRIOR;
    for (size_t s = 0; s < m->n; s++) mean += seen[s] * m->weight[s];
    double deviation = sqrt(variance > 1e-12 ? variance : 1e-12);
    double z = -mean / deviation, root_half = 0.70710678118654752, root_2_pi = 2.5066282746310002;
    *out_improvement = deviation * (z * 0.5 * erfc(-z * root_half) + exp(-0.5 * z * z) / root_2_pi);
    return mean;
}
