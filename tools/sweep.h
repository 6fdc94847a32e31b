/* sweep.h -- how far a kernel's results are from the same program in double precision.
 *
 * Inputs: a program of one input gets every pattern of a 16-bit type, or SWEEP_N patterns
 * spread over all of f32.  With more inputs the first is swept the same way, several times
 * over, and the others take normal numbers, random patterns and special values.  The same
 * inputs each time, on every machine.
 * Error: |got - want|, also in units of the output type's ulp at `want`, which is not
 * rounded.  It is taken where the inputs but the first are 0 or of ordinary size: extreme
 * ones make products of f32 overflow and underflow on the way to a finite result.
 * Mismatch: NaN on one side only, with any inputs; infinity on one side only where the
 * inputs but the first are ordinary (a finite `got` near a `want` that rounds to infinity
 * is an error like others).  Where one of several inputs is infinite, only a finite `want`
 * counts.
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
    struct cli_worst absolute;
    struct cli_worst small;         /* absolute, where |want| <= 1 */
    struct cli_worst relative, ulp; /* where |want| is a normal number */
    struct cli_worst tiny;          /* ulp where it is less */
    size_t n_mismatches;            /* NaN or infinity on one side only */
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
