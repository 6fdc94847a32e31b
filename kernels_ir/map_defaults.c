/* map_defaults.c -- the config of a map kernel that nobody tuned.
 *
 * Invariant: the result passes the template's check for the same layout and target.
 * The numbers come from measurements of streaming kernels; see docs/ARCHITECTURE.md.
 */
#include "map.h"

/* Bytes in flight per thread that hide the latency of device memory. */
#define IN_FLIGHT_BYTES 64
#define REGISTER_BYTES_MAX 256 /* of loaded words per thread */
#define CPU_BLOCK_BYTES 32768  /* per operand: a block's data stays in the first cache */

/* Facts of a layout that the rule uses. */
struct traits {
    int widest, narrowest; /* bytes of an element, of operands that move vectors */
    int n_vectors;         /* how many those are */
    int bytes;             /* of all tensor operands per element */
    int strided;           /* an operand whose innermost stride is not 0 or 1 */
    uint32_t align;        /* of the worst pointer, relative to its element size */
};

static struct traits traits_of(const struct eider_layout *layout)
{
    struct traits t = {.narrowest = 16, .widest = 1, .align = EIDER_MAP_ACCESS_BYTES};
    for (uint32_t i = 0; i < layout->n_operands; i++) {
        const struct eider_layout_operand *operand = &layout->operands[i];
        int size = (int)eider_dtype_size(operand->type);
        int inner = operand->stride_class[layout->rank - 1];
        if (operand->kind == EIDER_SCALAR) continue;
        t.bytes += size;
        if (inner == 2) t.strided = 1;
        if (inner != 1) continue;
        t.n_vectors++;
        if (size > t.widest) t.widest = size;
        if (size < t.narrowest) t.narrowest = size;
        if (operand->align < EIDER_MAP_ACCESS_BYTES && operand->align / (uint32_t)size < t.align)
            t.align = operand->align / (uint32_t)size;
    }
    return t;
}

static int at_most(int a, int b)
{
    return a < b ? a : b;
}

/* 16 bytes per access of the widest operand, 8 at least of the narrowest; fewer where the
 * elements are too few to give every multiprocessor some. */
static void choose_gpu(const struct eider_layout *layout, const struct eider_device_facts *facts,
                       struct eider_config *config)
{
    struct traits t = traits_of(layout);
    int vec = EIDER_MAP_ACCESS_BYTES / t.widest, block = 256, unroll = 1;
    if (t.n_vectors && vec * t.narrowest < 8) vec = 8 / t.narrowest;
    if (t.strided) vec = at_most(vec, 4 / at_most(t.narrowest, 4));
    vec = at_most(vec, layout->vec_max);
    if (t.n_vectors) vec = at_most(vec, (int)t.align);
    while (vec > 1 && vec * t.bytes > REGISTER_BYTES_MAX) vec /= 2;
    int units = facts->units > 0 ? facts->units : 132;
    int64_t threads = (int64_t)units * 1024;
    while (layout->count && vec > 1 && layout->count / vec < threads) vec /= 2;
    while (unroll < 4 && unroll * vec * t.bytes < IN_FLIGHT_BYTES &&
           unroll * vec * t.bytes * 2 <= REGISTER_BYTES_MAX &&
           (!layout->count || layout->count / (2 * unroll * vec) >= threads))
        unroll *= 2;
    if (layout->count && layout->count / (vec * unroll * block) < 2 * units) block = 128;
    eider_config_set_number(config, EIDER_PARAM_vec, vec);
    eider_config_set_number(config, EIDER_PARAM_unroll, unroll);
    eider_config_set_number(config, EIDER_PARAM_block, block);
    eider_config_set_number(config, EIDER_PARAM_tiles, 1);
}

static void choose_cpu(const struct eider_layout *layout, struct eider_config *config)
{
    struct traits t = traits_of(layout);
    int vec = at_most(16, layout->vec_max), unroll = vec < 16 ? 4 : 2, tiles = 1;
    while (tiles < 256 && 2 * tiles * vec * unroll * t.widest <= CPU_BLOCK_BYTES) tiles *= 2;
    eider_config_set_number(config, EIDER_PARAM_vec, vec);
    eider_config_set_number(config, EIDER_PARAM_unroll, unroll);
    eider_config_set_number(config, EIDER_PARAM_block, 1);
    eider_config_set_number(config, EIDER_PARAM_tiles, tiles);
}

void eider_map_defaults(const struct eider_layout *layout, const struct eider_device_facts *facts,
                        struct eider_config *config)
{
    struct eider_config rule = eider_config_unset();
    if (facts->target.sm)
        choose_gpu(layout, facts, &rule);
    else
        choose_cpu(layout, &rule);
    eider_config_set(&rule, EIDER_PARAM_load, "ca");
    eider_config_set(&rule, EIDER_PARAM_store, "wb");
    eider_config_set_number(&rule, EIDER_PARAM_index, layout->index_bits);
    eider_config_set_number(&rule, EIDER_PARAM_packed, 0);
    for (int p = 0; p < EIDER_PARAM_COUNT; p++)
        if (config->choice[p] < 0) config->choice[p] = rule.choice[p];
}
