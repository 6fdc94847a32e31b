/* test_gpu.c -- on a real GPU: values, captures, streams, contexts, several GPUs, large
 * offsets, foreign kernels, and running out of memory.
 *
 * labels: gpu
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "passes.h"
#include "support_runtime.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define ROOM 1100000

static eider_context *ctx;
static eider_device *gpu;
static void *stream;
static double xs[ROOM], ys[ROOM];
static unsigned char host[8 * ROOM];

/* What eider itself has no use for; every function returns 0 on success. */
static struct {
    int (*begin_capture)(void *stream, int mode);
    int (*end_capture)(void *stream, void **graph);
    int (*instantiate)(void **exec, void *graph, unsigned long long flags);
    int (*launch_graph)(void *exec, void *stream);
    int (*destroy_exec)(void *exec);
    int (*destroy_graph)(void *graph);
    int (*create_context)(void **context, unsigned flags, int device);
    int (*destroy_context)(void *context);
    int (*get_current)(void **context);
    int (*set_current)(void *context);
} cu;

static const struct {
    const char *symbol;
    void *slot;
} symbols[] = {
    {"cuStreamBeginCapture_v2", &cu.begin_capture},
    {"cuStreamEndCapture", &cu.end_capture},
    {"cuGraphInstantiateWithFlags", &cu.instantiate},
    {"cuGraphLaunch", &cu.launch_graph},
    {"cuGraphExecDestroy", &cu.destroy_exec},
    {"cuGraphDestroy", &cu.destroy_graph},
    {"cuCtxCreate_v2", &cu.create_context},
    {"cuCtxDestroy_v2", &cu.destroy_context},
    {"cuCtxGetCurrent", &cu.get_current},
    {"cuCtxSetCurrent", &cu.set_current},
};

static int set_up(void **state)
{
    (void)state;
    must(eider_context_create(NULL, &ctx));
    eider_status status = eider_device_open(ctx, "cuda:0", &gpu);
    if (status != EIDER_OK) {
        fprintf(stderr, "SKIPPED (no GPU): %s\n", eider_error());
        gpu = NULL;
        return 0;
    }
    must(eider_stream_create(gpu, &stream));
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    for (size_t i = 0; library && i < COUNT(symbols); i++) {
        void *symbol = dlsym(library, symbols[i].symbol);
        memcpy(symbols[i].slot, &symbol, sizeof symbol);
    }
    for (int i = 0; i < ROOM; i++) {
        xs[i] = (double)(i % 2003 - 1001) / 128;
        ys[i] = (double)(i % 1009 - 504) / 64;
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    eider_stream_destroy(gpu, stream);
    eider_device_release(gpu);
    eider_context_destroy(ctx);
    return 0;
}

#define NEED_GPU()        \
    do {                  \
        if (!gpu) skip(); \
    } while (0)

/* ---- Values on the device -------------------------------------------------- */

/* The value whose bits are at `i`: f32, f64, f16, bf16. */
static double read_value(eider_dtype type, size_t i)
{
    uint16_t half;
    uint32_t bits;
    float f;
    double d;
    if (type == EIDER_F64) {
        memcpy(&d, host + 8 * i, 8);
        return d;
    }
    if (type == EIDER_F32) {
        memcpy(&f, host + 4 * i, 4);
        return (double)f;
    }
    memcpy(&half, host + 2 * i, 2);
    if (type == EIDER_BF16) {
        bits = (uint32_t)half << 16;
        memcpy(&f, &bits, 4);
        return (double)f;
    }
    int exponent = half >> 10 & 31, fraction = half & 1023;
    double magnitude = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return half >> 15 ? -magnitude : magnitude;
}

/* Writes a value that the type has exactly. */
static void write_value(eider_dtype type, size_t i, double value)
{
    float f = (float)value;
    uint32_t bits;
    uint16_t half;
    memcpy(&bits, &f, 4);
    if (type == EIDER_F64) {
        memcpy(host + 8 * i, &value, 8);
    } else if (type == EIDER_F32) {
        memcpy(host + 4 * i, &f, 4);
    } else if (type == EIDER_BF16) {
        half = (uint16_t)(bits >> 16);
        memcpy(host + 2 * i, &half, 2);
    } else {
        int exponent;
        double fraction = frexp(fabs(value), &exponent); /* in [0.5, 1) */
        int is_normal = exponent + 14 > 0;
        double scaled = is_normal ? ldexp(fraction, 11) - 1024 : ldexp(fabs(value), 24);
        half = (uint16_t)((is_normal && value != 0 ? (exponent + 14) << 10 : 0) |
                          (value != 0 ? (int)scaled : 0) | (signbit(value) ? 0x8000 : 0));
        memcpy(host + 2 * i, &half, 2);
    }
}

/* Device memory with `values` rounded to the type, `shift` elements behind its start. */
static void *upload(eider_dtype type, const double *values, size_t n, size_t shift)
{
    void *memory;
    size_t size = eider_dtype_size(type);
    memset(host, 0x5a, (n + 2 * shift + 16) * size);
    for (size_t i = 0; values && i < n; i++)
        write_value(type, i + shift, eider_round_to(values[i], type, 1));
    must(eider_memory_alloc(gpu, (n + 2 * shift + 16) * size, &memory));
    must(eider_memory_copy(gpu, stream, memory, host, (n + 2 * shift + 16) * size,
                           EIDER_HOST_TO_DEVICE));
    return memory;
}

static void download(const void *memory, eider_dtype type, size_t n)
{
    must(eider_memory_copy(gpu, stream, host, memory, n * eider_dtype_size(type),
                           EIDER_DEVICE_TO_HOST));
}

static void *at(void *memory, eider_dtype type, size_t shift)
{
    return (char *)memory + shift * eider_dtype_size(type);
}

static void check_swiglu(eider_dtype type, int64_t n, size_t shift)
{
    eider_program *program;
    eider_kernel *kernel;
    void *x = upload(type, xs, (size_t)n, shift), *y = upload(type, ys, (size_t)n, 0);
    void *out = upload(type, NULL, (size_t)n, shift);
    eider_tensor args[] = {tensor_of(at(x, type, shift), type, 1, &n), tensor_of(y, type, 1, &n),
                           tensor_of(at(out, type, shift), type, 1, &n)};
    must(eider_program_parse(ctx, "out = silu(gate) * up", &program));
    eider_request request = {.program = program, .args = args, .n_args = 3};
    must(eider_prepare(gpu, &request, &kernel));
    must(eider_launch(kernel, stream, args, 3));
    download(out, type, (size_t)n + 2 * shift + 16);
    double unit = type == EIDER_F64   ? 1e-13
                  : type == EIDER_F32 ? 1e-6
                  : type == EIDER_F16 ? 1e-3
                                      : 8e-3;
    double loose = type == EIDER_F64 ? 0 : type == EIDER_F32 ? 1e-6 : 1e-3; /* tanh.approx */
    for (int64_t i = 0; i < n; i++) {
        double in[] = {eider_round_to(xs[i], type, 1), eider_round_to(ys[i], type, 1)}, expected;
        must(eider_program_eval(program, in, &expected));
        double got = read_value(type, (size_t)i + shift);
        if (!(fabs(got - expected) <= unit * fabs(expected) + loose * fabs(in[0] * in[1]) + 1e-7))
            fail_msg("%s, n %d, shift %d: element %d is %g, expected %g", eider_dtype_name(type),
                     (int)n, (int)shift, (int)i, got, expected);
    }
    size_t size = eider_dtype_size(type);
    for (size_t i = 0; i < shift * size; i++) assert_int_equal(host[i], 0x5a);
    for (size_t i = ((size_t)n + shift) * size; i < ((size_t)n + 2 * shift + 16) * size; i++)
        assert_int_equal(host[i], 0x5a);
    eider_kernel_release(kernel);
    eider_program_release(program);
    eider_memory_free(gpu, x);
    eider_memory_free(gpu, y);
    eider_memory_free(gpu, out);
}

static void swiglu_is_right_for_types_tails_and_misalignments(void **state)
{
    (void)state;
    static const eider_dtype types[] = {EIDER_F32, EIDER_BF16, EIDER_F16, EIDER_F64};
    static const int64_t lengths[] = {1, 7, 8, 255, 4096, 4097, 1048579};
    NEED_GPU();
    for (size_t t = 0; t < COUNT(types); t++)
        for (size_t l = 0; l < COUNT(lengths); l++)
            for (size_t shift = 0; shift < 4; shift++)
                if (shift < 2 || lengths[l] < 5000) check_swiglu(types[t], lengths[l], shift);
}

static void one_kernel_serves_misaligned_pointers(void **state)
{
    (void)state;
    NEED_GPU();
    int64_t n = 10001;
    eider_program *program;
    eider_kernel *kernel;
    void *x = upload(EIDER_BF16, xs, 10008, 0), *out = upload(EIDER_BF16, NULL, 10008, 0);
    eider_tensor args[] = {tensor_of(NULL, EIDER_BF16, 1, &n), tensor_of(NULL, EIDER_BF16, 1, &n)};
    must(eider_program_parse(ctx, "out = 2 * x", &program));
    eider_request request = {.program = program, .args = args, .n_args = 2};
    must(eider_prepare(gpu, &request, &kernel));
    for (size_t from = 0; from < 8; from++) {
        for (size_t to = 0; to < 8; to += 3) {
            args[0].data = at(x, EIDER_BF16, from);
            args[1].data = at(out, EIDER_BF16, to);
            must(eider_launch(kernel, stream, args, 2));
            download(args[1].data, EIDER_BF16, (size_t)n);
            for (int64_t i = 0; i < n; i++)
                assert_true(read_value(EIDER_BF16, (size_t)i) ==
                            2 * eider_round_to(xs[i + (int64_t)from], EIDER_BF16, 1));
        }
    }
    eider_kernel_release(kernel);
    eider_program_release(program);
    eider_memory_free(gpu, x);
    eider_memory_free(gpu, out);
}

/* ---- Every activation in every mode ----------------------------------------------- */

/* "dx, dy, out = f(x, y, dout, alpha=1.7)" without what has a default. */
static void program_of_signature(const char *signature, char *out, size_t size)
{
    const char *open = strchr(signature, '('), *from = open ? strchr(open, '=') : NULL;
    size_t length = strlen(signature);
    if (from) {
        while (*from != ',' && *from != '(') from--;
        length = (size_t)(from - signature) + (*from == '(');
    }
    snprintf(out, size, "%.*s%s", (int)length, signature, from ? ")" : "");
}

static void check_activation(const char *text, eider_math math, double tolerance)
{
    enum { N = 4001, MAX = 8 };
    eider_program *program;
    eider_kernel *kernel;
    int64_t n = N;
    double in[MAX], expected[MAX];
    static double values[MAX][N];
    eider_tensor args[MAX];
    must(eider_program_parse(ctx, text, &program));
    size_t n_args = eider_program_operands(program), n_in = 0;
    assert_true(n_args <= MAX);
    for (size_t a = 0; a < n_args; a++) {
        eider_operand operand;
        must(eider_program_operand(program, a, &operand));
        int is_input = operand.kind == EIDER_INPUT;
        n_in += is_input ? 1 : 0;
        for (int i = 0; i < N; i++)
            values[a][i] = eider_round_to(a == 0 ? (i - 2000) / 250.0
                                                 : ((i * (int)(7 + a)) % 801 - 400) / 150.0,
                                          EIDER_F32, 1);
        void *memory = upload(EIDER_F32, is_input ? values[a] : NULL, N, 0);
        args[a] = tensor_of(memory, EIDER_F32, 1, &n);
    }
    eider_request request = {
        .program = program, .args = args, .n_args = n_args, .numerics = {.math = math}};
    must(eider_prepare(gpu, &request, &kernel));
    must(eider_launch(kernel, stream, args, n_args));
    for (size_t a = n_in; a < n_args; a++) {
        download(args[a].data, EIDER_F32, N);
        for (int i = 0; i < N; i++) {
            double scale = 1;
            for (size_t j = 0; j < n_in; j++) {
                in[j] = values[j][i];
                scale *= 1 + fabs(in[j]);
            }
            must(eider_program_eval(program, in, expected));
            double got = read_value(EIDER_F32, (size_t)i), wanted = expected[a - n_in];
            if (!(fabs(got - wanted) <= tolerance * scale))
                fail_msg("%s, math %d: result %d at x = %g is %.9g, expected %.9g", text, (int)math,
                         (int)(a - n_in), in[0], got, wanted);
        }
    }
    for (size_t a = 0; a < n_args; a++) eider_memory_free(gpu, args[a].data);
    eider_kernel_release(kernel);
    eider_program_release(program);
}

static void every_activation_is_right_in_every_mode(void **state)
{
    (void)state;
    NEED_GPU();
    eider_row row;
    size_t n = 0;
    for (; eider_table_row(EIDER_TABLE_ACTIVATIONS, n, &row); n++) {
        char text[256];
        program_of_signature(row.signature, text, sizeof text);
        check_activation(text, EIDER_MATH_APPROX, 2e-3);
        check_activation(text, EIDER_MATH_FAST, 4e-6);
        check_activation(text, EIDER_MATH_EXACT, 5e-7);
    }
    assert_true(n > 30);
}

/* ---- Captures ----------------------------------------------------------------------- */

struct pair {
    eider_program *program;
    eider_kernel *kernel;
    eider_tensor args[2];
    int64_t n;
};

/* A program that adds 1 to equal elements, in place, on zeros. */
static void make_counter_of(struct pair *p, eider_device *device, eider_dtype type,
                            const char *text, const char *config)
{
    p->n = 5000;
    memset(host, 0, sizeof host);
    must(eider_memory_alloc(device, 8 * 5000, &p->args[0].data));
    must(eider_memory_copy(device, NULL, p->args[0].data, host, 8 * 5000, EIDER_HOST_TO_DEVICE));
    p->args[0] = tensor_of(p->args[0].data, type, 1, &p->n);
    p->args[1] = p->args[0];
    must(eider_program_parse(ctx, text, &p->program));
    eider_request request = {.program = p->program, .args = p->args, .n_args = 2, .config = config};
    must(eider_prepare(device, &request, &p->kernel));
}

static void make_counter(struct pair *p, eider_device *device, eider_dtype type)
{
    make_counter_of(p, device, type, "out = x + 1", NULL);
}

static void drop_counter(struct pair *p, eider_device *device)
{
    eider_kernel_release(p->kernel);
    eider_program_release(p->program);
    eider_memory_free(device, p->args[0].data);
}

static double counted(const struct pair *p, eider_device *device, void *on)
{
    must(eider_memory_copy(device, on, host, p->args[0].data, 8 * 5000, EIDER_DEVICE_TO_HOST));
    assert_true(read_value(p->args[0].type, 0) == read_value(p->args[0].type, 4999));
    return read_value(p->args[0].type, 4999);
}

/* Two launches are captured, and the graph launched three times. */
static void capture_and_replay(struct pair *p)
{
    void *graph, *exec;
    assert_int_equal(cu.begin_capture(stream, 0), 0);
    must(eider_launch(p->kernel, stream, p->args, 2));
    must(eider_launch(p->kernel, stream, p->args, 2));
    assert_int_equal(cu.end_capture(stream, &graph), 0);
    assert_int_equal(cu.instantiate(&exec, graph, 0), 0);
    assert_true(counted(p, gpu, stream) == 0);
    for (int i = 0; i < 3; i++) assert_int_equal(cu.launch_graph(exec, stream), 0);
    assert_true(counted(p, gpu, stream) == 6);
    cu.destroy_exec(exec);
    cu.destroy_graph(graph);
}

static void a_captured_launch_replays(void **state)
{
    (void)state;
    NEED_GPU();
    struct pair p;
    assert_int_equal(cu.set_current(gpu->native), 0); /* for the graph's functions */
    make_counter(&p, gpu, EIDER_F32);
    capture_and_replay(&p);
    cu.set_current(NULL);
    drop_counter(&p, gpu);
}

/* With the memory that its rounds share. */
static void a_captured_launch_of_parts_of_a_row_replays(void **state)
{
    (void)state;
    NEED_GPU();
    struct pair p;
    assert_int_equal(cu.set_current(gpu->native), 0);
    make_counter_of(&p, gpu, EIDER_F32, "out = x + 1 + max(x) - min(x + max(x)) + max(x)",
                    "split=8,row=64,block=64");
    capture_and_replay(&p);
    must(eider_launch(p.kernel, stream, p.args, 2));
    assert_true(counted(&p, gpu, stream) == 7);
    cu.set_current(NULL);
    drop_counter(&p, gpu);
}

static void a_capture_survives_all_that_is_refused_or_loaded_in_it(void **state)
{
    (void)state;
    NEED_GPU();
    struct pair p;
    void *graph, *exec, *memory = NULL;
    double ns;
    eider_kernel *other = NULL;
    assert_int_equal(cu.set_current(gpu->native), 0);
    make_counter(&p, gpu, EIDER_F32);
    eider_tensor half[] = {p.args[0], p.args[1]};
    half[0].type = half[1].type = EIDER_F16;
    eider_request request = {.program = p.program, .args = half, .n_args = 2};

    assert_int_equal(cu.begin_capture(stream, 0), 0);
    must(eider_launch(p.kernel, stream, p.args, 2));
    assert_int_equal(eider_launch(p.kernel, stream, half, 2), EIDER_NOT_PREPARED);
    assert_int_equal(eider_stream_wait(gpu, stream), EIDER_CAPTURING);
    assert_int_equal(eider_time(p.kernel, stream, p.args, 2, 1, 1, &ns), EIDER_CAPTURING);
    assert_int_equal(eider_memory_copy(gpu, stream, host, p.args[0].data, 4, EIDER_DEVICE_TO_HOST),
                     EIDER_CAPTURING);
    eider_status prepared = eider_prepare(gpu, &request, &other);
    assert_true(prepared == EIDER_OK || prepared == EIDER_CAPTURING);
    eider_kernel_release(other);
    if (eider_memory_alloc(gpu, 100, &memory) == EIDER_OK) eider_memory_free(gpu, memory);
    assert_int_equal(cu.end_capture(stream, &graph), 0);
    assert_int_equal(cu.instantiate(&exec, graph, 0), 0);
    assert_int_equal(cu.launch_graph(exec, stream), 0);
    assert_true(counted(&p, gpu, stream) == 1);
    fprintf(stderr, "preparing during a capture: %s\n", eider_status_name(prepared));
    cu.destroy_exec(exec);
    cu.destroy_graph(graph);
    cu.set_current(NULL);
    drop_counter(&p, gpu);
}

/* ---- Streams, threads and contexts ------------------------------------------------------ */

static void streams_run_apart(void **state)
{
    (void)state;
    enum { STREAMS = 4 };
    NEED_GPU();
    struct pair p[STREAMS];
    void *streams[STREAMS];
    for (int s = 0; s < STREAMS; s++) {
        make_counter(&p[s], gpu, EIDER_F32);
        must(eider_stream_create(gpu, &streams[s]));
    }
    for (int i = 0; i < 100; i++)
        for (int s = 0; s < STREAMS; s++)
            for (int again = 0; again <= s; again++)
                must(eider_launch(p[s].kernel, streams[s], p[s].args, 2));
    for (int s = 0; s < STREAMS; s++) {
        must(eider_stream_wait(gpu, streams[s]));
        assert_true(counted(&p[s], gpu, streams[s]) == 100 * (s + 1));
        eider_stream_destroy(gpu, streams[s]);
        drop_counter(&p[s], gpu);
    }
}

static void *launch_without_a_context(void *arg)
{
    struct pair *p = arg;
    void *current = p;
    eider_status status = eider_launch(p->kernel, stream, p->args, 2);
    if (status == EIDER_OK) status = eider_stream_wait(gpu, stream);
    if (cu.get_current(&current) != 0 || current != NULL) status = EIDER_DRIVER;
    return (void *)(uintptr_t)status;
}

static void a_thread_without_a_context_may_launch(void **state)
{
    (void)state;
    NEED_GPU();
    struct pair p;
    pthread_t thread;
    void *status;
    make_counter(&p, gpu, EIDER_F32);
    assert_int_equal(pthread_create(&thread, NULL, launch_without_a_context, &p), 0);
    pthread_join(thread, &status);
    assert_int_equal((uintptr_t)status, EIDER_OK);
    assert_true(counted(&p, gpu, stream) == 1);
    drop_counter(&p, gpu);
}

static void a_callers_context_is_used_and_kept_current(void **state)
{
    (void)state;
    NEED_GPU();
    void *mine, *current;
    eider_device *device;
    struct pair p, q;
    if (!cu.create_context || cu.create_context(&mine, 0, 0) != 0) skip();
    cu.set_current(NULL);
    must(eider_device_from_cuda(ctx, mine, &device));
    make_counter(&p, device, EIDER_F32);
    assert_int_equal(cu.get_current(&current), 0);
    assert_null(current);
    cu.set_current(mine);
    make_counter(&q, gpu, EIDER_F32);
    must(eider_launch(p.kernel, NULL, p.args, 2));
    must(eider_launch(q.kernel, stream, q.args, 2));
    assert_true(counted(&p, device, NULL) == 1);
    assert_true(counted(&q, gpu, stream) == 1);
    assert_int_equal(cu.get_current(&current), 0);
    assert_ptr_equal(current, mine);
    drop_counter(&p, device);
    drop_counter(&q, gpu);
    eider_device_release(device);
    cu.set_current(NULL);
    assert_int_equal(cu.destroy_context(mine), 0);
}

/* ---- Several GPUs ---------------------------------------------------------------------- */

static void *launch_a_hundred(void *arg)
{
    struct pair *p = arg;
    for (int i = 0; i < 100; i++) must(eider_launch(p->kernel, NULL, p->args, 2));
    return NULL;
}

/* The same program on every GPU, prepared and launched in turns by one thread, then by a thread
 * for each GPU at once; the caller's context stays current. */
static void gpus_run_apart_and_leave_the_current_context(void **state)
{
    (void)state;
    enum { GPUS = 8 };
    NEED_GPU();
    int32_t n = 0;
    must(eider_device_count(ctx, "cuda", &n));
    if (n < 2) {
        fprintf(stderr, "SKIPPED (one GPU): what several GPUs do was not tested\n");
        skip();
    }
    if (n > GPUS) n = GPUS;
    eider_device *gpus[GPUS];
    struct pair p[GPUS];
    pthread_t threads[GPUS];
    void *mine, *current;
    assert_int_equal(cu.create_context(&mine, 0, n - 1), 0);
    for (int32_t g = 0; g < n; g++) {
        char name[16];
        snprintf(name, sizeof name, "cuda:%d", (int)g);
        must(eider_device_open(ctx, name, &gpus[g]));
        make_counter(&p[g], gpus[g], EIDER_F32);
    }
    for (int i = 0; i < 10; i++)
        for (int32_t g = 0; g < n; g++)
            for (int32_t again = 0; again <= g; again++)
                must(eider_launch(p[g].kernel, NULL, p[g].args, 2));
    for (int32_t g = 0; g < n; g++)
        assert_int_equal(pthread_create(&threads[g], NULL, launch_a_hundred, &p[g]), 0);
    for (int32_t g = 0; g < n; g++) pthread_join(threads[g], NULL);
    assert_int_equal(cu.get_current(&current), 0);
    assert_ptr_equal(current, mine);
    for (int32_t g = 0; g < n; g++) {
        assert_true(counted(&p[g], gpus[g], NULL) == 100 + 10 * (g + 1));
        drop_counter(&p[g], gpus[g]);
        eider_device_release(gpus[g]);
    }
    cu.set_current(NULL);
    assert_int_equal(cu.destroy_context(mine), 0);
}

/* ---- Sizes ---------------------------------------------------------------------------------- */

static void an_extent_of_zero_leaves_no_error_behind(void **state)
{
    (void)state;
    NEED_GPU();
    int64_t empty[] = {0, 7168};
    struct pair p;
    make_counter(&p, gpu, EIDER_F32);
    eider_tensor args[] = {tensor_of(NULL, EIDER_F32, 2, empty),
                           tensor_of(NULL, EIDER_F32, 2, empty)};
    must(eider_launch(p.kernel, stream, args, 2));
    must(eider_launch(p.kernel, stream, p.args, 2));
    assert_true(counted(&p, gpu, stream) == 1);
    drop_counter(&p, gpu);
}

static void offsets_beyond_4_gib_are_reached(void **state)
{
    (void)state;
    NEED_GPU();
    int64_t n = ((int64_t)1 << 30) + 1003;
    size_t bytes = 4 * (size_t)n;
    eider_program *program;
    eider_kernel *kernel;
    eider_kernel_info info;
    void *memory = NULL;
    if (eider_memory_alloc(gpu, bytes, &memory) != EIDER_OK) {
        fprintf(stderr, "SKIPPED (less than 5 GiB free): %s\n", eider_error());
        skip();
    }
    memset(host, 0, 8000);
    char *end = (char *)memory + bytes - 8000;
    must(eider_memory_copy(gpu, stream, memory, host, 8000, EIDER_HOST_TO_DEVICE));
    must(eider_memory_copy(gpu, stream, end, host, 8000, EIDER_HOST_TO_DEVICE));
    eider_tensor args[] = {tensor_of(memory, EIDER_F32, 1, &n),
                           tensor_of(memory, EIDER_F32, 1, &n)};
    must(eider_program_parse(ctx, "out = x + 1", &program));
    eider_request request = {.program = program, .args = args, .n_args = 2};
    must(eider_prepare(gpu, &request, &kernel));
    eider_kernel_describe(kernel, &info);
    assert_int_equal(info.index_bits, 64);
    must(eider_launch(kernel, stream, args, 2));
    const char *const parts[] = {memory, end};
    for (int part = 0; part < 2; part++) {
        must(eider_memory_copy(gpu, stream, host, parts[part], 8000, EIDER_DEVICE_TO_HOST));
        for (size_t i = 0; i < 2000; i++) assert_true(read_value(EIDER_F32, i) == 1);
    }
    eider_kernel_release(kernel);
    n = 1000;
    must(eider_prepare(gpu, &request, &kernel));
    n = ((int64_t)1 << 30) + 1003;
    assert_int_equal(eider_launch(kernel, stream, args, 2), EIDER_NOT_PREPARED);
    eider_kernel_release(kernel);
    eider_program_release(program);
    eider_memory_free(gpu, memory);
}

static void running_out_of_device_memory_is_a_status(void **state)
{
    (void)state;
    NEED_GPU();
    void *memory = NULL;
    struct pair p;
    assert_int_equal(eider_memory_alloc(gpu, (size_t)1 << 50, &memory), EIDER_OOM);
    assert_null(memory);
    make_counter(&p, gpu, EIDER_F32);
    must(eider_launch(p.kernel, stream, p.args, 2));
    assert_true(counted(&p, gpu, stream) == 1);
    drop_counter(&p, gpu);
}

/* ---- Other code ------------------------------------------------------------------ */

static const char add_bias_ptx[] =
    ".version 7.8\n.target sm_80\n.address_size 64\n"
    ".visible .entry k(.param .u64 x, .param .f32 bias, .param .u64 out)\n{\n"
    "  .reg .b32 %r<5>; .reg .f32 %f<4>; .reg .b64 %d<8>;\n"
    "  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;\n"
    "  mad.lo.s32 %r4, %r1, %r2, %r3;\n"
    "  ld.param.u64 %d1, [x]; ld.param.f32 %f1, [bias]; ld.param.u64 %d2, [out];\n"
    "  cvta.to.global.u64 %d3, %d1; cvta.to.global.u64 %d4, %d2;\n"
    "  mul.wide.u32 %d5, %r4, 4; add.s64 %d6, %d3, %d5; add.s64 %d7, %d4, %d5;\n"
    "  ld.global.f32 %f2, [%d6]; add.f32 %f3, %f2, %f1; st.global.f32 [%d7], %f3;\n"
    "  ret;\n}\n";

static void run_source(const eider_source *source, const char *assembler, uint32_t blocks,
                       const double *x, int64_t n)
{
    eider_kernel *kernel;
    float bias = 0.5f;
    const uint32_t grid[] = {blocks, 1, 1};
    void *in = upload(EIDER_F32, x, (size_t)n, 0), *out = upload(EIDER_F32, NULL, (size_t)n, 0);
    eider_tensor args[] = {tensor_of(in, EIDER_F32, 1, &n), tensor_of(&bias, EIDER_F32, 0, NULL),
                           tensor_of(out, EIDER_F32, 1, &n)};
    eider_request request = {.source = source, .assembler = assembler};
    must(eider_prepare(gpu, &request, &kernel));
    must(eider_launch_grid(kernel, stream, grid, args, 3));
    download(out, EIDER_F32, (size_t)n);
    eider_kernel_release(kernel);
    eider_memory_free(gpu, in);
    eider_memory_free(gpu, out);
}

static void foreign_ir_and_ptx_run(void **state)
{
    (void)state;
    NEED_GPU();
    static const eider_operand operands[] = {{"x", EIDER_INPUT, EIDER_F32},
                                             {"bias", EIDER_SCALAR, EIDER_F32},
                                             {"out", EIDER_OUTPUT, EIDER_F32}};
    eider_source source = {.kind = EIDER_SOURCE_LL,
                           .data = sum_of_blocks_ll,
                           .entry = "k",
                           .block = {256, 1, 1},
                           .n_operands = 3,
                           .operands = operands};
    static double count[1024];
    for (int i = 0; i < 1024; i++) count[i] = i;
    run_source(&source, NULL, 4, count, 1024);
    for (size_t b = 0; b < 4; b++)
        assert_true(read_value(EIDER_F32, b) == 65536.0 * (double)b + 255 * 128 + 0.5);
    source.kind = EIDER_SOURCE_PTX;
    source.data = add_bias_ptx;
    static const char *const assemblers[] = {NULL, "driver"};
    for (int a = 0; a < 2; a++) {
        run_source(&source, assemblers[a], 4, count, 1024);
        for (size_t i = 0; i < 1024; i++) assert_true(read_value(EIDER_F32, i) == (double)i + 0.5);
    }
}

static void the_driver_assembles_too_and_time_is_measured(void **state)
{
    (void)state;
    NEED_GPU();
    struct pair p;
    eider_kernel *kernel;
    eider_kernel_info info;
    double ns[10];
    make_counter(&p, gpu, EIDER_F32);
    eider_request request = {
        .program = p.program, .args = p.args, .n_args = 2, .assembler = "driver"};
    must(eider_prepare(gpu, &request, &kernel));
    eider_kernel_describe(kernel, &info);
    assert_non_null(strstr(info.assembler, "driver "));
    assert_true(info.registers > 0);
    must(eider_launch(kernel, stream, p.args, 2));
    must(eider_time(kernel, stream, p.args, 2, 10, 1, ns));
    assert_true(counted(&p, gpu, stream) == 11);
    for (int i = 0; i < 10; i++) assert_true(ns[i] > 100 && ns[i] < 1e7);
    eider_kernel_release(kernel);
    drop_counter(&p, gpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(swiglu_is_right_for_types_tails_and_misalignments),
        cmocka_unit_test(one_kernel_serves_misaligned_pointers),
        cmocka_unit_test(every_activation_is_right_in_every_mode),
        cmocka_unit_test(a_captured_launch_replays),
        cmocka_unit_test(a_captured_launch_of_parts_of_a_row_replays),
        cmocka_unit_test(a_capture_survives_all_that_is_refused_or_loaded_in_it),
        cmocka_unit_test(streams_run_apart),
        cmocka_unit_test(a_thread_without_a_context_may_launch),
        cmocka_unit_test(a_callers_context_is_used_and_kept_current),
        cmocka_unit_test(gpus_run_apart_and_leave_the_current_context),
        cmocka_unit_test(an_extent_of_zero_leaves_no_error_behind),
        cmocka_unit_test(offsets_beyond_4_gib_are_reached),
        cmocka_unit_test(running_out_of_device_memory_is_a_status),
        cmocka_unit_test(foreign_ir_and_ptx_run),
        cmocka_unit_test(the_driver_assembles_too_and_time_is_measured),
    };
    return cmocka_run_group_tests_name("gpu", tests, set_up, tear_down);
}
