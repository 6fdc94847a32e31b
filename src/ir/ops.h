/* ops.h -- what the table of primitives says about each of them.
 *
 * Not here: what an operation does; see eval.c (double), chain.c, lower.c (LLVM).
 */
#ifndef EIDER_IR_OPS_H
#define EIDER_IR_OPS_H

#include "graph.h"

enum eider_type_rule {
    EIDER_RULE_LEAF,
    EIDER_RULE_SAME,
    EIDER_RULE_FLOAT,
    EIDER_RULE_BOOL,
    EIDER_RULE_LOGIC,
    EIDER_RULE_SELECT,
    EIDER_RULE_CAST,
    EIDER_RULE_PICK,
    EIDER_RULE_PLACE,
    EIDER_RULE_INDEX
};

struct eider_op_row {
    const char *name, *text, *doc;
    int8_t arity;
    enum eider_type_rule rule;
};

extern const struct eider_op_row eider_ops[EIDER_OP_COUNT];

/* Whether the operation makes one value of a row: sum ... all. */
static inline int eider_ops_reduces(enum eider_op op)
{
    return op >= EIDER_OP_sum && op <= EIDER_OP_all;
}

/* Whether it sees more than the element it is computed for: row ... colsum. */
static inline int eider_ops_over_rows(enum eider_op op)
{
    return op >= EIDER_OP_row && op <= EIDER_OP_colsum;
}

/* The operation of that name ("mul", "select"), or EIDER_OP_poison. */
enum eider_op eider_ops_find(const char *name);

#endif
