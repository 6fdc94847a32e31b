/* backend.h -- where compiled code is loaded and run.
 *
 * A backend is one struct of functions; no file but the backends asks which one a device
 * belongs to.  A struct eider_device is shared by all handles of the same device and
 * lives until its context is destroyed, so that kernels outlive handles; one made from a
 * caller's CUcontext goes with its last handle, since the caller may destroy that context
 * then.
 * Every function may be called from any thread and leaves the caller's current CUDA
 * context as it was.
 */
#ifndef EIDER_RUNTIME_BACKEND_H
#define EIDER_RUNTIME_BACKEND_H

#include "context.h"
#include "cpu_abi.h"
#include "target.h"

struct eider_device {
    eider_context *ctx;
    const struct eider_backend *backend;
    int32_t ordinal;
    int borrowed; /* `native` is the caller's */
    void *native; /* CUcontext; NULL for the CPU */
    void *state;  /* the backend's, shared by its devices; context owns */
    struct eider_target target;
    eider_device_info info;
    struct eider_loaded *helpers; /* the backend's own code, NULL until it is needed */
    void *pool;                   /* the backend's own memory for launches, likewise; ctx->lock */
    uint32_t refs;                /* handles; ctx->lock */
    eider_device *next;           /* ctx->lock */
};

/* What to load. */
struct eider_load {
    const struct eider_blob *code; /* cubin, PTX (NUL-terminated), or an object file */
    int is_ptx;                    /* the driver assembles it */
    int line_info;
    int thread_style;  /* CPU: see cpu_abi.h */
    uint32_t block[3]; /* of every launch, as is the dynamic shared memory */
    uint32_t shared_bytes;
    uint32_t cluster; /* blocks of a cluster, along x; 0: there are none */
    const char *entry;
    const char *words; /* an array in the module; NULL: none */
    int shares_memory; /* launches have rounds, with memory of their own */
};

/* Code that is loaded.  All zero: none. */
struct eider_loaded {
    void *module;   /* CUmodule; the CPU's image */
    void *function; /* CUfunction; the CPU's entry */
    void *words;    /* device memory, where eider_load.words asked for it */
    int thread_style;
    uint32_t cluster;                             /* as in struct eider_load */
    int32_t registers, spill_bytes, shared_bytes; /* -1 where unknown */
    struct eider_entry_params params;             /* thread style only */
};

/* One launch, ready to go. */
struct eider_shot {
    const struct eider_loaded *code;
    uint32_t grid[3], block[3];
    uint32_t shared_bytes;
    uint64_t bytes; /* moved at least, as far as known: 0 where not */
    void *stream;
    void **params; /* as for cuLaunchKernel */

    /* Launched several times, see eider_rounds; 0: once, and what follows does not matter.  The
     * last grid is of last_grid blocks.  `round` and `memory` are values of parameters. */
    uint32_t rounds, last_grid;
    uint64_t memory_bytes;
    uint64_t *round, *memory;
};

struct eider_backend {
    const char *name;
    int wants_bytes;  /* a launch's `bytes` decides how it runs */
    int asynchronous; /* work is queued on streams */
    eider_status (*count)(eider_context *ctx, int32_t *out);
    /* Fills native, state, target and info of a device whose other members are set. */
    eider_status (*open)(eider_device *device);
    void (*close)(eider_device *device);
    /* Releases the backend's state; all its devices are closed. */
    void (*shutdown)(eider_context *ctx);

    eider_status (*load)(eider_device *device, const struct eider_load *what,
                         struct eider_loaded *out);
    void (*unload)(eider_device *device, struct eider_loaded *loaded);
    /* Allocates nothing but memory_bytes of what has rounds, on the stream: that is given back when
     * they are done.  The grid is not empty. */
    eider_status (*launch)(eider_device *device, const struct eider_shot *shot);
    /* As eider_time says; `out_ns` has n entries. */
    eider_status (*time)(eider_device *device, const struct eider_shot *shot, int32_t n,
                         int32_t flush, double *out_ns);

    eider_status (*alloc)(eider_device *device, size_t bytes, void **out);
    void (*free)(eider_device *device, void *ptr);
    eider_status (*copy)(eider_device *device, void *stream, void *to, const void *from,
                         size_t bytes, eider_copy_kind kind);
    /* Sets bytes on the stream. */
    eider_status (*fill)(eider_device *device, void *stream, void *ptr, unsigned char value,
                         size_t bytes);
    /* Where two pieces of device memory differ first; `bytes` where they do not.  Waits for
     * the stream.  By one thread of a context at a time. */
    eider_status (*differs)(eider_device *device, void *stream, const void *a, const void *b,
                            size_t bytes, size_t *out);
    /* At which frequency the device runs now, 0 where unknown.  Waits for the stream.  By one
     * thread of a context at a time. */
    eider_status (*clock)(eider_device *device, void *stream, int32_t *out_khz);
    eider_status (*stream_wait)(eider_device *device, void *stream);
    eider_status (*stream_create)(eider_device *device, void **out);
    void (*stream_destroy)(eider_device *device, void *stream);
};

#define EIDER_BACKEND(name) extern const struct eider_backend eider_backend_##name;
#include "backends.def"

/* Row `i` of the table, or NULL. */
const struct eider_backend *eider_backend_row(size_t i);

/* Closes every device and shuts every backend down. */
void eider_device_close_all(eider_context *ctx);

/* The driver as eider_tool_find reports it. */
void eider_backend_cuda_tool(eider_context *ctx, eider_tool *out);

#endif
