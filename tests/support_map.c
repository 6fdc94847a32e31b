/* support_map.c -- see support_map.h. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_fiber.h"
#include "parse.h"
#include "passes.h"
#include "support_map.h"

#define GUARD_BYTES 128
#define GUARD 0xA5

static void *resize(void *user, void *ptr, size_t old_size, size_t new_size)
{
    (void)user;
    (void)old_size;
    if (new_size) return realloc(ptr, new_size);
    free(ptr);
    return NULL;
}

const eider_allocator map_allocator = {resize, NULL};

static const struct eider_cpu_hooks no_hooks;

#define RESIDENT 2 /* blocks, or clusters of them, that go through all rows */

/* ---- Kernels ------------------------------------------------------------- */

static eider_status build_module(const struct map_request *r, struct map_kernel *k,
                                 struct eider_emit *e)
{
    eider_dtype dtypes[EIDER_OPERANDS_MAX];
    struct eider_lowered lowered;
    const struct eider_template *t = eider_template_for(k->graph);
    for (uint32_t i = 0; i < k->graph->n_operands; i++) dtypes[i] = r->args[i].type;
    eider_math math = r->math ? r->math : EIDER_MATH_FAST;
    EIDER_TRY(eider_lower_plan(k->graph, dtypes, math, &lowered));
    *e = (struct eider_emit){
        .allocator = &map_allocator,
        .context = LLVMContextCreate(),
        .machine = r->machine ? r->machine : eider_machine_of(r->target),
        .target = r->target,
        .ftz = r->ftz,
        .contract = !r->no_contract,
        .math = lowered.math,
        .waits = k->threads > 0,
    };
    t->build(e, &lowered, &k->layout, &k->config, "kernel");
    eider_lower_release(&lowered);
    return e->status;
}

static eider_status compile(const struct map_request *r, struct map_kernel *k)
{
    struct eider_emit e = {0};
    struct eider_codegen_job job = {.target = r->target, .entry = "kernel", .contract = 1};
    job.thread_style = k->threads > 0;
    eider_status status = build_module(r, k, &e);
    job.block_threads = e.block_threads;
    if (status == EIDER_OK)
        status = eider_codegen_emit(&map_allocator, e.module, &job, &k->code);
    else if (e.module)
        LLVMDisposeModule(e.module);
    if (e.context) LLVMContextDispose(e.context);
    return status;
}

eider_status map_make(const struct map_request *request, struct map_kernel *out)
{
    struct map_kernel *k = out;
    void *entry;
    memset(k, 0, sizeof *k);
    EIDER_TRY(eider_codegen_init());
    EIDER_TRY(eider_parse(&map_allocator, request->text, &k->graph));
    const struct eider_template *t = eider_template_for(k->graph);
    struct eider_device_facts facts = {request->target, request->units, request->l2_bytes};
    k->config = eider_config_unset();
    eider_status status = t->layout(k->graph, request->args, request->any_layout, &k->layout);
    if (status == EIDER_OK) status = eider_config_parse(request->config, &k->config);
    if (status == EIDER_OK) t->defaults(&k->layout, &facts, &k->config);
    if (status == EIDER_OK) status = t->check(&k->layout, request->target, &k->config);
    if (status == EIDER_OK && !request->target.sm && t->fibers)
        k->threads = t->fibers(&k->layout, &k->config);
    if (status == EIDER_OK) status = compile(request, k);
    if (status == EIDER_OK && !request->target.sm)
        status = eider_cpu_image_create(&map_allocator, &k->code.code, "kernel", k->threads > 0,
                                        k->threads ? &eider_cpu_fiber_hooks : &no_hooks, &k->image,
                                        &entry);
    if (status == EIDER_OK && k->threads)
        memcpy(&k->thread_entry, &entry, sizeof entry);
    else if (status == EIDER_OK && k->image)
        memcpy(&k->entry, &entry, sizeof entry);
    if (status != EIDER_OK) map_release(k);
    return status;
}

void map_release(struct map_kernel *k)
{
    eider_cpu_image_release(k->image);
    eider_blob_release(&map_allocator, &k->code.code);
    eider_blob_release(&map_allocator, &k->code.opt_ir);
    eider_graph_destroy(k->graph);
    k->image = NULL;
    k->graph = NULL;
}

static eider_status run_threads(struct map_kernel *k)
{
    struct eider_bound *bound = &k->bound;
    const struct eider_template *t = eider_template_for(k->graph);
    struct eider_cpu_stacks *stacks;
    struct eider_cpu_fibers *fibers;
    uint32_t granule = bound->granule ? bound->granule : 1;
    if (bound->per_unit && bound->grid > (uint64_t)RESIDENT * granule) {
        eider_bound_put(bound, bound->in_flight, RESIDENT);
        bound->grid = (uint64_t)RESIDENT * granule;
    }
    uint32_t grid[3] = {(uint32_t)bound->grid, 1, 1}, block[3] = {bound->block, 1, 1};
    uint32_t shared = eider_cpu_image_shared(k->image);
    if (t->shared) shared += t->shared(&k->layout, &k->config);
    EIDER_TRY(eider_cpu_stacks_create(&map_allocator, &stacks));
    eider_status status =
        eider_cpu_fiber_create(&map_allocator, stacks, bound->block, granule, shared, &fibers);
    if (status == EIDER_OK) {
        status = eider_cpu_fiber_run(fibers, k->thread_entry, bound->params, grid, block);
        eider_cpu_fiber_release(fibers);
    }
    eider_cpu_stacks_release(stacks);
    return status;
}

eider_status map_run(struct map_kernel *k, const eider_tensor *args)
{
    EIDER_TRY(eider_template_for(k->graph)->bind(&k->layout, &k->config, args, &k->bound));
    if (k->threads) return k->bound.grid ? run_threads(k) : EIDER_OK;
    uint64_t last = k->bound.grid ? k->bound.grid - 1 : 0;
    if (k->bound.grid) k->entry(k->bound.params, last, last + 1);
    if (last) k->entry(k->bound.params, 0, last);
    return EIDER_OK;
}

void map_once(const struct map_request *request)
{
    struct map_kernel k;
    eider_status status = map_make(request, &k);
    if (status != EIDER_OK) fail_msg("%s [%s]: %s", request->text, request->config, eider_error());
    status = map_run(&k, request->args);
    if (status != EIDER_OK) fail_msg("%s [%s]: %s", request->text, request->config, eider_error());
    map_release(&k);
}

/* ---- Guarded memory ------------------------------------------------------ */

struct guarded {
    unsigned char *block;
    size_t room, bytes;
};

/* The record lies right before the guard band, unaligned. */
static unsigned char *record_of(void *data)
{
    return (unsigned char *)data - GUARD_BYTES - sizeof(struct guarded);
}

void *map_alloc(size_t bytes, size_t misalign)
{
    struct guarded g = {.bytes = bytes};
    g.room = bytes + misalign + 2 * GUARD_BYTES + sizeof g + 64;
    g.block = malloc(g.room);
    if (!g.block) fail_msg("out of memory");
    uintptr_t at = (uintptr_t)g.block + sizeof g + GUARD_BYTES;
    unsigned char *data = g.block + ((at + 63) / 64 * 64 - (uintptr_t)g.block) + misalign;
    memset(g.block, GUARD, g.room);
    memset(data, MAP_FRESH, bytes);
    memcpy(record_of(data), &g, sizeof g);
    return data;
}

void map_free(void *data)
{
    struct guarded g;
    if (!data) return;
    unsigned char *at = data;
    memcpy(&g, record_of(data), sizeof g);
    for (size_t i = 1; i <= GUARD_BYTES; i++)
        if (at[-(ptrdiff_t)i] != GUARD) fail_msg("byte %zu before the data was written", i);
    for (unsigned char *end = at + g.bytes; end < g.block + g.room; end++)
        if (*end != GUARD) fail_msg("byte %td after the data was written", end - at);
    free(g.block);
}

/* ---- Elements ------------------------------------------------------------ */

/* Decodes `bits` of a format with `m` mantissa bits and the given bias. */
static double decode(uint32_t bits, int m, int bias, int is_e4m3)
{
    int width = is_e4m3 || m == 2 ? 8 : 16;
    uint32_t magnitude = bits & ((1u << (width - 1)) - 1);
    double sign = bits >> (width - 1) ? -1 : 1;
    int exponent = (int)(magnitude >> m);
    uint32_t fraction = magnitude & ((1u << m) - 1);
    int top = (1 << (width - 1 - m)) - 1;
    if (is_e4m3 && magnitude == 0x7F) return NAN;
    if (!is_e4m3 && exponent == top) return fraction ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexp(fraction, 1 - bias - m);
    return sign * ldexp((double)(fraction + (1u << m)), exponent - bias - m);
}

double map_get(eider_dtype type, const void *data, int64_t i)
{
    size_t size = eider_dtype_size(type);
    union {
        float f32;
        double f64;
        int32_t i32;
        int64_t i64;
        uint16_t u16;
        uint8_t u8;
    } v;
    memcpy(&v, (const char *)data + i * (int64_t)size, size);
    switch (type) {
    case EIDER_F32:
        return (double)v.f32;
    case EIDER_F64:
        return v.f64;
    case EIDER_I32:
        return v.i32;
    case EIDER_I64:
        return (double)v.i64;
    case EIDER_F16:
        return decode(v.u16, 10, 15, 0);
    case EIDER_BF16:
        return decode(v.u16, 7, 127, 0);
    case EIDER_E4M3:
        return decode(v.u8, 3, 7, 1);
    case EIDER_E5M2:
        return decode(v.u8, 2, 15, 0);
    case EIDER_BOOL:
        return v.u8 != 0;
    }
    return NAN;
}

/* The bits of a value that a format with `m` mantissa bits has; infinity and NaN as formats
 * with infinities have them. */
static uint32_t encode(double value, int m, int bias, int width)
{
    int exponent;
    uint32_t sign = signbit(value) ? 1u << (width - 1) : 0;
    uint32_t infinity = (1u << (width - 1)) - (1u << m);
    if (value == 0) return sign;
    if (isinf(value)) return sign + infinity;
    if (isnan(value)) return infinity + (1u << (m - 1));
    double fraction = frexp(fabs(value), &exponent); /* in [0.5, 1) */
    int biased = exponent - 1 + bias;
    if (biased > 0)
        return sign + ((uint32_t)biased << m) + (uint32_t)(ldexp(fraction, m + 1) - ldexp(1, m));
    return sign + (uint32_t)ldexp(fabs(value), bias - 1 + m);
}

static uint32_t encode_as(eider_dtype type, double value)
{
    value = eider_round_to(value, type, 1);
    switch (type) {
    case EIDER_F16:
        return encode(value, 10, 15, 16);
    case EIDER_BF16:
        return encode(value, 7, 127, 16);
    case EIDER_E4M3:
        return isnan(value) ? 0x7F : encode(value, 3, 7, 8);
    default:
        return encode(value, 2, 15, 8);
    }
}

void map_put(eider_dtype type, void *data, int64_t i, double value)
{
    size_t size = eider_dtype_size(type);
    char *at = (char *)data + i * (int64_t)size;
    switch (type) {
    case EIDER_F32:
        memcpy(at, &(float){(float)value}, size);
        break;
    case EIDER_F64:
        memcpy(at, &value, size);
        break;
    case EIDER_I32:
        memcpy(at, &(int32_t){(int32_t)value}, size);
        break;
    case EIDER_I64:
        memcpy(at, &(int64_t){(int64_t)value}, size);
        break;
    case EIDER_BOOL:
        memcpy(at, &(uint8_t){value != 0}, size);
        break;
    case EIDER_F16:
    case EIDER_BF16:
        memcpy(at, &(uint16_t){(uint16_t)encode_as(type, value)}, size);
        break;
    default:
        memcpy(at, &(uint8_t){(uint8_t)encode_as(type, value)}, size);
        break;
    }
}
