/* search.h -- which candidates to time.
 *
 * A search sees configs and costs, never a device, so recorded timings can be replayed.
 * Invariant: what it asks for is a function of the configs, the kind, the seed and the costs.
 */
#ifndef EIDER_TUNER_SEARCH_H
#define EIDER_TUNER_SEARCH_H

#include "eider/eider.h"
#include "memory.h"

/* Fills cost[i] for each of the `n` candidates in `which`: less is better, infinity is one
 * that does not work.  Each candidate is asked for once. */
typedef eider_status (*eider_search_costs)(void *user, const size_t *which, size_t n, double *cost);

struct eider_search_job {
    const eider_allocator *allocator;
    const char *const *configs; /* in the order of configs */
    size_t n;
    size_t first;          /* where a directed search begins: the default rule's, */
    const uint8_t *likely; /* and with those of the n that are set here; NULL: none */
    eider_search kind;     /* not AUTO */
    uint64_t seed;
    size_t limit; /* candidates asked for at most; 0: all */
    eider_search_costs costs;
    void *user;
};

eider_status eider_search_run(const struct eider_search_job *job);

#endif
