/* cmd_check.c -- `eider check`: errors against double precision, for one program or all.
 *
 * Not here: inputs and the definition of an error (sweep.h).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "number.h"
#include "say.h"
#include "sweep.h"

static const char *const math_names[] = {"auto", "approx", "fast", "exact"};
#define N_MATHS 4

/* What is checked, and how the result is shown. */
struct check {
    struct cli_session *s;
    eider_math maths[N_MATHS];
    int n_maths;
    double max_ulp;
    int failed;
    json_t *rows;        /* with --json */
    int markdown, brief; /* one line per result */
    const char *name;    /* what the program is called in the table */
};

/* The inputs of an element, "x=1.5, y=-2". */
#define INPUTS_BYTES 256
static const char *inputs_text(const struct cli_sweep *sweep, size_t at, char text[INPUTS_BYTES])
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sweep->operands.n; i++) {
        const struct cli_operand *operand = &sweep->operands.at[i];
        if (operand->info.kind != EIDER_INPUT) continue;
        int n = snprintf(
            text + used, INPUTS_BYTES - used, "%s%s=%.9g", used ? ", " : "", operand->info.name,
            cli_number_plain(cli_number_get(operand->host.type, operand->host.data, at)));
        if (n < 0 || (size_t)n >= INPUTS_BYTES - used) break;
        used += (size_t)n;
    }
    return text;
}

static json_t *worst_json(const struct cli_sweep *sweep, const struct cli_worst *worst)
{
    json_t *inputs = json_object();
    for (size_t i = 0; i < sweep->operands.n; i++) {
        const struct cli_operand *operand = &sweep->operands.at[i];
        if (operand->info.kind != EIDER_INPUT) continue;
        double value = cli_number_get(operand->host.type, operand->host.data, worst->at);
        json_object_set_new(inputs, operand->info.name, cli_json_number(value));
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "error", cli_json_number(worst->error), "inputs",
                     inputs, "got", cli_json_number(worst->got), "want",
                     cli_json_number(worst->want));
}

static json_t *measure_json(const struct check *c, const struct cli_sweep *sweep,
                            const struct cli_operand *output, eider_math math,
                            const struct cli_measure *m)
{
    json_t *mismatches = json_array();
    for (size_t i = 0; i < m->n_mismatches && i < CLI_MISMATCHES_KEPT; i++) {
        json_array_append_new(mismatches, worst_json(sweep, &m->mismatch[i]));
    }
    return json_pack("{s:s, s:s, s:s, s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:I, s:o}", "program",
                     c->name, "output", output->info.name, "type",
                     eider_dtype_name(output->host.type), "math", math_names[math], "inputs",
                     (json_int_t)sweep->n, "absolute", worst_json(sweep, &m->absolute),
                     "absolute_below_1", worst_json(sweep, &m->small), "relative",
                     worst_json(sweep, &m->relative), "ulp", worst_json(sweep, &m->ulp),
                     "ulp_of_subnormals", worst_json(sweep, &m->tiny), "mismatches",
                     (json_int_t)m->n_mismatches, "first_mismatches", mismatches);
}

static void print_worst(const struct cli_sweep *sweep, const char *label,
                        const struct cli_worst *worst)
{
    char inputs[INPUTS_BYTES];
    printf("  %-9s %-11.4g", label, worst->error);
    if (worst->error > 0) {
        printf(" at %s: got %.9g, want %.9g", inputs_text(sweep, worst->at, inputs),
               cli_number_plain(worst->got), cli_number_plain(worst->want));
    }
    putchar('\n');
}

static void print_mismatches(const struct cli_sweep *sweep, const struct cli_measure *m)
{
    char inputs[INPUTS_BYTES];
    if (m->n_mismatches == 0) return;
    printf("  NaN or infinity on one side only: %zu\n", m->n_mismatches);
    for (size_t i = 0; i < m->n_mismatches && i < CLI_MISMATCHES_KEPT; i++) {
        printf("    at %s: got %.9g, want %.9g\n", inputs_text(sweep, m->mismatch[i].at, inputs),
               cli_number_plain(m->mismatch[i].got), cli_number_plain(m->mismatch[i].want));
    }
}

static void print_measure(const struct check *c, const struct cli_sweep *sweep,
                          const struct cli_operand *output, eider_math math,
                          const struct cli_measure *m)
{
    char inputs[INPUTS_BYTES];
    if (c->brief) {
        printf("%-14s %-5s %-5s %-7s %-10.4g %-10.4g %-10.4g %s\n", c->name, output->info.name,
               eider_dtype_name(output->host.type), math_names[math], m->ulp.error, m->tiny.error,
               m->small.error, inputs_text(sweep, m->ulp.at, inputs));
    } else {
        printf("%s  %s  math=%s  %zu inputs  %s\n", output->info.name,
               eider_dtype_name(output->host.type), math_names[math], sweep->n,
               c->s->device_info.name);
        print_worst(sweep, "absolute", &m->absolute);
        print_worst(sweep, "|want|<=1", &m->small);
        print_worst(sweep, "relative", &m->relative);
        print_worst(sweep, "ulp", &m->ulp);
        print_worst(sweep, "subnormal", &m->tiny);
    }
    print_mismatches(sweep, m);
}

/* The row of one output over all modes: measures[mode * n_outputs + output]. */
static void print_markdown(const struct check *c, const struct cli_sweep *sweep, const char *output,
                           size_t which, const struct cli_measure *measures)
{
    char inputs[INPUTS_BYTES];
    size_t n_mismatches = 0;
    printf("| `%s` | `%s` |", c->name, output);
    for (int k = 0; k < c->n_maths; k++) {
        const struct cli_measure *m = &measures[(size_t)k * sweep->n_outputs + which];
        printf(" %.3g | %s | %.3g | %.2g |", m->ulp.error,
               m->ulp.error > 0 ? inputs_text(sweep, m->ulp.at, inputs) : "", m->tiny.error,
               m->small.error);
        n_mismatches += m->n_mismatches;
    }
    printf(" %zu |", n_mismatches);
    putchar('\n');
}

static void report(struct check *c, const struct cli_sweep *sweep,
                   const struct cli_measure *measures)
{
    size_t which = 0;
    for (size_t i = 0; i < sweep->operands.n; i++) {
        const struct cli_operand *output = &sweep->operands.at[i];
        if (output->info.kind != EIDER_OUTPUT) continue;
        for (int k = 0; k < c->n_maths; k++) {
            const struct cli_measure *m = &measures[(size_t)k * sweep->n_outputs + which];
            if (m->n_mismatches || m->ulp.error > c->max_ulp || m->tiny.error > c->max_ulp) {
                c->failed = 1;
            }
            if (c->rows) {
                json_array_append_new(c->rows, measure_json(c, sweep, output, c->maths[k], m));
            } else if (!c->markdown) {
                print_measure(c, sweep, output, c->maths[k], m);
            }
        }
        if (c->markdown && !c->rows) {
            print_markdown(c, sweep, output->info.name, which, measures);
        }
        which++;
    }
    fflush(stdout);
}

static int check_program(struct check *c, const char *text, eider_dtype type)
{
    struct cli_sweep sweep = {0};
    struct cli_measure *measures = NULL;
    int code = cli_session_program(c->s, text);
    if (!code && eider_program_over_rows(c->s->program))
        code = cli_fail(CLI_USAGE, "a program over rows: check compares single elements");
    if (!code) code = cli_sweep_create(c->s, type, &sweep);
    size_t n = sweep.n_outputs * (size_t)c->n_maths;
    if (!code && !(measures = calloc(n ? n : 1, sizeof *measures))) {
        code = cli_fail_memory(n * sizeof *measures);
    }
    for (int k = 0; !code && k < c->n_maths; k++) {
        cli_progress("%s %s %s", c->name, eider_dtype_name(type), math_names[c->maths[k]]);
        c->s->numerics.math = c->maths[k];
        code = cli_sweep_measure(c->s, &sweep, measures + (size_t)k * sweep.n_outputs);
    }
    cli_progress_end();
    if (!code) report(c, &sweep, measures);
    free(measures);
    cli_sweep_release(c->s, &sweep);
    return code;
}

/* A program that calls a function of the table with its operands: the signature without
 * the parameters that have defaults, which are scalars. */
static void call_text(const char *signature, char *text, size_t room)
{
    const char *open = strchr(signature, '(');
    size_t used = open ? (size_t)(open - signature) + 1 : 0;
    if (used == 0 || used + strlen(signature) >= room) {
        snprintf(text, room, "%s", signature);
        return;
    }
    memcpy(text, signature, used);
    int n = 0;
    for (const char *at = open + 1; *at && *at != ')';) {
        size_t length = strcspn(at, ",)");
        if (!memchr(at, '=', length)) {
            if (n++) text[used++] = ',';
            memcpy(text + used, at, length);
            used += length;
        }
        at += length + (at[length] == ',');
    }
    snprintf(text + used, room - used, ")");
}

static void print_head(const struct check *c, eider_dtype type)
{
    if (c->rows) return;
    if (!c->markdown) {
        printf("%-14s %-5s %-5s %-7s %-10s %-10s %-10s %s\n", "function", "", "type", "math", "ulp",
               "subnormal", "|want|<=1", "largest ulp error at");
        return;
    }
    printf("\n%s on %s\n\n| function | result |", eider_dtype_name(type), c->s->device_info.name);
    for (int k = 0; k < c->n_maths; k++) {
        printf(" %s: ulp | at | subnormal | absolute |", math_names[c->maths[k]]);
    }
    printf(" mismatches |\n|---|---|");
    for (int k = 0; k < c->n_maths; k++) printf("--:|---|--:|--:|");
    printf("--:|\n");
}

static int check_all(struct check *c, eider_dtype type)
{
    eider_row row;
    char text[512];
    int code = CLI_OK;
    print_head(c, type);
    for (size_t i = 0; !code && eider_table_row(EIDER_TABLE_ACTIVATIONS, i, &row); i++) {
        call_text(row.signature, text, sizeof text);
        c->name = row.name;
        if (!cli_stdout_broken()) code = check_program(c, text, type);
    }
    return code;
}

static int check(struct check *c)
{
    static const eider_dtype types[] = {EIDER_BF16, EIDER_F16, EIDER_F32};
    const struct cli_options *options = c->s->options;
    const char *only = cli_options_get(options, CLI_TYPE);
    int all = cli_options_has(options, CLI_ALL), code = CLI_OK;
    for (size_t i = 0; !code && i < sizeof types / sizeof types[0]; i++) {
        const char *name = eider_dtype_name(types[i]);
        if (only ? strcmp(only, name) != 0 : !all && types[i] != EIDER_BF16) continue;
        if (all) {
            code = check_all(c, types[i]);
        } else {
            c->name = options->words.at[0];
            if (c->markdown) print_head(c, types[i]);
            code = check_program(c, c->name, types[i]);
        }
    }
    if (c->rows && !code)
        code = cli_print_json(c->rows);
    else
        json_decref(c->rows);
    return !code && c->failed ? CLI_FAILED : code;
}

static int run(const struct cli_options *options)
{
    struct cli_session session = {0};
    int all = cli_options_has(options, CLI_ALL);
    if (all == (options->words.n == 1)) {
        return cli_fail(CLI_USAGE, "expected either a program or --all");
    }
    struct check c = {
        .s = &session, .brief = all, .markdown = cli_options_has(options, CLI_MARKDOWN)};
    int code = cli_options_number(options, CLI_MAX_ULP, 0, INFINITY, &c.max_ulp);
    if (!code) code = cli_session_open(options, &session);
    if (!code) code = cli_session_device(&session);
    if (!code) {
        c.maths[c.n_maths++] = session.numerics.math;
        if (all && !cli_options_has(options, CLI_MATH)) {
            c.n_maths = 0;
            for (eider_math m = EIDER_MATH_APPROX; m <= EIDER_MATH_EXACT; m++) {
                c.maths[c.n_maths++] = m;
            }
        }
        if (cli_options_has(options, CLI_JSON)) c.rows = json_array();
        code = check(&c);
    }
    cli_session_close(&session);
    return code;
}

const struct cli_command cli_cmd_check = {
    .name = "check",
    .summary = "Measures the largest errors of a program against double precision",
    .usage = "PROGRAM|--all [--type TYPE]",
    .about =
        "One input: all 65,536 values of a 16-bit type, or 1,048,576 of f32 spread over all its\n"
        "patterns. More inputs: the first is swept the same way, the others take normal numbers,\n"
        "random patterns and special values. The inputs are the same each time.\n\n"
        "An error is |got - want|, also divided by |want| (relative) and by the output type's\n"
        "spacing at `want` (ulp, apart for normal and subnormal `want`), taken where the inputs\n"
        "but the first are of ordinary size. Exit code 1: NaN or infinity on one side only, or\n"
        "an error beyond --max-ulp. docs/NUMERICS.md has the details.\n",
    .examples = "  eider check 'out = gelu_tanh(x)'\n"
                "  eider check 'out = silu(gate) * up' --type f32 --math exact --max-ulp 2\n"
                "  eider check 'out = tanh(x)' --grad all --device cpu\n"
                "  eider check --all --markdown\n",
    .options = CLI_USES_COMMON | CLI_USES_KERNEL | CLI_USES(SCALAR) | CLI_USES(ALL) |
               CLI_USES(TYPE) | CLI_USES(MAX_ULP) | CLI_USES(MARKDOWN),
    .min_words = 0,
    .max_words = 1,
    .run = run,
};
