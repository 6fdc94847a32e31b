/* cmd_bench.c -- `eider bench`: the time of a kernel, beside that of copying as many bytes.
 *
 * The copy rate is measured in two ways, the kernel `out = x` timed like the program, and
 * the driver's device-to-device copy; the better one counts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "operands.h"
#include "say.h"

#define DEFAULT_ROWS 16384
#define REPEAT_MAX 1000000
#define WARM_UP 5
/* Without --repeat: as often as fits in this time, within these bounds. */
#define BUDGET_NS 3e9
#define AUTO_REPEAT_MIN 10
#define AUTO_REPEAT_MAX 100
#define COPIES_PER_BATCH 10
#define COPY_BATCHES 5

struct times {
    double median_ns, p10_ns, p90_ns;
    int32_t runs;
};

struct bench {
    struct cli_session *s;
    int32_t repeat; /* 0: as often as BUDGET_NS allows */
    int32_t flush;
    uint64_t bytes;
    struct times kernel, copy_kernel;
    double copy_ns; /* the driver's copy of the same bytes */
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* How often to time what took `warm_up_ns` for the warm-up. */
static int32_t count_runs(const struct bench *b, double warm_up_ns)
{
    if (b->repeat) return b->repeat;
    double fit = BUDGET_NS * WARM_UP / warm_up_ns;
    if (fit < AUTO_REPEAT_MIN) return AUTO_REPEAT_MIN;
    return fit < AUTO_REPEAT_MAX ? (int32_t)fit : AUTO_REPEAT_MAX;
}

static int time_kernel(const struct bench *b, const eider_kernel *kernel, const eider_tensor *args,
                       size_t n_args, struct times *out)
{
    double warm_up[WARM_UP], start = now_ns();
    eider_status status = eider_time(kernel, NULL, args, n_args, WARM_UP, b->flush, warm_up);
    if (status != EIDER_OK) return cli_fail_library(status);
    int32_t runs = count_runs(b, now_ns() - start);
    size_t n = (size_t)runs;
    double *ns = malloc(n * sizeof *ns);
    if (!ns) return cli_fail_memory(n * sizeof *ns);
    status = eider_time(kernel, NULL, args, n_args, runs, b->flush, ns);
    if (status == EIDER_OK) status = eider_kernel_check(kernel, NULL);
    if (status == EIDER_OK) {
        qsort(ns, n, sizeof *ns, by_value);
        *out = (struct times){ns[n / 2], ns[n / 10], ns[n - 1 - n / 10], runs};
    }
    free(ns);
    return status == EIDER_OK ? CLI_OK : cli_fail_library(status);
}

/* The driver's copy of half the bytes: it reads and writes them. */
static eider_status time_copy(struct bench *b, void *to, const void *from, size_t bytes)
{
    eider_device *device = b->s->device;
    eider_status status = EIDER_OK;
    for (int batch = 0; batch <= COPY_BATCHES && status == EIDER_OK; batch++) {
        status = eider_stream_wait(device, NULL);
        double start = now_ns();
        for (int i = 0; i < COPIES_PER_BATCH && status == EIDER_OK; i++) {
            status = eider_memory_copy(device, NULL, to, from, bytes, EIDER_DEVICE_TO_DEVICE);
        }
        if (status == EIDER_OK) status = eider_stream_wait(device, NULL);
        double ns = (now_ns() - start) / COPIES_PER_BATCH;
        if (batch && (b->copy_ns == 0 || ns < b->copy_ns)) b->copy_ns = ns;
    }
    return status;
}

static int time_copy_kernel(struct bench *b, void *to, void *from, int64_t extent)
{
    eider_program *program = NULL;
    eider_kernel *kernel = NULL;
    eider_tensor args[] = {{from, EIDER_F32, 1, &extent, NULL}, {to, EIDER_F32, 1, &extent, NULL}};
    eider_status status = eider_program_parse(b->s->ctx, "out = x", &program);
    eider_request request = {.program = program, .args = args, .n_args = 2};
    if (status == EIDER_OK) status = eider_prepare(b->s->device, &request, &kernel);
    int code = status == EIDER_OK ? time_kernel(b, kernel, args, 2, &b->copy_kernel)
                                  : cli_fail_library(status);
    eider_kernel_release(kernel);
    eider_program_release(program);
    return code;
}

static int measure_copies(struct bench *b)
{
    eider_device *device = b->s->device;
    int64_t extent = (int64_t)(b->bytes / 2 / sizeof(float));
    if (extent == 0) return CLI_OK;
    size_t bytes = (size_t)extent * sizeof(float);
    void *from = NULL, *to = NULL;
    eider_status status = eider_memory_alloc(device, bytes, &from);
    if (status == EIDER_OK) status = eider_memory_alloc(device, bytes, &to);
    if (status == EIDER_OK && strcmp(b->s->device_info.backend, "cpu") == 0) {
        memset(from, 0, bytes); /* pages that were never written are not memory yet */
        memset(to, 0, bytes);
    }
    if (status == EIDER_OK) status = time_copy(b, to, from, bytes);
    int code =
        status == EIDER_OK ? time_copy_kernel(b, to, from, extent) : cli_fail_library(status);
    if (from) eider_memory_free(device, from);
    if (to) eider_memory_free(device, to);
    return code;
}

/* Bytes per nanosecond are GB/s. */
static double rate(const struct bench *b, double ns)
{
    return ns > 0 ? (double)b->bytes / ns : 0;
}

static double best_copy_rate(const struct bench *b)
{
    double kernel = rate(b, b->copy_kernel.median_ns), copy = rate(b, b->copy_ns);
    return kernel > copy ? kernel : copy;
}

static int report_json(const struct bench *b, const eider_kernel_info *info)
{
    double copy = best_copy_rate(b), gbs = rate(b, b->kernel.median_ns);
    return cli_print_json(json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:I, s:b, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f}",
        "device", b->s->device_info.name, "target", info->target, "config", info->config,
        "numerics", info->numerics, "assembler", info->assembler, "registers", info->registers,
        "spill_bytes", info->spill_bytes, "bytes", (json_int_t)b->bytes, "cold_l2", b->flush,
        "repeat", b->kernel.runs, "median_ns", b->kernel.median_ns, "p10_ns", b->kernel.p10_ns,
        "p90_ns", b->kernel.p90_ns, "gb_per_s", gbs, "copy_kernel_gb_per_s",
        rate(b, b->copy_kernel.median_ns), "copy_gb_per_s", rate(b, b->copy_ns), "fraction_of_copy",
        copy > 0 ? gbs / copy : 0.0));
}

static int report_text(const struct bench *b, const eider_kernel_info *info)
{
    double copy = best_copy_rate(b), gbs = rate(b, b->kernel.median_ns);
    printf("device     %s, %s, L2 %s\n", b->s->device_info.name, info->target,
           b->flush ? "cold" : "hot");
    printf("kernel     %s; %s\n", info->config, info->numerics);
    if (info->registers >= 0) {
        printf("           %d registers, %d bytes spilled, %s\n", info->registers,
               info->spill_bytes, info->assembler);
    }
    printf("time       median %.2f us, p10 %.2f, p90 %.2f (%d runs)\n", b->kernel.median_ns / 1e3,
           b->kernel.p10_ns / 1e3, b->kernel.p90_ns / 1e3, b->kernel.runs);
    printf("rate       %.1f GB/s of %.1f MB\n", gbs, (double)b->bytes / 1e6);
    printf("copy       %.1f GB/s by the kernel 'out = x', %.1f GB/s by a device-to-device copy\n",
           rate(b, b->copy_kernel.median_ns), rate(b, b->copy_ns));
    if (copy > 0) printf("fraction   %.3f of the copy rate\n", gbs / copy);
    return CLI_OK;
}

static int measure(struct bench *b, struct cli_operands *operands)
{
    int code = cli_operands_upload(b->s, operands);
    if (code) return code;
    eider_kernel *kernel = NULL;
    eider_request request = cli_session_request(b->s, operands->tensors, operands->n);
    eider_status status = eider_prepare(b->s->device, &request, &kernel);
    if (status == EIDER_OK) {
        status = eider_kernel_bytes(kernel, operands->tensors, operands->n, &b->bytes);
    }
    if (status != EIDER_OK) code = cli_fail_library(status);
    cli_progress("timing %d runs on %s", b->repeat, b->s->device_info.name);
    if (!code) code = time_kernel(b, kernel, operands->tensors, operands->n, &b->kernel);
    cli_progress("timing %d copies", b->repeat);
    if (!code) code = measure_copies(b);
    cli_progress_end();
    if (!code) {
        eider_kernel_info info;
        eider_kernel_describe(kernel, &info);
        code = cli_options_has(b->s->options, CLI_JSON) ? report_json(b, &info)
                                                        : report_text(b, &info);
    }
    eider_kernel_release(kernel);
    return code;
}

static int run(const struct cli_options *options)
{
    struct cli_session session = {0};
    struct cli_operands operands = {0};
    struct cli_operands_rule rule = {
        .fill = 1, .default_rows = DEFAULT_ROWS, .default_type = EIDER_BF16};
    double repeat;
    int code = cli_options_number(options, CLI_REPEAT, 1, 0, &repeat);
    if (code) return code;
    if (repeat > REPEAT_MAX) return cli_fail(CLI_USAGE, "--repeat: more than %d", REPEAT_MAX);
    code = cli_session_open(options, &session);
    if (!code) code = cli_session_program(&session, options->words.at[0]);
    if (!code) code = cli_operands_bind(&session, rule, &operands);
    if (!code) code = cli_session_device(&session);
    if (!code) {
        struct bench bench = {
            .s = &session, .repeat = (int32_t)repeat, .flush = !cli_options_has(options, CLI_HOT)};
        code = measure(&bench, &operands);
    }
    cli_operands_release(&session, &operands);
    cli_session_close(&session);
    return code;
}

const struct cli_command cli_cmd_bench = {
    .name = "bench",
    .summary = "Times a program and compares it with the device's copy rate",
    .usage = "PROGRAM [--in NAME=SOURCE ...]",
    .about =
        "An input that no --in describes is like the largest that one does, else a\n"
        "bf16[16384,4096], and normally distributed. Times are taken by events on a GPU and by\n"
        "the clock on the CPU, with the L2 cache overwritten before each run unless --hot is\n"
        "given.\n",
    .examples = "  eider bench 'out = silu(gate) * up'\n"
                "  eider bench 'out = gelu_tanh(x)' --in x=f32[4096,4096] --set vec=4,unroll=2\n"
                "  eider bench 'out = swiglu(x, y)' --grad all --hot --json\n",
    .options =
        CLI_USES_COMMON | CLI_USES_KERNEL | CLI_USES_OPERANDS | CLI_USES(REPEAT) | CLI_USES(HOT),
    .min_words = 1,
    .max_words = 1,
    .run = run,
};
