/* test_row_errors.c -- how far the programs over rows that have names are from double precision, on
 * the CPU: every result of every program is as near as docs/NUMERICS.md says, and no much nearer.
 *
 * The error of an element is |got - want| divided by |want| or by the mean of |want|, whichever is
 * larger: over its row, or over all of a result that has one value per row or column.  A result of
 * nothing but 0 has an error of 1 at least.  The reference is the interpreter's, in double, of the
 * inputs as they are stored; statistics that a program is given are those of its other inputs.
 *
 * EIDER_ROW_ERRORS=table, in the environment, prints the table instead.
 *
 * labels: sweep
 * timeout: 3600
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs.h"
#include "support_row.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define ROWS 4    /* of a program over rows */
#define COLUMNS 8 /* of sums down the rows, of which there are as many as rows are long */
/* What another CPU may change: how it multiplies and adds, and what is rounded the other way. */
#define HIGHER 1.5 /* than published */
#define LOWER 0.5
#define ROUNDING 0x1p-23
#define ROUNDING_OF_E4M3 0x1p-3

static const int64_t lengths[] = {1024, 4096, 131072};
static const eider_dtype types[] = {EIDER_F32, EIDER_BF16, EIDER_F16};

#define N_CELLS (COUNT(lengths) * COUNT(types))

/* ---- Inputs ------------------------------------------------------------------------- */

struct call {
    const char *name;
    eider_program *program;
    int64_t rows, cols;
    size_t n;
    eider_operand info[ROW_OPERANDS_MAX];
    eider_extent extent[ROW_OPERANDS_MAX];
    int64_t shape[ROW_OPERANDS_MAX][2];
    eider_tensor args[ROW_OPERANDS_MAX];
    eider_doubles want[ROW_OPERANDS_MAX];
};

static int is_called(const struct call *c, size_t i, const char *name)
{
    return strcmp(c->info[i].name, name) == 0;
}

static int has(const struct call *c, const char *name)
{
    for (size_t i = 0; i < c->n; i++)
        if (is_called(c, i, name)) return 1;
    return 0;
}

/* Nearly normal, of deviation 1. */
static double sample(size_t i, int64_t row, int64_t col)
{
    return (row_wave(i, row, col) + row_wave(i + 100, row, col) + row_wave(i + 200, row, col)) / 2;
}

static double scalar_of(const struct call *c, size_t i)
{
    static const struct {
        const char *name;
        double value;
    } scalars[] = {
        {"eps", 1e-5},    {"offset", 1}, {"ignore_index", -100}, {"label_smoothing", 0.1},
        {"z_loss", 1e-4}, {"cap", 30},   {"scale", 0.5}};
    for (size_t k = 0; k < COUNT(scalars); k++)
        if (is_called(c, i, scalars[k].name)) return scalars[k].value;
    fail_msg("%s: no value for %s", c->name, c->info[i].name);
    return 0;
}

/* What has no other value to follow from. */
static double free_value(const struct call *c, size_t i, int64_t row, int64_t col)
{
    double v = sample(i, row, col);
    uint64_t any = (uint64_t)((row_wave(i + 300, row, col) + 2) * (1 << 20));
    if (is_called(c, i, "target")) return any % 8 ? (double)(any % (uint64_t)c->cols) : -100;
    if (is_called(c, i, "mask")) return any % 8 != 0;
    if (is_called(c, i, "logits")) return 4 * v;
    if (is_called(c, i, "loss")) return fabs(4 * v);
    if (is_called(c, i, "weight") || is_called(c, i, "class_weight") || is_called(c, i, "dloss"))
        return 1 + v / 4;
    return is_called(c, i, "x") || is_called(c, i, "total") ? v + 0.5 : v;
}

static double stored(const struct call *c, size_t i, int64_t row, int64_t col)
{
    return c->want[i].data[row * c->want[i].row_stride + col * c->want[i].col_stride];
}

/* Of the first operand: the mean, the reciprocal of the deviation, or log(sum(exp)). */
static double statistic(const struct call *c, const char *name, int64_t row)
{
    double mean = 0, squares = 0, most = -INFINITY, sum = 0, n = (double)c->cols;
    for (int64_t k = 0; k < c->cols; k++) mean += stored(c, 0, row, k) / n;
    if (strcmp(name, "mean") == 0) return mean;
    if (!has(c, "mean")) mean = 0; /* rmsnorm */
    for (int64_t k = 0; k < c->cols; k++) {
        double x = stored(c, 0, row, k);
        squares += (x - mean) * (x - mean) / n;
        most = fmax(most, x);
    }
    if (strcmp(name, "rstd") == 0) return 1 / sqrt(squares + 1e-5);
    double cap = has(c, "cap") ? 30 : 0;
    for (int64_t k = 0; k < c->cols; k++) {
        double x = stored(c, 0, row, k);
        sum += exp((cap > 0 ? cap * tanh(x / cap) : x) - most);
    }
    return most + log(sum);
}

/* A row of softmax, or of its logarithm, which is an input of its gradient. */
static void fill_softmax(const struct call *c, size_t i, int64_t row, double *out)
{
    double sum = 0, scale = has(c, "scale") ? 0.5 : 1;
    size_t mask = 0;
    for (size_t k = 0; k < c->n; k++)
        if (is_called(c, k, "mask")) mask = k;
    for (int64_t k = 0; k < c->cols; k++) {
        out[k] = mask && free_value(c, mask, row, k) == 0 ? -INFINITY : scale * sample(i, row, k);
        sum += exp(out[k]);
    }
    for (int64_t k = 0; k < c->cols; k++)
        out[k] = strstr(c->name, "log") ? out[k] - log(sum) : exp(out[k]) / sum;
}

static void fill_row(const struct call *c, size_t i, int64_t row, double *out)
{
    static const char *const statistics[] = {"mean", "rstd", "lse"};
    if (c->info[i].kind == EIDER_SCALAR) {
        out[0] = scalar_of(c, i);
        return;
    }
    if (is_called(c, i, "y")) {
        fill_softmax(c, i, row, out);
        return;
    }
    for (size_t k = 0; k < COUNT(statistics); k++)
        if (is_called(c, i, statistics[k])) {
            out[0] = statistic(c, statistics[k], row);
            return;
        }
    for (int64_t k = 0; k < c->shape[i][1]; k++) out[k] = free_value(c, i, row, k);
}

/* ---- A call --------------------------------------------------------------------------- */

/* Values of a row are in f32, as whoever saves them has them. */
static eider_dtype type_of(const struct call *c, size_t i, eider_dtype type)
{
    if (c->info[i].type >= 0) return (eider_dtype)c->info[i].type;
    if (is_called(c, i, "target")) return EIDER_I64;
    return c->info[i].kind == EIDER_SCALAR || c->extent[i] == EIDER_PER_ROW ? EIDER_F32 : type;
}

static void make_operand(struct call *c, size_t i, eider_dtype type)
{
    int64_t *shape = c->shape[i];
    int is_scalar = c->info[i].kind == EIDER_SCALAR;
    type = type_of(c, i, type);
    shape[0] = is_scalar || c->extent[i] == EIDER_PER_COLUMN ? 1 : c->rows;
    shape[1] = is_scalar || c->extent[i] == EIDER_PER_ROW ? 1 : c->cols;
    size_t n = (size_t)(shape[0] * shape[1]);
    double *values = calloc(n, sizeof *values);
    void *data = map_alloc(n * eider_dtype_size(type), 0);
    assert_non_null(values);
    c->args[i] = tensor_of(data, type, is_scalar ? 0 : 2, shape);
    c->want[i] = (eider_doubles){values, shape[0] > 1 ? shape[1] : 0, shape[1] > 1};
    for (int64_t r = 0; r < shape[0] && c->info[i].kind != EIDER_OUTPUT; r++) {
        fill_row(c, i, r, values + r * shape[1]);
        for (int64_t k = r * shape[1]; k < (r + 1) * shape[1]; k++) {
            map_put(type, data, k, values[k]);
            values[k] = map_get(type, data, k);
        }
    }
}

static void open_call(struct call *c, const char *name, int64_t length, eider_dtype type)
{
    *c = (struct call){.name = name, .rows = ROWS, .cols = length};
    must(eider_program_parse(row_context, name, &c->program));
    c->n = eider_program_operands(c->program);
    assert_true(c->n <= ROW_OPERANDS_MAX);
    for (size_t i = 0; i < c->n; i++) {
        must(eider_program_operand(c->program, i, &c->info[i]));
        c->extent[i] = eider_program_extent(c->program, i);
    }
    if (c->extent[c->n - 1] == EIDER_PER_COLUMN) {
        c->rows = length;
        c->cols = COLUMNS;
    }
    for (size_t i = 0; i < c->n; i++) make_operand(c, i, type);
}

static void run(struct call *c)
{
    eider_kernel *kernel;
    eider_request request = {.program = c->program, .args = c->args, .n_args = c->n};
    must(eider_program_eval_rows(c->program, c->rows, c->cols, c->want));
    must(eider_prepare(row_cpu, &request, &kernel));
    must(eider_launch(kernel, NULL, c->args, c->n));
    eider_kernel_release(kernel);
}

static void close_call(struct call *c)
{
    for (size_t i = 0; i < c->n; i++) {
        map_free(c->args[i].data);
        free(c->want[i].data);
    }
    eider_program_release(c->program);
}

/* The largest error of elements `from` to `to` of output i. */
static double error_within(const struct call *c, size_t i, int64_t from, int64_t to)
{
    double mean = 0, most = 0;
    for (int64_t k = from; k < to; k++) {
        double want = fabs(c->want[i].data[k]);
        if (isfinite(want)) mean += want / (double)(to - from);
    }
    for (int64_t k = from; k < to; k++) {
        double want = c->want[i].data[k], got = map_get(c->args[i].type, c->args[i].data, k);
        if (want == got) continue;
        double error = fabs(got - want) / fmax(fabs(want), mean);
        most = error <= most ? most : isnan(error) ? INFINITY : error;
    }
    return most;
}

static double error_of(const struct call *c, size_t i)
{
    double most = 0;
    if (c->extent[i] != EIDER_FULL) return error_within(c, i, 0, c->shape[i][0] * c->shape[i][1]);
    for (int64_t r = 0; r < c->rows; r++)
        most = fmax(most, error_within(c, i, r * c->cols, (r + 1) * c->cols));
    return most;
}

/* ---- All of them ------------------------------------------------------------------------ */

/* Errors of each operand that is an output, by type and length; returns how many operands. */
static size_t measure(const char *name, double out[ROW_OPERANDS_MAX][N_CELLS],
                      char outputs[ROW_OPERANDS_MAX][64])
{
    size_t n = 0;
    for (size_t cell = 0; cell < N_CELLS; cell++) {
        struct call c;
        open_call(&c, name, lengths[cell % COUNT(lengths)], types[cell / COUNT(lengths)]);
        run(&c);
        n = c.n;
        for (size_t i = 0; i < n; i++) {
            int is_output = c.info[i].kind == EIDER_OUTPUT;
            snprintf(outputs[i], sizeof outputs[i], "%s", is_output ? c.info[i].name : "");
            if (is_output) out[i][cell] = error_of(&c, i);
        }
        close_call(&c);
    }
    return n;
}

static void print_table(void)
{
    printf("| program | result |");
    for (size_t cell = 0; cell < N_CELLS; cell++)
        printf(" %s: %lld |", eider_dtype_name(types[cell / COUNT(lengths)]),
               (long long)lengths[cell % COUNT(lengths)]);
    printf("\n|---|---|");
    for (size_t cell = 0; cell < N_CELLS; cell++) printf("--:|");
    printf("\n");
    for (size_t k = 0; eider_programs_row(k); k++) {
        double errors[ROW_OPERANDS_MAX][N_CELLS];
        char outputs[ROW_OPERANDS_MAX][64];
        size_t n = measure(eider_programs_row(k)->name, errors, outputs);
        for (size_t i = 0; i < n; i++) {
            if (!outputs[i][0]) continue;
            printf("| `%s` | `%s` |", eider_programs_row(k)->name, outputs[i]);
            for (size_t cell = 0; cell < N_CELLS; cell++) printf(" %.2g |", errors[i][cell]);
            printf("\n");
        }
        fflush(stdout);
    }
}

static char *document(void)
{
    const char *folder = getenv("EIDER_TEST_DATA");
    char path[4096], *text = NULL;
    snprintf(path, sizeof path, "%s/../docs/NUMERICS.md", folder ? folder : EIDER_TEST_DATA);
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    if (fseek(file, 0, SEEK_END) == 0) {
        long size = ftell(file);
        rewind(file);
        text = calloc((size_t)size + 1, 1);
        if (text && fread(text, 1, (size_t)size, file) != (size_t)size) text[0] = '\0';
    }
    fclose(file);
    return text;
}

static int agrees(double error, double published, int is_e4m3)
{
    double rounding = is_e4m3 ? ROUNDING_OF_E4M3 : ROUNDING;
    return error <= HIGHER * published + rounding && error >= LOWER * published - rounding;
}

/* What the table says of an output. */
static void published(const char *text, const char *program, const char *output,
                      double out[N_CELLS])
{
    char head[160];
    snprintf(head, sizeof head, "\n| `%.60s` | `%.60s` |", program, output);
    const char *at = strstr(text, head);
    if (!at) fail_msg("docs/NUMERICS.md has no row '%s'", head + 1);
    at += strlen(head);
    for (size_t cell = 0; cell < N_CELLS; cell++) {
        char *end;
        out[cell] = strtod(at, &end);
        if (end == at) fail_msg("%s, %s: cell %zu is no number", program, output, cell);
        at = strchr(end, '|') + 1;
    }
}

static void errors_are_what_is_published(void **state)
{
    char *text = document();
    (void)state;
    assert_non_null(text);
    for (size_t k = 0; eider_programs_row(k); k++) {
        double errors[ROW_OPERANDS_MAX][N_CELLS], want[N_CELLS];
        char outputs[ROW_OPERANDS_MAX][64];
        const char *name = eider_programs_row(k)->name;
        size_t n = measure(name, errors, outputs);
        for (size_t i = 0; i < n; i++) {
            if (!outputs[i][0]) continue;
            published(text, name, outputs[i], want);
            for (size_t cell = 0; cell < N_CELLS; cell++)
                if (!agrees(errors[i][cell], want[cell], strcmp(outputs[i], "q") == 0))
                    fail_msg("%s, %s, cell %zu: %.3g, published %.2g", name, outputs[i], cell,
                             errors[i][cell], want[cell]);
        }
    }
    free(text);
}

static void a_result_of_zeros_has_an_error_of_one(void **state)
{
    struct call c;
    (void)state;
    open_call(&c, "softmax", 131072, EIDER_BF16);
    run(&c);
    assert_true(error_of(&c, 1) < 0.01);
    memset(c.args[1].data, 0, (size_t)(c.rows * c.cols) * 2);
    assert_true(error_of(&c, 1) >= 1);
    close_call(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_result_of_zeros_has_an_error_of_one),
        cmocka_unit_test(errors_are_what_is_published),
    };
    const char *what = getenv("EIDER_ROW_ERRORS");
    if (what && strcmp(what, "table") == 0) {
        row_set_up(NULL);
        print_table();
        return row_tear_down(NULL);
    }
    return cmocka_run_group_tests_name("row_errors", tests, row_set_up, row_tear_down);
}
