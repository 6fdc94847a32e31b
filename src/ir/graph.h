/* graph.h -- a program as a graph of small nodes.
 *
 * Invariants: nodes are addressed by 32-bit ids in an array that only grows; operands
 * have smaller ids than their users, so one forward loop visits operands first and no
 * pass needs recursion; equal nodes have equal ids (hash-consing).  Id 0 is poison:
 * every operation on it yields it, and the first failure sticks in `status`, so that
 * builders need no checks.
 * Not here: names of functions (ops.h, activations.h), types (infer.h), text.
 */
#ifndef EIDER_IR_GRAPH_H
#define EIDER_IR_GRAPH_H

#include "memory.h"

enum eider_op {
#define EIDER_OP(name, arity, text, rule, doc) EIDER_OP_##name,
#include "ops.def"
    EIDER_OP_COUNT
};

typedef uint32_t eider_node;

#define EIDER_NODES_MAX 65536u /* per graph; a fused program of this size is a mistake */
#define EIDER_OPERANDS_MAX 64  /* inputs + scalars + outputs */
#define EIDER_CALL_ARGS_MAX 16
#define EIDER_NAME_BYTES 64

struct eider_cell {
    uint16_t op; /* enum eider_op */
    uint16_t n_args;
    uint32_t first_arg; /* into eider_graph.args */
    uint64_t payload;   /* see ops.def */
};

_Static_assert(sizeof(struct eider_cell) == 16, "four cells fit a cache line");

/* An operand of the program, in launch order once the graph is finished: inputs and
 * scalars as they first appear, then outputs. */
struct eider_graph_operand {
    char name[EIDER_NAME_BYTES];
    eider_operand_kind kind;
    int32_t type;        /* an eider_dtype, or -1 for any */
    eider_extent extent; /* of an input: what it is declared to have one value for */
    int32_t is_full;     /* an output that has every element, whatever its value differs for */
    eider_node node;     /* the leaf of an input or scalar; what an output stores */
};

struct eider_graph {
    eider_allocator allocator;
    struct eider_cell *cells; /* cells[0] is poison */
    uint32_t n_cells, room_cells;
    eider_node *args;
    uint32_t n_args, room_args;
    uint32_t *index; /* hash table of ids, open addressing; size a power of two */
    uint32_t index_size;
    struct eider_graph_operand operands[EIDER_OPERANDS_MAX];
    uint32_t n_operands;
    /* Of each node, the node of the program as written that it came from: passes set `origin`
     * before they add nodes.  A node that several have made keeps the first. */
    uint32_t *origins;
    uint32_t room_origins, origin;
    eider_status status; /* first failure */
};

/* An empty graph.  Caller owns *out: eider_graph_destroy. */
eider_status eider_graph_create(const eider_allocator *a, struct eider_graph **out);
void eider_graph_destroy(struct eider_graph *g);

/* The node (op, args, payload), found or added; 0 after a failure.  Checks nothing
 * about op or arity: callers do. */
eider_node eider_graph_put(struct eider_graph *g, enum eider_op op, const eider_node *args,
                           uint32_t n_args, uint64_t payload);

/* Shorthands. */
eider_node eider_graph_number(struct eider_graph *g, double value);
eider_node eider_graph_integer(struct eider_graph *g, int64_t value);
eider_node eider_graph_unary(struct eider_graph *g, enum eider_op op, eider_node a);
eider_node eider_graph_binary(struct eider_graph *g, enum eider_op op, eider_node a, eider_node b);
eider_node eider_graph_ternary(struct eider_graph *g, enum eider_op op, eider_node a, eider_node b,
                               eider_node c);

/* Declares an operand.  Names are unique ([A-Za-z_][A-Za-z0-9_]*), at most 63 bytes.
 * Returns the leaf, or 0 after a failure; an output returns its node. */
eider_node eider_graph_input(struct eider_graph *g, const char *name, int32_t type);
/* The same for an input of one value per row or per column. */
eider_node eider_graph_input_of(struct eider_graph *g, const char *name, int32_t type,
                                eider_extent extent);
eider_node eider_graph_scalar(struct eider_graph *g, const char *name, int32_t type);
eider_node eider_graph_output(struct eider_graph *g, const char *name, eider_node value,
                              int32_t type);

/* The operand of that name, or NULL. */
const struct eider_graph_operand *eider_graph_find(const struct eider_graph *g, const char *name);

/* Records a failure (see fail.h); only the first one sticks.  Returns 0, poison. */
eider_node eider_graph_fail(struct eider_graph *g, eider_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static inline const eider_node *eider_graph_args(const struct eider_graph *g, eider_node node)
{
    return g->args + g->cells[node].first_arg;
}

static inline double eider_cell_number(const struct eider_cell *cell)
{
    union {
        uint64_t bits;
        double value;
    } u = {.bits = cell->payload};
    return u.value;
}

/* Whether the cell is a literal, and then which. */
static inline int eider_cell_literal(const struct eider_cell *cell, double *value)
{
    if (cell->op == EIDER_OP_number) *value = eider_cell_number(cell);
    if (cell->op == EIDER_OP_integer) *value = (double)(int64_t)cell->payload;
    return cell->op == EIDER_OP_number || cell->op == EIDER_OP_integer;
}

/* The largest of a's row that `reference` is: itself, or one for which a select has a number where
 * it is infinite; or 0. */
eider_node eider_graph_largest_in(const struct eider_graph *g, eider_node reference, eider_node a);

/* live[i] = 1 where node i is needed for an output; `live` has n_cells bytes. */
void eider_graph_live(const struct eider_graph *g, uint8_t *live);

/* A copy of `from` with only live nodes, in the same relative order, operands kept. */
eider_status eider_graph_copy(const struct eider_graph *from, struct eider_graph **out);

/* Content hash of operands and live nodes: equal graphs, equal hashes, in every process
 * and version.  Zero when memory is exhausted. */
struct eider_hash {
    uint64_t low, high;
};
struct eider_hash eider_graph_hash(const struct eider_graph *g);

/* The same operands and the same live nodes, whatever their ids.  0, too, when memory is
 * exhausted. */
int eider_graph_equal(const struct eider_graph *a, const struct eider_graph *b);

#endif
