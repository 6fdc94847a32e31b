/* gate.c -- see gate.h. */
#include "gate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "element.h"
#include "evaluate.h"
#include "graph.h"
#include "ops.h"

#define POISON 0xff /* bytes that are NaN in every floating type */

/* ---- Runs ------------------------------------------------------------------------ */

eider_status eider_gate_run(struct eider_scratch *s, const struct eider_candidate *c, int poisons)
{
    const eider_tune_hooks *hooks = &s->call->request->hooks;
    EIDER_TRY(eider_scratch_reset(s, c->config, poisons ? POISON : -1));
    if (hooks->before_run) {
        EIDER_TRY(eider_stream_wait(s->call->device, s->stream));
        hooks->before_run(hooks->user, c->config, s->args, s->n);
    }
    EIDER_TRY(s->call->graph
                  ? eider_launch(c->kernel, s->stream, s->args, s->n)
                  : eider_launch_grid(c->kernel, s->stream, c->geometry.grid, s->args, s->n));
    EIDER_TRY(eider_stream_wait(s->call->device, s->stream));
    if (hooks->after_run) hooks->after_run(hooks->user, c->config, s->args, s->n);
    return EIDER_OK;
}

/* ---- Guards and inputs -------------------------------------------------------------- */

static void reject(struct eider_candidate *c, const char *name, const char *what)
{
    c->outcome = EIDER_TUNE_WRONG;
    snprintf(c->reason, sizeof c->reason, "%.60s: %.95s", name, what);
}

static eider_status differs(struct eider_scratch *s, const void *a, const void *b, size_t bytes,
                            size_t *out)
{
    return s->call->device->backend->differs(s->call->device, s->stream, a, b, bytes, out);
}

static eider_status check_guards(struct eider_scratch *s, size_t i, struct eider_candidate *c)
{
    const struct eider_scratch_operand *o = &s->at[i];
    char *bands[] = {o->low - EIDER_GUARD_BYTES, o->low + o->span};
    for (int k = 0; k < 2; k++) {
        size_t first;
        EIDER_TRY(differs(s, bands[k], o->guard, EIDER_GUARD_BYTES, &first));
        if (first == EIDER_GUARD_BYTES) continue;
        char what[96];
        snprintf(what, sizeof what, "writes %s it", k ? "behind" : "before");
        reject(c, s->call->names[i], what);
        EIDER_TRY(eider_memory_copy(s->call->device, s->stream, bands[k], o->guard,
                                    EIDER_GUARD_BYTES, EIDER_DEVICE_TO_DEVICE));
    }
    return EIDER_OK;
}

/* ---- Values --------------------------------------------------------------------------- */

/* A config decides in which order a row is added up, and with it how the sum is rounded. */
static int adds_up(const struct eider_call *call)
{
    for (eider_node id = 1; call->graph && id < call->graph->n_cells; id++) {
        enum eider_op op = (enum eider_op)call->graph->cells[id].op;
        if (op == EIDER_OP_sum || op == EIDER_OP_mean || op == EIDER_OP_prod ||
            op == EIDER_OP_logsumexp || op == EIDER_OP_colsum)
            return 1;
    }
    return 0;
}

/* How far that may carry a value, relative to the largest one: some steps of the type. */
static double steps_of(eider_dtype type)
{
    switch (type) {
    case EIDER_F64:
        return 0x1p-44;
    case EIDER_F32:
        return 0x1p-15;
    case EIDER_F16:
        return 0x1p-9;
    case EIDER_BF16:
        return 0x1p-6;
    case EIDER_E4M3:
        return 0x1p-3;
    case EIDER_E5M2:
        return 0x1p-2;
    default:
        return 0;
    }
}

static double largest(eider_dtype type, const char *values, size_t n)
{
    double most = 0;
    for (size_t k = 0; k < n; k++) {
        double v = fabs(eider_element_get(type, values, k));
        if (isfinite(v) && v > most) most = v;
    }
    return most;
}

/* Element by element on the host: the first that is farther off than the tolerance allows. */
static void compare_values(struct eider_scratch *s, size_t i, const char *got, const char *want,
                           struct eider_candidate *c)
{
    eider_dtype type = s->args[i].type;
    size_t n = s->at[i].span / eider_dtype_size(type);
    double tolerance = s->call->request->tolerance, slack = 0;
    if (tolerance == 0 && adds_up(s->call)) slack = steps_of(type) * largest(type, want, n);
    for (size_t k = 0; k < n; k++) {
        double x = eider_element_get(type, got, k), y = eider_element_get(type, want, k);
        int is_same = x == y || (isnan(x) && isnan(y));
        double limit = slack + tolerance * (fabs(y) > 1 ? fabs(y) : 1);
        if (is_same || fabs(x - y) <= limit) continue;
        char what[96];
        snprintf(what, sizeof what, "element %zu is %.7g, the reference gives %.7g", k,
                 isnan(x) ? fabs(x) : x, isnan(y) ? fabs(y) : y);
        reject(c, s->call->names[i], what);
        return;
    }
}

static eider_status compare_on_host(struct eider_scratch *s, size_t i, struct eider_candidate *c)
{
    const struct eider_scratch_operand *o = &s->at[i];
    const eider_allocator *a = &s->call->ctx->allocator;
    char *both = eider_mem_alloc(a, 2 * o->span);
    if (!both) return EIDER_OOM;
    eider_status status =
        eider_memory_copy(s->call->device, s->stream, both, o->low, o->span, EIDER_DEVICE_TO_HOST);
    if (status == EIDER_OK)
        status = eider_memory_copy(s->call->device, s->stream, both + o->span, o->wanted, o->span,
                                   EIDER_DEVICE_TO_HOST);
    if (status == EIDER_OK) compare_values(s, i, both, both + o->span, c);
    eider_mem_free(a, both);
    return status;
}

static eider_status compare(struct eider_scratch *s, size_t i, struct eider_candidate *c)
{
    const struct eider_scratch_operand *o = &s->at[i];
    size_t first;
    EIDER_TRY(differs(s, o->low, o->wanted, o->span, &first));
    if (first == o->span) return EIDER_OK;
    if (o->is_source_input && o->role == EIDER_SCRATCH_READ) {
        reject(c, s->call->names[i], "is an input, and is written");
        return eider_memory_copy(s->call->device, s->stream, o->low, o->wanted, o->span,
                                 EIDER_DEVICE_TO_DEVICE);
    }
    return compare_on_host(s, i, c);
}

eider_status eider_gate_check(struct eider_scratch *s, struct eider_candidate *c)
{
    EIDER_TRY(eider_gate_run(s, c, 1));
    for (size_t i = 0; i < s->n; i++) {
        if (!s->at[i].block) continue;
        EIDER_TRY(check_guards(s, i, c));
        if (s->at[i].wanted && c->outcome != EIDER_TUNE_WRONG) EIDER_TRY(compare(s, i, c));
    }
    return EIDER_OK;
}

/* ---- The reference --------------------------------------------------------------------- */

/* Copies what the reference left, to the same place within a page. */
static eider_status keep(struct eider_scratch *s, size_t i)
{
    struct eider_scratch_operand *o = &s->at[i];
    eider_device *device = s->call->device;
    if (!o->wanted) EIDER_TRY(eider_memory_alloc(device, o->span, &o->wanted));
    return eider_memory_copy(device, s->stream, o->wanted, o->low, o->span, EIDER_DEVICE_TO_DEVICE);
}

eider_status eider_gate_open(struct eider_scratch *s, const struct eider_candidate *reference)
{
    const eider_tune_request *r = s->call->request;
    for (size_t i = 0; i < s->n; i++) /* inputs as they are before anybody ran */
        if (s->at[i].block && s->at[i].is_source_input && s->at[i].role == EIDER_SCRATCH_READ)
            EIDER_TRY(keep(s, i));
    EIDER_TRY(eider_gate_run(s, reference, 1));
    for (size_t i = 0; i < s->n; i++) {
        int is_written = s->at[i].role != EIDER_SCRATCH_READ;
        if (s->at[i].block && is_written && s->at[i].span) EIDER_TRY(keep(s, i));
    }
    return r->check_program && s->call->graph ? eider_evaluate(s) : EIDER_OK;
}
