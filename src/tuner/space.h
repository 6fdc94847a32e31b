/* space.h -- the candidates of a tuning.
 *
 * Invariant: every candidate is a complete canonical config that can work for the call;
 * they are in the order of configs, each once, so the order in which the caller listed
 * values, parameters or configs does not matter.
 */
#ifndef EIDER_TUNER_SPACE_H
#define EIDER_TUNER_SPACE_H

#include "call.h"

#define EIDER_SPACE_MAX 65536 /* candidates; more cannot be searched sensibly */
#define EIDER_REASON_BYTES 160

struct eider_candidate {
    const char *config; /* the space's */
    int likely;         /* a search asks for it early */
    eider_tune_outcome outcome;
    int recorded;  /* known before this call */
    int transient; /* a failure that another day may not see */
    char reason[EIDER_REASON_BYTES];
    eider_status status; /* of a failure */
    double *samples;     /* as they came */
    int32_t *clocks;     /* beside each */
    size_t n_samples, room;
    size_t n_old;            /* of them recorded */
    eider_kernel *kernel;    /* NULL: not built */
    eider_geometry geometry; /* of a source */
};

struct eider_space {
    struct eider_arena arena;
    struct eider_candidate *at;
    size_t n;
};

/* With neither space nor configs in the request: the default one of a program, and of a
 * source the fixed config alone.  Fails with EIDER_PARSE and EIDER_CONFIG as eider_tune says. */
eider_status eider_space_create(const struct eider_call *call, struct eider_space *out);
void eider_space_release(struct eider_space *space);

/* The candidate with this config, or NULL. */
struct eider_candidate *eider_space_find(const struct eider_space *space, const char *config);

/* Adds a sample. */
eider_status eider_space_sample(struct eider_space *space, struct eider_candidate *c, double ns,
                                int32_t clock_khz);

#endif
