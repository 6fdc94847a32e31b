/* chain.h -- the chain rule, node by node, from a value to its operands.
 *
 * Invariant: a cotangent that is 0 stays 0.  What would multiply it (an infinite slope, a
 * branch that was not taken) never makes it NaN, because the parts of a cotangent that can
 * do so are kept apart until the last moment.
 * Not here: which inputs are differentiated, and names; see grad.c.
 */
#ifndef EIDER_IR_CHAIN_H
#define EIDER_IR_CHAIN_H

#include "graph.h"

/* What has reached a value from its users, as nodes of the backward graph:
 * core * factor where `guard` holds and `faded` is not 0, else 0. */
struct eider_cotangent {
    eider_node core;   /* 0: nothing has arrived */
    eider_node factor; /* 0: one.  Kept apart so that f(x) * dout is computed in the way that
                        * the gradient of y in f(x) * y needs it, too */
    eider_node guard;  /* 0: true */
    eider_node faded;  /* a core behind a slope that vanishes at infinity; it becomes part of
                        * the guard once something multiplies it.  0: none */
    int is_apart;      /* the factor depends on no input that the slope depends on, so it is
                        * not what makes the slope vanish */
};

_Static_assert(EIDER_OPERANDS_MAX <= 64, "a set of operands is 64 bits");

struct eider_chain {
    const struct eider_graph *from; /* the forward graph */
    struct eider_graph *to;         /* the backward graph */
    /* Per node of `from`: */
    eider_node *value;    /* its value, in `to` */
    eider_node *backward; /* of a call: the call of its gradients, in `to`, or 0 */
    struct eider_cotangent *bar;
    uint64_t *leaves; /* the operands on which it depends, as bits */
    uint32_t *uses;   /* users, outputs included */
    uint8_t *active;  /* depends on what is differentiated, differentiably */
    uint8_t *bits;    /* the coordinates on which it depends, see extent.h */
    int over_rows;    /* not every value is full */
    uint8_t used_by;  /* the coordinates for which the user that shares now has a value each */
};

/* Whether a cotangent passes through the node at all; `active` of its operands given. */
int eider_chain_is_active(const struct eider_graph *g, const uint8_t *active, eider_node node);

/* Adds to what has reached `node`; does nothing where it is not active.  What is used in many
 * places, a row's value in all of its row, gets the sum of what they give. */
void eider_chain_add(struct eider_chain *c, eider_node node, struct eider_cotangent more);

/* Gives the operands of `node` their share of its cotangent. */
void eider_chain_step(struct eider_chain *c, eider_node node);

/* The cotangent as one node; 0 when nothing has arrived. */
eider_node eider_chain_whole(struct eider_chain *c, struct eider_cotangent bar);

#endif
