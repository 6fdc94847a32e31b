/* assembler_nvptxcompiler.c -- whole-program assembly in this process, through the plug-in.
 */
#include "assembler.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "nvptxcompiler_plugin.h"

#define OPTIONS_MAX 4

eider_status eider_assembler_nvptxcompiler(const eider_allocator *a,
                                           const struct eider_tool_found *tool,
                                           const struct eider_blob *ptx,
                                           const struct eider_assembler_options *options,
                                           struct eider_blob *cubin, struct eider_text *log)
{
    eider_ptxc_api_fn get;
    void *symbol = dlsym(tool->library, "eider_ptxc_api");
    memcpy(&get, &symbol, sizeof get);
    const struct eider_ptxc_api *api = get();

    char arch[32];
    snprintf(arch, sizeof arch, "--gpu-name=%s", options->arch);
    const char *list[OPTIONS_MAX] = {arch, "--verbose"};
    size_t n = 2;
    if (!options->contract) list[n++] = "--fmad=false";
    if (options->line_info) list[n++] = "--generate-line-info";

    void *code = NULL;
    size_t size = 0;
    char *said = NULL;
    int rc = api->compile(ptx->data, ptx->size, list, n, &code, &size, &said);
    eider_status status = EIDER_OK;
    if (said) eider_text_add(log, "%s", said);
    if (rc != 0) {
        if (!said) eider_text_add(log, "nvPTXCompiler gave code %d", rc);
        status = EIDER_ASSEMBLER;
    } else {
        status = eider_blob_copy(a, code, size, cubin);
    }
    api->free(said);
    api->free(code);
    return status;
}
