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

/* What a function that is named in the language but missing here belongs to
 * ("reductions"), or NULL. */
const char *eider_functions_planned(const char *name);

#endif
