/* evaluate.h -- what a program's kernel wrote, compared with the program's own evaluation. */
#ifndef EIDER_TUNER_EVALUATE_H
#define EIDER_TUNER_EVALUATE_H

#include "scratch.h"

/* Compares what the last run of a program's kernel left with an evaluation in double: some
 * elements of a large tensor, the first rows of a program over rows.  Fails with EIDER_CODEGEN,
 * naming the first difference. */
eider_status eider_evaluate(const struct eider_scratch *s);

#endif
