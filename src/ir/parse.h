/* parse.h -- text to graph and back.
 *
 * Invariant: eider_program_print of a graph parses to an equal graph.
 * The language is described in docs/LANGUAGE.md.
 */
#ifndef EIDER_IR_PARSE_H
#define EIDER_IR_PARSE_H

#include "graph.h"

/* Fails with EIDER_PARSE: "line:column: found X, expected Y".  Never recurses deeper
 * than a fixed limit.  Caller owns *out: eider_graph_destroy. */
eider_status eider_parse(const eider_allocator *a, const char *text, struct eider_graph **out);

/* Canonical text; the caller frees it with eider_mem_free. */
eider_status eider_print(const struct eider_graph *g, char **out);

#endif
