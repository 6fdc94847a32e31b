/* call.c -- see call.h. */
#include "call.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "graph.h"
#include "passes.h"
#include "program.h"

static eider_status check(const eider_tune_request *r)
{
    if (r->search < EIDER_SEARCH_AUTO || r->search > EIDER_SEARCH_DIRECTED)
        return eider_fail(EIDER_BAD_ARG, "eider_tune: search %d is none", (int)r->search);
    if (r->limit < 0 || r->rounds < 0 || r->warm_up_runs < 0 || r->keep < 0 ||
        r->job_deadline_ms < 0 || !(r->budget_s >= 0) || !(r->repeat_ms >= 0) || !(r->tie >= 0) ||
        !(r->tolerance >= 0))
        return eider_fail(EIDER_BAD_ARG,
                          "eider_tune: limit, keep, rounds, warm_up_runs, repeat_ms, "
                          "job_deadline_ms, budget_s, tie and tolerance may not be negative");
    if (isinf(r->budget_s) || isinf(r->repeat_ms)) /* which no record can hold */
        return eider_fail(EIDER_BAD_ARG, "eider_tune: budget_s and repeat_ms must be finite");
    if (r->keep && !r->hooks.predict)
        return eider_fail(EIDER_BAD_ARG, "eider_tune: keep is %d and hooks.predict is NULL",
                          (int)r->keep);
    if (r->n_configs && !r->configs)
        return eider_fail(EIDER_BAD_ARG, "eider_tune: n_configs is %zu and configs is NULL",
                          r->n_configs);
    for (size_t i = 0; i < r->n_configs; i++)
        if (!r->configs[i]) return eider_fail(EIDER_BAD_ARG, "eider_tune: config %zu is NULL", i);
    for (size_t i = 0; i < r->n_functions; i++)
        if (!r->functions[i].name || !r->functions[i].call)
            return eider_fail(EIDER_BAD_ARG, "eider_tune: function %zu has no name or no call", i);
    return EIDER_OK;
}

static void name_operands(struct eider_call *call)
{
    const eider_source *source = call->kernel->source;
    for (size_t i = 0; i < call->n; i++) {
        const char *name = source ? source->operands[i].name : call->graph->operands[i].name;
        call->kinds[i] = source ? source->operands[i].kind : call->graph->operands[i].kind;
        snprintf(call->name_of_unnamed[i], sizeof call->name_of_unnamed[i], "arg%zu", i % 100);
        call->names[i] = name && *name ? name : call->name_of_unnamed[i];
    }
}

static eider_status check_args(const struct eider_call *call)
{
    for (size_t i = 0; i < call->n; i++) {
        const eider_tensor *t = &call->kernel->args[i];
        if (!eider_dtype_name(t->type))
            return eider_fail(EIDER_TYPE, "%s has type %d, which is none", call->names[i],
                              (int)t->type);
        if (t->rank < 0 || t->rank > EIDER_RANK_MAX || (t->rank && !t->shape))
            return eider_fail(EIDER_SHAPE, "%s has rank %d and %s shape", call->names[i], t->rank,
                              t->shape ? "a" : "no");
        for (int d = 0; d < t->rank; d++)
            if (t->shape[d] < 0)
                return eider_fail(EIDER_SHAPE, "%s has the extent %lld", call->names[i],
                                  (long long)t->shape[d]);
    }
    return EIDER_OK;
}

eider_status eider_call_open(eider_device *device, const eider_tune_request *request,
                             struct eider_call *out)
{
    const eider_request *kernel = request->kernel;
    *out = (struct eider_call){
        .ctx = device->ctx, .device = device, .request = request, .kernel = kernel};
    if (!kernel) return eider_fail(EIDER_BAD_ARG, "eider_tune: kernel is NULL");
    EIDER_TRY(check(request));
    EIDER_TRY(eider_pairs_parse("config", kernel->config, &out->fixed));
    eider_request open = *kernel;
    if (kernel->source) open.config = NULL;
    EIDER_TRY(eider_prepare_plan(device->ctx, device, &open, &out->plan));
    out->plan.request = kernel;
    out->graph = out->plan.graph;
    out->n = kernel->source ? kernel->source->n_operands : out->graph->n_operands;
    if (kernel->n_args != out->n || (out->n && !kernel->args))
        return eider_fail(EIDER_BAD_ARG, "%zu arguments, the kernel has %zu operands",
                          kernel->args ? kernel->n_args : 0, out->n);
    name_operands(out);
    return check_args(out);
}

struct eider_expr_scope eider_call_scope(const struct eider_call *call,
                                         const struct eider_pairs *config)
{
    return (struct eider_expr_scope){.n_operands = call->n,
                                     .names = call->names,
                                     .kinds = call->kinds,
                                     .args = call->kernel->args,
                                     .config = config};
}

eider_status eider_call_operands(const struct eider_call *call, const char *what, const char *text,
                                 uint64_t *out)
{
    const char *at = text ? text : "";
    *out = 0;
    while (*at) {
        while (*at == ' ') at++;
        size_t n = eider_pairs_word(at), i = 0;
        while (i < call->n && (strlen(call->names[i]) != n || memcmp(call->names[i], at, n) != 0))
            i++;
        if (n == 0 || i == call->n || call->kinds[i] == EIDER_SCALAR)
            return eider_fail(EIDER_PARSE, "%s: %zu: expected the name of a tensor in '%s'", what,
                              (size_t)(at - text) + 1, text);
        *out |= UINT64_C(1) << i;
        at += n;
        while (*at == ' ') at++;
        if (*at && *at != ',')
            return eider_fail(EIDER_PARSE, "%s: %zu: expected ',', found '%c'", what,
                              (size_t)(at - text) + 1, *at);
        if (*at) at++;
    }
    return EIDER_OK;
}

/* ---- Configs --------------------------------------------------------------- */

static eider_status read_math(const char *text, eider_math *out)
{
    for (int i = EIDER_MATH_APPROX; i <= EIDER_MATH_EXACT; i++) {
        if (strcmp(text, eider_math_names[i]) != 0) continue;
        *out = (eider_math)i;
        return EIDER_OK;
    }
    return eider_fail(EIDER_CONFIG, "config: math=%s is not one of approx|fast|exact", text);
}

eider_math eider_call_math(const struct eider_call *call, const char *config)
{
    eider_math math = call->plan.math;
    char name[8];
    if (call->graph && strncmp(config, "math=", 5) == 0) {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(config + 5, ","), config + 5);
        (void)read_math(name, &math);
    }
    return math;
}

/* The config without the math mode, which is no parameter of a template. */
static const char *parameters_of(const struct eider_call *call, const char *config)
{
    if (!call->graph || strncmp(config, "math=", 5) != 0) return config;
    config += strcspn(config, ",");
    return *config ? config + 1 : config;
}

eider_status eider_call_complete(const struct eider_call *call, const struct eider_pairs *config,
                                 char *buffer)
{
    struct eider_pairs rest = *config;
    eider_request request = *call->kernel;
    struct eider_plan plan;
    char text[EIDER_PAIRS_TEXT_BYTES];
    if (!call->graph) {
        eider_pairs_sort(&rest);
        eider_pairs_print(&rest, buffer);
        return EIDER_OK;
    }
    const char *math = eider_pairs_get(config, "math");
    size_t length = 0;
    if (math) {
        EIDER_TRY(read_math(math, &request.numerics.math));
        length = (size_t)snprintf(buffer, EIDER_PAIRS_TEXT_BYTES, "math=%s,", math);
        eider_pairs_remove(&rest, "math");
    }
    eider_pairs_print(&rest, text);
    request.config = text;
    EIDER_TRY(eider_prepare_plan(call->ctx, call->device, &request, &plan));
    for (int p = 0; p < EIDER_PARAM_COUNT; p++)
        if (!(plan.shape->uses >> p & 1)) plan.config.choice[p] = -1; /* the same kernel */
    eider_config_print(&plan.config, buffer + length);
    return EIDER_OK;
}

/* ---- Sources --------------------------------------------------------------- */

/* Replaces every ${name}; what is no name, as ${0:x} of inline assembly, stays. */
static eider_status replace_names(const struct eider_call *call, const char *text, size_t size,
                                  const struct eider_pairs *config, struct eider_text *out)
{
    size_t from = 0;
    for (size_t i = 0; i + 2 < size; i++) {
        if (text[i] != '$' || text[i + 1] != '{') continue;
        size_t n = eider_pairs_word(text + i + 2);
        int is_digit = text[i + 2] >= '0' && text[i + 2] <= '9';
        if (n == 0 || n >= EIDER_PAIR_BYTES || is_digit || text[i + 2 + n] != '}') continue;
        char name[EIDER_PAIR_BYTES];
        snprintf(name, sizeof name, "%.*s", (int)n, text + i + 2);
        const char *value = eider_pairs_get(config, name);
        if (!value)
            return eider_fail(EIDER_CONFIG, "%s: the text has ${%s}, the config has no %s",
                              call->kernel->source->entry, name, name);
        eider_text_bytes(out, text + from, i - from);
        eider_text_bytes(out, value, strlen(value));
        i += n + 2;
        from = i + 1;
    }
    eider_text_bytes(out, text + from, size - from);
    return out->status;
}

static eider_status replace(const struct eider_call *call, const struct eider_pairs *config,
                            struct eider_call_request *out)
{
    const eider_source *source = call->kernel->source;
    struct eider_text text;
    size_t size;
    if (source->kind != EIDER_SOURCE_LL && source->kind != EIDER_SOURCE_PTX) return EIDER_OK;
    eider_text_init(&text, &call->ctx->allocator);
    eider_status status = replace_names(
        call, source->data, source->size ? source->size : strlen(source->data), config, &text);
    if (status == EIDER_OK) status = eider_text_take(&text, &out->text, &size);
    eider_text_release(&text);
    if (status != EIDER_OK) return status;
    out->source.data = out->text;
    out->source.size = size;
    return EIDER_OK;
}

/* Up to `n` whole numbers that fit 32 bits. */
static eider_status read_numbers(const struct eider_call *call, const char *what, const char *text,
                                 const struct eider_pairs *config, int n, uint32_t *out)
{
    struct eider_expr_scope scope = eider_call_scope(call, config);
    const char *at = text;
    for (int i = 0; i < n; i++) {
        struct eider_expr_value v;
        EIDER_TRY(eider_expr_eval(what, text, &at, &scope, NULL, &v));
        if (v.kind != EIDER_EXPR_NUMBER || v.number < 0 || v.number > UINT32_MAX ||
            v.number != (double)(uint32_t)v.number)
            return eider_fail(EIDER_CONFIG,
                              "%s: '%s' gives %s, which is no whole number below 2^32", what, text,
                              v.text);
        out[i] = (uint32_t)v.number;
        if (!*at) return EIDER_OK;
        at++;
    }
    return eider_fail(EIDER_PARSE, "%s: more than %d expressions in '%s'", what, n, text);
}

static eider_status find_geometry(const struct eider_call *call, const struct eider_pairs *config,
                                  struct eider_call_request *out)
{
    const eider_tune_request *r = call->request;
    const eider_source *source = call->kernel->source;
    eider_geometry *g = &out->geometry;
    *g = (eider_geometry){.grid = {1, 1, 1}, .shared_bytes = source->shared_bytes};
    memcpy(g->block, source->block, sizeof g->block);
    if (r->hooks.geometry) {
        EIDER_TRY(r->hooks.geometry(r->hooks.user, out->config, call->kernel->args, call->n, g));
    } else {
        if (!r->grid) return eider_fail(EIDER_BAD_ARG, "eider_tune: a source needs a grid");
        EIDER_TRY(read_numbers(call, "grid", r->grid, config, 3, g->grid));
        if (r->block) EIDER_TRY(read_numbers(call, "block", r->block, config, 3, g->block));
        if (r->shared)
            EIDER_TRY(read_numbers(call, "shared", r->shared, config, 1, &g->shared_bytes));
    }
    memcpy(out->source.block, g->block, sizeof g->block);
    out->source.shared_bytes = g->shared_bytes;
    return EIDER_OK;
}

eider_status eider_call_request(const struct eider_call *call, const char *config,
                                struct eider_call_request *out)
{
    struct eider_pairs pairs;
    *out = (struct eider_call_request){.request = *call->kernel};
    out->request.checked = 0; /* scratch operands are no finding */
    snprintf(out->config, sizeof out->config, "%s", parameters_of(call, config));
    out->request.config = out->config;
    if (call->graph) {
        out->request.numerics.math = eider_call_math(call, config);
        return EIDER_OK;
    }
    out->source = *call->kernel->source;
    out->request.source = &out->source;
    EIDER_TRY(eider_pairs_parse("config", config, &pairs));
    EIDER_TRY(find_geometry(call, &pairs, out));
    return replace(call, &pairs, out);
}

void eider_call_request_release(const struct eider_call *call, struct eider_call_request *r)
{
    eider_mem_free(&call->ctx->allocator, r->text);
    r->text = NULL;
}
