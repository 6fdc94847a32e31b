/* scratch.c -- see scratch.h. */
#include "scratch.h"

#include <string.h>

#include "element.h"

#define GUARD_BYTE 0x5a
#define PAGE 256                     /* blocks keep the caller's place within this many bytes */
#define MADE_BYTES ((size_t)1 << 20) /* made-up values repeat after about this much */

void eider_scratch_span(const eider_tensor *t, size_t *out_before, size_t *out_span)
{
    size_t before = 0, after = 0, size = eider_dtype_size(t->type);
    int64_t stride = 1;
    *out_before = *out_span = 0;
    for (int d = t->rank - 1; d >= 0; d--) {
        int64_t step = t->strides ? t->strides[d] : stride;
        if (t->shape[d] == 0) return;
        size_t reach = (size_t)(t->shape[d] - 1) * (size_t)(step < 0 ? -step : step) * size;
        *(step < 0 ? &before : &after) += reach;
        stride *= t->shape[d];
    }
    *out_before = before;
    *out_span = before + after + size;
}

static int is_scalar(const struct eider_scratch *s, size_t i)
{
    return s->call->kinds[i] == EIDER_SCALAR;
}

static const struct eider_backend *backend_of(const struct eider_scratch *s)
{
    return s->call->device->backend;
}

/* ---- Blocks -------------------------------------------------------------------- */

static eider_status alloc(struct eider_scratch *s, size_t bytes, void **out)
{
    eider_status status = eider_memory_alloc(s->call->device, bytes, out);
    if (status == EIDER_OOM) eider_fail_prefix("scratch memory for tuning: ");
    return status;
}

/* Memory of our own for operand `i`, where the caller's lies within its page. */
static eider_status make_block(struct eider_scratch *s, size_t i)
{
    struct eider_scratch_operand *o = &s->at[i];
    const eider_tensor *given = &s->call->kernel->args[i];
    size_t before;
    void *block;
    eider_scratch_span(given, &before, &o->span);
    EIDER_TRY(alloc(s, o->span + 2 * EIDER_GUARD_BYTES + 2 * PAGE, &block));
    o->block = block;
    uintptr_t want = given->data ? ((uintptr_t)given->data - before) % PAGE : 0;
    uintptr_t base = (uintptr_t)block + EIDER_GUARD_BYTES;
    o->low = o->block + EIDER_GUARD_BYTES + (want - base) % PAGE;
    s->args[i].data = o->low + before;
    return EIDER_OK;
}

/* Made-up values over the whole span of operand `i`, on the device. */
static eider_status make_values(struct eider_scratch *s, size_t i, size_t span, void *to)
{
    const eider_allocator *a = &s->call->ctx->allocator;
    eider_dtype type = s->args[i].type;
    size_t n = MADE_BYTES / eider_dtype_size(type) - 1; /* odd, so that rows differ */
    size_t bytes = n * eider_dtype_size(type);
    if (bytes > span) bytes = span;
    void *values = eider_mem_alloc(a, bytes + 1);
    if (!values) return EIDER_OOM;
    /* All configs of a program come from one template; those of a source may differ where
     * numbers are large. */
    eider_element_make(type, values, bytes / eider_dtype_size(type), i + 1, !s->call->graph);
    eider_status status = EIDER_OK;
    for (size_t at = 0; at < span && status == EIDER_OK; at += bytes) {
        size_t part = span - at < bytes ? span - at : bytes;
        status = eider_memory_copy(s->call->device, s->stream, (char *)to + at, values, part,
                                   EIDER_HOST_TO_DEVICE);
    }
    eider_mem_free(a, values);
    return status;
}

static const char *low_of(const eider_tensor *t)
{
    size_t before, span;
    eider_scratch_span(t, &before, &span);
    return t->data ? (const char *)t->data - before : NULL;
}

/* What operand `i` holds before a run: the caller's bytes, or made-up ones. */
static eider_status set_image(struct eider_scratch *s, size_t i)
{
    struct eider_scratch_operand *o = &s->at[i];
    o->image = low_of(&s->call->kernel->args[i]);
    if (o->image) return EIDER_OK;
    EIDER_TRY(alloc(s, o->span, &o->made));
    o->image = o->made;
    return make_values(s, i, o->span, o->made);
}

/* ---- Roles ----------------------------------------------------------------------- */

/* The output that exactly covers input `i`, or n. */
static size_t sharer(const struct eider_scratch *s, size_t i)
{
    const eider_tensor *args = s->call->kernel->args;
    size_t before, span, other_span;
    eider_scratch_span(&args[i], &before, &span);
    for (size_t k = 0; k < s->n && args[i].data; k++) {
        if (s->call->kinds[k] != EIDER_OUTPUT || k == i) continue;
        eider_scratch_span(&args[k], &before, &other_span);
        if (args[k].data && low_of(&args[k]) == low_of(&args[i]) && span == other_span) return k;
    }
    return s->n;
}

static eider_status open_output(struct eider_scratch *s, size_t i, uint64_t restore, uint64_t reset)
{
    struct eider_scratch_operand *o = &s->at[i];
    o->role = reset >> i & 1     ? EIDER_SCRATCH_RESET
              : restore >> i & 1 ? EIDER_SCRATCH_RESTORE
                                 : EIDER_SCRATCH_OUTPUT;
    EIDER_TRY(make_block(s, i));
    return o->role == EIDER_SCRATCH_OUTPUT ? EIDER_OK : set_image(s, i);
}

/* An input after the outputs: one that an output covers is that output's block. */
static eider_status open_input(struct eider_scratch *s, size_t i, uint64_t restore, uint64_t reset)
{
    struct eider_scratch_operand *o = &s->at[i];
    size_t shared = sharer(s, i), before, span;
    const eider_tensor *given = &s->call->kernel->args[i];
    if (shared < s->n) {
        eider_scratch_span(given, &before, &span);
        s->args[i].data = s->at[shared].low + before;
        if (s->at[shared].role != EIDER_SCRATCH_OUTPUT) return EIDER_OK;
        s->at[shared].role = EIDER_SCRATCH_RESTORE; /* in place */
        return set_image(s, shared);
    }
    o->is_source_input = !s->call->graph;
    if ((restore | reset) >> i & 1)
        o->role = reset >> i & 1 ? EIDER_SCRATCH_RESET : EIDER_SCRATCH_RESTORE;
    if (!o->is_source_input && given->data && o->role == EIDER_SCRATCH_READ) return EIDER_OK;
    EIDER_TRY(make_block(s, i));
    if (o->role == EIDER_SCRATCH_READ && !given->data) return make_values(s, i, o->span, o->low);
    EIDER_TRY(set_image(s, i));
    return eider_memory_copy(s->call->device, s->stream, o->low, o->image, o->span,
                             EIDER_DEVICE_TO_DEVICE);
}

/* ---- Guards ---------------------------------------------------------------------- */

/* Each operand has a byte of its own, so that what is copied from one guard band into
 * another is seen. */
static eider_status fill_guards(struct eider_scratch *s)
{
    const struct eider_backend *backend = backend_of(s);
    eider_device *device = s->call->device;
    EIDER_TRY(alloc(s, s->n * EIDER_GUARD_BYTES, &s->guards));
    for (size_t i = 0; i < s->n; i++) {
        struct eider_scratch_operand *o = &s->at[i];
        if (!o->block) continue;
        o->guard = (char *)s->guards + i * EIDER_GUARD_BYTES;
        char *bands[] = {o->guard, o->low - EIDER_GUARD_BYTES, o->low + o->span};
        for (int k = 0; k < 3; k++)
            EIDER_TRY(backend->fill(device, s->stream, bands[k], (unsigned char)(GUARD_BYTE + i),
                                    EIDER_GUARD_BYTES));
    }
    return EIDER_OK;
}

/* ---- Life -------------------------------------------------------------------------- */

static eider_status open_operands(struct eider_scratch *s)
{
    uint64_t restore, reset;
    const eider_tune_request *r = s->call->request;
    EIDER_TRY(eider_call_operands(s->call, "restore", r->restore, &restore));
    EIDER_TRY(eider_call_operands(s->call, "reset_to_zero", r->reset_to_zero, &reset));
    for (size_t i = 0; i < s->n; i++)
        if (s->call->kinds[i] == EIDER_OUTPUT) EIDER_TRY(open_output(s, i, restore, reset));
    for (size_t i = 0; i < s->n; i++)
        if (s->call->kinds[i] == EIDER_INPUT) EIDER_TRY(open_input(s, i, restore, reset));
    EIDER_TRY(fill_guards(s));
    /* Twice the L2 cache: whatever its replacement does, nothing of ours stays.  Where a
     * backend queues its work, this also gives the host a lead (measure.c). */
    int is_needed = !r->hot || backend_of(s)->asynchronous;
    s->flush_bytes = is_needed ? 2 * s->call->device->info.l2_bytes : 0;
    return s->flush_bytes ? alloc(s, s->flush_bytes, &s->flush) : EIDER_OK;
}

eider_status eider_scratch_open(const struct eider_call *call, struct eider_scratch *out)
{
    *out = (struct eider_scratch){.call = call, .n = call->n};
    memcpy(out->args, call->kernel->args, call->n * sizeof out->args[0]);
    eider_status status = eider_stream_create(call->device, &out->stream);
    if (status == EIDER_OK) status = open_operands(out);
    if (status == EIDER_OK) status = eider_stream_wait(call->device, out->stream);
    if (status != EIDER_OK) eider_scratch_close(out);
    return status;
}

void eider_scratch_close(struct eider_scratch *s)
{
    eider_device *device = s->call ? s->call->device : NULL;
    if (!device) return;
    for (size_t i = 0; i < s->n; i++) {
        eider_memory_free(device, s->at[i].block);
        eider_memory_free(device, s->at[i].made);
        eider_memory_free(device, s->at[i].wanted);
    }
    eider_memory_free(device, s->guards);
    eider_memory_free(device, s->flush);
    eider_stream_destroy(device, s->stream);
    *s = (struct eider_scratch){0};
}

/* ---- Before a run -------------------------------------------------------------------- */

static int zeroes(const struct eider_scratch *s, size_t i, const char *config)
{
    const eider_tune_hooks *hooks = &s->call->request->hooks;
    return !hooks->resets || hooks->resets(hooks->user, i, config);
}

eider_status eider_scratch_reset(struct eider_scratch *s, const char *config, int poison)
{
    const struct eider_backend *backend = backend_of(s);
    eider_device *device = s->call->device;
    for (size_t i = 0; i < s->n; i++) {
        const struct eider_scratch_operand *o = &s->at[i];
        if (is_scalar(s, i) || !o->block || o->span == 0) continue;
        if (o->role == EIDER_SCRATCH_OUTPUT && poison >= 0)
            EIDER_TRY(backend->fill(device, s->stream, o->low, (unsigned char)poison, o->span));
        if (o->role == EIDER_SCRATCH_RESET && zeroes(s, i, config))
            EIDER_TRY(backend->fill(device, s->stream, o->low, 0, o->span));
        else if (o->role == EIDER_SCRATCH_RESTORE || o->role == EIDER_SCRATCH_RESET)
            EIDER_TRY(eider_memory_copy(device, s->stream, o->low, o->image, o->span,
                                        EIDER_DEVICE_TO_DEVICE));
    }
    return EIDER_OK;
}

eider_status eider_scratch_flush(struct eider_scratch *s)
{
    if (!s->flush_bytes) return EIDER_OK;
    return backend_of(s)->fill(s->call->device, s->stream, s->flush, ++s->n_flushes,
                               s->flush_bytes);
}
