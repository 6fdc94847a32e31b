/* reduce.c -- reductions in terms of the ones that templates know.
 *
 * Invariant: afterwards there is no mean and no logsumexp, and no sum of a value that is the same
 * for the whole row, where its extent is known from the text.
 */
#include <math.h>
#include <string.h>

#include "extent.h"
#include "ops.h"
#include "passes.h"

struct rewrite {
    const struct eider_graph *from;
    struct eider_graph *to;
    const uint8_t *bits; /* of the nodes of `from` */
};

static eider_node unary(struct rewrite *w, enum eider_op op, eider_node a)
{
    return eider_graph_unary(w->to, op, a);
}

static eider_node binary(struct rewrite *w, enum eider_op op, eider_node a, eider_node b)
{
    return eider_graph_binary(w->to, op, a, b);
}

static eider_node cols(struct rewrite *w)
{
    return eider_graph_put(w->to, EIDER_OP_cols, NULL, 0, 0);
}

/* The largest is taken off before exp sees anything; an infinite one would leave inf - inf, and
 * needs nothing taken off. */
static eider_node logsumexp(struct rewrite *w, eider_node a)
{
    struct eider_graph *g = w->to;
    eider_node most = unary(w, EIDER_OP_amax, a);
    eider_node is_infinite =
        binary(w, EIDER_OP_eq, unary(w, EIDER_OP_abs, most), eider_graph_number(g, INFINITY));
    eider_node shift =
        eider_graph_ternary(g, EIDER_OP_select, is_infinite, eider_graph_number(g, 0), most);
    eider_node e = unary(w, EIDER_OP_exp, binary(w, EIDER_OP_sub, a, shift));
    return binary(w, EIDER_OP_add, unary(w, EIDER_OP_log, unary(w, EIDER_OP_sum, e)), shift);
}

static eider_node sum(struct rewrite *w, eider_node id, eider_node a)
{
    int is_constant = !(w->bits[eider_graph_args(w->from, id)[0]] & EIDER_BY_COL);
    return is_constant ? binary(w, EIDER_OP_mul, a, cols(w)) : unary(w, EIDER_OP_sum, a);
}

static eider_node rewritten(struct rewrite *w, eider_node id, const eider_node *args)
{
    const struct eider_cell *cell = &w->from->cells[id];
    enum eider_op op = (enum eider_op)cell->op;
    if (op == EIDER_OP_logsumexp) return logsumexp(w, args[0]);
    if (op == EIDER_OP_sum) return sum(w, id, args[0]);
    if (op == EIDER_OP_mean) return binary(w, EIDER_OP_div, sum(w, id, args[0]), cols(w));
    return eider_graph_put(w->to, op, args, cell->n_args, cell->payload);
}

static void rewrite(struct rewrite *w, eider_node *map)
{
    const struct eider_graph *from = w->from;
    for (eider_node id = 1; id < from->n_cells; id++) {
        const eider_node *args = eider_graph_args(from, id);
        eider_node mapped[EIDER_CALL_ARGS_MAX];
        for (uint32_t k = 0; k < from->cells[id].n_args; k++) mapped[k] = map[args[k]];
        w->to->origin = from->origins[id];
        map[id] = rewritten(w, id, mapped);
    }
    memcpy(w->to->operands, from->operands, sizeof w->to->operands);
    w->to->n_operands = from->n_operands;
    for (uint32_t i = 0; i < w->to->n_operands; i++)
        w->to->operands[i].node = map[from->operands[i].node];
}

eider_status eider_reduce(const struct eider_graph *from, struct eider_graph **out)
{
    const eider_allocator *a = &from->allocator;
    struct rewrite w = {.from = from};
    if (!eider_extent_over_rows(from)) return eider_graph_copy(from, out);
    uint8_t *bits = eider_mem_alloc(a, from->n_cells);
    eider_node *map = eider_mem_zero(a, from->n_cells * sizeof *map);
    eider_status status = bits && map ? eider_graph_create(a, &w.to) : EIDER_OOM;
    if (status == EIDER_OK) {
        eider_extent_infer(from, bits);
        w.bits = bits;
        rewrite(&w, map);
        status = w.to->status;
    }
    if (status == EIDER_OK) status = eider_graph_copy(w.to, out);
    eider_graph_destroy(w.to);
    eider_mem_free(a, bits);
    eider_mem_free(a, map);
    return status;
}
