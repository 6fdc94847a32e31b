/* compare.h -- what a candidate left in an output, beside what the reference left.
 *
 * Invariant: where every bit counts, and where the caller gave a tolerance, all of the output
 * is looked at.  Where another order of sums is allowed (rounding.h), so that most outputs
 * differ somewhere, a bounded sample is: the piece that has the first difference, the first
 * and the last piece, and others evenly between them.
 */
#ifndef EIDER_TUNER_COMPARE_H
#define EIDER_TUNER_COMPARE_H

#include "scratch.h"

/* Compares the span of operand `i`, of which byte `first` is the first that differs.  `what`
 * says what is wrong, or is "". */
eider_status eider_compare(const struct eider_scratch *s, size_t i, size_t first, char *what,
                           size_t bytes);

#endif
