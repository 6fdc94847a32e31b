/* compare.c -- see compare.h. */
#include "compare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "element.h"

#define PIECE_ELEMENTS ((size_t)1 << 16)
#define SAMPLE_PIECES 16
#define JUMPS_ONE_IN 64 /* elements that fall to the other side of a comparison */

struct comparison {
    const struct eider_scratch *s;
    size_t i;
    eider_dtype type;
    size_t size, n; /* of an element; elements of the span */
    size_t segment; /* elements of which the largest magnitude counts: a row */
    size_t piece, n_pieces;
    int samples;
    char *got, *want; /* a piece of each */
    size_t n_seen, n_jumps;
    char *what;
    size_t what_bytes;
};

/* ---- A piece ------------------------------------------------------------------------ */

static double element(const struct comparison *c, const char *from, size_t k)
{
    return eider_element_get(c->type, from, k);
}

static double largest_of(const struct comparison *c, size_t from, size_t to)
{
    double largest = 0;
    for (size_t k = from; k < to; k++) {
        double x = fabs(element(c, c->want, k));
        if (isfinite(x) && x > largest) largest = x;
    }
    return largest;
}

static int is_same_bytes(const struct comparison *c, size_t from, size_t n)
{
    return memcmp(c->got + from * c->size, c->want + from * c->size, n * c->size) == 0;
}

/* Element `k` of the piece that begins at element `start` is wrong, unless it is one of few. */
static void tell(struct comparison *c, size_t start, size_t k)
{
    double x = element(c, c->got, k), y = element(c, c->want, k);
    int may_jump = c->s->at[c->i].rounding.jumps && isnan(x) == isnan(y);
    if (!c->what[0])
        snprintf(c->what, c->what_bytes, "element %zu is %.7g, the reference gives %.7g", start + k,
                 isnan(x) ? fabs(x) : x, isnan(y) ? fabs(y) : y);
    c->n_jumps += may_jump ? 1 : c->n;
}

static void compare_segment(struct comparison *c, size_t start, size_t from, size_t to)
{
    const struct eider_rounding *rounding = &c->s->at[c->i].rounding;
    double tolerance = c->s->call->request->tolerance;
    if (is_same_bytes(c, from, to - from)) return;
    double largest = rounding->slack > 0 ? largest_of(c, from, to) : 0;
    for (size_t k = from; k < to && c->n_jumps < c->n; k++) {
        if (is_same_bytes(c, k, 1)) continue;
        double x = element(c, c->got, k), y = element(c, c->want, k);
        if (eider_rounding_allows(rounding, c->type, largest, x, y)) continue;
        if (!(fabs(x - y) <= tolerance * (fabs(y) > 1 ? fabs(y) : 1))) tell(c, start, k);
    }
}

static eider_status fetch(const struct comparison *c, char *to, const void *from, size_t start,
                          size_t n)
{
    return eider_memory_copy(c->s->call->device, c->s->stream, to,
                             (const char *)from + start * c->size, n * c->size,
                             EIDER_DEVICE_TO_HOST);
}

static eider_status compare_piece(struct comparison *c, size_t number)
{
    size_t start = number * c->piece, n = c->n - start < c->piece ? c->n - start : c->piece;
    const struct eider_scratch_operand *o = &c->s->at[c->i];
    EIDER_TRY(fetch(c, c->got, o->low, start, n));
    EIDER_TRY(fetch(c, c->want, o->wanted, start, n));
    for (size_t from = 0; from < n; from += c->segment)
        compare_segment(c, start, from, from + c->segment < n ? from + c->segment : n);
    c->n_seen += n;
    return EIDER_OK;
}

/* ---- Which pieces -------------------------------------------------------------------- */

/* Elements side by side that are a row; 0 where rows are not. */
static size_t row_of(const struct eider_scratch *s, size_t i)
{
    const eider_tensor *t = &s->args[i];
    int64_t stride = 1;
    if (!s->call->graph || s->call->plan.layout.operands[i].extent != EIDER_FULL) return 0;
    for (int d = t->rank - 1; d >= 0; d--) {
        if (t->strides && t->shape[d] > 1 && t->strides[d] != stride) return 0;
        stride *= t->shape[d];
    }
    return t->rank ? (size_t)t->shape[t->rank - 1] : 0;
}

/* Whether there is nothing between the elements, where only poison may be. */
static int is_dense(const struct comparison *c)
{
    const eider_tensor *t = &c->s->args[c->i];
    size_t count = 1;
    for (int d = 0; d < t->rank; d++) count *= (size_t)t->shape[d];
    return count == c->n;
}

static void cut(struct comparison *c)
{
    const struct eider_rounding *rounding = &c->s->at[c->i].rounding;
    size_t row = row_of(c->s, c->i);
    c->n = c->s->at[c->i].span / c->size;
    c->segment = row && row < PIECE_ELEMENTS ? row : PIECE_ELEMENTS;
    c->piece = PIECE_ELEMENTS / c->segment * c->segment;
    c->n_pieces = (c->n + c->piece - 1) / c->piece;
    c->samples = (rounding->slack > 0 || rounding->jumps) && is_dense(c) &&
                 !(c->s->call->request->tolerance > 0);
}

static int is_wrong(const struct comparison *c)
{
    return c->n_jumps > c->n_seen / JUMPS_ONE_IN;
}

static eider_status compare_all(struct comparison *c, size_t first)
{
    for (size_t k = first; k < c->n_pieces && c->n_jumps < c->n; k++)
        EIDER_TRY(compare_piece(c, k));
    c->n_seen += first * c->piece; /* the same, byte by byte */
    return EIDER_OK;
}

static eider_status compare_sample(struct comparison *c, size_t first)
{
    size_t n = c->n_pieces < SAMPLE_PIECES ? c->n_pieces : SAMPLE_PIECES;
    EIDER_TRY(compare_piece(c, first));
    for (size_t k = 0; k < n && !is_wrong(c); k++) {
        size_t at = n > 1 ? k * (c->n_pieces - 1) / (n - 1) : 0;
        if (at != first) EIDER_TRY(compare_piece(c, at));
    }
    return EIDER_OK;
}

eider_status eider_compare(const struct eider_scratch *s, size_t i, size_t first, char *what,
                           size_t bytes)
{
    struct comparison c = {
        .s = s, .i = i, .type = s->args[i].type, .what = what, .what_bytes = bytes};
    const eider_allocator *a = &s->call->ctx->allocator;
    c.size = eider_dtype_size(c.type);
    what[0] = '\0';
    cut(&c);
    c.got = eider_mem_alloc(a, 2 * c.piece * c.size);
    if (!c.got) return EIDER_OOM;
    c.want = c.got + c.piece * c.size;
    first = first / c.size / c.piece;
    eider_status status = c.samples ? compare_sample(&c, first) : compare_all(&c, first);
    if (!is_wrong(&c)) what[0] = '\0';
    eider_mem_free(a, c.got);
    return status;
}
