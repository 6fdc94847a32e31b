/* map.h -- what the files of the template `map` share.
 *
 *   map.c          the row of the template: which programs, defaults, checks, text
 *   map_space.c    shapes and strides of a call to one normalised iteration space
 *   map_overlap.c  which operands may share memory
 *   map_bind.c     a call to the parameters of a launch
 *   map_build.c    the IR
 *   map_packed.c   the IR of a program over pairs of 16-bit values
 *   map_defaults.c the config that nobody tuned
 *
 * The kernel.  The collapsed iteration space is one long line of elements.  A *tile* is
 * block * unroll * vec of them; a block works through `tiles` consecutive ones.  In a whole
 * tile each thread loads `unroll` vectors, one block-width apart, then computes, then
 * stores.  The last tile, and every tile of a launch whose pointers or strides do not allow
 * vectors, goes through a loop over single elements instead; so one kernel serves every call.
 */
#ifndef EIDER_KERNELS_MAP_H
#define EIDER_KERNELS_MAP_H

#include "template.h"

/* A config as numbers. */
struct eider_map_config {
    int vec, unroll, block, tiles, index_bits, packed;
    enum eider_load_policy load;
    enum eider_store_policy store;
};

struct eider_map_config eider_map_config_of(const struct eider_config *config);

/* Elements of a tile. */
static inline int64_t eider_map_tile(const struct eider_map_config *c)
{
    return (int64_t)c->vec * c->unroll * c->block;
}

/* The largest access, and so the largest alignment that matters. */
#define EIDER_MAP_ACCESS_BYTES 16

/* What bind found out about a launch; the kernel takes vectors where all that the machine
 * and the load policy need are set. */
#define EIDER_MAP_EVEN 1u    /* no vector crosses the end of an innermost row */
#define EIDER_MAP_ALIGNED 2u /* every vector access is aligned to its size */
#define EIDER_MAP_APART 4u   /* no output shares memory with an input */
#define EIDER_MAP_STREAM 8u  /* outputs are aligned for stores that stream on any machine */

/* ---- The iteration space of a call --------------------------------------- */

/* Dimensions outermost first; extents above 1, no two adjacent ones that could be one.
 * The first output's strides are positive and descend. */
struct eider_map_space {
    int rank;
    int64_t count; /* elements; 0: nothing to do */
    int64_t extent[EIDER_RANK_MAX];
    int64_t stride[EIDER_OPERANDS_MAX][EIDER_RANK_MAX]; /* bytes */
    uintptr_t data[EIDER_OPERANDS_MAX];                 /* address of the first element */
};

/* Normalises a call.  `operands` gives kind and type of each operand; `program` its name
 * in messages, or NULL.  Fails with EIDER_BAD_ARG, EIDER_TYPE, EIDER_SHAPE,
 * EIDER_TOO_LARGE. */
eider_status eider_map_space_of(const struct eider_layout_operand *operands, uint32_t n_operands,
                                const struct eider_graph *program, const eider_tensor *args,
                                struct eider_map_space *out);

/* What the call's operands hold, each element once however often it is read. */
uint64_t eider_map_space_bytes(const struct eider_layout *layout,
                               const struct eider_map_space *space);

/* "operand 2" or "input 'gate'"; `buffer` has EIDER_MAP_NAME_BYTES bytes. */
#define EIDER_MAP_NAME_BYTES (EIDER_NAME_BYTES + 16)
const char *eider_map_name(const struct eider_graph *program, uint32_t i, char *buffer);

/* Type, rank, shape and data of one operand are possible values. */
eider_status eider_map_check_operand(const struct eider_layout_operand *operand,
                                     const struct eider_graph *program, uint32_t i,
                                     const eider_tensor *arg);

/* Whether every byte offset from an operand's first element fits 31 bits. */
int eider_map_fits_32(const struct eider_map_space *space,
                      const struct eider_layout_operand *operands, uint32_t n_operands);

/* No output overlaps itself or, other than exactly, another operand; operands at address 0
 * have no place yet and are apart.  Sets *apart to whether no output is exactly an input.
 *  Fails with EIDER_OVERLAP. */
eider_status eider_map_overlap_check(const struct eider_map_space *space,
                                     const struct eider_layout_operand *operands,
                                     uint32_t n_operands, const struct eider_graph *program,
                                     int *apart);

/* ---- The kernel's parameters --------------------------------------------- */

/* Where each parameter is: the operands, then `count` and `flags`, then the numbers of
 * the dimensions, then the strides.  0xFFFF where there is none. */
struct eider_map_slots {
    uint32_t n;
    uint16_t count, flags;
    uint16_t extent[EIDER_RANK_MAX], magic[EIDER_RANK_MAX], shift[EIDER_RANK_MAX];
    uint16_t stride[EIDER_OPERANDS_MAX][EIDER_RANK_MAX];
};

#define EIDER_MAP_NO_SLOT 0xFFFFu

void eider_map_slots_of(const struct eider_layout *layout, int index_bits,
                        struct eider_map_slots *out);

/* ---- Pairs of 16-bit values ---------------------------------------------- */

/* Sets *out to whether the program over this layout gives the same bits in pairs. */
eider_status eider_map_packed_takes(const struct eider_graph *program,
                                    const struct eider_layout *layout, int *out);

/* The same for a graph that was expanded and rewritten; fills `states`, of n_cells bytes,
 * for eider_map_packed_lower. */
int eider_map_packed_fits(const struct eider_graph *g, eider_dtype type, uint8_t *states);

/* One evaluation: packs[i] of an input is a word of two elements, and becomes one of an
 * output.  `nodes` has g->n_cells entries, of any content. */
void eider_map_packed_lower(struct eider_emit *e, const struct eider_graph *g, eider_dtype type,
                            const uint8_t *states, LLVMValueRef *nodes, LLVMValueRef *packs);

/* ---- Members of the template --------------------------------------------- */

eider_status eider_map_bind(const struct eider_layout *layout, const struct eider_config *config,
                            const eider_tensor *args, struct eider_bound *out);
void eider_map_build(struct eider_emit *e, const struct eider_lowered *program,
                     const struct eider_layout *layout, const struct eider_config *config,
                     const char *name);
extern const struct eider_template eider_template_map;
void eider_map_defaults(const struct eider_layout *layout, const struct eider_device_facts *facts,
                        struct eider_config *config);
void eider_map_space(const struct eider_layout *layout, struct eider_target target,
                     const struct eider_config *rule, struct eider_text *out);

#endif
