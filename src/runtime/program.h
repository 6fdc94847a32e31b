/* program.h -- a program: a graph with its text.
 *
 * Invariant: immutable once created, so any number of threads may use it.
 */
#ifndef EIDER_RUNTIME_PROGRAM_H
#define EIDER_RUNTIME_PROGRAM_H

#include "graph.h"

struct eider_program {
    eider_allocator allocator;
    struct eider_graph *graph;    /* as written: calls of activations are calls */
    struct eider_graph *expanded; /* the same over primitives */
    char *text;                   /* canonical */
    eider_extent extents[EIDER_OPERANDS_MAX];
    uint64_t id; /* no other program of the process has or had it */
};

/* Makes a program of `graph`, which it owns from then on, also on failure.
 * Caller owns *out: eider_program_release. */
eider_status eider_program_create(struct eider_graph *graph, eider_program **out);

#endif
