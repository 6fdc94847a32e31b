/* rounding.h -- how far two configs of one program may be apart.
 *
 * Configs add the elements of a row in different orders, so what follows from such sums is
 * the same but for rounding.  Everything else is the same bit for bit: largest values, places
 * of them, and what no reduction is part of.
 * Not here: the error against the exact result, which is the math mode's affair.
 */
#ifndef EIDER_TUNER_ROUNDING_H
#define EIDER_TUNER_ROUNDING_H

#include "graph.h"

/* Of one output.  All 0: every bit counts. */
struct eider_rounding {
    double slack; /* relative to the largest magnitude nearby, before the output's own rounding */
    int jumps;    /* a comparison, place or whole number may fall to the other side */
};

/* One entry per operand; `types` are those of the operands.  Fails with EIDER_OOM. */
eider_status eider_rounding_of(const struct eider_graph *g, const eider_allocator *a,
                               const eider_dtype *types, struct eider_rounding *out);

/* The distance from a number of this magnitude to the next; 0 for integers. */
double eider_rounding_ulp(eider_dtype type, double magnitude);

/* Whether `got` may stand for `want` where the largest magnitude nearby is `largest`.  Two NaN
 * are the same number. */
int eider_rounding_allows(const struct eider_rounding *r, eider_dtype type, double largest,
                          double got, double want);

#endif
