/* program.c -- the public functions of programs; see program.h. */
#include "program.h"

#include <stdatomic.h>

#include "activations.h"
#include "arithmetic.h"
#include "context.h"
#include "extent.h"
#include "parse.h"
#include "passes.h"
#include "stack.h"

static _Atomic uint64_t n_programs;

static eider_extent extent_of(const struct eider_graph *g, size_t i, const uint8_t *bits)
{
    const struct eider_graph_operand *operand = &g->operands[i];
    return operand->kind == EIDER_OUTPUT ? eider_extent_of_output(g, (uint32_t)i, bits)
                                         : operand->extent;
}

static eider_status find_extents(eider_program *program)
{
    const struct eider_graph *g = program->expanded;
    uint8_t *bits = eider_mem_alloc(&program->allocator, g->n_cells);
    if (!bits) return EIDER_OOM;
    eider_extent_infer(g, bits);
    for (uint32_t i = 0; i < g->n_operands; i++) program->extents[i] = extent_of(g, i, bits);
    eider_mem_free(&program->allocator, bits);
    return EIDER_OK;
}

eider_status eider_program_create(struct eider_graph *graph, eider_program **out)
{
    eider_allocator a = graph->allocator;
    eider_program *program = eider_mem_zero(&a, sizeof *program);
    if (!program) {
        eider_graph_destroy(graph);
        return EIDER_OOM;
    }
    program->allocator = a;
    program->graph = graph;
    program->id = atomic_fetch_add_explicit(&n_programs, 1, memory_order_relaxed);
    eider_status status = eider_print(graph, &program->text);
    if (status == EIDER_OK) status = eider_activation_expand(graph, &program->expanded);
    if (status == EIDER_OK) status = eider_extent_check(program->expanded);
    if (status == EIDER_OK) status = find_extents(program);
    if (status == EIDER_OK)
        *out = program;
    else
        eider_program_release(program);
    return status;
}

struct parsing {
    eider_context *ctx;
    const char *text;
    eider_program **out;
};

static eider_status parse(void *arg)
{
    const struct parsing *p = arg;
    struct eider_graph *graph;
    EIDER_TRY(eider_parse(eider_context_allocator(p->ctx), p->text, &graph));
    return eider_program_create(graph, p->out);
}

eider_status eider_program_parse(eider_context *ctx, const char *text, eider_program **out)
{
    struct parsing parsing = {ctx, text, out};
    struct eider_arithmetic host;
    if (!ctx || !text || !out)
        return eider_fail(EIDER_BAD_ARG, "eider_program_parse: an argument is NULL");
    EIDER_TRY(eider_context_check(ctx));
    eider_arithmetic_enter(&host);
    eider_status status = eider_stack_run(eider_context_allocator(ctx), parse, &parsing);
    eider_arithmetic_leave(&host);
    return status;
}

eider_status eider_program_grad(const eider_program *program, const eider_grad_options *options,
                                eider_program **out)
{
    static const eider_grad_options defaults;
    struct eider_graph *graph;
    struct eider_arithmetic host;
    if (!program || !out)
        return eider_fail(EIDER_BAD_ARG, "eider_program_grad: an argument is NULL");
    if (!options) options = &defaults;
    if (options->wrt)
        for (size_t i = 0; i < options->n_wrt; i++)
            if (!options->wrt[i])
                return eider_fail(EIDER_BAD_ARG, "eider_program_grad: wrt[%zu] is NULL", i);
    eider_arithmetic_enter(&host);
    eider_status status = eider_grad(program->graph, options->wrt, options->n_wrt,
                                     options->with_forward != 0, &graph);
    if (status == EIDER_OK) status = eider_program_create(graph, out);
    eider_arithmetic_leave(&host);
    return status;
}

/* NULL stays NULL. */
static eider_status create_part(struct eider_graph *graph, eider_program **out)
{
    *out = NULL;
    return graph ? eider_program_create(graph, out) : EIDER_OK;
}

eider_status eider_program_split(const eider_program *program, eider_program **rows,
                                 eider_program **columns)
{
    struct eider_graph *parts[2];
    eider_program *first = NULL;
    if (!program || !rows || !columns)
        return eider_fail(EIDER_BAD_ARG, "eider_program_split: an argument is NULL");
    EIDER_TRY(eider_split(program->graph, &parts[0], &parts[1]));
    eider_status status = create_part(parts[0], &first);
    if (status != EIDER_OK) {
        eider_graph_destroy(parts[1]);
        return status;
    }
    status = create_part(parts[1], columns);
    if (status == EIDER_OK)
        *rows = first;
    else
        eider_program_release(first);
    return status;
}

void eider_program_release(eider_program *program)
{
    if (!program) return;
    eider_allocator a = program->allocator;
    eider_graph_destroy(program->graph);
    eider_graph_destroy(program->expanded);
    eider_mem_free(&a, program->text);
    eider_mem_free(&a, program);
}

const char *eider_program_text(const eider_program *program)
{
    return program ? program->text : "";
}

size_t eider_program_operands(const eider_program *program)
{
    return program ? program->graph->n_operands : 0;
}

eider_status eider_program_operand(const eider_program *program, size_t i, eider_operand *out)
{
    if (!program || !out)
        return eider_fail(EIDER_BAD_ARG, "eider_program_operand: an argument is NULL");
    if (i >= program->graph->n_operands)
        return eider_fail(EIDER_BAD_ARG, "operand %zu: the program has %u", i,
                          program->graph->n_operands);
    const struct eider_graph_operand *operand = &program->graph->operands[i];
    *out = (eider_operand){operand->name, operand->kind, operand->type};
    return EIDER_OK;
}

eider_status eider_program_eval(const eider_program *program, const double *in, double *out)
{
    struct eider_arithmetic host;
    if (!program || !out)
        return eider_fail(EIDER_BAD_ARG, "eider_program_eval: an argument is NULL");
    if (!in && program->graph->operands[0].kind != EIDER_OUTPUT)
        return eider_fail(EIDER_BAD_ARG, "eider_program_eval: the program has inputs, `in` is "
                                         "NULL");
    eider_arithmetic_enter(&host);
    eider_status status = eider_eval(program->expanded, in, out);
    eider_arithmetic_leave(&host);
    return status;
}

eider_status eider_program_eval_rows(const eider_program *program, int64_t n_rows, int64_t n_cols,
                                     const eider_doubles *operands)
{
    if (!program || !operands)
        return eider_fail(EIDER_BAD_ARG, "eider_program_eval_rows: an argument is NULL");
    for (uint32_t i = 0; i < program->graph->n_operands; i++)
        if (!operands[i].data)
            return eider_fail(EIDER_BAD_ARG, "eider_program_eval_rows: '%s' has no data",
                              program->graph->operands[i].name);
    return eider_eval_rows(program->expanded, n_rows, n_cols, operands);
}

/* ---- Extents and shapes ----------------------------------------------------- */

int32_t eider_program_over_rows(const eider_program *program)
{
    return program && eider_extent_over_rows(program->expanded);
}

eider_extent eider_program_extent(const eider_program *program, size_t i)
{
    return program && i < program->graph->n_operands ? program->extents[i] : EIDER_FULL;
}

/* Adds an input's extents to the space. */
static eider_status meet(const char *name, const eider_tensor *arg, eider_extent extent,
                         int32_t rank, int64_t *space)
{
    int per_row = extent == EIDER_PER_ROW && arg->rank < rank;
    int first = extent == EIDER_PER_ROW ? arg->rank - !per_row : 0;
    int last = extent == EIDER_PER_COLUMN ? arg->rank - 1 : arg->rank;
    for (int32_t d = 0; d < arg->rank; d++)
        if (extent != EIDER_FULL && (extent == EIDER_PER_ROW ? d >= first : d < last) &&
            arg->shape[d] != 1)
            return eider_fail(EIDER_SHAPE,
                              "input '%s' is declared to have one value per %s; its extent in "
                              "dimension %d is %lld",
                              name, extent == EIDER_PER_ROW ? "row" : "column", (int)d,
                              (long long)arg->shape[d]);
    for (int32_t d = 0; d < arg->rank; d++) {
        int32_t at = rank - arg->rank + d - per_row;
        int64_t own = arg->shape[d];
        if (own == 1 || space[at] == own) continue;
        if (space[at] != 1 || own < 0)
            return eider_fail(EIDER_SHAPE,
                              "input '%s' has extent %lld where other inputs have %lld: the shapes "
                              "do not broadcast",
                              name, (long long)own, (long long)space[at]);
        space[at] = own;
    }
    return EIDER_OK;
}

eider_status eider_program_shape(const eider_program *program, const eider_tensor *args,
                                 size_t n_args, size_t i, int32_t *rank, int64_t *shape)
{
    int64_t space[EIDER_RANK_MAX];
    int32_t n = 0, numbers_rows = 0; /* of [rows] alone the row is another dimension */
    if (!program || !args || !rank || !shape)
        return eider_fail(EIDER_BAD_ARG, "eider_program_shape: an argument is NULL");
    const struct eider_graph *g = program->graph;
    if (n_args != g->n_operands || i >= n_args || g->operands[i].kind != EIDER_OUTPUT)
        return eider_fail(EIDER_BAD_ARG,
                          "eider_program_shape: output %zu of %zu operands; the program has %u", i,
                          n_args, g->n_operands);
    for (size_t k = 0; k < n_args; k++) {
        if (g->operands[k].kind != EIDER_INPUT) continue;
        if (args[k].rank < 0 || args[k].rank > EIDER_RANK_MAX || (args[k].rank && !args[k].shape))
            return eider_fail(EIDER_SHAPE, "input '%s' has rank %d and %s shape",
                              g->operands[k].name, (int)args[k].rank, args[k].shape ? "a" : "no");
        if (args[k].rank > n) n = args[k].rank;
        numbers_rows |=
            args[k].rank == 1 && program->extents[k] == EIDER_PER_ROW && args[k].shape[0] != 1;
    }
    if (n == 1 && numbers_rows) n = 2;
    for (int32_t d = 0; d < n; d++) space[d] = 1;
    for (size_t k = 0; k < n_args; k++)
        if (g->operands[k].kind == EIDER_INPUT)
            EIDER_TRY(meet(g->operands[k].name, &args[k], program->extents[k], n, space));
    eider_extent extent = program->extents[i];
    int32_t first = extent == EIDER_PER_COLUMN && n > 0 ? n - 1 : 0;
    if (extent == EIDER_PER_ROW && n > 0) space[n - 1] = 1;
    *rank = n - first;
    for (int32_t d = first; d < n; d++) shape[d - first] = space[d];
    return EIDER_OK;
}
