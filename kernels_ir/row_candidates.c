/* row_candidates.c -- the configs of a row kernel that are worth timing.
 *
 * Invariant: every line is a product of lists of parameters of the template; what the template
 * refuses may be among them.
 */
#include "row_traits.h"

#include <stdio.h>

#define CLUSTER_BLOCK 256 /* threads of each block of a cluster at least */
#define WIDER_ROW_MIN 128 /* threads of each block of the most blocks */
#define SPLIT_TRIED 32    /* parts: where there may be as many, they are worth a try */
#define REGISTERS_TRIED 2 /* times EIDER_ROW_ELEMENTS_KEPT: what a thread may keep at most */
#define ROW_FACTOR 4      /* as many times more and fewer threads are tried */

/* With this vector and so many threads: all of the row kept, where it fits, so that nothing is
 * read twice; or read again, from the cache, in every stage. */
static void add_threads(const struct eider_layout *layout, int vec, int row, int unroll,
                        struct eider_text *out)
{
    struct eider_row_traits t = eider_row_traits_of(layout);
    int64_t vectors = eider_row_vectors_of(layout, vec), each = (vectors + row - 1) / row;
    int block = row < EIDER_ROW_GPU_BLOCK ? EIDER_ROW_GPU_BLOCK : row,
        most = EIDER_ROW_ELEMENTS_KEPT / (vec * t.n_inputs);
    if (row > 1 && row / 2 >= vectors) return; /* half the threads would have nothing */
    char common[96];
    snprintf(common, sizeof common, "vec=%d,row=%d,block=%d|%d,cluster=1", vec, row, block,
             2 * block <= EIDER_ROW_GPU_BLOCK_MAX ? 2 * block : block);
    if (each <= REGISTERS_TRIED * (int64_t)most && each <= eider_row_kept(INT32_MAX)) {
        eider_text_add(out, "%s,keep=%d,unroll=%d,load=ca|cs|nc,store=wb|cs%s\n", common,
                       eider_row_kept(each), unroll, t.columns ? ",ahead=0|1" : "");
        eider_text_add(out, "%s,keep=0,unroll=2|4,load=ca|last,store=wb|first\n", common);
    } else {
        eider_text_add(out, "%s,keep=0|%d,unroll=1|4,load=ca|last,store=wb\n", common,
                       most > 1 ? eider_row_kept(most) : 1);
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
    struct eider_row_traits t = eider_row_traits_of(layout);
    int64_t vectors = eider_row_vectors_of(layout, vec);
    int64_t most = REGISTERS_TRIED * (int64_t)(EIDER_ROW_ELEMENTS_KEPT / (vec * t.n_inputs));
    if (most > eider_row_kept(INT32_MAX)) most = eider_row_kept(INT32_MAX);
    for (int blocks = 2; blocks <= EIDER_ROW_CLUSTER_MAX; blocks *= 2) {
        int64_t threads = (int64_t)row * blocks, each = (vectors + threads - 1) / threads;
        if (each < EIDER_ROW_VECTORS_KEPT / 2 ||
            (each > most && blocks < EIDER_ROW_CLUSTER_PORTABLE))
            continue;
        int keep = eider_row_kept(each < most ? each : most);
        eider_text_add(out, "vec=%d,row=%d,block=%d,cluster=%d,keep=%d,mbarrier=0|1,", vec, row,
                       row, blocks, keep);
        if (t.columns)
            eider_text_add(out, "unroll=2|4,load=ca,ahead=1\n");
        else
            eider_text_add(out, "unroll=%d,load=ca|cs\n", unroll);
    }
}

/* Long rows in shared memory, all of them or half, one for each block or going through all. */
static void add_shared(const struct eider_layout *layout, struct eider_target target, int vec,
                       int row, struct eider_text *out)
{
    struct eider_row_traits t = eider_row_traits_of(layout);
    int64_t vectors = eider_row_vectors_of(layout, vec);
    int most = target.sm < EIDER_ROW_CLUSTER_SM ? 1 : EIDER_ROW_CLUSTER_MAX;
    for (int blocks = 1; blocks <= most; blocks *= 2) {
        int64_t threads = (int64_t)row * blocks, each = (vectors + threads - 1) / threads;
        int half = eider_row_kept(each / 2), quarter = eider_row_kept(each / 4);
        int all = eider_row_fitting(&t, target, row, each);
        if (each < EIDER_ROW_VECTORS_KEPT || all < each) continue;
        char common[112];
        snprintf(common, sizeof common, "vec=%d,row=%d,block=%d,cluster=%d,async=1%s", vec, row,
                 row, blocks, t.columns ? ",ahead=1" : "");
        const char *meets = blocks > 1 ? ",mbarrier=0|1" : "", *steps = t.columns ? "1|2|4" : "1";
        eider_text_add(out, "%s,keep=0,shared=%d,unroll=%s%s\n", common, all,
                       t.columns ? "2|4|8" : "1|2", meets);
        eider_text_add(out, "%s,keep=0,shared=%d,unroll=2,resident=1\n", common, all);
        eider_text_add(out, "%s,keep=%d,shared=%d,unroll=%s%s\n", common, half,
                       eider_row_kept(each - half), steps, meets);
        eider_text_add(out, "%s,keep=%d,shared=%d,unroll=%s%s\n", common, quarter,
                       eider_row_kept(each - quarter), steps, meets);
    }
}

/* Long rows in parts, so that a few of them use the whole GPU. */
static void add_parts(const struct eider_layout *layout, int vec, int row, struct eider_text *out)
{
    int most = 1;
    while (most < EIDER_ROW_SPLIT_MAX && most * (int64_t)EIDER_ROW_SPLIT_LENGTH <= layout->length)
        most *= 2;
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

/* Over the most blocks, with so many of a thread's vectors in registers and the others in shared
 * memory. */
static void add_kept(int vec, int row, int64_t each, int keep, struct eider_text *out)
{
    eider_text_add(out,
                   "*vec=%d,row=%d,block=%d,cluster=%d,keep=%d,shared=%d,async=1,mbarrier=1,"
                   "unroll=1,online=0,load=ca,store=wb\n",
                   vec, row, row, EIDER_ROW_CLUSTER_MAX, keep, eider_row_kept(each - keep));
}

/* Where the rule has as many blocks as every GPU takes, twice as many, of half as many threads to
 * twice as many: two rows overlap then where one had all of the multiprocessors. */
static void add_wider(const struct eider_layout *layout, struct eider_target target,
                      const struct eider_config *rule, struct eider_text *out)
{
    struct eider_row_config c = eider_row_config_of(rule);
    struct eider_row_traits t = eider_row_traits_of(layout);
    if (c.cluster != EIDER_ROW_CLUSTER_PORTABLE || !c.mbarrier || t.columns) return;
    int64_t vectors = eider_row_vectors_of(layout, c.vec);
    int row = c.row / 2 < WIDER_ROW_MIN ? WIDER_ROW_MIN : c.row / 2;
    for (; row <= 2 * c.row && row <= EIDER_ROW_GPU_BLOCK_MAX; row *= 2) {
        int64_t threads = (int64_t)row * EIDER_ROW_CLUSTER_MAX;
        int64_t each = (vectors + threads - 1) / threads;
        if (eider_row_fitting(&t, target, row, each) < each) continue;
        add_kept(c.vec, row, each, eider_row_kept(each / 4), out);
        add_kept(c.vec, row, each, eider_row_kept(each / 2), out);
    }
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
    if (target.sm >= EIDER_ROW_CLUSTER_SM) add_wider(layout, target, rule, out);
    for (; vec <= 2 * c.vec && vec <= layout->vec_max; vec *= 2)
        for (int r = row; r <= ROW_FACTOR * c.row && r <= EIDER_ROW_GPU_BLOCK_MAX; r *= 2)
            add_threads(layout, vec, r, c.unroll, out);
    for (int r = CLUSTER_BLOCK; r <= EIDER_ROW_GPU_BLOCK_MAX && c.row >= CLUSTER_BLOCK; r *= 2) {
        if (target.sm >= EIDER_ROW_CLUSTER_SM) add_clusters(layout, c.vec, r, c.unroll, out);
        if (target.sm >= EIDER_ROW_ASYNC_SM) add_shared(layout, target, c.vec, r, out);
        add_parts(layout, c.vec, r, out);
    }
}
