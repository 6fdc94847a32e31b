/* prepare.c -- a request with every choice made, and its identity.
 *
 * Invariant: two requests of one process have the same identity exactly when they give
 * the same kernel, so finding a kernel that exists needs neither its text nor its
 * manifest.  The identity is for memory only; files are named by the manifest's key.
 */
#include <string.h>
#include <xxhash.h>

#include "arithmetic.h"
#include "code_cache.h"
#include "passes.h"
#include "program.h"
#include "recent.h"

/* What the default rule assumes of a GPU that is not there: an A100 up to sm_89, an
 * H100 from sm_90 on (multiprocessors and L2 from NVIDIA's data sheets). */
#define A100_UNITS 108
#define A100_L2_BYTES ((uint64_t)40 << 20)
#define H100_UNITS 132
#define H100_L2_BYTES ((uint64_t)50 << 20)

/* ---- Identity ---------------------------------------------------------- */

/* Everything that the code depends on, as bytes: numbers directly, texts by their hash. */
struct ingredients {
    unsigned char bytes[2048];
    size_t size;
};

_Static_assert(EIDER_OPERANDS_MAX *(12 + EIDER_RANK_MAX) + 512 < 2048,
               "the ingredients of the largest layout fit");

static void put(struct ingredients *in, const void *data, size_t size)
{
    memcpy(in->bytes + in->size, data, size);
    in->size += size;
}

static void put_number(struct ingredients *in, int32_t number)
{
    put(in, &number, sizeof number);
}

static void put_hash(struct ingredients *in, const void *data, size_t size)
{
    XXH128_hash_t hash = XXH3_128bits(data, size);
    put(in, &hash, sizeof hash);
}

static void put_text(struct ingredients *in, const char *text)
{
    put_hash(in, text ? text : "", text ? strlen(text) : 0);
}

static void put_layout(struct ingredients *in, const struct eider_layout *layout)
{
    put_number(in, (int32_t)layout->n_operands);
    put_number(in, layout->rank);
    put_number(in, layout->index_bits);
    put_number(in, layout->any);
    put_number(in, layout->vec_max);
    put_number(in, layout->checks);
    put_number(in, layout->aligned);
    put_number(in, layout->alike);
    put(in, &layout->length, sizeof layout->length);
    for (uint32_t i = 0; i < layout->n_operands; i++) {
        put_number(in,
                   (int32_t)layout->operands[i].kind + 256 * (int32_t)layout->operands[i].extent);
        put_number(in, layout->operands[i].type);
        put_number(in, (int32_t)layout->operands[i].align);
        put(in, layout->operands[i].stride_class, sizeof layout->operands[i].stride_class);
    }
}

static void put_source(struct ingredients *in, const eider_source *source, const char *config)
{
    put_number(in, source->kind);
    if (source->kind == EIDER_SOURCE_CALLBACK)
        put_text(in, source->identity);
    else
        put_hash(in, source->data, source->size ? source->size : strlen(source->data));
    put_text(in, source->entry);
    put_text(in, config);
    for (int i = 0; i < 3; i++) put_number(in, source->block[i] ? (int32_t)source->block[i] : 1);
    put_number(in, (int32_t)source->shared_bytes);
    for (size_t i = 0; i < source->n_operands; i++) {
        put_number(in, source->operands[i].kind);
        put_number(in, source->operands[i].type);
    }
}

static void set_identity(struct eider_plan *plan)
{
    const eider_request *request = plan->request;
    struct ingredients in;
    in.size = 0;
    put_number(&in, plan->target.sm);
    put_number(&in, plan->target.suffix);
    put_number(&in, plan->math);
    put_number(&in, plan->ftz);
    put_number(&in, plan->contract);
    put_number(&in, request->line_info != 0);
    put_text(&in,
             request->assembler && strcmp(request->assembler, "auto") ? request->assembler : NULL);
    if (request->source) {
        put_source(&in, request->source, request->config);
    } else {
        put_text(&in, eider_program_text(request->program));
        put_text(&in, plan->shape->name);
        put(&in, plan->config.choice, sizeof plan->config.choice);
        put_layout(&in, &plan->layout);
    }
    XXH128_hash_t hash = XXH3_128bits(in.bytes, in.size);
    plan->identity = (struct eider_hash){hash.low64, hash.high64};
}

/* ---- Choices ----------------------------------------------------------- */

static struct eider_device_facts facts_of(const struct eider_plan *plan)
{
    struct eider_device_facts facts = {.target = plan->target};
    if (plan->device) {
        facts.units = plan->device->info.units;
        facts.l2_bytes = plan->device->info.l2_bytes;
    } else if (plan->target.sm) {
        facts.units = plan->target.sm >= 90 ? H100_UNITS : A100_UNITS;
        facts.l2_bytes = plan->target.sm >= 90 ? H100_L2_BYTES : A100_L2_BYTES;
    } else {
        facts.units = 1;
    }
    return facts;
}

static int has_pick(const struct eider_graph *g)
{
    for (eider_node id = 1; id < g->n_cells; id++)
        if (g->cells[id].op == EIDER_OP_pick) return 1;
    return 0;
}

/* What the template does not have changes nothing: neither the kernel nor its launches. */
static void forget_unused(const struct eider_template *shape, struct eider_config *config)
{
    for (int p = 0; p < EIDER_PARAM_COUNT; p++)
        if (!(shape->uses >> p & 1)) config->choice[p] = EIDER_PARAM_UNSET;
}

static eider_status plan_program(struct eider_plan *plan)
{
    const eider_request *request = plan->request;
    eider_dtype types[EIDER_OPERANDS_MAX];
    struct eider_device_facts facts = facts_of(plan);
    plan->graph = request->program->expanded; /* so that no prepare expands it again */
    if (request->n_args != plan->graph->n_operands)
        return eider_fail(EIDER_BAD_ARG, "%zu arguments, the program has %u operands",
                          request->n_args, plan->graph->n_operands);
    if (!request->args && request->n_args)
        return eider_fail(EIDER_BAD_ARG, "the request has no args");
    plan->shape = eider_template_for(plan->graph);
    if (!plan->shape)
        return eider_fail(EIDER_UNSUPPORTED,
                          "a colsum needs a program of its own, with nothing but colsums and no "
                          "reduction along rows: split this one (eider_program_split; --part rows, "
                          "then --part columns)");
    EIDER_TRY(
        plan->shape->layout(plan->graph, request->args, request->any_layout != 0, &plan->layout));
    plan->layout.checks = request->checked && has_pick(plan->graph);
    plan->config = eider_config_unset();
    EIDER_TRY(eider_config_parse(request->config, &plan->config));
    forget_unused(plan->shape, &plan->config);
    plan->shape->defaults(&plan->layout, &facts, &plan->config);
    EIDER_TRY(plan->shape->check(&plan->layout, plan->target, &plan->config));
    for (uint32_t i = 0; i < plan->layout.n_operands; i++) types[i] = plan->layout.operands[i].type;
    plan->math = eider_math_resolve(plan->graph, types, request->numerics.math);
    return EIDER_OK;
}

static eider_status check_operands(const eider_source *source)
{
    if (source->n_operands > EIDER_OPERANDS_MAX)
        return eider_fail(EIDER_TOO_LARGE, "a source with %zu operands; %d are possible",
                          source->n_operands, EIDER_OPERANDS_MAX);
    if (source->n_operands && !source->operands)
        return eider_fail(EIDER_BAD_ARG, "the source has no operands, n_operands is %zu",
                          source->n_operands);
    for (size_t i = 0; i < source->n_operands; i++) {
        const eider_operand *operand = &source->operands[i];
        if (operand->kind < EIDER_INPUT || operand->kind > EIDER_OUTPUT)
            return eider_fail(EIDER_BAD_ARG, "operand %zu of the source: kind %d is none", i,
                              (int)operand->kind);
        if (operand->type >= 0 && !eider_dtype_name((eider_dtype)operand->type))
            return eider_fail(EIDER_BAD_ARG, "operand %zu of the source: type %d is none", i,
                              operand->type);
    }
    return EIDER_OK;
}

static eider_status plan_source(struct eider_plan *plan)
{
    const eider_source *source = plan->request->source;
    if (source->kind < EIDER_SOURCE_LL || source->kind > EIDER_SOURCE_CALLBACK)
        return eider_fail(EIDER_BAD_ARG, "a source of kind %d; there is none", (int)source->kind);
    if (!source->entry || !*source->entry)
        return eider_fail(EIDER_BAD_ARG, "the source names no entry");
    int is_callback = source->kind == EIDER_SOURCE_CALLBACK;
    if (is_callback && (!source->build || !source->identity))
        return eider_fail(EIDER_BAD_ARG, "a callback needs `build` and `identity`");
    if (!is_callback && !source->data) return eider_fail(EIDER_BAD_ARG, "the source has no data");
    if (source->kind == EIDER_SOURCE_BITCODE && source->size == 0)
        return eider_fail(EIDER_BAD_ARG, "bitcode needs a size");
    if (source->kind == EIDER_SOURCE_PTX && plan->target.sm == 0)
        return eider_fail(EIDER_UNSUPPORTED, "PTX does not run on the CPU");
    uint64_t threads = 1;
    for (int i = 0; i < 3; i++) {
        threads *= source->block[i] ? source->block[i] : 1;
        if (threads > 1024) /* of every GPU, and of our fibers */
            return eider_fail(EIDER_TOO_LARGE,
                              "a block of %u x %u x %u threads; 1024 are "
                              "possible",
                              source->block[0], source->block[1], source->block[2]);
    }
    plan->config = eider_config_unset();
    plan->math = plan->request->numerics.math;
    return check_operands(source);
}

static eider_status check_request(const eider_request *request)
{
    const eider_numerics *n = &request->numerics;
    if (!request->program == !request->source)
        return eider_fail(EIDER_BAD_ARG, "a request needs a program or a source, and not both");
    if (n->math < EIDER_MATH_AUTO || n->math > EIDER_MATH_EXACT)
        return eider_fail(EIDER_BAD_ARG, "numerics: math %d is none", (int)n->math);
    if (n->ftz < EIDER_DEFAULT || n->ftz > EIDER_ON || n->contract < EIDER_DEFAULT ||
        n->contract > EIDER_ON)
        return eider_fail(EIDER_BAD_ARG,
                          "numerics: ftz is %d and contract is %d; 0 to 2 are "
                          "possible",
                          (int)n->ftz, (int)n->contract);
    return EIDER_OK;
}

/* Makes every choice; plan->ctx, device, request and target are set. */
static eider_status complete(struct eider_plan *plan)
{
    plan->ftz = plan->request->numerics.ftz == EIDER_ON;
    plan->contract = plan->request->numerics.contract != EIDER_OFF;
    if (plan->request->source)
        EIDER_TRY(plan_source(plan));
    else
        EIDER_TRY(plan_program(plan));
    set_identity(plan);
    return EIDER_OK;
}

eider_status eider_prepare_plan(eider_context *ctx, eider_device *device,
                                const eider_request *request, struct eider_plan *out)
{
    struct eider_arithmetic host;
    EIDER_TRY(eider_context_check(ctx));
    EIDER_TRY(check_request(request));
    *out = (struct eider_plan){.ctx = ctx, .device = device, .request = request};
    if (request->target)
        EIDER_TRY(eider_target_parse(request->target, &out->target));
    else if (device)
        out->target = device->target;
    else
        return eider_fail(EIDER_BAD_ARG, "eider_compile: no target is given");
    if (device && out->target.sm != device->target.sm)
        return eider_fail(EIDER_TARGET, "target %s is not that of the device, %s", request->target,
                          device->info.target);
    eider_arithmetic_enter(&host);
    eider_status status = complete(out);
    eider_arithmetic_leave(&host);
    return status;
}

static eider_status get_kernel(eider_context *ctx, eider_device *device,
                               const eider_request *request, eider_kernel **out)
{
    struct eider_plan plan;
    struct eider_recent_key key;
    EIDER_TRY(eider_context_check(ctx));
    struct eider_kernel *kernel = eider_recent_find(ctx->recent, device, request, &key);
    if (kernel) {
        eider_context_count(ctx, EIDER_COUNT_MEMORY_HITS);
        *out = kernel;
        return EIDER_OK;
    }
    EIDER_TRY(eider_prepare_plan(ctx, device, request, &plan));
    EIDER_TRY(eider_code_cache_get(ctx->cache, &plan, out));
    eider_recent_keep(ctx->recent, &key, device, *out);
    return EIDER_OK;
}

/* ---- Public ------------------------------------------------------------ */

eider_status eider_prepare(eider_device *device, const eider_request *request, eider_kernel **out)
{
    if (!device || !request || !out)
        return eider_fail(EIDER_BAD_ARG, "eider_prepare: NULL argument");
    return get_kernel(device->ctx, device, request, out);
}

eider_status eider_compile(eider_context *ctx, const eider_request *request, eider_kernel **out)
{
    if (!ctx || !request || !out) return eider_fail(EIDER_BAD_ARG, "eider_compile: NULL argument");
    return get_kernel(ctx, NULL, request, out);
}
