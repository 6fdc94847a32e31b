/* cache.c -- what a kernel costs that was compiled before, in a new process and in this one.
 *
 *   gcc -std=gnu17 -O2 -Iinclude bench/cache.c -o build/bench_cache \
 *       -Lbuild/release -leider -Wl,-rpath,$PWD/build/release
 *   build/bench_cache [cuda:0|cpu]
 *
 * On a host with nothing but gcc and a driver, with a bundle unpacked at $B:
 *
 *   gcc -std=gnu17 -O2 -I$B/include bench/cache.c -o bench_cache -L$B/lib -leider -Wl,-rpath,$B/lib
 *   ./bench_cache cuda:0
 *
 * The bundle has an assembler of its own.  Where a library has none and no ptxas is on PATH, the
 * driver assembles at every load, and that is what is measured.
 *
 * Every repeat is a new process that opens the device first, then asks for three kernels
 * that are on disk: the first one also pays for what a process does once.  The clock runs
 * around eider_prepare, from the request to the loaded kernel.  The first process finds
 * nothing: it compiles and writes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "eider/eider.h"

#define REPEATS 40
#define KERNELS 3
#define MEMORY_HITS 20000

struct times {
    double prepare[KERNELS], disk[KERNELS], load[KERNELS], memory_hit;
};

static void require(eider_status status, const char *what)
{
    if (status == EIDER_OK) return;
    fprintf(stderr, "cache: %s: %s\n", what, eider_error());
    exit(1);
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static void warn(void *user, int level, const char *line)
{
    (void)user;
    if (level < 2) fprintf(stderr, "%s\n", line);
}

static void measure(const char *device_name, const char *directory, struct times *out)
{
    static const char *const texts[KERNELS] = {
        "out = silu(gate) * up", "out = gelu_tanh(gate) * up", "out = relu(gate) * up"};
    const int64_t shape[] = {4096, 14336};
    eider_context_options options = {.log = warn, .cache_dir = directory};
    eider_context *ctx;
    eider_device *device;
    eider_program *program;
    eider_kernel *kernel, *again;
    eider_kernel_info info;
    eider_tensor args[3];
    for (int i = 0; i < 3; i++)
        args[i] = (eider_tensor){.type = EIDER_BF16, .rank = 2, .shape = shape};
    require(eider_context_create(&options, &ctx), "context");
    require(eider_device_open(ctx, device_name, &device), device_name);
    for (int k = 0; k < KERNELS; k++) {
        require(eider_program_parse(ctx, texts[k], &program), "program");
        eider_request request = {.program = program, .args = args, .n_args = 3};
        double start = now_us();
        require(eider_prepare(device, &request, &kernel), "prepare");
        out->prepare[k] = now_us() - start;
        eider_kernel_describe(kernel, &info);
        out->disk[k] = 1e-3 * (double)info.disk_ns;
        out->load[k] = 1e-3 * (double)info.load_ns;
        start = now_us();
        for (int i = 0; i < MEMORY_HITS; i++) {
            require(eider_prepare(device, &request, &again), "prepare");
            eider_kernel_release(again);
        }
        out->memory_hit = (now_us() - start) / MEMORY_HITS;
        eider_kernel_release(kernel);
        eider_program_release(program);
    }
    eider_device_release(device);
    eider_context_destroy(ctx);
}

/* In a process of its own, which sends the times back. */
static struct times measure_apart(const char *device, const char *directory)
{
    int ends[2];
    struct times times;
    if (pipe(ends) != 0) exit(1);
    pid_t child = fork();
    if (child == 0) {
        measure(device, directory, &times);
        _exit(write(ends[1], &times, sizeof times) != (ssize_t)sizeof times);
    }
    close(ends[1]);
    ssize_t n = read(ends[0], &times, sizeof times);
    close(ends[0]);
    int status;
    waitpid(child, &status, 0);
    if (n != (ssize_t)sizeof times || status != 0) exit(1);
    return times;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *what, double *values)
{
    qsort(values, REPEATS, sizeof *values, compare);
    printf("| %s | %.1f | %.1f |\n", what, values[REPEATS / 2], values[REPEATS * 9 / 10]);
}

int main(int argc, char **argv)
{
    char directory[] = "/tmp/eider-bench-XXXXXX", command[64];
    static double first[REPEATS], later[REPEATS], disk[REPEATS], load[REPEATS], hit[REPEATS];
    const char *device = argc > 1 ? argv[1] : "cuda:0";
    if (!mkdtemp(directory)) return 1;
    struct times cold = measure_apart(device, directory);
    for (int i = 0; i < REPEATS; i++) {
        struct times t = measure_apart(device, directory);
        first[i] = t.prepare[0];
        later[i] = t.prepare[2];
        disk[i] = t.disk[2];
        load[i] = t.load[2];
        hit[i] = t.memory_hit;
    }
    printf("%s, eider %s; microseconds, %d processes\n| | median | p90 |\n|---|--:|--:|\n", device,
           eider_version(), REPEATS);
    printf("| compiled and written, third kernel | %.0f | |\n", cold.prepare[2]);
    report("from disk, first kernel of a process", first);
    report("from disk, third kernel", later);
    report("of which reading and checking", disk);
    report("of which loading by the backend", load);
    report("from memory", hit);
    snprintf(command, sizeof command, "rm -r %s", directory);
    return system(command) != 0;
}
