/* sweep.c -- generates inputs, evaluates in double precision, compares.
 */
#include "sweep.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "number.h"
#include "say.h"
#include "source.h"

#define SWEEP_N ((size_t)1 << 20)
/* A 16-bit type has all its patterns in the first input this often when there are more. */
#define SWEEP_ROUNDS 4
/* Ordinary sizes of the inputs but the first. */
#define ORDINARY_MIN 0x1p-20
#define ORDINARY_MAX 0x1p20
/* The largest finite one. */
#define LARGEST 1e30

static const double specials[] = {
    0.0,
    -0.0,
    1,
    -1,
    0.5,
    -0.5,
    2,
    -2,
    3,
    -3,
    6,
    -6,
    7,
    -7,
    10,
    -10,
    20,
    -20,
    87.5,
    -87.5,
    88.75,
    -88.75,
    103.5,
    -103.5,
    1e4,
    -1e4,
    1e30,
    -1e30,
    1e-30,
    -1e-30,
    1e-40,
    -1e-40,
    0x1p-126,
    -0x1p-126,
    0x1p-149,
    -0x1p-149,
    0x1.fffffep127,
    -0x1.fffffep127,
    INFINITY,
    -INFINITY,
    NAN,
};

#define N_SPECIALS (sizeof specials / sizeof specials[0])

static void put_bits(struct cli_array *array, size_t i, uint64_t bits)
{
    size_t width = eider_dtype_size(array->type);
    if (array->type == EIDER_BOOL) bits &= 1;
    memcpy((unsigned char *)array->data + i * width, &bits, width); /* little-endian */
}

/* Every pattern in turn, or, for wider types, one of each of n equal ranges of patterns. */
static void fill_swept(struct cli_array *array)
{
    size_t width = eider_dtype_size(array->type);
    for (size_t i = 0; i < array->n; i++) {
        if (width <= 2) {
            put_bits(array, i, i);
            continue;
        }
        int shift = (int)(8 * width) - __builtin_ctzll(array->n); /* n is a power of two */
        put_bits(array, i, (uint64_t)i << shift | cli_source_random(0, i) >> (64 - shift));
    }
    for (size_t i = 0; width > 2 && i < N_SPECIALS; i++) {
        cli_number_put(array->type, array->data, i * (array->n / N_SPECIALS), specials[i]);
    }
}

static double mixed(size_t input, struct cli_array *array, size_t i)
{
    uint64_t r = cli_source_random(input, i);
    switch (r & 7) {
    case 0:
        put_bits(array, i, cli_source_random(input, ~i));
        return cli_number_get(array->type, array->data, i);
    case 1:
        return specials[(r >> 3) % N_SPECIALS];
    case 2:
        return 8 * cli_source_normal(input, i);
    default:
        return cli_source_normal(input, i);
    }
}

static void fill_mixed(size_t input, struct cli_array *array)
{
    for (size_t i = 0; i < array->n; i++) {
        double value = mixed(input, array, i);
        if (fabs(value) > LARGEST && !isinf(value)) value = copysign(LARGEST, value);
        cli_number_put(array->type, array->data, i, value);
    }
}

static void generate(size_t input, struct cli_array *array)
{
    if (input == 0)
        fill_swept(array);
    else
        fill_mixed(input, array);
}

struct evaluating {
    const struct cli_session *s;
    struct cli_sweep *sweep;
    atomic_int failed; /* the first failure is reported, by the thread that saw it */
};

static void evaluate_part(void *arg, size_t begin, size_t end)
{
    struct evaluating *e = arg;
    const struct cli_operands *o = &e->sweep->operands;
    double *in = malloc(o->n * sizeof *in), *out = malloc(o->n * sizeof *out);
    eider_status status = EIDER_OK;
    for (size_t i = begin; in && out && status == EIDER_OK && i < end; i++) {
        size_t n_in = 0;
        for (size_t k = 0; k < o->n; k++) {
            const struct cli_array *host = &o->at[k].host;
            if (o->at[k].info.kind == EIDER_OUTPUT) continue;
            in[n_in++] =
                cli_number_get(host->type, host->data, o->at[k].info.kind == EIDER_INPUT ? i : 0);
        }
        status = eider_program_eval(e->s->program, in, out);
        for (size_t k = 0; k < e->sweep->n_outputs; k++) {
            e->sweep->want[k * e->sweep->n + i] = out[k];
        }
    }
    if ((!in || !out || status != EIDER_OK) && !atomic_exchange(&e->failed, 1)) {
        if (status != EIDER_OK)
            cli_fail_library(status);
        else
            cli_fail_memory(2 * o->n * sizeof *in);
    }
    free(in);
    free(out);
}

static int evaluate(const struct cli_session *s, struct cli_sweep *sweep)
{
    struct evaluating e = {.s = s, .sweep = sweep};
    size_t bytes = sweep->n * sweep->n_outputs * sizeof(double);
    sweep->want = malloc(bytes ? bytes : 1);
    if (!sweep->want) return cli_fail_memory(bytes);
    cli_array_parallel(sweep->n, evaluate_part, &e);
    return atomic_load(&e.failed) ? CLI_LIBRARY : CLI_OK;
}

int cli_sweep_create(const struct cli_session *s, eider_dtype type, struct cli_sweep *out)
{
    size_t n_inputs = 0;
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < eider_program_operands(s->program); i++) {
        eider_operand operand;
        eider_status status = eider_program_operand(s->program, i, &operand);
        if (status != EIDER_OK) return cli_fail_library(status);
        n_inputs += operand.kind == EIDER_INPUT;
        out->n_outputs += operand.kind == EIDER_OUTPUT;
    }
    if (n_inputs == 0) return cli_fail(CLI_USAGE, "the program has no input to vary");
    out->n = SWEEP_N;
    if (eider_dtype_size(type) == 2) out->n = ((size_t)1 << 16) * (n_inputs > 1 ? SWEEP_ROUNDS : 1);
    struct cli_operands_rule rule = {.fill = 1,
                                     .default_rows = (int64_t)out->n / CLI_COLUMNS,
                                     .default_type = type,
                                     .generate = generate};
    int code = cli_operands_bind(s, rule, &out->operands);
    if (!code) code = evaluate(s, out);
    if (!code) code = cli_operands_upload(s, &out->operands);
    return code;
}

void cli_sweep_release(const struct cli_session *s, struct cli_sweep *sweep)
{
    cli_operands_release(s, &sweep->operands);
    free(sweep->want);
    memset(sweep, 0, sizeof *sweep);
}

static void take_worst(struct cli_worst *worst, double error, size_t at, double got, double want)
{
    if (error > worst->error) *worst = (struct cli_worst){error, at, got, want};
}

static void add_mismatch(struct cli_measure *m, size_t at, double got, double want)
{
    if (m->n_mismatches < CLI_MISMATCHES_KEPT) {
        m->mismatch[m->n_mismatches] = (struct cli_worst){INFINITY, at, got, want};
    }
    m->n_mismatches++;
}

/* What the inputs of an element are.  FIRST_INFINITE: the first of several is, the others are
 * ordinary. */
enum kind { ORDINARY, EXTREME, FIRST_INFINITE, INFINITE };

static enum kind kind_of(const struct cli_operands *o, size_t at)
{
    enum kind kind = ORDINARY;
    int first_infinite = 0;
    size_t input = 0;
    for (size_t i = 0; i < o->n; i++) {
        if (o->at[i].info.kind != EIDER_INPUT) continue;
        double size = fabs(cli_number_get(o->at[i].host.type, o->at[i].host.data, at));
        if (input++ == 0) {
            first_infinite = isinf(size);
            continue;
        }
        if (isinf(size)) return INFINITE;
        if (size != 0 && !(size >= ORDINARY_MIN && size <= ORDINARY_MAX)) kind = EXTREME;
    }
    if (!first_infinite || input == 1) return kind;
    return kind == EXTREME ? INFINITE : FIRST_INFINITE;
}

static void compare_finite(struct cli_measure *m, eider_dtype type, size_t at, double got,
                           double want)
{
    double error = fabs(got - want), ulp = error / cli_number_ulp(type, want);
    take_worst(&m->absolute, error, at, got, want);
    if (fabs(want) <= 1) take_worst(&m->small, error, at, got, want);
    if (fabs(want) < cli_number_min_normal(type)) {
        take_worst(&m->tiny, ulp, at, got, want);
    } else {
        take_worst(&m->relative, error / fabs(want), at, got, want);
        take_worst(&m->ulp, ulp, at, got, want);
    }
}

/* Compares one result of a floating type. */
static void compare_float(struct cli_measure *m, eider_dtype type, size_t at, enum kind kind,
                          double got, double want)
{
    double max = cli_number_max(type);
    int want_inf = fabs(want) >= max + cli_number_ulp(type, max) / 2; /* rounds to infinity */
    if (kind >= FIRST_INFINITE && (isnan(want) || want_inf)) return;
    if (isnan(want) != isnan(got)) {
        add_mismatch(m, at, got, want);
    } else if (isnan(want) || kind == EXTREME) {
        return;
    } else if (want_inf && isinf(got) && signbit(got) == signbit(want)) {
        return;
    } else if (isinf(want) || isinf(got)) {
        add_mismatch(m, at, got, want);
    } else if (want_inf) {
        take_worst(&m->ulp, fabs(got - want) / cli_number_ulp(type, max), at, got, want);
    } else if (kind == ORDINARY || kind == FIRST_INFINITE) {
        compare_finite(m, type, at, got, want);
    }
}

static void compare(const struct cli_sweep *sweep, const double *want,
                    const struct cli_array *array, struct cli_measure *m)
{
    memset(m, 0, sizeof *m);
    double max = array->type == EIDER_E4M3 || array->type == EIDER_E5M2
                     ? cli_number_max(array->type)
                     : INFINITY; /* these saturate */
    for (size_t i = 0; i < sweep->n; i++) {
        double got = cli_number_get(array->type, array->data, i), wanted = want[i];
        if (fabs(wanted) > max) wanted = copysign(max, wanted);
        if (!cli_number_is_float(array->type)) {
            take_worst(&m->absolute, fabs(got - wanted), i, got, wanted);
        } else {
            enum kind kind = kind_of(&sweep->operands, i);
            compare_float(m, array->type, i, kind, got, wanted);
        }
    }
}

int cli_sweep_measure(const struct cli_session *s, struct cli_sweep *sweep, struct cli_measure *out)
{
    struct cli_operands *o = &sweep->operands;
    eider_kernel *kernel = NULL;
    eider_request request = cli_session_request(s, o->tensors, o->n);
    eider_status status = eider_prepare(s->device, &request, &kernel);
    if (status == EIDER_OK) status = eider_launch(kernel, NULL, o->tensors, o->n);
    if (status == EIDER_OK) status = eider_stream_wait(s->device, NULL);
    if (status == EIDER_OK) status = eider_kernel_check(kernel, NULL);
    eider_kernel_release(kernel);
    if (status != EIDER_OK) return cli_fail_library(status);
    int code = cli_operands_download(s, o);
    for (size_t i = 0, k = 0; !code && i < o->n; i++) {
        if (o->at[i].info.kind != EIDER_OUTPUT) continue;
        compare(sweep, sweep->want + k * sweep->n, &o->at[i].host, &out[k]);
        k++;
        cli_array_release(&o->at[i].host);
    }
    return code;
}
