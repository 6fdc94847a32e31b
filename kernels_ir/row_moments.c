/* row_moments.c -- sums of differences from the mean, in the pass that finds the mean.
 *
 * sum(x - m) and sum((x - m) * (x - m)), where m is the mean of x in the row, have to know m first:
 * one pass for m, and one for them.  Here each lane of a thread takes off a reference of its own
 * instead, the mean of the first elements that it sees, and what several lanes, threads or blocks
 * have is brought to the mean of them all: with n elements, from reference r to s (Chan, Golub and
 * LeVeque, Updating formulae and a pairwise algorithm for computing sample variances, 1979),
 *
 *     sum(x - s)     = sum(x - r) + n (r - s)
 *     sum((x - s)^2) = sum((x - r)^2) + (r - s) (2 sum(x - r) + n (r - s))
 *
 * Invariants: all lanes have equally many elements (eider_row_lanes_are_even).  Where the reference
 * is far from a lane's mean, its first elements are far from the others, and so is the sum of
 * squares large: of LANE_MAX times as many elements it loses LANE_MAX roundings at most, also where
 * a launch allows no vectors, and a lane's first elements are EIDER_ROW_SINGLES.
 * Differences of references are exact where they are close, so a mean far from 0 costs no digits.
 * The sum of x itself is not added up: it is sum(x - r) + n r, unless the program shows it: of a
 * row with an infinite value that is NaN.
 */
#include "ops.h"
#include "pack.h"
#include "row.h"

#define LANE_MAX 64 /* times the elements that give a lane its reference */

/* ---- Finding them --------------------------------------------------------------- */

static int is_constant(const struct eider_lowered *l, eider_node id)
{
    double value;
    return eider_row_cell(l, id)->op == EIDER_OP_cols ||
           eider_cell_literal(eider_row_cell(l, id), &value);
}

/* The sum of `value` that `mean` is a constant part of; or 0. */
static eider_node sum_in(const struct eider_lowered *l, eider_node mean, eider_node value)
{
    enum eider_op op = (enum eider_op)eider_row_cell(l, mean)->op;
    if (op != EIDER_OP_div && op != EIDER_OP_mul) return 0;
    uint32_t k = op == EIDER_OP_mul && is_constant(l, eider_row_arg(l, mean, 0));
    eider_node sum = eider_row_arg(l, mean, k);
    int is =
        is_constant(l, eider_row_arg(l, mean, 1 - k)) && eider_row_cell(l, sum)->op == EIDER_OP_sum;
    return is && eider_row_arg(l, sum, 0) == value ? sum : 0;
}

/* Whether the program has the sum of `difference`, which a second moment needs. */
static int has_first(const struct eider_lowered *l, const uint8_t *live, eider_node difference)
{
    for (eider_node id = difference + 1; id < l->graph->n_cells; id++)
        if (live[id] && eider_row_cell(l, id)->op == EIDER_OP_sum &&
            eider_row_arg(l, id, 0) == difference)
            return 1;
    return 0;
}

int eider_row_moment_of(const struct eider_lowered *l, const uint8_t *live, eider_node sum,
                        struct eider_row_online *out)
{
    eider_node term = eider_row_arg(l, sum, 0), difference = term;
    int squares = eider_row_cell(l, term)->op == EIDER_OP_mul &&
                  eider_row_arg(l, term, 0) == eider_row_arg(l, term, 1);
    if (squares) difference = eider_row_arg(l, term, 0);
    if (eider_row_cell(l, difference)->op != EIDER_OP_sub) return 0;
    if (squares && !has_first(l, live, difference)) return 0;
    *out = (struct eider_row_online){.kind =
                                         squares ? EIDER_ROW_SECOND_MOMENT : EIDER_ROW_FIRST_MOMENT,
                                     .term = term,
                                     .value = eider_row_arg(l, difference, 0),
                                     .reference = eider_row_arg(l, difference, 1)};
    out->source = sum_in(l, out->reference, out->value);
    return out->source != 0;
}

static int has_arg(const struct eider_lowered *l, eider_node id, eider_node arg)
{
    for (uint32_t k = 0; k < eider_row_cell(l, id)->n_args; k++)
        if (eider_row_arg(l, id, k) == arg) return 1;
    return 0;
}

/* Whether a node that has the mean as an argument is no more than what is NaN wherever the mean is
 * infinite: a difference from it, or the mean with the mean of differences added. */
static int is_none_of_infinity(const struct eider_lowered *l, eider_node id,
                               const struct eider_row_online *first)
{
    enum eider_op op = (enum eider_op)eider_row_cell(l, id)->op;
    if (op == EIDER_OP_sub)
        return eider_row_arg(l, id, 0) == first->value &&
               eider_row_arg(l, id, 1) == first->reference;
    if (op != EIDER_OP_add) return 0;
    int k = eider_row_arg(l, id, 0) == first->reference;
    return sum_in(l, eider_row_arg(l, id, (uint32_t)k), first->term) != 0;
}

int eider_row_moment_hides(const struct eider_lowered *l, const uint8_t *live,
                           const struct eider_row_online *first)
{
    for (uint32_t i = 0; i < l->graph->n_operands; i++) {
        eider_node node = l->graph->operands[i].node;
        if (node == first->source || node == first->reference) return 0;
    }
    for (eider_node id = first->source + 1; id < l->graph->n_cells; id++) {
        if (!live[id]) continue;
        if (has_arg(l, id, first->source) && id != first->reference) return 0;
        if (has_arg(l, id, first->reference) && !is_none_of_infinity(l, id, first)) return 0;
    }
    return 1;
}

int eider_row_lanes_are_even(const struct eider_layout *layout, const struct eider_row_config *c)
{
    int steps = c->keep || (c->shared && c->shared % c->unroll) ? 1 : c->unroll;
    int first = c->vec * steps < EIDER_ROW_SINGLES ? c->vec * steps : EIDER_ROW_SINGLES;
    int64_t threads = eider_row_threads(c);
    return layout->length && c->split == 1 && layout->length % (threads * c->vec) == 0 &&
           layout->length / threads <= LANE_MAX * first && !eider_row_shifts(layout, c->vec);
}

/* ---- Moving a reference ----------------------------------------------------------- */

/* `value`, of `n` elements, where the reference is `by` less; `first`, for a second moment, is the
 * first one. */
static LLVMValueRef moved(struct eider_row_build *b, const struct eider_row_total *t,
                          LLVMValueRef value, LLVMValueRef first, double n, LLVMValueRef by)
{
    LLVMValueRef all = p_mul(b->e, by, p_like(by, n));
    if (t->online.kind == EIDER_ROW_FIRST_MOMENT) return p_add(b->e, value, all);
    all = p_add(b->e, all, p_mul(b->e, first, p_like(first, 2)));
    return p_add(b->e, value, p_mul(b->e, by, all));
}

/* The mean of `n` elements with this sum. */
static LLVMValueRef mean_of(struct eider_row_build *b, LLVMValueRef sum, double n)
{
    return p_mul(b->e, sum, p_like(sum, 1 / n));
}

/* ---- The pass, and its end --------------------------------------------------------- */

void eider_row_moment_begin(struct eider_row_build *b, struct eider_row_total *t)
{
    LLVMTypeRef type = eider_emit_type(b->e, t->type);
    t->value = LLVMConstNull(type);
    t->count = (double)b->layout->length / eider_row_threads(&b->c) / b->width;
    if (!t->pair) t->reference = p_number(type, __builtin_nan("")); /* until there is one */
}

LLVMValueRef eider_row_moment_reference(struct eider_row_build *b, struct eider_row_total *t, int n)
{
    if (t->pair) return t->pair->reference;
    if (t->begun) return t->reference;
    LLVMValueRef none = p_compare(b->e, LLVMRealUNO, t->reference, t->reference);
    t->reference = p_select(b->e, none, mean_of(b, t->top->latest, n), t->reference);
    t->begun = 1;
    return t->reference;
}

LLVMValueRef eider_row_moment_sum(struct eider_row_build *b, const struct eider_row_total *sum)
{
    const struct eider_row_total *t = sum->follows;
    return p_fma(b->e, t->reference, p_like(t->reference, t->count), t->value);
}

void eider_row_moment_meet(struct eider_row_build *b, struct eider_row_total *t)
{
    int threads = b->c.row < EIDER_ROW_WARP ? b->c.row : EIDER_ROW_WARP;
    LLVMValueRef from = t->pair ? t->pair->unmoved_reference : t->reference;
    int width = LLVMGetTypeKind(LLVMTypeOf(t->value)) == LLVMVectorTypeKind ? b->width : 1;
    double all = t->count * b->width * threads;
    LLVMValueRef to = mean_of(b, t->top->value, all);
    LLVMValueRef by = p_sub(b->e, from, eider_row_spread(b, to, width));
    t->unmoved = t->value;
    t->unmoved_reference = from;
    t->value = moved(b, t, t->value, t->pair ? t->pair->unmoved : NULL, t->count, by);
    t->reference = to;
    t->count = all;
}

void eider_row_moment_start(struct eider_row_build *b, struct eider_row_total *t, int members)
{
    t->reference = mean_of(b, t->top->value, t->count * members);
}

LLVMValueRef eider_row_moment_taken(struct eider_row_build *b, const struct eider_row_total *t,
                                    int k)
{
    LLVMValueRef from = mean_of(b, t->top->taken[k], t->count);
    LLVMValueRef by = p_sub(b->e, from, t->reference);
    return moved(b, t, t->taken[k], t->pair ? t->pair->taken[k] : NULL, t->count, by);
}

LLVMValueRef eider_row_moment_end(struct eider_row_build *b, const struct eider_row_total *t,
                                  LLVMValueRef reference)
{
    LLVMValueRef by = p_sub(b->e, t->reference, reference);
    return moved(b, t, t->value, t->pair ? t->pair->value : NULL, t->count, by);
}
