/* ops.c -- see ops.h. */
#include "ops.h"

#include <string.h>

const struct eider_op_row eider_ops[EIDER_OP_COUNT] = {
#define EIDER_OP(name, arity, text, rule, doc) \
    [EIDER_OP_##name] = {#name, text, doc, arity, EIDER_RULE_##rule},
#include "ops.def"
};

_Static_assert(EIDER_OP_poison == 0, "poison is what a failed search returns");

enum eider_op eider_ops_find(const char *name)
{
    if (strcmp(name, "where") == 0) return EIDER_OP_select; /* NumPy's name */
    for (int op = 0; op < EIDER_OP_COUNT; op++)
        if (eider_ops[op].arity >= 0 && strcmp(eider_ops[op].name, name) == 0)
            return (enum eider_op)op;
    return EIDER_OP_poison;
}
