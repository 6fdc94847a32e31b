/* builder.c -- programs from calls instead of text.
 *
 * Invariant: the first failure sticks in the graph; everything after it yields poison.
 * Outputs wait until the end, as a graph declares them after its inputs.
 */
#include "program.h"

#include <stdio.h>
#include <string.h>

#include "activations.h"
#include "arithmetic.h"
#include "context.h"
#include "functions.h"
#include "ops.h"

struct output {
    char name[EIDER_NAME_BYTES];
    eider_node node;
    int32_t type;
};

struct eider_builder {
    struct eider_graph *graph;
    char message[1024]; /* of the first failure; other calls may have failed since */
    uint32_t n_outputs;
    struct output outputs[EIDER_OPERANDS_MAX];
};

eider_status eider_builder_create(eider_context *ctx, eider_builder **out)
{
    if (!ctx || !out) return eider_fail(EIDER_BAD_ARG, "eider_builder_create: an argument is NULL");
    EIDER_TRY(eider_context_check(ctx));
    const eider_allocator *a = eider_context_allocator(ctx);
    eider_builder *b = eider_mem_zero(a, sizeof *b);
    if (!b) return EIDER_OOM;
    eider_status status = eider_graph_create(a, &b->graph);
    if (status == EIDER_OK)
        *out = b;
    else
        eider_mem_free(a, b);
    return status;
}

/* Keeps the message of a failure that this call caused; passes `node` on. */
static eider_value done(eider_builder *b, eider_node node)
{
    if (b->graph->status != EIDER_OK && !b->message[0])
        snprintf(b->message, sizeof b->message, "%s", eider_error());
    return node;
}

/* Whether `node` is a value of this builder; fails, unless it is poison, when it is not. */
static int is_value(eider_builder *b, eider_node node, const char *what)
{
    if (node >= b->graph->n_cells)
        eider_graph_fail(b->graph, EIDER_BAD_ARG, "%s: %u is no value of this builder", what, node);
    else if (node == 0)
        eider_graph_fail(b->graph, EIDER_BAD_ARG, "%s: 0 is no value", what);
    return b->graph->status == EIDER_OK;
}

eider_value eider_builder_input(eider_builder *b, const char *name, int32_t type)
{
    return b ? done(b, eider_graph_input(b->graph, name, type)) : 0;
}

static eider_node input_of(eider_builder *b, const char *name, int32_t type, eider_extent extent)
{
    if (extent < EIDER_FULL || extent > EIDER_PER_COLUMN)
        return eider_graph_fail(b->graph, EIDER_BAD_ARG, "'%.80s': extent %d is none",
                                name ? name : "", (int)extent);
    return eider_graph_input_of(b->graph, name, type, extent);
}

eider_value eider_builder_input_of(eider_builder *b, const char *name, int32_t type,
                                   eider_extent extent)
{
    return b ? done(b, input_of(b, name, type, extent)) : 0;
}

eider_value eider_builder_scalar(eider_builder *b, const char *name, int32_t type)
{
    return b ? done(b, eider_graph_scalar(b->graph, name, type)) : 0;
}

eider_value eider_builder_number(eider_builder *b, double value)
{
    return b ? done(b, eider_graph_number(b->graph, value)) : 0;
}

eider_value eider_builder_integer(eider_builder *b, int64_t value)
{
    return b ? done(b, eider_graph_integer(b->graph, value)) : 0;
}

/* Reads the defaults of trailing arguments from the table. */
static eider_node call_activation(struct eider_graph *g, size_t row, const eider_value *args,
                                  uint32_t n_args)
{
    struct eider_arithmetic host;
    eider_arithmetic_enter(&host);
    eider_node node = eider_activation_call(g, row, args, n_args);
    eider_arithmetic_leave(&host);
    return node;
}

static eider_node call(eider_builder *b, const char *function, const eider_value *args,
                       size_t n_args)
{
    struct eider_graph *g = b->graph;
    if (g->status != EIDER_OK) return 0;
    if (!function || (n_args && !args))
        return eider_graph_fail(g, EIDER_BAD_ARG, "eider_builder_call: an argument is NULL");
    if (n_args > EIDER_CALL_ARGS_MAX)
        return eider_graph_fail(g, EIDER_BAD_ARG, "%.80s: %zu arguments; at most %d are possible",
                                function, n_args, EIDER_CALL_ARGS_MAX);
    for (size_t i = 0; i < n_args; i++)
        if (!is_value(b, args[i], function)) return 0;
    struct eider_function f;
    if (!eider_functions_find(function, &f) || eider_ops[f.op].rule == EIDER_RULE_CAST)
        return eider_graph_fail(g, EIDER_BAD_ARG, "there is no function '%.80s'", function);
    if (!f.op) return call_activation(g, f.row, args, (uint32_t)n_args);
    f.op = eider_functions_of(f.op, (uint32_t)n_args);
    if (n_args != (size_t)eider_ops[f.op].arity)
        return eider_graph_fail(g, EIDER_BAD_ARG, "arguments given to %s: %zu, it takes %d",
                                function, n_args, eider_ops[f.op].arity);
    return eider_graph_put(g, f.op, args, (uint32_t)n_args, 0);
}

eider_value eider_builder_call(eider_builder *b, const char *function, const eider_value *args,
                               size_t n_args)
{
    return b ? done(b, call(b, function, args, n_args)) : 0;
}

static eider_node result(eider_builder *b, eider_node of, uint32_t i)
{
    if (!is_value(b, of, "eider_builder_result")) return 0;
    const struct eider_cell *cell = &b->graph->cells[of];
    uint32_t n = 1;
    if (cell->op == EIDER_OP_call) n = (uint32_t)eider_activation_n_results(cell->payload);
    if (i >= n)
        return eider_graph_fail(b->graph, EIDER_BAD_ARG,
                                "eider_builder_result: result %u of a value that has %u", i, n);
    return i == 0 ? of : eider_graph_put(b->graph, EIDER_OP_result, &of, 1, i);
}

eider_value eider_builder_result(eider_builder *b, eider_value of, uint32_t i)
{
    return b ? done(b, result(b, of, i)) : 0;
}

static eider_node cast(eider_builder *b, eider_node value, eider_dtype type)
{
    if (!is_value(b, value, "eider_builder_cast")) return 0;
    if (!eider_dtype_name(type))
        return eider_graph_fail(b->graph, EIDER_BAD_ARG,
                                "eider_builder_cast: %d is not an element type", (int)type);
    return eider_graph_put(b->graph, EIDER_OP_cast, &value, 1, (uint64_t)type);
}

eider_value eider_builder_cast(eider_builder *b, eider_value value, eider_dtype type)
{
    return b ? done(b, cast(b, value, type)) : 0;
}

static void output(eider_builder *b, const char *name, eider_node value, int32_t type)
{
    if (!is_value(b, value, "eider_builder_output")) return;
    if (!name || strlen(name) >= EIDER_NAME_BYTES) {
        eider_graph_fail(b->graph, EIDER_BAD_ARG,
                         "'%.80s' is not a name of 1 to %d letters, digits and '_'",
                         name ? name : "", EIDER_NAME_BYTES - 1);
        return;
    }
    if (b->n_outputs == EIDER_OPERANDS_MAX) {
        eider_graph_fail(b->graph, EIDER_TOO_LARGE, "the program has more than %d operands",
                         EIDER_OPERANDS_MAX);
        return;
    }
    struct output *o = &b->outputs[b->n_outputs++];
    *o = (struct output){.node = value, .type = type};
    memcpy(o->name, name, strlen(name) + 1);
}

void eider_builder_output(eider_builder *b, const char *name, eider_value value, int32_t type)
{
    if (!b) return;
    output(b, name, value, type);
    done(b, 0);
}

static eider_status finish(eider_builder *b, eider_program **out)
{
    if (!out) return eider_fail(EIDER_BAD_ARG, "eider_builder_finish: out is NULL");
    for (uint32_t i = 0; i < b->n_outputs; i++)
        eider_graph_output(b->graph, b->outputs[i].name, b->outputs[i].node, b->outputs[i].type);
    if (b->n_outputs == 0) eider_graph_fail(b->graph, EIDER_BAD_ARG, "the program has no output");
    done(b, 0);
    if (b->graph->status != EIDER_OK) return eider_fail_text(b->graph->status, b->message);
    struct eider_graph *graph = b->graph;
    b->graph = NULL;
    return eider_program_create(graph, out);
}

eider_status eider_builder_finish(eider_builder *b, eider_program **out)
{
    if (!b) return eider_fail(EIDER_BAD_ARG, "eider_builder_finish: the builder is NULL");
    eider_allocator a = b->graph->allocator;
    struct eider_arithmetic host;
    eider_arithmetic_enter(&host);
    eider_status status = finish(b, out);
    eider_arithmetic_leave(&host);
    eider_graph_destroy(b->graph);
    eider_mem_free(&a, b);
    return status;
}

void eider_builder_discard(eider_builder *b)
{
    if (!b) return;
    eider_allocator a = b->graph->allocator;
    eider_graph_destroy(b->graph);
    eider_mem_free(&a, b);
}
