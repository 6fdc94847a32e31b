/* scatter.h -- the gradient of pick. */
#ifndef EIDER_IR_SCATTER_H
#define EIDER_IR_SCATTER_H

#include "chain.h"

/* Gives what `pick`, a node of c->from, picks from the share of each of its elements: what has
 * reached it, `bar`.  Every element of the result gathers, in an order that the text fixes; where
 * it cannot be told from the text which elements it gathers, c->to fails with EIDER_UNSUPPORTED. */
void eider_scatter(struct eider_chain *c, eider_node pick, struct eider_cotangent bar);

#endif
