/* cpu.c -- the CPU backend's swiglu in f32 beside gcc's loop and beside memcpy.
 *
 *   gcc -std=gnu17 -O3 -march=native -fno-math-errno -fopenmp -Iinclude bench/cpu.c \
 *       -o build/bench_cpu -Lbuild/release -leider -lsleefgnuabi -lm -Wl,-rpath,$PWD/build/release
 *   build/bench_cpu [LOG2_N]
 *
 * gcc vectorises the loop with the same vector math: libsleefgnuabi has SLEEF's expf under
 * the names that gcc's vector ABI calls.  All three run on all cores and on one, take
 * turns, and are timed by the clock; the median counts.
 * Not a test: nothing here decides whether a build is good.
 */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "eider/eider.h"

#define ROUNDS 15
#define LOG2_N 26

/* The vector variants that libsleefgnuabi defines. */
__attribute__((simd("notinbranch"), const)) float expf(float);

struct work {
    float *gate, *up, *out;
    size_t n;
    int threads;
    eider_kernel *kernel;
    const eider_tensor *args;
};

static void run_loop(const struct work *w)
{
    const float *restrict gate = w->gate, *restrict up = w->up;
    float *restrict out = w->out;
#pragma omp parallel for simd schedule(static) num_threads(w->threads)
    for (size_t i = 0; i < w->n; i++) out[i] = gate[i] / (1 + expf(-gate[i])) * up[i];
}

/* As many bytes as swiglu moves: half of them read, half of them written. */
static void run_copy(const struct work *w)
{
    size_t bytes = w->n * sizeof(float) * 3 / 2, part = bytes / (size_t)w->threads;
#pragma omp parallel for schedule(static) num_threads(w->threads)
    for (int t = 0; t < w->threads; t++) {
        memcpy((char *)w->out + (size_t)t * part, (char *)w->gate + (size_t)t * part, part);
    }
}

static void run_eider(const struct work *w)
{
    if (eider_launch(w->kernel, NULL, w->args, 3) != EIDER_OK) {
        fprintf(stderr, "eider_launch: %s\n", eider_error());
        exit(3);
    }
}

static const struct contender {
    const char *name;
    void (*run)(const struct work *w);
} contenders[] = {{"eider", run_eider}, {"gcc loop", run_loop}, {"memcpy", run_copy}};

#define N_CONTENDERS (sizeof contenders / sizeof contenders[0])

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

static void measure(const struct work *w)
{
    double ns[N_CONTENDERS][ROUNDS];
    for (int round = -1; round < ROUNDS; round++) {
        for (size_t c = 0; c < N_CONTENDERS; c++) {
            double start = now_ns();
            contenders[c].run(w);
            if (round >= 0) ns[c][round] = now_ns() - start;
        }
    }
    double bytes = (double)w->n * sizeof(float) * 3;
    for (size_t c = 0; c < N_CONTENDERS; c++) {
        qsort(ns[c], ROUNDS, sizeof ns[c][0], by_value);
        printf("| %d | %s | %.2f | %.1f |\n", w->threads, contenders[c].name,
               ns[c][ROUNDS / 2] / 1e6, bytes / ns[c][ROUNDS / 2]);
    }
}

/* Largest difference between the two results, relative to 1 + |result|. */
static double difference(const struct work *w)
{
    double worst = 0;
    float *kept = malloc(w->n * sizeof *kept);
    if (!kept) return NAN;
    run_eider(w);
    memcpy(kept, w->out, w->n * sizeof *kept);
    run_loop(w);
    for (size_t i = 0; i < w->n; i++) {
        double d = fabs((double)kept[i] - (double)w->out[i]) / (1 + fabs((double)w->out[i]));
        if (!(d <= worst)) worst = d;
    }
    free(kept);
    return worst;
}

static eider_status compare(struct work *w, eider_context *ctx, const eider_program *program)
{
    int64_t extent = (int64_t)w->n;
    eider_tensor args[] = {{w->gate, EIDER_F32, 1, &extent, NULL},
                           {w->up, EIDER_F32, 1, &extent, NULL},
                           {w->out, EIDER_F32, 1, &extent, NULL}};
    eider_request request = {.program = program, .args = args, .n_args = 3};
    eider_device *device = NULL;
    eider_status status = eider_device_open(ctx, "cpu", &device);
    if (status == EIDER_OK) status = eider_prepare(device, &request, &w->kernel);
    if (status == EIDER_OK) {
        eider_kernel_info info;
        w->args = args;
        eider_kernel_describe(w->kernel, &info);
        printf("\n%s, %d threads, difference %.1e\n\n", info.config, w->threads, difference(w));
        printf("| threads | | ms | GB/s |\n|--:|---|--:|--:|\n");
        measure(w);
    }
    eider_kernel_release(w->kernel);
    eider_device_release(device);
    return status;
}

static eider_status with_threads(struct work *w, int threads)
{
    eider_context_options options = {.cpu_threads = threads};
    eider_context *ctx = NULL;
    eider_program *program = NULL;
    eider_status status = eider_context_create(&options, &ctx);
    if (status != EIDER_OK) return status;
    w->threads = threads;
    status = eider_program_parse(ctx, "out = silu(gate) * up", &program);
    if (status == EIDER_OK) status = compare(w, ctx, program);
    eider_program_release(program);
    eider_context_destroy(ctx);
    return status;
}

int main(int argc, char **argv)
{
    struct work w = {.n = (size_t)1 << (argc > 1 ? atoi(argv[1]) : LOG2_N)};
    size_t bytes = w.n * sizeof(float);
    /* memcpy reads gate and the first half of up, and writes out and half as much again. */
    w.gate = aligned_alloc(64, bytes * 2);
    w.out = aligned_alloc(64, bytes * 2);
    if (!w.gate || !w.out) return 3;
    w.up = w.gate + w.n;
    for (size_t i = 0; i < w.n; i++) {
        w.gate[i] = (float)((double)(i * 2654435761u % 1000003u) / 100000 - 5);
        w.up[i] = (float)((double)(i * 40503u % 1000003u) / 500000 - 1);
        w.out[i] = w.out[i + w.n] = 0;
    }
    eider_status status = with_threads(&w, omp_get_max_threads());
    if (status == EIDER_OK && omp_get_max_threads() > 1) status = with_threads(&w, 1);
    if (status != EIDER_OK) fprintf(stderr, "%s\n", eider_error());
    free(w.gate);
    free(w.out);
    return status == EIDER_OK ? 0 : 3;
}
