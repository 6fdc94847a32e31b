/* extent.c -- see extent.h. */
#include "extent.h"

#include "ops.h"

uint8_t eider_extent_bits(eider_extent extent)
{
    return extent == EIDER_PER_ROW      ? EIDER_BY_ROW
           : extent == EIDER_PER_COLUMN ? EIDER_BY_COL
                                        : EIDER_BY_ROW | EIDER_BY_COL;
}

uint8_t eider_extent_of_node(const struct eider_graph *g, eider_node id, const uint8_t *bits)
{
    const struct eider_cell *cell = &g->cells[id];
    const eider_node *args = eider_graph_args(g, id);
    unsigned all = 0;
    for (uint32_t k = 0; k < cell->n_args; k++) all |= bits[args[k]];
    switch (cell->op) {
    case EIDER_OP_input:
        return eider_extent_bits(g->operands[cell->payload].extent);
    case EIDER_OP_row:
        return EIDER_BY_ROW;
    case EIDER_OP_col:
        return EIDER_BY_COL;
    case EIDER_OP_pick:
        return (uint8_t)((bits[args[0]] & EIDER_BY_ROW) | bits[args[1]]);
    case EIDER_OP_colsum:
        return (uint8_t)(all & EIDER_BY_COL);
    default:
        return (uint8_t)(eider_ops_reduces((enum eider_op)cell->op) ? all & EIDER_BY_ROW : all);
    }
}

void eider_extent_infer(const struct eider_graph *g, uint8_t *bits)
{
    bits[0] = 0;
    for (eider_node id = 1; id < g->n_cells; id++) bits[id] = eider_extent_of_node(g, id, bits);
}

/* The value of a colsum, rounded or not. */
static int is_colsum(const struct eider_graph *g, eider_node node)
{
    while (g->cells[node].op == EIDER_OP_cast || g->cells[node].op == EIDER_OP_cast_nan)
        node = eider_graph_args(g, node)[0];
    return g->cells[node].op == EIDER_OP_colsum;
}

eider_extent eider_extent_of_output(const struct eider_graph *g, uint32_t i, const uint8_t *bits)
{
    eider_node node = g->operands[i].node;
    if (g->operands[i].is_full) return EIDER_FULL;
    if (is_colsum(g, node)) return EIDER_PER_COLUMN;
    if (bits[node] & EIDER_BY_COL || !eider_extent_over_rows(g)) return EIDER_FULL;
    return EIDER_PER_ROW;
}

eider_status eider_extent_check(const struct eider_graph *g)
{
    for (eider_node id = 1; id < g->n_cells; id++) {
        enum eider_op op = (enum eider_op)g->cells[id].op;
        if (op == EIDER_OP_cast || op == EIDER_OP_cast_nan) continue;
        for (uint32_t k = 0; k < g->cells[id].n_args; k++)
            if (is_colsum(g, eider_graph_args(g, id)[k]))
                return eider_fail(EIDER_UNSUPPORTED,
                                  "%s of a colsum: a colsum is known after the last row only; "
                                  "it can be an output, cast at most",
                                  eider_ops[op].name);
    }
    for (uint32_t i = 0; i < g->n_operands; i++)
        if (g->operands[i].is_full && is_colsum(g, g->operands[i].node))
            return eider_fail(EIDER_UNSUPPORTED, "'%s' is a colsum and declared full",
                              g->operands[i].name);
    return EIDER_OK;
}

int eider_extent_over_rows(const struct eider_graph *g)
{
    for (eider_node id = 1; id < g->n_cells; id++)
        if (eider_ops_over_rows((enum eider_op)g->cells[id].op)) return 1;
    for (uint32_t i = 0; i < g->n_operands; i++)
        if (g->operands[i].extent != EIDER_FULL) return 1;
    return 0;
}
