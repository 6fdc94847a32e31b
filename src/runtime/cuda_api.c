/* cuda_api.c -- see cuda_api.h. */
#include "cuda_api.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"

enum need { OPTIONAL, REQUIRED };

static const struct {
    const char *symbol;
    size_t offset;
    enum need need;
} rows[] = {
#define EIDER_CUDA_FN(need, member, symbol, params, args) \
    {#symbol, offsetof(struct eider_cuda_api, member), need},
#include "cuda_api.def"
};

/* Where the driver is found: by the loader, then where containers and distributions put
 * it without telling the loader. */
static const char *const places[] = {
    "libcuda.so.1",
    "/usr/local/nvidia/lib64/libcuda.so.1",
    "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
    "/usr/lib64/libcuda.so.1",
    "/usr/lib/wsl/lib/libcuda.so.1",
    "/run/opengl-driver/lib/libcuda.so.1",
};

static void note(struct eider_cuda_api *api, const char *path, const char *why)
{
    size_t used = strlen(api->tried), length = strlen(path);
    int is_named = strncmp(why, path, length) == 0; /* as dlerror does */
    snprintf(api->tried + used, sizeof api->tried - used, "%s%s%s%s", used ? "\n" : "",
             is_named ? "" : path, is_named ? "" : ": ", why);
}

/* Data and function pointers have one representation here, which ISO C does not promise:
 * hence the copy. */
static const char *find_symbols(void *library, struct eider_cuda_api *api)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        void *symbol = dlsym(library, rows[i].symbol);
        if (!symbol && rows[i].need == REQUIRED) return rows[i].symbol;
        memcpy((char *)api + rows[i].offset, &symbol, sizeof symbol);
    }
    return NULL;
}

static const char *error_name(const struct eider_cuda_api *api, CUresult result)
{
    const char *name = NULL;
    if (api->cuGetErrorName(result, &name) != CUDA_SUCCESS || !name) return "unknown error";
    return name;
}

/* cuInit and the version; 0 when the driver is not usable. */
static int start(struct eider_cuda_api *api, const char *path)
{
    char why[256];
    CUresult result = api->cuInit(0);
    api->has_device = result == CUDA_SUCCESS;
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NO_DEVICE) {
        snprintf(why, sizeof why, "cuInit failed: %s (%d)%s", error_name(api, result), result,
                 result == CUDA_ERROR_NOT_INITIALIZED
                     ? ", as it does in a process forked after CUDA was first used"
                     : "");
        note(api, path, why);
        return 0;
    }
    result = api->cuDriverGetVersion(&api->driver);
    if (result != CUDA_SUCCESS) {
        snprintf(why, sizeof why, "cuDriverGetVersion failed: %s (%d)", error_name(api, result),
                 result);
        note(api, path, why);
        return 0;
    }
    return 1;
}

static int open_one(const char *path, struct eider_cuda_api *api)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        note(api, path, why ? why : "cannot be opened");
        return 0;
    }
    const char *missing = find_symbols(library, api);
    if (missing) {
        char why[128];
        snprintf(why, sizeof why, "too old: it has no %s", missing);
        note(api, path, why);
        dlclose(library);
        return 0;
    }
    if (!start(api, path)) return 0; /* not closed: cuInit may have left threads behind */
    snprintf(api->path, sizeof api->path, "%s", path);
    return 1;
}

eider_status eider_cuda_open(const char *library, struct eider_cuda_api *out)
{
    *out = (struct eider_cuda_api){0};
    const char *given = library ? library : getenv("EIDER_LIBCUDA");
    if (given && *given) {
        if (open_one(given, out)) return EIDER_OK;
    } else {
        for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
            if (open_one(places[i], out)) return EIDER_OK;
    }
    return eider_fail(EIDER_NO_DRIVER, "no usable CUDA driver; tried\n%s", out->tried);
}

/* What a driver's error means to a caller of eider; all others are EIDER_DRIVER. */
static const struct {
    CUresult first, last;
    eider_status status;
} meanings[] = {
    {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY, EIDER_OOM},
    {CUDA_ERROR_NO_DEVICE, CUDA_ERROR_INVALID_DEVICE, EIDER_NO_DEVICE},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, CUDA_ERROR_NO_BINARY_FOR_GPU, EIDER_TARGET},
    {CUDA_ERROR_INVALID_PTX, CUDA_ERROR_INVALID_PTX, EIDER_ASSEMBLER},
    {CUDA_ERROR_JIT_COMPILER_NOT_FOUND, CUDA_ERROR_JIT_COMPILER_NOT_FOUND, EIDER_ASSEMBLER},
    {CUDA_ERROR_UNSUPPORTED_PTX_VERSION, CUDA_ERROR_UNSUPPORTED_PTX_VERSION, EIDER_NO_DRIVER},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
     EIDER_CAPTURING},
    {CUDA_ERROR_INVALID_CLUSTER_SIZE, CUDA_ERROR_INVALID_CLUSTER_SIZE, EIDER_CONFIG},
};

eider_status eider_cuda_fail(const struct eider_cuda_api *api, CUresult result, const char *call)
{
    eider_status status = EIDER_DRIVER;
    for (size_t i = 0; i < sizeof meanings / sizeof meanings[0]; i++)
        if (result >= meanings[i].first && result <= meanings[i].last) status = meanings[i].status;
    const char *text = NULL;
    if (api->cuGetErrorString(result, &text) != CUDA_SUCCESS || !text) text = "no description";
    return eider_fail(status, "%s failed: %s (%d), %s", call, error_name(api, result), result,
                      text);
}
