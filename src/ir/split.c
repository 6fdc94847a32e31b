/* split.c -- a program that no kernel computes at once becomes two.
 *
 * Sums down the columns go into one, everything else into the other, and with it the values of a
 * row that the sums need and that take a reduction: outputs there, inputs declared `row` here.
 * Invariant: the values are those of the whole program, but for the rounding of what is passed on.
 */
#include <stdio.h>
#include <string.h>

#include "extent.h"
#include "ops.h"
#include "passes.h"

struct split {
    const struct eider_graph *from;
    uint8_t *bits;    /* of each node, see extent.h */
    uint8_t *reduces; /* a reduction along the row, or a pick, is part of it */
    uint8_t *in_rows; /* needed for the outputs of the one part */
    uint8_t *in_columns;
    eider_node *map; /* to the part that is made */
};

/* The same for the whole row, and not known without looking at all of it. */
static int is_passed_on(const struct split *s, eider_node id)
{
    return s->reduces[id] && !(s->bits[id] & EIDER_BY_COL);
}

static int is_sum(const struct split *s, uint32_t i)
{
    return s->from->operands[i].kind == EIDER_OUTPUT &&
           eider_extent_of_output(s->from, i, s->bits) == EIDER_PER_COLUMN;
}

/* ---- What each part needs ------------------------------------------------------- */

static void find_reductions(struct split *s)
{
    for (eider_node id = 1; id < s->from->n_cells; id++) {
        enum eider_op op = (enum eider_op)s->from->cells[id].op;
        s->reduces[id] = eider_ops_reduces(op) || op == EIDER_OP_pick;
        for (uint32_t k = 0; k < s->from->cells[id].n_args; k++)
            s->reduces[id] |= s->reduces[eider_graph_args(s->from, id)[k]];
        if (op == EIDER_OP_colsum) s->reduces[id] = 0; /* it stays a sum, of whatever */
    }
}

static void find_needs(struct split *s)
{
    const struct eider_graph *g = s->from;
    for (uint32_t i = 0; i < g->n_operands; i++) {
        if (g->operands[i].kind != EIDER_OUTPUT) continue;
        (is_sum(s, i) ? s->in_columns : s->in_rows)[g->operands[i].node] = 1;
    }
    for (eider_node id = g->n_cells; id-- > 1;) {
        if (s->in_columns[id] && is_passed_on(s, id)) s->in_rows[id] = 1;
        int here = s->in_columns[id] && !is_passed_on(s, id);
        for (uint32_t k = 0; k < g->cells[id].n_args; k++) {
            eider_node arg = eider_graph_args(g, id)[k];
            s->in_rows[arg] |= s->in_rows[id];
            s->in_columns[arg] |= (uint8_t)here;
        }
    }
}

/* ---- Making a part ---------------------------------------------------------------- */

/* "row1" and so on, of those that no operand has. */
static void next_name(const struct eider_graph *from, uint32_t *number, char name[16])
{
    do snprintf(name, 16, "row%u", (unsigned)++*number);
    while (eider_graph_find(from, name));
}

/* Known without types: what must not be stored as anything else. */
static int32_t type_of(const struct eider_graph *g, eider_node id)
{
    switch (eider_ops[g->cells[id].op].rule) {
    case EIDER_RULE_BOOL:
    case EIDER_RULE_LOGIC:
        return EIDER_BOOL;
    case EIDER_RULE_INDEX:
        return EIDER_I32;
    default:
        return -1;
    }
}

/* All of them: what is not used may be what says how many rows or columns there are. */
static void declare_leaves(struct split *s, struct eider_graph *to)
{
    for (uint32_t i = 0; i < s->from->n_operands; i++) {
        const struct eider_graph_operand *o = &s->from->operands[i];
        if (o->kind == EIDER_OUTPUT) continue;
        s->map[o->node] = o->kind == EIDER_SCALAR
                              ? eider_graph_scalar(to, o->name, o->type)
                              : eider_graph_input_of(to, o->name, o->type, o->extent);
    }
}

/* As inputs of the sums, or as outputs of the other part. */
static void pass_on(struct split *s, struct eider_graph *to, int as_inputs)
{
    uint32_t number = 0;
    char name[16];
    for (eider_node id = 1; id < s->from->n_cells; id++) {
        if (!s->in_columns[id] || !is_passed_on(s, id)) continue;
        next_name(s->from, &number, name);
        if (as_inputs)
            s->map[id] = eider_graph_input_of(to, name, type_of(s->from, id), EIDER_PER_ROW);
        else
            eider_graph_output(to, name, s->map[id], type_of(s->from, id));
    }
}

static void copy_nodes(struct split *s, struct eider_graph *to, const uint8_t *need)
{
    const struct eider_graph *g = s->from;
    for (eider_node id = 1; id < g->n_cells; id++) {
        eider_node mapped[EIDER_CALL_ARGS_MAX];
        if (!need[id] || s->map[id]) continue;
        for (uint32_t k = 0; k < g->cells[id].n_args; k++)
            mapped[k] = s->map[eider_graph_args(g, id)[k]];
        s->map[id] = eider_graph_put(to, (enum eider_op)g->cells[id].op, mapped,
                                     g->cells[id].n_args, g->cells[id].payload);
    }
}

static void declare_outputs(struct split *s, struct eider_graph *to, int sums)
{
    for (uint32_t i = 0; i < s->from->n_operands; i++) {
        const struct eider_graph_operand *o = &s->from->operands[i];
        if (o->kind != EIDER_OUTPUT || is_sum(s, i) != sums) continue;
        if (eider_graph_output(to, o->name, s->map[o->node], o->type))
            to->operands[to->n_operands - 1].is_full = o->is_full;
    }
}

/* NULL where the part has no output. */
static eider_status make_part(struct split *s, int sums, struct eider_graph **out)
{
    const uint8_t *need = sums ? s->in_columns : s->in_rows;
    struct eider_graph *to = NULL;
    EIDER_TRY(eider_graph_create(&s->from->allocator, &to));
    memset(s->map, 0, s->from->n_cells * sizeof *s->map);
    declare_leaves(s, to);
    if (sums) pass_on(s, to, 1);
    copy_nodes(s, to, need);
    declare_outputs(s, to, sums);
    if (!sums) pass_on(s, to, 0);
    eider_status status = to->status;
    int is_empty = to->n_operands == 0 || to->operands[to->n_operands - 1].kind != EIDER_OUTPUT;
    if (status == EIDER_OK && !is_empty) status = eider_graph_copy(to, out);
    eider_graph_destroy(to);
    return status;
}

/* ---- What rounding would lose ------------------------------------------------------ */

/* Largest and least of what is stored have its digits; all else is rounded when it is passed on. */
static int is_rounded(const struct split *s, eider_node id)
{
    const struct eider_graph *g = s->from;
    enum eider_op op = (enum eider_op)g->cells[id].op;
    int chooses = op == EIDER_OP_rmax || op == EIDER_OP_rmin || op == EIDER_OP_amax ||
                  op == EIDER_OP_amin || op == EIDER_OP_pick;
    if (!is_passed_on(s, id) || type_of(g, id) >= 0) return 0;
    return !chooses || g->cells[eider_graph_args(g, id)[0]].op != EIDER_OP_input;
}

static eider_status check_equalities(const struct split *s)
{
    const struct eider_graph *g = s->from;
    for (eider_node id = 1; id < g->n_cells; id++) {
        enum eider_op op = (enum eider_op)g->cells[id].op;
        if (!s->in_columns[id] || is_passed_on(s, id)) continue;
        if (op != EIDER_OP_eq && op != EIDER_OP_ne) continue;
        for (int k = 0; k < 2; k++) {
            eider_node arg = eider_graph_args(g, id)[k];
            if (is_rounded(s, arg))
                return eider_fail(
                    EIDER_UNSUPPORTED,
                    "split: the sums ask what equals '%s' of the row, which is rounded "
                    "on its way to another kernel; max and min, unlike amax and amin, "
                    "have their gradient at a place, which is not",
                    eider_ops[g->cells[arg].op].name);
        }
    }
    return EIDER_OK;
}

eider_status eider_split(const struct eider_graph *from, struct eider_graph **rows,
                         struct eider_graph **columns)
{
    size_t n = from->n_cells;
    struct eider_arena arena;
    struct split s = {.from = from};
    *rows = *columns = NULL;
    eider_arena_init(&arena, &from->allocator, SIZE_MAX);
    s.bits = eider_arena_alloc(&arena, n);
    s.reduces = eider_arena_alloc(&arena, n);
    s.in_rows = eider_arena_alloc(&arena, n);
    s.in_columns = eider_arena_alloc(&arena, n);
    s.map = eider_arena_alloc(&arena, n * sizeof *s.map);
    int has_all = s.bits && s.reduces && s.in_rows && s.in_columns && s.map;
    eider_status status = has_all ? EIDER_OK : EIDER_OOM;
    if (has_all) {
        eider_extent_infer(from, s.bits);
        find_reductions(&s);
        find_needs(&s);
    }
    if (status == EIDER_OK) status = check_equalities(&s);
    if (status == EIDER_OK) status = make_part(&s, 0, rows);
    if (status == EIDER_OK) status = make_part(&s, 1, columns);
    if (status != EIDER_OK) {
        eider_graph_destroy(*rows);
        *rows = NULL;
    }
    eider_arena_release(&arena);
    return status;
}
