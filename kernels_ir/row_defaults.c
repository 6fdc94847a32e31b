/* row_defaults.c -- the config of a row kernel that nobody tuned.
 *
 * Invariant: what the caller has set stays; what is added passes the template's check for the
 * same layout and target, unless what was set cannot.
 */
#include "row_traits.h"

#define ROW_ENOUGH 512 /* threads of a row that have enough in flight with two vectors each */
#define CPU_VEC 16
#define SPLIT_BLOCK 512       /* threads, of each part of a row */
#define SPLIT_BYTES (2 << 20) /* of a row in one input: where rows are split */
#define CPU_CLUSTER_BLOCK 32  /* threads, where clusters are asked for */
#define GPU_RAGGED_MIN 64     /* vectors of a row: below that, edges cost more than vectors save */
#define CPU_RAGGED_MIN 4      /* likewise */

static int at_most(int64_t a, int b)
{
    return a < b ? (int)a : b;
}

/* `most` elements, or as many as rows are whole numbers of and every alignment allows.  Where that
 * is less than half, rows of `ragged_min` vectors have some that are only partly in the row,
 * provided that all can be loaded as vectors. */
static int vector_of(const struct eider_layout *layout, int most, int align, int ragged_min)
{
    int even = most;
    while (even > 1 && (layout->length % even || even > align)) even /= 2;
    int ragged = even < most / 2 && eider_row_vectors_fit(layout, most, align) &&
                 layout->length / most >= ragged_min;
    return at_most(ragged ? most : even, layout->vec_max);
}

/* As many blocks as a row needs to stay in registers, or as near to that as possible: the fewer
 * rows are on their way at a time, the more of what is read again comes from the L2 cache.  1 where
 * the target has no clusters, where `row` threads are not the most that a block may have, and where
 * a thread keeps nothing.  A default has to run on every GPU of a target, so it has no cluster that
 * some of them refuse. */
static int blocks_for(struct eider_target target, int64_t vectors, int row, int most)
{
    int blocks = 1;
    if (target.sm < EIDER_ROW_CLUSTER_SM || row < EIDER_ROW_GPU_BLOCK_MAX || most < 1) return 1;
    while (blocks < EIDER_ROW_CLUSTER_PORTABLE && (int64_t)row * blocks * most < vectors)
        blocks *= 2;
    return blocks;
}

/* No block has 2 to 31 threads. */
static int whole_warps(int row)
{
    return row < EIDER_ROW_WARP ? EIDER_ROW_WARP : row;
}

/* Short rows: how many vectors of them a thread has.  Measured on an H200 (bench/RESULTS.md). */
static const struct short_rule {
    int width, kind, class;
    int most;   /* elements of a row; 0: any */
    int kept;   /* vectors of a thread */
    int access; /* bytes of a vector; 0: 16 */
    int block;  /* threads, of rows that share one; 0: EIDER_ROW_GPU_BLOCK */
    int registers;
    int unroll;       /* 0: by what is in flight */
    int light;        /* only few operations for each element */
    const char *load; /* NULL: as everywhere */
} short_rules[] = {
    {NARROW, MAP, ANY, 256, .kept = 8, .access = 8, .load = "cs"},
    {WIDE, MAP, ANY, 256, .kept = 1},
    {NARROW | WIDE, MAP, ANY, 0, .kept = 2},
    {NARROW, ONCE, ANY, 1024, .kept = 4, .registers = 64},
    {WIDE, ONCE, ANY, 256, .kept = 2},
    {NARROW | WIDE, ONCE, ANY, 0, .kept = 8},
    {NARROW, ONE, HEAVY, 256, .kept = 8, .access = 8, .block = 64},
    {NARROW, ONE, HEAVY, 1024, .kept = 4, .access = 8, .block = 64},
    {NARROW, ONE, HEAVY, 0, .kept = 8, .access = 8, .block = 64},
    {NARROW, ONE, PLAIN, 256, .kept = 1},
    {NARROW, ONE, COLUMN, 1024, .kept = 1},
    {NARROW, ONE, COLUMNS, 1024, .kept = 4, .access = 8, .block = 64, .registers = 48, .unroll = 1,
     .light = 1},
    {WIDE, ONE, PLAIN | HEAVY, 256, .kept = 4},
    {WIDE, ONE, COLUMN, 256, .kept = 1},
    {WIDE, ONE, COLUMNS, 256, .kept = 2, .registers = 48, .light = 1},
    {NARROW | WIDE, ONE, ANY, 0, .kept = 2},
    {NARROW | WIDE, MANY, ANY, 1024, .kept = 1},
    {NARROW | WIDE, MANY, ANY, 0, .kept = 2},
};

/* The first one that fits, or the last. */
static const struct short_rule *short_rule_for(const struct eider_row_traits *t, int64_t length)
{
    size_t n = sizeof short_rules / sizeof *short_rules, i = 0;
    for (; i + 1 < n; i++) {
        const struct short_rule *r = &short_rules[i];
        int fits = eider_row_rule_fits(t, r->width, r->kind, r->class, r->light);
        if (fits && (!r->most || (length && length <= r->most))) break;
    }
    return &short_rules[i];
}

/* As many threads as leave `wanted` vectors to each, and from ROW_ENOUGH threads on as many as
 * registers take. */
static int threads_for(int64_t vectors, int wanted, int most, int row, int cluster)
{
    if (wanted > most) wanted = most;
    while (row < ROW_ENOUGH && (int64_t)row * cluster * wanted < vectors) row *= 2;
    if (row < ROW_ENOUGH) return row;
    while (row < EIDER_ROW_GPU_BLOCK_MAX && (int64_t)row * cluster * most < 2 * vectors) row *= 2;
    return row;
}

/* Whether the caller has left open what rows are cut by. */
static int is_open(const struct eider_config *config)
{
    static const enum eider_param params[] = {EIDER_PARAM_row,    EIDER_PARAM_block,
                                              EIDER_PARAM_keep,   EIDER_PARAM_cluster,
                                              EIDER_PARAM_shared, EIDER_PARAM_async};
    for (size_t i = 0; i < sizeof params / sizeof *params; i++)
        if (config->choice[params[i]] >= 0) return 0;
    return 1;
}

/* All of the row stays in registers, as far as those go. */
static void choose_gpu(const struct eider_layout *layout, struct eider_target target,
                       struct eider_config *config)
{
    struct eider_row_traits t = eider_row_traits_of(layout);
    int fixed_cluster = config->choice[EIDER_PARAM_cluster] >= 0, open = is_open(config);
    int cluster = fixed_cluster ? eider_config_number(config, EIDER_PARAM_cluster) : 1;
    const struct short_rule *r = short_rule_for(&t, layout->length);
    int widest = eider_row_rule_vec(&t, r->access);
    int vec = eider_config_choose(config, EIDER_PARAM_vec,
                                  vector_of(layout, widest, t.align, GPU_RAGGED_MIN));
    int64_t vectors = eider_row_vectors_of(layout, vec);
    int most = EIDER_ROW_ELEMENTS_KEPT / (vec * t.n_inputs),
        row = cluster > 1 ? EIDER_ROW_GPU_BLOCK : 1;
    if (most < 1) most = 1;
    row = threads_for(vectors, r->kept, most, row, cluster);
    int fixed = config->choice[EIDER_PARAM_block] < 0
                    ? EIDER_ROW_GPU_BLOCK_MAX
                    : eider_config_number(config, EIDER_PARAM_block);
    while (row > fixed || fixed % row) row /= 2;
    row = eider_config_choose(config, EIDER_PARAM_row, row);
    int block = r->block ? r->block : EIDER_ROW_GPU_BLOCK;
    if (row > block || cluster > 1) block = whole_warps(row); /* not shared with other rows */
    eider_config_choose(config, EIDER_PARAM_block, block);
    if (row == EIDER_ROW_GPU_BLOCK_MAX)
        most /= 2; /* a thread of so large a block has 64 registers */
    if (!fixed_cluster) cluster = blocks_for(target, vectors, row, most);
    eider_config_choose(config, EIDER_PARAM_cluster, cluster);
    int64_t threads = (int64_t)row * cluster, each = (vectors + threads - 1) / threads;
    int keep =
        eider_config_choose(config, EIDER_PARAM_keep, eider_row_kept(each < most ? each : most));
    int edges = eider_row_has_edges(layout, vec);
    int stays =
        t.columns && t.n_inputs > 1 && each <= keep; /* weights are all that unroll is for */
    int unroll = edges || stays || vec * t.n_inputs > 16 ? 1 : 2;
    eider_config_choose(config, EIDER_PARAM_unroll, open && r->unroll ? r->unroll : unroll);
    eider_config_choose(config, EIDER_PARAM_registers,
                        open ? eider_row_rule_registers(&t, r->registers) : 0);
    /* One more exchange costs less than a moment's reference, where that is within a block. */
    if (each <= keep && cluster == 1) eider_config_choose(config, EIDER_PARAM_online, 0);
    if (r->load) eider_config_choose_word(config, EIDER_PARAM_load, r->load);
}

/* No row has 96 threads. */
static int power_below(int block)
{
    int power = EIDER_ROW_GPU_BLOCK_MAX;
    while (power > block) power /= 2;
    return power;
}

/* Rows that are cut into parts anywhere on the GPU: those that blocks of a cluster are too few for,
 * however many rows there are.  The number of parts depends on the length alone, so that a row's
 * result does not depend on how many there are.  Measured on an H200 (bench/RESULTS.md). */
static int split_of(const struct eider_layout *layout, struct eider_target target,
                    const struct eider_config *config)
{
    struct eider_row_traits t = eider_row_traits_of(layout);
    int64_t parts = 1;
    int stays = config->choice[EIDER_PARAM_resident] > 0; /* blocks go through rows */
    if (!target.sm || stays || layout->length * t.widest < SPLIT_BYTES) return 1;
    while (parts < EIDER_ROW_SPLIT_MAX && 2 * parts * EIDER_ROW_SPLIT_LENGTH <= layout->length)
        parts *= 2;
    return (int)parts;
}

static void choose_split(const struct eider_layout *layout, struct eider_target target,
                         struct eider_config *config)
{
    struct eider_row_traits t = eider_row_traits_of(layout);
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
    int open = is_open(config), parts = open ? split_of(layout, facts->target, config) : 1;
    if (config->choice[EIDER_PARAM_split] >= 0)
        parts = eider_config_number(config, EIDER_PARAM_split);
    if (parts > 1)
        choose_split(layout, facts->target, config);
    else if (!facts->target.sm)
        choose_cpu(layout, config);
    else if (!open || !eider_row_choose_long(layout, facts->target, config))
        choose_gpu(layout, facts->target, config);
    eider_config_choose(config, EIDER_PARAM_split, parts);
    eider_config_choose(config, EIDER_PARAM_shared, 0);
    eider_config_choose(config, EIDER_PARAM_async, 0);
    eider_config_choose(config, EIDER_PARAM_resident, 0);
    eider_config_choose(config, EIDER_PARAM_mbarrier, 0);
    int is_read_again = facts->target.sm && !eider_config_number(config, EIDER_PARAM_keep);
    eider_config_choose(config, EIDER_PARAM_online,
                        is_read_again || (facts->target.sm && layout->moments));
    struct eider_row_traits t = eider_row_traits_of(layout);
    eider_config_choose(config, EIDER_PARAM_ahead,
                        facts->target.sm && t.columns && t.n_inputs == 1);
    eider_config_choose(config, EIDER_PARAM_registers, 0);
    eider_config_choose_word(config, EIDER_PARAM_load, t.once && !t.stores ? "cs" : "ca");
    eider_config_choose_word(config, EIDER_PARAM_store, "wb");
}
