/* backend_cuda.c -- NVIDIA GPUs through the driver API.
 *
 * Invariants: every CUresult is looked at; every function that needs a current context
 * pushes the device's and pops it again on all paths, unless it already is the current
 * one.  Calls that the driver forbids while any thread captures a stream in global mode
 * (loading, unloading, allocating) are made in relaxed capture mode, which the driver
 * allows and which leaves a capture valid.  Errors of releasing are ignored: the driver
 * may have shut down before us.
 */
#include "backend.h"

#include <stdio.h>
#include <string.h>

#include "cuda_api.h"

#define CLUSTER_PORTABLE 8 /* blocks, that every GPU with clusters takes */

/* Of the memory of launches, what the driver need not give back to the system at every wait. */
#define POOL_KEEPS ((uint64_t)64 << 20)

/* ---- Calling the driver ------------------------------------------------ */

#define CALL(api, function, ...) check(api, (api)->function(__VA_ARGS__), #function)

static eider_status check(const struct eider_cuda_api *api, CUresult result, const char *call)
{
    return result == CUDA_SUCCESS ? EIDER_OK : eider_cuda_fail(api, result, call);
}

/* Between enter and leave: the device's context is current, and what capture forbids is
 * allowed if `relax` was asked for. */
struct scope {
    const struct eider_cuda_api *api;
    int pushed, relaxed;
    int mode; /* the thread's own capture mode */
};

/* Names the call that failed; records nothing, for what cleans up. */
static CUresult step_in(const eider_device *device, int relax, struct scope *scope,
                        const char **out_call)
{
    const struct eider_cuda_api *api = device->state;
    CUcontext current;
    *scope = (struct scope){.api = api, .mode = CU_STREAM_CAPTURE_MODE_RELAXED};
    *out_call = "cuCtxGetCurrent";
    CUresult result = api->cuCtxGetCurrent(&current);
    if (result == CUDA_SUCCESS && current != device->native) {
        *out_call = "cuCtxPushCurrent";
        result = api->cuCtxPushCurrent(device->native);
        scope->pushed = result == CUDA_SUCCESS;
    }
    if (result != CUDA_SUCCESS || !relax) return result;
    *out_call = "cuThreadExchangeStreamCaptureMode";
    result = api->cuThreadExchangeStreamCaptureMode(&scope->mode);
    scope->relaxed = result == CUDA_SUCCESS;
    if (result != CUDA_SUCCESS && scope->pushed) (void)api->cuCtxPopCurrent(&current);
    return result;
}

static eider_status enter(const eider_device *device, int relax, struct scope *scope)
{
    const char *call;
    CUresult result = step_in(device, relax, scope, &call);
    return check(device->state, result, call);
}

/* Undoes `enter`; returns the first failure, `status` included. */
static eider_status leave(struct scope *scope, eider_status status)
{
    CUcontext popped;
    CUresult restored = CUDA_SUCCESS, pop = CUDA_SUCCESS;
    if (scope->relaxed) restored = scope->api->cuThreadExchangeStreamCaptureMode(&scope->mode);
    if (scope->pushed) pop = scope->api->cuCtxPopCurrent(&popped);
    if (status != EIDER_OK) return status;
    EIDER_TRY(check(scope->api, restored, "cuThreadExchangeStreamCaptureMode"));
    return check(scope->api, pop, "cuCtxPopCurrent");
}

/* For what cleans up, perhaps after a failure whose record must stay. */
static int enter_quietly(const eider_device *device, struct scope *scope)
{
    const char *call;
    return step_in(device, 1, scope, &call) == CUDA_SUCCESS;
}

static void leave_quietly(struct scope *scope)
{
    (void)leave(scope, EIDER_DRIVER);
}

static CUdeviceptr address(const void *ptr)
{
    return (CUdeviceptr)(uintptr_t)ptr;
}

/* ---- The driver, once per context -------------------------------------- */

static eider_status get_api(eider_context *ctx, struct eider_cuda_api **out)
{
    pthread_mutex_lock(&ctx->lock);
    struct eider_cuda_api *api = ctx->backend_state[EIDER_BACKEND_cuda];
    pthread_mutex_unlock(&ctx->lock);
    if (!api) {
        struct eider_cuda_api *mine = eider_mem_alloc(&ctx->allocator, sizeof *mine);
        if (!mine) return EIDER_OOM;
        eider_status status = eider_cuda_open(ctx->cuda_library, mine);
        if (status != EIDER_OK) {
            eider_mem_free(&ctx->allocator, mine);
            return status;
        }
        pthread_mutex_lock(&ctx->lock);
        api = ctx->backend_state[EIDER_BACKEND_cuda];
        if (!api) ctx->backend_state[EIDER_BACKEND_cuda] = api = mine;
        pthread_mutex_unlock(&ctx->lock);
        if (api != mine) eider_mem_free(&ctx->allocator, mine);
    }
    *out = api;
    return EIDER_OK;
}

static void shutdown_cuda(eider_context *ctx)
{
    eider_mem_free(&ctx->allocator, ctx->backend_state[EIDER_BACKEND_cuda]);
    ctx->backend_state[EIDER_BACKEND_cuda] = NULL;
}

void eider_backend_cuda_tool(eider_context *ctx, eider_tool *out)
{
    *out = (eider_tool){.name = "cuda driver"};
    struct eider_cuda_api api;
    out->found = eider_cuda_open(ctx->cuda_library, &api) == EIDER_OK;
    memcpy(out->tried, api.tried, sizeof out->tried);
    if (!out->found) return;
    snprintf(out->version, sizeof out->version, "%d.%d%s", api.driver / 1000,
             api.driver % 1000 / 10, api.has_device ? "" : ", no device");
    memcpy(out->path, api.path, sizeof out->path);
}

/* ---- Devices ----------------------------------------------------------- */

static eider_status count_devices(eider_context *ctx, int32_t *out)
{
    struct eider_cuda_api *api;
    EIDER_TRY(get_api(ctx, &api));
    int n = 0;
    if (api->has_device) EIDER_TRY(CALL(api, cuDeviceGetCount, &n));
    *out = n;
    return EIDER_OK;
}

static eider_status describe(const struct eider_cuda_api *api, CUdevice gpu, eider_device *device)
{
    eider_device_info *info = &device->info;
    int major, minor, units, clock_khz, l2_bytes;
    size_t memory_bytes;
    const struct {
        int attribute;
        int *out;
    } wanted[] = {
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &units},
        {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, &clock_khz},
        {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &l2_bytes},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        EIDER_TRY(CALL(api, cuDeviceGetAttribute, wanted[i].out, wanted[i].attribute, gpu));
    EIDER_TRY(CALL(api, cuDeviceTotalMem, &memory_bytes, gpu));
    EIDER_TRY(CALL(api, cuDeviceGetName, info->name, (int)sizeof info->name, gpu));
    info->name[sizeof info->name - 1] = '\0';
    char text[EIDER_TARGET_TEXT_BYTES];
    snprintf(text, sizeof text, "sm_%d", (major * 10 + minor) % 1000);
    EIDER_TRY(eider_target_parse(text, &device->target));
    memcpy(info->backend, "cuda", sizeof "cuda");
    memcpy(info->target, text, sizeof text);
    info->ordinal = device->ordinal;
    info->driver = api->driver;
    info->units = units;
    info->clock_khz = clock_khz;
    info->memory_bytes = memory_bytes;
    info->l2_bytes = (uint64_t)l2_bytes;
    return EIDER_OK;
}

/* The ordinal is the CUdevice: cuDeviceGet of the ordinals says which. */
static eider_status find_ordinal(const struct eider_cuda_api *api, CUdevice gpu, int32_t *out)
{
    int n;
    EIDER_TRY(CALL(api, cuDeviceGetCount, &n));
    for (int i = 0; i < n; i++) {
        CUdevice other;
        EIDER_TRY(CALL(api, cuDeviceGet, &other, i));
        if (other == gpu) *out = i;
    }
    return EIDER_OK;
}

static eider_status open_borrowed(struct eider_cuda_api *api, eider_device *device)
{
    struct scope scope;
    CUdevice gpu = 0;
    device->state = api;
    EIDER_TRY(enter(device, 0, &scope));
    EIDER_TRY(leave(&scope, CALL(api, cuCtxGetDevice, &gpu)));
    EIDER_TRY(find_ordinal(api, gpu, &device->ordinal));
    return describe(api, gpu, device);
}

static eider_status open_device(eider_device *device)
{
    struct eider_cuda_api *api;
    EIDER_TRY(get_api(device->ctx, &api));
    device->state = api;
    if (!api->has_device) return eider_fail(EIDER_NO_DEVICE, "the CUDA driver found no GPU");
    if (device->borrowed) return open_borrowed(api, device);
    CUdevice gpu;
    EIDER_TRY(CALL(api, cuDeviceGet, &gpu, device->ordinal));
    EIDER_TRY(describe(api, gpu, device));
    CUcontext context;
    EIDER_TRY(CALL(api, cuDevicePrimaryCtxRetain, &context, gpu));
    device->native = context;
    return EIDER_OK;
}

static void unload_helpers(eider_device *device);

/* What launches still have of it the driver takes back when they are done. */
static void destroy_pool(eider_device *device)
{
    struct scope scope;
    CUmemoryPool pool = device->pool;
    device->pool = NULL;
    if (!pool || eider_context_forked(device->ctx) || !enter_quietly(device, &scope)) return;
    (void)scope.api->cuMemPoolDestroy(pool);
    leave_quietly(&scope);
}

static void close_device(eider_device *device)
{
    const struct eider_cuda_api *api = device->state;
    CUdevice gpu;
    unload_helpers(device);
    destroy_pool(device);
    if (device->borrowed || !device->native) return;
    if (eider_context_forked(device->ctx)) return;
    if (api->cuDeviceGet(&gpu, device->ordinal) == CUDA_SUCCESS)
        (void)api->cuDevicePrimaryCtxRelease(gpu);
}

/* ---- Memory of launches ---------------------------------------------------- */

static eider_status check_pools(const eider_device *device)
{
    const struct eider_cuda_api *api = device->state;
    int has_pools = 0;
    if (api->cuMemPoolCreate && api->cuMemPoolDestroy && api->cuMemPoolSetAttribute &&
        api->cuMemAllocFromPoolAsync && api->cuMemFreeAsync)
        EIDER_TRY(CALL(api, cuDeviceGetAttribute, &has_pools,
                       CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, device->ordinal));
    if (has_pools) return EIDER_OK;
    return eider_fail(EIDER_CONFIG,
                      "split: parts of a row meet in memory from a pool of the driver's, and this "
                      "driver (CUDA %d.%d) has none for this GPU; split=1 needs none",
                      api->driver / 1000, api->driver % 1000 / 10);
}

static eider_status create_pool(eider_device *device, CUmemoryPool *out)
{
    const struct eider_cuda_api *api = device->state;
    struct eider_cuda_pool_props props = {
        .alloc_type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, device->ordinal}};
    uint64_t keeps = POOL_KEEPS;
    EIDER_TRY(CALL(api, cuMemPoolCreate, out, &props));
    eider_status status =
        CALL(api, cuMemPoolSetAttribute, *out, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keeps);
    if (status != EIDER_OK) (void)api->cuMemPoolDestroy(*out);
    return status;
}

/* The device's own, so that nobody else's has other properties now. */
static eider_status get_pool(eider_device *device)
{
    CUmemoryPool mine;
    pthread_mutex_lock(&device->ctx->lock);
    int is_there = device->pool != NULL;
    pthread_mutex_unlock(&device->ctx->lock);
    if (is_there) return EIDER_OK;
    EIDER_TRY(check_pools(device));
    EIDER_TRY(create_pool(device, &mine));
    pthread_mutex_lock(&device->ctx->lock);
    int is_late = device->pool != NULL;
    if (!is_late) device->pool = mine;
    pthread_mutex_unlock(&device->ctx->lock);
    const struct eider_cuda_api *api = device->state;
    return is_late ? CALL(api, cuMemPoolDestroy, mine) : EIDER_OK;
}

/* ---- Code -------------------------------------------------------------- */

/* `log` is the driver's, "" where it wrote none. */
static eider_status load_failed(const struct eider_cuda_api *api, CUresult result, const char *log)
{
    eider_status status = eider_cuda_fail(api, result, "cuModuleLoadDataEx");
    if (result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION)
        eider_fail_prefix("the PTX is newer than what this driver (CUDA %d.%d) reads: ",
                          api->driver / 1000, api->driver % 1000 / 10);
    if (!log[0]) return status;
    char message[1024];
    snprintf(message, sizeof message, "%s", eider_error());
    return eider_fail(status, "%s\n%s", message, log);
}

static eider_status load_module(const struct eider_cuda_api *api, const struct eider_load *what,
                                CUmodule *out)
{
    char log[4096] = "";
    int options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                     CU_JIT_GENERATE_LINE_INFO};
    void *values[] = {log, (void *)(uintptr_t)(sizeof log - 1),
                      (void *)(uintptr_t)(what->line_info != 0)};
    unsigned n = what->is_ptx ? 3 : 0;
    CUresult result = api->cuModuleLoadDataEx(out, what->code->data, n, options, values);
    log[sizeof log - 1] = '\0';
    return result == CUDA_SUCCESS ? EIDER_OK : load_failed(api, result, log);
}

static eider_status find_words(const struct eider_cuda_api *api, const char *name,
                               struct eider_loaded *out)
{
    CUdeviceptr words = 0;
    size_t bytes = 0;
    if (!name) return EIDER_OK;
    EIDER_TRY(CALL(api, cuModuleGetGlobal, &words, &bytes, out->module, name));
    out->words = (void *)(uintptr_t)words;
    return EIDER_OK;
}

/* The entry of a loaded module, ready to be launched: with lazy loading a function
 * would otherwise be loaded by its first launch, which a capture forbids. */
static eider_status find_entry(const struct eider_cuda_api *api, const struct eider_load *what,
                               struct eider_loaded *out)
{
    CUfunction function;
    CUresult result = api->cuModuleGetFunction(&function, out->module, what->entry);
    if (result == CUDA_ERROR_NOT_FOUND)
        return eider_fail(EIDER_BAD_ARG, "the module has no kernel '%s'", what->entry);
    EIDER_TRY(check(api, result, "cuModuleGetFunction"));
    if (api->cuFuncLoad) EIDER_TRY(CALL(api, cuFuncLoad, function));
    out->function = function;
    out->cluster = what->cluster;
    EIDER_TRY(CALL(api, cuFuncGetAttribute, &out->registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function));
    EIDER_TRY(CALL(api, cuFuncGetAttribute, &out->spill_bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
                   function));
    EIDER_TRY(CALL(api, cuFuncGetAttribute, &out->shared_bytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
                   function));
    if (what->cluster > CLUSTER_PORTABLE)
        EIDER_TRY(CALL(api, cuFuncSetAttribute, function,
                       CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
    if (what->shared_bytes == 0) return EIDER_OK;
    return CALL(api, cuFuncSetAttribute, function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                (int)what->shared_bytes);
}

static void unload(eider_device *device, struct eider_loaded *loaded)
{
    struct scope scope;
    CUmodule module = loaded->module;
    *loaded = (struct eider_loaded){0};
    if (!module || eider_context_forked(device->ctx)) return;
    if (!enter_quietly(device, &scope)) return;
    (void)scope.api->cuModuleUnload(module);
    leave_quietly(&scope);
}

static eider_status load(eider_device *device, const struct eider_load *what,
                         struct eider_loaded *out)
{
    const struct eider_cuda_api *api = device->state;
    struct eider_loaded loaded = {0};
    struct scope scope;
    CUmodule module = NULL;
    EIDER_TRY(enter(device, 1, &scope));
    eider_status status = what->shares_memory ? get_pool(device) : EIDER_OK;
    if (status == EIDER_OK) status = load_module(api, what, &module);
    if (status == EIDER_OK) {
        loaded.module = module;
        status = find_words(api, what->words, &loaded);
        if (status == EIDER_OK) status = find_entry(api, what, &loaded);
    }
    status = leave(&scope, status);
    if (status == EIDER_OK)
        *out = loaded;
    else
        unload(device, &loaded);
    return status;
}

static eider_status shoot_once(const struct eider_cuda_api *api, const struct eider_shot *shot)
{
    CUresult result = api->cuLaunchKernel(
        shot->code->function, shot->grid[0], shot->grid[1], shot->grid[2], shot->block[0],
        shot->block[1], shot->block[2], shot->shared_bytes, shot->stream, shot->params, NULL);
    if (result == CUDA_SUCCESS) return EIDER_OK;
    eider_status status = eider_cuda_fail(api, result, "cuLaunchKernel");
    if (result == CUDA_ERROR_INVALID_CLUSTER_SIZE)
        eider_fail_prefix("this GPU cannot run clusters of %u blocks of %u threads together: ",
                          shot->code->cluster, shot->block[0]);
    return status;
}

/* In the order of the stream, so that nobody waits: memory, rounds, memory back. */
static eider_status shoot_rounds(const eider_device *device, const struct eider_shot *shot)
{
    const struct eider_cuda_api *api = device->state;
    struct eider_shot one = *shot;
    CUdeviceptr memory = 0;
    eider_status status = EIDER_OK;
    if (shot->memory_bytes)
        status = CALL(api, cuMemAllocFromPoolAsync, &memory, shot->memory_bytes, device->pool,
                      shot->stream);
    if (status == EIDER_OOM)
        eider_fail_prefix("%llu bytes of GPU memory: ", (unsigned long long)shot->memory_bytes);
    *shot->memory = memory;
    for (uint32_t round = 0; round < shot->rounds && status == EIDER_OK; round++) {
        *shot->round = round;
        if (round + 1 == shot->rounds) one.grid[0] = shot->last_grid;
        status = shoot_once(api, &one);
    }
    if (!memory) return status;
    CUresult freed = api->cuMemFreeAsync(memory, shot->stream);
    return status == EIDER_OK ? check(api, freed, "cuMemFreeAsync") : status;
}

static eider_status shoot(const eider_device *device, const struct eider_shot *shot)
{
    return shot->rounds ? shoot_rounds(device, shot) : shoot_once(device->state, shot);
}

static eider_status launch(eider_device *device, const struct eider_shot *shot)
{
    struct scope scope;
    EIDER_TRY(enter(device, 0, &scope));
    return leave(&scope, shoot(device, shot));
}

/* ---- Streams ----------------------------------------------------------- */

/* Waiting for a stream that is being captured would spoil the capture. */
static eider_status not_capturing(const struct eider_cuda_api *api, void *stream)
{
    int capture = CU_STREAM_CAPTURE_STATUS_NONE;
    EIDER_TRY(CALL(api, cuStreamIsCapturing, stream, &capture));
    if (capture == CU_STREAM_CAPTURE_STATUS_NONE) return EIDER_OK;
    return eider_fail(EIDER_CAPTURING, "the stream is being captured and cannot be waited for");
}

static eider_status stream_wait(eider_device *device, void *stream)
{
    struct scope scope;
    EIDER_TRY(enter(device, 0, &scope));
    eider_status status = not_capturing(scope.api, stream);
    if (status == EIDER_OK) status = CALL(scope.api, cuStreamSynchronize, stream);
    return leave(&scope, status);
}

static void stream_destroy(eider_device *device, void *stream)
{
    struct scope scope;
    if (!stream || !enter_quietly(device, &scope)) return;
    (void)scope.api->cuStreamDestroy(stream);
    leave_quietly(&scope);
}

static eider_status stream_create(eider_device *device, void **out)
{
    struct scope scope;
    CUstream stream = NULL;
    EIDER_TRY(enter(device, 1, &scope));
    eider_status status = CALL(scope.api, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    status = leave(&scope, status);
    if (status == EIDER_OK)
        *out = stream;
    else
        stream_destroy(device, stream);
    return status;
}

/* ---- Memory ------------------------------------------------------------ */

static void memory_free(eider_device *device, void *ptr)
{
    struct scope scope;
    if (!ptr || !enter_quietly(device, &scope)) return;
    (void)scope.api->cuMemFree(address(ptr));
    leave_quietly(&scope);
}

static eider_status memory_alloc(eider_device *device, size_t bytes, void **out)
{
    struct scope scope;
    CUdeviceptr ptr = 0;
    EIDER_TRY(enter(device, 1, &scope));
    eider_status status = CALL(scope.api, cuMemAlloc, &ptr, bytes ? bytes : 1);
    if (status == EIDER_OOM) eider_fail_prefix("%zu bytes of GPU memory: ", bytes);
    status = leave(&scope, status);
    if (status == EIDER_OK)
        *out = (void *)(uintptr_t)ptr;
    else
        memory_free(device, (void *)(uintptr_t)ptr);
    return status;
}

static eider_status copy_in_scope(const struct eider_cuda_api *api, void *stream, void *to,
                                  const void *from, size_t bytes, eider_copy_kind kind)
{
    if (kind == EIDER_DEVICE_TO_DEVICE)
        return CALL(api, cuMemcpyDtoDAsync, address(to), address(from), bytes, stream);
    EIDER_TRY(not_capturing(api, stream));
    if (kind == EIDER_HOST_TO_DEVICE)
        EIDER_TRY(CALL(api, cuMemcpyHtoDAsync, address(to), from, bytes, stream));
    else
        EIDER_TRY(CALL(api, cuMemcpyDtoHAsync, to, address(from), bytes, stream));
    return CALL(api, cuStreamSynchronize, stream);
}

static eider_status memory_copy(eider_device *device, void *stream, void *to, const void *from,
                                size_t bytes, eider_copy_kind kind)
{
    struct scope scope;
    if (bytes == 0) return EIDER_OK;
    EIDER_TRY(enter(device, 0, &scope));
    return leave(&scope, copy_in_scope(scope.api, stream, to, from, bytes, kind));
}

static eider_status memory_fill(eider_device *device, void *stream, void *ptr, unsigned char value,
                                size_t bytes)
{
    struct scope scope;
    if (bytes == 0) return EIDER_OK;
    EIDER_TRY(enter(device, 0, &scope));
    return leave(&scope, CALL(scope.api, cuMemsetD8Async, address(ptr), value, bytes, stream));
}

/* ---- Helpers ----------------------------------------------------------- */

/* Two kernels of our own, which measure and check but are never timed themselves.
 *
 * eider_differs  the first position at which two pieces of memory differ goes to a number
 *                that starts as their size; a byte per thread
 * eider_clock    spins for 0.1 ms, many steps of the timer; gives the cycles and nanoseconds
 *                that took
 */
static const char helper_ptx[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry eider_differs(.param .u64 pa, .param .u64 pb, .param .u64 pn,"
    " .param .u64 pout)\n{\n"
    ".reg .pred %p<3>; .reg .b32 %r<7>; .reg .b64 %d<10>;\n"
    "ld.param.u64 %d1, [pa]; ld.param.u64 %d2, [pb];\n"
    "ld.param.u64 %d3, [pn]; ld.param.u64 %d4, [pout];\n"
    "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x;\n"
    "mov.u32 %r3, %tid.x; mov.u32 %r4, %nctaid.x;\n"
    "mul.wide.u32 %d5, %r1, %r2; cvt.u64.u32 %d6, %r3; add.u64 %d5, %d5, %d6;\n"
    "mul.wide.u32 %d7, %r4, %r2;\n"
    "again: setp.ge.u64 %p1, %d5, %d3; @%p1 bra done;\n"
    "add.u64 %d8, %d1, %d5; add.u64 %d9, %d2, %d5;\n"
    "ld.global.u8 %r5, [%d8]; ld.global.u8 %r6, [%d9];\n"
    "setp.ne.u32 %p2, %r5, %r6;\n"
    "@%p2 red.global.min.u64 [%d4], %d5;\n"
    "add.u64 %d5, %d5, %d7; bra again;\n"
    "done: ret;\n}\n"
    ".visible .entry eider_clock(.param .u64 pout)\n{\n"
    ".reg .pred %p1; .reg .b64 %d<8>;\n"
    "ld.param.u64 %d1, [pout];\n"
    "mov.u64 %d2, %globaltimer; mov.u64 %d3, %clock64;\n"
    "spin: mov.u64 %d4, %globaltimer; sub.u64 %d5, %d4, %d2;\n"
    "setp.lt.u64 %p1, %d5, 100000; @%p1 bra spin;\n"
    "mov.u64 %d6, %clock64; sub.u64 %d6, %d6, %d3;\n"
    "st.global.u64 [%d1], %d6; st.global.u64 [%d1+8], %d5;\n"
    "ret;\n}\n";

enum helper { HELPER_DIFFERS, HELPER_CLOCK, HELPER_COUNT };

static const char *const helper_entries[] = {"eider_differs", "eider_clock"};

static void unload_helpers(eider_device *device)
{
    for (int i = 0; device->helpers && i < HELPER_COUNT; i++) unload(device, &device->helpers[i]);
    eider_mem_free(&device->ctx->allocator, device->helpers);
    device->helpers = NULL;
}

static eider_status get_helpers(eider_device *device)
{
    const struct eider_blob ptx = {(void *)(uintptr_t)helper_ptx, sizeof helper_ptx - 1};
    eider_status status = EIDER_OK;
    if (device->helpers) return EIDER_OK;
    device->helpers =
        eider_mem_zero(&device->ctx->allocator, HELPER_COUNT * sizeof *device->helpers);
    if (!device->helpers) return EIDER_OOM;
    for (int i = 0; i < HELPER_COUNT && status == EIDER_OK; i++) {
        struct eider_load what = {
            .code = &ptx, .is_ptx = 1, .block = {1, 1, 1}, .entry = helper_entries[i]};
        status = load(device, &what, &device->helpers[i]);
    }
    if (status != EIDER_OK) unload_helpers(device);
    return status;
}

/* Launches a helper whose last parameter points to `bytes` bytes, which go there and back. */
static eider_status run_helper(eider_device *device, void *stream, enum helper which, uint32_t grid,
                               uint32_t block, void **params, void **last, void *data, size_t bytes)
{
    struct eider_shot shot = {.code = &device->helpers[which],
                              .grid = {grid, 1, 1},
                              .block = {block, 1, 1},
                              .stream = stream,
                              .params = params};
    EIDER_TRY(memory_alloc(device, bytes, last));
    eider_status status = memory_copy(device, stream, *last, data, bytes, EIDER_HOST_TO_DEVICE);
    if (status == EIDER_OK) status = launch(device, &shot);
    if (status == EIDER_OK)
        status = memory_copy(device, stream, data, *last, bytes, EIDER_DEVICE_TO_HOST);
    memory_free(device, *last);
    return status;
}

static eider_status memory_differs(eider_device *device, void *stream, const void *a, const void *b,
                                   size_t bytes, size_t *out)
{
    uint64_t n = bytes, found = bytes;
    void *result = NULL;
    void *params[] = {&a, &b, &n, &result};
    EIDER_TRY(get_helpers(device));
    if (bytes)
        EIDER_TRY(run_helper(device, stream, HELPER_DIFFERS, 8 * (uint32_t)device->info.units, 256,
                             params, &result, &found, sizeof found));
    *out = (size_t)found;
    return EIDER_OK;
}

static eider_status clock_rate(eider_device *device, void *stream, int32_t *out_khz)
{
    uint64_t taken[2] = {0, 0}; /* cycles, nanoseconds */
    void *result = NULL;
    void *params[] = {&result};
    EIDER_TRY(get_helpers(device));
    EIDER_TRY(run_helper(device, stream, HELPER_CLOCK, 1, 1, params, &result, taken, sizeof taken));
    *out_khz = taken[1] ? (int32_t)(1e6 * (double)taken[0] / (double)taken[1]) : 0;
    return EIDER_OK;
}

/* ---- Time -------------------------------------------------------------- */

/* Everything that one call of time_shots must release. */
struct timing {
    const eider_device *device;
    const struct eider_cuda_api *api;
    CUevent *events; /* 2 * n: before and after each launch */
    int32_t n_events;
    CUdeviceptr flush;
    size_t flush_bytes;
};

static eider_status create_events(struct timing *t, int32_t n)
{
    for (; t->n_events < 2 * n; t->n_events++)
        EIDER_TRY(CALL(t->api, cuEventCreate, &t->events[t->n_events], CU_EVENT_DEFAULT));
    return EIDER_OK;
}

/* The flush is queued before the first event, so it is not in the time, and it keeps the
 * GPU busy while the launch is queued behind it. */
static eider_status queue_shots(struct timing *t, const struct eider_shot *shot, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        if (t->flush)
            EIDER_TRY(CALL(t->api, cuMemsetD8Async, t->flush, (unsigned char)i, t->flush_bytes,
                           shot->stream));
        EIDER_TRY(CALL(t->api, cuEventRecord, t->events[2 * i], shot->stream));
        EIDER_TRY(shoot(t->device, shot));
        EIDER_TRY(CALL(t->api, cuEventRecord, t->events[2 * i + 1], shot->stream));
    }
    return CALL(t->api, cuStreamSynchronize, shot->stream);
}

static eider_status time_in_scope(struct timing *t, const struct eider_shot *shot, int32_t n,
                                  double *out_ns)
{
    EIDER_TRY(not_capturing(t->api, shot->stream));
    EIDER_TRY(create_events(t, n));
    if (t->flush_bytes) EIDER_TRY(CALL(t->api, cuMemAlloc, &t->flush, t->flush_bytes));
    EIDER_TRY(queue_shots(t, shot, n));
    for (int32_t i = 0; i < n; i++) {
        float ms;
        EIDER_TRY(CALL(t->api, cuEventElapsedTime, &ms, t->events[2 * i], t->events[2 * i + 1]));
        out_ns[i] = 1e6 * (double)ms;
    }
    return EIDER_OK;
}

static eider_status time_shots(eider_device *device, const struct eider_shot *shot, int32_t n,
                               int32_t flush, double *out_ns)
{
    const eider_allocator *a = &device->ctx->allocator;
    struct scope scope;
    /* Twice the L2 cache: whatever its replacement does, nothing of ours stays. */
    struct timing t = {.device = device, .flush_bytes = flush ? 2 * device->info.l2_bytes : 0};
    t.events = eider_mem_zero(a, 2 * (size_t)n * sizeof *t.events);
    if (!t.events) return EIDER_OOM;
    eider_status status = enter(device, 1, &scope);
    if (status == EIDER_OK) {
        t.api = scope.api;
        status = time_in_scope(&t, shot, n, out_ns);
        for (int32_t i = 0; i < t.n_events; i++) (void)t.api->cuEventDestroy(t.events[i]);
        if (t.flush) (void)t.api->cuMemFree(t.flush);
        status = leave(&scope, status);
    }
    eider_mem_free(a, t.events);
    return status;
}

const struct eider_backend eider_backend_cuda = {
    .name = "cuda",
    .asynchronous = 1,
    .count = count_devices,
    .open = open_device,
    .close = close_device,
    .shutdown = shutdown_cuda,
    .load = load,
    .unload = unload,
    .launch = launch,
    .time = time_shots,
    .alloc = memory_alloc,
    .free = memory_free,
    .copy = memory_copy,
    .fill = memory_fill,
    .differs = memory_differs,
    .clock = clock_rate,
    .stream_wait = stream_wait,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
};
