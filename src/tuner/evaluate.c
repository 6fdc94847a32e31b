/* evaluate.c -- see evaluate.h.
 *
 * Elements are numbered row-major over the iteration space, of two dimensions at least; rows
 * are numbered by all but the last.
 */
#include "evaluate.h"

#include <math.h>

#include "element.h"
#include "extent.h"

#define EVALUATED_MAX 4096             /* elements that are evaluated one by one */
#define IN_ROWS_MAX ((int64_t)1 << 18) /* those evaluated in whole rows; one row at least */

/* The operands on the host, each from its span's beginning. */
struct evaluation {
    const struct eider_scratch *s;
    const struct eider_call *call;
    char *bytes[EIDER_OPERANDS_MAX];
    size_t zero[EIDER_OPERANDS_MAX]; /* offset of the element with all indices 0 */
    int rank;                        /* of the iteration space */
    int64_t extent[EIDER_RANK_MAX];
    int64_t rows, cols;
};

/* How far the reference may be off, relative to max(1, |value|), where no tolerance is
 * given: this tells wrong numbers from rounding, in every math mode. */
static double allowance(eider_dtype type)
{
    switch (type) {
    case EIDER_F64:
        return 1e-9;
    case EIDER_F32:
        return 2e-3;
    case EIDER_F16:
    case EIDER_BF16:
        return 2e-2;
    case EIDER_E4M3:
        return 0.1;
    case EIDER_E5M2:
        return 0.25;
    default:
        return 0;
    }
}

/* ---- Elements ------------------------------------------------------------------- */

static eider_status fetch(struct evaluation *e, size_t i)
{
    const struct eider_scratch *s = e->s;
    size_t before, span;
    if (e->call->kinds[i] == EIDER_SCALAR) return EIDER_OK;
    eider_scratch_span(&s->args[i], &before, &span);
    e->bytes[i] = eider_mem_alloc(&e->call->ctx->allocator, span + 1);
    if (!e->bytes[i]) return EIDER_OOM;
    e->zero[i] = before;
    /* What an input was before the run, where it shares memory with an output. */
    const char *from = (const char *)s->args[i].data - before;
    for (size_t k = 0; k < s->n; k++)
        if (e->call->kinds[i] == EIDER_INPUT && s->at[k].low == from && s->at[k].image)
            from = s->at[k].image;
    return eider_memory_copy(e->call->device, s->stream, e->bytes[i], from, span,
                             EIDER_DEVICE_TO_HOST);
}

/* The dimension of the space that dimension `d` of operand `i` is: what has one value per row may
 * leave out the last. */
static int dimension_of(const struct evaluation *e, size_t i, int d)
{
    const eider_tensor *t = &e->s->args[i];
    int without_last =
        e->call->plan.layout.operands[i].extent == EIDER_PER_ROW && t->rank < e->rank;
    return e->rank - t->rank + d - without_last;
}

static void find_space(struct evaluation *e)
{
    e->rank = 2;
    for (size_t i = 0; i < e->s->n; i++)
        if (e->s->args[i].rank > e->rank) e->rank = e->s->args[i].rank;
    for (int d = 0; d < e->rank; d++) e->extent[d] = 1;
    for (size_t i = 0; i < e->s->n; i++) {
        const eider_tensor *t = &e->s->args[i];
        for (int d = 0; d < t->rank; d++)
            if (t->shape[d] != 1) e->extent[dimension_of(e, i, d)] = t->shape[d];
    }
    e->rows = 1;
    for (int d = 0; d < e->rank - 1; d++) e->rows *= e->extent[d];
    e->cols = e->extent[e->rank - 1];
}

/* The element of operand `i` at index `at` of the iteration space. */
static double value_at(const struct evaluation *e, size_t i, int64_t at)
{
    const eider_tensor *t = &e->s->args[i];
    int64_t offset = 0, stride = 1, index[EIDER_RANK_MAX];
    if (e->call->kinds[i] == EIDER_SCALAR) return eider_element_get(t->type, t->data, 0);
    for (int d = e->rank - 1; d >= 0; d--) {
        index[d] = at % e->extent[d];
        at /= e->extent[d];
    }
    for (int d = t->rank - 1; d >= 0; d--) {
        if (t->shape[d] > 1)
            offset += index[dimension_of(e, i, d)] * (t->strides ? t->strides[d] : stride);
        stride *= t->shape[d];
    }
    const char *zero = e->bytes[i] + e->zero[i];
    return eider_element_get(t->type, zero + offset * (int64_t)eider_dtype_size(t->type), 0);
}

static eider_status compare(const struct evaluation *e, size_t i, int64_t at, double want)
{
    double got = value_at(e, i, at), tolerance = e->call->request->tolerance;
    double limit = tolerance > 0 ? tolerance : allowance(e->s->args[i].type);
    limit *= fabs(want) > 1 ? fabs(want) : 1;
    if (got == want || (isnan(got) && isnan(want)) || fabs(got - want) <= limit) return EIDER_OK;
    return eider_fail(EIDER_CODEGEN,
                      "the reference config is wrong: %s is %.7g at element %lld, the program "
                      "gives %.7g",
                      e->call->names[i], got, (long long)at, want);
}

/* ---- One by one -------------------------------------------------------------------- */

static eider_status evaluate_at(const struct evaluation *e, int64_t at)
{
    const struct eider_call *call = e->call;
    double in[EIDER_OPERANDS_MAX], out[EIDER_OPERANDS_MAX];
    size_t n_in = 0, n_out = 0;
    for (size_t i = 0; i < call->n; i++)
        if (call->kinds[i] != EIDER_OUTPUT) in[n_in++] = value_at(e, i, at);
    EIDER_TRY(eider_program_eval(call->kernel->program, in, out));
    for (size_t i = 0; i < call->n; i++)
        if (call->kinds[i] == EIDER_OUTPUT) EIDER_TRY(compare(e, i, at, out[n_out++]));
    return EIDER_OK;
}

static eider_status evaluate_elements(const struct evaluation *e)
{
    int64_t count = e->rows * e->cols, step = count > EVALUATED_MAX ? count / EVALUATED_MAX : 1;
    for (int64_t at = 0; at < count; at += step) EIDER_TRY(evaluate_at(e, at));
    return evaluate_at(e, count - 1);
}

/* ---- In rows ------------------------------------------------------------------------- */

/* Sums down the columns are complete after the last row only. */
static eider_status compare_rows(const struct evaluation *e, int64_t rows,
                                 const eider_doubles *values)
{
    for (size_t i = 0; i < e->call->n; i++) {
        eider_extent extent = e->call->plan.layout.operands[i].extent;
        if (e->call->kinds[i] != EIDER_OUTPUT) continue;
        if (extent == EIDER_PER_COLUMN && rows < e->rows) continue;
        int64_t n_rows = extent == EIDER_PER_COLUMN ? 1 : rows;
        int64_t n_cols = extent == EIDER_PER_ROW ? 1 : e->cols;
        for (int64_t row = 0; row < n_rows; row++)
            for (int64_t col = 0; col < n_cols; col++)
                EIDER_TRY(compare(e, i, row * e->cols + col, values[i].data[row * e->cols + col]));
    }
    return EIDER_OK;
}

static eider_status evaluate_rows(const struct evaluation *e)
{
    const eider_allocator *a = &e->call->ctx->allocator;
    eider_doubles values[EIDER_OPERANDS_MAX] = {{0}};
    int64_t rows = e->cols > IN_ROWS_MAX ? 1 : IN_ROWS_MAX / e->cols;
    eider_status status = EIDER_OK;
    if (rows > e->rows) rows = e->rows;
    for (size_t i = 0; i < e->call->n && status == EIDER_OK; i++) {
        int is_down = e->call->plan.layout.operands[i].extent == EIDER_PER_COLUMN;
        size_t n = (size_t)rows * (size_t)e->cols;
        values[i] =
            (eider_doubles){eider_mem_alloc(a, n * sizeof(double)), is_down ? 0 : e->cols, 1};
        if (!values[i].data) status = EIDER_OOM;
        for (size_t at = 0; status == EIDER_OK && at < n; at++)
            if (e->call->kinds[i] != EIDER_OUTPUT) values[i].data[at] = value_at(e, i, (int64_t)at);
    }
    if (status == EIDER_OK)
        status = eider_program_eval_rows(e->call->kernel->program, rows, e->cols, values);
    if (status == EIDER_OK) status = compare_rows(e, rows, values);
    for (size_t i = 0; i < e->call->n; i++) eider_mem_free(a, values[i].data);
    return status;
}

eider_status eider_evaluate(const struct eider_scratch *s)
{
    struct evaluation e = {.s = s, .call = s->call};
    eider_status status = EIDER_OK;
    find_space(&e);
    if (e.rows == 0 || e.cols == 0) return EIDER_OK;
    for (size_t i = 0; i < s->n && status == EIDER_OK; i++) status = fetch(&e, i);
    if (status == EIDER_OK)
        status = eider_extent_over_rows(s->call->graph) ? evaluate_rows(&e) : evaluate_elements(&e);
    for (size_t i = 0; i < s->n; i++) eider_mem_free(&s->call->ctx->allocator, e.bytes[i]);
    return status;
}
