/* row_long.c -- the config of long rows that nobody tuned, by a table.
 *
 * Invariant: a rule is taken for rows of vectors only, and what it sets fits shared memory.
 */
#include "row_traits.h"

/* Long rows: how much of them a block takes, and where its threads keep that.  Measured on an H200
 * (bench/RESULTS.md).  Of what needs one pass the longest keep nothing.  Rows of up to 64 KiB are
 * read again for the last pass, from caches that are told to hold them until then, where there is
 * not much to load or to compute besides: nothing else writes as fast.  So are some of 128 KiB,
 * where one block takes all registers of a multiprocessor and its row the first cache.  Of longer
 * ones a few blocks with 32 to 128 KiB each are on every multiprocessor, so that some load while
 * others compute, in registers or, filled asynchronously, in shared memory, since registers for
 * what is in flight would leave too few warps.
 */
#define KIB 1024
#define ROUND (16 * KIB) /* 8 blocks of 128 threads have a vector of 16 bytes each */

/* Rows that do not begin at a vector, or are no whole number of them; or those, and rows that are
 * no whole number of rounds, in which many threads have no last vector. */
enum { EDGES = 1, UNEVEN = 2 };

static const struct long_rule {
    int width, kind, class;
    int above;     /* KiB of a row, in all inputs together */
    int block;     /* KiB of which a block takes as many; the rest others, of its cluster, or, where
                    * nothing is reduced, any; 0: all */
    int row, keep; /* keep: vectors in registers */
    int shares;    /* the others stay in shared memory */
    int unroll;
    int access; /* bytes of a vector; 0: 16 */
    int mbarrier;
    int registers;
    int only;                 /* rows that are like this; 0: any */
    int light;                /* only few operations for each element */
    const char *load, *store; /* NULL: as everywhere */
} long_rules[] = {
    {NARROW, MAP, ANY, 8, 8, 256, .access = 8, .unroll = 4},
    {NARROW, MAP, ANY, 64, 32, 512, .access = 8, .unroll = 4, .only = EDGES},
    {WIDE, MAP, ANY, 8, 8, 256, .unroll = 2},

    {NARROW, ONCE, ANY, 8, 16, 128, 16, .access = 8, .unroll = 2},
    {NARROW, ONCE, ANY, 16, 32, 256, 16, .access = 8, .unroll = 2},
    {NARROW, ONCE, ANY, 32, 0, 256, .unroll = 4},
    {WIDE, ONCE, ANY, 64, 0, 512, .unroll = 4},

    {NARROW, ONE, PLAIN, 4, 0, 256, .unroll = 4, .load = "last", .store = "first"},
    {NARROW, ONE, PLAIN, 8, 0, 512, .unroll = 4, .load = "last", .store = "first"},
    {NARROW, ONE, PLAIN, 16, 0, 512, .unroll = 2, .load = "last", .store = "first"},
    {NARROW, ONE, PLAIN, 32, 0, 512, .unroll = 4, .load = "last"},
    {NARROW, ONE, HEAVY, 8, 0, 256, 2, .shares = 1, .unroll = 1},
    {NARROW, ONE, HEAVY, 16, 0, 512, 1, .shares = 1, .unroll = 1},
    {NARROW, ONE, HEAVY, 32, 0, 512, 2, .shares = 1, .unroll = 1},
    {NARROW, ONE, PLAIN, 64, 16, 128, 4, .shares = 1, .unroll = 1, .mbarrier = 1},
    {NARROW, ONE, HEAVY, 64, 32, 128, 8, .shares = 1, .unroll = 1, .mbarrier = 1},
    {NARROW, ONE, PLAIN | HEAVY, 64, 64, 256, 3, .shares = 1, .unroll = 1, .mbarrier = 1,
     .only = UNEVEN},
    {NARROW, ONE, PLAIN, 128, 32, 256, 4, .shares = 1, .unroll = 1, .mbarrier = 1},
    {NARROW, ONE, HEAVY, 128, 32, 128, 4, .shares = 1, .unroll = 1, .mbarrier = 1},
    {NARROW, ONE, PLAIN | HEAVY, 128, 32, 256, 2, .shares = 1, .unroll = 1, .mbarrier = 1,
     .only = UNEVEN},
    {NARROW, ONE, PLAIN, 256, 64, 128, 16, .shares = 1, .unroll = 1, .mbarrier = 1},
    {NARROW, ONE, HEAVY, 256, 64, 256, 4, .shares = 1, .unroll = 1, .mbarrier = 1},
    {NARROW, ONE, COLUMN, 4, 0, 256, .unroll = 2, .load = "last", .store = "first"},
    {NARROW, ONE, COLUMN, 8, 0, 512, .unroll = 2, .load = "last"},
    {NARROW, ONE, COLUMN, 32, 0, 512, .unroll = 4, .load = "last"},
    {NARROW, ONE, COLUMN, 64, 0, 1024, 2, .unroll = 8, .load = "last", .store = "first"},
    {NARROW, ONE, COLUMN, 128, 128, 512, .shares = 1, .unroll = 8},
    {NARROW, ONE, COLUMN, 256, 256, 1024, 4, .shares = 1, .unroll = 2},
    {NARROW, ONE, COLUMNS, 4, 0, 128, .unroll = 4, .load = "last", .store = "first"},
    {NARROW, ONE, COLUMNS, 16, 0, 256, .shares = 1, .unroll = 4},
    {NARROW, ONE, COLUMNS, 32, 0, 512, .shares = 1, .unroll = 4, .registers = 64, .load = "last"},
    {NARROW, ONE, COLUMNS, 64, 0, 1024, 4, .shares = 1, .unroll = 2},
    {NARROW, ONE, COLUMNS, 128, 32, 128, 4, .shares = 1, .unroll = 2},
    {NARROW, ONE, COLUMNS, 256, 64, 256, 4, .shares = 1, .unroll = 2},

    {WIDE, ONE, PLAIN | COLUMNS, 8, 0, 256, .unroll = 4, .load = "last", .store = "first"},
    {WIDE, ONE, HEAVY, 8, 0, 512, 2, .unroll = 1},
    {WIDE, ONE, HEAVY, 16, 0, 256, .unroll = 4, .load = "last", .store = "first"},
    {WIDE, ONE, HEAVY, 32, 0, 512, .unroll = 4, .load = "last"},
    {WIDE, ONE, COLUMN, 8, 0, 512, .unroll = 2, .load = "last", .store = "first"},
    {WIDE, ONE, PLAIN, 16, 0, 512, .unroll = 2, .load = "last", .store = "first"},
    {WIDE, ONE, COLUMNS, 16, 0, 512, .unroll = 2, .load = "last", .store = "first"},
    {WIDE, ONE, COLUMNS, 32, 32, 256, 8, .unroll = 4, .mbarrier = 1},
    {WIDE, ONE, PLAIN | COLUMN, 32, 0, 1024, .unroll = 2, .load = "last"},
    {WIDE, ONE, HEAVY, 64, 16, 128, 8, .unroll = 1, .mbarrier = 1},
    {WIDE, ONE, PLAIN, 64, 0, 1024, 2, .unroll = 8, .load = "last"},
    {WIDE, ONE, PLAIN | HEAVY, 128, 64, 512, 8, .unroll = 1, .mbarrier = 1},
    {WIDE, ONE, HEAVY, 256, 64, 256, 16, .unroll = 1, .mbarrier = 1},
    {WIDE, ONE, PLAIN | HEAVY, 512, 128, 256, 16, .shares = 1, .unroll = 1, .mbarrier = 1},
    {WIDE, ONE, COLUMN, 64, 0, 1024, .unroll = 8, .load = "last", .store = "first"},
    {WIDE, ONE, COLUMN, 128, 32, 128, 16, .unroll = 4, .mbarrier = 1},
    {WIDE, ONE, COLUMN, 256, 128, 1024, 8, .unroll = 4, .mbarrier = 1},
    {WIDE, ONE, COLUMN, 512, 256, 1024, 4, .shares = 1, .unroll = 4},
    {WIDE, ONE, COLUMNS, 64, 64, 512, 8, .unroll = 2, .mbarrier = 1},
    {WIDE, ONE, COLUMNS, 128, 32, 128, 16, .unroll = 2, .mbarrier = 1},
    {WIDE, ONE, COLUMNS, 256, 256, 512, 16, .shares = 1, .unroll = 4},

    {NARROW, MANY, PLAIN, 8, 0, 512, .unroll = 1, .load = "last", .store = "first"},
    {NARROW, MANY, PLAIN, 16, 0, 512, .unroll = 2, .load = "last", .store = "first"},
    {NARROW, MANY, COLUMN, 8, 0, 512, 1, .unroll = 1, .store = "first", .light = 1},
    {NARROW, MANY, COLUMN, 16, 0, 512, 2, .unroll = 1, .light = 1},
    {NARROW, MANY, HEAVY | COLUMN | COLUMNS, 32, 64, 512, .shares = 1, .unroll = 2},
    {NARROW, MANY, PLAIN, 32, 0, 1024, .unroll = 1, .load = "last", .store = "first"},
    {NARROW, MANY, PLAIN | HEAVY, 64, 128, 1024, 4, .unroll = 1},
    {NARROW, MANY, PLAIN | HEAVY, 128, 128, 512, 8, .unroll = 1},
    {NARROW, MANY, COLUMN | COLUMNS, 64, 128, 512, 4, .shares = 1, .unroll = 1},
    {NARROW, MANY, COLUMN | COLUMNS, 128, 256, 1024, 2, .shares = 1, .unroll = 2},
    {NARROW, MANY, COLUMN | COLUMNS, 256, 128, 256, 4, .shares = 1, .unroll = 2},
    {NARROW, MANY, COLUMN | COLUMNS, 512, 128, 256, 4, .shares = 1, .unroll = 4, .load = "last"},
    {NARROW, MANY, COLUMN, 128, 128, 512, 2, .shares = 1, .unroll = 4, .registers = 64,
     .load = "last", .light = 1},

    {WIDE, MANY, PLAIN, 16, 0, 512, .unroll = 1, .load = "last", .store = "first"},
    {WIDE, MANY, PLAIN, 32, 0, 1024, .unroll = 1, .load = "last"},
    {WIDE, MANY, COLUMN, 16, 0, 1024, 1, .unroll = 1, .store = "cs", .light = 1},
    {WIDE, MANY, COLUMN, 32, 0, 512, 4, .unroll = 1, .light = 1},
    {WIDE, MANY, HEAVY | COLUMN | COLUMNS, 64, 128, 512, .shares = 1, .unroll = 2},
    {WIDE, MANY, PLAIN, 64, 0, 1024, .unroll = 4, .load = "last"},
    {WIDE, MANY, PLAIN | HEAVY, 128, 128, 512, 8, .unroll = 1},
    {WIDE, MANY, PLAIN | HEAVY, 1024, 256, 1024, 4, .shares = 1, .unroll = 1},
    {WIDE, MANY, COLUMN | COLUMNS, 128, 256, 1024, 4, .shares = 1, .unroll = 2},
    {WIDE, MANY, COLUMN | COLUMNS, 256, 64, 512, 4, .unroll = 4, .mbarrier = 1},
    {WIDE, MANY, COLUMN | COLUMNS, 512, 128, 512, 4, .shares = 1, .unroll = 2, .registers = 64},
    {WIDE, MANY, COLUMN, 512, 128, 512, 4, .shares = 1, .unroll = 4, .registers = 64, .light = 1},
    {WIDE, MANY, COLUMN | COLUMNS, 1024, 256, 1024, 4, .shares = 1, .unroll = 2},
    {WIDE, MANY, COLUMN, 1024, 256, 1024, 4, .shares = 1, .unroll = 4, .light = 1},
};

static int is_like(const struct eider_row_traits *t, const struct eider_layout *layout,
                   const struct long_rule *r)
{
    return eider_row_has_edges(layout, eider_row_rule_vec(t, r->access)) ||
           (r->only == UNEVEN && layout->length * t->widest % ROUND);
}

/* The last one that fits. */
static const struct long_rule *long_rule_for(const struct eider_row_traits *t,
                                             const struct eider_layout *layout, int64_t bytes)
{
    const struct long_rule *found = NULL;
    for (size_t i = 0; i < sizeof long_rules / sizeof *long_rules; i++) {
        const struct long_rule *r = &long_rules[i];
        int fits = eider_row_rule_fits(t, r->width, r->kind, r->class, r->light);
        if (r->only) fits = fits && is_like(t, layout, r);
        if (fits && bytes > (int64_t)r->above * KIB) found = r;
    }
    return found;
}

/* What all rows share, which stays with `resident`, may leave too little room, and so may inputs
 * wider than others. */
static void fit_memory(const struct eider_layout *layout, struct eider_target target,
                       struct eider_row_config *c)
{
    int64_t most = eider_row_shared_limit(target) - EIDER_ROW_SHARED_FOR_REDUCTIONS;
    while (c->shared && eider_row_launch_bytes(layout, c) > most)
        c->shared = eider_row_kept(c->shared / 2);
}

/* Rules were made with two inputs at most, with whole vectors where all rows share some, which are
 * loaded ahead then, and with few operations where they say more than 4. */
static int unroll_of(const struct eider_row_traits *t, const struct long_rule *r, int edges)
{
    int unroll = t->n_inputs > 2 ? (r->unroll + 1) / 2 : r->unroll;
    int most = t->columns && edges ? 2 : t->heavy ? 4 : 8;
    return unroll < most ? unroll : most;
}

/* Threads of a row in a block: weights that are loaded by elements take more registers than 1024
 * have. */
static int row_of(const struct eider_row_traits *t, const struct long_rule *r, int edges)
{
    int is_wide = r->row == EIDER_ROW_GPU_BLOCK_MAX;
    return t->columns && edges && is_wide ? EIDER_ROW_GPU_BLOCK_MAX / 2 : r->row;
}

int eider_row_choose_long(const struct eider_layout *layout, struct eider_target target,
                          struct eider_config *config)
{
    struct eider_row_traits t = eider_row_traits_of(layout);
    int most = target.sm < EIDER_ROW_CLUSTER_SM ? 1 : EIDER_ROW_CLUSTER_PORTABLE, cluster = 1;
    int64_t bytes = layout->length * t.widest * t.n_inputs;
    const struct long_rule *r = long_rule_for(&t, layout, bytes);
    if (!r || target.sm < EIDER_ROW_ASYNC_SM) return 0;
    int vec = eider_row_rule_vec(&t, r->access);
    int64_t vectors = (layout->length + vec - 1) / vec;
    int64_t block_bytes = r->block ? (int64_t)r->block * KIB : bytes;
    if (!eider_row_vectors_fit(layout, vec, t.align) || vec > layout->vec_max) return 0;
    if (eider_config_choose(config, EIDER_PARAM_vec, vec) != vec) return 0;
    int resident = eider_config_choose(config, EIDER_PARAM_resident, 0);
    int is_map = r->kind == MAP, split = 1;
    while (!is_map && cluster < most && block_bytes < bytes / cluster) cluster *= 2;
    while (is_map && !resident && split < EIDER_ROW_SPLIT_MAX && block_bytes < bytes / split)
        split *= 2;
    int edges = eider_row_has_edges(layout, vec), row = row_of(&t, r, edges);
    int64_t threads = (int64_t)row * cluster, each = (vectors + threads - 1) / threads;
    int crowd = t.n_inputs > 2 ? t.n_inputs : 2; /* rules were made with two inputs at most */
    int keep = r->keep * 2 / crowd < each ? r->keep * 2 / crowd : eider_row_kept(each);
    int shared = r->shares ? eider_row_fitting(&t, target, row, each - keep) : 0;
    struct eider_row_config c = {.vec = vec, .block = row, .row = row, .cluster = cluster};
    c.keep = keep, c.shared = shared, c.resident = resident;
    fit_memory(layout, target, &c);
    eider_config_choose(config, EIDER_PARAM_row, row);
    eider_config_choose(config, EIDER_PARAM_block, row);
    eider_config_choose(config, EIDER_PARAM_keep, keep);
    eider_config_choose(config, EIDER_PARAM_cluster, cluster);
    eider_config_choose(config, EIDER_PARAM_shared, c.shared);
    eider_config_choose(config, EIDER_PARAM_async, c.shared > 0);
    eider_config_choose(config, EIDER_PARAM_unroll, unroll_of(&t, r, edges));
    eider_config_choose(config, EIDER_PARAM_split, split);
    eider_config_choose(config, EIDER_PARAM_mbarrier, r->mbarrier && cluster > 1 && !resident);
    eider_config_choose(config, EIDER_PARAM_ahead, t.columns > 0);
    eider_config_choose(config, EIDER_PARAM_registers, eider_row_rule_registers(&t, r->registers));
    if (keep + c.shared < each) eider_config_choose(config, EIDER_PARAM_online, 1);
    if (r->load) eider_config_choose_word(config, EIDER_PARAM_load, r->load);
    if (r->store) eider_config_choose_word(config, EIDER_PARAM_store, r->store);
    return 1;
}
