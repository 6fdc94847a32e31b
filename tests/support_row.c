/* support_row.c -- see support_row.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support_row.h"

eider_context *row_context;
eider_device *row_cpu;

int row_set_up(void **state)
{
    (void)state;
    must(eider_context_create(NULL, &row_context));
    must(eider_device_open(row_context, "cpu", &row_cpu));
    return 0;
}

int row_tear_down(void **state)
{
    (void)state;
    eider_device_release(row_cpu);
    eider_context_destroy(row_context);
    return 0;
}

/* ---- A call ------------------------------------------------------------------ */

int64_t row_rows_of(const struct row_call *c, size_t i)
{
    return c->extent[i] == EIDER_PER_COLUMN || c->info[i].kind == EIDER_SCALAR ? 1 : c->rows;
}

int64_t row_cols_of(const struct row_call *c, size_t i)
{
    return c->extent[i] == EIDER_PER_ROW || c->info[i].kind == EIDER_SCALAR ? 1 : c->cols;
}

static void make_operand(struct row_call *c, size_t i)
{
    must(eider_program_operand(c->program, i, &c->info[i]));
    c->extent[i] = eider_program_extent(c->program, i);
    int is_target = strcmp(c->info[i].name, "target") == 0; /* a place in the row */
    eider_dtype type = c->info[i].type >= 0 ? (eider_dtype)c->info[i].type
                       : is_target          ? EIDER_I64
                                            : c->type;
    int64_t rows = row_rows_of(c, i), cols = row_cols_of(c, i), pitch = cols;
    if (c->extent[i] == EIDER_FULL && c->info[i].kind != EIDER_SCALAR) pitch += c->gap;
    size_t size = eider_dtype_size(type);
    int64_t elements = rows > 0 ? (rows - 1) * pitch + cols : 0;
    void *data = map_alloc((size_t)elements * size, (c->misalign + i * c->apart) * size);
    c->shape[i][0] = rows;
    c->shape[i][1] = cols;
    c->strides[i][0] = pitch;
    c->strides[i][1] = 1;
    c->args[i] = (eider_tensor){.data = data, .type = type, .rank = 2, .shape = c->shape[i]};
    if (c->gap) c->args[i].strides = c->strides[i];
    if (c->info[i].kind == EIDER_SCALAR) c->args[i].rank = 0;
    c->want[i] = (eider_doubles){calloc((size_t)(rows * cols) + 1, sizeof(double)),
                                 rows > 1 ? cols : 0, cols > 1 ? 1 : 0};
    for (int64_t r = 0; r < rows && c->info[i].kind != EIDER_OUTPUT; r++)
        for (int64_t k = 0; k < cols; k++) {
            map_put(type, data, r * pitch + k, c->fill(i, r, k));
            c->want[i].data[r * cols + k] = map_get(type, data, r * pitch + k);
        }
}

void row_make(struct row_call *c)
{
    must(eider_program_parse(row_context, c->text, &c->program));
    c->n = eider_program_operands(c->program);
    assert_true(c->n <= ROW_OPERANDS_MAX);
    for (size_t i = 0; i < c->n; i++) make_operand(c, i);
    must(eider_program_eval_rows(c->program, c->rows, c->cols, c->want));
}

void row_release(struct row_call *c)
{
    for (size_t i = 0; i < c->n; i++) {
        map_free(c->args[i].data);
        free(c->want[i].data);
    }
    eider_program_release(c->program);
}

size_t row_span(const struct row_call *c, size_t i)
{
    int64_t rows = row_rows_of(c, i), cols = row_cols_of(c, i);
    int64_t elements = rows > 0 ? (rows - 1) * c->strides[i][0] + cols : 0;
    return (size_t)elements * eider_dtype_size(c->args[i].type);
}

/* Bytes of the guard band that lie before an operand on the device, too: it is as far from an
 * alignment of 64 bytes as on the host. */
static size_t band(const struct row_call *c, size_t i)
{
    return 64 + (uintptr_t)c->args[i].data % 64;
}

/* Nothing lies behind its last element: that is for a memory checker to watch. */
static void *upload(const struct row_call *c, size_t i, void **block)
{
    size_t off = band(c, i), bytes = off + row_span(c, i);
    must(eider_memory_alloc(c->device, bytes, block));
    must(eider_memory_copy(c->device, NULL, *block, (char *)c->args[i].data - off, bytes,
                           EIDER_HOST_TO_DEVICE));
    return (char *)*block + off;
}

/* The first operand at the same place. */
static size_t owner_of(const struct row_call *c, size_t i)
{
    size_t k = 0;
    while (c->args[k].data != c->args[i].data) k++;
    return k;
}

static void launch_there(const struct row_call *c, eider_kernel *kernel)
{
    eider_tensor args[ROW_OPERANDS_MAX];
    void *blocks[ROW_OPERANDS_MAX] = {NULL};
    for (size_t i = 0; i < c->n; i++) {
        args[i] = c->args[i];
        if (owner_of(c, i) < i)
            args[i].data = args[owner_of(c, i)].data;
        else if (c->info[i].kind != EIDER_SCALAR)
            args[i].data = upload(c, i, &blocks[i]);
    }
    must(eider_launch(kernel, NULL, args, c->n));
    must(eider_stream_wait(c->device, NULL));
    for (size_t i = 0; i < c->n; i++) {
        size_t off = band(c, i);
        if (c->info[i].kind == EIDER_OUTPUT)
            must(eider_memory_copy(c->device, NULL, (char *)c->args[i].data - off,
                                   blocks[owner_of(c, i)], off + row_span(c, i),
                                   EIDER_DEVICE_TO_HOST));
    }
    for (size_t i = 0; i < c->n; i++)
        if (blocks[i]) eider_memory_free(c->device, blocks[i]);
}

eider_request row_request(const struct row_call *c)
{
    return (eider_request){.program = c->program,
                           .args = c->args,
                           .n_args = c->n,
                           .config = c->config,
                           .any_layout = c->any,
                           .numerics = {.math = c->math}};
}

void row_run(struct row_call *c)
{
    eider_kernel *kernel;
    eider_request request = row_request(c);
    eider_device *device = c->device ? c->device : row_cpu;
    if (eider_prepare(device, &request, &kernel) != EIDER_OK)
        fail_msg("%s [%s]: %s", c->text, c->config, eider_error());
    if (c->device)
        launch_there(c, kernel);
    else if (eider_launch(kernel, NULL, c->args, c->n) != EIDER_OK)
        fail_msg("%s [%s]: %s", c->text, c->config, eider_error());
    eider_kernel_release(kernel);
}

double row_got(const struct row_call *c, size_t i, int64_t row, int64_t col)
{
    return map_get(c->args[i].type, c->args[i].data, row * c->strides[i][0] + col);
}

double row_want(const struct row_call *c, size_t i, int64_t row, int64_t col)
{
    return c->want[i].data[row * c->want[i].row_stride + col * c->want[i].col_stride];
}

double row_output(const struct row_call *c, const char *name, int64_t row, int64_t col)
{
    for (size_t i = 0; i < c->n; i++)
        if (strcmp(c->info[i].name, name) == 0) return row_got(c, i, row, col);
    fail_msg("no output %s", name);
    return 0;
}

/* What lies between the rows of an output is as it was. */
static void compare_gaps(const struct row_call *c, size_t i)
{
    size_t size = eider_dtype_size(c->args[i].type), end = (size_t)row_cols_of(c, i) * size;
    size_t pitch = (size_t)c->strides[i][0] * size;
    const unsigned char *data = c->args[i].data;
    for (int64_t r = 0; r + 1 < row_rows_of(c, i); r++, data += pitch)
        for (size_t at = end; at < pitch; at++)
            if (data[at] != MAP_FRESH)
                fail_msg("%s [%s]: %s: byte %zu after row %lld was written", c->text,
                         c->config ? c->config : "", c->info[i].name, at - end, (long long)r);
}

/* Errors are relative to the value, or to `least` where that is larger. */
void row_compare(const struct row_call *c, double tolerance, double least)
{
    for (size_t i = 0; i < c->n; i++) {
        if (c->info[i].kind != EIDER_OUTPUT) continue;
        compare_gaps(c, i);
        for (int64_t r = 0; r < row_rows_of(c, i); r++)
            for (int64_t k = 0; k < row_cols_of(c, i); k++) {
                double w = row_want(c, i, r, k), g = row_got(c, i, r, k);
                int good = isnan(w)   ? isnan(g)
                           : isinf(w) ? g == w
                                      : fabs(g - w) <= tolerance * fmax(fabs(w), least);
                if (!good)
                    fail_msg("%s [%s] %lld x %lld: %s[%lld, %lld] is %.9g, want %.9g", c->text,
                             c->config ? c->config : "", (long long)c->rows, (long long)c->cols,
                             c->info[i].name, (long long)r, (long long)k, g, w);
            }
    }
}

void row_check(struct row_call c, double tolerance, double least)
{
    row_make(&c);
    row_run(&c);
    row_compare(&c, tolerance, least);
    row_release(&c);
}

void row_check_alone(const char *config, int64_t cols)
{
    struct row_call c = {
        .text = row_softmax, .config = config, .rows = 17, .cols = cols, .fill = row_same};
    struct row_call few = c;
    few.rows = 2;
    row_make(&c);
    row_run(&c);
    row_make(&few);
    row_run(&few);
    for (int64_t r = 1; r < c.rows; r += 3)
        for (size_t i = 0; i < c.n; i++)
            for (int64_t col = 0; col < row_cols_of(&c, i); col++)
                assert_true(row_got(&c, i, r, col) == row_got(&few, i, 1, col));
    row_release(&few);
    row_release(&c);
}

void row_check_in_place(const char *config, int64_t cols, eider_device *device)
{
    static const struct {
        const char *text;
        size_t input, output;
    } cases[] = {
        {"in x, t: i32 row; y = exp(x - logsumexp(x)) - pick(x, t)", 0, 2},
        {"in x, t: i32 row; y = x - 2 * pick(x, 3)", 0, 2},
        {"in x, t: i32 row; y = x - 2 * pick(x, argmin(x))", 0, 2},
        {"in x, s: row; y = x * s; t = s * 2 + 1", 1, 3},
        {"in x, s: row; y = x * s - max(x); t = sum(x) - s", 1, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct row_call c = {.text = cases[i].text,
                             .config = config,
                             .rows = 3,
                             .cols = cols,
                             .fill = row_wave,
                             .device = device};
        row_make(&c);
        void *own = c.args[cases[i].output].data;
        c.args[cases[i].output].data = c.args[cases[i].input].data;
        row_run(&c);
        row_compare(&c, device ? 4e-6 : 1e-6, 1);
        c.args[cases[i].output].data = own;
        row_release(&c);
    }
}

int row_count(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)); at++) n++;
    return n;
}

/* Spread over [-2, 2], different everywhere. */
double row_wave(size_t i, int64_t row, int64_t col)
{
    uint64_t x = (uint64_t)row * 0x9E3779B97F4A7C15u + (uint64_t)col * 0xBF58476D1CE4E5B9u + i;
    x = (x ^ x >> 31) * 0x94D049BB133111EBu;
    return (double)(x >> 40) / (double)(1 << 22) - 2;
}

double row_only_one(size_t i, int64_t row, int64_t col)
{
    (void)i;
    return row == col ? 3 : -INFINITY;
}

double row_masked(size_t i, int64_t row, int64_t col)
{
    return col < row ? row_wave(i, row, col) : -INFINITY;
}

double row_one_nan(size_t i, int64_t row, int64_t col)
{
    return row == col ? NAN : row_wave(i, row, col);
}

const char row_softmax[] = "m = max(x); e = exp(x - m); y = e / sum(e)\n"
                           "l = logsumexp(x); a = argmax(x); k = argmin(x)";

/* ---- For several suites ----------------------------------------------------------- */

const char row_everything[] =
    "in x, w: column, s: row\n"
    "m = max(x); e = exp(x - m); y = e / sum(e) * w\n"
    "z = (x - mean(x)) * s + pick(x, argmin(x))\n"
    "a = argmax(x); l = logsumexp(x); p = pick(x * w, cols() - 1) + sum(select(x > 0, x, 0))\n"
    "q = select(any(x > 1.99) or all(x < 1), amin(x), 7) + col() * 0 + row()\n";

void row_everything_args(eider_tensor args[9], int64_t *full, int64_t *column, int64_t *row)
{
    int64_t *const shapes[] = {full, column, row, full, full, row, row, row, full};
    for (size_t i = 0; i < 9; i++) args[i] = tensor_of(NULL, EIDER_BF16, 2, shapes[i]);
}

double row_ties(size_t i, int64_t row, int64_t col)
{
    (void)i;
    return (double)((row + 7 * col) % 5);
}

double row_all_equal(size_t i, int64_t row, int64_t col)
{
    (void)i, (void)col;
    return row ? -INFINITY : NAN;
}

double row_tiny_after_large(size_t i, int64_t row, int64_t col)
{
    (void)i, (void)row;
    return col ? 0x1p-26 : 1;
}

double row_large_mean(size_t i, int64_t row, int64_t col)
{
    (void)i;
    return (row ? 10000 : 40000) + (row ? (double)col * 1e-3 : (double)(col % 4));
}

double row_same(size_t i, int64_t row, int64_t col)
{
    return row % 3 == 1 ? row_wave(i, 0, col) : row % 3 == 2 ? NAN : row_wave(i, row, col) * 1e30;
}

uint64_t row_random_state;

uint32_t row_below(uint32_t n)
{
    row_random_state += 0x9E3779B97F4A7C15u;
    uint64_t x = row_random_state;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return (uint32_t)((x ^ x >> 31) % n);
}
