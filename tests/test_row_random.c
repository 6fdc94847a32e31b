/* test_row_random.c -- kernels over rows of random programs, configs, lengths and layouts, on the
 * CPU: each is refused with an error that says why, or agrees with the reference evaluation.
 *
 * A case follows from its number alone.  EIDER_RANDOM_FIRST and EIDER_RANDOM_CASES, in the
 * environment, choose others than the usual ones.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "programs.h"
#include "support_row.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define USUAL_CASES 32
#define CASES_OF_A_CONTEXT 16 /* it keeps kernels, and those the stacks of their threads */

/* ---- What a case is ------------------------------------------------------------- */

static const char *const texts[] = {
    "in x, w: column, s: row\n"
    "m = max(x); e = exp(x - m); y = e / sum(e) * w; z = (x - mean(x)) * s + pick(x, argmin(x))\n"
    "a = argmax(x); l = logsumexp(x); p = pick(x * w, cols() - 1) + sum(select(x > 0, x, 0))\n"
    "q = select(any(x > 1.99) or all(x < 1), amin(x), 7) + col() * 0 + row()\n",
    row_softmax,
    "in x, w: column; y = x * rsqrt(mean(x * x) + 0.01) * w; s = amax(abs(x))",
    "in x, t: i32 row; y = x - 2 * pick(x, t)",
    "in x; y = x * 2 + pick(x, cols() - 1 - col())",
    "in x, s: row, w: column\n" /* sums down the rows */
    "a = colsum(s * 2); b = colsum(pick(x * w, min(col() + 1, cols() - 1)) * pick(x, 0))",
    "in s: row, w: column; y = s * w + row(); z = max(w); t = s * s + sum(w)",
    "in x, w: column; l = logsumexp(x * w); a = argmin(x * w)",
    "in x, s: row; t = s * 2; y = x + s",
    "in x, z, w: column; y = x * w + z; r = sum(x * z); m = min(z)",
    "in x, w: column; out y, v; d = x * 0.5 - mean(x * 0.5); e = mean(d)\n"
    "v = mean(d * d) - e * e; y = (d - e) * w + exp(x - max(x)) / sum(exp(x - max(x)))",
    "in x: i32, k: i64; out s: i64, d: i32; s = sum(x) + max(k); d = x - argmax(k)",
};

static const char *const parameters[] = {
    "vec",      "unroll", "block", "row",       "keep",   "cluster", "shared",   "async",
    "resident", "load",   "store", "registers", "online", "split",   "mbarrier", "ahead"};

/* Sets where a value of the parameter is, in text that goes on; returns how many bytes it has. */
static int choose_value(const char *parameter, const char **out)
{
    const char *name, *values = NULL, *doc;
    for (size_t i = 0; eider_config_row(i, &name, &values, &doc); i++)
        if (strcmp(name, parameter) == 0) break;
    uint32_t n = 1;
    for (const char *c = values; *c; c++) n += *c == '|';
    for (uint32_t at = row_below(n); at; at--) values = strchr(values, '|') + 1;
    *out = values;
    return (int)strcspn(values, "|");
}

static void choose_config(char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    uint32_t rarity = 1 + row_below(4), splits = row_below(4) == 0;
    for (size_t i = 0; i < COUNT(parameters); i++) {
        const char *value;
        if (row_below(rarity + 1) > 1) continue;
        if (strcmp(parameters[i], "registers") == 0 && row_below(8)) continue; /* GPUs only */
        if (strcmp(parameters[i], "split") == 0 && !splits) continue;
        if (strstr("row keep cluster shared resident", parameters[i]) && splits && row_below(8))
            continue; /* what parts of rows do not have */
        int bytes = choose_value(parameters[i], &value);
        used += (size_t)snprintf(out + used, size - used, "%s%s=%.*s", used ? "," : "",
                                 parameters[i], bytes, value);
    }
}

static int64_t choose_cols(void)
{
    static const int64_t lengths[] = {128, 256, 512, 1024, 4097, 50257};
    return row_below(8) ? 1 + row_below(300) : lengths[row_below(COUNT(lengths))];
}

static double small_places(size_t i, int64_t row, int64_t col)
{
    return (double)row + 0.3 + 0.1 * row_wave(i, row, col);
}

static const char *choose_text(int *is_named)
{
    size_t n = 0;
    while (eider_programs_row(n)) n++;
    *is_named = (int)row_below(2);
    return *is_named ? eider_programs_row(row_below((uint32_t)n))->name
                     : texts[row_below(COUNT(texts))];
}

static struct row_call choose_call(char *config, size_t size)
{
    static const eider_dtype types[] = {EIDER_F32, EIDER_F32, EIDER_BF16, EIDER_F16, EIDER_F64};
    int is_named;
    struct row_call c = {.text = choose_text(&is_named), .config = config};
    c.fill = is_named ? small_places : row_wave;
    c.type = types[row_below(COUNT(types))];
    c.math = c.type == EIDER_F64 ? EIDER_MATH_EXACT : EIDER_MATH_FAST;
    c.cols = choose_cols();
    if (c.cols > 300 && c.type == EIDER_F16) c.type = EIDER_BF16; /* sums of f16 end at 65504 */
    c.rows = c.cols > 4000 ? 1 + row_below(3) : row_below(10);
    c.misalign = row_below(2) ? row_below(9) : 0;
    c.apart = row_below(4) ? 0 : row_below(4);
    c.gap = row_below(2) ? 0 : row_below(6);
    c.any = row_below(5) == 0;
    choose_config(config, size);
    return c;
}

/* ---- Running one ------------------------------------------------------------------- */

/* The first output that may take the place of an input, and that input. */
static int find_place(const struct row_call *c, size_t *input, size_t *output)
{
    for (*output = 0; *output < c->n; ++*output)
        for (*input = 0; *input < *output; ++*input)
            if (c->info[*output].kind == EIDER_OUTPUT && c->info[*input].kind == EIDER_INPUT &&
                c->args[*input].type == c->args[*output].type && c->extent[*input] == EIDER_FULL &&
                c->extent[*output] == EIDER_FULL)
                return 1;
    return 0;
}

/* Refused with a reason that names what is too large or does not fit. */
static void look_at_refusal(const struct row_call *c, eider_status status, int in_place)
{
    if (in_place && status == EIDER_OVERLAP) return;
    int names = 0;
    for (size_t i = 0; i < COUNT(parameters); i++)
        names |= strstr(eider_error(), parameters[i]) != NULL;
    int is_known = status == EIDER_CONFIG || status == EIDER_TOO_LARGE || status == EIDER_BAD_ARG;
    if (!is_known || !names) fail_msg("%s [%s]: %s", c->text, c->config, eider_error());
}

static int launch_once(const struct row_call *c, int in_place)
{
    eider_kernel *kernel = NULL;
    eider_request request = row_request(c);
    eider_status status = eider_prepare(row_cpu, &request, &kernel);
    if (status == EIDER_OK) status = eider_launch(kernel, NULL, c->args, c->n);
    if (status != EIDER_OK) look_at_refusal(c, status, in_place);
    eider_kernel_release(kernel);
    return status == EIDER_OK;
}

static double tolerance_of(const struct row_call *c)
{
    for (size_t i = 0; i < c->n; i++)
        if (eider_dtype_size(c->args[i].type) == 1) return 0.14; /* a rounding the other way */
    return c->type == EIDER_F16 || c->type == EIDER_BF16 ? 2e-2 : 1e-4;
}

static int run_case(uint64_t number)
{
    char config[256];
    size_t from = 0, to = 0;
    row_random_state = number * 0xD1342543DE82EF95u;
    struct row_call c = choose_call(config, sizeof config);
    if (getenv("EIDER_RANDOM_CASES"))
        fprintf(stderr,
                "case %llu: %.40s [%s] %lld x %lld, type %d, misalign %d, apart %d, "
                "gap %d%s\n",
                (unsigned long long)number, c.text, config, (long long)c.rows, (long long)c.cols,
                (int)c.type, (int)c.misalign, (int)c.apart, (int)c.gap, c.any ? ", any" : "");
    row_make(&c);
    int in_place = row_below(3) == 0 && find_place(&c, &from, &to);
    void *own = in_place ? c.args[to].data : NULL;
    if (in_place) c.args[to].data = c.args[from].data;
    int ran = launch_once(&c, in_place);
    if (ran) row_compare(&c, tolerance_of(&c), 1);
    if (in_place) c.args[to].data = own;
    row_release(&c);
    return ran;
}

static uint64_t number_in(const char *variable, uint64_t otherwise)
{
    const char *value = getenv(variable);
    return value ? strtoull(value, NULL, 10) : otherwise;
}

static void random_kernels_are_right_or_refused_by_name(void **state)
{
    uint64_t first = number_in("EIDER_RANDOM_FIRST", 1);
    uint64_t n = number_in("EIDER_RANDOM_CASES", USUAL_CASES), n_run = 0;
    (void)state;
    for (uint64_t i = 0; i < n; i++) {
        n_run += (uint64_t)run_case(first + i);
        if (i % CASES_OF_A_CONTEXT) continue;
        row_tear_down(state);
        row_set_up(state);
    }
    if (n >= USUAL_CASES) assert_true(n_run > n / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_kernels_are_right_or_refused_by_name),
    };
    return cmocka_run_group_tests_name("row_random", tests, row_set_up, row_tear_down);
}
