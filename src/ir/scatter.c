/* scatter.c -- see scatter.h.
 *
 * Invariant: nothing is added to in memory.  A place that is col() or -col() plus what is the same
 * for the row is taken by one element at most, which is known: it gives its share.  A place that is
 * the same for the row gets the sum of all shares.  What select, min and max choose between is one
 * such way for each choice, with the shares of the elements that choose it.
 */
#include "scatter.h"

#include "extent.h"

#define WAYS_MAX 16          /* choices of one place: each makes a pick of the gradient */
#define TERMS_MAX 8          /* of a place, those that differ within the row, at any time ... */
#define TERMS_OF_ALL_MAX 256 /* ... and in all: t + t, of t that is one, and so on, has many */

/* A term of a place, in `from`, times 1 or -1. */
struct term {
    eider_node node;
    int sign;
};

/* The elements for which `guard` holds, and their place: steps * col() + offset + terms. */
struct way {
    struct term terms[TERMS_MAX];
    int n_terms, steps;
    eider_node offset; /* in `to`, the same for the row; 0: none */
    eider_node guard;  /* in `to`; 0: all */
};

struct scatter {
    struct eider_chain *chain;
    eider_node from; /* what is picked from */
    eider_node place;
    struct eider_cotangent bar;
    struct way ways[WAYS_MAX]; /* still to go */
    int n_ways, n_all;         /* of them, and of those that have been */
    int n_terms;
};

/* ---- Building in the backward graph ------------------------------------------------- */

static eider_node leaf(const struct scatter *s, enum eider_op op)
{
    return eider_graph_put(s->chain->to, op, NULL, 0, 0);
}

static eider_node join(const struct scatter *s, enum eider_op op, eider_node a, eider_node b)
{
    return eider_graph_binary(s->chain->to, op, a, b);
}

static eider_node negated(const struct scatter *s, eider_node a)
{
    return eider_graph_unary(s->chain->to, EIDER_OP_neg, a);
}

static eider_node both(const struct scatter *s, eider_node a, eider_node b)
{
    return a && b ? join(s, EIDER_OP_and, a, b) : a ? a : b;
}

/* ---- Ways ------------------------------------------------------------------------------ */

/* Which input the picked values, or the place, come from. */
static const char *input_of(const struct scatter *s, eider_node node, const char *otherwise)
{
    const struct eider_graph *g = s->chain->from;
    for (uint32_t i = 0; i < g->n_operands; i++)
        if (s->chain->leaves[node] >> i & 1) return g->operands[i].name;
    return otherwise;
}

static void refuse(const struct scatter *s)
{
    eider_graph_fail(s->chain->to, EIDER_UNSUPPORTED,
                     "the gradient of '%s' through pick at places of '%s', which differ within the "
                     "row, would add to its elements in no certain order; it exists for places "
                     "that are the same for the row, col() or -col() plus those, and at most %d "
                     "choices between such by select, min and max",
                     input_of(s, s->from, "a literal"), input_of(s, s->place, "col()"), WAYS_MAX);
}

static void add_offset(const struct scatter *s, struct way *w, eider_node value, int sign)
{
    if (w->offset)
        w->offset = join(s, sign > 0 ? EIDER_OP_add : EIDER_OP_sub, w->offset, value);
    else
        w->offset = sign > 0 ? value : negated(s, value);
}

static void add_term(struct scatter *s, struct way *w, eider_node node, int sign)
{
    if (!(s->chain->bits[node] & EIDER_BY_COL))
        add_offset(s, w, s->chain->value[node], sign);
    else if (w->n_terms == TERMS_MAX || ++s->n_terms > TERMS_OF_ALL_MAX)
        refuse(s);
    else
        w->terms[w->n_terms++] = (struct term){node, sign};
}

/* The same with one of two terms, and with the other where `first` does not hold. */
static void fork_way(struct scatter *s, struct way *w, eider_node first, struct term a,
                     struct term b)
{
    if (s->n_all == WAYS_MAX) {
        refuse(s);
        return;
    }
    struct way other = *w;
    eider_node second = eider_graph_unary(s->chain->to, EIDER_OP_not, first);
    w->guard = both(s, w->guard, first);
    other.guard = both(s, other.guard, second);
    add_term(s, w, a.node, a.sign);
    add_term(s, &other, b.node, b.sign);
    s->n_all++;
    s->ways[s->n_ways++] = other;
}

/* Takes one term of a way apart. */
static void reduce_term(struct scatter *s, struct way *w)
{
    const struct eider_graph *g = s->chain->from;
    const eider_node *value = s->chain->value;
    struct term t = w->terms[--w->n_terms];
    const eider_node *args = eider_graph_args(g, t.node);
    enum eider_op op = (enum eider_op)g->cells[t.node].op;
    if (op == EIDER_OP_col) {
        w->steps += t.sign;
    } else if (op == EIDER_OP_neg) {
        add_term(s, w, args[0], -t.sign);
    } else if (op == EIDER_OP_add || op == EIDER_OP_sub) {
        add_term(s, w, args[0], t.sign);
        add_term(s, w, args[1], op == EIDER_OP_add ? t.sign : -t.sign);
    } else if (op == EIDER_OP_select) {
        fork_way(s, w, value[args[0]], (struct term){args[1], t.sign},
                 (struct term){args[2], t.sign});
    } else if (op == EIDER_OP_min || op == EIDER_OP_max) {
        eider_node first =
            join(s, op == EIDER_OP_min ? EIDER_OP_le : EIDER_OP_ge, value[args[0]], value[args[1]]);
        fork_way(s, w, first, (struct term){args[0], t.sign}, (struct term){args[1], t.sign});
    } else {
        refuse(s);
    }
}

/* ---- What goes along a way --------------------------------------------------------------- */

static void give(const struct scatter *s, const struct way *w)
{
    struct eider_chain *c = s->chain;
    struct eider_cotangent bar = s->bar;
    bar.guard = both(s, bar.guard, w->guard);
    eider_node col = leaf(s, EIDER_OP_col), zero = eider_graph_integer(c->to, 0);
    eider_node offset = w->offset ? w->offset : zero;
    if (w->steps == 0) {
        eider_node all = eider_graph_unary(c->to, EIDER_OP_sum, eider_chain_whole(c, bar));
        eider_chain_add(
            c, s->from,
            (struct eider_cotangent){.core = all, .guard = join(s, EIDER_OP_eq, col, offset)});
        return;
    }
    eider_node at =
        w->steps > 0 ? join(s, EIDER_OP_sub, col, offset) : join(s, EIDER_OP_sub, offset, col);
    eider_node inside =
        both(s, join(s, EIDER_OP_ge, at, zero), join(s, EIDER_OP_lt, at, leaf(s, EIDER_OP_cols)));
    at = eider_graph_ternary(c->to, EIDER_OP_select, inside, at, zero);
    eider_node share = join(s, EIDER_OP_pick, eider_chain_whole(c, bar), at);
    eider_chain_add(c, s->from, (struct eider_cotangent){.core = share, .guard = inside});
}

void eider_scatter(struct eider_chain *c, eider_node pick, struct eider_cotangent bar)
{
    const eider_node *args = eider_graph_args(c->from, pick);
    struct scatter s = {
        .chain = c, .from = args[0], .place = args[1], .bar = bar, .n_ways = 1, .n_all = 1};
    s.ways[0] = (struct way){.terms = {{args[1], 1}}, .n_terms = 1};
    while (s.n_ways && c->to->status == EIDER_OK) {
        struct way w = s.ways[--s.n_ways];
        while (w.n_terms && c->to->status == EIDER_OK) reduce_term(&s, &w);
        if (c->to->status != EIDER_OK) return;
        if (w.steps < -1 || w.steps > 1)
            refuse(&s);
        else
            give(&s, &w);
    }
}
