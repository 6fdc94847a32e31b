/* gate.h -- whether a candidate computes what the reference computes.
 *
 * The reference runs first and what it leaves is kept.  Before each candidate's run all
 * outputs are poisoned, so that nobody passes with the numbers of another; afterwards every
 * byte between the guard bands is compared, and the guard bands themselves.  Where bytes differ,
 * compare.h says whether they may.
 */
#ifndef EIDER_TUNER_GATE_H
#define EIDER_TUNER_GATE_H

#include "scratch.h"
#include "space.h"

/* One untimed run: operands reset, hooks called, launched, waited for. */
eider_status eider_gate_run(struct eider_scratch *s, const struct eider_candidate *c, int poisons);

/* Runs the reference, keeps what it wrote and, on request, compares it with the program's own
 * evaluation.  Fails with EIDER_CODEGEN where that differs, and as launches do. */
eider_status eider_gate_open(struct eider_scratch *s, const struct eider_candidate *reference);

/* Runs a candidate.  A difference makes it WRONG, with a reason.  Fails where it cannot run. */
eider_status eider_gate_check(struct eider_scratch *s, struct eider_candidate *c);

#endif
