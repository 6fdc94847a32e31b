/* sweep.h -- how far a kernel's results are from the same program in double precision.
 *
 * Inputs: a program of one input gets every pattern of a 16-bit type, or SWEEP_N patterns
 * spread over all of f32.  With more inputs the first is swept the same way, several times
 * over, and the others take normal numbers, random patterns and special values.  The same
 * inputs each time, on every machine.
 * Error: |got - want| in units of the output type's ulp at `want`, which is not rounded.
 * NaN must meet NaN and infinity must meet infinity, but where `want` rounds to infinity
 * the largest finite number counts as one ulp.
 */
#ifndef EIDER_TOOLS_SWEEP_H
#define EIDER_TOOLS_SWEEP_H

#include "operands.h"

#define CLI_MISMATCHES_KEPT 5

/* The largest error of a kind, and where it happens. */
struct cli_worst {
    double error;
    size_t at; /* the inputs' element */
    double got, want;
};

struct cli_measure {
    struct cli_worst absolute, relative, ulp;
    struct cli_worst small; /* absolute, where |want| <= 1 */
    size_t n_mismatches;    /* NaN or infinity on one side only */
    struct cli_worst mismatch[CLI_MISMATCHES_KEPT];
};

struct cli_sweep {
    struct cli_operands operands;
    size_t n, n_outputs;
    double *want; /* [output][element] */
};

/* Makes the inputs in `type`, where the program declares none, and the wanted results. */
int cli_sweep_create(const struct cli_session *s, eider_dtype type, struct cli_sweep *out);
void cli_sweep_release(const struct cli_session *s, struct cli_sweep *sweep);

/* Runs the session's program with its numerics, and fills one measure per output. */
int cli_sweep_measure(const struct cli_session *s, struct cli_sweep *sweep,
                      struct cli_measure *out);

#endif
