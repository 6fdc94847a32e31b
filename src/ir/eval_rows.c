/* eval_rows.c -- a graph over rows in double precision: the reference.
 *
 * Invariant: reduce_<name> states what a reduction means.  Sums carry what rounding loses
 * (Neumaier), so that they are as good as correctly rounded ones of the same doubles.
 * A row is computed node by node, each over all of the row; what is the same for the whole row
 * is computed once.
 */
#include <math.h>

#include "eval.h"
#include "extent.h"
#include "ops.h"
#include "passes.h"

/* A sum and what its rounding has lost. */
struct total {
    double sum, lost;
};

static void add(struct total *t, double v)
{
    double sum = t->sum + v;
    t->lost += fabs(t->sum) >= fabs(v) ? t->sum - sum + v : v - sum + t->sum;
    t->sum = sum;
}

/* An infinite sum has lost inf - inf. */
static double total_of(const struct total *t)
{
    return isnan(t->lost) ? t->sum : t->sum + t->lost;
}

/* ---- Reductions of `n` values, `step` apart: 0 where they are all the same -- */

static double reduce_sum(const double *v, int64_t n, int64_t step)
{
    struct total t = {0, 0};
    for (int64_t i = 0; i < n; i++) add(&t, v[i * step]);
    return total_of(&t);
}

static double reduce_mean(const double *v, int64_t n, int64_t step)
{
    return reduce_sum(v, n, step) / (double)n;
}

static double reduce_prod(const double *v, int64_t n, int64_t step)
{
    double product = 1;
    for (int64_t i = 0; i < n; i++) product *= v[i * step];
    return product;
}

static double reduce_amax(const double *v, int64_t n, int64_t step)
{
    double most = -INFINITY;
    for (int64_t i = 0; i < n; i++) most = eider_eval_maximum(most, v[i * step]);
    return most;
}

static double reduce_amin(const double *v, int64_t n, int64_t step)
{
    double most = -INFINITY;
    for (int64_t i = 0; i < n; i++) most = eider_eval_maximum(most, -v[i * step]);
    return -most;
}

/* The first NaN, else the first of the values that sign * v is largest for. */
static double place_of(const double *v, int64_t n, int64_t step, double sign)
{
    int64_t best = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(v[i * step])) return (double)i;
        if (sign * v[i * step] > sign * v[best * step]) best = i;
    }
    return (double)best;
}

static double reduce_argmax(const double *v, int64_t n, int64_t step)
{
    return place_of(v, n, step, 1);
}

static double reduce_argmin(const double *v, int64_t n, int64_t step)
{
    return place_of(v, n, step, -1);
}

static double reduce_logsumexp(const double *v, int64_t n, int64_t step)
{
    double most = reduce_amax(v, n, step);
    struct total t = {0, 0};
    if (!isfinite(most)) return most;
    for (int64_t i = 0; i < n; i++) add(&t, exp(v[i * step] - most));
    return most + log(total_of(&t));
}

static double reduce_any(const double *v, int64_t n, int64_t step)
{
    for (int64_t i = 0; i < n; i++)
        if (v[i * step] != 0) return 1;
    return 0;
}

static double reduce_all(const double *v, int64_t n, int64_t step)
{
    for (int64_t i = 0; i < n; i++)
        if (v[i * step] == 0) return 0;
    return 1;
}

static double (*const reductions[EIDER_OP_COUNT])(const double *v, int64_t n, int64_t step) = {
    [EIDER_OP_sum] = reduce_sum,       [EIDER_OP_mean] = reduce_mean,
    [EIDER_OP_prod] = reduce_prod,     [EIDER_OP_rmax] = reduce_amax,
    [EIDER_OP_rmin] = reduce_amin,     [EIDER_OP_amax] = reduce_amax,
    [EIDER_OP_amin] = reduce_amin,     [EIDER_OP_argmax] = reduce_argmax,
    [EIDER_OP_argmin] = reduce_argmin, [EIDER_OP_logsumexp] = reduce_logsumexp,
    [EIDER_OP_any] = reduce_any,       [EIDER_OP_all] = reduce_all,
};

/* ---- A row --------------------------------------------------------------- */

struct evaluation {
    const struct eider_graph *g;
    const struct eider_doubles *operands;
    int64_t row, n_cols;
    uint8_t *bits;        /* of each node, see extent.h */
    double **values;      /* n_cols of them, or one where they are all the same */
    struct total **downs; /* of a colsum: n_cols totals */
    double *room;
};

/* Distance of the values of a node from each other. */
static int64_t step_of(const struct evaluation *e, eider_node node)
{
    return (e->bits[node] & EIDER_BY_COL) != 0;
}

static double pick(const struct evaluation *e, eider_node from, double place)
{
    if (!(place >= 0 && place < (double)e->n_cols)) return NAN;
    return e->values[from][(int64_t)place * step_of(e, from)];
}

static double element(const struct evaluation *e, eider_node id, int64_t col)
{
    const struct eider_cell *cell = &e->g->cells[id];
    const eider_node *args = eider_graph_args(e->g, id);
    double v[3] = {0};
    for (uint32_t k = 0; k < cell->n_args && k < 3; k++)
        v[k] = e->values[args[k]][col * step_of(e, args[k])];
    switch (cell->op) {
    case EIDER_OP_input:
    case EIDER_OP_scalar: {
        const struct eider_doubles *o = &e->operands[cell->payload];
        return o->data[e->row * o->row_stride + col * o->col_stride];
    }
    case EIDER_OP_row:
        return (double)e->row;
    case EIDER_OP_col:
        return (double)col;
    case EIDER_OP_cols:
        return (double)e->n_cols;
    case EIDER_OP_pick:
        return pick(e, args[0], v[1]);
    default:
        return eider_eval_cell(cell, v);
    }
}

static void node_over_row(struct evaluation *e, eider_node id)
{
    const struct eider_cell *cell = &e->g->cells[id];
    const eider_node *args = eider_graph_args(e->g, id);
    if (cell->op == EIDER_OP_colsum) {
        for (int64_t col = 0; col < e->n_cols; col++) {
            add(&e->downs[id][col], e->values[args[0]][col * step_of(e, args[0])]);
            e->values[id][col * step_of(e, id)] = total_of(&e->downs[id][col]);
        }
    } else if (reductions[cell->op]) {
        e->values[id][0] = reductions[cell->op](e->values[args[0]], e->n_cols, step_of(e, args[0]));
    } else {
        int64_t n = step_of(e, id) ? e->n_cols : 1;
        for (int64_t col = 0; col < n; col++) e->values[id][col] = element(e, id, col);
    }
}

/* A colsum is written as far as it has got; the last row completes it. */
static void store_row(const struct evaluation *e)
{
    for (uint32_t i = 0; i < e->g->n_operands; i++) {
        const struct eider_graph_operand *operand = &e->g->operands[i];
        const struct eider_doubles *o = &e->operands[i];
        if (operand->kind != EIDER_OUTPUT) continue;
        int64_t n = eider_extent_of_output(e->g, i, e->bits) == EIDER_PER_ROW ? 1 : e->n_cols;
        for (int64_t col = 0; col < n; col++)
            o->data[e->row * o->row_stride + col * o->col_stride] =
                e->values[operand->node][col * step_of(e, operand->node)];
    }
}

/* ---- Memory -------------------------------------------------------------- */

static eider_status get_room(struct evaluation *e, struct eider_arena *arena)
{
    const struct eider_graph *g = e->g;
    size_t n_cols = e->n_cols > 0 ? (size_t)e->n_cols : 1;
    e->bits = eider_arena_alloc(arena, g->n_cells);
    e->values = eider_arena_alloc(arena, g->n_cells * sizeof *e->values);
    e->downs = eider_arena_alloc(arena, g->n_cells * sizeof *e->downs);
    if (!e->bits || !e->values || !e->downs) return EIDER_OOM;
    eider_extent_infer(g, e->bits);
    for (eider_node id = 1; id < g->n_cells; id++) {
        size_t n = step_of(e, id) ? n_cols : 1;
        e->values[id] = eider_arena_alloc(arena, n * sizeof(double));
        if (!e->values[id]) return EIDER_OOM;
        if (g->cells[id].op != EIDER_OP_colsum) continue;
        e->downs[id] = eider_arena_alloc(arena, n_cols * sizeof(struct total));
        if (!e->downs[id]) return EIDER_OOM;
    }
    return EIDER_OK;
}

eider_status eider_eval_rows(const struct eider_graph *g, int64_t n_rows, int64_t n_cols,
                             const struct eider_doubles *operands)
{
    struct eider_arena arena;
    struct evaluation e = {.g = g, .operands = operands, .n_cols = n_cols};
    if (n_rows < 0 || n_cols < 0)
        return eider_fail(EIDER_BAD_ARG, "%lld rows of %lld elements", (long long)n_rows,
                          (long long)n_cols);
    eider_arena_init(&arena, &g->allocator, SIZE_MAX);
    eider_status status = get_room(&e, &arena);
    for (e.row = 0; e.row < n_rows && status == EIDER_OK; e.row++) {
        for (eider_node id = 1; id < g->n_cells; id++) node_over_row(&e, id);
        store_row(&e);
    }
    eider_arena_release(&arena);
    return status;
}
