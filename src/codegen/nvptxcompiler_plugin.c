/* nvptxcompiler_plugin.c -- NVIDIA's PTX compiler behind one exported function.
 *
 * Built as eider_nvptxcompiler.so, never part of libeider.so.  Each call creates and destroys
 * its own compiler handle, which is what makes it safe for any number of threads.
 */
#include "nvptxcompiler_plugin.h"

#include <nvPTXCompiler.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { OUT_OF_MEMORY = NVPTXCOMPILE_ERROR_OUT_OF_MEMORY };

static char *take_log(nvPTXCompilerHandle compiler, bool error)
{
    size_t len = 0;
    nvPTXCompileResult rc = error ? nvPTXCompilerGetErrorLogSize(compiler, &len)
                                  : nvPTXCompilerGetInfoLogSize(compiler, &len);
    if (rc != NVPTXCOMPILE_SUCCESS || len == 0) return NULL;
    char *log = calloc(len + 1, 1); /* the size does not count a terminating 0 */
    if (!log) return NULL;
    rc = error ? nvPTXCompilerGetErrorLog(compiler, log) : nvPTXCompilerGetInfoLog(compiler, log);
    if (rc != NVPTXCOMPILE_SUCCESS) {
        free(log);
        return NULL;
    }
    return log;
}

static int take_cubin(nvPTXCompilerHandle compiler, void **out_cubin, size_t *out_len)
{
    size_t len = 0;
    nvPTXCompileResult rc = nvPTXCompilerGetCompiledProgramSize(compiler, &len);
    if (rc != NVPTXCOMPILE_SUCCESS) return (int)rc;
    void *cubin = malloc(len ? len : 1);
    if (!cubin) return OUT_OF_MEMORY;
    rc = nvPTXCompilerGetCompiledProgram(compiler, cubin);
    if (rc != NVPTXCOMPILE_SUCCESS) {
        free(cubin);
        return (int)rc;
    }
    *out_cubin = cubin;
    *out_len = len;
    return 0;
}

static int compile(const char *ptx, size_t ptx_len, const char *const *options, size_t n_options,
                   void **out_cubin, size_t *out_len, char **out_log)
{
    *out_cubin = NULL;
    *out_len = 0;
    *out_log = NULL;

    /* The compiler reads to a terminating 0 whatever length it is told. */
    char *text = malloc(ptx_len + 1);
    if (!text) return OUT_OF_MEMORY;
    memcpy(text, ptx, ptx_len);
    text[ptx_len] = 0;

    nvPTXCompilerHandle compiler = NULL;
    int rc = (int)nvPTXCompilerCreate(&compiler, ptx_len + 1, text);
    if (rc == 0) {
        rc = (int)nvPTXCompilerCompile(compiler, (int)n_options, options);
        if (rc == 0) rc = take_cubin(compiler, out_cubin, out_len);
        *out_log = take_log(compiler, rc != 0);
        nvPTXCompilerDestroy(&compiler);
    }
    free(text);
    return rc;
}

static void release(void *memory)
{
    free(memory);
}

static struct eider_ptxc_api api = {.abi = EIDER_PTXC_ABI, .compile = compile, .free = release};

static void ask_version(void)
{
    nvPTXCompilerGetVersion(&api.major, &api.minor);
}

__attribute__((visibility("default"))) const struct eider_ptxc_api *eider_ptxc_api(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, ask_version);
    return &api;
}
