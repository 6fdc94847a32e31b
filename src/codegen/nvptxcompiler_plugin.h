/* nvptxcompiler_plugin.h -- the one function that eider_nvptxcompiler.so exports.
 *
 * NVIDIA's PTX compiler is a static archive of 89 MB.  It lives in a shared object of its own,
 * so that libeider.so neither needs it to build nor carries its size; codegen opens it at run
 * time.  This header is the whole contract between the two.
 */
#ifndef EIDER_NVPTXCOMPILER_PLUGIN_H
#define EIDER_NVPTXCOMPILER_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#define EIDER_PTXC_ABI 1u

struct eider_ptxc_api {
    uint32_t abi;          /* EIDER_PTXC_ABI of the plug-in; refuse another */
    uint32_t major, minor; /* of the PTX compiler, for example 13 and 0 */

    /* Assembles `ptx_len` bytes of PTX (no terminating 0 needed) with ptxas's options, whole
     * program.  Returns 0 and sets `*out_cubin` and `*out_len`, or a non-zero code of
     * nvPTXCompiler and sets `*out_cubin` to NULL.  `*out_log` is the information log of a
     * success (registers and spills with "--verbose") or the error log of a failure, NULL where
     * there is nothing to say.  Both results belong to the caller: give them to `free`.
     * Any number of threads may call it at once. */
    int (*compile)(const char *ptx, size_t ptx_len, const char *const *options, size_t n_options,
                   void **out_cubin, size_t *out_len, char **out_log);
    void (*free)(void *memory);
};

/* Never fails; the result is valid while the plug-in stays loaded. */
const struct eider_ptxc_api *eider_ptxc_api(void);

typedef const struct eider_ptxc_api *(*eider_ptxc_api_fn)(void);

#endif
