/* space.c -- see space.h. */
#include "space.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "code_cache.h"
#include "passes.h"

#define AXES_MAX EIDER_PAIRS_MAX
#define VALUES_MAX 64
#define ARENA_BYTES_MAX ((size_t)1 << 30)

struct axis {
    char name[EIDER_PAIR_BYTES];
    size_t n;
    char values[VALUES_MAX][EIDER_PAIR_BYTES];
};

struct product {
    size_t n;
    struct axis at[AXES_MAX];
};

/* Candidates on their way in. */
struct builder {
    const struct eider_call *call;
    struct eider_space *space;
    size_t room;
    int likely;      /* what is added is */
    size_t n_seen;   /* configs before conditions and checks */
    char first[256]; /* why the first invalid one was */
};

/* What the caller expects of a candidate. */
struct promise {
    double guess;
    size_t i;
};

/* ---- The text of a space ------------------------------------------------- */

static eider_status parse_word(const char *text, const char **at, char out[EIDER_PAIR_BYTES])
{
    size_t n = eider_pairs_word(*at);
    if (n == 0 || n >= EIDER_PAIR_BYTES)
        return eider_fail(EIDER_PARSE, "space: %zu: expected a name or value in '%s'",
                          (size_t)(*at - text) + 1, text);
    memcpy(out, *at, n);
    out[n] = '\0';
    *at += n;
    return EIDER_OK;
}

static eider_status parse_axis(const char *text, const char **at, struct axis *out)
{
    out->n = 0;
    EIDER_TRY(parse_word(text, at, out->name));
    if (**at != '=')
        return eider_fail(EIDER_PARSE, "space: %zu: expected '=' after %s",
                          (size_t)(*at - text) + 1, out->name);
    do {
        ++*at;
        if (out->n == VALUES_MAX)
            return eider_fail(EIDER_TOO_LARGE, "space: more than %d values of %s", VALUES_MAX,
                              out->name);
        EIDER_TRY(parse_word(text, at, out->values[out->n]));
        out->n++;
    } while (**at == '|');
    if (**at && **at != ',')
        return eider_fail(EIDER_PARSE, "space: %zu: expected '|' or ',', found '%c'",
                          (size_t)(*at - text) + 1, **at);
    if (**at) ++*at;
    return EIDER_OK;
}

static eider_status parse_product(const char *text, struct product *out)
{
    out->n = 0;
    for (const char *at = text; *at;) {
        if (out->n == AXES_MAX)
            return eider_fail(EIDER_TOO_LARGE, "space: more than %d parameters", AXES_MAX);
        struct axis *axis = &out->at[out->n];
        EIDER_TRY(parse_axis(text, &at, axis));
        for (size_t i = 0; i < out->n; i++)
            if (strcmp(out->at[i].name, axis->name) == 0)
                return eider_fail(EIDER_PARSE, "space: %s is there twice", axis->name);
        out->n++;
    }
    return EIDER_OK;
}

/* What the caller fixed is fixed; that it must be in a list that the caller gave as well is
 * what tells a decision from a mistake. */
static eider_status fix(struct axis *axis, const char *value, int is_default)
{
    size_t i = 0;
    while (i < axis->n && strcmp(axis->values[i], value) != 0) i++;
    if (i == axis->n && !is_default)
        return eider_fail(EIDER_CONFIG, "%s=%s is fixed, but the space does not have it",
                          axis->name, value);
    snprintf(axis->values[0], sizeof axis->values[0], "%s", value);
    axis->n = 1;
    return EIDER_OK;
}

/* ---- Adding candidates ------------------------------------------------------ */

static eider_status keeps(const struct builder *b, const struct eider_pairs *config,
                          const char *text, int *out)
{
    const eider_tune_request *r = b->call->request;
    struct eider_expr_scope scope = eider_call_scope(b->call, config);
    struct eider_expr_value v = {.number = 1};
    const char *at = r->condition;
    if (at) {
        EIDER_TRY(eider_expr_eval("condition", r->condition, &at, &scope, NULL, &v));
        if (*at || v.kind != EIDER_EXPR_NUMBER)
            return eider_fail(EIDER_PARSE, "condition: '%s' is not one true or false expression",
                              r->condition);
    }
    *out =
        v.number != 0 && (!r->hooks.accepts ||
                          r->hooks.accepts(r->hooks.user, text, b->call->kernel->args, b->call->n));
    return EIDER_OK;
}

static eider_status append(struct builder *b, const char *config)
{
    struct eider_space *s = b->space;
    if (s->n == EIDER_SPACE_MAX)
        return eider_fail(EIDER_TOO_LARGE, "a space of more than %d configs", EIDER_SPACE_MAX);
    if (s->n == b->room) {
        size_t room = b->room ? 2 * b->room : 64;
        struct eider_candidate *grown =
            eider_mem_resize(&s->arena.allocator, s->at, room * sizeof *grown);
        if (!grown) return EIDER_OOM;
        s->at = grown;
        b->room = room;
    }
    const char *kept = eider_arena_text(&s->arena, config, strlen(config));
    if (!kept) return EIDER_OOM;
    s->at[s->n++] = (struct eider_candidate){.config = kept, .likely = b->likely};
    return EIDER_OK;
}

/* Completes a config and adds it, unless it cannot work or is not wanted. */
static eider_status add(struct builder *b, const struct eider_pairs *config)
{
    char text[EIDER_PAIRS_TEXT_BYTES];
    struct eider_pairs complete;
    int keep = 0;
    b->n_seen++;
    if (b->call->graph && eider_pairs_get(config, "math") && b->call->request->tolerance == 0)
        return eider_fail(EIDER_CONFIG, "math is not tuned without a tolerance");
    eider_status status = eider_call_complete(b->call, config, text);
    if (status == EIDER_CONFIG) {
        if (!b->first[0]) snprintf(b->first, sizeof b->first, "%.250s", eider_error());
        return EIDER_OK;
    }
    if (status != EIDER_OK) return status;
    EIDER_TRY(eider_pairs_parse("config", text, &complete));
    EIDER_TRY(keeps(b, &complete, text, &keep));
    if (!keep && !b->first[0])
        snprintf(b->first, sizeof b->first, "the condition rejects %.200s", text);
    return keep ? append(b, text) : EIDER_OK;
}

static eider_status add_product(struct builder *b, const struct product *p)
{
    size_t digit[AXES_MAX] = {0}, i, total = 1;
    for (i = 0; i < p->n; i++) {
        total *= p->at[i].n;
        if (total > EIDER_SPACE_MAX)
            return eider_fail(EIDER_TOO_LARGE, "a space of more than %d configs", EIDER_SPACE_MAX);
    }
    do {
        struct eider_pairs config = b->call->fixed;
        for (i = 0; i < p->n; i++)
            EIDER_TRY(eider_pairs_set(&config, p->at[i].name, p->at[i].values[digit[i]]));
        EIDER_TRY(add(b, &config));
        for (i = 0; i < p->n && ++digit[i] == p->at[i].n; i++) digit[i] = 0;
    } while (i < p->n);
    return EIDER_OK;
}

static eider_status add_space(struct builder *b, const char *text, int is_default)
{
    const struct eider_call *call = b->call;
    struct product *p = eider_mem_zero(&call->ctx->allocator, sizeof *p);
    if (!p) return EIDER_OOM;
    eider_status status = parse_product(text, p);
    if (status == EIDER_OK && call->graph && call->request->tolerance > 0) {
        size_t i = 0;
        while (i < p->n && strcmp(p->at[i].name, "math") != 0) i++;
        if (i == p->n && p->n < AXES_MAX)
            p->at[p->n++] = (struct axis){"math", 3, {"approx", "fast", "exact"}};
    }
    for (size_t i = 0; i < p->n && status == EIDER_OK; i++) {
        const char *value = eider_pairs_get(&call->fixed, p->at[i].name);
        if (value) status = fix(&p->at[i], value, is_default);
    }
    if (status == EIDER_OK) status = add_product(b, p);
    eider_mem_free(&call->ctx->allocator, p);
    return status;
}

/* A listed config; one that contradicts what is fixed is not a candidate. */
static eider_status add_listed(struct builder *b, const char *text)
{
    const struct eider_pairs *fixed = &b->call->fixed;
    struct eider_pairs listed;
    EIDER_TRY(eider_pairs_parse("configs", text, &listed));
    for (size_t i = 0; i < fixed->n; i++) {
        const char *value = eider_pairs_get(&listed, fixed->at[i].name);
        if (value && strcmp(value, fixed->at[i].value) != 0) {
            b->n_seen++;
            if (!b->first[0])
                snprintf(b->first, sizeof b->first, "%s=%s is fixed, '%.100s' has another",
                         fixed->at[i].name, fixed->at[i].value, text);
            return EIDER_OK;
        }
        EIDER_TRY(eider_pairs_set(&listed, fixed->at[i].name, fixed->at[i].value));
    }
    return add(b, &listed);
}

/* ---- The whole --------------------------------------------------------------- */

static int by_config(const void *a, const void *b)
{
    return eider_pairs_compare(((const struct eider_candidate *)a)->config,
                               ((const struct eider_candidate *)b)->config);
}

static void sort_unique(struct eider_space *s)
{
    size_t n = 0;
    if (s->n) qsort(s->at, s->n, sizeof s->at[0], by_config);
    for (size_t i = 0; i < s->n; i++) {
        int is_new = n == 0 || strcmp(s->at[n - 1].config, s->at[i].config) != 0;
        int likely = s->at[i].likely || (!is_new && s->at[n - 1].likely);
        if (is_new) s->at[n++] = s->at[i];
        s->at[n - 1].likely = likely;
    }
    s->n = n;
}

static int by_promise(const void *a, const void *b)
{
    const struct promise *x = a, *y = b;
    if (x->guess != y->guess) return x->guess < y->guess ? -1 : 1;
    return x->i < y->i ? -1 : x->i > y->i;
}

/* Leaves the request's `keep` candidates of which the caller expects most, in their order. */
static eider_status keep_promising(const struct eider_call *call, struct eider_space *s)
{
    const eider_tune_request *r = call->request;
    size_t keep = (size_t)r->keep, n = 0;
    if (keep == 0 || keep >= s->n) return EIDER_OK;
    struct promise *all = eider_mem_alloc(&call->ctx->allocator, s->n * sizeof *all);
    if (!all) return EIDER_OOM;
    for (size_t i = 0; i < s->n; i++) {
        double guess =
            r->hooks.predict(r->hooks.user, s->at[i].config, call->kernel->args, call->n);
        all[i] = (struct promise){isnan(guess) ? (double)INFINITY : guess, i};
    }
    qsort(all, s->n, sizeof *all, by_promise);
    for (size_t i = 0; i < s->n; i++) {
        size_t k = 0;
        while (k < keep && all[k].i != i) k++;
        if (k < keep) s->at[n++] = s->at[i];
    }
    s->n = n;
    eider_mem_free(&call->ctx->allocator, all);
    return EIDER_OK;
}

/* What the template thinks worth timing, line by line, and the default rule's. */
static eider_status add_default(struct builder *b)
{
    const struct eider_plan *plan = &b->call->plan;
    struct eider_text text;
    char *lines = NULL, *rest = NULL;
    size_t size;
    eider_text_init(&text, &b->call->ctx->allocator);
    plan->shape->space(&plan->layout, plan->target, &plan->config, &text);
    eider_status status = eider_text_take(&text, &lines, &size);
    eider_text_release(&text);
    if (status != EIDER_OK) return status;
    for (char *line = strtok_r(lines, "\n", &rest); line && status == EIDER_OK;
         line = strtok_r(NULL, "\n", &rest)) {
        b->likely = *line == '*';
        status = add_space(b, line + b->likely, 1);
    }
    b->likely = 0;
    eider_mem_free(&b->call->ctx->allocator, lines);
    struct eider_pairs config = b->call->fixed;
    if (status == EIDER_OK && b->call->request->tolerance > 0 && plan->math != EIDER_MATH_AUTO)
        status = eider_pairs_set(&config, "math", eider_math_names[plan->math]);
    return status == EIDER_OK ? add(b, &config) : status;
}

static eider_status fill(struct builder *b)
{
    const eider_tune_request *r = b->call->request;
    int is_default = !r->space && !r->n_configs;
    if (is_default && !b->call->graph) return add(b, &b->call->fixed);
    if (is_default) EIDER_TRY(add_default(b));
    if (r->space) EIDER_TRY(add_space(b, r->space, 0));
    for (size_t i = 0; i < r->n_configs; i++) EIDER_TRY(add_listed(b, r->configs[i]));
    if (b->space->n) return EIDER_OK;
    return eider_fail(EIDER_CONFIG, "none of %zu configs can work here; the first: %s", b->n_seen,
                      b->first);
}

eider_status eider_space_create(const struct eider_call *call, struct eider_space *out)
{
    struct builder b = {.call = call, .space = out};
    *out = (struct eider_space){0};
    eider_arena_init(&out->arena, &call->ctx->allocator, ARENA_BYTES_MAX);
    eider_status status = fill(&b);
    if (status == EIDER_OK) {
        sort_unique(out);
        status = keep_promising(call, out);
    }
    if (status != EIDER_OK) eider_space_release(out);
    return status;
}

void eider_space_release(struct eider_space *space)
{
    for (size_t i = 0; i < space->n; i++) {
        struct eider_candidate *c = &space->at[i];
        if (c->kernel) eider_code_cache_forget(c->kernel->ctx->cache, c->kernel);
    }
    eider_mem_free(&space->arena.allocator, space->at);
    eider_arena_release(&space->arena);
    *space = (struct eider_space){0};
}

struct eider_candidate *eider_space_find(const struct eider_space *space, const char *config)
{
    struct eider_candidate wanted = {.config = config};
    if (!space->n) return NULL;
    return bsearch(&wanted, space->at, space->n, sizeof space->at[0], by_config);
}

eider_status eider_space_sample(struct eider_space *space, struct eider_candidate *c, double ns,
                                int32_t clock_khz)
{
    if (c->n_samples == c->room) { /* the smaller pieces stay in the arena until it goes */
        size_t room = c->room ? 2 * c->room : 32;
        double *samples = eider_arena_alloc(&space->arena, room * sizeof *samples);
        int32_t *clocks = eider_arena_alloc(&space->arena, room * sizeof *clocks);
        if (!samples || !clocks) return EIDER_OOM;
        if (c->n_samples) {
            memcpy(samples, c->samples, c->n_samples * sizeof *samples);
            memcpy(clocks, c->clocks, c->n_samples * sizeof *clocks);
        }
        c->samples = samples;
        c->clocks = clocks;
        c->room = room;
    }
    c->samples[c->n_samples] = ns;
    c->clocks[c->n_samples++] = clock_khz;
    return EIDER_OK;
}
