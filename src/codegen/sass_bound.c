/* sass_bound.c -- how many warps fit, and which unit ends first.
 *
 * A unit needs, per element, its instructions divided by its rate; alone it would let the
 * kernel run as fast as that.  The least of these, of the schedulers' and of the memory's is
 * the bound.  It is reached where enough warps are there to hide every latency.
 * Invariant: rates are per thread: a warp's instruction counts 32.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sass.h"

#define RATE_COLUMNS 5
#define WARP 32
#define REGISTERS 65536      /* of a multiprocessor, all targets (Guide) */
#define PARTITIONS 4         /* of a multiprocessor, each with a quarter of the registers */
#define REGISTER_GRAIN 256   /* registers are given to a warp in such portions */
#define SHARED_RESERVED 1024 /* bytes that every block needs besides its own (Guide) */
#define GIGA 1e9

static const struct {
    double per_clock[RATE_COLUMNS];
    const char *source;
} rates[EIDER_RATE_COUNT] = {
#define SASS_RATE(id, sm80, sm86, sm89, sm90, sm100, source) \
    [EIDER_RATE_##id] = {{sm80, sm86, sm89, sm90, sm100}, source},
#define SASS_DEVICE(sm, name, units, mhz, gbs, reach, warps, blocks, shared, source)
#include "sass_rates.def"
};

/* In the order of the columns of the rates. */
static const struct device {
    int sm;
    const char *name;
    int units, mhz;
    double gbs, reach;
    int warps, blocks, shared_kib;
    const char *source;
} devices[RATE_COLUMNS] = {
#define SASS_RATE(id, sm80, sm86, sm89, sm90, sm100, source)
#define SASS_DEVICE(sm, name, units, mhz, gbs, reach, warps, blocks, shared, source) \
    {sm, name, units, mhz, gbs, reach, warps, blocks, shared, source},
#include "sass_rates.def"
};

/* The newest row that is not newer than the target. */
static int column_of(struct eider_target target)
{
    int column = 0;
    for (int i = 0; i < RATE_COLUMNS; i++)
        if (devices[i].sm <= target.sm) column = i;
    return column;
}

/* ---- Occupancy --------------------------------------------------------- */

static void take_least(eider_sass_summary *m, int blocks, const char *why)
{
    if (m->occupancy_limit[0] && blocks >= m->blocks) return;
    m->blocks = blocks;
    m->occupancy_limit = why;
}

static void find_occupancy(struct eider_sass *s, const struct device *d)
{
    eider_sass_summary *m = &s->summary;
    m->warps_max = d->warps;
    m->occupancy_limit = "";
    if (m->block_threads <= 0) return;
    int warps = (m->block_threads + WARP - 1) / WARP;
    int registers = m->registers > 0 ? m->registers : 1;
    int grains = (registers * WARP + REGISTER_GRAIN - 1) / REGISTER_GRAIN;
    int per_partition = REGISTERS / PARTITIONS / (grains * REGISTER_GRAIN);
    int shared = m->shared_bytes > 0 ? m->shared_bytes : 0;
    take_least(m, d->warps / warps, "warps");
    take_least(m, d->blocks, "blocks");
    take_least(m, per_partition * PARTITIONS / warps, "registers");
    if (shared) take_least(m, d->shared_kib * 1024 / (shared + SHARED_RESERVED), "shared memory");
    m->warps = m->blocks * warps;
}

/* ---- Limits ------------------------------------------------------------ */

struct need {
    double instructions, cycles; /* of one pass */
    const char *source;
};

static void add_need(struct need *need, double n, double rate, const char *source)
{
    if (rate <= 0) return;
    need->cycles += n / rate;
    if (!need->source[0]) need->source = source;
}

static void count_needs(const struct eider_sass *s, int column, struct need *units,
                        struct need *issue)
{
    for (int u = 0; u < EIDER_UNIT_COUNT; u++) units[u].source = "";
    issue->source = "";
    for (size_t i = 0; i < s->n_code; i++) {
        if (!s->code[i].in_pass) continue;
        enum eider_sass_unit unit = eider_sass_opcode_find(s->code[i].opcode)->unit;
        enum eider_sass_rate rate = (enum eider_sass_rate)s->rates[i];
        units[unit].instructions++;
        add_need(&units[unit], 1, rates[rate].per_clock[column], rates[rate].source);
        if (unit == EIDER_UNIT_IMAD) /* which is a part of FMA */
            add_need(&units[EIDER_UNIT_FMA], 1, rates[EIDER_RATE_FMA].per_clock[column],
                     rates[EIDER_RATE_FMA].source);
        issue->instructions++;
        add_need(issue, 1, rates[EIDER_RATE_ISSUE].per_clock[column],
                 rates[EIDER_RATE_ISSUE].source);
    }
}

static void put_limit(struct eider_sass *s, const char *name, const struct need *need,
                      double clocks_per_s)
{
    eider_sass_limit limit = {.name = name, .source = need->source};
    double cycles = need->cycles / s->summary.elements;
    limit.per_element = need->instructions / s->summary.elements;
    limit.rate = need->cycles > 0 ? need->instructions / need->cycles : 0;
    limit.elements_per_s = cycles > 0 ? clocks_per_s / cycles : (double)INFINITY;
    limit.gbytes_per_s = limit.elements_per_s * s->summary.bytes / GIGA;
    if (need->instructions > 0 || need->cycles > 0) s->limits[s->n_limits++] = limit;
}

static void put_memory(struct eider_sass *s, double gbytes_per_s, const char *source)
{
    double bytes = s->summary.bytes;
    s->limits[s->n_limits++] = (eider_sass_limit){
        .name = "memory",
        .per_element = bytes,
        .rate = gbytes_per_s,
        .elements_per_s = bytes > 0 ? gbytes_per_s * GIGA / bytes : (double)INFINITY,
        .gbytes_per_s = gbytes_per_s,
        .source = source,
    };
}

static void find_bound(struct eider_sass *s)
{
    eider_sass_summary *m = &s->summary;
    m->bound = "";
    m->elements_per_s = (double)INFINITY;
    for (size_t i = 0; i < s->n_limits; i++) {
        if (!(s->limits[i].elements_per_s < m->elements_per_s)) continue;
        m->bound = s->limits[i].name;
        m->elements_per_s = s->limits[i].elements_per_s;
        m->gbytes_per_s = s->limits[i].gbytes_per_s;
    }
}

/* What the pass itself moves, where nobody says how much an element needs. */
static double bytes_of_pass(const struct eider_sass *s)
{
    double bytes = 0;
    for (size_t k = 0; k < s->n_accesses; k++)
        if (strcmp(s->accesses[k].space, "global") == 0)
            bytes += (double)s->accesses[k].width * s->accesses[k].n;
    return bytes / s->summary.elements;
}

eider_status eider_sass_bound_all(struct eider_sass *s, const struct eider_sass_job *job)
{
    int column = column_of(s->target);
    const struct device *d = &devices[column];
    struct need units[EIDER_UNIT_COUNT] = {{0}}, issue = {0};
    eider_sass_summary *m = &s->summary;
    s->limits = eider_arena_alloc(&s->arena, (EIDER_UNIT_COUNT + 2) * sizeof *s->limits);
    if (!s->limits) return EIDER_OOM;

    int n = job->device.units > 0 ? job->device.units : d->units;
    int mhz = job->device.clock_khz > 0 ? job->device.clock_khz / 1000 : d->mhz;
    double memory = s->options.gbytes_per_s;
    const char *name = job->device.units > 0 ? job->device.name : d->name;
    m->assumptions = eider_sass_text(s, "%s, %d x %d MHz, rates of sm_%d", name, n, mhz, d->sm);
    const char *source = "given";
    if (!(memory > 0)) {
        memory = d->gbs * d->reach;
        source =
            eider_sass_text(s, "%s: %g GB/s, of which kernels reach %g", d->name, d->gbs, d->reach);
    }
    m->bytes = job->options->bytes > 0 ? job->options->bytes
               : job->bytes > 0        ? job->bytes
                                       : bytes_of_pass(s);
    find_occupancy(s, d);
    count_needs(s, column, units, &issue);
    put_memory(s, memory, source);
    put_limit(s, "issue", &issue, n * mhz * 1e6);
    for (int u = 0; u < EIDER_UNIT_COUNT; u++)
        put_limit(s, eider_sass_unit_name((enum eider_sass_unit)u), &units[u], n * mhz * 1e6);
    find_bound(s);
    return s->status;
}
