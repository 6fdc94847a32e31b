/* row_plan.c -- the stages of a program over rows.
 *
 * Invariant: a node of level n is known once n stages are done; a reduction of level n ends
 * stage n - 1.
 */
#include <string.h>

#include "ops.h"
#include "row.h"

void eider_row_differing(const struct eider_layout *layout, uint8_t *in_row)
{
    for (uint32_t i = 0; i < layout->n_operands; i++)
        in_row[i] = layout->operands[i].kind == EIDER_INPUT &&
                    layout->operands[i].stride_class[layout->rank - 1] != 0;
}

static int differs(const struct eider_graph *g, eider_node id, const uint8_t *in_row,
                   const uint8_t *varies)
{
    const struct eider_cell *cell = &g->cells[id];
    const eider_node *args = eider_graph_args(g, id);
    int any = 0;
    if (cell->op == EIDER_OP_input) return in_row[cell->payload];
    if (cell->op == EIDER_OP_col || cell->op == EIDER_OP_colsum) return 1;
    if (cell->op == EIDER_OP_pick) return varies[args[1]];
    if (eider_ops_reduces((enum eider_op)cell->op)) return 0;
    for (uint32_t k = 0; k < cell->n_args; k++) any |= varies[args[k]];
    return any;
}

/* Many instructions, or a slow one. */
static int is_costly(enum eider_op op)
{
    return op == EIDER_OP_div || op == EIDER_OP_pick ||
           (op >= EIDER_OP_sqrt && op <= EIDER_OP_normcdf) || op >= EIDER_OP_m_tanh;
}

static uint16_t level_of(const struct eider_graph *g, eider_node id, const uint16_t *level)
{
    const struct eider_cell *cell = &g->cells[id];
    const eider_node *args = eider_graph_args(g, id);
    uint16_t most = 0;
    for (uint32_t k = 0; k < cell->n_args; k++)
        if (level[args[k]] > most) most = level[args[k]];
    return (uint16_t)(most + eider_ops_reduces((enum eider_op)cell->op));
}

eider_status eider_row_plan_create(const struct eider_lowered *program, const uint8_t *in_row,
                                   unsigned online, struct eider_row_plan *out)
{
    const struct eider_graph *g = program->graph;
    struct eider_row_plan *p = out;
    struct eider_row_online found;
    *p = (struct eider_row_plan){0};
    p->varies = eider_mem_zero(&g->allocator, g->n_cells);
    p->live = eider_mem_zero(&g->allocator, g->n_cells);
    p->level = eider_mem_zero(&g->allocator, g->n_cells * sizeof *p->level);
    p->costly = eider_mem_zero(&g->allocator, g->n_cells);
    if (!p->varies || !p->live || !p->level || !p->costly) {
        eider_row_plan_release(&g->allocator, p);
        return EIDER_OOM;
    }
    eider_graph_live(g, p->live);
    for (eider_node id = 1; id < g->n_cells; id++) {
        p->varies[id] = (uint8_t)differs(g, id, in_row, p->varies);
        p->level[id] = level_of(g, id, p->level);
        if (eider_row_online_of(program, p->live, id, online, &found)) p->level[id]--;
        p->costly[id] = p->varies[id] && is_costly((enum eider_op)g->cells[id].op);
        if (!p->live[id]) continue;
        if (p->level[id] > p->n_stages) p->n_stages = p->level[id];
        if (g->cells[id].op == EIDER_OP_pick) p->picks = 1;
    }
    return EIDER_OK;
}

void eider_row_plan_release(const struct eider_allocator *a, struct eider_row_plan *plan)
{
    eider_mem_free(a, plan->varies);
    eider_mem_free(a, plan->live);
    eider_mem_free(a, plan->level);
    eider_mem_free(a, plan->costly);
    *plan = (struct eider_row_plan){0};
}

/* What is picked is computed elsewhere in the row; only its place belongs to the element. */
void eider_row_plan_need(const struct eider_graph *g, const struct eider_row_plan *plan,
                         uint8_t *need)
{
    for (eider_node id = g->n_cells; id-- > 1;) {
        if (!need[id]) continue;
        need[id] = plan->varies[id];
        if (!need[id]) continue;
        const eider_node *args = eider_graph_args(g, id);
        uint32_t first = g->cells[id].op == EIDER_OP_pick;
        for (uint32_t k = first; k < g->cells[id].n_args; k++) need[args[k]] = 1;
    }
}
