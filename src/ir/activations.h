/* activations.h -- named functions over primitives: one row of text each.
 *
 * Invariant: a row's body is text of the program language; nothing else in the
 * library knows what an activation computes.
 */
#ifndef EIDER_IR_ACTIVATIONS_H
#define EIDER_IR_ACTIVATIONS_H

#include "graph.h"

struct eider_activation {
    const char *name;     /* "swiglu_oai" */
    const char *params;   /* "x, y, alpha=1.702, limit=inf": names, then defaults */
    const char *results;  /* "out", or "dx, dy, out" */
    const char *body;     /* statements that assign every result */
    const char *backward; /* name of the row with its gradients, or "" to derive it; its
                            * params are these, with dout after the differentiable ones, and
                            * its results are the gradients of those, then the forward value */
    int n_tensors;        /* leading params that are differentiable operands */
    const char *doc;
};

/* Row `i`, or NULL. */
const struct eider_activation *eider_activation_row(size_t i);
/* Index of the row of that name (aliases included), or -1. */
int eider_activation_find(const char *name);
/* Alias `i`, or NULL. */
const char *eider_activation_alias(size_t i);

/* How many arguments a call may have, how many it must have, and how many results. */
int eider_activation_n_params(size_t i);
int eider_activation_n_required(size_t i);
int eider_activation_n_results(size_t i);

/* "dx, dy, out = dswiglu(x, y, dout)".  Static. */
const char *eider_activation_signature(size_t i);

/* One name of a row's params or results; it is `length` bytes long. */
struct eider_activation_item {
    const char *name;
    size_t length;
    int has_default;
    double value;
};
/* Name `i` of such a list; 0 when there is none. */
int eider_activation_item(const char *list, int i, struct eider_activation_item *out);

/* A call of row `i`; missing trailing arguments get their defaults.  Poison on failure. */
eider_node eider_activation_call(struct eider_graph *g, size_t i, const eider_node *args,
                                 uint32_t n_args);

/* A copy of `from` in which every call and result is replaced by its body. */
eider_status eider_activation_expand(const struct eider_graph *from, struct eider_graph **out);

#endif
