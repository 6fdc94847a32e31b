/* measure.h -- candidates are compiled, checked and timed.
 *
 * Compiling uses all cores and ends before timing begins.  Timing is alone and in rounds:
 * every candidate still in the race runs once per round, so that clocks and temperature are
 * the same for all; those far behind leave the race, those in front run more often.
 */
#ifndef EIDER_TUNER_MEASURE_H
#define EIDER_TUNER_MEASURE_H

#include <stdatomic.h>

#include "scratch.h"
#include "space.h"

struct eider_measure {
    const struct eider_call *call;
    struct eider_space *space;
    struct eider_scratch scratch;
    struct eider_candidate reference; /* of its own, also when it is in the space */
    char reference_config[EIDER_PAIRS_TEXT_BYTES];
    int is_open, is_warm;
    double start_s, budget_s; /* of the monotonic clock */
    double compile_s, check_s, time_s;
    double last_report_s;
    atomic_int over; /* the budget ended; nothing more is begun */
    int cancelled;
    double best_ns;    /* median; INFINITY at first */
    int32_t clock_khz; /* of this round */
    const char *best_config;
};

double eider_measure_clock_s(void);

/* Makes scratch operands and runs the reference.  Fails with the reference's failure. */
eider_status eider_measure_open(const struct eider_call *call, struct eider_space *space,
                                double start_s, struct eider_measure *out);
void eider_measure_close(struct eider_measure *m);

/* Compiles, checks and times candidates of the space, by position.  What fails or is wrong
 * gets that outcome; what the budget did not reach stays untried.  Fails with
 * EIDER_CANCELLED, with EIDER_OOM, and when the device no longer works. */
eider_status eider_measure_batch(struct eider_measure *m, const size_t *which, size_t n);

/* Whether no more times of a candidate are wanted.  A few that a tuning left which ended early
 * do not judge it. */
int eider_measure_knows(const eider_tune_request *request, const struct eider_candidate *c);

/* More rounds for those in front. */
eider_status eider_measure_finalists(struct eider_measure *m);

#endif
