/* parse.h -- text to graph and back.
 *
 * Invariant: eider_print of a graph without machine forms parses to an equal graph.
 * The language is described in docs/LANGUAGE.md.
 */
#ifndef EIDER_IR_PARSE_H
#define EIDER_IR_PARSE_H

#include "graph.h"

/* The name of a program (programs.def) stands for it.  Fails with EIDER_PARSE: "line:column:
 * found X, expected Y".  Never recurses deeper than a fixed limit.  Caller owns *out:
 * eider_graph_destroy. */
eider_status eider_parse(const eider_allocator *a, const char *text, struct eider_graph **out);

/* Canonical text; the caller frees it with eider_mem_free. */
eider_status eider_print(const struct eider_graph *g, char **out);

/* The nodes one by one: line `id` (from 0 on) of the text says what node `id` is, as an
 * assignment where it has a name; it is empty for leaves and for what no output needs.  With
 * `all_named` every node has one, so that a line shows one operation.  The caller frees it
 * with eider_mem_free. */
eider_status eider_print_nodes(const struct eider_graph *g, int all_named, char **out);

/* Parses the body of activation `row` into `g`, with `args` for its parameters, and gives
 * its results.  Activations that it calls are replaced by their bodies in turn; `depth`
 * is how many bodies this one lies in.  A failure sticks in `g`. */
void eider_parse_body(struct eider_graph *g, size_t row, const eider_node *args, int depth,
                      eider_node *results);

/* Most results that a function has. */
#define EIDER_RESULTS_MAX 4

#endif
