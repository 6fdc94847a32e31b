/* choose.c -- see choose.h. */
#include "choose.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

void eider_choose_sort(double *samples, size_t n)
{
    if (n) qsort(samples, n, sizeof *samples, by_value);
}

double eider_choose_quantile(const double *sorted, size_t n, double q)
{
    if (n == 0) return 0;
    double at = (q < 0 ? 0 : q > 1 ? 1 : q) * (double)(n - 1);
    size_t i = (size_t)at;
    if (i + 1 >= n) return sorted[n - 1];
    return sorted[i] + (at - (double)i) * (sorted[i + 1] - sorted[i]);
}

/* The k-th smallest, by counting: samples are tens, and their order must stay. */
static double ranked(const double *samples, size_t n, size_t k)
{
    for (size_t i = 0; i < n; i++) {
        size_t less = 0, equal = 0;
        for (size_t j = 0; j < n; j++) {
            less += samples[j] < samples[i];
            equal += samples[j] == samples[i];
        }
        if (less <= k && k < less + equal) return samples[i];
    }
    return 0;
}

double eider_choose_median(const struct eider_candidate *c)
{
    size_t n = c->n_samples;
    if (n == 0) return 0;
    double upper = ranked(c->samples, n, n / 2);
    return n % 2 ? upper : (ranked(c->samples, n, n / 2 - 1) + upper) / 2;
}

static int is_timed(const struct eider_candidate *c)
{
    return c->n_samples > 0 && (c->outcome == EIDER_TUNE_TIMED || c->outcome == EIDER_TUNE_STOPPED);
}

const struct eider_candidate *eider_choose(const struct eider_space *space, double tie)
{
    double best = INFINITY;
    for (size_t i = 0; i < space->n; i++) {
        double median = eider_choose_median(&space->at[i]);
        if (is_timed(&space->at[i]) && median < best) best = median;
    }
    for (size_t i = 0; i < space->n; i++) /* the simplest comes first */
        if (is_timed(&space->at[i]) && eider_choose_median(&space->at[i]) <= best * (1 + tie))
            return &space->at[i];
    return NULL;
}
