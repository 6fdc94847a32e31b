/* functions.h -- what can be called, by name: primitives and activations alike. */
#ifndef EIDER_IR_FUNCTIONS_H
#define EIDER_IR_FUNCTIONS_H

#include "graph.h"

struct eider_function {
    enum eider_op op; /* EIDER_OP_poison: an activation */
    size_t row;       /* of activations.def */
};

/* Finds primitives, cast and cast_nan, activations and aliases.  0 when there is none. */
int eider_functions_find(const char *name, struct eider_function *out);

/* The name at most two edits away, or NULL. */
const char *eider_functions_nearest(const char *name);

/* The operation that `n_args` arguments make of one: max and min of one argument are those of
 * its row. */
enum eider_op eider_functions_of(enum eider_op op, uint32_t n_args);

#endif
