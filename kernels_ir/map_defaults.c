/* map_defaults.c -- the config of a map kernel that nobody tuned.
 *
 * Invariant: what the caller has set stays; what is added passes the template's check for
 * the same layout and target, unless what was set cannot.
 * The rules come from bench/configs.py on an H200: at 2^28 elements what they choose reaches at
 * least 0.995 of the best of 63 configs for one to three inputs and one to three outputs of
 * bf16 and f32.  Persistent blocks (tiles above 1) and accesses of 16 bytes were slower.
 */
#include "map.h"

#define GPU_UNITS 132         /* where the device is not known */
#define THREADS_PER_UNIT 1024 /* that hide the latency of device memory */
#define ACCESS_BYTES 8        /* of the widest operand */
#define NARROW_BYTES 4        /* per access of the narrowest operand */
#define GPU_BLOCK 128
#define CPU_BLOCK_BYTES 32768   /* per operand: a block's data stays in the first cache */
#define CPU_BLOCKS_PER_THREAD 4 /* so that threads end together */

/* Facts of a layout that the rules use; of operands that move vectors unless it says all. */
struct traits {
    int widest, narrowest; /* bytes of an element */
    int n_outputs;
    int bytes;   /* of all tensors per element, all operands */
    int strided; /* there is an operand whose innermost stride is not 0 or 1 */
    int align;   /* elements that the worst pointer allows in one access */
};

static struct traits traits_of(const struct eider_layout *layout)
{
    struct traits t = {.widest = 1, .narrowest = 16, .align = EIDER_MAP_ACCESS_BYTES};
    for (uint32_t i = 0; i < layout->n_operands; i++) {
        const struct eider_layout_operand *operand = &layout->operands[i];
        int size = (int)eider_dtype_size(operand->type), align = (int)operand->align / size;
        int inner = operand->stride_class[layout->rank - 1];
        if (operand->kind == EIDER_SCALAR) continue;
        t.bytes += size;
        if (inner == 2) t.strided = 1;
        if (inner != 1) continue;
        if (operand->kind == EIDER_OUTPUT) t.n_outputs++;
        if (size > t.widest) t.widest = size;
        if (size < t.narrowest) t.narrowest = size;
        if (operand->align < EIDER_MAP_ACCESS_BYTES && align < t.align) t.align = align;
    }
    return t;
}

static int at_most(int a, int b)
{
    return a < b ? a : b;
}

/* One access of ACCESS_BYTES of the widest operand; less where rows, pointers or strides allow
 * no more, or where the elements would not occupy the device. */
static int gpu_vec(const struct eider_layout *layout, const struct traits *t, int64_t threads)
{
    int vec = ACCESS_BYTES / t->widest;
    if (vec * t->narrowest < NARROW_BYTES) vec = NARROW_BYTES / t->narrowest;
    vec = at_most(at_most(vec, layout->vec_max), t->align);
    if (t->strided) return 1;
    while (layout->count && vec * t->narrowest > 4 && vec > 1 && layout->count / vec < threads)
        vec /= 2;
    return vec;
}

/* Two vectors in flight, one where stores are in the majority anyway.  Plain policies: streaming
 * ones gain 0.1 % when a kernel follows itself and lose 5 % when it follows another. */
static void choose_gpu(const struct eider_layout *layout, const struct eider_device_facts *facts,
                       struct eider_config *config)
{
    struct traits t = traits_of(layout);
    int units = facts->units > 0 ? facts->units : GPU_UNITS;
    int64_t threads = (int64_t)units * THREADS_PER_UNIT;
    int vec = eider_config_choose(config, EIDER_PARAM_vec, gpu_vec(layout, &t, threads));
    int two =
        !t.strided && t.n_outputs == 1 && (!layout->count || layout->count / (2 * vec) >= threads);
    eider_config_choose(config, EIDER_PARAM_unroll, two ? 2 : 1);
    eider_config_choose(config, EIDER_PARAM_block, GPU_BLOCK);
    eider_config_choose(config, EIDER_PARAM_tiles, 1);
    eider_config_choose_word(config, EIDER_PARAM_load, "ca");
    eider_config_choose_word(config, EIDER_PARAM_store, "wb");
    eider_config_choose(config, EIDER_PARAM_packed, layout->packable);
}

/* Whether a launch is known to move more than the last cache holds. */
static int is_large(const struct eider_layout *layout, const struct traits *t,
                    const struct eider_device_facts *facts)
{
    return facts->l2_bytes && layout->count > 0 &&
           (uint64_t)layout->count > facts->l2_bytes / (uint64_t)t->bytes;
}

static void choose_cpu(const struct eider_layout *layout, const struct eider_device_facts *facts,
                       struct eider_config *config)
{
    struct traits t = traits_of(layout);
    int threads = facts->units > 0 ? facts->units : 1, tiles = 1;
    int vec = eider_config_choose(config, EIDER_PARAM_vec, at_most(16, layout->vec_max));
    int unroll = eider_config_choose(config, EIDER_PARAM_unroll, vec < 16 ? 4 : 2);
    int block = eider_config_choose(config, EIDER_PARAM_block, 1);
    int64_t tile = (int64_t)vec * unroll * block;
    while (tiles < 256 && 2 * tiles * tile * t.widest <= CPU_BLOCK_BYTES &&
           (!layout->count ||
            layout->count / (2 * tiles * tile) >= (int64_t)threads * CPU_BLOCKS_PER_THREAD))
        tiles *= 2;
    eider_config_choose(config, EIDER_PARAM_tiles, tiles);
    eider_config_choose_word(config, EIDER_PARAM_load, "ca");
    eider_config_choose_word(config, EIDER_PARAM_store, is_large(layout, &t, facts) ? "cs" : "wb");
    eider_config_choose(config, EIDER_PARAM_packed, 0);
}

void eider_map_defaults(const struct eider_layout *layout, const struct eider_device_facts *facts,
                        struct eider_config *config)
{
    eider_config_choose(config, EIDER_PARAM_index, layout->index_bits);
    if (facts->target.sm)
        choose_gpu(layout, facts, config);
    else
        choose_cpu(layout, facts, config);
}

/* The parameters that matter for streaming kernels. */
void eider_map_space(const struct eider_layout *layout, struct eider_target target,
                     const struct eider_config *rule, struct eider_text *out)
{
    (void)layout, (void)rule;
    eider_text_add(out, target.sm ? "vec=2|4|8|16,unroll=1|2|4,block=128|256|512,tiles=1|2,"
                                    "load=ca|cs|nc,store=wb|cs\n"
                                  : "vec=8|16|32,unroll=1|2|4,block=1,tiles=16|64|256\n");
}
