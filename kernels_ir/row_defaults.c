/* row_defaults.c -- the config of a row kernel that nobody tuned, and those worth a try.
 *
 * Invariant: what the caller has set stays; what is added passes the template's check for the
 * same layout and target, unless what was set cannot.
 */
#include "row.h"

#include <stdio.h>

#define ELEMENTS_KEPT 64 /* of all inputs together, per thread: that many registers or half */
#define VECTORS_KEPT 4   /* in flight per thread, where the row has as many */
#define SHORT_LENGTH 256 /* elements: rows that leave few to each thread */
#define ROW_ENOUGH 512   /* threads of a row that have enough in flight with two vectors each */
#define GPU_BLOCK 128    /* at least; rows that are shorter share a block */
#define GPU_BLOCK_MAX 1024
#define LENGTH_ASSUMED 4096 /* where it is not known */
#define CPU_VEC 16
#define CLUSTER_PORTABLE 8         /* blocks, that every GPU with clusters takes */
#define CLUSTER_BLOCK 256          /* threads of each of its blocks at least */
#define SHARED_FOR_REDUCTIONS 8192 /* bytes that rows leave to them */
#define SPLIT_BLOCK 512            /* threads, of each part of a row */
#define SPLIT_LENGTH 32768         /* elements of a part at least */
#define SPLIT_BYTES (2 << 20)      /* of a row in one input: where rows are split */
#define SPLIT_TRIED 32             /* parts: where there may be as many, they are worth a try */
#define CPU_CLUSTER_BLOCK 32       /* threads, where clusters are asked for */
#define GPU_RAGGED_MIN 64 /* vectors of a row: below that, edges cost more than vectors save */
#define CPU_RAGGED_MIN 4  /* likewise */

#define HEAVY_WORK 7 /* operations of an element */

struct traits {
    int widest;   /* bytes of an element */
    int n_inputs; /* that differ within the row and between rows */
    int align;    /* elements that the worst pointer allows in one access */
    int columns;  /* inputs that all rows share */
    int stores;   /* there are outputs that differ within the row */
    int heavy;    /* many operations for each element */
};

static struct traits traits_of(const struct eider_layout *layout)
{
    struct traits t = {
        .widest = 1, .align = EIDER_MAP_ACCESS_BYTES, .heavy = layout->work >= HEAVY_WORK};
    for (uint32_t i = 0; i < layout->n_operands; i++) {
        const struct eider_layout_operand *operand = &layout->operands[i];
        int size = (int)eider_dtype_size(operand->type), align = (int)operand->align / size;
        int inner = operand->stride_class[layout->rank - 1], is_shared = 1;
        if (operand->kind == EIDER_SCALAR || inner == 0) continue;
        for (int d = 0; d < layout->rank - 1; d++) is_shared &= operand->stride_class[d] == 0;
        t.n_inputs += operand->kind == EIDER_INPUT && !is_shared;
        t.columns += operand->kind == EIDER_INPUT && is_shared;
        t.stores |= operand->kind == EIDER_OUTPUT;
        if (inner == 2) t.align = 1;
        if (size > t.widest) t.widest = size;
        if (operand->align < EIDER_MAP_ACCESS_BYTES && align < t.align) t.align = align;
    }
    if (t.n_inputs == 0) t.n_inputs = 1;
    return t;
}

static int at_most(int64_t a, int b)
{
    return a < b ? (int)a : b;
}

/* Whether every alignment, or shift, allows vectors of `vec` elements, the length aside. */
static int vectors_fit(const struct eider_layout *layout, int vec, int align)
{
    return eider_row_shifts(layout, vec) ? layout->alike : align >= vec;
}

/* `most` elements, or as many as rows are whole numbers of and every alignment allows.  Where that
 * is less than half, rows of `ragged_min` vectors have some that are only partly in the row,
 * provided that all can be loaded as vectors. */
static int vector_of(const struct eider_layout *layout, int most, int align, int ragged_min)
{
    int even = most;
    while (even > 1 && (layout->length % even || even > align)) even /= 2;
    int ragged =
        even < most / 2 && vectors_fit(layout, most, align) && layout->length / most >= ragged_min;
    return at_most(ragged ? most : even, layout->vec_max);
}

static int64_t vectors_of(const struct eider_layout *layout, int vec)
{
    return layout->length ? eider_row_cut(layout, vec) : LENGTH_ASSUMED / vec;
}

/* The smallest allowed number of vectors that is not below `n`, or the largest. */
static int kept(int64_t n)
{
    static const int allowed[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32};
    size_t i = 0;
    while (i + 1 < sizeof allowed / sizeof *allowed && allowed[i] < n) i++;
    return allowed[i];
}

/* As many blocks as a row needs to stay in registers, or as near to that as possible: the fewer
 * rows are on their way at a time, the more of what is read again comes from the L2 cache.  1 where
 * the target has no clusters, where `row` threads are not the most that a block may have, and where
 * a thread keeps nothing.  A default has to run on every GPU of a target, so it has no cluster that
 * some of them refuse. */
static int blocks_for(struct eider_target target, int64_t vectors, int row, int most)
{
    int blocks = 1;
    if (target.sm < EIDER_ROW_CLUSTER_SM || row < GPU_BLOCK_MAX || most < 1) return 1;
    while (blocks < CLUSTER_PORTABLE && (int64_t)row * blocks * most < vectors) blocks *= 2;
    return blocks;
}

/* No block has 2 to 31 threads. */
static int whole_warps(int row)
{
    return row < EIDER_ROW_WARP ? EIDER_ROW_WARP : row;
}

/* As many threads as leave a few vectors to each: fewest where there is much to load, and from
 * ROW_ENOUGH threads on as many as registers take.  Measured on an H200 (bench/RESULTS.md). */
static int threads_for(const struct traits *t, int is_short, int64_t vectors, int most, int row,
                       int cluster)
{
    int is_narrow = t->widest <= 2, is_light = t->n_inputs == 1 && (is_narrow || !t->stores);
    int wanted = !is_light ? VECTORS_KEPT / 2 : t->stores ? VECTORS_KEPT : 2 * VECTORS_KEPT;
    if (is_light && is_short) wanted /= is_narrow ? 2 : 4;
    if (wanted > most) wanted = most;
    while (row < ROW_ENOUGH && (int64_t)row * cluster * wanted < vectors) row *= 2;
    if (row < ROW_ENOUGH) return row;
    while (row < GPU_BLOCK_MAX && (int64_t)row * cluster * most < 2 * vectors) row *= 2;
    return row;
}

/* All of the row stays in registers, as far as those go. */
static void choose_gpu(const struct eider_layout *layout, struct eider_target target,
                       struct eider_config *config)
{
    struct traits t = traits_of(layout);
    int fixed_cluster = config->choice[EIDER_PARAM_cluster] >= 0;
    int cluster = fixed_cluster ? eider_config_number(config, EIDER_PARAM_cluster) : 1;
    int vec = eider_config_choose(
        config, EIDER_PARAM_vec,
        vector_of(layout, EIDER_MAP_ACCESS_BYTES / t.widest, t.align, GPU_RAGGED_MIN));
    int64_t vectors = vectors_of(layout, vec);
    int most = ELEMENTS_KEPT / (vec * t.n_inputs), row = cluster > 1 ? GPU_BLOCK : 1;
    if (most < 1) most = 1;
    row = threads_for(&t, layout->length <= SHORT_LENGTH, vectors, most, row, cluster);
    int fixed = config->choice[EIDER_PARAM_block] < 0
                    ? GPU_BLOCK_MAX
                    : eider_config_number(config, EIDER_PARAM_block);
    while (row > fixed) row /= 2;
    row = eider_config_choose(config, EIDER_PARAM_row, row);
    int shares = row < GPU_BLOCK && cluster == 1; /* its block with other rows */
    eider_config_choose(config, EIDER_PARAM_block, shares ? GPU_BLOCK : whole_warps(row));
    if (row == GPU_BLOCK_MAX) most /= 2; /* a thread of so large a block has 64 registers */
    if (!fixed_cluster) cluster = blocks_for(target, vectors, row, most);
    eider_config_choose(config, EIDER_PARAM_cluster, cluster);
    int64_t threads = (int64_t)row * cluster, each = (vectors + threads - 1) / threads;
    eider_config_choose(config, EIDER_PARAM_keep, kept(each < most ? each : most));
    int edges = eider_row_shifts(layout, vec) || layout->length % vec;
    eider_config_choose(config, EIDER_PARAM_unroll, edges || vec * t.n_inputs > 16 ? 1 : 2);
}

/* Long rows: how much of them a block takes, and where its threads keep that.  Measured on an H200
 * (bench/RESULTS.md).  What needs one pass keeps nothing.  Rows of up to 64 KiB are read again for
 * the last pass, from caches that are told to hold them until then, where there is not much to load
 * or to compute besides: nothing else writes as fast.  Of longer ones a few blocks with 32 to
 * 128 KiB each are on every multiprocessor, so that some load while others compute, in registers
 * or, filled asynchronously, in shared memory, since registers for what is in flight would leave
 * too few warps.
 */
enum { MAP = 1, ONCE = 2, ONE = 4, MANY = 8 };
enum { PLAIN = 1, HEAVY = 2, COLUMN = 4, COLUMNS = 8, ANY = 15 };
enum { NARROW = 1, WIDE = 2 };
#define KIB *1024ll

static const struct long_rule {
    int width;     /* elements of 16 bits or fewer; more */
    int kind;      /* one pass does all, with elements stored or without; more, over so many
                          * inputs */
    int class;     /* all rows share no input, and there are few operations or many; they share
                          * one; more */
    int64_t above; /* bytes of a row, in all inputs together */
    int64_t block_bytes; /* of which a block takes as many; the rest others, of its cluster, or,
                          * where nothing is reduced, any; 0: all */
    int row, keep;       /* keep: vectors in registers */
    int shares;          /* the others stay in shared memory */
    int unroll;
    int access; /* bytes of a vector; 0: 16 */
    int resident, mbarrier;
    const char *load, *store; /* NULL: as everywhere */
} long_rules[] = {
    {NARROW, MAP, ANY, 8 KIB, 8 KIB, 256, .access = 8, .unroll = 4},
    {WIDE, MAP, ANY, 8 KIB, 8 KIB, 256, .unroll = 2},

    {NARROW, ONCE, ANY, 8 KIB, 16 KIB, 128, 16, .access = 8, .unroll = 2},
    {NARROW, ONCE, ANY, 16 KIB, 32 KIB, 256, 16, .access = 8, .unroll = 2},
    {NARROW, ONCE, ANY, 32 KIB, 0, 256, .unroll = 4},
    {WIDE, ONCE, ANY, 64 KIB, 0, 512, .unroll = 4},

    {NARROW, ONE, PLAIN, 4 KIB, 0, 256, .unroll = 4, .load = "last", .store = "first"},
    {NARROW, ONE, PLAIN, 8 KIB, 0, 512, .unroll = 4, .load = "last", .store = "first"},
    {NARROW, ONE, PLAIN, 32 KIB, 0, 512, .unroll = 4, .load = "last"},
    {NARROW, ONE, HEAVY | COLUMNS, 8 KIB, 16 KIB, 128, 16, .access = 8, .unroll = 2},
    {NARROW, ONE, HEAVY | COLUMNS, 16 KIB, 32 KIB, 256, 16, .access = 8, .unroll = 2},
    {NARROW, ONE, HEAVY, 32 KIB, 0, 512, .shares = 1, .unroll = 4},
    {NARROW, ONE, PLAIN | HEAVY, 64 KIB, 16 KIB, 128, 4, .shares = 1, .unroll = 1, .mbarrier = 1},
    {NARROW, ONE, PLAIN, 128 KIB, 32 KIB, 256, 4, .shares = 1, .unroll = 1, .mbarrier = 1},
    {NARROW, ONE, PLAIN, 256 KIB, 64 KIB, 128, 16, .shares = 1, .unroll = 1, .mbarrier = 1},
    {NARROW, ONE, HEAVY, 128 KIB, 64 KIB, 256, .shares = 1, .unroll = 2, .mbarrier = 1},
    {NARROW, ONE, COLUMN, 4 KIB, 0, 256, .unroll = 2, .load = "last", .store = "first"},
    {NARROW, ONE, COLUMN, 8 KIB, 0, 512, .unroll = 2, .load = "last"},
    {NARROW, ONE, COLUMN, 32 KIB, 0, 512, .unroll = 4, .load = "last"},
    {NARROW, ONE, COLUMN, 64 KIB, 32 KIB, 256, .shares = 1, .unroll = 4},
    {NARROW, ONE, COLUMN, 256 KIB, 128 KIB, 1024, .shares = 1, .unroll = 4},
    {NARROW, ONE, COLUMNS, 32 KIB, 0, 1024, .shares = 1, .unroll = 2},
    {NARROW, ONE, COLUMNS, 64 KIB, 32 KIB, 256, .shares = 1, .unroll = 4},
    {NARROW, ONE, COLUMNS, 128 KIB, 32 KIB, 256, .shares = 1, .unroll = 2},
    {NARROW, ONE, COLUMNS, 256 KIB, 64 KIB, 256, .shares = 1, .unroll = 4},

    {WIDE, ONE, PLAIN | COLUMNS, 8 KIB, 0, 256, .unroll = 4, .load = "last", .store = "first"},
    {WIDE, ONE, HEAVY, 8 KIB, 0, 128, .unroll = 2, .load = "last", .store = "first"},
    {WIDE, ONE, HEAVY, 16 KIB, 0, 256, .unroll = 4, .load = "last", .store = "first"},
    {WIDE, ONE, HEAVY, 32 KIB, 0, 512, .unroll = 4, .load = "last"},
    {WIDE, ONE, COLUMN, 8 KIB, 0, 512, .unroll = 2, .load = "last", .store = "first"},
    {WIDE, ONE, PLAIN, 16 KIB, 0, 512, .unroll = 2, .load = "last", .store = "first"},
    {WIDE, ONE, COLUMNS, 16 KIB, 0, 512, 8, .unroll = 2},
    {WIDE, ONE, PLAIN | COLUMN, 32 KIB, 0, 1024, .unroll = 2, .load = "last"},
    {WIDE, ONE, PLAIN | HEAVY, 64 KIB, 16 KIB, 128, 8, .unroll = 1, .mbarrier = 1},
    {WIDE, ONE, PLAIN | HEAVY, 128 KIB, 64 KIB, 512, 8, .unroll = 1, .mbarrier = 1},
    {WIDE, ONE, PLAIN, 256 KIB, 64 KIB, 512, 8, .unroll = 1, .mbarrier = 1},
    {WIDE, ONE, HEAVY, 256 KIB, 64 KIB, 128, 16, .shares = 1, .unroll = 1, .mbarrier = 1},
    {WIDE, ONE, PLAIN | HEAVY, 512 KIB, 128 KIB, 256, 16, .shares = 1, .unroll = 1, .mbarrier = 1},
    {WIDE, ONE, COLUMN, 64 KIB, 32 KIB, 512, 4, .unroll = 1, .mbarrier = 1},
    {WIDE, ONE, COLUMN, 256 KIB, 64 KIB, 1024, 4, .unroll = 1, .mbarrier = 1},
    {WIDE, ONE, COLUMN, 512 KIB, 128 KIB, 1024, 4, .shares = 1, .unroll = 1, .mbarrier = 1},
    {WIDE, ONE, COLUMNS, 64 KIB, 32 KIB, 256, 8, .unroll = 1, .mbarrier = 1},
    {WIDE, ONE, COLUMNS, 256 KIB, 64 KIB, 256, 8, .shares = 1, .unroll = 1},
    {WIDE, ONE, COLUMNS, 512 KIB, 128 KIB, 512, 8, .shares = 1, .unroll = 1},

    {NARROW, MANY, ANY, 32 KIB, 64 KIB, 512, .shares = 1, .unroll = 2},
    {NARROW, MANY, PLAIN | HEAVY, 64 KIB, 128 KIB, 1024, 4, .unroll = 1},
    {NARROW, MANY, PLAIN | HEAVY, 128 KIB, 128 KIB, 512, 8, .unroll = 1},
    {NARROW, MANY, COLUMN | COLUMNS, 64 KIB, 128 KIB, 1024, .shares = 1, .unroll = 2,
     .resident = 1},
    {NARROW, MANY, COLUMN | COLUMNS, 128 KIB, 32 KIB, 256, .unroll = 2, .mbarrier = 1},
    {NARROW, MANY, COLUMN | COLUMNS, 256 KIB, 64 KIB, 256, .unroll = 4, .load = "last",
     .store = "cs"},
    {NARROW, MANY, COLUMN | COLUMNS, 512 KIB, 256 KIB, 1024, .unroll = 4, .load = "last",
     .store = "cs"},

    {WIDE, MANY, ANY, 64 KIB, 128 KIB, 512, .shares = 1, .unroll = 2},
    {WIDE, MANY, PLAIN | HEAVY, 128 KIB, 128 KIB, 512, 8, .unroll = 1},
    {WIDE, MANY, PLAIN | HEAVY, 1024 KIB, 128 KIB, 1024, 4, .unroll = 1},
    {WIDE, MANY, COLUMN | COLUMNS, 128 KIB, 128 KIB, 512, 4, .shares = 1, .unroll = 1,
     .mbarrier = 1},
    {WIDE, MANY, COLUMN | COLUMNS, 256 KIB, 64 KIB, 512, 4, .unroll = 1, .mbarrier = 1},
    {WIDE, MANY, COLUMN | COLUMNS, 512 KIB, 128 KIB, 512, .unroll = 4, .load = "last"},
    {WIDE, MANY, COLUMN | COLUMNS, 1024 KIB, 256 KIB, 1024, 4, .shares = 1, .unroll = 1},
};

/* The last one that fits. */
static const struct long_rule *long_rule_for(const struct traits *t, int once, int64_t bytes)
{
    const struct long_rule *found = NULL;
    int width = t->widest <= 2 ? NARROW : WIDE;
    int class = t->columns > 1 ? COLUMNS : t->columns ? COLUMN : t->heavy ? HEAVY : PLAIN;
    int kind = once ? (t->stores ? MAP : ONCE) : (t->n_inputs > 1 ? MANY : ONE);
    for (size_t i = 0; i < sizeof long_rules / sizeof *long_rules; i++) {
        const struct long_rule *r = &long_rules[i];
        int fits = r->width & width && r->kind & kind && r->class & class;
        if (fits && bytes > r->above) found = r;
    }
    return found;
}

/* As many vectors as shared memory has room for. */
static int fitting(const struct traits *t, struct eider_target target, int row, int64_t wanted)
{
    int n = kept(wanted);
    int64_t each = (int64_t)row * t->n_inputs * EIDER_MAP_ACCESS_BYTES;
    int64_t most = (eider_row_shared_limit(target) - SHARED_FOR_REDUCTIONS) / each;
    while (n > most) n = kept(n / 2);
    return n;
}

/* What all rows share, which stays with `resident`, may leave too little room, and so may inputs
 * wider than others. */
static void fit_memory(const struct eider_layout *layout, struct eider_target target,
                       struct eider_row_config *c)
{
    int64_t most = eider_row_shared_limit(target) - SHARED_FOR_REDUCTIONS;
    if (eider_row_launch_bytes(layout, c) > most) c->resident = 0;
    while (c->shared && eider_row_launch_bytes(layout, c) > most) c->shared = kept(c->shared / 2);
}

/* Whether the caller has left open what long rows are cut by. */
static int is_open(const struct eider_config *config)
{
    static const enum eider_param params[] = {EIDER_PARAM_row,    EIDER_PARAM_block,
                                              EIDER_PARAM_keep,   EIDER_PARAM_cluster,
                                              EIDER_PARAM_shared, EIDER_PARAM_async};
    for (size_t i = 0; i < sizeof params / sizeof *params; i++)
        if (config->choice[params[i]] >= 0) return 0;
    return 1;
}

/* By a rule for long rows, if one applies: rows of vectors of 16 bytes.  Those that are partly in
 * the row change nothing. */
static int choose_long(const struct eider_layout *layout, struct eider_target target,
                       struct eider_config *config)
{
    struct traits t = traits_of(layout);
    int most = target.sm < EIDER_ROW_CLUSTER_SM ? 1 : CLUSTER_PORTABLE, cluster = 1;
    int64_t bytes = layout->length * t.widest * t.n_inputs;
    const struct long_rule *r = long_rule_for(&t, layout->once, bytes);
    if (!r || target.sm < EIDER_ROW_ASYNC_SM || !is_open(config)) return 0;
    int access = r->access ? r->access : EIDER_MAP_ACCESS_BYTES;
    int vec = access > t.widest ? access / t.widest : 1;
    int64_t vectors = (layout->length + vec - 1) / vec;
    int64_t block_bytes = r->block_bytes ? r->block_bytes : bytes;
    if (!vectors_fit(layout, vec, t.align) || vec > layout->vec_max) return 0;
    if (eider_config_choose(config, EIDER_PARAM_vec, vec) != vec) return 0;
    int is_map = r->kind == MAP, split = 1;
    while (!is_map && cluster < most && block_bytes < bytes / cluster) cluster *= 2;
    while (is_map && split < EIDER_ROW_SPLIT_MAX && block_bytes < bytes / split) split *= 2;
    int64_t threads = (int64_t)r->row * cluster, each = (vectors + threads - 1) / threads;
    int keep = r->keep < each ? r->keep : kept(each);
    int shared = r->shares ? fitting(&t, target, r->row, each - keep) : 0;
    struct eider_row_config c = {.vec = vec, .block = r->row, .row = r->row, .cluster = cluster};
    c.keep = keep, c.shared = shared, c.resident = r->resident;
    fit_memory(layout, target, &c);
    eider_config_choose(config, EIDER_PARAM_row, r->row);
    eider_config_choose(config, EIDER_PARAM_block, r->row);
    eider_config_choose(config, EIDER_PARAM_keep, keep);
    eider_config_choose(config, EIDER_PARAM_cluster, cluster);
    eider_config_choose(config, EIDER_PARAM_shared, c.shared);
    eider_config_choose(config, EIDER_PARAM_async, c.shared > 0);
    eider_config_choose(config, EIDER_PARAM_unroll, r->unroll);
    eider_config_choose(config, EIDER_PARAM_resident, c.resident);
    eider_config_choose(config, EIDER_PARAM_split, split);
    int stays = eider_config_number(config, EIDER_PARAM_resident) > 0;
    eider_config_choose(config, EIDER_PARAM_mbarrier, r->mbarrier && cluster > 1 && !stays);
    if (r->load) eider_config_choose_word(config, EIDER_PARAM_load, r->load);
    if (r->store) eider_config_choose_word(config, EIDER_PARAM_store, r->store);
    return 1;
}

/* No row has 96 threads. */
static int power_below(int block)
{
    int power = GPU_BLOCK_MAX;
    while (power > block) power /= 2;
    return power;
}

/* Rows that are cut into parts anywhere on the GPU: those that blocks of a cluster are too few for,
 * however many rows there are.  The number of parts depends on the length alone, so that a row's
 * result does not depend on how many there are.  Measured on an H200 (bench/RESULTS.md). */
static int split_of(const struct eider_layout *layout, struct eider_target target,
                    const struct eider_config *config)
{
    struct traits t = traits_of(layout);
    int64_t parts = 1;
    int stays = config->choice[EIDER_PARAM_resident] > 0; /* blocks go through rows */
    if (!target.sm || !is_open(config) || stays || layout->length * t.widest < SPLIT_BYTES)
        return 1;
    while (parts < EIDER_ROW_SPLIT_MAX && 2 * parts * SPLIT_LENGTH <= layout->length) parts *= 2;
    return (int)parts;
}

static void choose_split(const struct eider_layout *layout, struct eider_target target,
                         struct eider_config *config)
{
    struct traits t = traits_of(layout);
    int rule = target.sm ? SPLIT_BLOCK : 1, align = target.sm ? t.align : CPU_VEC;
    int widest = target.sm ? EIDER_MAP_ACCESS_BYTES / t.widest : CPU_VEC;
    int vec = eider_config_choose(
        config, EIDER_PARAM_vec,
        vector_of(layout, widest, align, target.sm ? GPU_RAGGED_MIN : CPU_RAGGED_MIN));
    if (config->choice[EIDER_PARAM_block] >= 0)
        rule = power_below(eider_config_number(config, EIDER_PARAM_block));
    int row = eider_config_choose(config, EIDER_PARAM_row, rule);
    eider_config_choose(config, EIDER_PARAM_block, row > 1 ? whole_warps(row) : 1);
    eider_config_choose(config, EIDER_PARAM_keep, 0);
    eider_config_choose(config, EIDER_PARAM_cluster, 1);
    eider_config_choose(config, EIDER_PARAM_online, 1); /* a pass reads all of memory */
    eider_config_choose(config, EIDER_PARAM_unroll, vec * t.n_inputs > 16 ? 1 : 2);
}

static void choose_cpu(const struct eider_layout *layout, struct eider_config *config)
{
    eider_config_choose(config, EIDER_PARAM_vec,
                        vector_of(layout, CPU_VEC, CPU_VEC, CPU_RAGGED_MIN));
    int is_cluster = eider_config_choose(config, EIDER_PARAM_cluster, 1) > 1;
    int block = config->choice[EIDER_PARAM_block] < 0
                    ? CPU_CLUSTER_BLOCK
                    : eider_config_number(config, EIDER_PARAM_block);
    int row = eider_config_choose(config, EIDER_PARAM_row, is_cluster ? power_below(block) : 1);
    eider_config_choose(config, EIDER_PARAM_block, is_cluster ? whole_warps(row) : 1);
    eider_config_choose(config, EIDER_PARAM_keep, 0);
    eider_config_choose(config, EIDER_PARAM_unroll, 1);
}

void eider_row_defaults(const struct eider_layout *layout, const struct eider_device_facts *facts,
                        struct eider_config *config)
{
    int parts = split_of(layout, facts->target, config);
    if (config->choice[EIDER_PARAM_split] >= 0)
        parts = eider_config_number(config, EIDER_PARAM_split);
    if (parts > 1)
        choose_split(layout, facts->target, config);
    else if (!facts->target.sm)
        choose_cpu(layout, config);
    else if (!choose_long(layout, facts->target, config))
        choose_gpu(layout, facts->target, config);
    eider_config_choose(config, EIDER_PARAM_split, parts);
    eider_config_choose(config, EIDER_PARAM_shared, 0);
    eider_config_choose(config, EIDER_PARAM_async, 0);
    eider_config_choose(config, EIDER_PARAM_resident, 0);
    eider_config_choose(config, EIDER_PARAM_registers, 0);
    eider_config_choose(config, EIDER_PARAM_mbarrier, 0);
    int is_read_again = facts->target.sm && !eider_config_number(config, EIDER_PARAM_keep);
    eider_config_choose(config, EIDER_PARAM_online, is_read_again);
    int passes_by = facts->target.sm && layout->once && !traits_of(layout).stores;
    eider_config_choose_word(config, EIDER_PARAM_load, passes_by ? "cs" : "ca");
    eider_config_choose_word(config, EIDER_PARAM_store, "wb");
}

/* ---- The configs worth timing --------------------------------------------------- */

#define REGISTERS_TRIED 2 /* times ELEMENTS_KEPT: what a thread may keep at most */
#define ROW_FACTOR 4      /* as many times more and fewer threads are tried */

/* With this vector and so many threads: all of the row kept, where it fits, so that nothing is
 * read twice; or read again, from the cache, in every stage. */
static void add_threads(const struct eider_layout *layout, int vec, int row, int unroll,
                        struct eider_text *out)
{
    struct traits t = traits_of(layout);
    int64_t vectors = vectors_of(layout, vec), each = (vectors + row - 1) / row;
    int block = row < GPU_BLOCK ? GPU_BLOCK : row, most = ELEMENTS_KEPT / (vec * t.n_inputs);
    if (row > 1 && row / 2 >= vectors) return; /* half the threads would have nothing */
    char common[96];
    snprintf(common, sizeof common, "vec=%d,row=%d,block=%d|%d,cluster=1", vec, row, block,
             2 * block <= GPU_BLOCK_MAX ? 2 * block : block);
    if (each <= REGISTERS_TRIED * (int64_t)most && each <= kept(INT32_MAX)) {
        eider_text_add(out, "%s,keep=%d,unroll=%d,load=ca|cs|nc,store=wb|cs\n", common, kept(each),
                       unroll);
        eider_text_add(out, "%s,keep=0,unroll=2|4,load=ca|last,store=wb|first\n", common);
    } else {
        eider_text_add(out, "%s,keep=0|%d,unroll=1|4,load=ca|last,store=wb\n", common,
                       most > 1 ? kept(most) : 1);
        if (row >= CLUSTER_BLOCK)
            eider_text_add(out,
                           "vec=%d,row=%d,block=%d,cluster=1|4|8|16,keep=0,unroll=2|4,"
                           "load=ca|last,store=wb|cs\n",
                           vec, row, row);
    }
}

/* With so many threads in each of some blocks: as much of the row kept as they can, all if that is
 * possible. */
static void add_clusters(const struct eider_layout *layout, int vec, int row, int unroll,
                         struct eider_text *out)
{
    struct traits t = traits_of(layout);
    int64_t vectors = vectors_of(layout, vec);
    int64_t most = REGISTERS_TRIED * (int64_t)(ELEMENTS_KEPT / (vec * t.n_inputs));
    if (most > kept(INT32_MAX)) most = kept(INT32_MAX);
    for (int blocks = 2; blocks <= EIDER_ROW_CLUSTER_MAX; blocks *= 2) {
        int64_t threads = (int64_t)row * blocks, each = (vectors + threads - 1) / threads;
        if (each < VECTORS_KEPT / 2 || (each > most && blocks < CLUSTER_PORTABLE)) continue;
        eider_text_add(
            out, "vec=%d,row=%d,block=%d,cluster=%d,keep=%d,unroll=%d,load=ca|cs,mbarrier=0|1\n",
            vec, row, row, blocks, kept(each < most ? each : most), unroll);
    }
}

/* Long rows in shared memory, all of them or half, one for each block or going through all. */
static void add_shared(const struct eider_layout *layout, struct eider_target target, int vec,
                       int row, struct eider_text *out)
{
    struct traits t = traits_of(layout);
    int64_t vectors = vectors_of(layout, vec);
    int most = target.sm < EIDER_ROW_CLUSTER_SM ? 1 : EIDER_ROW_CLUSTER_MAX;
    for (int blocks = 1; blocks <= most; blocks *= 2) {
        int64_t threads = (int64_t)row * blocks, each = (vectors + threads - 1) / threads;
        int half = kept(each / 2), all = fitting(&t, target, row, each);
        if (each < VECTORS_KEPT || all < each) continue;
        char common[96];
        snprintf(common, sizeof common, "vec=%d,row=%d,block=%d,cluster=%d,async=1", vec, row, row,
                 blocks);
        const char *meets = blocks > 1 ? ",mbarrier=0|1" : "";
        eider_text_add(out, "%s,keep=0,shared=%d,unroll=1|2%s\n", common, all, meets);
        eider_text_add(out, "%s,keep=0,shared=%d,unroll=2,resident=1\n", common, all);
        eider_text_add(out, "%s,keep=%d,shared=%d,unroll=1%s\n", common, half, kept(each - half),
                       meets);
    }
}

/* Long rows in parts, so that a few of them use the whole GPU. */
static void add_parts(const struct eider_layout *layout, int vec, int row, struct eider_text *out)
{
    int most = 1;
    while (most < EIDER_ROW_SPLIT_MAX && most * (int64_t)SPLIT_LENGTH <= layout->length) most *= 2;
    if (most < SPLIT_TRIED) return;
    eider_text_add(out,
                   "vec=%d,row=%d,block=%d,cluster=1,keep=0,shared=0,split=%d|%d|%d,unroll=1|2|4,"
                   "online=1\n",
                   vec, row, row, most / 16, most / 4, most);
}

/* The rule's own config with fewer registers: another block or two may fit. */
static void add_registers(const struct eider_config *rule, struct eider_text *out)
{
    struct eider_config c = *rule;
    char text[EIDER_CONFIG_TEXT_BYTES];
    c.choice[EIDER_PARAM_registers] = EIDER_PARAM_UNSET;
    eider_config_print(&c, text);
    eider_text_add(out, "%s,registers=32|40|48|64|80\n", text);
}

void eider_row_space(const struct eider_layout *layout, struct eider_target target,
                     const struct eider_config *rule, struct eider_text *out)
{
    struct eider_row_config c = eider_row_config_of(rule);
    int vec = c.vec > 1 ? c.vec / 2 : 1, row = c.row > ROW_FACTOR ? c.row / ROW_FACTOR : 1;
    if (!target.sm) {
        eider_text_add(out, "vec=%d|%d|%d,row=1,keep=0|4,block=1,unroll=1|2|4\n", vec, 2 * vec,
                       4 * vec);
        return;
    }
    add_registers(rule, out);
    for (; vec <= 2 * c.vec && vec <= layout->vec_max; vec *= 2)
        for (int r = row; r <= ROW_FACTOR * c.row && r <= GPU_BLOCK_MAX; r *= 2)
            add_threads(layout, vec, r, c.unroll, out);
    for (int r = CLUSTER_BLOCK; r <= GPU_BLOCK_MAX && c.row >= CLUSTER_BLOCK; r *= 2) {
        if (target.sm >= EIDER_ROW_CLUSTER_SM) add_clusters(layout, c.vec, r, c.unroll, out);
        if (target.sm >= EIDER_ROW_ASYNC_SM) add_shared(layout, target, c.vec, r, out);
        add_parts(layout, c.vec, r, out);
    }
}
