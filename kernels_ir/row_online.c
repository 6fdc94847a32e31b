/* row_online.c -- sums that need another reduction's result, in its pass: of powers.
 *
 * sum(exp(a - m)), where m is the largest a of the row, has to know m first: one pass for m, and
 * one for the sum.  Online, each lane of a thread takes off a reference of its own instead, which
 * is near the largest a that it has seen so far; where it sees one that is HEADROOM larger, it
 * takes that and multiplies its sum by the power of the difference.  At the end all sums are
 * brought to the row's m.
 *
 * Invariants: a power is at most 2^64, so a sum of as many as a row has stays finite, and the
 * multiplications are so few that they lose nothing; equal references multiply by exactly 1.
 * A lane that has seen nothing but -inf has the reference -inf and the sum 0, so what is masked
 * out never makes a NaN of the rest; a row of -inf only is what the program says.
 * This is not a way to find the largest value: that is a reduction as always.  row_moments.c is for
 * sums that need the mean.
 */
#include "row.h"

#include <math.h>
#include <string.h>

#include "ops.h"
#include "pack.h"

#define HEADROOM 4.0 /* of a value, before its reference moves */
/* Of 2, per unit of a value: HEADROOM makes a power of 2^64, and f32 ends at 2^128. */
#define EXPONENT_MAX 16.0

/* ---- Finding them --------------------------------------------------------------- */

static int is_number(const struct eider_lowered *l, eider_node id)
{
    double value;
    return eider_cell_literal(eider_row_cell(l, id), &value);
}

/* The difference that a power is of: exp(difference), or 2^(difference * a positive number, not too
 * large a one); 0: it is no power. */
static eider_node exponent(const struct eider_lowered *l, eider_node power)
{
    enum eider_op op = (enum eider_op)eider_row_cell(l, power)->op;
    if (op != EIDER_OP_exp && op != EIDER_OP_m_ex2) return 0;
    eider_node e = eider_row_arg(l, power, 0);
    if (op == EIDER_OP_m_ex2 && eider_row_cell(l, e)->op == EIDER_OP_mul) {
        int first = is_number(l, eider_row_arg(l, e, 0));
        eider_node factor = eider_row_arg(l, e, !first);
        double value;
        if (!eider_cell_literal(eider_row_cell(l, factor), &value) ||
            !(value > 0 && value <= EXPONENT_MAX))
            return 0;
        e = eider_row_arg(l, e, (uint32_t)first);
    }
    return eider_row_cell(l, e)->op == EIDER_OP_sub ? e : 0;
}

static int power_of_largest(const struct eider_lowered *l, eider_node sum,
                            struct eider_row_online *out)
{
    eider_node power = eider_row_arg(l, sum, 0), fall = exponent(l, power);
    if (!fall) return 0;
    *out = (struct eider_row_online){.kind = EIDER_ROW_POWERS,
                                     .term = power,
                                     .value = eider_row_arg(l, fall, 0),
                                     .reference = eider_row_arg(l, fall, 1)};
    out->source = eider_graph_largest_in(l->graph, out->reference, out->value);
    return out->source != 0;
}

unsigned eider_row_online_kinds(const struct eider_layout *layout, const struct eider_row_config *c)
{
    if (!c->online) return 0;
    int even = eider_row_lanes_are_even(layout, c);
    return even ? EIDER_ROW_POWERS | EIDER_ROW_MOMENTS : EIDER_ROW_POWERS;
}

int eider_row_online_of(const struct eider_lowered *l, const uint8_t *live, eider_node sum,
                        unsigned kinds, struct eider_row_online *out)
{
    struct eider_row_online found, other;
    if (eider_row_cell(l, sum)->op != EIDER_OP_sum) return 0;
    int is_power = kinds & EIDER_ROW_POWERS && power_of_largest(l, sum, &found);
    int is = is_power || (kinds & EIDER_ROW_MOMENTS && eider_row_moment_of(l, live, sum, &found));
    if (!is || eider_row_online_of(l, live, found.source, kinds, &other)) return 0;
    int type = l->types[found.term];
    if ((type != EIDER_V_F32 && type != EIDER_V_F64) || l->types[found.value] != type ||
        l->types[found.reference] != type)
        return 0;
    *out = found;
    return 1;
}

/* ---- Values ------------------------------------------------------------------------ */

/* Sets need[] for what lies between `to` and the nodes that `c` has. */
static void need_between(const struct eider_row_build *b, const struct eider_row_context *c,
                         eider_node to, uint8_t *need)
{
    const struct eider_graph *g = eider_row_graph(b);
    memset(need, 0, g->n_cells);
    need[to] = 1;
    for (eider_node id = to; id > 0; id--) {
        if (!need[id]) continue;
        if (c->values[id] || is_number(b->program, id)) need[id] = 0;
        for (uint32_t k = 0; need[id] && k < g->cells[id].n_args; k++)
            need[eider_graph_args(g, id)[k]] = 1;
    }
}

/* The value of node `to` where the context's values are those of others; it keeps none. */
static LLVMValueRef value_between(struct eider_row_build *b, struct eider_row_context *c,
                                  eider_node to)
{
    uint8_t *need = eider_row_alloc(b, eider_row_graph(b)->n_cells, 1);
    if (b->e->status != EIDER_OK) return NULL;
    need_between(b, c, to, need);
    eider_row_compute(b, c, need);
    LLVMValueRef value = c->values[to];
    for (eider_node id = 1; id <= to; id++)
        if (need[id]) c->values[id] = NULL;
    return value;
}

/* What is taken off where the largest value is `most`. */
static LLVMValueRef reference_for(struct eider_row_build *b, const struct eider_row_total *t,
                                  LLVMValueRef most, int width)
{
    struct eider_row_context c = eider_row_context(b, width);
    if (b->e->status != EIDER_OK || t->online.reference == t->online.source) return most;
    c.values[t->online.source] = most;
    return value_between(b, &c, t->online.reference);
}

/* The reference of a sum whose largest value is `most`: -inf where it is empty. */
static LLVMValueRef reference_of_sum(struct eider_row_build *b, const struct eider_row_total *t,
                                     LLVMValueRef most)
{
    LLVMValueRef reference = reference_for(b, t, most, 1);
    if (b->e->status != EIDER_OK || reference == most) return most;
    LLVMValueRef none = p_compare(b->e, LLVMRealOEQ, most, p_number(LLVMTypeOf(most), -INFINITY));
    return p_select(b->e, none, most, reference);
}

/* The power of the value `a` where `reference` is taken off. */
static LLVMValueRef power_of(struct eider_row_build *b, const struct eider_row_total *t,
                             LLVMValueRef a, LLVMValueRef reference, int width)
{
    struct eider_row_context c = eider_row_context(b, width);
    if (b->e->status != EIDER_OK) return a;
    c.values[t->online.value] = a;
    c.values[t->online.reference] = reference;
    return value_between(b, &c, t->online.term);
}

/* -inf, of which nothing can be taken off, becomes 0. */
static LLVMValueRef taken_off(struct eider_row_build *b, LLVMValueRef reference)
{
    LLVMTypeRef type = LLVMTypeOf(reference);
    LLVMValueRef none = p_compare(b->e, LLVMRealOEQ, reference, p_number(type, -INFINITY));
    return p_select(b->e, none, LLVMConstNull(type), reference);
}

/* The sum becomes one of powers that have `reference` taken off. */
static void move_to(struct eider_row_build *b, struct eider_row_total *t, LLVMValueRef reference,
                    int width)
{
    LLVMValueRef factor = power_of(b, t, t->reference, taken_off(b, reference), width);
    if (b->e->status != EIDER_OK) return;
    t->value = p_mul(b->e, t->value, factor);
    if (t->lost) t->lost = p_mul(b->e, t->lost, factor);
    t->reference = reference;
}

/* ---- The pass, and its end --------------------------------------------------------- */

static int is_power(const struct eider_row_total *t)
{
    return t->online.kind == EIDER_ROW_POWERS;
}

void eider_row_online_begin(struct eider_row_build *b, struct eider_row_total *t)
{
    if (!t->top) return;
    b->e->width = b->width;
    if (!is_power(t)) {
        eider_row_moment_begin(b, t);
        return;
    }
    LLVMTypeRef type = eider_emit_type(b->e, t->type);
    t->value = LLVMConstNull(type);
    t->reference = p_number(type, -INFINITY);
}

/* What powers have taken off, now that the largest value so far is known. */
static LLVMValueRef new_reference(struct eider_row_build *b, struct eider_row_total *t)
{
    LLVMValueRef most = t->top->value;
    LLVMValueRef limit = p_add(b->e, t->reference, p_number(LLVMTypeOf(most), HEADROOM));
    LLVMValueRef is_higher = p_compare(b->e, LLVMRealOGT, most, limit);
    LLVMValueRef higher = reference_for(b, t, most, b->width);
    if (b->e->status != EIDER_OK) return most;
    move_to(b, t, p_select(b->e, is_higher, higher, t->reference), b->width);
    return b->e->status == EIDER_OK ? taken_off(b, t->reference) : most;
}

void eider_row_online_add(struct eider_row_build *b, struct eider_row_total *t,
                          struct eider_row_context *const *contexts, int n)
{
    LLVMValueRef terms[EIDER_ROW_PACKS_MAX];
    eider_lines_set(b->e, EIDER_LINE_NODE, t->node);
    b->e->width = b->width;
    LLVMValueRef reference =
        is_power(t) ? new_reference(b, t) : eider_row_moment_reference(b, t, n);
    for (int i = 0; i < n && b->e->status == EIDER_OK; i++) {
        contexts[i]->values[t->online.reference] = reference;
        terms[i] = value_between(b, contexts[i], t->online.term);
        contexts[i]->values[t->online.reference] = NULL;
    }
    for (int i = 0; i < n && b->e->status == EIDER_OK; i++)
        contexts[i]->values[t->online.term] = terms[i];
    if (b->e->status == EIDER_OK) eider_row_total_add(b, t, contexts, n);
    for (int i = 0; i < n; i++) contexts[i]->values[t->online.term] = NULL;
}

static void meet_powers(struct eider_row_build *b, struct eider_row_total *t)
{
    LLVMTypeRef type = LLVMTypeOf(t->value);
    int is_pack = LLVMGetTypeKind(type) == LLVMVectorTypeKind, width = is_pack ? b->width : 1;
    LLVMValueRef reference = reference_of_sum(b, t, t->top->value);
    b->e->width = width;
    if (b->e->status == EIDER_OK) move_to(b, t, eider_row_spread(b, reference, width), width);
    t->reference = reference; /* of all lanes, which are one soon */
    b->e->width = 1;
}

void eider_row_online_meet(struct eider_row_build *b, struct eider_row_total *t)
{
    if (!t->top) return;
    if (is_power(t))
        meet_powers(b, t);
    else
        eider_row_moment_meet(b, t);
}

void eider_row_online_start(struct eider_row_build *b, struct eider_row_total *t, int members)
{
    if (!t->top) return;
    if (is_power(t))
        t->reference = reference_of_sum(b, t, t->top->value);
    else
        eider_row_moment_start(b, t, members);
}

LLVMValueRef eider_row_online_moved(struct eider_row_build *b, const struct eider_row_total *t,
                                    LLVMValueRef sum, LLVMValueRef most)
{
    struct eider_row_total other = *t;
    other.value = sum;
    other.lost = NULL;
    other.reference = reference_of_sum(b, t, most);
    if (b->e->status == EIDER_OK) move_to(b, &other, t->reference, 1);
    return other.value;
}

LLVMValueRef eider_row_online_taken(struct eider_row_build *b, const struct eider_row_total *t,
                                    int k)
{
    if (!t->top) return t->taken[k];
    return is_power(t) ? eider_row_online_moved(b, t, t->taken[k], t->top->taken[k])
                       : eider_row_moment_taken(b, t, k);
}

static LLVMValueRef end_powers(struct eider_row_build *b, const struct eider_row_total *t,
                               LLVMValueRef reference)
{
    LLVMValueRef factor = power_of(b, t, t->reference, reference, 1);
    if (b->e->status != EIDER_OK) return t->value;
    LLVMValueRef sum = p_mul(b->e, t->value, factor);
    if (b->layout->length) return sum;
    LLVMValueRef zero = eider_row_number(b->i32, 0); /* a row of length 0 has the sum 0 */
    LLVMValueRef is_empty = LLVMBuildICmp(b->e->builder, LLVMIntEQ, b->cols, zero, "");
    return p_select(b->e, is_empty, LLVMConstNull(LLVMTypeOf(sum)), sum);
}

LLVMValueRef eider_row_online_end(struct eider_row_build *b, const struct eider_row_total *t)
{
    LLVMValueRef reference = reference_for(b, t, t->top->value, 1);
    if (b->e->status != EIDER_OK) return t->value;
    return is_power(t) ? end_powers(b, t, reference) : eider_row_moment_end(b, t, reference);
}
