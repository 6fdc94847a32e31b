/* launch.c -- what eider_launch costs on the CPU clock, beside a bare cuLaunchKernel.
 *
 *   gcc -std=gnu17 -O2 -Iinclude bench/launch.c -o build/bench_launch \
 *       -Lbuild/release -leider -Wl,-rpath,$PWD/build/release
 *   build/bench_launch
 *
 * The bare launch is of the same kernel with the same parameters: eider_launch is captured
 * into a graph, and the graph's node says what was launched.  Both take turns in batches
 * that fit the driver's queue; the median of the batches counts.  The context's allocator
 * counts what eider_launch allocates.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "eider/eider.h"

#define BATCH 200
#define BATCHES 200
#define EXTENT 4096

/* As in cuda.h. */
struct node_params {
    void *function;
    unsigned grid[3], block[3], shared_bytes;
    void **params, **extra;
    void *kernel, *context;
};

static int (*cuInit_)(unsigned);
static int (*cuDeviceGet_)(int *, int);
static int (*cuDevicePrimaryCtxRetain_)(void **, int);
static int (*cuCtxSetCurrent_)(void *);
static int (*cuStreamBeginCapture_)(void *, int);
static int (*cuStreamEndCapture_)(void *, void **);
static int (*cuGraphGetNodes_)(void *, void **, size_t *);
static int (*cuGraphKernelNodeGetParams_)(void *, struct node_params *);
static int (*cuLaunchKernel_)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                              unsigned, void *, void **, void **);

static const struct {
    const char *name;
    void *to;
} symbols[] = {
    {"cuInit", &cuInit_},
    {"cuDeviceGet", &cuDeviceGet_},
    {"cuDevicePrimaryCtxRetain", &cuDevicePrimaryCtxRetain_},
    {"cuCtxSetCurrent", &cuCtxSetCurrent_},
    {"cuStreamBeginCapture_v2", &cuStreamBeginCapture_},
    {"cuStreamEndCapture", &cuStreamEndCapture_},
    {"cuGraphGetNodes", &cuGraphGetNodes_},
    {"cuGraphKernelNodeGetParams_v2", &cuGraphKernelNodeGetParams_},
    {"cuLaunchKernel", &cuLaunchKernel_},
};

static void require(int good, const char *what)
{
    if (good) return;
    fprintf(stderr, "launch: %s failed: %s\n", what, eider_error());
    exit(3);
}

static void open_driver(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    require(driver != NULL, "opening libcuda.so.1");
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        *(void **)symbols[i].to = dlsym(driver, symbols[i].name);
        require(*(void **)symbols[i].to != NULL, symbols[i].name);
    }
    int device;
    void *context;
    require(cuInit_(0) == 0 && cuDeviceGet_(&device, 0) == 0 &&
                cuDevicePrimaryCtxRetain_(&context, device) == 0 && cuCtxSetCurrent_(context) == 0,
            "the primary context");
}

static size_t n_allocations;

static void *counting_resize(void *user, void *ptr, size_t old_size, size_t new_size)
{
    (void)user, (void)old_size;
    n_allocations++;
    if (new_size) return realloc(ptr, new_size);
    free(ptr);
    return NULL;
}

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

struct bench {
    eider_device *device;
    eider_kernel *kernel;
    void *stream;
    eider_tensor args[3];
    struct node_params node;
};

static void launch_eider(const struct bench *b)
{
    require(eider_launch(b->kernel, b->stream, b->args, 3) == EIDER_OK, "eider_launch");
}

static void launch_bare(const struct bench *b)
{
    const struct node_params *n = &b->node;
    require(cuLaunchKernel_(n->function, n->grid[0], n->grid[1], n->grid[2], n->block[0],
                            n->block[1], n->block[2], n->shared_bytes, b->stream, n->params,
                            NULL) == 0,
            "cuLaunchKernel");
}

/* What eider_launch hands to the driver. */
static void capture(struct bench *b)
{
    void *graph, *nodes[4];
    size_t n = 4;
    require(cuStreamBeginCapture_(b->stream, 0) == 0, "cuStreamBeginCapture");
    launch_eider(b);
    require(cuStreamEndCapture_(b->stream, &graph) == 0, "cuStreamEndCapture");
    require(cuGraphGetNodes_(graph, nodes, &n) == 0 && n == 1, "cuGraphGetNodes");
    require(cuGraphKernelNodeGetParams_(nodes[0], &b->node) == 0, "cuGraphKernelNodeGetParams");
}

static double batch_ns(const struct bench *b, void (*launch)(const struct bench *b))
{
    require(eider_stream_wait(b->device, b->stream) == EIDER_OK, "eider_stream_wait");
    double start = now_ns();
    for (int i = 0; i < BATCH; i++) launch(b);
    return (now_ns() - start) / BATCH;
}

static void measure(const struct bench *b)
{
    static double eider_ns[BATCHES], bare_ns[BATCHES];
    size_t before = 0;
    for (int i = -10; i < BATCHES; i++) {
        if (i == 0) before = n_allocations;
        double bare = batch_ns(b, launch_bare), ours = batch_ns(b, launch_eider);
        if (i < 0) continue;
        bare_ns[i] = bare;
        eider_ns[i] = ours;
    }
    size_t allocated = n_allocations - before;
    qsort(eider_ns, BATCHES, sizeof eider_ns[0], by_value);
    qsort(bare_ns, BATCHES, sizeof bare_ns[0], by_value);
    printf("| | median us | p10 | p90 |\n|---|--:|--:|--:|\n");
    printf("| cuLaunchKernel | %.3f | %.3f | %.3f |\n", bare_ns[BATCHES / 2] / 1e3,
           bare_ns[BATCHES / 10] / 1e3, bare_ns[BATCHES * 9 / 10] / 1e3);
    printf("| eider_launch | %.3f | %.3f | %.3f |\n", eider_ns[BATCHES / 2] / 1e3,
           eider_ns[BATCHES / 10] / 1e3, eider_ns[BATCHES * 9 / 10] / 1e3);
    printf("\nmore than bare: %.3f us; allocations in %d launches: %zu\n",
           (eider_ns[BATCHES / 2] - bare_ns[BATCHES / 2]) / 1e3, BATCH * BATCHES, allocated);
}

int main(void)
{
    static const int64_t extent = EXTENT;
    eider_context_options options = {.allocator = {.resize = counting_resize}};
    eider_context *ctx;
    eider_program *program;
    struct bench b = {0};
    open_driver();
    require(eider_context_create(&options, &ctx) == EIDER_OK, "eider_context_create");
    require(eider_device_open(ctx, "cuda:0", &b.device) == EIDER_OK, "eider_device_open");
    require(eider_stream_create(b.device, &b.stream) == EIDER_OK, "eider_stream_create");
    require(eider_program_parse(ctx, "out = silu(gate) * up", &program) == EIDER_OK, "parsing");
    for (int i = 0; i < 3; i++) {
        b.args[i] = (eider_tensor){NULL, EIDER_BF16, 1, &extent, NULL};
        require(eider_memory_alloc(b.device, EXTENT * 2, &b.args[i].data) == EIDER_OK, "memory");
    }
    eider_request request = {.program = program, .args = b.args, .n_args = 3};
    require(eider_prepare(b.device, &request, &b.kernel) == EIDER_OK, "eider_prepare");
    capture(&b);
    measure(&b);
    eider_kernel_release(b.kernel);
    for (int i = 0; i < 3; i++) eider_memory_free(b.device, b.args[i].data);
    eider_stream_destroy(b.device, b.stream);
    eider_program_release(program);
    eider_device_release(b.device);
    eider_context_destroy(ctx);
    return 0;
}
