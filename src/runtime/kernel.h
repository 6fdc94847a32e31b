/* kernel.h -- a program or a source, compiled for a target and loaded on a device.
 *
 * One object per identity: everyone who prepares the same thing gets the same kernel, and
 * the code cache (code_cache.h) keeps it until its device or context goes.  After
 * eider_kernel_build it does not change, but for the texts that are made on demand (under
 * `lock`) and for its code, which is gone once `device` is NULL.
 */
#ifndef EIDER_RUNTIME_KERNEL_H
#define EIDER_RUNTIME_KERNEL_H

#include "backend.h"
#include "codegen.h"
#include "template.h"

/* A request with every choice made. */
struct eider_plan {
    eider_context *ctx;
    eider_device *device; /* NULL: compile only */
    const eider_request *request;
    const struct eider_graph *graph;    /* NULL for a source */
    const struct eider_template *shape; /* NULL for a source */
    struct eider_layout layout;         /* of a program */
    struct eider_config config;         /* of a program; complete */
    struct eider_target target;
    eider_math math; /* resolved */
    int ftz, contract;
    struct eider_hash identity; /* of all that the code depends on */
};

#define EIDER_STAGES 5

struct eider_kernel {
    /* What a launch reads. */
    eider_context *ctx;
    eider_device *device;               /* NULL: nothing is loaded (any more) */
    const struct eider_template *shape; /* NULL for a source */
    struct eider_loaded loaded;
    struct eider_layout layout;
    struct eider_config config;
    uint32_t n_operands;
    uint32_t block[3], shared_bytes; /* of a source; block also where threads wait, shared_bytes
                                      * what the template gives at launch */
    uint32_t cluster;                /* blocks of a cluster; 0: there are none */
    uint32_t registers;              /* of a thread at most; 0: no limit */
    struct eider_rounds rounds;      /* of a program */
    int thread_style;                /* on the CPU, threads are fibers */
    struct {
        eider_operand_kind kind;
        int32_t type;
        uint32_t bytes;             /* of the kernel's parameter; 0 where it is not known */
    } operands[EIDER_OPERANDS_MAX]; /* of a source */

    /* What compiled it. */
    struct eider_graph *graph; /* a copy; NULL for a source */
    char *nodes;               /* eider_print_nodes of the program as written */
    struct eider_target target;
    eider_math math;
    int ftz, contract, line_info;
    struct eider_arena texts; /* all strings of `info` */
    eider_kernel_info info;
    pthread_mutex_t lock;
    struct eider_blob stages[EIDER_STAGES]; /* data NULL: not made; lock */

    /* What the cache keeps it by. */
    struct eider_hash identity;
    atomic_uint refs;
    struct eider_kernel *next; /* ctx->lock */
};

/* Checks the request and makes every choice; compiles nothing.  `device` may be NULL: then
 * the request names the target.  `request` must outlive *out. */
eider_status eider_prepare_plan(eider_context *ctx, eider_device *device,
                                const eider_request *request, struct eider_plan *out);

/* Who would assemble it: "ptxas 13.0.88", "driver 13.0", or "" for the CPU. */
#define EIDER_ASSEMBLER_TEXT_BYTES 112
eider_status eider_kernel_assembler(const struct eider_plan *plan,
                                    char out[EIDER_ASSEMBLER_TEXT_BYTES]);

/* Times a launch of a kernel of a source, as eider_time does. */
eider_status eider_launch_time_grid(const eider_kernel *kernel, void *stream,
                                    const uint32_t grid[3], const eider_tensor *args, size_t n_args,
                                    int32_t n, double *out_ns);

/* Compiles and, with a device, loads.  Caller owns one reference of *out. */
eider_status eider_kernel_build(const struct eider_plan *plan, struct eider_kernel **out);

/* Writes only what names it: key, manifest and the other texts.  *any_assembler says whether
 * it would be looked for on disk as any assembler made it.  Caller owns one reference. */
eider_status eider_kernel_identify(const struct eider_plan *plan, struct eider_kernel **out,
                                   int *any_assembler);

/* Unloads the code; the texts stay. */
void eider_kernel_unload(struct eider_kernel *kernel);

/* Writes manifest, key and the other texts of `info` that the plan determines.
 * `assembler` is "ptxas 13.0.88", "driver 13.0", or "" for the CPU. */
eider_status eider_manifest_write(const struct eider_plan *plan, const char *assembler,
                                  struct eider_kernel *kernel);

/* Builds the module of a program again.  The caller disposes of both; *out_context is
 * NULL after a failure. */
eider_status eider_kernel_module(const struct eider_kernel *kernel, int line_info,
                                 LLVMContextRef *out_context, LLVMModuleRef *out_module,
                                 uint32_t *out_block_threads);

#endif
