/* program.c -- the public functions of programs; see program.h. */
#include "program.h"

#include <stdatomic.h>

#include "activations.h"
#include "arithmetic.h"
#include "context.h"
#include "parse.h"
#include "passes.h"
#include "stack.h"

static _Atomic uint64_t n_programs;

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
