/* eval.h -- what the two files of the reference evaluation share. */
#ifndef EIDER_IR_EVAL_H
#define EIDER_IR_EVAL_H

#include "graph.h"

/* A literal, a cast of v[0], or a primitive of v[0] ...; nothing over rows, no operand. */
double eider_eval_cell(const struct eider_cell *cell, const double *v);

/* The larger one; NaN propagates, -0 is less than 0. */
double eider_eval_maximum(double a, double b);

#endif
