/* test_row_goldens.c -- programs over rows against goldens/rows.json: the reference evaluation in
 * double, and kernels on the CPU in f32 in two schedules, forward and backward.
 *
 * Errors are in units of the last place of f32 (or double) at the size that goldens/README.md
 * gives for each result; what is allowed is a few of them, more where exp amplifies.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support_runtime.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define OPERANDS_MAX 12
#define ELEMENTS_MAX 128 /* of an operand */

static eider_context *ctx;
static eider_device *cpu;
static json_t *goldens;

static int set_up(void **state)
{
    const char *folder = getenv("EIDER_TEST_DATA");
    char path[1024];
    (void)state;
    snprintf(path, sizeof path, "%s/goldens/rows.json", folder ? folder : EIDER_TEST_DATA);
    goldens = json_load_file(path, 0, NULL);
    if (!goldens) fail_msg("%s is not there", path);
    must(eider_context_create(NULL, &ctx));
    must(eider_device_open(ctx, "cpu", &cpu));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    json_decref(goldens);
    eider_device_release(cpu);
    eider_context_destroy(ctx);
    return 0;
}

/* ---- Values of a case ------------------------------------------------------------ */

static double number(const json_t *v)
{
    return json_is_string(v) ? strtod(json_string_value(v), NULL) : json_number_value(v);
}

/* Element (row, col) of what may be one number, a row, a column or rows. */
static double element(const json_t *v, size_t row, size_t col)
{
    if (!json_is_array(v)) return number(v);
    if (json_is_array(json_array_get(v, 0)))
        return number(json_array_get(json_array_get(v, row), col));
    return number(json_array_get(v, json_array_size(v) == 1 ? 0 : col));
}

static const json_t *key_of(const json_t *golden, const char *key)
{
    const json_t *v = json_object_get(golden, key);
    if (!v) fail_msg("%s has no %s", json_string_value(json_object_get(golden, "id")), key);
    return v;
}

/* ---- Running ----------------------------------------------------------------------- */

struct run {
    const json_t *golden;
    eider_program *program;
    size_t n, rows, cols;
    eider_operand info[OPERANDS_MAX];
    eider_extent extent[OPERANDS_MAX];
    double in[OPERANDS_MAX][ELEMENTS_MAX], out[OPERANDS_MAX][ELEMENTS_MAX];
    size_t n_rows[OPERANDS_MAX], n_cols[OPERANDS_MAX];
};

/* "weight=out_weight": the key that an operand's value has; its name, where none is given. */
static const char *key_in(const char *keys, const char *name, char *buffer)
{
    size_t length = strlen(name);
    for (const char *at = keys; at && *at; at = strchr(at, ' '), at = at ? at + 1 : NULL)
        if (strncmp(at, name, length) == 0 && at[length] == '=') {
            sscanf(at + length + 1, "%63s", buffer);
            return buffer;
        }
    return name;
}

static void set_input(struct run *r, size_t i, const char *keys)
{
    char buffer[64];
    const char *key = key_in(keys, r->info[i].name, buffer);
    const json_t *v = json_object_get(r->golden, key);
    double given = strtod(key, NULL); /* "z_loss=0" */
    int is_row = r->extent[i] == EIDER_PER_ROW;
    if (!v && key == r->info[i].name) fail_msg("no value for %s", key);
    for (size_t row = 0; row < r->n_rows[i]; row++)
        for (size_t col = 0; col < r->n_cols[i]; col++)
            r->in[i][row * r->n_cols[i] + col] = !v ? given
                                                 : is_row && json_is_array(v)
                                                     ? number(json_array_get(v, row))
                                                     : element(v, row, col);
}

static void prepare(struct run *r, const json_t *golden, const char *text, const char *rows_key,
                    int backward, const char *wrt, const char *keys)
{
    const json_t *x = key_of(golden, rows_key);
    memset(r, 0, sizeof *r);
    r->golden = golden;
    r->rows = json_is_array(json_array_get(x, 0)) ? json_array_size(x) : 1;
    r->cols = r->rows > 1 || json_is_array(json_array_get(x, 0))
                  ? json_array_size(json_array_get(x, 0))
                  : json_array_size(x);
    must(eider_program_parse(ctx, text, &r->program));
    if (backward) {
        eider_program *back;
        const char *names[4];
        char list[64];
        eider_grad_options options = {.wrt = names};
        snprintf(list, sizeof list, "%s", wrt);
        for (char *at = strtok(list, " "); at; at = strtok(NULL, " ")) names[options.n_wrt++] = at;
        must(eider_program_grad(r->program, &options, &back));
        eider_program_release(r->program);
        r->program = back;
    }
    r->n = eider_program_operands(r->program);
    assert_true(r->n <= OPERANDS_MAX);
    for (size_t i = 0; i < r->n; i++) {
        must(eider_program_operand(r->program, i, &r->info[i]));
        r->extent[i] = eider_program_extent(r->program, i);
        int is_scalar = r->info[i].kind == EIDER_SCALAR;
        r->n_rows[i] = is_scalar || r->extent[i] == EIDER_PER_COLUMN ? 1 : r->rows;
        r->n_cols[i] = is_scalar || r->extent[i] == EIDER_PER_ROW ? 1 : r->cols;
        assert_true(r->n_rows[i] * r->n_cols[i] <= ELEMENTS_MAX);
        if (r->info[i].kind != EIDER_OUTPUT) set_input(r, i, keys);
    }
}

static void evaluate(struct run *r)
{
    eider_doubles at[OPERANDS_MAX];
    for (size_t i = 0; i < r->n; i++) {
        double *data = r->info[i].kind == EIDER_OUTPUT ? r->out[i] : r->in[i];
        int64_t cols = (int64_t)r->n_cols[i];
        at[i] = (eider_doubles){data, r->n_rows[i] > 1 ? cols : 0, cols > 1 ? 1 : 0};
    }
    must(eider_program_eval_rows(r->program, (int64_t)r->rows, (int64_t)r->cols, at));
}

static int is_integer(const struct run *r, size_t i)
{
    return r->info[i].type == EIDER_I64 || r->info[i].type == EIDER_I32 ||
           strcmp(r->info[i].name, "target") == 0;
}

static void launch(struct run *r, const char *config)
{
    static float floats[OPERANDS_MAX][ELEMENTS_MAX];
    static int64_t integers[OPERANDS_MAX][ELEMENTS_MAX];
    int64_t shapes[OPERANDS_MAX][2];
    eider_tensor args[OPERANDS_MAX];
    eider_kernel *kernel;
    for (size_t i = 0; i < r->n; i++) {
        int whole = is_integer(r, i);
        shapes[i][0] = (int64_t)r->n_rows[i];
        shapes[i][1] = (int64_t)r->n_cols[i];
        for (size_t k = 0; k < r->n_rows[i] * r->n_cols[i]; k++) {
            floats[i][k] = (float)r->in[i][k];
            integers[i][k] = whole ? (int64_t)r->in[i][k] : 0;
        }
        int rank = r->info[i].kind == EIDER_SCALAR ? 0 : 2;
        args[i] = tensor_of(whole ? (void *)integers[i] : (void *)floats[i],
                            whole ? EIDER_I64 : EIDER_F32, rank, shapes[i]);
    }
    eider_request request = {.program = r->program,
                             .args = args,
                             .n_args = r->n,
                             .config = config,
                             .numerics = {.math = EIDER_MATH_FAST}};
    must(eider_prepare(cpu, &request, &kernel));
    must(eider_launch(kernel, NULL, args, r->n));
    eider_kernel_release(kernel);
    for (size_t i = 0; i < r->n; i++)
        for (size_t k = 0; k < r->n_rows[i] * r->n_cols[i]; k++)
            r->out[i][k] = is_integer(r, i) ? (double)integers[i][k] : (double)floats[i][k];
}

/* ---- Comparing ---------------------------------------------------------------------- */

/* The size at which the error of an element counts, and how many units are allowed. */
typedef double (*sizer)(const json_t *golden, size_t row, size_t col, double want, double *units);

static double largest(const json_t *v, size_t row, size_t cols)
{
    double most = 0;
    for (size_t k = 0; k < cols; k++)
        if (isfinite(element(v, row, k))) most = fmax(most, fabs(element(v, row, k)));
    return most;
}

static size_t width(const json_t *v)
{
    return json_array_size(json_is_array(json_array_get(v, 0)) ? json_array_get(v, 0) : v);
}

/* exp(x - most): an argument that is rounded loses |x - most| units. */
static double probability(const json_t *golden, size_t row, size_t col, double want, double *units)
{
    const json_t *x = json_object_get(golden, "x");
    double most = -INFINITY;
    for (size_t k = 0; k < width(x); k++) most = fmax(most, element(x, row, k));
    double below = most - element(x, row, col);
    *units = 8 + (isfinite(below) ? 2 * below : 0);
    return fabs(want);
}

static double softmax_slope(const json_t *golden, size_t row, size_t col, double want,
                            double *units)
{
    const json_t *dy = json_object_get(golden, "dy");
    double y =
        probability(golden, row, col, element(json_object_get(golden, "out_y"), row, col), units);
    (void)want;
    return y * largest(dy, row, width(dy));
}

static double share(const json_t *golden, size_t row, size_t col, double want, double *units)
{
    double size = probability(golden, row, col, want, units);
    const json_t *x = json_object_get(golden, "x");
    *units += largest(x, row, width(x)); /* the logarithm is rounded, too */
    return size;
}

static double of_logits(const json_t *golden, size_t row, size_t col, double want, double *units)
{
    const json_t *x = json_object_get(golden, json_object_get(golden, "x") ? "x" : "logits");
    (void)col;
    *units = 8;
    return fmax(fabs(want), largest(x, row, width(x)));
}

static double logit_slope(const json_t *golden, size_t row, size_t col, double want, double *units)
{
    const json_t *x = json_object_get(golden, "logits");
    (void)col, (void)want;
    *units = 8 + 2 * largest(x, row, width(x));
    return fabs(number(json_array_get(json_object_get(golden, "dloss"), row)));
}

static double norm_value(const json_t *golden, size_t row, size_t col, double want, double *units)
{
    const json_t *bias = json_object_get(golden, "bias");
    (void)row;
    *units = 12;
    double weight = fabs(element(json_object_get(golden, "weight"), 0, col));
    return fmax(fabs(want), bias ? fmax(fabs(element(bias, 0, col)), weight) : weight);
}

static double norm_slope(const json_t *golden, size_t row, size_t col, double want, double *units)
{
    const json_t *dy = json_object_get(golden, "dy"), *weight = json_object_get(golden, "weight");
    double rstd = number(json_array_get(json_object_get(golden, "out_rstd"), row)), most = 0;
    (void)col, (void)want;
    for (size_t k = 0; k < width(dy); k++)
        most = fmax(most, fabs(element(dy, row, k) * element(weight, 0, k)));
    *units = 24;
    return rstd * most;
}

static double plain(const json_t *golden, size_t row, size_t col, double want, double *units)
{
    (void)golden, (void)row, (void)col;
    *units = 8;
    return fabs(want);
}

/* Sums down the rows: of at most three magnitudes of this size. */
static double down(const json_t *golden, size_t row, size_t col, double want, double *units)
{
    const json_t *dy = json_object_get(golden, "dy");
    double all = fabs(want);
    (void)row;
    size_t n = json_is_array(json_array_get(dy, 0)) ? json_array_size(dy) : 1;
    for (size_t k = 0; k < n; k++) all += 6 * fabs(element(dy, k, col));
    *units = 32;
    return all;
}

static double magnitudes(const json_t *golden, size_t row, size_t col, double want, double *units)
{
    const json_t *x = json_object_get(golden, "x");
    double all = 0;
    (void)row, (void)col, (void)want;
    for (size_t k = 0; k < width(x); k++) all += fabs(element(x, 0, k));
    *units = 8;
    return all;
}

static void compare(const struct run *r, const char *name, const char *key, sizer size, double unit)
{
    const json_t *want = key_of(r->golden, key);
    const char *id = json_string_value(json_object_get(r->golden, "id"));
    size_t i = 0;
    while (i < r->n && strcmp(r->info[i].name, name) != 0) i++;
    if (i == r->n) fail_msg("%s: no output %s", id, name);
    for (size_t row = 0; row < r->n_rows[i]; row++)
        for (size_t col = 0; col < r->n_cols[i]; col++) {
            double units, got = r->out[i][row * r->n_cols[i] + col];
            int per_row = r->n_cols[i] == 1 && json_is_array(want) && r->cols > 1;
            double w = per_row ? number(json_array_get(want, row)) : element(want, row, col);
            double allowed = fmax(size(r->golden, row, col, w, &units), 0x1p-126);
            if (isnan(w) ? !isnan(got) : !(fabs(got - w) <= units * unit * allowed))
                fail_msg("%s: %s[%zu, %zu] is %.9g, want %.9g: %.3g units of %.3g allowed", id,
                         name, row, col, got, w, fabs(got - w) / (unit * allowed), units);
        }
}

/* ---- The programs ----------------------------------------------------------------------- */

#define CE_KEYS "target=targets z_loss=0"

/* Each: which cases, which program or gradient of it, and its results. */
static const struct check {
    const char *op, *rows, *text, *wrt, *keys;
    struct {
        const char *name, *key;
        sizer size;
    } results[4];
    int kernels; /* they run; else only the reference */
} checks[] = {
    {"softmax", "x", "softmax", NULL, "", {{"y", "out_y", probability}}, 1},
    {"softmax", "x", "safe_softmax", NULL, "", {{"y", "out_y", probability}}, 1},
    {"softmax", "x", "softmax_backward", NULL, "y=out_y", {{"dx", "out_dx", softmax_slope}}, 1},
    {"softmax", "x", "softmax", "x", "", {{"dx", "out_dx", softmax_slope}}, 1},
    {"logsumexp", "x", "lse = logsumexp(x)", NULL, "", {{"lse", "out_lse", of_logits}}, 1},
    {"logsumexp", "x", "lse = logsumexp(x)", "x", "dlse=dout", {{"dx", "out_dx", share}}, 1},
    {"cross_entropy",
     "logits",
     "cross_entropy_smooth_train",
     NULL,
     CE_KEYS,
     {{"loss", "out_loss", of_logits}, {"dlogits", "out_dlogits", logit_slope}},
     1},
    {"cross_entropy",
     "logits",
     "cross_entropy_smooth",
     NULL,
     CE_KEYS,
     {{"loss", "out_loss", of_logits}},
     1},
    {"cross_entropy",
     "logits",
     "cross_entropy_smooth",
     "logits",
     CE_KEYS " dlse=0",
     {{"dlogits", "out_dlogits", logit_slope}},
     1},
    {"cross_entropy",
     "logits",
     "cross_entropy_full_train",
     NULL,
     CE_KEYS " class_weight=1",
     {{"loss", "out_loss", of_logits}, {"dlogits", "out_dlogits", logit_slope}},
     1},
    {"cross_entropy",
     "out_loss",
     "loss_sum",
     NULL,
     "loss=out_loss",
     {{"total", "out_loss_sum", plain}},
     1},
    {"cross_entropy",
     "out_loss",
     "loss_mean",
     NULL,
     "loss=out_loss target=targets",
     {{"mean", "out_loss_mean", plain}},
     1},
    {"rmsnorm",
     "x",
     "add_rmsnorm_full",
     NULL,
     "residual=0 bias=0 offset=0",
     {{"y", "out_y", norm_value}, {"rstd", "out_rstd", plain}},
     1},
    {"rmsnorm",
     "x",
     "add_rmsnorm_backward",
     NULL,
     "total=x rstd=out_rstd dtotal=0 offset=0",
     {{"dx", "out_dx", norm_slope}},
     1},
    {"layernorm",
     "x",
     "add_layernorm_full",
     NULL,
     "residual=0 offset=0",
     {{"y", "out_y", norm_value}, {"mean", "out_mean", of_logits}, {"rstd", "out_rstd", plain}},
     1},
    {"layernorm",
     "x",
     "add_layernorm_backward",
     NULL,
     "total=x mean=out_mean rstd=out_rstd dtotal=0 offset=0",
     {{"dx", "out_dx", norm_slope}},
     1},
    {"rmsnorm",
     "x",
     "rmsnorm_saved",
     NULL,
     "",
     {{"y", "out_y", norm_value}, {"rstd", "out_rstd", plain}},
     1},
    {"rmsnorm", "x", "rmsnorm_backward", NULL, "rstd=out_rstd", {{"dx", "out_dx", norm_slope}}, 1},
    {"rmsnorm",
     "x",
     "rmsnorm_dweight",
     NULL,
     "rstd=out_rstd",
     {{"dweight", "out_dweight", down}},
     1},
    {"rmsnorm",
     "x",
     "rmsnorm",
     "x weight",
     "",
     {{"dx", "out_dx", norm_slope}, {"dweight", "out_dweight", down}},
     0},
    {"rmsnorm", "x", "rmsnorm", "x", "", {{"dx", "out_dx", norm_slope}}, 1},
    {"layernorm",
     "x",
     "layernorm_saved",
     NULL,
     "",
     {{"y", "out_y", norm_value}, {"mean", "out_mean", of_logits}, {"rstd", "out_rstd", plain}},
     1},
    {"layernorm",
     "x",
     "layernorm_backward",
     NULL,
     "mean=out_mean rstd=out_rstd",
     {{"dx", "out_dx", norm_slope}},
     1},
    {"layernorm",
     "x",
     "layernorm",
     "x weight bias",
     "",
     {{"dx", "out_dx", norm_slope}, {"dweight", "out_dweight", down}, {"dbias", "out_dbias", down}},
     0},
    {"reduce",
     "x",
     "m = max(x); s = sum(x); a = mean(x); out i: i64; i = argmax(x)",
     NULL,
     "",
     {{"m", "out_max", plain},
      {"i", "out_argmax", plain},
      {"s", "out_sum", magnitudes},
      {"a", "out_mean", magnitudes}},
     1},
};

static void check_run(struct run *r, const struct check *c, double unit)
{
    for (size_t k = 0; k < COUNT(c->results) && c->results[k].name; k++)
        compare(r, c->results[k].name, c->results[k].key, c->results[k].size, unit);
}

static int check_all(int kernels, const char *config)
{
    static struct run r;
    int n = 0;
    for (size_t k = 0; k < COUNT(checks); k++) {
        const struct check *c = &checks[k];
        const json_t *golden;
        size_t i;
        if (kernels && !c->kernels) continue;
        json_array_foreach(json_object_get(goldens, "cases"), i, golden)
        {
            if (strcmp(json_string_value(json_object_get(golden, "op")), c->op) != 0) continue;
            prepare(&r, golden, c->text, c->rows, c->wrt != NULL, c->wrt, c->keys);
            if (kernels)
                launch(&r, config);
            else
                evaluate(&r);
            check_run(&r, c, kernels ? 0x1p-23 : 0x1p-44);
            eider_program_release(r.program);
            n++;
        }
    }
    return n;
}

static void the_reference_has_the_golden_values(void **state)
{
    (void)state;
    assert_int_equal(check_all(0, NULL), 7 * 20 + 8 * 5);
}

static void kernels_have_the_golden_values(void **state)
{
    (void)state;
    assert_true(check_all(1, NULL) > 100);
    assert_true(check_all(1, "block=64,row=64,vec=1,keep=1,unroll=1") > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reference_has_the_golden_values),
        cmocka_unit_test(kernels_have_the_golden_values),
    };
    return cmocka_run_group_tests_name("row goldens", tests, set_up, tear_down);
}
