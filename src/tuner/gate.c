/* gate.c -- see gate.h. */
#include "gate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compare.h"
#include "element.h"
#include "evaluate.h"

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
    char what[96];
    EIDER_TRY(eider_compare(s, i, first, what, sizeof what));
    if (what[0]) reject(c, s->call->names[i], what);
    return EIDER_OK;
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

/* Sources are the caller's: what their sums may lose is said by the request's tolerance. */
static eider_status find_roundings(struct eider_scratch *s)
{
    eider_dtype types[EIDER_OPERANDS_MAX];
    struct eider_rounding roundings[EIDER_OPERANDS_MAX];
    if (!s->call->graph) return EIDER_OK;
    for (size_t i = 0; i < s->n; i++) types[i] = s->args[i].type;
    EIDER_TRY(eider_rounding_of(s->call->graph, &s->call->ctx->allocator, types, roundings));
    for (size_t i = 0; i < s->n; i++) s->at[i].rounding = roundings[i];
    return EIDER_OK;
}

eider_status eider_gate_open(struct eider_scratch *s, const struct eider_candidate *reference)
{
    const eider_tune_request *r = s->call->request;
    EIDER_TRY(find_roundings(s));
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
