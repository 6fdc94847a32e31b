/* activations.c -- see activations.h.
 *
 * Everything about a row is read from its text when it is asked for: nothing is built up
 * front, so there is no state to share or to release.
 */
#include "activations.h"

#include <string.h>

#include "ops.h"
#include "parse.h"
#include "syntax.h"

static const struct eider_activation rows[] = {
#define EIDER_ACTIVATION(name, n_tensors, params, results, backward, body, doc) \
    {#name, params, results, body, backward, n_tensors, doc},
#define EIDER_ALIAS(alias, name)
#include "activations.def"
};

static const char *const signatures[] = {
#define EIDER_ACTIVATION(name, n_tensors, params, results, backward, body, doc) \
    results " = " #name "(" params ")",
#define EIDER_ALIAS(alias, name)
#include "activations.def"
};

static const struct {
    const char *alias, *name;
} aliases[] = {
#define EIDER_ACTIVATION(name, n_tensors, params, results, backward, body, doc)
#define EIDER_ALIAS(alias, name) {#alias, #name},
#include "activations.def"
};

#define N_ROWS (sizeof rows / sizeof *rows)
#define N_ALIASES (sizeof aliases / sizeof *aliases)

const struct eider_activation *eider_activation_row(size_t i)
{
    return i < N_ROWS ? &rows[i] : NULL;
}

const char *eider_activation_alias(size_t i)
{
    return i < N_ALIASES ? aliases[i].alias : NULL;
}

int eider_activation_find(const char *name)
{
    for (size_t i = 0; i < N_ALIASES; i++)
        if (strcmp(aliases[i].alias, name) == 0) name = aliases[i].name;
    for (size_t i = 0; i < N_ROWS; i++)
        if (strcmp(rows[i].name, name) == 0) return (int)i;
    return -1;
}

const char *eider_activation_signature(size_t i)
{
    return i < N_ROWS ? signatures[i] : "";
}

/* ---- Lists of names: "x, y, alpha=1.702" ---------------------------------- */

int eider_activation_item(const char *list, int i, struct eider_activation_item *out)
{
    for (; i > 0; i--) {
        list = strchr(list, ',');
        if (!list) return 0;
        list += strspn(list, ", ");
    }
    size_t length = strcspn(list, ",");
    const char *equals = memchr(list, '=', length);
    *out = (struct eider_activation_item){.name = list, .length = length};
    if (equals) {
        out->length = (size_t)(equals - list);
        out->has_default = 1;
        size_t rest = length - out->length - 1;
        if (rest == 3 && memcmp(equals + 1, "inf", 3) == 0)
            out->value = __builtin_inf();
        else
            eider_syntax_read(equals + 1, rest, &out->value);
    }
    return length > 0;
}

static int count(const char *list, int required_only)
{
    struct eider_activation_item item;
    int n = 0;
    while (eider_activation_item(list, n, &item) && !(required_only && item.has_default)) n++;
    return n;
}

int eider_activation_n_params(size_t i)
{
    return count(rows[i].params, 0);
}

int eider_activation_n_required(size_t i)
{
    return count(rows[i].params, 1);
}

int eider_activation_n_results(size_t i)
{
    return count(rows[i].results, 0);
}

/* ---- Calls -------------------------------------------------------------- */

eider_node eider_activation_call(struct eider_graph *g, size_t i, const eider_node *args,
                                 uint32_t n_args)
{
    if (g->status != EIDER_OK) return 0;
    if (i >= N_ROWS) return eider_graph_fail(g, EIDER_BAD_ARG, "there is no activation %zu", i);
    uint32_t n = (uint32_t)eider_activation_n_params(i);
    if (n_args > n || n_args < (uint32_t)eider_activation_n_required(i))
        return eider_graph_fail(g, EIDER_BAD_ARG, "arguments given to %s: %u", signatures[i],
                                n_args);
    enum eider_op op = eider_ops_find(rows[i].name);
    if (op) return eider_graph_put(g, op, args, n_args, 0); /* such as tanh */
    eider_node all[EIDER_CALL_ARGS_MAX];
    for (uint32_t k = 0; k < n; k++) {
        struct eider_activation_item item;
        eider_activation_item(rows[i].params, (int)k, &item);
        all[k] = k < n_args ? args[k] : eider_graph_number(g, item.value);
    }
    return eider_graph_put(g, EIDER_OP_call, all, n, i);
}

/* ---- Expansion ---------------------------------------------------------- */

/* Where the results of a call lie in the new graph. */
struct expansion {
    eider_node results[EIDER_RESULTS_MAX];
};

static eider_node expand_cell(const struct eider_graph *from, struct eider_graph *to, eider_node id,
                              const eider_node *map, struct expansion *calls)
{
    const struct eider_cell *cell = &from->cells[id];
    const eider_node *args = eider_graph_args(from, id);
    if (cell->op == EIDER_OP_result) return calls[args[0]].results[cell->payload];
    eider_node mapped[EIDER_CALL_ARGS_MAX];
    for (uint32_t k = 0; k < cell->n_args; k++) mapped[k] = map[args[k]];
    if (cell->op != EIDER_OP_call)
        return eider_graph_put(to, (enum eider_op)cell->op, mapped, cell->n_args, cell->payload);
    eider_parse_body(to, cell->payload, mapped, 0, calls[id].results);
    return calls[id].results[0];
}

static eider_status expand(const struct eider_graph *from, struct eider_graph *to, eider_node *map,
                           struct expansion *calls)
{
    for (eider_node id = 1; id < from->n_cells; id++) {
        to->origin = from->origins[id] ? from->origins[id] : id;
        map[id] = expand_cell(from, to, id, map, calls);
    }
    memcpy(to->operands, from->operands, sizeof to->operands);
    to->n_operands = from->n_operands;
    for (uint32_t i = 0; i < to->n_operands; i++)
        to->operands[i].node = map[from->operands[i].node];
    return to->status;
}

eider_status eider_activation_expand(const struct eider_graph *from, struct eider_graph **out)
{
    const eider_allocator *a = &from->allocator;
    struct eider_graph *to = NULL, *live = NULL;
    eider_node *map = eider_mem_zero(a, from->n_cells * sizeof *map);
    struct expansion *calls = eider_mem_zero(a, from->n_cells * sizeof *calls);
    eider_status status = map && calls ? eider_graph_create(a, &to) : EIDER_OOM;
    if (status == EIDER_OK) status = expand(from, to, map, calls);
    /* Bodies compute every result, wanted or not. */
    if (status == EIDER_OK) status = eider_graph_copy(to, &live);
    eider_graph_destroy(to);
    eider_mem_free(a, map);
    eider_mem_free(a, calls);
    if (status == EIDER_OK) *out = live;
    return status;
}
