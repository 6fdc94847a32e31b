/* template.h -- what the files of kernels_ir/ provide: the shapes of kernels.
 *
 * A template turns a program into a kernel for one *layout*: what is known about the
 * operands when the kernel is compiled (types, rank, which strides are 0 or 1, index
 * width, alignment), and nothing more, so that one kernel serves all shapes of a layout.
 */
#ifndef EIDER_IR_TEMPLATE_H
#define EIDER_IR_TEMPLATE_H

#include "lower.h"

/* What is known of one operand. */
struct eider_layout_operand {
    eider_operand_kind kind;
    eider_dtype type;
    eider_extent extent;
    uint32_t align; /* bytes, a power of two up to 16 */
    /* Per collapsed dimension, outermost first: 0 repeats, 1 unit stride (innermost only),
     * 2 any stride, passed at launch. */
    uint8_t stride_class[EIDER_RANK_MAX];
};

struct eider_layout {
    uint32_t n_operands;
    int32_t rank;       /* after collapsing; at least 1 */
    int32_t index_bits; /* 32 or 64; by the largest byte offset */
    int32_t any;        /* accepts any strides up to `rank` */
    int32_t vec_max;    /* elements of the largest vector, <= 64; but for rows, the innermost extent
                         * is a multiple of it */
    int32_t packable;   /* pairs of 16-bit values compute the program with the same bits */
    int64_t length;     /* of every row, where the kernel is made for it; 0: of any length */
    int32_t gathers;    /* elements of a row are read by threads that another has written */
    int32_t checks;     /* the kernel records places outside of a row, see eider_fault */
    int32_t aligned;    /* rows: where each begins in the example allows vectors of so many */
    int32_t alike;      /* rows: in all operands where it differs, each begins at the same address
                         * modulo 16 bytes, in elements; only the default rule reads it */
    int32_t once;       /* rows: one pass can do all; only the default rule reads it, ... */
    int32_t moments;    /* ... differences from a mean are averaged, ... */
    uint32_t work;      /* ... and how many operations there are for each element, as written: an
                         * activation is one */
    int64_t count;      /* elements of the example; 0 when unknown.  Only the default rule
                            * reads it: it is not part of the key */
    struct eider_layout_operand operands[EIDER_OPERANDS_MAX];
};

/* Where a layout has `checks`, the module has an array EIDER_FAULTS of these, 0 when it is loaded:
 * one for each operand, of places that are computed from that input (the first of several), and a
 * last one for places that are computed from none. */
#define EIDER_FAULTS "eider_faults"
struct eider_fault {
    /* The complement of the least of row << 32 | place, which are a u32 and an i32, or the
     * nearest to what they should be; 0: there was none. */
    uint64_t first;
    uint64_t length; /* of that row */
};

/* Parameters of a bound launch; fits on the stack of eider_launch. */
#define EIDER_SLOTS_MAX 768
struct eider_bound {
    uint64_t grid; /* blocks, in x; 0: nothing to do */
    uint32_t block;
    /* Where blocks go through all there is to do: at most `per_unit` blocks for each of the
     * device's multiprocessors are launched, a multiple of `granule`, and parameter `in_flight` is
     * grid / granule.  per_unit 0: the grid is as bind says. */
    uint32_t per_unit, granule, in_flight;
    /* Where there are several rounds: the parameters that say which one this is, and where what
     * they share is, of `units` * eider_rounds.unit_bytes. */
    uint32_t round, memory;
    uint64_t units;
    uint32_t n_params;
    void *params[EIDER_SLOTS_MAX]; /* as cuLaunchKernel wants them: into slots[] */
    uint64_t slots[EIDER_SLOTS_MAX];
};

/* A kernel may be launched several times, one after the other, in memory of their own where one
 * round leaves what later ones read. */
struct eider_rounds {
    uint32_t n;          /* 1: it is launched once, and has no such memory */
    uint32_t last_share; /* the last round has only the first 1 / last_share of the grid */
    uint64_t unit_bytes;
};

static inline void eider_bound_put(struct eider_bound *bound, uint32_t slot, uint64_t value)
{
    bound->slots[slot] = value;
    bound->params[slot] = &bound->slots[slot];
}

/* What the default rule may know of the device. */
struct eider_device_facts {
    struct eider_target target;
    int32_t units; /* multiprocessors, or threads */
    uint64_t l2_bytes;
};

struct eider_template {
    const char *name, *doc;
    uint32_t uses; /* bit p set: parameter p of params.def matters */

    /* Whether `program` fits this template. */
    int (*takes)(const struct eider_graph *program);
    /* What is known of the operands.  Fails with EIDER_SHAPE, EIDER_TYPE. */
    eider_status (*layout)(const struct eider_graph *program, const eider_tensor *args,
                           int any_layout, struct eider_layout *out);
    /* Sets every unset parameter in `uses`, by rule; leaves the others unset. */
    void (*defaults)(const struct eider_layout *layout, const struct eider_device_facts *facts,
                     struct eider_config *config);
    /* The configs worth timing, around `rule`, which is complete: a product of lists in each
     * line, as eider_tune_request.space is written, of parameters in `uses`; behind a '*' those
     * that a directed search asks for first, because they often win.  Configs that `check` refuses
     * may be among them, and one may be there twice. */
    void (*space)(const struct eider_layout *layout, struct eider_target target,
                  const struct eider_config *rule, struct eider_text *out);
    /* Fails with EIDER_CONFIG, naming the parameter, when `config` cannot work. */
    eider_status (*check)(const struct eider_layout *layout, struct eider_target target,
                          const struct eider_config *config);
    /* Threads of a block, where they wait for one another; else 0.  NULL: they never do. */
    uint32_t (*fibers)(const struct eider_layout *layout, const struct eider_config *config);
    /* Bytes of shared memory of a block that are given at launch.  NULL: none. */
    uint32_t (*shared)(const struct eider_layout *layout, const struct eider_config *config);
    /* How often a kernel is launched.  Fails with EIDER_OOM.  NULL: once. */
    eider_status (*rounds)(const struct eider_lowered *program, const struct eider_layout *layout,
                           const struct eider_config *config, struct eider_rounds *out);
    /* Fills e->module with the kernel `name`.  Failures stick in e->status. */
    void (*build)(struct eider_emit *e, const struct eider_lowered *program,
                  const struct eider_layout *layout, const struct eider_config *config,
                  const char *name);
    /* Checks `args` against `layout` and computes grid and parameters; allocates nothing.
     * Fails with EIDER_NOT_PREPARED, EIDER_SHAPE, EIDER_OVERLAP as eider_launch says. */
    eider_status (*bind)(const struct eider_layout *layout, const struct eider_config *config,
                         const eider_tensor *args, struct eider_bound *out);
    /* Elements of the iteration space that a thread computes in one pass: between what its
     * kernel does once and what it does again for the next ones. */
    double (*pass)(const struct eider_layout *layout, const struct eider_config *config);
    /* Bytes that a launch moves at least. */
    eider_status (*bytes)(const struct eider_layout *layout, const eider_tensor *args,
                          uint64_t *out);
    /* The layout as canonical text for keys, "gate:bf16[1]@16 out:bf16[1]@16 index=32". */
    void (*describe)(const struct eider_graph *program, const struct eider_layout *layout,
                     struct eider_text *out);
};

/* Row `i` of the table of templates, or NULL. */
const struct eider_template *eider_template_at(size_t i);
/* The first template that takes `program`, or NULL. */
const struct eider_template *eider_template_for(const struct eider_graph *program);

#endif
