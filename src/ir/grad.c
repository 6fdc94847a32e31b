/* grad.c -- the backward program: operands, names, and the walk from outputs to inputs.
 *
 * Invariant: the forward nodes lie in the new graph before any gradient, in the same
 * order, so that whatever a gradient needs of the forward pass is there already and is
 * shared; what turns out to be needed by nothing is dropped at the end.
 * Not here: the derivative of any operation; see chain.c and activations.def.
 */
#include "passes.h"

#include <stdio.h>
#include <string.h>

#include "activations.h"
#include "chain.h"
#include "extent.h"
#include "parse.h"

/* Which inputs are differentiated, as indices of operands, in the order of the results. */
struct wishes {
    uint32_t operand[EIDER_OPERANDS_MAX];
    uint32_t n;
};

static int is_float(int32_t type)
{
    return type != EIDER_I32 && type != EIDER_I64 && type != EIDER_BOOL;
}

static uint32_t n_leaves(const struct eider_graph *g)
{
    uint32_t n = 0;
    while (n < g->n_operands && g->operands[n].kind != EIDER_OUTPUT) n++;
    return n;
}

/* ---- What is asked for ----------------------------------------------- */

static eider_status wish_for_name(const struct eider_graph *g, const char *name,
                                  struct wishes *wishes)
{
    const struct eider_graph_operand *operand = name ? eider_graph_find(g, name) : NULL;
    if (!operand)
        return eider_fail(EIDER_BAD_ARG, "the program has no input '%.80s' to differentiate by",
                          name ? name : "");
    if (operand->kind != EIDER_INPUT)
        return eider_fail(EIDER_BAD_ARG, "'%s' is %s: gradients are those of inputs", name,
                          operand->kind == EIDER_SCALAR ? "a scalar" : "an output");
    if (!is_float(operand->type))
        return eider_fail(EIDER_BAD_ARG, "the input '%s' is of type %s, which has no gradient",
                          name, eider_dtype_name((eider_dtype)operand->type));
    uint32_t at = (uint32_t)(operand - g->operands);
    for (uint32_t i = 0; i < wishes->n; i++)
        if (wishes->operand[i] == at)
            return eider_fail(EIDER_BAD_ARG, "the gradient of '%s' is asked for twice", name);
    wishes->operand[wishes->n++] = at;
    return EIDER_OK;
}

static eider_status find_wishes(const struct eider_graph *g, const char *const *wrt, size_t n_wrt,
                                struct wishes *wishes)
{
    wishes->n = 0;
    if (wrt)
        for (size_t i = 0; i < n_wrt; i++) EIDER_TRY(wish_for_name(g, wrt[i], wishes));
    else
        for (uint32_t i = 0; i < g->n_operands; i++)
            if (g->operands[i].kind == EIDER_INPUT && is_float(g->operands[i].type))
                wishes->operand[wishes->n++] = i;
    if (wishes->n == 0)
        return eider_fail(EIDER_BAD_ARG, wrt ? "no input is named to differentiate by"
                                             : "the program has no floating-point input to "
                                               "differentiate by");
    return EIDER_OK;
}

/* ---- Activity -------------------------------------------------------- */

static void mark_active(const struct eider_graph *g, const struct wishes *wishes, uint8_t *active)
{
    memset(active, 0, g->n_cells);
    for (uint32_t i = 0; i < wishes->n; i++) active[g->operands[wishes->operand[i]].node] = 1;
    for (eider_node id = 1; id < g->n_cells; id++)
        if (!active[id]) active[id] = (uint8_t)eider_chain_is_active(g, active, id);
}

static void count_uses(const struct eider_graph *g, uint32_t *uses)
{
    for (eider_node id = 1; id < g->n_cells; id++)
        for (uint32_t k = 0; k < g->cells[id].n_args; k++) uses[eider_graph_args(g, id)[k]]++;
    for (uint32_t i = 0; i < g->n_operands; i++)
        if (g->operands[i].kind == EIDER_OUTPUT) uses[g->operands[i].node]++;
}

static void find_leaves(const struct eider_graph *g, uint64_t *leaves)
{
    for (eider_node id = 1; id < g->n_cells; id++) {
        const struct eider_cell *cell = &g->cells[id];
        if (cell->op == EIDER_OP_input || cell->op == EIDER_OP_scalar)
            leaves[id] = (uint64_t)1 << cell->payload;
        for (uint32_t k = 0; k < cell->n_args; k++)
            leaves[id] |= leaves[eider_graph_args(g, id)[k]];
    }
}

/* ---- Calls without a row of gradients become their bodies ------------ */

/* Whether the row's gradients are all that is needed of this call. */
static int has_row(const struct eider_graph *g, const uint8_t *active, eider_node call)
{
    const struct eider_activation *row = eider_activation_row(g->cells[call].payload);
    if (!row->backward[0]) return 0;
    const eider_node *args = eider_graph_args(g, call);
    for (uint32_t k = (uint32_t)row->n_tensors; k < g->cells[call].n_args; k++)
        if (active[args[k]]) return 0;
    return 1;
}

static eider_node flatten_cell(const struct eider_graph *from, struct eider_graph *to,
                               eider_node id, const uint8_t *active, const eider_node *map)
{
    const struct eider_cell *cell = &from->cells[id];
    const eider_node *args = eider_graph_args(from, id);
    /* A result of a call is made by its body once more: equal nodes are one. */
    eider_node call = cell->op == EIDER_OP_result ? args[0] : id;
    uint64_t which = cell->op == EIDER_OP_result ? cell->payload : 0;
    const struct eider_cell *target = &from->cells[call];
    const eider_node *target_args = eider_graph_args(from, call);
    eider_node mapped[EIDER_CALL_ARGS_MAX];
    if (target->op == EIDER_OP_call && active[call] && !has_row(from, active, call)) {
        eider_node results[EIDER_RESULTS_MAX] = {0};
        for (uint32_t k = 0; k < target->n_args; k++) mapped[k] = map[target_args[k]];
        eider_parse_body(to, target->payload, mapped, 0, results);
        return results[which];
    }
    for (uint32_t k = 0; k < cell->n_args; k++) mapped[k] = map[args[k]];
    return eider_graph_put(to, (enum eider_op)cell->op, mapped, cell->n_args, cell->payload);
}

static void flatten_into(const struct eider_graph *from, struct eider_graph *to,
                         const uint8_t *active, eider_node *map)
{
    for (eider_node id = 1; id < from->n_cells; id++)
        map[id] = flatten_cell(from, to, id, active, map);
    memcpy(to->operands, from->operands, sizeof to->operands);
    to->n_operands = from->n_operands;
    for (uint32_t i = 0; i < to->n_operands; i++)
        to->operands[i].node = map[from->operands[i].node];
}

static eider_status flatten(const struct eider_graph *from, const struct wishes *wishes,
                            struct eider_graph **out)
{
    const eider_allocator *a = &from->allocator;
    struct eider_graph *to = NULL;
    uint8_t *active = eider_mem_alloc(a, from->n_cells);
    eider_node *map = eider_mem_zero(a, from->n_cells * sizeof *map);
    eider_status status = active && map ? eider_graph_create(a, &to) : EIDER_OOM;
    if (status == EIDER_OK) {
        mark_active(from, wishes, active);
        flatten_into(from, to, active, map);
        status = to->status;
    }
    if (status == EIDER_OK) status = eider_graph_copy(to, out);
    eider_graph_destroy(to);
    eider_mem_free(a, active);
    eider_mem_free(a, map);
    return status;
}

/* ---- Operands of the new program ------------------------------------- */

static const char *kind_name(eider_operand_kind kind)
{
    return kind == EIDER_INPUT ? "an input" : kind == EIDER_SCALAR ? "a scalar" : "an output";
}

/* "d" and the name of `of`; fails where an operand of that name exists already. */
static void derived_name(struct eider_graph *to, const struct eider_graph_operand *of,
                         const char *what, char name[EIDER_NAME_BYTES + 1])
{
    snprintf(name, EIDER_NAME_BYTES + 1, "d%s", of->name);
    const struct eider_graph_operand *other = eider_graph_find(to, name);
    if (other)
        eider_graph_fail(to, EIDER_BAD_ARG,
                         "the %s of '%s' needs the name '%s', which %s has: rename one", what,
                         of->name, name, kind_name(other->kind));
}

static void declare_inputs(struct eider_chain *c)
{
    for (uint32_t i = 0; i < n_leaves(c->from); i++) {
        const struct eider_graph_operand *operand = &c->from->operands[i];
        c->value[operand->node] =
            operand->kind == EIDER_INPUT
                ? eider_graph_input_of(c->to, operand->name, operand->type, operand->extent)
                : eider_graph_scalar(c->to, operand->name, operand->type);
    }
}

static void declare_cotangents(struct eider_chain *c)
{
    for (uint32_t i = n_leaves(c->from); i < c->from->n_operands; i++) {
        const struct eider_graph_operand *operand = &c->from->operands[i];
        char name[EIDER_NAME_BYTES + 1];
        derived_name(c->to, operand, "cotangent", name);
        eider_extent extent = eider_extent_of_output(c->from, i, c->bits);
        eider_node leaf =
            eider_graph_input_of(c->to, name, is_float(operand->type) ? operand->type : -1, extent);
        c->used_by = eider_extent_bits(extent);
        if (is_float(operand->type))
            eider_chain_add(c, operand->node, (struct eider_cotangent){.core = leaf});
    }
}

static void declare_gradients(struct eider_chain *c, const struct wishes *wishes)
{
    for (uint32_t i = 0; i < wishes->n; i++) {
        const struct eider_graph_operand *operand = &c->from->operands[wishes->operand[i]];
        eider_node value = eider_chain_whole(c, c->bar[operand->node]);
        char name[EIDER_NAME_BYTES + 1];
        derived_name(c->to, operand, "gradient", name);
        if (!value) value = eider_graph_number(c->to, 0);
        if (operand->extent == EIDER_PER_COLUMN)
            value = eider_graph_unary(c->to, EIDER_OP_colsum, value);
        if (eider_graph_output(c->to, name, value, operand->type))
            c->to->operands[c->to->n_operands - 1].is_full =
                c->over_rows && operand->extent == EIDER_FULL;
    }
}

/* ---- Forward values -------------------------------------------------- */

static void copy_forward(struct eider_chain *c, eider_node id)
{
    const struct eider_cell *cell = &c->from->cells[id];
    const eider_node *args = eider_graph_args(c->from, id);
    eider_node mapped[EIDER_CALL_ARGS_MAX];
    if (c->value[id]) return;
    for (uint32_t k = 0; k < cell->n_args; k++) mapped[k] = c->value[args[k]];
    c->value[id] =
        eider_graph_put(c->to, (enum eider_op)cell->op, mapped, cell->n_args, cell->payload);
}

/* The forward outputs, where calls that no gradient needs are results of the calls of their
 * gradients: those give the forward value, too, and share its terms. */
static void declare_forward(struct eider_chain *c, uint8_t *live)
{
    uint32_t first = n_leaves(c->from);
    eider_graph_live(c->to, live);
    eider_node n_before = c->to->n_cells;
    for (eider_node id = 1; id < c->from->n_cells; id++) {
        eider_node call = c->backward[id], value = c->value[id];
        int is_leaf = c->from->cells[id].n_args == 0;
        if (call && call < n_before && live[call] && !live[value]) {
            const struct eider_activation *row = eider_activation_row(c->from->cells[id].payload);
            c->value[id] =
                eider_graph_put(c->to, EIDER_OP_result, &call, 1, (uint64_t)row->n_tensors);
        } else if (!is_leaf) {
            c->value[id] = 0;
            copy_forward(c, id);
        }
    }
    for (uint32_t i = first; i < c->from->n_operands; i++) {
        const struct eider_graph_operand *operand = &c->from->operands[i];
        const struct eider_graph_operand *other = eider_graph_find(c->to, operand->name);
        if (other)
            eider_graph_fail(c->to, EIDER_BAD_ARG,
                             "the forward output '%s' and %s have the same name: rename one",
                             operand->name,
                             other->kind == EIDER_OUTPUT ? "a gradient" : "a cotangent");
        eider_graph_output(c->to, operand->name, c->value[operand->node], operand->type);
    }
}

/* ---- The walk -------------------------------------------------------- */

static void derive(struct eider_chain *c, const struct wishes *wishes)
{
    mark_active(c->from, wishes, c->active);
    count_uses(c->from, c->uses);
    find_leaves(c->from, c->leaves);
    eider_extent_infer(c->from, c->bits);
    c->over_rows = eider_extent_over_rows(c->from);
    declare_inputs(c);
    declare_cotangents(c);
    for (eider_node id = 1; id < c->from->n_cells; id++) copy_forward(c, id);
    for (eider_node id = c->from->n_cells; id-- > 1;) eider_chain_step(c, id);
    declare_gradients(c, wishes);
}

/* Where the value has every element anyway, the output need not say so. */
static eider_status drop_full(struct eider_graph *g)
{
    uint8_t *bits = eider_mem_alloc(&g->allocator, g->n_cells);
    if (!bits) return EIDER_OOM;
    eider_extent_infer(g, bits);
    for (uint32_t i = 0; i < g->n_operands; i++) {
        if (!g->operands[i].is_full) continue;
        g->operands[i].is_full = 0;
        g->operands[i].is_full = eider_extent_of_output(g, i, bits) != EIDER_FULL;
    }
    eider_mem_free(&g->allocator, bits);
    return EIDER_OK;
}

static eider_status prune_and_simplify(const struct eider_graph *from, struct eider_graph **out)
{
    struct eider_graph *live, *simple = NULL;
    EIDER_TRY(eider_graph_copy(from, &live));
    eider_status status = eider_simplify(live, &simple);
    eider_graph_destroy(live);
    if (status == EIDER_OK) status = drop_full(simple);
    if (status == EIDER_OK)
        *out = simple;
    else
        eider_graph_destroy(simple);
    return status;
}

/* Room for the chain's arrays, all in one arena. */
static eider_status room(struct eider_chain *c, struct eider_arena *arena)
{
    uint32_t n = c->from->n_cells;
    c->value = eider_arena_alloc(arena, n * sizeof *c->value);
    c->backward = eider_arena_alloc(arena, n * sizeof *c->backward);
    c->bar = eider_arena_alloc(arena, n * sizeof *c->bar);
    c->leaves = eider_arena_alloc(arena, n * sizeof *c->leaves);
    c->uses = eider_arena_alloc(arena, n * sizeof *c->uses);
    c->active = eider_arena_alloc(arena, n);
    c->bits = eider_arena_alloc(arena, n);
    int has_all = c->value && c->backward && c->bar && c->leaves && c->uses && c->active && c->bits;
    return has_all ? EIDER_OK : EIDER_OOM;
}

static eider_status grad_flat(const struct eider_graph *flat, const struct wishes *wishes,
                              int with_forward, struct eider_graph **out)
{
    const eider_allocator *a = &flat->allocator;
    struct eider_arena arena;
    eider_arena_init(&arena, a, SIZE_MAX);
    struct eider_chain c = {.from = flat};
    uint8_t *live = NULL;
    eider_status status = room(&c, &arena);
    if (status == EIDER_OK) status = eider_graph_create(a, &c.to);
    if (status == EIDER_OK) {
        derive(&c, wishes);
        status = c.to->status;
    }
    if (status == EIDER_OK && with_forward) {
        live = eider_mem_alloc(a, c.to->n_cells);
        status = live ? EIDER_OK : EIDER_OOM;
        if (live) declare_forward(&c, live);
    }
    if (status == EIDER_OK) status = c.to->status;
    if (status == EIDER_OK) status = prune_and_simplify(c.to, out);
    eider_mem_free(a, live);
    eider_graph_destroy(c.to);
    eider_arena_release(&arena);
    return status;
}

eider_status eider_grad(const struct eider_graph *from, const char *const *wrt, size_t n_wrt,
                        int with_forward, struct eider_graph **out)
{
    struct wishes wishes;
    struct eider_graph *flat;
    EIDER_TRY(find_wishes(from, wrt, n_wrt, &wishes));
    EIDER_TRY(flatten(from, &wishes, &flat));
    eider_status status = grad_flat(flat, &wishes, with_forward, out);
    eider_graph_destroy(flat);
    return status;
}
