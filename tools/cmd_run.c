/* cmd_run.c -- `eider run`: a program on tensors from files or generators.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "number.h"
#include "operands.h"
#include "say.h"

#define FIRST_ELEMENTS 6

/* What a part of a result holds; parts are added in order, so that the mean does not
 * depend on the number of threads. */
struct summary {
    double min, max, sum, mean;
    size_t n_nan, n_inf, n_finite;
};

struct summing {
    const struct cli_array *array;
    struct summary *parts;
};

static void sum_part(void *arg, size_t begin, size_t end)
{
    const struct summing *summing = arg;
    struct summary s = {.min = INFINITY, .max = -INFINITY};
    for (size_t i = begin; i < end; i++) {
        double value = cli_number_get(summing->array->type, summing->array->data, i);
        if (isnan(value)) {
            s.n_nan++;
            continue;
        }
        if (value < s.min) s.min = value;
        if (value > s.max) s.max = value;
        if (isinf(value)) {
            s.n_inf++;
        } else {
            s.n_finite++;
            s.sum += value;
        }
    }
    summing->parts[begin / CLI_PART] = s;
}

static int summarize(const struct cli_array *array, struct summary *out)
{
    size_t n_parts = (array->n + CLI_PART - 1) / CLI_PART;
    struct summing summing = {array, calloc(n_parts ? n_parts : 1, sizeof(struct summary))};
    if (!summing.parts) return cli_fail_memory(n_parts * sizeof(struct summary));
    cli_array_parallel(array->n, sum_part, &summing);
    struct summary all = {.min = INFINITY, .max = -INFINITY};
    for (size_t i = 0; i < n_parts; i++) {
        const struct summary *part = &summing.parts[i];
        if (part->min < all.min) all.min = part->min;
        if (part->max > all.max) all.max = part->max;
        all.sum += part->sum;
        all.n_nan += part->n_nan;
        all.n_inf += part->n_inf;
        all.n_finite += part->n_finite;
    }
    if (all.n_nan == array->n) all.min = all.max = NAN;
    all.mean = all.n_finite ? all.sum / (double)all.n_finite : NAN;
    free(summing.parts);
    *out = all;
    return CLI_OK;
}

static void print_summary(const char *name, const struct cli_array *array, const struct summary *s)
{
    char shape[CLI_SHAPE_BYTES];
    printf("%s  %s  min %.6g  max %.6g  mean %.6g  nan %zu  inf %zu\n", name,
           cli_array_shape(array, shape), s->min, s->max, s->mean, s->n_nan, s->n_inf);
    printf("  first");
    for (size_t i = 0; i < array->n && i < FIRST_ELEMENTS; i++) {
        printf(" %.6g", cli_number_plain(cli_number_get(array->type, array->data, i)));
    }
    printf(array->n > FIRST_ELEMENTS ? " ...\n" : "\n");
}

static json_t *summary_json(const struct cli_operand *operand, const struct summary *s)
{
    const struct cli_array *array = &operand->host;
    json_t *shape = json_array(), *first = json_array();
    for (int32_t d = 0; d < array->rank; d++) {
        json_array_append_new(shape, json_integer(array->shape[d]));
    }
    for (size_t i = 0; i < array->n && i < FIRST_ELEMENTS; i++) {
        json_array_append_new(first, cli_json_number(cli_number_get(array->type, array->data, i)));
    }
    return json_pack("{s:s, s:s, s:o, s:s?, s:o, s:o, s:o, s:I, s:I, s:o}", "name",
                     operand->info.name, "type", eider_dtype_name(array->type), "shape", shape,
                     "file", operand->file, "min", cli_json_number(s->min), "max",
                     cli_json_number(s->max), "mean", cli_json_number(s->mean), "nan",
                     (json_int_t)s->n_nan, "inf", (json_int_t)s->n_inf, "first", first);
}

/* Prints the results without a file, or all of them as JSON. */
static int report(const struct cli_session *s, const struct cli_operands *operands,
                  const eider_kernel *kernel)
{
    json_t *results = cli_options_has(s->options, CLI_JSON) ? json_array() : NULL;
    int code = CLI_OK;
    for (size_t i = 0; i < operands->n; i++) {
        const struct cli_operand *operand = &operands->at[i];
        if (operand->info.kind != EIDER_OUTPUT || (operand->file && !results)) continue;
        struct summary summary = {0};
        code = summarize(&operand->host, &summary);
        if (code) break;
        if (results)
            json_array_append_new(results, summary_json(operand, &summary));
        else
            print_summary(operand->info.name, &operand->host, &summary);
    }
    if (!results || code) {
        json_decref(results);
        return code;
    }
    eider_kernel_info info;
    eider_kernel_describe(kernel, &info);
    return cli_print_json(json_pack("{s:s, s:s, s:s, s:s, s:o}", "device", s->device_info.name,
                                    "target", info.target, "config", info.config, "numerics",
                                    info.numerics, "results", results));
}

static int launch(struct cli_session *s, struct cli_operands *operands)
{
    cli_progress("running on %s", s->device_info.name);
    int code = cli_operands_upload(s, operands);
    if (code) return code;
    eider_kernel *kernel = NULL;
    eider_request request = cli_session_request(s, operands->tensors, operands->n);
    eider_status status = eider_prepare(s->device, &request, &kernel);
    if (status == EIDER_OK) status = eider_launch(kernel, NULL, operands->tensors, operands->n);
    if (status == EIDER_OK) status = eider_stream_wait(s->device, NULL);
    if (status == EIDER_OK) status = eider_kernel_check(kernel, NULL);
    if (status != EIDER_OK) code = cli_fail_library(status);
    if (!code) code = cli_operands_download(s, operands);
    if (!code) code = cli_operands_write(operands);
    cli_progress_end();
    if (!code) code = report(s, operands, kernel);
    eider_kernel_release(kernel);
    return code;
}

static int run(const struct cli_options *options)
{
    struct cli_session session;
    struct cli_operands operands = {0};
    int code = cli_session_open(options, &session);
    if (!code) code = cli_session_program(&session, options->words.at[0]);
    if (!code) {
        code = cli_operands_bind(&session, (struct cli_operands_rule){.fill = 1}, &operands);
    }
    if (!code) code = cli_session_device(&session);
    if (!code) code = launch(&session, &operands);
    cli_operands_release(&session, &operands);
    cli_session_close(&session);
    return code;
}

const struct cli_command cli_cmd_run = {
    .name = "run",
    .summary = "Runs a program on tensors and writes or summarises the results",
    .usage = "PROGRAM --in NAME[:TYPE]=SOURCE ... [--out NAME[:TYPE]=FILE ...]",
    .about =
        "SOURCE is FILE.npy, FILE.safetensors:NAME, or TYPE[EXTENT,...] with a generator:\n"
        "  bf16[4096,14336]:randn     standard normal (the default)\n"
        "  bf16[4096,14336]:uniform   between -1 and 1\n"
        "  i32[100]:arange            0, 1, 2, ...\n"
        "  f32[8,8]:zeros\n"
        "randn@7 sets the seed; without one it follows from the operand's name. For integers\n"
        "random numbers are scaled by 100 and rounded.\n\n"
        "The results have the shape into which the inputs broadcast and, unless the program or\n"
        "--out names a type, the promoted type of the inputs. FILE is .npy or\n"
        ".safetensors[:NAME]; several results may go to one .safetensors file. A result without\n"
        "a file is summarised.\n\n"
        ".npy has no name for bf16 and fp8: bf16 is stored as '<V2', as ml_dtypes does, e4m3 and\n"
        "e5m2 as '|V1' (in NumPy: array.view(ml_dtypes.bfloat16)). '<V2' is read as bf16, 'V1'\n"
        "as e4m3; --in x:e5m2=x.npy says otherwise, also for u2 and u1.\n",
    .examples = "  eider run 'out = silu(gate) * up' --in gate=bf16[4096,14336]:randn "
                "--in up=bf16[4096,14336]:randn\n"
                "  eider run 'out = silu(gate) * up' --in gate=a.npy --in up=w.safetensors:up "
                "--out out:bf16=out.npy\n"
                "  eider run 'out = swiglu(x, y)' --grad all --in x=f32[64] --in y=f32[64] "
                "--in dout=f32[64] --device cpu\n"
                "  eider run rmsnorm --in x=f32[64,1000] --in weight=f32[1000] --scalar eps=1e-6\n"
                "  eider run 'scalar a; out = a * x' --scalar a=1.5 --in x=f32[10]:arange --json\n",
    .options = CLI_USES_COMMON | CLI_USES_KERNEL | CLI_USES_OPERANDS,
    .min_words = 1,
    .max_words = 1,
    .run = run,
};
