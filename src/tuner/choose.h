/* choose.h -- from timings to one config.
 *
 * Invariant: the choice is a function of the samples and of the tie band alone; of configs
 * that are as good as equal the simplest is taken, so that noise does not decide.
 */
#ifndef EIDER_TUNER_CHOOSE_H
#define EIDER_TUNER_CHOOSE_H

#include "space.h"

/* Quantile `q` of sorted numbers, interpolated; 0 for none. */
double eider_choose_quantile(const double *sorted, size_t n, double q);

/* Sorts in place. */
void eider_choose_sort(double *samples, size_t n);

/* Median of a candidate's samples, which keep their order; 0 without samples. */
double eider_choose_median(const struct eider_candidate *c);

/* The simplest candidate within the band of the fastest median; NULL when none was timed. */
const struct eider_candidate *eider_choose(const struct eider_space *space, double tie);

#endif
