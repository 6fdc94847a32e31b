/* assembler_nvjitlink.c -- assembly by nvJitLink, in this process.
 *
 * It assembles relocatably and links: the same PTX may get other registers and another
 * schedule than from the whole-program assemblers.
 */
#include "assembler.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define INPUT_PTX 2 /* NVJITLINK_INPUT_PTX */
#define OPTIONS_MAX 4

typedef void *link_handle;

static const char *const link_names[] = {
    "nvJitLinkCreate",
    "nvJitLinkDestroy",
    "nvJitLinkAddData",
    "nvJitLinkComplete",
    "nvJitLinkGetLinkedCubinSize",
    "nvJitLinkGetLinkedCubin",
    "nvJitLinkGetErrorLogSize",
    "nvJitLinkGetErrorLog",
    "nvJitLinkGetInfoLogSize",
    "nvJitLinkGetInfoLog",
};

/* In the order of link_names. */
struct link_api {
    int (*create)(link_handle *, uint32_t n_options, const char **options);
    int (*destroy)(link_handle *);
    int (*add_data)(link_handle, int type, const void *data, size_t size, const char *name);
    int (*complete)(link_handle);
    int (*cubin_size)(link_handle, size_t *);
    int (*cubin)(link_handle, void *);
    int (*error_size)(link_handle, size_t *);
    int (*error)(link_handle, char *);
    int (*info_size)(link_handle, size_t *);
    int (*info)(link_handle, char *);
};

#define N_NAMES (sizeof link_names / sizeof link_names[0])
_Static_assert(sizeof(struct link_api) == N_NAMES * sizeof(void *), "one name per function");

static eider_status refuse(struct eider_text *log, const char *what, const char *detail)
{
    eider_text_add(log, "nvJitLink %s %s\n", what, detail);
    return EIDER_ASSEMBLER;
}

static eider_status load_api(void *library, struct link_api *api, struct eider_text *log)
{
    for (size_t i = 0; i < N_NAMES; i++) {
        void *symbol = dlsym(library, link_names[i]);
        if (!symbol) return refuse(log, "lacks", link_names[i]);
        memcpy((char *)api + i * sizeof symbol, &symbol, sizeof symbol);
    }
    return EIDER_OK;
}

static void add_log(const eider_allocator *a, link_handle link,
                    int (*get_size)(link_handle, size_t *), int (*get)(link_handle, char *),
                    struct eider_text *log)
{
    size_t size = 0;
    if (get_size(link, &size) != 0 || size <= 1) return;
    char *text = eider_mem_zero(a, size + 1);
    if (!text) {
        log->status = EIDER_OOM;
        return;
    }
    if (get(link, text) == 0) eider_text_add(log, "%s", text);
    eider_mem_free(a, text);
}

static eider_status take_cubin(const eider_allocator *a, const struct link_api *api,
                               link_handle link, struct eider_blob *cubin, struct eider_text *log)
{
    size_t size = 0;
    if (api->cubin_size(link, &size) != 0 || size == 0) return refuse(log, "made", "no cubin");
    char *data = eider_mem_alloc(a, size);
    if (!data) return EIDER_OOM;
    if (api->cubin(link, data) != 0) {
        eider_mem_free(a, data);
        return refuse(log, "gave", "no cubin");
    }
    *cubin = (struct eider_blob){data, size};
    return EIDER_OK;
}

eider_status eider_assembler_nvjitlink(const eider_allocator *a,
                                       const struct eider_tool_found *tool,
                                       const struct eider_blob *ptx,
                                       const struct eider_assembler_options *options,
                                       struct eider_blob *cubin, struct eider_text *log)
{
    struct link_api api;
    EIDER_TRY(load_api(tool->library, &api, log));
    char arch[32];
    snprintf(arch, sizeof arch, "-arch=%s", options->arch);
    const char *list[OPTIONS_MAX] = {arch, "-verbose"};
    uint32_t n = 2;
    if (!options->contract) list[n++] = "-Xptxas=-fmad=false";
    if (options->line_info) list[n++] = "-lineinfo";

    link_handle link = NULL;
    int rc = api.create(&link, n, list);
    if (rc != 0) return refuse(log, "refused", arch);
    /* It may read to a terminating 0; after a refusal, completing would still succeed. */
    rc = api.add_data(link, INPUT_PTX, ptx->data, ptx->size + 1, "k.ptx");
    if (rc == 0) rc = api.complete(link);
    add_log(a, link, api.error_size, api.error, log);
    add_log(a, link, api.info_size, api.info, log);
    eider_status status = rc == 0 ? take_cubin(a, &api, link, cubin, log) : EIDER_ASSEMBLER;
    api.destroy(&link);
    return status;
}
