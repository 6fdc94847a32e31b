/* fake_cuda.c -- a CUDA driver made from cuda_api.def, without a GPU.
 *
 * Every row of the table becomes an exported function that counts, fails on request and
 * otherwise calls fake_<member> below; a row without one does not compile.  It does the
 * book-keeping of a driver: context stacks, capture modes, what is alive.  Memory is the
 * host's, a module is its image, and a launch is only recorded; the clock runs at 1.5 GHz.
 * FAKE_CUDA_FAIL=member or member:nth or :nth in the environment makes a call fail, too.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "fake_cuda.h"

enum row {
#define EIDER_CUDA_FN(need, member, symbol, params, args) ROW_##member,
#include "cuda_api.def"
    N_ROWS
};

static const char *const row_names[] = {
#define EIDER_CUDA_FN(need, member, symbol, params, args) #member,
#include "cuda_api.def"
};

#define N_DEVICES 2
#define STACK_MAX 16
#define CAPTURE_ERROR CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED

struct CUctx_st {
    CUdevice device;
};
struct CUmod_st {
    int is_ptx, is_clock;   /* the runtime's kernel that measures the clock */
    uint64_t words[2 * 65]; /* its variable */
    char image[];           /* of PTX */
};
struct CUstream_st {
    int unused;
};
struct CUevent_st {
    int is_recorded;
};
struct CUmemPoolHandle_st {
    uint64_t keeps;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    int calls[N_ROWS], n_calls;
    int fail_row, fail_nth, fail_result, has_failed; /* fail_row -1: none, N_ROWS: any */
    int is_dead, is_capturing, is_spoiled;
    void *captured;
    int driver, capability, n_params, has_no_pools;
    char order[64]; /* of calls, a letter each */
    struct fake_cuda_launch launch;
    int attributes[32];
} fake = {.fail_row = -1, .driver = 13000, .capability = 90};

/* What was handed out and not given back: freed when the driver ends. */
struct object {
    struct object *next, **link;
    max_align_t bytes[];
};

static struct object *objects;
static atomic_int alive;
static struct CUctx_st primary[N_DEVICES] = {{0}, {1}}, of_caller = {1};
static _Thread_local CUcontext stack[STACK_MAX];
static _Thread_local int depth;
static _Thread_local int capture_mode;

static void *make(size_t bytes)
{
    struct object *object = calloc(1, sizeof *object + bytes);
    if (!object) abort();
    pthread_mutex_lock(&lock);
    object->next = objects;
    object->link = &objects;
    if (objects) objects->link = &object->next;
    objects = object;
    pthread_mutex_unlock(&lock);
    alive++;
    return object->bytes;
}

static void drop(void *bytes)
{
    struct object *object = (struct object *)((char *)bytes - offsetof(struct object, bytes));
    pthread_mutex_lock(&lock);
    *object->link = object->next;
    if (object->next) object->next->link = object->link;
    pthread_mutex_unlock(&lock);
    free(object);
    alive--;
}

static void drop_all(void)
{
    while (objects) drop(objects->bytes);
}

/* ---- The script -------------------------------------------------------- */

static int find_row(const char *name)
{
    for (int i = 0; i < N_ROWS; i++)
        if (strcmp(row_names[i], name) == 0) return i;
    return -1;
}

static void read_environment(void)
{
    const char *text = getenv("FAKE_CUDA_FAIL");
    if (!text || !*text) return;
    char name[64];
    const char *colon = strchr(text, ':');
    snprintf(name, sizeof name, "%.*s", colon ? (int)(colon - text) : 63, text);
    fake.fail_row = *name ? find_row(name) : N_ROWS;
    fake.fail_nth = colon ? atoi(colon + 1) : 1;
    fake.fail_result = 999;
}

static CUresult scripted(enum row row)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_environment);
    pthread_mutex_lock(&lock);
    int n = ++fake.calls[row], any = ++fake.n_calls;
    int hit = (fake.fail_row == (int)row && n == fake.fail_nth) ||
              (fake.fail_row == N_ROWS && any == fake.fail_nth);
    if (hit) fake.has_failed = 1;
    CUresult result = hit ? fake.fail_result : fake.is_dead ? CUDA_ERROR_DEINITIALIZED : 0;
    pthread_mutex_unlock(&lock);
    return result;
}

/* Calls that give something back do so even when they report an error, as a driver that
 * reports an earlier, asynchronous one does. */
static int gives_back(enum row row)
{
    return row == ROW_cuModuleUnload || row == ROW_cuMemFree || row == ROW_cuStreamDestroy ||
           row == ROW_cuEventDestroy || row == ROW_cuDevicePrimaryCtxRelease ||
           row == ROW_cuCtxPopCurrent || row == ROW_cuMemFreeAsync || row == ROW_cuMemPoolDestroy;
}

/* What a capture in global mode forbids to threads that are not relaxed. */
static CUresult unsafe(void)
{
    if (!fake.is_capturing || capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
    fake.is_spoiled = 1;
    return CAPTURE_ERROR;
}

static CUresult need_context(void)
{
    return depth > 0 ? CUDA_SUCCESS : 201; /* CUDA_ERROR_INVALID_CONTEXT */
}

#define TRY(call)                              \
    do {                                       \
        CUresult try_ = (call);                \
        if (try_ != CUDA_SUCCESS) return try_; \
    } while (0)

/* ---- The driver -------------------------------------------------------- */

static CUresult fake_cuInit(unsigned flags)
{
    return flags == 0 ? CUDA_SUCCESS : 1;
}

static CUresult fake_cuDriverGetVersion(int *out)
{
    *out = fake.driver;
    return CUDA_SUCCESS;
}

static CUresult fake_cuGetErrorName(CUresult result, const char **out)
{
    *out = result == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_FAKE";
    return CUDA_SUCCESS;
}

static CUresult fake_cuGetErrorString(CUresult result, const char **out)
{
    *out = result == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "as the test wanted";
    return CUDA_SUCCESS;
}

static CUresult fake_cuDeviceGetCount(int *out)
{
    *out = N_DEVICES;
    return CUDA_SUCCESS;
}

static CUresult fake_cuDeviceGet(CUdevice *out, int ordinal)
{
    *out = ordinal;
    return ordinal < N_DEVICES ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult fake_cuDeviceGetName(char *out, int size, CUdevice device)
{
    snprintf(out, (size_t)size, "Fake GPU %d", device);
    return CUDA_SUCCESS;
}

static CUresult fake_cuDeviceGetAttribute(int *out, int attribute, CUdevice device)
{
    (void)device;
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *out = fake.capability / 10;
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *out = fake.capability % 10;
        break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *out = 132;
        break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
        *out = !fake.has_no_pools;
        break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
        *out = 4096;
        break;
    default:
        *out = 1000;
        break;
    }
    return CUDA_SUCCESS;
}

static CUresult fake_cuDeviceTotalMem(size_t *out, CUdevice device)
{
    (void)device;
    *out = (size_t)1 << 30;
    return CUDA_SUCCESS;
}

static CUresult fake_cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
    *out = &primary[device];
    alive++;
    return CUDA_SUCCESS;
}

static CUresult fake_cuDevicePrimaryCtxRelease(CUdevice device)
{
    (void)device;
    alive--;
    return CUDA_SUCCESS;
}

static CUresult fake_cuCtxGetCurrent(CUcontext *out)
{
    *out = depth ? stack[depth - 1] : NULL;
    return CUDA_SUCCESS;
}

static CUresult fake_cuCtxPushCurrent(CUcontext context)
{
    if (depth == STACK_MAX) abort();
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

static CUresult fake_cuCtxPopCurrent(CUcontext *out)
{
    if (depth == 0) abort();
    *out = stack[--depth];
    return CUDA_SUCCESS;
}

static CUresult fake_cuCtxGetDevice(CUdevice *out)
{
    TRY(need_context());
    *out = stack[depth - 1]->device;
    return CUDA_SUCCESS;
}

static CUresult fake_cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned n, int *options,
                                        void **values)
{
    TRY(need_context());
    TRY(unsafe());
    int is_ptx = memcmp(image, "\177ELF", 4) != 0;
    if (is_ptx && strstr(image, "BROKEN")) {
        for (unsigned i = 0; i < n; i++)
            if (options[i] == CU_JIT_ERROR_LOG_BUFFER) strcpy(values[i], "line 1: it is BROKEN");
        return CUDA_ERROR_INVALID_PTX;
    }
    size_t size = is_ptx ? strlen(image) + 1 : 0;
    CUmodule module = make(sizeof *module + size);
    module->is_ptx = is_ptx;
    if (is_ptx) memcpy(module->image, image, size);
    *out = module;
    return CUDA_SUCCESS;
}

static CUresult fake_cuModuleUnload(CUmodule module)
{
    drop(module);
    TRY(unsafe());
    return CUDA_SUCCESS;
}

static CUresult fake_cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name)
{
    TRY(need_context());
    if (module->is_ptx && !strstr(module->image, name)) return CUDA_ERROR_NOT_FOUND;
    module->is_clock = strcmp(name, "eider_clock") == 0;
    *out = (CUfunction)module;
    return CUDA_SUCCESS;
}

static CUresult fake_cuModuleGetGlobal(CUdeviceptr *out, size_t *bytes, CUmodule module,
                                       const char *name)
{
    TRY(need_context());
    if (module->is_ptx && !strstr(module->image, name)) return CUDA_ERROR_NOT_FOUND;
    *out = (CUdeviceptr)(uintptr_t)module->words;
    *bytes = sizeof module->words;
    return CUDA_SUCCESS;
}

static CUresult fake_cuFuncGetAttribute(int *out, int attribute, CUfunction function)
{
    (void)function;
    *out = attribute == CU_FUNC_ATTRIBUTE_NUM_REGS ? 24 : 0;
    return CUDA_SUCCESS;
}

static CUresult fake_cuFuncSetAttribute(CUfunction function, int attribute, int value)
{
    (void)function;
    fake.attributes[attribute] = value;
    return CUDA_SUCCESS;
}

static CUresult fake_cuFuncLoad(CUfunction function)
{
    (void)function;
    TRY(need_context());
    return unsafe();
}

/* Calls whose order counts. */
static void note(char letter)
{
    size_t n = strlen(fake.order);
    if (n + 1 < sizeof fake.order) fake.order[n] = letter;
}

static CUresult fake_cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                    unsigned grid_z, unsigned block_x, unsigned block_y,
                                    unsigned block_z, unsigned shared_bytes, CUstream stream,
                                    void **params, void **extra)
{
    (void)extra;
    TRY(need_context());
    if (!grid_x || !grid_y || !grid_z || !block_x || !block_y || !block_z) return 1;
    pthread_mutex_lock(&lock);
    note('k');
    fake.launch = (struct fake_cuda_launch){.grid = {grid_x, grid_y, grid_z},
                                            .block = {block_x, block_y, block_z},
                                            .shared_bytes = shared_bytes,
                                            .stream = stream};
    for (int i = 0; i < fake.n_params; i++)
        memcpy(&fake.launch.params[i], params[i], sizeof fake.launch.params[i]);
    pthread_mutex_unlock(&lock);
    if (((CUmodule)function)->is_clock) {
        static const uint64_t cycles_and_ns[] = {150000, 100000};
        void *out;
        memcpy(&out, params[0], sizeof out);
        memcpy(out, cycles_and_ns, sizeof cycles_and_ns);
    }
    return CUDA_SUCCESS;
}

static CUresult fake_cuStreamCreate(CUstream *out, unsigned flags)
{
    (void)flags;
    TRY(need_context());
    *out = make(sizeof **out);
    return CUDA_SUCCESS;
}

static CUresult fake_cuStreamDestroy(CUstream stream)
{
    drop(stream);
    return CUDA_SUCCESS;
}

static CUresult fake_cuStreamSynchronize(CUstream stream)
{
    TRY(need_context());
    if (!fake.is_capturing || stream != fake.captured) return CUDA_SUCCESS;
    fake.is_spoiled = 1;
    return CAPTURE_ERROR;
}

static CUresult fake_cuStreamIsCapturing(CUstream stream, int *out)
{
    *out = fake.is_capturing && stream == fake.captured;
    return CUDA_SUCCESS;
}

static CUresult fake_cuThreadExchangeStreamCaptureMode(int *exchanged)
{
    int before = capture_mode;
    capture_mode = *exchanged;
    *exchanged = before;
    return CUDA_SUCCESS;
}

static CUresult fake_cuEventCreate(CUevent *out, unsigned flags)
{
    (void)flags;
    TRY(need_context());
    *out = make(sizeof **out);
    return CUDA_SUCCESS;
}

static CUresult fake_cuEventDestroy(CUevent event)
{
    drop(event);
    return CUDA_SUCCESS;
}

static CUresult fake_cuEventRecord(CUevent event, CUstream stream)
{
    (void)stream;
    event->is_recorded = 1;
    return need_context();
}

static CUresult fake_cuEventElapsedTime(float *out_ms, CUevent from, CUevent to)
{
    *out_ms = 0.5f;
    return from->is_recorded && to->is_recorded ? CUDA_SUCCESS : 1;
}

static CUresult fake_cuMemAlloc(CUdeviceptr *out, size_t bytes)
{
    TRY(need_context());
    TRY(unsafe());
    if (bytes == 0) return 1;
    if (bytes > (size_t)1 << 30) return CUDA_ERROR_OUT_OF_MEMORY;
    *out = (CUdeviceptr)(uintptr_t)make(bytes);
    return CUDA_SUCCESS;
}

static CUresult fake_cuMemFree(CUdeviceptr ptr)
{
    drop((void *)(uintptr_t)ptr);
    return CUDA_SUCCESS;
}

static CUresult fake_cuMemPoolCreate(CUmemoryPool *out, const struct eider_cuda_pool_props *props)
{
    TRY(need_context());
    TRY(unsafe());
    if (props->alloc_type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        props->location.type != CU_MEM_LOCATION_TYPE_DEVICE || props->location.id >= N_DEVICES)
        return 1;
    *out = make(sizeof **out);
    return CUDA_SUCCESS;
}

static CUresult fake_cuMemPoolDestroy(CUmemoryPool pool)
{
    drop(pool);
    return CUDA_SUCCESS;
}

static CUresult fake_cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value)
{
    if (attribute != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) return 1;
    memcpy(&pool->keeps, value, sizeof pool->keeps);
    return CUDA_SUCCESS;
}

/* What a capture may hold. */
static CUresult fake_cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, CUmemoryPool pool,
                                             CUstream stream)
{
    (void)stream;
    TRY(need_context());
    if (bytes == 0 || pool->keeps == 0) return 1;
    if (bytes > (size_t)1 << 30) return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    note('a');
    pthread_mutex_unlock(&lock);
    *out = (CUdeviceptr)(uintptr_t)make(bytes);
    return CUDA_SUCCESS;
}

static CUresult fake_cuMemFreeAsync(CUdeviceptr ptr, CUstream stream)
{
    (void)stream;
    pthread_mutex_lock(&lock);
    note('f');
    pthread_mutex_unlock(&lock);
    drop((void *)(uintptr_t)ptr);
    return CUDA_SUCCESS;
}

static CUresult copy(void *to, const void *from, size_t bytes)
{
    TRY(need_context());
    memcpy(to, from, bytes);
    return CUDA_SUCCESS;
}

static CUresult fake_cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes,
                                       CUstream stream)
{
    (void)stream;
    return copy((void *)(uintptr_t)to, from, bytes);
}

static CUresult fake_cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    (void)stream;
    return copy(to, (const void *)(uintptr_t)from, bytes);
}

static CUresult fake_cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                       CUstream stream)
{
    (void)stream;
    return copy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
}

static CUresult fake_cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes,
                                     CUstream stream)
{
    (void)stream;
    TRY(need_context());
    memset((void *)(uintptr_t)to, value, bytes);
    return CUDA_SUCCESS;
}

/* ---- The exported functions -------------------------------------------- */

#define EIDER_CUDA_FN(need, member, symbol, params, args)                         \
    CUresult symbol params;                                                       \
    CUresult symbol params                                                        \
    {                                                                             \
        CUresult script_ = scripted(ROW_##member);                                \
        if (script_ != CUDA_SUCCESS && !gives_back(ROW_##member)) return script_; \
        CUresult real_ = fake_##member args;                                      \
        return script_ != CUDA_SUCCESS ? script_ : real_;                         \
    }
#include "cuda_api.def"

/* ---- Steering ---------------------------------------------------------- */

static void reset(void)
{
    pthread_mutex_lock(&lock);
    memset(&fake, 0, sizeof fake);
    fake.fail_row = -1;
    fake.driver = 13000;
    fake.capability = 90;
    pthread_mutex_unlock(&lock);
    drop_all();
    alive = 0;
    depth = 0;
    capture_mode = 0;
}

static void break_call(const char *member, int nth, int result)
{
    fake.fail_row = member ? find_row(member) : N_ROWS;
    fake.fail_nth = nth;
    fake.fail_result = result;
    fake.has_failed = 0;
    memset(fake.calls, 0, sizeof fake.calls);
    memset(fake.order, 0, sizeof fake.order);
    fake.n_calls = 0;
}

static int has_failed(void)
{
    return fake.has_failed;
}

static const char *get_order(void)
{
    return fake.order;
}

static void take_pools_away(void)
{
    fake.has_no_pools = 1;
}

static int calls(const char *member)
{
    int row = find_row(member);
    return row < 0 ? -1 : fake.calls[row];
}

static const char *member_name(int i)
{
    return i < N_ROWS ? row_names[i] : NULL;
}

static int count_alive(void)
{
    return alive;
}

static int get_depth(void)
{
    return depth;
}

static int get_mode(void)
{
    return capture_mode;
}

static const struct fake_cuda_launch *last_launch(void)
{
    return &fake.launch;
}

static int get_attribute(int which)
{
    return fake.attributes[which];
}

static void set_params(int n)
{
    fake.n_params = n;
}

static void begin_capture(void *stream)
{
    fake.captured = stream;
    fake.is_capturing = 1;
    fake.is_spoiled = 0;
}

static int end_capture(void)
{
    fake.is_capturing = 0;
    return !fake.is_spoiled;
}

static void deinitialise(void)
{
    fake.is_dead = 1;
    drop_all();
}

static void *caller_context(void)
{
    return &of_caller;
}

static void set_current(void *context)
{
    depth = context ? 1 : 0;
    stack[0] = context;
}

static void set_driver(int version, int compute_capability)
{
    fake.driver = version;
    fake.capability = compute_capability;
}

extern const struct fake_cuda fake_cuda;
const struct fake_cuda fake_cuda = {
    .reset = reset,
    .break_call = break_call,
    .has_failed = has_failed,
    .calls = calls,
    .order = get_order,
    .take_pools_away = take_pools_away,
    .member = member_name,
    .alive = count_alive,
    .depth = get_depth,
    .mode = get_mode,
    .last_launch = last_launch,
    .set_params = set_params,
    .attribute = get_attribute,
    .begin_capture = begin_capture,
    .end_capture = end_capture,
    .deinitialise = deinitialise,
    .context = caller_context,
    .set_current = set_current,
    .set_driver = set_driver,
};
