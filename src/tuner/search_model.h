/* search_model.h -- what the costs seen so far say about those not seen.
 *
 * A Gaussian process over positions on the parameters' axes: configs that differ little have
 * like costs, those that share the value of one parameter share something.  It only says
 * which candidates are worth a look; what it guesses is never reported.
 */
#ifndef EIDER_TUNER_SEARCH_MODEL_H
#define EIDER_TUNER_SEARCH_MODEL_H

#include "memory.h"

#define EIDER_MODEL_SAMPLES_MAX 256 /* later ones teach it nothing */

/* What candidates are: positions on axes. */
struct eider_search_grid {
    size_t n, n_axes;
    const uint16_t *at;     /* n x n_axes; a config that lacks a parameter is beyond the last */
    const size_t *n_values; /* of each axis */
    const int *is_ordered;  /* of each axis: its values are numbers */
};

struct eider_search_model {
    eider_allocator allocator;
    const struct eider_search_grid *grid;
    size_t n, room;
    size_t *sample; /* candidates that were looked at, in that order */
    double *factor; /* Cholesky, of the samples' covariances: `room` wide, lower */
    double *weight; /* factor^-1 times what they gave */
    double *row;
    size_t n_guessed, step; /* candidates 0, step, 2 step, ... can be asked about */
    double *seen;           /* n_guessed x room: factor^-1 times their covariances */
    double *explained;      /* of each: the sum of its squares */
};

eider_status eider_search_model_open(const eider_allocator *a, const struct eider_search_grid *grid,
                                     size_t n_samples, struct eider_search_model *out);
void eider_search_model_close(struct eider_search_model *m);

/* Candidate `i` is looked at, with the result `y`, the logarithm of its cost over the best;
 * or with what is guessed, while nothing is known. */
void eider_search_model_look(struct eider_search_model *m, size_t i, double y);

/* All results anew: y(arg, i) of the candidates looked at. */
void eider_search_model_learn(struct eider_search_model *m, double (*y)(void *arg, size_t i),
                              void *arg);

/* The guess for candidate `k * step`, and how much better than the best it may be. */
double eider_search_model_guess(const struct eider_search_model *m, size_t k,
                                double *out_improvement);

#endif
