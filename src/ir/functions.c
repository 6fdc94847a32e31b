/* functions.c -- see functions.h. */
#include "functions.h"

#include <string.h>

#include "activations.h"
#include "ops.h"

enum eider_op eider_functions_of(enum eider_op op, uint32_t n_args)
{
    if (n_args != 1) return op;
    return op == EIDER_OP_max ? EIDER_OP_rmax : op == EIDER_OP_min ? EIDER_OP_rmin : op;
}

int eider_functions_find(const char *name, struct eider_function *out)
{
    *out = (struct eider_function){.op = eider_ops_find(name)};
    if (strcmp(name, "cast") == 0) out->op = EIDER_OP_cast;
    if (strcmp(name, "cast_nan") == 0) out->op = EIDER_OP_cast_nan;
    if (out->op) return 1;
    int row = eider_activation_find(name);
    if (row >= 0) out->row = (size_t)row;
    return row >= 0;
}

static int is_callable(int op)
{
    return eider_ops[op].arity >= 0 || eider_ops[op].rule == EIDER_RULE_CAST;
}

/* Edit distance. `b` is shorter than EIDER_NAME_BYTES. */
static int distance(const char *a, const char *b)
{
    int line[EIDER_NAME_BYTES + 1];
    int n = (int)strlen(b);
    for (int j = 0; j <= n; j++) line[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        int diagonal = line[0];
        line[0] = i;
        for (int j = 1; j <= n; j++) {
            int above = line[j];
            int best = diagonal + (a[i - 1] != b[j - 1]);
            if (above + 1 < best) best = above + 1;
            if (line[j - 1] + 1 < best) best = line[j - 1] + 1;
            diagonal = above;
            line[j] = best;
        }
    }
    return line[n];
}

static void consider(const char *name, const char *candidate, const char **best, int *least)
{
    int d = distance(name, candidate);
    if (d >= *least || d >= (int)strlen(name)) return;
    *least = d;
    *best = candidate;
}

const char *eider_functions_nearest(const char *name)
{
    const char *best = NULL;
    int least = 3;
    for (int op = 0; op < EIDER_OP_COUNT; op++)
        if (is_callable(op)) consider(name, eider_ops[op].name, &best, &least);
    for (size_t i = 0; eider_activation_row(i); i++)
        consider(name, eider_activation_row(i)->name, &best, &least);
    for (size_t i = 0; eider_activation_alias(i); i++)
        consider(name, eider_activation_alias(i), &best, &least);
    consider(name, "where", &best, &least);
    return best;
}
