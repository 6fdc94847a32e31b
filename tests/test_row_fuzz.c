/* test_row_fuzz.c -- programs over rows that chance has written: their kernels, those of their
 * gradients and of both parts of what takes two agree with the reference evaluation, gradients with
 * slopes; and texts that are damaged give one error in a line, or are programs.
 *
 * A case follows from its number alone.  EIDER_RANDOM_FIRST and EIDER_RANDOM_CASES, in the
 * environment, choose others than the usual ones.
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

#include "program.h"
#include "programs.h"
#include "support_row.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define USUAL_CASES 12
#define DAMAGED 2000
#define TEXT_BYTES 4096

static uint64_t number_in(const char *variable, uint64_t otherwise)
{
    const char *value = getenv(variable);
    return value ? strtoull(value, NULL, 10) : otherwise;
}

/* ---- Writing a program ---------------------------------------------------------------- */

struct text {
    char bytes[TEXT_BYTES];
    size_t used;
    int n_names; /* t0, t1, ... are assigned already */
};

static void add(struct text *t, const char *what)
{
    size_t n = strlen(what);
    if (t->used + n >= sizeof t->bytes) fail_msg("a text of more than %d bytes", TEXT_BYTES);
    memcpy(t->bytes + t->used, what, n + 1);
    t->used += n;
}

static void add_any(struct text *t, const char *const *what, size_t n)
{
    add(t, what[row_below((uint32_t)n)]);
}

/* Forms of an expression; % is another one, P a place, X an input of all elements.  What would
 * overflow, or fall on either side of a step by its rounding, is not among them. */
static const char *const forms[] = {
    "tanh(%)",
    "sigmoid(%)",
    "(% + %)",
    "(% - %)",
    "% * 0.5",
    "% * s",
    "% * w",
    "max(%, %)",
    "min(%, 0.75)",
    "abs(%)",
    "mean(%)",
    "mean(% * %)",
    "sum(%) * 0.01",
    "logsumexp(%)",
    "max(X)",
    "min(X)",
    "amax(X)",
    "pick(%, P)",
    "pick(%, P)",
    "select(X > 0.25, %, %)",
    "silu(%)",
    "select(col() < 3, %, %)",
    "exp(tanh(%))",
    "% / (1.5 + abs(%))",
    "select(any(X > 1.99), %, %)",
    "rsqrt(abs(mean(%)) + 0.5)",
};
static const char *const leaves[] = {"x", "y", "x", "s", "w", "0.25", "row() * 0.125", "x * y"};
static const char *const inputs[] = {"x", "y"};
static const char *const places[] = {"0",
                                     "cols() - 1",
                                     "argmax(x)",
                                     "k",
                                     "cols() - 1 - col()",
                                     "min(col() + 1, cols() - 1)",
                                     "max(col() - 2, 0)",
                                     "select(x > 0, col(), 0)",
                                     "col() + select(col() < 1, cols() - 1, -1)"};

static void add_expression(struct text *t, int depth)
{
    char name[16];
    if (t->n_names && row_below(5) == 0) {
        snprintf(name, sizeof name, "t%d", (int)row_below((uint32_t)t->n_names));
        add(t, name);
        return;
    }
    if (depth == 0) {
        add_any(t, leaves, COUNT(leaves));
        return;
    }
    for (const char *form = forms[row_below(COUNT(forms))]; *form; form++) {
        char one[] = {*form, '\0'};
        if (*form == '%')
            add_expression(t, depth - 1);
        else if (*form == 'P')
            add_any(t, places, COUNT(places));
        else if (*form == 'X')
            add_any(t, inputs, COUNT(inputs));
        else
            add(t, one);
    }
}

/* Some values, of which some are results; `sums` of them down the rows. */
static void write_program(struct text *t)
{
    char name[32];
    memset(t, 0, sizeof *t);
    add(t, "in x, y, w: column, s: row, k: i32 row\n");
    for (uint32_t n = row_below(3); n; n--) {
        snprintf(name, sizeof name, "t%d = ", t->n_names);
        add(t, name);
        add_expression(t, 2);
        add(t, "\n");
        t->n_names++;
    }
    for (uint32_t i = 0, n = 1 + row_below(3); i < n; i++) {
        int is_sum = row_below(4) == 0;
        snprintf(name, sizeof name, is_sum ? "r%u = colsum(" : "r%u = ", (unsigned)i);
        add(t, name);
        add_expression(t, 1 + (int)row_below(3));
        add(t, is_sum ? ")\n" : "\n");
    }
}

/* ---- Running it -------------------------------------------------------------------------- */

/* Places that are in the row, and elements. */
static double any_value(size_t i, int64_t row, int64_t col)
{
    return i == 4 ? (double)(row % 3) : row_wave(i, row, col);
}

static void run_kernel(const eider_program *program)
{
    static const eider_dtype types[] = {EIDER_F32, EIDER_F32, EIDER_BF16, EIDER_F16, EIDER_F64};
    static const char *const configs[] = {NULL,
                                          NULL,
                                          "block=32,row=32,vec=1,keep=1,unroll=2",
                                          "block=64,row=8,vec=1,keep=0,unroll=1",
                                          "block=32,row=4,vec=1,keep=0,unroll=2,online=1",
                                          "split=4,block=32,row=32,vec=1,unroll=2",
                                          "cluster=2,block=32,row=32,vec=1,keep=2,unroll=1"};
    struct row_call c = {.text = eider_program_text(program),
                         .config = configs[row_below(COUNT(configs))],
                         .type = types[row_below(COUNT(types))],
                         .math = EIDER_MATH_FAST,
                         .rows = 1 + row_below(6),
                         .cols = 3 + row_below(90),
                         .fill = any_value};
    if (c.type == EIDER_F64) c.math = EIDER_MATH_EXACT;
    int has_16_bits = c.type == EIDER_BF16 || c.type == EIDER_F16;
    if (eider_program_operands(program) > ROW_OPERANDS_MAX) return;
    if (c.config && strstr(c.config, "cluster") && strstr(c.text, "colsum")) c.config = NULL;
    row_check(c, has_16_bits ? 8e-3 : 3e-4, 1);
}

/* In one kernel, or in two. */
static void run_program(const eider_program *program)
{
    eider_program *parts[2] = {NULL};
    if (eider_template_for(program->expanded)) {
        run_kernel(program);
        return;
    }
    must(eider_program_split(program, &parts[0], &parts[1]));
    for (int p = 0; p < 2; p++) {
        if (!parts[p]) continue;
        if (!eider_template_for(parts[p]->expanded))
            fail_msg("no kernel for %s", eider_program_text(parts[p]));
        run_kernel(parts[p]);
        eider_program_release(parts[p]);
    }
}

/* ---- Slopes, in double ---------------------------------------------------------------------- */

#define SLOPE_ROWS 3
#define SLOPE_COLS 7
#define OPERANDS_MAX 24

struct values {
    const eider_program *program;
    size_t n;
    eider_operand info[OPERANDS_MAX];
    double data[OPERANDS_MAX][SLOPE_ROWS * SLOPE_COLS];
    eider_doubles at[OPERANDS_MAX];
};

static void describe(struct values *v, const eider_program *program)
{
    *v = (struct values){.program = program, .n = eider_program_operands(program)};
    assert_true(v->n <= OPERANDS_MAX);
    for (size_t i = 0; i < v->n; i++) {
        eider_extent extent = eider_program_extent(program, i);
        must(eider_program_operand(program, i, &v->info[i]));
        v->at[i] = (eider_doubles){v->data[i], extent == EIDER_PER_COLUMN ? 0 : SLOPE_COLS,
                                   extent == EIDER_PER_ROW ? 0 : 1};
    }
}

static size_t find(const struct values *v, const char *prefix, const char *name)
{
    char wanted[80];
    snprintf(wanted, sizeof wanted, "%s%.60s", prefix, name);
    for (size_t i = 0; i < v->n; i++)
        if (strcmp(v->info[i].name, wanted) == 0) return i;
    fail_msg("no operand %s", wanted);
    return 0;
}

/* Calls `visit` for each element of operand i. */
static double sum_over(const struct values *v, size_t i,
                       double (*visit)(const struct values *v, size_t i, int64_t r, int64_t k))
{
    double total = 0;
    for (int64_t r = 0; r < (v->at[i].row_stride ? SLOPE_ROWS : 1); r++)
        for (int64_t k = 0; k < (v->at[i].col_stride ? SLOPE_COLS : 1); k++)
            total += visit(v, i, r, k);
    return total;
}

static double *element(const struct values *v, size_t i, int64_t r, int64_t k)
{
    return &v->at[i].data[r * v->at[i].row_stride + k * v->at[i].col_stride];
}

static double slope_step; /* along the direction */

static double direction(size_t i, int64_t r, int64_t k)
{
    return i == 4 ? 0 : row_wave(i + 50, r, k);
}

static double put_input(const struct values *v, size_t i, int64_t r, int64_t k)
{
    *element(v, i, r, k) = any_value(i, r, k) + slope_step * direction(i, r, k);
    return 0;
}

static double weigh_output(const struct values *v, size_t i, int64_t r, int64_t k)
{
    return *element(v, i, r, k) * row_wave(i + 90, r, k);
}

/* The results at `step` along the direction, weighted. */
static double objective(const struct values *v, double step)
{
    double total = 0;
    slope_step = step;
    for (size_t i = 0; i < v->n; i++)
        if (v->info[i].kind == EIDER_INPUT) sum_over(v, i, put_input);
    must(eider_program_eval_rows(v->program, SLOPE_ROWS, SLOPE_COLS, v->at));
    for (size_t i = 0; i < v->n; i++)
        if (v->info[i].kind == EIDER_OUTPUT) total += sum_over(v, i, weigh_output);
    return total;
}

static const struct values *slope_back;

/* To the input of the gradient program that operand i of the program is, or that weighs it. */
static double hand_over(const struct values *v, size_t i, int64_t r, int64_t k)
{
    int is_output = v->info[i].kind == EIDER_OUTPUT;
    size_t at = find(slope_back, is_output ? "d" : "", v->info[i].name);
    *element(slope_back, at, r, k) = is_output ? row_wave(i + 90, r, k) : any_value(i, r, k);
    return 0;
}

static double along_direction(const struct values *v, size_t i, int64_t r, int64_t k)
{
    return *element(slope_back, find(slope_back, "d", v->info[i].name), r, k) * direction(i, r, k);
}

/* The slope of the objective, by the gradient program. */
static double slope(const struct values *v, const struct values *back)
{
    double total = 0;
    slope_back = back;
    for (size_t i = 0; i < v->n; i++) sum_over(v, i, hand_over);
    must(eider_program_eval_rows(back->program, SLOPE_ROWS, SLOPE_COLS, back->at));
    for (size_t i = 0; i < 4; i++) total += sum_over(v, i, along_direction); /* not k */
    return total;
}

/* A step of the wrong size may cross a kink. */
static void compare_slopes(const eider_program *program, const eider_program *backward)
{
    static struct values v, back;
    double want = 0;
    describe(&v, program);
    describe(&back, backward);
    double got = slope(&v, &back);
    for (double step = 1e-5; step > 1e-8; step /= 10) {
        want = (objective(&v, step) - objective(&v, -step)) / (2 * step);
        if (fabs(got - want) <= 1e-6 * (1 + fabs(want))) return;
    }
    fail_msg("%s: slope %.12g, gradient %.12g", eider_program_text(program), want, got);
}

static void run_case(uint64_t number)
{
    struct text t;
    eider_program *program, *back;
    row_random_state = number * 0xD1342543DE82EF95u;
    write_program(&t);
    if (getenv("EIDER_RANDOM_CASES"))
        fprintf(stderr, "case %llu:\n%s\n", (unsigned long long)number, t.bytes);
    if (eider_program_parse(row_context, t.bytes, &program) != EIDER_OK)
        fail_msg("%s%s", t.bytes, eider_error());
    run_program(program);
    eider_grad_options options = {.with_forward = row_below(3) == 0};
    if (eider_program_grad(program, &options, &back) != EIDER_OK)
        fail_msg("%s%s", t.bytes, eider_error());
    compare_slopes(program, back);
    run_program(back);
    eider_program_release(back);
    eider_program_release(program);
}

static void programs_by_chance_agree_with_the_reference(void **state)
{
    uint64_t first = number_in("EIDER_RANDOM_FIRST", 1);
    uint64_t n = number_in("EIDER_RANDOM_CASES", USUAL_CASES);
    for (uint64_t i = 0; i < n; i++) {
        run_case(first + i);
        if (i % 16 != 15) continue; /* a context keeps its kernels */
        row_tear_down(state);
        row_set_up(state);
    }
}

/* ---- Damage --------------------------------------------------------------------------------- */

static const char *const tokens[] = {
    "(",       ")",       ",",        "=",    ":",       "\n",   ";",     " col() ",
    "row",     "colsum(", "pick(",    "sum(", " full",   " in ", " out ", "max(",
    " i32 ",   "1e400",   "-",        "**",   "not ",    "_",    "\"",    "x",
    "select(", "t0",      "cast(x, ", "e4m3", "argmax(", "0x"};

static void damage(char *text, size_t room)
{
    size_t n = strlen(text), at = row_below((uint32_t)n + 1);
    const char *token = tokens[row_below(COUNT(tokens))];
    size_t more = strlen(token), cut = row_below(6);
    switch (row_below(3)) {
    case 0:
        if (at + cut <= n) memmove(text + at, text + at + cut, n - at - cut + 1);
        break;
    case 1:
        if (n + more < room) {
            memmove(text + at + more, text + at, n - at + 1);
            memcpy(text + at, token, more);
        }
        break;
    default:
        if (at < n) text[at] = (char)(1 + row_below(126));
        break;
    }
}

static void look_at_error(const char *text)
{
    const char *error = eider_error();
    if (!*error || strchr(error, '\n') || strlen(error) > 400) fail_msg("%s: '%s'", text, error);
}

/* Everything short of a kernel. */
static int survives(const char *text)
{
    eider_program *program, *back, *parts[2] = {NULL};
    if (eider_program_parse(row_context, text, &program) != EIDER_OK) {
        look_at_error(text);
        return 0;
    }
    if (eider_program_grad(program, NULL, &back) != EIDER_OK) {
        look_at_error(text);
        back = NULL;
    }
    const eider_program *what = back ? back : program;
    if (eider_program_split(what, &parts[0], &parts[1]) != EIDER_OK) look_at_error(text);
    eider_program_release(parts[0]);
    eider_program_release(parts[1]);
    eider_program_release(back);
    eider_program_release(program);
    return 1;
}

static void damaged_texts_give_one_error_or_are_programs(void **state)
{
    size_t n_programs = 0, n_good = 0;
    (void)state;
    while (eider_programs_row(n_programs)) n_programs++;
    row_random_state = number_in("EIDER_RANDOM_FIRST", 1);
    for (int i = 0; i < DAMAGED; i++) {
        struct text t;
        char text[2 * TEXT_BYTES];
        write_program(&t);
        snprintf(text, sizeof text, "%s",
                 i % 2 ? t.bytes : eider_programs_row(row_below((uint32_t)n_programs))->text);
        for (uint32_t k = 1 + row_below(3); k; k--) damage(text, sizeof text);
        n_good += (size_t)survives(text);
    }
    assert_true(n_good > DAMAGED / 50 && n_good < DAMAGED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_by_chance_agree_with_the_reference),
        cmocka_unit_test(damaged_texts_give_one_error_or_are_programs),
    };
    return cmocka_run_group_tests_name("row_fuzz", tests, row_set_up, row_tear_down);
}
