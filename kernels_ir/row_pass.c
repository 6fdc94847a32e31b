/* row_pass.c -- the IR of passes: a row goes through its stages, and what they compute is stored.
 *
 * Invariants: an element is read in all stages before its place in an output is written; where
 * a thread stops reading its vectors of one row in shared memory, it may fetch the next row's.
 * Values that are costly stay for later stages, as long as their element does.
 */
#include "row.h"

#include <string.h>

#include "ops.h"

#define AHEAD_STEPS_MAX 8 /* of one pass, in code one after the other */

/* Elements between a thread's vector and its next one. */
static int64_t stride_of(const struct eider_row_build *b)
{
    return (int64_t)eider_row_threads(&b->c) * b->c.vec;
}

/* ---- Vectors of a thread ------------------------------------------------------ */

/* `base` + step * k in every lane k of a pack. */
static LLVMValueRef steps(const struct eider_row_build *b, int64_t base, int64_t step)
{
    LLVMValueRef lanes[64];
    for (int lane = 0; lane < b->width; lane++)
        lanes[lane] = eider_row_number(b->i32, base + step * lane);
    return b->width == 1 ? lanes[0] : LLVMConstVector(lanes, (unsigned)b->width);
}

/* Which ends of the row may lie within a vector. */
struct ends {
    int start, end;
};

static void place_ends(struct eider_row_build *b, struct eider_row_vector *v, struct ends ends)
{
    LLVMBuilderRef ir = b->e->builder;
    v->begins = v->whole = v->partial = NULL;
    if (ends.end)
        v->begins = LLVMBuildICmp(ir, b->shift ? LLVMIntSLT : LLVMIntULT, v->col, b->cols, "");
    if (!b->ragged || (!ends.start && !ends.end)) {
        v->whole = v->begins;
        return;
    }
    LLVMValueRef zero = eider_row_number(b->i32, 0);
    LLVMValueRef last = eider_row_number(b->i32, b->layout->length - b->c.vec + 1);
    if (ends.end)
        v->whole = LLVMBuildICmp(ir, ends.start ? LLVMIntULT : LLVMIntSLT, v->col, last, "");
    else
        v->whole = LLVMBuildICmp(ir, LLVMIntSGE, v->col, zero, "");
    v->partial = LLVMBuildNot(ir, v->whole, "");
    if (v->begins) v->partial = LLVMBuildAnd(ir, v->partial, v->begins, "");
}

/* Which elements of the vector's pack `p` are in the row; one comparison each with a constant
 * where only one end of the row is near. */
static LLVMValueRef valid_of(struct eider_row_build *b, const struct eider_row_vector *v, int p,
                             struct ends ends)
{
    LLVMBuilderRef ir = b->e->builder;
    int64_t length = b->layout->length, k = (int64_t)p * b->width;
    if (length && !b->ragged) return eider_row_spread(b, v->whole, b->width);
    if (!length || (ends.start && ends.end))
        return LLVMBuildICmp(ir, LLVMIntULT, v->packs[p].col,
                             eider_row_spread(b, b->cols, b->width), "");
    LLVMValueRef first = eider_row_spread(b, v->col, b->width);
    return ends.end ? LLVMBuildICmp(ir, LLVMIntSLT, first, steps(b, length - k, -1), "")
                    : LLVMBuildICmp(ir, LLVMIntSGE, first, steps(b, -k, -1), "");
}

/* `v->col` as the place of the first element, of a thread's vector, which is at least `from` where
 * nothing is shifted, and the last one's is below `beyond`. */
static void place_vector(struct eider_row_build *b, struct eider_row_vector *v, int64_t from,
                         int64_t beyond)
{
    int64_t length = b->layout->length;
    struct ends ends = {.start = b->shift && from <= 0, .end = !length || beyond > length};
    place_ends(b, v, ends);
    if (b->edges_apart && v->partial) {
        v->begins = v->whole;
        v->partial = NULL;
    }
    for (int p = 0; p < b->n_packs; p++)
        if (b->edges_apart)
            v->packs[p].valid = v->whole ? eider_row_spread(b, v->whole, b->width) : NULL;
        else
            v->packs[p].valid = v->whole ? valid_of(b, v, p, ends) : NULL;
}

/* A vector that is partly in the row. */
static void place_edge(struct eider_row_build *b, struct eider_row_vector *v)
{
    v->begins = v->whole = v->partial = NULL;
    for (int p = 0; p < b->n_packs; p++)
        v->packs[p].valid = LLVMBuildICmp(b->e->builder, LLVMIntULT, v->packs[p].col,
                                          eider_row_spread(b, b->cols, b->width), "");
}

struct eider_row_vector *eider_row_vectors(struct eider_row_build *b, int n)
{
    struct eider_row_vector *vectors = eider_row_alloc(b, (size_t)n, sizeof *vectors);
    for (int v = 0; v < n && b->e->status == EIDER_OK; v++) {
        vectors[v].packs = eider_row_alloc(b, (size_t)b->n_packs, sizeof *vectors[v].packs);
        for (int p = 0; p < b->n_packs && b->e->status == EIDER_OK; p++)
            vectors[v].packs[p] = eider_row_context(b, b->width);
    }
    return vectors;
}

static void place_elements(struct eider_row_build *b, struct eider_row_vector *v)
{
    LLVMValueRef first = eider_row_spread(b, v->col, b->width);
    for (int p = 0; p < b->n_packs; p++) {
        v->packs[p].first = first;
        v->packs[p].step = steps(b, (int64_t)p * b->width, 1);
        v->packs[p].col = LLVMBuildAdd(b->e->builder, first, v->packs[p].step, "");
    }
}

void eider_row_place(struct eider_row_build *b, struct eider_row_vector *vectors, int n,
                     LLVMValueRef from, int64_t known)
{
    int64_t step = stride_of(b);
    LLVMBuilderRef ir = b->e->builder;
    LLVMValueRef wide = LLVMBuildZExt(ir, from, b->i64, "");
    LLVMValueRef mine = LLVMBuildAdd(ir, b->first, from, "");
    for (int v = 0; v < n; v++) {
        vectors[v].col = LLVMBuildAdd(ir, mine, eider_row_number(b->i32, v * step), "");
        vectors[v].at = LLVMBuildAdd(ir, wide, eider_row_number(b->i64, v * step), "");
        place_elements(b, &vectors[v]);
        if (known == EIDER_ROW_EDGE)
            place_edge(b, &vectors[v]);
        else if (known == EIDER_ROW_INSIDE)
            place_vector(b, &vectors[v], 1, 0);
        else if (known == EIDER_ROW_ANYWHERE)
            place_vector(b, &vectors[v], 0, INT64_MAX);
        else
            place_vector(b, &vectors[v], known + v * step, known + (v + 1) * step);
    }
}

void eider_row_forget(struct eider_row_build *b, struct eider_row_vector *vectors, int n)
{
    for (int v = 0; v < n; v++)
        for (int p = 0; p < b->n_packs; p++)
            memset(vectors[v].packs[p].values, 0,
                   eider_row_graph(b)->n_cells * sizeof *vectors[v].packs[p].values);
}

/* ---- A pass over the row -------------------------------------------------------- */

/* What is done with the vectors of one step: totals are added to, or outputs are stored. */
struct pass {
    const uint8_t *need;
    struct eider_row_total *totals; /* NULL: outputs are stored */
    int n_totals;
    uint64_t fills;                  /* nothing is computed: shared memory takes these inputs */
    uint64_t later;                  /* inputs that later ones read */
    uint64_t ahead;                  /* inputs that are loaded ahead of their use */
    struct eider_row_position *next; /* the last pass: where the next row is; or NULL */
};

static void set_outputs(struct eider_row_build *b, struct eider_row_context *c)
{
    const struct eider_graph *g = eider_row_graph(b);
    for (uint32_t i = 0; i < g->n_operands && b->e->status == EIDER_OK; i++) {
        if (!eider_row_is_full_output(b->layout, i)) continue;
        eider_row_bring(b, c, g->operands[i].node);
        b->lowering.values = c->values;
        b->e->width = c->width;
        if (b->e->status == EIDER_OK) c->in[i] = eider_lowering_output(&b->lowering, i);
    }
}

static void do_step(struct eider_row_build *b, const struct pass *pass,
                    struct eider_row_vector *vectors, int n)
{
    struct eider_row_context *all[EIDER_ROW_PACKS_MAX];
    int n_all = 0;
    for (int v = 0; v < n; v++)
        for (int p = 0; p < b->n_packs; p++) {
            eider_row_compute(b, &vectors[v].packs[p], pass->need);
            all[n_all++] = &vectors[v].packs[p];
        }
    for (int i = 0; i < pass->n_totals && b->e->status == EIDER_OK; i++)
        if (!pass->totals[i].top) eider_row_total_add(b, &pass->totals[i], all, n_all);
    for (int i = 0; i < pass->n_totals && b->e->status == EIDER_OK; i++)
        if (pass->totals[i].top) eider_row_online_add(b, &pass->totals[i], all, n_all);
    for (int v = 0; v < n && !pass->totals && b->e->status == EIDER_OK; v++) {
        for (int p = 0; p < b->n_packs; p++) set_outputs(b, &vectors[v].packs[p]);
        if (b->e->status == EIDER_OK) eider_row_store(b, &vectors[v]);
    }
}

/* A segment of the row that a loop goes through, `unroll` vectors at a time. */
struct segment {
    int64_t from, to; /* places; to: 0 is the end of the row */
    int unroll;
    int stays; /* in shared memory */
};

/* Where a segment of a row of any length ends. */
static LLVMValueRef end_of(struct eider_row_build *b, const struct segment *segment)
{
    LLVMValueRef to = eider_row_number(b->i32, segment->to);
    if (!segment->to) return b->end;
    LLVMValueRef shorter = LLVMBuildICmp(b->e->builder, LLVMIntULT, b->end, to, "");
    return LLVMBuildSelect(b->e->builder, shorter, b->end, to, "");
}

/* The places that a loop goes through. */
struct range {
    LLVMValueRef any, first;
    LLVMValueRef end;  /* the next place is below it; of edges: the one before it is */
    LLVMValueRef next; /* of edges: the place of the second; NULL: a step further */
};

static struct range range_of(struct eider_row_build *b, int64_t first, LLVMValueRef end)
{
    struct range r = {.first = eider_row_number(b->i32, first), .end = end};
    r.any = LLVMBuildICmp(b->e->builder, LLVMIntULT, r.first, end, "");
    return r;
}

/* What is done with `n` vectors at `at`, of which so much is known (eider_row_place).  `after` are
 * those after them, loaded before they are done; NULL: these have not been loaded ahead. */
static void do_vectors(struct eider_row_build *b, const struct pass *pass,
                       const struct segment *segment, struct eider_row_vector *vectors, int n,
                       LLVMValueRef at, int64_t known, const struct eider_row_batch *after)
{
    eider_row_forget(b, vectors, n);
    eider_row_place(b, vectors, n, at, known);
    b->later = pass->later;
    if (pass->fills) {
        eider_row_fill_shared(b, vectors, n, pass->fills, at, NULL);
        return;
    }
    uint64_t inputs = eider_row_inputs(b, pass->need);
    uint64_t there = segment->stays ? inputs & (b->loaded | b->columns) : 0;
    uint64_t come = after ? pass->ahead : 0;
    eider_row_load_shared(b, vectors, n, there, at);
    eider_row_load(b, vectors, n, inputs & ~there & ~come);
    if (after) {
        eider_row_ahead_take(b, vectors, n, come);
        eider_row_ahead_load(b, after);
    }
    do_step(b, pass, vectors, n);
    if (!segment->stays || !pass->next || b->e->status != EIDER_OK) return;
    eider_row_swap(b, pass->next);
    eider_row_place(b, vectors, n, at, known);
    eider_row_fill_shared(b, vectors, n, b->loaded, at, b->more);
    eider_row_swap(b, pass->next);
}

static void loop(struct eider_row_build *b, struct pass *pass, struct eider_row_vector *vectors,
                 const struct segment *segment, struct range range, int64_t known)
{
    LLVMBuilderRef ir = b->e->builder;
    int64_t step = stride_of(b) * segment->unroll;
    struct eider_row_loop l;
    for (int i = 0; i < pass->n_totals; i++) eider_row_total_loop(b, &pass->totals[i]);
    eider_row_loop_begin(b, &l, pass->totals, pass->n_totals, range.first, range.any);
    do_vectors(b, pass, segment, vectors, segment->unroll, l.at, known, NULL);
    if (b->e->status != EIDER_OK) return;
    LLVMValueRef next = range.next;
    if (!next) next = LLVMBuildAdd(ir, l.at, eider_row_number(b->i32, step), "");
    LLVMValueRef again = LLVMBuildICmp(ir, LLVMIntULT, range.next ? l.at : next, range.end, "");
    eider_row_loop_end(b, &l, next, again);
}

/* ---- Vectors that are partly in the row ------------------------------------------- */

/* Whether this thread has the row's last vector, it is partly in the row, and, at `at`, in the
 * segment. */
static LLVMValueRef has_last(struct eider_row_build *b, const struct segment *segment,
                             LLVMValueRef number, LLVMValueRef at)
{
    LLVMBuilderRef ir = b->e->builder;
    LLVMValueRef others = eider_row_number(b->i32, eider_row_threads(&b->c) - 1);
    LLVMValueRef owner = LLVMBuildAnd(ir, number, others, "");
    LLVMValueRef behind = LLVMBuildAnd(ir, b->end, eider_row_number(b->i32, b->c.vec - 1), "");
    LLVMValueRef is = LLVMBuildICmp(ir, LLVMIntEQ, owner, b->thread, "");
    LLVMValueRef cut = LLVMBuildICmp(ir, LLVMIntNE, behind, eider_row_number(b->i32, 0), "");
    LLVMValueRef from = eider_row_number(b->i32, segment->from);
    is = LLVMBuildAnd(ir, is, cut, "");
    is = LLVMBuildAnd(ir, is, LLVMBuildICmp(ir, LLVMIntUGE, at, from, ""), "");
    if (!segment->to) return is;
    LLVMValueRef to = eider_row_number(b->i32, segment->to);
    return LLVMBuildAnd(ir, is, LLVMBuildICmp(ir, LLVMIntULT, at, to, ""), "");
}

/* The first vector is partly in the row where that is shifted; it is never the last one, too, since
 * there is a whole one. */
static struct range edges_of(struct eider_row_build *b, const struct segment *segment)
{
    LLVMBuilderRef ir = b->e->builder;
    LLVMValueRef zero = eider_row_number(b->i32, 0), one = eider_row_number(b->i32, 1);
    LLVMValueRef number = LLVMBuildSub(ir, b->end, one, "");
    number = LLVMBuildUDiv(ir, number, eider_row_number(b->i32, b->c.vec), "");
    LLVMValueRef round = eider_row_number(b->i32, -eider_row_threads(&b->c));
    LLVMValueRef at = LLVMBuildAnd(ir, number, round, "");
    at = LLVMBuildMul(ir, at, eider_row_number(b->i32, b->c.vec), "");
    LLVMValueRef last = has_last(b, segment, number, at);
    struct range r = {.any = last, .first = at, .end = zero, .next = at};
    if (segment->from > 0 || !b->shift) return r;
    LLVMValueRef mine = LLVMBuildICmp(ir, LLVMIntEQ, b->thread, zero, "");
    LLVMValueRef first =
        LLVMBuildAnd(ir, mine, LLVMBuildICmp(ir, LLVMIntNE, b->shift, zero, ""), "");
    r.any = LLVMBuildOr(ir, first, last, "");
    r.first = LLVMBuildSelect(ir, first, zero, at, "");
    r.end = LLVMBuildSelect(ir, LLVMBuildAnd(ir, first, last, ""), at, zero, "");
    return r;
}

/* Whether they may be in the segment. */
static int has_edges(const struct eider_row_build *b, const struct segment *segment)
{
    int64_t step = stride_of(b), round = step / b->c.vec;
    if (!b->ragged || (segment->stays && segment->from == segment->to)) return 0;
    if (segment->from == 0 && b->leader >= 0) return 1;
    int64_t first = (b->layout->length - 1) / b->c.vec / round * step;
    int64_t last = (eider_row_reach(b->layout, b->c.vec) - 1) / b->c.vec / round * step;
    return last >= segment->from && (!segment->to || first < segment->to);
}

/* Shared memory takes them, two of a row at most, by elements: no copy does. */
static void fill_edges(struct eider_row_build *b, struct eider_row_vector *vectors,
                       struct segment segment, uint64_t which)
{
    struct pass pass = {.fills = which};
    int old_vectors = b->vectors, old_elements = b->elements;
    if (!which || !has_edges(b, &segment) || b->e->status != EIDER_OK) return;
    segment.unroll = 1;
    b->vectors = 0;
    b->elements = 1;
    struct range range = edges_of(b, &segment);
    eider_lines_tail(b->e, 1);
    loop(b, &pass, vectors, &segment, range, EIDER_ROW_EDGE);
    eider_lines_tail(b->e, 0);
    b->vectors = old_vectors;
    b->elements = old_elements;
}

/* ---- Segments of the row -------------------------------------------------------------- */

/* Where the last vector of a row ends at most, of any shift. */
static int64_t vectors_end(const struct eider_row_build *b)
{
    int64_t whole = eider_row_reach(b->layout, b->c.vec) / b->c.vec;
    return (b->edges_apart ? whole : eider_row_cut(b->layout, b->c.vec)) * b->c.vec;
}

/* Where a segment of a row of known length ends. */
static int64_t known_end(const struct eider_row_build *b, const struct segment *segment)
{
    int64_t end = vectors_end(b);
    return segment->to && segment->to < end ? segment->to : end;
}

/* Whether vectors of some row are in the segment. */
static int has_segment(const struct eider_row_build *b, const struct segment *segment)
{
    if (segment->stays && segment->from == segment->to) return 0;
    return !b->layout->length || segment->from < vectors_end(b);
}

/* The vectors of the step at `at` of a segment, none where it ends before. */
static int step_vectors(const struct eider_row_build *b, const struct segment *segment, int64_t at)
{
    int64_t stride = stride_of(b), n = (known_end(b, segment) - at + stride - 1) / stride;
    return n < 0 ? 0 : n < segment->unroll ? (int)n : segment->unroll;
}

/* Whether the steps of a segment are done one by one, each loaded ahead: few of them. */
static int goes_ahead(const struct eider_row_build *b, const struct pass *pass,
                      const struct segment *segment)
{
    int64_t most = AHEAD_STEPS_MAX * stride_of(b) * segment->unroll;
    return pass->ahead && segment->stays && has_segment(b, segment) &&
           known_end(b, segment) - segment->from <= most;
}

/* The steps of a segment of a row whose length is known, from `at` to before `end`, one by one. */
static void do_steps(struct eider_row_build *b, struct pass *pass, struct eider_row_vector *vectors,
                     const struct segment *segment, int64_t at, int64_t end)
{
    int64_t step = stride_of(b) * segment->unroll;
    int ahead = goes_ahead(b, pass, segment);
    for (; at < end && b->e->status == EIDER_OK; at += step) {
        struct eider_row_batch after = {
            .at = at + step, .n = step_vectors(b, segment, at + step), .which = pass->ahead};
        do_vectors(b, pass, segment, vectors, step_vectors(b, segment, at),
                   eider_row_number(b->i32, at), at, ahead ? &after : NULL);
    }
}

/* The vectors of a segment.  Where the row's length is known, only the first ones, if they are
 * shifted, and the last ones may not be in the row: those are not in the loop, which asks for none.
 */
static void go_through(struct eider_row_build *b, struct pass *pass,
                       struct eider_row_vector *vectors, const struct segment *segment)
{
    int64_t step = stride_of(b) * segment->unroll, length = b->layout->length, at = segment->from;
    if (!length) {
        loop(b, pass, vectors, segment, range_of(b, at, end_of(b, segment)), EIDER_ROW_ANYWHERE);
        return;
    }
    int64_t end = known_end(b, segment);
    if (length > end) length = end;
    for (int i = 0; i < pass->n_totals; i++) eider_row_total_loop(b, &pass->totals[i]);
    if (b->shift && at == 0) {
        do_steps(b, pass, vectors, segment, 0, end < step ? end : step);
        at = step;
    }
    int64_t full = length > at ? at + (length - at) / step * step : at;
    if (goes_ahead(b, pass, segment)) full = at;
    if (full > at && b->e->status == EIDER_OK)
        loop(b, pass, vectors, segment, range_of(b, at, eider_row_number(b->i32, full)),
             EIDER_ROW_INSIDE);
    do_steps(b, pass, vectors, segment, full, end);
}

/* What all rows share does not stay. */
static void forget_words(struct eider_row_vector *vector, uint64_t which)
{
    for (uint32_t i = 0; i < EIDER_OPERANDS_MAX; i++)
        if (which >> i & 1) vector->words[i] = NULL;
}

/* The segment of the row that is in shared memory, and the one that is read again. */
static struct segment shared_segment(const struct eider_row_build *b)
{
    int64_t step = stride_of(b);
    return (struct segment){.from = b->c.keep * step,
                            .to = (b->c.keep + b->c.shared) * step,
                            .unroll = b->c.shared % b->c.unroll ? 1 : b->c.unroll,
                            .stays = 1};
}

static struct segment rest_of(const struct eider_row_build *b)
{
    return (struct segment){.from = shared_segment(b).to, .unroll = b->c.unroll};
}

/* The first vectors of shared memory's segment. */
static struct eider_row_batch first_shared(const struct eider_row_build *b, const struct pass *pass)
{
    struct segment s = shared_segment(b);
    struct eider_row_batch batch = {.at = s.from, .which = pass->ahead};
    if (goes_ahead(b, pass, &s)) batch.n = step_vectors(b, &s, s.from);
    return batch;
}

/* Vectors that registers keep for which what all rows share is loaded together: where that is by
 * elements, registers are few. */
static int kept_together(const struct eider_row_build *b)
{
    return b->leader >= 0 ? 1 : b->c.unroll;
}

/* Those that registers keep, from the first on or from behind `n` others. */
static struct eider_row_batch kept_from(const struct eider_row_build *b, const struct pass *pass,
                                        struct eider_row_vector *kept, int n)
{
    struct eider_row_batch batch = {.kept = kept + n, .at = n * stride_of(b), .which = pass->ahead};
    batch.n = b->c.keep - n < kept_together(b) ? b->c.keep - n : kept_together(b);
    return n < b->c.keep ? batch : first_shared(b, pass);
}

/* Vectors that registers keep: what all rows share is loaded for several of them before one is
 * done. */
static void do_kept(struct eider_row_build *b, const struct pass *pass,
                    struct eider_row_vector *kept, uint64_t missing)
{
    for (int first = 0; first < b->c.keep && b->e->status == EIDER_OK; first += kept_together(b)) {
        struct eider_row_batch now = kept_from(b, pass, kept, first);
        struct eider_row_batch after = kept_from(b, pass, kept, first + now.n);
        uint64_t here = missing & b->columns;
        eider_row_load_shared(b, now.kept, now.n, here, eider_row_number(b->i32, now.at));
        eider_row_load(b, now.kept, now.n, missing & ~here & ~pass->ahead);
        eider_row_ahead_load(b, &after);
        for (int v = 0; v < now.n && b->e->status == EIDER_OK; v++) {
            eider_row_unpack_all(b, &now.kept[v], pass->ahead);
            forget_words(&now.kept[v], missing);
            if (b->passes) eider_row_again(b, &now.kept[v]);
            do_step(b, pass, &now.kept[v], 1);
        }
    }
}

static void do_pass(struct eider_row_build *b, struct pass *pass, struct eider_row_vector *kept,
                    struct eider_row_vector *rest)
{
    struct segment segments[2] = {shared_segment(b), rest_of(b)};
    do_kept(b, pass, kept, eider_row_inputs(b, pass->need) & ~b->loaded);
    b->passes++;
    for (int i = 0; i < 2; i++)
        if (has_segment(b, &segments[i]) && b->e->status == EIDER_OK)
            go_through(b, pass, rest, &segments[i]);
}

/* ---- The stages ------------------------------------------------------------------ */

static int has_full_outputs(const struct eider_row_build *b)
{
    int any = 0;
    for (uint32_t i = 0; i < b->layout->n_operands; i++)
        any |= eider_row_is_full_output(b->layout, i);
    return any;
}

/* Sums that need another reduction's result go with it, and second moments with first ones. */
static void set_tops(struct eider_row_build *b, struct eider_row_total *totals, int n)
{
    for (int i = 0; i < n; i++) {
        struct eider_row_online *online = &totals[i].online;
        if (!eider_row_online_of(b->program, b->plan.live, totals[i].node, b->online, online))
            continue;
        int hides = online->kind == EIDER_ROW_FIRST_MOMENT &&
                    eider_row_moment_hides(b->program, b->plan.live, online);
        for (int k = 0; k < i; k++) {
            if (totals[k].node == online->source) {
                totals[i].top = &totals[k];
                if (hides) totals[k].follows = &totals[i];
            }
            if (online->kind == EIDER_ROW_SECOND_MOMENT &&
                totals[k].online.kind == EIDER_ROW_FIRST_MOMENT &&
                totals[k].online.reference == online->reference &&
                totals[k].online.value == online->value)
                totals[i].pair = &totals[k];
        }
        eider_row_online_begin(b, &totals[i]);
    }
}

/* The nodes that differ within a row and that the passes of these stages need; that of the last,
 * which has no reductions, needs those of outputs. */
static uint8_t *needed_by(struct eider_row_build *b, uint32_t first, uint32_t last)
{
    const struct eider_graph *g = eider_row_graph(b);
    uint8_t *need = eider_row_alloc(b, g->n_cells, 1);
    if (b->e->status != EIDER_OK) return NULL;
    for (eider_node id = 1; id < g->n_cells; id++)
        if (b->plan.live[id] && eider_ops_reduces((enum eider_op)g->cells[id].op) &&
            b->plan.level[id] > first && b->plan.level[id] <= last + 1)
            need[eider_graph_args(g, id)[0]] = 1;
    for (uint32_t i = 0; i < g->n_operands && last == b->plan.n_stages; i++)
        if (eider_row_is_full_output(b->layout, i)) need[g->operands[i].node] = 1;
    eider_row_plan_need(g, &b->plan, need);
    return need;
}

/* The nodes that the pass of a stage computes for every element: terms of sums that are online come
 * later. */
static uint8_t *need_of(struct eider_row_build *b, uint32_t stage)
{
    uint8_t *need = needed_by(b, stage, stage);
    for (eider_node id = 1; id < eider_row_graph(b)->n_cells && need; id++)
        if (b->plan.level[id] > stage) need[id] = 0;
    return need;
}

/* Inputs that passes after that of a stage read. */
static uint64_t read_after(struct eider_row_build *b, uint32_t stage)
{
    const uint8_t *need = needed_by(b, stage + 1, b->plan.n_stages);
    return need ? eider_row_inputs(b, need) : 0;
}

static int is_second_moment(const struct eider_row_build *b, eider_node id)
{
    struct eider_row_online found;
    return eider_row_online_of(b->program, b->plan.live, id, b->online, &found) &&
           found.kind == EIDER_ROW_SECOND_MOMENT;
}

/* The reductions that end a stage: those that are second moments, or the others. */
static void add_totals(struct eider_row_build *b, uint32_t stage, int second,
                       struct eider_row_stage *out)
{
    const struct eider_graph *g = eider_row_graph(b);
    for (eider_node id = 1; id < g->n_cells && b->e->status == EIDER_OK; id++) {
        if (!b->plan.live[id] || !eider_ops_reduces((enum eider_op)g->cells[id].op)) continue;
        if (b->plan.level[id] != stage + 1 || is_second_moment(b, id) != second) continue;
        if (out->n < EIDER_ROW_TOTALS_MAX)
            out->totals[out->n++] = eider_row_total_begin(b, id);
        else
            eider_emit_fail(b->e, EIDER_TOO_LARGE, "more than %d reductions in one stage",
                            EIDER_ROW_TOTALS_MAX);
    }
}

void eider_row_stage_open(struct eider_row_build *b, uint32_t stage, struct eider_row_stage *out)
{
    out->n = 0;
    out->later = read_after(b, stage);
    out->need = need_of(b, stage);
    add_totals(b, stage, 0, out);
    add_totals(b, stage, 1, out);
    if (b->e->status == EIDER_OK) set_tops(b, out->totals, out->n);
}

/* Inputs that a pass loads ahead: where there are steps one after the other. */
static uint64_t ahead_of(const struct eider_row_build *b, const uint8_t *need)
{
    struct pass pass = {.ahead = eider_row_ahead_inputs(b, need)};
    struct segment shared = shared_segment(b);
    return b->c.keep || goes_ahead(b, &pass, &shared) ? pass.ahead : 0;
}

void eider_row_stage_pass(struct eider_row_build *b, struct eider_row_stage *stage,
                          struct eider_row_vector *kept, struct eider_row_vector *rest,
                          struct eider_row_position *next)
{
    struct pass pass = {.need = stage->need,
                        .totals = stage->totals,
                        .n_totals = stage->n,
                        .next = next,
                        .later = stage->later};
    if (b->e->status != EIDER_OK) return;
    pass.ahead = ahead_of(b, pass.need);
    do_pass(b, &pass, kept, rest);
}

/* The first vectors of a stage's pass are loaded when threads wait next. */
static void wait_with(struct eider_row_build *b, uint32_t stage, struct eider_row_vector *kept)
{
    struct pass pass = {.need = b->ahead ? need_of(b, stage) : NULL};
    if (!pass.need || b->e->status != EIDER_OK) return;
    pass.ahead = ahead_of(b, pass.need);
    b->waiting = kept_from(b, &pass, kept, 0);
}

static void do_stage(struct eider_row_build *b, uint32_t number, struct eider_row_vector *kept,
                     struct eider_row_vector *rest, struct eider_row_position *next)
{
    struct eider_row_stage stage;
    int is_last_pass = number + 1 == b->plan.n_stages && !has_full_outputs(b);
    eider_row_stage_open(b, number, &stage);
    eider_row_stage_pass(b, &stage, kept, rest, is_last_pass ? next : NULL);
    wait_with(b, number + 1, kept);
    if (b->e->status == EIDER_OK) eider_row_total_end(b, stage.totals, stage.n);
    b->e->width = b->width;
}

/* Whether all threads of a row read an input that has one value for it, and some output may be the
 * same memory: one that has as many elements. */
static int may_lose_row(const struct eider_row_build *b)
{
    int reads = 0, writes = 0;
    for (uint32_t i = 0; i < b->layout->n_operands; i++) {
        eider_node leaf = eider_row_graph(b)->operands[i].node;
        eider_operand_kind kind = b->layout->operands[i].kind;
        reads |= kind == EIDER_INPUT && b->plan.live[leaf] && !b->plan.varies[leaf];
        writes |= kind == EIDER_OUTPUT &&
                  (!eider_row_is_full_output(b->layout, i) || b->layout->length <= 1);
    }
    return reads && writes;
}

int eider_row_may_wait(const struct eider_row_build *b)
{
    int may_read =
        b->plan.picks || b->plan.n_stages == 0 || (b->rank && b->c.mbarrier && may_lose_row(b));
    return may_read && (b->rank || b->c.row > 1);
}

/* Where threads read what others may write from now on, which is in an output, all of them have to
 * be here.  After a stage they are, but for what is picked behind it; an mbarrier, though, orders
 * nothing but what it counts. */
static void wait_for_readers(struct eider_row_build *b)
{
    if (!eider_row_may_wait(b)) return;
    LLVMValueRef apart = eider_row_flags_have(b, EIDER_ROW_APART);
    LLVMBasicBlockRef after = eider_row_where(b, LLVMBuildNot(b->e->builder, apart, ""));
    eider_row_barrier(b);
    eider_row_end_where(b, after);
}

void eider_row_outputs(struct eider_row_build *b, struct eider_row_vector *kept,
                       struct eider_row_vector *rest, struct eider_row_position *next)
{
    struct pass pass = {.next = next, .need = need_of(b, b->plan.n_stages)};
    if (b->e->status != EIDER_OK) return;
    pass.ahead = ahead_of(b, pass.need);
    wait_for_readers(b);
    if (has_full_outputs(b)) do_pass(b, &pass, kept, rest);
    eider_row_store_row(b);
}

void eider_row_enter(struct eider_row_build *b)
{
    b->passes = 0;
    b->shared_used = 0;
    b->one = eider_row_context(b, 1);
    if (b->e->status == EIDER_OK) eider_row_load_row(b);
}

/* One row, of which shared memory has been given what it has of the row. */
void eider_row_do(struct eider_row_build *b, struct eider_row_vector *kept,
                  struct eider_row_vector *rest, struct eider_row_position *next)
{
    eider_row_enter(b);
    if (b->e->status != EIDER_OK) return;
    eider_row_forget(b, kept, b->c.keep);
    if (b->c.keep) {
        eider_row_place(b, kept, b->c.keep, eider_row_number(b->i32, 0), 0);
        b->later = 0;
        eider_row_load(b, kept, b->c.keep, b->loaded);
    }
    wait_with(b, 0, kept);
    eider_row_ahead_now(b);
    if (b->rows_memory) {
        fill_edges(b, rest, shared_segment(b), b->loaded);
        eider_row_wait_shared(b);
    }
    for (uint32_t stage = 0; stage < b->plan.n_stages && b->e->status == EIDER_OK; stage++) {
        eider_row_compute_row(b, stage);
        do_stage(b, stage, kept, rest, next);
    }
    eider_row_compute_row(b, b->plan.n_stages);
    eider_row_outputs(b, kept, rest, next);
}

/* The whole vectors; fill_edges is for the others. */
static void fill(struct eider_row_build *b, struct eider_row_vector *vectors,
                 struct segment segment, uint64_t which)
{
    struct pass pass = {.fills = which};
    b->edges_apart = b->ragged;
    if (which && has_segment(b, &segment) && b->e->status == EIDER_OK)
        go_through(b, &pass, vectors, &segment);
    b->edges_apart = 0;
}

/* What all rows share, from the row's beginning to where shared memory's segment of it ends. */
static struct segment column_segment(const struct eider_row_build *b)
{
    struct segment segment = shared_segment(b);
    segment.from = 0;
    segment.unroll = 1;
    return segment;
}

void eider_row_fill(struct eider_row_build *b, struct eider_row_vector *vectors)
{
    fill(b, vectors, column_segment(b), b->columns);
    fill_edges(b, vectors, column_segment(b), b->columns);
    fill(b, vectors, shared_segment(b), b->loaded);
}
