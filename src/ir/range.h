/* range.h -- between which numbers a node's values lie, as far as its text tells.
 *
 * Invariant: holds for every value of the inputs that is not NaN, in real arithmetic and,
 * rounding being monotonic, in floating point.  Not an analysis of NaN: a node whose range
 * is known may be NaN all the same.
 */
#ifndef EIDER_IR_RANGE_H
#define EIDER_IR_RANGE_H

#include "graph.h"

struct eider_range {
    double low, high; /* both included; infinite where nothing is known */
};

struct eider_range eider_range_of(const struct eider_graph *g, eider_node n);

#endif
